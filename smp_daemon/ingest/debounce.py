"""Waiting until a burst of changes is over, but never for long. Pure: the time is an argument, and the caller does the locking."""

from __future__ import annotations

import enum
from collections.abc import Hashable

CAP = 5_000


class Everything(enum.Enum):
    """Stands for every item at once: scan instead of looking at each."""

    EVERYTHING = "everything"


EVERYTHING = Everything.EVERYTHING


class Debounce:
    """A batch is due when one of its items has been quiet for `quiet_s`, at the latest `longest_wait_s` after its first item.

    So nobody who writes now and then waits for others that never stop; those come along.
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
        """More distinct items than the cap, or EVERYTHING itself, make the whole batch EVERYTHING."""
        if not self._items:
            self._first = now
        if EVERYTHING in self._items:
            item = EVERYTHING
        self._items[item] = now
        if item is EVERYTHING or len(self._items) > self._cap:
            self._items = {EVERYTHING: now}

    def due_in(self, now: float) -> float | None:
        """Seconds until the batch is due, 0 where it is; None where there is none."""
        if not self._items:
            return None
        return max(0.0, min(min(self._items.values()) + self._quiet_s, self._first + self._longest_wait_s) - now)

    def take(self, now: float) -> list[Hashable]:
        """The batch in the order in which its items were first seen, if it is due."""
        return self.take_all() if self.due_in(now) == 0.0 else []

    def take_all(self) -> list[Hashable]:
        items, self._items = list(self._items), {}
        return items
