"""Changing a record file: one more record, some replaced or removed. Every byte that does not have to change is copied."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from .document import INDENT, MARK, ONLY_COMMENTS, Located, RecordList, locate, parse
from .layout import FORMAT_VERSION
from .values import Value, render_entries, render_flow

_COMMA = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?=,)")
_KEEPS_BLANK_LINES = re.compile(rb"[|>](?:[1-9]?\+|\+[1-9])[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)


def render_record(value: Mapping[str, Value], indent: int = INDENT) -> bytes:
    """The record as an item of a block list: `id` first and marked, `decay` last and on one line."""
    body = {"id": value["id"], **value}
    worn = body.pop("decay", None)
    lines = render_entries(body, indent + 2)
    lines[0] = f"{' ' * indent}- {lines[0].lstrip()}"
    if "decay" in value:
        lines[0] += f" {MARK}"
        lines.append(f"{' ' * (indent + 2)}decay: {render_flow(worn)}")
    return "\n".join([*lines, ""]).encode()


def opening(found: RecordList, content: bytes, key: str) -> bytes | None:
    """What must stand between the end of the file and a record that is appended; None where one cannot just be appended."""
    if found.flow or found.null or not ONLY_COMMENTS.fullmatch(content, found.insert_at):
        return None
    fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
    heading = b"" if found.listed else f"{key}:\n".encode() if found.head else render_head(key)
    return fresh_line + heading


def insert(found: RecordList, content: bytes, key: str, *values: Mapping[str, Value]) -> bytes:
    """Return the file with these records at the end of its list, whatever its style."""
    before = opening(found, content, key)
    block = b"" if found.flow else b"".join(render_record(value, found.indent) for value in values)
    if before is not None:
        return content + before + block
    if found.null:
        start, end = found.null
        emptied = content[:start] + (b"[]" if found.flow else b"") + content[end:]
        return insert(parse(emptied, key), emptied, key, *values)
    at = found.insert_at
    if found.flow:
        last = max((item.end for item in found.items()), default=None)
        shown = ", ".join(render_flow(dict(value)) for value in values)
        new = (b"" if last is None or _comma(content, last) else b", ") + shown.encode()
    else:
        new = (b"" if content[at - 1 : at] == b"\n" else b"\n") + block
    return content[:at] + new + content[at:]


def render_head(key: str, head: Mapping[str, Value] | None = None) -> bytes:
    """The beginning of a record file, up to where its first record goes."""
    lines = render_entries({"version": FORMAT_VERSION, **(head or {})}, 0)
    return "".join(line + "\n" for line in [*lines, f"{key}:"]).encode()


def rewrite(content: bytes, key: str, changes: Mapping[str, Mapping[str, Value] | None], highest: int = 0) -> bytes:
    """The file with some records replaced, or removed (None); every other byte is copied.

    `highest` is the highest number ever given here; a removal writes it into the head, so that it is never given again.
    """
    found = locate(content, key, changes)
    # Of a hand-made double only the last is meant, the one that `find` gives.
    meant = {memory_id: record for record in found.records if isinstance(memory_id := record.value.get("id"), str)}
    wanted = [(meant[memory_id], change) for memory_id, change in changes.items() if memory_id in meant]
    removed = [record for record, change in wanted if change is None]
    end_of = ends(found, content)
    splices = [(record.start, end_of(record) if change is None else record.end, render_change(found, change))
               for record, change in wanted]  # fmt: skip
    if found.flow:
        splices += [(comma, comma + 1, b"") for comma in _commas_to_drop(found, content, removed)]
    if removed:
        splices.append(_last_id(found, content, key, highest))
    return splice(content, splices)


def ends(found: RecordList, content: bytes) -> Callable[[Located], int]:
    """Where each record ends, with the comments below its last field that are indented as if they were its own.

    A text in the record before must not go on with what this one leaves: with lines that hold only blanks, as deep as a text, and
    where a text of the file keeps the blank lines behind it (`|+`, `>+`) with any.
    """
    if found.flow:
        return lambda record: record.end
    comment, deep = rb" {%d,}#[^\n]*(?:\n|\Z)" % (found.indent + 1), rb"(?: {%d}| *\t)[ \t]*(?:\r?\n|\Z)" % (found.indent + 3)
    own = re.compile(rb"(?:(?:[ \t]*\r?\n)*(?:%s|%s))*" % (comment, deep))
    below = re.compile(rb"(?:[ \t]*\r?\n|[ \t]+\Z|%s)+" % comment)
    keeps = cache(lambda: _KEEPS_BLANK_LINES.search(content) is not None)

    def end_of(record: Located) -> int:
        if match := below.match(content, record.end):
            match = match if keeps() else own.match(content, record.end)
        return match.end() if match else record.end

    return end_of


def left_below(content: bytes, indent: int) -> Callable[[int, int], bytes]:
    """Return what stays of the lines between two offsets, below a record that goes, so that no text before it goes on with them."""
    keeps = cache(lambda: _KEEPS_BLANK_LINES.search(content) is not None)
    deep = re.compile(rb"^ {%d}[ \t]+" % (indent + 2))

    def left(start: int, end: int) -> bytes:
        lines = [line for line in content[start:end].splitlines(keepends=True) if line.strip() or not keeps()]
        return b"".join(deep.sub(b" " * (indent + 2), line) for line in lines)

    return left


_OUR_HEAD = re.compile(rb"version: \d+\n(?:last_id: (\d+)\n)?(?=[a-z_]+:\n)")


def with_last_id(content: bytes, key: str, highest: int) -> bytes:
    """The file with the highest number ever given here in its head."""
    if ours := _OUR_HEAD.match(content):
        # Every file that the library made begins so; it need not be read.
        version = content[: content.index(b"\n") + 1]
        return version + b"last_id: %d\n" % max(highest, int(ours[1] or 0)) + content[ours.end() :]
    return splice(content, [_last_id(parse(content, key), content, key, highest)])


def splice(content: bytes, splices: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    position = 0
    for start, end, new in sorted(splices):
        pieces += [content[position:start], new]
        position = end
    return b"".join([*pieces, content[position:]])


def render_change(found: RecordList, value: Mapping[str, Value] | None) -> bytes:
    if value is None:
        return b""
    return render_flow(dict(value)).encode() if found.flow else render_record(value, found.indent)


def _commas_to_drop(found: RecordList, content: bytes, removed: list[Located]) -> list[int]:
    """The comma behind each removed item of a flow list; where the last has none, the one behind the last that stays."""
    commas = [comma for item in removed if (comma := _comma(content, item.end))]
    last = max(found.items(), key=lambda item: item.start, default=None)
    gone = {item.start for item in removed}
    if last is not None and last.start in gone and not _comma(content, last.end):
        kept = max((item.end for item in found.items() if item.start not in gone), default=None)
        commas += [comma] if kept is not None and (comma := _comma(content, kept)) else []
    return commas


def _comma(content: bytes, offset: int) -> int | None:
    """Where the comma behind an item of a flow list is."""
    match = _COMMA.match(content, offset)
    return match.end() if match else None


def _last_id(found: RecordList, content: bytes, key: str, highest: int) -> tuple[int, int, bytes]:
    """Writes the highest number into the head, in the style of the head."""
    at, number = found.head_at, b"%d" % highest
    if found.root == "bare":
        # Give it the head that every file of ours has.
        head = render_head(key, {"last_id": highest})
        return at, at, head.removesuffix(b"\n") + b" " if found.flow else head
    begins = rb"[{,]\s*" if found.root == "flow" else rb"(?:^(?:\xef\xbb\xbf)*|\r) {%d}" % found.head_column
    known = re.compile(begins + rb"([\"']?)last_id\1[ \t]*:[ \t]*([^\s,}#]*)", re.MULTILINE)
    match = known.search(content, 0, at) or (known.search(content, found.insert_at) if "last_id" in found.head else None)
    if match:
        return match.start(2), match.end(2), number
    if found.root == "flow":
        return at, at, b'"last_id": ' + number + b", "
    return at, at, b"last_id: " + number + b"\n" + b" " * found.head_column
