"""The query specification of 000 §4.1: checked, with every problem at once, and turned into SQL over `memories m`.

No text of the caller becomes SQL: names and values are bound as parameters, operators and directions are looked up. What the
operators mean is the same for every field:

- `equals`, `in` and `contains` on a list ask for such an item; `contains` in a text is a part of it, in a mapping a key.
- `contains`, `prefix` and tags do not tell upper from lower case; everything else does.
- A tag matches itself and what is below it: `security` also `security.authentication`.
- A number is compared with numbers and a text with texts; true is not 1.
- `exists` and null: a field that is null, or an empty text of a column, counts as absent.
- `not` is the opposite of `equals`, of `in` when given a list, so it also matches what does not have the field.
- A date is its first moment after `greaterThan`, `greaterOrEqual` and `lessThan`, and a whole day (UTC) in every other place.
- A list on the way to a field is looked through: `alternatives_considered.option`.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .errors import InvalidQuery
from .timestamps import parse_time, render_time

_ENTRY_CAP = 100  # SQLite takes no expression deeper than 1,000 and no more than 32,766 parameters
_PART_CAP = 16  # and no join of more than 64 tables
_PATTERN_CAP_CHARACTERS = 4_000  # and no pattern longer than 50,000 bytes
_PROBLEM_CAP = 20
_INTEGER_CAP = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000  # in microseconds, like m.at

_COLUMNS = ("id", "type", "session", "timestamp", "text", "agent", "actor", "tags", "priority", "decay.priority")
# What 000 §2.2 shows in records of each kind, §3 in all of them, and what SMP itself writes.
_DOCUMENTED_NAMES = """
    decay decay.last_accessed decay.access_count decay.base_priority
    turn_ref created_by content confidence pinned updated_at memory_refs references
    turn speaker
    made_by decision rationale agents_involved agreed_by reversible implementation_impact
    alternatives_considered alternatives_considered.option alternatives_considered.rejected_because
    discovered_by severity category finding impact root_cause
    location location.artifact location.section location.line_numbers
    resolution resolution.status resolution.resolved_at resolution.resolved_by resolution.action_taken resolution.verification
    resolution.next_steps
    topic preference context source applies_to applies_to.projects applies_to.domains
    learning learned_by pattern target relationship
    agent_id session_id last_updated session_learnings
    current_context current_context.current_task current_context.current_phase current_context.focus_area
    current_context.active_artifacts current_context.active_artifacts.path current_context.active_artifacts.status
    current_context.active_artifacts.findings_count
    working_memory working_memory.concerns_identified working_memory.methods_applied working_memory.verification_summary
    working_memory.verification_summary.total_concerns working_memory.verification_summary.critical
    working_memory.verification_summary.important working_memory.verification_summary.minor
    working_memory.verification_summary.all_resolved
    memory_refs.decisions_made memory_refs.findings_created memory_refs.preferences_learned
