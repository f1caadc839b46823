"""A field of the record itself, by its dotted path in the JSON of `m.data`.

`leaves` of the index takes a record apart. That costs more than a look at its text, so a record
without the name in it is passed over first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from ..index.sql import Sql, bound, compose, glob, is_like, is_one_of, is_within, some
from ..model.severity import IN_WORDS, RANK, SEVERITIES, WORDS, rank, same
from ..model.times import render_time
from .fields import Field, Mistake, number_of, part_of, shown, text_of, time_of

_MENTION_CAP_CHARACTERS = 200
_IS_TEXT, _IS_NUMBER = "n.type = 'text'", "n.type IN ('integer', 'real')"
_VALUE = "CASE WHEN n.type IN ('true', 'false') THEN n.type ELSE n.atom END"


class JsonField(Field):
    def __init__(self, name: str) -> None:
        self._name = name
        if not name or "" in name.split("."):
            raise Mistake("has an empty name between its dots" if name else "is empty")

    def plain(self, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, datetime):
            return render_time(time_of(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, str):
            return text_of(value)
        if isinstance(value, (int, float)):
            return number_of(value)
        raise Mistake(f"must be a text, a number, true, false, null or a time, not {shown(value)}")

    def one_of(self, values: Sequence[Any]) -> Sql:
        mentioned = [value for value in values if len(values) == 1 and isinstance(value, str)]
        return self._some("all", _equals(values), mentioned)

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        values = [value for _, value in bounds]
        if any(isinstance(value, bool) for value in values):
            raise Mistake("must be a number, a text or a time, which have an order")
        if len({isinstance(value, str) for value in values}) > 1:
            raise Mistake("must be two numbers or two texts")
        of_type = _IS_TEXT if isinstance(values[0], str) else _IS_NUMBER
        return self._some("all", compose(f"{of_type} AND {{}}", is_within(Sql("n.atom"), bounds)))

    def contains(self, value: Any) -> Sql:
        tests = [self._some("parts", _equals([value]))]
        if isinstance(value, str):
            like = is_like(Sql("n.atom"), part_of(value))
            tests.append(self._some("single", compose(f"{_IS_TEXT} AND {{}}", like)))
        return some(tests)

    def prefix(self, value: Any) -> Sql:
        like = is_like(Sql("n.atom"), part_of(value), at_the_beginning=True)
        return self._some("all", compose(f"{_IS_TEXT} AND {{}}", like))

    def exists(self) -> Sql:
        return compose("({} AND {} IS NOT NULL)", self._is_mentioned(), self._leaves("all"))

    def picked(self, function: str) -> Sql:
        types = "('integer', 'real')" if function == "AVG" else "('array', 'object', 'null')"
        test = f"n.type {'IN' if function == 'AVG' else 'NOT IN'} {types}"
        found = f"(SELECT {function}(n.atom) FROM json_each({{}}) n WHERE {test})"
        leaves = compose(found, self._leaves("all"))
        return compose("CASE WHEN {} THEN {} END", self._is_mentioned(), leaves)

    def group(self) -> tuple[Sql, Sql]:
        # Each value once, so that a list that repeats itself does not count twice.
        values = f"SELECT json_group_array(DISTINCT {_VALUE}) FROM json_each({{}}) n"
        found = compose(f"{values} WHERE n.atom IS NOT NULL", self._leaves("all"))
        join = "LEFT JOIN json_each(CASE WHEN {} THEN ({}) END) g"
        return Sql("g.value"), compose(join, self._is_mentioned(), found)

    def _some(self, which: str, test: Sql, mentioned: Sequence[str] = ()) -> Sql:
        """Return that one of the leaves `n` passes the test."""
        found = compose(
            "EXISTS (SELECT 1 FROM json_each({}) n WHERE {})", self._leaves(which), test
        )
        return compose("CASE WHEN {} THEN {} END", self._is_mentioned(mentioned), found)

    def _leaves(self, which: str) -> Sql:
        return compose("leaves(m.data, {}, {})", bound(self._name), bound(which))

    def _is_mentioned(self, more: Sequence[str] = ()) -> Sql:
        """Return that the names, and these texts, stand in the JSON one after the other.

        The JSON is as Python writes it, with no character escaped that need not be.
        """
        names = (*self._name.split("."), *more)
        words = [json.dumps(name, ensure_ascii=False)[1:_MENTION_CAP_CHARACTERS] for name in names]
        return compose("(m.data GLOB {})", bound(f"*{'*'.join(map(glob, words))}*"))


class SeverityField(JsonField):
    """How severe a finding is: `high` is greater than `medium`, and `important` is `high`."""

    def __init__(self) -> None:
        super().__init__("severity")

    def one_of(self, values: Sequence[Any]) -> Sql:
        words = (same(value) if isinstance(value, str) else [value] for value in values)
        return super().one_of([word for each in words for word in each])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        if not all(value in WORDS for _, value in bounds):
            raise Mistake(f"must be {IN_WORDS}")
        ranks = [(symbol, -rank(value)) for symbol, value in bounds]
        return is_within(self.ordered(""), ranks)

    def ordered(self, function: str) -> Sql:
        return Sql(f"-NULLIF({RANK}, {len(SEVERITIES)})")


def _equals(values: Sequence[Any]) -> Sql:
    truths = ["true" if value else "false" for value in values if isinstance(value, bool)]
    others = [value for value in values if not isinstance(value, bool)]
    # SQLite has true and false as 1 and 0.
    tests = [is_one_of(Sql("n.type"), truths)] if truths else []
    if others:
        plain = is_one_of(Sql("n.atom"), others)
        tests.append(compose("(n.type NOT IN ('true', 'false') AND {})", plain))
    return some(tests)
