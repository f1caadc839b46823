"""What a question can say beside its text, checked: which memories, in which order, how many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, TypedDict

from ..index.fresh import Source
from ..index.sql import Sql
from ..index.validity import project_of
from ..model.errors import InvalidQuery
from ..model.priority import Policy
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, TURN, Record, name_of
from ..model.times import EPOCH
from .fields import shown
from .when import When, moment

TYPES = tuple(
    dict.fromkeys(
        [kind.type for kind in (*SESSION_KINDS, *GLOBAL_KINDS)]
        + ["agent_state", "artifact", "summary"]
    )
)
_TYPE_NAMES = {f"{name}s": name for name in TYPES} | {
    TURN.name: TURN.type, f"{TURN.name}s": TURN.type, "conversation": TURN.type, "state": "agent_state", "summaries": "summary",
}  # fmt: skip
_MICROSECOND = timedelta(microseconds=1)
_NAMES_CAP = 100  # SQLite takes no expression deeper than 1,000 and no more than 500 SELECTs in one
_COUNT_CAP = 2**62 - 1  # two of them added up are still a number that SQLite takes
NEWEST = "m.at DESC, m.scope, m.file, m.start DESC"
# By the names that the documents and people use.
_SORTS = {
    "relevance": None, "relevance_desc": None,
    "priority": f"priority DESC, {NEWEST}", "decay.priority": f"priority DESC, {NEWEST}",
    "importance": f"m.importance DESC, {NEWEST}",
    "newest": NEWEST, "time_desc": NEWEST, "timestamp": NEWEST, "time": NEWEST,
    "oldest": "m.at IS NULL, m.at, m.scope, m.file, m.start", "time_asc": "m.at IS NULL, m.at, m.scope, m.file, m.start",
}  # fmt: skip


class QueryOptions(TypedDict, total=False):
    """What every question takes beside what it asks for."""

    types: Sequence[str] | str
    tags: (
        Sequence[str] | str | Mapping[str, Sequence[str]]
    )  # any of them, or those below them; or {"include": …, "exclude": …}
    all_tags: bool  # all of them
    without_tags: Sequence[str] | str
    agents: Sequence[str] | str
    project: str  # of sessions that name this project, or none; and what holds everywhere
    since: When
    until: When
    min_priority: float
    include_decayed: (
        bool  # True; without, what has decayed below 0.3 (`policy.decayed_below`) is left out
    )
    confidence: Sequence[str] | str
    min_importance: float
    min_relevance: float
    sort: str  # relevance, priority, importance, newest, oldest
    limit: int | None
    offset: int
    explain: bool  # every record says what its score is made of
    count_access: bool  # False; True where whoever asks goes on to read what is listed


class Answer(list[Record]):
    """The memories that answer a question, in their order, and what else there is to say of them."""

    source: Source = "index"  # what it was answered from: the index, the index and what it did not know yet, or the files alone
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
    """Which memories, in which order, and how many: what every question can say."""

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


def wanted(
    now: datetime, policy: Policy, *, types: Sequence[str] | str | None = None, tags: Any = None, all_tags: bool = False,
    without_tags: Sequence[str] | str | None = None, agents: Sequence[str] | str | None = None,
    project: str | None = None, since: When | None = None, until: When | None = None,
    min_priority: float | None = None, include_decayed: bool = True,
    confidence: Sequence[str] | str | None = None, min_importance: float | None = None, min_relevance: float | None = None,
    sort: str = "relevance", limit: int | None = None, offset: int = 0, explain: bool = False, count_access: bool = False,
) -> Wanted:  # fmt: skip
    """Checks all that a question says beside its text; raises InvalidQuery with everything that is wrong."""
    problems: list[str] = []
    conditions: list[Sql] = []
    if isinstance(tags, Mapping):
        unknown = [shown(name) for name in tags if name not in ("include", "exclude")]
        problems += [f"tags may have 'include' and 'exclude', not {name}" for name in unknown]
        tags, without_tags = tags.get("include"), tags.get("exclude")
    if types is not None:
        conditions.append(
            of_types([type_named(name, problems) for name in listed("types", types, problems)])
        )
    included, excluded = (
        listed("tags", tags, problems),
        listed("without_tags", without_tags, problems),
    )
    some = [[tag] for tag in included] if all_tags else [included] if included else []
    if agents is not None:
        conditions.append(one_of("m.actor", listed("agents", agents, problems)))
    if project is not None:
        conditions += [_of_project(name) for name in listed("project", project, problems)]
    for value, sign in ((since, ">="), (until, "<=")):
        if value is not None:
            try:
                conditions.append(
                    Sql(f"m.at {sign} ?", (microseconds(moment(value, now, end=sign == "<=")),))
                )
            except (ValueError, OverflowError) as error:
                problems.append(f"{'since' if sign == '>=' else 'until'}: {error}")
    if confidence is not None:
        conditions.append(
            one_of(
                "json_extract(m.data, '$.confidence')", listed("confidence", confidence, problems)
            )
        )
    least = {
        "min_priority": min_priority,
        "min_relevance": min_relevance,
        "min_importance": min_importance,
    }
    wrong = {name: shown(value) for name, value in least.items() if not _is_share(value)}
    problems += [
        f"{name} must be a number from 0 to 1, not {value}" for name, value in wrong.items()
    ]
    if min_importance is not None:
        conditions.append(Sql("m.importance >= ?", (min_importance,)))
    if not isinstance(sort, str) or sort not in _SORTS:
        problems.append(f"sort must be one of {', '.join(_SORTS)}, not {shown(sort)}")
    for name, count in (("limit", 0 if limit is None else limit), ("offset", offset)):
        if type(count) is not int or count < 0:
            problems.append(f"{name} must be a whole number from 0, not {shown(count)}")
    if problems:
        raise InvalidQuery("; ".join(problems) + ".")
    floors = [
        value
        for value in (min_priority, None if include_decayed else policy.decayed_below)
        if value is not None
    ]
    floor = max(floors, default=None)
    return Wanted(
        tuple(conditions), tuple(map(tuple, some)), tuple(excluded), floor, min_relevance, _SORTS[sort],
        None if limit is None else min(limit, _COUNT_CAP), min(offset, _COUNT_CAP), explain, count_access,
    )  # fmt: skip


def of_types(types: Sequence[str]) -> Sql:
    """Return the condition that a memory is of one of these types."""
    return one_of("m.type", [name_of(name) for name in types])


def type_named(name: Any, problems: list[str]) -> str:
    found = _TYPE_NAMES.get(name, name) if isinstance(name, str) else name
    if found not in TYPES:
        problems.append(f"type {shown(name)} must be one of {', '.join(TYPES)}")
    return str(found)


def _of_project(name: str) -> Sql:
    """Return the condition that a memory `m` is of no other project."""
    # With what compaction has evicted of each: that has no session of its own in the index.
    others = "SELECT p.value || s.scope FROM sessions s, json_each('[\"\", \"archived/\"]') p WHERE s.project NOT IN ('', ?)"
    return Sql(f"m.scope NOT IN ({others})", (project_of(name),))


def microseconds(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND


def one_of(expression: str, values: Sequence[Any]) -> Sql:
    return Sql(f"{expression} IN ({', '.join('?' * len(values))})", tuple(values))


def listed(name: str, values: Any, problems: list[str]) -> list[str]:
    """The texts that an option gives, one or a list of them; none, and what is wrong, where they are something else."""
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
    """What is asked with must be a text; raises InvalidQuery where it is not."""
    if not isinstance(value, str):
        raise InvalidQuery(f"{what} must be a text, not {shown(value)}.")
    return value


def sayable(text: str) -> str:
    """Half a surrogate pair is no character: nothing is called that, and SQLite does not take it."""
    return text.encode("utf-8", "replace").decode()


def _is_share(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0 <= value <= 1)
