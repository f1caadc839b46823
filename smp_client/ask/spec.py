"""The query specification: filters, sorting and aggregations over any field of a memory.

A field is a column, or a path of names in the record such as `resolution.status`. SQLite finds the
memories by type, session, tags and time, and Python looks at the rest.

- Null and an empty list count as absent. `not` also matches memories without the field.
- A list on the way to a field, or at its end, is looked through: some item must fit.
- A number is compared with numbers and a text with texts. True counts as 1.
- A date in a condition on `timestamp` is its whole day: `greaterThan` a day is after its end.
- `contains` asks for a part of a text, in any case.
- A tag matches itself and the tags below it: `security` also `security.authentication`.
- Two words for one severity are equal, and the more severe is the greater; see model/record.py.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..disk.place import archived_scope
from ..index.mentions import TAG
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.layout import ARCHIVED
from ..model.nearest import did_you_mean
from ..model.quotation import shown
from ..model.record import SEVERITY_WORDS, name_of, severity_rank, type_of
from ..model.times import microseconds, render_time, time_at
from .argument import moment, sayable
from .engine import of_keys, records, where
from .options import NEWEST, Answer, Wanted, one_of, type_named, type_problem
from .priorities import View, source
from .related import related_to_all
from .unknown import unknown_fields

_ENTRY_CAP = 100
_KEYS = ("filters", "sort", "aggregations", "limit", "offset", "include_related")
_OTHER_NAMES = {"includeRelated": "include_related"}
_BOUNDS = {
    "greaterThan": (">", operator.gt), "greaterOrEqual": (">=", operator.ge),
    "lessThan": ("<", operator.lt), "lessOrEqual": ("<=", operator.le),
}  # fmt: skip
_OPERATORS = ("equals", "not", "in", "contains", "exists", *_BOUNDS)
_PRIORITY = ("priority", "decay.priority")
_COLUMNS = {
    "id": "m.id", "type": "m.type", "text": "m.text", "agent": "m.actor", "timestamp": "m.at",
    "session": f"REPLACE(m.scope, '{ARCHIVED}/', '')",
    "tags": "(SELECT json_group_array(t.topic) FROM topics t"
    f" WHERE t.memory = m.key AND t.how = {TAG})",
}  # fmt: skip

_FUNCTIONS = ("count", "avg", "min", "max", "sum")

Test = Callable[[Sequence[Any]], bool]  # of the values that a memory has for a field


class Aggregation(NamedTuple):
    name: str
    function: str
    field: str  # empty for a count
    by: str  # the field whose values make groups; empty for one group of all


def ask(view: View, specification: Mapping[str, Any], options: Wanted) -> Answer:
    """Return the answer to a query specification. Raise InvalidQuery with the place of a mistake.

    The options narrow it down, and have its limit and offset.
    """
    if not isinstance(specification, Mapping):
        said = f"A query is a mapping with {', '.join(_KEYS)}"
        raise InvalidQuery(f"{said}, not {shown(specification)}.")
    spec = {_OTHER_NAMES.get(key, key): value for key, value in specification.items()}
    _check_keys("the query", spec, _KEYS)
    want, tests = _filters(spec, view.now, options)
    sort: list[tuple[str, bool]] = []  # a field, and whether the greatest comes first
    for place, field, entry in _entries(spec, "sort", "field", "direction"):
        direction = str(entry.get("direction", "asc")).lower()
        _require(direction in ("asc", "desc"), f"{place}.direction must be asc or desc")
        sort.append((field, direction == "desc"))
    aggregations = list(_aggregations(spec))
    related = spec.get("include_related") or False
    _require(isinstance(related, bool), "include_related must be true or false")
    named = [*(field for field, _ in tests), *(field for field, _ in sort)]
    grouped = [name for one in aggregations for name in (one.by, one.field) if name]
    fields = list(dict.fromkeys([*named, *grouped]))
    condition, given = where(view, want._replace(limit=None))
    table, columns = source(view)
    if want.min_priority is not None:
        condition += f" AND {columns.priority} >= {float(want.min_priority)}"
    elif not {*_PRIORITY} & {*fields}:
        table = "FROM memories m"
    by_name = {**_COLUMNS, **dict.fromkeys(_PRIORITY, columns.priority)}
    chosen = ", ".join(["m.key", *(by_name.get(field, "m.data") for field in fields)])
    # SQLite ends a list of the latest by itself.
    is_latest = not tests and not aggregations and sort in ([], [("timestamp", True)])
    order = f"{NEWEST} LIMIT {want.end}" if is_latest and want.end is not None else NEWEST
    rows = view.index.execute(f"SELECT {chosen} {table} WHERE {condition} ORDER BY {order}", given)
    found: list[dict[str, Any]] = []  # the values of each field
    absent = {field for field in fields if field not in by_name}
    for key, *stored in rows:
        memory = {field: _values(field, one) for field, one in zip(fields, stored, strict=True)}
        absent -= {field for field in absent if memory[field]}
        if all(fits(memory[field]) for field, fits in tests):
            found.append({**memory, "": key})
    for field, is_down in reversed(sort):
        # By the first value. Memories without the field come last, whichever way it goes.
        found.sort(
            key=lambda one: (bool(one[field]) == is_down, [_key(v, field) for v in one[field][:1]]),
            reverse=is_down,
        )
    keys = [one[""] for one in found[want.offset : want.end]]
    by_key = records(view, of_keys(keys))
    answer = Answer([by_key[key].shown(score=None) for key in keys])
    answer.total = None if is_latest and want.end is not None else len(found)
    answer.aggregations = {one.name: _aggregated(one, found) for one in aggregations}
    if absent:
        answer.add_notes(unknown_fields(view, [one for one in fields if one in absent]))
    answer.related = related_to_all(view, answer) if related else []
    return answer


# Reading a specification.


def _filters(
    spec: Mapping[str, Any], now: datetime, want: Wanted
) -> tuple[Wanted, list[tuple[str, Test]]]:
    """Return the wish with the filters that SQLite answers, and the others with their fields."""
    tests: list[tuple[str, Test]] = []
    for place, field, entry in _entries(spec, "filters", "field", "operator", "value"):
        name = str(entry.get("operator"))
        known = ", ".join(_OPERATORS)
        said = f"{shown(name)}{did_you_mean(name, _OPERATORS)}"
        _require(name in _OPERATORS, f"{place}.operator must be one of {known}, not {said}")
        value: Any = entry.get("value", True if name == "exists" else None)
        is_list, place = isinstance(value, (list, tuple, set, frozenset)), f"{place}.value"
        is_right = name != "in" or (is_list and len(value) <= _ENTRY_CAP)
        _require(is_right, f"{place} must be a list of at most {_ENTRY_CAP} values")
        is_right = name != "exists" or isinstance(value, bool)
        _require(is_right, f"{place} must be true or false, not {shown(value)}")
        several = value if is_list and name in ("in", "not") else [value]
        given = several if name == "exists" else [_plain(place, field, v, now) for v in several]
        is_among = name in ("equals", "in")
        if is_among and field == "type":
            want = want.also(one_of("m.type", [name_of(type) for type in given]))
        elif is_among and field == "session":
            scopes = [form for session in given for form in (session, archived_scope(session))]
            want = want.also(one_of("m.scope", scopes))
        elif (is_among or name == "contains") and field == "tags":
            want = want._replace(tags=(*want.tags, tuple(given)))
        elif field == "timestamp" and name != "exists":
            want = want.also(_at(name, given))
        else:
            tests.append((field, _test(field, name, given)))
    return want, tests


def _at(name: str, spans: Sequence[tuple[int, int]]) -> Sql:
    """Return the condition that an operator makes on the time of a memory: spans are included."""
    first, last = spans[0]
    bounds = {
        "greaterThan": Sql("m.at > ?", (last,)),
        "greaterOrEqual": Sql("m.at >= ?", (first,)),
        "lessThan": Sql("m.at < ?", (first,)),
        "lessOrEqual": Sql("m.at <= ?", (last,)),
    }
    if name in bounds:
        return bounds[name]
    within = Sql.joined(" OR ", (Sql("m.at BETWEEN ? AND ?", span) for span in spans))
    return within.wrapped("m.at IS NULL OR NOT ({})") if name == "not" else within


def _aggregations(spec: Mapping[str, Any]) -> Iterator[Aggregation]:
    """Yield the aggregations of a specification."""
    for place, by, entry in _entries(spec, "aggregations", "by", "function", "field", "name"):
        function = entry.get("function")
        is_known = isinstance(function, str) and function in _FUNCTIONS
        near = did_you_mean(str(function), _FUNCTIONS)
        _require(is_known, f"{place}.function must be {', '.join(_FUNCTIONS)}{near}")
        field = entry.get("field")
        is_right = isinstance(field, str) and field != ""
        if function == "count":
            _require(field is None, f"{place}.field has no sense for count; by says the groups")
        else:
            _require(is_right, f"{place}.field must be a text, not {shown(field)}")
        parts = [str(function), *([str(field)] if field else []), *(["by", by] if by else [])]
        name = str(entry.get("name") or "_".join(parts))
        yield Aggregation(name, str(function), str(field or ""), by)


def _require(is_right: bool, said: str) -> None:
    if not is_right:
        raise InvalidQuery(f"{said}.")


def _entries(
    spec: Mapping[str, Any], part: str, field: str, *keys: str
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the place of each entry of a part, its field, and the entry."""
    entries = spec.get(part) or []
    is_right = isinstance(entries, (list, tuple)) and len(entries) <= _ENTRY_CAP
    _require(is_right, f"{part} must be a list of at most {_ENTRY_CAP} mappings")
    for number, entry in enumerate(entries):
        place = f"{part}[{number}]"
        _require(isinstance(entry, Mapping), f"{place} must be a mapping, not {shown(entry)}")
        _check_keys(place, entry, (field, *keys))
        name = entry.get(field, "" if field == "by" else None)
        is_right = isinstance(name, str) and (name != "" or field == "by")
        _require(is_right, f"{place}.{field} must be a text, not {shown(name)}")
        yield place, name, entry


