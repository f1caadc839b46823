"""How a client behaves, and the daemon's configuration of decay, ranking and redaction for it.

The configuration is in `.smp/policy.json`, so that library and command answer and write alike.
Without the file, or where a part of it makes no sense, the defaults hold: secrets are redacted. A
client with a policy of its own uses that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ..model.errors import SMPError
from ..model.policies import CompactionPolicy, RetentionPolicy, Thresholds
from ..model.priority import Policy, Rule
from ..model.ranking import Weights
from ..model.times import now
from ..redaction.patterns import patterns_of, said_of
from ..redaction.redact import Redaction
from .tree import Tree, version_of

POLICY_FILE = ".smp/policy.json"
# A file that is not of our form raises one of these.
_NONSENSE = (OSError, SMPError, ValueError, RecursionError, LookupError, TypeError, AttributeError)
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
    wanted["patterns"] = said_of(wanted["patterns"])
    content = {"version": 1, **_numbers(policy, weights), "redaction": wanted}
    tree.replace(POLICY_FILE, json.dumps(content, indent=1).encode() + b"\n", durable=False)


def _numbers(policy: Policy, weights: Weights) -> dict[str, Any]:
    rules = {name: rule._asdict() for name, rule in policy.rules.items()}
    return {"decay": {**policy._asdict(), "rules": rules}, "ranking": weights._asdict()}


class Published(NamedTuple):
    """The configuration under a root, or the defaults."""

    policy: Policy = Policy()
    weights: Weights = Weights()
    redaction: Redaction = Redaction()
    is_sound: bool = True  # whether the file is one of ours, or is not there


def published(tree: Tree) -> Published:
    """Return the configuration that is published under a root, read again when the file changes."""
    path = f"{tree.path}/{POLICY_FILE}"
    try:
        # Every write and every question asks this, so only the name is looked at.
        version = version_of(os.lstat(path))
    except OSError:
        return _DEFAULTS
    known = _KNOWN.get(path)
    if known is None or known[0] != version:
        found = Published(is_sound=False)
        with suppress(*_NONSENSE):  # anybody can write a file
            found = _parse(tree.read(POLICY_FILE))
        known = _KNOWN[path] = version, found
    return known[1]


_DEFAULTS = Published()
_KNOWN: dict[str, tuple[list[int], Published]] = {}  # by path, with the version of the file


def _parse(content: bytes) -> Published:
    """Return the configuration in a file, without numbers that make no sense.

    It turns no redaction off, since it can come with a cloned repository.
    """
    said = json.loads(content)
    decay, ranking, wanted = said.get("decay"), said.get("ranking"), said["redaction"]
    lists = {"personal": tuple(wanted["personal"]), "patterns": patterns_of(wanted["patterns"])}
    redaction = Redaction(**{**wanted, **lists, "enabled": True})
    if not _fits({"decay": decay, "ranking": ranking}, _numbers(Policy(), Weights())):
        return Published(redaction=redaction, is_sound=False)  # of another version, perhaps
    rules = {name: Rule(**rule) for name, rule in decay["rules"].items()}
    return Published(Policy(**{**decay, "rules": rules}), Weights(**ranking), redaction)


def _fits(said: Any, ours: Any) -> bool:
    """Return whether a value has the names of ours, and numbers where ours has numbers."""
    if isinstance(ours, dict):
        is_alike = isinstance(said, dict) and said.keys() == ours.keys()
        return is_alike and all(_fits(said[name], one) for name, one in ours.items())
    # NaN is neither above nor below another number.
    return type(said) in (int, float, type(ours)) and 0 <= said <= _MOST
