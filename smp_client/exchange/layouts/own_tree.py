"""The layout `smp`: a tree of SMP, one session of a tree, or an exact export of either.

A tree of its own has sessions in `active/` and `archived/`, and `global/`. A session that stands
alone is a folder with `metadata.yaml` or files of records. An exact export is a bundle of such
files, which a `Packed` source shows like a folder. Nothing of the source is locked or written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ...change.holdings import (
    KEPT,
    Holding,
    Origin,
    Unread,
    holds_memories,
    in_bundle,
    in_content,
    place_of,
)
from ...disk import bundle
from ...disk.place import ARCHIVE, BACKUP, ENDING, FILES
from ...model.errors import SMPError
from ...model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    JOURNAL,
    METADATA,
    SESSION_DIRECTORIES,
    is_session_id,
)
from ...model.record import GLOBAL_KINDS, HISTORY, SESSION_KINDS, STATE_HISTORY, TURN
from ...text.mapping import load_mapping
from ...text.version import PROFILE
from ..entry import Read
from ..export import entries_of, tombstone_of
from .own_export import LAYOUT
from .reader import Destination, Folder, Part, Reader
from .shape import session_id
from .source import Packed, Source, inside

_TREE = (ACTIVE, ARCHIVED, GLOBAL, DELETED)
_INBOX = "inbox"
_FOLDERS = ("", "agent-states", STATE_HISTORY, "artifacts")  # of a session, with memories in them
_FILES = {METADATA: "session"} | {one.file: one.key for one in SESSION_KINDS if one is not TURN}
_GLOBAL_FILES = (*(kind.file for kind in GLOBAL_KINDS), PROFILE)


@dataclass(frozen=True)
class _Place:
    """A session of a source, or `global`, with the folders that hold it; empty for none."""

    session: str
    folder: str | None = None  # with its files
    archived: str | None = None  # with its bundles
    deleted: str | None = None  # with bundles of deleted memories

    def bundles(self, source: Source) -> list[str]:
        """Return its bundles. An archive does not count if the session is in use."""
        found: list[str] = []
        for folder in (self.archived, self.deleted):
            names = source.files(folder) if folder is not None else []
            found += [inside(folder or "", name) for name in names if name.endswith(ENDING)]
        unread = (f"/{ARCHIVE}", f"/{BACKUP}") if self.folder is not None else (f"/{BACKUP}",)
        return [path for path in found if not path.endswith(unread)]

    def files(self, source: Source) -> list[str]:
        """Return the names of the files in its folder that hold memories."""
        found: list[str] = []
        scope = GLOBAL if self.session == GLOBAL else ""
        for below in _FOLDERS if self.folder is not None else ():
            names = source.files(inside(self.folder or "", below))
            found += [inside(below, name) for name in names]
        return [file for file in found if holds_memories(file, scope)]

    def part(self, source: Source, tree: str | None) -> Part:
        """Return it for the table of layouts. A folder that cannot be listed shows when read."""
        names: list[str] = []
        with suppress(SMPError, OSError):
            names += [inside(self.folder or "", file) for file in self.files(source)]
            names += self.bundles(source)
        own = SESSION_DIRECTORIES if tree is None else _TREE
        return Part(tuple(names), partial(read, source, self, tree), own)


def find_tree(folder: Folder) -> Iterator[Part]:
    """Yield each session of the tree that the folder is."""
    for place in _places(folder):
        yield place.part(folder.source, folder.path)


def find_session(folder: Folder) -> Iterator[Part]:
    """Yield the session that the folder is. Its metadata have its name, else the folder has."""
    if _is_session(folder.source, folder.path, folder.files):
        name = _name_in(folder.source, folder.place(METADATA)) or session_id(folder.name)
        yield _Place(name, folder.path).part(folder.source, None)


def read(
    source: Source, place: _Place, tree: str | None, destination: Destination
) -> Iterator[Read]:
    """Yield the memories of a session: active, archived and evicted ones.

    An exact export that was made with its deleted memories yields their tombstones, too.
    """
    where = next(filter(None, (place.folder, place.archived, place.deleted)), place.session)
    problems: list[str] = []
    found: list[Holding] = []
    try:
        _note(source, place, tree, destination)
        for file in place.files(source):
            found += _in_file(source, place, file, problems)
        for path in place.bundles(source):
            found += _in_bundle(source, place, path, problems)
    except (SMPError, OSError) as error:
        problems.append(f"a folder cannot be read: {error}")
    kept = [one for one in found if one.place in KEPT]
    for entry in entries_of(place.session, kept, problems):
        yield Read(where, entry)
    for one in found:
        if one.place == "deleted" and one.file != HISTORY:
            yield Read(where, tombstone_of(one))
    for problem in problems:
        yield Read(where, None, problem)


def _in_file(source: Source, place: _Place, file: str, problems: list[str]) -> list[Holding]:
    content, problem = source.read(inside(place.folder or "", file))
    origin = Origin(place.session, "active", "")
    return _held(partial(in_content, origin, file, content), file, problem, problems)


def _in_bundle(source: Source, place: _Place, path: str, problems: list[str]) -> list[Holding]:
    content, problem = source.read(path)
    in_tree = "/".join(path.split("/")[-3:])  # place, session, name
    origin = Origin(place.session, place_of(in_tree), path)

    def unpack(unread: list[Unread]) -> Iterator[Holding]:
        return in_bundle(bundle.unpacked(path, content), origin, unread)

    return _held(unpack, path, problem, problems)


def _held(
    read: Callable[[list[Unread]], Iterator[Holding]], name: str, problem: str, problems: list[str]
) -> list[Holding]:
    """Return the memories in a file or a bundle. If it has a problem, it is added to the list."""
    unread: list[Unread] = []
    found: list[Holding] = []
    if not problem:
        try:
            found = [*read(unread)]
        except SMPError as error:
            problem = str(error)
    problems += [f"{one.file}, line {one.line}: {one.problem}" for one in unread]
    if problem:
        problems.append(f"{name}: {problem}")
    return found


def _places(folder: Folder) -> Iterator[_Place]:
    """Yield `global` and the sessions of a tree; none if the folder is not a tree."""
    source = folder.source
    if GLOBAL in folder.directories:
        path = folder.place(GLOBAL)
        if not set(_GLOBAL_FILES).isdisjoint(source.files(path)):
            yield _Place(GLOBAL, path)
    found: dict[str, dict[str, str]] = {}  # folders by session and place
    for top in (ACTIVE, ARCHIVED, DELETED):
        is_looked_into = top != DELETED or isinstance(source, Packed)
        names = source.directories(folder.place(top)) if top in folder.directories else ()
        for name in names if is_looked_into else ():
            path = folder.place(f"{top}/{name}")
            if is_session_id(name) and _is_kept(source, path, top):
                found.setdefault(name, {})[top] = path
    for name, paths in sorted(found.items()):
        yield _Place(name, paths.get(ACTIVE), paths.get(ARCHIVED), paths.get(DELETED))


def _is_kept(source: Source, path: str, top: str) -> bool:
    """Return whether a folder holds a session. One that cannot be listed is reported when read."""
    try:
        files = source.files(path)
    except (SMPError, OSError):
        return True
    if top == ACTIVE:
        return _is_session(source, path, tuple(files))
    return any(name.endswith(ENDING) for name in files)


def _is_session(source: Source, path: str, files: tuple[str, ...]) -> bool:
    """Return whether a file of these is one of a session: its first lines have the key."""
    for file, key in _FILES.items():
        pattern = re.compile(rb"^%s:" % key.encode(), re.MULTILINE)
        if file in files and pattern.search(source.beginning(inside(path, file))):
            return True
    return False


def _name_in(source: Source, place: str) -> str | None:
    try:
        name = load_mapping(source.read(place)[0], "session", METADATA).get("id")
    except SMPError:
        return None
    return name if isinstance(name, str) and is_session_id(name) else None


def _note(source: Source, place: _Place, tree: str | None, destination: Destination) -> None:
    """Note what the source has and an import does not read."""
    if place.folder is not None and place.session != GLOBAL:
        inbox = inside(place.folder, _INBOX)
        if waiting := len(source.files(inbox)):
            files = "a file waits" if waiting == 1 else f"{waiting:,} files wait"
            said = f"{files} in {inbox} and was not read; the daemon of its tree takes it in"
            destination.notes.append(said)
    if tree is not None and any(
        name.startswith(f"{place.session}+") for name in source.files(inside(tree, JOURNAL))
    ):
        said = f"{place.session} has an unfinished change at the source"
        destination.notes.append(f"{said}; run smp check there, then import it again")


TREE_READER = Reader(LAYOUT, find_tree)
READER = Reader(LAYOUT, find_session, tuple(FILES))
