"""Every setting, described once: its name, its default, what it may be, and what it is for.

From this come the values that are passed down, checking, `config/smp.yaml` and the help. Every module may use these values; only
`config.py` reads them from a file, for the command line and the composition root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from smp_client import Options, Patience
from smp_client.decay import PINNED, Policy, Rule
from smp_client.questions.ranking import Weights
from smp_client.quota import DEFAULT_QUOTA_BYTES
from smp_client.scope import Fsync
from smp_client.text.values import Value

from .kinds import Cron, DecayRule, Kind, ListOf, Number, OneOf, OrNone, Pairs, Place, Whole
from .kinds import setting as _setting
from .settings_privacy import RedactionSettings
from .settings_upkeep import ArchiveSettings, CompactionSettings, LifecycleSettings, PurgeSettings, RetentionSettings

_CLIENT = Options()
_POLICY, _WEIGHTS = Policy(), Weights()
_MIB = 1024 * 1024


@dataclass(frozen=True)
class LockSettings:
    """How long to wait for a file that somebody else is writing."""

    timeout_s: float = _setting(
        _CLIENT.patience.timeout_s, Number(0, 3600, "seconds"), "How long each attempt to lock a file may take."
    )  # fmt: skip
    attempts: int = _setting(_CLIENT.patience.attempts, Whole(1, 100), "How many attempts to lock a file are made.")
    pauses_s: tuple[float, ...] = _setting(
        _CLIENT.patience.pauses_s, ListOf(Number(0, 60, "seconds"), 1, 20),
        "The pause after each attempt that failed; the last one holds for all further attempts.",
    )  # fmt: skip


@dataclass(frozen=True)
class WatchSettings:
    """How changes of the files are noticed."""

    quiet_ms: int = _setting(
        50, Whole(1, 10_000, "milliseconds"), "How long a file must have been quiet before it is read."
    )  # fmt: skip
    longest_wait_ms: int = _setting(
        500, Whole(1, 60_000, "milliseconds"), "When a file is read although it never is quiet."
    )  # fmt: skip
    polling_s: float = _setting(
        2.0, Number(0.1, 3600, "seconds"), "How often the tree is looked through where the system cannot watch it."
    )  # fmt: skip


@dataclass(frozen=True)
class ScanSettings:
    """The comparison of the whole tree with the index, which finds what watching has missed."""

    every_s: float = _setting(3600.0, Number(1, 86_400, "seconds"), "How often the whole tree is compared with the index.")


@dataclass(frozen=True)
class IndexSettings:
    """The index that answers queries."""

    rebuild_cron: str = _setting("0 3 * * *", Cron(), "When the index is built anew from the files.")


@dataclass(frozen=True)
class IndexesSettings:
    """The YAML indexes in each session, for people and for agents in any language."""

    active_every_s: float = _setting(
        2.0, Number(0, 3600, "seconds"), "The least time between two writes of the YAML indexes of an active session."
    )  # fmt: skip
    idle_every_s: float = _setting(
        60.0, Number(0, 86_400, "seconds"), "The same for a session that is not active."
    )  # fmt: skip


@dataclass(frozen=True)
class HeartbeatSettings:
    """The worker's own sign of life, in `.smp/status.json`."""

    every_s: float = _setting(1.0, Number(0.1, 60, "seconds"), "How often the worker gives its sign of life.")


@dataclass(frozen=True)
class CanarySettings:
    """A file that the daemon writes to see that its own watching works, and how long that takes."""

    every_s: float = _setting(5.0, Number(0.5, 3600, "seconds"), "How often a file is sent through the watcher.")


@dataclass(frozen=True)
class TidySettings:
    """Finishing what writers that crashed or were slow have left behind."""

    every_s: float = _setting(30.0, Number(0.1, 86_400, "seconds"), "How often unfinished writes are looked for.")


@dataclass(frozen=True)
class LogSettings:
    """What the daemon says of its work."""

    level: str = _setting("info", OneOf(("debug", "info", "warning", "error")), "The least important lines that are logged.")
    format: str = _setting(
        "auto", OneOf(("auto", "json", "pretty")),
        "One JSON object in each line, or lines for people; auto is pretty on a terminal and JSON elsewhere.",
    )  # fmt: skip
    file: Path | None = _setting(None, OrNone(Place(), "stderr"), "Where the log goes.")
    max_bytes: int = _setting(
        10 * _MIB, Whole(4096, 1024 * _MIB, "bytes"),
        "How large the log file may grow; then it becomes file.1, what was file.1 becomes file.2, and so on.",
    )  # fmt: skip
    keep: int = _setting(5, Whole(1, 1000), "How many such older log files are kept.")


def _rule(name: str, says: str) -> Rule:
    return _setting(_POLICY.rules[name], DecayRule(), says)


