"""How far a command is: one line on stderr, on a terminal, once it has taken longer than a second.

The line erases itself, and contains no escape sequence but colour.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, TypeVar

from .output import cut, one_line, terminal_columns, width

if TYPE_CHECKING:
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

_HIDDEN_S = 1.0
_BETWEEN_S = 0.1  # counting must not slow down a hundred thousand items
_BAR_COLUMNS = 20
_LABEL_COLUMNS = 40
_Files = TypeVar("_Files", bound="RecordFiles")


class Bar:
    """The line itself. It draws when an item is done, never more often than a person can see."""

    def __init__(
        self, label: str, total: int | None, stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._label = cut(one_line(label), _LABEL_COLUMNS)
        self._total, self._stream, self._clock = total, stream, clock
        self._done = self._columns = 0
        self._began = clock()
        self._next = self._began + _HIDDEN_S
        self._lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        self._done += count
        self.draw()

    def draw(self) -> None:
        now = self._clock()
        with self._lock:
            if now < self._next:
                return
            self._next = now + _BETWEEN_S
            try:  # of the terminal that stderr leads to: stdout may lead elsewhere
                columns = os.get_terminal_size(self._stream.fileno()).columns
            except (OSError, ValueError):
                columns = 0
            line = cut(self.line(now - self._began), (columns or terminal_columns()) - 1)
            self._write(line + " " * (self._columns - width(line)))
            self._columns = width(line)

    def erase(self) -> None:
        with self._lock:
            self._next = float("inf")
            if self._columns:
                self._write(" " * self._columns + "\r")
                self._columns = 0

    def line(self, passed_s: float) -> str:
        """Return the line after so many seconds."""
        rate = self._done / passed_s if passed_s > 0 else 0.0
        speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
        if self._total is None or self._total < 2:
            done = f"{self._done:,}  {speed}  " if self._done > 1 and rate else ""
            return f"{self._label}  {done}{_length(passed_s)}"
        bar = "#" * round(min(1.0, self._done / self._total) * _BAR_COLUMNS)
        # More may be done than was counted before.
        left_s = max(self._total - self._done, 0) / rate if rate else 0.0
        left = f"{speed}  {_length(left_s)} left" if rate else _length(passed_s)
        return f"{self._label}  [{bar:.<{_BAR_COLUMNS}}]  {self._done:,}/{self._total:,}  {left}"

    def _write(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        text = line.encode(encoding, "backslashreplace").decode(encoding)
        is_plain = bool(os.environ.get("NO_COLOR")) or not text.strip()
        with suppress(OSError, ValueError):  # a terminal that is gone stops no work
            self._stream.write("\r" + (text if is_plain else f"\x1b[36m{text}\x1b[0m"))
            self._stream.flush()


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield the function to call for each item. A single long step shows how long it has taken."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    bar = Bar(label, total, sys.stderr)
    is_over = threading.Event()

    def tick() -> None:  # also while one item takes long
        while not is_over.wait(_BETWEEN_S * 2):
            bar.draw()

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield bar.advance
    finally:
        is_over.set()
        ticking.join()
        bar.erase()


def for_each(
    files: Sequence[_Files], label: str, do: Callable[[_Files], Outcome], *, dry_run: bool
) -> Outcome:
    """Return the outcome of all. Of several, one that fails stops no other."""
    from smp_client import SessionNotFound, SMPError
    from smp_client.model.outcome import Outcome

    whole = Outcome(dry_run=dry_run)
    with progress(label, len(files)) as advance:
        for one in files:
            name = one.scope.name
            try:
                part = do(one)
            except (SMPError, OSError) as error:
                if len(files) == 1:
                    raise
                # A session that is gone went meanwhile.
                gone = isinstance(error, SessionNotFound)
                part = Outcome(problems=[] if gone else [f"{name}: {error}"])
            for said in (part.problems, part.notes) if len(files) > 1 else ():
                said[:] = [text if name in text else f"{name}: {text}" for text in said]
            whole.add(part)
            advance()
    return whole


def _length(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
