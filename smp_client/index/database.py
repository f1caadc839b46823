"""The index: one SQLite file with everything that queries need, derived from the files."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..disk import place
from ..disk.place import Place, session_of
from ..disk.tree import FILE_MODE, Tree, identity
from ..model.layout import ACTIVE, GLOBAL, METADATA
from ..model.record import PREFERENCE, RELATIONSHIP, split_name
from ..model.times import microseconds, time_of
from . import gone as gone_memories
from . import mentions
from .mentions import SESSION, named
from .schema import BUSY_MS, SETTINGS, TABLES, UnusableIndex, check, connect, create
from .validity import judge

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = "text, more, actor, tags, owner"
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_THOSE = "IN (SELECT value FROM json_each(?))"
# The condition that the id of a memory `m` names it: the last of several in one file is meant. By
# this index SQLite finds it in one step, however many share the id.
NAMED = (
    "NOT EXISTS (SELECT 1 FROM memories o INDEXED BY memories_by_id"
    " WHERE o.scope = m.scope AND o.id = m.id AND o.file = m.file AND o.start > m.start)"
)
# These files tell whether memories of other sessions still hold, see validity.py.
_BEARING = (RELATIONSHIP.file, PREFERENCE.file, METADATA)


class FileState(NamedTuple):
    """A file as the index has taken it in."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    checksum: int
    indent: int  # of its records; -1 for a file that cannot be read from its end
    bad: int = 0  # records in it that could not be read
    problem: str | None = None  # why the file could not be read; its memories then stay known


class Entry(NamedTuple):
    """A memory as the index keeps it. The first fields are columns of the table `memories`."""

    id: str
    type: str
    hash: str
    data: str
    start: int = 0
    end: int = 0
    timestamp: str | None = None  # in UTC, as it is shown; None where none can be read
    at: int | None = None  # in microseconds since 1970, which sort as texts do not
    actor: str = ""
    text: str = ""
    more: str = ""  # its other texts
    standing: str = ""  # names the rule by which it decays, see priority.py
    base: float | None = None  # where its priority begins; None for the rule's
    accessed: int | None = None  # in microseconds
    accesses: int = 0
    importance: float = 0.5
    ended: str = ""  # why it no longer holds, by its own fields, see validity.py
    subject: str | None = None  # of an explicit preference: a later one of the subject replaces it
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()  # beside its tags
    refs: tuple[tuple[str, str], ...] = ()  # (target, relation)
    endings: tuple[tuple[str, str, str], ...] = ()  # (target, relation, source) that it ends
    place: int | None = None  # of a turn in its conversation


COLUMNS = Entry._fields[: Entry._fields.index("tags")]


def refuse_links(path: str | Path) -> None:
    """Raise UnusableIndex where the index, or a file of SQLite beside it, is a link."""
    for name in (f"{path}{suffix}" for suffix in _SUFFIXES):
        if os.path.islink(name):
            raise UnusableIndex(f"{name} is a link, which may lead out of the tree")


