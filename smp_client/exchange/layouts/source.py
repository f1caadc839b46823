"""The place that an import reads: a file, a folder or a bundle. No link is followed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...disk import bundle
from ...disk.bundle import Bundle
from ...disk.place import ENDING
from ...disk.tree import Tree
from ...model.errors import Invalid, SMPError
from ...model.times import render_time
from ...text.contents import parse_object

_BEGINNING_BYTES = 65536
_GZIP = b"\x1f\x8b"


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
        self.is_packed = False
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


class Packed(Source):
    """The files in a bundle, which are read like those of a folder. They are held in memory."""

    def __init__(self, path: str | Path, packed: Bundle) -> None:
        super().__init__(path)
        self.is_folder = True
        self.is_packed = True
        self.top = Path(packed.manifest.session or self.path.name.removesuffix(ENDING))
        self._at = packed.manifest.at
        self._contents = dict(packed.files())
        self._folders: dict[str, _Names] = {}
        for place in self._contents:
            self._add(place)

    def _add(self, place: str) -> None:
        folder, _, name = place.rpartition("/")
        self._names(folder).files.append(name)
        while folder:
            above, _, name = folder.rpartition("/")
            if name in self._names(above).directories:
                return
            self._names(above).directories.append(name)
            folder = above

    def _names(self, folder: str) -> _Names:
        return self._folders.setdefault(folder, _Names([], []))

    def directories(self, folder: str) -> list[str]:
        return self._names(folder).directories

    def files(self, folder: str) -> list[str]:
        return self._names(folder).files

    def written_at(self, place: str) -> str:
        return self._at

    def beginning(self, place: str, size: int = _BEGINNING_BYTES) -> bytes:
        return self._contents.get(place, b"")[:size]

    def opened(self, place: str) -> IO[bytes]:
        return io.BytesIO(self._contents[place])

    def read(self, place: str) -> tuple[bytes, str]:
        return self._contents.get(place, b""), ""


class _Names(NamedTuple):
    """The names in a folder of a bundle."""

    directories: list[str]
    files: list[str]


def source_at(path: str | Path) -> Source:
    """Return a file, a folder, or the files in a bundle. Raise for any other packed file."""
    source = Source(path)
    if source.is_folder or not is_packed(source.beginning(source.file, len(_GZIP))):
        return source
    return packed_source(source.path, source.read(source.file)[0])


def packed_source(path: str | Path, content: bytes) -> Packed:
    """Return the files in a bundle that has this content."""
    try:
        return Packed(path, bundle.unpacked(str(path), content))
    except SMPError as error:
        why = str(error).removesuffix(error.advice).strip(" .")
        said = f"{path} is packed, and it is not an exact export of SMP that is whole: {why}"
        raise Invalid([said], advice="Unpack it, and import the folder.") from error


def is_packed(beginning: bytes) -> bool:
    """Return whether a file that begins so is compressed."""
    return beginning.startswith(_GZIP)


def inside(folder: str, name: str) -> str:
    """Return the path of a name in a folder. The top folder is empty, and so is its own name."""
    return "/".join(filter(None, (folder, name)))
