"""A folder a session with one log, `memory.jsonl`, whose entries have checksums.

Beside it are `metadata.json` and `tombstones.jsonl`. Indexes are neither read nor written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...model.record import TURN, Kind
from ..entry import Entry, Read
from .jsonl import is_set, kind_and_fields, tombstone
from .jsonl_per_kind import decay_of
from .shape import Shaper, participants, session_entry, session_id, time_of
from .source import Folder
from .target import Dump, Plain, dumped

LAYOUT = "jsonl-checked"
METADATA, MEMORY, TOMBSTONES = "metadata.json", "memory.jsonl", "tombstones.jsonl"
FILES: tuple[str, ...] = (METADATA, MEMORY, TOMBSTONES)
_FIELDS = frozenset(("id", "session_id", "timestamp", "type", "content", "importance", "checksum",
                     "schema_version", "decay_factor", "access_count", "last_accessed",
                     "last_decay_update"))  # fmt: skip
_TAKEN = ("session_id", "user_id", "created_at", "last_accessed", "decay_config")
_ID_CHARACTERS, _SESSION_CHARACTERS = 32, 64
_FORMS = [(is_sorted, separators, is_ascii) for is_sorted in (True, False)
          for separators in ((",", ":"), (", ", ": ")) for is_ascii in (False, True)]  # fmt: skip


def read(folder: Folder, name: str) -> Iterator[Read]:
    """Yield one session from its folder: the turns first, because others refer to them."""
    session = session_id(name)
    yield Read(folder.where(METADATA), _session(session, name, folder.mapping(METADATA)))
    gone = set[str]()
    for line in folder.lines(TOMBSTONES):
        if line.value is None or not isinstance(line.value.get("id"), str):
            yield Read(line.where, None, line.problem or "it has no id")
        else:
            gone.add(line.value["id"])
            yield Read(line.where, tombstone(session, line.value, "timestamp"))
    shaper = Shaper(LAYOUT, session, folder.written_at)
    later: list[Read] = []
    for line in folder.lines(MEMORY):
        value = line.value
        problem = line.problem if value is None else _problem(value)
        if problem or value is None:
            yield Read(line.where, None, problem)
        elif str(value.get("id")) not in gone and not is_set(value):
            kind, given = kind_and_fields(value, value.get("content", {}))
            further = {key: part for key, part in value.items()
                       if key not in _FIELDS and part not in ([], {})}  # fmt: skip
            made = shaper.memory(line, kind, {**given, **further}, decay_of(kind, value))
            if kind is TURN:
                yield from made
            else:
                later += made
    yield from later
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
    """Yield the checksums that fit: the layout does not say over which form of JSON."""
    bare = {name: value for name, value in entry.items() if name != "checksum"}
    for is_sorted, separators, is_ascii in _FORMS:
        text = json.dumps(bare, sort_keys=is_sorted, separators=separators, ensure_ascii=is_ascii)
        yield f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _session(session: str, name: str, said: Mapping[str, Any]) -> Entry:
    metadata = {"created_at": time_of(said.get("created_at")),
                "last_accessed": time_of(said.get("last_accessed")),
                "participants": participants(said.get("user_id"), []),
                "decay_config": said.get("decay_config")}  # fmt: skip
    kept = {key: value for key, value in said.items() if key not in _TAKEN}
    return session_entry(session, LAYOUT, name, metadata, {"metadata": kept} if kept else {})


def files(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session. Ids have only letters, digits and underscores there."""
    session, said = _name(dump.session, _SESSION_CHARACTERS), dump.metadata
    entries = [_entry(kind, record, session) for kind, record in dump.records]
    rows = [dumped({**entry, "checksum": checksum(entry)}) for entry in entries]
    marks = [{"id": _name(mark["id"], _ID_CHARACTERS), "timestamp": mark.get("at"),
              "reason": mark.get("reason")} for mark in dump.tombstones]  # fmt: skip
    top = f"sessions/{session}"
    found = {f"{top}/{MEMORY}": b"".join(rows),
             f"{top}/{TOMBSTONES}": b"".join(map(dumped, marks))}  # fmt: skip
    counts = Counter(f"{entry['type']}s" for entry in entries)
    types = ("conversations", "decisions", "findings", "preferences")
    metadata = {
        "session_id": session, "user_id": (said.get("participants") or {}).get("user_id"),
        "created_at": said.get("created_at"), "last_accessed": said.get("last_accessed"),
        "total_entries": len(rows), "total_size_bytes": sum(map(len, found.values())),
        "decay_config": said.get("decay_config", {"enabled": True}), "preferences": {},
        "statistics": {name: counts[name] for name in types}, "version": 1,
    }  # fmt: skip
    return {**found, f"{top}/{METADATA}": dumped(metadata)}


def _entry(kind: Kind, record: Mapping[str, Any], session: str) -> dict[str, Any]:
    plain = Plain(kind, record)
    given = plain.given
    tags = given.pop("tags", [])
    references = given.pop("memory_refs" if kind is TURN else "references", [])
    if kind is TURN:
        speaker, said = given.pop("speaker", None), given.pop("content", "")
        content = {"role": speaker, "message": said, "metadata": given}
    elif kind.type == "preference":
        content = {**plain.pair, **given}
    else:
        name = "finding" if kind.type == "learning" else kind.text
        content = {name: given.pop(kind.text, None), **given}
    listed = references if isinstance(references, list) else []
    named = [_name(str(one), _ID_CHARACTERS) for one in listed]
    return {"id": _name(str(record["id"]), _ID_CHARACTERS), "session_id": session,
            "timestamp": record.get("timestamp"), "type": plain.type, "content": content,
            "importance": plain.base, "decay_factor": plain.factor,
            "tags": [str(tag) for tag in tags], "references": named}  # fmt: skip


def _name(name: str, size: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return plain if len(plain) <= size else f"{plain[: size - 9]}_{digest}"
