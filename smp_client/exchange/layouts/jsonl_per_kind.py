"""The layout `jsonl-per-kind`: a folder a session with `manifest.json` and a file a kind.

Beside the sessions is `shared/`, with memories that hold everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...model.layout import GLOBAL
from ...model.record import (
    DECISION,
    FINDING,
    GLOBAL_PREFERENCE,
    PATTERN,
    PREFERENCE,
    TURN,
    Kind,
)
from ...text.contents import parse_json
from ..entry import Read
from .json_entry import decay_of, first_objects, is_mark, tombstone, without
from .reader import Destination, Folder, Part, Reader
from .shape import Shaper, good_tags, participants, session_entry, session_id, time_of
from .source import Line, Source, inside

LAYOUT = "jsonl-per-kind"
MANIFEST = "manifest.json"
KINDS: dict[str, Kind] = {
    "conversation.jsonl": TURN,
    "decisions.jsonl": DECISION,
    "findings.jsonl": FINDING,
    "preferences.jsonl": PREFERENCE,
}
SHARED: dict[str, Kind] = {
    "user-preferences.json": GLOBAL_PREFERENCE,
    "agent-knowledge.json": PATTERN,
}
_SHARED_FOLDER = "shared"
FILES = (MANIFEST, *KINDS)
# Fields of an entry that are taken by themselves; all others are kept by their names.
_WORN = ("id", "timestamp", "decay_factor", "access_count", "last_accessed", "last_decay_update")
_OF_MANIFEST = ("session_id", "created_at", "updated_at", "user_id", "agent_ids", "metadata")


def find(folder: Folder) -> Iterator[Part]:
    """Yield the session that the folder is."""
    source = folder.source
    has_lines = any(first_objects(source, place) for place in folder.places(tuple(KINDS)))
    manifests = folder.places((MANIFEST,))
    if has_lines or any(b'"session_id"' in source.beginning(place) for place in manifests):
        yield Part(folder.places(FILES), partial(read, source, folder.path, folder.name))


def find_shared(folder: Folder) -> Iterator[Part]:
    """Yield the memories that hold everywhere."""
    files = folder.places(tuple(SHARED))
    if files and folder.name == _SHARED_FOLDER:
        yield Part(files, partial(read_shared, folder.source, folder.path))


def read(source: Source, folder: str, name: str, _destination: Destination) -> Iterator[Read]:
    """Yield one session from its folder."""
    place = inside(folder, MANIFEST)
    session = session_id(name)
    manifest, problem = source.mapping(place)
    if problem:
        yield Read(place, None, problem)
    else:
        kept = without(manifest, _OF_MANIFEST)
        notes = {"manifest": kept} if kept else {}
        yield Read(place, session_entry(LAYOUT, name, _metadata(manifest), notes))
    for file, kind in KINDS.items():
        place = inside(folder, file)
        shaper = Shaper(LAYOUT, session, source.written_at(place))
        for line in source.lines(place):
            if line.value is None:
                yield Read(line.where, None, line.problem)
            elif is_mark(line.value):
                yield Read(line.where, tombstone(session, line.value, "deleted_at"))
            else:
                decay = decay_of(kind, line.value)
                yield from shaper.memory(line, kind, _fields(kind, line.value), decay)


def read_shared(source: Source, folder: str, _destination: Destination) -> Iterator[Read]:
    """Yield the memories of `shared/`, which become ours of `global/`.

    The layout leaves the form open: a list of objects, lists by category, or pairs.
    """
    for file, kind in SHARED.items():
        place = inside(folder, file)
        content, problem = source.read(place)
        value, problem = parse_json(content) if content.strip() else (None, problem)
        if problem:
            yield Read(place, None, problem)
        shaper = Shaper(LAYOUT, GLOBAL, source.written_at(place))
        for number, item in enumerate(_items(value), 1):
            raw = json.dumps(item, sort_keys=True).encode()
            line = Line(f"{place}, item {number}", raw, item)
            yield from shaper.memory(line, kind, _fields(kind, item), decay_of(kind, item))


def _metadata(manifest: Mapping[str, object]) -> dict[str, Any]:
    said = manifest.get("metadata")
    about = said if isinstance(said, dict) else {}
    tags = good_tags(about.get("tags"))
    context = {**about, "tags": tags}
    if tags != (about.get("tags") or []):
        context["imported_tags"] = about["tags"]
    return {
        "created_at": time_of(manifest.get("created_at")),
        "last_accessed": time_of(manifest.get("updated_at")),
        "context": context,
        "participants": participants(manifest.get("user_id"), manifest.get("agent_ids")),
    }


def _fields(kind: Kind, entry: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of an entry. The agent of a message is its speaker, if it is named."""
    fields = without(entry, _WORN)
    if kind is not TURN:
        return fields
    agent = fields.get("agent_id")
    is_user = fields.get("role") == "user"
    if "speaker" not in fields and not is_user and isinstance(agent, str) and agent:
        fields["speaker"] = agent
    about = fields.get("metadata")
    if isinstance(about, dict) and isinstance(about.get("references"), list):
        fields.setdefault("references", about["references"])
    around = fields.get("context")
    if isinstance(around, dict) and good_tags([around.get("topic")]):
        fields.setdefault("tags", [around["topic"]])
    return fields


def _items(value: object) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list, of the lists of a mapping, or the pairs of a mapping."""
    if not isinstance(value, dict):
        yield from _listed(value)
        return
    for key, item in value.items():
        if isinstance(item, list):
            yield from ({"category": key, **one} for one in _listed(item))
        elif isinstance(item, dict):
            for name, inner in item.items():
                yield {"category": key, "key": name, "value": inner}
        else:
            yield {"key": key, "value": item}


def _listed(value: object) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        yield dict(item) if isinstance(item, dict) else {"text": str(item)}


READER = Reader(LAYOUT, find, FILES)
SHARED_READER = Reader(LAYOUT, find_shared, tuple(SHARED))
