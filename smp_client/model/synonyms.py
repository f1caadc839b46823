"""Other names that people and agents have for the fields of a memory.

They are understood in everything from outside: drops, `smp add`, records without an id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .errors import Invalid
from .record import Kind
from .times import time_of

_TEXT = ("text", "content", "message", "description")
_ACTOR = ("by", "author", "agent", "who", "agent_id", "role")
_OF_KIND = {"finding": ("issue",), "preference": ("value",)}  # further names of the text
_TIME = ("when", "time", "date", "ts")
_RATIONALE = ("why", "reason")
_TYPE = ("type", "kind")
UNKNOWN = "unknown"  # the author of a memory that names none
# Fields that SMP needs, by kind, as they are where nobody says otherwise.
USUAL: Mapping[str, Mapping[str, object]] = {
    "conversation_turn": {"type": "message"},
    "finding": {"severity": "medium", "resolution": {"status": "open"}},
    "preference": {"confidence": "inferred"},
}


def own_names(kind: Kind, fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields with another name, each with the name that this kind has for it.

    Where the own name is there, the other is a further field. So is a time that is no time.
    """
    others = {
        kind.text: (*_TEXT, *_OF_KIND.get(kind.name, ())),
        kind.actor: _ACTOR,
        "timestamp": _TIME,
        "rationale": _RATIONALE,
    }
    if kind.name == "preference":
        others["topic"] = ("key",)
    return _matched(others, fields)


def with_own_names(kind: Kind, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, in their order, under the names that this kind has for them."""
    return _renamed(fields, own_names(kind, fields))


def with_names_of_a_resolution(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a finding's resolution under the names that SMP has for them."""
    return _renamed(fields, _matched({"action_taken": _TEXT, "resolved_by": _ACTOR}, fields))


def unfolded(memory: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the type of a memory, and its fields; those inside of `content` among them.

    `turn_type` is the type of a turn, since `type` names its kind.
    """
    if not isinstance(memory, Mapping):
        raise Invalid(["a memory must be a mapping with its type and its fields"])
    fields = dict(memory)
    type = str(fields.pop("type", ""))
    content = fields.get("content")
    if isinstance(content, Mapping):
        del fields["content"]
        fields = {**content, **fields}
    if "turn_type" in fields:
        fields["type"] = fields.pop("turn_type")
    return type, fields


def taken_type(fields: dict[str, Any], known: Collection[str]) -> str | None:
    """Take the name of a known kind out of the fields, and return it; None where there is none."""
    named = next((name for name in _TYPE if str(fields.get(name)) in known), None)
    return None if named is None else str(fields.pop(named))


def _matched(others: Mapping[str, tuple[str, ...]], fields: Mapping[str, Any]) -> dict[str, str]:
    matched: dict[str, str] = {}
    for own, names in others.items():
        for name in names if own not in fields else ():
            if name in fields and (own != "timestamp" or time_of(str(fields[name]))):
                matched[name] = own
                break
    return matched


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}
