"""The index: one SQLite file with what queries need. All of it is derived, so a file that is not ours is simply replaced."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
import sqlite3
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..disk.scopes import session_of
from ..disk.tree import FILE_MODE
from ..model.deadline import step
from ..model.layout import FORMAT_VERSION
from ..model.record import split_name
from .rows import Entry, FileState
from .validity import judge

if TYPE_CHECKING:
    from ..disk.access import Noted

APPLICATION_ID = 0x534D5031  # "SMP1": tells our file from any other SQLite file
# Another version is not migrated but rebuilt; also with another version of the files, for what an older one says is read anew then.
SCHEMA_VERSION = 12 * 1000 + FORMAT_VERSION

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE files (
    scope TEXT, file TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    checksum INTEGER, indent INTEGER, bad INTEGER, problem TEXT,
    PRIMARY KEY (scope, file)
) WITHOUT ROWID;
CREATE TABLE memories (
    key INTEGER PRIMARY KEY, scope TEXT, file TEXT, id TEXT, type TEXT, start INTEGER, end INTEGER, hash TEXT,
    timestamp TEXT, at INTEGER, actor TEXT, text TEXT, more TEXT, tags TEXT, data TEXT,
    standing TEXT, base REAL, accessed INTEGER, accesses INTEGER, importance REAL, ended TEXT, subject TEXT,
    owner TEXT, secrets TEXT
);
CREATE INDEX memories_by_secrets ON memories (secrets) WHERE secrets IS NULL OR secrets > '';
CREATE INDEX memories_by_id ON memories (scope, id, file, start);
CREATE INDEX memories_by_file ON memories (scope, file, start);
CREATE INDEX memories_by_time ON memories (scope, at);
CREATE INDEX memories_by_type ON memories (scope, type, at);
CREATE INDEX latest ON memories (at, scope, type);
CREATE INDEX latest_of_type ON memories (type, at, scope);
CREATE INDEX memories_by_actor ON memories (scope, actor);
CREATE INDEX memories_by_subject ON memories (subject, at) WHERE subject IS NOT NULL;
CREATE TABLE scopes (number INTEGER PRIMARY KEY, scope TEXT UNIQUE, memories INTEGER DEFAULT 0);
CREATE TABLE places (memory INTEGER PRIMARY KEY, scope INTEGER, place INTEGER);
CREATE INDEX places_of_turns ON places (scope, place) WHERE place IS NOT NULL;
CREATE TABLE tags (scope TEXT, tag TEXT, memory INTEGER, PRIMARY KEY (scope, tag, memory)) WITHOUT ROWID;
CREATE INDEX tags_by_memory ON tags (memory);
CREATE INDEX tags_by_tag ON tags (tag, memory);
CREATE TABLE topics (scope TEXT, topic TEXT, memory INTEGER, PRIMARY KEY (scope, topic, memory)) WITHOUT ROWID;
CREATE INDEX topics_by_memory ON topics (memory);
CREATE TABLE refs (memory INTEGER, scope TEXT, target TEXT, relation TEXT, PRIMARY KEY (memory, target, relation)) WITHOUT ROWID;
CREATE INDEX refs_by_target ON refs (scope, target);
CREATE TABLE endings (
    session TEXT, id TEXT, relation TEXT, by TEXT, at INTEGER, memory INTEGER, PRIMARY KEY (session, id, memory)
) WITHOUT ROWID;
CREATE INDEX endings_by_memory ON endings (memory);
CREATE TABLE past (memory INTEGER PRIMARY KEY);
CREATE TABLE sessions (scope TEXT PRIMARY KEY, status TEXT, project TEXT, metadata TEXT, secrets TEXT) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, more, actor, tags, owner, content='memories', content_rowid='key',
    tokenize='porter unicode61');
CREATE VIRTUAL TABLE terms USING fts5vocab (words, row);
"""
_WORDS = "text, more, actor, tags, owner"
_TABLES = set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", _SCHEMA))
_MEMORY_COLUMNS = (
    "scope, file, id, type, start, end, hash, timestamp, at, actor, text, more, tags, data,"
    " standing, base, accessed, accesses, importance, ended, subject, owner"
)
_DECAY = re.compile(r'"decay": \{[^{}]*\}')  # in the data of a memory
_BUSY_MS = 10_000
_TRY_MS = 200  # of waiting inside SQLite, where nobody can be asked
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_DURABILITY = "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"
# What a lock, a full disk or a missing right says is said of the machine, not of the file: no reason to throw it away.
_NOT_THE_FILE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
}  # fmt: skip


