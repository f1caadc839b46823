"""The place that an import reads: a file or a folder of another program. No link is followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...disk.tree import Tree
from ...model.errors import SMPError
from ...model.times import render_time
from ...text.contents import parse_object

_BEGINNING_BYTES = 65536


class Line(NamedTuple):
    """An object of a source with its file and line, or the problem of an unreadable line."""

    where: str
    raw: bytes
    value: dict[str, Any] | None
    problem: str = ""


class Source:
    """A file or folder, which is only read. Files are named by their paths below the top folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        self.is_folder = self.path.is_dir()
        self.top = self.path if self.is_folder else self.path.parent
        self.tree = Tree(self.top)

    @property
    def file(self) -> str:
        """Return the name of the file that was given, where it is not a folder."""
        return self.path.name

    def directories(self, folder: str) -> list[str]:
        return self.tree.directories(folder)

    def files(self, folder: str) -> list[str]:
        return sorted(self.tree.sizes(folder))

    def written_at(self, place: str) -> str:
        """Return the time at which a file was last written."""
        try:
            seconds = int(self.tree.stat(place).st_mtime)
        except (SMPError, OSError):
            seconds = 0
        return render_time(datetime.fromtimestamp(seconds, UTC))

    def beginning(self, place: str, size: int = _BEGINNING_BYTES) -> bytes:
        """Return the first bytes of a file; none where it cannot be read."""
        try:
            with self.tree.opened(place) as descriptor:
                return os.pread(descriptor, size, 0)
        except (SMPError, OSError):
            return b""

    def opened(self, place: str) -> IO[bytes]:
        """Return the file for reading from its beginning. The caller closes it."""
        return os.fdopen(self.tree.open(place, os.O_RDONLY), "rb")

    def read(self, place: str) -> tuple[bytes, str]:
        """Return the bytes of a file, or none and the reason. A missing file is an empty one."""
        try:
            return self.tree.read(place), ""
        except FileNotFoundError:
            return b"", ""
        except (SMPError, OSError) as error:
            return b"", f"it cannot be read: {error}"

    def mapping(self, place: str) -> tuple[dict[str, Any], str]:
        """Return the object that a JSON file is, or an empty one and the reason."""
        content, problem = self.read(place)
        value, problem = parse_object(content) if content.strip() else (None, problem)
        return value or {}, problem

    def lines(self, place: str) -> Iterator[Line]:
        """Yield the lines of a JSON lines file."""
        content, problem = self.read(place)
        if problem:
            yield Line(place, b"", None, problem)
        rows = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, raw in enumerate(rows, 1):
            if raw.strip():
                value, problem = parse_object(raw)
                if problem and number == len(rows):
                    problem = f"the last line is cut off ({problem})"
                yield Line(f"{place}, line {number}", raw, value, problem)


def inside(folder: str, name: str) -> str:
    """Return the path of a name in a folder, of which the top one is empty."""
    return f"{folder}/{name}" if folder else name
