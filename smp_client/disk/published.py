"""What the daemon's configuration says of decay, ranking and redaction, where every client finds it: `.smp/policy.json`.

So an answer is the same from the library and from the command, and so is what is written. Without the file, or with one that makes
no sense, the defaults hold: secrets are taken out. A client that is given a policy, weights or a redaction of its own uses those.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any
from weakref import WeakKeyDictionary

from ..model.errors import Invalid, UnsafePath
from ..model.priority import Policy, Rule
from ..model.ranking import Weights
from ..redaction.redact import Redaction
from .tree import Tree

POLICY_FILE = ".smp/policy.json"
_VERSION = 1
_PARTS = {"version", "decay", "ranking", "redaction"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_NAMES_CAP = 100
_WEIGHT_CAP = 1000.0
_RATE_CAP = 1_000_000.0  # per day: a half-life of less than a tenth of a second


def publish(tree: Tree, policy: Policy, weights: Weights, redaction: Redaction | None = None) -> None:
    rules = {name: asdict(rule) for name, rule in policy.rules.items()}
    decay = {"rules": rules, "age_rate": policy.age_rate, "boost_cap": policy.boost_cap, "decayed_below": policy.decayed_below}
    wanted = redaction or Redaction()
    said = {"enabled": wanted.enabled, "personal": wanted.personal, "patterns": dict(wanted.patterns),
            "unlocked_edits": wanted.unlocked_edits}  # fmt: skip
    content = {"version": _VERSION, "decay": decay, "ranking": asdict(weights), "redaction": said}
    tree.replace_derived(POLICY_FILE, json.dumps(content, indent=1).encode() + b"\n")


class Published:
    """What is published under a root; read again only when the file is another."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._path = f"{os.fspath(tree.root)}/{POLICY_FILE}"
        self._identity: tuple[int, int, int] | None = None
        self._policy, self._weights, self._redaction = Policy(), Weights(), Redaction()
        self._sound = True

    def now(self) -> tuple[Policy, Weights]:
        self._look()
        return self._policy, self._weights

    def redaction(self) -> Redaction:
        self._look()
        return self._redaction

    def is_sound(self) -> bool:
        """Return whether the file is one of ours, or is not there."""
        self._look()
        return self._sound

    def _look(self) -> None:
        try:
            # Every write asks this. Only the name is looked at; where it is another file, it is opened with care.
            status = os.lstat(self._path)
        except OSError:
            identity = None
        else:
            identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._identity != identity:
            said = self._read() if identity else None
            (self._policy, self._weights), self._redaction = _answering(said), _redaction(said)
            self._sound = identity is None or (isinstance(said, dict) and said.keys() >= _PARTS)
            self._identity = identity

    def _read(self) -> Any:
        """What the file says; nothing where that cannot be read, for anybody can write a file."""
        try:
            return json.loads(self._tree.read(POLICY_FILE))
        except (OSError, UnsafePath, ValueError, RecursionError):
            return None


_BY_TREE: WeakKeyDictionary[Tree, Published] = WeakKeyDictionary()


def published(tree: Tree) -> Published:
    """The one of this tree, so that all who write through it read the file once."""
    found = _BY_TREE.get(tree)
    if found is None:
        found = _BY_TREE[tree] = Published(tree)
    return found


def _answering(said: Any) -> tuple[Policy, Weights]:
    try:
        decay, ranking = said["decay"], dict(said["ranking"])
        rules = dict(Policy().rules)
        rules |= {name: _rule(rule) for name, rule in _named(decay["rules"])}
        age_rate = _number(decay["age_rate"], _RATE_CAP)
        boost_cap, decayed_below = (_number(decay[name], 1.0) for name in ("boost_cap", "decayed_below"))
        states = {name: _number(value, _WEIGHT_CAP) for name, value in _named(ranking.pop("states"))}
        weights = replace(Weights(), states=states, **{name: _number(value, _WEIGHT_CAP) for name, value in ranking.items()})
        return Policy(rules, age_rate, boost_cap, decayed_below), weights
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # A wrong one must not keep anybody from asking.
        return Policy(), Weights()


def _redaction(said: Any) -> Redaction:
    """Return what the file adds. A file in the tree can come with a cloned repository, so it turns nothing off: only
    configuration outside of the tree, or the program itself, does."""
    try:
        part = said["redaction"]
        personal, patterns = part["personal"], part["patterns"]
        if not isinstance(personal, list) or not isinstance(patterns, dict):
            return Redaction()
        return Redaction(True, tuple(map(str, personal)), tuple(patterns.items()), str(part.get("unlocked_edits", "report")))
    except (Invalid, KeyError, TypeError):
        return Redaction()


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
