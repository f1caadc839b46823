"""Exports: the entries of sessions as a stream, and files that appear when they are whole.

`session_entries` yields every memory of a session wherever it is kept. An export writes them, and
an import compares with them.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

from ..ask.argument import When
from ..change import select
from ..change.holdings import EVERY, KEPT, Holding, holdings, is_kept, names
from ..disk import bundle
from ..disk.place import BACKUP
from ..disk.session_files import METADATA
from ..disk.tree import Tree, sync
from ..model.errors import Conflict, Invalid, SMPError, StorageFailed
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from ..model.progress import tracked
from ..model.record import HISTORY, TURN
from ..model.times import render_time
from ..text.mapping import load_mapping
from .entry import HEADER, VERSION, Entry, Transform, Wanted, file_record, memory_entry, type_for

if TYPE_CHECKING:
    from ..memory import Memory

_COPY_BYTES = 1 << 20


class Conditions(TypedDict, total=False):
    """What the memories of an export have in common. All must hold; of several tags, one does."""

    topic: str | None
    agent: str | None
    since: When | None
    until: When | None
    types: str | Sequence[str]
    tags: str | Sequence[str]
    text: str | None


class Choice(Conditions, total=False):
    """The part of a tree that an export holds, as its caller says it."""

    deleted: bool  # whether tombstones name deleted memories
    wanted: Wanted | None
    transform: Transform | None
    by: str


@dataclass(frozen=True)
class Selection:
    """The part of a tree that an export holds."""

    sessions: Sequence[str] | None = None  # None for all, and `global`
    conditions: select.Selection | None = None
    deleted: bool = False  # whether deleted memories are named by tombstones
    wanted: Wanted | None = None
    transform: Transform | None = None
    by: str = "user"

    @classmethod
    def of(cls, sessions: Sequence[str] | None, choice: Choice) -> Selection:
        """Return the selection that a caller means."""
        given: dict[str, Any] = dict(choice)
        names = Conditions.__annotations__.keys() & given.keys()
        conditions = {name: given.pop(name) for name in names}
        said = {name: value for name, value in conditions.items() if value not in (None, (), [])}
        return cls(sessions, select.Selection(**said) if said else None, **given)

    @property
    def is_partial(self) -> bool:
        """Return whether it may leave memories of a session out."""
        return self.conditions is not None or self.wanted is not None

    def held(self, memory: Memory, name: str, problems: list[str]) -> list[Holding]:
        """Return the memories of a session that an export may hold."""
        found = [*holdings(memory, name, KEPT, problems)]
        if self.conditions is None:
            return found
        about = [one for one in found if one.file == METADATA]
        others = [one for one in found if one.file != METADATA]
        return about + select.described(memory, name, self.conditions, others)

    def names(self, memory: Memory) -> list[str]:
        """Return the names of the sessions. Raise for one that is not there, or a bad condition."""
        memory.require()
        if self.conditions is not None:
            select.described(memory, GLOBAL, self.conditions, [])  # before anything is written
        if self.sessions is None:
            return names(memory)
        for name in self.sessions:
            is_deleted = self.deleted and memory.tree.exists(f"{DELETED}/{name}")
            if not is_deleted and not is_kept(memory, name):
                memory._session(name)
        return list(self.sessions)


# Entries.


def session_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the memories of a session, or of `global`: active, archived and evicted ones."""
    return entries_of(name, [*holdings(memory, name, KEPT, problems)], problems)


def entries_of(name: str, held: Sequence[Holding], problems: list[str]) -> Iterator[Entry]:
    """Yield the memories that are held of a session; earlier versions of them are left out.

    Turns come by number. Where evicted turns come themselves, their summary does not.
    """
    found = [one for one in held if one.file != HISTORY]
    evicted = {(one.file, one.id) for one in found if one.place == "evicted"}
    kept = [one for one in found if one.place == "evicted" or (one.file, one.id) not in evicted]

    def order(one: Holding) -> tuple[bool, bool, str, int]:
        turn = one.value.get("turn")
        number = turn if isinstance(turn, int) else 0
        return one.file != METADATA, one.file != TURN.file, one.file, number

    for one in sorted(kept, key=order):
        try:
            if one.file == METADATA:
                metadata = load_mapping(one.raw, "session", METADATA)
                yield {"entry": "session", "session": name, "place": one.place,
                       "metadata": metadata}  # fmt: skip
            elif one.is_file and (type := type_for(name, one.file)):
                record = file_record(one.file, one.raw)
                yield memory_entry(name, one.file, type, record, one.place)
            elif one.id:
                yield memory_entry(name, one.file, one.type, one.value, one.place)
            else:
                problems.append(f"{name}/{one.file}: a record without an id was left out")
        except SMPError as error:
            problems.append(f"{name}/{one.file} cannot be read: {error}")


