"""Kernel locks, one for each file that is written, in `.smp/locks/{scope}/`.

The kernel frees a lock when its holder dies, so none is ever stale, and no lock file is removed.
The content of a lock file is never needed: it is a note for the next holder (see `append.py`), with
the name of the holder, for people, where a lock is held for long. Of any other lock the kernel says
who holds it, so that an append writes nothing for people.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from ..model import errors
from ..model.errors import LockTimeout, UnsafePath
from ..model.layout import GLOBAL, LOCKS, METADATA, lock_rank
from . import tally
from .state_name import flat
from .tree import Tree

_MEND = "smp doctor --fix mends it, or says what to do."
NO_PATIENCE = 0.0  # as a timeout: try once
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PADDED_BYTES, _READ_BYTES = 512, 4096
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02
_LOOK_EVERY_S = 1.0  # at the holder of a lock that somebody waits for
_KERNEL_LOCKS = "/proc/locks"  # Linux alone has it
_KERNEL_BYTES = 4 * 1024 * 1024
_COMMAND_CHARACTERS = 100


class Lock:
    """A held lock. The last holder left `note`, and this one leaves it for the next."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.note, self._length = _read(descriptor)
        self._saved = dict(self.note)

    def save(self) -> None:
        """Write the note down now. Raise OSError where it cannot be kept, as on a full disk."""
        # Padded with blanks, since a write in place is far cheaper than a new length.
        text = json.dumps(self.note).encode().ljust(_PADDED_BYTES)
        os.pwrite(self.descriptor, text, 0)
        if self._length > len(text):
            # The rest of a longer text would make this one unreadable.
            os.ftruncate(self.descriptor, len(text))
        self._length, self._saved = len(text), dict(self.note)

    def free(self) -> None:
        import filelock

        try:
            if self.note != self._saved:
                self.save()
        except OSError:
            # Without the note (on a full disk, say) the next holder reads the file instead.
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
        finally:
            # Closing alone would not do: a child that was forked meanwhile has the open file too.
            # The work under the lock is done, whatever becomes of the lock.
            with suppress(OSError):
                filelock.unlock_descriptor(self.descriptor)
            os.close(self.descriptor)


@contextmanager
def lock(tree: Tree, scope: str, file: str, timeout_s: float, doing: str) -> Iterator[Lock]:
    """Hold a lock for long: whoever gives up waiting for it reads who holds it, and why."""
    with lock_all(tree, scope, [file], timeout_s, doing) as held:
        program = f"{sys.argv[0] or 'python'} on {os.uname().nodename}"
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        held[file].note["holder"] = f"pid {os.getpid()} ({program}), {doing} since {since}"
        held[file].note["pid"] = os.getpid()
        held[file].note["host"] = os.uname().nodename
        held[file].save()
        yield held[file]


@contextmanager
def lock_all(
    tree: Tree, scope: str, files: Iterable[str], timeout_s: float, doing: str
) -> Iterator[dict[str, Lock]]:
    """Lock several files of one scope, in the one order that cannot deadlock."""
    held: dict[str, Lock] = {}
    try:
        for file in sorted(set(files), key=lock_rank):
            held[file] = _acquire(tree, scope, file, timeout_s, doing)
        tree.forget_reached()
        yield held
    finally:
        for one in held.values():
            one.free()


def guarded(scope: str, files: Iterable[str]) -> set[str]:
    """Return the locks that a writer of these files takes: theirs, and for some the metadata's.

    A session moves under the locks of the files that every session has. So a writer of a file in a
    folder, which may be new and have a lock that nobody knows, takes one of those as well.
    """
    wanted = set(files)
    if scope != GLOBAL and any("/" in file for file in wanted):
        wanted.add(METADATA)
    return wanted


def holder(tree: Tree, scope: str, file: str) -> str | None:
    """Return who holds the lock now, in words; None when nobody does. Asking writes nothing."""
    with _held_by_other(tree, scope, file) as descriptor:
        return None if descriptor is None else _describe(descriptor)


def holder_pid(tree: Tree, scope: str, file: str) -> int | None:
    """Return the process that holds the lock now; None when nobody does, or nobody can tell.

    Where the kernel does not say it, the note of a holder on this machine does.
    """
    with _held_by_other(tree, scope, file) as descriptor:
        if descriptor is None:
            return None
        note, _ = _read(descriptor)
        pid = note.get("pid") if note.get("host") == os.uname().nodename else None
        return _kernel_pid(descriptor) or (pid if type(pid) is int and pid > 1 else None)


@contextmanager
def _held_by_other(tree: Tree, scope: str, file: str) -> Iterator[int | None]:
    """Open a lock file that another process holds; None where none does."""
    name = _lock_name(scope, file)
    try:
        with _naming(tree, name, scope):
            descriptor = tree.open(name, os.O_RDONLY)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor if _is_held(descriptor) else None
    finally:
        os.close(descriptor)


