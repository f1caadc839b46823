"""What another layout does not say of one of our memories: under `smp` in the entry, so that our own come back as they were.

    kind     of which kind it is; what the layout has no kind for stands among its findings
    fields   what would come back otherwise, or not at all; `without`: what would come back and was not there; `decay` likewise
    entry    a state or an artifact, which is no memory of any kind of theirs, as the entry of an export
    sum      of what the entry said when it was written

Where the sum does not fit, another program has changed the entry since: then it is taken like any other of its layout.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ...records import FINDING, GLOBAL_KINDS, LEARNING, RELATIONSHIP, SESSION_KINDS, Kind
from ...text.values import canonical
from .shaping import IMPORTED, IMPORTED_ID, Ids, Values

FIELD = "smp"
ENTRIES = ("artifact", "state", "memory")  # that may stand in an entry; `memory` only for the earlier states of an agent
_REFERENCES = ("references", "memory_refs")
_ENDS = ("source", "target")
# Ids and numbers may be others where it is imported, and how much something matters changes by itself.
_NOT_SUMMED = frozenset(("id", "turn", "turn_ref", "context", "decay", *_REFERENCES))


def note_for(kind: Kind, record: Mapping[str, Any], back: Mapping[str, Any], ids: Ids) -> Values:
    """What has to be noted so that `back`, which is what the layout alone would give, becomes the record again."""
    base = _bare(back)
    fields = {name: value for name, value in record.items()
              if name not in ("id", "turn", "decay") and (name not in base or _exactly(base[name]) != _exactly(value))}  # fmt: skip
    without = [name for name in base if name not in record]
    worn, usual = record.get("decay"), base.get("decay", {})
    note: Values = {"kind": kind.name}
    if "decay" in record and (not isinstance(worn, dict) or usual.keys() - worn.keys()):
        fields["decay"] = worn
    elif isinstance(worn, dict):
        further = {name: value for name, value in worn.items() if name not in usual or _exactly(usual[name]) != _exactly(value)}
        note |= {"decay": further} if further else {}
    note |= {"fields": _mapped(fields, ids.theirs)} if fields else {}
    return {**note, **({"without": without} if without else {}), "sum": sum_of(back)}


def sum_of(back: Mapping[str, Any]) -> str:
    said = {name: value for name, value in _bare(back).items() if name not in _NOT_SUMMED}
    return hashlib.sha256(canonical(said)).hexdigest()[:12]


def is_own(record: Mapping[str, Any]) -> bool:
    note = record.get(FIELD)
    return isinstance(note, dict) and note.get("sum") == sum_of(record)


def regained(kind: Kind, record: Values, ids: Ids | None) -> tuple[Kind, Values]:
    """What was read of an entry as the record that was written; as it is where that was none of ours, or was changed since."""
    if not is_own(record) or (found := _kind(kind, record[FIELD].get("kind"))) is None:
        return kind, record
    note = record[FIELD]
    fields, without, worn = (note.get(name, empty) for name, empty in (("fields", {}), ("without", []), ("decay", {})))
    if not (isinstance(fields, dict) and isinstance(without, list) and isinstance(worn, dict)):
        return kind, record
    made = {name: value for name, value in _bare(record).items() if name not in without}
    further = {name: value for name, value in fields.items() if name not in ("id", "turn")}
    made |= _mapped(further, ids.ours) if ids else further
    if worn:
        made["decay"] = {**made.get("decay", {}), **worn}
    if IMPORTED_ID in record and IMPORTED_ID not in made:
        made[IMPORTED_ID] = record[IMPORTED_ID]
    return found, made


def entry_of(record: Mapping[str, Any]) -> Values | None:
    """The entry of an export that stands in one of theirs."""
    entry = record[FIELD].get("entry") if is_own(record) else None
    return entry if isinstance(entry, dict) and entry.get("entry") in ENTRIES else None


def metadata_of(said: Mapping[str, Any], session: str) -> Values | None:
    """What was known of one of our sessions, where its manifest tells."""
    note = said.get(FIELD)
    metadata = note.get("metadata") if isinstance(note, dict) else None
    own = metadata.get("session") if isinstance(metadata, dict) else None
    return {**metadata, "session": {**own, "id": session}} if isinstance(metadata, dict) and isinstance(own, dict) else None


def _kind(kind: Kind, name: object) -> Kind | None:
    if kind.name == name and kind in (*SESSION_KINDS, *GLOBAL_KINDS):
        return kind
    return next((one for one in (LEARNING, RELATIONSHIP) if one.name == name), None) if kind is FINDING else None


def _bare(record: Mapping[str, Any]) -> Values:
    """Without what an import notes."""
    made = {name: value for name, value in record.items() if name not in (IMPORTED, IMPORTED_ID, FIELD)}
    if isinstance(worn := made.get("decay"), dict):
        made["decay"] = {name: value for name, value in worn.items() if name != IMPORTED}
    return made


def _mapped(fields: Values, mapping: Any) -> Values:
    """With the ids that it names as others know them."""
    made = dict(fields)
    for name in _REFERENCES:
        if isinstance(listed := made.get(name), list):
            made[name] = [mapping(one) if isinstance(one, str) else one for one in listed]
    for name in _ENDS:
        if isinstance(one := made.get(name), str):
            made[name] = mapping(one)
    return made


_exactly = json.JSONEncoder(sort_keys=True, ensure_ascii=False).encode
