"""Many files in one `.tar.gz`: made aside, made durable, read back, and only then given its name.

An archive may have been changed, or made by anybody: it is read as a stream, under caps on names, kinds, count and size, and
nothing of it is ever written to a place that it names itself. The same members give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple, cast

from ..model.errors import CorruptionDetected
from ..model.layout import TEMPORARY
from .temporaries import temporary_name
from .tree import READ_CAP_BYTES, Tree, sync

MEMBERS_CAP = 100_000
TOTAL_CAP_BYTES = 4 * READ_CAP_BYTES
_NAME_CAP_CHARACTERS = 512
_LEVEL = 6
_ADVICE = "Bring it back from a copy of your own; nothing was changed."


class Member(NamedTuple):
    """A file in an archive."""

    path: str
    size_bytes: int
    sha256: str


def member_of(path: str, content: bytes) -> Member:
    return Member(path, len(content), hashlib.sha256(content).hexdigest())


def write_archive(tree: Tree, target: str, members: Iterable[tuple[str, bytes]]) -> list[Member]:
    """Replaces what has the name, if anything has; durable, and read back before it gets it."""
    temporary, packed = make_archive(tree, members)
    try:
        tree.rename(temporary, target)
    except BaseException:
        tree.unlink(temporary)
        raise
    tree.sync_parent(target)
    return packed


def make_archive(tree: Tree, members: Iterable[tuple[str, bytes]]) -> tuple[str, list[Member]]:
    """An archive under a temporary name, durable and read back; the caller gives it its name."""
    tree.make_directory(TEMPORARY)
    temporary = temporary_name()
    try:
        with tree.opened(temporary, os.O_WRONLY | os.O_CREAT) as descriptor:
            with os.fdopen(descriptor, "wb", closefd=False) as raw:
                packed = _write(raw, members)
            sync(descriptor)
        verify(tree, temporary, packed)
    except BaseException:
        tree.unlink(temporary)
        raise
    return temporary, packed


def packed_bytes(members: Iterable[tuple[str, bytes]]) -> int:
    """Return how large an archive of these members would be."""
    counted = _Counted()
    _write(cast("IO[bytes]", counted), members)
    return counted.size_bytes


def _write(raw: IO[bytes], members: Iterable[tuple[str, bytes]]) -> list[Member]:
    packed: list[Member] = []
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=_LEVEL, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, content in members:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
            packed.append(member_of(path, content))
    return packed


def read_members(tree: Tree, name: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of each member, in their order; raises CorruptionDetected at the first thing that may not be there."""
    with tree.opened(name) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as raw:
        yield from members_in(raw, name)


def members_in(raw: IO[bytes], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member of an archive that is open. Messages call it by its name."""
    seen: set[str] = set()
    with (
        _reading(name),
        gzip.GzipFile(fileobj=raw, mode="rb") as compressed,
        tarfile.open(fileobj=cast("IO[bytes]", _Capped(compressed)), mode="r|") as archive,
    ):
        for entry in archive:
            if not entry.isfile() or not is_inner_path(entry.name) or entry.name in seen or len(seen) >= MEMBERS_CAP:
                raise CorruptionDetected(f"{name} holds {entry.name!r}, which no archive of SMP does.", advice=_ADVICE)
            if entry.size > READ_CAP_BYTES:
                raise CorruptionDetected(f"{entry.name!r} in {name} is larger than anything SMP writes.", advice=_ADVICE)
            seen.add(entry.name)
            opened = archive.extractfile(entry)
            content = opened.read() if opened else b""
            if len(content) != entry.size:
                raise CorruptionDetected(f"{entry.name!r} in {name} is cut off.", advice=_ADVICE)
            yield entry.name, content
        # What stands behind the last member tells whether the file is whole.
        while compressed.read(1 << 20):
            pass


def verify(tree: Tree, name: str, expected: Iterable[Member]) -> None:
    """Raises CorruptionDetected where the archive does not hold exactly these members."""
    wanted = {member.path: member for member in expected}
    for path, content in read_members(tree, name):
        if wanted.pop(path, None) != member_of(path, content):
            raise CorruptionDetected(f"{path!r} in {name} is not what was put there.", advice=_ADVICE)
    if wanted:
        raise CorruptionDetected(f"{name} lacks {', '.join(sorted(wanted)[:5])}.", advice=_ADVICE)


def is_inner_path(path: str) -> bool:
    """Whether it can only name something inside the directory that it is put into."""
    return (
        0 < len(path) <= _NAME_CAP_CHARACTERS
        and "\\" not in path
        and all(part not in ("", ".", "..") and part.isprintable() for part in path.split("/"))
    )


def plain_files(tree: Tree, directory: str) -> Iterator[str]:
    """Yield the plain files below a directory, by their paths inside it, in order. Raises UnsafePath at a link or a device."""
    for path in tree.files_below(directory):
        with tree.opened(path):
            yield path.removeprefix(f"{directory}/")


class _Counted:
    """A file that keeps nothing but its size."""

    size_bytes = 0

    def write(self, piece: bytes) -> int:
        self.size_bytes += len(piece)
        return len(piece)

    def flush(self) -> None:
        """GzipFile asks for it at its end."""


class _Capped:
    """Stops a stream that goes on and on: a few bytes can stand for any number of zeros."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = TOTAL_CAP_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise CorruptionDetected(f"An archive holds more than {TOTAL_CAP_BYTES:,} bytes.", advice=_ADVICE)
        return piece


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise CorruptionDetected(f"{name} cannot be read: {error}.", advice=_ADVICE) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CorruptionDetected(f"{name} cannot be read: {error}.", advice=_ADVICE) from error  # gzip says so of its checksum
