"""Every place below the root where a text stands: whoever a memory is about may ask what is kept of them, wherever it is.

The files are read as they are, one at a time, and nothing is locked or changed. What is packed is unpacked, also an archive inside
an archive. The index and the YAML indexes are made from the files and say nothing further; only a text that stands nowhere else is
looked for there, since it should not be.
"""

from __future__ import annotations

import codecs
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

from ...audit import FILE as AUDIT_LOG
from ...errors import SMPError
from ...files import DEEPEST, Walked
from ...layout import ARCHIVED, DELETED
from ...maintain.evictions import MANIFEST, is_eviction
from ...maintain.traces import opened
from ...records import type_of
from ...text.document import Lines
from ...text.format import HEAD
from ...text.mapping import load_mapping
from ..deleting.standing import EVICTED, is_record_file
from ..deleting.store import BACKUP, DELETION, RECORD, TOP, VALUES, member_of
from .needle import Needle, excerpt
from .passages import Passage, found_in, passages_of, record_passage, text_of
from .places import DERIVED, is_own_name, place_of
from .unpacking import DEPTH_CAP, PACKED, Budget, is_foreign, members, reading

if TYPE_CHECKING:
    from ...memory import Memory

WHOLE_CAP_BYTES = 32 * 1024 * 1024  # a larger file is none that SMP writes, and is read in pieces
_PIECE_BYTES = 4 * 1024 * 1024
_WHOLE_SESSION, _ITS_ARCHIVE = "session/", "archived/"  # below these a backup holds a session that was deleted whole
NAME = "name"
WITH_ITS_SESSION, HEAD_OF_FILE = "delete_session", "head"


@dataclass(frozen=True)
class Occurrence:
    """A place where the text stands; with a problem, one that could not be looked into."""

    session: str  # nothing where it belongs to none
    place: str  # active, archived, evicted, deleted, global, inbox, rejected, quarantined; else see places.py
    path: str  # the file below the root
    member: str = ""  # of an archive, the file in it
    line: int = 0  # of the file or the member; 0 where it has none
    id: str = ""
    type: str = ""
    field: str = ""  # nothing for what stands in no field, such as a comment; `name` for the name of the file
    excerpt: str = ""
    start: int = 0  # of the text, in the excerpt
    end: int = 0
    count: int = 1  # on this line, in this field
    until: str = ""  # of what was deleted: when it can be restored at the latest
    problem: str = ""
    action: str = ""  # of what was deleted: delete, anonymize, or delete_session with its whole session
    batch: str = ""  # and under which it went

    @property
    def where(self) -> str:
        inner = f" ({self.member})" if self.member else ""
        return f"{self.path}{inner}:{self.line}" if self.line else f"{self.path}{inner}"


def all_about(memory: Memory, text: str, session: str | None = None) -> Iterator[Occurrence]:
    """As they are found; raises InvalidQuery at once where the text is too short to be looked for."""
    search = _Search(memory, Needle(text), session)
    memory.require()
    return search.run()