class Index:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection, self.execute = connection, connection.execute
        # The contents of this connection's temporary tables, see priorities.py.
        self.rules: object = None
        self.readings: dict[str, Any] = {}  # by scope: its access log, see readings.py
        self.vectors: Any = None  # as meaning.py has read them
        self.written: list[tuple[str, str]] = []  # scope and id of each memory of this batch
        self._is_reading = False
        # The identity of each file by scope, as one generation has them.
        self._identities: tuple[int, dict[str, dict[str, list[int]]]] | None = None

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
    def open_to_read(cls, path: str | Path) -> Index:
        """Open the index for questions, by a process that does not lead. It is never made here."""
        refuse_links(path)
        if not os.path.exists(path) or not os.path.getsize(path):
            raise UnusableIndex("missing or empty")

        def prepare(connection: sqlite3.Connection) -> None:
            check(connection)
            # Neither pages that are never committed nor memories that are sorted get into a file.
            connection.executescript("PRAGMA cache_spill = OFF; PRAGMA temp_store = MEMORY;")
            connection.execute("PRAGMA cache_size = -32000")

        try:
            name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            return cls(connect(f"file://{name}?mode=rw", prepare))
        except sqlite3.DatabaseError as error:
            raise UnusableIndex(str(error)) from error

    @classmethod
    def in_memory(cls) -> Index:
        return cls(connect(":memory:", create))

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def undone(self, patience_ms: int | None = None) -> Iterator[None]:
        """Show one moment of the index. Changes are seen inside only, and need a patience."""
        if patience_ms is None:
            self.execute("BEGIN")
        else:
            self.begin(patience_ms)
        self._is_reading = patience_ms is None
        try:
            yield
        finally:
            self._is_reading = False
            self._roll_back()

    def begin(self, patience_ms: int = BUSY_MS) -> None:
        """Begin to write. Raise OperationalError where somebody else writes for longer."""
        self.execute(f"PRAGMA busy_timeout = {patience_ms}")
        try:
            self.execute("BEGIN IMMEDIATE")
        finally:
            self.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _roll_back(self) -> None:
        # After a failure, such as a full disk, SQLite may have done so already.
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    @property
    def generation(self) -> int:
        """Return a number that grows with every batch that changed something."""
        return int(self.execute("SELECT value FROM meta WHERE name = 'generation'").fetchone()[0])

    @contextmanager
    def batch(self, *, is_silent: bool = False) -> Iterator[None]:
        """Make all changes inside visible together; after an exception, none.

        A silent one leaves the generation: the files in the index stay as they are.
        """
        self.begin()
        self.written.clear()
        before = self.connection.total_changes
        try:
            yield
            if self.connection.total_changes != before and not is_silent:
                self.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    @contextmanager
    def one_file(self) -> Iterator[None]:
        """Take the changes inside back after an exception, and nothing else of the batch."""
        self.execute("SAVEPOINT one_file")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # a full disk may have ended all of it
                self.execute("ROLLBACK TO one_file")
            raise
        finally:
            if self.connection.in_transaction:
                self.execute("RELEASE one_file")

    # Files.

    def files(self, scope: str | None = None) -> dict[tuple[str, str], FileState]:
        """Return the files that were taken in, of one scope or of all."""
        asked = "SELECT * FROM files" + (" WHERE scope = ?" if scope is not None else "")
        rows = self.execute(asked, () if scope is None else (scope,))
        return {row[:2]: FileState._make(row[2:]) for row in rows}

    def identities(self) -> dict[str, dict[str, list[int]]]:
        """Return the identity of each file by its scope, for the caller to read only.

        The name of a folder ends with a slash. As long as it has this identity, the index knows
        all of its files.
        """
        generation = self.generation
        if self._is_reading and self._identities and self._identities[0] == generation:
            return self._identities[1]
        found: dict[str, dict[str, list[int]]] = {}
        seen_as = "inode, size, mtime_ns, ctime_ns"
        asked = f"SELECT scope, file, {seen_as} FROM files"
        asked += f" UNION ALL SELECT scope, folder || '/', {seen_as} FROM folders"
        for scope, file, *seen in self.execute(asked):
            found.setdefault(scope, {})[file] = seen
        if self._is_reading:
            self._identities = generation, found
        return found

    def file_state(self, scope: str, file: str) -> FileState | None:
        asked = "SELECT * FROM files WHERE scope = ? AND file = ?"
        row = self.execute(asked, (scope, file)).fetchone()
        return FileState._make(row[2:]) if row else None

    def note_file(self, scope: str, file: str, state: FileState) -> None:
        row = (scope, file, *state)
        self.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def forget_file(self, scope: str, file: str, *, has_moved: bool = False) -> None:
        """Forget a file and its memories. `has_moved` says that they are known to be elsewhere."""
        self.replace(scope, file, [], has_moved=has_moved)
        self.execute("DELETE FROM files WHERE scope = ? AND file = ?", (scope, file))

    def note_folders(self, tree: Tree) -> None:
        """Note the folders that were listed, if the index knows each of their files."""
        asked = "SELECT * FROM folders" if tree.listed else "SELECT 1 WHERE 0"
        known = {(scope, folder): seen for scope, folder, *seen in self.execute(asked)}
        for path, (seen, names) in tree.listed.items():
            top, _, rest = path.partition("/")
            scope, _, folder = rest.partition("/")
            if top != ACTIVE or folder not in place.FOLDERS or known.get((scope, folder)) == seen:
                continue
            files = {file for file in (f"{folder}/{name}" for name in names)
                     if place.is_of(scope, file)}  # fmt: skip
            if not files or files <= {file for _, file in self.files(scope)}:
                row = (scope, folder, *seen)
                self.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?, ?, ?, ?)", row)

    # Memories.

    def replace(
        self, scope: str, file: str, entries: Iterable[Entry], *, has_moved: bool = False
    ) -> None:
        """Make the memories of a file these, and touch only those that differ.

        Memories that are gone are kept aside, see gone.py, unless they are known to be elsewhere.
        """
        left: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        known = (
            "SELECT key, id, hash, start, end FROM memories WHERE scope = ? AND file = ?"
            " ORDER BY start DESC"
        )
        for key, memory_id, digest, start, end in self.execute(known, (scope, file)):
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
        gone = {key: one for (one, _), same in left.items() for key, _, _ in same}
        lost = {*gone.values()} - {entry.id for entry in new}
        if lost and not has_moved:
            gone_memories.note(self.connection, scope, file, gone, lost)
        self._exchange(scope, file, gone, new)

    def add(self, scope: str, file: str, entries: Sequence[Entry]) -> None:
        self._exchange(scope, file, {}, entries)

    def _exchange(
        self, scope: str, file: str, gone: Mapping[int, str], entries: Sequence[Entry]
    ) -> None:
        """Remove memories, insert others, and judge again which of the affected still hold."""
        ask, many = self.execute, self.connection.executemany
        if not (gone or entries):
            return
        went = (json.dumps(list(gone)),)
        ended = ask(f"SELECT session, id FROM endings WHERE memory {_THOSE}", went).fetchall()
        asked = f"SELECT DISTINCT subject FROM memories WHERE subject > '' AND key {_THOSE}"
        subjects = {subject for (subject,) in ask(asked, went)}
        # FTS5 removes a text only where it gets the words that it once took in.
        forget = f"INSERT INTO words (words, rowid, {_WORDS}) SELECT 'delete', key, {_WORDS}"
        ask(f"{forget} FROM memories WHERE key {_THOSE}", went)
        for table in ("topics", "refs", "endings", "past", "places", "vectors"):
            ask(f"DELETE FROM {table} WHERE memory {_THOSE}", went)
        ask(f"DELETE FROM memories WHERE key {_THOSE}", went)
        number = self._number(scope, len(entries) - len(gone))
        first = ask("SELECT COALESCE(MAX(key), 0) + 1 FROM memories").fetchone()[0]
        new = list(enumerate(entries, first))
        self.written += [(scope, entry.id) for entry in entries]
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
        # Places are asked for many memories at once, which is much faster of a narrow table.
        many("INSERT INTO places VALUES (?, ?, ?)", ((key, number, one.place) for key, one in new))
        about = ((one.type, one.at, one.id, key, named(one.tags, one.topics)) for key, one in new)
        mentions.note(self.connection, scope, about)
        refs = ((key, scope, *ref) for key, entry in new for ref in entry.refs)
        many("INSERT OR IGNORE INTO refs VALUES (?, ?, ?, ?)", refs)
        for key, entry in new:
            for target, relation, source in entry.endings:
                old, by = (split_name(name, session_of(scope)) for name in (target, source))
                if old != by:  # a person can have written that a memory supersedes itself
                    row = (*old, relation, "/".join(by), entry.at, key)
                    ask("INSERT OR IGNORE INTO endings VALUES (?, ?, ?, ?, ?, ?)", row)
                    ended.append(old)
        subjects |= {entry.subject for _, entry in new if entry.subject}
        judge(self.connection, [key for key, _ in new], ended, subjects)
        gone_memories.returned(
            self.connection, scope, file, ((one.type, one.id) for one in entries)
        )
        ids = {*gone.values(), *(one.id for one in entries)}
        mentions.follow(self.connection, scope, ids, [key for key, one in new if one.refs])

    def _number(self, scope: str, more: int) -> int:
        """Return the number of a scope, which now has so many memories more."""
        self.execute("INSERT OR IGNORE INTO scopes (scope) VALUES (?)", (scope,))
        self.execute("UPDATE scopes SET memories = memories + ? WHERE scope = ?", (more, scope))
        asked = "SELECT number FROM scopes WHERE scope = ?"
        return int(self.execute(asked, (scope,)).fetchone()[0])

    # Sessions.

    def note_session(
        self, scope: str, status: str, metadata: dict[str, Any], project: str = ""
    ) -> None:
        said = (status, project, json.dumps(metadata, ensure_ascii=False, sort_keys=True))
        asked = "SELECT status, project, metadata FROM sessions WHERE scope = ?"
        if self.execute(asked, (scope,)).fetchone() != said:
            row = (scope, *said)
            self.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, NULL)", row)
            gone_memories.returned(
                self.connection, scope, METADATA, [(gone_memories.METADATA_TYPE, "")]
            )
            self._note_topics(scope, metadata)

    def forget_session(self, scope: str, *, has_moved: bool = False) -> None:
        for _, file in self.files(scope):
            self.forget_file(scope, file, has_moved=has_moved)
        self.execute("DELETE FROM folders WHERE scope = ?", (scope,))
        self.forget_metadata(scope, has_moved=has_moved)

    def forget_metadata(self, scope: str, *, has_moved: bool = False) -> None:
        if not has_moved:
            gone_memories.note_metadata(self.connection, scope)
        self.execute("DELETE FROM sessions WHERE scope = ?", (scope,))
        self._note_topics(scope, {})

    def _note_topics(self, scope: str, metadata: dict[str, Any]) -> None:
        """Note the topics of a session itself, and judge preferences: each is of a project."""
        created, key = time_of(metadata.get("created_at")), -self._number(scope, 0)
        self.execute("DELETE FROM topics WHERE memory = ?", (key,))
        at = microseconds(created) if created else None
        row = (SESSION, at, "", key, mentions.of_session(metadata))
        mentions.note(self.connection, scope, [row])
        asked = "SELECT DISTINCT subject FROM memories WHERE scope = ? AND subject > ''"
        if subjects := [subject for (subject,) in self.execute(asked, (scope,))]:
            judge(self.connection, (), (), subjects)

    def clear(self) -> None:
        """Forget everything but the generation and the memories that have vanished."""
        self.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for table in TABLES - {"meta", "words", "terms", "vanished"}:
            self.execute(f"DELETE FROM {table}")


