"""Where something is imported from: a file, or a folder, or one packed into an archive. Only read, and no link is followed."""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import CorruptionDetected, SMPError
from ...files import READ_CAP_BYTES, Tree
from ...layout import GLOBAL
from ...packing import is_inner_path
from ...text.values import Value, render_entries
from ...timestamps import render_time
from ..entries import ACTIVE, QUARANTINE, Entry, file_bytes, made
from ..formats import Read
from .lines import Line, parse, read_lines

_PIECES_CAP = 1000  # of one file that are set aside
_CACHED = ("index.json", "lock", ".lock", ".DS_Store")  # derived, or of no meaning where no program runs


@dataclass
class Folder:
    """Files by their names, which have no folder in front; `label` says in messages where they are."""

    label: str
    names: list[str]
    content: Callable[[str], bytes]
    written_at: datetime
    name: str = ""  # of the folder itself
    advance: Callable[[], None] = lambda: None  # called for each entry that was read: a large file takes its time
    problems: list[str] = field(default_factory=list)

    def read(self, name: str) -> bytes | None:
        """None where there is no such file, or none that can be read, which is told."""
        if name not in self.names:
            return None
        try:
            return self.content(name)
        except (SMPError, OSError) as error:
            self.problems.append(f"{self.where(name)}: it cannot be read: {error}")
            return None

    def where(self, name: str) -> str:
        return f"{self.label}/{name}" if self.label else name

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON file that is one object; nothing where it is missing or cannot be read, which is told."""
        content = self.read(name)
        value, problem = parse(content) if content is not None else ({}, "")
        if content is not None and not problem and not isinstance(value, dict):
            problem = "it must be an object, in braces"
        if isinstance(value, dict) and (version := _later_version(value)):
            problem = f"it says version {version}, and SMP knows version 1 of this layout; all of it was read as that"
        if problem:
            self.problems.append(f"{self.where(name)}: {problem}")
        return value if isinstance(value, dict) else {}


# How a problem ends that costs nothing of what was said: the rest may be nowhere but in the source.
_KEPT = (f"{QUARANTINE}/", "kept as it is", "is made anew anyway", "all of it was read as that")


def is_lost(problem: str) -> bool:
    """Whether something that could not be read is nowhere here."""
    return not any(ending in problem for ending in _KEPT)


def _later_version(said: Mapping[str, Any]) -> str:
    """Of a manifest; empty where it has one that is known, or none that can be told."""
    version = str(said.get("version", said.get("schema_version", "")))
    return version if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}", version) and int(version.partition(".")[0]) > 1 else ""


class Source:
    """A path that was named on the command line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.is_folder = self.path.is_dir()
        self.tree = Tree(self.path if self.is_folder else self.path.parent)
        self.advance: Callable[[], None] = lambda: None

    def list(self, directory: str = "") -> list[str]:
        try:
            return self.tree.list(directory)
        except (SMPError, OSError):
            return []

    def is_directory(self, name: str) -> bool:
        try:
            return not name or self.tree.is_directory(name)
        except (SMPError, OSError):
            return False

    def exists(self, name: str) -> bool:
        try:
            return self.tree.exists(name)
        except (SMPError, OSError):
            return False

    def folder(self, directory: str) -> Folder:
        names = [name for name in self.list(directory) if not self.is_directory(_inside(directory, name))]
        times = [self.tree.stat(_inside(directory, name)).st_mtime for name in names if self.exists(_inside(directory, name))]
        at = datetime.fromtimestamp(max(times, default=0), UTC).replace(microsecond=0)
        own = directory.rpartition("/")[2] or (self.path if self.is_folder else self.path.parent).name
        return Folder(directory, names, lambda name: self.tree.read(_inside(directory, name)), at, own, self.advance)

    def beginning(self, name: str, size: int = 65536) -> bytes:
        """The first bytes of a file; none where it cannot be read."""
        try:
            with self.tree.opened(name) as descriptor:
                return os.pread(descriptor, size, 0)
        except (SMPError, OSError):
            return b""


def _inside(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def packed(label: str, members: Mapping[str, bytes], at: datetime) -> Folder:
    """What an archive holds of one folder."""
    return Folder(label, sorted(members), members.__getitem__, at)


def unpacked(tree: Tree, name: str) -> dict[str, bytes]:
    """The plain files of a `.tar.gz` of anybody, under caps; its folders say nothing, and whatever else is in it is refused."""
    members: dict[str, bytes] = {}
    left = READ_CAP_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(tree.read(name)), mode="r|gz") as archive:
            for entry in archive:
                path = entry.name.removeprefix("./")
                if entry.isdir():
                    continue
                left -= max(entry.size, 512)
                if not entry.isfile() or not is_inner_path(path) or path in members or left < 0:
                    wrong = f"It holds {path[:80]!r}, which is no plain file, stands twice or is too large."
                    raise CorruptionDetected(wrong, advice="")
                opened = archive.extractfile(entry)
                members[path] = opened.read() if opened else b""
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OSError) as error:
        raise CorruptionDetected(f"It cannot be unpacked: {error}.", advice="") from error
    return members


