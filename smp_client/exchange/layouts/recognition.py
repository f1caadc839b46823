"""Which layouts stand at a path, by the names of files and by their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from ...model.errors import Invalid, SMPError
from ...model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, MARKER, QUARANTINE
from ...text.json_text import parse_object
from .. import forms
from ..entry import Read
from ..export import bundle_entries, is_bundle
from . import chat, jsonl, jsonl_checked, jsonl_per_kind
from .memlog import NAME as MEMLOG
from .source import Folder, Source, inside

SMP = "smp"
LAYOUTS = (SMP, jsonl.LAYOUT, jsonl_per_kind.LAYOUT, jsonl_checked.LAYOUT, chat.LAYOUT)
_BELOW = ("", ".bmad/memory", "_bmad/memory", "memory", ".bmad/sessions", "_bmad/sessions")
_SKIPPED = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", ".smp", BACKUP))
_OF_TREE = frozenset((ACTIVE, ARCHIVED, DELETED, QUARANTINE))
_LINES = (".jsonl", ".ndjson")
_DEPTH, _LOG_FILES, _FEW_LINES = 8, 20_000, 20

Part = Callable[[chat.Placer], Iterator[Read]]


@dataclass
class Found:
    """A layout at a path: why it is one, the files it is read from, and its parts in order."""

    layout: str
    source: Source
    reasons: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    def entries(self, placer: chat.Placer) -> Iterator[Read]:
        """Yield everything that was found, session by session."""
        for part in self.parts:
            yield from part(placer)

    def lines(self) -> int:
        """Return about how many entries there are, for a progress bar."""
        count = 0
        for file in self.files:
            with suppress(SMPError, OSError):  # which whoever reads it reports
                count += self.source.tree.read(file).count(b"\n")
        return count


class Search:
    """Looks at a path; `found` has each layout once, `notes` the files that are not read."""

    def __init__(
        self, path: str | Path, layout: str | None = None, *, extract: bool = True
    ) -> None:
        if layout is not None and layout not in LAYOUTS:
            raise Invalid([f"layout {layout!r} must be one of {', '.join(LAYOUTS)}"])
        self._source, self._forced, self._extract = Source(path), layout, extract
        self._known: dict[str, Found] = {}
        self.notes: list[str] = []
        if not self._source.path.exists():
            raise Invalid([f"there is no {self._source.path}"])
        if self._source.is_folder:
            for directory in _BELOW:
                if self._source.is_directory(directory):
                    self._look(directory)
            self._look_for_logs()
        else:
            self._look_at_file(self._source.path.name)
        self.found = list(self._known.values())
        if not self.found:
            what = f"nothing in the layout {layout}" if layout else "nothing that SMP can import"
            advice = "Name a file or a folder of one of these layouts, or insist with --as."
            raise Invalid([f"{self._source.path} holds {what}", *self.notes[:5]], advice=advice)

    def _add(self, layout: str, reason: str, files: list[str], part: Part) -> None:
        found = self._known.setdefault(layout, Found(layout, self._source))
        found.reasons.append(reason)
        found.files += files
        found.parts.append(part)

    def _wants(self, layout: str) -> bool:
        return self._forced in (None, layout)

    # Folders.

    def _look(self, directory: str) -> None:
        source = self._source
        if self._look_at_session(directory, directory.rpartition("/")[2] or source.path.name):
            return
        for above in (inside(directory, "sessions"), directory):
            for name in source.list(above):
                place = inside(above, name)
                if source.is_directory(place):
                    self._look_at_session(place, name)
                elif name.lower().endswith(_LINES) and self._wants(jsonl.LAYOUT):
                    self._look_at_lines(above, name)
        shared = source.folder(inside(directory, "shared"))
        files = [shared.where(file) for file in jsonl_per_kind.SHARED if file in shared.names]
        if files and self._wants(jsonl_per_kind.LAYOUT):
            reason = f"{shared.label} holds memories of all sessions"
            read = jsonl_per_kind.read_shared
            self._add(jsonl_per_kind.LAYOUT, reason, files, lambda _: read(shared))

    def _look_at_session(self, place: str, name: str) -> bool:
        """Return whether a folder is a session of one of the layouts."""
        folder = self._source.folder(place)
        first = self._first(folder, jsonl_checked.MEMORY)
        has_content = any("content" in value for value in first)
        is_checked = jsonl_checked.MEMORY in folder.names and self._wants(jsonl_checked.LAYOUT)
        if is_checked and (jsonl_checked.METADATA in folder.names or has_content):
            layout, known, read = jsonl_checked.LAYOUT, jsonl_checked.FILES, jsonl_checked.read
        else:
            layout, known, read = jsonl_per_kind.LAYOUT, jsonl_per_kind.FILES, jsonl_per_kind.read
        files = [file for file in known if file in folder.names]
        if not files or not self._wants(layout):
            return False
        if files == [jsonl_per_kind.MANIFEST]:  # which many programs have
            is_one = b'"session_id"' in self._source.beginning(folder.where(files[0]))
        else:
            is_one = len(files) > 1 or any(self._first(folder, files[0]))
        if is_one:
            reason, named = f"{place or '.'} has {', '.join(files)}", map(folder.where, files)
            self._add(layout, reason, list(named), lambda _: read(folder, name))
        return is_one

    def _first(self, folder: Folder, name: str) -> list[dict[str, Any]]:
        """Return the first objects of a file of JSON lines."""
        beginning = self._source.beginning(folder.where(name)).split(b"\n")[:_FEW_LINES]
        return [value for line in beginning if (value := parse_object(line)[0]) is not None]

    # Files.

    def _look_at_file(self, name: str) -> None:
        source = self._source
        beginning = source.beginning(name, forms.BEGINNING_BYTES)
        own = (jsonl_checked.MEMORY, *jsonl_per_kind.KINDS)
        if self._wants(SMP) and (forms.recognise(beginning) or is_bundle(beginning)):
            part: Part = lambda _: read_export(source.path, name)  # noqa: E731
            self._add(SMP, f"{name} begins like an export", [name], part)
        elif name in own and self._look_at_session("", source.path.parent.name):
            return
        elif name.lower().endswith(_LINES) or self._forced == jsonl.LAYOUT:
            self._look_at_lines("", name)
        elif self._wants(chat.LAYOUT):
            self._look_at_log(name)

    def _look_at_lines(self, directory: str, name: str) -> None:
        folder, place = self._source.folder(directory), inside(directory, name)
        said = "lines with 'type', 'ts' and 'data'"
        if self._forced == jsonl.LAYOUT or any(map(jsonl.is_line, self._first(folder, name))):
            part: Part = lambda _: jsonl.read(folder, name)  # noqa: E731
            self._add(jsonl.LAYOUT, f"{place} has {said}", [place], part)
        else:
            self.notes.append(f"{place} is not read: it has no {said}; --as jsonl insists")

    # Logs.

    def _look_for_logs(self) -> None:
        """Look for logs wherever they are, but not in folders of another layout."""
        taken = {file.rpartition("/")[0] for one in self._known.values() for file in one.files
                 if one.layout != jsonl.LAYOUT}  # fmt: skip
        todo, seen = [("", 0)] if self._wants(chat.LAYOUT) else [], 0
        while todo:
            directory, depth = todo.pop(0)
            is_tree = self._source.is_directory(inside(directory, MARKER.rpartition("/")[0]))
            for name in self._source.list(directory):
                place = inside(directory, name)
                if self._source.is_directory(place):
                    is_left = name in _SKIPPED or (is_tree and name in _OF_TREE) or depth >= _DEPTH
                    todo += [] if is_left else [(place, depth + 1)]
                elif directory not in taken and name.lower().endswith(chat.ENDINGS):
                    seen += 1
                    self._look_at_log(place)
                if seen >= _LOG_FILES:
                    self.notes.append(f"Only {_LOG_FILES:,} files were looked at for logs.")
                    return

    def _look_at_log(self, place: str) -> None:
        is_forced = self._forced == chat.LAYOUT
        is_one = chat.is_log(place, self._source.beginning(place), is_forced=is_forced)
        if is_one or (is_forced and not self._source.is_folder):
            is_memlog = place.lower().endswith(MEMLOG)
            why = "is a memlog" if is_memlog else "has lines that say who speaks"
            part = partial(_read_log, self._source, place, self._extract, is_forced)
            self._add(chat.LAYOUT, f"{place} {why}", [place], part)


def read_export(given: Path | IO[bytes], name: str) -> Iterator[Read]:
    """Yield the entries of an export in any of its forms, or of an exact one."""
    problems: list[str] = []
    with given.open("rb") if isinstance(given, Path) else nullcontext(given) as opened:
        beginning = opened.read(forms.BEGINNING_BYTES)
        opened.seek(0)
        if form := forms.recognise(beginning):
            yield from forms.read(opened, form, name)
            return
        if not is_bundle(beginning):
            advice = "Nothing was written; give it a file that smp export has written."
            raise Invalid([f"{name} is no export of SMP"], advice=advice)
        try:
            yield from (Read(name, entry) for entry in bundle_entries(opened, name, problems))
        except SMPError as error:
            problems.append(str(error))
    yield from (Read(name, None, problem) for problem in problems)


def _read_log(
    source: Source, place: str, extract: bool, is_forced: bool, placer: chat.Placer
) -> Iterator[Read]:
    try:
        content = source.tree.read(place)
    except (SMPError, OSError) as error:
        yield Read(place, None, f"it cannot be read: {error}")
        return
    directory, _, file = place.rpartition("/")
    top = source.path if source.is_folder else source.path.parent
    name = chat.name_of(file, directory.rpartition("/")[2] or top.name)
    given = chat.Given(content, place, name, source.written_at(place), extract, is_forced)
    yield from chat.read(given, placer)