def owner_word(scope: str) -> str:
    """Return one word for a scope, which marks the words of its memories among those of others."""
    return f"o{scope.encode().hex()}0"  # FTS5 stems no word that ends with a digit


def outdated(
    memory: Place, index: Index, asked: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    """Return the files whose disk and index differ, those that are gone included. Read none.

    With `asked` scopes, others count only by the files that say whether a memory still holds.
    """
    if asked is None:
        memory.tree.listed.clear()  # a look at everything trusts no look before it
    known, present = index.identities(), dict.fromkeys(place.scopes(memory))
    wanted = {**present, **known} if asked is None else dict.fromkeys(asked)
    found: list[tuple[str, str]] = []
    with memory.tree.root() as root:
        for scope in {**wanted, **present, **known}:
            seen = known.get(scope) or {}
            is_whole = scope in wanted or place.is_archived(scope)
            top = f"{place.directory_of(scope)}/"
            names: Iterable[str] = ()
            if scope in present and (scope == GLOBAL or place.is_archived(scope)):
                names = place.files_of(memory, scope) if is_whole else ()
            elif scope in present:
                names = _BEARING
                if is_whole:
                    noted = {} if asked is None else seen
                    names = (*place.FILES, *_in_folders(memory, scope, noted, root))
            gone = {file for file in seen.keys() - names if not file.endswith("/")}
            found += [(scope, file) for file in gone if is_whole or file in _BEARING]
            for file in names:
                try:
                    # A link differs from its target, which is then opened with care.
                    is_same = seen.get(file) == identity(os.lstat(top + file, dir_fd=root))
                except FileNotFoundError:
                    is_same = file not in seen
                except OSError:
                    is_same = False
                if not is_same:
                    found.append((scope, file))
    return found


def _in_folders(
    memory: Place, session_id: str, seen: Mapping[str, list[int]], root: int
) -> list[str]:
    """Return the files of the folders of a session. List only folders that have changed."""
    top = place.directory_of(session_id)
    found: list[str] = []
    changed: list[str] = []
    for folder in place.FOLDERS:
        begins = f"{folder}/"
        noted = seen.get(begins)
        with suppress(OSError):
            if noted and noted == identity(os.lstat(f"{top}/{folder}", dir_fd=root)):
                found += [file for file in seen if file.startswith(begins) and file != begins]
                continue
        changed.append(folder)
    if changed:
        with memory.tree.holding():  # the directory of this session is opened once
            for folder in changed:
                found += place.files_of_folder(memory, session_id, folder)
    return found
