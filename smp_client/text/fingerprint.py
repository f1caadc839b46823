"""The hash by which a memory is known to be unchanged, and the JSON that it is taken of."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .values import Value

json_of = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def hash_of(value: Mapping[str, Value]) -> str:
    """Return the hash of a record's fields. It does not depend on the style they are written in."""
    return stored(value)[2]


def hash_of_bytes(content: bytes) -> str:
    """Return the hash of a memory that is a whole file."""
    import hashlib  # late: OpenSSL takes 3 ms to load, and a program that only appends needs none

    return hashlib.sha256(content).hexdigest()[:32]


def stored(value: Mapping[str, Value]) -> tuple[Mapping[str, Value], str, str]:
    """Return the fields in the order of storing, the JSON of them, and its hash.

    `id` comes first and `decay` last, as SMP renders them: where a person has written them
    is no difference.
    """
    names = list(value)
    order = sorted(names, key=lambda name: (name != "id") + (name == "decay"))
    if order != names:
        value = {name: value[name] for name in order}
    data = json_of(value)
    return value, data, hash_of_bytes(data.encode())


def summary_hash(value: Mapping[str, Value]) -> str:
    """Return the hash of a summary without its decay: to have been read is no change."""
    return hash_of({name: part for name, part in value.items() if name != "decay"})
