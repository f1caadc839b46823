"""One file per session, `{session}.jsonl`: each line has `id`, `type`, `ts`, `data`, `priority` and `access`.

A line `{"id": …, "deleted": true}` says that what stood before it under this id was deleted; a line can say that of itself, too.
What it says is still there, so it comes as deleted and can be restored; a mark for something that is not there any more is kept in
the session's metadata.

A line without `data` says what it says in its own fields, and its time may be its `timestamp`.

A record keeps under `imported`, beside what shaping.py notes: a `type` that is called otherwise here, `ts` in a form that is not
ours, `outside` for further fields of the line and `outer` for the names of those that stand among ours, `bare` where `data` is a
text, `deleted` for the mark, or `true` where it stands in the line itself; under `imported` of its `decay` the `priority`, where
that has decayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...records import Kind
from ..entries import ACTIVE
from ..formats import Read
from . import shaping
from .collecting import MARK, Mark, Taken, collect, key_of, note_of
from .kinds import kind_of_type, type_of_kind
from .lines import says_yes
from .sessions import Collected, entries_of
from .shaping import IMPORTED, ORIGINAL, WITHOUT, Ids, Names, Values
from .sources import Aside, Folder

LAYOUT = "jsonl"
FIELDS = ("id", "type", "ts", "data", "priority", "access")
_CHANGING = ("last_accessed", "last_decay_update")
_OF_THE_WHOLE = frozenset((*FIELDS, *_CHANGING))
USUAL: dict[str, Names] = {
    "conversation_turn": {"speaker": "role"},
    "decision": {"made_by": "by"},
    "finding": {"finding": "issue", "resolution": "status"},
    "preference": {},
    "learning": {},
}


def read(folder: Folder, name: str) -> Iterator[Read]:
    """One session, from its file."""
    stem, _, ending = name.rpartition(".")
    old = stem if ending.lower() in ("jsonl", "ndjson") else name
    session = shaping.session_id(old)
    aside = Aside(session, folder)
    found = _collect(aside, name)
    notes = {"layout": LAYOUT, **({"session_id": old} if old != session else {})}
    metadata = found.metadata(session, notes)
    yield from entries_of(session, ACTIVE, metadata, found)
    yield from aside.told()


def _collect(aside: Aside, name: str) -> Collected:
    """What a mark deletes stands before it."""
    taken: list[Taken] = []
    found = Collected(aside.folder.advance)
    standing: dict[str | None, list[int]] = {}
    for line in aside.lines(name):
        value = line.value
        assert value is not None
        key = key_of(value)
        if says_yes(value.get(MARK)) and key is not None and not value.keys() & {"type", "data"}:
            places = standing.pop(key, [])
            for place in places:
                taken[place] = taken[place]._replace(mark=value)
            if not places:
                found.tombstones.append(value)
        elif not value.keys() & {"type", "data"}:
            aside.refuse(name, line, "it has neither a type nor data")
        else:
            standing.setdefault(key, []).append(len(taken))
            taken.append(Taken(name, line, kind_of_type(value.get("type"), _said(value)), value))
    collect(aside, found, taken, lambda one, memory_id, ids: ours(one.kind, memory_id, one.value, ids, one.mark), "ts")
    return found


def _said(entry: Mapping[str, Any]) -> object:
    """What a line says is its `data`; of one that has none, its own fields."""
    return entry["data"] if "data" in entry else {name: part for name, part in entry.items() if name not in _OF_THE_WHOLE}


def ours(kind: Kind, memory_id: str, entry: Mapping[str, Any], ids: Ids, mark: Mark | None = None) -> Values:
    """A line as a record of ours."""
    data, notes = _said(entry), Values({})
    is_flat = "data" not in entry
    given = data if isinstance(data, dict) else {kind.text: data} if isinstance(data, str) and data.strip() else {}
    made = shaping.shaped(kind, given, USUAL[kind.name], ids)
    at = shaping.time_of(entry.get("timestamp" if is_flat and "ts" not in entry else "ts"))
    fields = made.fields
    notes.update(made.notes())
    if isinstance(data, str):
        notes["bare"] = True
    if type_of_kind(kind) != entry.get("type"):
        notes["type"] = entry.get("type")
    if "ts" in entry and at != entry["ts"]:
        notes["ts"] = entry.get("ts")
    for name, value in entry.items():
        if is_flat or name in _OF_THE_WHOLE:
            continue
        if name in fields or name in shaping.RESERVED or name in USUAL[kind.name] or name in given:
            notes.setdefault("outside", {})[name] = value
        else:
            fields[name] = value
            notes.setdefault("outer", []).append(name)
    if mark is not None:
        notes[MARK] = note_of(entry, mark)
    shaping.without(entry, FIELDS, notes)
    was = shaping.changing(entry, "access", factor="priority", usually=kind.base_priority)
    worn = shaping.decay(kind, at, priority=entry.get("priority"), accesses=entry.get("access"), was=was)
    record = shaping.record(memory_id, kind, at, fields, notes, entry.get("id"), worn)
    return shaping.settled(record, entry, theirs(kind, record, ids))


def theirs(kind: Kind, record: Mapping[str, Any], ids: Ids) -> Values:
    """A record as the line that it was, or would be."""
    notes = record.get(IMPORTED) if isinstance(record.get(IMPORTED), dict) else {}
    assert isinstance(notes, dict)
    if ORIGINAL in notes:
        return dict(notes[ORIGINAL])
    outer = {name: record[name] for name in notes.get("outer", ()) if name in record}
    inner = {name: value for name, value in record.items() if name not in outer} if outer else record
    data = shaping.unshaped(kind, inner, USUAL[kind.name], ids)
    worn, was = shaping.changed(record)
    entry: Values = {
        "id": shaping.old_id(record),
        "type": notes.get("type", type_of_kind(kind)),
        "ts": notes.get("ts", record.get("timestamp")),
        "data": record.get(kind.text) if notes.get("bare") else data,
        "priority": was.get("priority", worn.get("priority")),
        "access": was.get("access", worn.get("access_count", 0)),
    }
    flat = data if "data" in notes.get(WITHOUT, ()) else {}
    for name in notes.get(WITHOUT, ()):
        entry.pop(name, None)
    told = {name: was[name] for name in _CHANGING if name in was}
    return {**entry, **told, **flat, **outer, **notes.get("outside", {})}
