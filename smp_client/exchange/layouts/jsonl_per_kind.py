"""A folder a session with `manifest.json` and one JSON lines file a kind.

Beside the sessions are `shared/` with preferences and knowledge that hold everywhere, and `archive/`
with packed sessions. An index is not read: it is made from the other files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...json_text import parse
from ...layout import GLOBAL
from ...records import DECISION, FINDING, GLOBAL_PREFERENCE, LEARNING, PATTERN, PREFERENCE, TURN, Kind
from ..entry import Entry, Read
from .jsonl import is_set
from .shape import Shaper, count, good_tags, participants, session_entry, session_id, share, time_of
from .source import Folder
from .target import Dump, dumped, plain_record

LAYOUT = "jsonl-per-kind"
MANIFEST = "manifest.json"
KINDS: dict[str, Kind] = {"conversation.jsonl": TURN, "decisions.jsonl": DECISION, "findings.jsonl": FINDING,
                          "preferences.jsonl": PREFERENCE}  # fmt: skip
SHARED: dict[str, Kind] = {"user-preferences.json": GLOBAL_PREFERENCE, "agent-knowledge.json": PATTERN}
_OF_DECAY = ("decay_factor", "access_count", "last_accessed", "last_decay_update")
_TAKEN = ("session_id", "created_at", "updated_at", "user_id", "agent_ids", "metadata")
_WORD = re.compile(r"\w{2,}")
_CONFIDENCE = {"explicit": 1.0, "inferred": 0.7, "uncertain": 0.3}


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its folder, or from an archive of it."""
    manifest = folder.mapping(MANIFEST)
    session = session_id(name)
    yield Read(folder.where(MANIFEST), _session(session, name, manifest))
    shaper = Shaper(LAYOUT, session, folder.written_at)
    for file, kind in KINDS.items():
        for line in folder.lines(file):
            value = line.value
            if value is None:
                yield Read(line.where, None, line.problem)
            elif is_set(value.get("deleted")):
                yield Read(line.where, {"entry": "tombstone", "session": session, "id": str(value.get("id")),
                                        "at": value.get("deleted_at"), "reason": value.get("reason")})  # fmt: skip
            else:
                given = {key: part for key, part in value.items() if key not in ("id", "timestamp", *_OF_DECAY)}
                if kind is TURN:
                    _take_message(given)
                yield from shaper.memory(line.where, kind, given, value, line.raw, decay_of(kind, value))
    yield from folder.reported()


