"""The three JSON lines layouts of other programs, read with every field. No link is followed.

jsonl           {session}.jsonl: lines with `id`, `type`, `ts`, `data` and more. A line
                `{"id": …, "deleted": true}` is a tombstone for the lines of this id before it.
jsonl-per-kind  a folder a session with `manifest.json` and a file a kind. Beside the sessions
                is `shared/`, with memories that hold everywhere.
jsonl-checked   a folder a session with `memory.jsonl`, whose entries have checksums,
                `metadata.json` and `tombstones.jsonl`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...disk.tree import Tree
from ...model.errors import SMPError
from ...model.layout import GLOBAL
from ...model.record import (
    DECISION,
    FINDING,
    GLOBAL_PREFERENCE,
    LEARNING,
    PATTERN,
    PREFERENCE,
    TURN,
    Kind,
)
from ...model.times import render_time
from ...text.contents import parse_json, parse_object
from ..entry import Entry, Read
from .shape import Line, Shaper, good_tags, participants, session_entry, session_id, share, time_of

JSONL, PER_KIND, CHECKED = "jsonl", "jsonl-per-kind", "jsonl-checked"
MANIFEST = "manifest.json"
KINDS: dict[str, Kind] = {"conversation.jsonl": TURN, "decisions.jsonl": DECISION,
                          "findings.jsonl": FINDING, "preferences.jsonl": PREFERENCE}  # fmt: skip
SHARED: dict[str, Kind] = {"user-preferences.json": GLOBAL_PREFERENCE,
                           "agent-knowledge.json": PATTERN}  # fmt: skip
METADATA, MEMORY, TOMBSTONES = "metadata.json", "memory.jsonl", "tombstones.jsonl"
_TYPES = {"conversation": TURN, "message": TURN, "turn": TURN, "decision": DECISION,
          "finding": FINDING, "preference": PREFERENCE, "learning": LEARNING}  # fmt: skip
# Fields of an entry that are taken by themselves; all others are kept by their names.
_WORN = ("id", "timestamp", "decay_factor", "access_count", "last_accessed", "last_decay_update")
_OF_LINE = ("id", "type", "ts", "data", "priority", "access", "last_accessed", "deleted")
_OF_ENTRY = (*_WORN, "session_id", "type", "content", "importance", "checksum", "schema_version")
_OF_MANIFEST = ("session_id", "created_at", "updated_at", "user_id", "agent_ids", "metadata")
_OF_METADATA = ("session_id", "user_id", "created_at", "last_accessed", "decay_config")
# The layout does not say over which form of JSON a checksum goes: sorted, separators, ASCII.
_JSON_FORMS = [*itertools.product((True, False), ((",", ":"), (", ", ": ")), (False, True))]


class Source:
    """A file or folder of another program, which is only read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.is_folder = self.path.is_dir()
        self.top = self.path if self.is_folder else self.path.parent
        self.tree = Tree(self.top)

    def written_at(self, place: str) -> str:
        """Return the time at which a file was last written."""
        try:
            seconds = int(self.tree.stat(place).st_mtime)
        except (SMPError, OSError):
            seconds = 0
        return render_time(datetime.fromtimestamp(seconds, UTC))

    def beginning(self, place: str, size: int = 65536) -> bytes:
        """Return the first bytes of a file; none where it cannot be read."""
        try:
            with self.tree.opened(place) as descriptor:
                return os.pread(descriptor, size, 0)
        except (SMPError, OSError):
            return b""

    def read(self, place: str) -> tuple[bytes, str]:
        """Return the bytes of a file, or none and the reason. A missing file is an empty one."""
        try:
            return self.tree.read(place), ""
        except FileNotFoundError:
            return b"", ""
        except (SMPError, OSError) as error:
            return b"", f"it cannot be read: {error}"

    def mapping(self, place: str) -> tuple[dict[str, Any], str]:
        """Return the object that a JSON file is, or an empty one and the reason."""
        content, problem = self.read(place)
        value, problem = parse_object(content) if content.strip() else (None, problem)
        return value or {}, problem

    def lines(self, place: str) -> Iterator[Line]:
        """Yield the lines of a JSON lines file."""
        content, problem = self.read(place)
        if problem:
            yield Line(place, b"", None, problem)
        rows = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, raw in enumerate(rows, 1):
            if raw.strip():
                value, problem = parse_object(raw)
                if problem and number == len(rows):
                    problem = f"the last line is cut off ({problem})"
                yield Line(f"{place}, line {number}", raw, value, problem)


