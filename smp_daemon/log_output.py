"""Where log lines go. A line that cannot be written must never stop the work it speaks of: it is counted, and the number is said
as soon as lines can be written again."""

from __future__ import annotations

import os
import re
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from smp_client import SMPError
from smp_client.files import DIRECTORY_MODE, Tree, write_all

# What a pipe takes without waiting once it says that it takes something.
_PIECE_BYTES = min(select.PIPE_BUF, 4096)
_STALLED_S = 1.0
_APPENDING = os.O_WRONLY | os.O_APPEND

_FAILURES = (OSError, ValueError, SMPError)

Render = Callable[..., str]


class Target(Protocol):
    def write(self, line: bytes) -> str | None:
        """Writes the line or raises OSError; gives back what else is wrong."""
        ...

    def close(self) -> None: ...


class Nowhere:
    """For a process whose stderr was closed before it began."""

    def write(self, line: bytes) -> str | None:
        raise OSError("stderr is closed")

    def close(self) -> None:
        return


class Stream:
    """A descriptor of somebody else's: a terminal, a pipe, a socket of the journal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._patience_s = _STALLED_S
        self._torn = False

    def write(self, line: bytes) -> str | None:
        if self._torn:
            line = b"\n" + line
        for start in range(0, len(line), _PIECE_BYTES):
            self._wait()
            write_all(self._descriptor, line[start : start + _PIECE_BYTES])
            # Until the rest is through, what was written is a piece of a line.
            self._torn = True
        self._torn = False
        return None

    def _wait(self) -> None:
        """Not for ever: a reader that has stopped reading would stop the daemon too, and keep it from stopping."""
        if not select.select([], [self._descriptor], [], self._patience_s)[1]:
            self._patience_s = 0.0
            raise TimeoutError("nobody reads what is written")
        self._patience_s = _STALLED_S

    def close(self) -> None:
        return


class RotatingFile:
    """A file of our own. When it is full it becomes `name.1`, what was `name.1` becomes `name.2`, and so on."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self._tree = Tree(path.parent)
        self._name = path.name
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor: int | None = None
        self._torn = False

    def write(self, line: bytes) -> str | None:
        trouble = None
        descriptor = self._opened()
        if (size := os.fstat(descriptor).st_size) and size + len(line) > self._max_bytes:
            try:
                self._rotate()
                descriptor = self._opened()
            except OSError as error:
                # Better a file that is too long than lines that are lost; but it must not grow without end.
                trouble = str(error)
                if size + len(line) > 2 * self._max_bytes:
                    raise
        self._append(descriptor, line)
        return trouble

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, descriptor: int, line: bytes) -> None:
        before = os.fstat(descriptor).st_size
        if self._torn:
            line = b"\n" + line
        try:
            write_all(descriptor, line)
            self._torn = False
        except OSError:
            # A full disk takes a piece of a line, which no reader of JSON would understand.
            if before < os.fstat(descriptor).st_size < before + len(line):
                os.ftruncate(descriptor, before)
            raise

    def _opened(self) -> int:
        if self._descriptor is not None and not self._is_in_place(self._descriptor):
            self.close()
        if self._descriptor is None:
            self._descriptor = self._open()
        return self._descriptor

    def _is_in_place(self, descriptor: int) -> bool:
        """Whether the file still has its name: logrotate, another daemon or a person may have taken it away."""
        try:
            named = self._tree.stat(self._name)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    def _open(self) -> int:
        for directory in reversed([self._tree.root, *self._tree.root.parents]):
            if not directory.exists():
                directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        try:
            self._torn = self._ends_inside_a_line()
            return self._tree.open(self._name, _APPENDING)
        except FileNotFoundError:
            self._torn = False
            return self._tree.open(self._name, _APPENDING | os.O_CREAT)

    def _ends_inside_a_line(self) -> bool:
        """Whether the last writer was killed in the middle of a line."""
        with self._tree.opened(self._name) as descriptor:
            size = os.fstat(descriptor).st_size
            return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"

    def _rotate(self) -> None:
        for number in sorted(self._set_aside(), reverse=True):
            if number >= self._keep:
                self._tree.unlink(f"{self._name}.{number}")
            else:
                self._tree.rename(f"{self._name}.{number}", f"{self._name}.{number + 1}")
        self._tree.rename(self._name, f"{self._name}.1")

    def _set_aside(self) -> Iterator[int]:
        for name in self._tree.list(""):
            if match := re.fullmatch(re.escape(self._name) + r"\.([1-9][0-9]{0,5})", name):
                yield int(match[1])


class Output:
    """Writes each line to its target. It never raises, and any thread may use it."""

    def __init__(self, target: Target, render: Render, complain: Target | None = None) -> None:
        self._target = target
        self._render = render
        self._complain = complain  # where to say that the target fails, if there is another place
        self._lock = threading.RLock()
        self._trouble: str | None = None
        self._unsaid = 0  # lines lost since the last one that was written
        self._reason = ""
        self.lost_lines = 0

    def msg(self, text: str) -> None:
        with self._lock:
            try:
                self._say_what_was_lost()
                self._put(text)
            except _FAILURES as error:
                self._count(str(error))

    debug = info = warning = error = critical = exception = msg

    def redirect(self, target: Target, complain: Target | None) -> None:
        """From now on to another target; what was lost until now is said there."""
        with self._lock:
            self._close_target()
            self._target, self._complain, self._trouble = target, complain, None

    def close(self) -> None:
        with self._lock, suppress(*_FAILURES):
            self._say_what_was_lost()
        self._close_target()

    def _say_what_was_lost(self) -> None:
        if self._unsaid:
            self._put(self._render("log lines lost", lost=self._unsaid, reason=self._reason))
            self._unsaid = 0

    def _put(self, text: str) -> None:
        trouble = self._target.write(_encoded(text))
        if trouble is not None and self._trouble is None:
            self._target.write(_encoded(self._render("log rotation failed", reason=trouble)))
        self._trouble = trouble

    def _count(self, reason: str) -> None:
        self.lost_lines += 1
        self._unsaid += 1
        self._reason = reason
        if self._unsaid == 1 and self._complain is not None:
            # Where this fails too there is nobody left to tell; the count remains.
            with suppress(*_FAILURES):
                self._complain.write(_encoded(self._render("log cannot be written", reason=reason)))

    def _close_target(self) -> None:
        with suppress(*_FAILURES):
            self._target.close()


def _encoded(text: str) -> bytes:
    # File names may hold bytes that are not UTF-8.
    return text.encode("utf-8", "backslashreplace") + b"\n"
