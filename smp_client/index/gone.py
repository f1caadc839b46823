"""Memories that stood in a file and stand there no longer, as rows of the table `vanished`.

Whoever indexes a file first keeps the rows of memories that are gone from it. `passes/vanished.py`
asks later where they went: a memory that nobody deleted through SMP becomes a deleted memory.
Afterwards a row has no content, and only says what was removed and when.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from ..disk.place import ARTIFACTS, STATES, is_archived
from ..disk.tombstones import Purged
from ..model.layout import METADATA
from ..model.record import SESSION_KINDS
from ..text.values import Value
from .validity import SUMMARY

if TYPE_CHECKING:
    from .database import Index

# Where the memory went is not known yet; it is a deleted memory; it stands in its file again.
State = Literal["gone", "deleted", "back"]
GONE, DELETED, BACK = get_args(State)
KEPT_S = 40 * 86_400.0  # a row of a deleted memory outlives the bundle that holds it
METADATA_TYPE = "metadata"
_FILES = {kind.name: kind.file for kind in SESSION_KINDS}
_THOSE = "IN (SELECT value FROM json_each(?))"
# Another record of the same id may stand in the file.
_LOST = f"""
SELECT m.type, m.id, m.start, m.text, m.data, (
    SELECT o.id FROM memories o WHERE o.scope = m.scope AND o.file = m.file AND o.start < m.start
    ORDER BY o.start DESC LIMIT 1)
FROM memories m WHERE m.key {_THOSE} AND m.type <> '{SUMMARY}' AND NOT EXISTS (
    SELECT 1 FROM memories o WHERE o.scope = m.scope AND o.id = m.id AND o.file = m.file
    AND o.key NOT {_THOSE})
