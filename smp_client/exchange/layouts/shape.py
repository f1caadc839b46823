"""The fields of another program as fields of ours, with every field kept.

A field that means the same gets our name. Any other keeps its own name, unless that name or the
form of its value means something else here: then it stands under `imported`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeGuard

from ...model.errors import Invalid
from ...model.layout import check_new_session_id
from ...model.record import DECISION, FINDING, LEARNING, PATTERN, PREFERENCE, TURN, Kind
from ...model.severity import WORDS
from ...model.times import render_time, same_time
from ...text.contents import check_tags
from ..entry import IMPORTED, Entry, Read, memory_entry
from .source import Line

UNKNOWN = "unknown"
TYPES = {"conversation": TURN, "message": TURN, "turn": TURN, "decision": DECISION,
         "finding": FINDING, "preference": PREFERENCE, "learning": LEARNING}  # fmt: skip
_RESERVED = frozenset(("id", "turn", "timestamp", "decay", "pinned", "updated_at", "redacted",
                       "imported", "imported_id", "turn_ref", "memory_refs",
                       "version"))  # fmt: skip
_WHO = ("by", "agent_id", "agent", "author", "created_by")
_TEXTS = ("text", "content", "message", "description", "summary")
# By kind: the names under which our fields may come beside their own, the likeliest first.
_ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    TURN.name: {"speaker": ("role", "agent_id", "agent", "author"), "content": ("message", "text")},
    DECISION.name: {"decision": _TEXTS, "made_by": _WHO, "agreed_by": ("approved_by",)},
    FINDING.name: {"finding": ("issue", *_TEXTS), "discovered_by": _WHO},
    PREFERENCE.name: {"preference": _TEXTS, "created_by": ("by",)},
    LEARNING.name: {"learning": ("note", "insight", *_TEXTS), "learned_by": _WHO},
    PATTERN.name: {"pattern": ("learning", "insight", *_TEXTS), "learned_by": _WHO},
}
_SEVERITIES = {"blocker": "critical", "fatal": "critical", "severe": "high", "major": "important",
               "moderate": "medium", "warning": "medium", "trivial": "low"}  # fmt: skip
_CONFIDENCES = {DECISION.name: ("high", "medium", "low", "uncertain"),
                PREFERENCE.name: ("explicit", "inferred", "uncertain")}  # fmt: skip
_MILLISECONDS_FROM = 1e11  # a number of seconds that large would be thousands of years ahead
_TEXT_CHARACTERS = 2000


@dataclass
class Shaper:
    """One session of a layout while its entries become ours."""

    layout: str
    session: str
    times: str | None = None  # for an entry without a time of its own
    _seen: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def memory(
        self, line: Line, kind: Kind, given: Mapping[str, Any], decay: Mapping[str, Any]
    ) -> Iterator[Read]:
        """Yield the memory that a line is. `given` are the fields that say something."""
        entry = line.value or {}
        source_id = self._source_id(kind, entry.get("id"), line.raw)
        if source_id is None:
            return
        stamp = entry.get("timestamp", entry.get("ts"))
        at = time_of(stamp)
        fields, kept = shaped(kind, given)
        if stamp is not None and at != stamp:
            kept["timestamp"] = stamp
        worn = {**decay, "last_accessed": time_of(decay.get("last_accessed")) or at or self.times}
        stamps = {"timestamp": at} if at else {}
        notes = {"layout": self.layout, **kept}
        record = {"id": source_id, **stamps, **fields, IMPORTED: notes, "decay": worn}
        made = memory_entry(self.session, kind.file, kind.type, record)
        yield Read(line.where, made | {"written_at": self.times})

    def _source_id(self, kind: Kind, given: object, raw: bytes) -> str | None:
        """Return the id by which the source knows an entry; None for a line that stands twice.

        A second entry of one id is another memory: `id#2`. One without an id is known by its bytes.
        """
        name = str(given) if isinstance(given, (str, int)) and not isinstance(given, bool) else ""
        digest = hash(raw)
        name = name or f"{kind.prefix.lower()}-{hashlib.sha256(raw).hexdigest()[:12]}"
        known = self._seen.setdefault((kind.file, name), [])
        if digest in known:
            return None
        known.append(digest)
        return name if len(known) == 1 else f"{name}#{len(known)}"


def shaped(kind: Kind, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our fields of an entry, and those that can only be kept under `imported`."""
    left, fields, kept = dict(given), dict[str, Any](), dict[str, Any]()
    for ours, names in _ALIASES[kind.name].items():
        name = next((name for name in (ours, *names) if _is_fit(ours, left.get(name))), None)
        if name is not None:
            fields[ours] = left.pop(name)
    if kind is TURN and "content" not in fields:
        name = next((name for name in ("content", "message", "text") if name in left), "content")
        kept |= {name: left[name]} if name in left else {}
        fields["content"] = _words(left.pop(name, ""))
    fields |= _lists(kind, left, kept)
    fields |= _choices(kind, left, kept)
    for name, value in left.items():
        is_ours = name in _RESERVED or name in fields or (kind is TURN and name == "type")
        (kept if is_ours else fields)[name] = value
    if not fields.get(kind.text) and kind is not TURN:
        said: Any = {**left, **fields} or "(nothing was said)"
        if isinstance(said, dict) and isinstance(said.get("key"), str) and "value" in said:
            said = f"{said['key']}: {_words(said['value'])}"
        fields[kind.text] = _words(said)
    for name in (kind.actor, *kind.required):
        fields.setdefault(name, UNKNOWN)
    return {**fields, "type": "message"} if kind is TURN else fields, kept


