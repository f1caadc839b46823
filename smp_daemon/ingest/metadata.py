"""Keeping `metadata.yaml` true: size, participants, last use. From the index, so that nothing is read again."""

from __future__ import annotations

from typing import Any

from smp_client import Session
from smp_client.index import Index
from smp_client.records import TURN

_PARTICIPANTS = """
SELECT actor, SUM(type = ?), MAX(timestamp) FROM memories WHERE scope = ? AND actor <> '' AND timestamp IS NOT NULL
GROUP BY actor ORDER BY MIN(timestamp), actor
"""


def bring_up_to_date(session: Session, index: Index) -> bool:
    """Writes what has changed, and only then; gives back whether it did."""
    metadata = session.metadata()
    if not metadata:
        return False
    changes: dict[str, Any] = {}
    storage = _section(metadata, "storage")
    total = session.scope.usage.total()
    quota = session.quota_bytes()
    measured = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1)}
    if {**storage, **measured} != storage:
        changes["storage"] = measured
    participants = _section(metadata, "participants")
    agents, last = _agents(session.id, index, {"user", str(participants.get("user_id"))}, participants.get("agents"))
    if agents != participants.get("agents"):
        changes["participants"] = {"agents": agents}
    if last and last > str(metadata.get("last_accessed") or ""):
        changes["last_accessed"] = last
    if changes:
        session.update_metadata(**changes)
    return bool(changes)


def _agents(session_id: str, index: Index, people: set[str], known: Any) -> tuple[list[dict[str, Any]], str]:
    """The agents that took part, those that were there already first and with whatever else is said of them."""
    entries = {str(item.get("agent_id")): dict(item) for item in known or [] if isinstance(item, dict)}
    last = ""
    for actor, messages, active in index.connection.execute(_PARTICIPANTS, (TURN.name, session_id)):
        last = max(last, active)
        if actor not in people:
            entries.setdefault(actor, {"agent_id": actor}).update({"message_count": int(messages), "last_active": active})
    return list(entries.values()), last


def _section(metadata: Any, name: str) -> dict[str, Any]:
    section = metadata.get(name)
    return section if isinstance(section, dict) else {}
