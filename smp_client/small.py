"""A small interface: one class, four methods, and the field names of the JSONL layout.

    conversation  role, content                decision    decision, by, rationale
    finding       issue, severity, status      preference  key, value

The names of SMP's own fields work as well, and any further field is kept. A memory is returned as
`{"id", "type", "ts", "data", "priority", "access"}`, its `data` under both names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .ask.engine import find
from .ask.fields import shown
from .ask.options import Answer, Wanted, one_of, require_text
from .ask.priorities import View
from .memory import Memory
from .model.errors import Conflict, Invalid, SessionNotFound, SessionPutAway
from .model.record import DECISION, FINDING, PREFERENCE, TURN, Kind, Record, check_memory_id
from .session import Session

KINDS = {"conversation": TURN, "decision": DECISION, "finding": FINDING, "preference": PREFERENCE}
_NAMES = {kind.type: name for name, kind in KINDS.items()}
# Small name, our name.
_FIELDS: dict[str, dict[str, str]] = {
    "conversation": {"role": "speaker", "content": "content"},
    "decision": {"decision": "decision", "by": "made_by"},
    "finding": {"issue": "finding", "by": "discovered_by"},
    "preference": {"key": "topic", "value": "preference", "by": "created_by"},
}
# Fields that a record must have and the small layout does not ask for.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "conversation": {"type": "message"},
    "decision": {"made_by": "unknown"},
    "finding": {"discovered_by": "unknown", "severity": "medium"},
    "preference": {"confidence": "explicit"},
}
_DELETED = "deleted through SessionMemory"


class SessionMemory:
    """The memory of one session. It makes the session, and the tree, where there is none."""

    def __init__(self, session_id: str, root: str | Path | None = None, **options: Any) -> None:
        self.session_id = session_id
        self.session = _opened(Memory(root, **options), session_id)

    def add(self, type: str, data: Mapping[str, Any]) -> str:
        """Add a memory and return its id."""
        kind = _kind(type)
        if not isinstance(data, Mapping):
            raise Invalid(
                [f"the data of a {type} must be a mapping, not a {data.__class__.__name__}"]
            )
        fields = dict(data)
        timestamp = fields.pop("timestamp", None) or fields.pop("ts", None)
        return self.session.record(kind, _ours(type, fields), timestamp).id

    def query(
        self, type: str | None = None, topic: str | None = None, min_priority: float = 0
    ) -> list[dict[str, Any]]:
        """Return the memories of a type that mention a topic, those that matter most first."""
        kinds = [kind.name for kind in KINDS.values()] if type is None else [_kind(type).name]
        said = "" if topic is None else require_text("A topic", topic).lower()

        def question(view: View, want: Wanted) -> Answer:
            found = find(view, want.also(one_of("m.type", kinds)))
            return Answer([record for record in found if said in _everything(record)])

        asked = self.session._asker().answer(
            question, {"sort": "priority", "min_priority": min_priority}
        )
        return [_small(record) for record in asked]

    def get_context(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the memories that matter most now, at most so many, oldest first."""
        found = self.session.search(types=list(KINDS), sort="priority", limit=limit)
        return [_small(record) for record in sorted(found, key=_time)]

    def delete(self, memory_id: str, reason: str = _DELETED) -> None:
        """Delete a memory. It can be restored as after `session.delete`."""
        self.session.delete(id=check_memory_id(memory_id), reason=reason)


def _opened(memory: Memory, session_id: str) -> Session:
    try:
        return memory._session(session_id)
    except SessionPutAway:
        raise
    except SessionNotFound:
        try:
            return memory.create_session(id=session_id)
        except Conflict:
            # Somebody else made it just now, or a session of its name was deleted.
            if memory.tree.exists(f"active/{session_id}"):
                return memory._session(session_id)
            raise


def _kind(type: str) -> Kind:
    if not isinstance(type, str) or type not in KINDS:
        raise Invalid([f"type {shown(type)} must be one of {', '.join(KINDS)}"])
    return KINDS[type]


def _ours(type: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields under the names of the record."""
    fields = dict(data)
    for small, ours in _FIELDS[type].items():
        if small in fields and small != ours:
            fields.setdefault(ours, fields.pop(small))
    if type == "finding":
        status = fields.pop("status", "open")
        fields.setdefault("resolution", {"status": status})
    value = fields.get("preference")
    if type == "preference" and value is not None and not isinstance(value, str):
        # A preference is said in words; its value is kept beside.
        with suppress(ValueError, TypeError, RecursionError):
            said = json.dumps(value, ensure_ascii=False, default=str)
            fields |= {"preference": said, "value": value}
    return {**_DEFAULTS[type], **fields}


def _small(record: Record) -> dict[str, Any]:
    """Return the memory as the small layout has it."""
    name = _NAMES[record.type]
    apart = ("id", "timestamp", "decay")
    data = {key: value for key, value in record.data.items() if key not in apart}
    for small, ours in _FIELDS[name].items():
        if ours in data:
            data.setdefault(small, data[ours])
    if name == "finding" and isinstance(resolution := data.get("resolution"), dict):
        data["status"] = resolution.get("status")
    decay = record.data.get("decay")
    return {
        "id": record.id,
        "type": name,
        "ts": record.data.get("timestamp"),
        "data": data,
        "priority": record.priority,
        "access": decay.get("access_count", 0) if isinstance(decay, dict) else 0,
    }


def _everything(record: Record) -> str:
    """Return all texts of the memory as one."""
    return str(_small(record)["data"]).lower()


def _time(record: Record) -> datetime:
    return record.timestamp or datetime.max.replace(tzinfo=UTC)