def told(folder: Folder) -> Iterator[Read]:
    """What could not be read so far."""
    for problem in folder.problems:
        yield Read(0, None, problem)
    folder.problems.clear()


@dataclass
class Aside:
    """What of a session cannot be read: bytes and a note of each unbroken run of lines go to the quarantine, and it is told."""

    session: str
    folder: Folder
    _run: list[tuple[str, Line, str]] = field(default_factory=list)
    _pieces: int = 0
    _said: list[Read] = field(default_factory=list)
    _same: Counter[tuple[str, bytes]] = field(default_factory=Counter)  # how often the same bytes were set aside

    def lines(self, name: str) -> Iterator[Line]:
        """The lines of a file that say something."""
        for line in read_lines(self.folder.read(name) or b""):
            if line.value is None:
                self.refuse(name, line, line.problem)
            else:
                self._close()
                yield line
        self._close()

    def refuse(self, name: str, line: Line, why: str) -> None:
        where = f"{self.folder.where(name)}, line {line.number}"
        self._said.append(Read(0, None, f"{where}: {why}; it goes to quarantine/{self.session}"))
        if self._run and (self._run[-1][0] != name or self._run[-1][1].number + 1 != line.number):
            self._close()
        self._run.append((name, line, why))

    def _close(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        self._pieces += 1
        name, first, why = run[0]
        if self._pieces > _PIECES_CAP:
            if self._pieces == _PIECES_CAP + 1:
                where = self.folder.where(name)
                self._said.append(Read(0, None, f"{where}: only {_PIECES_CAP:,} pieces were set aside; the rest is only there"))
            return
        content = b"\n".join(line.raw for _, line, _ in run)
        self._said += [Read(0, entry) for entry in self._set_aside(name, first, why, len(run), content)]

    def _set_aside(self, name: str, first: Line, why: str, count: int, content: bytes) -> Iterator[Entry]:
        """Under a name that is the same each time, so that importing it again adds nothing."""
        at = self.folder.written_at
        # Not by its place, which is another when something above it was mended.
        self._same[name, content] += 1
        digest = hashlib.sha256(f"{name}\n{self._same[name, content]}\n".encode() + content).hexdigest()[:8]
        path = f"{at:%Y%m%dT%H%M%S}-{name}-{digest}"
        path = path if is_inner_path(path) else f"{at:%Y%m%dT%H%M%S}-line-{digest}"
        more = f" (and {count - 1:,} more lines)" if count > 1 else ""
        note: dict[str, Value] = {"version": 1, "file": name, "offset": first.offset, "bytes": len(content),
                                  "set_aside_at": render_time(at), "why": why + more, "line": first.number}  # fmt: skip
        yield file_bytes(self.session, QUARANTINE, f"{path}.bytes", content)
        text = "".join(line + "\n" for line in render_entries(note, 0))
        yield made("bytes", session=self.session, place=QUARANTINE, path=f"{path}.note.yaml", text=text)

    def told(self) -> Iterator[Read]:
        self._close()
        yield from told(self.folder)
        yield from self._said
        self._said = []


def beside(folder: Folder, session: str, place: str, known: frozenset[str]) -> Iterator[Read]:
    """Files that are no part of a layout, as they are: somebody put them there. Locks, indexes and temporaries are left out."""
    for name in folder.names:
        is_left = name in known or name in _CACHED or name.endswith((".lock", ".tmp", "~"))
        content = None if is_left else folder.read(name)
        if content is not None:
            if is_inner_path(f"imported/{name}"):
                yield Read(0, file_bytes(session, place, f"imported/{name}", content))
            else:
                yield Read(0, None, f"{folder.where(name)}: a file of this name cannot be kept")


def configuration(folder: Folder, layout: str, name: str = "config.json") -> Iterator[Read]:
    """The settings of the program that wrote the layout: kept for whoever writes it again, and not obeyed."""
    content = folder.read(name)
    if content is not None:
        digest = hashlib.sha256(content).hexdigest()[:8]
        yield Read(0, file_bytes(GLOBAL, ACTIVE, f"imported/{layout}-{digest}-{name}", content))
    yield from told(folder)
