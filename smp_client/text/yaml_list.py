"""A record file in YAML: one list of records.

A file of any style is read in one pass. Where that fails, the records are found by the lines that
begin them and read one by one, so that a bad record does not hide its neighbours. In the same way
an appended tail is read alone, and one record is found without reading the others.

A file is plain where its list is in block style and its last key. Only a plain file is changed, and
every byte that need not change is copied. Any other is rendered anew first, see `render_list`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import yaml

from ..model.layout import FORMAT_VERSION
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
    render_flow,
)

# Ends the first line of a record that the library wrote. Such a record ends with its `decay` line,
# so one without is torn.
MARK = "# smp"

_FEW = 32  # so many records are found one by one
_BOM = b"\xef\xbb\xbf"
_LINE = rb"(?:^|(?<=\A\xef\xbb\xbf))"  # where a line begins
_DASH = re.compile(_LINE + rb"( *)-(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKED = re.compile(rb"[^\n]*# smp[ \t\r]*\n")
_OTHER_KEY = re.compile(rb"\n[^\s#-]")
_SOMETHING = re.compile(rb"\S")
_IS_ID = re.compile(rb"(?<![\w-])id[\"']?[ \t]*:\s*[\"']?\Z")
_LAST_ID = re.compile(rb"^(?:\xef\xbb\xbf)?last_id:[ \t]*(\d{1,15})(?=[ \t\r\n]|\Z)", re.MULTILINE)
_OUR_HEAD = re.compile(rb"version: \d+\n(?:last_id: (\d+)\n)?(?=[a-z_]+:\n)")
ONLY_COMMENTS = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*")


# Reading.


def parse(content: bytes, key: str) -> RecordList:
    """Return the records of a file. Never raises on content: what cannot be read is in `bad`."""
    try:
        with reading():
            return _parse_whole(content, key)
    except BadYaml as problem:
        by_lines = _parse_by_lines(content, key)
        if by_lines is not None:
            return by_lines
        return RecordList(bad=[Bad(0, len(content), problem.line + 1, problem.problem)])


def parse_tail(content: bytes, offset: int, indent: int) -> RecordList:
    """Return the records in `content[offset:]`, which begins on a fresh line inside the list."""
    found = RecordList(indent=indent, listed=True)
    _read_chunks(content, offset, found)
    return found


def find_record(content: bytes, key: str, memory_id: str) -> Located | None:
    """Return one record, without reading the others where the file is in the usual style."""
    listed = _block_list(content, key)
    located = _find_line(content, listed, memory_id) if listed else None
    if located is None and memory_id.encode() in content:
        return parse(content, key).find(memory_id)
    return located


def is_plain(content: bytes, key: str) -> bool:
    """Return whether the file may be changed in place. A file of ours is not parsed for that."""
    if _OUR_HEAD.match(content):
        listed = _block_list(content, key)
        if listed and not _OTHER_KEY.search(content, listed.first):
            return True
    return parse(content, key).plain


def is_marked(content: bytes, start: int) -> bool:
    return _MARKED.match(content, start) is not None


def own_end(content: bytes, record: Located) -> int:
    """Return where a record ends without the comments and blank lines below it."""
    last = content.rfind(b"\n", record.start, record.end - 1) + 1
    if not ONLY_COMMENTS.fullmatch(content, last, record.end):
        return record.end
    # What looks like a comment may be a line of a text: only reading tells.
    text = decode(content[record.start : record.end])
    with reading():
        events = Events(text)
        events.build(events.open_document())
    return _line_end(content, record.start + len(text[: events.end].encode()))


def highest_number(found: RecordList, content: bytes, prefix: str) -> int:
    """Return the highest number that an id of this prefix has had in the file."""
    return max(_numbers(found, content, prefix), default=0)


def _numbers(found: RecordList, content: bytes, prefix: str) -> Iterator[int]:
    last = found.head.get("last_id")
    if isinstance(last, int) and 0 < last < 10**15:
        yield last
    given = re.compile(rf"{prefix}-(\d{{1,15}})")
    for record in found.records:
        memory_id = record.value.get("id")
        if isinstance(memory_id, str) and (match := given.fullmatch(memory_id)):
            yield int(match[1])
    written = re.compile(rb"id[\"']?: *[\"']?%s-(\d{1,15})\b" % prefix.encode())
    for bad in found.bad:
        yield from (int(match[1]) for match in written.finditer(content[bad.start : bad.end]))


class _BlockList(NamedTuple):
    """A list in the usual style: its key begins a line, then come comments, then the first dash."""

    first: int
    indent: int


def _block_list(content: bytes, key: str) -> _BlockList | None:
    listed = _key_line(content, key)
    first = _DASH.search(content, listed.end()) if listed else None
    if listed is None or first is None:
        return None
    if not ONLY_COMMENTS.fullmatch(content, listed.end(), first.start()):
        return None
    return _BlockList(first.start(), len(first[1]))


def _key_line(content: bytes, key: str) -> re.Match[bytes] | None:
    """Return the line of the list's key, with the key itself from `start(1)`."""
    line = rb"^(?:\xef\xbb\xbf)*(([\"']?)%s\2[ \t]*:)[ \t]*(?:#[^\n]*)?\r?$"
    return re.search(line % re.escape(key.encode()), content, re.MULTILINE)


