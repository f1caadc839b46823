"""The arguments of a question, checked: texts, lists of texts, and times as people say them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from ..model.errors import InvalidQuery
from ..model.quotation import shown
from ..model.times import parse_time

When = datetime | date | str

_NAMES_CAP = 100  # SQLite takes no expression deeper than 1,000 and no more than 500 SELECTs in one
_UNITS = {
    "second": timedelta(seconds=1), "minute": timedelta(minutes=1), "hour": timedelta(hours=1),
    "day": timedelta(days=1), "week": timedelta(weeks=1), "month": timedelta(days=30),
    "year": timedelta(days=365),
}  # fmt: skip
_SHORT = {
    "s": "second",
    "sec": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
    "w": "week",
    "y": "year",
}
_RELATIVE = r"(?:(?:the )?(?:last|past) )?(?:(\d{1,6}) ?)?([a-z]+?)s?(?: ago)?"
EXAMPLES = (
    'an ISO time (2026-01-11T14:30:00Z), a date (2026-01-11), "last 7 days", "2 hours ago", "7d",'
    ' "2h", "today", "yesterday" or "this week"'
)


def sayable(text: str) -> str:
    """Return a text that SQLite takes: half a surrogate pair is no character."""
    return text.encode("utf-8", "replace").decode()


def require_text(what: str, value: Any) -> str:
    """Return the value; raise InvalidQuery where it is no text."""
    if not isinstance(value, str):
        raise InvalidQuery(f"{what} must be a text, not {shown(value)}.")
    return value


def listed(name: str, values: Any, problems: list[str]) -> list[str]:
    """Return the texts of an option, one or a list of them; note a problem where it has others."""
    given = () if values is None else [values] if isinstance(values, str) else values
    is_list = isinstance(given, (list, tuple, set, frozenset)) and len(given) <= _NAMES_CAP
    if is_list and all(isinstance(value, str) for value in given):
        return [sayable(value) for value in given]
    right = f"a text, or a list of at most {_NAMES_CAP} texts"
    problems.append(f"{name} must be {right}, not {shown(values)}")
    return []


def moment(value: When, now: datetime, *, end: bool = False) -> datetime:
    """Return the moment that is meant; of a whole day its end where asked. Raise ValueError."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    if isinstance(value, date):
        return _day(value, end=end)
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not {EXAMPLES}")
    text = " ".join(value.lower().split())
    if text == "now":
        return now
    if text in ("today", "yesterday"):
        return _day((now - timedelta(days=text == "yesterday")).date(), end=end)
    if text.startswith("this "):
        begin = _beginning(text.removeprefix("this "), now)
        if begin is not None:
            return now if end else begin
    said = re.fullmatch(_RELATIVE, text)
    unit = _UNITS.get(_SHORT.get(said[2], said[2])) if said else None
    if said and unit and (said[1] or " " in text):
        return now - int(said[1] or 1) * unit
    try:
        # A date is also read as a time, its first moment.
        is_date = len(text) == 10
        return _day(date.fromisoformat(text), end=end) if is_date else parse_time(value.strip())
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is not {EXAMPLES}") from None


def _beginning(unit: str, now: datetime) -> datetime | None:
    """Return when this day, week, month or year began; None for another unit."""
    today = now.astimezone(UTC).date()
    first = {
        "day": today,
        "week": today - timedelta(days=today.weekday()),
        "month": today.replace(day=1),
        "year": today.replace(month=1, day=1),
    }.get(unit)
    return None if first is None else _day(first, end=False)


def _day(day: date, *, end: bool) -> datetime:
    return datetime.combine(day, time.max if end else time.min, UTC)
