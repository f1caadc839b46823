"""A file that is one mapping: `metadata.yaml`, an agent's state, the user's profile.

Each change renders the whole file, and keeps every value. Comments are lost by that, and so is the
zero of `3.10`. A file with any of them is not plain, and `rewrite` copies it to quarantine first.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.errors import CorruptionDetected
from ..model.layout import FORMAT_VERSION
from .values import BadYaml, Value, decode, load, render_lines
from .version import in_present_words, require_known, stated


def load_mapping(content: bytes, top: str, file: str) -> dict[str, Value]:
    """Return the parts below the top key, in present words; none of an empty or missing file."""
    return _load(content, top, file)[0]


def render_mapping(top: str, parts: Mapping[str, Value]) -> bytes:
    """Return the whole file in our style."""
    return render_lines({"version": FORMAT_VERSION, top: dict(parts)}).encode()


def replace_parts(content: bytes, top: str, changes: Mapping[str, Value], file: str) -> bytes:
    """Return the file with some parts replaced or added; a part changed to None goes."""
    old, beside = _load(content, top, file)
    new = {**old, **changes}
    new = {name: new[name] for name in new if new[name] is not None or name not in changes}
    return content if new == old else render_mapping(top, new) + render_lines(beside).encode()


def is_plain(content: bytes, top: str, file: str) -> bool:
    """Return whether rendering the file loses nothing: no comment, and no digit of a `3.10`."""
    try:
        _load(content, top, file)
    except CorruptionDetected:
        return False
    rendered = render_lines({top: load(decode(content))}).encode()
    return all(content.count(sign) == rendered.count(sign) for sign in b"#0123456789")


def _load(content: bytes, top: str, file: str) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the parts, and the values of the keys beside the top key."""
    try:
        value = load(decode(content))
    except BadYaml as problem:
        raise CorruptionDetected(f"{file}, {problem}.") from problem
    beside = dict(value) if isinstance(value, dict) else {}
    version, parts = stated(beside.pop("version", None)), beside.pop(top, None)
    require_known(version, file)
    if isinstance(parts, dict):
        return in_present_words(top, parts, version), beside
    if value is not None:
        raise CorruptionDetected(f"{file} has no mapping {top!r}.")
    return {}, {}
