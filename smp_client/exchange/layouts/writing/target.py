"""Where a layout is written: aside, and under its name when it is whole and durable.

A folder that was written has a list of its files with their digests in it, `.smp-export.json`: only one that is still exactly that
is ever replaced, since anything else in it may be all that another program has.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import IO, Any

from ....errors import Conflict, Invalid, SMPError, StorageFailed
from ....files import Tree
from ....packing import is_inner_path
from .sessions import Lines, document

_ADVICE = "Choose another name, or overwrite it with --force, in Python overwrite=True."
_ADVICE_KEPT = "Choose another name, or move it away; smp import takes in what another program has written there."
LIST = ".smp-export.json"


class Target:
    """A folder that is being written, or a file. Everything in it is for its owner alone."""

    def __init__(self, path: str | Path, *, is_file: bool, overwrite: bool) -> None:
        self.place = Path(path).expanduser().absolute()
        self.is_file, self._overwrite = is_file, overwrite
        self.bytes = 0
        self._around = Tree(self.place.parent)
        self._aside = f".{self.place.name}.{uuid.uuid4().hex[:8]}.part"
        self._lines: list[Lines] = []
        self._check()
        try:
            if not is_file:
                self._around.make_directory(self._aside)
        except OSError as error:
            raise StorageFailed(f"Could not write {self.place}: {error}.") from error

    def _check(self) -> None:
        place = self.place
        if not place.parent.is_dir():
            raise Invalid([f"the directory {place.parent} does not exist"])
        if place.is_symlink() or (place.exists() and not self._overwrite and not self._is_empty()):
            raise Conflict(f"{place} is there already.", advice=_ADVICE)
        if not place.exists():
            return
        if place.is_dir() == self.is_file:
            raise Conflict(f"{place} is a {'folder' if self.is_file else 'file'}.", advice="Choose another name.")
        if place.is_dir() and not self._is_empty():
            self._require_ours(place.name)

    def _require_ours(self, folder: str) -> None:
        """Raises Conflict where something in it is not what an export has written there."""
        try:
            told = json.loads(self._around.read(f"{folder}/{LIST}"))
            written = {str(file): str(digest) for file, digest in told["files"].items()}
        except (SMPError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Conflict(f"{self.place} is no folder that smp export has written, and is not overwritten.",
                           advice=_ADVICE_KEPT) from error  # fmt: skip
        for path in self._around.files_below(folder):
            file = path.removeprefix(f"{folder}/")
            if file != LIST and (file not in written or written[file] != self._digest(f"{folder}/{file}")):
                how = "changed" if file in written else "added"
                raise Conflict(f"{self.place} is not overwritten: {file!r} was {how} since it was exported.", advice=_ADVICE_KEPT)

    def _digest(self, file: str) -> str | None:
        try:
            with os.fdopen(self._around.open(file, os.O_RDONLY), "rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        except (SMPError, OSError):
            return None

    def _is_empty(self) -> bool:
        return self.place.is_dir() and not self.is_file and not self._around.list(self.place.name)

    def _inside(self, name: str) -> str:
        return f"{self._aside}/{name}" if name else self._aside

    def make_directory(self, name: str) -> None:
        self._around.make_directory(self._inside(name))

    def lines(self, name: str) -> Lines:
        opened = Lines(self._around, self._inside(name))
        self._lines.append(opened)
        return opened

    def put(self, name: str, content: bytes) -> int:
        self._around.write_new(self._inside(name), content)
        self.bytes += len(content)
        return len(content)

    def put_json(self, name: str, value: Any) -> int:
        return self.put(name, document(value))

    def read(self, name: str) -> bytes:
        return self._around.read(self._inside(name))

    def size(self, name: str) -> int:
        return self._around.stat(self._inside(name)).st_size

    def remove(self, name: str) -> None:
        self._around.remove_directory(self._inside(name))

    def open_archive(self, name: str) -> IO[bytes]:
        return os.fdopen(self._around.open(self._inside(name), os.O_WRONLY | os.O_CREAT), "wb")

    def spool(self) -> IO[bytes]:
        """A file without a name, for what has to be laid down for a moment."""
        name = f".{self.place.name}.{uuid.uuid4().hex[:8]}.part"
        descriptor = self._around.open(name, os.O_RDWR | os.O_CREAT)
        self._around.unlink(name)
        return os.fdopen(descriptor, "w+b", buffering=1 << 18)

    def finish(self) -> None:
        """Gives it its name; what had it before is removed when it has."""
        self.bytes += sum(lines.bytes for lines in self._lines)
        around, name = self._around, self.place.name
        try:
            if self.is_file:
                (around.rename if self._overwrite else around.rename_new)(self._aside, name)
            else:
                paths = list(around.files_below(self._aside))
                written = {path.removeprefix(f"{self._aside}/"): self._digest(path) for path in paths}
                around.write_new(self._inside(LIST), document({"version": 1, "files": written}))
                around.sync_parent(f"{self._aside}/x")
                self._exchange(name)
            around.sync_parent(name)
        except FileExistsError as error:
            raise Conflict(f"{self.place} is there already.", advice=_ADVICE) from error

    def _exchange(self, name: str) -> None:
        around = self._around
        if not around.exists(name) or not around.list(name):
            around.rename(self._aside, name)  # an empty folder gives way
            return
        if not self._overwrite:
            raise FileExistsError(name)
        before = f".{name}.{uuid.uuid4().hex[:8]}.part"
        around.rename(name, before)
        try:
            self._require_ours(before)  # which somebody may have written to meanwhile
            around.rename(self._aside, name)
        except BaseException:
            around.rename(before, name)
            raise
        around.remove_directory(before)

    def discard(self) -> None:
        for lines in self._lines:
            lines.abandon()
        if self.is_file:
            self._around.unlink(self._aside)
        elif self._around.exists(self._aside):
            self._around.remove_directory(self._aside)


def folder_name(wanted: object, otherwise: str, taken: set[str]) -> str:
    """The name that a session has there, where that can be one and no other has it."""
    name = wanted if isinstance(wanted, str) else otherwise
    if not is_inner_path(name) or "/" in name or name.startswith(".") or name in taken:
        name = otherwise
    taken.add(name)
    return name
