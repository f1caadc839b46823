"""The options of a question, checked: which memories, in which order, how many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, cast

from ..index.fresh import Source
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.nearest import did_you_mean
from ..model.priority import Policy
from ..model.quotation import shown
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, TURN, Record, name_of
from ..model.times import microseconds, render_time
from .argument import When, listed, moment, sayable

_KINDS = [kind.type for kind in (*SESSION_KINDS, *GLOBAL_KINDS)]
TYPES = tuple(dict.fromkeys([*_KINDS, "agent_state", "artifact", "summary"]))
TYPE_NAMES = {f"{name}s": name for name in TYPES} | {
    TURN.name: TURN.type, f"{TURN.name}s": TURN.type, "conversation": TURN.type,
    "state": "agent_state", "summaries": "summary",
}  # fmt: skip
COUNT_CAP = 2**62 - 1  # two of them added up are still a number that SQLite takes
NEWEST = "m.at DESC, m.scope, m.file, m.start DESC"
_OLDEST = "m.at IS NULL, m.at, m.scope, m.file, m.start"
_LISTS = ("types", "tags", "all_tags", "without_tags", "agents", "confidence")
_SORTS = {
    "relevance": None, "priority": f"priority DESC, {NEWEST}",
    "importance": f"m.importance DESC, {NEWEST}", "newest": NEWEST, "oldest": _OLDEST,
}  # fmt: skip
# Other names of the orders, as other programs and a query specification have them.
_SORT_NAMES = {
    "relevance_desc": "relevance",
    "decay.priority": "priority",
    "time_desc": "newest",
    "time_asc": "oldest",
}


class QueryOptions(TypedDict, total=False):
    """The options that every question takes."""

    types: Sequence[str] | str
    tags: Sequence[str] | str  # any of them, or one below them
    all_tags: Sequence[str] | str  # every one of them, or one below it
    without_tags: Sequence[str] | str  # none of them, and none below them
    exact_tags: bool  # no tags below the given ones
    agents: Sequence[str] | str
    project: str  # of sessions that name this project, or none; and what holds everywhere
    since: When
    until: When
    min_priority: float
    min_importance: float  # its own, else by kind, severity, impact and approval
    include_decayed: bool  # True; without, memories below `policy.decayed_below` are left out
    confidence: Sequence[str] | str
    min_relevance: float
    sort: str  # relevance, priority, importance, newest, oldest
    limit: int | None
    offset: int
    with_total: bool  # the answer says how many memories there are in all
    explain: bool  # every record says how its score came about


_NAMES = tuple(QueryOptions.__annotations__)


class Answer(list[Record]):
    """The memories that answer a question, in their order."""

    by: str = "words"  # or "words and meaning", where the extra `semantic` has made vectors
    source: Source = "index"  # or the index and files that it did not know yet, or files alone
    aggregations: dict[str, Any]
    related: list[Record]
    unread: dict[str, str]  # sessions that could not be read as a whole, each with the reason
    note: str | None  # on words and names that no memory has, and how they were understood
    total: int | None  # how many memories answer it, on whatever page; None if nobody asked

    def __init__(self, records: Sequence[Record] = (), note: str | None = None) -> None:
        super().__init__(records)
        self.note = note
        self.total = None
        self.aggregations = {}
        self.related = []
        self.unread = {}

    def add_notes(self, notes: Iterable[str]) -> None:
        """Add sentences to the note, each once."""
        said = [self.note] if self.note else []
        self.note = " ".join(dict.fromkeys([*said, *notes])) or None


class Wanted(NamedTuple):
    """Which memories are wanted, in which order, and how many."""

    conditions: tuple[Sql, ...] = ()
    tags: tuple[tuple[str, ...], ...] = ()  # of each of these at least one
    without_tags: tuple[str, ...] = ()
    exact_tags: bool = False
    min_priority: float | None = None
    min_relevance: float | None = None
    order: str | None = None  # SQL; None for the score
    limit: int | None = None
    offset: int = 0
    with_total: bool = False
    explain: bool = False
    has_keys: bool = False  # one of the conditions names the keys, and they are few

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.offset + self.limit

    def also(self, *conditions: Sql) -> Wanted:
        return self._replace(conditions=(*self.conditions, *conditions))


def wanted(now: datetime, policy: Policy, options: QueryOptions) -> Wanted:
    """Check the options of a question. Raise InvalidQuery with everything that is wrong."""
    given = cast("Mapping[str, object]", options)  # which may hold anything before it is checked
    problems = [
        f"there is no option {name}{did_you_mean(str(name), _NAMES)};"
        f" a question takes {', '.join(_NAMES)}"
        for name in given
        if name not in _NAMES
    ]
    texts = {name: listed(name, given.get(name), problems) for name in _LISTS}
    conditions = [*_kinds(given, texts, problems), *_times(given, now, problems)]
    for name in ("min_priority", "min_relevance", "min_importance"):
        least = given.get(name)
        if least is not None and not (isinstance(least, (int, float)) and 0 <= least <= 1):
            problems.append(f"{name} must be a number from 0 to 1, not {shown(least)}")
    if not isinstance(options.get("project"), str | None):
        problems.append(f"project must be a text, not {shown(given['project'])}")
    sort = given.get("sort", "relevance")
    sort = _SORT_NAMES.get(sort, sort) if isinstance(sort, str) else sort
    if not isinstance(sort, str) or sort not in _SORTS:
        nearest = did_you_mean(str(sort), _SORTS)
        problems.append(f"sort must be one of {', '.join(_SORTS)}, not {shown(sort)}{nearest}")
    for name in ("limit", "offset"):
        count = given.get(name)
        is_right = type(count) is int and count >= 0
        if not is_right and (name in given) and (name, count) != ("limit", None):
            problems.append(f"{name} must be a whole number from 0, not {shown(count)}")
    if problems:
        raise InvalidQuery("; ".join(problems) + ".")
    if (least := options.get("min_importance")) is not None:
        conditions.append(Sql("m.importance >= ?", (least,)))
    decayed = None if given.get("include_decayed", True) else policy.decayed_below
    floors = [value for value in (options.get("min_priority"), decayed) if value is not None]
    some = [texts["tags"]] if texts["tags"] else []
    limit = options.get("limit")
    return Wanted(
        conditions=tuple(conditions),
        tags=tuple(map(tuple, [*some, *([tag] for tag in texts["all_tags"])])),
        without_tags=tuple(texts["without_tags"]),
        exact_tags=bool(given.get("exact_tags")),
        min_priority=max(floors, default=None),
        min_relevance=options.get("min_relevance"),
        order=_SORTS[str(sort)],
        limit=None if limit is None else min(limit, COUNT_CAP),
        offset=min(options.get("offset", 0), COUNT_CAP),
        with_total=bool(given.get("with_total")),
        explain=bool(given.get("explain")),
    )


def _kinds(
    given: Mapping[str, object], texts: Mapping[str, list[str]], problems: list[str]
) -> Iterator[Sql]:
    """Yield the conditions on the types, the authors and the confidence of memories."""
    if given.get("types") is not None:
        types = list(map(type_named, texts["types"]))
        problems += [problem for name in types if (problem := type_problem(name))]
        yield one_of("m.type", [name_of(name) for name in types])
    if given.get("agents") is not None:
        yield one_of("m.actor", texts["agents"])
    if given.get("confidence") is not None:
        yield one_of("json_extract(m.data, '$.confidence')", texts["confidence"])


def _times(given: Mapping[str, object], now: datetime, problems: list[str]) -> Iterator[Sql]:
    """Yield the conditions on the time of memories."""
    times: dict[str, datetime] = {}
    for name, sign in (("since", ">="), ("until", "<=")):
        said = cast("When | None", given.get(name))
        if said is None:
            continue
        try:
            times[name] = moment(said, now, end=name == "until")
        except (ValueError, OverflowError) as error:
            problems.append(f"{name}: {error}")
            continue
        yield Sql(f"m.at {sign} ?", (microseconds(times[name]),))
    if len(times) == 2 and times["since"] > times["until"]:
        problems.append(reversed_times(times["since"], times["until"]))


def reversed_times(since: datetime, until: datetime) -> str:
    """Return what is wrong with a time that ends before it begins."""
    first, last = render_time(since), render_time(until)
    return f"no time is since {first} and until {last}, which is earlier: exchange the two"


def type_named(name: str) -> str:
    """Return the type that a name means: `Decisions` are of the type `decision`."""
    lower = name.lower()
    return TYPE_NAMES.get(lower, lower)


def type_problem(name: str) -> str | None:
    """Return what is wrong with the name of a type; None if there is such a type."""
    if name in TYPES:
        return None
    known = did_you_mean(name, [*TYPES, *TYPE_NAMES])
    return f"type {shown(name)} must be one of {', '.join(TYPES)}{known}"


def one_of(expression: str, values: Sequence[str]) -> Sql:
    """Return the condition that an expression is one of these texts."""
    if len(values) == 1:  # SQLite then reads in the order of an index
        return Sql(f"{expression} = ?", (sayable(values[0]),))
    return Sql(f"{expression} IN (SELECT value FROM json_each(?))", (json.dumps(list(values)),))
