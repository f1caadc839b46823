"""Times: aware UTC datetimes in the program, ISO 8601 with `Z` on disk."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Raises ValueError where the text is no time; one without a zone is taken as UTC."""
    time = datetime.fromisoformat(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is before the first year or behind the last") from error


def render_time(time: datetime) -> str:
    time = time.astimezone(UTC)
    precision = "seconds" if not time.microsecond else "milliseconds" if not time.microsecond % 1000 else "microseconds"
    return time.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def now() -> datetime:
    time = datetime.now(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
