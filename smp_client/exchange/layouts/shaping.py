"""The fields of another layout as fields of ours, and back: what both the readers and whoever writes a layout again go by.

`shaped` makes fields of ours and notes what is needed for the way back; `unshaped` goes it. A layout says how it calls what we
call otherwise (`Names`); everything else keeps its name. The notes are small, and stand in the record under `imported`:

    names   where one of our fields came under another name than the layout usually has for it: ours, theirs
    added   fields of ours that they do not have, such as who decided where nobody is named
    kept    fields of theirs that we hold in another form, or whose name means something else here; they win on the way back

What changes there with time, such as a decay factor, stands under `imported` of the record's `decay`: how much something matters is
not what it says, so an entry that has only decayed since is still the same one when it is imported again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeGuard

from ...errors import Invalid
from ...layout import check_new_session_id
from ...records import (
    DECISION,
    FINDING,
    LEARNING,
    PATTERN,
    PREFERENCE,
    TURN,
    Kind,
    check_tags,
    is_memory_id,
)  # fmt: skip
from ...severity import WORDS
from ...timestamps import render_time, same_time
from .blocks import text_of
from .lines import is_exactly

IMPORTED, IMPORTED_ID = "imported", "imported_id"
NAMES, ADDED, KEPT, WITHOUT, ORIGINAL, OLD_ID = "names", "added", "kept", "without", "original", "id"
UNKNOWN = "unknown"
Values = dict[str, Any]
Names = Mapping[str, str]  # ours, theirs

# What means something here, so that a field of theirs that happens to have the name must not stand there.
RESERVED = frozenset(("id", "turn", "type", "timestamp", "decay", "session", "version", "pinned", "updated_at", "redacted",
                      "deleted", "deleted_at", "deleted_by", "turn_ref", "memory_refs", "references", "tags", IMPORTED,
                      IMPORTED_ID))  # fmt: skip
_IN_ANOTHER_FORM = ("resolution", "alternatives_considered")
_OF_THE_WHOLE = ("id", "turn", "timestamp", "decay", IMPORTED, IMPORTED_ID)
_WHO = ("by", "agent_id", "agent", "author", "created_by")
_TEXTS = ("text", "content", "message", "description", "summary")
# By kind: our field, and the names under which its text may come, the likeliest first.
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    TURN.name: {"speaker": ("role", "speaker", "agent_id", "agent", "author"), "content": ("content", "message", "text")},
    DECISION.name: {"decision": ("decision", *_TEXTS), "made_by": ("made_by", *_WHO)},
    FINDING.name: {"finding": ("finding", "issue", *_TEXTS), "discovered_by": ("discovered_by", *_WHO)},
    PREFERENCE.name: {"preference": ("preference", *_TEXTS), "created_by": ("created_by", "by")},
    LEARNING.name: {"learning": ("learning", "note", "pattern", "insight", *_TEXTS), "learned_by": ("learned_by", *_WHO)},
    PATTERN.name: {"pattern": ("pattern", "learning", "insight", *_TEXTS), "learned_by": ("learned_by", *_WHO)},
}
_SEVERITIES = {"blocker": "critical", "fatal": "critical", "severe": "high", "major": "important", "moderate": "medium",
               "warning": "medium", "trivial": "low", "information": "info", "informational": "info"}  # fmt: skip
_CONFIDENCES = {DECISION.name: ("high", "medium", "low", "uncertain"), PREFERENCE.name: ("explicit", "inferred", "uncertain")}
_TEXT_CHARACTERS = 2000
_SPEAKER_CHARACTERS = 128
_MILLISECONDS_FROM = 1e11  # a number of seconds that large would be a time thousands of years ahead


# Ids.


class Ids:
    """Which id each entry of a session gets: its own where that can be, and one by which it is known where two have the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._new: dict[object, str] = {}  # by the old one; the first that has it is the one that is meant
        self._old: dict[str, object] = {}
        self._numbers: dict[str, int] = {}  # the last that was put behind a name
        self._turns = 0

    def give(self, kind: Kind, old: object) -> str:
        if kind is TURN:
            self._turns = max(self._turns + 1, _own_number(old))
            new = TURN.memory_id(self._turns)
        else:
            new = self._free(kind, old)
        self._taken.add(new)
        self._old[new] = old
        if isinstance(old, (str, int)):
            self._new.setdefault(old, new)
        return new

    def _free(self, kind: Kind, old: object) -> str:
        text = str(old) if isinstance(old, (str, int)) and not isinstance(old, bool) else ""
        if is_memory_id(text) and not re.fullmatch(r"turn-\d+", text) and text not in self._taken:
            return text
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:48].strip("-_.") or kind.prefix.lower()
        stem = f"imported-{stem}" if stem.startswith("turn") else stem
        while True:
            number = self._numbers[stem] = self._numbers.get(stem, 1 if text else 0) + 1
            if (new := f"{stem}-{number}") not in self._taken:
                return new

    def know(self, new: str, old: object) -> None:
        """Of a record that has its id: for the way back."""
        self._old[new] = old
        if isinstance(old, (str, int)):
            self._new.setdefault(old, new)

    def ours(self, old: str) -> str:
        return self._new.get(old, old)

    def theirs(self, new: str) -> str:
        old = self._old.get(new, new)
        return old if isinstance(old, str) else new

    @property
    def last_turn(self) -> int:
        return self._turns