class UnusableIndex(Exception):
    """The file is damaged, of another version, or not an index at all."""


def refuse_links(path: Path) -> None:
    """Raise UnusableIndex where the index, or a file that SQLite keeps beside it, is a link, which may lead out of the tree."""
    if links := [name for suffix in _SUFFIXES if path.with_name(name := path.name + suffix).is_symlink()]:
        raise UnusableIndex(f"{links[0]} is a link, which may lead out of the tree")


class Index:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        # What the temporary tables of this connection hold, see priorities.py.
        self.rules: object = None
        self.noted: dict[str, Noted] = {}  # by scope, of those in which something was read

    @classmethod
    def open(cls, path: Path) -> Index:
        """Raises UnusableIndex where the file cannot be used as it is; `open_or_replace` deals with that."""
        refuse_links(path)
        is_new = not path.exists()
        if is_new:
            path.touch(FILE_MODE)
        elif not path.stat().st_size:
            # Whoever has it open still holds its locks; a new file is nobody's.
            raise UnusableIndex("empty")

        def prepare(connection: sqlite3.Connection) -> None:
            _set_up(connection)
            if is_new:
                _create(connection)
            _check(connection)

        return cls(_prepared(_connect(str(path)), prepare))

    @classmethod
    def open_or_replace(cls, path: Path) -> tuple[Index, str | None]:
        """The index, and why it begins empty where an unusable file had to go."""
        try:
            return cls.open(path), None
        except UnusableIndex as error:
            for suffix in _SUFFIXES:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return cls.open(path), str(error)

    @classmethod
    def open_to_read(cls, path: Path) -> Index:
        """Without the right to change it, and without checking all of its pages."""
        refuse_links(path)
        try:
            return cls(_prepared(_connect(f"{path.as_uri()}?mode=ro"), _check_version))
        except sqlite3.DatabaseError as error:
            if _is_on_read_only_disk(path):
                # There SQLite cannot make the files beside it that it needs, and nobody can change it either.
                with suppress(sqlite3.DatabaseError):
                    return cls(_prepared(_connect(f"{path.as_uri()}?immutable=1"), _check_version))
            raise UnusableIndex(str(error)) from error

    @classmethod
    def open_to_ask(cls, path: Path) -> Index:
        """For questions, by whoever does not lead: able to write where that is allowed, see `undone`."""
        refuse_links(path)
        if not path.exists() or not path.stat().st_size:
            raise UnusableIndex("missing or empty")
        if not os.access(path, os.W_OK):
            return cls.open_to_read(path)

        def prepare(connection: sqlite3.Connection) -> None:
            _check_version(connection)
            # A copy in memory of the pages that questions need again and again; what is never committed must not get into the file.
            connection.executescript(f"{_DURABILITY} PRAGMA cache_spill = OFF; PRAGMA cache_size = -32000;")

        try:
            return cls(_prepared(_connect(f"{path.as_uri()}?mode=rw"), prepare))
        except sqlite3.OperationalError as error:
            raise UnusableIndex(str(error)) from error

    @classmethod
    def in_memory(cls) -> Index:
        connection = _connect(":memory:")
        _set_up(connection)
        _create(connection)
        return cls(connection)

    def copied(self) -> Index:
        """The same in memory, for oneself."""
        connection = _connect(":memory:")
        self.connection.backup(connection)
        return Index(connection)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything that is asked inside is of one moment."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    @contextmanager
    def undone(self, patience_ms: int) -> Iterator[None]:
        """Changes inside are seen inside only, and never committed. Raises OperationalError where it is locked for longer."""
        self.begin(patience_ms)
        try:
            yield
        finally:
            self._roll_back()

    def begin(self, patience_ms: int = _BUSY_MS) -> None:
        """Begin to write. Another writer is waited for in short tries, each of which is a step that can be interrupted."""
        until = time.monotonic() + patience_ms / 1000
        self.connection.execute(f"PRAGMA busy_timeout = {min(_TRY_MS, patience_ms)}")
        try:
            while True:
                step()
                try:
                    self.connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                        raise
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    def _roll_back(self) -> None:
        # After a failure, such as a full disk, SQLite may have done so already.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    @property
    def generation(self) -> int:
        """Grows with every batch that changed something."""
        return int(self.connection.execute("SELECT value FROM meta WHERE name = 'generation'").fetchone()[0])

    @contextmanager
    def batch(self) -> Iterator[None]:
        """All changes inside become visible together, or, after an exception, not at all."""
        self.begin()
        before = self.connection.total_changes
        try:
            yield
            if self.connection.total_changes != before:
                self.connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")
            self.connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def one_file(self) -> Iterator[None]:
        """Take back, after an exception, what was changed inside and nothing else."""
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

    def file_state(self, scope: str, file: str) -> FileState | None:
        row = self.connection.execute(
            "SELECT inode, size, mtime_ns, ctime_ns, checksum, indent, bad, problem FROM files WHERE scope = ? AND file = ?",
            (scope, file),
        ).fetchone()
        return FileState(*row) if row else None

    def has_problem(self, scope: str, file: str) -> bool:
        """Whether the file could not be read when it was last looked at."""
        state = self.file_state(scope, file)
        return state is not None and state.problem is not None

    def files(self, scope: str | None = None) -> dict[tuple[str, str], FileState]:
        rows = self.connection.execute(
            "SELECT scope, file, inode, size, mtime_ns, ctime_ns, checksum, indent, bad, problem FROM files"
            " WHERE ?1 IS NULL OR scope = ?1", (scope,),
        )  # fmt: skip
        return {(row[0], row[1]): FileState(*row[2:]) for row in rows}

    def identities(self, names: Iterable[str] | None = None, scope: str | None = None) -> dict[tuple[str, str], tuple[int, ...]]:
        """Return inode, size and times of the files, of these names and of this scope where they are given.

        Names are of files; bundles are always among them.
        """
        asked = (
            "SELECT scope, file, inode, size, mtime_ns, ctime_ns FROM files"
            " WHERE (?1 IS NULL OR file IN (SELECT value FROM json_each(?1)) OR scope GLOB 'archived/*')"
            + (" AND scope = ?2" if scope else "")
        )
        given = (None if names is None else json.dumps(list(names)), *([scope] if scope else []))
        return {row[:2]: row[2:] for row in self.connection.execute(asked, given)}

    def hashes(self, scope: str, file: str) -> set[tuple[str, str]]:
        """Id and hash of each memory of a file."""
        return set(self.connection.execute("SELECT id, hash FROM memories WHERE scope = ? AND file = ?", (scope, file)).fetchall())

    def has_any(self, scope: str, file: str, ids: Iterable[str]) -> bool:
        """Whether the file has a memory with one of these ids already."""
        # With a plus SQLite looks for the id, of which there is hardly ever more than one, and not through the file.
        asked = "SELECT 1 FROM memories WHERE scope = ? AND id = ? AND +file = ?"
        return any(self.connection.execute(asked, (scope, memory_id, file)).fetchone() for memory_id in ids)

    def note_file(self, scope: str, file: str, state: FileState) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (scope, file, state.inode, state.size, state.mtime_ns, state.ctime_ns, state.checksum, state.indent, state.bad,
             state.problem),
        )  # fmt: skip

    def forget_file(self, scope: str, file: str) -> None:
        self.replace(scope, file, [])
        self.connection.execute("DELETE FROM files WHERE scope = ? AND file = ?", (scope, file))

    def replace(self, scope: str, file: str, entries: Iterable[Entry]) -> tuple[int, list[str]]:
        """Makes the memories of a file these; touches only those that differ. Gives back how many came, and the ids of those that
        went; one that changed does both."""
        known = self.connection.execute(
            "SELECT key, id, hash, start, end FROM memories WHERE scope = ? AND file = ? ORDER BY start", (scope, file)
        ).fetchall()
        old: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        for key, memory_id, digest, start, end in reversed(known):
            old.setdefault((memory_id, digest), []).append((key, start, end))
        new: list[Entry] = []
        moved: list[tuple[int, int, int]] = []
        for entry in entries:
            same = old.get((entry.id, entry.hash))
            if not same:
                new.append(entry)
                continue
            key, start, end = same.pop()
            if (start, end) != (entry.start, entry.end):
                moved.append((entry.start, entry.end, key))
        self.connection.executemany("UPDATE memories SET start = ?, end = ? WHERE key = ?", moved)
        left: dict[str, list[int]] = {}
        for (memory_id, _), same in old.items():
            left.setdefault(memory_id, []).extend(key for key, _, _ in same)
        came = Counter(entry.id for entry in new)
        # Of several with one id nobody can tell which has become which.
        aged = self._age({memory_id: keys[0] for memory_id, keys in left.items() if len(keys) == came[memory_id] == 1}, new)
        added = [entry for entry in new if entry.id not in aged]
        kept = set(aged.values())
        went = {key: memory_id for (memory_id, _), same in old.items() for key, _, _ in same if key not in kept}
        self._forget_words(went)
        ended = self._chosen("session, id", "endings", "memory", went)
        subjects = {name for (name,) in self._chosen("subject", "memories", "key", [*went, *(key for *_, key in moved)])}
        for table in ("tags", "topics", "refs", "endings", "past", "places"):
            self.connection.executemany(f"DELETE FROM {table} WHERE memory = ?", ((key,) for key in went))
        self.connection.executemany("DELETE FROM memories WHERE key = ?", ((key,) for key in went))
        self._number(scope, -len(went))
        self.add(scope, file, added)
        if ended or subjects - {None}:
            judge(self.connection, (), ended, subjects)
        return len(added), list(went.values())

    def _chosen(self, columns: str, table: str, key: str, keys: Iterable[int]) -> list[Any]:
        asked = f"SELECT {columns} FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"
        return self.connection.execute(asked, (json.dumps(list(keys)),)).fetchall()

    def _age(self, left: Mapping[str, int], new: Sequence[Entry]) -> dict[str, int]:
        """Those of which nothing but their decay has changed, as by a pass over a whole file: their words stay as they are."""
        aged: dict[str, int] = {}
        changes: list[tuple[Any, ...]] = []
        for entry in new:
            if (key := left.get(entry.id)) is None:
                continue
            data, text = self.connection.execute("SELECT data, text FROM memories WHERE key = ?", (key,)).fetchone()
            (before, times), (after, times_now) = _DECAY.subn("", data), _DECAY.subn("", entry.data)
            # Twice, it is also the name of some other part. The text of an artifact is no part of its data.
            if before == after and text == entry.text and times <= 1 and times_now <= 1:
                aged[entry.id] = key
                weight = entry.weight
                changes.append((entry.start, entry.end, entry.hash, entry.data, weight.base, weight.accessed, weight.accesses, key))
        columns = "start = ?, end = ?, hash = ?, data = ?, base = ?, accessed = ?, accesses = ?"
        self.connection.executemany(f"UPDATE memories SET {columns} WHERE key = ?", changes)
        return aged

    def add(self, scope: str, file: str, entries: Iterable[Entry]) -> None:
        new = list(enumerate(entries, self.connection.execute("SELECT COALESCE(MAX(key), 0) + 1 FROM memories").fetchone()[0]))
        if not new:
            return
        self.connection.executemany(
            f"INSERT INTO memories (key, {_MEMORY_COLUMNS}) VALUES (?, ?{', ?' * _MEMORY_COLUMNS.count(',')})",
            ((key, scope, file, entry.id, entry.type, entry.start, entry.end, entry.hash, entry.timestamp, entry.at, entry.actor,
              entry.text, entry.more, " ".join(entry.tags), entry.data, *entry.weight[:-1], *entry.validity[:2], owner_word(scope))
             for key, entry in new),
        )  # fmt: skip
        self.connection.execute(
            f"INSERT INTO words (rowid, {_WORDS}) SELECT key, {_WORDS} FROM memories WHERE key >= ?", (new[0][0],)
        )
        number = self._number(scope, len(new))
        # Where the words of a question stand is asked for many memories at once: of a narrow table that is several times faster.
        places = ((key, number, entry.weight.place) for key, entry in new)
        self.connection.executemany("INSERT INTO places VALUES (?, ?, ?)", places)
        # In lower case, so that one look finds a name however it is written.
        for table, names in (
            ("tags", ((key, tag) for key, entry in new for tag in entry.tags)),
            ("topics", ((key, topic) for key, entry in new for topic in entry.topics)),
        ):
            rows = ((scope, name.lower(), key) for key, name in names)
            self.connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?)", rows)
        refs = ((key, scope, *ref) for key, entry in new for ref in entry.refs)
        self.connection.executemany("INSERT OR IGNORE INTO refs VALUES (?, ?, ?, ?)", refs)
        ended: list[tuple[str, str]] = []
        for key, entry in new:
            for target, relation, source in entry.validity.endings:
                old, by = (split_name(name, session_of(scope)) for name in (target, source))
                if old != by:  # a person can have written that a memory supersedes itself
                    row = (*old, relation, "/".join(by), entry.at, key)
                    self.connection.execute("INSERT OR IGNORE INTO endings VALUES (?, ?, ?, ?, ?, ?)", row)
                    ended.append(old)
        judge(self.connection, (key for key, _ in new), ended, {entry.validity.subject for _, entry in new})

    def _number(self, scope: str, more: int) -> int:
        """Return the number of a scope, which now has so many memories more."""
        self.connection.execute("INSERT OR IGNORE INTO scopes (scope) VALUES (?)", (scope,))
        self.connection.execute("UPDATE scopes SET memories = memories + ? WHERE scope = ?", (more, scope))
        return int(self.connection.execute("SELECT number FROM scopes WHERE scope = ?", (scope,)).fetchone()[0])

    def _forget_words(self, keys: Iterable[int]) -> None:
        """FTS5 has to be told what it once took in."""
        self.connection.executemany(
            f"INSERT INTO words (words, rowid, {_WORDS}) SELECT 'delete', key, {_WORDS} FROM memories WHERE key = ?",
            ((key,) for key in keys),
        )

    def note_session(self, scope: str, status: str, metadata: dict[str, Any], project: str = "") -> None:
        said = (status, project, json.dumps(metadata, ensure_ascii=False, sort_keys=True))
        known = self.connection.execute("SELECT status, project, metadata FROM sessions WHERE scope = ?", (scope,)).fetchone()
        if known != said:
            self.connection.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, NULL)", (scope, *said))
            self._judge_project(scope)

    def forget_session(self, scope: str) -> None:
        for _, file in self.files(scope):
            self.forget_file(scope, file)
        self.forget_metadata(scope)

    def forget_metadata(self, scope: str) -> None:
        self.connection.execute("DELETE FROM sessions WHERE scope = ?", (scope,))
        self._judge_project(scope)

    def _judge_project(self, scope: str) -> None:
        """A preference replaces others of its project only."""
        asked = "SELECT DISTINCT subject FROM memories WHERE scope = ? AND subject IS NOT NULL"
        if subjects := [subject for (subject,) in self.connection.execute(asked, (scope,))]:
            judge(self.connection, (), (), subjects)

    def clear(self) -> None:
        """Forgets everything but its generation."""
        self.connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in _TABLES - {"meta", "words", "terms"}:
            self.connection.execute(f"DELETE FROM {table}")

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that was derived, in an order and without the keys that depend on history: equal after equal files."""
        queries = {
            "files": "SELECT scope, file, size, checksum, bad, problem FROM files ORDER BY 1, 2",
            "memories": f"SELECT {_MEMORY_COLUMNS} FROM memories ORDER BY scope, file, start",
            "tags": "SELECT m.scope, m.file, m.start, t.tag FROM tags t JOIN memories m ON m.key = t.memory ORDER BY 1, 2, 3, 4",
            "topics": "SELECT m.scope, m.file, m.start, t.topic FROM topics t JOIN memories m ON m.key = t.memory"
                      " ORDER BY 1, 2, 3, 4",
            "refs": "SELECT m.scope, m.file, m.start, r.target, r.relation FROM refs r JOIN memories m ON m.key = r.memory"
                    " ORDER BY 1, 2, 3, 4, 5",
            "endings": "SELECT session, id, relation, by, at FROM endings ORDER BY 1, 2, 3, 4, 5",
            "miscounted": "SELECT scope FROM scopes s WHERE memories <> (SELECT COUNT(*) FROM memories m WHERE m.scope = s.scope)",
            "places": "SELECT m.scope, m.file, m.start, s.scope, p.place FROM places p JOIN memories m ON m.key = p.memory"
                      " JOIN scopes s ON s.number = p.scope ORDER BY 1, 2, 3",
            "past": "SELECT m.scope, m.file, m.start FROM past JOIN memories m ON m.key = memory ORDER BY 1, 2, 3",
            "sessions": "SELECT scope, status, project, metadata FROM sessions ORDER BY scope",
        }  # fmt: skip
        with self.undone(_BUSY_MS):
            # Raises where the words and the memories disagree. Only a writer may ask that.
            self.connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
            return {name: self.connection.execute(query).fetchall() for name, query in queries.items()}


def owner_word(scope: str) -> str:
    """One word for a scope, by which the words of its memories are told from those of others."""
    return "o" + hashlib.blake2b(scope.encode(), digest_size=8).hexdigest()


class _Connection(sqlite3.Connection):
    """One that is known for as long as it is open: see `is_open_here`."""

    def close(self) -> None:
        super().close()
        _open_here.pop(self, None)


_open_here: weakref.WeakKeyDictionary[sqlite3.Connection, str] = weakref.WeakKeyDictionary()  # each with its file


def is_open_here(path: str) -> bool:
    """Whether this process has the index open: then it must not close a descriptor of its own of that file, or SQLite loses the
    locks that it has on it."""
    return path in _open_here.values()


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, uri=path.startswith("file:"), isolation_level=None, timeout=_BUSY_MS / 1000, check_same_thread=False,
        factory=_Connection,
    )  # fmt: skip
    if path != ":memory:":
        _open_here[connection] = unquote(urlsplit(path).path) if path.startswith("file:") else path
    connection.execute("PRAGMA trusted_schema = OFF")
    try:
        connection.execute("SELECT EXP(0)")
    except sqlite3.OperationalError:
        # Some SQLites are built without their mathematics.
        connection.create_function("EXP", 1, math.exp, deterministic=True)
    return connection


def _prepared(connection: sqlite3.Connection, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """The connection, ready; closed where it cannot be used, with UnusableIndex where that is the file's fault."""
    try:
        prepare(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.DatabaseError) and is_fault_of_file(error):
            raise UnusableIndex(str(error)) from error
        raise
    return connection


