"""A field of the record itself, by its dotted path, looked up in the JSON of `m.data`.

That JSON is as Python writes it, with no character escaped that need not be: so a record without the name in it is passed over
before SQLite takes it apart, which costs more.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias

from ..index.sql import Sql, bound, compose, glob, is_like, is_one_of, is_within, some
from ..model.severity import IN_WORDS, RANK, SEVERITIES, WORDS, rank, same
from ..model.times import render_time
from .fields import Field, Mistake, number_of, part_of, shown, text_of, time_of

_PART_CAP = 16  # SQLite takes no join of more than 64 tables
_MENTION_CAP_CHARACTERS = 200
_LETTERS = "etaoinsrhldcumfpgwybvkxjqz"  # the most frequent first
_NOT_IN_A_PATH = re.compile(r'["\\\x00-\x1f]')  # versions of SQLite quote these in different ways, or not at all
_IS_TEXT, _IS_NUMBER = "{} = 'text'", "{} IN ('integer', 'real')"
_LEAVES = (
    "json_each(CASE k.type WHEN 'array' THEN k.value WHEN 'object' THEN '[]' WHEN 'true' THEN '[true]' WHEN 'false' THEN '[false]'"
    " ELSE json_array(k.value) END) n"
)


class _Node(NamedTuple):
    """A place in the JSON, as SQL."""

    type: Sql
    value: Sql
    items: Sql


_STEP = _Node(Sql("k.type"), Sql("k.value"), Sql("json_each(k.value)"))
_Test: TypeAlias = "Callable[[Sql, Sql], Sql]"  # of a type and a value


class JsonField(Field):
    def __init__(self, name: str) -> None:
        self._parts = name.split(".")
        if not name or "" in self._parts:
            raise Mistake("has an empty name between its dots" if name else "is empty")
        if len(self._parts) > _PART_CAP:
            raise Mistake(f"has {len(self._parts)} parts; at most {_PART_CAP} are possible")

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
        test = _equals_one_of(values)
        mentioned = [value for value in values if len(values) == 1 and isinstance(value, str)]
        return self._read("MAX", lambda node: _case(node, item=test, scalar=test), mentioned)

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        values = [value for _, value in bounds]
        if any(isinstance(value, bool) for value in values):
            raise Mistake("must be a number, a text or a time, which have an order")
        if len({isinstance(value, str) for value in values}) > 1:
            raise Mistake("must be two numbers or two texts")
        of_type = _IS_TEXT if isinstance(values[0], str) else _IS_NUMBER

        def test(type_: Sql, value: Sql) -> Sql:
            return compose(f"({of_type} AND {{}})", type_, is_within(value, bounds))

        return self._read("MAX", lambda node: _case(node, item=test, scalar=test))

    def contains(self, value: Any) -> Sql:
        item = _equals_one_of([value])
        if not isinstance(value, str):
            return self._read("MAX", lambda node: _case(node, item=item))
        key = compose("n.key = {}", bound(value))
        scalar = _like(part_of(value))
        return self._read("MAX", lambda node: _case(node, item=item, scalar=scalar, key=key))

    def prefix(self, value: Any) -> Sql:
        test = _like(part_of(value), at_the_beginning=True)
        return self._read("MAX", lambda node: _case(node, item=test, scalar=test))

    def exists(self) -> Sql:
        return self._read("MAX", lambda node: compose("COALESCE({}, 'null') <> 'null'", node.type))

    def picked(self, function: str) -> Sql:
        types = "('integer', 'real')" if function == "AVG" else "('integer', 'real', 'text', 'true', 'false')"

        def one(node: _Node) -> Sql:
            of_list = f"(SELECT {function}(n.atom) FROM {{}} n WHERE n.type IN {types})"
            case = f"CASE WHEN {{}} = 'array' THEN {of_list} WHEN {{}} IN {types} THEN {{}} END"
            return compose(case, node.type, node.items, node.type, node.value)

        return self._read(function, one)

    def group(self) -> tuple[Sql, Sql]:
        # Each value once, so that a list that repeats itself does not count twice.
        value = "CASE WHEN n.type IN ('true', 'false') THEN n.type ELSE n.atom END"
        found = compose(f"SELECT json_group_array(DISTINCT {value}) FROM {{}} AND n.atom IS NOT NULL", self._way(_LEAVES))
        return Sql("g.value"), compose("LEFT JOIN json_each(CASE WHEN {} THEN ({}) END) g", self._is_mentioned(), found)

    def _read(self, function: str, read: Callable[[_Node], Sql], mentioned: Sequence[str] = ()) -> Sql:
        """What is read in the place; with lists on the way to it, the MIN, MAX or AVG of what is read in all the places."""
        path = bound(_path(self._parts))
        here = read(_Node(*(compose(f"{name}(m.data, {{}})", path) for name in ("json_type", "json_extract", "json_each"))))
        anywhere = compose(f"(SELECT {function}({{}}) FROM {{}})", read(_STEP), self._way())
        is_mentioned = self._is_mentioned(mentioned)
        if any(map(_NOT_IN_A_PATH.search, self._parts)):
            return compose("CASE WHEN {} THEN {} END", is_mentioned, anywhere)
        if len(self._parts) == 1:
            return compose("CASE WHEN {} THEN {} END", is_mentioned, here)
        above = [compose("json_type(m.data, {})", bound(_path(self._parts[:end]))) for end in range(1, len(self._parts))]
        has_list = compose("'array' IN ({})", Sql.joined(", ", above))
        return compose("CASE WHEN NOT {} THEN NULL WHEN {} THEN {} ELSE {} END", is_mentioned, has_list, anywhere, here)

    def _is_mentioned(self, more: Sequence[str] = ()) -> Sql:
        """That the names, and these texts, stand in the JSON one after the other. Where not, there is no such value."""
        words = [json.dumps(word, ensure_ascii=False)[1:_MENTION_CAP_CHARACTERS] for word in (*self._parts, *more)]
        # SQLite looks for the first character fast, and from there on slowly: best for a rare one.
        start = max(range((len(words[0]) + 1) // 2), key=lambda place: _LETTERS.find(words[0][place]))
        words[0] = words[0][start:]
        return compose("(m.data GLOB {})", bound(f"*{'*'.join(map(glob, words))}*"))

    def _way(self, *more: str) -> Sql:
        """The place as the row `k` of a join, step by step through mappings and the items of lists."""
        aliases = [f"k{number}" for number in range(len(self._parts) - 1)] + ["k"]
        steps = [step for above, here in itertools.pairwise(aliases) for step in _step(above, here)]
        keys = [compose(f"{alias}.key = {{}}", bound(part)) for alias, part in zip(aliases, self._parts, strict=True)]
        join = " JOIN ".join([f"json_each(m.data) {aliases[0]}", *steps, *more])
        return compose(f"{join} WHERE {{}}", Sql.joined(" AND ", keys))


class SeverityField(JsonField):
    """How severe a finding is: `high` is greater than `medium`, and `important` is `high`."""

    def __init__(self) -> None:
        super().__init__("severity")

    def one_of(self, values: Sequence[Any]) -> Sql:
        return super().one_of([word for value in values for word in (same(value) if isinstance(value, str) else [value])])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        if not all(value in WORDS for _, value in bounds):
            raise Mistake(f"must be {IN_WORDS}")
        return is_within(self.ordered(""), [(symbol, -rank(value)) for symbol, value in bounds])

    def ordered(self, function: str) -> Sql:
        return Sql(f"-NULLIF({RANK}, {len(SEVERITIES)})")


def _path(parts: Sequence[str]) -> str:
    return "$" + "".join(f'."{part}"' for part in parts)


def _step(above: str, here: str) -> tuple[str, str]:
    """From one row of the way to the next: the mapping, or each item of the list, and then its members."""
    things = f"CASE {above}.type WHEN 'array' THEN {above}.value WHEN 'object' THEN '[' || {above}.value || ']' ELSE '[]' END"
    return f"json_each({things}) {above}i", f"json_each(CASE {above}i.type WHEN 'object' THEN {above}i.value END) {here}"


def _case(node: _Node, *, item: _Test, scalar: _Test | None = None, key: Sql | None = None) -> Sql:
    """One test for the items of a list, one for a single value, one for the keys of a mapping."""
    return compose(
        "CASE {} WHEN 'array' THEN EXISTS (SELECT 1 FROM {} n WHERE {}) WHEN 'object' THEN {} ELSE {} END",
        node.type,
        node.items,
        item(Sql("n.type"), Sql("n.atom")),
        compose("EXISTS (SELECT 1 FROM {} n WHERE {})", node.items, key) if key else Sql("0"),
        scalar(node.type, node.value) if scalar else Sql("0"),
    )


def _equals_one_of(values: Sequence[Any]) -> _Test:
    truths = ["true" if value else "false" for value in values if isinstance(value, bool)]
    others = [value for value in values if not isinstance(value, bool)]

    def test(type_: Sql, value: Sql) -> Sql:
        # SQLite has true and false as 1 and 0.
        tests = [is_one_of(type_, truths)] if truths else []
        tests += [compose("({} NOT IN ('true', 'false') AND {})", type_, is_one_of(value, others))] if others else []
        return some(tests)

    return test


def _like(part: str, *, at_the_beginning: bool = False) -> _Test:
    return lambda type_, value: compose(f"({_IS_TEXT} AND {{}})", type_, is_like(value, part, at_the_beginning=at_the_beginning))