@dataclass(frozen=True)
class DecaySettings:
    """How memories lose priority, by what they are, and when that is written into the files."""

    cron: str = _setting("0 */6 * * *", Cron(), "When the priorities in the files are brought up to date.")
    conversation_turn: Rule = _rule("conversation_turn", "What was said.")
    decision: Rule = _rule("decision", "Decisions.")
    decision_unresolved: Rule = _rule("decision.unresolved", "Decisions that say that they are still open.")
    decision_high_impact: Rule = _rule("decision.high_impact", "Decisions of high impact.")
    finding: Rule = _rule("finding", "Findings.")
    finding_critical: Rule = _rule("finding.critical", "Critical findings, while they are open.")
    finding_resolved: Rule = _rule("finding.resolved", "Findings that are resolved.")
    preference: Rule = _rule("preference", "Preferences of uncertain confidence.")
    preference_explicit: Rule = _rule("preference.explicit", "Preferences that somebody has stated.")
    preference_inferred: Rule = _rule("preference.inferred", "Preferences that were inferred.")
    agent_state: Rule = _rule("agent_state", "The working memory of agents.")
    learning: Rule = _rule("learning", "What agents have learned in a session.")
    pattern: Rule = _rule("pattern", "What agents have learned across sessions.")
    artifact: Rule = _rule("artifact", "What agents have made.")
    summary: Rule = _rule("summary", "Summaries of archived sessions.")
    relationship: Rule = _rule("relationship", "Relationships between memories.")
    age_rate: float = _setting(_POLICY.age_rate, Number(0, 100), "The rate per day since a memory was made, read or not.")
    boost_cap: float = _setting(_POLICY.boost_cap, Number(0, 1), "How much all readings together may add.")
    decayed_below: float = _setting(
        _POLICY.decayed_below, Number(0, 1), "What has less priority than this counts as decayed."
    )  # fmt: skip

    @property
    def policy(self) -> Policy:
        rules = {name: getattr(self, name.replace(".", "_")) for name in _POLICY.rules if name != PINNED}
        pinned = {PINNED: _POLICY.rules[PINNED]}
        return Policy({**rules, **pinned}, self.age_rate, self.boost_cap, self.decayed_below)


@dataclass(frozen=True)
class RankingSettings:
    """What stands first in an answer."""

    text: float = _setting(_WEIGHTS.text, Number(0, 1), "The weight of how well the text matches.")
    time: float = _setting(_WEIGHTS.time, Number(0, 1), "The weight of the priority, which decays with time.")
    importance: float = _setting(_WEIGHTS.importance, Number(0, 1), "The weight of kind, severity, impact and approval.")
    access: float = _setting(_WEIGHTS.access, Number(0, 1), "The weight of having been read recently.")
    influence: float = _setting(
        _WEIGHTS.influence, Number(0, 1), "How much all but the text may change the order where a text is asked for."
    )  # fmt: skip

    @property
    def weights(self) -> Weights:
        return Weights(self.text, self.time, self.importance, self.access, self.influence)


@dataclass(frozen=True)
class Configuration:
    """The settings of the daemon."""

    roots: tuple[Path, ...] = _setting(
        (), ListOf(Place(), 0, 1000), "The session trees to look after; with none, SMP_ROOT or the nearest .bmad/sessions upward."
    )
    quota_bytes: int = _setting(
        DEFAULT_QUOTA_BYTES, Whole(64 * 1024, 256 * _MIB, "bytes"), "How much a new session may hold."
    )  # fmt: skip
    fsync: Fsync = _setting(
        _CLIENT.fsync, OneOf(("every_write", "batch")),
        "When the daemon's own writes are forced to the disk: each at once, or single ones with the next transaction.",
    )  # fmt: skip
    lock: LockSettings = LockSettings()
    watch: WatchSettings = WatchSettings()
    scan: ScanSettings = ScanSettings()
    index: IndexSettings = IndexSettings()
    indexes: IndexesSettings = IndexesSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    canary: CanarySettings = CanarySettings()
    tidy: TidySettings = TidySettings()
    decay: DecaySettings = DecaySettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    compaction: CompactionSettings = CompactionSettings()
    archive: ArchiveSettings = ArchiveSettings()
    retention: RetentionSettings = RetentionSettings()
    purge: PurgeSettings = PurgeSettings()
    redaction: RedactionSettings = RedactionSettings()
    ranking: RankingSettings = RankingSettings()
    log: LogSettings = LogSettings()

    @property
    def patience(self) -> Patience:
        return Patience(self.lock.timeout_s, self.lock.attempts, self.lock.pauses_s)

    @property
    def upkeep(self) -> dict[str, Any]:
        """What a memory is given of what time does, as options."""
        return {
            "policy": self.decay.policy, "weights": self.ranking.weights, "thresholds": self.lifecycle.thresholds,
            "compaction": self.compaction.policy, "retention": self.retention.policy, "redaction": self.redaction.redaction,
        }  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One setting as it is described above; `key` is its whole name, such as `watch.quiet_ms`."""

    key: str
    default: Any
    kind: Kind
    says: str

    @property
    def section(self) -> str:
        return self.key.rpartition(".")[0]


def _described(owner: Any, section: str = "") -> Iterator[Setting]:
    for item in fields(owner):
        if not item.metadata:  # a section
            yield from _described(item.default, f"{item.name}.")
        else:
            yield Setting(f"{section}{item.name}", item.default, item.metadata["kind"], item.metadata["says"])


SETTINGS = {setting.key: setting for setting in _described(Configuration)}
_SECTIONS: dict[str, Any] = {item.name: item.default for item in fields(Configuration) if is_dataclass(item.default)}
SECTIONS = {name: str(section.__doc__) for name, section in _SECTIONS.items()}


def assemble(values: Mapping[str, Any]) -> Configuration:
    """The configuration with these values, by their whole names, and the defaults for all others."""
    top = {key: value for key, value in values.items() if "." not in key}
    for name, section in _SECTIONS.items():
        inside = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}
        top[name] = replace(section, **inside)
    return Configuration(**top)


def value_of(configuration: Configuration, key: str) -> Any:
    value: Any = configuration
    for part in key.split("."):
        value = getattr(value, part)
    return value


def plain(value: Any) -> Value:
    """The value of a setting as a file holds it."""
    if isinstance(value, Pairs):
        return dict(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Rule):
        return [value.base, value.rate, value.boost, value.floor]
    return str(value) if isinstance(value, Path) else value
