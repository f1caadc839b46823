"""Exports: the entries of sessions as a stream in one of four forms, or the files themselves.

`session_entries` yields every memory of a session wherever it is kept. An export writes them, and
an import compares with them.
"""

from __future__ import annotations

import io
import itertools
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypedDict

from ..change.holdings import EVERY, KEPT, Holding, holdings, is_in_use, names
from ..disk import audit, bundle
from ..disk.bundle import members_in
from ..disk.scopes import ARCHIVE, BACKUP
from ..disk.session_files import METADATA
from ..disk.tree import Tree, sync
from ..model.errors import Conflict, Invalid, SMPError, StorageFailed
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from ..model.outcome import Action, Outcome
from ..model.record import TURN, is_deleted
from ..model.times import render_time
from ..text.format import format_of
from ..text.mapping import load_mapping
from . import forms
from .entry import (
    HEADER,
    VERSION,
    Entry,
    Transform,
    Wanted,
    file_record,
    kind_for,
    memory_entry,
    type_for,
)

if TYPE_CHECKING:
    from ..memory import Memory

_FILES = "files/"
_COPY_BYTES = 1 << 20


class Selected(TypedDict, total=False):
    """The keywords of an export; see Selection."""

    deleted: bool
    wanted: Wanted | None
    transform: Transform | None
    by: str


@dataclass(frozen=True)
class Selection:
    """The part of a tree that an export holds."""

    sessions: Sequence[str] | None = None  # None for all, and `global`
    deleted: bool = False  # whether deleted memories are named by tombstones
    wanted: Wanted | None = None
    transform: Transform | None = None
    by: str = "user"


# Entries.


def session_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the memories of a session, or of `global`: active, archived and evicted ones.

    Turns come by number. Where evicted turns come themselves, their summary does not.
    """
    found = [*holdings(memory, name, KEPT, problems)]
    evicted = {(one.file, one.id) for one in found if one.place == "evicted"}
    kept = [one for one in found if one.place == "evicted" or (one.file, one.id) not in evicted]

    def order(one: Holding) -> tuple[bool, bool, str, int]:
        turn = one.value.get("turn")
        number = turn if isinstance(turn, int) else 0
        return one.file != METADATA, one.file != TURN.file, one.file, number

    for one in sorted(kept, key=order):
        if one.is_file:
            yield from file_entries(name, one.place, one.file, one.raw, problems)
        elif one.id:
            yield memory_entry(name, one.file, one.type, one.value, one.place)
        else:
            problems.append(f"{name}/{one.file}: a record without an id was left out")


def file_entries(
    session: str, place: str, file: str, content: bytes, problems: list[str]
) -> Iterator[Entry]:
    """Yield the entries of one file of a session. One that cannot be read is a problem."""
    try:
        if file == METADATA and session != GLOBAL:
            metadata = load_mapping(content, "session", file)
            yield {"entry": "session", "session": session, "place": place, "metadata": metadata}
        elif kind := kind_for(session, file):
            found = format_of(kind).parse(content)
            for record in sorted(found.records, key=lambda record: record.start):
                if record.has_id and not is_deleted(kind, record.value):
                    yield memory_entry(session, file, kind.type, record.value, place)
            if bad := len(found.bad) + sum(not record.has_id for record in found.records):
                problems.append(f"{session}/{file}: {bad} records cannot be read; they stay there")
        elif content and (type := type_for(session, file)):
            yield memory_entry(session, file, type, file_record(file, content), place)
    except SMPError as error:
        problems.append(f"{session}/{file} cannot be read: {error}")


def deleted_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the deleted memories of a session that can be restored. `deleted` says when and why."""
    for one in holdings(memory, name, EVERY, problems):
        if one.place == "deleted" and not one.container.endswith(f"/{BACKUP}"):
            entry = memory_entry(name, one.file, one.type, {**one.value, "id": one.id}, DELETED)
            yield entry | {"deleted": {"at": one.facts.get("at"), "reason": one.facts.get("why")}}


