"""The options of a question, checked: which memories, in which order, how many."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, cast

from ..index.fresh import Source
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.priority import Policy
from ..model.quotation import shown
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, TURN, Record, name_of
from ..model.times import microseconds
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
    agents: Sequence[str] | str
    project: str  # of sessions that name this project, or none; and what holds everywhere
    since: When
    until: When
    min_priority: float
    include_decayed: bool  # True; without, memories below `policy.decayed_below` are left out
    confidence: Sequence[str] | str
    min_relevance: float
    sort: str  # relevance, priority, importance, newest, oldest
    limit: int | None
    offset: int
    explain: bool  # every record says how its score came about


class Answer(list[Record]):
    """The memories that answer a question, in their order."""

    by: str = "words"  # or "words and meaning", where the extra `semantic` has made vectors
    source: Source = "index"  # or the index and files that it did not know yet, or files alone
    aggregations: dict[str, Any]
    related: list[Record]
    unread: dict[str, str]  # sessions that could not be read as a whole, each with the reason
    note: str | None  # a sentence on words that were looked for otherwise, or that there were none

    def __init__(self, records: Sequence[Record] = (), note: str | None = None) -> None:
        super().__init__(records)
        self.note = note
        self.aggregations = {}
        self.related = []
        self.unread = {}


class Wanted(NamedTuple):
    """Which memories are wanted, in which order, and how many."""

    conditions: tuple[Sql, ...] = ()
    tags: tuple[tuple[str, ...], ...] = ()  # of each of these at least one
    min_priority: float | None = None
    min_relevance: float | None = None
    order: str | None = None  # SQL; None for the score
    limit: int | None = None
    offset: int = 0
    explain: bool = False
    has_keys: bool = False  # one of the conditions names the keys, and they are few

    @property
    def end(self) -> int | None:
        return None if self.limit is None else self.offset + self.limit

    def also(self, *conditions: Sql) -> Wanted:
        return self._replace(conditions=(*self.conditions, *conditions))


def wanted(now: datetime, policy: Policy, options: QueryOptions) -> Wanted:
    """Check the options of a question. Raise InvalidQuery with everything that is wrong."""
    given = cast("Mapping[str, Any]", options).get  # which may hold anything before it is checked
    known = QueryOptions.__annotations__
    problems = [
        f"there is no option {name}; a question takes {', '.join(known)}"
        for name in options
        if name not in known
    ]
    names = ("types", "tags", "agents", "confidence")
    texts = {name: listed(name, given(name), problems) for name in names}
    conditions: list[Sql] = []
    if given("types") is not None:
        types = [TYPE_NAMES.get(name, name) for name in texts["types"]]
        problems += [
            f"type {shown(name)} must be one of {', '.join(TYPES)}"
            for name in types
            if name not in TYPES
        ]
        conditions.append(one_of("m.type", [name_of(name) for name in types]))
    if given("agents") is not None:
        conditions.append(one_of("m.actor", texts["agents"]))
    if given("confidence") is not None:
        conditions.append(one_of("json_extract(m.data, '$.confidence')", texts["confidence"]))
    if not isinstance(given("project"), str | None):
        problems.append(f"project must be a text, not {shown(given('project'))}")
    for name, sign in (("since", ">="), ("until", "<=")):
        try:
            if (said := given(name)) is not None:
                at = microseconds(moment(said, now, end=name == "until"))
                conditions.append(Sql(f"m.at {sign} ?", (at,)))
        except (ValueError, OverflowError) as error:
            problems.append(f"{name}: {error}")
    for name in ("min_priority", "min_relevance"):
        least = given(name)
        if least is not None and not (isinstance(least, (int, float)) and 0 <= least <= 1):
            problems.append(f"{name} must be a number from 0 to 1, not {shown(least)}")
    sort = given("sort", "relevance")
    sort = _SORT_NAMES.get(sort, sort) if isinstance(sort, str) else sort
    if not isinstance(sort, str) or sort not in _SORTS:
        problems.append(f"sort must be one of {', '.join(_SORTS)}, not {shown(sort)}")
    limit, offset = given("limit"), given("offset", 0)
    for name, count in (("limit", 0 if limit is None else limit), ("offset", offset)):
        if type(count) is not int or count < 0:
            problems.append(f"{name} must be a whole number from 0, not {shown(count)}")
    if problems:
        raise InvalidQuery("; ".join(problems) + ".")
    decayed = None if given("include_decayed", True) else policy.decayed_below
    floors = [value for value in (given("min_priority"), decayed) if value is not None]
    tags = (tuple(texts["tags"]),) if texts["tags"] else ()
    return Wanted(
        tuple(conditions), tags, max(floors, default=None),
        given("min_relevance"), _SORTS[sort], None if limit is None else min(limit, COUNT_CAP),
        min(offset, COUNT_CAP), bool(given("explain")),
    )  # fmt: skip


def one_of(expression: str, values: Sequence[str]) -> Sql:
    """Return the condition that an expression is one of these texts."""
    if len(values) == 1:  # SQLite then reads in the order of an index
        return Sql(f"{expression} = ?", (sayable(values[0]),))
    return Sql(f"{expression} IN (SELECT value FROM json_each(?))", (json.dumps(list(values)),))
