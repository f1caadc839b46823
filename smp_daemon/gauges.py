"""Measuring a tree for its metrics, and writing them.

Counts come from the index. What only the disk knows is looked at less often.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from smp_client import SMPError, __version__
from smp_client.disk import tally
from smp_client.disk.place import is_archived
from smp_client.disk.quarantine import quarantined
from smp_client.disk.usage import WARNING_PCT
from smp_client.model.layout import ARCHIVED, DELETED, GLOBAL, INDEX_FILE, QUARANTINE
from smp_client.model.record import type_of
from smp_client.model.times import time_of

from .metrics import EVERY_S, METRICS_FILE, Gauges, render

if TYPE_CHECKING:
    from .root import Root

DISK_EVERY_S = 300.0
_STATES = "SELECT status, COUNT(*) FROM sessions WHERE scope NOT LIKE 'archived/%' GROUP BY status"
_KINDS = "SELECT type, COUNT(*) FROM memories GROUP BY type"
_SIZES = "SELECT scope, SUM(size) FROM files GROUP BY scope"
_UNREADABLE = "SELECT COUNT(*) FROM files WHERE bad > 0 OR problem IS NOT NULL"


class Measure:
    """The metrics of one tree."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._due = 0.0
        self._disk_due = 0.0
        self._put_away: dict[str, int] = {}  # how many sessions are archived, or deleted
        self._sizes: dict[str, int] = {}  # of places that are no part of the index
        self._generation = -1
        self._kinds: dict[str, int] = {}
        self._unreadable = 0

    def write(self, current: float, *, problems: int, is_good: bool) -> None:
        """Write the file, if it is due."""
        if current < self._due:
            return
        self._due = current + EVERY_S
        tree = self._root.memory.tree
        tally.flush(tree.path)  # of the daemon itself
        text = render(self._gauges(current, problems, is_good), self._root.counters)
        tree.replace(METRICS_FILE, text.encode(), durable=False)

    def write_last(self) -> None:
        """Say that no daemon looks after the tree any more."""
        text = render({"smp_up": 0, "smp_build_info": {__version__: 1}}, self._root.counters)
        with suppress(OSError, SMPError):
            self._root.memory.tree.replace(METRICS_FILE, text.encode(), durable=False)

    def _gauges(self, current: float, problems: int, is_good: bool) -> Gauges:
        root = self._root
        self._look_at_disk(current)
        self._count_memories()
        full = root.fullness.values()
        lag_s = None if root.lag_ms is None else root.lag_ms / 1000
        return {
            "smp_up": 1,
            "smp_build_info": {__version__: 1},
            "smp_heartbeat_timestamp_seconds": time.time(),
            "smp_problems": problems,
            "smp_settings_good": float(is_good),
            "smp_tree_sessions": {**dict(root.index.execute(_STATES)), **self._put_away},
            "smp_memories": self._kinds,
            "smp_bytes": {**self._indexed_bytes(), **self._sizes},
            "smp_fullest_session_ratio": max(full, default=0.0) / 100,
            "smp_sessions_near_limit": sum(pct >= WARNING_PCT for pct in full),
            "smp_index_lag_seconds": root.waiting.oldest_s(current),
            "smp_unindexed_files": len(root.waiting),
            "smp_canary_seconds": lag_s,
            "smp_quarantined": len(list(quarantined(root.memory.tree))),
            "smp_unreadable_files": self._unreadable,
            "smp_job_last_success_timestamp_seconds": self._successes(),
        }

    def _successes(self) -> dict[str, float]:
        times = {name: time_of(job.last_success) for name, job in self._root.jobs.items()}
        return {name: when.timestamp() for name, when in times.items() if when}

    def _count_memories(self) -> None:
        index = self._root.index
        if index.generation == self._generation:
            return
        self._generation = index.generation
        kinds: Counter[str] = Counter()
        for name, count in index.execute(_KINDS):
            kinds[type_of(name)] += count
        self._kinds = dict(kinds)
        ((unreadable,),) = index.execute(_UNREADABLE)
        found = max(0, unreadable - self._unreadable)
        self._root.counters.add("smp_corruption_errors_total", found)
        self._unreadable = unreadable

    def _indexed_bytes(self) -> dict[str, int]:
        sizes: Counter[str] = Counter({"active": 0, "global": 0})
        for scope, size in self._root.index.execute(_SIZES):
            if not is_archived(scope):
                sizes["global" if scope == GLOBAL else "active"] += size or 0
        return dict(sizes)

    def _look_at_disk(self, current: float) -> None:
        """Count the sessions and the bytes of places that change seldom."""
        if current < self._disk_due:
            return
        self._disk_due = current + DISK_EVERY_S
        tree = self._root.memory.tree
        for place in (ARCHIVED, DELETED, QUARANTINE):
            names = [name for name in tree.list(place) if tree.is_directory(f"{place}/{name}")]
            sizes = [sum(tree.sizes(f"{place}/{name}").values()) for name in names]
            self._sizes[place] = sum(sizes)
            if place != QUARANTINE:
                self._put_away[place] = len(names)
        index = tree.sizes(".smp")
        name = INDEX_FILE.rpartition("/")[2]
        self._sizes["index"] = sum(size for file, size in index.items() if file.startswith(name))
