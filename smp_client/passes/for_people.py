"""The files for people in a session: the YAML indexes, and the counts in `metadata.yaml`.

The daemon writes them when memories change. Without one, somebody asks for them: `smp reindex`. The
index knows the size, the participants and the last use of a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from ..disk.conversation_head import follow_speakers
from ..disk.place import FILES
from ..disk.session_files import METADATA, agents_of
from ..index.database import Index
from ..index.gone import metadata_of
from ..index.sync import bring_up_to_date
from ..index.topics import write as write_yaml_indexes
from ..model.errors import SessionNotFound, SMPError
from ..model.layout import ACTIVE, INDEX_FILE, YAML_INDEXES
from ..model.record import TURN
from ..model.times import parse_time, render_time
from ..text.values import Value
from .repair import make_metadata
from .vanished import settle_here

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory
    from ..session import Session

_PARTICIPANTS = """
SELECT actor, SUM(type = ?), MAX(timestamp), MAX(CASE WHEN timestamp <= ? THEN timestamp END)
FROM memories WHERE scope = ? AND actor <> '' AND timestamp IS NOT NULL
GROUP BY actor ORDER BY MIN(timestamp), actor
"""
_SPEAKERS = """
SELECT actor FROM memories WHERE scope = ? AND type = ? AND actor <> '' GROUP BY actor
ORDER BY MIN(start)
"""
_TYPES = "SELECT type, COUNT(*) FROM memories WHERE scope = ? GROUP BY type"


class _Removed(Exception):
    """The metadata are gone, and are made again when the index has missed them."""


def rebuild_index(memory: Memory, session_id: str | None, timeout_s: float) -> str:
    """Rebuild the index, and write the files for people of every session, or of this one.

    With a session, the index is only brought up to date. Return who did it: `daemon` or `here`.
    """
    done_by = bring_up_to_date(memory, "reindex" if session_id is None else "sync", timeout_s)
    settle_here(memory, is_believed=session_id is None)
    if session_id is None and done_by == "daemon":
        return done_by  # the daemon writes them
    names = [session_id] if session_id else [one.id for one in memory._sessions()]
    with closing(Index.open_to_read(memory.root / INDEX_FILE)) as index:
        for name in names:
            with suppress(*(() if session_id else (SessionNotFound,))):  # it went meanwhile
                write_for_people(memory._session(name), index)
    bring_up_to_date(memory, "sync", timeout_s)  # the counts are in files that are indexed
    return done_by


def write_for_people(session: Session, index: Index) -> list[str]:
    """Write the files for people of a session, and return those that have changed."""
    written = write_yaml_indexes(session.memory, index, session.id)
    if _write_metadata(session, index):
        written.append(METADATA)
    if follow_speakers(session.scope, _speakers(session, index)):
        written.append(TURN.file)
    return written


def look_stale(tree: Tree, session_id: str) -> bool:
    """Return whether an index for people is missing, or older than a file of memories.

    It may be as it should be all the same: a change need not show in it.
    """
    top = f"{ACTIVE}/{session_id}"
    try:
        made_ns = min(tree.stat(f"{top}/{file}").st_mtime_ns for file in YAML_INDEXES)
    except (OSError, SMPError):
        return True
    for file in FILES:
        with suppress(OSError, SMPError):  # not every session has every file
            if file != METADATA and tree.stat(f"{top}/{file}").st_mtime_ns > made_ns:
                return True
    return False


def _speakers(session: Session, index: Index) -> list[str]:
    """Return everybody who has said something, in the order of their first turns."""
    user = session.metadata().get("participants")
    is_known = isinstance(user, dict) and user.get("user_id")
    rows = index.execute(_SPEAKERS, (session.id, TURN.name))
    # The user has a name in the head, where the session has one.
    return [name for (name,) in rows if name.isprintable() and not (is_known and name == "user")]


def _statistics(session: Session, index: Index) -> dict[str, int]:
    """Return how many memories of each type the session has, under the names of their lists."""
    counts = {"conversations": 0, "decisions": 0, "findings": 0, "preferences": 0}
    for type, count in index.execute(_TYPES, (session.id,)):
        name = "conversations" if type == TURN.name else f"{type}s"
        counts[name] = count
    return counts


def _write_metadata(session: Session, index: Index) -> bool:
    """Write the fields of the metadata that have changed. Return whether there were any."""
    if not session.scope.tree.exists(session.scope.path(METADATA)):
        # A dropped directory was created with its first memory.
        sql = "SELECT MIN(timestamp) FROM memories WHERE scope = ?"
        ((first,),) = index.execute(sql, (session.id,))
        known = metadata_of(index, session.id)
        make_metadata(session, parse_time(first) if first else None, known)
    metadata = session.metadata()
    if not metadata or not _changes(session, index, metadata):
        return False

    # Computed again under the lock: fields that a purge removes meanwhile stay away.
    def changes_of(now: dict[str, Value]) -> dict[str, Any]:
        if not now:
            raise _Removed
        return _changes(session, index, now)

    try:
        session.change_metadata(changes_of)
    except _Removed:
        return False  # a moment ago: counts alone must not pass for the metadata
    return True


def _changes(session: Session, index: Index, metadata: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    storage, participants = (
        value if isinstance(value := metadata.get(name), dict) else {}
        for name in ("storage", "participants")
    )
    total, quota = session.scope.usage.total(), session.quota_bytes()
    measured = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1)}
    if {**storage, **measured} != storage:
        changes["storage"] = measured
    entries = {str(item.get("agent_id")): dict(item) for item in agents_of(metadata)}
    for counted in (item for item in entries.values() if "message_count" in item):
        counted["message_count"] = 0  # where no memory of the agent is left
    people, last = {"user", str(participants.get("user_id"))}, ""
    now = render_time(session.scope.options.clock())
    rows = index.execute(_PARTICIPANTS, (TURN.name, now, session.id))
    for actor, messages, active, active_by_now in rows:
        last = max(last, active_by_now or "")
        # Redacted as in the file: else it would differ, and be written, again and again.
        actor, _ = session.scope.redaction.redacted_value(actor)
        if actor not in people:
            entry = entries.setdefault(actor, {"agent_id": actor})
            entry.update({"message_count": int(messages), "last_active": active})
    if (agents := list(entries.values())) != participants.get("agents"):
        changes["participants"] = {"agents": agents}
    if (counts := _statistics(session, index)) != metadata.get("statistics"):
        changes["statistics"] = counts
    if not metadata.get("last_accessed"):
        changes["last_accessed"] = now  # nobody knows how long it was elsewhere
    elif last > str(metadata.get("last_accessed")):
        changes["last_accessed"] = last
    return changes
