"""The options of a question, checked: which memories, in which order, how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, TypedDict, cast

from ..index.fresh import Source
from ..index.sql import Sql
from ..model.errors import InvalidQuery
from ..model.priority import Policy
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, TURN, Record, name_of
from ..model.times import microseconds
from .fields import shown
from .when import When, moment

_KINDS = [kind.type for kind in (*SESSION_KINDS, *GLOBAL_KINDS)]
TYPES = tuple(dict.fromkeys([*_KINDS, "agent_state", "artifact", "summary"]))
_TYPE_NAMES = {f"{name}s": name for name in TYPES} | {
    TURN.name: TURN.type, f"{TURN.name}s": TURN.type, "conversation": TURN.type,
    "state": "agent_state", "summaries": "summary",
}  # fmt: skip
_NAMES_CAP = 100  # SQLite takes no expression deeper than 1,000 and no more than 500 SELECTs in one
_COUNT_CAP = 2**62 - 1  # two of them added up are still a number that SQLite takes
NEWEST = "m.at DESC, m.scope, m.file, m.start DESC"
_OLDEST = "m.at IS NULL, m.at, m.scope, m.file, m.start"
# By the names that the documents and people use.
_SORTS = {
    "relevance": None, "relevance_desc": None,
    "priority": f"priority DESC, {NEWEST}", "decay.priority": f"priority DESC, {NEWEST}",
    "importance": f"m.importance DESC, {NEWEST}",
    "newest": NEWEST, "time_desc": NEWEST, "timestamp": NEWEST, "time": NEWEST,
    "oldest": _OLDEST, "time_asc": _OLDEST,
}  # fmt: skip


class QueryOptions(TypedDict, total=False):
    """The options that every question takes."""

    types: Sequence[str] | str
    # Any of them, or one below them; or {"include": …, "exclude": …}.
    tags: Sequence[str] | str | Mapping[str, Sequence[str]]
    all_tags: bool  # all of them
    without_tags: Sequence[str] | str
    agents: Sequence[str] | str
    project: str  # of sessions that name this project, or none; and what holds everywhere
    since: When
    until: When
    min_priority: float
    include_decayed: bool  # True; without, memories below `policy.decayed_below` are left out
    confidence: Sequence[str] | str
    min_importance: float
    min_relevance: float
    sort: str  # relevance, priority, importance, newest, oldest
    limit: int | None
    offset: int
    explain: bool  # every record says how its score came about
    count_access: bool  # False; True where the caller goes on to read the memories of a list


class Answer(list[Record]):
    """The memories that answer a question, in their order."""

    source: Source = "index"  # or the index and files that it did not know yet, or files alone
    aggregations: dict[str, Any]
    related: list[Record]
    note: str | None  # a sentence on words that were looked for otherwise, or that there were none

    def __init__(self, records: Sequence[Record] = (), note: str | None = None) -> None:
        super().__init__(records)
        self.note = note
        self.aggregations = {}
        self.related = []


@dataclass(frozen=True)
class Wanted:
    """Which memories are wanted, in which order, and how many."""

    conditions: tuple[Sql, ...] = ()
    tags: tuple[tuple[str, ...], ...] = ()  # of each of these at least one
    without_tags: tuple[str, ...] = ()
    min_priority: float | None = None
    min_relevance: float | None = None
    order: str | None = None  # SQL; None for the score
    limit: int | None = None
    offset: int = 0
    explain: bool = False
    count_access: bool = False
    has_keys: bool = False  # one of the conditions names the keys, and they are few

    def also(self, *conditions: Sql) -> Wanted:
        return replace(self, conditions=(*self.conditions, *conditions))


def wanted(now: datetime, policy: Policy, options: QueryOptions) -> Wanted:
    """Check the options of a question. Raise InvalidQuery with everything that is wrong."""
    problems: list[str] = []
    conditions: list[Sql] = []
    given = cast("Mapping[str, Any]", options).get  # which may hold anything before it is checked
    tags: Any = given("tags")
    without_tags = given("without_tags")
    if isinstance(tags, Mapping):
        unknown = [shown(name) for name in tags if name not in ("include", "exclude")]
        problems += [f"tags may have 'include' and 'exclude', not {name}" for name in unknown]
        tags, without_tags = tags.get("include"), tags.get("exclude")
    if given("types") is not None:
        types = listed("types", given("types"), problems)
        conditions.append(of_types([type_named(name, problems) for name in types]))
    included = listed("tags", tags, problems)
    excluded = listed("without_tags", without_tags, problems)
    some = [[tag] for tag in included] if given("all_tags") else [included] if included else []
    if given("agents") is not None:
        conditions.append(one_of("m.actor", listed("agents", given("agents"), problems)))
    if not isinstance(project := given("project"), str | None):
        problems.append(f"project must be a text, not {shown(project)}")
    for name, value, sign in (("since", given("since"), ">="), ("until", given("until"), "<=")):
        try:
            if value is not None:
                at = microseconds(moment(value, now, end=name == "until"))
                conditions.append(Sql(f"m.at {sign} ?", (at,)))
        except (ValueError, OverflowError) as error:
            problems.append(f"{name}: {error}")
    if given("confidence") is not None:
        words = listed("confidence", given("confidence"), problems)
        conditions.append(one_of("json_extract(m.data, '$.confidence')", words))
    least = {name: given(name) for name in ("min_priority", "min_relevance", "min_importance")}
    for name, value in least.items():
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value <= 1):
            problems.append(f"{name} must be a number from 0 to 1, not {shown(value)}")
    if least["min_importance"] is not None:
        conditions.append(Sql("m.importance >= ?", (least["min_importance"],)))
    sort = given("sort", "relevance")
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
    return Wanted(
        tuple(conditions), tuple(map(tuple, some)), tuple(excluded), max(floors, default=None),
        given("min_relevance"), _SORTS[sort], None if limit is None else min(limit, _COUNT_CAP),
        min(offset, _COUNT_CAP), bool(given("explain")), bool(given("count_access")),
    )  # fmt: skip


def of_types(types: Sequence[str]) -> Sql:
    """Return the condition that a memory is of one of these types."""
    return one_of("m.type", [name_of(name) for name in types])


def type_named(name: Any, problems: list[str]) -> str:
    found = _TYPE_NAMES.get(name, name) if isinstance(name, str) else name
    if found not in TYPES:
        problems.append(f"type {shown(name)} must be one of {', '.join(TYPES)}")
    return str(found)


def one_of(expression: str, values: Sequence[Any]) -> Sql:
    return Sql(f"{expression} IN ({', '.join('?' * len(values))})", tuple(values))


def listed(name: str, values: Any, problems: list[str]) -> list[str]:
    """Return the texts of an option, one or a list of them; note a problem where it has others."""
    several = () if values is None else [values] if isinstance(values, str) else values
    if isinstance(several, (Mapping, bytes)) or not isinstance(several, Iterable):
        problems.append(f"{name} must be a text or a list of texts, not {shown(values)}")
        return []
    given = list(islice(several, _NAMES_CAP + 1))
    if len(given) > _NAMES_CAP:
        problems.append(f"{name} may be at most {_NAMES_CAP} texts")
    elif wrong := [shown(value) for value in given if not isinstance(value, str)]:
        problems.append(f"{name} must be texts, not {', '.join(wrong)}")
    else:
        return [sayable(value) for value in given]
    return []


def require_text(what: str, value: Any) -> str:
    """Return the value; raise InvalidQuery where it is no text."""
    if not isinstance(value, str):
        raise InvalidQuery(f"{what} must be a text, not {shown(value)}.")
    return value


def sayable(text: str) -> str:
    """Return a text that SQLite takes: half a surrogate pair is no character."""
    return text.encode("utf-8", "replace").decode()
