"""The daemon's configuration of decay, ranking and redaction, for every client: `.smp/policy.json`.

So the library and the command answer and write alike. Without the file, or with one that makes no
sense, the defaults hold: secrets are redacted. A client with a policy of its own uses that.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from ..model.errors import Invalid, UnsafePath
from ..model.priority import Policy, Rule
from ..model.ranking import Weights
from ..redaction.redact import Redaction
from .tree import Tree, version_of

POLICY_FILE = ".smp/policy.json"
_PARTS = {"version", "decay", "ranking", "redaction"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_NAMES_CAP = 100
_WEIGHT_CAP = 1000.0
_RATE_CAP = 1_000_000.0  # per day: a half-life of less than a tenth of a second


def publish(
    tree: Tree, policy: Policy, weights: Weights, redaction: Redaction | None = None
) -> None:
    wanted = (redaction or Redaction())._asdict()
    wanted["patterns"] = dict(wanted["patterns"])
    rules = {name: rule._asdict() for name, rule in policy.rules.items()}
    content = {"version": 1, "decay": {**policy._asdict(), "rules": rules}}
    content |= {"ranking": weights._asdict(), "redaction": wanted}
    tree.replace_derived(POLICY_FILE, json.dumps(content, indent=1).encode() + b"\n")


class Published:
    """The configuration that is published under a root, read again when the file changes."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._path = f"{os.fspath(tree.root)}/{POLICY_FILE}"
        self._version: list[int] | None = None
        self._answering, self._redaction, self._sound = (Policy(), Weights()), Redaction(), True

    def now(self) -> tuple[Policy, Weights]:
        self._look()
        return self._answering

    def redaction(self) -> Redaction:
        self._look()
        return self._redaction

    def is_sound(self) -> bool:
        """Return whether the file is one of ours, or is not there."""
        self._look()
        return self._sound

    def _look(self) -> None:
        try:
            # Every write asks this, so only the name is looked at.
            version = version_of(os.lstat(self._path))
        except OSError:
            version = None
        if self._version == version:
            return
        said: Any = None
        with suppress(OSError, UnsafePath, ValueError, RecursionError):  # anybody can write a file
            said = json.loads(self._tree.read(POLICY_FILE)) if version else None
        self._answering, self._redaction = _answering(said), _redaction(said)
        self._sound = version is None or (isinstance(said, dict) and said.keys() >= _PARTS)
        self._version = version


_BY_TREE: WeakKeyDictionary[Tree, Published] = WeakKeyDictionary()


def published(tree: Tree) -> Published:
    """Return the one of this tree, so that all who write through it read the file once."""
    found = _BY_TREE.get(tree)
    if found is None:
        found = _BY_TREE[tree] = Published(tree)
    return found


def _answering(said: Any) -> tuple[Policy, Weights]:
    try:
        decay, ranking = said["decay"], dict(said["ranking"])
        rules = dict(Policy().rules)
        for name, parts in _named(decay["rules"]):
            caps = {part: _RATE_CAP if part == "rate" else 1.0 for part in parts}
            rules[name] = Rule(**{part: _number(parts[part], cap) for part, cap in caps.items()})
        boost_cap, decayed = (_number(decay[name], 1.0) for name in ("boost_cap", "decayed_below"))
        policy = Policy(rules, _number(decay["age_rate"], _RATE_CAP), boost_cap, decayed)
        listed = _named(ranking.pop("states"))
        states = {name: _number(value, _WEIGHT_CAP) for name, value in listed}
        weights = {name: _number(value, _WEIGHT_CAP) for name, value in ranking.items()}
        return policy, Weights(states=states, **weights)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Policy(), Weights()  # a wrong one must not keep anybody from asking


def _redaction(said: Any) -> Redaction:
    """Return the redaction with the additions of the file, which turns nothing off.

    A file in the tree can come with a cloned repository.
    """
    with suppress(Invalid, KeyError, TypeError, AttributeError):
        part = said["redaction"]
        personal, patterns = part["personal"], part["patterns"]
        edits = str(part.get("unlocked_edits", "report"))
        if isinstance(personal, list) and isinstance(patterns, dict):
            return Redaction(True, tuple(map(str, personal)), tuple(patterns.items()), edits)
    return Redaction()


def _named(entries: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the entries. A name becomes a part of every question, so it must be one."""
    if len(entries) > _NAMES_CAP or not all(map(_NAME.fullmatch, entries)):
        raise ValueError("not names")
    return entries.items()


def _number(value: Any, most: float) -> float:
    # NaN is neither above nor below another number.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError("not a number in its range")
    return float(value)
