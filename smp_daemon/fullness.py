"""Sessions that are too full: which must become smaller now, and which could not."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from smp_client import Session
from smp_client.disk.usage import CRITICAL_PCT, Size
from smp_client.passes.compaction import policy_of, trigger

if TYPE_CHECKING:
    from .root import Root

AGAIN_AFTER_S = 3600.0  # a compacted session rests for so long, unless it grows
SOON_AGAIN_S = 30.0  # a session whose compaction failed rests for so long
GROWN_PCT = 1.0  # of its quota


@dataclass(frozen=True)
class Fill:
    """How full a session is, and by how much it must become smaller; 0 % where it may stay."""

    size: Size
    reduction_pct: float = 0.0
    reason: str = ""
    is_automatic: bool = True


class Fullness:
    """The full sessions of a tree."""

    def __init__(self, root: Root) -> None:
        self._root = root
        # By session: until when it rests, and its size when it was last compacted.
        self._resting: dict[str, tuple[float, int]] = {}

    def measure(self, session: Session) -> Fill:
        size, policy = session.size(), policy_of(session)
        wanted = trigger(size, replace(policy, automatic=True)) or (0.0, "")
        return Fill(size, *wanted, is_automatic=policy.automatic)

    def is_due(self, session: str, fill: Fill) -> bool:
        """Return whether a session must become smaller now. Bring its problem up to date."""
        size = fill.size
        if not fill.reduction_pct:
            self._resting.pop(session, None)
        if not fill.reduction_pct or size.utilization_pct < CRITICAL_PCT:
            self._root.problems.pop(_about(session), None)
        if fill.reduction_pct and not fill.is_automatic:
            self.note(session, fill, "that is switched off for it")
        until, then = self._resting.get(session, (0.0, 0))
        has_grown = size.total_bytes - then >= size.quota_bytes * GROWN_PCT / 100
        is_awake = time.monotonic() >= until or has_grown
        return bool(fill.reduction_pct) and fill.is_automatic and is_awake

    def note(self, session: str, fill: Fill, reason: str, *, failed: bool = False) -> None:
        """Note a compaction. Status says why the session is still too full, until it is not."""
        pause_s = SOON_AGAIN_S if failed else AGAIN_AFTER_S
        self._resting[session] = time.monotonic() + pause_s, fill.size.total_bytes
        self._root.problems.pop(_about(session), None)
        if failed or fill.size.utilization_pct >= CRITICAL_PCT:
            self._root.problems[_about(session)] = (
                f"Session {session} is {fill.size.utilization_pct:.0f} % full and could not be"
                f" compacted: {reason.rstrip('.')}; archive it or raise its quota."
            )

    def forget_others(self, sessions: set[str]) -> None:
        """Forget sessions that are not there any more, and their problems."""
        for session in self._resting.keys() - sessions:
            del self._resting[session]
            self._root.problems.pop(_about(session), None)


def _about(session: str) -> str:
    return f"fullness of {session}"
