"""`metadata.yaml` kept true: size, participants, last use. The index knows them all."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from smp_client import Session
from smp_client.disk.session_files import METADATA, new_metadata
from smp_client.index.database import Index
from smp_client.model.record import TURN
from smp_client.model.times import parse_time, render_time

_PARTICIPANTS = """
SELECT actor, SUM(type = ?), MAX(timestamp), MAX(CASE WHEN timestamp <= ? THEN timestamp END)
FROM memories WHERE scope = ? AND actor <> '' AND timestamp IS NOT NULL
GROUP BY actor ORDER BY MIN(timestamp), actor
"""


def bring_up_to_date(session: Session, index: Index) -> bool:
    """Write the fields that have changed. Return whether there were any."""
    if not session.scope.tree.exists(session.scope.path(METADATA)):
        _make(session, index)
    metadata = session.metadata()
    if not metadata or not _changes(session, index, metadata):
        return False
    # Computed again under the lock: fields that a purge removes meanwhile stay away.
    session.change_metadata(lambda now: _changes(session, index, now))
    return True


def _changes(session: Session, index: Index, metadata: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    storage = _section(metadata, "storage")
    total = session.scope.usage.total()
    quota = session.quota_bytes()
    measured = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1)}
    if {**storage, **measured} != storage:
        changes["storage"] = measured
    participants = _section(metadata, "participants")
    now = render_time(session.scope.options.clock())
    people = {"user", str(participants.get("user_id"))}
    agents, last = _agents(session, index, people, participants.get("agents"), now)
    if agents != participants.get("agents"):
        changes["participants"] = {"agents": agents}
    if not metadata.get("last_accessed"):
        changes["last_accessed"] = now  # nobody knows how long it was elsewhere
    elif last > str(metadata.get("last_accessed")):
        changes["last_accessed"] = last
    return changes


def _make(session: Session, index: Index) -> None:
    """Make the metadata of a dropped directory, which was created with its first memory."""
    sql = "SELECT MIN(timestamp) FROM memories WHERE scope = ?"
    (first,) = index.connection.execute(sql, (session.id,)).fetchone()
    now = session.scope.options.clock()
    created = parse_time(first) if first else now
    content = new_metadata(
        session.id, created, user=None, agents=[], quota_bytes=session.quota_bytes(),
        context={"tags": []}, last_accessed=now,
    )  # fmt: skip
    with suppress(FileExistsError):
        session.scope.tree.create(session.scope.path(METADATA), content)


def _agents(
    session: Session, index: Index, people: set[str], known: Any, now: str
) -> tuple[list[dict[str, Any]], str]:
    """Return the agents that took part, the known ones first, and the last time of anybody."""
    known = [dict(item) for item in known or [] if isinstance(item, dict)]
    entries = {str(item.get("agent_id")): item for item in known}
    for counted in (item for item in entries.values() if "message_count" in item):
        counted["message_count"] = 0  # where no memory of the agent is left
    last = ""
    redaction = session.scope.redaction
    rows = index.connection.execute(_PARTICIPANTS, (TURN.name, now, session.id))
    for actor, messages, active, by_now in rows:
        last = max(last, by_now or "")
        # Redacted as in the file: else it would differ, and be written, again and again.
        actor, _ = redaction.redacted_text(actor)
        if actor not in people:
            entry = entries.setdefault(actor, {"agent_id": actor})
            entry.update({"message_count": int(messages), "last_active": active})
    return list(entries.values()), last


def _section(metadata: Any, name: str) -> dict[str, Any]:
    section = metadata.get(name)
    return section if isinstance(section, dict) else {}
