"""A record file: one list of records in YAML, each record with the bytes it stands in.

A file of any style is read in one pass. Where that fails, the records are found by the lines that begin them and read one by
one, so that a bad record does not hide its neighbours. In the same way an appended tail is read alone, and one record is found
without reading the others. A rewrite copies every byte that it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import yaml

from ..layout import FORMAT_VERSION
from .document import CUT_OFF, INDENT, Bad, Lines, Located, RecordList
from .values import (
    BadYaml,
    Event,
    Events,
    Value,
    decode,
    line_of,
    load,
    reading,
    refuse_decoration,
    render_entries,
    render_flow,  # fmt: skip
)

# Ends the first line of a record that the library wrote: such a record ends with its `decay` line, so one without is torn.
MARK = "# smp"

_BOM = b"\xef\xbb\xbf"
_LINE = rb"(?:^|(?<=\A\xef\xbb\xbf))"  # where a line begins
_DASH = re.compile(_LINE + rb"( *)-(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKED = re.compile(rb"[^\n]*# smp[ \t\r]*\n")
_OTHER_KEY = re.compile(rb"\n[^\s#-]")
_SOMETHING = re.compile(rb"\S")
_IS_ID = re.compile(rb"(?<![\w-])id[\"']?[ \t]*:\s*[\"']?\Z")
ONLY_COMMENTS = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*")


def parse(content: bytes, key: str) -> RecordList:
    """Never raises on content: what cannot be read is in `bad`."""
    try:
        with reading():
            return _parse_whole(content, key)
    except BadYaml as problem:
        by_lines = _parse_by_lines(content, key)
        if by_lines is not None:
            return by_lines
        return RecordList(bad=[Bad(0, len(content), problem.line + 1, problem.problem)], insert_at=len(content))


def parse_tail(content: bytes, offset: int, indent: int) -> RecordList:
    """The records in `content[offset:]`, which must begin on a fresh line inside the list."""
    found = RecordList(indent=indent, insert_at=len(content), listed=True)
    _read_chunks(content, offset, found)
    return found


def find_record(content: bytes, key: str, memory_id: str) -> Located | None:
    """One record without reading the others; falls back to reading all where the file is not in the usual style."""
    listed = _block_list(content, key)
    located = _find_line(content, listed, memory_id) if listed else None
    if located is None and memory_id.encode() in content:
        return parse(content, key).find(memory_id)
    return located


def locate(content: bytes, key: str, memory_ids: Collection[str]) -> RecordList:
    """The list with at least these records of it, read one by one where that is less work than reading all."""
    listed = _block_list(content, key)
    if listed is None or len(memory_ids) > 32:
        return parse(content, key)
    located = [_find_line(content, listed, memory_id) for memory_id in memory_ids]
    if any(record is None for record in located):
        return parse(content, key)
    records = sorted((record for record in located if record), key=lambda record: record.start)
    return RecordList(records=records, indent=listed.indent, listed=True, head_at=listed.key_at)


class _BlockList(NamedTuple):
    """A list in the usual style: its key at the beginning of a line, then nothing but comments, then the first dash."""

    key_at: int
    first: int
    indent: int


def _block_list(content: bytes, key: str) -> _BlockList | None:
    listed = _key_line(content, key)
    first = _DASH.search(content, listed.end()) if listed else None
    if listed is None or first is None or not ONLY_COMMENTS.fullmatch(content, listed.end(), first.start()):
        return None
    return _BlockList(listed.start(1), first.start(), len(first[1]))


def _find_line(content: bytes, listed: _BlockList, memory_id: str) -> Located | None:
    """The last record that begins with a line of this id, as every record of ours does."""
    wanted = memory_id.encode()
    begins = re.compile(rb"^ {%d}- +id: *[\"']?%s[\"']?[ \t\r]*(?:#|\n|\Z)" % (listed.indent, re.escape(wanted)), re.MULTILINE)
    at = content.rfind(wanted, listed.first)
    while at >= 0:
        # Nothing but the dash and the key stands before the id, so its line begins close by.
        match = begins.match(content, content.rfind(b"\n", max(at - listed.indent - 16, 0), at) + 1)
        if match:
            located = _chunk_at(content, match.start(), listed.indent)
            if isinstance(located, Located) and located.value.get("id") == memory_id:
                return None if _OTHER_KEY.search(content, listed.first, located.start) else located
        elif _IS_ID.search(content, max(at - 16, 0), at):
            # A record that is written in another way may have this id as well, and be the one that is meant.
            return None
        at = content.rfind(wanted, listed.first, at)
    return None


def is_marked(content: bytes, start: int) -> bool:
    return _MARKED.match(content, start) is not None


def _key_line(content: bytes, key: str) -> re.Match[bytes] | None:
    """The line of the list's key, with the key itself from `start(1)`."""
    name = re.escape(key.encode())
    return re.search(rb"^(?:\xef\xbb\xbf)*(([\"']?)%s\2[ \t]*:)[ \t]*(?:#[^\n]*)?\r?$" % name, content, re.MULTILINE)


