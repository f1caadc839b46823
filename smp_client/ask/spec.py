"""The query specification: filters, sorting and counts over any field of a memory.

SQLite finds the memories by type, session, tags and time, and Python looks at the rest. A field is
a column, or a path of names in the record such as `resolution.status`.

- A list on the way to a field, or at its end, is looked through: some item must fit.
- `contains` asks for a part of a text, in any case, an item of a list, or a key of a mapping.
- A tag matches itself and the tags below it: `security` also `security.authentication`.
- Two words for one severity are equal, and the more severe is the greater; see model/record.py.
- A number is compared with numbers and a text with texts; true is not 1.
- A field that is null counts as absent. `not` also matches memories without the field.
- A date is its first moment for `greaterThan`, `greaterOrEqual` and `lessThan`, else a whole day.
"""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from ..disk.scopes import archived_scope
from ..index.mentions import TAG
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.layout import ARCHIVED
from ..model.record import SEVERITY_WORDS, name_of, severity_rank, type_of
from ..model.times import microseconds, render_time, time_at
from .argument import moment, sayable, shown
from .engine import Ranked, of_keys, ranked, read, where
from .options import COUNT_CAP, NEWEST, TYPE_NAMES, Answer, Wanted, one_of
from .priorities import View, source
from .related import related_to_all

_ENTRY_CAP = 100
_KEYS = ("filters", "sort", "aggregations", "limit", "offset", "include_related")
_BOUNDS = {"greaterThan": ">", "lessThan": "<", "greaterOrEqual": ">=", "lessOrEqual": "<="}
_COMPARE = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_OPERATORS = ("equals", "not", "in", "contains", "exists", *_BOUNDS)
_PRIORITY = ("priority", "decay.priority")
_COLUMNS = {
    "id": "m.id", "type": "m.type", "text": "m.text", "agent": "m.actor", "timestamp": "m.at",
    "session": f"REPLACE(m.scope, '{ARCHIVED}/', '')",
    "tags": "(SELECT json_group_array(t.topic) FROM topics t"
    f" WHERE t.memory = m.key AND t.how = {TAG})",
}  # fmt: skip

Values = Sequence[Any]  # of a field of one memory, a list as one of them


class Filter(NamedTuple):
    """A test of the values of a field, or a condition where SQLite has an index for it."""

    field: str
    fits: Callable[[Values], bool] = bool
    condition: Sql | None = None
    tags: tuple[str, ...] = ()  # of which a memory needs one


class Specification(NamedTuple):
    filters: list[Filter]
    sort: list[tuple[str, bool]]  # a field, and whether the greatest comes first
    counts: dict[str, str | None]  # by name: the field by which memories are counted, or all
    limit: int | None
    offset: int | None
    include_related: bool


def ask(view: View, specification: Mapping[str, Any], want: Wanted) -> Answer:
    """Return the answer to a query specification, narrowed down by the options."""
    said = understand(specification, view.now)
    tests = [one for one in said.filters if not one.condition and not one.tags]
    if (least := want.min_priority) is not None:
        tests.append(Filter("priority", lambda values: values[0] >= least))
    named = [*(one.field for one in tests), *(field for field, _ in said.sort)]
    fields = list(dict.fromkeys([*named, *filter(None, said.counts.values())]))
    table, columns = source(view)
    if not {*_PRIORITY} & {*fields}:
        table = "FROM memories m"
    by_name = {**_COLUMNS, **dict.fromkeys(_PRIORITY, columns.priority)}
    chosen = ", ".join(["m.key", *(by_name.get(field, "m.data") for field in fields)])
    limit = want.limit if said.limit is None else said.limit
    want = want.also(*(one.condition for one in said.filters if one.condition))
    tags = (*want.tags, *(one.tags for one in said.filters if one.tags))
    condition, given = where(view, want._replace(limit=None, tags=tags))
    rows = view.index.connection.execute(
        f"SELECT {chosen} {table} WHERE {condition} ORDER BY {NEWEST}", given
    )
    found: list[dict[str, Any]] = []  # the values of each field
    for key, *stored in rows:
        memory = {field: _values(field, one) for field, one in zip(fields, stored, strict=True)}
        if all(one.fits(memory[one.field]) for one in tests):
            found.append({**memory, "": key})
    for field, is_down in reversed(said.sort):
        # Memories without the field come last. A list goes where the item is that comes first.
        pick = max if is_down else min
        found.sort(
            key=lambda one: (
                bool(one[field]) == is_down,
                pick((_key(item, field) for item in _items(one[field])), default=()),
            ),
            reverse=is_down,
        )
    start = said.offset or want.offset
    keys = [one[""] for one in found[start : None if limit is None else start + limit]]
    priorities = {item.key: item.priority for item in ranked(view, of_keys(keys, Wanted()))}
    answer = read(view, [Ranked(key, priorities[key]) for key in keys])
    answer.aggregations = {name: _counted(by, found) for name, by in said.counts.items()}
    answer.related = related_to_all(view, answer) if said.include_related else []
    return answer