def _own_number(old: object) -> int:
    """Of a turn that has an id like ours: where others before it are missing, it keeps its number."""
    return int(old.removeprefix("turn-")) if isinstance(old, str) and re.fullmatch(r"turn-[0-9]{1,9}", old) else 0


def session_id(name: str) -> str:
    """The name of a session as one of ours; the same name always gives the same."""
    try:
        return check_new_session_id(name)
    except Invalid:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48].strip("-_") or "session"
        return f"{stem}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


# Single values.


def time_of(value: object) -> str | None:
    """A time as we write it; None where it is none. A bare number is one of seconds, or of milliseconds, since 1970."""
    try:
        if isinstance(value, str):
            return same_time(value.strip())
        if is_number(value):
            seconds = float(value) / 1000 if abs(value) >= _MILLISECONDS_FROM else float(value)
            return render_time(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        pass
    return None


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def share(value: object, otherwise: float) -> float:
    """A number from 0 to 1."""
    return min(1.0, max(0.0, value)) if is_number(value) else otherwise


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15


def decay(kind: Kind, at: str | None, *, priority: object = None, base: object = None, accesses: object = 0,
          accessed: str | None = None, was: Values | None = None) -> Values:  # fmt: skip
    start = base if is_number(base) and 0 <= base <= 1 else kind.base_priority
    return {"priority": share(priority, float(start)), "last_accessed": accessed or at,
            "access_count": accesses if is_count(accesses) else 0, "base_priority": start,
            **({IMPORTED: was} if was else {})}  # fmt: skip


def changing(entry: Mapping[str, Any], counter: str, *, factor: str, usually: float) -> Values:
    """What of an entry changes with time, as far as the decay of a record does not say the same."""
    was: Values = {}
    if factor in entry and not is_exactly(entry[factor], usually):
        was[factor] = entry[factor]
    for name in ("last_accessed", "last_decay_update"):
        if name in entry:
            was[name] = entry[name]
    if counter in entry and (not is_count(entry[counter]) or counter != "access"):
        was[counter] = entry[counter]
    return was


def changed(record: Mapping[str, Any]) -> tuple[Values, Values]:
    """The decay of a record, and what it keeps of another layout."""
    worn = record.get("decay")
    worn = worn if isinstance(worn, dict) else {}
    was = worn.get(IMPORTED)
    return worn, was if isinstance(was, dict) else {}


def good_tags(tags: object) -> list[str]:
    def is_good(tag: object) -> bool:
        problems: list[str] = []
        check_tags([tag], problems)  # type: ignore[list-item]
        return not problems

    return [tag for tag in tags if is_good(tag)] if isinstance(tags, list) else []


def is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


# Fields.


@dataclass
class Shaped:
    """Fields of ours, and what is needed for the way back."""

    fields: Values = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    kept: Values = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        self.fields[name] = value
        self.added.append(name)

    def notes(self) -> Values:
        return {name: value for name, value in ((NAMES, self.names), (ADDED, self.added), (KEPT, self.kept)) if value}


def shaped(kind: Kind, given: Mapping[str, Any], usual: Names, ids: Ids) -> Shaped:
    """Every field of an entry, under a name of ours or its own."""
    made = Shaped()
    left = dict(given)
    for ours, aliases in ALIASES[kind.name].items():
        _take_text(kind, made, left, ours, (usual.get(ours, ours), *aliases), usual)
    for ours, theirs in usual.items():
        if theirs in left and ours not in made.fields and (ours == theirs or ours not in left):
            _take_known(made, left, ours, theirs)
    for name in ("references", "tags"):
        if name in left:
            _take_list(kind, made, name, left.pop(name), ids)
    _check_choices(kind, made, left)
    for name, value in left.items():
        is_free = name not in RESERVED and name not in made.fields and name not in usual
        (made.fields if is_free else made.kept)[name] = value
    _complete(kind, made)
    return made


def unshaped(kind: Kind, record: Mapping[str, Any], usual: Names, ids: Ids) -> Values:
    """The way back; what belongs to the entry as a whole (its id, time, decay) is for the caller to say."""
    notes = record.get(IMPORTED)
    notes = notes if isinstance(notes, dict) else {}
    names = {**usual, **notes.get(NAMES, {})}
    left_out = {*_OF_THE_WHOLE, *notes.get(ADDED, ()), *(("type",) if kind is TURN else ())}
    references = "memory_refs" if kind is TURN else "references"
    given: Values = {}
    for ours, value in record.items():
        if ours in left_out:
            continue
        if ours == references:
            given["references"] = [ids.theirs(one) if isinstance(one, str) else one for one in value]
        else:
            theirs = names.get(ours, ours)
            given[theirs] = _back(ours, theirs, value) if ours in _IN_ANOTHER_FORM else value
    return {**given, **notes.get(KEPT, {})}


def _take_text(kind: Kind, made: Shaped, left: Values, ours: str, aliases: Iterable[str], usual: Names) -> None:
    for alias in aliases:
        text = left.get(alias)
        if kind is TURN and ours == kind.text and (told := text_of(text)) is not None:
            made.add(ours, told)
            made.kept[alias] = left.pop(alias)
            return
        is_fit = isinstance(text, str) and (bool(text.strip()) or (kind is TURN and ours == "content"))
        if is_fit and (ours != "speaker" or is_speaker(str(text))):
            made.fields[ours] = left.pop(alias)
            if alias != usual.get(ours, ours):
                made.names[ours] = alias
            return


def is_speaker(text: str) -> bool:
    return text.isprintable() and len(text) <= _SPEAKER_CHARACTERS


def _take_known(made: Shaped, left: Values, ours: str, theirs: str) -> None:
    """What a layout calls otherwise, or says in another form."""
    value = left.pop(theirs)
    if ours == "resolution":
        state = value if value in ("open", "resolved") else "open"
        made.fields[ours] = {"status": state}
        if value != state:
            made.added.append(ours)
            made.kept[theirs] = value
    elif ours == "alternatives_considered" and isinstance(value, list):
        made.fields[ours] = [_alternative(item) for item in value]
    elif isinstance(value, str) or ours not in ("implementation_impact",):
        made.fields[ours] = value
    else:
        made.kept[theirs] = value


def _alternative(item: Any) -> Any:
    if isinstance(item, str):
        return {"option": item}
    if isinstance(item, dict):
        return {"rejected_because" if name == "rejected_reason" else name: value for name, value in item.items()}
    return item


def _back(ours: str, theirs: str, value: Any) -> Any:
    if ours == "resolution" and theirs == "status" and isinstance(value, dict):
        return value.get("status")
    if ours == "alternatives_considered" and isinstance(value, list):
        if theirs == "alternatives":
            return [item["option"] if isinstance(item, dict) and item.keys() == {"option"} else item for item in value]
        return [{"rejected_reason" if name == "rejected_because" else name: part for name, part in item.items()}
                if isinstance(item, dict) else item for item in value]  # fmt: skip
    return value


def _take_list(kind: Kind, made: Shaped, name: str, value: Any, ids: Ids) -> None:
    if name == "tags":
        good = good_tags(value)
        if good:
            made.fields[name] = good
        if good != value:
            made.kept[name] = value
            made.added += [name] if good else []
        return
    ours = "memory_refs" if kind is TURN else "references"
    if not is_list_of_texts(value):
        made.kept[name] = value
        return
    made.fields[ours] = [ids.ours(one) for one in value]
    turns = [one for one in made.fields[ours] if re.fullmatch(r"turn-\d{1,15}", one)]
    if turns and kind is not TURN:
        made.add("turn_ref", int(turns[0].removeprefix("turn-")))


def _check_choices(kind: Kind, made: Shaped, left: Values) -> None:
    """What must be one of a few words: another one is kept, and the nearest stands for it."""
    if kind is FINDING and left.get("severity") not in WORDS:
        said = left.pop("severity", None)
        if said is not None:
            made.kept["severity"] = said
        word = said.strip().lower() if isinstance(said, str) else ""
        made.add("severity", word if word in WORDS else _SEVERITIES.get(word, "medium" if word else "info"))
    choices = _CONFIDENCES.get(kind.name)
    if choices and "confidence" in left and left["confidence"] not in choices:
        said = made.kept["confidence"] = left.pop("confidence")
        if kind.name == PREFERENCE.name:
            sure = share(said, 0.5)
            made.add("confidence", "explicit" if sure == 1 else "inferred" if sure >= 0.5 else "uncertain")
        elif is_number(said):
            made.add("confidence", "high" if share(said, 0) >= 0.8 else "medium" if share(said, 0) >= 0.5 else "low")


def _complete(kind: Kind, made: Shaped) -> None:
    """What a record of ours must hold, so that it can be changed later like any other."""
    if kind is TURN and "type" not in made.fields:
        made.fields["type"] = "message"
    if kind is TURN and "content" not in made.fields:
        made.add("content", "")
    if kind.text and not made.fields.get(kind.text) and kind is not TURN:
        made.add(kind.text, _in_words(made))
    for name in kind.required:
        if not isinstance(made.fields.get(name), str):
            if name in made.fields:
                made.kept[name] = made.fields.pop(name)
            made.add(name, "inferred" if name == "confidence" else _told(made.kept[name]) if name == kind.text else UNKNOWN)
    if kind.name == PREFERENCE.name and "topic" not in made.fields and isinstance(key := made.fields.get("key"), str):
        made.add("topic", key)


def _in_words(made: Shaped) -> str:
    """A text for what is said only in fields."""
    said = {**made.kept, **made.fields}
    if isinstance(key := said.get("key"), str) and "value" in said:
        return _told(f"{key}: {_told(said['value'])}")
    shown = {name: value for name, value in said.items() if name not in made.added}
    return _told(shown) if shown else "(nothing was said)"


def _told(value: Any) -> str:
    said = "; ".join(value) if is_list_of_texts(value) else value
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[: _TEXT_CHARACTERS - 1]}…"


