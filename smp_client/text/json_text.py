"""JSON that anybody may have written, read strictly.

A text is refused whole where a reader could take it for more than one thing (a key that stands
twice), or where a record could not keep it (a number that is none, half a character, deep nesting).
"""

from __future__ import annotations

import json
import math
from typing import Any

from ..model.record import CONTENT_CAP_BYTES, KEY_CAP_CHARACTERS
from .values import DEPTH_CAP

_LEVELS = DEPTH_CAP - 6  # the levels that are left inside a record
_LARGEST_NUMBER = 10**299  # YAML takes more digits than that for a text
_DIGITS = 300


def parse_object(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return one object that can be kept, or None and the reason."""
    value, problem = parse(raw)
    if problem:
        return None, problem
    return (value, "") if isinstance(value, dict) else (None, "it must be an object, in braces")


def parse(raw: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or None and the reason why it cannot be kept."""
    try:
        value = _DECODER.decode(raw.decode().lstrip("\ufeff"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except RecursionError:
        return None, f"nested deeper than {_LEVELS} levels"
    except ValueError as error:
        return None, f"not JSON: {error}"
    if (
        len(raw) <= CONTENT_CAP_BYTES
        and b"\\u" not in raw
        and raw.count(b"{") + raw.count(b"[") < _LEVELS
    ):
        return value, ""  # almost always: its bytes show that there is nothing to look for
    size = [0]
    problem = _problem(value, 0, size)
    if not problem and size[0] > CONTENT_CAP_BYTES:
        problem = f"its texts hold {size[0]:,} bytes; a memory may hold {CONTENT_CAP_BYTES:,}"
    return (None, problem) if problem else (value, "")


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError("it holds too large a number")
    return value


def _whole(number: str) -> int:
    if len(number) > _DIGITS or abs(int(number)) >= _LARGEST_NUMBER:
        raise ValueError("it holds too large a number")
    return int(number)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:80]!r} stands twice")
    if "" in mapping or (mapping and len(max(mapping, key=len)) > KEY_CAP_CHARACTERS):
        raise ValueError(f"a key must have 1 to {KEY_CAP_CHARACTERS} characters")
    return mapping


def _problem(value: Any, depth: int, size: list[int]) -> str:
    """Return the reason why a value cannot be kept; add up the bytes of its texts."""
    if isinstance(value, str):
        try:
            size[0] += len(value.encode())
        except UnicodeEncodeError:
            return "it holds half of a character (a lone surrogate)"
    elif isinstance(value, (dict, list)):
        if depth >= _LEVELS:
            return f"nested deeper than {_LEVELS} levels"
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return next((problem for item in inner if (problem := _problem(item, depth + 1, size))), "")
    return ""


_DECODER = json.JSONDecoder(
    parse_constant=_refuse, parse_float=_finite, parse_int=_whole, object_pairs_hook=_mapping
)
