"""Other names that people and agents have for the fields of a memory, and the names that SMP has for them.

They are understood in what comes in from outside: drops, `smp add --yaml`, records that were written without an id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .record import Kind
from .times import parse_time

_TEXT = ("text", "content")
_ACTOR = ("by", "author", "agent", "who")
_TIME = ("when", "time", "date")
_RATIONALE = ("why", "reason")
_TYPE = ("type", "kind")


def own_names(kind: Kind, fields: Mapping[str, Any]) -> dict[str, str]:
    """Return which of the fields have another name, each with the name that this kind has for it.

    A name is read as another one only where the own name is missing; else it is a further field. So is a time that is no time.
    """
    return _matched({kind.text: _TEXT, kind.actor: _ACTOR, "timestamp": _TIME, "rationale": _RATIONALE}, fields)


def with_own_names(kind: Kind, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, in their order, under the names that this kind has for them."""
    return _renamed(fields, own_names(kind, fields))


def with_names_of_a_resolution(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of what resolves a finding under the names that SMP has for them."""
    return _renamed(fields, _matched({"action_taken": _TEXT, "resolved_by": _ACTOR}, fields))


def taken_type(fields: dict[str, Any], known: Collection[str]) -> str | None:
    """Take out of the fields, and return, the name of the kind that they are of; None where they name no known one."""
    named = next((name for name in _TYPE if str(fields.get(name)) in known), None)
    return None if named is None else str(fields.pop(named))


def _matched(others: Mapping[str, tuple[str, ...]], fields: Mapping[str, Any]) -> dict[str, str]:
    matched: dict[str, str] = {}
    for own, names in others.items():
        if own not in fields:
            fitting = [name for name in names if name in fields and (own != "timestamp" or _is_time(fields[name]))]
            matched |= dict.fromkeys(fitting[:1], own)
    return matched


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in fields.items()}


def _is_time(value: Any) -> bool:
    try:
        parse_time(str(value))
    except (ValueError, OverflowError):
        return False
    return True
