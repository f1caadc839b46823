"""The layout `jsonl-checked`: a folder a session with `memory.jsonl`, whose entries have checksums.

Beside it stand `metadata.json` and `tombstones.jsonl`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from functools import partial

from ...model.record import PREFERENCE, TURN
from ..entry import IMPORTED_ID, Read
from .json_entry import decay_of, first_objects, is_mark, kind_and_fields, tombstone, without
from .reader import Destination, Folder, Part, Reader
from .shape import Shaper, participants, session_entry, session_id, share, time_of
from .source import Line, Source, inside

LAYOUT = "jsonl-checked"
METADATA = "metadata.json"
MEMORY = "memory.jsonl"
TOMBSTONES = "tombstones.jsonl"
FILES = (MEMORY, METADATA, TOMBSTONES)
# Fields of an entry that are taken by themselves; all others are kept by their names.
_OF_ENTRY = (
    "id",
    "timestamp",
    "decay_factor",
    "access_count",
    "last_accessed",
    "last_decay_update",
    "session_id",
    "type",
    "content",
    "importance",
    "checksum",
    "schema_version",
)
_OF_METADATA = (
    "session_id",
    "user_id",
    "created_at",
    "last_accessed",
    "decay_config",
    "preferences",
)
_PREFERENCES = "preferences/"  # begins the ids of those in the metadata of a session
# The layout does not say over which form of JSON a checksum goes: sorted, separators, ASCII.
_JSON_FORMS = [*itertools.product((True, False), ((",", ":"), (", ", ": ")), (False, True))]


def find(folder: Folder) -> Iterator[Part]:
    """Yield the session that the folder is."""
    for place in folder.places((MEMORY,)):
        if any("content" in value for value in first_objects(folder.source, place)):
            reads = partial(read, folder.source, folder.path, folder.name)
            yield Part(folder.places(FILES), reads)


def read(source: Source, folder: str, name: str, _destination: Destination) -> Iterator[Read]:
    """Yield one session from its folder: the turns first, because others refer to them."""
    yield _session(source, folder, name)
    session = session_id(name)
    gone: set[str] = set()
    for line in source.lines(inside(folder, TOMBSTONES)):
        if line.value is None or not isinstance(line.value.get("id"), str):
            yield Read(line.where, None, line.problem or "it has no id")
        else:
            gone.add(line.value["id"])
            yield Read(line.where, tombstone(session, line.value, "timestamp"))
    place = inside(folder, MEMORY)
    shaper = Shaper(LAYOUT, session, source.written_at(place))
    later: list[Read] = [*_preferences(source, folder, shaper)]
    for line in source.lines(place):
        value = line.value or {}
        if problem := line.problem or _problem(value):
            yield Read(line.where, None, problem)
        elif str(value.get("id")) not in gone and not is_mark(value):
            kind, given = kind_and_fields(value, value.get("content", {}))
            further = without(value, _OF_ENTRY)
            given |= {key: part for key, part in further.items() if part not in ([], {})}
            if share(value.get("importance"), -1) >= 0:
                given["importance"] = value["importance"]
            made = shaper.memory(line, kind, given, decay_of(kind, value))
            if kind is TURN:
                yield from made
            else:
                later += made
    yield from later


def _preferences(source: Source, folder: str, shaper: Shaper) -> Iterator[Read]:
    """Yield the preferences in the metadata of the session, but none that is empty."""
    place = inside(folder, METADATA)
    said = source.mapping(place)[0].get("preferences")
    for key, value in said.items() if isinstance(said, dict) else ():
        if value in (None, "", {}, []):
            continue
        pair = {"id": f"{_PREFERENCES}{key}", "key": key, "value": value}
        line = Line(f"{place}, preferences", json.dumps(pair).encode(), pair)
        fields = {"key": key, "value": value, "confidence": "explicit"}
        yield from shaper.memory(line, PREFERENCE, fields, decay_of(PREFERENCE, {}))


def is_of_session(record: Mapping[str, object]) -> bool:
    """Return whether a record was read from the metadata of a session."""
    return str(record.get(IMPORTED_ID)).startswith(_PREFERENCES)


def _session(source: Source, folder: str, name: str) -> Read:
    place = inside(folder, METADATA)
    said, problem = source.mapping(place)
    if problem:
        return Read(place, None, problem)
    metadata = {
        "created_at": time_of(said.get("created_at")),
        "last_accessed": time_of(said.get("last_accessed")),
        "participants": participants(said.get("user_id"), []),
        "decay_config": said.get("decay_config"),
    }
    kept = without(said, _OF_METADATA)
    notes = {"metadata": kept} if kept else {}
    return Read(place, session_entry(LAYOUT, name, metadata, notes))


def _problem(value: Mapping[str, object]) -> str:
    """Return why a line is not an entry; empty for one that is."""
    if not value.keys() & {"type", "content"}:
        return "it has neither a type nor content"
    if "checksum" in value and str(value["checksum"]) not in checksums(value):
        return "its checksum does not fit what it says"
    return ""


def checksums(entry: Mapping[str, object]) -> Iterator[str]:
    """Yield the checksums of an entry without it, ours first: sorted keys, no blanks, UTF-8."""
    bare = without(entry, ("checksum",))
    for is_sorted, separators, is_ascii in _JSON_FORMS:
        text = json.dumps(bare, sort_keys=is_sorted, separators=separators, ensure_ascii=is_ascii)
        yield f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


READER = Reader(LAYOUT, find, FILES)
