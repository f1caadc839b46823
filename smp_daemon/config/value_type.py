"""The types of settings. A type says in words which values fit, and converts a value of a file."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smp_client.model.priority import Rule
from smp_client.redaction.redact import PATTERNS_CAP, problem_of

from .cron import check_cron


@dataclass(frozen=True)
class ValueType:
    """`says` stands behind "must be". `convert` may raise ValueError with a reason."""

    says: str
    fits: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value

    def accept(self, value: Any) -> Any:
        """Return the value as the program uses it; raise ValueError where it does not fit."""
        if not self.fits(value):
            raise ValueError
        return self.convert(value)


def number(low: float, high: float, unit: str = "") -> ValueType:
    says = f"a number{unit and f' of {unit}'} from {low} to {high}"
    # By type, because true is an integer to Python. A NaN is neither below nor above anything.
    return ValueType(says, lambda v: type(v) in (int, float) and low <= v <= high, float)


def whole(low: int, high: int, unit: str = "") -> ValueType:
    says = f"a whole number{unit and f' of {unit}'} from {low} to {high}"
    return ValueType(says, lambda value: type(value) is int and low <= value <= high)


def one_of(*choices: str) -> ValueType:
    return ValueType(f"{', '.join(choices[:-1])} or {choices[-1]}", lambda value: value in choices)


def list_of(item: ValueType, least: int, most: int) -> ValueType:
    return ValueType(
        f"a list of {least} to {most}, each {item.says}",
        lambda value: isinstance(value, list) and least <= len(value) <= most,
        lambda value: tuple(map(item.accept, value)),
    )


def or_null(other: ValueType, meaning: str) -> ValueType:
    return ValueType(
        f"{other.says}, or null for {meaning}",
        lambda value: value is None or other.fits(value),
        lambda value: None if value is None else other.convert(value),
    )


def _path(value: str) -> Path:
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such user") from error
    # A relative path would mean another place for each directory that the daemon is started in.
    if not path.is_absolute():
        raise ValueError
    return Path(os.path.normpath(path))


def _decay_rule(value: list[Any]) -> Rule:
    base, speed, boost, floor = value
    rule = Rule(SHARE.accept(base), 0.0, SHARE.accept(boost), SHARE.accept(floor))
    if not isinstance(speed, str):
        return replace(rule, rate=RATE.accept(speed))
    hours = re.fullmatch(r"(\d{1,7}(?:\.\d+)?) ?h", speed)
    if hours is None or not float(hours[1]):
        raise ValueError(f"{speed!r} is no half-life")
    return rule.with_half_life(float(hours[1]))


def _patterns(value: dict[str, Any] | None) -> dict[str, Any]:
    value = value or {}
    if problems := [problem for pair in value.items() if (problem := problem_of(*pair))]:
        raise ValueError("; ".join(problems))
    return value


SHARE = number(0, 1)
RATE = number(0, 100)
BOOLEAN = ValueType("true or false", lambda value: type(value) is bool)
# The system takes no command and no path with a NUL in it.
TEXT = ValueType("a printable text", lambda value: isinstance(value, str) and value.isprintable())
PATH = ValueType("an absolute path, or one that begins with ~", TEXT.fits, _path)
CRON = ValueType(
    "a cron expression in UTC: minute, hour, day of the month, month, day of the week by name",
    TEXT.fits,
    check_cron,
)
DECAY_RULE = ValueType(
    "four values: the priority at the beginning, the rate per day or a half-life such as 168h,"
    " the gain of each reading, and the least priority",
    lambda value: isinstance(value, list) and len(value) == 4,
    _decay_rule,
)
PATTERNS = ValueType(
    f"a mapping of at most {PATTERNS_CAP} names (small letters, digits and _),"
    " each to a regular expression of Python",
    lambda value: isinstance(value, dict | None) and len(value or ()) <= PATTERNS_CAP,
    _patterns,
)
