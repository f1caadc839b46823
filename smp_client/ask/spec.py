"""The query specification: checked, with every problem at once, and turned into SQL.

No text of the caller becomes SQL: names and values are bound as parameters, operators and
directions are looked up. The operators mean one thing for every field:

- `equals`, `in` and `contains` on a list ask for such an item; `contains` in a text is a part of
  it, in a mapping a key.
- `contains` in a text, `prefix` and tags do not tell upper from lower case; everything else does.
- A tag matches itself and tags below it: `security` also `security.authentication`.
- Two words for one severity are equal, and the more severe is the greater; see severity.py.
- A number is compared with numbers and a text with texts; true is not 1.
- `exists` and null: a field that is null, or an empty text of a column, counts as absent.
- `not` is the opposite of `equals`, or of `in` when given a list: it also matches what is absent.
- A date is its first moment after `greaterThan`, `greaterOrEqual` and `lessThan`, and a whole day
  (UTC) in every other place.
- A list on the way to a field is looked through: `alternatives_considered.option`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..index.sql import Sql, compose, negated, some
from ..model.errors import InvalidQuery
from .fields import INTEGER_CAP, Field, Mistake, columns, shown, text_of
from .json_field import JsonField, SeverityField

_ENTRY_CAP = 100  # SQLite takes no expression deeper than 1,000 and no more than 32,766 parameters
_PROBLEM_CAP = 20
_HINT_CAP_CHARACTERS = 100
_T = TypeVar("_T")

# The fields that records of each kind may have, and those that SMP itself writes.
_DOCUMENTED = frozenset(
    """
    decay turn_ref created_by content confidence pinned updated_at memory_refs references turn
    speaker made_by decision rationale agents_involved agreed_by reversible implementation_impact
    alternatives_considered discovered_by severity category finding impact root_cause location
    resolution topic preference context source applies_to learning learned_by pattern target
    relationship agent_id session_id last_updated session_learnings current_context working_memory
    """.split()  # noqa: SIM905 - a text is easier to look through than 40 strings
)
_OPERATORS = (
    "equals", "not", "contains", "in", "greaterThan", "lessThan", "greaterOrEqual", "lessOrEqual",
    "between", "exists", "prefix",
)  # fmt: skip
_OPERATOR_NAMES = {name.lower(): name for name in _OPERATORS} | {
    "notequals": "not", "greaterthanorequal": "greaterOrEqual", "lessthanorequal": "lessOrEqual",
}  # fmt: skip
_BOUNDS = {
    "greaterThan": (">",), "lessThan": ("<",), "greaterOrEqual": (">=",), "lessOrEqual": ("<=",),
    "between": (">=", "<="),
}  # fmt: skip
_FUNCTIONS = {"count": "COUNT", "min": "MIN", "max": "MAX", "average": "AVG"}
_KEYS = ("filters", "sort", "aggregations", "limit", "offset", "include_related")


@dataclass(frozen=True)
class Aggregation:
    """A figure over all memories that match, or one for each value of the field `by`."""

    name: str
    by: str | None
    value: Sql
    group: Sql | None
    joins: Sql
    is_time: bool  # the value is in microseconds since 1970

    def statement(self, where: Sql, source: Sql) -> Sql:
        """Return a query for rows of (group, value); without `by` one row of the group None."""
        group = self.group or Sql("NULL")
        tail = " GROUP BY 1 ORDER BY 1 NULLS LAST" if self.group else ""
        template = f"SELECT {{}}, {{}} FROM {{}} {{}} WHERE {{}}{tail}"
        return compose(template, group, self.value, source, self.joins, where)


@dataclass(frozen=True)
class Specification:
    conditions: tuple[Sql, ...]  # all of them must hold
    order: tuple[Sql, ...]  # terms of ORDER BY, absent values last; the caller appends a tie-break
    aggregations: tuple[Aggregation, ...]
    limit: int | None
    offset: int
    include_related: bool
    unproven_fields: tuple[str, ...]  # the caller sees whether any memory has them


def understand(spec: Mapping[str, Any], priority: str) -> Specification:
    """Read a specification. Raise InvalidQuery with all that is wrong.

    `priority` is SQL over `m` for the priority as of now.
    """
    if not isinstance(spec, Mapping):
        raise InvalidQuery(f"A query is a mapping with {', '.join(_KEYS)}, not {shown(spec)}.")
    reader = _Reader(priority)
    found = reader.read(spec)
    if reader.problems:
        more = len(reader.problems) - _PROBLEM_CAP
        listed = reader.problems[:_PROBLEM_CAP] + ([f"and {more} more"] if more > 0 else [])
        raise InvalidQuery("; ".join(listed) + ".")
    return found


def has_field(field: str) -> Sql:
    """Return the condition that a memory has this one of `unproven_fields`."""
    return JsonField(field).exists()


def unknown_field(field: str, occurring: Iterable[str]) -> InvalidQuery:
    """Return the error for a field that no memory has; `occurring` are fields that some have."""
    names = dict.fromkeys((*columns(""), *sorted(_DOCUMENTED), *occurring))
    known = ", ".join(names)
    hint = _hint(field, names)
    return InvalidQuery(f"No memory here has a field {shown(field)}{hint}; fields are {known}.")


class _Reader:
    """Reads each part of a specification, and notes the problems with their places."""

    def __init__(self, priority: str) -> None:
        self.problems: list[str] = []
        self._unproven: dict[str, None] = {}
        self._columns = columns(priority)

    def read(self, spec: Mapping[str, Any]) -> Specification:
        if "includeRelated" in spec:
            if "include_related" in spec:
                self.problems.append("include_related is given twice, also as includeRelated")
            spec = {**spec, "include_related": spec["includeRelated"]}
            del spec["includeRelated"]
        self._check_keys(spec, _KEYS)
        conditions = self._entries(spec, "filters", self._condition)
        order = self._entries(spec, "sort", self._order)
        aggregations = self._entries(spec, "aggregations", self._aggregation)
        names = [aggregation.name for aggregation in aggregations]
        for name in sorted({name for name in names if names.count(name) > 1}):
            problem = f"aggregations has two called {shown(name)}; give one another 'name'"
            self.problems.append(problem)
        limit, offset = (self._tried(key, _amount, spec.get(key)) for key in ("limit", "offset"))
        related = spec.get("include_related")
        is_related = related is not None and self._tried("include_related", _truth, related)
        return Specification(
            tuple(conditions), tuple(order), tuple(aggregations), limit, offset or 0,
            bool(is_related), tuple(self._unproven),
        )  # fmt: skip

    def _entries(
        self,
        spec: Mapping[str, Any],
        name: str,
        read: Callable[[Mapping[str, Any], str], _T | None],
    ) -> list[_T]:
        entries = self._tried(name, _listed, spec.get(name)) or ()
        found: list[_T] = []
        for number, entry in enumerate(entries):
            where = f"{name}[{number}]"
            if not isinstance(entry, Mapping):
                self.problems.append(f"{where} must be a mapping, not {shown(entry)}")
            elif (one := read(entry, where)) is not None:
                found.append(one)
        return found

    def _condition(self, entry: Mapping[str, Any], where: str) -> Sql | None:
        self._check_keys(entry, ("field", "operator", "value"), where)
        operator = self._choice(entry, "operator", _OPERATOR_NAMES, _OPERATORS, where)
        field = self._field(entry, "field", where, proven=operator == "exists")
        if operator is None or field is None:
            return None
        given = entry if operator != "exists" else {"value": True, **entry}
        if "value" not in given:
            self.problems.append(f"{where}.value is missing")
            return None
        return self._tried(f"{where}.value", _condition, field, operator, given["value"])

    def _order(self, entry: Mapping[str, Any], where: str) -> Sql | None:
        self._check_keys(entry, ("field", "direction"), where)
        field = self._field(entry, "field", where)
        ways = {"asc": "ASC", "desc": "DESC"}
        said = {"direction": "asc", **entry}
        direction = self._choice(said, "direction", ways, tuple(ways), where)
        if field is None or direction is None:
            return None
        # A list goes where the item is that comes first.
        value = field.ordered("MIN" if direction == "ASC" else "MAX")
        return compose(f"{{}} {direction} NULLS LAST", value)

    def _aggregation(self, entry: Mapping[str, Any], where: str) -> Aggregation | None:
        self._check_keys(entry, ("function", "type", "field", "by", "name"), where)
        if "function" in entry and "type" in entry:
            self.problems.append(f"{where} has both a function and a type, which are the same")
        key = "type" if "type" in entry else "function"
        meanings = {**{name: name for name in _FUNCTIONS}, "avg": "average"}
        function = self._choice(entry, key, meanings, tuple(_FUNCTIONS), where)
        over, by, name = (entry.get(key) for key in ("field", "by", "name"))
        field = None if over is None else self._field(entry, "field", where)
        group = None if by is None else self._field(entry, "by", where)
        if not isinstance(name, str | None):
            self.problems.append(f"{where}.name must be a text, not {shown(name)}")
        if function is None or (over and field is None) or (by and group is None):
            return None
        value = self._tried(f"{where}.field", _figure, function, field)
        grouping = self._tried(f"{where}.by", group.group) if group else None
        by_value, joins = grouping or (None, Sql(""))
        parts = (function, over, by and f"by_{by}")
        name = str(name or "_".join(str(part) for part in parts if part))
        is_time = field is not None and field.is_time and function != "count"
        return value and Aggregation(name, by, value, by_value, joins, is_time)

    def _field(
        self, entry: Mapping[str, Any], key: str, where: str, *, proven: bool = False
    ) -> Field | None:
        if key not in entry:
            self.problems.append(f"{where}.{key} is missing")
            return None
        name = self._tried(f"{where}.{key}", text_of, entry[key])
        if name is None or name in self._columns:
            return self._columns.get(name or "")
        if not proven and name.partition(".")[0] not in _DOCUMENTED:
            self._unproven[name] = None
        if name == "severity":
            return SeverityField()
        return self._tried(f"{where}.{key}", JsonField, name)

    def _choice(
        self, entry: Mapping[str, Any], key: str, meanings: Mapping[str, str], words: Sequence[str],
        where: str,
    ) -> str | None:  # fmt: skip
        """Return the meaning of a word; in snake_case, camelCase or any other case."""
        word = entry.get(key)
        meaning = meanings.get(word.replace("_", "").lower()) if isinstance(word, str) else None
        if meaning is None:
            unknown = f"{shown(word)} is not known{_hint(word, words)}"
            problem = unknown if key in entry else "is missing"
            self.problems.append(f"{where}.{key} {problem}; it is one of {', '.join(words)}")
        return meaning

    def _check_keys(self, entry: Mapping[str, Any], keys: Sequence[str], where: str = "") -> None:
        place = f" of {where}" if where else ""
        for key in (key for key in entry if key not in keys):
            known = f"is not known{_hint(key, keys)}; keys are {', '.join(keys)}"
            self.problems.append(f"the key {shown(key)}{place} {known}")

    def _tried(self, where: str, make: Callable[..., _T], *given: Any) -> _T | None:
        try:
            return make(*given)
        except Mistake as mistake:
            self.problems.append(f"{where} {mistake}")
            return None


def _condition(field: Field, operator: str, value: Any) -> Sql:
    if operator == "exists":
        return field.exists() if _truth(value) else negated(field.exists())
    if operator in _BOUNDS:
        symbols = _BOUNDS[operator]
        values = [value] if len(symbols) == 1 else _pair(value)
        bounds = [(symbol, _given(field, one)) for symbol, one in zip(symbols, values, strict=True)]
        return field.within(bounds)
    if operator in ("contains", "prefix"):
        value = _given(field, value)
        return field.contains(value) if operator == "contains" else field.prefix(value)
    is_list = isinstance(value, (list, tuple, set, frozenset))
    if operator == "equals" and is_list:
        raise Mistake(f"must be a single value, not {shown(value)}; operator 'in' takes a list")
    if operator == "in" and not is_list:
        raise Mistake(f"must be a list, not {shown(value)}; operator 'equals' takes a single value")
    values = list(value) if is_list else [value]
    given = [field.plain(item) for item in values if item is not None]
    tests = [field.one_of(given)] if given else []
    tests += [negated(field.exists())] if None in values else []
    return negated(some(tests)) if operator == "not" else some(tests)


def _figure(function: str, field: Field | None) -> Sql:
    if field is None:
        if function != "count":
            raise Mistake(f"is missing: what to take the {function} of")
        return Sql("COUNT(*)")
    if function == "count":
        return compose("COUNT(CASE WHEN {} THEN 1 END)", field.exists())
    return compose(f"{_FUNCTIONS[function]}({{}})", field.picked(_FUNCTIONS[function]))


def _given(field: Field, value: Any) -> Any:
    if value is None:
        raise Mistake("must not be null")
    return field.plain(value)


def _pair(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        bounds = "the lower and the upper bound"
        raise Mistake(f"must be a list of two values, {bounds}, not {shown(value)}")
    return value


def _listed(entries: Any) -> Sequence[Any]:
    if entries is None:
        return ()
    if not isinstance(entries, (list, tuple)):
        raise Mistake(f"must be a list of mappings, not {shown(entries)}")
    if len(entries) > _ENTRY_CAP:
        raise Mistake(f"may have {_ENTRY_CAP} entries, not {len(entries):,}")
    return entries


def _amount(amount: Any) -> int | None:
    if amount is None:
        return None
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise Mistake(f"must be a whole number from 0, not {shown(amount)}")
    return min(int(amount), INTEGER_CAP)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mistake(f"must be true or false, not {shown(value)}")
    return value


def _hint(word: Any, words: Iterable[str]) -> str:
    if not isinstance(word, str):
        return ""
    close = difflib.get_close_matches(word[:_HINT_CAP_CHARACTERS], list(words), cutoff=0.5)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
