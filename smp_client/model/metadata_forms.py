"""The values that make sense in the metadata of a session: each with its form, as JSON Schema.

A person may have written anything there. A value of another form is ignored, and the check names
it. So is a misspelt name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .nearest import misspelt, nearest
from .quotation import shown
from .times import time_of

Schema = Mapping[str, object]

STATUSES = ("active", "idle", "decaying", "archived", "deleted")
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TIME: Schema = {"type": "string", "format": "date-time"}
# By the place of the value: a name, or the part of the metadata and a name in it.
FORMS: Mapping[str, Schema] = {
    "id": {"type": "string"},
    "created_at": _TIME,
    "last_accessed": _TIME,
    "status": {"type": "string", "enum": STATUSES},
    "status_since": _TIME,
    "status_reason": {"type": "string"},
    "storage": {"type": "object"},
    "storage.total_bytes": _COUNT,
    "storage.quota_bytes": {"type": "integer", "exclusiveMinimum": 0},
    "storage.utilization_pct": {"type": "number", "minimum": 0},
    "storage.last_compaction": _TIME,
    "decay": {"type": "object"},
    "decay.base_priority": _SHARE,
    "decay.current_priority": _SHARE,
    "decay.decay_rate": {"type": "number", "minimum": 0},
    "decay.last_decay_update": _TIME,
    "participants": {"type": "object"},
    "participants.user_id": {"type": "string"},
    "participants.agents": {"type": "array"},
    "statistics": {"type": "object"},
    "context": {"type": "object"},
    "context.tags": {"type": "array"},
    "decay_config": {"type": "object"},
    "decay_config.enabled": _FLAG,
    "decay_config.half_life_hours": {"type": "number", "exclusiveMinimum": 0},
    "decay_config.min_decay_factor": _SHARE,
    "compaction_config": {"type": "object"},
    "compaction_config.auto_compact": _FLAG,
    "compaction_config.threshold": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "party_mode": _FLAG,
    "imported": {"type": "object"},
    "redacted": {"type": "object"},
}
_CLOSED = ("decay_config", "compaction_config")  # parts in which any other name is a mistake
_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def senseless(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for each value of the metadata that makes no sense, and is ignored."""
    for place, form in FORMS.items():
        part, _, name = place.rpartition(".")
        inner = metadata.get(part) if part else metadata
        value = inner.get(name) if isinstance(inner, Mapping) else None
        if value is not None and not fits(form, value):
            yield f"{place} must be {said(form)}, not {shown(value)}"
    yield from _misnamed("", metadata)
    for part in dict.fromkeys(place.partition(".")[0] for place in FORMS if "." in place):
        inner = metadata.get(part)
        if isinstance(inner, Mapping) and part != "context":
            yield from _misnamed(part, inner)


def _misnamed(part: str, given: Mapping[str, object]) -> Iterator[str]:
    """Yield the names in a part of the metadata that SMP does not know, and that were meant so."""
    before = f"{part}." if part else ""
    known = [place.removeprefix(before) for place in FORMS if place.startswith(before)]
    known = [name for name in known if "." not in name]
    for name in given:
        if name in known:
            continue
        is_closed = part in _CLOSED
        meant = nearest(str(name), known) if is_closed else misspelt(str(name), known)
        if meant:
            yield f"there is no {before}{name} (did you mean {before}{meant}?)"
        elif is_closed:
            yield f"there is no {before}{name}; {part} has {', '.join(known)}"


def fits(form: Schema, value: object) -> bool:
    """Return whether a value has this form."""
    kind = str(form["type"])
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if form.get("format") == "date-time":
        return time_of(value) is not None
    words = form.get("enum")
    if isinstance(words, tuple):
        return value in words
    return not isinstance(value, (int, float)) or _is_within(form, value)


def _is_within(form: Schema, value: float) -> bool:
    least = form.get("minimum", form.get("exclusiveMinimum"))
    most = form.get("maximum")
    if isinstance(least, int) and (value < least or (value == least and "minimum" not in form)):
        return False
    return not isinstance(most, int) or value <= most


def said(form: Schema) -> str:
    """Return a form in words, for "must be …"."""
    words = form.get("enum")
    if isinstance(words, tuple):
        return f"one of {', '.join(words)}"
    text = "a time as 2026-01-11T14:30:00Z" if "format" in form else _WORDS[str(form["type"])]
    if "exclusiveMinimum" in form:
        text += f" above {form['exclusiveMinimum']}"
        return text + (f" and at most {form['maximum']}" if "maximum" in form else "")
    if "maximum" in form:
        return f"{text} from {form['minimum']} to {form['maximum']}"
    return f"{text} of at least {form['minimum']}" if "minimum" in form else text
