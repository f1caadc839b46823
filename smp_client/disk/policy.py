"""How a client behaves, and the configuration that daemon and command publish for every client.

The configuration is in `.smp/policy.json`, so that library and command answer and write alike.
Without the file, or where a part of it makes no sense, the defaults hold: secrets are redacted. A
client with an option of its own uses that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
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
    lock_timeout_s: float = 5.0
    clock: Callable[[], datetime] = now
    policy: Policy | None = None  # how memories decay
    weights: Weights | None = None  # which memories stand first in an answer
    is_leading: bool = False  # whether this process leads the root, and must not wait for itself
    count_access: bool = True  # whether reading a memory raises its priority
    thresholds: Thresholds = Thresholds()  # when sessions age
    compaction: CompactionPolicy = CompactionPolicy()
    retention: RetentionPolicy = RetentionPolicy()
    redaction: Redaction | None = None  # which secrets are redacted in every write


# The numbers of these options are published. Beside each: the least and the largest value.
_BOUNDS: dict[str, tuple[float, float]] = {
    "quota_bytes": (64 * 1024, 256 * 1024 * 1024),
    "lock_timeout_s": (0, 3600),
    "deleted_days": (0, 36_500),
    "idle_after_hours": (0, 876_000),
    "decaying_after_days": (0, 36_500),
    "archive_after_days": (0, 36_500),
    "gentle_at_pct": (1, 100),
    "gentle_reduction_pct": (1, 100),
    "forced_at_pct": (1, 100),
    "forced_reduction_pct": (1, 100),
    "summarized_above_turns": (0, 1_000_000),
}


def publish(tree: Tree, options: Options) -> None:
    """Write the configuration for every client under a root."""
    tree.replace(POLICY_FILE, _render(options), durable=False)


def is_published(tree: Tree, options: Options) -> bool:
    """Return whether these options are what every client under the root is told."""
    with suppress(OSError, SMPError):
        return tree.read(POLICY_FILE) == _render(options)
    return False


def _render(options: Options) -> bytes:
    wanted = (options.redaction or Redaction())._asdict()
    wanted["patterns"] = said_of(wanted["patterns"])
    numbers = _numbers(options.policy or Policy(), options.weights or Weights())
    content = {"version": 1, **numbers, "redaction": wanted, "client": _of_client(options)}
    return json.dumps(content, indent=1).encode() + b"\n"


def _of_client(options: Options) -> dict[str, Any]:
    """Return the options of a client that are published, by their names."""
    known = {**options._asdict(), "deleted_days": options.retention.deleted_days}
    known |= options.thresholds._asdict() | options.compaction._asdict()
    return {"automatic": options.compaction.automatic, **{name: known[name] for name in _BOUNDS}}


def _client_options(said: Any) -> dict[str, Any]:
    """Return the options of a client in a file. Raise ValueError where one makes no sense."""
    if said is None:
        return {}  # of an earlier version
    for name, (least, most) in _BOUNDS.items():
        # NaN is neither above nor below another number.
        if type(said[name]) not in (int, float) or not least <= said[name] <= most:
            raise ValueError(name)
    numbers = {**said, "automatic": said["automatic"] is not False}
    numbers["quota_bytes"] = int(said["quota_bytes"])

    def part(kind: type[Thresholds] | type[CompactionPolicy]) -> Any:
        return kind(**{name: numbers[name] for name in kind._fields if name in numbers})

    return {
        "quota_bytes": numbers["quota_bytes"],
        "lock_timeout_s": numbers["lock_timeout_s"],
        "thresholds": part(Thresholds),
        "compaction": part(CompactionPolicy),
        "retention": RetentionPolicy(numbers["deleted_days"]),
    }


def _numbers(policy: Policy, weights: Weights) -> dict[str, Any]:
    rules = {name: rule._asdict() for name, rule in policy.rules.items()}
    return {"decay": {**policy._asdict(), "rules": rules}, "ranking": weights._asdict()}


class Published(NamedTuple):
    """The configuration under a root, or the defaults."""

    policy: Policy = Policy()
    weights: Weights = Weights()
    redaction: Redaction = Redaction()
    is_sound: bool = True  # whether the file is one of ours, or is not there
    client: Mapping[str, Any] = MappingProxyType({})  # further options, by their names


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
    policy = Policy(**{**decay, "rules": rules})
    ranking["synonyms"] = tuple(map(tuple, ranking["synonyms"]))
    try:
        client = _client_options(said.get("client"))
    except _NONSENSE:
        return Published(policy, Weights(**ranking), redaction, is_sound=False)
    return Published(policy, Weights(**ranking), redaction, client=client)


def _fits(said: Any, ours: Any) -> bool:
    """Return whether a value has the names of ours, and numbers or lists of texts as ours has."""
    if isinstance(ours, tuple):
        groups = said if isinstance(said, list) else [None]
        words = [word for group in groups for word in (group if isinstance(group, list) else [0])]
        return all(isinstance(word, str) for word in words)
    if isinstance(ours, dict):
        is_alike = isinstance(said, dict) and said.keys() == ours.keys()
        return is_alike and all(_fits(said[name], one) for name, one in ours.items())
    # NaN is neither above nor below another number.
    return type(said) in (int, float, type(ours)) and 0 <= said <= _MOST
