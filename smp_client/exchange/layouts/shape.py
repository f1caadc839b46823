"""The fields of another program as SMP's fields. No field is lost.

A field with the meaning of an SMP field gets SMP's name. Any other field keeps its own name. If
that name or the form of its value means something else in SMP, the field stands under `imported`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Invalid
from ...model.layout import check_new_session_id
from ...model.record import CHOICES, DECISION, FINDING, LEARNING, PATTERN, PREFERENCE, TURN, Kind
from ...model.times import same_time
from ...text.contents import check_tags
from ..entry import IMPORTED, Entry, Read, memory_entry
from .source import Line

UNKNOWN = "unknown"
_RESERVED = frozenset(
    (
        "id",
        "turn",
        "timestamp",
        "decay",
        "pinned",
        "updated_at",
        "redacted",
        "imported",
        "imported_id",
        "turn_ref",
        "memory_refs",
        "version",
    )
)
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
_SEVERITIES = {
    "blocker": "critical",
    "fatal": "critical",
    "severe": "high",
    "major": "important",
    "trivial": "low",
    "": "info",
}
_TEXT_CHARACTERS = 2000
_SPEAKER_CHARACTERS = 128


@dataclass
class Shaper:
    """Turns the entries of one session of a layout into SMP's entries."""

    layout: str
    session: str
    written_at: str  # for an entry without a time of its own
    _seen: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def memory(
        self, line: Line, kind: Kind, given: Mapping[str, object], decay: Mapping[str, object]
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
        record = {
            "id": source_id,
            **({"timestamp": at} if at else {}),
            **fields,
            IMPORTED: {"layout": self.layout, **kept},
            "decay": {**decay, "last_accessed": accessed},
        }
        memory = memory_entry(self.session, kind.file, kind.type, record)
        yield Read(line.where, memory | {"written_at": self.written_at})


@dataclass
class _Fields:
    """The fields of an entry while they are sorted."""

    kind: Kind
    left: dict[str, Any]  # those of the source that are not sorted yet
    ours: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)  # those for `imported`

    def take_named(self) -> None:
        """Take who said it and its text, under whatever name the source has them."""
        kind = self.kind
        for ours, names in zip((kind.actor, kind.text), _ALIASES[kind.name], strict=True):
            for name in (ours, *names):
                if _is_fit(ours, self.left.get(name)):
                    self.ours[ours] = self.left.pop(name)
                    break
        if kind.text not in self.ours:
            self.ours[kind.text] = self._text()

    def _text(self) -> str:
        """Return the text of an entry that has it in no field of its own."""
        kind = self.kind
        for name in (kind.text, *_ALIASES[kind.name][1]):
            if self.left.get(name):
                return _words(self.left[name])
        if isinstance(self.left.get("key"), str) and "value" in self.left:
            return text_of_pair(self.left["key"], self.left["value"])
        if kind is TURN:
            return ""
        return _words(self.left) if self.left else "(nothing was said)"

    def take_lists(self) -> None:
        """Take tags, references and `approved_by`; keep lists that SMP cannot hold."""
        tags = self.left.pop("tags", None)
        valid = good_tags(tags)
        if valid:
            self.ours["tags"] = valid
        if tags and valid != tags:
            self.kept["tags"] = tags
        references = self.left.pop("references", None)
        ids = _texts_in(references)
        if ids:
            self.ours["memory_refs" if self.kind is TURN else "references"] = ids
        if references and ids != references:
            self.kept["references"] = references
        if self.kind is DECISION and isinstance(self.left.get("approved_by"), list):
            self.ours["agreed_by"] = self.left.pop("approved_by")

    def take_choices(self) -> None:
        """Take fields that must be one of a few words; keep the source's other words."""
        if self.kind is FINDING:
            self._take_severity()
            self._take_status()
        choices = CHOICES.get((self.kind.name, "confidence"), ())
        if choices and "confidence" in self.left and self.left["confidence"] not in choices:
            self.kept["confidence"] = self.left.pop("confidence")
        if self.kind.name == PREFERENCE.name:
            self.ours["confidence"] = self.left.pop("confidence", "inferred")
            if isinstance(self.left.get("key"), str) and "topic" not in self.left:
                self.ours["topic"] = self.left["key"]

    def _take_severity(self) -> None:
        given = self.left.pop("severity", None)
        severity = severity_of(given) or "medium"
        self.ours["severity"] = severity
        if given not in (None, severity):
            self.kept["severity"] = given

    def _take_status(self) -> None:
        if isinstance(self.left.get("status"), str) and "resolution" not in self.left:
            self.ours["resolution"] = {"status": self.left.pop("status")}

    def take_others(self) -> None:
        """Take every other field by its own name, unless that name means something else."""
        for name, value in self.left.items():
            is_type = self.kind is TURN and name == "type"
            if name in _RESERVED or name in self.ours or is_type:
                self.kept[name] = value
            else:
                self.ours[name] = value
        for name in (self.kind.actor, *self.kind.required):
            self.ours.setdefault(name, UNKNOWN)
        if self.kind is TURN:
            self.ours["type"] = "message"


def shaped(kind: Kind, given: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return SMP's fields of an entry, and the fields to be kept under `imported`."""
    fields = _Fields(kind, dict(given))
    fields.take_named()
    fields.take_lists()
    fields.take_choices()
    fields.take_others()
    return fields.ours, fields.kept


def severity_of(word: object) -> str | None:
    """Return SMP's severity for the word of another program; None for a word that is not one."""
    said = word.strip().lower() if isinstance(word, str) else ""
    return said if said in CHOICES[FINDING.name, "severity"] else _SEVERITIES.get(said)


def text_of_pair(key: object, value: object) -> str:
    """Return the text of a preference that a key and a value make."""
    return f"{key}: {_words(value)}"


def _is_fit(ours: str, value: object) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    return ours != "speaker" or (value.isprintable() and len(value) <= _SPEAKER_CHARACTERS)


def _texts_in(references: object) -> list[str]:
    """Return the ids in a list of references, or in the lists of a mapping."""
    parts = references.values() if isinstance(references, dict) else [references]
    ids: list[str] = []
    for part in parts:
        if isinstance(part, list):
            ids += [item for item in part if isinstance(item, str)]
    return ids


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
    layout: str, name: str, metadata: Mapping[str, object], kept: Mapping[str, object]
) -> Entry:
    """Return the entry that begins a session of another layout, without empty fields."""
    session = session_id(name)
    named = {"session_id": name} if name != session else {}
    notes = {"layout": layout, **named, **kept}
    given = {key: value for key, value in metadata.items() if value not in (None, {}, [])}
    return {
        "entry": "session",
        "session": session,
        "place": "active",
        "metadata": {**given, IMPORTED: notes},
    }


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


def share(value: object, otherwise: float) -> float:
    """Return a number from 0 to 1; `otherwise` for any other value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    return float(value) if 0 <= value <= 1 else otherwise


def _words(value: object) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)[:_TEXT_CHARACTERS]