def _is_fit(ours: str, value: object) -> bool:
    if ours == "agreed_by" or not isinstance(value, str):
        return ours == "agreed_by" and isinstance(value, list)
    is_name = value.isprintable() and len(value) <= 128
    return bool(value.strip()) and (ours != "speaker" or is_name)


def _lists(kind: Kind, left: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Take tags and references; those that are none of ours stay under `imported`."""
    fields: dict[str, Any] = {}
    if "tags" in left:
        fields["tags"] = good_tags(left["tags"])
        kept |= {"tags": left["tags"]} if fields["tags"] != left["tags"] else {}
    if "references" in left:
        given = left["references"]
        lists = [one for one in (given.values() if isinstance(given, dict) else [given])
                 if isinstance(one, list)]  # fmt: skip
        named = [one for listed in lists for one in listed if isinstance(one, str)]
        fields["memory_refs" if kind is TURN else "references"] = named
        kept |= {"references": given} if named != given else {}
    left.pop("tags", None)
    left.pop("references", None)
    return {name: value for name, value in fields.items() if value}


def _choices(kind: Kind, left: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Take fields that must be one of a few words; another word of the source is kept."""
    fields: dict[str, Any] = {}
    if kind is FINDING:
        said = left.pop("severity", None)
        word = said.strip().lower() if isinstance(said, str) else ""
        near = _SEVERITIES.get(word, "medium" if word else "info")
        fields["severity"] = word if word in WORDS else near
        kept |= {"severity": said} if said not in (None, fields["severity"]) else {}
        if isinstance(left.get("status"), str) and "resolution" not in left:
            fields["resolution"] = {"status": left.pop("status")}
    if choices := _CONFIDENCES.get(kind.name):
        said = left.pop("confidence", None)
        if said in choices:
            fields["confidence"] = said
        elif said is not None:
            kept["confidence"] = said
            sure = share(said, 0.5)
            fields["confidence"] = choices[0 if sure >= 0.95 else 1 if sure >= 0.5 else 2]
    if kind.name == PREFERENCE.name:
        fields.setdefault("confidence", "inferred")
        if isinstance(left.get("key"), str) and "topic" not in left:
            fields["topic"] = left["key"]
    return fields


def good_tags(tags: object) -> list[str]:
    """Return the tags that can be tags of ours."""

    def is_good(tag: object) -> bool:
        problems: list[str] = []
        check_tags([tag], problems)  # type: ignore[list-item]
        return not problems

    return [tag for tag in tags if is_good(tag)] if isinstance(tags, list) else []


def session_id(name: str) -> str:
    """Return the name of a session as one of ours; one name always gives the same id."""
    try:
        return check_new_session_id(name)
    except Invalid:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48].strip("-_") or "session"
        return f"{stem}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def session_entry(
    session: str, layout: str, old: str, metadata: Mapping[str, Any], kept: Mapping[str, Any]
) -> Entry:
    """Return the entry that begins a session of another layout, without empty fields."""
    notes = {"layout": layout, **({"session_id": old} if old != session else {}), **kept}
    given = {name: value for name, value in metadata.items() if value not in (None, {}, [])}
    return {"entry": "session", "session": session, "place": "active",
            "metadata": {**given, IMPORTED: notes}}  # fmt: skip


def participants(user: object, agents: object) -> dict[str, Any]:
    """Return the people of a session as our metadata have them."""
    listed = agents if isinstance(agents, list) else []
    known = [{"agent_id": one, "message_count": 0} for one in listed if isinstance(one, str)]
    return {"user_id": user if isinstance(user, str) else None, "agents": known}


def time_of(value: object) -> str | None:
    """Return a time as SMP writes it. A number is seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            return same_time(value.strip())
        if is_number(value):
            seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
            return render_time(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        pass
    return None


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether it is a finite number."""
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_one and math.isfinite(value)  # type: ignore[arg-type]


def share(value: object, otherwise: float) -> float:
    """Return a number between 0 and 1."""
    return min(1.0, max(0.0, float(value))) if is_number(value) else otherwise


def count(value: object) -> int:
    """Return how often something was; 0 for no such number."""
    return value if type(value) is int and 0 <= value < 10**15 else 0


def _words(value: Any) -> str:
    """Return a text for a value that is none: blocks of a message, lists, anything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(block, dict) for block in value):
        value = [block.get("text") or f"[{block.get('type', 'block')}]" for block in value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n\n".join(value)
    return json.dumps(value, ensure_ascii=False)[:_TEXT_CHARACTERS]
