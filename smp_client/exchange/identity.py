"""Which memory is which: what one says, what it was known as before, and whether somebody has changed it since it came.

Beside what it came with, a memory from another layout keeps under `imported` a `digest` of what it said then. So it can be told
whether it was changed here, or where it comes from. Turns of a log have none: continuing.py knows them by their text.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Container, Iterable, Mapping
from typing import Any

from ..maintain.putting_back import number_of
from ..records import TURN, Kind
from ..text.values import Value, canonical

IMPORTED, IMPORTED_ID, DIGEST = "imported", "imported_id", "digest"
LOG = "markdown-log"
_HALF, _WORDS = 0.5, 300
_OLD_ID = "id"  # below `imported`: what stood there in its place
_PARENT = "parent_message_id"  # in the context of a turn from elsewhere
_REFERENCES = ("memory_refs", "references", "source", "target", "turn_ref")
_NOT_SAID = ("id", "turn", IMPORTED_ID, "decay", *_REFERENCES)
# What other programs go on changing in an entry that is kept as a whole, below `imported`: how much it matters, not what it says.
_CHANGING = ("priority", "access", "decay_factor", "access_count", "last_accessed", "last_decay_update")
_MARKS = frozenset(("deleted", "tombstone", "deleted_at", "deleted_by"))  # and whether it is deleted there: for removed.py
Values = dict[str, Value]


def is_same(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether two memories of one id say the same; how they have decayed since is not what they say."""
    return _without(_settled(one), ("decay",)) == _without(_settled(other), ("decay",))


