"""Every setting, described once: its name, its default, its type, and a sentence.

The check of a file, `config/smp.yaml`, the help and the values that the daemon uses come from
this table. Defaults that the client has too are the client's.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from smp_client import Options
from smp_client.model.policies import CompactionPolicy, RetentionPolicy, Thresholds
from smp_client.model.priority import PINNED, Policy, Rule
from smp_client.model.ranking import Weights
from smp_client.redaction import patterns, redact


@dataclass(frozen=True)
class ValueType:
    """`says` is words for "must be …". `accept` converts; a ValueError may have another reason."""

    says: str
    accept: Callable[[Any], Any]


def _fitting(says: str, fits: Callable[[Any], bool], convert: Callable[[Any], Any]) -> ValueType:
    def accept(value: Any) -> Any:
        if not fits(value):
            raise ValueError
        return convert(value)

    return ValueType(says, accept)


def number(low: float, high: float, unit: str = "", *, whole: bool = False) -> ValueType:
    # By type, because true is an integer to Python. A NaN is neither below nor above anything.
    types = (int,) if whole else (int, float)
    says = f"a {'whole ' if whole else ''}number{unit and f' of {unit}'} from {low} to {high}"
    return _fitting(says, lambda v: type(v) in types and low <= v <= high, types[-1])


def one_of(*choices: str) -> ValueType:
    says = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return _fitting(says, lambda value: value in choices, str)


def list_of(item: ValueType, most: int) -> ValueType:
    return _fitting(
        f"a list of at most {most}, each {item.says}",
        lambda value: isinstance(value, list) and len(value) <= most,
        lambda value: tuple(map(item.accept, value)),
    )


def or_null(other: ValueType, meaning: str) -> ValueType:
    says = f"{other.says}, or null for {meaning}"
    return ValueType(says, lambda value: None if value is None else other.accept(value))


def _path(value: Any) -> Path:
    path = Path(value if isinstance(value, str) and value.isprintable() else "")
    # A relative path would mean another place for each directory that the daemon is started in.
    if not os.path.isabs(os.path.expanduser(path)):
        raise ValueError
    return Path(os.path.normpath(os.path.expanduser(path)))


def _cron(value: Any) -> str:
    from ..schedule import cron_trigger  # late: it takes long to load, and few files set a time

    if not isinstance(value, str):
        raise ValueError
    cron_trigger(value)
    return value


def _decay_rule(value: list[Any]) -> Rule:
    base, speed, boost, floor = value
    rule = Rule(SHARE.accept(base), 0.0, SHARE.accept(boost), SHARE.accept(floor))
    if not isinstance(speed, str):
        return rule._replace(rate=RATE.accept(speed))
    hours = re.fullmatch(r"(\d{1,7}(?:\.\d+)?) ?h", speed)
    if hours is None or not float(hours[1]):
        raise ValueError(f"{speed!r} is no half-life")
    return rule.with_half_life(float(hours[1]))


def _patterns(value: Any) -> Any:
    patterns.patterns_of(value)
    return value


def _replacement(value: Any) -> str:
    if problem := patterns.problem_of_replacement(value):
        raise ValueError(problem)
    return str(value)


SHARE = number(0, 1)
RATE = number(0, 100)
BOOLEAN = _fitting("true or false", lambda value: type(value) is bool, bool)
PATH = ValueType("an absolute path, or one that begins with ~", _path)
CRON = ValueType(
    "a cron expression in UTC: minute, hour, day of the month, month, day of the week by name",
    _cron,
)
DECAY_RULE = _fitting(
    "four values: the priority at the beginning, the rate per day or a half-life such as 168h,"
    " the gain of each reading, and the least priority",
    lambda value: isinstance(value, list) and len(value) == 4,
    _decay_rule,
)
PATTERNS = ValueType(
    f"a mapping of at most {patterns.PATTERNS_CAP} names (small letters, digits and _), each to"
    f" {patterns.SIMPLE}; or each to a mapping with regex, in RE2's syntax, and perhaps with"
    " replacement",
    _patterns,
)
REPLACEMENT = ValueType(patterns.SIGNS, _replacement)

WORD = _fitting(
    "a word or two",
    lambda value: isinstance(value, str) and 0 < len(value.split()) <= 2 and len(value) <= 100,
    str,
)
_SYNONYMS = list_of(list_of(WORD, 30), 300)

_MIB = 1024 * 1024
_DAYS, _HOURS = number(0, 36_500, "days"), number(0, 876_000, "hours")
_PERCENT = number(1, 100, "percent")
_whole, _seconds = partial(number, whole=True), partial(number, unit="seconds")
_PERSONAL = list_of(one_of(*redact.PERSONAL_KINDS), len(redact.PERSONAL_KINDS))
_NEVER = or_null(_DAYS, "never")
_CLIENT, _POLICY, _WEIGHTS = Options(), Policy(), Weights()
_AGES, _SMALLER = Thresholds(), CompactionPolicy()
_REDACTION = redact.Redaction()


@dataclass(frozen=True)
class Setting:
    default: Any
    type: ValueType
    says: str


def _setting(rule: str) -> str:
    return rule.replace(".", "_")


_RULES = [name for name in _POLICY.rules if name != PINNED]
_KEPT = {  # the setting of each type that can be deleted for its age
    "conversation_turn": "conversation", "decision": "decisions", "finding": "findings",
    "preference": "preferences", "learning": "learnings", "relationship": "relationships",
}  # fmt: skip

# fmt: off
_TABLE: tuple[tuple[str, Any, ValueType, str], ...] = (
    ("roots", (), list_of(PATH, 1000),
     "The session trees of the daemon; with none, SMP_ROOT or that of the project."),
    ("quota_bytes", _CLIENT.quota_bytes, _whole(64 * 1024, 256 * _MIB, "bytes"),
     "How much a new session may hold."),
    ("lock.timeout_s", _CLIENT.lock_timeout_s, _seconds(0, 3600),
     "How long to wait for a file that somebody else is writing."),
    ("watch.polling_s", 2.0, _seconds(0.1, 3600),
     "How often the daemon looks through a tree that the system cannot watch."),
    ("scan.every_s", 3600.0, _seconds(1, 86_400),
     "How often the whole tree is compared with the index."),
    ("index.rebuild_cron", "0 3 * * *", CRON, "When the index is built anew from the files."),
    ("decay.enabled", _POLICY.enabled, BOOLEAN,
     "Whether memories lose priority with time. A session can turn it off for itself."),
    ("decay.cron", "0 */6 * * *", CRON, "When the priorities in the files are brought up to date."),
    *((f"decay.{_setting(name)}", _POLICY.rules[name], DECAY_RULE,
       f"The decay of {name.replace('.', ', ').replace('_', ' ')}.") for name in _RULES),
    ("decay.age_rate", _POLICY.age_rate, RATE,
     "The rate per day since a memory was made, read or not."),
    ("decay.boost_cap", _POLICY.boost_cap, SHARE, "How much all readings together may add."),
    ("decay.decayed_below", _POLICY.decayed_below, SHARE,
     "A memory with less priority than this counts as decayed."),
    ("lifecycle.idle_after_hours", _AGES.idle_after_hours, _HOURS, "When a session becomes idle."),
    ("lifecycle.decaying_after_days", _AGES.decaying_after_days, _DAYS,
     "When a session becomes decaying."),
    ("lifecycle.archive_after_days", _AGES.archive_after_days, _DAYS,
     "When a session is archived."),
    ("lifecycle.check_every_s", 600.0, _seconds(1, 86_400),
     "How often the states of the sessions are checked."),
    ("compaction.automatic", _SMALLER.automatic, BOOLEAN,
     "Whether the daemon makes full sessions smaller. Evicted memories can be restored."),
    ("compaction.gentle_at_pct", _SMALLER.gentle_at_pct, _PERCENT,
     "How full a session is when it is made a little smaller."),
    ("compaction.gentle_reduction_pct", _SMALLER.gentle_reduction_pct, _PERCENT,
     "By how much of its size a session is then made smaller."),
    ("compaction.forced_at_pct", _SMALLER.forced_at_pct, _PERCENT,
     "How full a session is when it is made much smaller."),
    ("compaction.forced_reduction_pct", _SMALLER.forced_reduction_pct, _PERCENT,
     "By how much of its size a session is then made smaller."),
    ("compaction.summarized_above_turns", _SMALLER.summarized_above_turns, _whole(0, 1_000_000),
     "A conversation with more turns than this is summarised; 0 for never."),
    ("archive.cron", "0 4 * * *", CRON, "When sessions that are due are archived."),
    ("retention.deleted_days", RetentionPolicy().deleted_days, _DAYS,
     "How long deleted memories can be restored."),
    *((f"retention.{name}_days", None, _NEVER, f"At which age memories in {name} are deleted.")
      for name in _KEPT.values()),
    ("purge.cron", "0 5 * * sun", CRON,
     "When deleted memories that are past their time are destroyed."),
    ("redaction.enabled", _REDACTION.enabled, BOOLEAN,
     "Whether secrets are redacted in everything that is written."),
    ("redaction.personal", _REDACTION.personal, _PERSONAL,
     "Which personal data are redacted as well."),
    ("redaction.patterns", {}, PATTERNS,
     "Further secrets, by a name for their kind: badge: 'ACME-######', or"
     r" ticket: {regex: 'T-\d{4,}', replacement: '[ticket]'}. A list with type and regex in each"
     " is understood, too."),
    ("redaction.replacement", _REDACTION.replacement, REPLACEMENT,
     "The text that stands for a secret. {kind} in it becomes the kind of the secret."),
    ("redaction.unlocked_edits", _REDACTION.unlocked_edits, one_of(*redact.UNLOCKED),
     "Whether the daemon reports secrets that came in past the library, as by an editor, or"
     " redacts them in their file. Personal data and own patterns are only reported there."),
    ("ranking.text", _WEIGHTS.text, SHARE, "The weight of how well the text matches."),
    ("ranking.time", _WEIGHTS.time, SHARE, "The weight of the priority, which decays with time."),
    ("ranking.importance", _WEIGHTS.importance, SHARE,
     "The weight of kind, severity, impact and approval."),
    ("ranking.access", _WEIGHTS.access, SHARE, "The weight of having been read recently."),
    ("ranking.synonyms", _WEIGHTS.synonyms, _SYNONYMS,
     "Groups of words that mean about the same, beside those that SMP knows:"
     " [[hut, cabin], [warden, keeper]]."),
    ("log.level", "info", one_of("debug", "info", "warning", "error"),
     "The least important lines that are logged."),
    ("log.file", None, or_null(PATH, "stderr"), "Where the log goes."),
    ("log.max_bytes", 10 * _MIB, _whole(4096, 1024 * _MIB, "bytes"),
     "How large the log file may grow; then it becomes file.1, which it replaces."),
)
# fmt: on

SETTINGS = {key: Setting(*rest) for key, *rest in _TABLE}
SECTIONS = dict.fromkeys(key.partition(".")[0] for key in SETTINGS if "." in key)


class Configuration(dict[str, Any]):
    """The value of every setting, by its whole name such as `scan.every_s`.

    `file` is the file that it was read from, if any, and `given` are the settings in that file.
    """

    def __init__(self, given: Mapping[str, Any] | None = None, file: Path | None = None) -> None:
        super().__init__({key: setting.default for key, setting in SETTINGS.items()})
        self.update(given or {})
        self.file, self.given = file, set[str]()

    def part(self, section: str, kind: Any, **more: Any) -> Any:
        """Return a tuple of the client, its fields set by the settings of the same names."""
        own = {name: self[key] for name in kind._fields if (key := f"{section}.{name}") in self}
        return kind(**own | more)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a memory."""
        rules = {name: self[f"decay.{_setting(name)}"] for name in _RULES}
        ages = {name: self[f"retention.{setting}_days"] for name, setting in _KEPT.items()}
        ages = {name: days for name, days in ages.items() if days is not None}
        own = patterns.patterns_of(self["redaction.patterns"])
        return {
            "quota_bytes": self["quota_bytes"],
            "lock_timeout_s": self["lock.timeout_s"],
            "policy": self.part("decay", Policy, rules={**_POLICY.rules, **rules}),
            "weights": self.part("ranking", Weights),
            "thresholds": self.part("lifecycle", Thresholds),
            "compaction": self.part("compaction", CompactionPolicy),
            "retention": self.part("retention", RetentionPolicy, by_type_days=ages),
            "redaction": self.part("redaction", redact.Redaction, patterns=own),
        }
