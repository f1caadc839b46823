"""When sessions age, when they are compacted, and how long deleted memories are kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

HOURS_PER_DAY = 24.0


@dataclass(frozen=True)
class Thresholds:
    """How long a session must have been left alone to become…"""

    idle_after_hours: float = 24.0
    decaying_after_days: float = 7.0
    archive_after_days: float = 30.0


@dataclass(frozen=True)
class CompactionPolicy:
    """When a session is made smaller, by how much, and what may go."""

    gentle_at_pct: float = 80.0
    gentle_reduction_pct: float = 10.0
    forced_at_pct: float = 95.0
    forced_reduction_pct: float = 20.0
    predict_days: float = 1.0  # a session that is full within so many days is compacted; 0: never
    old_conversation_days: float = 7.0
    recent_conversation_hours: float = 24.0  # what was said since then is never taken out,
    recent_access_hours: float = 48.0  # nor is what was read since then,
    preserved_above: float = 0.7  # nor what has more priority than this
    summarizer: tuple[
        str, ...
    ] = ()  # a command that gets old turns on stdin and prints a summary; none for our own
    summarizer_timeout_s: float = 30.0
    automatic: bool = True

    def for_session(self, metadata: dict[str, Any]) -> CompactionPolicy:
        """Return the policy with the session's `compaction_config`, as far as it makes sense."""
        config = metadata.get("compaction_config")
        if not isinstance(config, dict):
            return self
        share = config.get("threshold")
        usable = isinstance(share, (int, float)) and not isinstance(share, bool) and 0 < share <= 1
        return replace(
            self,
            automatic=self.automatic and config.get("auto_compact") is not False,
            gentle_at_pct=100.0 * float(share)
            if usable and share is not None
            else self.gentle_at_pct,
        )


@dataclass(frozen=True)
class RetentionPolicy:
    """How long deleted memories can be restored, and after how many days a type is deleted."""

    deleted_days: float = 30.0
    by_type_days: dict[str, float] = field(
        default_factory=dict
    )  # conversation_turn, decision, finding, preference…