def entries(
    memory: Memory, selection: Selection, problems: list[str], counts: Counter[str] | None = None
) -> Iterator[Entry]:
    """Yield an export from its header to its end; `counts` gets how many entries it has."""
    counts = Counter() if counts is None else counts
    wanted, transform = selection.wanted, selection.transform
    yield {HEADER: VERSION}
    for name in names(memory) if selection.sessions is None else selection.sessions:
        found = session_entries(memory, name, problems)
        if selection.deleted:
            gone = deleted_entries(memory, name, problems)
            found = itertools.chain(found, (_tombstone(entry) for entry in gone))
        for entry in found:
            if wanted and entry["entry"] == "memory" and not wanted(entry):
                continue
            if (changed := transform(entry) if transform else entry) is not None:
                counts["entries"] += 1
                yield changed
    yield {"entry": "end", "entries": counts["entries"]}


def _tombstone(entry: Entry) -> Entry:
    return {"entry": "tombstone", "session": entry["session"], "id": entry["record"]["id"],
            **entry["deleted"]}  # fmt: skip


# Files.


def export(
    memory: Memory, target: str | Path | IO[bytes], selection: Selection, format: str, *,
    exact: bool, force: bool,
) -> Outcome:  # fmt: skip
    """Write sessions, or everything, to a file or a stream. A file appears when it is whole."""
    chosen = require_sessions(memory, selection)
    outcome = Outcome()
    if exact and (selection.wanted or selection.transform or format):
        raise Invalid(["an exact export goes with no condition, format or change"])
    named = forms.format_named(format or (str(target) if isinstance(target, (str, Path)) else ""))
    if format and named is None:
        raise Invalid([f"format {format!r} must be one of {', '.join(forms.FORMATS)}"])
    form = forms.BUNDLE if exact else named or "yaml"

    def write(out: IO[bytes]) -> None:
        def put(piece: bytes) -> None:
            out.write(piece)
            outcome.counts["bytes"] += len(piece)

        if exact:
            paths = _paths(memory.tree, chosen, deleted=selection.deleted)
            outcome.counts["files"] = len(paths)
            copy_bundle(memory, memory.tree, paths, (selection.by, "an exact export"), put)
        else:
            forms.write(entries(memory, selection, outcome.problems, outcome.counts), form, put)

    with audit.noted(
        memory.tree, "export", clock=memory.options.clock, by=selection.by, count=len(chosen),
        format=form, session=chosen[0] if len(chosen) == 1 else None,
        anonymized=getattr(selection.transform, "anonymizes", None),
    ):  # fmt: skip
        if isinstance(target, (str, Path)):
            write_file(Path(target).expanduser().absolute(), write, overwrite=force)
        else:
            write(target)
    outcome.counts["sessions"] = sum(name != GLOBAL for name in chosen)
    outcome.actions = [Action(name, "export", (name,), f"written as {form}") for name in chosen]
    return outcome


def require_sessions(memory: Memory, selection: Selection) -> list[str]:
    """Return the sessions of a selection; raise where one of them is not there."""
    memory.require()
    if selection.sessions is None:
        return names(memory)
    for name in selection.sessions:
        is_deleted_one = selection.deleted and memory.tree.exists(f"{DELETED}/{name}")
        is_there = is_in_use(memory, name) or memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}")
        if not is_there and not is_deleted_one:
            memory._session(name)
    return list(selection.sessions)


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


# Bundles.


def _paths(tree: Tree, chosen: Sequence[str], *, deleted: bool) -> list[str]:
    """Return the files of sessions, below the root."""
    places = [ACTIVE, ARCHIVED, *([DELETED] if deleted else [])]
    named = [f"{place}/{name}" for name in chosen if name != GLOBAL for place in places]
    tops = [*named, GLOBAL] if GLOBAL in chosen else named
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


def bundle_entries(content: IO[bytes], name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the entries of an exact export: active and archived sessions, and `global`."""
    for member, held in members_in(content, name):
        top, _, rest = member.removeprefix(_FILES).partition("/")
        session, _, file = rest.partition("/")
        if top == GLOBAL:
            yield from file_entries(GLOBAL, ACTIVE, rest, held, problems)
        elif top == ACTIVE:
            yield from file_entries(session, ACTIVE, file, held, problems)
        elif (top, file) == (ARCHIVED, ARCHIVE):
            for inner, packed in members_in(io.BytesIO(held), member):
                path = inner.removeprefix(_FILES)
                yield from file_entries(session, ARCHIVED, path, packed, problems)
