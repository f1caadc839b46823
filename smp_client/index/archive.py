"""An archived session as one memory: the facts of its bundle, with a text that can be searched.

Anybody may have made the bundle: facts of another form than SMP gives them are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..text.contents import check_tags
from ..text.values import Value

STATE, EVICTED = "archived", "evicted"  # the marks of memories that are in a bundle
AWAY = (STATE, EVICTED)
ID = TYPE = "summary"
_LISTS = {
    "decisions": ("Decisions", "id", "text"),
    "open_findings": ("Open findings", "id", "severity", "text"),
    "preferences": ("Preferences", "id", "text"),
    "learnings": ("Learnings", "id", "text"),
    "last_turns": ("Said last", "speaker", "text"),
}


def is_away(marks: Iterable[str]) -> bool:
    """Return whether a memory with these marks is in a bundle."""
    return any(mark in AWAY for mark in marks)


def as_memory(summary: Mapping[str, Value]) -> dict[str, Value]:
    """Return the fields of the memory. Its tags are the session's, and its topics."""
    names = dict.fromkeys([*_texts(summary.get("tags")), *topics_of(summary)])
    stamp = summary.get("last_activity") or summary.get("archived_at")
    return {**summary, "id": ID, "timestamp": stamp, "tags": [*filter(_is_tag, names)]}


def metadata_of(summary: Mapping[str, Value]) -> dict[str, Value]:
    """Return the session's metadata, as far as its summary has it."""
    context = {"project_name": "project", "project_phase": "phase", "primary_topic": "topic"}
    about = {name: summary.get(said) for name, said in {**context, "tags": "tags"}.items()}
    return {"created_at": summary.get("created_at"), "context": about}


def topics_of(summary: Mapping[str, Value]) -> list[str]:
    return _each(summary.get("topics"), ("name",))


def told(summary: Mapping[str, Value]) -> str:
    """Return all facts as one text, to be read or searched."""
    participants = _each(summary.get("participants"), ("name",))
    parts = {
        "": _texts([summary.get(name) for name in ("topic", "project", "phase")]),
        "Topics: ": dict.fromkeys([*_texts(summary.get("tags")), *topics_of(summary)]),
        "Took part: ": dict.fromkeys([*_texts(summary.get("user")), *participants]),
    }
    lines = [f"{name}{', '.join(said)}" for name, said in parts.items() if said]
    for field, (title, *fields) in _LISTS.items():
        if items := _each(summary.get(field), fields):
            lines.append("\n- ".join([f"{title}: ", *items]))
    return "\n".join(lines)


def _each(value: Value, fields: Iterable[str]) -> list[str]:
    """Return the texts of these fields, of each mapping in a list."""
    items = value if isinstance(value, list) else ()
    mappings = [item for item in items if isinstance(item, dict)]
    said = (" ".join(_texts([item.get(field) for field in fields])) for item in mappings)
    return [text for text in said if text]


def _texts(value: Value) -> list[str]:
    given = value if isinstance(value, list) else [value]
    return [item for item in given if isinstance(item, str) and item]


def _is_tag(name: str) -> bool:
    problems: list[str] = []
    check_tags([name], problems)
    return not problems
