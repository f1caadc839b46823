"""Exports: the entries of sessions as a stream in one of four forms, or the files themselves.

`session_entries` yields every memory of a session wherever it is kept. An export writes them, and an
import compares with them.
"""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import audit
from ..change.holdings import EVERY, KEPT, holdings, is_in_use, names
from ..errors import Conflict, Invalid, SMPError, StorageFailed
from ..files import Tree, sync
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, is_file_id
from ..model.outcome import Action, Outcome
from ..packing import make_archive, member_of, members_in
from ..records import TURN, is_deleted
from ..scopes import ARCHIVE, ARTIFACTS, BACKUP, STATES
from ..session_files import METADATA, parse_artifact
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..timestamps import render_time
from . import forms
from .entry import PROFILE, Entry, Transform, Wanted, header, kind_for, memory_entry

if TYPE_CHECKING:
    from ..memory import Memory

BUNDLE_ENDING = ".tar.gz"
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
    kept.sort(key=lambda one: (one.file != METADATA, one.file != TURN.file, one.file, _number(one.value)))
    for one in kept:
        if one.is_file:
            yield from file_entries(name, one.place, one.file, one.raw, problems)
        elif kind := kind_for(name, one.file):
            if one.id:
                yield memory_entry(name, kind, one.value, one.place)
            else:
                problems.append(f"{name}/{one.file}: a record without an id was left out")


def _number(value: Mapping[str, Any]) -> int:
    turn = value.get("turn")
    return turn if isinstance(turn, int) else 0


def file_entries(
    session: str, place: str, file: str, content: bytes, problems: list[str]
) -> Iterator[Entry]:
    """Yield what one file of a session says. A record that cannot be read is a problem."""
    stem = file.rpartition("/")[2].rpartition(".")[0]
    where = {"session": session, "place": place}
    if kind := kind_for(session, file):
        found = format_of(kind).parse(content)
        for record in sorted(found.records, key=lambda record: record.start):
            if record.has_id and not is_deleted(kind, record.value):
                yield memory_entry(session, kind, record.value, place)
        unreadable = len(found.bad) + sum(not record.has_id for record in found.records)
        if unreadable:
            problems.append(f"{session}/{file}: {unreadable} records cannot be read, and were left out")
    elif file == METADATA and session != GLOBAL:
        yield {"entry": "session", **where, "metadata": load_mapping(content, "session", file)}
    elif (session, file) == (GLOBAL, PROFILE) and content:
        yield {"entry": "profile", "profile": load_mapping(content, "user_profile", file)}
    elif file == f"{STATES}/{stem}.yaml" and is_file_id(stem) and content:
        yield {"entry": "state", **where, "agent": stem, "state": load_mapping(content, "agent_state", file)}
    elif file == f"{ARTIFACTS}/{stem}.md" and is_file_id(stem):
        head, text = parse_artifact(content)
        yield {"entry": "artifact", **where, "artifact": stem, "head": head, "text": text}


