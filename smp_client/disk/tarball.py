"""Many files in one `.tar.gz`, made aside, synced and read back.

An archive may have been changed, or made by anybody: it is read as a stream, under caps on names,
kinds, count and size, and nothing of it is ever written to a place that it names itself. Equal
members give equal bytes.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import IO, cast

from ..model.errors import CorruptionDetected
from .tree import READ_CAP_BYTES, Tree, sync

MEMBERS_CAP = 100_000
TOTAL_CAP_BYTES = 4 * READ_CAP_BYTES
_NAME_CAP_CHARACTERS = 512
_LEVEL = 4  # half of the time of 6, for a twentieth more bytes


def damaged(problem: str) -> CorruptionDetected:
    advice = "Bring it back from a copy of your own; nothing was changed."
    return CorruptionDetected(problem, advice=advice)


def make_archive(tree: Tree, members: Sequence[tuple[str, bytes]]) -> str:
    """Make an archive aside, durable and read back. Return its temporary name."""
    temporary = tree.new_temporary()
    try:
        with tree.opened(temporary, os.O_WRONLY | os.O_CREAT) as descriptor:
            with (
                os.fdopen(descriptor, "wb", closefd=False) as raw,
                gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as compressed,
                tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for path, content in members:
                    entry = tarfile.TarInfo(path)
                    entry.size, entry.mode = len(content), 0o600
                    archive.addfile(entry, io.BytesIO(content))
            sync(descriptor)
        read_back = zip_longest(read_members(tree, temporary), members)
        if not all(found == given for found, given in read_back):
            raise damaged(f"{temporary} was not written as it was given.")
    except BaseException:
        tree.unlink(temporary)
        raise
    return temporary


def read_members(tree: Tree, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member of an archive in the tree."""
    with tree.opened(name) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as raw:
        yield from members_in(raw, name)


def members_in(raw: IO[bytes], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each member of an open archive, which messages call by its name.

    Raise CorruptionDetected at the first thing that no archive of SMP holds.
    """
    seen: set[str] = set()
    try:
        with (
            gzip.GzipFile(fileobj=raw, mode="rb") as compressed,
            tarfile.open(fileobj=cast("IO[bytes]", _Capped(compressed)), mode="r|") as archive,
        ):
            for entry in archive:
                is_known = not entry.isfile() or entry.name in seen
                if is_known or not is_inner_path(entry.name) or len(seen) >= MEMBERS_CAP:
                    raise damaged(f"{name} holds {entry.name!r}, which no archive of SMP does.")
                if entry.size > READ_CAP_BYTES:
                    raise damaged(f"{entry.name!r} in {name} is larger than anything SMP writes.")
                seen.add(entry.name)
                opened = archive.extractfile(entry)
                content = opened.read() if opened else b""
                if len(content) != entry.size:
                    raise damaged(f"{entry.name!r} in {name} is cut off.")
                yield entry.name, content
            # The bytes behind the last member tell whether the file is whole.
            while compressed.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise damaged(f"{name} cannot be read: {error}.") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(f"{name} cannot be read: {error}.") from error  # gzip's wrong checksum


def is_inner_path(path: str) -> bool:
    """Return whether a path can only name something inside the directory that it is put into."""
    parts = path.split("/")
    is_plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return 0 < len(path) <= _NAME_CAP_CHARACTERS and "\\" not in path and is_plain


def plain_files(tree: Tree, directory: str) -> Iterator[str]:
    """Yield the plain files below a directory by their paths in it; raise UnsafePath at others."""
    for path in tree.files_below(directory):
        with tree.opened(path):
            yield path.removeprefix(f"{directory}/")


class _Capped:
    """Stops a stream that goes on and on: a few bytes can stand for any number of zeros."""

    def __init__(self, source: gzip.GzipFile) -> None:
        self._source = source
        self._left = TOTAL_CAP_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise damaged(f"An archive holds more than {TOTAL_CAP_BYTES:,} bytes.")
        return piece