"""
_DOCUMENTED = tuple(sorted(_DOCUMENTED_NAMES.split()))

_OPERATORS = (
    "equals", "not", "contains", "in", "greaterThan", "lessThan", "greaterOrEqual", "lessOrEqual", "between", "exists", "prefix",
)  # fmt: skip
_OPERATOR_NAMES = {name.lower(): name for name in _OPERATORS} | {
    "notequals": "not", "greaterthanorequal": "greaterOrEqual", "lessthanorequal": "lessOrEqual",
}  # fmt: skip
_BOUNDS = {"greaterThan": (">",), "lessThan": ("<",), "greaterOrEqual": (">=",), "lessOrEqual": ("<=",), "between": (">=", "<=")}
_FUNCTIONS = {"count": "COUNT", "min": "MIN", "max": "MAX", "average": "AVG"}
_TYPE_NAMES = {"turn": "conversation_turn", "conversation": "conversation_turn"}
_KEYS = ("filters", "sort", "aggregations", "limit", "offset", "include_related")


class Sql(NamedTuple):
    """A piece of SQL with the parameters of its question marks, in their order."""

    text: str
    parameters: tuple[Any, ...] = ()

    @classmethod
    def joined(cls, word: str, parts: Iterable[Sql]) -> Sql:
        listed = list(parts)
        return cls(word.join(part.text for part in listed), tuple(value for part in listed for value in part.parameters))


@dataclass(frozen=True)
class Aggregation:
    """A figure over all memories that match, or one for each value of the field `by`."""

    name: str
    function: str
    field: str | None
    by: str | None
    value: Sql
    group: Sql | None
    joins: Sql
    is_time: bool  # the value is in microseconds since 1970

    def statement(self, where: Sql, source: Sql) -> Sql:
        """Gives rows of (group, value): one with the group None without `by`, else one for each group, None being those without."""
        group = self.group or Sql("NULL")
        tail = " GROUP BY 1 ORDER BY 1 NULLS LAST" if self.group else ""
        return _sql("SELECT {}, {} FROM {} {} WHERE {}{}", group, self.value, source, self.joins, where, Sql(tail))


@dataclass(frozen=True)
class Specification:
    conditions: tuple[Sql, ...]  # all of them must hold
    order: tuple[Sql, ...]  # terms of ORDER BY, what is absent last; the caller appends what breaks a tie
    aggregations: tuple[Aggregation, ...]
    limit: int | None
    offset: int
    include_related: bool
    unproven_fields: tuple[str, ...]  # neither columns nor documented: whether any memory has them is for the caller to see


def understand(spec: Mapping[str, Any], priority: str) -> Specification:
    """Raises InvalidQuery with all that is wrong. `priority` is SQL over `m` for the priority as of now."""
    if not isinstance(spec, Mapping):
        raise InvalidQuery(f"A query is a mapping with {_listed(_KEYS)}, not {_shown(spec)}.")
    reader = _Reader(priority)
    found = reader.read(spec)
    if reader.problems:
        more = len(reader.problems) - _PROBLEM_CAP
        shown = reader.problems[:_PROBLEM_CAP] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidQuery("; ".join(shown) + ".")
    return found


def known_fields() -> tuple[str, ...]:
    """Every field that can be asked for without a look into the memories: the columns, then the documented ones."""
    return _COLUMNS + _DOCUMENTED


def has_field(field: str) -> Sql:
    """The condition that a memory has this one of `unproven_fields`, so that the caller can look whether any does."""
    return _Json(field).exists()


def unknown_field(field: str, occurring: Iterable[str]) -> InvalidQuery:
    """For a field that no memory has; `occurring` are the fields that some do have."""
    names = dict.fromkeys((*known_fields(), *occurring))
    return InvalidQuery(f"No memory here has a field {_shown(field)}{_hint(field, names)}; fields are {_listed(names)}.")


# Composing SQL.


def _sql(template: str, *parts: Sql) -> Sql:
    """The template with its parts in the places of `{}`, and their parameters in that order."""
    return Sql(template.format(*(part.text for part in parts)), tuple(value for part in parts for value in part.parameters))


def _bound(value: Any) -> Sql:
    return Sql("?", (value,))


def _joined(word: str, parts: Sequence[Sql]) -> Sql:
    return _sql("(" + f" {word} ".join("{}" for _ in parts) + ")", *parts)


def _is_one_of(expression: Sql, values: Sequence[Any]) -> Sql:
    # Many values travel as one parameter, of which SQLite has only so many.
    if len(values) == 1:
        return _sql("{} = {}", expression, _bound(values[0]))
    return _sql("{} IN (SELECT value FROM json_each({}))", expression, _bound(json.dumps(values)))


def _is_within(expression: Sql, bounds: Sequence[tuple[str, Any]]) -> Sql:
    return _joined("AND", [_sql(f"{{}} {symbol} {{}}", expression, _bound(value)) for symbol, value in bounds])


def _is_like(expression: Sql, pattern: str) -> Sql:
    return _sql("{} GLOB {}", expression, _bound(pattern))


def _glob(value: Any) -> str:
    """A pattern for GLOB with both cases of each letter: SQLite's own lower() knows only those of ASCII."""
    text = _text(value)
    if len(text) > _PATTERN_CAP_CHARACTERS:
        raise _Mistake(f"may have {_PATTERN_CAP_CHARACTERS:,} characters, not {len(text):,}")
    return "".join(map(_either_case, text))