def decay_of(kind: Kind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return our decay of an entry; the factor of the source stays beside it where it is not 1."""
    factor = share(entry.get("decay_factor"), 1.0)
    base = share(entry.get("importance"), kind.base_priority)
    worn = {"priority": round(base * factor, 4), "base_priority": base, "access_count": count(entry.get("access_count")),
            "last_accessed": entry.get("last_accessed")}  # fmt: skip
    kept = {name: entry[name] for name in ("decay_factor", "last_decay_update") if entry.get(name) not in (None, 1.0)}
    return {**worn, **({"imported": kept} if kept else {})}


def _take_message(given: dict[str, Any]) -> None:
    """Let the agent speak where it is named, and let a message have the references and the topic."""
    agent, about, around = given.get("agent_id"), given.get("metadata"), given.get("context")
    if "speaker" not in given and isinstance(agent, str) and agent and given.get("role") != "user":
        given["speaker"] = agent
    if isinstance(about, dict) and isinstance(about.get("references"), list) and "references" not in given:
        given["references"] = about["references"]
    if isinstance(around, dict) and "tags" not in given and good_tags([around.get("topic")]):
        given["tags"] = [around["topic"]]


def _session(session: str, name: str, manifest: Mapping[str, Any]) -> Entry:
    about = manifest["metadata"] if isinstance(manifest.get("metadata"), dict) else {}
    context = {**about, "tags": good_tags(about.get("tags"))}
    if len(context["tags"]) != len(about.get("tags") or []):
        context["imported_tags"] = about.get("tags")
    metadata = {"created_at": time_of(manifest.get("created_at")), "last_accessed": time_of(manifest.get("updated_at")),
                "participants": participants(manifest.get("user_id"), manifest.get("agent_ids")),
                "context": context}  # fmt: skip
    kept = {key: value for key, value in manifest.items() if key not in _TAKEN}
    return session_entry(session, LAYOUT, name, metadata, {"manifest": kept} if kept else {})


def read_shared(folder: Folder) -> Iterator[Read]:
    """Yield the memories of `shared/`, which become ours of `global/`.

    The layout does not say what the files hold: a list of objects, lists by category, or pairs.
    """
    for file, kind in SHARED.items():
        content = folder.read(file)
        if not content.strip():
            continue
        value, problem = parse(content)
        if problem:
            yield Read(folder.where(file), None, problem)
            continue
        shaper = Shaper(LAYOUT, GLOBAL, folder.written_at)
        for item in _items(value, ""):
            raw = json.dumps(item, sort_keys=True).encode()
            given = {key: part for key, part in item.items() if key not in ("id", "timestamp", *_OF_DECAY)}
            yield from shaper.memory(folder.where(file), kind, given, item, raw, decay_of(kind, item))
    yield from folder.reported()


def _items(value: Any, category: str) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for item in value:
            yield dict(item) if isinstance(item, dict) else {"text": item if isinstance(item, str) else json.dumps(item)}
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, (list, dict)) and not category:
                inner = list(_items(item, key))
                yield from ({"category": key, **one} for one in inner)
            else:
                yield {"key": key, "value": item}


def files(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session; for `global`, those of `shared/`."""
    if dump.session == GLOBAL:
        return {f"shared/{file}": dumped({file.split("-")[1].removesuffix(".json"): [
            _entry(kind, record) for one, record in dump.records if one is kind]})
            for file, kind in SHARED.items()}  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {file: [] for file in KINDS}
    by_kind = {kind.name: file for file, kind in KINDS.items()} | {LEARNING.name: "findings.jsonl"}
    for kind, record in dump.records:
        rows[by_kind[kind.name]].append(_entry(kind, record))
    top = f"sessions/{dump.session}"
    found = {f"{top}/{file}": b"".join(dumped(row) for row in listed) for file, listed in rows.items()}
    index = dumped(_index(dump, [row for listed in rows.values() for row in listed]))
    counts = {"total_messages": len(rows["conversation.jsonl"]), "total_decisions": len(rows["decisions.jsonl"]),
              "total_findings": len(rows["findings.jsonl"]), "size_bytes": sum(map(len, found.values())),
              "last_accessed": dump.metadata.get("last_accessed")}  # fmt: skip
    people = dump.metadata.get("participants") or {}
    agents = [one.get("agent_id") for one in people.get("agents") or [] if isinstance(one, dict)]
    context = {key: value for key, value in (dump.metadata.get("context") or {}).items() if value is not None}
    manifest = {"session_id": dump.session, "created_at": dump.metadata.get("created_at"),
                "updated_at": dump.metadata.get("last_accessed"), "user_id": people.get("user_id"),
                "agent_ids": agents, "metadata": context, "statistics": counts, "version": "1.0"}  # fmt: skip
    return {**found, f"{top}/index.json": index, f"{top}/{MANIFEST}": dumped(manifest)}


def _entry(kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
    worn, given = plain_record(record)
    base = worn.get("base_priority") or kind.base_priority
    factor = min(1.0, round(worn.get("priority", base) / base, 4)) if base else 1.0
    head = {"id": record["id"], "timestamp": record.get("timestamp")}
    if kind is TURN:
        speaker, tags = str(given.pop("speaker", "")), given.pop("tags", [])
        is_user = speaker.lower().startswith(("user", "human"))
        body = {"agent_id": speaker, "role": "user" if is_user else "assistant", "content": given.pop("content", ""),
                "context": {"topic": tags[0]} if tags else {},
                "metadata": {**given, "tags": tags, "references": given.pop("memory_refs", [])}}  # fmt: skip
        return {**head, **body, "decay_factor": factor}
    if kind is DECISION:
        given["approved_by"] = given.pop("agreed_by", [])
        given["references"] = {"conversations": [], "findings": [], **_sorted_references(given.pop("references", []))}
    elif kind in (FINDING, LEARNING):
        resolution = given.get("resolution")
        given["status"] = resolution.get("status", "open") if isinstance(resolution, dict) else "open"
        given["description"] = given.pop(kind.text, None)
        given = given if kind is FINDING else {**given, "severity": "info", "category": "learning"}
    elif kind.type == "preference":
        given |= {"key": given.get("topic") or record["id"], "value": given.get("preference"),
                  "confidence": _CONFIDENCE.get(str(given.get("confidence")), 0.5)}  # fmt: skip
    return {**head, **given, "decay_factor": factor}


def _sorted_references(references: object) -> dict[str, list[str]]:
    listed = [one for one in references if isinstance(one, str)] if isinstance(references, list) else []
    return {"conversations": [one for one in listed if one.startswith("turn-")],
            "findings": [one for one in listed if not one.startswith("turn-")]}  # fmt: skip


def _index(dump: Dump, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return ids by word, by topic and by hour."""
    words: dict[str, list[str]] = {}
    topics: dict[str, list[str]] = {}
    hours: dict[str, list[str]] = {}
    for row in rows:
        said = (row.get(name) for name in ("content", "decision", "description", "preference", "value"))
        for word in dict.fromkeys(_WORD.findall(" ".join(map(str, filter(None, said))).lower())):
            words.setdefault(word, []).append(row["id"])
        around = row.get("context")
        named = [*(row.get("tags") or []), around.get("topic") if isinstance(around, dict) else None]
        for topic in filter(None, named):
            topics.setdefault(str(topic), []).append(row["id"])
        if isinstance(row["timestamp"], str):
            hours.setdefault(row["timestamp"][:13], []).append(row["id"])
    return {"session_id": dump.session, "created_at": dump.metadata.get("last_accessed"), "inverted_index": words,
            "topic_index": topics, "temporal_index": hours, "version": 1}  # fmt: skip
