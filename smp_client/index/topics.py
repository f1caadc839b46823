"""The topics of sessions, and their events: questions to the index, see mentions.py.

**Mentions** of a topic are the memories, and perhaps the session, that are about it. Its **weight**
is their share of all memories, the session counted as one, rounded to two digits.

**Subtopics** of a topic are those one level below it by name, and those without a dot that mostly
occur together with it: more than half of their mentions are mentions of this topic too, this topic
has more mentions, and no other such topic has fewer.

**Several scopes** can be asked about as one. Lists of ids then say `session/DEC-001`. The summary
of an archived session says nothing of its own, and is left out.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..disk.scopes import is_archived, session_of
from ..model.layout import ARCHIVED
from ..model.record import TURN, type_of
from ..model.times import EPOCH, render_time
from .archive import STATE
from .archive import TYPE as SUMMARY
from .database import Index
from .mentions import NO_TIME
from .sql import Sql
from .validity import marks

Scopes = str | Sequence[str]  # one by its name, or several as one
TURNS = "turns"
_LISTED = (
    "decision", "finding", "preference", "learning", "pattern", "relationship", "artifact",
    "agent_state",
)  # fmt: skip
_PLURAL = {name: f"{name}s" for name in _LISTED} | {TURN.name: TURNS}
_ALWAYS_LISTED = frozenset(("decisions", "findings", "preferences", TURNS))
_FURTHER = {"finding": ("severity",), "relationship": ("source", "relationship", "target")}
_PAIRS = """
SELECT a.topic, b.topic, COUNT(*) FROM mentions a
CROSS JOIN mentions b ON b.memory = a.memory AND b.topic > a.topic
WHERE a.memory > 0 AND a.{} GROUP BY 1, 2
"""
_EVENTS = """
SELECT m.key, m.scope, m.id, m.type, m.timestamp, m.at, m.actor, m.text,
    (SELECT json_group_array(topic) FROM mentions WHERE memory = m.key),
    CASE WHEN m.type IN ('finding', 'relationship') THEN m.data END
