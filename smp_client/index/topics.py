"""The topics and the events of sessions: as answers, and as the YAML files in `indexes/`.

The **weight** of a topic is the share of memories that are about it, the session counted as one.
A turn is about the topics that it says. The **subtopics** of a topic are those one level below it
by name, and tags that occur only together with it.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..disk.place import is_archived, session_of
from ..model.errors import UnsafePath
from ..model.layout import ACTIVE, ARCHIVED, YAML_INDEXES
from ..model.record import SESSION_KINDS, TURN, name_of, type_of
from ..model.times import render_time, time_at
from ..text.values import Value, render_entries
from .database import Index, owner_word
from .mentions import NO_TIME, TAG
from .sql import Sql, within
from .validity import STATE, SUMMARY, marks

if TYPE_CHECKING:
    from ..memory import Memory

TOPICS, TIMELINE, AGENTS = (name.rpartition("/")[2] for name in YAML_INDEXES)
VERSION = 1
_HEADING = "# Made by SMP from this session's memories; changes made here are overwritten."
# The files are for people, and must not outgrow the files that they are made from.
_TOPICS_AND_AGENTS, _LAST_EVENTS, _NAME_CHARACTERS = 1000, 10_000, 128
_LISTED = (
    "decision", "finding", "preference", "learning", "pattern", "relationship", "artifact",
    "agent_state",
)  # fmt: skip
_PLURAL = {name: f"{name}s" for name in _LISTED} | {TURN.name: "turns"}
_ALWAYS_LISTED = ("decisions", "findings", "preferences", "turns")
_FURTHER = {"finding": ("severity",), "relationship": ("source", "relationship", "target")}
_ACTOR = {kind.name: kind.actor for kind in SESSION_KINDS}
_ACTOR |= {"agent_state": "agent", "artifact": "created_by"}
_EVENTS = f"""
SELECT m.key, m.scope, m.id, m.type, m.timestamp, m.actor, m.text,
    (SELECT json_group_array(topic) FROM topics WHERE memory = m.key),
    CASE WHEN m.type IN ('finding', 'relationship') THEN m.data END
