"""Which layouts stand at a path: the table of readers, and one walk over the folders."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...model.errors import Invalid, SMPError
from ...model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, QUARANTINE
from . import (
    jsonl,
    jsonl_checked,
    jsonl_per_kind,
    markdown_log,
    memlog,
    own_export,
    own_tree,
    turn_log,
)
from .json_entry import LINES
from .reader import Folder, Part, Reader
from .source import Source, inside, source_at

# Each folder is given to one reader after the other. A file goes to the first that takes it. If a
# reader takes a whole folder, the others do not see it.
READERS: tuple[Reader, ...] = (
    own_tree.TREE_READER,
    own_tree.READER,
    own_export.READER,
    jsonl_per_kind.SHARED_READER,
    jsonl_checked.READER,
    jsonl_per_kind.READER,
    jsonl.READER,
    memlog.READER,
    turn_log.READER,
    markdown_log.READER,
)
LAYOUTS = tuple(dict.fromkeys(reader.layout for reader in READERS))
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", ".smp", BACKUP))
_OF_TREE = frozenset((ACTIVE, ARCHIVED, DELETED, QUARANTINE))
_DEPTH = 8


@dataclass
class Found:
    """A layout at a path: the files it is read from, and its parts in order."""

    layout: str
    source: Source
    files: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


@dataclass
class Recognition:
    """Everything that stands at a path, with notes on files that are not read."""

    source: Source
    own: str = ""  # the real path of the tree that imports, which is not read
    found: dict[str, Found] = field(default_factory=dict)  # by layout
    notes: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """Return the files on the disk that are read."""
        if self.source.is_packed:
            return [self.source.file]
        return list(dict.fromkeys(file for one in self.found.values() for file in one.files))

    def look_into(self, folder: Folder) -> set[str]:
        """Give a folder to the readers. Return the directories in it that are read with it."""
        left = list(folder.files)
        read: set[str] = set()
        for reader in READERS:
            parts = [*reader.find(replace(folder, files=tuple(left)))]
            for part in parts:
                found = self.found.setdefault(reader.layout, Found(reader.layout, self.source))
                found.files += part.files
                found.parts.append(part)
                read.update(part.directories)
                left = [name for name in left if folder.place(name) not in part.files]
            if parts and reader.is_whole:
                return read
        for name in left:
            if name.endswith(LINES):
                why = "none of its first lines has type, ts and data"
                self.notes.append(f"{folder.place(name)} was not read: {why}.")
        return read

    def walk(self, path: str = "", depth: int = 0) -> None:
        """Look into a folder and those below it, but not into what SMP keeps beside memories."""
        source = self.source
        if not source.is_packed and os.path.realpath(source.top / path) == self.own:
            return
        try:
            directories = source.directories(path)
            files = source.files(path)
        except (SMPError, OSError) as error:
            self.notes.append(f"{path or source.path} was not read: {error}")
            return
        read = self.look_into(Folder(source, path, tuple(files), tuple(directories)))
        read |= _SKIPPED | (_OF_TREE if ".smp" in directories else set())
        for name in directories if depth < _DEPTH else ():
            if name not in read:
                self.walk(inside(path, name), depth + 1)


def recognise(path: str | Path, own: Path | None = None) -> Recognition:
    """Return the layouts at a path. Raise if there is none. `own` is the tree that imports."""
    source = source_at(path)
    if not source.path.exists():
        raise Invalid([f"there is no {source.path}"])
    return recognise_source(source, own)


def recognise_source(source: Source, own: Path | None = None) -> Recognition:
    """Return the layouts of a source. Raise if there is none."""
    found = Recognition(source, os.path.realpath(own) if own is not None else "")
    if source.is_folder:
        found.walk()
    else:
        found.look_into(_around(source))
    if not found.found:
        raise _nothing(found)
    return found


def _around(source: Source) -> Folder:
    """Return the file that was named, with the other parts of its session beside it."""
    name = source.file
    for reader in READERS:
        if name in reader.files:
            beside = tuple(one for one in source.files("") if one in reader.files)
            return Folder(source, "", beside)
    return Folder(source, "", (name,))


def _nothing(found: Recognition) -> Invalid:
    """Return the error for a path without any layout."""
    source = found.source
    if not source.is_packed and os.path.realpath(source.path) == found.own:
        advice = "Name the tree to import into with --root."
        return Invalid([f"{source.path} cannot be imported into itself"], advice=advice)
    advice = f"Name a file or a folder in one of the layouts {', '.join(LAYOUTS)}."
    if found.notes:
        advice += " A line of jsonl has type, ts and data."
    return Invalid([f"{source.path} holds nothing that SMP can import"], advice=advice)