def is_fault_of_file(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is at fault, and has to be replaced."""
    # What our own code is wrong about, such as the number of parameters, has no code.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF not in _NOT_THE_FILE


def _set_up(connection: sqlite3.Connection) -> None:
    # Derived data: a commit lost to a power failure is found again by the next scan, so no fsync for each.
    connection.executescript(f"PRAGMA journal_mode = WAL; {_DURABILITY}")


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN IMMEDIATE; {_SCHEMA} INSERT INTO meta VALUES ('generation', 0);"
        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def _is_on_read_only_disk(path: Path) -> bool:
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _check(connection: sqlite3.Connection) -> None:
    _check_version(connection)
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise UnusableIndex(str(problem))


def _check_version(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
        raise UnusableIndex(f"application {application:#x}, version {version}: not an index of this version")
    found = _objects(connection)
    if found != _expected():
        # Somebody else made it, or changed it: a trigger or a view would run inside our own statements.
        odd = sorted({name for _, name, _ in found ^ _expected()})
        raise UnusableIndex(f"another schema than ours: {', '.join(odd[:5])}")


def _objects(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Return what the schema holds. How FTS5 lays out its own tables is left to SQLite, which may be of another version."""
    rows = connection.execute("SELECT type, name, COALESCE(sql, '') FROM sqlite_master").fetchall()
    return frozenset((kind, name, "" if name.startswith("words_") else sql) for kind, name, sql in rows)


@functools.cache
def _expected() -> frozenset[tuple[str, str, str]]:
    connection = _connect(":memory:")
    try:
        _create(connection)
        return _objects(connection)
    finally:
        connection.close()
