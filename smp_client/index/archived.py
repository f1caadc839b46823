"""An archived session as one memory, with a text that can be searched: the facts of its bundle.

Anybody may have made the bundle: facts of another form than SMP gives them are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..text.contents import check_tags
from ..text.values import Value

STATE, EVICTED = "archived", "evicted"  # the marks of memories that are in a bundle
AWAY = (STATE, EVICTED)
ID = TYPE = "summary"


def is_away(marks: Iterable[str]) -> bool:
    """Return whether a memory with these marks is in a bundle: archived, or evicted by compaction."""
    return any(mark in AWAY for mark in marks)


def as_memory(summary: Mapping[str, Value]) -> dict[str, Value]:
    """Return the fields of the memory. Its tags are the session's, and its topics."""
    tags = dict.fromkeys(name for name in (*_texts(summary.get("tags")), *topics_of(summary)) if _is_tag(name))
    return {**summary, "id": ID, "timestamp": summary.get("last_activity") or summary.get("archived_at"), "tags": list(tags)}


def metadata_of(summary: Mapping[str, Value]) -> dict[str, Value]:
    """Return what the session's metadata said, as far as its summary still says it."""
    context = {"project_name": "project", "project_phase": "phase", "primary_topic": "topic", "tags": "tags"}
    return {"created_at": summary.get("created_at"), "context": {name: summary.get(said) for name, said in context.items()}}


def topics_of(summary: Mapping[str, Value]) -> list[str]:
    return _each(summary.get("topics"), ("name",))


def told(summary: Mapping[str, Value]) -> str:
    """All that it says, for whoever reads or searches it."""
    participants = _each(summary.get("participants"), ("name",))
    parts = {
        "": ", ".join(_texts([summary.get("topic"), summary.get("project"), summary.get("phase")])),
        "Topics": ", ".join(dict.fromkeys([*_texts(summary.get("tags")), *topics_of(summary)])),
        "Took part": ", ".join(dict.fromkeys([*_texts(summary.get("user")), *participants])),
        "Decisions": _listed(summary.get("decisions"), ("id", "text")),
        "Open findings": _listed(summary.get("open_findings"), ("id", "severity", "text")),
        "Preferences": _listed(summary.get("preferences"), ("id", "text")),
        "Learnings": _listed(summary.get("learnings"), ("id", "text")),
        "Said last": _listed(summary.get("last_turns"), ("speaker", "text")),
    }
    return "\n".join(f"{name}: {text}" if name else text for name, text in parts.items() if text)


def _listed(value: Value, fields: Sequence[str]) -> str:
    return "".join(f"\n- {text}" for text in _each(value, fields))


def _each(value: Value, fields: Sequence[str]) -> list[str]:
    """What these fields say, of each mapping in a list."""
    items = value if isinstance(value, list) else ()
    said = (" ".join(_texts([item.get(field) for field in fields])) for item in items if isinstance(item, dict))
    return [text for text in said if text]


def _texts(value: Value) -> list[str]:
    given: Iterable[Value] = value if isinstance(value, list) else [value]
    return [item for item in given if isinstance(item, str) and item]


def _is_tag(name: str) -> bool:
    problems: list[str] = []
    check_tags([name], problems)
    return not problems