def deleted_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the deleted memories of a session that can be restored."""
    for one in _deleted(memory, name, problems):
        yield memory_entry(name, one.file, one.type, {**one.value, "id": one.id}, DELETED)


def _deleted(memory: Memory, name: str, problems: list[str]) -> Iterator[Holding]:
    for one in holdings(memory, name, EVERY, problems):
        is_session = one.container.endswith(f"/{BACKUP}")
        if one.place == "deleted" and one.file != HISTORY and not is_session:
            yield one


def entries(
    memory: Memory, selection: Selection, problems: list[str], counts: Counter[str]
) -> Iterator[Entry]:
    """Yield an export from its header to its end; `counts` gets its entries and memories."""
    wanted, transform = selection.wanted, selection.transform
    yield {HEADER: VERSION}
    sessions = names(memory) if selection.sessions is None else selection.sessions
    for name in tracked(sessions):
        gone = _deleted(memory, name, problems) if selection.deleted else ()
        kept = entries_of(name, selection.held(memory, name, problems), problems)
        for entry in itertools.chain(kept, map(tombstone_of, gone)):
            if wanted and entry["entry"] == "memory" and not wanted(entry):
                continue
            if (changed := transform(entry) if transform else entry) is not None:
                counts["entries"] += 1
                counts["memories"] += changed["entry"] == "memory"
                yield changed
    yield {"entry": "end", "entries": counts["entries"]}


def tombstone_of(one: Holding) -> Entry:
    """Return the tombstone of a deleted memory."""
    return {
        "entry": "tombstone",
        "session": one.session,
        "id": one.id,
        "at": one.facts.get("at"),
        "reason": one.facts.get("why"),
    }


# Files.


def write_file(place: Path, write: Callable[[IO[bytes]], None], *, overwrite: bool) -> None:
    """Write a file aside and name it when it is whole and durable."""
    advice = "Choose another name, or overwrite it with --force, in Python overwrite=True."
    exists = Conflict(f"{place} is there already.", advice=advice)
    if not place.parent.is_dir() or (place.exists() and not place.is_file()):
        raise Invalid([f"{place} is no file, or in no directory that exists"])
    if place.exists() and not overwrite:
        raise exists
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        with os.fdopen(tree.open(aside, os.O_WRONLY | os.O_CREAT), "wb", _COPY_BYTES) as out:
            write(out)
            out.flush()
            sync(out.fileno())
        (tree.rename if overwrite else tree.rename_new)(aside, place.name)
        tree.sync_parent(place.name)
    except BaseException as error:
        tree.unlink(aside)
        if isinstance(error, FileExistsError):
            raise exists from error
        if isinstance(error, OSError):  # which does not say which disk is full
            raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error
        raise


def files_of(tree: Tree, sessions: Sequence[str], *, deleted: bool) -> list[str]:
    """Return the files of sessions, below the root."""
    places = [ACTIVE, ARCHIVED, *([DELETED] if deleted else [])]
    named = [f"{place}/{name}" for name in sessions if name != GLOBAL for place in places]
    tops = [*named, GLOBAL] if GLOBAL in sessions else named
    found = (path for directory in tops for path in tree.files_below(directory))
    return [path for path in found if "/indexes/" not in path]


def copy_bundle(
    memory: Memory, tree: Tree, paths: Sequence[str], said: tuple[str, str],
    put: Callable[[bytes], object],
) -> None:  # fmt: skip
    """Make a bundle of files below a tree, and copy it out. `said` is by whom it is made, and why.

    It is made in the memory's own tree, which may be on another file system.
    """
    manifest = bundle.Manifest("export", "", render_time(memory.options.clock()), *said)
    pieces = (bundle.item_of(path, "", "", tree.read(path), whole=True) for path in paths)
    temporary = bundle.write(memory.tree, manifest, pieces)
    try:
        with memory.tree.opened(temporary) as descriptor:
            while piece := os.read(descriptor, _COPY_BYTES):
                put(piece)
    finally:
        memory.tree.unlink(temporary)
