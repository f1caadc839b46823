"""An index that is true now, whoever keeps it: the daemon, this process, or nobody.

A question sees every write that finished before it was asked. Each file's inode, size and times are
compared with those in the index. Where they differ,

- and nobody leads this root, the index is brought up to date here, and stays so;
- and somebody does, the missing files are taken in inside a transaction that is never committed;
- and neither is possible (no usable index, a read-only disk, a long rebuild), in a new index in
  memory, for the scopes that were asked about.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Generic, Literal, NamedTuple, TypeVar

from ..disk import journal
from ..disk.locks import NO_PATIENCE, lock
from ..disk.place import Place
from ..disk.scope import Scope
from ..disk.scopes import scopes as all_scopes
from ..model.errors import LockTimeout, SMPError
from ..model.layout import INDEX_FILE, JOURNAL, LEAD, LEAD_SCOPE
from .database import Index
from .schema import UnusableIndex
from .take_in import cover, outdated, refresh

T = TypeVar("T")
Source = Literal["index", "index and files", "files"]

_BUSY_MS = 50  # how long a writer may lock the index before one in memory answers
_KEPT_OPEN = 8
_ATTEMPTS = 8
# Damaged, locked for long, or not to be written.
_UNUSABLE = (
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR,
)  # fmt: skip
# Somebody leads, or nothing can be written: the answer must be found another way.
_REFUSED = (LockTimeout, OSError, SMPError, sqlite3.OperationalError)


class Question(NamedTuple, Generic[T]):
    """A question about some scopes, or about some files of these.

    `prepare` runs before it is asked, outside of any transaction: temporary tables then stay.
    """

    scopes: Sequence[str]
    files: Sequence[str] | None
    prepare: Callable[[Index], None]
    ask: Callable[[Index], T]


class Fresh:
    """Keeps indexes open between questions; safe in threads, and after a fork."""

    def __init__(self, place: Place, scope: Callable[[str], Scope]) -> None:
        self._place = place
        self._scope = scope
        self._path = place.root / INDEX_FILE
        self._idle: list[tuple[int, Index]] = []  # the file's inode, and an index that nobody asks
        self._in_memory: Index | None = None  # where there is no other
        self._lock = threading.Lock()  # of both
        self._pid = os.getpid()
        self._inherited: object = None

    def answer(self, question: Question[T]) -> tuple[T, Source]:
        """Return the answer of an index that is true now, and the source that made it true."""
        if self._pid != os.getpid():
            # SQLite's connections must not even be closed by the child of their process.
            self._inherited = (self._idle, self._in_memory)
            self._idle, self._in_memory = [], None
            self._pid, self._lock = os.getpid(), threading.Lock()
        for _ in range(_ATTEMPTS):
            recorded = self._recorded()
            answer = self._answer_once(question)
            # A transaction that was recorded meanwhile may have been seen in part.
            if self._recorded() == recorded:
                break
        return answer

    def _recorded(self) -> int:
        """Return another number for each transaction that is recorded or forgotten."""
        try:
            return os.stat(self._place.root / JOURNAL).st_mtime_ns
        except OSError:
            return 0

    def close(self) -> None:
        with self._lock:
            for _, index in self._idle:
                index.close()
            self._idle.clear()
        self._forget_memory()

    def _forget_memory(self) -> None:
        """Close the index in memory: it may be large, and the file can be asked again."""
        with self._lock:
            if self._in_memory:
                self._in_memory.close()
                self._in_memory = None

    def __del__(self) -> None:
        # Connections of the parent process are not ours to close.
        if self._pid == os.getpid():
            self.close()

    def _answer_once(self, question: Question[T]) -> tuple[T, Source]:
        try:
            with self._opened() as index:
                if index is not None:
                    question.prepare(index)
                    answer = self._answer_from(index, question)
                    self._forget_memory()
                    return answer
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _UNUSABLE:
                raise
        with self._lock:
            index = self._in_memory = self._in_memory or Index.in_memory()
            question.prepare(index)
            self._take_in(index, question, self._unfinished(question.scopes), settle=True)
            return question.ask(index), "files"

    def _answer_from(self, index: Index, question: Question[T]) -> tuple[T, Source]:
        unfinished = self._unfinished(question.scopes)
        with index.undone():
            if not unfinished and not self._missing(index, question):
                return question.ask(index), "index"
        is_true = False
        with suppress(*_REFUSED):
            if not unfinished:
                with self._leading("bringing the index up to date"), index.batch():
                    self._take_in(index, question, {}, settle=True)
                is_true = True
        # Whatever is written from here on began after the question did.
        with index.undone(None if is_true else _BUSY_MS):
            if not is_true:
                self._take_in(index, question, unfinished, settle=False)
            return question.ask(index), "index and files"

    def _leading(self, doing: str) -> AbstractContextManager[object]:
        return lock(self._place.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, doing)

    def _missing(self, index: Index, question: Question[T]) -> list[tuple[str, str]]:
        return outdated(self._place, index, question.scopes, question.files)

    def _take_in(
        self, index: Index, question: Question[T], unfinished: dict[tuple[str, str], bytes],
        *, settle: bool,
    ) -> None:  # fmt: skip
        """Take in the files that the index lacks, and those that are to change as they will be."""
        for scope, file in self._missing(index, question):
            if (scope, file) not in unfinished:
                refresh(self._place, index, scope, file, settle=settle)
        for (scope, file), content in unfinished.items():
            cover(index, scope, file, content)

    def _unfinished(self, scopes: Sequence[str]) -> dict[tuple[str, str], bytes]:
        """Finish recorded transactions. Return the files that others have yet to change, each as it
        will be."""
        found: dict[tuple[str, str], bytes] = {}
        pending = {name.partition("+")[0] for name in self._place.tree.list(JOURNAL)}
        # Sessions that were not asked for count too: they may tell that a memory no longer holds.
        for name in pending.intersection((*scopes, *all_scopes(self._place)) if pending else ()):
            scope = self._scope(name)
            scope.recover()
            for file in journal.files_of(scope):
                found[name, file] = journal.read(scope, file)
        return found

    @contextmanager
    def _opened(self) -> Iterator[Index | None]:
        """Open an index of the file as it is now; None where there is none and none can be made."""
        inode, index = self._inode(), None
        with self._lock:
            # An index of a file that was replaced is of no use any more.
            for item in [item for item in self._idle if item[0] != inode]:
                self._idle.remove(item)
                item[1].close()
            if self._idle:
                index = self._idle.pop()[1]
        if index is None:
            index = self._open()
            inode = self._inode()
        if index is None:
            yield None
            return
        try:
            yield index
        except BaseException:
            index.close()
            raise
        with self._lock:
            is_kept = len(self._idle) < _KEPT_OPEN
            if is_kept:
                self._idle.append((inode, index))
        if not is_kept:
            index.close()

    def _inode(self) -> int:
        try:
            return self._path.stat().st_ino
        except OSError:
            return 0

    def _open(self) -> Index | None:
        with suppress(UnusableIndex):
            return Index.open_to_read(self._path)
        with suppress(*_REFUSED, UnusableIndex):
            # Only whoever leads may make or replace the file.
            with self._leading("making the index"):
                Index.open_or_replace(self._path)[0].close()
            return Index.open_to_read(self._path)
        return None
