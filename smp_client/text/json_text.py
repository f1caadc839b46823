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
_DIGITS = 299  # YAML takes more digits than that for a text


def parse_object(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return one object that can be kept, or None and the reason."""
    value, problem = parse(raw)
    if problem or isinstance(value, dict):
        return value, problem
    return None, "it must be an object, in braces"


def parse(raw: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or None and the reason why it cannot be kept."""
    try:
        value = _DECODER.decode(raw.decode().lstrip("\ufeff"))
        is_short = len(raw) <= CONTENT_CAP_BYTES and b"\\u" not in raw
        if is_short and raw.count(b"{") + raw.count(b"[") < _LEVELS:
            return value, ""
        size = _size(value, 0)
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except UnicodeEncodeError:
        return None, "it holds half of a character (a lone surrogate)"
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1}"
    except RecursionError:
        return None, f"nested deeper than {_LEVELS} levels"
    except ValueError as error:
        return None, f"not JSON: {error}"
    if size > CONTENT_CAP_BYTES:
        return None, f"its texts hold {size:,} bytes; a memory may hold {CONTENT_CAP_BYTES:,}"
    return value, ""


def _number(text: str) -> float:
    value = int(text) if text.lstrip("-").isdecimal() else float(text)
    if len(text) > _DIGITS or not math.isfinite(value):
        raise ValueError("it holds a number that is none, or too large")
    return value


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key stands twice")
    if "" in mapping or (mapping and len(max(mapping, key=len)) > KEY_CAP_CHARACTERS):
        raise ValueError(f"a key must have 1 to {KEY_CAP_CHARACTERS} characters")
    return mapping


def _size(value: Any, depth: int) -> int:
    """Return the bytes of the texts in a value. Raise where a record could not keep it."""
    if isinstance(value, str):
        return len(value.encode())
    if not isinstance(value, (dict, list)):
        return 0
    if depth >= _LEVELS:
        raise RecursionError
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return sum(_size(item, depth + 1) for item in inner)


_DECODER = json.JSONDecoder(
    parse_constant=_number, parse_float=_number, parse_int=_number, object_pairs_hook=_mapping
)
