"""What the daemon's configuration says of decay and ranking, where every client finds it: `.smp/policy.json`.

So an answer is the same from the library and from the command. Without the file, or with one that makes no sense, the defaults
hold; a client that is given a policy or weights of its own uses those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from .decay import Policy, Rule
from .errors import UnsafePath
from .files import Tree
from .ranking import Weights

POLICY_FILE = ".smp/policy.json"
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_NAMES_CAP = 100
_WEIGHT_CAP = 1000.0
_RATE_CAP = 1_000_000.0  # per day: a half-life of less than a tenth of a second


def publish(tree: Tree, policy: Policy, weights: Weights) -> None:
    rules = {name: asdict(rule) for name, rule in policy.rules.items()}
    decay = {"rules": rules, "age_rate": policy.age_rate, "boost_cap": policy.boost_cap, "decayed_below": policy.decayed_below}
    content = {"version": _VERSION, "decay": decay, "ranking": asdict(weights)}
    tree.replace_derived(POLICY_FILE, json.dumps(content, indent=1).encode() + b"\n")


class Published:
    """What is published under a root; read again only when the file is another."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._known: tuple[tuple[int, int, int] | None, tuple[Policy, Weights]] = (None, (Policy(), Weights()))

    def now(self) -> tuple[Policy, Weights]:
        try:
            status = self._tree.stat(POLICY_FILE)
        except (OSError, UnsafePath):
            return Policy(), Weights()
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known[0] != identity:
            self._known = (identity, self._read())
        return self._known[1]

    def _read(self) -> tuple[Policy, Weights]:
        try:
            said = json.loads(self._tree.read(POLICY_FILE))
            decay, ranking = said["decay"], said["ranking"]
            rules = dict(Policy().rules)
            rules |= {name: _rule(rule) for name, rule in _named(decay["rules"])}
            age_rate = _number(decay["age_rate"], _RATE_CAP)
            boost_cap, decayed_below = (_number(decay[name], 1.0) for name in ("boost_cap", "decayed_below"))
            states = {name: _number(value, _WEIGHT_CAP) for name, value in _named(ranking.pop("states"))}
            weights = replace(Weights(), states=states, **{name: _number(value, _WEIGHT_CAP) for name, value in ranking.items()})
            return Policy(rules, age_rate, boost_cap, decayed_below), weights
        except (OSError, UnsafePath, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Anybody can write a file; a wrong one must not keep anybody from asking.
            return Policy(), Weights()


def _named(entries: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """What is said of each, by its name; a name becomes a part of every question, so it must be one."""
    if len(entries) > _NAMES_CAP or not all(map(_NAME.fullmatch, entries)):
        raise ValueError("not names")
    return entries.items()


def _rule(parts: Mapping[str, Any]) -> Rule:
    return Rule(**{part: _number(value, _RATE_CAP if part == "rate" else 1.0) for part, value in parts.items()})


def _number(value: Any, most: float) -> float:
    # What is no number at all is neither above nor below another.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError("not a number in its range")
    return float(value)
