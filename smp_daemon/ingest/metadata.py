"""Keeping `metadata.yaml` true: size, participants, last use. From the index, so that nothing is read again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from smp_client import Session
from smp_client.index import Index
from smp_client.privacy.redact import Redaction
from smp_client.records import TURN
from smp_client.session_files import METADATA, new_metadata
from smp_client.timestamps import parse_time, render_time

_PARTICIPANTS = """
SELECT actor, SUM(type = ?), MAX(timestamp), MAX(CASE WHEN timestamp <= ? THEN timestamp END) FROM memories
WHERE scope = ? AND actor <> '' AND timestamp IS NOT NULL
GROUP BY actor ORDER BY MIN(timestamp), actor
"""


def bring_up_to_date(session: Session, index: Index) -> bool:
    """Writes what has changed, and only then; gives back whether it did."""
    if not session.scope.tree.exists(session.scope.path(METADATA)):
        _make(session, index)
    metadata = session.metadata()
    if not metadata or not _changes(session, index, metadata):
        return False
    # What a purge takes out of them meanwhile stays out.
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
    agents, last = _agents(session.id, index, people, participants.get("agents"), now, session.scope.redaction)
    if agents != participants.get("agents"):
        changes["participants"] = {"agents": agents}
    if not metadata.get("last_accessed"):
        changes["last_accessed"] = now  # nobody knows how long it has lain somewhere else
    elif last > str(metadata.get("last_accessed")):
        changes["last_accessed"] = last
    return changes


def _make(session: Session, index: Index) -> None:
    """For a directory that was dropped in without: it began with the first of its memories, and is in use from now on."""
    first = index.connection.execute("SELECT MIN(timestamp) FROM memories WHERE scope = ?", (session.id,)).fetchone()[0]
    now = session.scope.options.clock()
    created = parse_time(first) if first else now
    content = new_metadata(
        session.id, created, user=None, agents=[], quota_bytes=session.quota_bytes(), context={"tags": []}, last_accessed=now
    )  # fmt: skip
    with suppress(FileExistsError):
        session.scope.tree.create(session.scope.path(METADATA), content)


def _agents(
    session_id: str, index: Index, people: set[str], known: Any, now: str, redaction: Redaction
) -> tuple[list[dict[str, Any]], str]:
    """The agents that took part, those that were there already first and with whatever else is said of them; and when, up to now,
    anybody did last."""
    entries = {str(item.get("agent_id")): dict(item) for item in known or [] if isinstance(item, dict)}
    for counted in (item for item in entries.values() if "message_count" in item):
        counted["message_count"] = 0  # of whom nothing is left
    last = ""
    for actor, messages, active, by_now in index.connection.execute(_PARTICIPANTS, (TURN.name, now, session_id)):
        last = max(last, by_now or "")
        # As it would be written: else it would differ, and be written, again and again.
        actor, _ = redaction.redacted_text(actor)
        if actor not in people:
            entries.setdefault(actor, {"agent_id": actor}).update({"message_count": int(messages), "last_active": active})
    return list(entries.values()), last


def _section(metadata: Any, name: str) -> dict[str, Any]:
    section = metadata.get(name)
    return section if isinstance(section, dict) else {}