def _either_case(character: str) -> str:
    forms = {form for form in (character, character.lower(), character.upper()) if len(form) == 1}
    return f"[{''.join(sorted(forms))}]" if len(forms) > 1 or character in "*?[" else character


# The fields: each knows what its values are, and how each operator reads in SQL.


class _Mistake(Exception):
    """What is wrong with a value."""


class _Field:
    is_time = False

    def plain(self, value: Any) -> Any:
        """The value as it is compared; raises _Mistake. Never given None."""
        return _text(value)

    def one_of(self, values: Sequence[Any]) -> Sql:
        raise NotImplementedError

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        """That it is on the right side of each bound, given with its symbol."""
        raise NotImplementedError

    def contains(self, value: Any) -> Sql:
        raise _Mistake("has no parts here: the field is no text or list; use equals, not, in, greaterThan, lessThan or between")

    def prefix(self, value: Any) -> Sql:
        return self.contains(value)

    def exists(self) -> Sql:
        raise NotImplementedError

    def picked(self, function: str) -> Sql:
        """The one value of a memory to sort by or to add up: of a list its MIN, MAX or AVG."""
        raise NotImplementedError

    def group(self) -> tuple[Sql, Sql]:
        """The value to group by, and the joins that it needs."""
        raise NotImplementedError


class _TextColumn(_Field):
    def __init__(self, column: str, names: Mapping[str, str] | None = None) -> None:
        self._column = Sql(column)
        self._value = Sql(f"NULLIF({column}, '')")
        self._names = names or {}

    def one_of(self, values: Sequence[Any]) -> Sql:
        # Of the column itself, which has an index.
        return _is_one_of(self._column, [self._names.get(value, value) for value in values if value])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        return _is_within(self._value, bounds)

    def contains(self, value: Any) -> Sql:
        return _is_like(self._value, f"*{_glob(value)}*")

    def prefix(self, value: Any) -> Sql:
        return _is_like(self._value, f"{_glob(value)}*")

    def exists(self) -> Sql:
        return _sql("{} IS NOT NULL", self._value)

    def picked(self, function: str) -> Sql:
        if function == "AVG":
            raise _Mistake("is a text, of which there is no average")
        return self._value

    def group(self) -> tuple[Sql, Sql]:
        return self.picked("MIN"), Sql("")