# Reading a specification.


def understand(spec: Mapping[str, Any], now: datetime) -> Specification:
    """Return the specification, checked. Raise InvalidQuery with the place of a mistake."""
    if not isinstance(spec, Mapping):
        raise InvalidQuery(f"A query is a mapping with {', '.join(_KEYS)}, not {shown(spec)}.")
    spec = {"include_related" if key == "includeRelated" else key: spec[key] for key in spec}
    _check_keys("the query", spec, _KEYS)
    entries = _entries(spec, "filters", "field", "operator", "value")
    filters = [_filter(place, entry, now) for place, entry in entries]
    sort: list[tuple[str, bool]] = []
    for place, entry in _entries(spec, "sort", "field", "direction"):
        direction = str(entry.get("direction", "asc")).lower()
        _require(direction in ("asc", "desc"), f"{place}.direction must be asc or desc")
        sort.append((_field(f"{place}.field", entry.get("field")), direction == "desc"))
    counts: dict[str, str | None] = {}
    for place, entry in _entries(spec, "aggregations", "function", "by", "name"):
        _require(entry.get("function") == "count", f"{place}.function must be count")
        by = _field(f"{place}.by", entry["by"]) if entry.get("by") else None
        name = entry.get("name") or (f"count_by_{by}" if by else "count")
        _require(isinstance(name, str), f"{place}.name must be a text")
        counts[name] = by
    limit, offset = (spec.get(name) for name in ("limit", "offset"))
    for name, count in (("limit", limit), ("offset", offset)):
        is_right = count is None or (type(count) is int and count >= 0)
        _require(is_right, f"{name} must be a whole number from 0, not {shown(count)}")
    related = spec.get("include_related") or False
    _require(isinstance(related, bool), "include_related must be true or false")
    limit, offset = (count and min(count, COUNT_CAP) for count in (limit, offset))
    return Specification(filters, sort, counts, limit, offset, related)


def _require(is_right: bool, said: str) -> None:
    if not is_right:
        raise InvalidQuery(f"{said}.")


def _check_keys(place: str, entry: Mapping[Any, Any], keys: Sequence[str]) -> None:
    for key in entry:
        _require(key in keys, f"{place} has no key {shown(key)}; keys are {', '.join(keys)}")


