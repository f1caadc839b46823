"""A file or folder of another program: only read, and no link is followed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...disk.tree import Tree
from ...model.errors import SMPError
from ...model.times import render_time
from ...text.json_text import parse_object
from ..entry import Read

LINE_CAP_BYTES = 16 * 1024 * 1024


class Line(NamedTuple):
    """One line that is not empty: an object, or the reason why there is none."""

    where: str
    number: int
    raw: bytes
    value: dict[str, Any] | None
    problem: str = ""


@dataclass
class Folder:
    """The files of one folder. A file that cannot be read becomes a problem."""

    label: str
    names: list[str]
    content: Callable[[str], bytes]
    written_at: str | None = None
    problems: list[Read] = field(default_factory=list)

    def where(self, name: str) -> str:
        """Return how messages call a file of this folder."""
        return f"{self.label}/{name}" if self.label else name

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; none where it is missing or cannot be read."""
        if name not in self.names:
            return b""
        try:
            return self.content(name)
        except (SMPError, OSError) as error:
            self.problems.append(Read(self.where(name), None, f"it cannot be read: {error}"))
            return b""

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a JSON file that is one object; nothing where there is none."""
        content = self.read(name)
        value, problem = parse_object(content) if content.strip() else ({}, "")
        if problem:
            self.problems.append(Read(self.where(name), None, problem))
        return value or {}

    def lines(self, name: str) -> Iterator[Line]:
        """Yield the lines of a JSON lines file."""
        content = self.read(name).removeprefix(b"\xef\xbb\xbf")
        rows = content.split(b"\n")
        for number, raw in enumerate(rows, 1):
            if not raw.strip():
                continue
            where = f"{self.where(name)}, line {number}"
            if len(raw) > LINE_CAP_BYTES:
                problem = f"the line has more than {LINE_CAP_BYTES:,} bytes"
                yield Line(where, number, raw, None, problem)
                continue
            value, problem = parse_object(raw)
            if problem and number == len(rows):
                problem = f"the last line is cut off ({problem})"
            yield Line(where, number, raw, value, problem)

    def reported(self) -> Iterator[Read]:
        """Yield the problems of the files read so far."""
        yield from self.problems
        self.problems.clear()


class Source:
    """A path that was named on the command line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.is_folder = self.path.is_dir()
        self.tree = Tree(self.path if self.is_folder else self.path.parent)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory; none where it cannot be read."""
        try:
            return sorted(self.tree.list(directory))
        except (SMPError, OSError):
            return []

    def is_directory(self, name: str) -> bool:
        """Return whether it is a directory, and no link to one."""
        try:
            return not name or self.tree.is_directory(name)
        except (SMPError, OSError):
            return False

    def folder(self, directory: str) -> Folder:
        """Return the files of one directory."""
        every = {name: inside(directory, name) for name in self.list(directory)}
        names = [name for name, place in every.items() if not self.is_directory(place)]
        at = max((self.written_at(every[name]) for name in names), default=None)
        return Folder(directory, names, lambda name: self.tree.read(inside(directory, name)), at)

    def written_at(self, name: str) -> str:
        """Return the time at which a file was last written."""
        try:
            seconds = int(self.tree.stat(name).st_mtime)
        except (SMPError, OSError):
            seconds = 0
        return render_time(datetime.fromtimestamp(seconds, UTC))

    def beginning(self, name: str, size: int = 65536) -> bytes:
        """Return the first bytes of a file; none where it cannot be read."""
        try:
            with self.tree.opened(name) as descriptor:
                return os.pread(descriptor, size, 0)
        except (SMPError, OSError):
            return b""


def inside(directory: str, name: str) -> str:
    """Return the path of a name in a directory, of which the top one is empty."""
    return f"{directory}/{name}" if directory else name