def inside(directory: str, name: str) -> str:
    """Return the path of a name in a directory, of which the top one is empty."""
    return f"{directory}/{name}" if directory else name


def read_jsonl(source: Source, place: str) -> Iterator[Read]:
    """Yield one session from its file."""
    name = Path(place).stem
    session = session_id(name)
    yield Read(place, session_entry(JSONL, name, {}, {}))
    lines = list(source.lines(place))
    marks = {str(line.value.get("id")): number for number, line in enumerate(lines)
             if line.value and _is_mark(line.value)}  # fmt: skip
    shaper = Shaper(JSONL, session, source.written_at(place))
    for number, line in enumerate(lines):
        value = line.value
        mark = marks.get(str(value.get("id")), -1) if value else -1
        if value is None:
            yield Read(line.where, None, line.problem)
        elif number == mark:
            yield Read(line.where, _tombstone(session, value, "ts"))
        elif number > mark and not value.keys() & {"type", "data"}:
            yield Read(line.where, None, "it has neither a type nor data")
        elif number > mark:
            kind, given = _kind_and_fields(value, value.get("data", {}))
            worn = {"priority": share(value.get("priority"), kind.base_priority),
                    "base_priority": kind.base_priority, "access_count": _count(value, "access"),
                    "last_accessed": value.get("last_accessed")}  # fmt: skip
            yield from shaper.memory(line, kind, {**_without(value, _OF_LINE), **given}, worn)


def read_per_kind(source: Source, directory: str, name: str) -> Iterator[Read]:
    """Yield one session from its folder."""
    place, session = inside(directory, MANIFEST), session_id(name)
    manifest, problem = source.mapping(place)
    about = manifest["metadata"] if isinstance(manifest.get("metadata"), dict) else {}
    context = {**about, "tags": good_tags(about.get("tags"))}
    if context["tags"] != (about.get("tags") or []):
        context["imported_tags"] = about["tags"]
    metadata = {"created_at": time_of(manifest.get("created_at")),
                "last_accessed": time_of(manifest.get("updated_at")), "context": context,
                "participants": participants(manifest.get("user_id"), manifest.get("agent_ids")),
                }  # fmt: skip
    kept = _without(manifest, _OF_MANIFEST)
    found = session_entry(PER_KIND, name, metadata, {"manifest": kept} if kept else {})
    yield Read(place, None, problem) if problem else Read(place, found)
    for file, kind in KINDS.items():
        place = inside(directory, file)
        shaper = Shaper(PER_KIND, session, source.written_at(place))
        for line in source.lines(place):
            if line.value is None:
                yield Read(line.where, None, line.problem)
            elif _is_mark(line.value):
                yield Read(line.where, _tombstone(session, line.value, "deleted_at"))
            else:
                given, worn = _given(kind, line.value), _decay_of(kind, line.value)
                yield from shaper.memory(line, kind, given, worn)


def read_shared(source: Source, directory: str) -> Iterator[Read]:
    """Yield the memories of `shared/`, which become ours of `global/`.

    The layout leaves the form open: a list of objects, lists by category, or pairs.
    """
    for file, kind in SHARED.items():
        place = inside(directory, file)
        content, problem = source.read(place)
        value, problem = parse_json(content) if content.strip() else (None, problem)
        if problem:
            yield Read(place, None, problem)
        shaper = Shaper(PER_KIND, GLOBAL, source.written_at(place))
        for number, item in enumerate(_items(value), 1):
            raw = json.dumps(item, sort_keys=True).encode()
            line = Line(f"{place}, item {number}", raw, item)
            yield from shaper.memory(line, kind, _given(kind, item), _decay_of(kind, item))


