"""The notices of a watcher, and an outbox that loses none of them without a notice."""

from __future__ import annotations

import threading
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
    """A file appeared in `.smp/cookies/`. Every change before it was reported before it."""

    name: str


@dataclass(frozen=True)
class Lost:
    """Changes may have gone unreported: only a scan of the whole tree finds them."""

    reason: str


Notice = Changed | Cookie | Lost


class Outbox:
    """Hand notices to the receiver, one at a time, from any thread, and never raise.

    A notice that cannot be handed over becomes a Lost that is owed: it is handed over first.
    """

    def __init__(self, tree: Tree, report: Callable[[Notice], None]) -> None:
        self._tree = tree
        self._report = report
        self._lock = threading.Lock()
        self._owed: str | None = None
        self._told: set[str] = set()  # cookies that were reported and may still be there

    def send(self, notice: Changed | Cookie) -> None:
        if isinstance(notice, Changed) and notice.path.endswith(f"/{ACCESS_LOG}"):
            return  # every reader of a memory appends to it, and no index depends on it
        with self._lock:
            # Where a Lost is owed and cannot be handed over, it stands for this notice as well.
            if not self._pay():
                return
            try:
                self._deliver(notice)
            except Exception as error:
                self._owed = f"{notice} could not be handed over: {error!r}"
                self._pay()

    def lost(self, reason: str) -> None:
        """Report Lost, then the cookies that are there: their events may be among the lost."""
        with self._lock:
            self._owed = reason
            self._pay()

    def name_cookies(self) -> None:
        for name in self._cookies():
            self.send(Cookie(name))

    def has_new_cookie(self) -> bool:
        return not self._told.issuperset(self._cookies())

    def settle(self) -> None:
        """Try again to hand over a Lost that is owed, and forget cookies that are gone."""
        with self._lock:
            self._pay()
            if self._told:
                self._told &= set(self._cookies())

    def _pay(self) -> bool:
        if self._owed is None:
            return True
        # Listed first: the receiver's scan may come too early for the write before a later cookie.
        names = self._cookies()
        try:
            self._report(Lost(self._owed))
            for name in names:
                self._deliver(Cookie(name))
        except Exception:
            return False
        self._owed = None
        return True

    def _deliver(self, notice: Changed | Cookie) -> None:
        if isinstance(notice, Changed):
            self._report(notice)
        elif notice.name not in self._told:
            self._report(notice)
            self._told.add(notice.name)

    def _cookies(self) -> list[str]:
        try:
            return sorted(self._tree.sizes(COOKIES))  # plain files only, no directories
        except (OSError, UnsafePath):
            # The root is out of reach, and the watcher's check says so.
            return []
