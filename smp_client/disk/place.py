"""The root of a memory, and the files below it: cheap to import."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from ..model.errors import SessionNotFound, UnsafePath
from ..model.layout import MARKER, find_root, is_tree, sessions_of
from ..text.version import require_known, stated
from .tree import Tree


class Place:
    """A root; with none given, the nearest one (see `find_root`). Making it touches no file."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root).expanduser().absolute() if root is not None else find_root()
        self.tree = Tree(self.root)
        self._marked: tuple[int, int] | None = None  # the marker that was looked into

    def require(self) -> None:
        """Raise where there is no tree: a mistyped name must not make one."""
        if not is_tree(self.root):
            below = sessions_of(self.root)
            raise self._no_memory(below if below and is_tree(below) else None)
        self.require_known_version()

    def require_room(self) -> None:
        """Raise in a project, whose sessions have a place of their own below it."""
        if not is_tree(self.root) and (below := sessions_of(self.root)):
            raise self._no_memory(below)

    def _no_memory(self, below: Path | None) -> SessionNotFound:
        make = "Make it with smp init, or name another root."
        advice = f"Name {below} as the root." if below else make
        return SessionNotFound(f"There is no memory at {self.root}.", advice=advice)

    def require_known_version(self) -> None:
        """Raise NewerFormat where the whole tree is of a later version."""
        with suppress(OSError, UnsafePath):  # which says nothing about its version
            status = os.lstat(f"{os.fspath(self.root)}/{MARKER}")
            if self._marked == (status.st_ino, status.st_mtime_ns):
                return
            said = None
            with suppress(ValueError, RecursionError):  # emptied by a crash, say: it is there
                said = json.loads(self.tree.read(MARKER))
            version = stated(said.get("version")) if isinstance(said, dict) else 1
            require_known(version, f"{self.root}/{MARKER}")
            self._marked = (status.st_ino, status.st_mtime_ns)
