"""The fields of a new or changed memory: checked, with every problem at once, without secrets.

JSON that anybody may have written is checked by the same rules.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from ..model.deadline import stepping
from ..model.errors import Invalid
from ..model.fields import fields_of, misspellings, misspelt_status
from ..model.quotation import shown
from ..model.record import (
    CHOICES,
    CONTENT_CAP_BYTES,
    DELETED_TURN,
    FINDING,
    KEY_CAP_CHARACTERS,
    TURN,
    Kind,
    is_deleted,
)
from ..model.times import parse_time, render_time
from ..redaction.redact import FIELD, Redaction, with_counts
from .values import Value

_DEPTH_CAP = 32
_PROBLEM_CAP = 100
_REDACTION = Redaction()


def new_fields(
    kind: Kind, fields: Mapping[str, Any], at: datetime | str, redaction: Redaction = _REDACTION
) -> dict[str, Value]:
    """Return the fields of a new record without its id, as they are stored, without secrets."""
    problems: list[str] = []
    given = {key: value for key, value in fields.items() if value is not None}
    body = plain_fields(given, problems)
    problems += misspellings(body, fields_of(kind))
    problems += misspelt_status(body)
    _refuse_nul(body, problems)
    if not problems:
        body, _ = redaction.redacted_fields(body)
    for name in ("id", "turn") if kind is TURN else ("id",):
        if name in body:
            problems.append(f"{name!r} of a {kind.type} is given by SMP")
    stamp = _time("timestamp", at, problems)
    check(kind, body, problems)
    base = _importance(body, kind.base_priority, problems)
    if problems:
        raise Invalid(problems)
    if kind is FINDING:
        body = _with_status(body, body)
    decay: dict[str, Value] = {
        "priority": base, "last_accessed": stamp, "access_count": 0, "base_priority": base,
    }  # fmt: skip
    own = body.pop("decay", None)
    return {"timestamp": stamp, **body, "decay": decay | (own if isinstance(own, dict) else {})}


def changed_fields(
    kind: Kind, old: Mapping[str, Value], changes: Mapping[str, Any], at: datetime,
    redaction: Redaction = _REDACTION,
) -> dict[str, Value]:  # fmt: skip
    """Return the record with some fields replaced, without secrets; one changed to None goes."""
    fixed = {"id", "timestamp", "turn"}
    fixed |= {"content", "speaker", "type"} if kind is TURN else set()
    wrong = sorted(fixed & changes.keys())
    problems = [f"{name!r} of a {kind.type} cannot be changed" for name in wrong]
    given = {key: value for key, value in changes.items() if value is not None}
    body = plain_fields(given, problems)
    problems += misspellings(body.keys() - old.keys(), fields_of(kind))
    problems += misspelt_status(body)
    _refuse_nul(body, problems)
    body, kinds = redaction.redacted_value(body) if not problems else (body, {})
    _importance(body, kind.base_priority, problems)
    new = {**old, **body, "updated_at": render_time(at)}
    if kind is FINDING and "superseded_by" not in body:
        new = _with_status(new, body)
    if kinds:
        new = with_counts(new, new.get(FIELD), kinds)
    for key in changes.keys() - given.keys():
        new.pop(key, None)
    check(kind, new, problems)
    if problems:
        raise Invalid(problems)
    return new


def _refuse_nul(fields: Mapping[str, Value], problems: list[str]) -> None:
    """Add each field with a NUL: YAML and Markdown cannot hold one, and a blank is another text."""
    for name, value in fields.items():
        if _has_nul(value):
            problems.append(f"{name!r} holds a NUL character (\\0), which no text can have")


def _has_nul(value: Value) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))


def _importance(given: Mapping[str, Value], usual: float, problems: list[str]) -> float:
    """Return the importance that the fields give, which is the first priority; else the usual."""
    value = given.get("importance")
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        problems.append(f"'importance' must be a number from 0 to 1, not {shown(value)}")
        return usual
    return float(value)


def _with_status(finding: dict[str, Value], given: Mapping[str, Value]) -> dict[str, Value]:
    """Return a finding with the status that was given in its resolution, the only place for it."""
    status = given.get("status")
    if not isinstance(status, str):
        return finding
    resolution = finding.get("resolution")
    known = resolution if isinstance(resolution, dict) else {}
    others = {name: value for name, value in finding.items() if name != "status"}
    return {**others, "resolution": {**known, "status": status}}


def check(kind: Kind, body: Mapping[str, Value], problems: list[str]) -> None:
    """Add every reason why a memory of this kind cannot have these fields."""
    for name in kind.required:
        value = body.get(name)
        if not isinstance(value, str) or not value.strip():
            problems.append(f"{name!r} of a {kind.type} must be a text that is not empty")
    for (name, part), choices in CHOICES.items():
        if name == kind.name and body.get(part) is not None and body[part] not in choices:
            given = shown(body[part])
            problems.append(f"{part!r} must be one of {', '.join(choices)}, not {given}")
    check_tags(body.get("tags"), problems)
    size = size_of(dict(body))
    if size > CONTENT_CAP_BYTES:
        problems.append(f"a {kind.type} may hold {CONTENT_CAP_BYTES:,} bytes of text, not {size:,}")
    if kind is not TURN:
        return
    speaker = str(body.get("speaker", ""))
    if not speaker.isprintable() or len(speaker) > 128:
        problems.append("'speaker' must be one printable line of at most 128 characters")
    if not isinstance(body.get("content"), str):
        problems.append("the text of a turn must be a text")
    if is_deleted(kind, body):
        problems.append(f"a turn of type {DELETED_TURN!r} must have a text: a deleted one has none")
    if not isinstance(body.get("memory_refs", []), list):
        problems.append("'memory_refs' must be a list of ids")


def check_tags(tags: Value, problems: list[str]) -> None:
    if tags is not None and not isinstance(tags, list):
        problems.append("'tags' must be a list of texts")
        return
    signs = "must be 1 to 32 letters, digits, '-', '_' or '.', beginning with a letter or digit"
    for tag in tags or []:
        if not isinstance(tag, str) or not re.fullmatch(r"[^\W_][\w.-]{0,31}", tag):
            problems.append(f"tag {shown(tag)} {signs}")


def plain_parts(
    parts: Mapping[str, Any], redaction: Redaction, *, tagged: bool = False
) -> tuple[dict[str, Value], dict[str, int]]:
    """Return parts of a mapping as they are stored, and the number of secrets of each kind."""
    problems: list[str] = []
    fields = plain_fields(parts, problems)
    _refuse_nul(fields, problems)
    if tagged:
        check_tags(fields.get("tags"), problems)
    if problems:
        raise Invalid(problems)
    return redaction.redacted_value(fields)


def plain_fields(fields: Mapping[str, Any], problems: list[str]) -> dict[str, Value]:
    """Return fields by name, each as YAML can hold it."""
    return {
        _key(name, "the fields", problems): plain(value, name, problems)
        for name, value in fields.items()
    }


def plain(value: Any, where: str, problems: list[str], depth: int = 0) -> Value:
    """Return the value as YAML can hold it, or add a problem that says where it cannot."""
    if len(problems) >= _PROBLEM_CAP:
        return None  # also ends the way through a value that contains itself
    if depth > _DEPTH_CAP:
        problems.append(f"{where!r} is nested deeper than {_DEPTH_CAP} levels")
        return None
    if isinstance(value, str):
        return _text(value, where, problems)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        if not abs(value) < (math.inf if isinstance(value, float) else 10**299):
            problems.append(f"{where!r} is a number that is none, or too large")
            return None
        # An enumeration or a NumPy number is shown in words of its own: store the bare number.
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, (datetime, date)):
        return _time(where, value, problems)
    if isinstance(value, (list, tuple)):
        items = enumerate(stepping(value))
        return [plain(item, f"{where}[{index}]", problems, depth + 1) for index, item in items]
    if isinstance(value, Mapping):
        keys = {_key(key, where, problems): item for key, item in value.items()}
        inner = ((key, item, f"{where}.{key}") for key, item in stepping(keys.items()))
        return {key: plain(item, name, problems, depth + 1) for key, item, name in inner}
    problems.append(f"{where!r} is a {type(value).__name__}, which cannot be stored")
    return None


def _key(key: Any, where: str, problems: list[str]) -> str:
    if isinstance(key, str) and 0 < len(key) <= KEY_CAP_CHARACTERS:
        return _text(key, where, problems)
    wanted = f"a text of 1 to {KEY_CAP_CHARACTERS} characters"
    problems.append(f"a key of {where!r} must be {wanted}, not {shown(key)}")
    return shown(key)


def _text(text: str, where: str, problems: list[str]) -> str:
    if type(text) is str and text.isascii():
        return text
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
        problems.append(f"{where!r} is not an ISO 8601 time with a zone: {shown(value)} ({error})")
        return render_time(datetime.fromtimestamp(0, UTC))


def size_of(value: Value) -> int:
    """Return the bytes of all texts in a value, keys among them."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        return sum(map(size_of, value)) + sum(map(size_of, value.values()))
    return sum(map(size_of, value)) if isinstance(value, list) else 0


# JSON.


def parse_object(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return one object that can be kept, or None and the reason."""
    value, problem = parse_json(raw)
    if problem or isinstance(value, dict):
        return value, problem
    return None, "it must be an object, in braces"


def parse_json(raw: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or None and the reason why it cannot be kept.

    A text is refused whole where a reader could take it for more than one thing.
    """
    try:
        value = _DECODER.decode(raw.decode().lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    problems: list[str] = []
    kept = plain(value, "it", problems, depth=-1)
    if problems:
        return None, problems[0]
    if len(raw) > CONTENT_CAP_BYTES and (size := size_of(kept)) > CONTENT_CAP_BYTES:
        return None, f"its texts hold {size:,} bytes; a memory may hold {CONTENT_CAP_BYTES:,}"
    return kept, ""


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key stands twice")
    return mapping


_DECODER = json.JSONDecoder(object_pairs_hook=_mapping)
