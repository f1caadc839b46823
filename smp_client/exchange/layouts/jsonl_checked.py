"""A folder a session with one log, `memory.jsonl`, whose entries have checksums.

Beside it are `metadata.json`, `tombstones.jsonl` and `index.json`; `indices/` is over all sessions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...records import TURN, Kind
from ..entry import Entry, Read
from .jsonl import is_set, kind_and_fields
from .jsonl_per_kind import decay_of
from .shape import Shaper, participants, session_entry, session_id, time_of
from .source import Folder, Line
from .target import Dump, dumped, plain_record, type_of_kind

LAYOUT = "jsonl-checked"
METADATA, MEMORY, TOMBSTONES, INDEX = "metadata.json", "memory.jsonl", "tombstones.jsonl", "index.json"
_FIELDS = ("id", "session_id", "timestamp", "type", "content", "importance", "checksum", "schema_version",
           "decay_factor", "access_count", "last_accessed", "last_decay_update")  # fmt: skip
_TAKEN = ("session_id", "user_id", "created_at", "last_accessed", "decay_config")
_ID_CHARACTERS, _SESSION_CHARACTERS = 32, 64


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its folder: the turns first, because others refer to them."""
    said = folder.mapping(METADATA)
    session = session_id(name)
    yield Read(folder.where(METADATA), _session(session, name, said))
    gone = set[str]()
    for mark in _tombstones(folder, session):
        gone |= {mark.entry["id"]} if mark.entry is not None else set()
        yield mark
    shaper = Shaper(LAYOUT, session, folder.written_at)
    others: list[tuple[Line, Kind, dict[str, Any]]] = []
    for line in folder.lines(MEMORY):
        value = line.value
        problem = line.problem if value is None else _problem(value)
        if problem or value is None:
            yield Read(line.where, None, problem)
        elif str(value.get("id")) not in gone and not is_set(value.get("deleted")):
            kind, given = kind_and_fields(value, value.get("content", {}))
            given |= {key: part for key, part in value.items() if key not in _FIELDS and part not in ([], {})}
            if kind is TURN:
                yield from shaper.memory(line.where, kind, given, value, line.raw, decay_of(kind, value))
            else:
                others.append((line, kind, given))
    for line, kind, given in others:
        assert line.value is not None
        yield from shaper.memory(line.where, kind, given, line.value, line.raw, decay_of(kind, line.value))
    yield from folder.reported()


def _problem(value: Mapping[str, Any]) -> str:
    if not value.keys() & {"type", "content"}:
        return "it has neither a type nor content"
    is_wrong = "checksum" in value and value["checksum"] not in _checksums(value)
    return "its checksum does not fit what it says" if is_wrong else ""


def checksum(entry: Mapping[str, Any]) -> str:
    """Return the checksum of an entry without it: JSON with sorted keys, no blanks, UTF-8."""
    return next(_checksums(entry))


