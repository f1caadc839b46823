"""A folder a session with `manifest.json` and one JSON lines file a kind.

Beside the sessions is `shared/`, with preferences and knowledge that hold everywhere. Indexes,
configuration and packed sessions are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...model.layout import GLOBAL
from ...model.record import DECISION, FINDING, GLOBAL_PREFERENCE, PATTERN, PREFERENCE, TURN, Kind
from ...text.json_text import parse
from ..entry import Entry, Read
from . import shape
from .jsonl import is_set, tombstone
from .source import Folder, Line
from .target import Dump, Plain, dumped

LAYOUT = "jsonl-per-kind"
MANIFEST = "manifest.json"
KINDS: dict[str, Kind] = {"conversation.jsonl": TURN, "decisions.jsonl": DECISION,
                          "findings.jsonl": FINDING, "preferences.jsonl": PREFERENCE}  # fmt: skip
FILES = (MANIFEST, *KINDS)
SHARED: dict[str, Kind] = {"user-preferences.json": GLOBAL_PREFERENCE,
                           "agent-knowledge.json": PATTERN}  # fmt: skip
_BESIDE = ("id", "timestamp", "decay_factor", "access_count", "last_accessed", "last_decay_update")
_TAKEN = ("session_id", "created_at", "updated_at", "user_id", "agent_ids", "metadata")
_CONFIDENCE = {"explicit": 1.0, "inferred": 0.7, "uncertain": 0.3}


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its folder."""
    manifest = folder.mapping(MANIFEST)
    session = shape.session_id(name)
    yield Read(folder.where(MANIFEST), _session(session, name, manifest))
    shaper = shape.Shaper(LAYOUT, session, folder.written_at)
    for file, kind in KINDS.items():
        for line in folder.lines(file):
            if line.value is None:
                yield Read(line.where, None, line.problem)
            elif is_set(line.value):
                yield Read(line.where, tombstone(session, line.value, "deleted_at"))
            else:
                given, worn = _given(kind, line.value), decay_of(kind, line.value)
                yield from shaper.memory(line, kind, given, worn)
    yield from folder.reported()


def decay_of(kind: Kind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return our decay of an entry; the factor of the source stays beside it where it is not 1."""
    base = shape.share(entry.get("importance"), kind.base_priority)
    priority = round(base * shape.share(entry.get("decay_factor"), 1.0), 4)
    kept = {name: entry[name] for name in ("decay_factor", "last_decay_update")
            if entry.get(name) not in (None, 1.0)}  # fmt: skip
    return {"priority": priority, "base_priority": base,
            "last_accessed": entry.get("last_accessed"),
            "access_count": shape.count(entry.get("access_count")),
            **({"imported": kept} if kept else {})}  # fmt: skip


def _given(kind: Kind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry. In a message the agent speaks where it is named."""
    given = {key: part for key, part in entry.items() if key not in _BESIDE}
    if kind is not TURN:
        return given
    agent, about, around = given.get("agent_id"), given.get("metadata"), given.get("context")
    if "speaker" not in given and isinstance(agent, str) and agent and given.get("role") != "user":
        given["speaker"] = agent
    if isinstance(about, dict) and isinstance(about.get("references"), list):
        given.setdefault("references", about["references"])
    if isinstance(around, dict) and shape.good_tags([around.get("topic")]):
        given.setdefault("tags", [around["topic"]])
    return given


def _session(session: str, name: str, manifest: Mapping[str, Any]) -> Entry:
    about = manifest["metadata"] if isinstance(manifest.get("metadata"), dict) else {}
    context = {**about, "tags": shape.good_tags(about.get("tags"))}
    if len(context["tags"]) != len(about.get("tags") or []):
        context["imported_tags"] = about.get("tags")
    people = shape.participants(manifest.get("user_id"), manifest.get("agent_ids"))
    metadata = {"created_at": shape.time_of(manifest.get("created_at")),
                "last_accessed": shape.time_of(manifest.get("updated_at")),
                "participants": people, "context": context}  # fmt: skip
    kept = {key: value for key, value in manifest.items() if key not in _TAKEN}
    return shape.session_entry(session, LAYOUT, name, metadata, {"manifest": kept} if kept else {})


def read_shared(folder: Folder) -> Iterator[Read]:
    """Yield the memories of `shared/`, which become ours of `global/`.

    The layout leaves the form open: a list of objects, lists by category, or pairs.
    """
    for file, kind in SHARED.items():
        content = folder.read(file)
        value, problem = parse(content) if content.strip() else ([], "")
        if problem:
            yield Read(folder.where(file), None, problem)
        shaper = shape.Shaper(LAYOUT, GLOBAL, folder.written_at)
        for number, item in enumerate(_items(value, ""), 1):
            raw = json.dumps(item, sort_keys=True).encode()
            line = Line(f"{folder.where(file)}, item {number}", number, raw, item)
            yield from shaper.memory(line, kind, _given(kind, item), decay_of(kind, item))
    yield from folder.reported()


def _items(value: Any, category: str) -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        yield dict(item) if isinstance(item, dict) else {"text": str(item)}
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, (list, dict)) and not category:
            yield from ({"category": key, **one} for one in _items(item, key))
        else:
            yield {"key": key, "value": item}


