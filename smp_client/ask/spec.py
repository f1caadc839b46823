"""The query specification: filters, sorting and aggregations over any field of a memory.

SQLite finds the memories by type, session, tags and time, and Python looks at the rest. A field is
a column, or a path of names in the record such as `resolution.status`.

- A list on the way to a field, or at its end, is looked through: some item must fit.
- `contains` asks for a part of a text, an item of a list, or a key of a mapping. It and `prefix`
  do not tell upper from lower case; everything else does.
- A tag matches itself and the tags below it: `security` also `security.authentication`.
- Two words for one severity are equal, and the more severe is the greater; see severity.py.
- A number is compared with numbers and a text with texts; true is not 1.
- A field that is null counts as absent. `not` also matches memories without the field.
- A date is its first moment for `greaterThan`, `greaterOrEqual` and `lessThan`, else a whole day.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ..disk.scopes import archived_scope
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.layout import ARCHIVED
from ..model.record import TURN, name_of, type_of
from ..model.severity import IN_WORDS, WORDS, rank
from ..model.times import microseconds, parse_time, render_time, time_at
from .argument import sayable, shown
from .engine import Ranked, of_keys, ranked, read, where
from .options import COUNT_CAP, NEWEST, Answer, Wanted, one_of
from .priorities import View, source
from .related import related_to_all

_ENTRY_CAP = 100
_KEYS = ("filters", "sort", "aggregations", "limit", "offset", "include_related")
_BOUNDS = {"greaterThan": ">", "lessThan": "<", "greaterOrEqual": ">=", "lessOrEqual": "<="}
_COMPARE = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_OPERATORS = ("equals", "not", "in", "contains", "prefix", "exists", "between", *_BOUNDS)
_OPERATOR_NAMES = {name.lower(): name for name in _OPERATORS} | {"notequals": "not"}
_FUNCTIONS = ("count", "min", "max", "average")
_NUMBER, _TEXT = "a number", "a text"
_TAGS = "(SELECT json_group_array(t.tag) FROM tags t WHERE t.memory = m.key)"
# The fields that have columns, and the sort of their values.
_COLUMNS = {
    "id": ("m.id", _TEXT), "type": ("m.type", _TEXT), "text": ("m.text", _TEXT),
    "session": (f"REPLACE(m.scope, '{ARCHIVED}/', '')", _TEXT),
    "agent": ("m.actor", _TEXT), "actor": ("m.actor", _TEXT), "tags": (_TAGS, "a list of texts"),
    "timestamp": ("m.at", "a time"), "priority": ("", _NUMBER), "decay.priority": ("", _NUMBER),
}  # fmt: skip
_PARTLESS = ("timestamp", "priority", "decay.priority")


class _Mistake(Exception):
    """A problem with a part of a specification. The catcher adds the place of the part."""


Values = Sequence[Any]  # of a field of one memory, a list as one of them


@dataclass(frozen=True)
class Filter:
    """A test of the values of a field, and the same in SQL where SQLite has an index for it."""

    field: str
    fits: Callable[[Values], bool]
    condition: Sql | None = None
    tags: tuple[str, ...] = ()  # of which a memory needs one


@dataclass(frozen=True)
class Aggregation:
    """A figure over all memories that match, or one for each value of the field `by`."""

    name: str
    function: str
    field: str | None
    by: str | None


@dataclass(frozen=True)
class Specification:
    filters: tuple[Filter, ...] = ()
    sort: tuple[tuple[str, bool], ...] = ()  # a field, and whether the greatest comes first
    aggregations: tuple[Aggregation, ...] = ()
    limit: int | None = None
    offset: int = 0
    include_related: bool = False


def ask(view: View, specification: Mapping[str, Any], want: Wanted) -> Answer:
    """Return the answer to a query specification, narrowed down by the options."""
    said = understand(specification)
    filters = list(said.filters)
    if want.min_priority is not None:
        least = want.min_priority
        filters.append(Filter("priority", lambda values: values[0] >= least))
    limit = want.limit if said.limit is None else said.limit
    want = want.also(*(one.condition for one in filters if one.condition))
    tags = (*want.tags, *(one.tags for one in filters if one.tags))
    tests = [one for one in filters if not one.condition and not one.tags]
    named = [*(one.field for one in tests), *(field for field, _ in said.sort)]
    named += [field for one in said.aggregations for field in (one.field, one.by) if field]
    fields = list(dict.fromkeys(named))
    table, columns = source(view)
    if not {"priority", "decay.priority"} & {*fields}:
        table = "FROM memories m"
    chosen = [_COLUMNS.get(field, ("m.data",))[0] or columns.priority for field in fields]
    condition, given = where(view, want._replace(limit=None, tags=tags))
    rows = view.index.connection.execute(
        f"SELECT {', '.join(['m.key', *chosen])} {table} WHERE {condition} ORDER BY {NEWEST}", given
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
    answer.aggregations = {one.name: _figures(one, found) for one in said.aggregations}
    answer.related = related_to_all(view, answer) if said.include_related else []
    return answer


# Reading a specification.


def understand(spec: Mapping[str, Any]) -> Specification:
    """Return the specification, checked. Raise InvalidQuery with all that is wrong."""
    if not isinstance(spec, Mapping):
        raise InvalidQuery(f"A query is a mapping with {', '.join(_KEYS)}, not {shown(spec)}.")
    spec = {"include_related" if key == "includeRelated" else key: spec[key] for key in spec}
    problems = _unknown(spec, _KEYS)
    read: dict[str, list[Any]] = {"filters": [], "sort": [], "aggregations": []}
    readers = (_filter, _order, _aggregation)
    for (part, found), reader in zip(read.items(), readers, strict=True):
        entries = spec.get(part) or []
        if not isinstance(entries, (list, tuple)) or len(entries) > _ENTRY_CAP:
            problems.append(f"{part} must be a list of at most {_ENTRY_CAP} mappings")
            continue
        for number, entry in enumerate(entries):
            try:
                if not isinstance(entry, Mapping):
                    raise _Mistake(f" must be a mapping, not {shown(entry)}")
                found.append(reader(entry))
            except _Mistake as mistake:
                problems.append(f"{part}[{number}]{mistake}")
    counts = {name: spec.get(name) for name in ("limit", "offset")}
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 0):
            problems.append(f"{name} must be a whole number from 0, not {shown(count)}")
    related = spec.get("include_related") or False
    if not isinstance(related, bool):
        problems.append(f"include_related must be true or false, not {shown(related)}")
    if problems:
        raise InvalidQuery("; ".join(problems[:20]) + ".")
    limit, offset = (count and min(count, COUNT_CAP) for count in counts.values())
    filters, sort, figures = map(tuple, read.values())
    return Specification(filters, sort, figures, limit, offset or 0, related)


def _unknown(entry: Mapping[Any, Any], keys: Sequence[str]) -> list[str]:
    known = f"is not known; keys are {', '.join(keys)}"
    return [f"the key {shown(key)} {known}" for key in entry if key not in keys]


def _filter(entry: Mapping[str, Any]) -> Filter:
    field = _checked(entry, "field", ("field", "operator", "value"))
    word = entry.get("operator")
    name = _OPERATOR_NAMES.get(word.replace("_", "").lower()) if isinstance(word, str) else None
    if name is None:
        raise _Mistake(f".operator must be one of {', '.join(_OPERATORS)}, not {shown(word)}")
    value = entry.get("value", True if name == "exists" else _Mistake)
    if value is _Mistake:
        raise _Mistake(".value is missing")
    try:
        return _test(field, name, value)
    except _Mistake as mistake:
        raise _Mistake(f".value {mistake}") from None


def _test(field: str, name: str, value: Any) -> Filter:
    is_list = isinstance(value, (list, tuple, set, frozenset))
    if name == "exists":
        if not isinstance(value, bool):
            raise _Mistake(f"must be true or false, not {shown(value)}")
        return Filter(field, lambda values: bool(values) == value)
    if name in ("equals", "in", "not"):
        if name != "not" and is_list != (name == "in"):
            right = "a list; 'equals' takes one value" if name == "in" else "one value, not a list"
            raise _Mistake(f"must be {right}")
        return _one_of(field, list(value) if is_list else [value], is_opposite=name == "not")
    if name in ("contains", "prefix"):
        plain = _plain(field, value)
        if field in _PARTLESS or (name == "prefix" and not isinstance(plain, str)):
            raise _Mistake("must be a text, and the field one of texts")
        if (field, name) == ("tags", "contains"):
            return _one_of(field, [plain], is_opposite=False)
        part = plain.lower() if isinstance(plain, str) else plain
        if name == "prefix":
            return Filter(
                field, _some(lambda one: isinstance(one, str) and one.lower().startswith(part))
            )
        return Filter(field, lambda values: any(_contains(one, plain, part) for one in values))
    if name == "between" and not (is_list and len(value) == 2):
        raise _Mistake(f"must be a list of two values, not {shown(value)}")
    symbols, ends = ((">=", "<="), value) if name == "between" else ((_BOUNDS[name],), [value])
    plains = [_plain(field, one) for one in ends]
    if field == "tags" or any(isinstance(one, bool) for one in plains):
        raise _Mistake("must be a number, a text or a time, which have an order")
    if len({isinstance(one, str) for one in plains}) > 1:
        raise _Mistake("must be two numbers or two texts")
    if field == "severity" and not all(one in WORDS for one in plains):
        raise _Mistake(f"must be {IN_WORDS}")
    pairs = list(zip(symbols, plains, strict=True))
    if field == "timestamp":
        times = [(symbol, one[symbol == "<="]) for symbol, one in pairs]
        text = " AND ".join(f"m.at {symbol} ?" for symbol, _ in times)
        return Filter(field, bool, Sql(text, tuple(at for _, at in times)))
    bounds = [(_COMPARE[symbol], _key(one, field)) for symbol, one in pairs]
    sort = bounds[0][1][0]

    def is_within(item: Any) -> bool:
        key = _key(item, field)
        return key[0] == sort and all(compare(key, bound) for compare, bound in bounds)

    return Filter(field, _some(is_within))


def _one_of(field: str, values: list[Any], *, is_opposite: bool) -> Filter:
    given = [_plain(field, one) for one in values if one is not None]
    has_none = len(given) < len(values)
    if not is_opposite and not has_none and 0 < len(given) <= _ENTRY_CAP:
        if field == "type":
            return Filter(field, bool, one_of("m.type", [name_of(name) for name in given]))
        if field == "session":
            scopes = [form for name in given for form in (name, archived_scope(name))]
            return Filter(field, bool, one_of("m.scope", scopes))
        if field == "tags":
            return Filter(field, bool, tags=tuple(map(sayable, given)))
    if field == "tags":
        tags = [tag.lower() for tag in given]
        among = _some(lambda tag: any(tag == one or tag.startswith(f"{one}.") for one in tags))
    elif field == "timestamp":
        among = _some(lambda at: any(first <= at <= last for first, last in given))
    else:
        keys = {_key(one, field) for one in given}
        among = _some(lambda item: _key(item, field) in keys)
    return Filter(field, lambda values: (among(values) or (has_none and not values)) != is_opposite)


def _some(fits: Callable[[Any], bool]) -> Callable[[Values], bool]:
    return lambda values: any(fits(item) for item in _items(values))


def _contains(value: Any, given: Any, part: Any) -> bool:
    if isinstance(value, str):
        return isinstance(part, str) and part in value.lower()
    several = value if isinstance(value, (list, dict)) else ()
    return any(_key(one) == _key(given) for one in several)


def _order(entry: Mapping[str, Any]) -> tuple[str, bool]:
    field = _checked(entry, "field", ("field", "direction"))
    direction = str(entry.get("direction", "asc")).lower()
    if direction not in ("asc", "desc"):
        raise _Mistake(f".direction must be asc or desc, not {shown(entry['direction'])}")
    return field, direction == "desc"


def _aggregation(entry: Mapping[str, Any]) -> Aggregation:
    keys = ("function", "field", "by", "name")
    field, by = (_checked(entry, key, keys) if entry.get(key) else None for key in ("field", "by"))
    function = str(entry.get("function")).lower()
    if function not in _FUNCTIONS:
        given = shown(entry.get("function"))
        raise _Mistake(f".function must be one of {', '.join(_FUNCTIONS)}, not {given}")
    if field is None and function != "count":
        raise _Mistake(f".field is missing: what to take the {function} of")
    sort = _COLUMNS[field][1] if field in _COLUMNS else _NUMBER
    if function == "average" and sort != _NUMBER:
        raise _Mistake(f".field is {sort}, of which there is no average")
    name = entry.get("name") or "_".join(filter(None, (function, field, by and f"by_{by}")))
    if not isinstance(name, str):
        raise _Mistake(f".name must be a text, not {shown(name)}")
    return Aggregation(name, function, field, by)


def _checked(entry: Mapping[str, Any], key: str, keys: Sequence[str]) -> str:
    """Return the field that an entry names under a key."""
    if problems := _unknown(entry, keys):
        raise _Mistake(f": {problems[0]}")
    field = entry.get(key)
    if not isinstance(field, str) or "" in field.split("."):
        raise _Mistake(f".{key} must be names with dots between them, not {shown(field)}")
    return field


def _plain(field: str, value: Any) -> Any:
    """Return a value as it is compared with those of the field; of a time its two ends."""
    if field == "timestamp":
        return _ends(value)
    if isinstance(value, datetime):
        value = render_time(value if value.tzinfo else value.replace(tzinfo=UTC))
    elif isinstance(value, date):
        value = value.isoformat()
    sort = _COLUMNS.get(field, ("", "a text, a number or a truth"))[1]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_right = isinstance(value, str) if sort != _NUMBER else is_number
    if field not in _COLUMNS:
        is_right = is_number or isinstance(value, bool | str)
    if not is_right:
        raise _Mistake(f"must be {_TEXT if field == 'tags' else sort}, not {shown(value)}")
    if field == "type":
        return TURN.type if value == "conversation" else type_of(value)
    return value


def _ends(value: Any) -> tuple[int, int]:
    """Return the first and the last microsecond of a time, which differ for a date."""
    try:
        if isinstance(value, str):
            value = date.fromisoformat(value) if len(value) == 10 else parse_time(value)
        if isinstance(value, datetime):
            moment = microseconds(value if value.tzinfo else value.replace(tzinfo=UTC))
            return moment, moment
        start = microseconds(datetime.combine(value, datetime.min.time(), UTC))
        return start, start + timedelta(days=1) // timedelta(microseconds=1) - 1
    except (ValueError, TypeError, OverflowError):
        right = 'a time such as "2026-01-11T14:30:00Z" or "2026-01-11"'
        raise _Mistake(f"must be {right}, not {shown(value)}") from None


# The values of memories.


def _values(field: str, stored: Any) -> list[Any]:
    """Return the values of a field, a list as one of them; none where it is absent."""
    if field == "tags":
        tags = json.loads(stored)
        return [tags] if tags else []
    if field in _COLUMNS:
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
    if field == "severity" and value in WORDS:
        return 1, -rank(value)
    return (2, value) if isinstance(value, str) else (3, None)


def _figures(asked: Aggregation, memories: Sequence[Mapping[str, list[Any]]]) -> Any:
    """Return the figure, or the figures by group, over all memories that match."""
    groups: dict[Any, list[list[Any]]] = {}
    for memory in memories:
        values = memory[asked.field] if asked.field else []
        for group in dict.fromkeys(_groups(asked.by, memory)):
            groups.setdefault(group, []).append(values)
    if asked.by is None:
        return _figure(asked, groups.get(None, []))
    ordered = sorted(groups, key=lambda group: (group is None, _key(group)))
    return {group: _figure(asked, groups[group]) for group in ordered}


def _groups(by: str | None, memory: Mapping[str, list[Any]]) -> list[Any]:
    """Return the groups that a memory counts in; None where it has no value."""
    items = [item for item in _items(memory[by]) if _key(item)[1] is not None] if by else []
    if by == "timestamp":
        items = [str(time_at(at))[:10] for at in items]
    return [str(one).lower() if isinstance(one, bool) else one for one in items] or [None]


def _figure(asked: Aggregation, memories: Sequence[list[Any]]) -> Any:
    if asked.function == "count":
        return sum(asked.field is None or bool(values) for values in memories)
    items = [item for values in memories for item in _items(values)]
    plain = [item for item in items if _key(item)[1] is not None]
    if asked.function == "average":
        numbers = [item for item in plain if _key(item)[0] == 1]
        return sum(numbers) / len(numbers) if numbers else None
    best = (min if asked.function == "min" else max)(plain, key=_key, default=None)
    return time_at(best) if asked.field == "timestamp" else best