def _is_held(descriptor: int) -> bool:
    try:
        # A share of the kernel's lock, so that many may ask at once.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _acquire(tree: Tree, scope: str, file: str, timeout_s: float, doing: str) -> Lock:
    # Imported late: it costs more than all the rest of the client, and reading needs no lock.
    import filelock

    started = time.monotonic()
    deadline = started + timeout_s
    pause = _FIRST_PAUSE_S
    seen = Seen(started)
    while True:
        descriptor = _open(tree, scope, file)
        try:
            # A lock on a file that has lost its name protects nothing: open the new one.
            is_held = filelock.lock_descriptor(descriptor, blocking=False)
            if is_held and os.fstat(descriptor).st_nlink:
                if pause > _FIRST_PAUSE_S:
                    tally.waited(tree.path, time.monotonic() - started)
                return Lock(descriptor)
            seen.look(descriptor)
            if time.monotonic() + pause > deadline:
                if timeout_s > NO_PATIENCE:
                    tally.waited(tree.path, time.monotonic() - started)
                who = seen.described(descriptor)
                problem = f"{scope}/{file} is locked by {who}; gave up {doing}."
                raise LockTimeout(problem, session_id=scope)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        from random import uniform  # late, because most never wait

        # The spread keeps many waiters from asking in step, so that each gets its turn.
        time.sleep(pause * uniform(0.5, 1.5))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


class Seen:
    """The process that a waiter saw holding a lock, and since when. Looking costs a file."""

    def __init__(self, started: float) -> None:
        self._look_due = started + _LOOK_EVERY_S / 2
        self._pid: int | None = None
        self._since = ""

    def look(self, descriptor: int) -> None:
        """Look who holds the lock, now and then."""
        if time.monotonic() >= self._look_due:
            self._look_due = time.monotonic() + _LOOK_EVERY_S
            self._note(descriptor)

    def _note(self, descriptor: int) -> None:
        pid = _kernel_pid(descriptor)
        if pid is not None and pid != self._pid:
            self._pid = pid
            self._since = datetime.now(UTC).isoformat(timespec="milliseconds")

    def described(self, descriptor: int) -> str:
        """Return the holder in words: its own, else those of the kernel."""
        if said := _read(descriptor)[0].get("holder"):
            return str(said)
        self._note(descriptor)
        if self._pid is None:
            return "another process"
        return f"pid {self._pid} ({_command(self._pid)}), since {self._since} or earlier"


def _kernel_pid(descriptor: int) -> int | None:
    """Return the process that holds the lock on an open file, as Linux lists it."""
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    found: int | None = None
    for line in _system_text(_KERNEL_LOCKS, _KERNEL_BYTES).splitlines():
        # 12: FLOCK  ADVISORY  WRITE 4711 08:01:131073 0 EOF; a waiter has "->" behind its number
        words = line.split()
        if len(words) != 8 or words[1] != "FLOCK" or not words[4].isdecimal():
            continue
        place, _, inode = words[5].rpartition(":")
        if inode == str(status.st_ino):
            if place == device:
                return int(words[4]) or None
            found = int(words[4])  # some file systems give another device
    return found or None


def _command(pid: int) -> str:
    """Return the command line of a process, cut to a readable length."""
    words = _system_text(f"/proc/{pid}/cmdline", _READ_BYTES).split("\0")
    line = "".join(sign if sign.isprintable() else " " for sign in " ".join(words).strip())
    return errors.conceal(line[:_COMMAND_CHARACTERS]) or "a process that is gone"


def _system_text(path: str, cap: int) -> str:
    """Return a file that the kernel makes; nothing where there is none."""
    with suppress(OSError), Tree(path.rpartition("/")[0]).opened(path.rpartition("/")[2]) as held:
        pieces: list[bytes] = []
        while (piece := os.read(held, _KERNEL_BYTES)) and sum(map(len, pieces)) < cap:
            pieces.append(piece)
        return b"".join(pieces).decode(errors="replace")
    return ""


def _open(tree: Tree, scope: str, file: str) -> int:
    name = _lock_name(scope, file)
    with _naming(tree, name, scope):
        try:
            return tree.open(name, _FLAGS)
        except FileNotFoundError:
            tree.make_directory(f"{LOCKS}/{scope}")
        with suppress(FileExistsError):
            return tree.open(name, _FLAGS | os.O_CREAT)
        return tree.open(name, _FLAGS)  # another process was first


@contextmanager
def _naming(tree: Tree, name: str, scope: str) -> Iterator[None]:
    """Raise an error that names the lock file, and the remedy, where it cannot be opened."""
    try:
        yield
    except UnsafePath as error:
        said = str(error).removesuffix(error.advice).rstrip()
        problem = f"The lock file {tree.path}/{name} protects nobody: {said}"
        raise UnsafePath(problem, advice=_MEND, session_id=scope) from error
    except PermissionError as error:
        # Still an OSError: reading in a tree of somebody else does without locks.
        problem = f"the lock file may not be opened: {error.strerror}. {_MEND}"
        raise PermissionError(error.errno, problem, f"{tree.path}/{name}") from error


def _lock_name(scope: str, file: str) -> str:
    return f"{LOCKS}/{scope}/{flat(file)}.lock"


def _read(descriptor: int) -> tuple[dict[str, Any], int]:
    """Return the note in a lock file, and how many bytes were read of it."""
    text = os.pread(descriptor, _READ_BYTES, 0)
    try:
        note = json.loads(text.decode() or "{}")
    except (ValueError, RecursionError):
        note = {}  # cut off by a crash, or written by somebody else
    return note if isinstance(note, dict) else {}, len(text)


def _describe(descriptor: int) -> str:
    return Seen(0.0).described(descriptor)