def _check_keys(place: str, entry: Mapping[Any, Any], keys: Sequence[str]) -> None:
    for key in entry:
        near = did_you_mean(str(key), keys)
        known = ", ".join(keys)
        _require(key in keys, f"{place} has no key {shown(key)}{near}; keys are {known}")


def _plain(place: str, field: str, value: Any, now: datetime) -> Any:
    """Return a value as it is compared with those of the field."""
    if field == "timestamp":
        try:
            begin = moment(value, now)
            return microseconds(begin), microseconds(moment(value, now, end=True))
        except (ValueError, OverflowError) as error:
            raise InvalidQuery(f"{place}: {error}.") from None
    is_plain = isinstance(value, str if field in _COLUMNS else bool | int | float | str)
    right = "a text" if field in _COLUMNS else "a text, a number or a truth"
    _require(is_plain, f"{place} must be {right}, not {shown(value)}")
    if field == "type":
        name = type_named(value)
        problem = type_problem(name)
        _require(problem is None, f"{place}: {problem}")
        return name
    return sayable(value).lower() if field == "tags" else value


def _test(field: str, name: str, given: Sequence[Any]) -> Test:
    """Return the test of an operator that compares the values of a field with given ones."""
    if name == "exists":
        return lambda values: bool(values) == given[0]
    keys = [_key(one, field) for one in given]
    if name in _BOUNDS:
        compare, (sort, bound) = _BOUNDS[name][1], keys[0]

        def is_within(value: Any) -> bool:
            key = _key(value, field)
            return key[0] == sort and bool(compare(key[1], bound))

        return lambda values: any(map(is_within, values))
    if name == "contains":
        part = str(given[0]).lower()
        return lambda values: any(
            part in value.lower() if isinstance(value, str) else _key(value) in keys
            for value in values
        )
    if field == "tags":
        tags = tuple(f"{tag}." for tag in given)
        return lambda values: not any(f"{value}.".startswith(tags) for value in values)
    return lambda values: any(_key(one, field) in keys for one in values) == (name != "not")