# Whole records.


def record(
    memory_id: str, kind: Kind, at: str | None, fields: Mapping[str, Any], notes: Values, old_id: object, worn: Values
) -> Values:
    """A record of ours, in the order in which SMP writes one."""
    made: Values = {"id": memory_id}
    if kind is TURN:
        made["turn"] = int(memory_id.removeprefix("turn-"))
    if at is not None:
        made["timestamp"] = at
    made.update(fields)
    if old_id != memory_id or not isinstance(old_id, str):
        if isinstance(old_id, (str, int)):
            made[IMPORTED_ID] = str(old_id)
        notes[OLD_ID] = old_id
    return {**made, IMPORTED: notes, "decay": worn}


def without(original: Mapping[str, Any], names: Iterable[str], notes: Values) -> None:
    """Notes which of the usual fields an entry lacks."""
    if missing := [name for name in names if name not in original]:
        notes[WITHOUT] = missing


def old_id(value: Mapping[str, Any]) -> Any:
    notes = value[IMPORTED] if isinstance(value.get(IMPORTED), dict) else {}
    return notes.get(OLD_ID, value["id"])


def counted(worn: Mapping[str, Any], was: Mapping[str, Any]) -> Values:
    """When and how often it was read, for a layout in which that may be said."""
    told = {name: was[name] for name in ("last_accessed", "last_decay_update") if name in was}
    count = worn.get("access_count") or 0
    if is_count(was.get("access_count", 0)):
        return {**told, **({"access_count": count} if count or "access_count" in was else {})}
    return {**told, "access_count": was["access_count"]}


def settled(made: Values, original: Mapping[str, Any], back: Mapping[str, Any]) -> Values:
    """With the whole original where the way back does not lead there: so nothing that an entry says is ever lost."""
    if not is_exactly(back, original):
        for name in (NAMES, ADDED, KEPT, WITHOUT):
            made[IMPORTED].pop(name, None)
        made[IMPORTED][ORIGINAL] = dict(original)
    return made