FROM memories m WHERE m.{{}} AND m.type <> '{SUMMARY}' AND m.at BETWEEN ? AND ?
ORDER BY m.at, LENGTH(m.id), m.id, m.scope, m.start
"""


_SAID = (
    f"SELECT COALESCE(m.at, {NO_TIME}), m.id, m.scope FROM words"
    " CROSS JOIN memories m ON m.key = words.rowid WHERE words MATCH ? AND m.type = ? AND m.{}"
)
_WORD = re.compile(r"[^\W_]+")


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
    type: str
    session: str
    ref: str  # its id
    actor: str  # who said or made it; empty where nobody is named
    text: str
    topics: tuple[str, ...]
    further: dict[str, str]  # severity of a finding; the three parts of a relationship
    marks: tuple[str, ...] = ()  # as those of a Record


def topics_of(index: Index, scopes: Sequence[str]) -> list[Topic]:
    """Return the topics, the most mentioned first. Of several scopes, ids say `session/DEC-001`."""
    of, ask = within("scope", scopes), index.execute
    source = f"topics WHERE {of.text} AND topic <> '*' AND type <> '{SUMMARY}'"
    name = "id"  # one scope is read in the order of the key of the table
    if len(scopes) > 1:
        source = f"(SELECT * FROM {source} ORDER BY topic, type, at, id, scope)"
        name = f"REPLACE(scope, '{ARCHIVED}/', '') || '/' || id"
    found = (
        f"SELECT topic, type, COUNT(*), MIN(at), MAX(NULLIF(at, {NO_TIME})),"
        f" json_group_array({name}) FROM {source} GROUP BY topic, type"
    )
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for topic, *row in ask(found, of.parameters):
        rows.setdefault(topic, []).append(tuple(row))
    first = sorted(rows, key=lambda topic: -sum(row[1] for row in rows[topic]))
    for topic in first[:_TOPICS_AND_AGENTS]:
        if turns := _turns(index, scopes, topic):
            others = [row for row in rows[topic] if row[0] != TURN.name]
            rows[topic] = [*others, turns]
    # The summary of an archived session counts as the session.
    everything = (
        f"SELECT (SELECT SUM(memories) FROM scopes WHERE {of.text}), (SELECT COUNT(*)"
        f" FROM sessions WHERE {of.text} AND scope NOT LIKE '{ARCHIVED}/%')"
    )
    memories, sessions = ask(everything, of.parameters * 2).fetchone()
    mentions = {topic: sum(row[1] for row in some) for topic, some in rows.items()}
    below: dict[str, list[str]] = {topic: [] for topic in rows}
    order = sorted(mentions, key=lambda topic: (-mentions[topic], topic))
    wider = _wider(index, of)
    for topic in order:
        for name in dict.fromkeys([topic.rpartition(".")[0], *wider.get(topic, ())]):
            below.get(name, []).append(topic)
    return [
        Topic(
            topic,
            round(mentions[topic] / max(1, (memories or 0) + sessions), 2),
            mentions[topic],
            _shown_time(min(row[2] for row in rows[topic])),
            _shown_time(max((row[3] for row in rows[topic] if row[3] is not None), default=None)),
            _by_plural({row[0]: json.loads(row[4]) for row in rows[topic]}, *_ALWAYS_LISTED),
            tuple(below[topic]),
        )
        for topic in order
    ]


def _turns(index: Index, scopes: Sequence[str], topic: str) -> tuple[Any, ...] | None:
    """Return the turns about a topic as one row of `topics_of`: they say it, or refer to it."""
    of = within("scope", scopes)
    asked = f"SELECT at, id, scope FROM topics WHERE {of.text} AND topic = ? AND type = ?"
    found = {*index.execute(asked, (*of.parameters, topic, TURN.name))}
    if words := " ".join(_WORD.findall(topic)):
        match = f'{{text}} : "{words}"'
        if len(scopes) == 1:  # so that other sessions cost nothing
            match = f"owner : {owner_word(scopes[0])} AND ({match})"
        said = index.execute(_SAID.format(of.text), (match, TURN.name, *of.parameters))
        found |= {*said}
    if not found:
        return None
    times = [at for at, _, _ in found if at != NO_TIME]
    is_one = len(scopes) == 1
    ids = [name if is_one else f"{session_of(scope)}/{name}" for _, name, scope in sorted(found)]
    last = max(times, default=None)
    return (TURN.name, len(ids), min(times, default=NO_TIME), last, json.dumps(ids))


def _wider(index: Index, of: Sql) -> dict[str, set[str]]:
    """Return for each tag the tags that every memory with it has, and others too."""
    asked = f"SELECT memory, topic FROM topics WHERE {of.text} AND how = {TAG} AND memory > 0"
    tags: dict[int, set[str]] = {}
    for memory, tag in index.execute(asked, of.parameters):
        tags.setdefault(memory, set()).add(tag)
    counts = Counter(tag for some in tags.values() for tag in some)
    found: dict[str, set[str]] = {}
    for some in tags.values():
        for tag in some:
            found[tag] = found[tag] & some if tag in found else {*some}
    return {
        tag: {other for other in shared if counts[other] > counts[tag]}
        for tag, shared in found.items()
    }


def timeline_of(
    index: Index, scopes: Sequence[str], since_us: int | None = None, until_us: int | None = None
) -> list[Event]:
    """Return the memories of this time, both ends included, in order."""
    of = within("scope", scopes)
    times = (-NO_TIME if since_us is None else since_us, NO_TIME if until_us is None else until_us)
    asked = _EVENTS.format(of.text)
    rows = index.execute(asked, (*of.parameters, *times)).fetchall()
    ended = marks(index, [row[0] for row in rows])
    topics = functools.cache(lambda text: tuple(json.loads(text)))
    events: list[Event] = []
    for key, scope, name, kind, stamp, actor, text, about, data in rows:
        fields = json.loads(data) if data else {}
        said = {one: fields.get(one) for one in _FURTHER.get(kind, ())}
        further = {one: value for one, value in said.items() if isinstance(value, str)}
        place = (STATE,) if is_archived(scope) else ()
        rest = (actor, text, topics(about), further, place + ended.get(key, ()))
        events.append(Event(stamp, type_of(kind), session_of(scope), name, *rest))
    return events


def _shown_time(at: int | None) -> str | None:
    time = time_at(None if at == NO_TIME else at)
    return render_time(time) if time else None


def _by_plural(ids: dict[str, list[str]], *always: str) -> dict[str, list[str]]:
    """Return ids by the plural of their kind, with the kinds that are always listed."""
    listed = {plural: ids.get(name, []) for name, plural in _PLURAL.items()}
    return {plural: ids for plural, ids in listed.items() if ids or plural in always}


# The files, for people and for agents in any language. Equal memories give equal bytes.


def render(index: Index, session_id: str) -> dict[str, bytes]:
    """Return the content of each file, by its name."""
    topics: dict[str, Value] = {}
    for one in topics_of(index, [session_id])[:_TOPICS_AND_AGENTS]:
        topics[one.name] = {
            "weight": one.weight,
            "mentions": one.mentions,
            "first_mentioned": one.first_mentioned,
            "last_mentioned": one.last_mentioned,
            "related_memories": _refs(one.related),
            "subtopics": list(one.subtopics),
        }
    everything, hours = timeline_of(index, [session_id]), dict[str, list[Value]]()
    events = everything[-_LAST_EVENTS:]
    for event in events:
        hours.setdefault(f"{event.timestamp[:13]}:00", []).append(event.ref)
    buckets: dict[str, Value] = {
        hour: {"event_count": len(refs), "event_refs": refs} for hour, refs in hours.items()
    }
    bodies: dict[str, tuple[str, dict[str, Value]]] = {
        TOPICS: ("topic_index", {"topics": topics}),
        TIMELINE: ("timeline_index", {"events": [*map(_event, events)], "buckets": buckets}),
        AGENTS: ("agent_index", {"agents": _agents(everything)}),
    }
    last = events[-1].timestamp if events else None
    files: dict[str, bytes] = {}
    for name, (top, body) in bodies.items():
        lines = render_entries({top: {"version": VERSION, "last_updated": last, **body}}, 0)
        files[name] = ("\n".join([_HEADING, *lines]) + "\n").encode()
    return files


def write(memory: Memory, index: Index, session_id: str) -> list[str]:
    """Write the files that differ, and return their names."""
    memory._session(session_id)  # raises where there is none
    directory = f"{ACTIVE}/{session_id}/indexes"
    if not memory.tree.exists(directory):
        # Moved into its place, so that it brings no session back that is deleted meanwhile.
        aside = memory.tree.new_temporary()
        memory.tree.make_directory(aside)
        memory.tree.rename_new(aside, directory)
    changed: list[str] = []
    for name, content in render(index, session_id).items():
        try:
            is_same = memory.tree.read(f"{directory}/{name}") == content
        except (FileNotFoundError, UnsafePath):
            is_same = False
        if not is_same:
            memory.tree.replace(f"{directory}/{name}", content, durable=False)
            changed.append(name)
    return changed


def _refs(related: dict[str, list[str]]) -> dict[str, Value]:
    """Return the ids of each kind: turns by number."""
    found: dict[str, Value] = {plural: [*ids] for plural, ids in related.items()}
    if "turns" in found:
        numbers = (one.removeprefix("turn-") for one in related["turns"])
        found["turns"] = [int(one) if one.isdecimal() else one for one in numbers]
    return found


def _event(event: Event) -> dict[str, Value]:
    kind = name_of(event.type)
    shown: dict[str, Value] = {"timestamp": event.timestamp, "type": kind, "ref": event.ref}
    if kind == TURN.name:
        shown["participants"] = [event.actor] if event.actor else []
    elif event.actor:
        shown[_ACTOR[kind]] = event.actor
    return {**shown, **event.further, "topics": [*event.topics]}


def _agents(events: Sequence[Event]) -> dict[str, Value]:
    """Return everybody who said or made a memory that has a time, those with the most first."""
    by_actor: dict[str, list[Event]] = {}
    for event in events:
        if 0 < len(event.actor) <= _NAME_CHARACTERS:
            by_actor.setdefault(event.actor, []).append(event)
    agents: dict[str, Value] = {}
    order = sorted(by_actor, key=lambda actor: (-len(by_actor[actor]), actor))
    for actor in order[:_TOPICS_AND_AGENTS]:
        made, ids = by_actor[actor], dict[str, list[str]]()
        for event in made:
            ids.setdefault(name_of(event.type), []).append(event.ref)
        memories = _by_plural(ids)
        agents[actor] = {
            "message_count": len(memories.pop("turns", [])),
            "first_active": made[0].timestamp,
            "last_active": made[-1].timestamp,
            "memories": _refs(memories),
        }
    return agents
