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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .ask.argument import require_text
from .memory import Memory
from .model.errors import Conflict, Invalid, SessionNotFound, SessionPutAway
from .model.record import DECISION, FINDING, PREFERENCE, TURN, Record

_KINDS = {"conversation": TURN, "decision": DECISION, "finding": FINDING, "preference": PREFERENCE}
_TYPES = {kind.type: type for type, kind in _KINDS.items()}
# By type: the small layout's name of a field, and SMP's name.
_NAMES: dict[str, dict[str, str]] = {
    "conversation": {"role": "speaker"},
    "decision": {"by": "made_by"},
    "finding": {"issue": "finding", "by": "discovered_by"},
    "preference": {"key": "topic", "value": "preference", "by": "created_by"},
}
# Fields that a record must have and the small layout does not require.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "conversation": {"type": "message"},
    "decision": {"made_by": "unknown"},
    "finding": {"discovered_by": "unknown", "severity": "medium"},
    "preference": {"confidence": "explicit"},
}


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
            raise Invalid([f"a memory is one of {', '.join(_KINDS)}, and its data are a mapping"])
        fields = {_NAMES[type].get(name, name): value for name, value in data.items()}
        timestamp = fields.pop("timestamp", None) or fields.pop("ts", None)
        if type == "finding":
            fields.setdefault("resolution", {"status": fields.pop("status", "open")})
        value = fields.get("preference")
        if type == "preference" and value is not None and not isinstance(value, str):
            # SMP's preference is a text. The value is kept beside it.
            fields |= {"preference": json.dumps(value, default=str), "value": value}
        return self.session.record(_KINDS[type], {**_DEFAULTS[type], **fields}, timestamp).id

    def query(
        self, type: str | None = None, topic: str | None = None, min_priority: float = 0
    ) -> list[dict[str, Any]]:
        """Return the memories of a type that mention a topic, by falling priority."""
        if type is not None and type not in _KINDS:
            raise Invalid([f"a memory is one of {', '.join(_KINDS)}"])
        words = "" if topic is None else require_text("A topic", topic).lower()
        types = list(_TYPES) if type is None else [_KINDS[type].type]
        records = self.session.search(
            types=types, sort="priority", min_priority=min_priority, limit=None
        )
        memories = [_small(record) for record in records]
        return [memory for memory in memories if words in str(memory["data"]).lower()]

    def get_context(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the memories of the highest priority, at most `limit`, oldest first."""
        records = self.session.search(types=list(_TYPES), sort="priority", limit=limit)
        last = datetime.max.replace(tzinfo=UTC)
        return [_small(one) for one in sorted(records, key=lambda one: one.timestamp or last)]

    def delete(self, memory_id: str, reason: str = "deleted through SessionMemory") -> None:
        """Delete a memory. `session.restore` restores it until its deadline."""
        self.session.delete(memory_id, reason=reason)


def _small(record: Record) -> dict[str, Any]:
    """Return the memory as the small layout has it."""
    type, data = _TYPES[record.type], dict(record.data)
    stamp, decay, _ = (data.pop(name, None) for name in ("timestamp", "decay", "id"))
    for small, ours in _NAMES[type].items():
        if ours in data:
            data.setdefault(small, data[ours])
    if type == "finding" and isinstance(data.get("resolution"), dict):
        data["status"] = data["resolution"].get("status")
    access = decay.get("access_count", 0) if isinstance(decay, dict) else 0
    shown = {"id": record.id, "type": type, "ts": stamp, "data": data}
    return {**shown, "priority": record.priority, "access": access}
