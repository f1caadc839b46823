"""A session, or several, in short: for a person who comes back, and an agent that begins."""

from __future__ import annotations

from dataclasses import dataclass

from ..disk.place import session_of
from ..index.topics import Topic, topics_of
from ..index.validity import holds
from ..model.record import Record, type_of
from .engine import find, where
from .options import Wanted, one_of
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


def summarise(view: View) -> Summary:
    condition, given = where(view, Wanted())
    ask = view.index.connection.execute
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
