"""An export as it comes: from a file or a pipe, which cannot be begun again, as it is or packed with gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import IO, Any

from ..errors import Invalid
from . import formats

_PACKED = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


def opened(source: IO[bytes], name: str) -> tuple[str, Iterator[formats.Read]]:
    """The form of an export, and what it holds; raises Invalid where it is none. What is damaged is told behind what is whole."""
    beginning, whole = _begun(source)
    unpacking = _Unpacking(whole) if beginning.startswith(_PACKED) else None
    if unpacking is not None:
        beginning, whole = _begun(io.BufferedReader(unpacking, 1 << 20))
    form = formats.recognise(beginning)
    if form is None:
        why = f", and it cannot be unpacked: {unpacking.damage}" if unpacking and unpacking.damage else ""
        raise Invalid([f"{name} is no export of SMP: it begins with neither JSON, YAML nor Markdown of one{why}"],
                      advice="Nothing was written; give it a file that smp export has written.")  # fmt: skip
    given = formats.read(whole, form)
    return form, _unpacked(given, unpacking) if unpacking else given


def plain(beginning: bytes) -> bytes:
    """The first bytes of a file, unpacked where it is one packed text; an archive of files is none."""
    if not beginning.startswith(_PACKED):
        return beginning
    try:
        text = zlib.decompressobj(_GZIP).decompress(beginning, formats.BEGINNING_BYTES)
    except zlib.error:
        return b""
    return text if b"\0" not in text else b""


def _unpacked(given: Iterator[formats.Read], unpacking: _Unpacking) -> Iterator[formats.Read]:
    yield from given
    if unpacking.damage:
        yield formats.Read(0, None, f"the rest cannot be unpacked: {unpacking.damage}")


class _Unpacking(io.RawIOBase):
    """What is packed, as far as it can be unpacked; then `damage` says why it goes no further."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed, self.damage = gzip.GzipFile(fileobj=packed), ""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = b"" if self.damage else self._packed.read1(len(buffer))
        except _DAMAGED as error:
            piece, self.damage = b"", str(error)
        buffer[: len(piece)] = piece
        return len(piece)


def _begun(source: IO[bytes]) -> tuple[bytes, IO[bytes]]:
    beginning = source.read(formats.BEGINNING_BYTES)
    return beginning, io.BufferedReader(_Joined(beginning, source), 1 << 20)


class _Joined(io.RawIOBase):
    """What was read of a stream to see what it is, and the rest."""

    def __init__(self, beginning: bytes, rest: IO[bytes]) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._beginning[: len(buffer)] or self._rest.read(len(buffer))
        self._beginning = self._beginning[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)
