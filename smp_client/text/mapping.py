"""A file that is one mapping: `metadata.yaml`, an agent's state, the user's profile.

Its parts (the keys below the top key) are replaced one by one, so that comments elsewhere stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from ..model.errors import CorruptionDetected
from ..model.layout import FORMAT_VERSION
from .values import BadYaml, Value, decode, load, render_lines
from .version import in_present_words, require_known, stated, version_in

_PART = r"( +)([\"']?)([^\s\"'#:][^\"':]*)\2[ \t]*:(?=\s|\Z)"


def load_mapping(content: bytes, top: str, file: str) -> dict[str, Value]:
    """Return the parts below the top key, in present words; none of an empty or missing file."""
    try:
        value = load(decode(content))
    except BadYaml as problem:
        raise CorruptionDetected(f"{file}, {problem}.") from problem
    whole = value if isinstance(value, dict) else {}
    version, parts = stated(whole.get("version")), whole.get(top)
    require_known(version, file)
    if isinstance(parts, dict):
        return in_present_words(top, parts, version)
    if value is not None:
        raise CorruptionDetected(f"{file} has no mapping {top!r}.")
    return {}


def render_mapping(top: str, parts: Mapping[str, Value]) -> bytes:
    """Return the whole file in our style."""
    return render_lines({"version": FORMAT_VERSION, top: dict(parts)}).encode()


def replace_parts(content: bytes, top: str, changes: Mapping[str, Value], file: str) -> bytes:
    """Return the file with some parts replaced or added; a part changed to None goes.

    The other parts keep their bytes where the style and the version of the file allow that.
    """
    old = load_mapping(content, top, file)
    new = {**old, **changes}
    new = {name: new[name] for name in new if new[name] is not None or name not in changes}
    if new == old:
        return content
    if version_in(file, content) == FORMAT_VERSION and is_plain(content, top):
        with suppress(CorruptionDetected):  # then its style cannot be spliced
            changed = [name for name in changes if new.get(name, ...) != old.get(name, ...)]
            spliced = _spliced(decode(content), top, {name: new.get(name) for name in changed})
            if load_mapping(spliced.encode(), top, file) == new:
                return spliced.encode()
    return render_anew(content, top, new)


def is_plain(content: bytes, top: str) -> bool:
    """Return whether the parts stand on lines of their own, below a line of the top key."""
    return re.search(_top_line(top), content.decode("utf-8", "replace"), re.MULTILINE) is not None


def render_anew(content: bytes, top: str, parts: Mapping[str, Value]) -> bytes:
    """Return all in our style, with whatever else stands beside the top key."""
    whole = load(decode(content))
    beside = whole if isinstance(whole, dict) else {}
    beside = {name: value for name, value in beside.items() if name not in ("version", top)}
    return render_mapping(top, parts) + render_lines(beside).encode()


def _top_line(top: str) -> str:
    return rf"^\ufeff?[\"']?{re.escape(top)}[\"']?[ \t]*:[ \t]*(?:#[^\n]*)?\r?$"


def _spliced(text: str, top: str, changes: dict[str, Value]) -> str:
    """Return the text with changed parts. A part reaches to the next; comments below it stay."""
    start = re.search(_top_line(top), text, re.MULTILINE)
    begin = start.end() + 1 if start else 0
    after = re.compile(r"^[^\s#]", re.MULTILINE).search(text, begin)
    end = after.start() if after else len(text)
    first = re.compile("^" + _PART, re.MULTILINE).search(text, begin, end)
    indent = len(first[1]) if first else 2
    pieces: list[str] = [text[:begin]]
    is_changed = False  # whether the lines belong to a part that was replaced or removed
    for line in text[begin:end].splitlines(keepends=True):
        part = re.match(_PART, line)
        if part and len(part[1]) == indent:
            is_changed = part[3] in changes
            if (value := changes.pop(part[3], None)) is not None:
                pieces.append(render_lines({part[3]: value}, indent))
        is_comment = re.fullmatch(rf" {{0,{indent}}}(?:#.*)?\r?\n?", line)
        if not is_changed or is_comment:
            pieces.append(line if line.endswith("\n") else f"{line}\n")
    added = {name: value for name, value in changes.items() if value is not None}
    return "".join([*pieces, render_lines(added, indent), text[end:]])
