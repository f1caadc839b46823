"""JSON of other programs, line by line: what cannot be read is told with its line, its place and the reason, and the rest goes on.

A line is refused whole where a reader could take it for more than one thing (a key that stands twice), or where we could not keep
it (a number that is none, half a character, too deep a nesting).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...records import CONTENT_CAP_BYTES, KEY_CAP_CHARACTERS
from ...text.values import DEPTH_CAP
from ..entries import LARGEST_NUMBER
from ..json_form import no_json

LINE_CAP_BYTES = 16 * 1024 * 1024
_LEVELS = DEPTH_CAP - 6  # what is left of them inside a record
_LARGE_NUMBER = re.compile(rb"[0-9]{200}")
_BOM = b"\xef\xbb\xbf"
CUT_OFF = "the last line is cut off"
_TOO_LARGE = "it holds too large a number"
_YES = frozenset(("true", "yes", "y", "on", "1"))


class Line(NamedTuple):
    """One line that is not empty: what it says, or why it says nothing."""

    number: int  # from 1
    offset: int  # of its first byte
    raw: bytes  # without its end
    value: dict[str, Any] | None
    problem: str = ""


def read_lines(content: bytes) -> Iterator[Line]:
    position = len(_BOM) if content.startswith(_BOM) else 0
    number = 0
    while position < len(content):
        number += 1
        end = content.find(b"\n", position)
        is_ended = end >= 0
        end = end if is_ended else len(content)
        raw = content[position:end].rstrip(b"\r")
        if len(raw) > LINE_CAP_BYTES:
            yield Line(number, position, raw, None, f"the line has more than {LINE_CAP_BYTES:,} bytes")
        elif raw.strip():
            value, problem = parse_object(raw)
            if value is None and not is_ended:
                problem = f"{CUT_OFF} ({problem})"
            yield Line(number, position, raw, value, problem)
        position = end + 1


def parse_object(raw: bytes) -> tuple[dict[str, Any] | None, str]:
    """One object that can be kept, or why there is none."""
    value, problem = parse(raw)
    if problem:
        return None, problem
    return (value, "") if isinstance(value, dict) else (None, "it must be an object, in braces")


def parse(raw: bytes) -> tuple[Any, str]:
    """What a JSON text says, or why that is nothing that can be kept."""
    try:
        value = _DECODER.decode(raw.decode().lstrip("\ufeff"))
    except UnicodeDecodeError as error:
        return None, f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return None, no_json(error)
    except ValueError as error:
        return None, f"{error}"
    except RecursionError:
        return None, f"nested deeper than {_LEVELS} levels"
    if _is_harmless(raw):
        return value, ""
    size = [0]
    problem = _problem(value, 0, size)
    if not problem and size[0] > CONTENT_CAP_BYTES:
        problem = f"its texts hold {size[0]:,} bytes; a memory may hold {CONTENT_CAP_BYTES:,}"
    return (None, problem) if problem else (value, "")


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(_TOO_LARGE)
    return value


def _is_harmless(raw: bytes) -> bool:
    """Whether its bytes tell already that there is nothing to be looked for: almost always."""
    return (len(raw) <= CONTENT_CAP_BYTES and b"\\u" not in raw and raw.count(b"{") + raw.count(b"[") < _LEVELS
            and not _LARGE_NUMBER.search(raw))  # fmt: skip


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    # Mostly all keys together are not as long as one may be.
    if "" in mapping or (len("".join(mapping)) > KEY_CAP_CHARACTERS and len(max(mapping, key=len)) > KEY_CAP_CHARACTERS):
        raise ValueError(f"a key must have 1 to {KEY_CAP_CHARACTERS} characters")
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:80]!r} stands twice")
    return mapping


def _problem(value: Any, depth: int, size: list[int]) -> str:
    """Why a value cannot be kept; adds up the bytes of its texts."""
    if isinstance(value, str):
        try:
            size[0] += len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            return "it holds half of a character (a lone surrogate)"
    elif isinstance(value, int):
        return "" if abs(value) < LARGEST_NUMBER else _TOO_LARGE
    elif isinstance(value, (dict, list)):
        if depth >= _LEVELS:
            return f"nested deeper than {_LEVELS} levels"
        if isinstance(value, dict):
            for key in value:
                if problem := _problem(key, depth, size):
                    return problem
        for item in value.values() if isinstance(value, dict) else value:
            if problem := _problem(item, depth + 1, size):
                return problem
    return ""


def says_yes(value: object) -> bool:
    """Whether a mark is set; programs write that in more than one way."""
    return value.strip().lower() in _YES if isinstance(value, str) else isinstance(value, (int, float)) and value != 0


def is_exactly(one: Any, other: Any) -> bool:
    """Whether both are the same in JSON, which tells 1 from 1.0 and from true. Most of what is compared is one and the same."""
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        if len(one) != len(other):
            return False
        for name, value in one.items():
            if name not in other or not (value is other[name] or is_exactly(value, other[name])):
                return False
        return True
    if kind is list:
        return len(one) == len(other) and all(map(is_exactly, one, other))
    return bool(one == other) and (kind is not float or repr(one) == repr(other))


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_mapping)
