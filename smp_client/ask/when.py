"""Times as people say them: an ISO time, a date, or words such as "last 7 days"."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from ..model.times import parse_time
from .fields import shown

When = datetime | date | str

_UNITS = {
    "second": timedelta(seconds=1), "minute": timedelta(minutes=1), "hour": timedelta(hours=1),
    "day": timedelta(days=1), "week": timedelta(weeks=1), "month": timedelta(days=30),
    "year": timedelta(days=365),
}  # fmt: skip
_SHORT = {"s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week"}
_RELATIVE = re.compile(r"(?:(?:the )?(?:last|past) )?(?:(\d{1,6}) ?)?([a-z]+?)s?(?: ago)?")
EXAMPLES = (
    'an ISO time (2026-01-11T14:30:00Z), a date (2026-01-11), "last 7 days", "2 hours ago", "today"'
    ' or "yesterday"'
)


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
    if (
        (said := _RELATIVE.fullmatch(text))
        and (unit := _UNITS.get(_SHORT.get(said[2], said[2])))
        and (said[1] or " " in text)
    ):
        return now - int(said[1] or 1) * unit
    try:
        # First, because a date is also read as a time, its first moment.
        return _day(date.fromisoformat(text), end=end)
    except ValueError:
        pass
    try:
        return parse_time(value.strip())
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is not {EXAMPLES}") from None


def _day(day: date, *, end: bool) -> datetime:
    return datetime.combine(day, time.max if end else time.min, UTC)
