"""A burst of changes becomes one batch. The time is an argument; any thread may call."""

from __future__ import annotations

import threading

CAP = 5_000
EVERYTHING = ""  # stands for every path at once: scan instead of looking at each


class Debounce:
    """A batch is due when one of its paths was quiet for `quiet_s`.

    At the latest it is due `longest_wait_s` after its first path. So a writer who writes now and
    then does not wait for writers that never stop.
    """

    def __init__(self, quiet_s: float, longest_wait_s: float) -> None:
        self.quiet_s = quiet_s
        self.longest_wait_s = longest_wait_s
        self._paths: dict[str, float] = {}  # to when it was last added
        self._first = 0.0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str, now: float) -> bool:
        """Add a path, and return whether it is the first of a batch.

        EVERYTHING, or more paths than the cap, make the batch EVERYTHING.
        """
        with self._lock:
            if is_first := not self._paths:
                self._first = now
            self._paths[path] = now
            if EVERYTHING in self._paths or len(self._paths) > CAP:
                self._paths = {EVERYTHING: now}
            return is_first

    def oldest_s(self, now: float) -> float:
        """Return for how long the oldest path has waited; 0 where none waits."""
        with self._lock:
            return max(0.0, now - self._first) if self._paths else 0.0

    def due_in(self, now: float) -> float | None:
        """Return the seconds until the batch is due, 0 where it is; None where there is none."""
        with self._lock:
            if not self._paths:
                return None
            quiet = min(self._paths.values()) + self.quiet_s
            return max(0.0, min(quiet, self._first + self.longest_wait_s) - now)

    def take_all(self) -> list[str]:
        """Return the batch in the order in which its paths were first seen, and begin anew."""
        with self._lock:
            paths, self._paths = list(self._paths), {}
            return paths
