"""A file that is one mapping: `metadata.yaml`, an agent's state, the user's profile.

Its parts (the keys below the top key) are replaced one by one, so that comments elsewhere stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

import yaml

from ..model.errors import CorruptionDetected
from ..model.layout import FORMAT_VERSION
from .values import BadYaml, Events, Value, decode, load, reading, render_entries
from .version import in_present_words, require_known, stated, version_in


def load_mapping(content: bytes, top: str, file: str) -> dict[str, Value]:
    """Return what stands below the top key, in present words; nothing where the file is empty or
    missing."""
    try:
        value = load(decode(content))
    except BadYaml as problem:
        raise CorruptionDetected(f"{file}, {problem}.") from problem
    whole = value if isinstance(value, dict) else {}
    version = stated(whole.get("version"))
    require_known(version, file)
    inner = whole.get(top)
    if value is not None and not isinstance(inner, dict):
        raise CorruptionDetected(f"{file} has no mapping {top!r}.")
    return in_present_words(top, inner, version) if isinstance(inner, dict) else {}


def render_mapping(top: str, parts: Mapping[str, Value]) -> bytes:
    """Return the whole file in our style."""
    return _lines(render_entries({"version": FORMAT_VERSION, top: dict(parts)}, 0))


def replace_parts(content: bytes, top: str, changes: Mapping[str, Value], file: str) -> bytes:
    """Return the file with some parts replaced or added (None takes one out).

    The other parts keep their bytes where the style and the version of the file allow that.
    """
    old = load_mapping(content, top, file)
    new = {**old, **changes}
    new = {name: new[name] for name in new if new[name] is not None or name not in changes}
    if new == old:
        return content
    different = {
        name: new.get(name) for name in changes if new.get(name, ...) != old.get(name, ...)
    }
    with suppress(CorruptionDetected):  # then its style cannot be spliced
        if version_in(file, content) == FORMAT_VERSION and (spans := _part_spans(content, top)):
            spliced = _splice(content, spans, different)
            if load_mapping(spliced, top, file) == new:
                return spliced
    return render_anew(content, top, new)


def is_plain(content: bytes, top: str) -> bool:
    """Return whether the parts stand on lines of their own, below a line of the top key."""
    line = rb"^(?:\xef\xbb\xbf)?[\"']?%s[\"']?[ \t]*:[ \t]*(?:#[^\n]*)?\r?$" % re.escape(
        top.encode()
    )
    return re.search(line, content, re.MULTILINE) is not None


def render_anew(content: bytes, top: str, parts: Mapping[str, Value]) -> bytes:
    """Return all in our style, with whatever else stands beside the top key."""
    whole = load(decode(content))
    beside = whole if isinstance(whole, dict) else {}
    beside = {name: value for name, value in beside.items() if name not in ("version", top)}
    return render_mapping(top, parts) + _lines(render_entries(beside, 0))


def _splice(
    content: bytes, spans: dict[str, tuple[int, int, int]], changes: Mapping[str, Value]
) -> bytes:
    indent = next(iter(spans.values()))[2]
    pieces: list[bytes] = []
    position = 0
    for name, (start, end, _) in spans.items():
        pieces.append(content[position:start])
        if name not in changes:
            pieces.append(content[start:end])
        elif changes[name] is not None:
            pieces.append(_render_part(name, changes[name], indent))
        position = end
    if pieces and not (position == 0 or content[position - 1 : position] == b"\n"):
        pieces.append(b"\n")
    added = {name: changes[name] for name in changes if name not in spans}
    pieces += [_render_part(name, added[name], indent) for name in added if added[name] is not None]
    return b"".join([*pieces, content[position:]])


def _render_part(name: str, value: Value, indent: int) -> bytes:
    return _lines(render_entries({name: value}, indent))


def _lines(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def _part_spans(content: bytes, top: str) -> dict[str, tuple[int, int, int]]:
    """Return for each part its first byte, the one behind its last line, and its indentation; none
    where the file is not in block style."""
    text = decode(content)
    before = len(content) - len(text.encode())  # a byte order mark
    spans: dict[str, tuple[int, int, int]] = {}
    with reading():
        events = Events(text)
        root = events.open_document()
        if not isinstance(root, yaml.MappingStartEvent) or root.flow_style:
            return {}
        for name, first in events.entries(root):
            is_block = isinstance(first, yaml.MappingStartEvent) and not first.flow_style
            if name != top or not is_block:
                events.build(first, 1)
                continue
            for part, value in events.entries(first):
                indent = events.key_column
                start = text.rfind("\n", 0, events.key_index) + 1
                events.build(value, 2)
                newline = text.find("\n", max(events.end - 1, 0))
                end = len(text) if newline < 0 else newline + 1
                first_byte, behind = (before + len(text[:place].encode()) for place in (start, end))
                spans[part] = (first_byte, behind, indent)
    return spans
