"""Where the words of something can still be after it was removed: in the index's own pages, and anywhere below the root.

SQLite keeps what was deleted: FTS5 in its segments until they are merged, the file in its free pages, the WAL until it is cut
off. Only whoever leads the root may put that right. Until it is, `.smp/scrub` says that it has to be.
"""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import NotInTime, SMPError, UnsafePath
from ..files import Tree
from ..indexing import outdated, refresh
from ..scopes import archived_scope, has_moved, is_there
from ..status import INDEX_FILE
from .doomed import files_below
from .purged import sessions as purged_sessions

if TYPE_CHECKING:
    from ..index import Index
    from ..memory import Memory

FLAG = ".smp/scrub"
LINE_CHARACTERS = 12  # a shorter line may stand anywhere
NEEDLES_CAP = 200
PACKED = b"\x1f\x8b"
_FIELD = re.compile(r"^(?:- )?\w{1,40}: ")
_PIECE_BYTES = 8 * 1024 * 1024
_UNPACKED_CAP_BYTES = 256 * 1024 * 1024
_DEPTH_CAP = 3
_NO_TEXT = frozenset(("id", "timestamp", "updated_at", "decay", "type", "deleted_at"))
_PENDING = "The index may still hold words of what was purged, because {}: tried again next time."


def ask_for_scrub(memory: Memory) -> None:
    """Durable before anything is removed, so that a crash does not make anybody forget."""
    if memory.tree.exists(INDEX_FILE) and not memory.tree.exists(FLAG):
        memory.tree.replace(FLAG, b"")


def scrub_index(memory: Memory, index: Index | None = None) -> list[str]:
    """Where it was asked for: here by whoever leads, who gives its index, else by asking whoever does. Gives back what is wrong."""
    from ..sync import bring_up_to_date

    if not memory.tree.exists(FLAG):
        return []
    try:
        if index is not None:
            scrub(memory, index)
        else:
            bring_up_to_date(memory, "scrub")
    except NotInTime as error:
        return [f"{_PENDING.format('somebody is reading it')} ({error})"]
    except (SMPError, sqlite3.Error, OSError) as error:
        return [_PENDING.format(f"it could not be cleaned ({error})")]
    return [_PENDING.format("somebody is reading it")] if memory.tree.exists(FLAG) else []


