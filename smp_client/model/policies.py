"""When sessions age, when they are compacted, and how long deleted memories are kept."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Thresholds(NamedTuple):
    """How long a session must have been left alone to become…"""

    idle_after_hours: float = 24.0
    decaying_after_days: float = 7.0
    archive_after_days: float = 30.0


class CompactionPolicy(NamedTuple):
    """When a session is compacted, by how much, and which memories may be evicted."""

    gentle_at_pct: float = 80.0
    gentle_reduction_pct: float = 10.0
    forced_at_pct: float = 95.0
    forced_reduction_pct: float = 20.0
    old_conversation_days: float = 7.0
    recent_conversation_hours: float = 24.0  # turns since then are never evicted,
    recent_access_hours: float = 48.0  # nor are memories that were read since then,
    preserved_above: float = 0.7  # nor those with more priority than this
    automatic: bool = True
    summarized_above_turns: int = 500  # a conversation with more turns is summarised; 0 for never

    def for_session(self, metadata: dict[str, Any]) -> CompactionPolicy:
        """Return the policy with the session's `compaction_config`, as far as it makes sense."""
        config = metadata.get("compaction_config")
        if not isinstance(config, dict):
            return self
        share: Any = config.get("threshold")
        is_share = type(share) in (int, float) and 0 < share <= 1
        gentle_at_pct = 100.0 * share if is_share else self.gentle_at_pct
        automatic = self.automatic and config.get("auto_compact") is not False
        return self._replace(automatic=automatic, gentle_at_pct=gentle_at_pct)


class RetentionPolicy(NamedTuple):
    """How long deleted memories can be restored, and after how many days a type is deleted."""

    deleted_days: float = 30.0
    by_type_days: Mapping[str, float] = MappingProxyType({})  # by a type such as `finding`
