"""A small interface: one class, four methods, and the field names of the JSONL layout.

    conversation  role, content                decision    decision, by, rationale
    finding       issue, severity, status      preference  key, value

The names of SMP's own fields work as well, and any further field is kept. A memory is returned as
`{"id", "type", "ts", "data", "priority", "access"}`. Its `data` have each field under both names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from .ask.argument import require_text
from .memory import Memory
from .model.door import front_door
from .model.errors import Conflict, Invalid, SessionNotFound, SessionPutAway
from .model.record import DECISION, FINDING, PREFERENCE, TURN, Kind, Record

# By type: the kind, SMP's names for the small layout's, and fields that SMP requires.
_KINDS: dict[str, tuple[Kind, dict[str, str], dict[str, Any]]] = {
    "conversation": (TURN, {"role": "speaker"}, {"type": "message"}),
    "decision": (DECISION, {"by": "made_by"}, {"made_by": "unknown"}),
    "finding": (FINDING, {"issue": "finding", "by": "discovered_by"},
                {"discovered_by": "unknown", "severity": "medium"}),
    "preference": (PREFERENCE, {"key": "topic", "value": "preference", "by": "created_by"},
                   {"confidence": "explicit"}),
}  # fmt: skip
_TYPES = {kind.type: type for type, (kind, _, _) in _KINDS.items()}
_UNKNOWN = f"a memory is one of {', '.join(_KINDS)}"


@front_door
class SessionMemory:
    """The memory of one session. A session or a tree that does not exist is created."""

    def __init__(self, session_id: str, root: str | Path | None = None, **options: Any) -> None:
        self.session_id = session_id
        memory = Memory(root, **options)
        try:
            self.session = memory._session(session_id)
        except SessionPutAway:
            raise
        except SessionNotFound:
            with suppress(Conflict):  # another program created it just now
                memory.create_session(id=session_id)
            self.session = memory._session(session_id)

    def add(self, type: str, data: Mapping[str, Any]) -> str:
        """Add a memory and return its id."""
        if type not in _KINDS or not isinstance(data, Mapping):
            raise Invalid([f"{_UNKNOWN}, and its data are a mapping"])
        kind, names, usual = _KINDS[type]
        fields = {names.get(name, name): value for name, value in data.items()}
        timestamp = fields.pop("timestamp", None) or fields.pop("ts", None)
        if type == "finding":
            fields.setdefault("resolution", {"status": fields.pop("status", "open")})
        value = fields.get("preference")
        if value is not None and not isinstance(value, str):  # SMP's preference is a text
            fields |= {"preference": json.dumps(value, default=str), "value": value}
        return self.session.record(kind, {**usual, **fields}, timestamp).id

    def query(
        self, type: str | None = None, topic: str | None = None, min_priority: float = 0
    ) -> list[dict[str, Any]]:
        """Return the memories of a type that mention a topic, by falling priority."""
        if type is not None and type not in _KINDS:
            raise Invalid([_UNKNOWN])
        words = "" if topic is None else require_text("A topic", topic).lower()
        types = list(_TYPES) if type is None else [_KINDS[type][0].type]
        found = self.session.search(
            types=types, sort="priority", min_priority=min_priority, limit=None
        )
        return [one for one in map(_small, found) if words in str(one["data"]).lower()]

    def get_context(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the memories of the highest priority, at most `limit`, oldest first."""
        found = self.session.search(types=list(_TYPES), sort="priority", limit=limit)
        return sorted(map(_small, found), key=lambda one: str(one["ts"]))

    def delete(self, memory_id: str, reason: str = "deleted through SessionMemory") -> None:
        """Delete a memory. `session.restore` restores it until its deadline."""
        self.session.delete(memory_id, reason=reason)


def _small(record: Record) -> dict[str, Any]:
    """Return the memory as the small layout has it."""
    type, data = _TYPES[record.type], dict(record.data)
    stamp, decay, _ = (data.pop(name, None) for name in ("timestamp", "decay", "id"))
    for name, own in _KINDS[type][1].items():
        if own in data:
            data.setdefault(name, data[own])
    if type == "finding" and isinstance(data.get("resolution"), dict):
        data["status"] = data["resolution"].get("status")
    access = decay.get("access_count", 0) if isinstance(decay, dict) else 0
    return {"id": record.id, "type": type, "ts": stamp, "data": data,
            "priority": record.priority, "access": access}  # fmt: skip
