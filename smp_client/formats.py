"""What the two forms of a record file have in common: YAML lists, and the conversation in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from . import document, editing, markdown
from .document import Bad, Located, RecordList
from .errors import NewerFormat
from .layout import FORMAT_VERSION
from .records import TURN, Kind
from .values import Value


class Format(Protocol):
    def parse(self, content: bytes) -> RecordList: ...
    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList: ...
    def find(self, content: bytes, memory_id: str) -> Located | None: ...
    def highest(self, found: RecordList, content: bytes) -> int: ...
    def render(self, value: Mapping[str, Value], indent: int) -> bytes: ...
    def opening(self, found: RecordList, content: bytes) -> bytes | None: ...
    def insert(self, content: bytes, value: Mapping[str, Value]) -> bytes: ...
    def torn(self, found: RecordList, content: bytes) -> int | None: ...
    def is_ours(self, content: bytes, start: int) -> bool: ...
    def rewrite(self, content: bytes, changes: Mapping[str, Mapping[str, Value] | None], highest: int) -> bytes: ...
    def with_last(self, content: bytes, highest: int) -> bytes: ...
    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes: ...


class YamlList:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def parse(self, content: bytes) -> RecordList:
        return _readable(document.parse(content, self._kind.key), self._kind.file)

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        return document.parse_tail(content, offset, indent)

    def find(self, content: bytes, memory_id: str) -> Located | None:
        _refuse_newer(content, self._kind.file)
        return document.find_record(content, self._kind.key, memory_id)

    def highest(self, found: RecordList, content: bytes) -> int:
        return document.numbered(found, content, self._kind.prefix)

    def render(self, value: Mapping[str, Value], indent: int) -> bytes:
        return editing.render_record(value, indent)

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        return editing.opening(found, content, self._kind.key)

    def insert(self, content: bytes, value: Mapping[str, Value]) -> bytes:
        return editing.insert(self.parse(content), content, self._kind.key, value)

    def torn(self, found: RecordList, content: bytes) -> int | None:
        """Where a record that was never finished begins, if the file ends with one."""
        last = max(found.items(), key=lambda item: item.start, default=None)
        if not isinstance(last, Bad) or last.start == 0 or content[last.end :].strip():
            return None
        # A whole line without a mark is none that the library began: a person will want to mend it where it is.
        return last.start if self.is_ours(content, last.start) or not content.endswith(b"\n") else None

    def is_ours(self, content: bytes, start: int) -> bool:
        return document.is_marked(content, start)

    def rewrite(self, content: bytes, changes: Mapping[str, Mapping[str, Value] | None], highest: int) -> bytes:
        return editing.rewrite(content, self._kind.key, changes, highest)

    def with_last(self, content: bytes, highest: int) -> bytes:
        """With the highest number ever given here in its head, so that it is not given again."""
        return editing.with_last_id(content, self._kind.key, highest)

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return editing.render_head(self._kind.key)


class Conversation:
    def parse(self, content: bytes) -> RecordList:
        return _readable(markdown.parse(content), TURN.file)

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        return markdown.parse_tail(content, offset)

    def find(self, content: bytes, memory_id: str) -> Located | None:
        _refuse_newer(content, TURN.file)
        number = memory_id.removeprefix("turn-")
        return markdown.find_turn(content, int(number)) if number.isdecimal() and str(int(number)) == number else None

    def highest(self, found: RecordList, content: bytes) -> int:
        return markdown.highest(found)

    def render(self, value: Mapping[str, Value], indent: int) -> bytes:
        return markdown.render_turn(value)

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        return markdown.separator(content)

    def insert(self, content: bytes, value: Mapping[str, Value]) -> bytes:
        return content + markdown.separator(content) + markdown.render_turn(value)

    def torn(self, found: RecordList, content: bytes) -> int | None:
        return markdown.torn(content)

    def is_ours(self, content: bytes, start: int) -> bool:
        return markdown.is_marked(content, start)

    def rewrite(self, content: bytes, changes: Mapping[str, Mapping[str, Value] | None], highest: int) -> bytes:
        return markdown.rewrite(content, changes, highest)

    def with_last(self, content: bytes, highest: int) -> bytes:
        return markdown.with_last_turn(content, highest)

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return markdown.render_header(scope, started, participants)


def format_of(kind: Kind) -> Format:
    return Conversation() if kind is TURN else YamlList(kind)


def insert_missing(form: Format, content: bytes, values: list[dict[str, Value]]) -> bytes:
    """The file with these records; one whose id is there already stays as it is."""
    for value in values:
        if form.find(content, str(value["id"])) is None:
            content = form.insert(content, value)
    return content


_VERSION_LINE = re.compile(rb"^(?:version:|\*\*Format-Version:\*\*)[ \t]*(\d{1,9})\b", re.MULTILINE)


def _refuse_newer(content: bytes, file: str) -> None:
    """For readers of single records, which do not read the head: looks for its version line."""
    if line := _VERSION_LINE.search(content, 0, 4096):
        _readable(RecordList(head={"version": int(line[1])}), file)


def _readable(found: RecordList, file: str) -> RecordList:
    version = found.head.get("version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise NewerFormat(f"{file} has format version {version}; this SMP knows versions up to {FORMAT_VERSION}.")
    return found
