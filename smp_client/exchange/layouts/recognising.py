"""Which layout stands at a path, and why: by the names of files, and by what the first lines of a file have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...layout import ACTIVE, ARCHIVED, BACKUP, DELETED, MARKER, QUARANTINE
from ..formats import BEGINNING_BYTES, Read
from ..formats import recognise as recognise_export
from ..opening import plain
from . import checked, per_kind, shaping, shared, single
from .lines import LINE_CAP_BYTES, read_lines
from .logs import conversations
from .logs.continuing import LAYOUT as LOG
from .logs.continuing import Continuing
from .logs.memlog import NAME as MEMLOG
from .sources import Source

Part = Callable[[], Iterator[Read]]
SMP = "smp"
BELOW = ("", ".bmad/memory", "_bmad/memory", "memory", ".bmad/sessions", "_bmad/sessions")
LOG_DEPTH, _LOG_FILES = 8, 20_000
_NOT_LOOKED_INTO = frozenset(("node_modules", ".git", ".venv", "venv", "__pycache__", ".smp", BACKUP))
_OF_TREE = frozenset((ACTIVE, ARCHIVED, DELETED, QUARANTINE))  # of ours: not looked into where they are part of one
_FEW_LINES = 20
_LINES_BYTES, _LOG_BYTES = LINE_CAP_BYTES + 65536, 1024 * 1024  # to look at where the beginning does not tell
_LINES = (".jsonl", ".ndjson")
_TOLD = 20  # notes of what was not looked at
_PACKED = ".tar.gz"


@dataclass
class Found:
    """A layout at a path. `parts` are read one behind the other; most are one session each."""

    layout: str
    source: Source
    reasons: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    places: list[str] = field(default_factory=list)  # files, and folders whose files are read
    continuing: Continuing = field(default_factory=Continuing)  # which sessions logs belong to: of each import its own
    notes: list[str] = field(default_factory=list)  # what was not looked at
    came_from: dict[str, list[str]] = field(default_factory=dict)  # what was read so far: sessions as ours, and their places

    def add(self, session: str, part: Part, reason: str, *places: str) -> None:
        self.sessions.append(session)
        self.parts.append(functools.partial(self._noted, part, places[0]))
        self.reasons.append(reason)
        self.places += places

    def _noted(self, part: Part, place: str) -> Iterator[Read]:
        for one in part():
            if one.entry is not None and one.entry["entry"] == "session":
                places = self.came_from.setdefault(one.entry["session"], [])
                places += [place] if place not in places else []
            yield one

    @property
    def path(self) -> Path:
        return self.source.path

    def files(self) -> list[str]:
        """What is read, below the folder that was named, or that the file is in."""
        source = self.source
        listed: dict[str, None] = {}
        for place in self.places:
            inner = source.folder(place).names if source.is_directory(place) else None
            listed.update(dict.fromkeys([place] if inner is None else [_inside(place, name) for name in inner]))
        return list(listed)


class Recognising:
    def __init__(self, path: Path, forced: str | None, *, extract: bool = True) -> None:
        self._source = Source(path)
        self._forced, self._extract = forced, extract
        self._found: dict[str, Found] = {}
        self._unread: list[str] = []  # what is wrong with files that look as if they were meant
        self._left: list[str] = []  # what was not looked at

    def found(self) -> list[Found]:
        if self._source.is_folder:
            for directory in BELOW:
                if self._source.is_directory(directory):
                    self._look(directory)
            self._look_for_logs()
        else:
            self._look_at_file(self._source.path.name)
        found = [one for one in self._found.values() if self._forced in (None, one.layout)]
        if found:
            more = [f"And {len(self._left) - _TOLD:,} more were not looked at."] if len(self._left) > _TOLD else []
            found[0].notes += [*self._left[:_TOLD], *more]
            found[0].parts += [functools.partial(_problems, self._unread)] if self._unread else []
        return found

    def _of(self, layout: str) -> Found:
        return self._found.setdefault(layout, Found(layout, self._source))

    def _wants(self, layout: str) -> bool:
        return self._forced in (None, layout)

    # A folder.

    def _look(self, directory: str) -> None:
        source = self._source
        before = {layout: len(one.parts) for layout, one in self._found.items()}
        if not self._look_at_session(directory, source.folder(directory).name):
            for above in (_inside(directory, "sessions"), directory):
                for name in source.list(above):
                    place = _inside(above, name)
                    if source.is_directory(place) and not (above == directory and name == "sessions"):
                        self._look_at_session(place, name)
            for above in (directory, _inside(directory, "sessions")):
                for name in source.list(above) if self._wants(single.LAYOUT) else ():
                    if name.lower().endswith(_LINES) and not source.is_directory(_inside(above, name)):
                        self._look_at_lines(above, name)
        self._look_beside(directory, before)

    def _look_at_session(self, place: str, name: str) -> bool:
        """Whether a folder is a session."""
        files = set(self._source.folder(place).names)
        if self._wants(checked.LAYOUT) and checked.MEMORY in files and self._is_checked(place, files):
            part = functools.partial(_read_folder, checked.read, self._source, place, name)
            self._of(checked.LAYOUT).add(name, part, f"{place or '.'} has {checked.MEMORY}", place)
            return True
        known = sorted(files & {per_kind.MANIFEST, *per_kind.KINDS})
        if self._wants(per_kind.LAYOUT) and known and (len(known) > 1 or self._is_per_kind(place, known[0])):
            part = functools.partial(_read_folder, per_kind.read, self._source, place, name)
            self._of(per_kind.LAYOUT).add(name, part, f"{place or '.'} has {', '.join(known)}", place)
            return True
        return False

    def _is_checked(self, place: str, files: set[str]) -> bool:
        """Others have files of this name too."""
        if checked.METADATA in files or self._forced == checked.LAYOUT:
            return True
        return any({"id", "type", "content"} <= value.keys() for value in self._first(_inside(place, checked.MEMORY)))

    def _is_per_kind(self, place: str, name: str) -> bool:
        """By one file alone: many things have a manifest."""
        if name == per_kind.MANIFEST:
            return b'"session_id"' in self._source.beginning(_inside(place, name))
        is_asked_for = self._forced == per_kind.LAYOUT
        return is_asked_for or any({"id", "timestamp"} <= value.keys() for value in self._first(_inside(place, name)))

    def _first(self, place: str, problems: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """What the first lines of a file say that say anything; long ones, and those behind broken ones, only where one goes on."""
        seen, size = 0, 65536
        while size:
            beginning = self._source.beginning(place, size)
            lines = list(read_lines(beginning if len(beginning) < size else beginning.rpartition(b"\n")[0]))
            values = [line.value for line in lines if line.value is not None]
            yield from values[seen:_FEW_LINES]
            seen = len(values)
            size = _LINES_BYTES if size < _LINES_BYTES and len(beginning) == size and seen < _FEW_LINES else 0
        if problems is not None and lines and not values:
            problems.append(f"line {lines[0].number}: {lines[0].problem}")

    def _look_beside(self, directory: str, before: dict[str, int]) -> None:
        """What holds for all sessions, and those that are packed away."""
        source = self._source
        names = source.list(directory)
        is_per_kind = "shared" in names or "archive" in names or self._grown(per_kind.LAYOUT, before)
        if self._wants(per_kind.LAYOUT) and is_per_kind and not self._grown(checked.LAYOUT, before):
            if any(source.exists(_inside(directory, f"shared/{name}")) for name in shared.FILES):
                found = self._of(per_kind.LAYOUT)
                found.parts.insert(before.get(per_kind.LAYOUT, 0), lambda: shared.read(source.folder(_inside(directory, "shared"))))
                found.reasons.append(f"{_inside(directory, 'shared')} has preferences or knowledge of all sessions")
                found.places.append(_inside(directory, "shared"))
            for name in source.list(_inside(directory, "archive")):
                self._look_at_pack(_inside(directory, "archive"), name)
        for layout, part in ((checked.LAYOUT, checked.read_config), (per_kind.LAYOUT, per_kind.read_config)):
            if "config.json" in names and self._grown(layout, before):
                config = functools.partial(_read_config, part, source, directory)
                self._found[layout].parts.insert(before.get(layout, 0), config)
                self._found[layout].places.append(_inside(directory, "config.json"))
                return

    def _grown(self, layout: str, before: dict[str, int]) -> bool:
        return layout in self._found and len(self._found[layout].parts) > before.get(layout, 0)

    def _look_at_pack(self, directory: str, name: str) -> None:
        if name.endswith(_PACKED) and self._wants(per_kind.LAYOUT):
            session = name.removesuffix(_PACKED)
            part = functools.partial(per_kind.read_archived, self._source, directory, session)
            beside = _inside(directory, f"{session}.manifest.json")
            places = [_inside(directory, name), *([beside] if self._source.exists(beside) else [])]
            self._of(per_kind.LAYOUT).add(session, part, f"{places[0]} is a packed session", *places)

    # A file.

    def _look_at_file(self, name: str) -> None:
        beginning = self._source.beginning(name, BEGINNING_BYTES)
        is_export = recognise_export(plain(beginning)) is not None
        if self._wants(SMP) and (is_export or self._forced == SMP):
            self._of(SMP).reasons.append(f"{name} {'begins like an export' if is_export else 'is an export, as you say'}")
            self._of(SMP).places.append(name)
            if self._forced is None:
                return
        if name.endswith(_PACKED):
            self._look_at_pack("", name)
        elif name in checked.FILES | per_kind.FILES and self._look_at_session("", self._source.folder("").name):
            return
        elif name.lower().endswith(_LINES) or self._forced == single.LAYOUT:
            self._look_at_lines("", name)
        elif self._wants(LOG):
            self._look_at_log("", name)

    def _look_at_lines(self, directory: str, name: str) -> None:
        place, problems = _inside(directory, name), list[str]()
        reason = next((said for value in self._first(place, problems) if (said := _is_single(value))), "")
        if self._wants(single.LAYOUT) and (reason or self._forced == single.LAYOUT):
            part = functools.partial(_read_file, single.read, self._source, directory, name)
            self._of(single.LAYOUT).add(name.rpartition(".")[0] or name, part, f"{place}: {reason or 'as you say'}", place)
        elif not self._is_link(place):
            why = problems[0] if problems else "its first lines do not have 'type', 'ts' and 'data'"
            self._unread.append(f"{place} is not read: {why}; --as jsonl insists on it")

    def _is_link(self, place: str) -> bool:
        """Which is not followed; that is told."""
        is_link = (self._source.tree.root / place).is_symlink()
        if is_link:
            self._left.append(f"{place} is a link, and was not followed.")
        return is_link

    # Logs.

    def _look_for_logs(self) -> None:
        """Wherever they are, but in folders of another layout, whose files are part of it; recognition is strict."""
        if not self._wants(LOG):
            return
        folders = {place for one in self._found.values() for place in one.places if self._source.is_directory(place)}
        for count, place in enumerate(self._walk("", 0)):
            directory, _, name = place.rpartition("/")
            if directory not in folders and name.lower().endswith((MEMLOG, *conversations.ENDINGS)) and not self._is_link(place):
                self._look_at_log(directory, name)
            if count >= _LOG_FILES:
                self._left.append(f"Only the first {_LOG_FILES:,} files were looked at for logs.")
                return

    def _walk(self, directory: str, depth: int) -> Iterator[str]:
        names = self._source.list(directory)
        left = _NOT_LOOKED_INTO | _OF_TREE if self._source.exists(_inside(directory, MARKER)) else _NOT_LOOKED_INTO
        for name in names:
            place = _inside(directory, name)
            if not self._source.is_directory(place):
                yield place
            elif name not in left and depth < LOG_DEPTH:
                yield from self._walk(place, depth + 1)
            elif name not in left:
                self._left.append(f"{place} was not looked into for logs: it is too deep.")

    def _look_at_log(self, directory: str, name: str) -> None:
        place, is_forced = _inside(directory, name), self._forced == LOG
        is_one = conversations.is_log(name, beginning := self._source.beginning(place), is_forced=is_forced)
        if not is_one and len(beginning) == 65536:
            is_one = conversations.is_log(name, self._source.beginning(place, _LOG_BYTES), is_forced=is_forced)
        if is_one or (is_forced and not self._source.is_folder):
            part = functools.partial(_read_log, self._of(LOG), directory, name, self._extract, is_forced)
            why = "is a memlog" if name.endswith(MEMLOG) else "has lines that say who speaks" if is_one else "is a log, as you say"
            self._of(LOG).add(place, part, f"{place} {why}", place)


def _is_single(value: dict[str, Any]) -> str:
    if {"ts", "data", "type"} <= value.keys():
        return "its lines have 'type', 'ts' and 'data'"
    return "a line marks an id as deleted" if value.get("deleted") is True and "id" in value else ""


def _inside(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _problems(said: list[str]) -> Iterator[Read]:
    yield from (Read(0, None, problem) for problem in said)


def _read_folder(read: Callable[..., Iterator[Read]], source: Source, place: str, name: str) -> Iterator[Read]:
    yield from read(source.folder(place), name)


def _read_file(read: Callable[..., Iterator[Read]], source: Source, directory: str, name: str) -> Iterator[Read]:
    yield from read(source.folder(directory), name)


def _read_log(found: Found, directory: str, name: str, extract: bool, is_forced: bool) -> Iterator[Read]:
    written_at = found.source.tree.stat(_inside(directory, name)).st_mtime
    asked = conversations.Asked(found.continuing, extract, is_forced, shaping.time_of(int(written_at)))
    yield from conversations.read(found.source.folder(directory), name, asked)


def _read_config(read: Callable[..., Iterator[Read]], source: Source, directory: str) -> Iterator[Read]:
    yield from read(source.folder(directory))
