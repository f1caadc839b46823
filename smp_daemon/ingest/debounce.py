"""A burst of changes becomes one batch. Pure: the time is an argument, and the caller locks."""

from __future__ import annotations

import enum
from collections.abc import Hashable

CAP = 5_000


class Everything(enum.Enum):
    """Stands for every item at once: scan instead of looking at each."""

    EVERYTHING = "everything"


EVERYTHING = Everything.EVERYTHING


class Debounce:
    """A batch is due when one of its items was quiet for `quiet_s`.

    At the latest it is due `longest_wait_s` after its first item. So a writer who writes now and
    then does not wait for writers that never stop.
    """

    def __init__(self, quiet_s: float, longest_wait_s: float, cap: int = CAP) -> None:
        self._quiet_s = quiet_s
        self._longest_wait_s = longest_wait_s
        self._cap = cap
        self._items: dict[Hashable, float] = {}  # to when it was last added
        self._first = 0.0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Hashable, now: float) -> None:
        """Add an item. EVERYTHING, or more items than the cap, make the batch EVERYTHING."""
        if not self._items:
            self._first = now
        if EVERYTHING in self._items:
            item = EVERYTHING
        self._items[item] = now
        if item is EVERYTHING or len(self._items) > self._cap:
            self._items = {EVERYTHING: now}

    def due_in(self, now: float) -> float | None:
        """Return the seconds until the batch is due, 0 where it is; None where there is none."""
        if not self._items:
            return None
        quiet = min(self._items.values()) + self._quiet_s
        return max(0.0, min(quiet, self._first + self._longest_wait_s) - now)

    def take(self, now: float) -> list[Hashable]:
        """Return the batch in the order in which its items were first seen, if it is due."""
        return self.take_all() if self.due_in(now) == 0.0 else []

    def take_all(self) -> list[Hashable]:
        items, self._items = list(self._items), {}
        return items
