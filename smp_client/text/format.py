"""What the two forms of a record file have in common: YAML lists, and the conversation in
Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Protocol

from ..model.errors import SMPError
from ..model.layout import FORMAT_VERSION
from ..model.record import TURN, Kind, kind_of_file
from . import mapping, markdown, yaml_list
from .document import Bad, Located, RecordList
from .values import Value
from .version import (
    in_present_words,
    is_record_file,
    is_versioned,
    require_known,
    stated,
    top_of,
    version_in,
)


class Format(Protocol):
    def parse(self, content: bytes) -> RecordList: ...
    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList: ...
    def find(self, content: bytes, memory_id: str) -> Located | None: ...
    def highest(self, found: RecordList, content: bytes) -> int: ...
    def render(self, value: Mapping[str, Value], indent: int) -> bytes: ...
    def opening(self, found: RecordList, content: bytes) -> bytes | None: ...
    def torn(self, found: RecordList, content: bytes) -> int | None: ...
    def is_ours(self, content: bytes, start: int) -> bool: ...
    def with_last(self, content: bytes, highest: int) -> bytes: ...
    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes: ...


class YamlList:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def parse(self, content: bytes) -> RecordList:
        return _as_now(self._kind, yaml_list.parse(content, self._kind.key))

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        return _as_now(self._kind, yaml_list.parse_tail(content, offset, indent), content)

    def find(self, content: bytes, memory_id: str) -> Located | None:
        version = _known_version(self._kind, content)
        return _located_now(
            self._kind, yaml_list.find_record(content, self._kind.key, memory_id), version
        )

    def highest(self, found: RecordList, content: bytes) -> int:
        return yaml_list.highest_number(found, content, self._kind.prefix)

    def render(self, value: Mapping[str, Value], indent: int) -> bytes:
        return yaml_list.render_record(value, indent)

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        return (
            yaml_list.opening(found, content, self._kind.key)
            if _is_present(self._kind, content)
            else None
        )

    def torn(self, found: RecordList, content: bytes) -> int | None:
        """Return where the records that were never finished begin, if the file ends with one, or
        with several."""
        items = sorted(found.items(), key=lambda item: item.start)
        if not items or content[items[-1].end :].strip():
            return None
        at: int | None = None
        for item in reversed(items):
            # A whole line without a mark is none that the library began: a person will want to
            # mend it where it is.
            is_torn = isinstance(item, Bad) and (
                self.is_ours(content, item.start) or (at is None and not content.endswith(b"\n"))
            )
            if not is_torn or not item.start:
                break
            at = item.start
        return at

    def is_ours(self, content: bytes, start: int) -> bool:
        return yaml_list.is_marked(content, start)

    def with_last(self, content: bytes, highest: int) -> bytes:
        """With the highest number ever given here in its head, so that it is not given again."""
        return yaml_list.with_last_id(plain(self._kind.file, content), self._kind.key, highest)

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return yaml_list.render_head(self._kind.key)


class Conversation:
    def parse(self, content: bytes) -> RecordList:
        return _as_now(TURN, markdown.parse(content))

    def parse_tail(self, content: bytes, offset: int, indent: int) -> RecordList:
        return _as_now(TURN, markdown.parse_tail(content, offset), content)

    def find(self, content: bytes, memory_id: str) -> Located | None:
        version = _known_version(TURN, content)
        number = memory_id.removeprefix("turn-")
        is_number = number.isdecimal() and str(int(number)) == number
        return _located_now(
            TURN, markdown.find_turn(content, int(number)) if is_number else None, version
        )

    def highest(self, found: RecordList, content: bytes) -> int:
        return markdown.highest(found)

    def render(self, value: Mapping[str, Value], indent: int) -> bytes:
        return markdown.render_turn(value)

    def opening(self, found: RecordList, content: bytes) -> bytes | None:
        return markdown.separator(content) if _is_present(TURN, content) else None

    def torn(self, found: RecordList, content: bytes) -> int | None:
        return markdown.torn(content)

    def is_ours(self, content: bytes, start: int) -> bool:
        return markdown.is_marked(content, start)

    def with_last(self, content: bytes, highest: int) -> bytes:
        return markdown.with_last_turn(content, highest)

    def empty(self, scope: str, started: datetime, participants: list[str]) -> bytes:
        return markdown.render_header(scope, started, participants)


def format_of(kind: Kind) -> Format:
    return Conversation() if kind is TURN else YamlList(kind)


def mentioned(kind: Kind, content: bytes) -> set[str]:
    """Return the ids with a number, as SMP gives them, that stand anywhere in the content."""
    name = b"## Turn " if kind is TURN else kind.prefix.encode() + b"-"
    return {
        kind.memory_id(int(number)) for number in set(re.findall(name + rb"(\d{1,15})", content))
    }


def _known_version(kind: Kind, content: bytes) -> int:
    """For readers of a part, which do not read the head: by the line that says it."""
    version = version_in(kind.file, content)
    require_known(version, kind.file)
    return version


def _is_present(kind: Kind, content: bytes) -> bool:
    return version_in(kind.file, content) == FORMAT_VERSION


def _as_now(kind: Kind, found: RecordList, whole: bytes | None = None) -> RecordList:
    """The records as they are said now, whatever the version of the file; where only a part was
    read, the whole tells which."""
    version = stated(found.head.get("version")) if whole is None else version_in(kind.file, whole)
    if version != FORMAT_VERSION:
        require_known(version, kind.file)
        found.records = [
            Located(one.start, one.end, in_present_words(kind.name, one.value, version))
            for one in found.records
        ]
        found.head["version"] = FORMAT_VERSION
    return found


def _located_now(kind: Kind, found: Located | None, version: int) -> Located | None:
    if found is None or version == FORMAT_VERSION:
        return found
    return Located(found.start, found.end, in_present_words(kind.name, found.value, version))


def present(file: str, content: bytes) -> bytes:
    """Return the file in the present version, for whoever passes it on; as it is where a later
    SMP has written it."""
    if is_versioned(file) and version_in(file, content) != FORMAT_VERSION:
        with suppress(SMPError):
            return plain(file, content)
    return content


def is_plain(file: str, content: bytes) -> bool:
    """Return whether a file can be changed in place. Any other is rendered anew when it is next
    written."""
    if not is_versioned(file):
        return True
    if version_in(file, content) != FORMAT_VERSION:
        return False
    if (top := top_of(file)) is not None:
        return mapping.is_plain(content, top)
    return (
        file == TURN.file
        or not is_record_file(file)
        or yaml_list.is_plain(content, kind_of_file(file).key)
    )


def plain(file: str, content: bytes) -> bytes:
    """Return the file as SMP would write it, with all that can be read of it; the file itself
    where it is plain already."""
    if is_versioned(file):
        require_known(version_in(file, content), file)
    if not content.strip() or is_plain(file, content):
        return content
    if (top := top_of(file)) is not None:
        return mapping.render_anew(content, top, mapping.load_mapping(content, top, file))
    if not is_record_file(file):
        return content
    form = format_of(kind := kind_of_file(file))
    found = form.parse(content)
    if kind is TURN:
        first = min((item.start for item in found.items()), default=len(content))
        turns = b"".join(markdown.render_turn(turn.value) for turn in found.records)
        return markdown.with_version(content[:first]) + turns
    if found.bad or "last_id" in found.head:
        # The ids in what is left out are not given again.
        found.head["last_id"] = form.highest(found, content)
    return yaml_list.render_list(kind.key, found)