# The values of memories.


def _values(field: str, stored: Any) -> list[Any]:
    """Return the values of a field, each item of a list; none where it is absent."""
    if field == "tags":
        return list(json.loads(stored))
    if field in _COLUMNS or field in _PRIORITY:
        return [type_of(stored) if field == "type" else stored] if stored not in (None, "") else []
    names = field.split(".")
    # The index has the JSON as Python writes it: without the name there is nothing to look at.
    if json.dumps(names[-1], ensure_ascii=False) not in stored:
        return []
    found = [json.loads(stored)]
    for name in names:
        inner = [one[name] for one in found if isinstance(one, dict) and name in one]
        found = [item for one in inner for item in (one if isinstance(one, list) else [one])]
    return [value for value in found if value is not None]


def _key(value: Any, field: str = "") -> tuple[int, Any]:
    """Return a value so that it is equal only to one of its sort, and can be sorted."""
    if isinstance(value, (int, float)):
        return 0, value
    if field == "severity" and value in SEVERITY_WORDS:
        return 0, -severity_rank(value)
    return (1, value) if isinstance(value, str) else (2, None)


def _aggregated(one: Aggregation, memories: Sequence[Mapping[str, Sequence[Any]]]) -> Any:
    """Return an aggregation of all memories, or of those with each value of a field."""
    if not one.by:
        return _value(one, memories)
    groups: dict[Any, list[Mapping[str, Sequence[Any]]]] = {}
    for memory in memories:
        values = [value for value in memory[one.by] if _key(value)[0] < 2]
        if one.by == "timestamp":
            values = [str(time_at(at))[:10] for at in values]
        for value in dict.fromkeys(values) or [None]:
            groups.setdefault(value, []).append(memory)
    return {value: _value(one, some) for value, some in groups.items()}


def _value(one: Aggregation, memories: Sequence[Mapping[str, Sequence[Any]]]) -> Any:
    """Return how many memories there are, or a number of their field; None if none has one.

    The least and the greatest of texts are texts. Times are given as texts.
    """
    if one.function == "count":
        return len(memories)
    values = [value for memory in memories for value in memory[one.field]]
    if one.function in ("min", "max"):
        plain = [value for value in values if _key(value, one.field)[0] < 2]
        choose = min if one.function == "min" else max
        chosen = choose(plain, key=lambda value: _key(value, one.field), default=None)
        time = time_at(chosen) if one.field == "timestamp" else None
        return render_time(time) if time else chosen
    numbers = [value for value in values if isinstance(value, (int, float))]
    if one.function == "sum":
        return sum(numbers)
    return sum(numbers) / len(numbers) if numbers else None
