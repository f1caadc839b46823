"""The types of settings. A type says in words which values fit, and converts a value of a file."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smp_client.model.priority import Rule
from smp_client.redaction.redact import PATTERN, PATTERNS_CAP, problem_of


@dataclass(frozen=True)
class ValueType:
    """`says` stands behind "must be". `accept` converts; a ValueError may have a further reason."""

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
    # The scheduler takes a tenth of a second to import, and few files set a time.
    from ..schedule import cron_trigger

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


def _patterns(value: dict[str, Any]) -> dict[str, Any]:
    if problems := [problem for pair in value.items() if (problem := problem_of(*pair))]:
        raise ValueError("; ".join(problems))
    return value


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
PATTERNS = _fitting(
    f"a mapping of at most {PATTERNS_CAP} names (small letters, digits and _), each to {PATTERN}",
    lambda value: isinstance(value, dict) and len(value) <= PATTERNS_CAP,
    _patterns,
)
