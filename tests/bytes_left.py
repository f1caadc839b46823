"""Which files of a tree hold some bytes, whatever they are packed in."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path


def files_with(root: Path, *words: bytes) -> list[str]:
    """Return the files below the root, the index and its WAL among them, that hold one of these."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return [str(path.relative_to(root)) for path in files
            if any(word in part for part in parts(path) for word in words)]  # fmt: skip


def parts(path: Path) -> Iterator[bytes]:
    """Yield the content of a file, and of everything that is packed in it."""
    yield from _parts(_content(path))


def _content(path: Path) -> bytes:
    """Return a file. Where this process closes a file of SQLite's, SQLite loses its locks on it."""
    if not path.name.startswith("index.db"):
        return path.read_bytes()
    return subprocess.run(["cat", path], capture_output=True, check=False).stdout


def _parts(content: bytes) -> Iterator[bytes]:
    yield content
    if content.startswith(b"\x1f\x8b"):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(content))) as archive:
            for member in archive.getmembers():
                if opened := archive.extractfile(member):
                    yield from _parts(opened.read())
