"""The notices of a watcher, and the outbox through which its sources report them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smp_client import UnsafePath
from smp_client.disk.tree import Tree
from smp_client.model.layout import ACCESS_LOG, COOKIES


@dataclass(frozen=True)
class Changed:
    """A file at this path, relative to the root, or any file below this directory has changed."""

    path: str


@dataclass(frozen=True)
class Cookie:
    """A file stands in `.smp/cookies/`. Every change before it was reported before it."""

    name: str


@dataclass(frozen=True)
class Lost:
    """Changes may have gone unreported: only a scan of the whole tree finds them."""

    reason: str


Notice = Changed | Cookie | Lost


@dataclass(frozen=True)
class Outbox:
    tree: Tree
    report: Callable[[Notice], None]

    def changed(self, path: str) -> None:
        # Every reader of a memory appends to the access log, and no index depends on it.
        if not path.endswith(f"/{ACCESS_LOG}"):
            self.report(Changed(path))

    def lost(self, reason: str) -> None:
        """Report Lost, then the cookies that are there: their events may be among the lost."""
        # Listed first: the receiver's scan may come too early for the write before a later cookie.
        names = self.cookies()
        self.report(Lost(reason))
        for name in names:
            self.report(Cookie(name))

    def cookies(self) -> list[str]:
        try:
            return sorted(self.tree.sizes(COOKIES))  # plain files only, no directories
        except (OSError, UnsafePath):
            # The root is out of reach, and the watcher's check says so.
            return []
