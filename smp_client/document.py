"""A record file: one list of records in YAML, each record with the bytes it stands in.

A file of any style is read in one pass. Where that fails, the records are found by the lines that begin them and read one by
one, so that a bad record does not hide its neighbours. In the same way an appended tail is read alone, and one record is found
without reading the others. A rewrite copies every byte that it does not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import AnyStr, Generic, Literal, NamedTuple

import yaml

from .deadline import step
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
)  # fmt: skip

INDENT = 2
# Ends the first line of a record that the library wrote: such a record ends with its `decay` line, so one without is torn.
MARK = "# smp"
CUT_OFF = "the record was cut off while it was written"

_BOM = b"\xef\xbb\xbf"
_LINE = rb"(?:^|(?<=\A\xef\xbb\xbf))"  # where a line begins
_DASH = re.compile(_LINE + rb"( *)-(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKED = re.compile(rb"[^\n]*# smp[ \t\r]*\n")
_OTHER_KEY = re.compile(rb"\n[^\s#-]")
_SOMETHING = re.compile(rb"\S")
_IS_ID = re.compile(rb"(?<![\w-])id[\"']?[ \t]*:\s*[\"']?\Z")
ONLY_COMMENTS = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*")


@dataclass(frozen=True, slots=True)
class Located:
    """A record and the bytes from its dash to the end of its last line (in a flow list: from `{` to `}`)."""

    start: int
    end: int
    value: dict[str, Value]

    @property
    def has_id(self) -> bool:
        return bool(self.value.get("id")) and isinstance(self.value["id"], str)


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes in the list that are no record, and why; `line` counts from 1."""

    start: int
    end: int
    line: int
    problem: str


@dataclass(slots=True)
class RecordList:
    records: list[Located] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    head: dict[str, Value] = field(default_factory=dict)  # the keys beside the list
    indent: int = INDENT  # of the dashes
    insert_at: int = 0  # where the next record goes
    flow: bool = False
    listed: bool = False  # whether the list's key is there at all
    root: Literal["block", "flow", "bare"] = "block"  # how the mapping around the list is written; bare where there is none
    head_at: int = 0  # where a further key of that mapping may go
    head_column: int = 0
    null: tuple[int, int] | None = None  # the bytes of a `null` in the place of the list

    def take(self, item: Located | Bad) -> None:
        step()
        if isinstance(item, Located):
            self.records.append(item)
        else:
            self.bad.append(item)

    def items(self) -> list[Located | Bad]:
        return [*self.records, *self.bad]

    def find(self, memory_id: str) -> Located | None:
        """The last record of that id: a hand-made double is appended behind the original."""
        return next((record for record in reversed(self.records) if record.value.get("id") == memory_id), None)


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


class Lines(Generic[AnyStr]):
    """Tells on which line a place in a text is, from 1. The work is that of one look where the places come in order."""

    def __init__(self, text: AnyStr, line_end: AnyStr) -> None:
        self._text: AnyStr = text
        self._line_end: AnyStr = line_end
        self._known = (0, 1)

    def at(self, place: int) -> int:
        start, line = self._known if self._known[0] <= place else (0, 1)
        self._known = (place, line + self._text.count(self._line_end, start, place))
        return self._known[1]


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
