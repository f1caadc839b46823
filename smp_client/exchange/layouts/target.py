"""The three JSON lines layouts as a folder, written aside and named when it is whole.

They are written in one direction. FORMAT.md lists their losses.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...disk.session_files import agents_of
from ...disk.tree import Tree
from ...model.errors import Conflict, StorageFailed
from ...model.layout import GLOBAL
from ...model.record import DECISION, RELATIONSHIP, STATE_HISTORY, TURN, Kind
from ..entry import IMPORTED, IMPORTED_ID, Entry, kind_for
from . import jsonl, jsonl_checked, jsonl_per_kind
from .shape import text_of_pair

_BOOKKEEPING = frozenset(("id", "turn", "timestamp", "decay", "redacted", IMPORTED, IMPORTED_ID))
_TYPES = {"turn": "conversation", "learning": "finding", "pattern": "finding"}
_CONFIDENCE = {"explicit": 1.0, "inferred": 0.7, "uncertain": 0.3}
_ID_CHARACTERS, _SESSION_CHARACTERS = 32, 64


@dataclass
class Dump:
    """A session that is written: its metadata, its memories and its tombstones."""

    session: str
    metadata: dict[str, Any] = field(default_factory=dict)
    records: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)
    tombstones: list[Entry] = field(default_factory=list)


def dumps_of(given: Iterable[Entry], layout: str) -> tuple[list[Dump], Counter[str]]:
    """Return the sessions of an export, and how many memories of each type have no place."""
    dumps, left_out = dict[str, Dump](), Counter[str]()
    for entry in given:
        word, name = entry.get("entry"), entry.get("session", "")
        kind = kind_for(name, entry["file"]) if word == "memory" else None
        if name == GLOBAL and layout != jsonl_per_kind.LAYOUT:
            left_out["global memory"] += word == "memory"
        elif word == "session":
            dumps.setdefault(name, Dump(name)).metadata = entry["metadata"]
        elif word == "tombstone":
            dumps.setdefault(name, Dump(name)).tombstones.append(entry)
        elif kind and kind is not RELATIONSHIP and not kind.file.startswith(f"{STATE_HISTORY}/"):
            dumps.setdefault(name, Dump(name)).records.append((kind, entry["record"]))
        elif word == "memory":
            left_out[entry["type"]] += 1
    return list(dumps.values()), +left_out


class _Plain:
    """A record taken apart: `given` are its fields without our bookkeeping."""

    def __init__(self, kind: Kind, record: Mapping[str, Any]) -> None:
        worn: dict[str, Any] = record["decay"] if isinstance(record.get("decay"), dict) else {}
        self.type = _TYPES.get(kind.type, kind.type)  # a learning is a finding there
        self.given = {key: value for key, value in record.items() if key not in _BOOKKEEPING}
        self.head = {"id": record["id"], "timestamp": record.get("timestamp")}
        self.base: float = worn.get("base_priority") or kind.base_priority
        self.priority: float = worn.get("priority", self.base)
        self.factor = min(1.0, round(self.priority / self.base, 4))
        self.accesses = worn.get("access_count", 0)
        if kind.type == "learning":
            self.given |= {"severity": "info", "category": "learning"}
        resolution = self.given.get("resolution")
        self.status = resolution.get("status", "open") if isinstance(resolution, dict) else "open"
        self.given.pop("importance", None)  # it is the base of the priority
        self.pair = self._pair(kind, record)
        names = self.given.get("memory_refs" if kind is TURN else "references")
        self.references = [str(one) for one in names] if isinstance(names, list) else []

    def _pair(self, kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the key and the value of a preference: its own, if its text is made of them."""
        given = self.given
        key = given.get("key")
        text = given.get(kind.text)
        if (
            kind.type != "preference"
            or "value" not in given
            or text_of_pair(key, given["value"]) != text
        ):
            return {"key": given.get("topic") or record["id"], "value": text}
        del given[kind.text]
        if given.get("topic") == key:
            del given["topic"]
        return {"key": key, "value": given["value"]}


