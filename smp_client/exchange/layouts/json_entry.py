"""The parts that entries of JSON lines have in common, whichever layout they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import DECISION, FINDING, LEARNING, PREFERENCE, TURN, Kind
from ...text.contents import parse_object
from ..entry import Entry
from .shape import share
from .source import Source

LINES = (".jsonl", ".ndjson")  # the endings of files of JSON lines
_FEW_LINES = 20
_KINDS = {
    "conversation": TURN,
    "message": TURN,
    "turn": TURN,
    "decision": DECISION,
    "finding": FINDING,
    "preference": PREFERENCE,
    "learning": LEARNING,
}
_MARKS = ("true", "yes", "1")
_COUNT_CAP = 10**15


def first_objects(source: Source, place: str) -> list[dict[str, Any]]:
    """Return the first objects of a file of JSON lines, by which a layout is recognised."""
    found: list[dict[str, Any]] = []
    for line in source.beginning(place).split(b"\n")[:_FEW_LINES]:
        value, _ = parse_object(line)
        if value is not None:
            found.append(value)
    return found


def without(entry: Mapping[str, object], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


def is_mark(entry: Mapping[str, object]) -> bool:
    """Return whether an entry is marked as deleted; programs write that in more than one way."""
    return str(entry.get("deleted")).strip().lower() in _MARKS


def tombstone(session: str, entry: Mapping[str, object], at: str) -> Entry:
    """Return the tombstone that an entry means; `at` is the field with the time."""
    return {
        "entry": "tombstone",
        "session": session,
        "id": str(entry.get("id")),
        "at": entry.get(at),
        "reason": entry.get("reason"),
    }


def kind_and_fields(entry: Mapping[str, object], said: object) -> tuple[Kind, dict[str, Any]]:
    """Return the kind that a `type` means, and the fields. Any other type is a learning."""
    word = str(entry.get("type", "")).lower()
    kind = _KINDS.get(word, LEARNING)
    given = dict(said) if isinstance(said, dict) else {kind.text: said}
    if "type" in entry and word not in _KINDS:
        given["original_type"] = entry["type"]
    return kind, given


def decay_of(kind: Kind, entry: Mapping[str, object]) -> dict[str, Any]:
    """Return our decay of an entry; the factor of the source stays beside it if it is not 1."""
    base = share(entry.get("importance"), kind.base_priority)
    decay = {
        "priority": round(base * share(entry.get("decay_factor"), 1.0), 4),
        "base_priority": base,
        "last_accessed": entry.get("last_accessed"),
        "access_count": count(entry, "access_count"),
    }
    names = ("decay_factor", "last_decay_update")
    kept = {name: entry[name] for name in names if entry.get(name) not in (None, 1.0)}
    return {**decay, "imported": kept} if kept else decay


def count(entry: Mapping[str, object], name: str) -> int:
    value = entry.get(name)
    return value if type(value) is int and 0 <= value < _COUNT_CAP else 0
