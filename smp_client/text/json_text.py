"""JSON that anybody may have written, read strictly.

A text is refused whole where a reader could take it for more than one thing (a key that stands
twice), or where a record could not keep it.
"""

from __future__ import annotations

import json
from typing import Any

from ..model.record import CONTENT_CAP_BYTES
from .contents import plain, size_of


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