def _parse_by_lines(content: bytes, key: str) -> RecordList | None:
    """The records of a block list that is the last in the file, each by itself; None where there is no such list."""
    listed = _key_line(content, key)
    first = _DASH.search(content, listed.end() if listed else 0)
    top = len(_BOM) if content.startswith(_BOM) else 0
    if listed is None and (first is None or not ONLY_COMMENTS.fullmatch(content, top, first.start())):
        return None
    begin = min(listed.end() + 1, len(content)) if listed else top
    found = RecordList(insert_at=begin, listed=True, head_at=listed.start(1) if listed else top, root="block" if listed else "bare")
    if listed:
        _read_head(content[: listed.start(1)], found)
    found.indent = len(first[1]) if first else INDENT
    _read_chunks(content, begin, found)
    found.insert_at = max([begin, *(item.end for item in found.items())])
    return found


def _read_head(content: bytes, found: RecordList) -> None:
    try:
        head = load(decode(content))
        if head is not None and not isinstance(head, dict):
            raise BadYaml("the head of the file must be a mapping")
        found.head = head or {}
    except BadYaml as problem:
        found.bad.append(Bad(0, len(content), problem.line + 1, problem.problem))


def _read_chunks(content: bytes, offset: int, found: RecordList) -> None:
    starts = [match.start() for match in _dashes(found.indent).finditer(content, offset)]
    leading = content[offset : starts[0] if starts else len(content)]
    lines = Lines(content, b"\n")
    if not ONLY_COMMENTS.fullmatch(leading):
        found.bad.append(Bad(offset, offset + len(leading), lines.at(offset), "this is not part of a record"))
    for start, end in zip(starts, [*starts[1:], len(content)], strict=False):
        for item in _read_chunk(content, start, end, found.indent, lines.at(start)):
            found.take(item)


def _dashes(indent: int) -> re.Pattern[bytes]:
    return re.compile(_LINE + rb" {%d}-(?=[ \t\r\n]|\Z)" % indent, re.MULTILINE)


def _chunk_at(content: bytes, start: int, indent: int) -> Located | Bad:
    following = _dashes(indent).search(content, start + indent + 1)
    # Where something follows the record that is none, only reading the whole file tells what it is: the last item is bad then.
    return _read_chunk(content, start, following.start() if following else len(content), indent, 1)[-1]


def _read_chunk(content: bytes, start: int, end: int, indent: int, line: int) -> list[Located | Bad]:
    """The record between two dashes; where something foreign stands behind it, both."""
    item = _read_record(content, start, end, line)
    if isinstance(item, Bad):
        for border in _borders(content, start, end, indent):
            record = _read_record(content, start, border, line)
            if isinstance(record, Located):
                behind = line + content.count(b"\n", start, border)
                return [record, Bad(border, end, behind, "this is not part of a record")]
    return [item]


def _borders(content: bytes, start: int, end: int, indent: int) -> Iterator[int]:
    """Where a record may end although no other begins: behind the last line of one of ours, before a line that is not indented."""
    if is_marked(content, start):
        last_line = re.compile(rb"^ {%d}decay: [^\n]*\n" % (indent + 2), re.MULTILINE).search(content, start, end)
        if last_line:
            yield last_line.end()
    foreign = re.compile(rb"^ {0,%d}[^\s#]" % indent, re.MULTILINE).search(content, content.find(b"\n", start, end) + 1, end)
    # What goes on behind the foreign line as deep as a record's fields may be the rest of this one: then it is not whole.
    if foreign and not re.compile(rb"^ {%d}" % (indent + 2), re.MULTILINE).search(content, foreign.start(), end):
        yield foreign.start()