def _find_line(content: bytes, listed: _BlockList, memory_id: str) -> Located | None:
    """Return the last record that begins with a line of this id, as every record of ours does."""
    wanted, indent = memory_id.encode(), listed.indent
    line = rb"^ {%d}- +id: *[\"']?%s[\"']?[ \t\r]*(?:#|\n|\Z)" % (indent, re.escape(wanted))
    begins = re.compile(line, re.MULTILINE)
    at = content.rfind(wanted, listed.first)
    while at >= 0:
        # Nothing but the dash and the key stands before the id, so its line begins close by.
        near = max(at - indent - 16, 0)
        match = begins.match(content, content.rfind(b"\n", near, at) + 1)
        if match:
            following = _dashes(indent).search(content, match.start() + indent + 1)
            end = following.start() if following else len(content)
            lines = Lines(content, b"\n")
            located = _read_chunk(content, match.start(), end, indent, lines)[-1]
            # What follows the last record and is none, only reading the whole file tells.
            if isinstance(located, Located) and located.value.get("id") == memory_id:
                hides = _OTHER_KEY.search(content, listed.first, located.end)
                return None if hides else located
        elif _IS_ID.search(content, max(at - 16, 0), at):
            # A record that is written in another way may have this id, and be the one meant.
            return None
        at = content.rfind(wanted, listed.first, at)
    return None


# By lines.


def _parse_by_lines(content: bytes, key: str) -> RecordList | None:
    """Return the records of a block list that is the last in the file, each read by itself; None
    where there is no such list."""
    listed = _key_line(content, key)
    first = _DASH.search(content, listed.end() if listed else 0)
    top = len(_BOM) if content.startswith(_BOM) else 0
    if listed is None and (
        first is None or not ONLY_COMMENTS.fullmatch(content, top, first.start())
    ):
        return None
    found = RecordList(listed=True, plain=listed is not None)
    if listed:
        _read_head(content[: listed.start(1)], found)
    found.indent = len(first[1]) if first else INDENT
    _read_chunks(content, min(listed.end() + 1, len(content)) if listed else top, found)
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
    end = starts[0] if starts else len(content)
    lines = Lines(content, b"\n")
    if not ONLY_COMMENTS.fullmatch(content, offset, end):
        found.bad.append(Bad(offset, end, lines.at(offset), "this is not part of a record"))
    for start, end in zip(starts, [*starts[1:], len(content)], strict=False):
        for item in _read_chunk(content, start, end, found.indent, lines):
            found.take(item)


def _dashes(indent: int) -> re.Pattern[bytes]:
    return re.compile(_LINE + rb" {%d}-(?=[ \t\r\n]|\Z)" % indent, re.MULTILINE)


def _read_chunk(
    content: bytes, start: int, end: int, indent: int, lines: Lines[bytes]
) -> list[Located | Bad]:
    """Return the record between two dashes; where something foreign stands behind it, both."""
    item = _read_record(content, start, end, lines)
    if isinstance(item, Bad):
        for border in _borders(content, start, end, indent):
            record = _read_record(content, start, border, lines)
            if isinstance(record, Located):
                return [record, Bad(border, end, lines.at(border), "this is not part of a record")]
    return [item]


