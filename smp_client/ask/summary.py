"""A session, or several, in short: for a person who comes back, and an agent that begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..disk.place import session_of
from ..index.topics import Topic, topics_of
from ..index.validity import holds
from ..model.layout import GLOBAL
from ..model.record import Record, name_of, type_of
from ..model.times import time_at
from .engine import find, where
from .options import Answer, Wanted, one_of
from .priorities import View

_TOPICS, _MEMORIES = 10, 10


@dataclass(frozen=True)
class Summary:
    sessions: tuple[str, ...]
    memories: dict[str, int]  # how many of each type
    first_activity: str | None
    last_activity: str | None
    participants: dict[str, int]  # how much each has contributed
    topics: list[Topic]  # the most mentioned
    decisions: list[Record]  # those that hold and matter most
    open_findings: list[Record]
    preferences: list[Record]


@dataclass(frozen=True)
class Statistics:
    """How much a session holds, or all sessions together."""

    sessions: int
    by_type: dict[str, int]
    total_messages: int
    total_decisions: int
    total_findings: int
    total_preferences: int
    size_bytes: int
    last_activity: str | None


def statistics_of(view: View, size_bytes: int) -> Statistics:
    condition, given = where(view, Wanted())
    ask = view.index.execute
    types = f"SELECT m.type, COUNT(*) FROM memories m WHERE {condition} GROUP BY m.type"
    counts = {type_of(name): count for name, count in ask(types, given)}
    last = f"SELECT MAX(m.timestamp) FROM memories m WHERE {condition} AND m.at IS NOT NULL"
    ((newest,),) = ask(last, given)
    sessions = {session_of(scope) for scope in view.scopes} - {GLOBAL}
    return Statistics(
        sessions=len(sessions),
        by_type=counts,
        total_messages=counts.get("turn", 0),
        total_decisions=counts.get("decision", 0),
        total_findings=counts.get("finding", 0),
        total_preferences=counts.get("preference", 0),
        size_bytes=size_bytes,
        last_activity=newest,
    )


def summarise(view: View) -> Summary:
    condition, given = where(view, Wanted())
    ask = view.index.execute
    times = (
        f"SELECT m.timestamp FROM memories m WHERE {condition} AND m.at IS NOT NULL ORDER BY m.at"
    )
    first, last = (ask(f"{times} {order} LIMIT 1", given).fetchone() for order in ("", "DESC"))
    counts = f"COUNT(*) FROM memories m WHERE {condition}"
    types = f"SELECT m.type, {counts} GROUP BY m.type ORDER BY 2 DESC, 1"
    actors = f"SELECT m.actor, {counts} AND m.actor <> '' GROUP BY m.actor ORDER BY 2 DESC, 1"
    return Summary(
        tuple(map(session_of, view.scopes)),
        {type_of(name): count for name, count in ask(types, given)},
        first and first[0], last and last[0],
        dict(ask(actors, given).fetchall()), topics_of(view.index, view.scopes)[:_TOPICS],
        _of_type(view, "decision"), _of_type(view, "finding"), _of_type(view, "preference"),
    )  # fmt: skip


def _of_type(view: View, type: str) -> list[Record]:
    return list(find(view, Wanted((one_of("m.type", [type]), holds()), limit=_MEMORIES)))


def by_session(view: View, want: Wanted, telling: Sequence[str]) -> Answer:
    """Return three aggregations by session: `memories` counts the wanted ones, `last` is the time
    of the newest, empty where none has one, and `about` is the newest text of the telling types."""
    ask = view.index.execute
    memories, last = dict[str, int](), dict[str, str]()
    condition, given = where(view, want)
    counts = f"SELECT m.scope, COUNT(*), MAX(m.at) FROM memories m WHERE {condition} GROUP BY 1"
    for scope, count, at in ask(counts, given):
        session = session_of(scope)  # which may have evicted memories in the archive as well
        memories[session] = memories.get(session, 0) + count
        last[session] = max(last.get(session, ""), str(time_at(at) or ""))
    condition, given = where(view, want.also(one_of("m.type", list(map(name_of, telling)))))
    # An index has all that this takes, so only the newest memory of each scope is looked up.
    newest = f"SELECT MAX(m.at) AS at, m.key FROM memories m WHERE {condition} GROUP BY m.scope"
    texts = (
        f"SELECT m.scope, m.text FROM ({newest}) n CROSS JOIN memories m ON m.key = n.key"
        " ORDER BY n.at"
    )
    about = {session_of(scope): text for scope, text in ask(texts, given)}
    answer = Answer()
    answer.aggregations = {"memories": memories, "last": last, "about": about}
    return answer