class _Search:
    def __init__(self, memory: Memory, needle: Needle, session: str | None) -> None:
        self._tree = memory.tree
        self._needle = needle
        self._session = session
        self._until: dict[str, dict[str, Any]] = {}

    def run(self) -> Iterator[Occurrence]:
        is_anywhere = False
        derived: list[str] = []
        for path, is_directory, is_deep in self._walk():
            if not self._is_wanted(path):
                continue
            if is_deep:
                place = place_of(path)
                problem = f"It is deeper than {DEEPEST} directories, and was not looked into."
                yield Occurrence(place.session, place.name, _printable(path), type="directory", problem=problem)
                continue
            if place_of(path).name == DERIVED:
                derived += [] if is_directory else [path]
                continue
            for one in self._named(path) if is_directory else self._in_file(path):
                is_anywhere |= not one.problem
                yield one
        if not is_anywhere:
            for path in derived:
                yield from self._in_file(path)

    def _walk(self) -> Iterator[Walked]:
        """Yield every file and every directory of the tree, what is SMP's own last."""
        failed: list[str] = []
        own: list[Walked] = []
        for one in self._tree.walk("", lambda path, _: failed.append(path)):
            if one.path.startswith("."):
                own.append(one)
            else:
                yield one
        yield from own
        yield from (Walked(path, False) for path in failed)  # which say so when they are read

    def _is_wanted(self, path: str) -> bool:
        place = place_of(path)
        # What was done, by whom and to which ids: it can be read as it is, and nothing is ever taken out of it.
        return path != AUDIT_LOG and self._session in (None, place.session)

    def _named(self, path: str, where: Occurrence | None = None, file: str | None = None) -> Iterator[Occurrence]:
        """The name itself, where somebody chose it."""
        place = place_of(path)
        name = (path if file is None else file).rpartition("/")[2]
        if is_own_name(name) or (where is None and path.startswith(".smp")):
            return
        where = where or Occurrence(place.session, place.name, _printable(path), type="directory")
        if (span := next(self._needle.find(name), None)) is not None:
            around = excerpt(_printable(name), span)
            yield replace(where, field=NAME, excerpt=around.text, start=around.start, end=around.end)

    # One file, and what is packed in it.

    def _in_file(self, path: str) -> Iterator[Occurrence]:
        place = place_of(path)
        where = Occurrence(place.session, place.name, _printable(path))
        try:
            with opened(self._tree, path) as descriptor:
                source = io.BufferedReader(_File(descriptor))
                if not path.startswith((".smp", "quarantine/")):
                    yield from self._named(path, where)
                yield from self._in_stream(where, place.file, os.fstat(descriptor).st_size, source, Budget(), 0)
        except FileNotFoundError:
            return  # it went while we looked
        except (SMPError, OSError) as error:
            yield replace(where, problem=f"It cannot be read: {error}")

    def _in_stream(
        self, where: Occurrence, file: str, size: int, source: IO[bytes], budget: Budget, depth: int
    ) -> Iterator[Occurrence]:
        head = source.read(_PIECE_BYTES)
        if head.startswith(PACKED) and depth < DEPTH_CAP:
            yield from self._unpacked(where, file, _behind(head, source), budget, depth)
        elif head.startswith(PACKED) or is_foreign(head):
            yield replace(where, problem="It is packed in a way that is not unpacked here.")
        elif size > WHOLE_CAP_BYTES or (where.place == DERIVED and not file.endswith(".yaml")):
            yield from self._in_pieces(where, head, source)
        else:
            yield from self._in_content(where, file, head + source.read())

    def _unpacked(self, where: Occurrence, file: str, source: IO[bytes], budget: Budget, depth: int) -> Iterator[Occurrence]:
        name = file.rpartition("/")[2]
        if name == BACKUP and where.place == DELETED and not where.member:
            contents: _Contents = _Backup(self, where)
        else:
            contents = _Eviction(self, where) if is_eviction(name) else _Contents(self, where)
        try:
            with reading():
                for member, size, inner in members(source, budget):
                    for placed, inner_file in contents.take(member):
                        yield from self._named(where.path, placed, inner_file)
                        if contents.splits(inner_file) and size <= WHOLE_CAP_BYTES:
                            yield from contents.split(placed, inner_file, inner.read())
                        else:
                            yield from self._in_stream(placed, inner_file, size, inner, budget, depth + 1)
        except SMPError as error:
            yield replace(where, problem=f"Of {contents.path or 'it'} not all can be read: {error}")

    def _in_content(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        for passage in passages_of(file, content, self._needle):
            yield from self.in_passage(where, passage)

    def in_passage(self, where: Occurrence, passage: Passage) -> Iterator[Occurrence]:
        for found in found_in(passage, self._needle):
            text, start, end = found.excerpt
            yield replace(where, id=_printable(passage.id), type=type_of(passage.type or where.type), field=_printable(found.field),
                          line=found.line, excerpt=_printable(text), start=start, end=end, count=found.times)  # fmt: skip

    def _in_pieces(self, where: Occurrence, head: bytes, source: IO[bytes]) -> Iterator[Occurrence]:
        """Only as a text, and never much of it at once: line by line, with what may reach over from one piece into the next."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, line, piece = "", 1, head
        while piece:
            text += decoder.decode(piece)
            piece = source.read(_PIECE_BYTES)
            safe = len(text) - self._needle.reach_characters if piece else len(text)
            for span in self._needle.find(text):
                if span.start < safe:
                    number = 0 if where.place == DERIVED else line + text.count("\n", 0, span.start)
                    around = excerpt(text, span)
                    yield replace(where, line=number, excerpt=_printable(around.text), start=around.start, end=around.end)
            kept = max(safe, 0)
            line += text.count("\n", 0, kept)
            text = text[kept:]

    def until(self, session: str) -> dict[str, Any]:
        """What the record of a session says of its backup: the items by the names of their copies, and the whole session."""
        if session not in self._until:
            said: Mapping[str, Any] = {}
            path = f"{DELETED}/{session}/{RECORD}"
            with suppress(SMPError, OSError):
                said = load_mapping(self._tree.read(path), TOP, path)
            items = said.get("deleted_items")
            known = {member_of(item): item for item in items if isinstance(item, dict) and "file" in item and "id" in item} \
                if isinstance(items, list) else {}  # fmt: skip
            self._until = {session: {**known, "": said.get("deleted_session")}}
        return self._until[session]


class _Contents:
    """An archive: every file in it, by its name in the session that was packed."""

    def __init__(self, search: _Search, where: Occurrence) -> None:
        self._search = search
        self._where = where
        self.path = where.member

    def take(self, member: str) -> Iterator[tuple[Occurrence, str]]:
        """Where a member is, and which file of a session it is; nothing where it only repeats another."""
        yield self._at(member), member

    def splits(self, file: str) -> bool:
        """Whether a member is more than one part, or a part of a file only."""
        return False

    def split(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        """What of it holds the text; of a plain file, all of it is one part."""
        yield from self._search._in_content(where, file, content)

    def _at(self, member: str) -> Occurrence:
        inner = _printable(member)
        return replace(self._where, member=f"{self.path}/{inner}" if self.path and inner else inner or self.path)


class _Eviction(_Contents):
    """What compaction has taken out: the records of each file one behind the other, as its manifest tells."""

    def __init__(self, search: _Search, where: Occurrence) -> None:
        super().__init__(search, replace(where, place=EVICTED) if where.place == ARCHIVED else where)
        self._items: dict[str, list[tuple[int, int, str]]] = {}

    def splits(self, file: str) -> bool:
        return file == MANIFEST or file in self._items

    def split(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        if file == MANIFEST:
            self._read_manifest(content)
            yield from self._search._in_content(where, file, content)
            return
        position, lines = 0, Lines(content, b"\n")
        for start, end, memory_id in [*self._items[file], (len(content), len(content), "")]:
            if not position <= start <= end <= len(content):
                continue
            # What no item of the manifest names.
            yield from self._search.in_passage(where, Passage(text_of(content[position:start]), lines.at(position)))
            passage = record_passage(file, content[start:end], memory_id) if start < end else Passage("")
            yield from self._search.in_passage(where, replace(passage, first_line=lines.at(start)))
            position = end

    def _read_manifest(self, content: bytes) -> None:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            for item in json.loads(content)["items"]:
                if is_record_file(item["file"]):
                    start = int(item["offset"])
                    self._items.setdefault(item["file"], []).append((start, start + int(item["length"]), str(item["id"])))
        for spans in self._items.values():
            spans.sort()


class _Backup(_Contents):
    """What was deleted, each until its deadline: copies of memories, and of sessions that were deleted whole."""

    def __init__(self, search: _Search, where: Occurrence) -> None:
        super().__init__(search, where)
        self._said = search.until(where.session)
        self._seen: set[str] = set()
        self._id = ""

    def take(self, member: str) -> Iterator[tuple[Occurrence, str]]:
        self._seen.add(member)
        self._id = ""
        where = self._at(member)
        for below in (_WHOLE_SESSION, _ITS_ARCHIVE):
            if member.startswith(below) and isinstance(self._said[""], dict):
                until = str(self._said[""].get("recovery_deadline") or "")
                yield replace(where, until=until, action=WITH_ITS_SESSION), member.removeprefix(below)
                return
        if member.startswith(VALUES) and member.removeprefix(VALUES) in self._seen:
            return  # the same again, as JSON
        item = self._said.get(member)
        if item is None:
            yield where, f"{member}.json" if member.startswith(VALUES) else member
            return
        self._id = str(item["id"])
        until, batch = (str(item.get(name) or "") for name in ("recovery_deadline", "batch"))
        yield replace(where, until=until, action=str(item.get("action") or DELETION), batch=batch), str(item["file"])

    def splits(self, file: str) -> bool:
        return bool(self._id) and is_record_file(file)

    def split(self, where: Occurrence, file: str, content: bytes) -> Iterator[Occurrence]:
        if self._id == HEAD:
            yield from self._search.in_passage(where, Passage(text_of(content), 1, None, "", HEAD_OF_FILE, is_ours=True))
        else:
            yield from self._search.in_passage(where, record_passage(file, content, self._id))


def _behind(head: bytes, source: IO[bytes]) -> IO[bytes]:
    """The stream with what was read of it already; only what comes out of it again is in memory."""
    return io.BufferedReader(_Joined(head, source))


class _File(io.RawIOBase):
    """A descriptor that is closed by somebody else, or never, read from its beginning."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._offset = descriptor, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = os.pread(self._descriptor, len(buffer), self._offset)
        self._offset += len(piece)
        buffer[: len(piece)] = piece
        return len(piece)


class _Joined(io.RawIOBase):
    def __init__(self, head: bytes, source: IO[bytes]) -> None:
        self._head, self._source = io.BytesIO(head), source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._head.read(len(buffer)) or self._source.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


def _printable(name: str) -> str:
    """With what is no character, as in the name of a file, written out."""
    return name.encode("utf-8", "backslashreplace").decode()
