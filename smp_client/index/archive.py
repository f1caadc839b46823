"""An archived session is one memory more: a summary, which has the facts of its bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..text.values import Value

STATE, EVICTED = "archived", "evicted"  # the marks of memories that are in a bundle
ID = TYPE = "summary"


def is_away(marks: Iterable[str]) -> bool:
    """Return whether a memory with these marks is in a bundle."""
    return any(mark in (STATE, EVICTED) for mark in marks)


def metadata_of(facts: Mapping[str, Value]) -> dict[str, Value]:
    """Return the session's metadata, as far as the facts have it."""
    context = {"project_name": "project", "project_phase": "phase", "primary_topic": "topic"}
    about = {name: facts.get(said) for name, said in {**context, "tags": "tags"}.items()}
    return {"created_at": facts.get("created_at"), "context": about}
