"""Which layouts stand at a path: the table of readers, and one walk over the folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...model.errors import Invalid, SMPError
from ...model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, QUARANTINE
from . import jsonl, jsonl_checked, jsonl_per_kind, markdown_log, memlog, own_export
from .json_entry import LINES
from .reader import Folder, Part, Reader
from .source import Source, inside

# Each folder is given to one reader after the other. A file goes to the first that takes it. If a
# reader takes a whole folder, the others do not see it.
READERS: tuple[Reader, ...] = (
    own_export.READER,
    jsonl_per_kind.SHARED_READER,
    jsonl_checked.READER,
    jsonl_per_kind.READER,
    jsonl.READER,
    memlog.READER,
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
    found: dict[str, Found] = field(default_factory=dict)  # by layout
    notes: list[str] = field(default_factory=list)

    def look_into(self, folder: Folder) -> None:
        """Give a folder to the readers."""
        left = list(folder.files)
        for reader in READERS:
            parts = [*reader.find(Folder(folder.source, folder.path, tuple(left)))]
            for part in parts:
                found = self.found.setdefault(reader.layout, Found(reader.layout, self.source))
                found.files += part.files
                found.parts.append(part)
                left = [name for name in left if folder.place(name) not in part.files]
            if parts and reader.is_whole:
                return
        for name in left:
            if name.endswith(LINES):
                why = "none of its first lines has type, ts and data"
                self.notes.append(f"{folder.place(name)} was not read: {why}.")


def recognise(path: str | Path) -> Recognition:
    """Return the layouts at a path. Raise if there is none."""
    source = Source(path)
    if not source.path.exists():
        raise Invalid([f"there is no {source.path}"])
    found = Recognition(source)
    for folder in _folders(source) if source.is_folder else [_around(source)]:
        found.look_into(folder)
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


def _folders(source: Source, path: str = "", depth: int = 0) -> Iterator[Folder]:
    """Yield each folder with the names of its files, but none of a tree of SMP."""
    try:
        directories = source.directories(path)
        files = source.files(path)
    except (SMPError, OSError):  # nobody may read it, so nothing is found in it
        return
    yield Folder(source, path, tuple(files))
    left = _SKIPPED | (_OF_TREE if ".smp" in directories else set())
    for name in directories if depth < _DEPTH else ():
        if name not in left:
            yield from _folders(source, inside(path, name), depth + 1)


def _nothing(found: Recognition) -> Invalid:
    """Return the error for a path without any layout."""
    source = found.source
    advice = f"Name a file or a folder in one of the layouts {', '.join(LAYOUTS)}."
    if not source.is_folder and source.beginning(source.file).startswith(b"\x1f\x8b"):
        advice = "Unpack an exact export in a new root, with tar -x --strip-components 1."
    if found.notes:
        advice += " A line of jsonl has type, ts and data."
    return Invalid([f"{source.path} holds nothing that SMP can import"], advice=advice)
