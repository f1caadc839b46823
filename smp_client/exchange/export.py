"""Exports: the entries of sessions as a stream in one of four forms, or the files themselves.

`session_entries` yields every memory of a session wherever it is kept. An export writes them, and
an import compares with them.
"""

from __future__ import annotations

import io
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..change.holdings import EVERY, KEPT, holdings, is_in_use, names
from ..disk import audit, bundle
from ..disk.scopes import ARCHIVE, BACKUP
from ..disk.session_files import METADATA
from ..disk.tarball import members_in
from ..disk.tree import Tree, sync
from ..model.errors import Conflict, Invalid, SMPError, StorageFailed
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from ..model.outcome import Action, Outcome
from ..model.record import TURN, is_deleted
from ..model.times import render_time
from ..text.format import format_of
from ..text.mapping import load_mapping
from . import forms
from .entry import Entry, Transform, Wanted, file_record, header, kind_for, memory_entry, type_for

if TYPE_CHECKING:
    from ..memory import Memory

_MANIFEST, _FILES = "manifest.json", "files/"
_COPY_BYTES = 1 << 20


def _nothing() -> None:
    """Count nothing."""


@dataclass(frozen=True)
class Selection:
    """The part of a tree that an export holds."""

    sessions: Sequence[str] | None = None  # None for all, and `global`
    deleted: bool = False  # whether deleted memories are named by tombstones
    wanted: Wanted | None = None
    transform: Transform | None = None


# Entries.


def session_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the memories of a session, or of `global`: active, archived and evicted ones.

    Turns come by number. Where evicted turns come themselves, their summary does not.
    """
    found = [*holdings(memory, name, KEPT, problems)]
    evicted = {(one.file, one.id) for one in found if one.place == "evicted"}
    kept = [one for one in found if one.place == "evicted" or (one.file, one.id) not in evicted]
    tops = (METADATA, TURN.file)
    kept.sort(key=lambda one: (*(one.file != top for top in tops), one.file, _number(one.value)))
    for one in kept:
        if one.is_file:
            yield from file_entries(name, one.place, one.file, one.raw, problems)
        elif kind := kind_for(name, one.file):
            if one.id:
                yield memory_entry(name, one.file, kind.type, one.value, one.place)
            else:
                problems.append(f"{name}/{one.file}: a record without an id was left out")


def _number(value: Mapping[str, object]) -> int:
    turn = value.get("turn")
    return turn if isinstance(turn, int) else 0


def file_entries(
    session: str, place: str, file: str, content: bytes, problems: list[str]
) -> Iterator[Entry]:
    """Yield the entries of one file of a session. A record that cannot be read is a problem."""
    if file == METADATA and session != GLOBAL:
        metadata = load_mapping(content, "session", file)
        yield {"entry": "session", "session": session, "place": place, "metadata": metadata}
    elif kind := kind_for(session, file):
        found = format_of(kind).parse(content)
        for record in sorted(found.records, key=lambda record: record.start):
            if record.has_id and not is_deleted(kind, record.value):
                yield memory_entry(session, file, kind.type, record.value, place)
        bad = len(found.bad) + sum(not record.has_id for record in found.records)
        if bad:
            problems.append(f"{session}/{file}: {bad} records cannot be read, and were left out")
    elif content and (type := type_for(session, file)):
        yield memory_entry(session, file, type, file_record(file, content), place)


def deleted_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the deleted memories of a session that can be restored. `deleted` says when and why."""
    for one in holdings(memory, name, EVERY, problems):
        if one.place == "deleted" and not one.container.endswith(f"/{BACKUP}"):
            entry = memory_entry(name, one.file, one.type, {**one.value, "id": one.id}, DELETED)
            yield entry | {"deleted": {"at": one.facts.get("at"), "reason": one.facts.get("why")}}


def entries(
    memory: Memory, selection: Selection, problems: list[str],
    advance: Callable[[], None] = _nothing, counts: Counter[str] | None = None,
) -> Iterator[Entry]:  # fmt: skip
    """Yield an export from its header to its end; `counts` gets how many entries it has."""
    counts = Counter() if counts is None else counts
    yield header()
    for name in names(memory) if selection.sessions is None else selection.sessions:
        for entry in _selected(memory, name, selection, problems):
            counts["entries"] += 1
            yield entry
        advance()
    yield {"entry": "end", "entries": counts["entries"]}