def deleted_entries(memory: Memory, name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield the deleted memories of a session that can be restored. `deleted` says when and why."""
    for one in holdings(memory, name, EVERY, problems):
        if one.place == "deleted" and not one.container.endswith(f"/{BACKUP}"):
            yield {"entry": "memory", "session": name, "place": DELETED, "file": one.file, "type": one.type,
                   "record": {**one.value, "id": one.id},
                   "deleted": {"at": one.facts.get("at"), "reason": one.facts.get("why")}}  # fmt: skip


def entries(
    memory: Memory, selection: Selection, problems: list[str], advance: Callable[[], None] = _nothing
) -> Iterator[Entry]:
    """Yield an export from its header to its end."""
    yield header()
    count = 0
    for name in names(memory) if selection.sessions is None else selection.sessions:
        for entry in _selected(memory, name, selection, problems):
            count += 1
            yield entry
        advance()
    yield {"entry": "end", "entries": count}


def _selected(memory: Memory, name: str, selection: Selection, problems: list[str]) -> Iterator[Entry]:
    wanted, transform = selection.wanted, selection.transform
    for entry in session_entries(memory, name, problems):
        if wanted is not None and entry["entry"] != "session" and not wanted(name, *_fields(entry)):
            continue
        changed = transform(entry) if transform else entry
        if changed is not None:
            yield changed
    for entry in deleted_entries(memory, name, problems) if selection.deleted else ():
        yield {"entry": "tombstone", "session": name, "id": entry["record"]["id"], **entry["deleted"]}


def _fields(entry: Entry) -> tuple[str, str, dict[str, Any]]:
    """Return the file, the type and the fields of an entry, for a condition."""
    if entry["entry"] == "memory":
        return entry["file"], entry["type"], entry["record"]
    if entry["entry"] == "state":
        return f"{STATES}/{entry['agent']}.yaml", "agent_state", {**entry["state"], "id": entry["agent"]}
    if entry["entry"] == "artifact":
        fields = {**entry["head"], "id": entry["artifact"], "content": entry["text"]}
        return f"{ARTIFACTS}/{entry['artifact']}.md", "artifact", fields
    return PROFILE, "user_profile", entry["profile"]


# Files.


def export(
    memory: Memory, target: str | Path | IO[bytes], selection: Selection, *, format: str | None = None,
    exact: bool = False, overwrite: bool = False, by: str = "user", advance: Callable[[], None] = _nothing,
) -> Outcome:  # fmt: skip
    """Write sessions, or everything, to a file or a stream. A file appears when it is whole."""
    memory.require()
    chosen = names(memory) if selection.sessions is None else list(selection.sessions)
    for name in chosen:
        _require(memory, name, deleted=selection.deleted)
    form = "bundle" if exact else _format(format, target)
    if exact and (selection.wanted or selection.transform or format):
        raise Invalid(["an exact export holds whole files: it goes with no condition, format or change"])
    outcome = Outcome()
    transform = selection.transform
    noted = audit.noted(
        memory.tree, "export", clock=memory.options.clock, by=by, count=len(chosen), format=form,
        session=chosen[0] if len(chosen) == 1 and chosen != [GLOBAL] else None,
        deleted=selection.deleted or None, selected=selection.wanted is not None or None,
        changed=transform is not None or None, anonymized=getattr(transform, "anonymizes", None),
    )  # fmt: skip

    def counted(given: Iterator[Entry]) -> Iterator[Entry]:
        for entry in given:
            outcome.counts["entries"] += "entry" in entry and entry["entry"] != "end"
            yield entry

    def write(out: IO[bytes]) -> None:
        def put(piece: bytes) -> None:
            out.write(piece)
            outcome.counts["bytes"] += len(piece)

        if exact:
            _write_bundle(memory, chosen, selection, by, put, outcome)
        else:
            found = entries(memory, selection, outcome.problems, advance)
            forms.write(counted(found), form, put)

    with noted:
        if isinstance(target, (str, Path)):
            write_file(Path(target).expanduser().absolute(), write, overwrite=overwrite)
        else:
            write(target)
    outcome.counts["sessions"] = sum(name != GLOBAL for name in chosen)
    outcome.actions = [Action(name, "export", (name,), f"written as {form}") for name in chosen]
    return outcome


def _require(memory: Memory, name: str, *, deleted: bool) -> None:
    """Raise where there is no such session; a mistyped name must not give an empty export."""
    if is_in_use(memory, name) or memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}"):
        return
    if not (deleted and memory.tree.is_directory(f"{DELETED}/{name}")):
        memory._session(name)


def _format(format: str | None, target: object) -> str:
    """Return the format that was asked for, else the one of the file's name, else YAML."""
    named = forms.format_named(format or (str(target) if isinstance(target, (str, Path)) else ""))
    if format and named is None:
        raise Invalid([f"format {format!r} must be one of {', '.join(forms.FORMATS)}"])
    return named or "yaml"


def write_file(place: Path, write: Callable[[IO[bytes]], None], *, overwrite: bool) -> None:
    """Write a file aside and name it when it is whole and durable. A pipe is written as it is."""
    exists = Conflict(f"{place} is there already.",
                      advice="Choose another name, or overwrite it with --force, in Python overwrite=True.")  # fmt: skip
    if place.is_dir() or not place.parent.is_dir():
        raise Invalid([f"{place} is a directory" if place.is_dir() else f"the directory {place.parent} does not exist"])
    if place.exists() and not place.is_file():
        with _naming(place), place.open("wb") as out:
            write(out)
        return
    if place.exists() and not overwrite:
        raise exists
    tree, aside = Tree(place.parent), f".{place.name}.{uuid.uuid4().hex[:8]}.part"
    with _naming(place):
        descriptor = tree.open(aside, os.O_WRONLY | os.O_CREAT)
    try:
        with _naming(place), os.fdopen(descriptor, "wb", buffering=_COPY_BYTES) as out:
            write(out)
            out.flush()
            sync(out.fileno())
        (tree.rename if overwrite else tree.rename_new)(aside, place.name)
        tree.sync_parent(place.name)
    except FileExistsError as error:
        tree.unlink(aside)
        raise exists from error
    except BaseException:
        tree.unlink(aside)
        raise


@contextmanager
def _naming(place: Path) -> Iterator[None]:
    """Name the file in an error of the system: a full disk does not say which."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error


# Bundles.


def _write_bundle(
    memory: Memory, chosen: Sequence[str], selection: Selection, by: str, put: Callable[[bytes], None], outcome: Outcome
) -> None:
    """Write the files of sessions as they are into one bundle."""
    tree = memory.tree
    places = [ACTIVE, ARCHIVED, *([DELETED] if selection.deleted else [])]
    directories = [GLOBAL if name == GLOBAL else f"{place}/{name}" for name in chosen for place in places]
    found = [path for directory in dict.fromkeys(directories) for path in tree.files_below(directory)]
    kept = [path for path in found if "/indexes/" not in path]
    outcome.counts["files"] = len(kept)
    copy_bundle(tree, pack(tree, kept, memory, by, "an exact export"), put)


def pack(tree: Tree, paths: Sequence[str], memory: Memory, by: str, why: str) -> str:
    """Make a bundle of files below a tree. Return its temporary name in the memory's tree."""
    held = [(path, tree.read(path)) for path in paths]
    items = [{"file": path, "length": len(content), "sha256": member_of(path, content).sha256} for path, content in held]
    manifest = {"version": 1, "kind": "export", "session": "", "at": render_time(memory.options.clock()), "by": by,
                "why": why, "until": None, "batch": "", "facts": {}, "items": items}  # fmt: skip
    head = json.dumps(manifest, ensure_ascii=False).encode()
    return make_archive(memory.tree, [(_MANIFEST, head), *((f"{_FILES}{path}", content) for path, content in held)])[0]


def copy_bundle(tree: Tree, temporary: str, put: Callable[[bytes], object]) -> None:
    """Copy a bundle out of the tree that it was made in, which may be another file system."""
    try:
        with tree.opened(temporary) as descriptor:
            while piece := os.read(descriptor, _COPY_BYTES):
                put(piece)
    finally:
        tree.unlink(temporary)


def bundle_files(content: IO[bytes], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a bundle by their paths. Raises CorruptionDetected where it is damaged."""
    for path, member in members_in(content, name):
        if path.startswith(_FILES):
            yield path.removeprefix(_FILES), member


def bundle_entries(content: IO[bytes], name: str, problems: list[str]) -> Iterator[Entry]:
    """Yield what the files of an exact export say: active and archived sessions, and `global`."""
    for path, member in bundle_files(content, name):
        top, _, rest = path.partition("/")
        session, _, file = rest.partition("/")
        try:
            if top == GLOBAL:
                yield from file_entries(GLOBAL, ACTIVE, rest, member, problems)
            elif top == ACTIVE:
                yield from file_entries(session, ACTIVE, file, member, problems)
            elif path == f"{ARCHIVED}/{session}/archive{BUNDLE_ENDING}":
                for inner, packed in members_in(io.BytesIO(member), path):
                    yield from file_entries(session, ARCHIVED, inner.removeprefix(_FILES), packed, problems)
        except SMPError as error:
            problems.append(f"{path} in {name} cannot be read: {error}")


def is_bundle(beginning: bytes) -> bool:
    """Return whether a file begins like a bundle: a packed archive with its manifest first."""
    return forms.plain(beginning).startswith(_MANIFEST.encode() + b"\0") and beginning[:2] == b"\x1f\x8b"
