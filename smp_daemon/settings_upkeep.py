"""The settings of what time does to sessions: when they age, when they are made smaller, what is kept for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from smp_client.policies import HOURS_PER_DAY, CompactionPolicy, RetentionPolicy, Thresholds

from .kinds import Cron, ListOf, Number, OrNone, Text, TrueOrFalse, setting

_THRESHOLDS, _COMPACTION, _RETENTION = Thresholds(), CompactionPolicy(), RetentionPolicy()
_DAYS, _HOURS, _SHARE = Number(0, 36_500, "days"), Number(0, 876_000, "hours"), Number(1, 100, "percent")


@dataclass(frozen=True)
class LifecycleSettings:
    """How long a session must have been left alone to change its state; whoever uses it makes it active again."""

    idle_after_hours: float = setting(_THRESHOLDS.idle_after_hours, _HOURS, "When a session becomes idle.")
    decaying_after_days: float = setting(_THRESHOLDS.decaying_after_days, _DAYS, "When a session becomes decaying.")
    archive_after_days: float = setting(_THRESHOLDS.archive_after_days, _DAYS, "When a session is packed into its archive.")
    check_every_s: float = setting(600.0, Number(1, 86_400, "seconds"), "How often the sessions' states are looked at.")

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(self.idle_after_hours, self.decaying_after_days, self.archive_after_days)


@dataclass(frozen=True)
class CompactionSettings:
    """When a session is made smaller, by how much, and what may go; all that goes can be brought back."""

    automatic: bool = setting(
        _COMPACTION.automatic, TrueOrFalse(), "Whether the daemon makes sessions smaller by itself when they fill up."
    )  # fmt: skip
    gentle_at_pct: float = setting(_COMPACTION.gentle_at_pct, _SHARE, "How full a session is when it is made a little smaller.")
    gentle_reduction_pct: float = setting(_COMPACTION.gentle_reduction_pct, _SHARE, "By how much then, of what it holds.")
    forced_at_pct: float = setting(_COMPACTION.forced_at_pct, _SHARE, "How full a session is when it is made much smaller.")
    forced_reduction_pct: float = setting(_COMPACTION.forced_reduction_pct, _SHARE, "By how much then, of what it holds.")
    predict_days: float = setting(
        _COMPACTION.predict_days, _DAYS, "A session that will be full within so long is made smaller now; 0 for never."
    )  # fmt: skip
    old_conversation_days: float = setting(
        _COMPACTION.old_conversation_days, _DAYS, "What was said longer ago than this may become a summary."
    )  # fmt: skip
    recent_conversation_hours: float = setting(
        _COMPACTION.recent_conversation_hours, _HOURS, "What was said within this time always stays."
    )  # fmt: skip
    recent_access_hours: float = setting(
        _COMPACTION.recent_access_hours, _HOURS, "What was read within this time always stays."
    )  # fmt: skip
    preserved_above: float = setting(
        _COMPACTION.preserved_above, Number(0, 1), "What has more priority than this always stays."
    )  # fmt: skip
    summarizer_command: tuple[str, ...] = setting(
        _COMPACTION.summarizer, ListOf(Text(), 0, 100),
        "A program and its arguments, which is given old turns on its input and prints a summary; none for the built-in one.",
    )  # fmt: skip
    summarizer_timeout_s: float = setting(
        _COMPACTION.summarizer_timeout_s, Number(0.1, 600, "seconds"), "How long that program may take."
    )  # fmt: skip

    @property
    def policy(self) -> CompactionPolicy:
        return CompactionPolicy(
            self.gentle_at_pct, self.gentle_reduction_pct, self.forced_at_pct, self.forced_reduction_pct, self.predict_days,
            self.old_conversation_days, self.recent_conversation_hours, self.recent_access_hours, self.preserved_above,
            self.summarizer_command, self.summarizer_timeout_s, self.automatic,
        )  # fmt: skip


@dataclass(frozen=True)
class ArchiveSettings:
    """Packing sessions that nobody has used for long; their summaries are still found."""

    cron: str = setting("0 4 * * *", Cron(), "When sessions that are due are archived.")


@dataclass(frozen=True)
class RetentionSettings:
    """How long what was deleted can be restored, and at which age memories are deleted by themselves."""

    deleted_days: float = setting(_RETENTION.deleted_days, _DAYS, "How long what was deleted can be restored.")
    conversation_days: float | None = setting(None, OrNone(_DAYS, "never"), "When what was said is deleted for its age.")
    decisions_days: float | None = setting(None, OrNone(_DAYS, "never"), "The same for decisions.")
    findings_days: float | None = setting(None, OrNone(_DAYS, "never"), "The same for findings.")
    preferences_days: float | None = setting(None, OrNone(_DAYS, "never"), "The same for preferences.")
    learnings_days: float | None = setting(None, OrNone(_DAYS, "never"), "The same for what agents have learned.")
    relationships_days: float | None = setting(None, OrNone(_DAYS, "never"), "The same for relationships.")

    @property
    def policy(self) -> RetentionPolicy:
        by_type = {
            "conversation_turn": self.conversation_days, "decision": self.decisions_days, "finding": self.findings_days,
            "preference": self.preferences_days, "learning": self.learnings_days, "relationship": self.relationships_days,
        }  # fmt: skip
        return RetentionPolicy(self.deleted_days, {name: days for name, days in by_type.items() if days is not None})


@dataclass(frozen=True)
class PurgeSettings:
    """Destroying for good what was deleted and is past its time; nothing else destroys anything."""

    cron: str = setting("0 5 * * sun", Cron(), "When that is done.")


def conflicts(lifecycle: LifecycleSettings, compaction: CompactionSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """What does not go together: the keys that it is about, and a sentence."""
    ages = (
        ("lifecycle.idle_after_hours", lifecycle.idle_after_hours / HOURS_PER_DAY),
        ("lifecycle.decaying_after_days", lifecycle.decaying_after_days),
        ("lifecycle.archive_after_days", lifecycle.archive_after_days),
    )
    for (sooner, days), (later, more_days) in pairwise(ages):
        if days >= more_days:
            yield (sooner, later), f"{sooner} must come before {later}"
    if compaction.gentle_at_pct >= compaction.forced_at_pct:
        keys = ("compaction.gentle_at_pct", "compaction.forced_at_pct")
        yield keys, f"{keys[0]} must be less than {keys[1]}"
