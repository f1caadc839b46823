"""Which sessions are so full that they must be made smaller, and which of them could not be."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from smp_client.disk.usage import CRITICAL_PCT, Size, Usage
from smp_client.disk.usage import level as quota_level
from smp_client.model.layout import ACTIVE, GLOBAL
from smp_client.model.policies import CompactionPolicy

from .root import Root

AGAIN_AFTER_S = 3600.0  # a session that was compacted is left alone for so long, unless it becomes much fuller
SOON_AGAIN_S = 30.0  # one that could not be, because somebody had its files or something failed, is not
GROWN_PCT = 1.0  # of its quota: much fuller

LEFT_ALONE, GENTLE, FORCED = 0, 1, 2


@dataclass(frozen=True)
class Fill:
    """How full a session is, and how much of it must go."""

    total_bytes: int
    quota_bytes: int
    policy: CompactionPolicy
    reduction_pct: float = 0.0  # nothing where it may stay as it is
    reason: str = ""

    @property
    def pct(self) -> float:
        return 100 * self.total_bytes / self.quota_bytes

    @property
    def level(self) -> int:
        return LEFT_ALONE if not self.reduction_pct else FORCED if self.pct >= self.policy.forced_at_pct else GENTLE


@dataclass(frozen=True)
class _Tried:
    """The last time that a session was made smaller, or could not be."""

    until: float
    level: int
    total_bytes: int


class Fullness:
    def __init__(self) -> None:
        self._tried: dict[tuple[str, str], _Tried] = {}  # by root and session

    def fill(self, root: Root, session: str, *, ahead: bool = False) -> Fill | None:
        """None where there is no such session; `ahead` also looks at how fast it grows."""
        from smp_client.passes.compaction import trigger

        row = root.index.connection.execute("SELECT metadata FROM sessions WHERE scope = ?", (session,)).fetchone()
        try:
            total = Usage(root.memory.tree, f"{ACTIVE}/{session}").total()
        except FileNotFoundError:
            return None
        metadata = _mapping(json.loads(row[0])) if row and row[0] else {}
        quota = _mapping(metadata.get("storage")).get("quota_bytes")
        quota_bytes = quota if isinstance(quota, int) and quota > 0 else root.memory.options.quota_bytes
        policy = root.memory.options.compaction.for_session(metadata)
        size = Size(total, quota_bytes, 100 * total / quota_bytes, quota_level(total, quota_bytes), {}, [], None)
        grown = _grown_in_a_day(root, session) if ahead else 0
        wanted = trigger(size, grown, replace(policy, automatic=True))
        return Fill(total, quota_bytes, policy, *(wanted or ()))

    def is_due(self, root: Root, session: str, *, ahead: bool = False) -> bool:
        """Whether it must be made smaller now; also takes back or renews what status says of it."""
        if session == GLOBAL:
            return False
        fill = self.fill(root, session, ahead=ahead)
        about, key = _about(session), (str(root.path), session)
        if fill is None or not fill.level or fill.pct < CRITICAL_PCT:
            root.problems.pop(about, None)
        if fill is None or not fill.level:
            self._tried.pop(key, None)
            return False
        if not fill.policy.automatic:
            self.note(root, session, fill, "that is switched off for it")
            return False
        tried = self._tried.get(key)
        grown = tried is not None and fill.total_bytes - tried.total_bytes >= fill.quota_bytes * GROWN_PCT / 100
        return tried is None or time.monotonic() >= tried.until or fill.level > tried.level or grown

    def note(
        self, root: Root, session: str, fill: Fill | None, reason: str, *, level: int = 0, failed: bool = False, busy: bool = False
    ) -> None:
        """What came of it, and at which level that was; status says why it is still too full, or failed, until it is smaller."""
        if fill is None:
            root.problems.pop(_about(session), None)
            return
        pause_s = SOON_AGAIN_S if failed or busy else AGAIN_AFTER_S
        self._tried[str(root.path), session] = _Tried(
            time.monotonic() + pause_s, max(level, fill.level), fill.total_bytes
        )  # fmt: skip
        if failed or fill.pct >= CRITICAL_PCT:
            root.problems[_about(session)] = (
                f"Session {session} is {fill.pct:.0f} % full and could not be compacted: {reason.rstrip('.')};"
                " archive it or raise its quota."
            )
        else:
            root.problems.pop(_about(session), None)

    def forget_others(self, root: Root, sessions: set[str]) -> None:
        """Takes back what is said of sessions that are not there any more."""
        for path, session in list(self._tried):
            if path == str(root.path) and session not in sessions:
                del self._tried[path, session]
                root.problems.pop(_about(session), None)


def _about(session: str) -> str:
    return f"fullness of {session}"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _grown_in_a_day(root: Root, session: str) -> int:
    since = root.memory.options.clock() - timedelta(days=1)
    (grown,) = root.index.connection.execute(
        "SELECT SUM(end - start) FROM memories WHERE scope = ? AND at >= ?", (session, round(since.timestamp() * 1e6))
    ).fetchone()  # fmt: skip
    return int(grown or 0)