def is_of_a_log(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Of one turn of a log, which refers to what was taken out of its text: more or less of that, as was asked for."""
    notes, others = one.get(IMPORTED), other.get(IMPORTED)
    return isinstance(notes, dict) and notes == others and notes.get("layout") == LOG


def said(value: Mapping[str, Value]) -> bytes:
    """All but what may become another when it is imported."""
    return _without(_settled(value), _NOT_SAID)


def is_same_in_words(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    """Whether only the layouts that they come from have other forms for it."""
    names = (*_NOT_SAID, IMPORTED)
    return _without(_settled(one), names) == _without(_settled(other), names)


def known_before(kind: Kind, value: Mapping[str, Value]) -> str | None:
    """What a memory was known as where it comes from: by its id there, or, where it had none, by its words."""
    if isinstance(old := value.get(IMPORTED_ID), str):
        return old
    notes = notes_of(value)
    if notes.get("extracted"):
        return f"{value.get('turn_ref')}\n{value.get(kind.text)}"
    return f"\n{value.get('timestamp')}\n{value.get(kind.text)}" if has_no_id_there(value) else None


def known_as(kind: Kind, value: Mapping[str, Value]) -> set[str]:
    """Every name that it had before; two entries of one id there have got ids by which they can be told apart."""
    old, first = known_before(kind, value), notes_of(value).get(_OLD_ID)
    return {str(one) for one in (old, first) if one is not None}


def is_another(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Whether two turns only have the same number: it says nothing where both had names before."""
    if kind is not TURN:
        return False
    own, theirs = known_as(kind, here), known_as(kind, value)
    return bool(own and theirs) and own.isdisjoint(theirs)


def has_no_id_there(value: Mapping[str, Value]) -> bool:
    """Whether its id is only a number that it has got here, and may be another the next time."""
    notes = notes_of(value)
    return _OLD_ID in notes and notes[_OLD_ID] is None


def notes_of(value: Mapping[str, Any]) -> Mapping[str, Any]:
    notes = value.get(IMPORTED)
    return notes if isinstance(notes, dict) else {}


def is_from_log(value: Mapping[str, Value]) -> bool:
    return notes_of(value).get("layout") == LOG


# Changes.


def digest_of(value: Mapping[str, Value]) -> str:
    return hashlib.sha256(said(value)).hexdigest()[:12]


def with_digest(record: Values) -> Values:
    """As it comes from another layout; one of our own that comes back from there is as it was."""
    notes = record.get(IMPORTED)
    if not isinstance(notes, dict) or is_from_log(record):
        return record
    return {**record, IMPORTED: {**notes, DIGEST: digest_of(record)}}


def is_as_it_came(here: Mapping[str, Value]) -> bool | None:
    """None where nobody knows what it said when it came."""
    came = notes_of(here).get(DIGEST)
    return None if came is None else came == digest_of(here)


def has_grown(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Whether a log says more than it did, of the same turn or in the same mark."""
    text, longer = here.get(kind.text), value.get(kind.text)
    if not (isinstance(text, str) and text and isinstance(longer, str) and len(longer) > len(text) and longer.startswith(text)):
        return False
    same = ("timestamp", "turn_ref", kind.actor)
    return is_of_a_log(here, value) and all(here.get(name) == value.get(name) for name in same)


def longer(kind: Kind, here: Values, value: Values) -> Values:
    refs, further = here.get("memory_refs"), value.get("memory_refs")
    named: Value = list(dict.fromkeys([*(refs if isinstance(refs, list) else ()), *(further if isinstance(further, list) else ())]))
    rest = {name: part for name, part in here.items() if name != "decay"}
    return {**rest, **({"memory_refs": named} if named else {}), kind.text: value[kind.text],
            **({"decay": here["decay"]} if "decay" in here else {})}  # fmt: skip


def renewed(here: Values, value: Values) -> Values:
    """What is said there, in the place of what stands here."""
    own = ("id", "turn", IMPORTED_ID, "decay")
    rest = {name: part for name, part in value.items() if name not in own}
    kept = {name: here[name] for name in own if name in here}
    return {**{name: part for name, part in kept.items() if name != "decay"}, **rest,
            **({"decay": kept["decay"]} if "decay" in kept else {})}  # fmt: skip


def is_changed_here(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Of two of one time: whether somebody has changed the one here since it came; a turn of a log also by hand, in its file. Of
    two that are ours, here and in an export, nobody can say which was changed."""
    own, theirs = here.get("updated_at"), value.get("updated_at")
    if isinstance(own, str):
        return not isinstance(theirs, str) or theirs < own
    if is_from_log(here):
        return kind is TURN and is_of_a_log(here, value)
    if IMPORTED in here or IMPORTED in value:
        return IMPORTED in here and IMPORTED in value
    is_by_its_own_id = here.get("id") == value.get("id") and not known_as(kind, here) and not known_as(kind, value)
    return is_by_its_own_id and is_alike(kind, here, value)


def is_alike(kind: Kind, here: Mapping[str, Value], value: Mapping[str, Value]) -> bool:
    """Whether two of one id and one time can be two versions of one memory: they have half of their words in common. Two programs
    may give one id to two memories in the same second; neither must take the place of the other."""
    if has_no_id_there(value):
        return False  # its id is none by which it could be known
    own, theirs = (str(one.get(kind.text)).split()[:_WORDS] for one in (here, value))
    return own == theirs or difflib.SequenceMatcher(None, own, theirs, autojunk=False).ratio() >= _HALF


def _settled(value: Mapping[str, Value]) -> Mapping[str, Value]:
    """Without what changes in the place that it comes from while it says the same."""
    notes, around = value.get(IMPORTED), value.get("context")
    if isinstance(notes, dict):
        notes = _unmarked(_unnumbered(notes))
        if not notes:
            value = {name: part for name, part in value.items() if name != IMPORTED}
        elif notes is not value[IMPORTED]:
            value = {**value, IMPORTED: notes}
    if isinstance(notes, dict) and isinstance(whole := notes.get("original"), dict) and not whole.keys().isdisjoint(_CHANGING):
        rest: Value = {name: part for name, part in whole.items() if name not in _CHANGING}
        value = {**value, IMPORTED: {**notes, "original": rest}}
    if isinstance(around, dict) and _PARENT in around:
        value = {**value, "context": {name: part for name, part in around.items() if name != _PARENT}}
    return value


def _unnumbered(notes: Values) -> Values:
    """Without what was noted of its id, of what it refers to, and of what it said when it came."""
    added = notes.get("added")
    if notes.keys().isdisjoint((DIGEST, _OLD_ID)) and not (isinstance(added, list) and "turn_ref" in added):
        return notes
    rest = {name: part for name, part in notes.items() if name not in (DIGEST, _OLD_ID, "added")}
    others: Value = [name for name in added if name != "turn_ref"] if isinstance(added, list) else added
    return {**rest, "added": others} if others else rest


def _unmarked(notes: Values) -> Values:
    """Without what says that it is deleted there: a mark, or a field of an entry."""
    marked = {name: part for name in ("kept", "outside", "original")
              if isinstance(part := notes.get(name), dict) and not part.keys().isdisjoint(_MARKS)}  # fmt: skip
    if not marked and notes.keys().isdisjoint(_MARKS):
        return notes
    bare = {name: part for name, part in notes.items() if name not in _MARKS and name not in marked}
    further = {name: {field: value for field, value in part.items() if field not in _MARKS} for name, part in marked.items()}
    return {**bare, **{name: part for name, part in further.items() if part}}


def _without(value: Mapping[str, Value], names: Iterable[str]) -> bytes:
    return canonical({name: part for name, part in value.items() if name not in names})


def referring(value: Values, renamed: Mapping[str, str]) -> Values:
    """With references to what has got another id."""
    if not renamed or (value.keys().isdisjoint(_REFERENCES) and "context" not in value):
        return value
    new: dict[str, Any] = dict(value)
    for name in ("memory_refs", "references"):
        if isinstance(listed := value.get(name), list):
            new[name] = [renamed.get(one, one) if isinstance(one, str) else one for one in listed]
    for name in ("source", "target"):
        if isinstance(one := value.get(name), str):
            new[name] = renamed.get(one, one)
    if isinstance(around := value.get("context"), dict) and isinstance(parent := around.get(_PARENT), str) and parent in renamed:
        new["context"] = {**around, _PARENT: renamed[parent]}
    if isinstance(turn := value.get("turn_ref"), int) and (moved := renamed.get(f"turn-{turn}")):
        new["turn_ref"] = number_of(TURN, moved)
    return new


def refers_to_the_same(meant: Mapping[str, Value], here: Mapping[str, Value], known: Container[str]) -> bool:
    """Whether one refers here to all that the other does; of what is not known there nobody can say what it was."""
    if any(meant.get(name) != here.get(name) for name in ("source", "target")):
        return False
    listed = [one for name in ("memory_refs", "references") if isinstance(part := here.get(name), list) for one in part]
    for name in ("memory_refs", "references"):
        wanted = meant.get(name)
        if isinstance(wanted, list) and any(one in known and one not in listed for one in wanted if isinstance(one, str)):
            return False
    turn = f"turn-{meant.get('turn_ref')}"
    return meant.get("turn_ref") == here.get("turn_ref") or turn not in known or turn in listed
