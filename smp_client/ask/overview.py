"""The sessions in use, each in a row, as the fresh index knows them: their files are not read.

`access.log` and the histories are not indexed. They are looked at in the sessions that have them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

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
    read = access.last_readings(memory.tree, sessions)
    asker = memory._asker_of(scopes(memory))
    rows, sizes = asker.ask(lambda view: (_rows(view, sessions, read), _sizes(view)))
    apart = _sizes_of_histories(memory.tree, sessions)
    found: list[SessionRow] = []
    for row in rows:
        total = sizes.get(row.id, 0)
        if total is None:  # a file cannot be read: the disk tells
            with suppress(SMPError):
                total = memory._opened(row.id).size().total_bytes
        else:
            total += apart.get(row.id, 0)
        found.append(SessionRow(**{**vars(row), "total_bytes": total}))
    return found


def states(view: View) -> dict[str, str]:
    """Return the status of each session that has metadata."""
    found = {scope: str(data.get("status", "active")) for scope, data in _metadata(view).items()}
    return found | dict.fromkeys(_unreadable(view), UNREADABLE)


def projects(view: View) -> list[str]:
    """Return the projects that sessions name, that of the newest session first."""
    metadata = [*_metadata(view).values()]
    metadata.sort(key=lambda said: time_of(said.get("created_at")) or EPOCH, reverse=True)
    named: dict[str, None] = {}
    for said in metadata:
        context = said.get("context")
        name = context.get("project_name") if isinstance(context, dict) else None
        if isinstance(name, str) and name.strip():
            named[name] = None
    return list(named)


def _rows(view: View, sessions: Sequence[str], read: Mapping[str, datetime]) -> list[SessionRow]:
    """Return these sessions without their sizes, the last used first."""
    metadata = _metadata(view)
    unreadable = _unreadable(view)
    used = last_uses(view, read, metadata)
    memories: dict[str, int] = {}
    for scope, count in view.index.execute("SELECT scope, COUNT(*) FROM memories GROUP BY 1"):
        memories[session_of(scope)] = memories.get(session_of(scope), 0) + count
    found: list[SessionRow] = []
    for session in sessions:
        said = {} if session in unreadable else metadata.get(session, {})
        state = UNREADABLE if session in unreadable else str(said.get("status", "active"))
        context = said.get("context")
        about: dict[str, Any] = context if isinstance(context, dict) else {}
        project = about.get("project_name")
        topic = about.get("primary_topic")
        count = memories.get(session, 0)
        storage = said.get("storage")
        quota = storage.get("quota_bytes") if isinstance(storage, dict) else None
        quota = quota if type(quota) is int and quota > 0 else None
        last = used.get(session)
        found.append(SessionRow(session, state, project, topic, count, last, None, quota))
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
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
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
        for name in ("created_at", "last_accessed") if read is not None else ("created_at",):
            note(scope, time_of(said.get(name)))
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


def _metadata(view: View) -> dict[str, dict[str, Any]]:
    within = view.within("scope")
    asked = f"SELECT scope, metadata FROM sessions WHERE {within.text}"
    rows = view.index.execute(asked, within.parameters)
    return {scope: json.loads(metadata) for scope, metadata in rows}


def _unreadable(view: View) -> set[str]:
    """Return the sessions whose metadata cannot be read. The index still has those of before."""
    asked = "SELECT scope FROM files WHERE file = ? AND problem IS NOT NULL"
    return {scope for (scope,) in view.index.execute(asked, (METADATA,))}
