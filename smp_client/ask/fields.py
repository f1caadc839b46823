"""The fields that can be asked for, and how each operator reads in SQL over `memories m`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ..disk.scopes import archived_scope
from ..index.sql import (
    PATTERN_CAP_CHARACTERS,
    Sql,
    bound,
    compose,
    is_like,
    is_one_of,
    is_within,
    some,
)
from ..model.layout import ARCHIVED
from ..model.record import TURN, name_of
from ..model.times import EPOCH, parse_time

INTEGER_CAP = 2**63 - 1
_DAY = 86_400_000_000  # in microseconds, like m.at


class Mistake(Exception):
    """What is wrong with a value; where it stands is for the catcher to say."""


class Field:
    """A column, given as an expression that is null where the value is absent."""

    is_time = False
    _without_average: str | None = None  # the kind of its values, if they have none

    def __init__(self, expression: str) -> None:
        self._value = Sql(expression)

    def plain(self, value: Any) -> Any:
        """Return the value as it is compared; raise Mistake. Never given None."""
        return text_of(value)

    def one_of(self, values: Sequence[Any]) -> Sql:
        return is_one_of(self._value, values)

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        """Return that it is on the right side of each bound, given with its symbol."""
        return is_within(self._value, bounds)

    def contains(self, value: Any) -> Sql:
        use = "equals, not, in, greaterThan, lessThan or between"
        raise Mistake(f"has no parts here: the field is no text or list; use {use}")

    def prefix(self, value: Any) -> Sql:
        return self.contains(value)

    def exists(self) -> Sql:
        return compose("{} IS NOT NULL", self._value)

    def picked(self, function: str) -> Sql:
        """Return the one value of a memory to add up: of a list its MIN, MAX or AVG."""
        if function == "AVG" and self._without_average:
            raise Mistake(f"is {self._without_average}, of which there is no average")
        return self._value

    def ordered(self, function: str) -> Sql:
        """Return the value to sort by."""
        return self.picked(function)

    def group(self) -> tuple[Sql, Sql]:
        """Return the value to group by, and the joins that it needs."""
        return self._value, Sql("")


class _Text(Field):
    _without_average = "a text"

    def __init__(self, column: str) -> None:
        super().__init__(f"NULLIF({column}, '')")
        self._column = Sql(column)

    def one_of(self, values: Sequence[Any]) -> Sql:
        # Of the column itself, which has an index.
        return is_one_of(self._column, [value for value in values if value])

    def contains(self, value: Any) -> Sql:
        return is_like(self._value, part_of(value))

    def prefix(self, value: Any) -> Sql:
        return is_like(self._value, part_of(value), at_the_beginning=True)


class _Session(_Text):
    """The id of a session, whether it is archived or not."""

    def __init__(self) -> None:
        super().__init__("m.scope")
        self._value = Sql(
            f"CASE WHEN m.scope LIKE '{ARCHIVED}/%' THEN SUBSTR(m.scope, {len(ARCHIVED) + 2})"
            " ELSE m.scope END"
        )

    def one_of(self, values: Sequence[Any]) -> Sql:
        names = [name for value in values if value for name in (value, archived_scope(value))]
        return super().one_of(names)


class _Type(_Text):
    """The type of a memory. A turn is a `turn`, however the files call it."""

    def __init__(self) -> None:
        super().__init__("m.type")
        self._value = Sql(f"CASE m.type WHEN '{TURN.name}' THEN '{TURN.type}' ELSE m.type END")

    def one_of(self, values: Sequence[Any]) -> Sql:
        types = (TURN.type if value == "conversation" else value for value in values)
        return super().one_of([name_of(type) for type in types])


class _Time(Field):
    is_time = True
    _without_average = "a time"

    def plain(self, value: Any) -> tuple[int, int]:
        """Return the first and the last microsecond, which differ for a date."""
        if isinstance(value, str):
            with suppress(ValueError):
                value = date.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            start = (value - EPOCH.date()).days * _DAY
            return start, start + _DAY - 1
        moment = (time_of(value) - EPOCH) // timedelta(microseconds=1)
        return moment, moment

    def one_of(self, values: Sequence[Any]) -> Sql:
        moments = [start for start, end in values if start == end]
        days = [start // _DAY for start, end in values if start != end]
        # Divided so that a day before 1970 is rounded down as well.
        day = Sql(f"(m.at - (m.at % {_DAY} + {_DAY}) % {_DAY}) / {_DAY}")
        return some([is_one_of(self._value, moments), is_one_of(day, days)])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        ends = [(symbol, value[symbol == "<="]) for symbol, value in bounds]
        return is_within(self._value, ends)

    def group(self) -> tuple[Sql, Sql]:
        return Sql("date(m.at / 1000000, 'unixepoch')"), Sql("")


class _Priority(Field):
    def plain(self, value: Any) -> Any:
        return number_of(value)

    def group(self) -> tuple[Sql, Sql]:
        raise Mistake("changes all the time; group by another field")


class _Tags(Field):
    """The tags of a memory, which stand in lower case in a table."""

    _without_average = "a list of texts"

    def one_of(self, values: Sequence[Any]) -> Sql:
        # The slash follows the dot in the order of characters.
        below = "(t.tag = v.value OR t.tag >= v.value || '.')"
        return self._tagged(f"t.tag >= v.value AND t.tag < v.value || '/' AND {below}", values)

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        use = "equals, not, contains, in, prefix or exists"
        raise Mistake(f"has no order here: tags are a list; use {use}")

    def contains(self, value: Any) -> Sql:
        return self.one_of([value])

    def prefix(self, value: Any) -> Sql:
        return self._tagged("t.tag >= v.value AND t.tag < v.value || char(0x10FFFF)", [value])

    def exists(self) -> Sql:
        return Sql("m.key IN (SELECT memory FROM tags)")

    def picked(self, function: str) -> Sql:
        super().picked(function)
        return Sql(f"(SELECT {function}(t.tag) FROM tags t WHERE t.memory = m.key)")

    def group(self) -> tuple[Sql, Sql]:
        return Sql("g.tag"), Sql("LEFT JOIN tags g ON g.memory = m.key")

    def _tagged(self, test: str, values: Sequence[str]) -> Sql:
        # CROSS, so that each value is looked up in the table.
        tags = f"SELECT t.memory FROM json_each({{}}) v CROSS JOIN tags t WHERE {test}"
        lowered = bound(json.dumps([value.lower() for value in values]))
        return compose(f"m.key IN ({tags})", lowered)


def columns(priority: str) -> dict[str, Field]:
    """Return the fields that have columns, by name. `priority` is SQL over `m`."""
    number, actor = _Priority(f"({priority})"), _Text("m.actor")
    return {
        "id": _Text("m.id"), "type": _Type(), "session": _Session(), "timestamp": _Time("m.at"),
        "text": _Text("m.text"), "agent": actor, "actor": actor, "tags": _Tags(""),
        "priority": number, "decay.priority": number,
    }  # fmt: skip


# Values.


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise Mistake(f"must be a text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Mistake("holds a lone surrogate, which is no character") from None
    if "\0" in value:
        raise Mistake("holds the character U+0000, at which SQLite ends a text")
    return str.__str__(value)


def part_of(value: Any) -> str:
    """Return a text to be looked for in others."""
    text = text_of(value)
    if len(text) > PATTERN_CAP_CHARACTERS:
        raise Mistake(f"may have {PATTERN_CAP_CHARACTERS:,} characters, not {len(text):,}")
    return text


def number_of(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mistake(f"must be a number, not {shown(value)}")
    if isinstance(value, int) and abs(value) <= INTEGER_CAP:
        return int(value)
    try:
        number = float(value)
    except OverflowError:
        raise Mistake("is too large a number") from None
    if not math.isfinite(number):
        raise Mistake(f"must be a number, not {shown(value)}")
    return number


def time_of(value: Any) -> datetime:
    wanted = 'must be a time such as "2026-01-11T14:30:00Z" or "2026-01-11"'
    try:
        if isinstance(value, str):
            return parse_time(text_of(value))
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Mistake(f"{wanted}, not {shown(value)} ({error})") from None
    zone = " without a zone" if isinstance(value, datetime) else ""
    raise Mistake(f"{wanted}, not {shown(value)}{zone}")


def shown(value: Any) -> str:
    """Return the value as it may stand in a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write out a number of thousands of digits, or lists in lists in lists.
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else f"{text[:80]}…"
