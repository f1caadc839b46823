"""An index that is current, whoever keeps it: a question sees every write that finished before.

Each file's inode, size and times are compared with those in the index. Changed files are taken in:

- into the index itself, where nobody leads this root;
- inside a transaction that is never committed, where somebody does;
- into an index in memory where neither is possible: no usable file, a read-only disk, a rebuild.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from ..disk.locks import NO_PATIENCE, lock
from ..disk.place import Place, session_of
from ..disk.place import scopes as all_scopes
from ..disk.state_name import parse_old
from ..model.errors import LockTimeout, SMPError
from ..model.layout import INDEX_FILE, JOURNAL, LEAD, LEAD_SCOPE, RETIRED
from ..model.progress import tracked
from .database import Index, outdated
from .schema import UnusableIndex

if TYPE_CHECKING:
    from ..disk.scope import Scope

T = TypeVar("T")
Source = Literal["index", "index and files", "files"]

_BUSY_MS = 50  # how long a writer may lock the index before an index in memory answers
_ATTEMPTS = 8
# Damaged, locked for long, or not to be written.
_UNUSABLE = (
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR,
)  # fmt: skip
# Somebody leads, or nothing can be written: the answer must be found another way.
_REFUSED = (LockTimeout, OSError, SMPError, sqlite3.OperationalError)


class Question(NamedTuple, Generic[T]):
    """A question about some scopes.

    `prepare` runs before `ask` and outside of any transaction, so that its temporary tables stay.
    """

    scopes: Sequence[str]
    prepare: Callable[[Index], None]
    ask: Callable[[Index], T]


class Answered(NamedTuple, Generic[T]):
    """An answer, its sources, and the sessions that could not be read as a whole, with reasons."""

    answer: T
    source: Source
    unread: dict[str, str]


class Fresh:
    """Keeps an index open between questions; safe in threads, and after a fork."""

    def __init__(self, place: Place, scope: Callable[[str], Scope]) -> None:
        self.place = place
        self._scope = scope
        self._path = f"{place.tree.path}/{INDEX_FILE}"
        self._journal = f"{place.tree.path}/{JOURNAL}"
        self._index: Index | None = None
        self._inode = 0  # of the file that is open
        self._in_memory: Index | None = None  # where no index file can be used
        self._lock = threading.RLock()  # of the three above: one question at a time
        self.unread: dict[str, str] = {}  # of the last answer: why, by session
        self._pid = os.getpid()
        self._inherited: object = None  # the parent process's connections, which must stay open

    def answer(self, question: Question[T]) -> Answered[T]:
        """Return the answer of a current index, and the sources of the answer.

        Raise if nothing that the question is about can be read.
        """
        if self._pid != os.getpid():
            # A child process must not even close the connections of its parent.
            self._inherited = (self._index, self._in_memory)
            self._index = self._in_memory = None
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            self._fold_old_versions(question.scopes)
            for _ in range(_ATTEMPTS):
                journal_ns = self._journal_ns()
                self.unread = {}
                answer, source = self._answer_once(question)
                # A transaction that was recorded meanwhile may have been seen in part.
                if self._journal_ns() == journal_ns:
                    break
            return Answered(answer, source, self.unread)

    def _fold_old_versions(self, scopes: Sequence[str]) -> None:
        """Remove the old versions of files past their grace, where there are some."""
        parsed = map(parse_old, self.place.tree.entries_known(RETIRED))
        old = {one.scope for one in parsed if one is not None}
        for name in old.intersection(scopes):
            with suppress(OSError, SMPError):  # the next question tries it again
                self._scope(name).fold_old_versions()

    def _journal_ns(self) -> int:
        with suppress(OSError):
            return os.stat(self._journal).st_mtime_ns
        return 0

    def close(self) -> None:
        with self._lock:
            for index in (self._index, self._in_memory):
                if index is not None:
                    index.close()
            self._index = self._in_memory = None

    def __del__(self) -> None:
        # After a fork, the connections are the parent's to close.
        if self._pid == os.getpid():
            self.close()

    def _answer_once(self, question: Question[T]) -> tuple[T, Source]:
        try:
            if index := self._opened():
                question.prepare(index)
                answer = self._answer_from(index, question)
                if self._in_memory is not None:  # it may be large, and the file can be used again
                    self._in_memory.close()
                    self._in_memory = None
                return answer
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _UNUSABLE:
                raise
            self._inode = 0  # the file is opened anew
        index = self._in_memory = self._in_memory or Index.in_memory()
        question.prepare(index)
        self._take_in(index, question, self._unfinished(question.scopes), settle=True)
        return question.ask(index), "files"

    def _answer_from(self, index: Index, question: Question[T]) -> tuple[T, Source]:
        unfinished = self._unfinished(question.scopes)
        with index.undone():
            if not unfinished and not outdated(self.place, index, question.scopes):
                return question.ask(index), "index"
        is_current = False
        with suppress(*_REFUSED):
            if not unfinished:
                with self._leading(), index.batch():
                    self._take_in(index, question, {}, settle=True)
                    index.note_folders(self.place.tree)
                is_current = True
        # A write from here on began after the question did, so the answer may lack it.
        with index.undone(None if is_current else _BUSY_MS):
            if not is_current:
                self._take_in(index, question, unfinished, settle=False)
            return question.ask(index), "index and files"

    def _leading(self) -> AbstractContextManager[object]:
        return lock(self.place.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, "making the index true")

    def _take_in(
        self, index: Index, question: Question[T], unfinished: dict[tuple[str, str], bytes],
        *, settle: bool,
    ) -> None:  # fmt: skip
        """Take in the files that the index lacks, and unfinished files as they will be."""
        from .take_in import cover, refresh  # late: mostly nothing has changed

        for scope, file in tracked(outdated(self.place, index, question.scopes)):
            if (scope, file) not in unfinished:
                refresh(self.place, index, scope, file, settle=settle)
        for (scope, file), content in unfinished.items():
            cover(index, scope, file, content)

    def _unfinished(self, scopes: Sequence[str]) -> dict[tuple[str, str], bytes]:
        """Finish recorded transactions. Return the future content of files that cannot be."""
        contents: dict[tuple[str, str], bytes] = {}
        if not self.place.tree.entries_known(JOURNAL):
            return contents
        from ..disk import journal  # late: mostly nothing is unfinished

        pending = {intent.scope for intent in journal.intents(self.place.tree).values()}
        asked = {session_of(scope) for scope in scopes}
        # Sessions that were not asked about count too: they may end a memory's validity.
        for name in pending.intersection((*scopes, *all_scopes(self.place))):
            scope = self._scope(name)
            try:
                scope.recover()
                files = journal.files_of(scope)
                contents |= {(name, file): journal.read(scope, file) for file in files}
            except (SMPError, OSError) as error:
                # It costs no other session: its files are taken as they are, and that is said.
                if asked == {name}:
                    raise
                self.unread[name] = f"a change of it is recorded and cannot be read: {error}"
        return contents

    def _opened(self) -> Index | None:
        """Return an index of the present index file; None where no file can be used or made."""
        if self._index is not None:
            with suppress(OSError):
                if os.stat(self._path).st_ino == self._inode:
                    return self._index
            self._index.close()
        self._index = self._open()
        with suppress(OSError):
            self._inode = os.stat(self._path).st_ino
        return self._index

    def _open(self) -> Index | None:
        with suppress(UnusableIndex):
            return Index.open_to_read(self._path)
        with suppress(*_REFUSED, UnusableIndex):
            # Only the leader may make or replace the file.
            with self._leading():
                Index.open_or_replace(self.place.root / INDEX_FILE)[0].close()
            return Index.open_to_read(self._path)
        return None