def scrub(memory: Memory, index: Index) -> bool:
    """By whoever leads the root. Gives back whether nothing of what was removed is left in the index's files."""
    with index.batch():
        for scope, file in list(outdated(memory, index)):
            if is_there(memory, scope):
                refresh(memory, index, scope, file)
            elif has_moved(memory, scope):
                # With no daemon, nobody has taken it out yet. What is just gone is for whoever leads to believe.
                index.forget_session(scope)
        for session_id in purged_sessions(memory):
            for scope in (session_id, archived_scope(session_id)):
                if not is_there(memory, scope):
                    index.forget_session(scope)
    with index.batch():
        # The words of what was deleted stay in the segments that are not merged.
        index.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
    index.connection.execute("VACUUM")
    wait_ms = int(1000 * memory.options.patience.timeout_s)
    before = index.connection.execute("PRAGMA busy_timeout").fetchone()[0]
    try:
        index.connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
        is_held_up = bool(index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
    finally:
        index.connection.execute(f"PRAGMA busy_timeout = {before}")
    if not is_held_up:
        memory.tree.unlink(FLAG)
    return not is_held_up


def telling_lines(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines by which the texts of these memories would be known again."""
    found: dict[str, None] = {}
    for value in values:
        for name, item in value.items():
            if name not in _NO_TEXT:
                found.update(dict.fromkeys(_lines(item)))
    return list(found)


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from lines_of(value)
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _lines(item)


class Telling:
    """Lines by which something is known again, wherever it stands."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = set(lines)
        self._needles = needles(lines)

    def stand_in(self, tree: Tree, file: str) -> bool:
        """Whether one of them does. In YAML and Markdown each is found; where they are packed, or in JSON, of very many some."""
        if not self.lines:
            return False
        return bool(found_in(tree, file, self._needles)) or self._in_text(tree, file)

    def _in_text(self, tree: Tree, file: str) -> bool:
        try:
            text = tree.read(file).decode("utf-8", "replace")
        except (FileNotFoundError, UnsafePath):
            return False
        return any(line in self.lines or without_field(line) in self.lines for line in lines_of(text)) or self._is_cut_off(text)

    def _is_cut_off(self, text: str) -> bool:
        """Whether it ends in the middle of one of them, as what a crash has cut off does."""
        last = text.rstrip().rpartition("\n")[2]
        starts = ((line, last.find(line[:LINE_CHARACTERS])) for line in self.lines)
        return any(start >= 0 and line.startswith(last[start:]) for line, start in starts)


def without_field(line: str) -> str:
    """What a line of YAML says, without the name of its field and without quotes."""
    return _FIELD.sub("", line, count=1).strip("\"'")


def lines_of(text: str) -> list[str]:
    """Those that are long enough to tell, and are text at all: what is packed is full of the same zeros everywhere."""
    return [line for part in text.splitlines() if len(line := part.strip()) >= LINE_CHARACTERS and line.isprintable()]


def needles(lines: Iterable[str], cap: int = NEEDLES_CAP) -> list[bytes]:
    """The same as bytes, as they stand and as JSON has them; of very many only some, spread over all."""
    every = list(dict.fromkeys(lines))
    step = max(1, -(-len(every) // cap))
    forms = ((line.encode("utf-8", "replace"), *(json.dumps(line, ensure_ascii=plain)[1:-1].encode("utf-8", "replace")
             for plain in (True, False))) for line in every[::step])  # fmt: skip
    return list(dict.fromkeys(form for three in forms for form in three))


def places_with(memory: Memory, wanted: Iterable[bytes], below: Iterable[str] = ("",)) -> list[str]:
    """Every file below the root, or below these directories, that holds one of these; what is packed is unpacked first."""
    sought = list(wanted)
    if not sought:
        return []
    tree = memory.tree
    files = dict.fromkeys(file for name in below for file in (files_below(tree, name) if name else _all_files(tree)))
    return [file for file in files if found_in(tree, file, sought)]


def _all_files(tree: Tree) -> Iterator[str]:
    for name in sorted(os.listdir(tree.root)):
        yield from files_below(tree, name) if tree.is_directory(name) else [name]


def found_in(tree: Tree, file: str, sought: list[bytes]) -> list[bytes]:
    """Which of these a file holds. One that is no plain file, or gone by now, holds none."""
    if not sought:
        return []
    try:
        pieces = _pieces(tree, file, max(map(len, sought)))
        return list(dict.fromkeys(needle for piece in pieces for needle in sought if needle in piece))
    except (FileNotFoundError, UnsafePath):
        return []


def _pieces(tree: Tree, file: str, overlap: int) -> Iterator[bytes]:
    with tree.opened(file) as descriptor:
        offset, behind = 0, b""
        while piece := os.pread(descriptor, _PIECE_BYTES, offset):
            yield behind + piece
            offset += len(piece)
            behind = piece[-overlap:]
        if os.pread(descriptor, 2, 0) == PACKED and offset <= _UNPACKED_CAP_BYTES:
            yield from unpacked(os.pread(descriptor, offset, 0), 0)


def unpacked(content: bytes, depth: int) -> Iterator[bytes]:
    """What a .gz holds, and, where that is an archive, what is packed in it."""
    try:
        whole = zlib.decompressobj(wbits=31).decompress(content, _UNPACKED_CAP_BYTES)
    except zlib.error:
        return
    yield whole
    if depth >= _DEPTH_CAP:
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as archive:
            for member in archive:
                opened = archive.extractfile(member) if member.isfile() else None
                inner = opened.read() if opened else b""
                if inner.startswith(PACKED):
                    yield from unpacked(inner, depth + 1)
    except (tarfile.TarError, EOFError, OSError, SMPError):
        return
