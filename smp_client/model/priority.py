"""How much a memory still matters: the pure formula, and which rule holds for which memory.

    priority = base · e^(-rate · days since a reading) · e^(-age_rate · days of age) + boost

`boost` grows with every reading up to `boost_cap`. The result lies between the rule's `floor` and
1. The record alone decides which rule holds (its *standing*). The numbers of a rule are policy, and
can be configured for all sessions and for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

HOURS_PER_DAY = 24
PINNED = "pinned"
# These say that a matter is still to be decided, or is closed. Any other word says neither.
_OPEN = frozenset(("open", "unresolved", "pending", "proposed", "in_progress"))
_CLOSED = frozenset(
    ("resolved", "closed", "done", "fixed", "superseded", "implemented", "wont_fix", "rejected")
)
STATUSES = _OPEN | _CLOSED | {"reverted"}  # all that have an effect


class Rule(NamedTuple):
    base: float  # where it begins, unless the record says otherwise
    rate: float  # per day without being read
    boost: float  # for each reading
    floor: float = 0.0  # it never matters less than this

    def with_half_life(self, hours: float) -> Rule:
        return self._replace(rate=math.log(2) * HOURS_PER_DAY / hours)


_DEFAULTS = {
    "conversation_turn": Rule(1.0, 0.05, 0.01, 0.1),
    "decision": Rule(0.95, 0.03, 0.02, 0.4),
    "decision.unresolved": Rule(0.95, 0.03, 0.02, 0.7),
    "decision.high_impact": Rule(0.95, 0.03, 0.02, 0.9),
    "finding": Rule(0.90, 0.04, 0.015, 0.6),  # open
    "finding.critical": Rule(0.90, 0.04, 0.015, 0.8),
    "finding.resolved": Rule(0.90, 0.06, 0.015, 0.3),
    "preference": Rule(0.85, 0.02, 0.03, 0.3),
    "preference.explicit": Rule(0.85, 0.02, 0.03, 0.6),
    "preference.inferred": Rule(0.85, 0.02, 0.03, 0.3),
    "agent_state": Rule(0.80, 0.06, 0.01, 0.1),
    "learning": Rule(0.80, 0.02, 0.01, 0.1),
    "pattern": Rule(0.80, 0.02, 0.01, 0.3),
    "artifact": Rule(0.80, 0.03, 0.01, 0.1),
    # All that is in sight of a session that was archived.
    "summary": Rule(0.80, 0.02, 0.01, 0.3),
    # It matters as much as the memories that it relates, which have priorities of their own.
    "relationship": Rule(1.0, 0.0, 0.0, 1.0),
    PINNED: Rule(1.0, 0.0, 0.0, 1.0),
}


class Policy(NamedTuple):
    rules: Mapping[str, Rule] = _DEFAULTS
    age_rate: float = 0.01  # per day since it was made, read or not
    boost_cap: float = 0.2
    decayed_below: float = 0.3  # a memory that matters less no longer matters
    enabled: bool = True

    def rule(self, standing: str) -> Rule:
        """Return the rule for a standing, else that for its kind, else the default."""
        kind = standing.partition(".")[0]
        return self.rules.get(standing) or self.rules.get(kind) or _DEFAULTS[standing]

    def all_rules(self) -> dict[str, Rule]:
        """Return the rule for each standing that a memory can have."""
        return {name: self.rule(name) for name in {**_DEFAULTS, **self.rules}}

    def priority(
        self, standing: str, *, base: float | None, age_days: float, idle_days: float, accesses: int
    ) -> float:
        """Return the priority. A clock that went back makes nothing younger than new."""
        rule = self.rule(standing)
        start = rule.base if base is None else base
        if self.enabled:
            decay = rule.rate * max(idle_days, 0.0) + self.age_rate * max(age_days, 0.0)
            start *= math.exp(-decay)
        boost = min(self.boost_cap, accesses * rule.boost)
        return max(rule.floor, min(1.0, max(0.0, start + boost)))

    def for_session(self, metadata: Mapping[str, Any]) -> Policy:
        """Return the policy with the session's own `decay_config`, as far as that makes sense."""
        config = metadata.get("decay_config")
        if not isinstance(config, dict):
            return self
        rules = self.all_rules()
        hours: Any = config.get("half_life_hours")
        least: Any = config.get("min_decay_factor")
        if type(hours) in (int, float) and 0 < hours < math.inf:
            rules |= {name: rule.with_half_life(hours) for name, rule in rules.items() if rule.rate}
        if type(least) in (int, float) and 0 <= least <= 1:
            for name, rule in rules.items():
                rules[name] = rule._replace(floor=max(rule.floor, least))
        enabled = self.enabled and config.get("enabled") is not False
        return self._replace(rules=rules, enabled=enabled)


def standing(type: str, data: Mapping[str, Any]) -> str:
    """Return which rule holds for a record."""
    if is_pinned(data):
        return PINNED
    if type == "decision":
        if "high" in (_word(data.get("implementation_impact")), _word(data.get("impact"))):
            return "decision.high_impact"
        return "decision.unresolved" if status_of(data) in _OPEN else type
    if type == "finding":
        if is_resolved(data):
            return "finding.resolved"
        return "finding.critical" if _word(data.get("severity")) == "critical" else type
    confidence = _word(data.get("confidence"))
    if type == "preference" and confidence in ("explicit", "inferred"):
        return f"preference.{confidence}"
    return type


def is_pinned(data: Mapping[str, Any]) -> bool:
    """Return whether a record is pinned, however a person says so."""
    pinned = data.get("pinned")
    return _word(pinned) in ("true", "yes", "on") or pinned in (True, 1)


def status_of(data: Mapping[str, Any]) -> str:
    """Return the state that a decision or a finding gives itself; empty where it gives none."""
    resolution = data.get("resolution")
    return _word(resolution.get("status") if isinstance(resolution, dict) else data.get("status"))


def is_resolved(data: Mapping[str, Any]) -> bool:
    return status_of(data) in _CLOSED


def _word(value: Any) -> str:
    """Return a word as a person may have written it: Critical is critical."""
    return value.lower() if isinstance(value, str) else ""
