"""A file that is one mapping: `metadata.yaml`, an agent's state, the user's profile.

Its parts (the keys below the top key) are replaced one by one, so that a person's comments elsewhere stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

from ..errors import CorruptionDetected
from ..layout import FORMAT_VERSION
from .values import BadYaml, Events, Value, decode, load, reading, render_entries
from .version import in_present_words, require_known, stated, version_in


def load_mapping(content: bytes, top: str, file: str) -> dict[str, Value]:
    """Return what stands below the top key, in present words; nothing where the file is empty or missing."""
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
    return "".join(line + "\n" for line in render_entries({"version": FORMAT_VERSION, top: dict(parts)}, 0)).encode()


def replace_parts(content: bytes, top: str, changes: Mapping[str, Value], file: str) -> bytes:
    """The file with some parts replaced or added (None takes one out); renders all where its style allows no less."""
    old = load_mapping(content, top, file)
    new = {name: value for name, value in {**old, **changes}.items() if value is not None or name not in changes}
    if new == old:
        return content
    if version_in(file, content) != FORMAT_VERSION:
        return render_anew(content, top, new)
    try:
        spliced = splice_parts(content, top, old, new)
        if load_mapping(spliced, top, file) == new:
            return spliced
    except CorruptionDetected:
        # Some style that cannot be spliced; what is rendered below is right in any case.
        return render_anew(content, top, new)
    return render_anew(content, top, new)


def is_plain(content: bytes, top: str) -> bool:
    """Return whether the parts stand on lines of their own, below a line of the top key."""
    line = rb"^(?:\xef\xbb\xbf)?[\"']?%s[\"']?[ \t]*:[ \t]*(?:#[^\n]*)?\r?$" % re.escape(top.encode())
    return not content.strip() or re.search(line, content, re.MULTILINE) is not None


def splice_parts(content: bytes, top: str, old: Mapping[str, Value], new: Mapping[str, Value]) -> bytes:
    """The file with the parts that differ replaced, added or taken out, if its style allows that."""
    names = dict.fromkeys([*old, *new])
    changes = {name: new.get(name) for name in names if (name in new, new.get(name)) != (name in old, old.get(name))}
    spans = _part_spans(content, top) if changes else {}
    return _splice(content, spans, changes) if spans else content


def render_anew(content: bytes, top: str, parts: Mapping[str, Value]) -> bytes:
    """All in our style, with whatever else stands beside the top key."""
    whole = load(decode(content))
    beside = {name: value for name, value in whole.items() if name not in ("version", top)} if isinstance(whole, dict) else {}
    return render_mapping(top, parts) + "".join(line + "\n" for line in render_entries(beside, 0)).encode()


def _splice(content: bytes, spans: dict[str, tuple[int, int, int]], changes: Mapping[str, Value]) -> bytes:
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
    pieces += [_render_part(name, value, indent) for name, value in changes.items() if name not in spans and value is not None]
    return b"".join([*pieces, content[position:]])


def _render_part(name: str, value: Value, indent: int) -> bytes:
    return "".join(line + "\n" for line in render_entries({name: value}, indent)).encode()


def _part_spans(content: bytes, top: str) -> dict[str, tuple[int, int, int]]:
    """For each part its first byte, the one behind its last line, and its indentation; none where it is not in block style."""
    text = decode(content)
    before = len(content) - len(text.encode())  # a byte order mark
    spans: dict[str, tuple[int, int, int]] = {}
    with reading():
        events = Events(text)
        root = events.open_document()
        if not isinstance(root, yaml.MappingStartEvent) or root.flow_style:
            return {}
        for name, first in events.entries(root):
            if name != top or not isinstance(first, yaml.MappingStartEvent) or first.flow_style:
                events.build(first, 1)
                continue
            for part, value in events.entries(first):
                indent = events.key_column
                start = text.rfind("\n", 0, events.key_index) + 1
                events.build(value, 2)
                newline = text.find("\n", max(events.end - 1, 0))
                end = len(text) if newline < 0 else newline + 1
                spans[part] = (before + len(text[:start].encode()), before + len(text[:end].encode()), indent)
    return spans
