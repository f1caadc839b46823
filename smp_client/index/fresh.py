"""An index that is true now, whoever keeps it: the daemon, this process, or nobody.

A question sees every write that finished before it was asked. Each file's inode, size and times are compared with what the index
has taken in of it; where they differ,

- and nobody leads this root, the index is brought up to date here, and stays so;
- and somebody does, the same code takes in what is missing inside a transaction of this process that is never committed, so that
  even the ranking is what it will be once the daemon is done; where that is not possible (a read-only disk, a long rebuild), in a
  copy in memory;
- and there is no index that can be used, in a new one in memory, for as much of the tree as was asked about.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar

from ..disk import journal
from ..disk.locks import NO_PATIENCE, lock
from ..disk.place import Place
from ..disk.scope import Scope
from ..disk.scopes import scopes as all_scopes
from ..model.errors import LockTimeout, SMPError
from ..model.layout import INDEX_FILE, JOURNAL, LEAD, LEAD_SCOPE
from ..model.record import PREFERENCE, RELATIONSHIP
from .database import Index, UnusableIndex
from .take_in import BEARING, bearing_files_that_differ, cover, files_that_differ, refresh

T = TypeVar("T")
Source = Literal["index", "index and files", "files"]

_BUSY_MS = 50  # how long the index may be locked by a writer before a copy is made
_KEPT_OPEN = 8
_ATTEMPTS = 8
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Fresh:
    """Keeps indexes open between questions; safe in threads, and after a fork."""

    def __init__(self, place: Place, scope: Callable[[str], Scope]) -> None:
        self._place = place
        self._scope = scope
        self._path = place.root / INDEX_FILE
        self._idle: list[tuple[int, Index]] = []  # the inode of the file, and an open index that nobody is asking now
        self._in_memory: Index | None = None  # where there is no other
        self._lock = threading.Lock()  # of what is above
        self._pid = os.getpid()
        self._inherited: object = None

    def ask(
        self, scopes: Sequence[str], question: Callable[[Index], T], files: Sequence[str] | None, prepare: Callable[[Index], None]
    ) -> tuple[T, Source]:
        """The answer of an index that is true for these scopes, or for these files of them, and what it was made true from. It is
        prepared before it is asked: what is written into a temporary table then stays there."""
        if self._pid != os.getpid():
            # SQLite's connections must not be used, not even closed, by the child of the process that opened them.
            self._inherited = (self._idle, self._in_memory)  # which keeps them from being closed
            self._pid, self._idle, self._in_memory, self._lock = os.getpid(), [], None, threading.Lock()
        for attempt in range(_ATTEMPTS):
            recorded = self._recorded()
            answer = self._ask_once(scopes, question, files, prepare)
            # A transaction that was recorded meanwhile may have been seen in part: its files are compared one after the other.
            if self._recorded() == recorded or attempt == _ATTEMPTS - 1:
                break
        return answer

    def _recorded(self) -> int:
        """Another number for each transaction that is recorded or forgotten."""
        try:
            return os.stat(self._place.root / JOURNAL).st_mtime_ns
        except OSError:
            return 0

    def _ask_once(
        self, scopes: Sequence[str], question: Callable[[Index], T], files: Sequence[str] | None, prepare: Callable[[Index], None]
    ) -> tuple[T, Source]:
        try:
            with self._opened() as index:
                if index is not None:
                    prepare(index)
                    return self._ask(index, scopes, question, files, prepare)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                raise
        return self._ask_files(scopes, question, files, prepare), "files"

    def __del__(self) -> None:
        # What the parent of this process has opened is not ours to close.
        if self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        with self._lock:
            for _, index in self._idle:
                index.close()
            self._idle.clear()
            if self._in_memory:
                self._in_memory.close()
                self._in_memory = None

    def _ask(
        self, index: Index, scopes: Sequence[str], question: Callable[[Index], T], files: Sequence[str] | None,
        prepare: Callable[[Index], None],
    ) -> tuple[T, Source]:  # fmt: skip
        unfinished = self._unfinished(scopes)
        with index.snapshot():
            if not self._missing(index, scopes, files) and not unfinished:
                return question(index), "index"
        if not unfinished and self._bring_up_to_date(index, scopes, files):
            with index.snapshot():
                # What was written meanwhile began after the question did.
                return question(index), "index and files"
        try:
            with index.undone(_BUSY_MS):
                self._cover(index, scopes, files, unfinished)
                return question(index), "index and files"
        except sqlite3.OperationalError:
            # Locked by a rebuild, or nothing may be written here.
            copy = index.copied()
        try:
            prepare(copy)
            self._cover(copy, scopes, files, unfinished)
            return question(copy), "index and files"
        finally:
            copy.close()

    def _ask_files(
        self, scopes: Sequence[str], question: Callable[[Index], T], files: Sequence[str] | None, prepare: Callable[[Index], None]
    ) -> T:
        with self._lock:
            self._in_memory = self._in_memory or Index.in_memory()
            prepare(self._in_memory)
            self._cover(self._in_memory, scopes, files, self._unfinished(scopes), settle=True)
            return question(self._in_memory)

    def _missing(self, index: Index, scopes: Sequence[str], files: Sequence[str] | None) -> list[tuple[str, str]]:
        """What was asked for, and what says elsewhere whether that still holds."""
        asked = [item for item in files_that_differ(self._place, index, scopes) if files is None or item[1] in files]
        # Of other sessions only their relationships bear on what is no preference.
        names = BEARING if files is None or PREFERENCE.file in files else [RELATIONSHIP.file]
        return [*asked, *bearing_files_that_differ(self._place, index, scopes, names)]

    def _cover(
        self, index: Index, scopes: Sequence[str], files: Sequence[str] | None, unfinished: dict[tuple[str, str], bytes],
        *, settle: bool = False,
    ) -> None:  # fmt: skip
        """Takes in what the index lacks; nobody else will see it."""
        for scope, file in self._missing(index, scopes, files):
            if (scope, file) not in unfinished:
                refresh(self._place, index, scope, file, settle=settle)
        for (scope, file), content in unfinished.items():
            cover(index, scope, file, content)

    def _unfinished(self, scopes: Sequence[str]) -> dict[tuple[str, str], bytes]:
        """Files that a recorded transaction has yet to change, after those that can be finished are: each as it will be."""
        found: dict[tuple[str, str], bytes] = {}
        pending = {name.partition("+")[0] for name in self._place.tree.list(JOURNAL)}
        # Also of sessions that were not asked for: they may say that something no longer holds.
        for name in pending.intersection((*scopes, *all_scopes(self._place)) if pending else ()):
            scope = self._scope(name)
            scope.finish_transactions()
            for file in journal.files_of(scope):
                found[name, file] = journal.read(scope, file)
        return found

    def _bring_up_to_date(self, index: Index, scopes: Sequence[str], files: Sequence[str] | None) -> bool:
        """On disk, for everybody, where nobody leads this root; gives back whether it could be done."""
        try:
            with lock(self._place.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, "bringing the index up to date"), index.batch():
                for scope, file in self._missing(index, scopes, files):
                    refresh(self._place, index, scope, file)
        except (LockTimeout, OSError, SMPError, sqlite3.OperationalError):
            # Somebody leads, or nothing can be written here: the answer must be found another way.
            return False
        return True

    @contextmanager
    def _opened(self) -> Iterator[Index | None]:
        """An index of the file as it is now; None where there is none and none can be made."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = 0
        with self._lock:
            # One of a file that was replaced is of no use any more.
            for old, index in [item for item in self._idle if item[0] != inode]:
                self._idle.remove((old, index))
                index.close()
            found = self._idle.pop()[1] if self._idle else None
        if found is None:
            found = self._open()
            with suppress(OSError):
                inode = self._path.stat().st_ino
        try:
            yield found
        except BaseException:
            if found is not None:
                found.close()
            raise
        if found is not None:
            with self._lock:
                if len(self._idle) < _KEPT_OPEN:
                    self._idle.append((inode, found))
                    return
            found.close()

    def _open(self) -> Index | None:
        try:
            return Index.open_to_ask(self._path)
        except UnusableIndex:
            pass
        try:
            # Only whoever leads may make or replace the file.
            with lock(self._place.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, "making the index"):
                Index.open_or_replace(self._path)[0].close()
            return Index.open_to_ask(self._path)
        except (LockTimeout, OSError, SMPError, sqlite3.OperationalError, UnusableIndex):
            return None