def files(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session; for `global`, those of `shared/`."""
    if dump.session == GLOBAL:
        shared: dict[str, bytes] = {}
        for file, kind in SHARED.items():
            listed = [_entry(kind, record) for one, record in dump.records if one is kind]
            shared[f"shared/{file}"] = dumped({f"{kind.type}s": listed})
        return shared
    rows: dict[str, list[dict[str, Any]]] = {file: [] for file in KINDS}
    places = {kind.name: file for file, kind in KINDS.items()} | {"learning": "findings.jsonl"}
    for kind, record in dump.records:
        rows[places[kind.name]].append(_entry(kind, record))
    top, said = f"sessions/{dump.session}", dump.metadata
    found = {f"{top}/{file}": b"".join(map(dumped, listed)) for file, listed in rows.items()}
    people, context = said.get("participants") or {}, said.get("context") or {}
    manifest = {
        "session_id": dump.session, "created_at": said.get("created_at"),
        "updated_at": said.get("last_accessed"), "user_id": people.get("user_id"),
        "agent_ids": [one["agent_id"] for one in people.get("agents") or []],
        "metadata": {key: value for key, value in context.items() if value is not None},
        "statistics": {"total_messages": len(rows["conversation.jsonl"]),
                       "total_decisions": len(rows["decisions.jsonl"]),
                       "total_findings": len(rows["findings.jsonl"]),
                       "size_bytes": sum(map(len, found.values())),
                       "last_accessed": said.get("last_accessed")},
        "version": "1.0",
    }  # fmt: skip
    return {**found, f"{top}/{MANIFEST}": dumped(manifest)}


def _entry(kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
    plain = Plain(kind, record)
    given = plain.given
    if kind is TURN:
        speaker, tags = str(given.pop("speaker", "")), given.pop("tags", [])
        role = "user" if speaker.lower().startswith(("user", "human")) else "assistant"
        text, references = given.pop("content", ""), given.pop("memory_refs", [])
        given = {"agent_id": speaker, "role": role, "content": text,
                 "context": {"topic": tags[0]} if tags else {},
                 "metadata": {**given, "tags": tags, "references": references}}  # fmt: skip
    elif kind is DECISION:
        references = given.pop("references", [])
        listed = [str(one) for one in references] if isinstance(references, list) else []
        given |= {"approved_by": given.pop("agreed_by", []), "references": {
            "conversations": [one for one in listed if one.startswith("turn-")],
            "findings": [one for one in listed if not one.startswith("turn-")]}}  # fmt: skip
    elif kind.type == "preference":
        given |= {**plain.pair, "confidence": _CONFIDENCE.get(str(given.get("confidence")), 0.5)}
    elif kind.type in ("finding", "learning"):
        given |= {"description": given.pop(kind.text, None), "status": plain.status}
    head = {"id": record["id"], "timestamp": record.get("timestamp")}
    return {**head, **given, "decay_factor": plain.factor}
