"""Times: aware UTC datetimes in the program, ISO 8601 with `Z` on disk."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta

from .quotation import shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # from which the index counts microseconds


def parse_time(text: str) -> datetime:
    """Return a time. One without a zone is taken as UTC. Raise ValueError where it is no time."""
    time = datetime.fromisoformat(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{shown(text)} is before the first year or behind the last") from error


def time_of(value: object) -> datetime | None:
    """Return the time of a field; None where it has none."""
    try:
        return parse_time(value) if isinstance(value, str) else None
    except ValueError:
        return None


def time_at(microseconds: int | None) -> datetime | None:
    """Return the time that the index has as so many microseconds."""
    return None if microseconds is None else EPOCH + timedelta(microseconds=microseconds)


def microseconds(time: datetime) -> int:
    """Return a time as the index has it, in microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def render_time(time: datetime) -> str:
    time = time.astimezone(UTC).replace(tzinfo=None)
    precision = "microseconds" if time.microsecond % 1000 else "milliseconds"
    return time.isoformat(timespec=precision if time.microsecond else "seconds") + "Z"


@functools.lru_cache(maxsize=1024)
def same_time(text: str) -> str:
    """Return a time as `render_time` writes it. Raise ValueError where it is no time."""
    return render_time(parse_time(text))


def now() -> datetime:
    time = datetime.now(UTC)
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
