"""A record file: one list of records in YAML, each record with the bytes it stands in.

The records are found by the lines that begin them and read one by one, so that a bad record does not hide its neighbours, an
appended tail is read alone, and a rewrite copies what it does not change. A file in another style (flow lists, other keys
behind the list) is read as a whole instead, with the same result, only slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from .values import BadYaml, Event, Events, Value, decode, line_of, load, reading, refuse_decoration, render_entries, render_flow

INDENT = 2
# Ends the first line of a record that the library wrote: such a record ends with its `decay` line, so one without is torn.
MARK = "# smp"

_DASH = re.compile(rb"^( *)-(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKED = re.compile(rb"[^\n]*# smp[ \t\r]*\n")
_ONLY_COMMENTS = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*")


@dataclass(frozen=True, slots=True)
class Located:
    """A record and the bytes from its dash to the end of its last line (in a flow list: from `{` to `}`)."""

    start: int
    end: int
    value: dict[str, Value]


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

    def take(self, item: Located | Bad) -> None:
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
    by_lines = _parse_by_lines(content, key)
    if by_lines is not None and not by_lines.bad:
        return by_lines
    try:
        with reading():
            return _parse_whole(content, key)
    except BadYaml as problem:
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
    indent = _block_indent(content, key)
    located = _find_line(content, indent, memory_id) if indent is not None else None
    if located is None and memory_id.encode() in content:
        return parse(content, key).find(memory_id)
    return located


def locate(content: bytes, key: str, memory_ids: Collection[str]) -> RecordList:
    """The list with at least these records of it, read one by one where that is less work than reading all."""
    indent = _block_indent(content, key)
    if indent is None or len(memory_ids) > 32:
        return parse(content, key)
    located = [_find_line(content, indent, memory_id) for memory_id in memory_ids]
    if any(record is None for record in located):
        return parse(content, key)
    records = sorted((record for record in located if record), key=lambda record: record.start)
    return RecordList(records=records, indent=indent, listed=True)


def _block_indent(content: bytes, key: str) -> int | None:
    listed = _key_line(content, key)
    first = _DASH.search(content, listed.end()) if listed else None
    return len(first[1]) if first else None


def _find_line(content: bytes, indent: int, memory_id: str) -> Located | None:
    """The last record that begins with a line of this id, as every record of ours does."""
    wanted = memory_id.encode()
    begins = re.compile(rb" {%d}- +id: *[\"']?%s[\"']?[ \t\r]*(?:#|\n|\Z)" % (indent, re.escape(wanted)))
    at = content.rfind(wanted)
    while at >= 0:
        line = content.rfind(b"\n", 0, at) + 1
        if begins.match(content, line):
            located = _chunk_at(content, line, indent)
            if isinstance(located, Located) and located.value.get("id") == memory_id:
                return located
        at = content.rfind(wanted, 0, at)
    return None


def is_marked(content: bytes, start: int) -> bool:
    return _MARKED.match(content, start) is not None


def render_record(value: Mapping[str, Value], indent: int = INDENT) -> bytes:
    """The record as an item of a block list: `id` first and marked, `decay` last and on one line."""
    body = {name: item for name, item in value.items() if name not in ("id", "decay")}
    lines = render_entries({"id": value["id"]}, indent + 2) + render_entries(body, indent + 2)
    lines[0] = f"{' ' * indent}- {lines[0].lstrip()} {MARK}"
    lines.append(f"{' ' * (indent + 2)}decay: {render_flow(value['decay'])}")
    return "".join(line + "\n" for line in lines).encode()


def opening(found: RecordList, content: bytes, key: str) -> bytes | None:
    """What must stand between the end of the file and a record that is appended; None where one cannot just be appended."""
    if found.flow or not _ONLY_COMMENTS.fullmatch(content, found.insert_at):
        return None
    fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
    heading = b"" if found.listed else f"{key}:\n".encode() if found.head else render_head(key)
    return fresh_line + heading


def insert(found: RecordList, content: bytes, key: str, value: Mapping[str, Value]) -> bytes:
    """The file with one more record at the end of its list, whatever its style."""
    before = opening(found, content, key)
    if before is not None:
        return content + before + render_record(value, found.indent)
    at = found.insert_at
    if found.flow:
        new = (b", " if found.records or found.bad else b"") + render_flow(dict(value)).encode()
    else:
        new = (b"" if content[at - 1 : at] == b"\n" else b"\n") + render_record(value, found.indent)
    return content[:at] + new + content[at:]


def render_head(key: str, head: Mapping[str, Value] | None = None) -> bytes:
    """The beginning of a record file, up to where its first record goes."""
    lines = render_entries({"version": 1, **(head or {})}, 0)
    return "".join(line + "\n" for line in [*lines, f"{key}:"]).encode()


def rewrite(content: bytes, key: str, changes: Mapping[str, Mapping[str, Value] | None], highest: int = 0) -> bytes:
    """The file with some records replaced, or removed (None); every other byte is copied.

    `highest` is the highest number ever given here; a removal writes it into the head, so that it is never given again.
    """
    found = locate(content, key, changes)
    pieces: list[bytes] = []
    position = 0
    for record in found.records:
        memory_id = record.value.get("id")
        if isinstance(memory_id, str) and memory_id in changes:
            pieces.append(content[position : record.start])
            pieces.append(_render_change(found, changes[memory_id]))
            position = record.end
    pieces.append(content[position:])
    removed = any(change is None for change in changes.values())
    result = b"".join(pieces)
    if removed and found.flow:
        result = re.sub(rb"\[\s*,", b"[", re.sub(rb",(?=\s*[,\]])", b"", result))
    return _with_last_id(result, key, highest) if removed else result


def _render_change(found: RecordList, value: Mapping[str, Value] | None) -> bytes:
    if value is None:
        return b""
    return render_flow(dict(value)).encode() if found.flow else render_record(value, found.indent)


def _with_last_id(content: bytes, key: str, highest: int) -> bytes:
    line = b"last_id: %d\n" % highest
    replaced, count = re.subn(rb"(?m)^last_id:[^\n]*\n", line, content, count=1)
    if count:
        return replaced
    if listed := re.search(rb"^%s:" % re.escape(key.encode()), content, re.MULTILINE):
        return content[: listed.start()] + line + content[listed.start() :]
    # A bare list: give it the head that every file of ours has.
    return render_head(key, {"last_id": highest}) + content


def _key_line(content: bytes, key: str) -> re.Match[bytes] | None:
    return re.search(rb"^%s:[ \t]*(?:#[^\n]*)?\r?$" % re.escape(key.encode()), content, re.MULTILINE)


def _parse_by_lines(content: bytes, key: str) -> RecordList | None:
    """None where the file is not in the usual style: keys, then the list in block style as the last key."""
    listed = _key_line(content, key)
    if listed is None:
        return None
    found = RecordList(insert_at=min(listed.end() + 1, len(content)), listed=True)
    try:
        head = load(decode(content[: listed.start()]))
    except BadYaml as problem:
        head = {}
        found.bad.append(Bad(0, listed.start(), problem.line + 1, problem.problem))
    if head is not None and not isinstance(head, dict):
        return None
    found.head = head or {}
    first = _DASH.search(content, listed.end())
    if first is None:
        return found if _ONLY_COMMENTS.fullmatch(content, found.insert_at) else None
    if not _ONLY_COMMENTS.fullmatch(content, found.insert_at, first.start()):
        return None
    found.indent = len(first[1])
    _read_chunks(content, first.start(), found)
    found.insert_at = max(item.end for item in found.items())
    return found


def _read_chunks(content: bytes, offset: int, found: RecordList) -> None:
    starts = [match.start() for match in _dashes(found.indent).finditer(content, offset)]
    leading = content[offset : starts[0] if starts else len(content)]
    if not _ONLY_COMMENTS.fullmatch(leading):
        found.bad.append(Bad(offset, offset + len(leading), _line(content, offset), "this is not part of a record"))
    for start, end in zip(starts, [*starts[1:], len(content)], strict=False):
        item = _read_chunk(content, start, end)
        found.take(item)


def _dashes(indent: int) -> re.Pattern[bytes]:
    return re.compile(rb"^ {%d}-(?=[ \t\r\n]|\Z)" % indent, re.MULTILINE)


def _chunk_at(content: bytes, start: int, indent: int) -> Located | Bad:
    following = _dashes(indent).search(content, start + indent + 1)
    return _read_chunk(content, start, following.start() if following else len(content))


def _read_chunk(content: bytes, start: int, end: int) -> Located | Bad:
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
    except BadYaml as problem:
        return Bad(start, end, _line(content, start) + problem.line, problem.problem)
    return Located(start, _line_end(content, start + len(text[: events.end].encode())), value)


def _line(content: bytes, offset: int) -> int:
    return content.count(b"\n", 0, offset) + 1


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
    if type(root) is yaml.SequenceStartEvent:
        _read_list(content, events, root, at, found)
    elif type(root) is yaml.MappingStartEvent:
        refuse_decoration(root)
        for name, value in events.entries():
            if name != key:
                found.head[name] = events.build(value, 1)
            elif type(value) is yaml.SequenceStartEvent:
                _read_list(content, events, value, at, found)
            elif events.build(value, 1) is None:
                found.listed = True
                found.insert_at = _line_end(content, at(events.end))
            else:
                raise BadYaml(f"{key!r} must be a list", line_of(value))
        if root.flow_style and not found.listed:
            raise BadYaml(f"there is no list {key!r}", line_of(root))
    elif type(root) is not yaml.StreamEndEvent:
        if events.build(root) is not None:
            raise BadYaml(f"expected a mapping with the list {key!r}", line_of(root))
        events.close_document()
        return found
    else:
        return found
    events.close_document()
    return found


def _read_list(
    content: bytes, events: Events, opening: Event, at: Callable[[int], int], found: RecordList
) -> None:
    refuse_decoration(opening)
    found.listed = True
    found.flow = bool(opening.flow_style)
    position = at(opening.end_mark.index)
    if not found.flow:
        found.indent = opening.start_mark.column
        position -= found.indent
    event: Event
    while type(event := events.next()) is not yaml.SequenceEndEvent:
        item_start = at(event.start_mark.index)
        value = events.build(event, 2)
        end = at(events.end)
        if not found.flow:
            dash = _DASH.search(content, position, item_start)
            item_start = dash.start() if dash else item_start
            end = _line_end(content, end)
        if isinstance(value, dict):
            found.records.append(Located(item_start, end, value))
        else:
            found.bad.append(Bad(item_start, end, line_of(event) + 1, "a record must be a mapping"))
        position = end
    closing: Event = event
    found.insert_at = at(closing.start_mark.index) if found.flow else position
    events.close_list(event)


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
    if isinstance(last, int):
        yield last
    for record in found.records:
        memory_id = record.value.get("id")
        if isinstance(memory_id, str) and (match := re.fullmatch(rf"{prefix}-(\d+)", memory_id)):
            yield int(match[1])
    for bad in found.bad:
        for match_bytes in re.finditer(rb"id: *[\"']?%s-(\d{1,15})\b" % prefix.encode(), content[bad.start : bad.end]):
            yield int(match_bytes[1])
