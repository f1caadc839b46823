"""Kernel locks, one for each file that is written, in `.smp/locks/{scope}/`.

The kernel frees a lock when its holder dies, so none is ever stale and no lock file is ever removed. A lock file's content is
for people (who holds it, since when, for what) and for the next holder (a note, see `append.py`); neither is ever needed.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..model.errors import LockTimeout, StorageFailed
from ..model.layout import LOCKS, lock_rank
from .tree import Tree

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PADDED_BYTES = 512
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02


@dataclass(frozen=True)
class Patience:
    """How long to wait for a lock: `attempts` times `timeout_s`, with a pause after each that failed."""

    timeout_s: float = 5.0
    attempts: int = 3
    pauses_s: tuple[float, ...] = (0.1, 0.5, 1.0)


NO_PATIENCE = Patience(timeout_s=0.0, attempts=1)


@dataclass
class Lock:
    """A held lock; `note` is what its last holder left, and what this one leaves for the next."""

    file: str
    descriptor: int
    note: dict[str, Any]

    def _write(self, holder: dict[str, Any] | None) -> None:
        # Padded, because white space behind JSON means nothing and a write in place is far cheaper than a new length.
        text = json.dumps({"holder": holder, "note": self.note}).encode().ljust(_PADDED_BYTES)
        os.pwrite(self.descriptor, text, 0)
        if os.fstat(self.descriptor).st_size > len(text):
            # What is left of a longer text would make this one unreadable.
            os.ftruncate(self.descriptor, len(text))

    def save(self) -> None:
        """Write the note down now. Raises OSError where it cannot be kept, as on a full disk."""
        self._write(None)

    def release(self) -> None:
        try:
            self._write(None)
        except OSError:
            # The note is only an optimisation; without it (a full disk, say) the next holder reads the file instead.
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
        finally:
            _free(self.descriptor)


@contextmanager
def brief_lock(tree: Tree, scope: str, file: str, patience: Patience) -> Iterator[None]:
    """For a few microseconds of counting: says nothing about its holder."""
    descriptor = _acquire(tree, scope, file, patience, "counting bytes")
    try:
        yield
    finally:
        _free(descriptor)


@contextmanager
def lock(tree: Tree, scope: str, file: str, patience: Patience, doing: str) -> Iterator[Lock]:
    descriptor = _acquire(tree, scope, file, patience, doing)
    note = _read(descriptor).get("note")
    held = Lock(file, descriptor, note if isinstance(note, dict) else {})
    try:
        held._write({"pid": os.getpid(), "host": os.uname().nodename, "program": sys.argv[0] or "python",
                     "since": datetime.now(UTC).isoformat(timespec="milliseconds"), "doing": doing})  # fmt: skip
        yield held
    finally:
        held.release()


@contextmanager
def lock_all(tree: Tree, scope: str, files: Iterable[str], patience: Patience, doing: str) -> Iterator[dict[str, Lock]]:
    """Several files of one scope, in the one order that cannot deadlock."""
    with ExitStack() as stack:
        yield {
            file: stack.enter_context(lock(tree, scope, file, patience, doing))
            for file in sorted(set(files), key=lock_rank)
        }


def holder(tree: Tree, scope: str, file: str) -> str | None:
    """Who holds the lock now, in words; None when nobody does. Asking writes nothing, so that a read-only disk can be asked."""
    try:
        with tree.opened(_lock_name(scope, file), os.O_RDONLY) as descriptor:
            return None if _is_free(descriptor) else _describe(descriptor)
    except FileNotFoundError:
        return None


def _is_free(descriptor: int) -> bool:
    """Asks the kernel for a share of the lock that filelock takes, so that many may ask at once; importing filelock costs more."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire(tree: Tree, scope: str, file: str, patience: Patience, doing: str) -> int:
    for attempt in range(patience.attempts):
        descriptor = _wait(tree, scope, file, patience.timeout_s)
        if descriptor is not None:
            return descriptor
        if attempt + 1 < patience.attempts:
            time.sleep(patience.pauses_s[min(attempt, len(patience.pauses_s) - 1)])
    with tree.opened(_lock_name(scope, file), os.O_RDONLY) as other:
        raise LockTimeout(f"{scope}/{file} is locked by {_describe(other)}; gave up {doing}.", session_id=scope)


def _free(descriptor: int) -> None:
    from filelock import unlock_descriptor

    # Closing alone would not do: a child that was forked meanwhile has the same open file, and the lock lives as long as that.
    try:
        # What was done under the lock is done, whatever becomes of the lock.
        with suppress(OSError):
            unlock_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _wait(tree: Tree, scope: str, file: str, timeout_s: float) -> int | None:
    # Imported late: it costs more than all the rest of the client, and reading needs no lock.
    from filelock import lock_descriptor

    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while True:
        descriptor = _open(tree, scope, file)
        try:
            # A lock on a file that has lost its name (somebody removed .smp/) protects nothing: open the new one.
            if lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() + pause > deadline:
            return None
        # The spread keeps many waiters from asking in step, so that each gets its turn.
        from random import uniform  # late, because most never wait

        time.sleep(pause * uniform(0.5, 1.5))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _open(tree: Tree, scope: str, file: str) -> int:
    name = _lock_name(scope, file)
    for _ in range(3):
        try:
            return tree.open(name, _FLAGS)
        except FileNotFoundError:
            tree.make_directory(f"{LOCKS}/{scope}")
        try:
            return tree.open(name, _FLAGS | os.O_CREAT)
        except FileExistsError:
            continue
    raise StorageFailed(f"The lock file {name} appears and disappears.")


def _lock_name(scope: str, file: str) -> str:
    return f"{LOCKS}/{scope}/{file.replace('/', '+')}.lock"


def _read(descriptor: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(descriptor, 65536, 0) or b"{}")
    except (ValueError, RecursionError):
        # Cut off by a crash, or written by somebody else: nothing in it is needed.
        return {}
    return content if isinstance(content, dict) else {}


def _describe(descriptor: int) -> str:
    who = _read(descriptor).get("holder")
    if not isinstance(who, dict):
        return "another process"
    return f"pid {who.get('pid')} ({who.get('program')} on {who.get('host')}), {who.get('doing')} since {who.get('since')}"
