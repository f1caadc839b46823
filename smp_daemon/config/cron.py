"""Cron expressions, checked without the scheduler: a bad one is found when the file is read.

Two forms are refused because programs disagree on them: days of the week by number (0 is Sunday or
Monday), and a day of the month together with a day of the week (either or both).
"""

from __future__ import annotations

import re

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}  # days of the months that do not have 31
# The first and the last number of each field, and names for its numbers.
_FIELDS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day of the month": (1, 31, ()),
    "month": (1, 12, _MONTHS),
    "day of the week": (0, 6, _DAYS),
}
_SPAN = re.compile(r"(?:\*|([a-z]{3}|[0-9]{1,2})(?:-([a-z]{3}|[0-9]{1,2}))?)(?:/([0-9]{1,2}))?")


def check_cron(text: str) -> str:
    """Return the expression with single spaces and small letters; ValueError names a mistake."""
    parts = text.lower().split()
    if len(parts) != len(_FIELDS):
        raise ValueError(f"it has {len(parts)} parts, not five: {', '.join(_FIELDS)}")
    _, _, days, months, _ = (
        {number for span in part.split(",") for number in _numbers(field, span)}
        for field, part in zip(_FIELDS, parts, strict=True)
    )
    if parts[2] != "*" and parts[4] != "*":
        raise ValueError("it gives a day of the month and a day of the week")
    if min(days) > max(_LONGEST.get(month, 31) for month in months):
        raise ValueError("no month has such a day, so it would never be due")
    return " ".join(parts)


def _numbers(field: str, span: str) -> range:
    """Return the numbers that `*`, `*/5`, `3`, `1-5`, `1-9/2` or `mon-fri` stands for."""
    low, high, names = _FIELDS[field]
    found = _SPAN.fullmatch(span)
    ends = [end for end in found.groups()[:2] if end] if found else []
    is_named = bool(ends) and set(ends) <= set(names)
    is_number = all(map(str.isdecimal, ends)) and not (ends and names == _DAYS)
    step = found[3] if found else None
    # A step goes with `*` or a range of numbers.
    if not found or not (is_named or is_number) or (step and (is_named or len(ends) == 1)):
        right = f"one of {' '.join(names)}" if names == _DAYS else "*, */5, 3, 1-5 or 1-9/2"
        raise ValueError(f"{span!r} is not a {field}: write {right}")
    numbers = [names.index(end) + low if is_named else int(end) for end in ends] or [low, high]
    first, last = numbers[0], numbers[-1]
    if not low <= first <= last <= high:
        raise ValueError(f"{span!r} is not within {low} to {high}, the {field}")
    if step is not None and not 0 < int(step) <= last - first:
        raise ValueError(f"the step of {span!r} must be from 1 to {last - first}")
    return range(first, last + 1, int(step or 1))