"""
_WHERE = "WHERE scope = ? AND file = ? AND id = ?"


class Gone(NamedTuple):
    """A memory, or the metadata of a session, that a file held once."""

    scope: str
    file: str  # of the session, also if a bundle held the memory
    id: str  # empty for metadata
    type: str
    start: int  # of its bytes in the file
    behind: str | None  # the id of the record before it
    since: float  # when it was missed, or when it became a deleted memory
    state: State
    text: str
    data: str  # empty when the memory is in a bundle

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.id


def note(
    connection: sqlite3.Connection, scope: str, file: str, keys: Collection[int], ids: set[str]
) -> None:
    """Keep the memories of these keys, which are about to go, if they have one of these ids."""
    went = json.dumps([*keys])
    now = time.time()
    rows: list[Gone] = []
    for kind, memory_id, start, text, data, behind in connection.execute(_LOST, (went, went)):
        if memory_id in ids:
            home = home_of(kind, memory_id) if is_archived(scope) else file
            about = (kind, start, behind, now, GONE, text, data)
            rows.append(Gone(scope, home, memory_id, *about))
    _insert(connection, rows)


def note_metadata(connection: sqlite3.Connection, scope: str) -> None:
    """Keep the metadata of a session, which are about to go."""
    asked = "SELECT metadata FROM sessions WHERE scope = ?"
    for (metadata,) in connection.execute(asked, (scope,)).fetchall():
        row = Gone(scope, METADATA, "", METADATA_TYPE, 0, None, time.time(), GONE, "", metadata)
        _insert(connection, [row])


def _insert(connection: sqlite3.Connection, rows: Iterable[Gone]) -> None:
    places = ", ".join("?" * len(Gone._fields))
    connection.executemany(f"INSERT OR REPLACE INTO vanished VALUES ({places})", rows)


def returned(
    connection: sqlite3.Connection, scope: str, file: str, memories: Iterable[tuple[str, str]]
) -> None:
    """Note that memories stand in a file, again or for the first time: the type and id of each."""
    if connection.execute("SELECT 1 FROM vanished LIMIT 1").fetchone() is None:
        return
    for kind, memory_id in memories:
        home = home_of(kind, memory_id) if is_archived(scope) else file
        key = (scope, home, memory_id)
        connection.execute(f"DELETE FROM vanished {_WHERE} AND state = '{GONE}'", key)
        connection.execute(f"UPDATE vanished SET state = '{BACK}' {_WHERE}", key)


def home_of(kind: str, memory_id: str) -> str:
    """Return the file of a session that a memory of this type and id stands in."""
    if kind == "agent_state":
        return f"{STATES}/{memory_id}.yaml"
    if kind == METADATA_TYPE:
        return METADATA
    return _FILES.get(kind, f"{ARTIFACTS}/{memory_id}.md")


def is_waiting(index: Index) -> bool:
    """Return whether somebody has to ask where a memory went."""
    asked = f"SELECT 1 FROM vanished WHERE state <> '{DELETED}' LIMIT 1"
    return index.execute(asked).fetchone() is not None


def waiting(index: Index, quiet_s: float) -> list[Gone]:
    """Return the memories to be asked about, of files that nobody has written for some time."""
    asked = f"SELECT * FROM vanished WHERE state <> '{DELETED}' ORDER BY scope, file, start"
    now = time.time()
    rows = map(Gone._make, index.execute(asked))
    # A time to come is of a clock that was set back since.
    return [row for row in rows if not now - quiet_s < row.since <= now]


def metadata_of(index: Index, scope: str) -> dict[str, Value]:
    """Return the metadata of a session that the index has, also if their file has vanished."""
    asked = f"SELECT data FROM vanished {_WHERE} AND state = '{GONE}'"
    row = index.execute(asked, (scope, METADATA, "")).fetchone()
    if row is None:
        asked = "SELECT metadata FROM sessions WHERE scope = ?"
        row = index.execute(asked, (scope,)).fetchone()
    return dict(json.loads(row[0])) if row else {}


def of_file(index: Index, scope: str, file: str) -> list[Gone]:
    """Return the memories that a file held once and that are in no bundle, in their order."""
    asked = "SELECT * FROM vanished WHERE scope = ? AND file = ? AND state = ? ORDER BY start"
    return [*map(Gone._make, index.execute(asked, (scope, file, GONE)))]


def still_known(index: Index, scope: str, file: str) -> list[Gone]:
    """Return the memories of a file as the index has them: of an unreadable one, as it was."""
    asked = "SELECT id, type, start, text, data FROM memories WHERE scope = ? AND file = ?"
    rows = index.execute(f"{asked} ORDER BY start", (scope, file))
    return [
        Gone(scope, file, memory_id, kind, start, None, 0.0, "gone", text, data)
        for memory_id, kind, start, text, data in rows
    ]


def forget(index: Index, rows: Iterable[Gone]) -> None:
    keys = [(row.scope, row.file, row.id) for row in rows]
    index.connection.executemany(f"DELETE FROM vanished {_WHERE}", keys)


def mark_deleted(index: Index, rows: Iterable[Gone]) -> None:
    """Note that memories are in a bundle, and keep no content of them."""
    now = time.time()
    marked = [row._replace(since=now, state="deleted", text="", data="") for row in rows]
    _insert(index.connection, marked)
    index.execute("DELETE FROM vanished WHERE state = ? AND since < ?", (DELETED, now - KEPT_S))


def of_scopes(index: Index, scopes: Collection[str]) -> list[Gone]:
    asked = f"SELECT * FROM vanished WHERE scope {_THOSE}"
    return [*map(Gone._make, index.execute(asked, (json.dumps([*scopes]),)))]


def purged_among(rows: Sequence[Gone], purged: Purged, *, is_there: bool) -> list[Gone]:
    """Return which of these rows of one session were purged, one by one or with the session."""
    created = next((json.loads(row.data).get("created_at") for row in rows if not row.id), None)
    # A session that was made again after the purge, under the same name, was not purged.
    if purged.whole and not is_there and str(created or "") < purged.whole:
        return [*rows]
    return [row for row in rows if row.id and purged.holds(row.file, _fields(row))]


def _fields(row: Gone) -> dict[str, Value]:
    return {**(json.loads(row.data) if row.data else {}), "id": row.id}


def removed_since(index: Index, since: float) -> list[Gone]:
    """Return the memories that were removed outside of SMP since a time."""
    asked = "SELECT * FROM vanished WHERE state = ? AND id <> '' AND since > ? ORDER BY since"
    return [*map(Gone._make, index.execute(asked, (DELETED, since)))]
