"""The fields of a new or changed memory: checked, with every problem at once, and without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from ..model.errors import Invalid
from ..model.record import (
    CHOICES,
    CONTENT_CAP_BYTES,
    DELETED_TURN,
    KEY_CAP_CHARACTERS,
    TURN,
    Kind,
    is_deleted,
)
from ..model.times import parse_time, render_time
from ..redaction.redact import FIELD, Redaction, harmless, with_counts
from .values import Value

_DEPTH_CAP = 32
_PROBLEM_CAP = 100
_TAG = re.compile(r"[^\W_][\w.-]{0,31}")
_REDACTION = Redaction()


def new_fields(kind: Kind, fields: Mapping[str, Any], at: datetime | str, redaction: Redaction = _REDACTION) -> dict[str, Value]:
    """The fields of a new record without its id, checked and in the form they are stored in, without secrets; every problem at
    once."""
    problems: list[str] = []
    body = plain_fields({key: value for key, value in fields.items() if value is not None}, problems)
    if not problems:
        body, _ = redaction.redacted_fields(body)
    given = ("id", "turn") if kind is TURN else ("id",)
    problems += [f"{name!r} of a {kind.type} is given by SMP" for name in given if name in body]
    stamp = _time("timestamp", at, problems)
    check(kind, body, problems)
    if problems:
        raise Invalid(problems)
    decay = body.pop("decay", None)
    return {
        "timestamp": stamp,
        **body,
        "decay": {
            "priority": kind.base_priority,
            "last_accessed": stamp,
            "access_count": 0,
            "base_priority": kind.base_priority,
            **(decay if isinstance(decay, dict) else {}),
        },
    }


def changed_fields(
    kind: Kind, old: Mapping[str, Value], changes: Mapping[str, Any], at: datetime, redaction: Redaction = _REDACTION
) -> dict[str, Value]:
    """The record with some fields replaced, without secrets; a field changed to None goes."""
    fixed = {"id", "timestamp", "turn"} | ({"content", "speaker", "type"} if kind is TURN else set())
    problems = [f"{name!r} of a {kind.type} cannot be changed" for name in sorted(fixed & changes.keys())]
    body = plain_fields({key: value for key, value in changes.items() if value is not None}, problems)
    body, kinds = redaction.redacted_value(body) if not problems else (body, {})
    new = {**old, **body, "updated_at": render_time(at)}
    if kinds:
        new = with_counts(new, new.get(FIELD), kinds)
    for key in [key for key, value in changes.items() if value is None]:
        new.pop(key, None)
    check(kind, new, problems)
    if problems:
        raise Invalid(problems)
    return new


def check(kind: Kind, body: Mapping[str, Value], problems: list[str]) -> None:
    for name in kind.required:
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            problems.append(f"{name!r} of a {kind.type} must be a text that is not empty")
    for (name, part), choices in CHOICES.items():
        if name == kind.name and body.get(part) is not None and body[part] not in choices:
            problems.append(f"{part!r} must be one of {', '.join(choices)}, not {_shown(body[part])}")
    check_tags(body.get("tags"), problems)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in _texts(dict(body)))
    if size > CONTENT_CAP_BYTES:
        problems.append(f"a {kind.type} may hold {CONTENT_CAP_BYTES:,} bytes of text, not {size:,}")
    if kind is TURN and (not str(body.get("speaker", "")).isprintable() or len(str(body.get("speaker", ""))) > 128):
        problems.append("'speaker' must be one printable line of at most 128 characters")
    if kind is TURN and not isinstance(body.get("content"), str):
        problems.append("what was said must be a text")
    if is_deleted(kind, body):
        problems.append(f"a turn of type {DELETED_TURN!r} must say something: without a text it is what a deleted turn leaves")
    if kind is TURN and not isinstance(body.get("memory_refs", []), list):
        problems.append("'memory_refs' must be a list of ids")


def check_tags(tags: Value, problems: list[str]) -> None:
    if tags is None:
        return
    if not isinstance(tags, list):
        problems.append("'tags' must be a list of texts")
        return
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            problems.append(f"tag {_shown(tag)} must be 1 to 32 letters, digits, '-', '_' or '.', beginning with a letter or digit")


def plain_parts(parts: Mapping[str, Any], redaction: Redaction) -> tuple[dict[str, Value], dict[str, int]]:
    """Parts of a file that is one mapping, as they are stored, without secrets; and how many of each kind these were."""
    problems: list[str] = []
    plain_ones = plain_fields(parts, problems)
    if problems:
        raise Invalid(problems)
    return redaction.redacted_value(plain_ones)


def plain_fields(fields: Mapping[str, Any], problems: list[str]) -> dict[str, Value]:
    """Fields by name, each as YAML can hold it."""
    return {_key(name, "the fields", problems): plain(value, name, problems) for name, value in fields.items()}


def plain(value: Any, where: str, problems: list[str], depth: int = 0) -> Value:
    """The value as YAML can hold it, or a problem that says where it cannot."""
    if len(problems) >= _PROBLEM_CAP:
        # Also ends the way through a value that contains itself.
        return None
    if depth > _DEPTH_CAP:
        problems.append(f"{where!r} is nested deeper than {_DEPTH_CAP} levels")
        return None
    if isinstance(value, str):
        return _text(value, where, problems)
    if value is None or isinstance(value, bool):
        return value
    # An enumeration or a NumPy number is shown in words of its own: store the bare number.
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if abs(value) >= 10**299:
            problems.append(f"{where!r} is too large a number")
            return None
        return int(value)
    if isinstance(value, (datetime, date)):
        return _time(where, value, problems)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{index}]", problems, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        keys = {_key(key, where, problems): item for key, item in value.items()}
        return {key: plain(item, f"{where}.{key}", problems, depth + 1) for key, item in keys.items()}
    storable = "text, numbers, true, false, null, times, lists and mappings"
    problems.append(f"{where!r} is a {type(value).__name__}; only {storable} can be stored")
    return None


def _key(key: Any, where: str, problems: list[str]) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= KEY_CAP_CHARACTERS:
        problems.append(f"a key of {where!r} must be a text of 1 to {KEY_CAP_CHARACTERS} characters, not {_shown(key)}")
        return _shown(key)
    return _text(key, where, problems)


def _text(text: str, where: str, problems: list[str]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        problems.append(f"{where!r} holds a lone surrogate, which is no character")
    return str.__str__(text)


def _time(where: str, value: Any, problems: list[str]) -> str:
    try:
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError("it has no time zone")
            return render_time(value)
        if isinstance(value, date):
            return value.isoformat()
        return render_time(parse_time(str(value)))
    except (ValueError, OverflowError) as error:
        problems.append(f"{where!r} is not an ISO 8601 time with a zone: {_shown(value)} ({error})")
        return render_time(datetime.fromtimestamp(0, UTC))


def _shown(value: Any) -> str:
    """The value as it may stand in a message: short, and without a secret."""
    try:
        text = harmless(repr(harmless(value) if isinstance(value, str) else value))
    except ValueError:
        # Python refuses to write out a number of thousands of digits.
        return "a huge number"
    return text if len(text) <= 80 else f"{text[:80]}…"


def _texts(value: Value) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *_texts(item))]
    return []
