"""Where the words of something can still be after it was removed: in the index's own pages, and anywhere below the root.

SQLite keeps what was deleted: FTS5 in its segments until they are merged, the WAL until it is cut off, and a page between its
entries, where entries stood that have moved to another page (which `secure_delete` does not overwrite; only VACUUM does). Only
whoever leads the root may put that right. Until it is, `.smp/scrub+{session}+{any}` says that it has to be: one for each that
asked, so that none is taken for done that came while another was.
"""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import tarfile
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..errors import Invalid, NotInTime, SessionNotFound, SMPError, UnsafePath
from ..files import Tree, read_from
from ..index import is_open_here
from ..indexing import outdated, refresh
from ..layout import GLOBAL
from ..scopes import archived_scope, has_moved, is_there
from ..status import INDEX_FILE, SCRUB
from .purged import sessions as purged_sessions

if TYPE_CHECKING:
    from ..index import Index
    from ..memory import Memory

_OWN, _ASKED, _TO_CUT = ".smp", SCRUB, ".cut"
LINE_CHARACTERS = 12  # a shorter line may stand anywhere
NEEDLES_CAP = 200
PACKED = b"\x1f\x8b"
_FIELD = re.compile(r"^(?:- )?\w{1,40}: ")
_PIECE_BYTES = 8 * 1024 * 1024
_UNPACKED_CAP_BYTES = 256 * 1024 * 1024
_DEPTH_CAP = 3
_kept_open: dict[tuple[int, int], tuple[int, str]] = {}  # by device and inode, with the index that it is of
_NO_TEXT = frozenset(("id", "timestamp", "updated_at", "decay", "type", "deleted_at"))
_OF_SMP = frozenset(("session_id", "agent_id", "last_updated", "decay"))  # also inside of a state: names that stand elsewhere too
_PENDING = "The index may still hold words of what was removed, because {}: it is tried again."


def ask_for_scrub(memory: Memory, session_id: str = "") -> None:
    """Durable before anything is removed, so that a crash does not make anybody forget; and again afterwards, since whoever leads
    may have done it in between."""
    if memory.tree.exists(INDEX_FILE):
        memory.tree.create(f"{_OWN}/{_ASKED}+{session_id}+{uuid.uuid4().hex}", b"")


def asked_for(memory: Memory, session_id: str | None = None) -> list[str]:
    """What is still to be done for somebody, or for those of one session."""
    beginning = _ASKED if session_id is None else f"{_ASKED}+{session_id}+"
    return [name for name in memory.tree.list(_OWN) if name.startswith(beginning)]


def scrub_index(memory: Memory, index: Index | None = None) -> list[str]:
    """Where it was asked for: here by whoever leads, who gives its index, else by asking whoever does. Gives back what is wrong."""
    from ..sync import bring_up_to_date

    asked = asked_for(memory)
    if not asked or (memory.options.is_leading and index is None):
        # Whoever leads is about to see that somebody asks, and cannot wait for itself.
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
    return [_PENDING.format("somebody is reading it")] if _left_of(memory, asked) else []


def _left_of(memory: Memory, asked: Collection[str]) -> list[str]:
    names = {name.removesuffix(_TO_CUT) for name in asked}
    return [name for name in asked_for(memory) if name.removesuffix(_TO_CUT) in names]


def scrub(memory: Memory, index: Index) -> None:
    """By whoever leads the root. What was asked for is no more where nothing of what was removed is left."""
    for _ in scrubbing(memory, index, memory.options.patience.timeout_s):
        pass


def scrubbing(memory: Memory, index: Index, wait_s: float) -> Iterator[None]:
    """The same in steps, for one who has other work as well. Readers are waited for as long as this."""
    asked = asked_for(memory)
    if any(not name.endswith(_TO_CUT) for name in asked):
        _take_in_all(memory, index)
        _renew_yaml_indexes(memory, index, {name.split("+")[1] for name in asked if "+" in name} - {"", GLOBAL})
        yield
        with index.batch():
            # The words of what was deleted stay in the segments that are not merged.
            index.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        yield
        index.connection.execute("VACUUM")
        for name in asked:
            # Only the last step is to be tried again where it fails.
            memory.tree.rename(f"{_OWN}/{name}", f"{_OWN}/{name.removesuffix(_TO_CUT)}{_TO_CUT}")
    if asked and _cut_wal(index, wait_s):
        for name in _left_of(memory, asked):
            memory.tree.unlink(f"{_OWN}/{name}")