def _jsonl(dump: Dump) -> dict[str, bytes]:
    """Return the file of one session, a line a memory by time."""
    rows: list[dict[str, Any]] = []
    for kind, record in dump.records:
        plain = _Plain(kind, record)
        given = plain.given
        if kind is TURN:
            data = {"role": given.pop("speaker", None), "content": given.pop("content", "")}
        elif kind is DECISION:
            data = {"decision": given.pop("decision", None), "by": given.pop("made_by", None)}
        elif kind.type == "preference":
            data = plain.pair
        else:
            data = {"issue": given.pop(kind.text, None), "severity": given.pop("severity", "info"),
                    "status": plain.status}  # fmt: skip
        rows.append({"id": record["id"], "type": plain.type, "ts": record.get("timestamp"),
                     "data": {**given, **data}, "priority": plain.priority,
                     "access": plain.accesses})  # fmt: skip
    rows.sort(key=lambda row: str(row["ts"] or ""))
    rows += [{"id": mark["id"], "deleted": True, "ts": mark.get("at"), "reason": mark.get("reason")}
             for mark in dump.tombstones]  # fmt: skip
    return {f"{dump.session}.jsonl": _lines(rows)}


def _per_kind(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session; for `global`, those of `shared/`."""
    places = {kind.name: file for file, kind in jsonl_per_kind.KINDS.items()}
    places["learning"] = places["finding"]
    if dump.session == GLOBAL:
        places = {kind.name: file for file, kind in jsonl_per_kind.SHARED.items()}
    rows: dict[str, list[dict[str, Any]]] = {file: [] for file in places.values()}
    for kind, record in dump.records:
        rows[places[kind.name]].append(_row(kind, record))
    if dump.session == GLOBAL:
        return {f"shared/{file}": _lines([{f"{jsonl_per_kind.SHARED[file].type}s": listed}])
                for file, listed in rows.items()}  # fmt: skip
    top, said = f"sessions/{dump.session}", dump.metadata
    found = {f"{top}/{file}": _lines(listed) for file, listed in rows.items()}
    people, context = said.get("participants") or {}, said.get("context") or {}
    manifest = {
        "session_id": dump.session, "created_at": said.get("created_at"),
        "updated_at": said.get("last_accessed"), "user_id": people.get("user_id"),
        "agent_ids": [one.get("agent_id") for one in agents_of(said)],
        "metadata": {key: value for key, value in context.items() if value is not None},
        "statistics": {"total_messages": len(rows["conversation.jsonl"]),
                       "total_decisions": len(rows["decisions.jsonl"]),
                       "total_findings": len(rows["findings.jsonl"]),
                       "size_bytes": sum(map(len, found.values())),
                       "last_accessed": said.get("last_accessed")},
        "version": "1.0",
    }  # fmt: skip
    return {**found, f"{top}/{jsonl_per_kind.MANIFEST}": _lines([manifest])}


def _row(kind: Kind, record: Mapping[str, Any]) -> dict[str, Any]:
    plain = _Plain(kind, record)
    given, names = plain.given, plain.references
    if kind is TURN:
        speaker, tags = str(given.pop("speaker", "")), given.pop("tags", [])
        role = "user" if speaker.lower().startswith(("user", "human")) else "assistant"
        given = {"agent_id": speaker, "role": role, "content": given.pop("content", ""),
                 "context": {"topic": tags[0]} if tags else {},
                 "metadata": {**given, "tags": tags, "references": names}}  # fmt: skip
    elif kind is DECISION:
        turns = [one for one in names if one.startswith("turn-")]
        others = [one for one in names if one not in turns]
        given |= {"approved_by": given.pop("agreed_by", []),
                  "references": {"conversations": turns, "findings": others}}  # fmt: skip
    elif kind.type == "preference":
        given |= {**plain.pair, "confidence": _CONFIDENCE.get(str(given.get("confidence")), 0.5)}
    elif kind.type in ("finding", "learning"):
        given |= {"description": given.pop(kind.text, None), "status": plain.status}
    return {**plain.head, **given, "decay_factor": plain.factor}


def _checked(dump: Dump) -> dict[str, bytes]:
    """Return the files of one session. Ids have only letters, digits and underscores there."""
    session, said = _name(dump.session, _SESSION_CHARACTERS), dump.metadata
    rows: list[dict[str, Any]] = []
    for kind, record in dump.records:
        if jsonl_checked.is_of_session(record):
            continue
        plain = _Plain(kind, record)
        given = plain.given
        tags = given.pop("tags", [])
        given.pop("memory_refs" if kind is TURN else "references", None)
        if kind is TURN:
            speaker, text = given.pop("speaker", None), given.pop("content", "")
            content = {"role": speaker, "message": text, "metadata": given}
        elif kind.type == "preference":
            content = {**plain.pair, **given}
        else:
            content = {plain.type: given.pop(kind.text, None), **given}
        row = {**plain.head, "id": _name(str(record["id"])), "session_id": session,
               "type": plain.type, "content": content, "importance": plain.base,
               "decay_factor": plain.factor, "tags": [str(tag) for tag in tags],
               "references": [_name(one) for one in plain.references]}  # fmt: skip
        rows.append({**row, "checksum": next(jsonl_checked.checksums(row))})
    marks = [{"id": _name(mark["id"]), "timestamp": mark.get("at"), "reason": mark.get("reason")}
             for mark in dump.tombstones]  # fmt: skip
    top = f"sessions/{session}"
    found = {
        f"{top}/{jsonl_checked.MEMORY}": _lines(rows),
        f"{top}/{jsonl_checked.TOMBSTONES}": _lines(marks),
    }
    counts = Counter(f"{row['type']}s" for row in rows)
    types = ("conversations", "decisions", "findings", "preferences")
    metadata = {
        "session_id": session, "user_id": (said.get("participants") or {}).get("user_id"),
        "created_at": said.get("created_at"), "last_accessed": said.get("last_accessed"),
        "total_entries": len(rows), "total_size_bytes": sum(map(len, found.values())),
        "decay_config": said.get("decay_config", {"enabled": True}),
        "preferences": _of_session(dump),
        "statistics": {name: counts[name] for name in types}, "version": 1,
    }  # fmt: skip
    return {**found, f"{top}/{jsonl_checked.METADATA}": _lines([metadata])}


def _of_session(dump: Dump) -> dict[str, Any]:
    """Return the preferences that stand in the metadata of the session."""
    pairs = (_Plain(*one).pair for one in dump.records if jsonl_checked.is_of_session(one[1]))
    return {str(pair["key"]): pair["value"] for pair in pairs}


def _name(name: str, size: int = _ID_CHARACTERS) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return plain if len(plain) <= size else f"{plain[: size - 9]}_{digest}"


def _lines(rows: list[dict[str, Any]]) -> bytes:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return text.encode("utf-8", "replace")


WRITERS: dict[str, Callable[[Dump], dict[str, bytes]]] = {
    jsonl.LAYOUT: _jsonl, jsonl_per_kind.LAYOUT: _per_kind, jsonl_checked.LAYOUT: _checked,
}  # fmt: skip


def write_folder(place: Path, found: Mapping[str, bytes]) -> None:
    """Write a new folder aside and name it when it is whole."""
    if place.exists() or not place.parent.is_dir():
        said = f"{place} is there already, or in no directory that exists."
        raise Conflict(said, advice="Choose another name.")
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        for name, content in found.items():
            tree.make_directory(f"{aside}/{name}".rpartition("/")[0])
            tree.write_new(f"{aside}/{name}", content)
        tree.rename_new(aside, place.name)
        tree.sync_parent(place.name)
    except OSError as error:
        tree.remove_directory(aside)
        raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error
