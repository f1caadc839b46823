"""The files that the daemon writes into sessions: YAML indexes and `metadata.yaml`.

The index knows the size, the participants and the last use of a session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from smp_client import Session, SessionNotFound, SMPError
from smp_client.disk.conversation_head import follow_speakers
from smp_client.disk.session_files import METADATA, agents_of
from smp_client.index.database import Index
from smp_client.index.gone import metadata_of
from smp_client.index.topics import write as write_yaml_indexes
from smp_client.model.errors import is_of_machine
from smp_client.model.record import TURN
from smp_client.model.times import parse_time, render_time
from smp_client.passes.repair import make_metadata

from ..log import ms_since
from . import indexer

if TYPE_CHECKING:
    from ..root import Root

EVERY_S = 2.0  # the least time between two writes of a session
FAILED_AGAIN_S = 60.0
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


class Derived:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._due: dict[str, float] = {}  # by session
        self._rests: dict[str, float] = {}  # until when a session is not written again

    def note(self, scope: str) -> None:
        """Note that a file of the session has changed."""
        self._due.setdefault(scope, max(time.monotonic(), self._rests.get(scope, 0.0)))

    def write(self, current: float) -> str | None:
        """Write the files of the session that has waited longest, and return it.

        One session a call, so that new files are indexed between two sessions.
        """
        root = self._root
        started = time.perf_counter()
        scope = min(self._due, key=self._due.__getitem__, default=None)
        if scope is None or self._due[scope] > current or not root.is_there():
            return None
        del self._due[scope]
        about = f"keeping indexes and metadata of {scope} up to date"
        root.problems.pop(about, None)
        try:
            written = self._write(scope)
        except SessionNotFound:  # it was archived or deleted
            return None
        except Exception as error:
            if root.memory.tree.exists(f"active/{scope}"):
                self._due[scope] = time.monotonic() + FAILED_AGAIN_S
            if is_of_machine(error):
                raise
            if isinstance(error, SMPError) and error.recoverable:
                root.log_failure(about, error)  # somebody else is writing it, or it is full
            else:
                root.note_failure(about, error, scope)
            return scope
        # A large session is written less often: at most a twentieth of the time goes into it.
        self._rests[scope] = time.monotonic() + EVERY_S + 20 * (time.perf_counter() - started)
        if written:
            root.log.debug("derived files written", component="indexer", session_id=scope,
                           files=written, duration_ms=ms_since(started))  # fmt: skip
        return scope

    def _write(self, scope: str) -> list[str]:
        """Write the derived files of a session, and return those that have changed."""
        root = self._root
        session = root.memory._session(scope)
        written = write_yaml_indexes(root.memory, root.index, scope)
        if _bring_up_to_date(session, root.index):
            written.append(METADATA)
            indexer.take_in(root.memory, root.index, [f"active/{scope}/{METADATA}"])
        if follow_speakers(session.scope, _speakers(session, root.index)):
            written.append(TURN.file)
            indexer.take_in(root.memory, root.index, [f"active/{scope}/{TURN.file}"])
        return written


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


def _bring_up_to_date(session: Session, index: Index) -> bool:
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
    session.change_metadata(lambda now: _changes(session, index, now))
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
