"""One file a session, `{session}.jsonl`, whose lines have `id`, `type`, `ts`, `data` and more.

A line `{"id": …, "deleted": true}` is a tombstone for the lines of this id before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...model.record import LEARNING, TURN, Kind
from ..entry import Entry, Read
from .shape import TYPES, Shaper, count, session_entry, session_id, share
from .source import Folder
from .target import Dump, Plain, dumped

LAYOUT = "jsonl"
_FIELDS = ("id", "type", "ts", "data", "priority", "access", "last_accessed", "deleted")


def is_line(value: Mapping[str, Any]) -> bool:
    """Return whether an object looks like a line of this layout."""
    is_mark = value.get("deleted") is True and "id" in value
    return {"ts", "data", "type"} <= value.keys() or is_mark


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its file."""
    stem = name.rpartition(".")[0] or name
    session = session_id(stem)
    yield Read(folder.where(name), session_entry(session, LAYOUT, stem, {}, {}))
    lines = list(folder.lines(name))
    marks = {str(line.value.get("id")): line for line in lines if line.value and is_set(line.value)}
    shaper = Shaper(LAYOUT, session, folder.written_at)
    for line in lines:
        value = line.value
        if value is None:
            yield Read(line.where, None, line.problem)
            continue
        mark = marks.get(str(value.get("id")))
        if mark is not None and line.number <= mark.number:
            if mark is line:
                yield Read(line.where, tombstone(session, value, "ts"))
        elif not value.keys() & {"type", "data"}:
            yield Read(line.where, None, "it has neither a type nor data")
        else:
            kind, given = kind_and_fields(value, value.get("data", _flat(value)))
            further = {key: part for key, part in value.items() if key not in _FIELDS}
            worn = {"priority": share(value.get("priority"), kind.base_priority),
                    "base_priority": kind.base_priority, "access_count": count(value.get("access")),
                    "last_accessed": value.get("last_accessed")}  # fmt: skip
            yield from shaper.memory(line, kind, {**further, **given}, worn)
    yield from folder.reported()


def tombstone(session: str, value: Mapping[str, Any], at: str) -> Entry:
    """Return the entry of a mark that something was deleted; `at` names the field of its time."""
    return {"entry": "tombstone", "session": session, "id": str(value.get("id")),
            "at": value.get(at), "reason": value.get("reason")}  # fmt: skip


def kind_and_fields(entry: Mapping[str, Any], said: Any) -> tuple[Kind, dict[str, Any]]:
    """Return the kind that a `type` means, and the fields. Any other type is a learning."""
    word = str(entry.get("type", "")).lower()
    kind = TYPES.get(word, LEARNING)
    given = dict(said) if isinstance(said, dict) else {kind.text: said}
    is_known = word in TYPES or "type" not in entry
    return kind, given if is_known else {**given, "original_type": entry["type"]}


def is_set(value: Mapping[str, Any]) -> bool:
    """Return whether an entry is marked as deleted; programs write that in more than one way."""
    mark = value.get("deleted")
    return str(mark).strip().lower() in ("true", "yes", "1")


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line that has no `data`: its own."""
    return {name: part for name, part in value.items() if name not in (*_FIELDS, "timestamp")}


def files(dump: Dump) -> dict[str, bytes]:
    """Return the file of one session, a line a memory by time."""
    lines = [_line(kind, record) for kind, record in dump.records]
    lines.sort(key=lambda line: str(line["ts"] or ""))
    marks = [{"id": mark["id"], "deleted": True, "ts": mark.get("at"), "reason": mark.get("reason")}
             for mark in dump.tombstones]  # fmt: skip
    return {f"{dump.session}.jsonl": b"".join(map(dumped, [*lines, *marks]))}


def _line(kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
    plain = Plain(kind, record)
    given = plain.given
    if kind is TURN:
        data = {"role": given.pop("speaker", None), "content": given.pop("content", "")}
    elif kind.type == "decision":
        data = {"decision": given.pop("decision", None), "by": given.pop("made_by", None)}
    elif kind.type == "preference":
        data = plain.pair
    else:
        data = {"issue": given.pop(kind.text, None), "severity": given.pop("severity", "info"),
                "status": plain.status}  # fmt: skip
    return {"id": record["id"], "type": plain.type, "ts": record.get("timestamp"),
            "data": {**given, **data}, "priority": plain.priority,
            "access": plain.accesses}  # fmt: skip