def _read_record(content: bytes, start: int, end: int, line: int) -> Located | Bad:
    try:
        text = decode(content[start:end])
        with reading():
            events = Events(text)
            if not isinstance(events.open_document(), yaml.SequenceStartEvent):
                raise BadYaml("this is not part of a record")
            value = events.build(events.next(), 1)
            if not isinstance(events.next(), yaml.SequenceEndEvent):
                raise BadYaml("something else follows the record")
            events.close_document()
        if not isinstance(value, dict):
            raise BadYaml("a record must be a mapping")
        if _cut_off(content, start, end, value):
            raise BadYaml(CUT_OFF)
    except BadYaml as problem:
        # What is missing at its end is missed behind it, on the line of the next one.
        last = content[start:end].rstrip().count(b"\n")
        return Bad(start, end, line + min(problem.line, last), problem.problem)
    return Located(start, _line_end(content, start + len(text[: events.end].encode())), value)


def _cut_off(content: bytes, start: int, end: int, value: Mapping[str, Value]) -> bool:
    """Whether this is a record of ours whose writer died, also where somebody has appended behind it since."""
    if is_marked(content, start):
        return not isinstance(value.get("decay"), dict)
    # Cut within its first line it has no mark yet: all that is left of it is the id.
    return value.keys() <= {"id"} and not content.endswith(b"\n") and not _SOMETHING.search(content, end)


def _line_end(content: bytes, offset: int) -> int:
    if content[offset - 1 : offset] == b"\n":
        return offset
    newline = content.find(b"\n", offset)
    return len(content) if newline < 0 else newline + 1


def _parse_whole(content: bytes, key: str) -> RecordList:
    """Any style of YAML, in one pass over the document; raises BadYaml where it is not valid as a whole."""
    text = decode(content)
    events = Events(text)
    at = _byte_offsets(text, len(content) - len(text.encode()))
    found = RecordList(insert_at=len(content))
    root: Event = events.open_document()
    if type(root) is yaml.StreamEndEvent:
        return found
    if type(root) is yaml.SequenceStartEvent:
        found.root = "bare"
        _read_list(content, events, root, at, found)
    elif type(root) is yaml.MappingStartEvent:
        found.root = "flow" if root.flow_style else "block"
        _read_root(content, key, events, root, at, found)
    elif events.build(root) is not None:
        raise BadYaml(f"expected a mapping with the list {key!r}", line_of(root))
    lines = line_of(events.close_document())
    if not found.flow and lines != content.count(b"\n") + (not content.endswith(b"\n")):
        # YAML also breaks lines at a lone CR and at some rare characters; the spans of a block list are made of whole lines.
        raise BadYaml("lines end in an unusual way")
    return found


def _read_root(content: bytes, key: str, events: Events, root: Event, at: Callable[[int], int], found: RecordList) -> None:
    refuse_decoration(root)
    for name, value in events.entries(root):
        if name != key:
            found.head[name] = events.build(value, 1)
            continue
        found.head_at, found.head_column = at(events.key_index), events.key_column
        if type(value) is yaml.SequenceStartEvent:
            _read_list(content, events, value, at, found)
        elif events.build(value, 1) is None:
            _read_null(content, events, value, at, found)
        else:
            raise BadYaml(f"{key!r} must be a list", line_of(value))
    if root.flow_style and not found.listed:
        raise BadYaml(f"there is no list {key!r}", line_of(root))


def _read_null(content: bytes, events: Events, value: Event, at: Callable[[int], int], found: RecordList) -> None:
    """The list's key with no value, or with a `null` that a first record must replace."""
    found.listed = bool(value.value) or found.root == "block"
    found.flow = found.root == "flow"
    if value.value:
        found.null = at(value.start_mark.index), at(value.end_mark.index)
    found.insert_at = _line_end(content, at(events.end))


