"""What the value of a setting may be: each kind says it in words, and turns what a file holds into what the program uses."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from smp_client.decay import Rule
from smp_client.privacy.patterns import PATTERNS_CAP, problem_of
from smp_client.text.values import Value

from .cron import check_cron

T = TypeVar("T")


class Kind(Protocol):
    @property
    def says(self) -> str:
        """What is right, to stand behind "must be"."""
        ...

    def accept(self, value: Value) -> Any:
        """The value as the program uses it. ValueError where it does not fit, with the reason where `says` is not enough."""
        ...


def setting(default: T, kind: Kind, says: str) -> T:
    """Only a description of a field."""
    return field(default=default, metadata={"kind": kind, "says": says})


@dataclass(frozen=True)
class Whole:
    low: int
    high: int
    unit: str = ""

    @property
    def says(self) -> str:
        return f"a whole number{_of(self.unit)} from {self.low} to {self.high}"

    def accept(self, value: Value) -> int:
        # true and false are numbers to Python, and to nobody else.
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise ValueError
        return value


@dataclass(frozen=True)
class Number:
    low: float
    high: float
    unit: str = ""

    @property
    def says(self) -> str:
        return f"a number{_of(self.unit)} from {self.low:g} to {self.high:g}"

    def accept(self, value: Value) -> float:
        # Written so that a NaN, which is neither below nor above anything, does not pass.
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            raise ValueError
        return float(value)


@dataclass(frozen=True)
class TrueOrFalse:
    says: str = "true or false"

    def accept(self, value: Value) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value


@dataclass(frozen=True)
class Text:
    says: str = "a printable text"

    def accept(self, value: Value) -> str:
        # The system takes no command with a NUL in it.
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError
        return value


@dataclass(frozen=True)
class OneOf:
    choices: tuple[str, ...]

    @property
    def says(self) -> str:
        return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"

    def accept(self, value: Value) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise ValueError
        return value


@dataclass(frozen=True)
class Cron:
    says: str = "a cron expression in UTC: minute, hour, day of the month, month, day of the week by name"

    def accept(self, value: Value) -> str:
        if not isinstance(value, str):
            raise ValueError
        return check_cron(value)


@dataclass(frozen=True)
class Place:
    # A relative path would mean another place for each directory that the daemon is started in.
    says: str = "an absolute path, or one that begins with ~"

    def accept(self, value: Value) -> Path:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError
        try:
            path = Path(value).expanduser()
        except RuntimeError as error:
            raise ValueError("there is no such user") from error
        if not path.is_absolute():
            raise ValueError
        return Path(os.path.normpath(path))


@dataclass(frozen=True)
class OrNone:
    kind: Kind
    none_means: str

    @property
    def says(self) -> str:
        return f"{self.kind.says}, or null for {self.none_means}"

    def accept(self, value: Value) -> Any:
        return None if value is None else self.kind.accept(value)


@dataclass(frozen=True)
class ListOf:
    kind: Kind
    least: int
    most: int

    @property
    def says(self) -> str:
        return f"a list of {self.least} to {self.most}, each {self.kind.says}"

    def accept(self, value: Value) -> tuple[Any, ...]:
        if not isinstance(value, list) or not self.least <= len(value) <= self.most:
            raise ValueError
        return tuple(self.kind.accept(item) for item in value)


@dataclass(frozen=True)
class DecayRule:
    says: str = (
        "four values: the priority it begins with, the rate per day or a half-life such as 168h, what each reading adds,"
        " and the least priority"
    )

    def accept(self, value: Value) -> Rule:
        share, rate = Number(0, 1), Number(0, 100)
        if not isinstance(value, list) or len(value) != 4:
            raise ValueError
        base, speed, boost, floor = value
        rule = Rule(share.accept(base), 0.0, share.accept(boost), share.accept(floor))
        if isinstance(speed, str):
            hours = re.fullmatch(r"(\d{1,7}(?:\.\d+)?) ?h", speed)
            if hours is None or not float(hours[1]):
                raise ValueError(f"{speed!r} is no half-life")
            return rule.with_half_life(float(hours[1]))
        return replace(rule, rate=rate.accept(speed))


class Pairs(tuple[tuple[str, str], ...]):
    """Names and what is said of each: in a file a mapping, in the program something that nobody can change."""


@dataclass(frozen=True)
class Patterns:
    takes_mapping: bool = True
    says: str = f"a mapping of at most {PATTERNS_CAP} names (small letters, digits and _), each to a regular expression of Python"

    def accept(self, value: Value) -> Pairs:
        if value is None:
            return Pairs()
        if not isinstance(value, dict) or len(value) > PATTERNS_CAP:
            raise ValueError
        if problems := [problem for name, pattern in value.items() if (problem := problem_of(name, pattern))]:
            raise ValueError("; ".join(problems))
        return Pairs((name, str(pattern)) for name, pattern in value.items())


def _of(unit: str) -> str:
    return f" of {unit}" if unit else ""
