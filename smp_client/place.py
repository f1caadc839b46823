"""Where a memory is: its root, and the files below it. All that looking after one needs, and cheap to import."""

from __future__ import annotations

from pathlib import Path

from .errors import SessionNotFound
from .files import Tree
from .layout import find_root


class Place:
    """With no root given, the nearest one (see `find_root`). Making it touches no file."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root).expanduser().absolute() if root is not None else find_root()
        self.tree = Tree(self.root)

    def require(self) -> None:
        """Raises where there is no tree: a mistyped name must not make one."""
        if not self.root.is_dir():
            raise SessionNotFound(f"There is no memory at {self.root}.", advice="Make it with smp init, or name another root.")
