"""Kernel locks, one for each file that is written, in `.smp/locks/{scope}/`.

The kernel frees a lock when its holder dies, so none is ever stale, and no lock file is removed.
The content of a lock file is for people (who holds it, since when, for what) and for the next
holder (a note, see `append.py`); neither is ever needed.
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
    """How long to wait for a lock: `attempts` times `timeout_s`, with pauses between."""

    timeout_s: float = 5.0
    attempts: int = 3
    pauses_s: tuple[float, ...] = (0.1, 0.5, 1.0)


NO_PATIENCE = Patience(timeout_s=0.0, attempts=1)


@dataclass
class Lock:
    """A held lock. The last holder left `note`, and this one leaves it for the next."""

    file: str
    descriptor: int
    note: dict[str, Any]

    def save(self, holder: dict[str, Any] | None = None) -> None:
        """Write the note down now. Raise OSError where it cannot be kept, as on a full disk."""
        # Padded with blanks, since a write in place is far cheaper than a new length.
        text = json.dumps({"holder": holder, "note": self.note}).encode().ljust(_PADDED_BYTES)
        os.pwrite(self.descriptor, text, 0)
        if os.fstat(self.descriptor).st_size > len(text):
            # The rest of a longer text would make this one unreadable.
            os.ftruncate(self.descriptor, len(text))


@contextmanager
def brief_lock(tree: Tree, scope: str, file: str, patience: Patience) -> Iterator[None]:
    """Hold a lock for a few microseconds of counting, without a word about its holder."""
    descriptor = _acquire(tree, scope, file, patience, "counting bytes")
    try:
        yield
    finally:
        _free(descriptor)


@contextmanager
def lock(tree: Tree, scope: str, file: str, patience: Patience, doing: str) -> Iterator[Lock]:
    descriptor = _acquire(tree, scope, file, patience, doing)
    try:
        note = _read(descriptor).get("note")
        held = Lock(file, descriptor, note if isinstance(note, dict) else {})
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        who = {"pid": os.getpid(), "host": os.uname().nodename, "program": sys.argv[0] or "python"}
        try:
            held.save({**who, "since": since, "doing": doing})
            yield held
        finally:
            try:
                held.save()
            except OSError:
                # Without the note (on a full disk, say) the next holder reads the file instead.
                with suppress(OSError):
                    os.ftruncate(descriptor, 0)
    finally:
        _free(descriptor)


@contextmanager
def lock_all(
    tree: Tree, scope: str, files: Iterable[str], patience: Patience, doing: str
) -> Iterator[dict[str, Lock]]:
    """Lock several files of one scope, in the one order that cannot deadlock."""
    with ExitStack() as stack:
        yield {
            file: stack.enter_context(lock(tree, scope, file, patience, doing))
            for file in sorted(set(files), key=lock_rank)
        }


def holder(tree: Tree, scope: str, file: str) -> str | None:
    """Return who holds the lock now, in words; None when nobody does. Asking writes nothing."""
    with suppress(FileNotFoundError), tree.opened(_lock_name(scope, file)) as descriptor:
        try:
            # A share of the kernel's lock, so that many may ask at once.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe(descriptor)
    return None


def _acquire(tree: Tree, scope: str, file: str, patience: Patience, doing: str) -> int:
    for attempt in range(patience.attempts):
        descriptor = _wait(tree, scope, file, patience.timeout_s)
        if descriptor is not None:
            return descriptor
        if attempt + 1 < patience.attempts:
            time.sleep(patience.pauses_s[min(attempt, len(patience.pauses_s) - 1)])
    with tree.opened(_lock_name(scope, file), os.O_RDONLY) as other:
        problem = f"{scope}/{file} is locked by {_describe(other)}; gave up {doing}."
    raise LockTimeout(problem, session_id=scope)


def _free(descriptor: int) -> None:
    from filelock import unlock_descriptor

    try:
        # Closing alone would not do: a child that was forked meanwhile has the open file too.
        # The work under the lock is done, whatever becomes of the lock.
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
            # A lock on a file that has lost its name protects nothing: open the new one.
            if lock_descriptor(descriptor, blocking=False) and os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() + pause > deadline:
            return None
        from random import uniform  # late, because most never wait

        # The spread keeps many waiters from asking in step, so that each gets its turn.
        time.sleep(pause * uniform(0.5, 1.5))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _open(tree: Tree, scope: str, file: str) -> int:
    name = _lock_name(scope, file)
    for _ in range(3):
        try:
            return tree.open(name, _FLAGS)
        except FileNotFoundError:
            tree.make_directory(f"{LOCKS}/{scope}")
        with suppress(FileExistsError):
            return tree.open(name, _FLAGS | os.O_CREAT)
    raise StorageFailed(f"The lock file {name} appears and disappears.")


def _lock_name(scope: str, file: str) -> str:
    return f"{LOCKS}/{scope}/{file.replace('/', '+')}.lock"


def _read(descriptor: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(descriptor, 65536, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}  # cut off by a crash, or written by somebody else
    return content if isinstance(content, dict) else {}


def _describe(descriptor: int) -> str:
    who = _read(descriptor).get("holder")
    if not isinstance(who, dict):
        return "another process"
    program = f"{who.get('program')} on {who.get('host')}"
    return f"pid {who.get('pid')} ({program}), {who.get('doing')} since {who.get('since')}"
