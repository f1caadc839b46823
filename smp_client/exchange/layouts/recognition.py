"""Which layouts stand at a path, by the names of files and by their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...model.errors import Invalid, SMPError
from ...model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, QUARANTINE
from ...text.json_text import parse_object
from .. import forms
from ..entry import Read
from ..export import bundle_entries
from . import chat, source
from .source import CHECKED, JSONL, KINDS, MANIFEST, MEMORY, METADATA, PER_KIND, SHARED, inside

SMP = "smp"
LAYOUTS = (SMP, JSONL, PER_KIND, CHECKED, chat.LAYOUT)
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", ".smp", BACKUP))
_OF_TREE = frozenset((ACTIVE, ARCHIVED, DELETED, QUARANTINE))
_DEPTH, _FILES, _FEW_LINES = 8, 100_000, 20

Part = Callable[[chat.Placer], Iterator[Read]]


@dataclass
class Found:
    """A layout at a path: the files it is read from, and its parts in order."""

    layout: str
    source: source.Source
    files: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


def recognise(path: str | Path, layout: str | None = None) -> list[Found]:
    """Return the layouts at a path, or only one of them. Raise where there is none."""
    if layout is not None and layout not in LAYOUTS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(LAYOUTS)}"])
    search = _Search(source.Source(path))
    found = [one for one in search.found.values() if layout in (None, one.layout)]
    if not found:
        kind = f"nothing in the layout {layout}" if layout else "nothing that SMP can import"
        advice = f"Name a file or a folder in one of the layouts {', '.join(LAYOUTS)}."
        raise Invalid([f"{search.source.path} holds {kind}"], advice=advice)
    return found


class _Search:
    def __init__(self, given: source.Source) -> None:
        self.source = given
        self.found: dict[str, Found] = {}
        self._files = 0  # that were looked at
        if not given.path.exists():
            raise Invalid([f"there is no {given.path}"])
        if given.is_folder:
            self._look("", 0)
            return
        name = given.path.name
        beginning = given.beginning(name, forms.BEGINNING_BYTES)
        if forms.recognise(beginning):
            part: Part = lambda _: read_export(given.path, name)  # noqa: E731
            self._add(SMP, [name], part)
        elif name in (MEMORY, *KINDS):
            self._look_at_session("", [name, *given.listed("")[1]])
        else:
            self._look_at_file(name)

    def _add(self, layout: str, files: list[str], part: Part) -> None:
        found = self.found.setdefault(layout, Found(layout, self.source))
        found.files += files
        found.parts.append(part)

    def _look(self, directory: str, depth: int) -> None:
        """Look at the files of a folder and the folders in it, but not into a tree of SMP."""
        folders, files = self.source.listed(directory)
        shared = [inside(directory, file) for file in files if file in SHARED]
        if shared and directory.rpartition("/")[2] == "shared":
            part = partial(source.read_shared, self.source, directory)
            self._add(PER_KIND, shared, lambda _: part())
        elif not self._look_at_session(directory, files):
            for file in files:
                self._look_at_file(inside(directory, file))
        left = _SKIPPED | (_OF_TREE if ".smp" in folders else set())
        for name in folders if depth < _DEPTH else ():
            if name not in left:
                self._look(inside(directory, name), depth + 1)

    def _look_at_session(self, directory: str, files: list[str]) -> bool:
        """Return whether a folder is a session of one of the layouts."""
        place = partial(inside, directory)
        name = directory.rpartition("/")[2] or self.source.top.name
        held = [file for file in KINDS if file in files and self._first(place(file))]
        if MEMORY in files and any("content" in value for value in self._first(place(MEMORY))):
            part = partial(source.read_checked, self.source, directory, name)
            known = [file for file in (MEMORY, METADATA, source.TOMBSTONES) if file in files]
            self._add(CHECKED, [*map(place, known)], lambda _: part())
        elif held or b'"session_id"' in self.source.beginning(place(MANIFEST)):
            part = partial(source.read_per_kind, self.source, directory, name)
            known = [file for file in (MANIFEST, *KINDS) if file in files]
            self._add(PER_KIND, [*map(place, known)], lambda _: part())
        else:
            return False
        return True

    def _first(self, place: str) -> list[dict[str, Any]]:
        """Return the first objects of a file of JSON lines."""
        beginning = self.source.beginning(place).split(b"\n")[:_FEW_LINES]
        return [value for line in beginning if (value := parse_object(line)[0]) is not None]

    def _look_at_file(self, place: str) -> None:
        self._files += 1
        if self._files > _FILES:
            said = f"{self.source.path} holds more than {_FILES:,} files"
            raise Invalid([said], advice="Name a smaller folder.")
        if place.endswith((".jsonl", ".ndjson")):
            if any({"ts", "data", "type"} <= value.keys() for value in self._first(place)):
                part: Part = lambda _: source.read_jsonl(self.source, place)  # noqa: E731
                self._add(JSONL, [place], part)
        elif place.endswith(chat.ENDINGS) and chat.is_log(place, self.source.beginning(place)):
            self._add(chat.LAYOUT, [place], partial(chat.read, self.source, place))


def read_export(given: Path | IO[bytes], name: str) -> Iterator[Read]:
    """Yield the entries of an export in any of its forms, or of an exact one."""
    problems: list[str] = []
    with given.open("rb") if isinstance(given, Path) else nullcontext(given) as opened:
        form = forms.recognise(opened.read(forms.BEGINNING_BYTES))
        opened.seek(0)
        if form is None:
            advice = "Nothing was written; give it a file that smp export has written."
            raise Invalid([f"{name} is no export of SMP"], advice=advice)
        if form != forms.BUNDLE:
            yield from forms.read(opened, form, name)
            return
        try:
            yield from (Read(name, entry) for entry in bundle_entries(opened, name, problems))
        except SMPError as error:
            problems.append(str(error))
    yield from (Read(name, None, problem) for problem in problems)