def _take_in_all(memory: Memory, index: Index) -> None:
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


def _renew_yaml_indexes(memory: Memory, index: Index, sessions: Iterable[str]) -> None:
    """From what is in the index now; where nobody leads for long, only those that somebody has made."""
    from ..yaml_indexes import directory_of, write

    for session_id in sessions:
        if memory.options.is_leading or memory.tree.sizes(directory_of(session_id)):
            with suppress(SessionNotFound, Invalid):  # it was put away just now, with them; or is none
                write(memory, index, session_id)


def _cut_wal(index: Index, wait_s: float) -> bool:
    """Not while somebody reads: gives back whether it is done."""
    before = index.connection.execute("PRAGMA busy_timeout").fetchone()[0]
    try:
        index.connection.execute(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")
        return not index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        index.connection.execute(f"PRAGMA busy_timeout = {before}")


def telling_lines(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines by which the texts of these memories would be known again."""
    found: dict[str, None] = {}
    for value in values:
        for name, item in value.items():
            if name == "imported" and isinstance(item, dict):
                # From where it came stands in the metadata as well, and is nobody's word.
                item = {part: one for part, one in item.items() if part not in ("layout", "digest")}
            if name not in _NO_TEXT and name not in _OF_SMP:
                found.update(dict.fromkeys(_lines(item)))
    return list(found)


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from lines_of(value)
    elif isinstance(value, (dict, list)):
        for item in (value[name] for name in value if name not in _OF_SMP) if isinstance(value, dict) else value:
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
            with opened(tree, file) as descriptor:
                text = read_from(descriptor, 0).decode("utf-8", "replace")
        except (FileNotFoundError, UnsafePath):
            return False
        return self._on_a_line(text)

    def stand_in_bytes(self, content: bytes) -> bool:
        """The same of a part of a file."""
        return any(needle in content for needle in self._needles) or self._on_a_line(content.decode("utf-8", "replace"))

    def _on_a_line(self, text: str) -> bool:
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
    files = dict.fromkeys(file for name in below for file in tree.files_below(name))
    return [file for file in files if found_in(tree, file, sought)]


def found_in(tree: Tree, file: str, sought: list[bytes]) -> list[bytes]:
    """Which of these a file holds. One that is no plain file, or gone by now, holds none."""
    if not sought:
        return []
    try:
        pieces = _pieces(tree, file, max(map(len, sought)))
        return list(dict.fromkeys(needle for piece in pieces for needle in sought if needle in piece))
    except (FileNotFoundError, UnsafePath):
        return []


@contextmanager
def opened(tree: Tree, file: str) -> Iterator[int]:
    """The index's own files are opened once, and closed when this process has that index open no more: with any descriptor of such
    a file that is closed, the whole process loses the locks that SQLite has on it, and another may remove its WAL."""
    if not file.startswith(INDEX_FILE):
        with tree.opened(file) as descriptor:
            yield descriptor
        return
    for known, (kept, path) in list(_kept_open.items()):
        if not is_open_here(path):
            del _kept_open[known]
            os.close(kept)
    index = os.fspath(tree.root / INDEX_FILE)
    if not is_open_here(index):
        with tree.opened(file) as descriptor:
            yield descriptor
        return
    status = tree.stat(file)
    key = status.st_dev, status.st_ino
    if key not in _kept_open:
        _kept_open[key] = tree.open(file, os.O_RDONLY), index
    yield _kept_open[key][0]


def _pieces(tree: Tree, file: str, overlap: int) -> Iterator[bytes]:
    with opened(tree, file) as descriptor:
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