def _read_list(content: bytes, events: Events, opening: Event, at: Callable[[int], int], found: RecordList) -> None:
    refuse_decoration(opening)
    found.listed = True
    found.flow = bool(opening.flow_style)
    begin = position = at(opening.start_mark.index)
    if not found.flow:
        found.indent = opening.start_mark.column
        begin = position = position - found.indent
    if found.root == "bare":
        found.head_at = begin
    item: Located | Bad | None = None
    for event in events.items(opening):
        start = at(event.start_mark.index)
        value = events.build(event, 2)
        end = at(events.end)
        if not found.flow:
            dash = _DASH.search(content, position, start)
            if dash is None:
                raise BadYaml("a record must begin on a line of its own", line_of(event))
            start = dash.start()
            end = _line_end(content, end)
        if not isinstance(value, dict):
            item = Bad(start, end, line_of(event) + 1, "a record must be a mapping")
        elif not found.flow and "decay" not in value and is_marked(content, start):
            item = Bad(start, end, line_of(event) + 1, CUT_OFF)
        else:
            item = Located(start, end, value)
        found.take(item)
        position = end
    found.insert_at = at(events.closing_index) if found.flow else position
    if isinstance(item, Located) and not found.flow and _cut_off(content, item.start, item.end, item.value):
        found.bad.append(Bad(item.start, item.end, Lines(content, b"\n").at(item.start), CUT_OFF))
        found.records.pop()
    _refuse_hidden(content, begin, found)


def _refuse_hidden(content: bytes, begin: int, found: RecordList) -> None:
    """An unclosed quote may swallow the records behind it, up to the next quote, and still be YAML."""
    begins = re.compile(rb"\n {%d}- id:[^\n]*# smp[ \t\r]*(?=\n)" % found.indent)
    starts = {item.start for item in found.items()}
    if not found.flow and any(match.start() + 1 not in starts for match in begins.finditer(content, begin, found.insert_at)):
        raise BadYaml("a record is hidden in the text of another")


def _byte_offsets(text: str, before: int) -> Callable[[int], int]:
    """Turns libyaml's character indexes, which only grow, into byte offsets without counting from the start each time."""
    if text.isascii():
        return lambda index: index + before
    known = [0, before]

    def at(index: int) -> int:
        if index < known[0]:
            return before + len(text[:index].encode())
        known[1] += len(text[known[0] : index].encode())
        known[0] = index
        return known[1]

    return at


def numbered(found: RecordList, content: bytes, prefix: str) -> int:
    """The highest number that an id of this prefix has had in the file."""
    return max(_numbers(found, content, prefix), default=0)


def _numbers(found: RecordList, content: bytes, prefix: str) -> Iterator[int]:
    last = found.head.get("last_id")
    if isinstance(last, int) and 0 < last < 10**15:
        yield last
    for record in found.records:
        memory_id = record.value.get("id")
        if isinstance(memory_id, str) and (match := re.fullmatch(rf"{prefix}-(\d{{1,15}})", memory_id)):
            yield int(match[1])
    for bad in found.bad:
        for match_bytes in re.finditer(rb"id[\"']?: *[\"']?%s-(\d{1,15})\b" % prefix.encode(), content[bad.start : bad.end]):
            yield int(match_bytes[1])


# Changing a list: every byte that does not have to change is copied.

_COMMA = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?=,)")
_KEEPS_BLANK_LINES = re.compile(rb"[|>](?:[1-9]?\+|\+[1-9])[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)


def render_record(value: Mapping[str, Value], indent: int = INDENT) -> bytes:
    """The record as an item of a block list: `id` first and marked, `decay` last and on one line."""
    body = {"id": value["id"], **value} if "id" in value else dict(value)
    worn = body.pop("decay", None)
    lines = render_entries(body, indent + 2) or [f"{' ' * indent}{{}}"]
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


def render_list(key: str, found: RecordList) -> bytes:
    """Return the whole file in the style of this library."""
    records = sorted(found.records, key=lambda record: record.start)
    return render_head(key, {**found.head, "version": FORMAT_VERSION}) + b"".join(render_record(one.value) for one in records)


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
