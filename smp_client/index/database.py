"""The index: one SQLite file with everything that queries need, derived from the files."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..disk.scopes import session_of
from ..disk.tree import FILE_MODE
from ..model.deadline import step
from ..model.record import split_name
from .rows import COLUMNS, Entry, FileState
from .schema import BUSY_MS, SETTINGS, TABLES, UnusableIndex, check, connect, create
from .validity import judge

if TYPE_CHECKING:
    from ..disk.access import Noted

_WORDS = "text, more, actor, tags, owner"
_TRY_MS = 200  # of waiting inside SQLite, where nobody can be interrupted
_SUFFIXES = ("", "-wal", "-shm", "-journal")


def refuse_links(path: Path) -> None:
    """Raise UnusableIndex where the index, or a file of SQLite beside it, is a link."""
    for suffix in _SUFFIXES:
        if path.with_name(path.name + suffix).is_symlink():
            raise UnusableIndex(f"{path.name}{suffix} is a link, which may lead out of the tree")


class Index:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # The contents of this connection's temporary tables, see priorities.py.
        self.rules: object = None
        self.noted: dict[str, Noted] = {}

    @classmethod
    def open(cls, path: Path) -> Index:
        """Open the index to lead it, and check all of its pages; make it where there is none."""
        refuse_links(path)
        is_new = not path.exists()
        if is_new:
            path.touch(FILE_MODE)
        elif not path.stat().st_size:
            # Whoever has it open still holds its locks; a new file is nobody's.
            raise UnusableIndex("empty")

        def prepare(connection: sqlite3.Connection) -> None:
            if is_new:
                create(connection)
            check(connection)
            connection.executescript(SETTINGS)
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise UnusableIndex(str(problem))

        return cls(connect(str(path), prepare))

    @classmethod
    def open_or_replace(cls, path: Path) -> tuple[Index, str | None]:
        """Return the index, and why it begins empty where an unusable file was replaced."""
        try:
            return cls.open(path), None
        except UnusableIndex as error:
            for suffix in _SUFFIXES:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return cls.open(path), str(error)

    @classmethod
    def open_to_read(cls, path: Path) -> Index:
        """Open the index for questions, by a process that does not lead. It is never made here.

        Where the process may write, it can make changes inside `undone` that reach no file.
        """
        refuse_links(path)
        if not path.exists() or not path.stat().st_size:
            raise UnusableIndex("missing or empty")

        def prepare(connection: sqlite3.Connection) -> None:
            check(connection)
            # Pages that are never committed must not get into the file; others are asked for again.
            connection.executescript("PRAGMA cache_spill = OFF; PRAGMA cache_size = -32000;")

        try:
            return cls(connect(f"{path.as_uri()}?mode=rw", prepare))
        except sqlite3.DatabaseError as error:
            # On a read-only disk SQLite cannot make the files that it needs, nor can others write.
            with suppress(OSError, sqlite3.DatabaseError):
                if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
                    return cls(connect(f"{path.as_uri()}?immutable=1", check))
            raise UnusableIndex(str(error)) from error

    @classmethod
    def in_memory(cls) -> Index:
        return cls(connect(":memory:", create))

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def undone(self, patience_ms: int | None = None) -> Iterator[None]:
        """Show one moment of the index inside; changes are seen inside only, and never committed.

        Without a patience nothing may be changed. With one, raise OperationalError where the index
        is locked for longer.
        """
        if patience_ms is None:
            self.connection.execute("BEGIN")
        else:
            self.begin(patience_ms)
        try:
            yield
        finally:
            self._roll_back()

    def begin(self, patience_ms: int = BUSY_MS) -> None:
        """Begin to write. Another writer is waited for in short tries, which can be interrupted."""
        until = time.monotonic() + patience_ms / 1000
        self.connection.execute(f"PRAGMA busy_timeout = {min(_TRY_MS, patience_ms)}")
        try:
            while True:
                step()
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not is_busy or time.monotonic() >= until:
                        raise
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _roll_back(self) -> None:
        # After a failure, such as a full disk, SQLite may have done so already.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    @property
    def generation(self) -> int:
        """Return a number that grows with every batch that changed something."""
        row = self.connection.execute("SELECT value FROM meta WHERE name = 'generation'").fetchone()
        return int(row[0])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make all changes inside visible together; after an exception, none."""
        self.begin()
        before = self.connection.total_changes
        try:
            yield
            if self.connection.total_changes != before:
                self.connection.execute(
                    "UPDATE meta SET value = value + 1 WHERE name = 'generation'"
                )
            self.connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def one_file(self) -> Iterator[None]:
        """Take the changes inside back after an exception, and nothing else of the batch."""
        self.connection.execute("SAVEPOINT one_file")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # a full disk may have ended all of it
                self.connection.execute("ROLLBACK TO one_file")
            raise
        finally:
            if self.connection.in_transaction:
                self.connection.execute("RELEASE one_file")

    # Files.

    def files(self, scope: str | None = None) -> dict[tuple[str, str], FileState]:
        """Return the files that were taken in, of one scope or of all."""
        asked = "SELECT * FROM files" + (" WHERE scope = ?" if scope is not None else "")
        rows = self.connection.execute(asked, () if scope is None else (scope,))
        return {row[:2]: FileState._make(row[2:]) for row in rows}

    def file_state(self, scope: str, file: str) -> FileState | None:
        asked = "SELECT * FROM files WHERE scope = ? AND file = ?"
        row = self.connection.execute(asked, (scope, file)).fetchone()
        return FileState._make(row[2:]) if row else None

    def has_problem(self, scope: str, file: str) -> bool:
        """Return whether the file could not be read when it was last looked at."""
        state = self.file_state(scope, file)
        return state is not None and state.problem is not None

    def note_file(self, scope: str, file: str, state: FileState) -> None:
        row = (scope, file, *state)
        self.connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row
        )

    def forget_file(self, scope: str, file: str) -> list[str]:
        """Return the ids of the memories that are gone with the file."""
        _, went = self.replace(scope, file, [])
        self.connection.execute("DELETE FROM files WHERE scope = ? AND file = ?", (scope, file))
        return went

    # Memories.

    def hashes(self, scope: str, file: str) -> set[tuple[str, str]]:
        """Return id and hash of each memory of a file."""
        asked = "SELECT id, hash FROM memories WHERE scope = ? AND file = ?"
        return set(self.connection.execute(asked, (scope, file)).fetchall())

    def has_any(self, scope: str, file: str, ids: Iterable[str]) -> bool:
        """Return whether the file has a memory with one of these ids."""
        # With a plus SQLite goes by the id, which few memories have, and not through the file.
        asked = "SELECT 1 FROM memories WHERE scope = ? AND id = ? AND +file = ?"
        rows = (self.connection.execute(asked, (scope, one, file)).fetchone() for one in ids)
        return any(rows)

    def replace(self, scope: str, file: str, entries: Iterable[Entry]) -> tuple[int, list[str]]:
        """Make the memories of a file these, and touch only those that differ.

        Return how many came, and the ids of those that went; one that changed does both.
        """
        ask = self.connection.execute
        left: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        known = "SELECT key, id, hash, start, end FROM memories WHERE scope = ? AND file = ?"
        for key, memory_id, digest, start, end in ask(
            f"{known} ORDER BY start DESC", (scope, file)
        ):
            left.setdefault((memory_id, digest), []).append((key, start, end))
        new: list[Entry] = []
        moved: list[tuple[int, int, int]] = []
        for entry in entries:
            if not (same := left.get((entry.id, entry.hash))):
                new.append(entry)
                continue
            key, start, end = same.pop()
            if (start, end) != (entry.start, entry.end):
                moved.append((entry.start, entry.end, key))
        self.connection.executemany("UPDATE memories SET start = ?, end = ? WHERE key = ?", moved)
        went = {key: one for (one, _), same in left.items() for key, _, _ in same}
        gone = json.dumps(list(went))
        shifted = json.dumps([*went, *(key for *_, key in moved)])
        those = "IN (SELECT value FROM json_each(?))"
        ended = ask(f"SELECT session, id FROM endings WHERE memory {those}", (gone,)).fetchall()
        asked = f"SELECT DISTINCT subject FROM memories WHERE subject > '' AND key {those}"
        subjects = [subject for (subject,) in ask(asked, (shifted,))]
        # FTS5 has to be told the words that it once took in.
        forget = f"INSERT INTO words (words, rowid, {_WORDS}) SELECT 'delete', key, {_WORDS}"
        ask(f"{forget} FROM memories WHERE key {those}", (gone,))
        for table in ("tags", "topics", "refs", "endings", "past", "places"):
            ask(f"DELETE FROM {table} WHERE memory {those}", (gone,))
        ask(f"DELETE FROM memories WHERE key {those}", (gone,))
        self._number(scope, -len(went))
        self.add(scope, file, new)
        if ended or subjects:
            judge(self.connection, (), ended, subjects)
        return len(new), list(went.values())

    def add(self, scope: str, file: str, entries: Iterable[Entry]) -> None:
        ask, many = self.connection.execute, self.connection.executemany
        first = ask("SELECT COALESCE(MAX(key), 0) + 1 FROM memories").fetchone()[0]
        new = list(enumerate(entries, first))
        if not new:
            return
        columns = ("key", "scope", "file", "owner", "tags", *COLUMNS)
        many(
            f"INSERT INTO memories ({', '.join(columns)}) VALUES (?{', ?' * (len(columns) - 1)})",
            (
                (key, scope, file, owner_word(scope), " ".join(entry.tags), *entry[: len(COLUMNS)])
                for key, entry in new
            ),
        )
        taken = f"INSERT INTO words (rowid, {_WORDS}) SELECT key, {_WORDS} FROM memories"
        ask(f"{taken} WHERE key >= ?", (first,))
        number = self._number(scope, len(new))
        # Places are asked for many memories at once, which is much faster of a narrow table.
        many("INSERT INTO places VALUES (?, ?, ?)", ((key, number, one.place) for key, one in new))
        # Names in lower case, so that one look finds a name however it is written.
        tags = ((scope, tag.lower(), key) for key, entry in new for tag in entry.tags)
        many("INSERT OR IGNORE INTO tags VALUES (?, ?, ?)", tags)
        topics = ((scope, topic.lower(), key) for key, entry in new for topic in entry.topics)
        many("INSERT OR IGNORE INTO topics VALUES (?, ?, ?)", topics)
        refs = ((key, scope, *ref) for key, entry in new for ref in entry.refs)
        many("INSERT OR IGNORE INTO refs VALUES (?, ?, ?, ?)", refs)
        ended: list[tuple[str, str]] = []
        for key, entry in new:
            for target, relation, source in entry.endings:
                old, by = (split_name(name, session_of(scope)) for name in (target, source))
                if old != by:  # a person can have written that a memory supersedes itself
                    row = (*old, relation, "/".join(by), entry.at, key)
                    ask("INSERT OR IGNORE INTO endings VALUES (?, ?, ?, ?, ?, ?)", row)
                    ended.append(old)
        judge(self.connection, (key for key, _ in new), ended, {entry.subject for _, entry in new})

    def _number(self, scope: str, more: int) -> int:
        """Return the number of a scope, which now has so many memories more."""
        ask = self.connection.execute
        ask("INSERT OR IGNORE INTO scopes (scope) VALUES (?)", (scope,))
        ask("UPDATE scopes SET memories = memories + ? WHERE scope = ?", (more, scope))
        return int(ask("SELECT number FROM scopes WHERE scope = ?", (scope,)).fetchone()[0])

    # Sessions.

    def note_session(
        self, scope: str, status: str, metadata: dict[str, Any], project: str = ""
    ) -> None:
        said = (status, project, json.dumps(metadata, ensure_ascii=False, sort_keys=True))
        asked = "SELECT status, project, metadata FROM sessions WHERE scope = ?"
        if self.connection.execute(asked, (scope,)).fetchone() != said:
            row = (scope, *said)
            self.connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, NULL)", row
            )
            self._judge_project(scope)

    def forget_session(self, scope: str) -> None:
        for _, file in self.files(scope):
            self.forget_file(scope, file)
        self.forget_metadata(scope)

    def forget_metadata(self, scope: str) -> None:
        self.connection.execute("DELETE FROM sessions WHERE scope = ?", (scope,))
        self._judge_project(scope)

    def _judge_project(self, scope: str) -> None:
        """Judge the preferences of a scope anew: each replaces others of its project only."""
        asked = "SELECT DISTINCT subject FROM memories WHERE scope = ? AND subject > ''"
        if subjects := [subject for (subject,) in self.connection.execute(asked, (scope,))]:
            judge(self.connection, (), (), subjects)

    def clear(self) -> None:
        """Forget everything but the generation."""
        self.connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in TABLES - {"meta", "words", "terms"}:
            self.connection.execute(f"DELETE FROM {table}")


def owner_word(scope: str) -> str:
    """Return one word for a scope, which marks the words of its memories among those of others."""
    return "o" + hashlib.blake2b(scope.encode(), digest_size=8).hexdigest()