class _Time(_Field):
    is_time = True

    def plain(self, value: Any) -> tuple[int, int]:
        """Its first and its last microsecond, which differ for a date."""
        if isinstance(value, str):
            with suppress(ValueError):
                value = date.fromisoformat(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            start = (value - _EPOCH.date()).days * _DAY
            return start, start + _DAY - 1
        moment = (_aware(value) - _EPOCH) // timedelta(microseconds=1)
        return moment, moment

    def one_of(self, values: Sequence[Any]) -> Sql:
        moments = [start for start, end in values if start == end]
        days = [start // _DAY for start, end in values if start != end]
        # Divided so that a day before 1970 is rounded down as well.
        day = Sql(f"(m.at - (m.at % {_DAY} + {_DAY}) % {_DAY}) / {_DAY}")
        return _joined("OR", [_is_one_of(Sql("m.at"), moments), _is_one_of(day, days)])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        return _is_within(Sql("m.at"), [(symbol, value[symbol == "<="]) for symbol, value in bounds])

    def exists(self) -> Sql:
        return Sql("m.at IS NOT NULL")

    def picked(self, function: str) -> Sql:
        if function == "AVG":
            raise _Mistake("is a time, of which there is no average")
        return Sql("m.at")

    def group(self) -> tuple[Sql, Sql]:
        return Sql("date(m.at / 1000000, 'unixepoch')"), Sql("")


class _Priority(_Field):
    def __init__(self, expression: str) -> None:
        self._expression = Sql(f"({expression})")

    def plain(self, value: Any) -> Any:
        return _number(value)

    def one_of(self, values: Sequence[Any]) -> Sql:
        return _is_one_of(self._expression, [value for value in values if math.isfinite(value)])

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        return _is_within(self._expression, bounds)

    def exists(self) -> Sql:
        return _sql("{} IS NOT NULL", self._expression)

    def picked(self, function: str) -> Sql:
        return self._expression

    def group(self) -> tuple[Sql, Sql]:
        raise _Mistake("changes all the time; group by another field")


class _Tags(_Field):
    def one_of(self, values: Sequence[Any]) -> Sql:
        patterns = [_glob(value) + below for value in values for below in ("", ".*")]
        return self._like(patterns)

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        raise _Mistake("has no order here: tags are a list; use equals, not, contains, in, prefix or exists")

    def contains(self, value: Any) -> Sql:
        return self.one_of([value])

    def prefix(self, value: Any) -> Sql:
        return self._like([_glob(value) + "*"])

    def exists(self) -> Sql:
        return self._like(["*"])

    def picked(self, function: str) -> Sql:
        if function == "AVG":
            raise _Mistake("is a list of texts, of which there is no average")
        return Sql(f"(SELECT {function}(t.tag) FROM tags t WHERE t.memory = m.key)")

    def group(self) -> tuple[Sql, Sql]:
        return Sql("g.tag"), Sql("LEFT JOIN tags g ON g.memory = m.key")

    def _like(self, patterns: Sequence[str]) -> Sql:
        tags = "SELECT 1 FROM tags t JOIN json_each({}) p WHERE t.memory = m.key AND t.tag GLOB p.value"
        return _sql(f"EXISTS ({tags})", _bound(json.dumps(patterns)))


# A record with .nan or .inf is no JSON to SQLite, which would stop the whole query.
_DATA = Sql("iif(json_valid(m.data), m.data, '{}')")
_IS_NUMBER = "{} IN ('integer', 'real')"
_T = TypeVar("_T")
_Test: TypeAlias = "Callable[[Sql, Sql], Sql]"  # of a type and a value in JSON


class _Node(NamedTuple):
    """A place in the JSON, as SQL."""

    type: Sql
    value: Sql
    items: Sql


class _Json(_Field):
    """A dotted path into the record."""

    def __init__(self, field: str) -> None:
        self._parts = field.split(".")
        if not field or "" in self._parts:
            raise _Mistake("has an empty name between its dots" if field else "is empty")
        if len(self._parts) > _PART_CAP:
            raise _Mistake(f"has {len(self._parts)} parts; at most {_PART_CAP} are possible")

    def plain(self, value: Any) -> Any:
        if isinstance(value, bool):
            return value
        if isinstance(value, datetime):
            return render_time(_aware(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, str):
            return _text(value)
        if isinstance(value, (int, float)):
            return _number(value)
        raise _Mistake(f"must be a text, a number, true, false, null or a time, not {_shown(value)}")

    def one_of(self, values: Sequence[Any]) -> Sql:
        test = _equals_one_of(values)
        return self._holds(lambda node: _case(node, item=test, scalar=test))

    def within(self, bounds: Sequence[tuple[str, Any]]) -> Sql:
        values = [value for _, value in bounds]
        if any(isinstance(value, bool) for value in values):
            raise _Mistake("must be a number, a text or a time, which have an order")
        if len({isinstance(value, str) for value in values}) > 1:
            raise _Mistake("must be two numbers or two texts")
        of_type = "{} = 'text'" if isinstance(values[0], str) else _IS_NUMBER

        def test(type_: Sql, value: Sql) -> Sql:
            return _joined("AND", [_sql(of_type, type_), _is_within(value, bounds)])

        return self._holds(lambda node: _case(node, item=test, scalar=test))

    def contains(self, value: Any) -> Sql:
        item = _equals_one_of([value])
        if not isinstance(value, str):
            return self._holds(lambda node: _case(node, item=item))
        scalar = _like(f"*{_glob(value)}*")
        key = _sql("n.key = {}", _bound(value))
        return self._holds(lambda node: _case(node, item=item, scalar=scalar, key=key))

    def prefix(self, value: Any) -> Sql:
        test = _like(f"{_glob(value)}*")
        return self._holds(lambda node: _case(node, item=test, scalar=test))

    def exists(self) -> Sql:
        return self._holds(lambda node: _sql("COALESCE({}, 'null') <> 'null'", node.type))

    def picked(self, function: str) -> Sql:
        types = "('integer', 'real')" if function == "AVG" else "('integer', 'real', 'text', 'true', 'false')"

        def one(node: _Node) -> Sql:
            of_list = f"(SELECT {function}(n.atom) FROM {{}} n WHERE n.type IN {types})"
            case = f"CASE WHEN {{}} = 'array' THEN {of_list} WHEN {{}} IN {types} THEN {{}} END"
            return _sql(case, node.type, node.items, node.type, node.value)

        node = self._node()
        through = _sql(f"(SELECT {function}({{}}) FROM {{}})", one(_STEP), self._way())
        if node is None:
            return through
        return _sql("CASE WHEN {} THEN {} ELSE {} END", self._has_list_on_the_way(), through, one(node))

    def group(self) -> tuple[Sql, Sql]:
        # Each value once, so that a list that repeats itself does not count twice.
        value = "CASE WHEN n.type IN ('true', 'false') THEN n.type ELSE n.atom END"
        way = self._way(_LEAVES)
        found = _sql(f"SELECT json_group_array(DISTINCT {value}) FROM {{}} AND n.atom IS NOT NULL", way)
        return Sql("g.value"), _sql("LEFT JOIN json_each(({})) g", found)

    def _holds(self, test: Callable[[_Node], Sql]) -> Sql:
        """That the test holds in the place, or, with lists on the way to it, in any of the places."""
        node = self._node()
        anywhere = _sql("EXISTS (SELECT 1 FROM {} AND {})", self._way(), test(_STEP))
        if node is None:
            return anywhere
        if len(self._parts) == 1:
            return test(node)
        return _sql("CASE WHEN {} THEN {} ELSE {} END", self._has_list_on_the_way(), anywhere, test(node))

    def _node(self) -> _Node | None:
        """The place by its path: fast. None where a name holds what versions of SQLite quote in different ways, or not at all."""
        if any(_NOT_IN_A_PATH.search(part) for part in self._parts):
            return None
        path = _bound(_path(self._parts))
        return _Node(*(_sql(f"{name}({{}}, {{}})", _DATA, path) for name in ("json_type", "json_extract", "json_each")))

    def _has_list_on_the_way(self) -> Sql:
        ways = [_path(self._parts[:length]) for length in range(1, len(self._parts))]
        types = [_sql("json_type({}, {})", _DATA, _bound(way)) for way in ways]
        return _sql("'array' IN {}", _joined(",", types)) if types else Sql("0")

    def _way(self, *more: str) -> Sql:
        """The place as the row `k` of a join, step by step through mappings and the items of lists."""
        aliases = [f"k{number}" for number in range(len(self._parts) - 1)] + ["k"]
        steps = [step for above, here in itertools.pairwise(aliases) for step in _step(above, here)]
        first = _sql(f"json_each({{}}) {aliases[0]}", _DATA)
        keys = [_sql(f"{alias}.key = {{}}", _bound(part)) for alias, part in zip(aliases, self._parts, strict=True)]
        return _sql("{} WHERE {}", _sql(" JOIN ".join(["{}", *steps, *more]), first), _joined("AND", keys))


_STEP = _Node(Sql("k.type"), Sql("k.value"), Sql("json_each(k.value)"))
_LEAVES = (
    "json_each(CASE k.type WHEN 'array' THEN k.value WHEN 'object' THEN '[]' WHEN 'true' THEN '[true]' WHEN 'false' THEN '[false]'"
    " ELSE json_array(k.value) END) n"
)
_NOT_IN_A_PATH = re.compile(r'["\\\x00-\x1f]')


def _path(parts: Sequence[str]) -> str:
    return "$" + "".join(f'."{part}"' for part in parts)


def _step(above: str, here: str) -> tuple[str, str]:
    """From one row of the way to the next: the mapping, or each item of the list, and then its members."""
    things = f"CASE {above}.type WHEN 'array' THEN {above}.value WHEN 'object' THEN '[' || {above}.value || ']' ELSE '[]' END"
    return f"json_each({things}) {above}i", f"json_each(CASE {above}i.type WHEN 'object' THEN {above}i.value END) {here}"


def _case(node: _Node, *, item: _Test, scalar: _Test | None = None, key: Sql | None = None) -> Sql:
    """One test for the items of a list, one for a single value, one for the keys of a mapping."""
    return _sql(
        "CASE {} WHEN 'array' THEN EXISTS (SELECT 1 FROM {} n WHERE {}) WHEN 'object' THEN {} ELSE {} END",
        node.type,
        node.items,
        item(Sql("n.type"), Sql("n.atom")),
        _sql("EXISTS (SELECT 1 FROM {} n WHERE {})", node.items, key) if key else Sql("0"),
        scalar(node.type, node.value) if scalar else Sql("0"),
    )


def _equals_one_of(values: Sequence[Any]) -> _Test:
    truths = sorted({"true" if value else "false" for value in values if isinstance(value, bool)})
    texts = [value for value in values if isinstance(value, str)]
    # Nothing in JSON is infinite.
    numbers = [value for value in values if not isinstance(value, (bool, str)) and math.isfinite(value)]

    def test(type_: Sql, value: Sql) -> Sql:
        tests = [_is_one_of(type_, truths)] if truths else []
        tests += [_joined("AND", [_sql("{} = 'text'", type_), _is_one_of(value, texts)])] if texts else []
        tests += [_joined("AND", [_sql(_IS_NUMBER, type_), _is_one_of(value, numbers)])] if numbers else []
        return _some(tests)

    return test


def _like(pattern: str) -> _Test:
    return lambda type_, value: _joined("AND", [_sql("{} = 'text'", type_), _is_like(value, pattern)])


def _some(tests: Sequence[Sql]) -> Sql:
    return _joined("OR", tests) if tests else Sql("0")


# Values.


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Mistake(f"must be a text, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Mistake("holds a lone surrogate, which is no character") from None
    if "\0" in value:
        raise _Mistake("holds the character U+0000, at which SQLite ends a text")
    return str.__str__(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise _Mistake(f"must be a number, not {_shown(value)}")
    if isinstance(value, int) and abs(value) <= _INTEGER_CAP:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        raise _Mistake("is too large a number") from None


def _aware(value: Any) -> datetime:
    wanted = 'must be a time such as "2026-01-11T14:30:00Z" or "2026-01-11"'
    try:
        if isinstance(value, str):
            return parse_time(_text(value))
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _Mistake(f"{wanted}, not {_shown(value)} ({error})") from None
    raise _Mistake(f"{wanted}, not {_shown(value)}{' without a zone' if isinstance(value, datetime) else ''}")


# Reading the specification.


class _Reader:
    """Reads each part of a specification, and notes what is wrong with it and where."""

    def __init__(self, priority: str) -> None:
        self.problems: list[str] = []
        self._unproven: dict[str, None] = {}
        number = _Priority(priority)
        actor = _TextColumn("m.actor")
        self._columns: dict[str, _Field] = {
            "id": _TextColumn("m.id"), "type": _TextColumn("m.type", _TYPE_NAMES), "session": _TextColumn("m.scope"),
            "timestamp": _Time(), "text": _TextColumn("m.text"), "agent": actor, "actor": actor, "tags": _Tags(),
            "priority": number, "decay.priority": number,
        }  # fmt: skip

    def read(self, spec: Mapping[str, Any]) -> Specification:
        if "includeRelated" in spec:
            if "include_related" in spec:
                self.problems.append("include_related is given twice, also as includeRelated")
            spec = {**spec, "include_related": spec["includeRelated"]}
            del spec["includeRelated"]
        self._check_keys(spec, _KEYS, "")
        conditions = self._entries(spec, "filters", self._condition)
        order = self._entries(spec, "sort", self._order)
        aggregations = self._entries(spec, "aggregations", self._aggregation)
        names = [str(aggregation.name) for aggregation in aggregations]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.problems.append(f"aggregations has two called {_shown(name)}; give one another 'name'")
        limit, offset = self._amount(spec, "limit"), self._amount(spec, "offset") or 0
        related = spec.get("include_related")
        if related is not None and not isinstance(related, bool):
            self.problems.append(f"include_related must be true or false, not {_shown(related)}")
        return Specification(
            tuple(conditions), tuple(order), tuple(aggregations), limit, offset, related is True, tuple(self._unproven)
        )  # fmt: skip

    def _entries(self, spec: Mapping[str, Any], name: str, read: Callable[[Mapping[str, Any], str], Any]) -> list[Any]:
        entries = spec.get(name)
        if entries is None:
            return []
        if not isinstance(entries, (list, tuple)):
            self.problems.append(f"{name} must be a list of mappings, not {_shown(entries)}")
            return []
        if len(entries) > _ENTRY_CAP:
            self.problems.append(f"{name} may have {_ENTRY_CAP} entries, not {len(entries):,}")
            return []
        found = [self._entry(entry, f"{name}[{number}]", read) for number, entry in enumerate(entries)]
        return [entry for entry in found if entry is not None]

    def _entry(self, entry: Any, where: str, read: Callable[[Mapping[str, Any], str], Any]) -> Any:
        if not isinstance(entry, Mapping):
            self.problems.append(f"{where} must be a mapping, not {_shown(entry)}")
            return None
        return read(entry, where)

    def _condition(self, entry: Mapping[str, Any], where: str) -> Sql | None:
        self._check_keys(entry, ("field", "operator", "value"), where)
        operator = self._choice(entry, "operator", _OPERATOR_NAMES, _OPERATORS, where)
        field = self._field(entry, "field", where, proven=operator == "exists")
        if operator is None or field is None:
            return None
        if "value" not in entry and operator != "exists":
            self.problems.append(f"{where}.value is missing")
            return None
        return self._tried(f"{where}.value", lambda: _condition(field, operator, entry.get("value", True)))

    def _order(self, entry: Mapping[str, Any], where: str) -> Sql | None:
        self._check_keys(entry, ("field", "direction"), where)
        field = self._field(entry, "field", where)
        ways = {"asc": "ASC", "desc": "DESC"}
        direction = self._choice({"direction": "asc", **entry}, "direction", ways, tuple(ways), where)
        if field is None or direction is None:
            return None
        # A list goes where the item is that comes first.
        return _sql(f"{{}} {direction} NULLS LAST", field.picked("MIN" if direction == "ASC" else "MAX"))

    def _aggregation(self, entry: Mapping[str, Any], where: str) -> Aggregation | None:
        self._check_keys(entry, ("function", "type", "field", "by", "name"), where)
        if "function" in entry and "type" in entry:
            self.problems.append(f"{where} has both a function and a type, which are the same")
        key = "type" if "type" in entry else "function"
        function = self._choice(entry, key, {**{name: name for name in _FUNCTIONS}, "avg": "average"}, tuple(_FUNCTIONS), where)
        over, by, name = (entry.get(key) for key in ("field", "by", "name"))
        field = None if over is None else self._field(entry, "field", where)
        group = None if by is None else self._field(entry, "by", where)
        if not isinstance(name, str | None):
            self.problems.append(f"{where}.name must be a text, not {_shown(name)}")
        if function is None or (over is not None and field is None) or (by is not None and group is None):
            return None
        if field is None and function != "count":
            self.problems.append(f"{where}.field is missing: what to take the {function} of")
        value = self._tried(f"{where}.field", lambda: _figure(function, field)) or Sql("NULL")
        grouping = self._tried(f"{where}.by", group.group) if group else None
        by_value, joins = grouping or (None, Sql(""))
        name = name or "_".join(part for part in (function, over, by and f"by_{by}") if part)
        is_time = field is not None and field.is_time and function != "count"
        return Aggregation(name, function, over, by, value, by_value, joins, is_time)

    def _field(self, entry: Mapping[str, Any], key: str, where: str, *, proven: bool = False) -> _Field | None:
        if key not in entry:
            self.problems.append(f"{where}.{key} is missing")
            return None
        return self._tried(f"{where}.{key}", lambda: self._resolved(entry[key], proven=proven))

    def _resolved(self, name: Any, *, proven: bool) -> _Field:
        name = _text(name)
        if name in self._columns:
            return self._columns[name]
        field = _Json(name)
        if not proven and name not in _DOCUMENTED:
            self._unproven[name] = None
        return field

    def _choice(
        self, entry: Mapping[str, Any], key: str, meanings: Mapping[str, str], shown: Sequence[str], where: str
    ) -> str | None:
        """What the word means; in snake_case, camelCase or any other case."""
        if key not in entry:
            self.problems.append(f"{where}.{key} is missing; it is one of {_listed(shown)}")
            return None
        word = entry[key]
        meaning = meanings.get(word.replace("_", "").lower()) if isinstance(word, str) else None
        if meaning is None:
            self.problems.append(f"{where}.{key} {_shown(word)} is not known{_hint(word, shown)}; it is one of {_listed(shown)}")
        return meaning

    def _amount(self, spec: Mapping[str, Any], name: str) -> int | None:
        amount = spec.get(name)
        if amount is None:
            return None
        if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
            self.problems.append(f"{name} must be a whole number from 0, not {_shown(amount)}")
            return None
        return min(int(amount), _INTEGER_CAP)

    def _check_keys(self, entry: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
        for key in entry:
            if key not in keys:
                place = f" of {where}" if where else ""
                self.problems.append(f"the key {_shown(key)}{place} is not known{_hint(key, keys)}; keys are {_listed(keys)}")

    def _tried(self, where: str, make: Callable[[], _T]) -> _T | None:
        try:
            return make()
        except _Mistake as mistake:
            self.problems.append(f"{where} {mistake}")
            return None


def _condition(field: _Field, operator: str, value: Any) -> Sql:
    if operator == "exists":
        if not isinstance(value, bool):
            raise _Mistake(f"must be true or false, not {_shown(value)}")
        return field.exists() if value else _not(field.exists())
    if operator in _BOUNDS:
        symbols = _BOUNDS[operator]
        values = [value] if len(symbols) == 1 else _pair(value)
        return field.within([(symbol, _given(field, item)) for symbol, item in zip(symbols, values, strict=True)])
    if operator in ("contains", "prefix"):
        value = _given(field, value)
        return field.contains(value) if operator == "contains" else field.prefix(value)
    if operator == "equals" and isinstance(value, (list, tuple, set, frozenset)):
        raise _Mistake(f"must be a single value, not {_shown(value)}; operator 'in' takes a list")
    if operator == "in" and not isinstance(value, (list, tuple, set, frozenset)):
        raise _Mistake(f"must be a list, not {_shown(value)}; operator 'equals' takes a single value")
    values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
    tests = [field.one_of(some)] if (some := [field.plain(item) for item in values if item is not None]) else []
    tests += [_not(field.exists())] if any(item is None for item in values) else []
    return _not(_some(tests)) if operator == "not" else _some(tests)


def _not(test: Sql) -> Sql:
    # Of a field that is absent, the test is null rather than false.
    return _sql("({}) IS NOT TRUE", test)


def _given(field: _Field, value: Any) -> Any:
    if value is None:
        raise _Mistake("must not be null")
    return field.plain(value)


def _pair(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise _Mistake(f"must be a list of two values, the lower and the upper bound, not {_shown(value)}")
    return value


def _figure(function: str, field: _Field | None) -> Sql:
    if field is None:
        return Sql("COUNT(*)")
    if function == "count":
        return _sql("COUNT(CASE WHEN {} THEN 1 END)", field.exists())
    return _sql(f"{_FUNCTIONS[function]}({{}})", field.picked(_FUNCTIONS[function]))


# Messages.


def _hint(word: Any, words: Iterable[str]) -> str:
    close = difflib.get_close_matches(word[:_PATTERN_CAP_CHARACTERS], list(words), cutoff=0.5) if isinstance(word, str) else []
    return f" (did you mean {' or '.join(repr(name) for name in close)}?)" if close else ""


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _shown(value: Any) -> str:
    """The value as it may stand in a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Python refuses to write out a number of thousands of digits, or lists in lists in lists.
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else f"{text[:80]}…"
