"""The size of a session, and whether a write still fits.

The YAML and Markdown files of a session count. The inbox does not: a drop counts once it is taken
in. Nor does `indexes/`, which nobody can make smaller.

A file that is far larger than its session may be is not read: parsing takes many times its size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ..model.errors import QuotaExceeded, SMPError, UnsafePath
from ..model.layout import ACTIVE, METADATA, is_session_id
from ..model.record import REVISION, SESSION_KINDS
from ..text.mapping import load_mapping
from .policy import DEFAULT_QUOTA_BYTES
from .tree import Tree

WARNING_PCT, CRITICAL_PCT = 80, 95
_LEVELS = ((100, "full"), (CRITICAL_PCT, "critical"), (WARNING_PCT, "warning"))

_FILES = {kind.file: kind.file.partition(".")[0] for kind in (*SESSION_KINDS, REVISION)}
_FILES["metadata.yaml"] = "metadata"
_DIRECTORIES = {"agent-states": "agent_states", "agent-states/history": "agent_states",
                "artifacts": "artifacts", "": "other"}  # fmt: skip
_READ_QUOTAS = 4  # a file that is larger than so many quotas of its session is not read
_READ_ALWAYS_BYTES = _READ_QUOTAS * DEFAULT_QUOTA_BYTES
LARGE_BYTES = 5_000_000  # from here on a compaction is suggested
_LEAST_QUOTA_BYTES = 64 * 1024
_COUNTED_S = 1.0  # how long a count holds: processes that write at once may go that far beyond


class Size(NamedTuple):
    total_bytes: int
    quota_bytes: int
    utilization_pct: float
    level: str  # ok, warning, critical, full
    components: dict[str, int]  # with `indexes`, which is no part of the total
    largest_files: list[dict[str, Any]]
    days_until_full: float | None  # None while there is not a day's growth to go by


def level_of(percent: float) -> str:
    """Return how full a session is in a word."""
    return next((name for least, name in _LEVELS if percent >= least), "ok")


def size_note(session_id: str, total_bytes: int, quota_bytes: int) -> str:
    """Return a warning for a session that is nearly full, a hint for a large one, or nothing."""
    smaller = f"smp compact {session_id} makes it smaller"
    share = 100 * total_bytes / quota_bytes
    if share >= WARNING_PCT:
        held = f"{total_bytes:,} of {quota_bytes:,} bytes"
        said = f"Session {session_id} is {share:.0f} % full ({held})."
        return f"{said} {smaller}; so does archiving it. A larger storage.quota_bytes helps, too."
    if total_bytes >= LARGE_BYTES:
        size = f"{total_bytes / 1_000_000:.1f} MB"
        return f"Session {session_id} holds {size}, and questions take longer. {smaller}."
    return ""


def size_notes(tree: Tree, usual_quota: int) -> Iterator[tuple[str, float, str]]:
    """Yield the sessions that are nearly full or large: id, percent of the quota, and a note."""
    for name in tree.list(ACTIVE):
        if not is_session_id(name):
            continue
        directory = f"{ACTIVE}/{name}"
        total = 0
        with suppress(OSError, SMPError):
            total = Usage(tree, directory).total()
        if total >= _LEAST_QUOTA_BYTES * WARNING_PCT // 100:
            quota = _stated_quota(tree, directory)
            quota = quota if quota > 0 else usual_quota
            if note := size_note(name, total, quota):
                yield name, 100 * total / quota, note


class Usage:
    """The size of one session's directory."""

    def __init__(self, tree: Tree, directory: str) -> None:
        self._tree = tree
        self._directory = directory
        self._total, self._counted_at = 0, 0.0
        self._quota = 0  # of the last write

    def total(self) -> int:
        return sum(sum(self._counted(name).values()) for name in _DIRECTORIES)

    def require(self, session_id: str, needed: int, quota: int) -> None:
        """Raise QuotaExceeded where the session cannot grow by so much."""
        if needed <= 0:
            return
        self._quota = quota
        now = time.monotonic()
        if now - self._counted_at > _COUNTED_S or self._total + needed > quota:
            self._total, self._counted_at = self.total(), now
            if self._total + needed > quota:
                raise QuotaExceeded(session_id, total_bytes=self._total, quota_bytes=quota,
                                    needed_bytes=needed)  # fmt: skip
        self._total += needed

    def warning(self, session_id: str) -> str:
        """Return a warning where the session was nearly full after the last write."""
        if 100 * self._total < WARNING_PCT * self._quota or not self._quota:
            return ""
        return size_note(session_id, self._total, self._quota)

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
        # Beside the others, for it can be made again and does not count.
        components["indexes"] = sum(self._counted("indexes").values())
        largest = [
            {"path": name, "size_bytes": size, "percentage": round(100 * size / total, 1)}
            for name, size in sorted(files.items(), key=lambda one: -one[1])[:10]
            if size
        ]
        days = 0.0 if total >= quota else None
        if created and 0 < total < quota and now - created >= timedelta(days=1):
            # A straight line from an empty session at its creation through today's size.
            per_day = total / ((now - created).total_seconds() / 86400)
            days = round((quota - total) / per_day, 2)
        share = 100 * total / quota
        level = level_of(share)
        return Size(total, quota, round(share, 1), level, components, largest, days)

    def _counted(self, name: str) -> dict[str, int]:
        sizes = self._tree.sizes(f"{self._directory}/{name}" if name else self._directory)
        return {file: size for file, size in sizes.items() if file.endswith((".yaml", ".md"))}


def require_readable(tree: Tree, directory: str, file: str, size: int) -> None:
    """Raise UnsafePath where a file of a session is too large to be parsed.

    Files of `global/` have no quota.
    """
    if size <= _READ_ALWAYS_BYTES or not directory.startswith(f"{ACTIVE}/"):
        return
    if size > _READ_QUOTAS * _stated_quota(tree, directory):
        raise UnsafePath(
            f"{directory}/{file} has {size:,} bytes, which is more than {_READ_QUOTAS} times the"
            " quota of its session, and is not read.",
            advice="Move memories out of it, or raise storage.quota_bytes of the session.",
        )


def _stated_quota(tree: Tree, directory: str) -> int:
    """Return the quota in the metadata of a session; 0 where they cannot be read."""
    path = f"{directory}/{METADATA}"
    try:
        if tree.stat(path).st_size > _READ_ALWAYS_BYTES:
            return 0
        storage = load_mapping(tree.read(path), "session", METADATA).get("storage")
    except (OSError, SMPError):
        return 0
    quota = storage.get("quota_bytes") if isinstance(storage, dict) else None
    return quota if isinstance(quota, int) else 0
