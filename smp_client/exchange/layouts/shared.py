"""What holds for all sessions of the layout with a file per kind: `shared/user-preferences.json` and `shared/agent-knowledge.json`.

The layout does not say what is in them, so they are taken as they come: a list of objects, lists by category or agent, or plain
names with values. Each becomes a memory of `global/` and keeps under `imported` the `file` and the place `at` which it stood; what
says something of the file itself (its version, when it was written) goes to the user's profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...layout import GLOBAL
from ...records import GLOBAL_PREFERENCE, PATTERN, Kind
from ..entries import ACTIVE, made
from ..formats import Read
from . import own, shaping
from .lines import parse
from .shaping import IMPORTED, ORIGINAL, Ids, Values
from .sources import Folder, told

PREFERENCES, KNOWLEDGE = "user-preferences.json", "agent-knowledge.json"
FILES: dict[str, Kind] = {PREFERENCES: GLOBAL_PREFERENCE, KNOWLEDGE: PATTERN}
_OF_THE_FILE = frozenset(("version", "schema_version", "created_at", "updated_at", "last_updated", "user_id"))
_OF_AN_ITEM = frozenset(("id", "key", "value", "preference", "pattern", "learning", "insight", "description", "text", "content"))
_NO_AGENT = frozenset(("agents", "by_agent", "agent_knowledge", "knowledge", "shared", "learned", "learnings", "patterns",
                       "learned_patterns", "insights"))  # fmt: skip
_DEPTH = 3
Item = tuple[list[str | int], Any]


def read(folder: Folder) -> Iterator[Read]:
    profile: Values = {}
    for name, kind in FILES.items():
        content = folder.read(name)
        if content is None:
            continue
        document, problem = parse(content)
        if problem:
            yield Read(0, None, f"{folder.where(name)}: {problem}")
            continue
        items = list(_items(document, []))
        if isinstance(document, dict) and (rest := {part: document[part] for part in document if part in _OF_THE_FILE}):
            profile[f"imported_{name.removesuffix('.json').replace('-', '_')}"] = rest
        ids = Ids()
        given = [_id(ids, kind, item, number) for number, (_, item) in enumerate(items, 1)]
        for (at, item), memory_id in zip(items, given, strict=True):
            _, record = own.regained(kind, ours(kind, memory_id, item, at, name, ids), ids)
            yield Read(0, made("memory", session=GLOBAL, place=ACTIVE, file=kind.file, type=kind.name, record=record))
    if profile:
        yield Read(0, made("profile", profile={"version": 1, "user_profile": profile}))
    yield from told(folder)


def _items(document: Any, at: list[str | int]) -> Iterator[Item]:
    """Each thing that is said, and where."""
    if isinstance(document, list):
        yield from (([*at, number], item) for number, item in enumerate(document))
    elif not isinstance(document, dict) or (at and document.keys() & _OF_AN_ITEM) or len(at) >= _DEPTH:
        yield at, document
    else:
        for name, value in document.items():
            if not (not at and name in _OF_THE_FILE):
                yield from _items(value, [*at, name])


def _id(ids: Ids, kind: Kind, item: Any, number: int) -> str:
    old = item.get("id") if isinstance(item, dict) else None
    return ids.give(kind, old if isinstance(old, str) else kind.memory_id(number))


def ours(kind: Kind, memory_id: str, item: Any, at: list[str | int], file: str, ids: Ids) -> Values:
    given = _given(kind, item, at)
    own = {name: value for name, value in given.items() if name not in ("id", "timestamp")}
    shape = shaping.shaped(kind, own, {}, ids)
    stamp = shaping.time_of(given.get("timestamp"))
    notes: Values = {"file": file, "at": at, **shape.notes()}
    if kind is PATTERN and shape.fields.get("learned_by") is None and (agent := _agent(at)):
        shape.add("learned_by", agent)
        notes[shaping.ADDED] = shape.added
    old = given.get("id", memory_id)
    worn = shaping.decay(kind, stamp, accesses=given.get("access_count"))
    record = shaping.record(memory_id, kind, stamp, shape.fields, notes, old, worn)
    if not isinstance(item, dict) or theirs(kind, record, ids) != item:
        notes[ORIGINAL] = item
    return record


def _agent(at: list[str | int]) -> str | None:
    """Whose knowledge stands at a place: what is sorted by agents names them further out than what it says of each."""
    return next((part for part in at if isinstance(part, str) and part.lower() not in _NO_AGENT), None)


def _given(kind: Kind, item: Any, at: list[str | int]) -> Values:
    if isinstance(item, dict):
        return item
    names = [part for part in at if isinstance(part, str)]
    if names and not isinstance(at[-1], int):
        return {"key": ".".join(names), "value": item}
    return {kind.text: item} if isinstance(item, str) and item.strip() else {"value": item}


def theirs(kind: Kind, record: Mapping[str, Any], ids: Ids) -> Any:
    """What stood at the place that `imported` names."""
    notes = record[IMPORTED] if isinstance(record.get(IMPORTED), dict) else {}
    if ORIGINAL in notes:
        return notes[ORIGINAL]
    given = shaping.unshaped(kind, record, {}, ids)
    stamp = {"timestamp": record["timestamp"]} if "timestamp" in record else {}
    return {"id": shaping.old_id(record), **stamp, **given}
