"""What an archived session still says: its summary, as one memory and as a text that can be searched.

Anybody may have edited the file: what has another form than SMP gives it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .records import check_tags
from .scopes import SUMMARY
from .text.mapping import load_mapping
from .text.values import Value

TOP = "archive"  # the key above all that stands in the file
STATE = "archived"
_PACKING = ("members", "directory")  # what it says of the packing, and nobody would ask for
ID = TYPE = "summary"


def load(content: bytes) -> dict[str, Value]:
    """What the summary of an archived session says; nothing where the file is empty."""
    return load_mapping(content, TOP, SUMMARY)


def as_memory(summary: Mapping[str, Value]) -> dict[str, Value]:
    """The fields of the memory: the summary without the list of what is packed away. Its tags are the session's, and its topics."""
    said = {name: value for name, value in summary.items() if name not in _PACKING}
    tags = dict.fromkeys(name for name in (*_texts(summary.get("tags")), *topics_of(summary)) if _is_tag(name))
    return {**said, "id": ID, "timestamp": summary.get("last_activity") or summary.get("archived_at"), "tags": list(tags)}


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