def _selected(
    memory: Memory, name: str, selection: Selection, problems: list[str]
) -> Iterator[Entry]:
    wanted, transform = selection.wanted, selection.transform
    for entry in session_entries(memory, name, problems):
        is_memory = entry["entry"] == "memory"
        if wanted is not None and is_memory and not wanted(
            name, entry["file"], entry["type"], entry["record"]
        ):  # fmt: skip
            continue
        changed = transform(entry) if transform else entry
        if changed is not None:
            yield changed
    for entry in deleted_entries(memory, name, problems) if selection.deleted else ():
        memory_id = entry["record"]["id"]
        yield {"entry": "tombstone", "session": name, "id": memory_id, **entry["deleted"]}


# Files.


def export(
    memory: Memory, target: str | Path | IO[bytes], selection: Selection, *,
    format: str | None = None, exact: bool = False, overwrite: bool = False, by: str = "user",
    advance: Callable[[], None] = _nothing,
) -> Outcome:  # fmt: skip
    """Write sessions, or everything, to a file or a stream. A file appears when it is whole."""
    chosen = require_sessions(memory, selection)
    transform, outcome = selection.transform, Outcome()
    if exact and (selection.wanted or transform or format):
        raise Invalid(["an exact export goes with no condition, format or change"])
    named = forms.format_named(format or (str(target) if isinstance(target, (str, Path)) else ""))
    if format and named is None:
        raise Invalid([f"format {format!r} must be one of {', '.join(forms.FORMATS)}"])
    form = "bundle" if exact else named or "yaml"

    def write(out: IO[bytes]) -> None:
        def put(piece: bytes) -> None:
            out.write(piece)
            outcome.counts["bytes"] += len(piece)

        if exact:
            paths = _paths(memory.tree, chosen, deleted=selection.deleted)
            outcome.counts["files"] = len(paths)
            copy_bundle(memory, memory.tree, paths, (by, "an exact export"), put)
        else:
            found = entries(memory, selection, outcome.problems, advance, outcome.counts)
            forms.write(found, form, put)

    with audit.noted(
        memory.tree, "export", clock=memory.options.clock, by=by, count=len(chosen), format=form,
        session=chosen[0] if len(chosen) == 1 and chosen != [GLOBAL] else None,
        deleted=selection.deleted or None, selected=selection.wanted is not None or None,
        changed=transform is not None or None, anonymized=getattr(transform, "anonymizes", None),
    ):  # fmt: skip
        if isinstance(target, (str, Path)):
            write_file(Path(target).expanduser().absolute(), write, overwrite=overwrite)
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
        is_deleted_one = selection.deleted and memory.tree.is_directory(f"{DELETED}/{name}")
        is_there = is_in_use(memory, name) or memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}")
        if not is_there and not is_deleted_one:
            memory._session(name)
    return list(selection.sessions)


def write_file(place: Path, write: Callable[[IO[bytes]], None], *, overwrite: bool) -> None:
    """Write a file aside and name it when it is whole and durable. A pipe is written as it is."""
    advice = "Choose another name, or overwrite it with --force, in Python overwrite=True."
    exists = Conflict(f"{place} is there already.", advice=advice)
    if place.is_dir():
        raise Invalid([f"{place} is a directory"])
    if not place.parent.is_dir():
        raise Invalid([f"the directory {place.parent} does not exist"])
    if place.exists() and place.is_file() and not overwrite:
        raise exists
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        if place.exists() and not place.is_file():
            with place.open("wb") as out:
                write(out)
            return
        descriptor = tree.open(aside, os.O_WRONLY | os.O_CREAT)
        try:
            with os.fdopen(descriptor, "wb", buffering=_COPY_BYTES) as out:
                write(out)
                out.flush()
                sync(out.fileno())
            (tree.rename if overwrite else tree.rename_new)(aside, place.name)
            tree.sync_parent(place.name)
        except BaseException:
            tree.unlink(aside)
            raise
    except BrokenPipeError:
        raise
    except FileExistsError as error:
        raise exists from error
    except OSError as error:  # which does not say which disk is full
        raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error


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
        try:
            if top == GLOBAL:
                yield from file_entries(GLOBAL, ACTIVE, rest, held, problems)
            elif top == ACTIVE:
                yield from file_entries(session, ACTIVE, file, held, problems)
            elif (top, file) == (ARCHIVED, "archive.tar.gz"):
                for inner, packed in members_in(io.BytesIO(held), member):
                    path = inner.removeprefix(_FILES)
                    yield from file_entries(session, ARCHIVED, path, packed, problems)
        except SMPError as error:
            problems.append(f"{member} in {name} cannot be read: {error}")


def is_bundle(beginning: bytes) -> bool:
    """Return whether a file begins like a bundle: a packed archive with its manifest first."""
    is_packed = forms.plain(beginning) != beginning
    return is_packed and forms.plain(beginning).startswith(_MANIFEST.encode() + b"\0")