def _borders(content: bytes, start: int, end: int, indent: int) -> Iterator[int]:
    """Yield where a record may end although no other begins: behind the last line of one of ours,
    and before a line that is not indented."""
    if is_marked(content, start):
        decay = re.compile(rb"^ {%d}decay: [^\n]*\n" % (indent + 2), re.MULTILINE)
        if last_line := decay.search(content, start, end):
            yield last_line.end()
    outside = re.compile(rb"^ {0,%d}[^\s#]" % indent, re.MULTILINE)
    foreign = outside.search(content, content.find(b"\n", start, end) + 1, end)
    # Lines behind the foreign one that are as deep as a record's fields may be the rest of this
    # record: then it is not whole.
    deep = re.compile(rb"^ {%d}" % (indent + 2), re.MULTILINE)
    if foreign and not deep.search(content, foreign.start(), end):
        yield foreign.start()


def _read_record(content: bytes, start: int, end: int, lines: Lines[bytes]) -> Located | Bad:
    """Read a chunk by itself. Lines are counted only for what is bad: a tail may be far down."""
    try:
        with reading():
            events = Events(decode(content[start:end]))
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
        return Bad(start, end, lines.at(start) + min(problem.line, last), problem.problem)
    return Located(start, end, value)


def _cut_off(content: bytes, start: int, end: int, value: Mapping[str, Value]) -> bool:
    """Return whether the writer of this record died, also where others have appended behind it."""
    if is_marked(content, start):
        return not isinstance(value.get("decay"), dict)
    # Cut within its first line it has no mark yet: all that is left of it is the id.
    is_last = not content.endswith(b"\n") and not _SOMETHING.search(content, end)
    return value.keys() <= {"id"} and is_last


def _line_end(content: bytes, offset: int) -> int:
    if content[offset - 1 : offset] == b"\n":
        return offset
    newline = content.find(b"\n", offset)
    return len(content) if newline < 0 else newline + 1


# As a whole.


def _parse_whole(content: bytes, key: str) -> RecordList:
    """Return the records of a file in any style, in one pass; raise BadYaml where it is not valid
    as a whole."""
    text = decode(content)
    events = Events(text)
    at = _byte_offsets(text, len(content) - len(text.encode()))
    found = RecordList()
    root: Event = events.open_document()
    kind = type(root)
    if kind is yaml.StreamEndEvent:
        return found
    is_block = False
    if kind is yaml.SequenceStartEvent:
        is_block = not root.flow_style
        _read_list(content, events, root, at, found)
        found.plain = False
    elif kind is yaml.MappingStartEvent:
        is_block = _read_root(content, key, events, root, at, found)
    elif events.build(root) is not None:
        raise BadYaml(f"expected a mapping with the list {key!r}", line_of(root))
    else:
        found.plain = False
    lines = line_of(events.close_document())
    if is_block and lines != content.count(b"\n") + (not content.endswith(b"\n")):
        # YAML also breaks lines at a lone CR and at some rare characters; spans are whole lines.
        raise BadYaml("lines end in an unusual way")
    return found


def _read_root(
    content: bytes, key: str, events: Events, root: Event, at: Callable[[int], int],
    found: RecordList,
) -> bool:  # fmt: skip
    """Read the mapping around the list. Return whether the list is in block style."""
    refuse_decoration(root)
    is_block = not root.flow_style
    found.plain = is_block
    for name, value in events.entries(root):
        if name != key:
            found.head[name] = events.build(value, 1)
            found.plain = found.plain and not found.listed
            continue
        found.listed = True
        key_at = at(events.key_index)
        if type(value) is yaml.SequenceStartEvent:
            is_block = is_block and not value.flow_style
            end = _read_list(content, events, value, at, found)
        elif events.build(value, 1) is None:
            is_block = is_block and not value.value
            end = _line_end(content, at(events.end))
        else:
            raise BadYaml(f"{key!r} must be a list", line_of(value))
        line = _key_line(content, key)
        is_usual = is_block and line is not None and line.start(1) == key_at
        found.plain = is_usual and ONLY_COMMENTS.fullmatch(content, end) is not None
        if found.plain and "last_id" in found.head:
            last = _LAST_ID.search(content, 0, key_at)
            found.plain = last is not None and int(last[1]) == found.head["last_id"]
    return is_block


