"""A record file in YAML: one list of records.

A file is plain where its list is in block style and its last key. Its records are found by the
lines that begin them and read one by one, so that a bad record does not hide its neighbours. Only a
plain file is changed, and every byte that need not change is copied.

A file in any other style is read as a whole, and rendered plain before its first change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from ..model.layout import FORMAT_VERSION
from ..model.record import NUMBERS, Kind
from .document import CUT_OFF, INDENT, Bad, Located, RecordList
from .values import BadYaml, Events, Value, decode, load, reading, render_entries, render_flow, yaml
from .version import renewed, version_in

# Ends the first line of a record that the library wrote. Such a record ends with its `decay` line,
# so one without is torn.
MARK = "# smp"

_COMMENTS = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*")
_DASH = re.compile(rb"^( *)-(?=[ \t\r\n]|\Z)", re.MULTILINE)
_MARKED = re.compile(rb"[^\n]*# smp[ \t\r]*\n")
_SOMETHING = re.compile(rb"\S")
_OTHER_KEY = re.compile(rb"\n[^\s#-]")
_LAST_ID = re.compile(rb"^last_id:[ \t]*(\d{1,15})(?=[ \t\r\n]|\Z)", re.MULTILINE)
_WRITTEN_ID = re.compile(rb"\bid[\"']?\s*:\s*[\"']?([A-Za-z0-9_.-]+)")  # in an unreadable record
_ODD_LAST_ID = re.compile(rb"^(?:\xef\xbb\xbf)?([\"']?)last_id\1[ \t]*:", re.MULTILINE)
_FOREIGN = "this is not part of a record"


class YamlList:
    """The form of a file that holds the records of one kind."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def parse(self, content: bytes) -> RecordList:
        return renewed(self._kind, content, parse(content, self._kind.key))

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        """Return the records in `content[offset:]`, which begins on a fresh line in the list."""
        found = RecordList(indent=indent, listed=True)
        _read_chunks(content, offset, found)
        return renewed(self._kind, content, found)

    def find(self, content: bytes, memory_id: str) -> Located | None:
        """Return one record, without reading the others where its file is plain."""
        if memory_id.encode() not in content:
            return None
        listed = _key_line(content, self._kind.key)
        is_known = version_in(self._kind.file, content) == FORMAT_VERSION
        if is_known and listed and _is_plain(content, listed):
            located = _find_line(content, listed.end(), memory_id)
            if located is not None:
                return located
        return self.parse(content).find(memory_id)

    def highest(self, found: RecordList, content: bytes) -> int:
        """Return the highest number that an id of this kind has had in the file."""
        ids = [str(record.value.get("id")) for record in found.records]
        for bad in found.bad:
            ids += map(bytes.decode, _WRITTEN_ID.findall(content, bad.start, bad.end))
        numbers = [found.head.get("last_id"), *map(self._kind.number_of, ids)]
        counted = [one for one in numbers if isinstance(one, int) and one < NUMBERS]
        return max([0, *counted])

    def render(self, value: Mapping[str, Value], indent: int) -> bytes:
        """Return the record as an item of a block list: `id` first and marked, `decay` last."""
        body = {"id": value["id"], **value} if "id" in value else dict(value)
        decay = body.pop("decay", None)
        lines = render_entries(body, indent + 2)
        if "decay" in value:
            if "id" in value:
                lines[0] += f" {MARK}"
            lines.append(f"{' ' * (indent + 2)}decay: {render_flow(decay)}")
        lines = lines or ["{}"]
        lines[0] = f"{' ' * indent}- {lines[0].lstrip()}"
        return "\n".join([*lines, ""]).encode()

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        """Return the bytes between the end of a plain file and an appended record, else None."""
        if not found.plain or version_in(self._kind.file, content) != FORMAT_VERSION:
            return None
        fresh_line = b"" if not content or content.endswith(b"\n") else b"\n"
        if found.listed:
            return fresh_line
        return fresh_line + (f"{self._kind.key}:\n".encode() if found.head else self._head({}))

    def torn(self, found: RecordList, content: bytes) -> int | None:
        """Return where the unfinished records begin with which the file ends; None for none.

        A whole line without a mark was not begun by the library: people mend it where it is.
        """
        at: int | None = None
        for item in reversed(found.items()):
            is_open = at is None and not content.endswith(b"\n")
            is_torn = isinstance(item, Bad) and (is_open or self.is_ours(content, item.start))
            if not is_torn or not item.start or content[item.end : at].strip():
                break
            at = item.start
        return at

    def is_ours(self, content: bytes, start: int) -> bool:
        return _MARKED.match(content, start) is not None

    def with_last(self, content: bytes, highest: int) -> bytes:
        """Return the file with the highest number ever given here in its head."""
        listed = _key_line(content, self._kind.key)
        if listed is None:
            return content
        if known := _LAST_ID.search(content, 0, listed.start()):
            return content[: known.start(1)] + b"%d" % highest + content[known.end(1) :]
        return content[: listed.start()] + b"last_id: %d\n" % highest + content[listed.start() :]

    def is_plain(self, content: bytes) -> bool:
        """Return whether the file may be changed in place. A plain file is not parsed for that."""
        listed = _key_line(content, self._kind.key)
        is_plain = listed is not None and _is_plain(content, listed)
        return is_plain or parse(content, self._kind.key).plain

    def render_plain(self, content: bytes) -> bytes:
        """Return the whole file in the style of this library, with all that can be read of it."""
        found = self.parse(content)
        if found.bad or "last_id" in found.head:
            # The ids in bytes that are left out are not given again.
            found.head["last_id"] = self.highest(found, content)
        records = [self.render(record.value, INDENT) for record in found.records]
        return self._head(found.head) + b"".join(records)

    def own_end(self, raw: bytes, value: Mapping[str, Value]) -> int:
        """Return where a record ends in its span, without the comments and blank lines below it."""
        lines = raw.splitlines(keepends=True)
        while len(lines) > 1 and _COMMENTS.fullmatch(lines[-1]):
            lines.pop()
        own = b"".join(lines)
        # A line that looks like a comment may be a line of a text: only reading tells.
        item = _read_record(own, 0, len(own))
        return len(own) if isinstance(item, Located) and item.value == value else len(raw)

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return self._head({})

    def _head(self, head: Mapping[str, Value]) -> bytes:
        """Return the beginning of the file, up to where its first record goes."""
        lines = render_entries({"version": FORMAT_VERSION} | {**head, "version": FORMAT_VERSION}, 0)
        return "".join(line + "\n" for line in [*lines, f"{self._kind.key}:"]).encode()


