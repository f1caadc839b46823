"""One of our memories as an entry of another layout.

What came from the layout goes back as it came, as long as the entry still says all that the record does. Anything else is given
the shape that the layout's document shows, and what that does not say stands beside it under `smp` (see own.py): so nothing is
lost, and a program that was built for the layout finds the fields it knows. What it has no kind for stands among its findings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ....records import DECISION, FINDING, PREFERENCE, TURN, Kind
from ....text.values import canonical
from .. import checked, own, per_kind, shaping, single
from ..collecting import MARK
from ..lines import says_yes
from ..shaping import IMPORTED, Ids, Values

_KNOWN = (TURN, DECISION, FINDING, PREFERENCE)
_NOT_COMPARED = (IMPORTED, "decay", "turn_ref")
_ODD = (KeyError, TypeError, ValueError, AttributeError, AssertionError)  # what notes lead to that a person has changed
_SURE = {"explicit": 1.0, "inferred": 0.75, "uncertain": 0.25}
_SORTED = (("turn-", "conversations"), ("DEC-", "decisions"), ("FIND-", "findings"), ("PREF-", "preferences"))

Theirs = Callable[[Kind, Mapping[str, Any], Ids, str], Values]
Ours = Callable[[Kind, str, Mapping[str, Any], Ids, str], Values]


@dataclass(frozen=True)
class Way:
    """How one layout is gone to and come from."""

    layout: str
    theirs: Theirs
    ours: Ours
    kinds: frozenset[str]  # that can have come from it
    fields: Callable[[Values], Values]  # of an entry: where its own fields stand
    adapted: Callable[[Kind, Values, str], None]  # to what its document shows
    time: str


class Writing:
    """The entries of one session."""

    def __init__(self, way: Way, ids: Ids, session: str, *, came_from: str | None, since: str | None) -> None:
        self._way, self._ids, self._session, self._came_from, self._since = way, ids, session, came_from, since

    def entry(self, kind: Kind, record: Mapping[str, Any]) -> Values:
        if isinstance(record.get(IMPORTED), dict) and self._came_from in (None, self._way.layout) and self._is_theirs(kind, record):
            entry = self._way.theirs(kind, record, self._ids, self._session)
            # It stands here: what came as deleted was restored.
            return _finite({name: value for name, value in entry.items() if name != MARK or not says_yes(value)})
        return _finite(self._of_ours(kind, record))

    def other(self, name: str, text: str, entry: Mapping[str, Any], at: object) -> Values:
        """What is no memory: a state, an artifact."""
        record: Values = {"id": name, "finding": text, "severity": "info", "discovered_by": "smp", "category": entry["entry"]}
        made = self._shaped(FINDING, record if at is None else {**record, "timestamp": at})
        back = self._way.ours(FINDING, name, made, self._ids, self._session)
        self._way.fields(made)[own.FIELD] = {"entry": dict(entry), "sum": own.sum_of(back)}
        return _finite(made)

    def _is_theirs(self, kind: Kind, record: Mapping[str, Any]) -> bool:
        """Whether the way back and forth again leads to the same: if not, it was changed here, and the entry would not say so."""
        if kind.name not in self._way.kinds:
            return False
        try:
            back = self._way.theirs(kind, record, self._ids, self._session)
            again = self._way.ours(kind, str(record["id"]), back, self._named(record), self._session)
            return self._said(again) == self._said(record)
        except _ODD:
            return False

    def _named(self, record: Mapping[str, Any]) -> Ids:
        """The ids that the record names as they are known there. Of two entries with one id, only this tells which is meant."""
        around = record.get("context")
        named = [around.get("parent_message_id")] if isinstance(around, dict) else []
        for name in ("references", "memory_refs"):
            named += listed if isinstance(listed := record.get(name), list) else []
        ids = Ids()
        for one in named:
            if isinstance(one, str):
                ids.know(one, self._ids.theirs(one))
        return ids

    def _said(self, record: Mapping[str, Any]) -> bytes:
        said = {name: value for name, value in record.items() if name not in _NOT_COMPARED}
        for name in ("references", "memory_refs"):
            if isinstance(listed := said.get(name), list):
                said[name] = [self._ids.theirs(one) if isinstance(one, str) else one for one in listed]
        around = said.get("context")
        if isinstance(around, dict) and isinstance(parent := around.get("parent_message_id"), str):
            said["context"] = {**around, "parent_message_id": self._ids.theirs(parent)}
        return canonical(said)

    def _of_ours(self, kind: Kind, record: Mapping[str, Any]) -> Values:
        plain = _without_notes(record)
        as_kind, shown = (kind, plain) if kind in _KNOWN else (FINDING, _as_finding(kind, plain))
        entry = self._shaped(as_kind, shown)
        back = self._way.ours(as_kind, str(record["id"]), entry, self._ids, self._session)
        self._way.fields(entry)[own.FIELD] = own.note_for(kind, record, back, self._ids)
        return entry

    def _shaped(self, kind: Kind, record: Mapping[str, Any]) -> Values:
        entry = self._way.theirs(kind, record, self._ids, self._session)
        fields = self._way.fields(entry)
        fields.pop(own.FIELD, None)
        fields.pop("turn_ref", None)
        if entry.get(self._way.time) is None:
            entry[self._way.time] = self._since or "1970-01-01T00:00:00Z"
        _adapt(kind, fields)
        self._way.adapted(kind, entry, self._session)
        return entry


def _without_notes(record: Mapping[str, Any]) -> Values:
    """As if it had always been ours, but for the id by which it was known there; with a reference to its turn."""
    notes = record.get(IMPORTED)
    plain = {name: value for name, value in record.items() if name not in (IMPORTED, shaping.IMPORTED_ID)}
    if isinstance(worn := plain.get("decay"), dict):
        plain["decay"] = {name: value for name, value in worn.items() if name != IMPORTED}
    if not isinstance(plain.get("tags", []), list):
        plain["tags"] = []
    for name in ("references", "memory_refs"):
        if not isinstance(plain.get(name, []), list):
            del plain[name]
    turn = plain.get("turn_ref")
    if isinstance(turn, int) and f"turn-{turn}" not in plain.get("references", []):
        plain["references"] = [*plain.get("references", []), f"turn-{turn}"]
    known = {name: notes[name] for name in (shaping.OLD_ID,) if name in notes} if isinstance(notes, dict) else {}
    return {**plain, IMPORTED: known}


def _as_finding(kind: Kind, record: Mapping[str, Any]) -> Values:
    ends = [str(record.get(name)) for name in ("source", "target") if isinstance(record.get(name), str)]
    text = str(record.get(kind.text) or "")
    if len(ends) == 2:
        text = f"{ends[0]} {text} {ends[1]}"
    who = record.get(kind.actor)
    made: Values = {"id": record["id"], "finding": text or f"{kind.name} {record['id']}", "severity": "info",
                    "discovered_by": who if isinstance(who, str) else shaping.UNKNOWN, "category": kind.name}  # fmt: skip
    for name in ("timestamp", "tags", "decay", IMPORTED):
        if name in record:
            made[name] = record[name]
    references = [*ends, *(one for one in record.get("references", []) if isinstance(one, str))]
    return {**made, **({"references": references} if references else {})}


def _adapt(kind: Kind, fields: Values) -> None:
    """What all three documents show, where a memory of ours does not have it."""
    if kind is FINDING:
        fields.setdefault("status", "noted" if fields.get("severity") == "info" else "open")
    elif kind is PREFERENCE:
        fields.setdefault("key", fields.get("topic") or fields.get("category") or "preference")
        fields.setdefault("value", fields.get("preference"))


def _role(speaker: object) -> str:
    said = str(speaker).lower()
    return said if said in ("user", "system") else "user" if said == "human" else "assistant"


def _in_role(fields: Values) -> None:
    """The layout knows user and assistant; which agent spoke stands beside it."""
    speaker = fields.get("role")
    fields["role"] = _role(speaker)
    if speaker != fields["role"]:
        fields.setdefault("agent", speaker)


def _adapt_single(kind: Kind, entry: Values, _: str) -> None:
    if kind is TURN:
        _in_role(entry["data"])
    if not shaping.is_number(entry.get("priority")):
        entry["priority"] = kind.base_priority
    if not shaping.is_count(entry.get("access")):
        entry["access"] = 0


def _adapt_checked(kind: Kind, entry: Values, _: str) -> None:
    if kind is TURN:
        _in_role(entry["content"])
    entry["schema_version"] = 1
    if not shaping.is_number(entry.get("importance")):
        entry["importance"], entry["decay_factor"] = kind.base_priority, 1.0


def _adapt_per_kind(kind: Kind, entry: Values, session: str) -> None:
    references, tags = entry.get("references") or [], entry.get("tags") or []
    if kind is TURN:
        speaker = entry.pop("speaker", None)
        entry["agent_id"], entry["role"] = speaker, _role(speaker)
        around = entry.get("context")
        topic = {"topic": tags[0]} if tags else {}
        entry["context"] = {"conversation_id": session, **topic, **(around if isinstance(around, dict) else {})}
        about = entry.get("metadata")
        entry["metadata"] = {**(about if isinstance(about, dict) else {}), "references": entry.pop("references", [])}
    elif kind is DECISION:
        sorts: dict[str, list[Any]] = {}
        for one in references:
            found = next((sort for prefix, sort in _SORTED if str(one).startswith(prefix)), "others")
            sorts.setdefault(found, []).append(one)
        entry["references"] = sorts
        for name in ("approved_by", "alternatives_considered", "tags"):
            entry.setdefault(name, [])
    elif kind is FINDING:
        entry.setdefault("category", tags[0] if tags else "general")
        entry.setdefault("tags", [])
    elif kind is PREFERENCE:
        entry.setdefault("category", "general")
        entry["confidence"] = _SURE.get(str(entry.get("confidence")), 0.5)


def _finite(entry: Values) -> Values:
    return {name: _told(part) for name, part in entry.items()}


def _told(value: Any) -> Any:
    """JSON has no number that is none, nor one without end: as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return _finite(value)
    return [_told(item) for item in value] if isinstance(value, list) else value


def _part(name: str, entry: Values) -> Values:
    """The mapping in which the fields of an entry stand; made where there is none."""
    part = entry.get(name)
    if not isinstance(part, dict):
        part = entry[name] = {}
    return part


SINGLE = Way(
    single.LAYOUT, lambda kind, record, ids, _: single.theirs(kind, record, ids),
    lambda kind, memory_id, entry, ids, _: single.ours(kind, memory_id, entry, ids), frozenset(single.USUAL),
    functools.partial(_part, "data"), _adapt_single, "ts",
)  # fmt: skip
PER_KIND = Way(
    per_kind.LAYOUT, lambda kind, record, ids, _: per_kind.theirs(kind, record, ids),
    lambda kind, memory_id, entry, ids, _: per_kind.ours(kind, memory_id, entry, ids), frozenset(per_kind.USUAL),
    lambda entry: entry, _adapt_per_kind, "timestamp",
)  # fmt: skip
CHECKED = Way(
    checked.LAYOUT, checked.theirs, checked.ours, frozenset(checked.USUAL), functools.partial(_part, "content"), _adapt_checked,
    "timestamp",
)  # fmt: skip