def _read_list(
    content: bytes, events: Events, opening: Event, at: Callable[[int], int], found: RecordList
) -> int:
    """Read the items of a list. Return where the last one ends, without comments below it."""
    refuse_decoration(opening)
    found.listed, is_flow = True, bool(opening.flow_style)
    begin = end = at(opening.start_mark.index)
    if not is_flow:
        found.indent = opening.start_mark.column
        begin = end = begin - found.indent
    items: list[tuple[int, int, int, Value]] = []
    for event in events.items(opening):
        start = at(event.start_mark.index)
        value = events.build(event, 2)
        dash = None if is_flow else _DASH.search(content, end, start)
        if dash is None and not is_flow:
            raise BadYaml("a record must begin on a line of its own", line_of(event))
        end = at(events.end)
        if dash is not None:
            start, end = dash.start(), _line_end(content, end)
        items.append((start, end, line_of(event) + 1, value))
    ends = [own for _, own, _, _ in items]
    if items and not is_flow:
        below = ONLY_COMMENTS.match(content, end)
        ends = [*(start for start, _, _, _ in items[1:]), below.end() if below else end]
    for number, ((start, own, line, value), stop) in enumerate(zip(items, ends, strict=True), 1):
        problem = ""
        if not isinstance(value, dict):
            problem = "a record must be a mapping"
        elif is_flow:
            pass
        elif number == len(items):
            problem = CUT_OFF if _cut_off(content, start, own, value) else ""
        elif "decay" not in value and is_marked(content, start):
            problem = CUT_OFF
        if problem:
            found.take(Bad(start, stop, line, problem))
        else:
            assert isinstance(value, dict)
            found.take(Located(start, stop, value))
    if not is_flow:
        _refuse_hidden(content, begin, end, found)
    return end


def _refuse_hidden(content: bytes, begin: int, end: int, found: RecordList) -> None:
    """An unclosed quote may swallow the records behind it, up to the next quote, and be YAML."""
    begins = re.compile(rb"\n {%d}- id:[^\n]*# smp[ \t\r]*(?=\n)" % found.indent)
    starts = {item.start for item in found.items()}
    if any(match.start() + 1 not in starts for match in begins.finditer(content, begin, end)):
        raise BadYaml("a record is hidden in the text of another")


def _byte_offsets(text: str, before: int) -> Callable[[int], int]:
    """Return a function from libyaml's character indexes, which only grow, to byte offsets. It does
    not count from the start each time."""
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


# Rendering and changing.


def render_record(value: Mapping[str, Value], indent: int = INDENT) -> bytes:
    """Return the record as an item of a block list: `id` first and marked, `decay` last."""
    body = {"id": value["id"], **value} if "id" in value else dict(value)
    worn = body.pop("decay", None)
    lines = render_entries(body, indent + 2)
    if "decay" in value:
        if "id" in value:
            lines[0] += f" {MARK}"
        lines.append(f"{' ' * (indent + 2)}decay: {render_flow(worn)}")
    lines = lines or ["{}"]
    lines[0] = f"{' ' * indent}- {lines[0].lstrip()}"
    return "\n".join([*lines, ""]).encode()


def render_head(key: str, head: Mapping[str, Value] | None = None) -> bytes:
    """Return the beginning of a record file, up to where its first record goes."""
    lines = render_entries({"version": FORMAT_VERSION, **(head or {})}, 0)
    return "".join(line + "\n" for line in [*lines, f"{key}:"]).encode()


def render_list(key: str, found: RecordList) -> bytes:
    """Return the whole file in the style of this library, with all that could be read of it."""
    records = sorted(found.records, key=lambda record: record.start)
    head = render_head(key, {**found.head, "version": FORMAT_VERSION})
    return head + b"".join(render_record(record.value) for record in records)


def opening(found: RecordList, content: bytes, key: str) -> bytes | None:
    """Return what must stand between the end of a plain file and an appended record; None where
    the file is not plain."""
    if not found.plain:
        return None
    fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
    if found.listed:
        return fresh_line
    return fresh_line + (f"{key}:\n".encode() if found.head else render_head(key))


def with_last_id(content: bytes, key: str, highest: int) -> bytes:
    """Return a plain file with the highest number ever given here in its head."""
    if ours := _OUR_HEAD.match(content):
        # Every file that the library made begins so.
        version = content[: content.index(b"\n") + 1]
        last = b"last_id: %d\n" % max(highest, int(ours[1] or 0))
        return version + last + content[ours.end() :]
    listed = _key_line(content, key)
    if listed is None:
        fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
        beside = {} if parse(content, key).head else {"version": FORMAT_VERSION}
        lines = [*render_entries({**beside, "last_id": highest}, 0), f"{key}:", ""]
        return content + fresh_line + "\n".join(lines).encode()
    known = _LAST_ID.search(content, 0, listed.start(1))
    if known:
        return content[: known.start(1)] + b"%d" % highest + content[known.end(1) :]
    at = listed.start(1)
    return content[:at] + b"last_id: %d\n" % highest + content[at:]
