"""The hash by which a memory is known to be unchanged, and the JSON that it is taken of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from .values import Value

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_INFINITE = "\x00infinite"  # no text of a record can hold this
_INFINITE_JSON = json.dumps(_INFINITE)[1:]


def hash_of(value: Mapping[str, Value]) -> str:
    """Return the hash of a record's fields. It does not depend on the style they are written in."""
    return stored(value)[2]


def hash_of_bytes(content: bytes) -> str:
    """Return the hash of a memory that is a whole file."""
    return hashlib.sha256(content).hexdigest()[:32]


def stored(value: Mapping[str, Value]) -> tuple[Mapping[str, Value], str, str]:
    """Return the fields as they can be stored, the JSON of them, and its hash.

    `id` comes first and `decay` last, as SMP renders them: where a person has written them
    is no difference.
    """
    names = list(value)
    order = sorted(names, key=lambda name: (name != "id") + (name == "decay"))
    if order != names:
        value = {name: value[name] for name in order}
    data = json_of(value)
    try:
        encoded = data.encode()
    except UnicodeEncodeError:
        # JSON in a turn can hold half a surrogate pair, which is no character.
        encoded = data.encode("utf-8", "replace")
        data = encoded.decode()
        value = json.loads(data)
    return value, data, hash_of_bytes(encoded)


def json_of(value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON, in which an infinite number is too large and NaN is null."""
    try:
        return _encode(value)
    except ValueError:
        # SQLite reads no JSON with Infinity or NaN. A number too large for a float is infinite.
        data = _encode(_finite(dict(value)))
        for sign in ("", "-"):
            data = data.replace(f'"{sign}{_INFINITE_JSON}', f"{sign}1e999")
        return data


def _finite(value: Value) -> Value:
    """Return the value with texts for infinite numbers, and null for NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else _INFINITE if value > 0 else f"-{_INFINITE}"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def summary_hash(value: Mapping[str, Value]) -> str:
    """Return the hash of a summary without its decay: to have been read is no change."""
    return hash_of({name: part for name, part in value.items() if name != "decay"})
