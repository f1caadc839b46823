"""A folder in the layout of another program: written aside, and named when it is whole.

The layouts are written in one direction. FORMAT.md lists their losses.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...disk.tree import Tree
from ...model.errors import Conflict, Invalid, StorageFailed
from ...model.record import RELATIONSHIP, STATE_HISTORY, Kind
from ..entry import IMPORTED, IMPORTED_ID, Entry, kind_for

MARKER = ".smp-export.json"  # names the files of such a folder, so that only those are replaced
_BOOKKEEPING = frozenset(("id", "turn", "timestamp", "decay", "redacted", IMPORTED, IMPORTED_ID))
_TYPES = {"turn": "conversation", "learning": "finding", "pattern": "finding"}


@dataclass
class Dump:
    """A session that is written: its metadata, its memories and its tombstones."""

    session: str
    metadata: dict[str, Any] = field(default_factory=dict)
    records: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)
    tombstones: list[Entry] = field(default_factory=list)

    def take(self, entry: Entry, left_out: Counter[str]) -> None:
        """Add an entry; count it where these layouts have no place for it."""
        if entry["entry"] == "session":
            self.metadata = entry["metadata"]
            return
        if entry["entry"] == "tombstone":
            self.tombstones.append(entry)
            return
        kind = kind_for(self.session, entry["file"])
        if kind is None or kind is RELATIONSHIP or kind.file.startswith(f"{STATE_HISTORY}/"):
            left_out[entry["type"]] += 1
        else:
            self.records.append((kind, entry["record"]))


class Plain:
    """A record taken apart for a layout: `given` are its fields without our bookkeeping."""

    def __init__(self, kind: Kind, record: Mapping[str, Any]) -> None:
        worn: dict[str, Any] = record["decay"] if isinstance(record.get("decay"), dict) else {}
        self.type = _TYPES.get(kind.type, kind.type)  # a learning is a finding there
        self.given = {key: value for key, value in record.items() if key not in _BOOKKEEPING}
        self.base: float = worn.get("base_priority") or kind.base_priority
        self.priority: float = worn.get("priority", self.base)
        self.factor = min(1.0, round(self.priority / self.base, 4))
        self.accesses = worn.get("access_count", 0)
        if kind.type == "learning":
            self.given |= {"severity": "info", "category": "learning"}
        resolution = self.given.get("resolution")
        self.status = resolution.get("status", "open") if isinstance(resolution, dict) else "open"
        key = self.given.get("topic") or record["id"]
        self.pair = {"key": key, "value": self.given.get(kind.text)}


def dumped(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def write_folder(place: Path, found: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write a folder aside and name it. Only such an export is replaced."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        if not overwrite:
            advice = "Choose another name, or replace it with --force."
            raise Conflict(f"{place} is there already.", advice=advice)
        _require_export(place)
    if not place.parent.is_dir():
        raise Invalid([f"the directory {place.parent} does not exist"])
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        marker = dumped({"version": 1, "files": sorted(found)})
        for name, content in {**found, MARKER: marker}.items():
            tree.make_directory(f"{aside}/{name}".rpartition("/")[0])
            tree.write_new(f"{aside}/{name}", content)
        if place.exists():
            tree.exchange(aside, place.name)
            tree.remove_directory(aside)
        else:
            tree.rename_new(aside, place.name)
        tree.sync_parent(place.name)
    except OSError as error:
        tree.remove_directory(aside)
        raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error


def _require_export(place: Path) -> None:
    """Raise where a folder holds anything that no export of a layout has written."""
    advice = "Choose another name."
    try:
        listed = {*json.loads((place / MARKER).read_bytes())["files"], MARKER}
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{place} is no export of a layout, and stays as it is."
        raise Conflict(said, advice=advice) from error
    there = {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()}
    if further := sorted(there - listed):
        raise Conflict(f"{place} also holds {further[0]}, and stays as it is.", advice=advice)
