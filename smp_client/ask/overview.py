"""The sessions in use, each in a row, as the fresh index knows them: their files are not read.

`access.log` and the histories are not indexed. They are looked at in the sessions that have them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..disk import access
from ..disk.place import directory_of, scopes, session_of
from ..disk.session_files import METADATA
from ..model.errors import SMPError
from ..model.record import REVISION, STATE_HISTORY
from ..model.times import EPOCH, microseconds, time_at, time_of

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory
    from .priorities import View

UNREADABLE = "unreadable"


@dataclass(frozen=True)
class SessionRow:
    """A session in use."""

    id: str
    state: str  # `unreadable` if its metadata cannot be read
    project: str | None
    topic: str | None
    memories: int  # evicted ones too
    last_use: datetime | None  # None if nothing tells
    total_bytes: int | None  # None if a file cannot be looked at
    quota_bytes: int | None = None  # its own limit, if its metadata give one


def in_use(memory: Memory) -> list[SessionRow]:
    """Return the sessions in `active/`, the last used first."""
    sessions = memory._session_ids()
    if not sessions:
        return []
    looked_at = _Looks(
        access.last_readings(memory.tree, sessions), _sizes_of_histories(memory.tree, sessions)
    )
    asker = memory._asker_of(scopes(memory))
    rows = asker.ask(lambda view: _rows(view, sessions, looked_at))
    for number, row in enumerate(rows):
        if row.total_bytes is None:  # a file cannot be read: the disk tells
            with suppress(SMPError):
                total = memory._opened(row.id).size().total_bytes
                rows[number] = replace(row, total_bytes=total)
    return rows


def states(view: View) -> dict[str, str]:
    """Return the status of each session that has metadata."""
    found = {scope: said.state for scope, said in _metadata(view).items()}
    return found | dict.fromkeys(_unreadable(view), UNREADABLE)


def projects(view: View) -> list[str]:
    """Return the projects that sessions name, that of the newest session first."""
    metadata = [*_metadata(view).values()]
    metadata.sort(key=lambda said: time_of(said.created_at) or EPOCH, reverse=True)
    named: dict[str, None] = {}
    for said in metadata:
        if isinstance(said.project, str) and said.project.strip():
            named[said.project] = None
    return list(named)


class _Looks(NamedTuple):
    """What no index has, by session."""

    readings: Mapping[str, datetime]
    histories: Mapping[str, int]  # in bytes


class _Facts(NamedTuple):
    """What the metadata of a session say."""

    state: str = "active"
    created_at: object = None
    last_accessed: object = None
    project: str | None = None
    topic: str | None = None
    quota_bytes: object = None


def _rows(view: View, sessions: Sequence[str], looked_at: _Looks) -> list[SessionRow]:
    """Return these sessions, the last used first. One without a size has an unreadable file."""
    metadata = _metadata(view)
    unreadable = _unreadable(view)
    used = last_uses(view, looked_at.readings, metadata)
    sizes = _sizes(view)
    memories: dict[str, int] = {}
    for scope, count in view.index.execute("SELECT scope, COUNT(*) FROM memories GROUP BY 1"):
        memories[session_of(scope)] = memories.get(session_of(scope), 0) + count
    found: list[SessionRow] = []
    for session in sessions:
        said = metadata.get(session, _Facts())
        if session in unreadable:
            said = _Facts(UNREADABLE)
        quota = said.quota_bytes if isinstance(said.quota_bytes, int) else 0
        size = sizes.get(session, 0)
        row = SessionRow(
            session,
            said.state,
            said.project,
            said.topic,
            memories.get(session, 0),
            used.get(session),
            None if size is None else size + looked_at.histories.get(session, 0),
            quota if quota > 0 else None,
        )
        found.append(row)
    return sorted(found, key=lambda row: row.last_use or EPOCH, reverse=True)


def _sizes(view: View) -> dict[str, int | None]:
    """Return the bytes of the indexed files of each session; None if one cannot be read."""
    asked = "SELECT scope, SUM(size), SUM(problem IS NOT NULL) FROM files GROUP BY 1"
    rows = view.index.execute(asked)
    return {scope: None if problems else size for scope, size, problems in rows}


def _sizes_of_histories(tree: Tree, sessions: Sequence[str]) -> dict[str, int]:
    """Return the bytes of the histories of each session that has some. No index has them."""
    found: dict[str, int] = {}
    with tree.root() as root:
        for session in sessions:
            top = directory_of(session)
            with suppress(OSError):
                found[session] = os.lstat(f"{top}/{REVISION.file}", dir_fd=root).st_size
            with suppress(OSError, SMPError):
                os.lstat(f"{top}/{STATE_HISTORY}", dir_fd=root)
                states = sum(tree.sizes(f"{top}/{STATE_HISTORY}").values())
                found[session] = found.get(session, 0) + states
    return found


def last_uses(
    view: View,
    read: Mapping[str, datetime] | None,
    metadata: Mapping[str, _Facts] | None = None,
) -> dict[str, datetime]:
    """Return when each session was last used, given when each was last read.

    With None, readings do not count. A session of which nothing tells is left out.
    """
    within = view.within("scope")
    ask = view.index.execute
    found: dict[str, datetime] = {}

    def note(scope: str, time: datetime | None) -> None:
        # A time in the future is a slip, and must not keep a session alive for ever.
        if time is not None and EPOCH < time <= view.now:
            found[scope] = max(found.get(scope, EPOCH), time)

    for scope, at in (read or {}).items():
        note(scope, at)
    for scope, said in (_metadata(view) if metadata is None else metadata).items():
        note(scope, time_of(said.created_at))
        if read is not None:
            note(scope, time_of(said.last_accessed))
    for column in ("at", "accessed") if read is not None else ("at",):
        past = f"{within.text} AND {column} <= {microseconds(view.now)}"
        query = f"SELECT scope, MAX({column}) FROM memories WHERE {past} GROUP BY scope"
        for scope, at in ask(query, within.parameters):
            note(scope, time_at(at))
    # Looking for the word is far quicker than reading the JSON of every memory.
    changed = f"{within.text} AND instr(data, '\"updated_at\"')"
    query = f"SELECT scope, json_extract(data, '$.updated_at') FROM memories WHERE {changed}"
    for scope, stamp in ask(query, within.parameters):
        note(scope, time_of(stamp))
    return found


def _metadata(view: View) -> dict[str, _Facts]:
    """Return the facts of each session. SQLite takes them out of the JSON far quicker than we."""
    within = view.within("scope")
    names = ("created_at", "last_accessed", "context.project_name", "context.primary_topic")
    columns = [_scalar(name) for name in names]
    quota = "metadata, '$.storage.quota_bytes'"
    columns.append(f"CASE json_type({quota}) WHEN 'integer' THEN json_extract({quota}) END")
    asked = f"SELECT scope, status, {', '.join(columns)} FROM sessions WHERE {within.text}"
    rows = view.index.execute(asked, within.parameters)
    return {scope: _Facts(*facts) for scope, *facts in rows}


def _scalar(name: str) -> str:
    """Return the column of a field; a list or a mapping counts as none."""
    field = f"metadata, '$.{name}'"
    return f"CASE WHEN json_type({field}) NOT IN ('array', 'object') THEN json_extract({field}) END"


def _unreadable(view: View) -> set[str]:
    """Return the sessions whose metadata cannot be read. The index still has those of before."""
    asked = "SELECT scope FROM files WHERE file = ? AND problem IS NOT NULL"
    return {scope for (scope,) in view.index.execute(asked, (METADATA,))}
