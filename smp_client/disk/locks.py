"""Kernel locks, one for each file that is written, in `.smp/locks/{scope}/`.

The kernel frees a lock when its holder dies, so none is ever stale, and no lock file is removed.
The content of a lock file is never needed: it is a note for the next holder (see `append.py`), with
the name of the holder, for people, where a lock is held for long.
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

from ..model.errors import LockTimeout
from ..model.layout import GLOBAL, LOCKS, METADATA, lock_rank
from .tree import Tree

NO_PATIENCE = 0.0  # as a timeout: try once
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PADDED_BYTES, _READ_BYTES = 512, 4096
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02


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
    with suppress(FileNotFoundError), tree.opened(_lock_name(scope, file)) as descriptor:
        try:
            # A share of the kernel's lock, so that many may ask at once.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe(descriptor)
    return None


def _acquire(tree: Tree, scope: str, file: str, timeout_s: float, doing: str) -> Lock:
    # Imported late: it costs more than all the rest of the client, and reading needs no lock.
    import filelock

    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while True:
        descriptor = _open(tree, scope, file)
        try:
            # A lock on a file that has lost its name protects nothing: open the new one.
            is_held = filelock.lock_descriptor(descriptor, blocking=False)
            if is_held and os.fstat(descriptor).st_nlink:
                return Lock(descriptor)
            if time.monotonic() + pause > deadline:
                problem = f"{scope}/{file} is locked by {_describe(descriptor)}; gave up {doing}."
                raise LockTimeout(problem, session_id=scope)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        from random import uniform  # late, because most never wait

        # The spread keeps many waiters from asking in step, so that each gets its turn.
        time.sleep(pause * uniform(0.5, 1.5))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _open(tree: Tree, scope: str, file: str) -> int:
    name = _lock_name(scope, file)
    try:
        return tree.open(name, _FLAGS)
    except FileNotFoundError:
        tree.make_directory(f"{LOCKS}/{scope}")
    with suppress(FileExistsError):
        return tree.open(name, _FLAGS | os.O_CREAT)
    return tree.open(name, _FLAGS)  # another process was first


def _lock_name(scope: str, file: str) -> str:
    return f"{LOCKS}/{scope}/{file.replace('/', '+')}.lock"


def _read(descriptor: int) -> tuple[dict[str, Any], int]:
    """Return the note in a lock file, and how many bytes were read of it."""
    text = os.pread(descriptor, _READ_BYTES, 0)
    try:
        note = json.loads(text.decode() or "{}")
    except (ValueError, RecursionError):
        note = {}  # cut off by a crash, or written by somebody else
    return note if isinstance(note, dict) else {}, len(text)


def _describe(descriptor: int) -> str:
    return str(_read(descriptor)[0].get("holder") or "another process")
