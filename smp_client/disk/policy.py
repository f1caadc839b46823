"""How a client behaves, and the daemon's configuration of decay, ranking and redaction for it.

The configuration is in `.smp/policy.json`, so that library and command answer and write alike.
Without the file, or with one that makes no sense, the defaults hold: secrets are redacted. A client
with a policy of its own uses that.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ..model.errors import Invalid, InvalidQuery, UnsafePath
from ..model.policies import CompactionPolicy, RetentionPolicy, Thresholds
from ..model.priority import Policy, Rule
from ..model.ranking import Weights
from ..model.times import now
from ..redaction.redact import Redaction
from .tree import Tree, version_of

POLICY_FILE = ".smp/policy.json"
_PARTS = {"version", "decay", "ranking", "redaction"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,63}")
_NUMBERS_CAP = 1000
_MOST = 1_000_000.0  # as a rate: a half-life of less than a tenth of a second
DEFAULT_QUOTA_BYTES = 10 * 1024 * 1024


class Options(NamedTuple):
    """How a client behaves. Policies that are None are those of the daemon's configuration."""

    quota_bytes: int = DEFAULT_QUOTA_BYTES
    lock_timeout_s: float = 15.0
    clock: Callable[[], datetime] = now
    policy: Policy | None = None  # how memories decay
    weights: Weights | None = None  # which memories stand first in an answer
    is_leading: bool = False  # whether this process leads the root, and must not wait for itself
    count_access: bool = True  # whether reading a memory raises its priority
    thresholds: Thresholds = Thresholds()  # when sessions age
    compaction: CompactionPolicy = CompactionPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    redaction: Redaction | None = None  # which secrets are redacted in every write


def publish(tree: Tree, policy: Policy, weights: Weights, redaction: Redaction | None) -> None:
    """Write the configuration for every client under a root."""
    wanted = (redaction or Redaction())._asdict()
    wanted["patterns"] = dict(wanted["patterns"])
    rules = {name: rule._asdict() for name, rule in policy.rules.items()}
    content = {"version": 1, "decay": {**policy._asdict(), "rules": rules}}
    content |= {"ranking": weights._asdict(), "redaction": wanted}
    tree.replace(POLICY_FILE, json.dumps(content, indent=1).encode() + b"\n", durable=False)


class Published(NamedTuple):
    """The configuration under a root, or the defaults."""

    policy: Policy = Policy()
    weights: Weights = Weights()
    redaction: Redaction = Redaction()
    is_sound: bool = True  # whether the file is one of ours, or is not there


def published(tree: Tree) -> Published:
    """Return the configuration that is published under a root, read again when the file changes."""
    path = f"{os.fspath(tree.root)}/{POLICY_FILE}"
    try:
        # Every write and every question asks this, so only the name is looked at.
        version = version_of(os.lstat(path))
    except OSError:
        return _DEFAULTS
    known = _KNOWN.get(path)
    if known is None or known[0] != version:
        said = None
        with suppress(OSError, UnsafePath, ValueError, RecursionError):  # anybody can write a file
            said = json.loads(tree.read(POLICY_FILE))
        is_sound = isinstance(said, dict) and said.keys() >= _PARTS
        known = version, Published(*_answering(said), _redaction(said), is_sound)
        _KNOWN[path] = known
    return known[1]


_DEFAULTS = Published()
_KNOWN: dict[str, tuple[list[int], Published]] = {}  # by path, with the version of the file


def _answering(said: Any) -> tuple[Policy, Weights]:
    """Return decay and ranking, of a file of the right shape: a wrong one keeps nobody from asking.

    Names become a part of every question, so they must be names.
    """
    try:
        decay, ranking = said["decay"], dict(said["ranking"])
        rules, states = decay["rules"], ranking.pop("states")
        rates = [decay[name] for name in ("age_rate", "boost_cap", "decayed_below")]
        numbers = [*rates, *states.values(), *ranking.values()]
        for rule in rules.values():
            numbers += rule.values()
        are_names = all(map(_NAME.fullmatch, (*rules, *states)))
        if are_names and len(numbers) <= _NUMBERS_CAP and all(map(_is_number, numbers)):
            given = {name: Rule(**rule) for name, rule in rules.items()}
            weights = Weights(states=dict(states), **ranking)
            return Policy({**Policy().rules, **given}, *rates), weights
    except (LookupError, TypeError, AttributeError, InvalidQuery):
        pass
    return Policy(), Weights()


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


def _is_number(value: Any) -> bool:
    # NaN is neither above nor below another number.
    return type(value) in (int, float) and 0 <= value <= _MOST
