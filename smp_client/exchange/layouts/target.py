"""A folder in the layout of another program: written aside, and named when it is whole.

The layouts are written in one direction. FORMAT.md lists what each of them has no place for.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import Conflict, Invalid, StorageFailed
from ...files import Tree
from ...records import RELATIONSHIP, STATE_HISTORY, Kind
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
        kind = kind_for(self.session, entry["file"]) if entry["entry"] == "memory" else None
        if entry["entry"] == "session":
            self.metadata = entry["metadata"]
        elif entry["entry"] == "tombstone":
            self.tombstones.append(entry)
        elif kind is None or kind is RELATIONSHIP or kind.file.startswith(f"{STATE_HISTORY}/"):
            left_out["state" if kind and kind is not RELATIONSHIP else kind.type if kind else entry["entry"]] += 1
        else:
            self.records.append((kind, entry["record"]))


def type_of_kind(kind: Kind) -> str:
    """Return the type that the layouts know for a kind; a learning is a finding there."""
    return _TYPES.get(kind.type, kind.type)


def plain_record(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the decay of a record, and its fields without our bookkeeping."""
    worn = record.get("decay")
    given = {name: value for name, value in record.items() if name not in _BOOKKEEPING}
    return worn if isinstance(worn, dict) else {}, given


def dumped(value: Any) -> bytes:
    """Return a value as one line of JSON."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def write_folder(place: Path, found: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write a folder aside and name it. One that is there is replaced only if it is such an export."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        if not overwrite:
            raise Conflict(f"{place} is there already.", advice="Choose another name, or replace it with --force.")
        _require_export(place)
    if not place.parent.is_dir():
        raise Invalid([f"the directory {place.parent} does not exist"])
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        for name, content in {**found, MARKER: dumped({"version": 1, "files": sorted(found)})}.items():
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
    try:
        listed = set(json.loads((place / MARKER).read_bytes())["files"]) | {MARKER}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Conflict(f"{place} is no export of a layout, and stays as it is.", advice="Choose another name.") from error
    there = (path for path in place.rglob("*") if not path.is_dir())
    further = sorted(str(path.relative_to(place)) for path in there if str(path.relative_to(place)) not in listed)
    if further:
        raise Conflict(f"{place} also holds {further[0]}, and stays as it is.", advice="Choose another name.")