def read_checked(source: Source, directory: str, name: str) -> Iterator[Read]:
    """Yield one session from its folder: the turns first, because others refer to them."""
    place, session = inside(directory, METADATA), session_id(name)
    said, problem = source.mapping(place)
    metadata = {"created_at": time_of(said.get("created_at")),
                "last_accessed": time_of(said.get("last_accessed")),
                "participants": participants(said.get("user_id"), []),
                "decay_config": said.get("decay_config")}  # fmt: skip
    kept = _without(said, _OF_METADATA)
    found = session_entry(CHECKED, name, metadata, {"metadata": kept} if kept else {})
    yield Read(place, None, problem) if problem else Read(place, found)
    gone = set[str]()
    for line in source.lines(inside(directory, TOMBSTONES)):
        if line.value is None or not isinstance(line.value.get("id"), str):
            yield Read(line.where, None, line.problem or "it has no id")
        else:
            gone.add(line.value["id"])
            yield Read(line.where, _tombstone(session, line.value, "timestamp"))
    place = inside(directory, MEMORY)
    shaper = Shaper(CHECKED, session, source.written_at(place))
    later: list[Read] = []
    for line in source.lines(place):
        value, problem = line.value or {}, line.problem
        if not problem and not value.keys() & {"type", "content"}:
            problem = "it has neither a type nor content"
        elif "checksum" in value and value["checksum"] not in checksums(value):
            problem = "its checksum does not fit what it says"
        if problem:
            yield Read(line.where, None, problem)
        elif str(value.get("id")) not in gone and not _is_mark(value):
            kind, given = _kind_and_fields(value, value.get("content", {}))
            given |= {key: part for key, part in _without(value, _OF_ENTRY).items()
                      if part not in ([], {})}  # fmt: skip
            made = shaper.memory(line, kind, given, _decay_of(kind, value))
            if kind is TURN:
                yield from made
            else:
                later += made
    yield from later


def checksums(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the checksums of an entry without it, ours first: sorted keys, no blanks, UTF-8."""
    bare = _without(entry, ("checksum",))
    for is_sorted, separators, is_ascii in _JSON_FORMS:
        text = json.dumps(bare, sort_keys=is_sorted, separators=separators, ensure_ascii=is_ascii)
        yield f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _without(entry: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


def _tombstone(session: str, value: Mapping[str, Any], at: str) -> Entry:
    return {"entry": "tombstone", "session": session, "id": str(value.get("id")),
            "at": value.get(at), "reason": value.get("reason")}  # fmt: skip


def _is_mark(value: Mapping[str, Any]) -> bool:
    """Return whether an entry is marked as deleted; programs write that in more than one way."""
    return str(value.get("deleted")).strip().lower() in ("true", "yes", "1")


def _kind_and_fields(entry: Mapping[str, Any], said: Any) -> tuple[Kind, dict[str, Any]]:
    """Return the kind that a `type` means, and the fields. Any other type is a learning."""
    word = str(entry.get("type", "")).lower()
    kind = _TYPES.get(word, LEARNING)
    given = dict(said) if isinstance(said, dict) else {kind.text: said}
    is_known = word in _TYPES or "type" not in entry
    return kind, given if is_known else {**given, "original_type": entry["type"]}


def _given(kind: Kind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry. In a message the agent speaks where it is named."""
    given = _without(entry, _WORN)
    if kind is not TURN:
        return given
    agent, about, around = given.get("agent_id"), given.get("metadata"), given.get("context")
    if "speaker" not in given and isinstance(agent, str) and agent and given.get("role") != "user":
        given["speaker"] = agent
    if isinstance(about, dict) and isinstance(about.get("references"), list):
        given.setdefault("references", about["references"])
    if isinstance(around, dict) and good_tags([around.get("topic")]):
        given.setdefault("tags", [around["topic"]])
    return given


def _decay_of(kind: Kind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return our decay of an entry; the factor of the source stays beside it where it is not 1."""
    base = share(entry.get("importance"), kind.base_priority)
    kept = {name: entry[name] for name in ("decay_factor", "last_decay_update")
            if entry.get(name) not in (None, 1.0)}  # fmt: skip
    return {"priority": round(base * share(entry.get("decay_factor"), 1.0), 4),
            "base_priority": base, "last_accessed": entry.get("last_accessed"),
            "access_count": _count(entry, "access_count"),
            **({"imported": kept} if kept else {})}  # fmt: skip


def _count(entry: Mapping[str, Any], name: str) -> int:
    value = entry.get(name)
    return value if type(value) is int and 0 <= value < 10**15 else 0


def _items(value: Any, category: str = "") -> Iterator[dict[str, Any]]:
    for item in value if isinstance(value, list) else ():
        yield dict(item) if isinstance(item, dict) else {"text": str(item)}
    for key, item in value.items() if isinstance(value, dict) else ():
        if isinstance(item, (list, dict)) and not category:
            yield from ({"category": key, **one} for one in _items(item, key))
        else:
            yield {"key": key, "value": item}
