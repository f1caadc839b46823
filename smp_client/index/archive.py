"""An archived session as one memory: the facts of its bundle, with a text that can be searched.

Anybody may have made the bundle: facts of another form than SMP gives them are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..text.values import Value

STATE, EVICTED = "archived", "evicted"  # the marks of memories that are in a bundle
ID = TYPE = "summary"


def is_away(marks: Iterable[str]) -> bool:
    """Return whether a memory with these marks is in a bundle."""
    return any(mark in (STATE, EVICTED) for mark in marks)


def as_memory(facts: Mapping[str, Value]) -> dict[str, Value]:
    """Return the fields of the memory. Its tags are the session's, and its topics."""
    tags, topics = facts.get("tags"), facts.get("topics")
    names = [*tags] if isinstance(tags, list) else []
    for one in topics if isinstance(topics, list) else ():
        names.append(one.get("name") if isinstance(one, dict) else None)
    stamp = facts.get("last_activity") or facts.get("archived_at")
    named = dict.fromkeys(name for name in names if isinstance(name, str))
    return {**facts, "id": ID, "timestamp": stamp, "tags": list(named)}


def metadata_of(facts: Mapping[str, Value]) -> dict[str, Value]:
    """Return the session's metadata, as far as the facts have it."""
    context = {"project_name": "project", "project_phase": "phase", "primary_topic": "topic"}
    about = {name: facts.get(said) for name, said in {**context, "tags": "tags"}.items()}
    return {"created_at": facts.get("created_at"), "context": about}
