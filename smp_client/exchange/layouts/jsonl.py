"""The layout `jsonl`: {session}.jsonl with lines of `id`, `type`, `ts`, `data` and more.

A line `{"id": …, "deleted": true}` is a tombstone for the lines of this id before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...model.record import Kind
from ..entry import Read
from .json_entry import LINES, count, first_objects, is_mark, kind_and_fields, tombstone, without
from .reader import Destination, Folder, Part, Reader
from .shape import Shaper, session_entry, session_id, share
from .source import Source

LAYOUT = "jsonl"
# Fields of a line that are taken by themselves; all others are kept by their names.
_TAKEN = ("id", "type", "ts", "data", "priority", "access", "last_accessed", "deleted")
_NEEDED = {"ts", "data", "type"}


def find(folder: Folder) -> Iterator[Part]:
    """Yield each file whose first lines have a type, a time and data."""
    for name in folder.files:
        place = folder.place(name)
        if not name.endswith(LINES):
            continue
        if any(value.keys() >= _NEEDED for value in first_objects(folder.source, place)):
            yield Part((place,), partial(read, folder.source, place))


def read(source: Source, place: str, _destination: Destination) -> Iterator[Read]:
    """Yield one session from its file."""
    name = Path(place).stem
    session = session_id(name)
    yield Read(place, session_entry(LAYOUT, name, {}, {}))
    lines = list(source.lines(place))
    marks: dict[str, int] = {}  # the line of the last tombstone, by id
    for number, line in enumerate(lines):
        if line.value and is_mark(line.value):
            marks[str(line.value.get("id"))] = number
    shaper = Shaper(LAYOUT, session, source.written_at(place))
    for number, line in enumerate(lines):
        value = line.value
        if value is None:
            yield Read(line.where, None, line.problem)
            continue
        mark = marks.get(str(value.get("id")), -1)
        if number == mark:
            yield Read(line.where, tombstone(session, value, "ts"))
        elif number > mark and not value.keys() & {"type", "data"}:
            yield Read(line.where, None, "it has neither a type nor data")
        elif number > mark:
            kind, given = kind_and_fields(value, value.get("data", {}))
            fields = {**without(value, _TAKEN), **given}
            yield from shaper.memory(line, kind, fields, _decay(kind, value))


def _decay(kind: Kind, value: Mapping[str, object]) -> dict[str, Any]:
    return {
        "priority": share(value.get("priority"), kind.base_priority),
        "base_priority": kind.base_priority,
        "access_count": count(value, "access"),
        "last_accessed": value.get("last_accessed"),
    }


READER = Reader(LAYOUT, find)