def parse(content: bytes, key: str) -> RecordList:
    """Return the records of a file. Never raises on content: bytes it cannot read are in `bad`."""
    listed = _key_line(content, key)
    if listed is not None and _is_plain(content, listed):
        return _parse_by_lines(content, listed)
    try:
        with reading():
            return _parse_whole(content, key)
    except BadYaml as problem:
        if listed is not None or _DASH.match(content):
            return _parse_by_lines(content, listed)
        found = RecordList()
        found.take(Bad(0, len(content), problem.line + 1, problem.problem))
        return found


def _key_line(content: bytes, key: str) -> re.Match[bytes] | None:
    line = rb"^([\"']?)%s\1[ \t]*:[ \t]*(?:#[^\n]*)?\r?$"
    return re.search(line % re.escape(key.encode()), content, re.MULTILINE)


def _is_plain(content: bytes, listed: re.Match[bytes]) -> bool:
    """Return whether the list is in block style and the last key of its file."""
    if _OTHER_KEY.search(content, listed.end()):
        return False
    head = content[: listed.start()]
    if _ODD_LAST_ID.search(head) and not _LAST_ID.search(head):
        return False
    first = _DASH.search(content, listed.end())
    end = first.start() if first else len(content)
    return _COMMENTS.fullmatch(content, listed.end(), end) is not None


def _parse_by_lines(content: bytes, listed: re.Match[bytes] | None) -> RecordList:
    """Return the records of a block list, each read by itself; without a key the list is all."""
    offset = min(listed.end() + 1, len(content)) if listed else 0
    first = _DASH.search(content, offset)
    found = RecordList(indent=len(first[1]) if first else INDENT, listed=True)
    found.plain = listed is not None
    if listed:
        try:
            head = load(decode(content[: listed.start()]))
            if head is not None and not isinstance(head, dict):
                raise BadYaml("the head of the file must be a mapping")
            found.head = head or {}
        except BadYaml as problem:
            found.take(Bad(0, listed.start(), problem.line + 1, problem.problem))
    _read_chunks(content, offset, found)
    return found


def _read_chunks(content: bytes, offset: int, found: RecordList) -> None:
    """Read the records behind an offset. Something foreign below a record is bad by itself."""
    starts = [match.start() for match in _dashes(found.indent).finditer(content, offset)]
    first = starts[0] if starts else len(content)
    if not _COMMENTS.fullmatch(content, offset, first):
        found.take(Bad(offset, first, 1, _FOREIGN))
    # A line that is not indented ends a record, unless lines behind it may be the rest of it.
    outside = re.compile(rb"^ {0,%d}[^\s#]" % found.indent, re.MULTILINE)
    inside = re.compile(rb"^ {%d}" % (found.indent + 2), re.MULTILINE)
    for start, end in zip(starts, [*starts[1:], len(content)], strict=False):
        item = _read_record(content, start, end)
        if isinstance(item, Bad):
            border = outside.search(content, content.find(b"\n", start, end) + 1, end)
            if border and not inside.search(content, border.start(), end):
                record = _read_record(content, start, border.start())
                if isinstance(record, Located):
                    found.take(record)
                    item = Bad(border.start(), end, 1, _FOREIGN)
        found.take(item)


