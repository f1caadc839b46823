"""Cron expressions, checked without the scheduler, so that a bad one is found when the configuration is read.

Two forms are refused because programs disagree on what they mean: days of the week by number (0 is Sunday or Monday), and a day of
the month together with a day of the week (either or both).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}  # days of the months that do not have 31
_PART = re.compile(r"(?:\*|(?P<first>[0-9]{1,2}|[a-z]{3})(?:-(?P<last>[0-9]{1,2}|[a-z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?")


@dataclass(frozen=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    only_names: bool = False

    def values(self, text: str) -> set[int]:
        """The numbers that the text of this field stands for."""
        return {number for part in text.split(",") for number in self._span(part)}

    def _span(self, part: str) -> range:
        match = _PART.fullmatch(part)
        if match is None or (match["step"] and match["first"] and (not match["last"] or match["first"].isalpha())):
            raise ValueError(f"{part!r} is not a {self.name}: write *, */5, 3, 1-5, 1-9/2, or several with commas")
        first = self._number(match["first"]) if match["first"] else self.low
        last = self._number(match["last"]) if match["last"] else first if match["first"] else self.high
        if match["first"] and match["last"] and match["first"].isalpha() != match["last"].isalpha():
            raise ValueError(f"{part!r} mixes a name and a number")
        step = int(match["step"]) if match["step"] else 1
        if first > last:
            raise ValueError(f"{part!r} ends before it begins")
        if match["step"] and not 0 < step <= last - first:
            raise ValueError(f"the step of {part!r} must be from 1 to {last - first}")
        return range(first, last + 1, step)

    def _number(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.low
        if self.only_names:
            raise ValueError(f"{text!r} is not a {self.name}: write {' '.join(self.names)}, for programs disagree on the numbers")
        if not text.isdigit() or not self.low <= int(text) <= self.high:
            raise ValueError(f"{text!r} is not a {self.name}, which is from {self.low} to {self.high}")
        return int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _DAYS, only_names=True),
)


def check_cron(text: str) -> str:
    """The expression with single spaces and small letters; ValueError says what is wrong with it."""
    parts = text.lower().split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"it has {len(parts)} parts, not the five of minute, hour, day, month, day of the week")
    _minutes, _hours, days, months, _weekdays = (field.values(part) for field, part in zip(_FIELDS, parts, strict=True))
    if parts[2] != "*" and parts[4] != "*":
        raise ValueError("it gives a day of the month and a day of the week, and programs disagree whether either or both must fit")
    if min(days) > max(_LONGEST.get(month, 31) for month in months):
        raise ValueError("no month has such a day, so it would never be due")
    return " ".join(parts)