FROM memories m WHERE m.{} AND m.type <> ? ORDER BY m.at, LENGTH(m.id), m.id, m.scope, m.start
"""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, how much there is about it, and the memories about it."""

    name: str
    weight: float
    mentions: int
    first_mentioned: str | None  # None where no memory about it has a time
    last_mentioned: str | None
    related: dict[str, list[str]]  # ids by the plural of their kind, in order
    subtopics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A memory that has a time."""

    timestamp: str
    at: int  # in microseconds since 1970
    type: str
    session: str
    ref: str  # its id
    actor: str  # who said or made it; empty where nobody is named
    text: str
    topics: tuple[str, ...]
    further: dict[str, str]  # severity of a finding; source and target of a relationship
    marks: tuple[str, ...] = ()  # as those of a Record


class Timeline(list[Event]):
    """Events in order. Memories without a time are named apart: type, session and id of each."""

    without_time: list[tuple[str, str, str]]


def topics_of(index: Index, scopes: Scopes, most: int | None = None) -> list[Topic]:
    """Return the topics, the most mentioned first."""
    within, ask = _within(scopes), index.connection.execute
    source, name = f"mentions WHERE {within.text}", "id"
    if not isinstance(scopes, str):
        source = f"(SELECT * FROM {source} ORDER BY topic, type, at, id, scope)"
        name = f"REPLACE(scope, '{ARCHIVED}/', '') || '/' || id"
    found = (
        f"SELECT topic, type, COUNT(*), MIN(at), MAX(NULLIF(at, {NO_TIME})),"
        f" json_group_array({name}) FROM {source} GROUP BY topic, type"
    )
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for topic, *row in ask(found, within.parameters):
        rows.setdefault(topic, []).append(tuple(row))
    mentions = {topic: sum(row[1] for row in of) for topic, of in rows.items()}
    chosen = sorted(mentions, key=lambda topic: (-mentions[topic], topic))[:most]
    below: dict[str, list[str]] = {topic: [] for topic in chosen}
    pairs = ask(_PAIRS.format(within.text), within.parameters)
    wider = _wider(mentions, set(chosen), pairs)
    for topic in chosen:
        if topic in wider:
            below[wider[topic]].append(topic)
    everything = _count(index, within)
    return [
        Topic(
            topic,
            round(mentions[topic] / everything, 2),
            mentions[topic],
            shown_time(min(row[2] for row in rows[topic])),
            shown_time(max((row[3] for row in rows[topic] if row[3] is not None), default=None)),
            by_plural({row[0]: json.loads(row[4]) for row in rows[topic]}, _ALWAYS_LISTED),
            tuple(below[topic]),
        )
        for topic in chosen
    ]


def _within(scopes: Scopes) -> Sql:
    if isinstance(scopes, str):
        return Sql("scope = ?", (scopes,))
    return Sql("scope IN (SELECT value FROM json_each(?))", (json.dumps(list(scopes)),))


def _count(index: Index, within: Sql) -> int:
    """Return how many memories and sessions there are, at least one."""
    asked = (
        f"SELECT (SELECT COALESCE(SUM(memories), 0) FROM scopes WHERE {within.text})"
        f" + (SELECT COUNT(*) FROM sessions WHERE {within.text})"
        f" - (SELECT COUNT(*) FROM memories WHERE {within.text} AND type = ?)"
    )
    given = (*within.parameters * 3, SUMMARY)
    return max(1, int(index.connection.execute(asked, given).fetchone()[0]))


def shown_time(at: int | None) -> str | None:
    """Return microseconds since 1970 as people read them."""
    if at is None or at == NO_TIME:
        return None
    return render_time(EPOCH + timedelta(microseconds=at))


def by_plural(
    ids: dict[str, list[str]], always: frozenset[str] = frozenset()
) -> dict[str, list[str]]:
    """Return ids by the plural of their kind, with the kinds that are always listed."""
    listed = {plural: ids.get(name, []) for name, plural in _PLURAL.items()}
    return {plural: ids for plural, ids in listed.items() if ids or plural in always}


def _wider(
    mentions: dict[str, int], chosen: set[str], pairs: Iterable[tuple[str, str, int]]
) -> dict[str, str]:
    """Return the topic that each is a subtopic of, for those that are one."""
    above = ((name, name.rpartition(".")[0]) for name in chosen)
    nearest = {name: wide for name, wide in above if wide in chosen}
    mostly: list[tuple[int, str, str]] = []
    for one, other, times in pairs:
        wide, narrow = (one, other) if mentions[one] > mentions[other] else (other, one)
        is_wider = mentions[wide] > mentions[narrow] and 2 * times > mentions[narrow]
        if is_wider and wide in chosen and "." not in narrow:
            mostly.append((mentions[wide], wide, narrow))
    for _, wide, narrow in sorted(mostly):
        nearest.setdefault(narrow, wide)
    return nearest


def timeline_of(
    index: Index, scopes: Scopes, since_us: int | None = None, until_us: int | None = None
) -> Timeline:
    """Return the events of this time, both ends included, in order."""
    within = _within(scopes)
    rows = index.connection.execute(
        _EVENTS.format(within.text), (*within.parameters, SUMMARY)
    ).fetchall()
    ended = marks(index, [row[0] for row in rows])
    timeline, without = Timeline(), list[tuple[str, str, str]]()
    topics = functools.cache(lambda text: tuple(json.loads(text)))
    for key, scope, name, kind, stamp, at, actor, text, about, data in rows:
        session, type = session_of(scope), type_of(kind)
        if at is None:
            without.append((type, session, name))
        elif (since_us is None or at >= since_us) and (until_us is None or at <= until_us):
            fields = json.loads(data) if data else {}
            said = {one: fields.get(one) for one in _FURTHER.get(kind, ())}
            further = {one: value for one, value in said.items() if isinstance(value, str)}
            place = (STATE,) if is_archived(scope) else ()
            of = (actor, text, topics(about), further, place + ended.get(key, ()))
            timeline.append(Event(stamp, at, type, session, name, *of))
    timeline.without_time = without
    return timeline
