"""How much a memory still matters: the pure formula, and which rule holds for which memory.

    priority = base · e^(-rate · days since it was last read) · e^(-age_rate · days since it was made) + boost

`boost` grows with every reading up to `boost_cap`. The result lies between the rule's `floor` and 1. Which rule holds is a fact
about the record alone (its *standing*); what the rule says is policy, and can be configured for all sessions and for one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

HOURS_PER_DAY = 24
PINNED = "pinned"
# What says that somebody is still to decide, or that a matter is closed. Anything else, or nothing, says neither.
_OPEN = frozenset(("open", "unresolved", "pending", "proposed", "in_progress"))
_CLOSED = frozenset(("resolved", "closed", "done", "fixed", "superseded", "implemented", "wont_fix", "rejected"))


@dataclass(frozen=True)
class Rule:
    base: float  # where it begins, unless the record says otherwise
    rate: float  # per day without being read
    boost: float  # for each reading
    floor: float = 0.0  # it never matters less than this

    def with_half_life(self, hours: float) -> Rule:
        return replace(self, rate=math.log(2) * HOURS_PER_DAY / hours)


def _rules() -> dict[str, Rule]:
    turn = Rule(1.0, 0.05, 0.01, 0.1)
    decision = Rule(0.95, 0.03, 0.02, 0.4)
    finding = Rule(0.90, 0.04, 0.015, 0.3)
    preference = Rule(0.85, 0.02, 0.03, 0.1)
    state = Rule(0.80, 0.06, 0.01, 0.1)
    learning = replace(state, rate=0.02)
    return {
        "conversation_turn": turn,
        "decision": decision,
        "decision.unresolved": replace(decision, floor=0.7),
        "decision.high_impact": replace(decision, floor=0.9),
        "finding": finding,
        "finding.critical": replace(finding, floor=0.8),
        "finding.resolved": replace(finding, rate=1.5 * finding.rate),
        "preference": preference,
        "preference.explicit": replace(preference, floor=0.6),
        "preference.inferred": replace(preference, floor=0.3),
        "agent_state": state,
        "learning": learning,
        "pattern": replace(learning, floor=0.3),
        "artifact": replace(learning, rate=0.03),
        # All that is in sight of a session that was archived.
        "summary": Rule(0.80, 0.02, 0.01, 0.3),
        # It matters as much as what it relates, which has a priority of its own.
        "relationship": Rule(1.0, 0.0, 0.0, 1.0),
        PINNED: Rule(1.0, 0.0, 0.0, 1.0),
    }


_DEFAULTS = _rules()


@dataclass(frozen=True)
class Policy:
    rules: Mapping[str, Rule] = field(default_factory=_rules)
    age_rate: float = 0.01  # per day since it was made, read or not
    boost_cap: float = 0.2
    decayed_below: float = 0.3  # what matters less than this is left out where only what still matters is asked for
    enabled: bool = True

    def rule(self, standing: str) -> Rule:
        """Where there is none for the standing that for the kind, and where there is neither what holds by default."""
        return self.rules.get(standing) or self.rules.get(standing.partition(".")[0]) or _DEFAULTS[standing]

    def all_rules(self) -> dict[str, Rule]:
        """What holds for each standing that a memory can have."""
        return {name: self.rule(name) for name in {**_DEFAULTS, **self.rules}}

    def priority(self, standing: str, *, base: float | None, age_days: float, idle_days: float, accesses: int) -> float:
        """The formula. A clock that went back makes nothing younger than new."""
        rule = self.rule(standing)
        start = rule.base if base is None else base
        if self.enabled:
            start *= math.exp(-rule.rate * max(idle_days, 0.0) - self.age_rate * max(age_days, 0.0))
        return max(rule.floor, min(1.0, max(0.0, start + min(self.boost_cap, accesses * rule.boost))))

    def for_session(self, metadata: Mapping[str, Any]) -> Policy:
        """With what the session's own metadata say below `decay_config`; what makes no sense there is left out."""
        config = metadata.get("decay_config")
        if not isinstance(config, dict):
            return self
        rules = self.all_rules()
        hours, least = _number(config.get("half_life_hours")), _number(config.get("min_decay_factor"))
        if hours is not None and hours > 0:
            rules = {name: rule.with_half_life(hours) if rule.rate else rule for name, rule in rules.items()}
        if least is not None and 0 <= least <= 1:
            rules = {name: replace(rule, floor=max(rule.floor, least)) for name, rule in rules.items()}
        return replace(self, rules=rules, enabled=self.enabled and config.get("enabled") is not False)


def standing(type: str, data: Mapping[str, Any]) -> str:
    """Which rule holds for a record."""
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
    if type == "preference" and (confidence := _word(data.get("confidence"))) in ("explicit", "inferred"):
        return f"preference.{confidence}"
    return type


def is_pinned(data: Mapping[str, Any]) -> bool:
    """However a person says so: to YAML as SMP reads it, `yes` is a text."""
    pinned = data.get("pinned")
    return pinned.lower() in ("true", "yes", "on") if isinstance(pinned, str) else pinned in (True, 1)


def status_of(data: Mapping[str, Any]) -> str:
    """What a decision or a finding says of its own state; nothing where it says nothing."""
    resolution = data.get("resolution")
    status = resolution.get("status") if isinstance(resolution, dict) else data.get("status")
    return status.lower() if isinstance(status, str) else ""


def is_resolved(data: Mapping[str, Any]) -> bool:
    return status_of(data) in _CLOSED


def _word(value: Any) -> str:
    """As a person may have written it: Critical is critical."""
    return value.lower() if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None
