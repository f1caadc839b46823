"""Which layouts stand at a path, by the names of files and by their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...disk.tree import Tree
from ...model.errors import Invalid, SMPError
from ...model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, QUARANTINE
from ...text.contents import parse_object
from .. import forms
from ..entry import Read
from . import chat, source
from .source import CHECKED, JSONL, KINDS, MANIFEST, MEMORY, METADATA, PER_KIND, SHARED, inside

SMP = "smp"
LAYOUTS = (SMP, JSONL, PER_KIND, CHECKED, chat.LAYOUT)
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", ".smp", BACKUP))
_OF_TREE = frozenset((ACTIVE, ARCHIVED, DELETED, QUARANTINE))
_OF_CHECKED, _OF_PER_KIND = (MEMORY, METADATA, source.TOMBSTONES), (MANIFEST, *KINDS)
_DEPTH, _FEW_LINES, _LINES = 8, 20, (".jsonl", ".ndjson")

Part = Callable[[chat.Placer], Iterator[Read]]


@dataclass
class Found:
    """A layout at a path: the files it is read from, and its parts in order."""

    layout: str
    source: source.Source
    files: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


def recognise(path: str | Path) -> list[Found]:
    """Return the layouts at a path. Raise where there is none."""
    given, found = source.Source(path), dict[str, Found]()
    name = given.path.name
    folders = [("", [name])]
    if not given.path.exists():
        raise Invalid([f"there is no {given.path}"])
    if given.is_folder:
        folders = [*_folders(given.tree)]
    elif name in (MEMORY, *KINDS):  # a part of a session, with the other parts beside it
        folders = [("", [one for one in (*_OF_CHECKED, *_OF_PER_KIND) if given.beginning(one)])]
    for folder, names in folders:
        for layout, files, part in _layouts(given, folder, names):
            one = found.setdefault(layout, Found(layout, given))
            one.files += files
            one.parts.append(part)
    if not any(one.files for one in found.values()):
        advice = f"Name a file or a folder in one of the layouts {', '.join(LAYOUTS)}."
        if not given.is_folder and given.beginning(name).startswith(b"\x1f\x8b"):
            advice = "Unpack an exact export in a new root, with tar -x --strip-components 1."
        if any(name.endswith(_LINES) for _, names in folders for name in names):
            advice += " A line of jsonl has type, ts and data."
        raise Invalid([f"{given.path} holds nothing that SMP can import"], advice=advice)
    return list(found.values())


def _folders(tree: Tree, folder: str = "", depth: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder with the names of its files, but none of a tree of SMP."""
    try:
        folders, files = tree.directories(folder), sorted(tree.sizes(folder))
    except (SMPError, OSError):  # nobody may read it, so nothing is found in it
        return
    yield folder, files
    left = _SKIPPED | (_OF_TREE if ".smp" in folders else set())
    for name in folders if depth < _DEPTH else ():
        if name not in left:
            yield from _folders(tree, inside(folder, name), depth + 1)


def _layouts(
    given: source.Source, folder: str, names: list[str]
) -> Iterator[tuple[str, list[str], Part]]:
    """Yield the layouts in a folder, each with its files and the way to read it."""
    place = partial(inside, folder)
    session = folder.rpartition("/")[2] or given.top.name

    def files(*some: str) -> list[str]:
        return [place(name) for name in some if name in names]

    def part(read: Callable[..., Iterator[Read]], *about: str) -> Part:
        return lambda _: read(given, *about)

    own = given.path.name
    if not given.is_folder and forms.recognise(given.beginning(own, forms.BEGINNING_BYTES)):
        yield SMP, [own], lambda _: read_export(given.path, own)
    elif files(*SHARED) and session == "shared":
        yield PER_KIND, files(*SHARED), part(source.read_shared, folder)
    elif any("content" in value for file in files(MEMORY) for value in _first(given, file)):
        yield CHECKED, files(*_OF_CHECKED), part(source.read_checked, folder, session)
    elif any(_first(given, file) for file in files(*KINDS)) or any(
        b'"session_id"' in given.beginning(file) for file in files(MANIFEST)
    ):
        yield PER_KIND, files(*_OF_PER_KIND), part(source.read_per_kind, folder, session)
    else:
        for file in map(place, names):
            if file.endswith(_LINES):
                if any({"ts", "data", "type"} <= value.keys() for value in _first(given, file)):
                    yield JSONL, [file], part(source.read_jsonl, file)
                else:
                    yield JSONL, [], partial(_not_read, file)
            elif file.endswith(chat.ENDINGS) and chat.is_log(file, given.beginning(file)):
                yield chat.LAYOUT, [file], partial(chat.read, given, file)


def _not_read(file: str, placer: chat.Placer) -> Iterator[Read]:
    placer.notes.append(f"{file} was not read: none of its first lines has type, ts and data.")
    return iter(())


def _first(given: source.Source, place: str) -> list[dict[str, Any]]:
    """Return the first objects of a file of JSON lines."""
    beginning = given.beginning(place).split(b"\n")[:_FEW_LINES]
    return [value for line in beginning if (value := parse_object(line)[0]) is not None]


def read_export(given: Path | IO[bytes], name: str) -> Iterator[Read]:
    """Yield the entries of an export in any of its forms."""
    with given.open("rb") if isinstance(given, Path) else nullcontext(given) as opened:
        form = forms.recognise(opened.read(forms.BEGINNING_BYTES))
        opened.seek(0)
        if form is None:
            advice = "Nothing was written; give it a file that smp export has written."
            raise Invalid([f"{name} is no export of SMP"], advice=advice)
        yield from forms.read(opened, form, name)
