"""The schema of the index, and opening a file that has exactly this schema.

Anybody can have made or changed the file: one with another schema is never asked anything, since a
trigger or a view would run inside our own statements.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable

from ..model.deadline import beat
from ..model.layout import FORMAT_VERSION

# An index of another version, or of another version of the files, is rebuilt.
SCHEMA_VERSION = 21 * 1000 + FORMAT_VERSION
BUSY_MS = 3_000  # of waiting inside SQLite, where nobody can be interrupted
# So often a query shows that the process is alive: about once in a millisecond.
_BEAT_INSTRUCTIONS = 10_000
# Derived data: the next scan finds a commit that a power failure lost, so none is synced.
SETTINGS = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;"

# The long columns of memories stand last, because SQLite reads a row only as far as it must.
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE files (
    scope TEXT, file TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    checksum INTEGER, indent INTEGER, bad INTEGER, problem TEXT,
    PRIMARY KEY (scope, file)
) WITHOUT ROWID;
CREATE INDEX files_unreadable ON files (scope, file) WHERE bad > 0 OR problem IS NOT NULL;
CREATE TABLE folders (
    scope TEXT, folder TEXT, inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER,
    PRIMARY KEY (scope, folder)
) WITHOUT ROWID;
CREATE TABLE memories (
    key INTEGER PRIMARY KEY, scope TEXT, at INTEGER, type TEXT, standing TEXT, base REAL,
    accessed INTEGER, accesses INTEGER, importance REAL, id TEXT, file TEXT, start INTEGER,
    end INTEGER, hash TEXT, timestamp TEXT, actor TEXT, ended TEXT, subject TEXT, secrets TEXT,
    owner TEXT, tags TEXT, text TEXT, more TEXT, data TEXT
);
CREATE INDEX memories_by_secrets ON memories (secrets) WHERE secrets IS NULL OR secrets > '';
CREATE INDEX memories_by_id ON memories (scope, id, file, start);
CREATE INDEX memories_by_file ON memories (scope, file, start);
CREATE INDEX memories_by_time ON memories (scope, at);
CREATE INDEX memories_by_type ON memories (scope, type, at);
CREATE INDEX latest ON memories (at, scope, type);
CREATE INDEX latest_of_type ON memories (type, at, scope);
CREATE INDEX memories_by_actor ON memories (scope, actor);
CREATE INDEX lasting ON memories (standing, at)
    WHERE standing IN ('pinned', 'decision.high_impact');
CREATE INDEX memories_by_subject ON memories (subject, at) WHERE subject IS NOT NULL;
CREATE TABLE scopes (number INTEGER PRIMARY KEY, scope TEXT UNIQUE, memories INTEGER DEFAULT 0);
CREATE TABLE vectors (memory INTEGER PRIMARY KEY, vector BLOB);
CREATE TABLE places (memory INTEGER PRIMARY KEY, scope INTEGER, place INTEGER);
CREATE INDEX places_of_turns ON places (scope, place) WHERE place IS NOT NULL;
CREATE TABLE topics (
    scope TEXT, topic TEXT, type TEXT, at INTEGER, id TEXT, memory INTEGER, how INTEGER,
    PRIMARY KEY (scope, topic, type, at, id, memory)
) WITHOUT ROWID;
CREATE INDEX topics_by_memory ON topics (memory, topic, how);
CREATE TABLE refs (
    memory INTEGER, scope TEXT, target TEXT, relation TEXT, PRIMARY KEY (memory, target, relation)
) WITHOUT ROWID;
CREATE INDEX refs_by_target ON refs (scope, target);
CREATE TABLE endings (
    session TEXT, id TEXT, relation TEXT, by TEXT, at INTEGER, memory INTEGER,
    PRIMARY KEY (session, id, memory)
) WITHOUT ROWID;
CREATE INDEX endings_by_memory ON endings (memory);
CREATE TABLE past (memory INTEGER PRIMARY KEY, latest TEXT);
CREATE TABLE vanished (
    scope TEXT, file TEXT, id TEXT, type TEXT, start INTEGER, behind TEXT, since REAL, state TEXT,
    text TEXT, data TEXT, PRIMARY KEY (scope, file, id)
) WITHOUT ROWID;
CREATE TABLE sessions (
    scope TEXT PRIMARY KEY, status TEXT, project TEXT, metadata TEXT, secrets TEXT
) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5 (text, more, actor, tags, owner, content='memories',
    content_rowid='key', tokenize='porter unicode61');
CREATE VIRTUAL TABLE terms USING fts5vocab (words, row);
"""
TABLES = set(re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", SCHEMA))
_STATEMENTS = set(SCHEMA.strip().removesuffix(";").split(";\n"))
# A lock, a full disk or a missing right is the machine's fault: no reason to replace the file.
_NOT_THE_FILE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM,
}  # fmt: skip


class UnusableIndex(Exception):
    """The file is damaged, of another version, or not an index at all."""


def connect(path: str, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    """Return a prepared connection. Raise UnusableIndex where the file itself is at fault."""
    is_uri, timeout_s = path.startswith("file:"), BUSY_MS / 1000
    connection = sqlite3.connect(
        path, timeout=timeout_s, isolation_level=None, check_same_thread=False, uri=is_uri
    )
    connection.set_progress_handler(beat, _BEAT_INSTRUCTIONS)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        try:
            connection.execute("SELECT EXP(0)")
        except sqlite3.OperationalError:  # some SQLites are built without their mathematics
            connection.create_function("EXP", 1, math.exp, deterministic=True)
        prepare(connection)
    except BaseException as error:
        connection.close()
        # An error of our own code, such as the number of parameters, has no code.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF
        if isinstance(error, sqlite3.DatabaseError) and code not in _NOT_THE_FILE:
            raise UnusableIndex(str(error)) from error
        raise
    return connection


def create(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"{SETTINGS} BEGIN IMMEDIATE; {SCHEMA} INSERT INTO meta VALUES ('generation', 0);"
        f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def check(connection: sqlite3.Connection) -> None:
    """Raise UnusableIndex where the file has not the schema of this version."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    # FTS5's own tables may differ between SQLite's versions.
    asked = "SELECT sql FROM sqlite_master WHERE NOT (type = 'table' AND name LIKE 'words_%')"
    statements = {sql for (sql,) in connection.execute(asked)} - {None}
    if version != SCHEMA_VERSION or statements != _STATEMENTS:
        raise UnusableIndex("another schema than ours")
