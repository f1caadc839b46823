"""Changing many records of a file at once, by the bytes that the index knows them to stand in.

As long as a file begins with the bytes that the index has read (it may have grown since), each record is where the index says.
Where somebody has edited it meanwhile the file is read again, and a record is changed only if it still is what it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .indexing import hash_of
from .records import Kind
from .text import document
from .text.format import format_of, is_plain, plain


class Part(NamedTuple):
    """A record, and what is to stand in its place; nothing to take it out."""

    id: str
    start: int
    end: int
    hash: str  # of what it is now, see indexing.hash_of
    new: str


class Splice(NamedTuple):
    """What is to become of a file. `size` and `checksum` are those of the bytes that the places are right for."""

    size: int
    checksum: int
    parts: list[Part]
    last: int = 0  # the highest number ever given here, which is written down where a record is taken out

    def as_step(self, file: str) -> dict[str, Any]:
        """For the journal."""
        return {"file": file, "splice": [list(part) for part in self.parts], "of": [self.size, self.checksum], "last": self.last}


def from_step(step: Mapping[str, Any]) -> Splice:
    size, checksum = step["of"]
    return Splice(size, checksum, [Part(*part) for part in step["splice"]], step["last"])


def splice(kind: Kind, content: bytes, change: Splice) -> bytes:
    """The file with its records changed; the file itself where that has been done before."""
    if not is_as_read(content, change) or not is_plain(kind.file, content):
        content = plain(kind.file, content)
        change = change._replace(parts=list(_found_again(kind, content, change.parts)))
    after = document.splice(content, [(part.start, part.end, part.new.encode()) for part in change.parts])
    if any(not part.new for part in change.parts):
        return format_of(kind).with_last(after, change.last)
    return after


def is_as_read(content: bytes, change: Splice) -> bool:
    """Whether every record still stands where it stood. An append that was seen in part may have gone on since: then the last
    record does not end any more where it did."""
    has_last = any(part.end >= change.size for part in change.parts)
    is_long_enough = len(content) == change.size or (len(content) > change.size and not has_last)
    return is_long_enough and zlib.crc32(memoryview(content)[: change.size]) == change.checksum


def _found_again(kind: Kind, content: bytes, parts: Sequence[Part]) -> Iterable[Part]:
    wanted = {part.id: part for part in parts}
    # Of a hand-made double only the last is meant.
    standing = {str(record.value["id"]): record for record in format_of(kind).parse(content).records if record.has_id}
    for memory_id, part in wanted.items():
        record = standing.get(memory_id)
        if record is not None and hash_of(record.value) == part.hash:
            yield part._replace(start=record.start, end=record.end)
