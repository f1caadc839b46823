"""One file a session, `{session}.jsonl`: a line has `id`, `type`, `ts`, `data`, `priority`, `access`.

A line `{"id": …, "deleted": true}` is a tombstone for the lines of this id before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...records import LEARNING, TURN, Kind
from ..entry import Read
from .shape import TYPES, Shaper, count, session_entry, session_id, share
from .source import Folder
from .target import Dump, plain_record, type_of_kind

LAYOUT = "jsonl"
_FIELDS = ("id", "type", "ts", "data", "priority", "access", "last_accessed", "deleted")


def is_line(value: Mapping[str, Any]) -> bool:
    """Return whether an object looks like a line of this layout."""
    return {"ts", "data", "type"} <= value.keys() or (value.get("deleted") is True and "id" in value)


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its file."""
    stem = name.rpartition(".")[0] or name
    session = session_id(stem)
    yield Read(folder.where(name), session_entry(session, LAYOUT, stem, {}, {}))
    lines = list(folder.lines(name))
    marks = {str(line.value.get("id")): line for line in lines if line.value and is_set(line.value.get("deleted"))}
    shaper = Shaper(LAYOUT, session, folder.written_at)
    for line in lines:
        value = line.value
        if value is None:
            yield Read(line.where, None, line.problem)
            continue
        mark = marks.get(str(value.get("id")))
        if mark is not None and line.number <= mark.number:
            if mark is line:
                yield Read(line.where, {"entry": "tombstone", "session": session, "id": str(value.get("id")),
                                        "at": value.get("ts"), "reason": value.get("reason")})  # fmt: skip
        elif not value.keys() & {"type", "data"}:
            yield Read(line.where, None, "it has neither a type nor data")
        else:
            kind, given = kind_and_fields(value, value.get("data", _flat(value)))
            given |= {key: part for key, part in value.items() if key not in _FIELDS and key not in given}
            worn = {"priority": share(value.get("priority"), kind.base_priority), "base_priority": kind.base_priority,
                    "access_count": count(value.get("access")), "last_accessed": value.get("last_accessed")}  # fmt: skip
            yield from shaper.memory(line.where, kind, given, value, line.raw, worn)
    yield from folder.reported()


def kind_and_fields(entry: Mapping[str, Any], said: Any) -> tuple[Kind, dict[str, Any]]:
    """Return the kind that a `type` means, and the fields. A type that is none of ours is a learning."""
    word = str(entry.get("type", "")).lower()
    kind = TYPES.get(word, LEARNING)
    given = dict(said) if isinstance(said, dict) else {kind.text: said}
    return kind, given if word in TYPES or "type" not in entry else {**given, "original_type": entry["type"]}


def is_set(value: object) -> bool:
    """Return whether a mark is set; programs write that in more than one way."""
    return value.strip().lower() in ("true", "yes", "1") if isinstance(value, str) else value in (True, 1)


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line that has no `data`: its own."""
    return {name: part for name, part in value.items() if name not in _FIELDS and name != "timestamp"}


def files(dump: Dump) -> dict[str, bytes]:
    """Return the file of one session, a line a memory by time."""
    lines = [_line(kind, record) for kind, record in dump.records]
    lines.sort(key=lambda line: str(line["ts"] or ""))
    marks = [{"id": mark["id"], "deleted": True, "ts": mark.get("at"), "reason": mark.get("reason")}
             for mark in dump.tombstones]  # fmt: skip
    rows = [json.dumps(line, ensure_ascii=False) for line in [*lines, *marks]]
    return {f"{dump.session}.jsonl": "".join(row + "\n" for row in rows).encode()}


def _line(kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
    worn, given = plain_record(record)
    data: dict[str, Any] = {}
    if kind is TURN:
        data = {"role": given.pop("speaker", None), "content": given.pop("content", "")}
    elif kind.type == "decision":
        data = {"decision": given.pop("decision", None), "by": given.pop("made_by", None)}
    elif kind.type == "preference":
        data = {"key": given.get("topic") or record["id"], "value": given.get("preference")}
    else:
        resolution = given.get("resolution")
        status = resolution.get("status") if isinstance(resolution, dict) else "open"
        data = {"issue": given.pop(kind.text, None), "severity": given.pop("severity", "info"), "status": status}
    return {"id": record["id"], "type": type_of_kind(kind), "ts": record.get("timestamp"), "data": {**given, **data},
            "priority": worn.get("priority", kind.base_priority), "access": worn.get("access_count", 0)}  # fmt: skip
