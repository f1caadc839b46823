"""Sessions that are too full: which must become smaller now, and which could not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smp_client import Session
from smp_client.disk.usage import CRITICAL_PCT
from smp_client.passes.compaction import policy_of, trigger

if TYPE_CHECKING:
    from .root import Root

AGAIN_AFTER_S = 600.0  # a compacted session rests for so long, unless it grows
GROWN_PCT = 1.0  # of its quota


class Fullness:
    """The full sessions of a tree."""

    def __init__(self, root: Root) -> None:
        self._problems = root.problems
        # By session: until when it rests, and its size when it was last compacted.
        self._resting: dict[str, tuple[float, int]] = {}

    def due(self, session: Session) -> tuple[float, str] | None:
        """Return by how many percent a session must become smaller now, and why, or None."""
        size, policy = session.size(), policy_of(session)
        due = trigger(size, policy._replace(automatic=True))
        if due is None or size.utilization_pct < CRITICAL_PCT:
            self._problems.pop(_about(session.id), None)
        if due is None:
            self._resting.pop(session.id, None)
            return None
        if not policy.automatic:
            self.note(session, "that is switched off for it")
        until, then = self._resting.get(session.id, (0.0, 0))
        has_grown = size.total_bytes - then >= size.quota_bytes * GROWN_PCT / 100
        is_awake = time.monotonic() >= until or has_grown
        return due if policy.automatic and is_awake else None

    def note(self, session: Session, reason: str, *, failed: bool = False) -> None:
        """Note a compaction. Status says why the session is still too full, until it is not."""
        size = session.size()
        self._resting[session.id] = time.monotonic() + AGAIN_AFTER_S, size.total_bytes
        self._problems.pop(_about(session.id), None)
        if failed or size.utilization_pct >= CRITICAL_PCT:
            self._problems[_about(session.id)] = (
                f"Session {session.id} is {size.utilization_pct:.0f} % full and could not be"
                f" compacted: {reason.rstrip('.')}; archive it or raise its quota."
            )

    def forget_others(self, sessions: set[str]) -> None:
        """Forget sessions that are not there any more, and their problems."""
        for session in self._resting.keys() - sessions:
            del self._resting[session]
            self._problems.pop(_about(session), None)


def _about(session: str) -> str:
    return f"fullness of {session}"