def _entries(
    spec: Mapping[str, Any], part: str, *keys: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries of a part, each with its place."""
    entries = spec.get(part) or []
    is_right = isinstance(entries, (list, tuple)) and len(entries) <= _ENTRY_CAP
    _require(is_right, f"{part} must be a list of at most {_ENTRY_CAP} mappings")
    for number, entry in enumerate(entries):
        place = f"{part}[{number}]"
        _require(isinstance(entry, Mapping), f"{place} must be a mapping, not {shown(entry)}")
        _check_keys(place, entry, keys)
        yield place, entry


def _field(place: str, field: Any) -> str:
    is_right = isinstance(field, str) and "" not in field.split(".")
    _require(is_right, f"{place} must be names with dots between them, not {shown(field)}")
    return str(field)


def _filter(place: str, entry: Mapping[str, Any], now: datetime) -> Filter:
    field, name = _field(f"{place}.field", entry.get("field")), entry.get("operator")
    known = ", ".join(_OPERATORS)
    _require(name in _OPERATORS, f"{place}.operator must be one of {known}, not {shown(name)}")
    _require("value" in entry or name == "exists", f"{place}.value is missing")
    value, place = entry.get("value", True), f"{place}.value"
    if name == "exists":
        _require(isinstance(value, bool), f"{place} must be true or false, not {shown(value)}")
        return Filter(field, lambda values: bool(values) == value)
    is_list = isinstance(value, (list, tuple, set, frozenset))
    _require(name in ("in", "not") or not is_list, f"{place} must be one value, not a list")
    _require(name != "in" or is_list, f"{place} must be a list; 'equals' takes one value")
    given = [_plain(place, field, one, now) for one in (value if is_list else [value])]
    if name in _BOUNDS:
        return _bound(field, _BOUNDS[name], given[0])
    if name != "contains" or field == "tags":
        return _one_of(field, given, is_opposite=name == "not")
    return Filter(field, lambda values: any(_contains(one, given[0]) for one in values))


def _plain(place: str, field: str, value: Any, now: datetime) -> Any:
    """Return a value as it is compared with those of the field; of a time its two ends."""
    if field == "timestamp" and value is not None:
        try:
            return tuple(microseconds(moment(value, now, end=end)) for end in (False, True))
        except (ValueError, OverflowError) as error:
            raise InvalidQuery(f"{place}: {error}.") from None
    if isinstance(value, datetime):
        value = render_time(value if value.tzinfo else value.replace(tzinfo=UTC))
    elif isinstance(value, date):
        value = value.isoformat()
    is_plain = value is None or isinstance(value, bool | int | float | str)
    _require(is_plain, f"{place} must be a text, a number or a truth, not {shown(value)}")
    if field == "type" and isinstance(value, str):
        return type_of(TYPE_NAMES.get(value, value))
    return sayable(value).lower() if field == "tags" and isinstance(value, str) else value


def _bound(field: str, sign: str, given: Any) -> Filter:
    if field == "timestamp" and given is not None:
        return Filter(field, condition=Sql(f"m.at {sign} ?", (given[sign == "<="],)))
    compare, bound = _COMPARE[sign], _key(given, field)

    def is_within(item: Any) -> bool:
        key = _key(item, field)
        return key[0] == bound[0] < 3 and bool(compare(key, bound))

    return Filter(field, _some(is_within))


def _one_of(field: str, given: list[Any], *, is_opposite: bool) -> Filter:
    texts = [one for one in given if isinstance(one, str)]
    if not is_opposite and len(texts) == len(given) and 0 < len(given) <= _ENTRY_CAP:
        if field == "type":
            return Filter(field, condition=one_of("m.type", [name_of(name) for name in texts]))
        if field == "session":
            scopes = [form for name in texts for form in (name, archived_scope(name))]
            return Filter(field, condition=one_of("m.scope", scopes))
        if field == "tags":
            return Filter(field, tags=tuple(texts))
    if field == "tags":
        among = _some(lambda tag: any(tag == one or tag.startswith(f"{one}.") for one in texts))
    elif field == "timestamp":
        times = [one for one in given if one is not None]
        among = _some(lambda at: any(first <= at <= last for first, last in times))
    else:
        keys = {_key(one, field) for one in given if one is not None}
        among = _some(lambda item: _key(item, field) in keys)
    has_none = None in given
    return Filter(field, lambda values: (among(values) or (has_none and not values)) != is_opposite)


# The values of memories.


def _some(fits: Callable[[Any], bool]) -> Callable[[Values], bool]:
    return lambda values: any(fits(item) for item in _items(values))


def _contains(value: Any, given: Any) -> bool:
    if isinstance(value, str):
        return isinstance(given, str) and given.lower() in value.lower()
    several = value if isinstance(value, (list, dict)) else ()
    return any(_key(one) == _key(given) for one in several)


def _values(field: str, stored: Any) -> list[Any]:
    """Return the values of a field, a list as one of them; none where it is absent."""
    if field == "tags":
        tags = json.loads(stored)
        return [tags] if tags else []
    if field in _COLUMNS or field in _PRIORITY:
        return [type_of(stored) if field == "type" else stored] if stored not in (None, "") else []
    names = field.split(".")
    # The index has the JSON as Python writes it: without the name there is nothing to look at.
    if json.dumps(names[-1], ensure_ascii=False) not in stored:
        return []
    found = [json.loads(stored)]
    for name in names:
        found = [item[name] for item in _items(found) if isinstance(item, dict) and name in item]
    return [value for value in found if value is not None]


def _items(values: Sequence[Any]) -> list[Any]:
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def _key(value: Any, field: str = "") -> tuple[int, Any]:
    """Return a value so that it is equal only to one of its sort, and can be sorted."""
    if isinstance(value, bool):
        return 0, value
    if isinstance(value, (int, float)):
        return 1, value
    if field == "severity" and value in SEVERITY_WORDS:
        return 1, -severity_rank(value)
    return (2, value) if isinstance(value, str) else (3, None)


def _counted(by: str | None, memories: Sequence[Mapping[str, Values]]) -> Any:
    """Return how many memories match, or how many by each value of a field; None for no value."""
    if by is None:
        return len(memories)
    groups: Counter[Any] = Counter()
    for memory in memories:
        items = [item for item in _items(memory[by]) if _key(item)[0] < 3]
        if by == "timestamp":
            items = [str(time_at(at))[:10] for at in items]
        names = (str(one).lower() if isinstance(one, bool) else one for one in items)
        groups.update([*dict.fromkeys(names)] or [None])
    ordered = sorted(groups, key=lambda group: (group is None, _key(group)))
    return {group: groups[group] for group in ordered}
