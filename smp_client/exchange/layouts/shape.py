"""The fields of another program as SMP's fields. No field is lost.

A field with the meaning of an SMP field gets SMP's name. Any other field keeps its own name. Where
that name or the form of its value means something else in SMP, the field stands under `imported`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...model.errors import Invalid
from ...model.layout import check_new_session_id
from ...model.record import CHOICES, DECISION, FINDING, LEARNING, PATTERN, PREFERENCE, TURN, Kind
from ...model.times import same_time
from ...text.contents import check_tags
from ..entry import IMPORTED, Entry, Read, memory_entry

UNKNOWN = "unknown"
_RESERVED = frozenset(("id", "turn", "timestamp", "decay", "pinned", "updated_at", "redacted",
                       "imported", "imported_id", "turn_ref", "memory_refs",
                       "version"))  # fmt: skip
_WHO = ("by", "agent_id", "agent", "author", "created_by")
_TEXTS = ("text", "content", "message", "description", "summary")
# By kind: the names of other programs for who said it, and for its text, the likeliest first.
_ALIASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    TURN.name: (("role", "agent_id", "agent", "author"), ("message", "text")),
    DECISION.name: (_WHO, _TEXTS),
    FINDING.name: (_WHO, ("issue", *_TEXTS)),
    PREFERENCE.name: (("by",), _TEXTS),
    LEARNING.name: (_WHO, ("note", "insight", *_TEXTS)),
    PATTERN.name: (_WHO, ("learning", "insight", *_TEXTS)),
}
_SEVERITIES = {"blocker": "critical", "fatal": "critical", "severe": "high", "major": "important",
               "trivial": "low", "": "info"}  # fmt: skip
_TEXT_CHARACTERS, _SPEAKER_CHARACTERS = 2000, 128


class Line(NamedTuple):
    """An object of a source with its file and line, or the problem of an unreadable line."""

    where: str
    raw: bytes
    value: dict[str, Any] | None
    problem: str = ""


@dataclass
class Shaper:
    """Turns the entries of one session of a layout into SMP's entries."""

    layout: str
    session: str
    written_at: str  # for an entry without a time of its own
    _seen: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def memory(
        self, line: Line, kind: Kind, given: Mapping[str, Any], decay: Mapping[str, Any]
    ) -> Iterator[Read]:
        """Yield the memory of a line, unless an equal line came before.

        `given` are its fields without id, time and decay. A second memory of one id becomes `id#2`.
        A memory without an id gets the hash of its line.
        """
        entry = line.value or {}
        entry_id = entry.get("id")
        if not isinstance(entry_id, (str, int)) or entry_id in ("", True, False):
            entry_id = f"{kind.prefix.lower()}-{hashlib.sha256(line.raw).hexdigest()[:12]}"
        seen = self._seen.setdefault((kind.file, str(entry_id)), [])
        if hash(line.raw) in seen:
            return
        seen.append(hash(line.raw))
        source_id = str(entry_id) if len(seen) == 1 else f"{entry_id}#{len(seen)}"
        stamp = entry.get("timestamp", entry.get("ts"))
        at = time_of(stamp)
        fields, kept = shaped(kind, given)
        if stamp is not None and at != stamp:
            kept["timestamp"] = stamp
        accessed = time_of(decay.get("last_accessed")) or at or self.written_at
        record = {"id": source_id, **({"timestamp": at} if at else {}), **fields,
                  IMPORTED: {"layout": self.layout, **kept},
                  "decay": {**decay, "last_accessed": accessed}}  # fmt: skip
        memory = memory_entry(self.session, kind.file, kind.type, record)
        yield Read(line.where, memory | {"written_at": self.written_at})


