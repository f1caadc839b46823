"""The size of a session, and whether a write still fits.

The YAML and Markdown files of a session count. The inbox does not: a drop counts once it is taken
in. Nor does `indexes/`, which nobody can make smaller. A directory is listed again only when it has
changed; files that grow in place are asked for their size each time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..model.errors import QuotaExceeded
from ..model.record import SESSION_KINDS
from .tree import Tree

DEFAULT_QUOTA_BYTES = 10 * 1024 * 1024
WARNING_PCT, CRITICAL_PCT = 80, 95

_FILES = {kind.file: kind.file.partition(".")[0] for kind in SESSION_KINDS}
_FILES["metadata.yaml"] = "metadata"
_HISTORY = "agent-states/history"
_DIRECTORIES = {"agent-states": "agent_states", _HISTORY: "agent_states", "artifacts": "artifacts"}
_DIRECTORIES[""] = "other"
_GROWING = ("", _HISTORY)  # an appended record changes its file, but not the directory
# A directory that changed so recently may change again without a newer time stamp.
_SETTLED_NS = 50_000_000


@dataclass(frozen=True)
class FileSize:
    path: str
    size_bytes: int
    percentage: float


@dataclass(frozen=True)
class Size:
    total_bytes: int
    quota_bytes: int
    utilization_pct: float
    level: str  # ok, warning, critical, full
    components: dict[str, int]
    largest_files: list[FileSize]
    days_until_full: float | None  # None while there is not a day's growth to go by


class Usage:
    """The size of one session's directory, remembered where that is safe."""

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._directory = directory
        self._listed: dict[str, tuple[int, dict[str, int]]] = {}

    def total(self) -> int:
        with self._tree.directory(self._directory) as descriptor:
            return sum(self._inside(descriptor, name) for name in _DIRECTORIES)

    def require(self, session_id: str, needed: int, quota: int) -> None:
        """Raise QuotaExceeded where the session cannot grow by so much."""
        total = self.total()
        if needed > 0 and total + needed > quota:
            raise QuotaExceeded(
                session_id, total_bytes=total, quota_bytes=quota, needed_bytes=needed
            )

    def measure(self, quota: int, created: datetime | None, now: datetime) -> Size:
        """Return all sizes, from the files as they are now."""
        components = dict.fromkeys([*_FILES.values(), *_DIRECTORIES.values()], 0)
        files: dict[str, int] = {}
        for directory, component in _DIRECTORIES.items():
            for name, size in self._counted(directory).items():
                path = f"{directory}/{name}" if directory else name
                components[_FILES.get(path, component)] += size
                files[path] = size
        total = sum(files.values())
        largest = sorted(((size, name) for name, size in files.items() if size), reverse=True)[:10]
        days = 0.0 if total >= quota else None
        if created and 0 < total < quota and now - created >= timedelta(days=1):
            # A straight line from an empty session at its creation through today's size.
            per_day = total / ((now - created).total_seconds() / 86400)
            days = round((quota - total) / per_day, 2)
        return Size(
            total,
            quota,
            round(100 * total / quota, 1),
            level(total, quota),
            components,
            [FileSize(name, size, round(100 * size / total, 1)) for size, name in largest],
            days,
        )

    def _inside(self, descriptor: int, name: str) -> int:
        try:
            changed = os.stat(name or ".", dir_fd=descriptor, follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:
            return 0
        known = self._listed.get(name)
        if known is None or known[0] != changed:
            known = (changed, self._counted(name))
            if time.time_ns() - changed > _SETTLED_NS:
                self._listed[name] = known
        if name not in _GROWING:
            return sum(known[1].values())
        total = 0
        for file in known[1]:
            with suppress(FileNotFoundError):
                path = f"{name}/{file}" if name else file
                total += os.stat(path, dir_fd=descriptor, follow_symlinks=False).st_size
        return total

    def _counted(self, name: str) -> dict[str, int]:
        sizes = self._tree.sizes(f"{self._directory}/{name}" if name else self._directory)
        return {file: size for file, size in sizes.items() if file.endswith((".yaml", ".md"))}


def level(total: int, quota: int) -> str:
    share = 100 * total / quota
    steps = ((100, "full"), (CRITICAL_PCT, "critical"), (WARNING_PCT, "warning"))
    return next((name for least, name in steps if share >= least), "ok")