def _dashes(indent: int) -> re.Pattern[bytes]:
    return re.compile(rb"^ {%d}-(?=[ \t\r\n]|\Z)" % indent, re.MULTILINE)


def _read_record(content: bytes, start: int, end: int) -> Located | Bad:
    try:
        with reading():
            events = Events(decode(content[start:end]))
            if not isinstance(events.open_document(), yaml.SequenceStartEvent):
                raise BadYaml(_FOREIGN)
            value = events.build(events.next(), 1)
            if not isinstance(events.next(), yaml.SequenceEndEvent):
                raise BadYaml("something else follows the record")
            events.close_document()
        if not isinstance(value, dict):
            raise BadYaml("a record must be a mapping")
        is_last = not content.endswith(b"\n") and not _SOMETHING.search(content, end)
        # Cut within its first line, a record has no mark yet: all that is left of it is the id.
        if _is_cut_off(content, start, value) or (is_last and value.keys() <= {"id"}):
            raise BadYaml(CUT_OFF)
    except BadYaml as problem:
        last = content[start:end].rstrip().count(b"\n")
        return Bad(start, end, 1 + min(problem.line, last), problem.problem)
    return Located(start, end, value)


def _is_cut_off(content: bytes, start: int, value: Mapping[str, Value]) -> bool:
    """Return whether the writer of this record died, also where others have appended behind it."""
    return _MARKED.match(content, start) is not None and not isinstance(value.get("decay"), dict)


def _find_line(content: bytes, offset: int, memory_id: str) -> Located | None:
    """Return the last record whose first line has this id, as in every record of ours.

    None where another record may have the id too: then only reading all of them tells.
    """
    first, wanted = _DASH.search(content, offset), memory_id.encode()
    indent = len(first[1]) if first else INDENT
    line = rb" {%d}- +id: *[\"']?%s[\"']?[ \t\r]*(?:#|\n|\Z)" % (indent, re.escape(wanted))
    at = content.rfind(wanted, offset)
    while at >= 0:
        # Nothing but the dash and the key stands before the id, so its line begins close by.
        start = content.rfind(b"\n", max(at - indent - 16, 0), at) + 1
        if re.compile(line).match(content, start):
            following = _dashes(indent).search(content, start + indent + 1)
            end = following.start() if following else len(content)
            item = _read_record(content, start, end)
            return item if isinstance(item, Located) and item.value["id"] == memory_id else None
        if re.search(rb"\bid[\"']?[ \t]*:\s*[\"']?\Z", content[max(at - 16, 0) : at]):
            return None
        at = content.rfind(wanted, offset, at)
    return None


def _parse_whole(content: bytes, key: str) -> RecordList:
    """Return the records of a file in any style; raise BadYaml where it is not valid as a whole."""
    text = decode(content)
    events = Events(text)
    found = RecordList()
    items: list[tuple[int, Value]] = []  # with the index of their first character
    root = events.open_document()
    if isinstance(root, yaml.StreamEndEvent):
        return found
    found.plain = isinstance(root, yaml.MappingStartEvent) and not root.flow_style
    if isinstance(root, yaml.SequenceStartEvent):
        found.listed = True
        items = [(item.start_mark.index, events.build(item, 1)) for item in events.items()]
    elif isinstance(root, yaml.MappingStartEvent):
        for name, first in events.entries():
            if name != key:
                found.head[name] = events.build(first, 1)
                continue
            found.listed, found.plain = True, False
            if isinstance(first, yaml.SequenceStartEvent):
                items = [(item.start_mark.index, events.build(item, 2)) for item in events.items()]
            elif events.build(first, 1) is not None:
                raise BadYaml(f"{key!r} must be a list", first.start_mark.line)
    elif events.build(root) is not None:
        raise BadYaml(f"expected a mapping with the list {key!r}", root.start_mark.line)
    events.close_document()
    at, known = len(content) - len(text.encode()), 0
    starts: list[int] = []
    for index, _ in items:
        at += len(text[known:index].encode())
        known = index
        starts.append(at)
    for start, end, (_, value) in zip(starts, [*starts[1:], len(content)], items, strict=False):
        if isinstance(value, dict) and not _is_cut_off(content, start, value):
            found.take(Located(start, end, value))
        else:
            why = CUT_OFF if isinstance(value, dict) else "a record must be a mapping"
            found.take(Bad(start, end, 1, why))
    return found