def shaped(kind: Kind, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return SMP's fields of an entry, and the fields to be kept under `imported`."""
    left, fields, kept = dict(given), dict[str, Any](), dict[str, Any]()
    for ours, names in zip((kind.actor, kind.text), _ALIASES[kind.name], strict=True):
        name = next((name for name in (ours, *names) if _is_fit(ours, left.get(name))), None)
        if name is not None:
            fields[ours] = left.pop(name)
    if kind.text not in fields:
        names = (kind.text, *_ALIASES[kind.name][1])
        said = next((left[name] for name in names if left.get(name)), None)
        if said is None and isinstance(left.get("key"), str) and "value" in left:
            fields[kind.text] = f"{left['key']}: {_words(left['value'])}"
        elif said is None and kind is not TURN:
            fields[kind.text] = _words(left) if left else "(nothing was said)"
        else:
            fields[kind.text] = "" if said is None else _words(said)
    _take_lists(kind, left, fields, kept)
    _take_choices(kind, left, fields, kept)
    for name, value in left.items():
        is_ours = name in _RESERVED or name in fields or (kind is TURN and name == "type")
        (kept if is_ours else fields)[name] = value
    for name in (kind.actor, *kind.required):
        fields.setdefault(name, UNKNOWN)
    return {**fields, "type": "message"} if kind is TURN else fields, kept


def _is_fit(ours: str, value: object) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    return ours != "speaker" or (value.isprintable() and len(value) <= _SPEAKER_CHARACTERS)


def _take_lists(
    kind: Kind, left: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]
) -> None:
    """Move tags, references and `approved_by` to `fields`; keep lists that SMP cannot hold."""
    tags, references = left.pop("tags", None), left.pop("references", None)
    parts = references.values() if isinstance(references, dict) else [references]
    listed = (item for part in parts if isinstance(part, list) for item in part)
    ids = [item for item in listed if isinstance(item, str)]
    ours = {"tags": good_tags(tags), "memory_refs" if kind is TURN else "references": ids}
    fields |= {name: value for name, value in ours.items() if value}
    kept |= {"tags": tags} if tags and ours["tags"] != tags else {}
    kept |= {"references": references} if references and ids != references else {}
    if kind is DECISION and isinstance(left.get("approved_by"), list):
        fields["agreed_by"] = left.pop("approved_by")


def _take_choices(
    kind: Kind, left: dict[str, Any], fields: dict[str, Any], kept: dict[str, Any]
) -> None:
    """Move fields that must be one of a few words to `fields`; keep the source's other words."""
    if kind is FINDING:
        severity = left.pop("severity", None)
        word = severity.strip().lower() if isinstance(severity, str) else ""
        is_ours = word in CHOICES[FINDING.name, "severity"]
        fields["severity"] = word if is_ours else _SEVERITIES.get(word, "medium")
        kept |= {"severity": severity} if severity not in (None, fields["severity"]) else {}
        if isinstance(left.get("status"), str) and "resolution" not in left:
            fields["resolution"] = {"status": left.pop("status")}
    choices = CHOICES.get((kind.name, "confidence"), ())
    if choices and "confidence" in left and left["confidence"] not in choices:
        kept["confidence"] = left.pop("confidence")
    if kind.name == PREFERENCE.name:
        fields["confidence"] = left.pop("confidence", "inferred")
        if isinstance(left.get("key"), str) and "topic" not in left:
            fields["topic"] = left["key"]


def good_tags(tags: object) -> list[str]:
    """Return the tags that are valid in SMP."""

    def is_good(tag: object) -> bool:
        problems: list[str] = []
        check_tags([tag], problems)  # type: ignore[list-item]
        return not problems

    return list(filter(is_good, tags)) if isinstance(tags, list) else []


def session_id(name: str) -> str:
    """Return a valid session id for a name. Equal names get equal ids."""
    try:
        return check_new_session_id(name)
    except Invalid:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48].strip("-_") or "session"
        return f"{stem}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def session_entry(
    layout: str, name: str, metadata: Mapping[str, Any], kept: Mapping[str, Any]
) -> Entry:
    """Return the entry that begins a session of another layout, without empty fields."""
    session = session_id(name)
    notes = {"layout": layout, **({"session_id": name} if name != session else {}), **kept}
    given = {key: value for key, value in metadata.items() if value not in (None, {}, [])}
    return {"entry": "session", "session": session, "place": "active",
            "metadata": {**given, IMPORTED: notes}}  # fmt: skip


def participants(user: object, agents: object) -> dict[str, Any]:
    """Return `participants` as SMP's metadata have them."""
    names = [name for name in agents if isinstance(name, str)] if isinstance(agents, list) else []
    present = [{"agent_id": name, "message_count": 0} for name in names]
    return {"user_id": user if isinstance(user, str) else None, "agents": present}


def time_of(value: object) -> str | None:
    """Return a time as SMP writes it; None for anything else."""
    try:
        return same_time(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def share(value: Any, otherwise: float) -> float:
    """Return a number from 0 to 1; `otherwise` for any other value."""
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else otherwise


def _words(value: Any) -> str:
    is_text = isinstance(value, str)
    return value if is_text else json.dumps(value, ensure_ascii=False)[:_TEXT_CHARACTERS]
