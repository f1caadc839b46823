"""What a packed file holds, for one who only wants to look: as much as can be read, whatever else is wrong with it.

Other than `packing`, which refuses an archive for the first thing that may not be there, this reads on. Nothing is ever written
anywhere, and a few bytes that stand for any number of others are read up to a cap.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from ...errors import CorruptionDetected
from ...packing import TOTAL_CAP_BYTES

PACKED = b"\x1f\x8b"
DEPTH_CAP = 4  # of archives inside archives
_FOREIGN = (b"PK\x03\x04", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c")
_TAR, _TAR_AT = b"ustar", 257
_ADVICE = "Look at it by hand."


def is_foreign(head: bytes) -> bool:
    """Whether it is packed in a way in which SMP packs nothing."""
    return head.startswith(_FOREIGN)


class Budget:
    """How much may still be unpacked of one file, with all that is packed in it."""

    def __init__(self) -> None:
        self.left_bytes = TOTAL_CAP_BYTES


def members(source: IO[bytes], budget: Budget) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Path, size and content of each plain file; of a .gz that is no archive, its content under no name and of no known size.

    Raises CorruptionDetected where it cannot be read any further.
    """
    with reading(), gzip.GzipFile(fileobj=source, mode="rb") as unpacked:
        stream = cast("IO[bytes]", _Capped(unpacked, budget))
        if unpacked.peek(_TAR_AT + len(_TAR))[_TAR_AT : _TAR_AT + len(_TAR)] != _TAR:
            yield "", TOTAL_CAP_BYTES, stream
            return
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                opened = archive.extractfile(entry) if entry.isfile() else None
                if opened is not None:
                    yield entry.name, entry.size, opened
        while stream.read(1 << 20):
            pass  # only at the end does it tell whether all of it was right


class _Capped:
    def __init__(self, source: gzip.GzipFile, budget: Budget) -> None:
        self._source, self._budget = source, budget

    def read(self, size: int = -1) -> bytes:
        left = self._budget.left_bytes
        piece = self._source.read(min(size, left + 1) if size >= 0 else left + 1)
        self._budget.left_bytes -= len(piece)
        if self._budget.left_bytes < 0:
            raise CorruptionDetected(f"it holds more than {TOTAL_CAP_BYTES:,} bytes.", advice=_ADVICE)
        return piece


@contextmanager
def reading() -> Iterator[None]:
    """Whatever is wrong with an archive is CorruptionDetected; also for one who reads the content of a member."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise CorruptionDetected(f"it is damaged: {error}.", advice=_ADVICE) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CorruptionDetected(f"it is damaged: {error}.", advice=_ADVICE) from error