def _checksums(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the checksums that an entry may have: the layout does not say over which form of JSON."""
    bare = {name: value for name, value in entry.items() if name != "checksum"}
    for is_sorted in (True, False):
        for separators, is_ascii in (((",", ":"), False), ((", ", ": "), True), ((", ", ": "), False), ((",", ":"), True)):
            text = json.dumps(bare, sort_keys=is_sorted, separators=separators, ensure_ascii=is_ascii)
            yield f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _tombstones(folder: Folder, session: str) -> Iterator[Read]:
    for line in folder.lines(TOMBSTONES):
        value = line.value
        if value is None or not isinstance(value.get("id"), str):
            yield Read(line.where, None, line.problem or "it has no id")
        else:
            yield Read(line.where, {"entry": "tombstone", "session": session, "id": value["id"],
                                    "at": value.get("timestamp"), "reason": value.get("reason")})  # fmt: skip


def _session(session: str, name: str, said: Mapping[str, Any]) -> Entry:
    metadata = {"created_at": time_of(said.get("created_at")), "last_accessed": time_of(said.get("last_accessed")),
                "participants": participants(said.get("user_id"), []), "decay_config": said.get("decay_config")}  # fmt: skip
    kept = {key: value for key, value in said.items() if key not in _TAKEN}
    return session_entry(session, LAYOUT, name, metadata, {"metadata": kept} if kept else {})


def files(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session. Ids have only letters, digits and underscores there."""
    session = _name(dump.session, _SESSION_CHARACTERS)
    log, entries, at = b"", dict[str, dict[str, Any]](), 0
    rows: list[bytes] = []
    tags: dict[str, list[str]] = {}
    types: dict[str, list[str]] = {}
    for number, (kind, record) in enumerate(dump.records, 1):
        entry = _entry(kind, record, session)
        entry["checksum"] = checksum(entry)
        row = dumped(entry)
        told = {name: entry[name] for name in ("type", "timestamp", "tags", "importance")}
        relevance = entry["importance"] * entry["decay_factor"]
        entries[entry["id"]] = {"line_number": number, "byte_offset": at, **told, "current_relevance": relevance}
        for tag in entry["tags"]:
            tags.setdefault(tag, []).append(entry["id"])
        types.setdefault(entry["type"], []).append(entry["id"])
        rows.append(row)
        at += len(row)
    log = b"".join(rows)
    marks = b"".join(dumped({"id": _name(mark["id"], _ID_CHARACTERS), "timestamp": mark.get("at"), "reason": mark.get("reason")})
                     for mark in dump.tombstones)  # fmt: skip
    said = dump.metadata
    index = dumped({"version": 1, "last_updated": said.get("last_accessed"), "entries": entries, "tags": tags, "types": types})
    people = said.get("participants") or {}
    counts = {f"{name}s": len(types.get(name, [])) for name in ("conversation", "decision", "finding", "preference")}
    metadata = {"session_id": session, "user_id": people.get("user_id"), "created_at": said.get("created_at"),
                "last_accessed": said.get("last_accessed"), "total_entries": len(rows),
                "total_size_bytes": len(log) + len(marks) + len(index),
                "decay_config": said.get("decay_config", {"enabled": True}), "preferences": {}, "statistics": counts,
                "version": 1}  # fmt: skip
    top = f"sessions/{session}"
    return {f"{top}/{MEMORY}": log, f"{top}/{TOMBSTONES}": marks, f"{top}/{INDEX}": index, f"{top}/{METADATA}": dumped(metadata)}


def indices(dumps: Sequence[Dump]) -> dict[str, bytes]:
    """Return the two files over all sessions."""
    topics: dict[str, list[str]] = {}
    listed = {}
    for dump in dumps:
        session = _name(dump.session, _SESSION_CHARACTERS)
        listed[session] = {"created_at": dump.metadata.get("created_at"), "total_entries": len(dump.records)}
        for tag in {str(tag) for _, record in dump.records for tag in record.get("tags") or []}:
            topics.setdefault(tag, []).append(session)
    return {"indices/global_index.json": dumped({"version": 1, "sessions": listed}),
            "indices/topic_index.json": dumped({"version": 1, "topics": dict(sorted(topics.items()))})}  # fmt: skip


def _entry(kind: Kind, record: Mapping[str, Any], session: str) -> dict[str, Any]:
    worn, given = plain_record(record)
    tags = given.pop("tags", [])
    references = given.pop("memory_refs" if kind is TURN else "references", [])
    base = worn.get("base_priority") or kind.base_priority
    if kind is TURN:
        content = {"role": given.pop("speaker", None), "message": given.pop("content", ""), "metadata": given}
    elif kind.type == "preference":
        content = {"key": given.get("topic") or record["id"], "value": given.get("preference"), **given}
    else:
        content = {"finding" if kind.type == "learning" else kind.text: given.pop(kind.text, None), **given}
        content |= {"severity": "info", "category": "learning"} if kind.type == "learning" else {}
    named = [_name(str(one), _ID_CHARACTERS) for one in references] if isinstance(references, list) else []
    return {"id": _name(str(record["id"]), _ID_CHARACTERS), "session_id": session, "timestamp": record.get("timestamp"),
            "type": type_of_kind(kind), "content": content, "importance": base,
            "decay_factor": min(1.0, round(worn.get("priority", base) / base, 4)) if base else 1.0,
            "tags": [str(tag) for tag in tags], "references": named}  # fmt: skip


def _name(name: str, size: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if len(plain) <= size else f"{plain[: size - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
