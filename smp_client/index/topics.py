"""The topics of sessions, their events and their agents: a pure function of the index.

**Topics** are the tags of memories and of the session, the session's `primary_topic`, and a
preference's `topic` and `applies_to.domains`. A memory is about its own topics. A turn is also
about the topics of memories that it refers to, and about every topic whose words stand in its text
(`mfa_requirements` in "the MFA requirements"). A memory about `security.authentication` is about
`security`. The session is about its primary topic and its tags, from its beginning.

**Mentions** of a topic are the memories, and perhaps the session, that are about it. Its **weight**
is their share of all memories, the session counted as one, rounded to two digits.

**Subtopics** of a topic are those one level below it by name, and those without a dot that mostly
occur together with it: more than half of their mentions are mentions of this topic too, this topic
has more mentions, and no other such topic has fewer. The session, and a memory about more than 16
topics, is a list of topics and does not bring them together.

**Bounds** keep the work in proportion to the memories: a turn takes over at most 32 topics from its
references and 32 from its text, a topic counts for the 8 nearest above it, and only the 10,000 most
used topics of up to 8 words are looked for in texts.

**Several scopes** can be asked about as one. A word that is a topic in one session is not said of
the turns of another. Lists of ids then say `session/DEC-001`. The summary of an archived session
says nothing of its own, and is left out.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from ..disk.scopes import is_archived, session_of
from ..model import record
from ..model.record import KEY_CAP_CHARACTERS, PREFERENCE, TURN, type_of
from ..model.times import microseconds, render_time, time_of
from . import doubles
from .archive import STATE as ARCHIVED
from .database import Index
from .validity import marks

Scopes = str | Sequence[str]  # one by its name, or several as one
TOPICS_PER_AGENT = 20
TURNS = "turns"
_LIST_OF_TOPICS = 16  # a memory about more topics says nothing about any two of them
_TAKEN_OVER = 32  # by a turn
_LEVELS = 8  # above a topic, by its name
_PHRASES, _PHRASE_WORDS = 10_000, 8  # that are looked for in texts
_WORD = re.compile(r"[^\W_]+")
_decode = json.JSONDecoder().decode

_SESSION = "session"
_KINDS = [kind.name for kind in (*record.SESSION_KINDS, *record.GLOBAL_KINDS)]
# Memories of one time stand in this order.
_RANK = {name: at for at, name in enumerate([_SESSION, *_KINDS, "agent_state", "artifact"])}
_FURTHER = {"finding": ["severity"], "relationship": ["source", "relationship", "target"]}
_FURTHER["preference"] = []
_LISTED = (
    "decision", "finding", "preference", "learning", "pattern", "relationship", "artifact",
    "agent_state",
)  # fmt: skip
_PLURAL = {name: f"{name}s" for name in _LISTED} | {TURN.name: TURNS}
_ALWAYS_LISTED = frozenset(("decisions", "findings", "preferences", TURNS))
_MEMORIES = """
SELECT key, id, type, timestamp, at, actor, text, tags <> '', data FROM memories
WHERE scope = ? AND type <> 'summary' ORDER BY file, start
"""
_TURN_REFS = """
SELECT memory, target FROM refs JOIN memories ON key = memory
WHERE memories.scope = ? AND type = ? AND relation = 'memory_refs' ORDER BY memory, target
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


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """Somebody who spoke or made a memory."""

    name: str
    message_count: int
    first_active: str | None  # None where nothing from them has a time
    last_active: str | None
    memories: dict[str, list[str]]  # ids by the plural of their kind, in order, without the turns
    topics: tuple[str, ...]  # the most frequent first, 20 at most


@dataclass(frozen=True)
class Overview:
    """All of it, of one reading."""

    topics: list[Topic]
    timeline: Timeline
    agents: list[AgentSummary]
    last_updated: str | None  # of the newest memory; of the newest session where there is none


@dataclass(slots=True)
class _Item:
    """A memory, or the session itself, and its topics."""

    session: str
    name: str  # its id, as lists of ids give it
    id: str
    type: str
    timestamp: str | None
    at: int | None
    actor: str = ""
    text: str = ""
    topics: tuple[str, ...] = ()
    further: dict[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()
    key: int = 0  # of a memory in the index


def topics_of(index: Index, scopes: Scopes) -> list[Topic]:
    """Return the topics, the most mentioned first."""
    return _topics(_read(index, scopes))


def timeline_of(
    index: Index, scopes: Scopes, since_us: int | None = None, until_us: int | None = None
) -> Timeline:
    """Return the events of this time, both ends included, in order."""
    items = _read(index, scopes)
    keys = [item.key for item in items if item.key]
    ended, doubled = marks(index, keys), doubles.marks(index, keys)
    for item in items:
        item.marks += ended.get(item.key, ()) + doubled.get(item.key, ())
    return _timeline(items, since_us, until_us)


def overview_of(index: Index, scopes: Scopes, most: int | None = None) -> Overview:
    """Return at most so many topics and agents. Of more topics, single mentions do not count."""
    items = _read(index, scopes)
    updated = _span([item for item in items if item.type != _SESSION])[1] or _span(items)[1]
    return Overview(_topics(items, most), _timeline(items), _agents(items, most), updated)


# Memories and their topics.


def _read(index: Index, scopes: Scopes) -> list[_Item]:
    """Return the sessions and their memories in the order of time, those without one last."""
    items: list[_Item] = []
    # Scope by scope in the order of their names, which decides between equal ids of one time.
    for scope in [scopes] if isinstance(scopes, str) else sorted(set(scopes)):
        prefix = "" if isinstance(scopes, str) else f"{session_of(scope)}/"
        session, memories = _session(index, scope), _memories(index, scope, prefix)
        if any(item.type == TURN.name for item in memories):
            _add_said(memories, _phrases([*session, *memories]))
        items += [*session, *memories]
    for item in items:
        item.topics = tuple(dict.fromkeys(item.topics))
    return sorted(items, key=_order)


def _order(item: _Item) -> tuple[Any, ...]:
    # By its length first, so that DEC-1000 is behind DEC-999.
    return item.at is None, item.at or 0, _RANK[item.type], len(item.id), item.id


def _session(index: Index, scope: str) -> list[_Item]:
    asked = "SELECT metadata FROM sessions WHERE scope = ?"
    row = index.connection.execute(asked, (scope,)).fetchone()
    if row is None:
        return []
    metadata = _decode(row[0])
    context, time = metadata.get("context"), time_of(metadata.get("created_at"))
    about = context if isinstance(context, dict) else {}
    stamp, at = (render_time(time), microseconds(time)) if time else (None, None)
    topics = _names(about.get("primary_topic"), about.get("tags"))
    return [_Item(session_of(scope), "", "", _SESSION, stamp, at, topics=topics)]


def _memories(index: Index, scope: str, prefix: str) -> list[_Item]:
    """Return the memories of a scope with their own topics and those of memories they refer to."""
    by_key: dict[int, _Item] = {}
    session, place = session_of(scope), (ARCHIVED,) if is_archived(scope) else ()
    rows = index.connection.execute(_MEMORIES, (scope,))
    for key, one, kind, stamp, at, actor, text, has_tags, data in rows:
        item = _Item(session, prefix + one, one, kind, stamp, at, actor, text, marks=place, key=key)
        by_key[key] = item
        if not has_tags and kind not in _FURTHER:
            continue
        value = _decode(data)
        item.topics = _names(value.get("tags"))
        if kind == PREFERENCE.name:
            applies = value.get("applies_to")
            domains = applies.get("domains") if isinstance(applies, dict) else None
            item.topics += _names(value.get("topic"), domains)
        for name in _FURTHER.get(kind, ()):
            if isinstance(value.get(name), str):
                item.further[name] = value[name]
    own = {item.id: item.topics for item in by_key.values()}
    rows = index.connection.execute(_TURN_REFS, (scope, TURN.name))
    for key, group in groupby(rows, key=itemgetter(0)):
        over = (topic for _, target in group for topic in own.get(target, ())[:_TAKEN_OVER])
        by_key[key].topics += tuple(islice(dict.fromkeys(over), _TAKEN_OVER))
    return list(by_key.values())


def _names(*given: Any) -> tuple[str, ...]:
    """Return the texts, and those in lists, that can be the name of a topic."""
    texts = (one for each in given for one in (each if isinstance(each, list) else (each,)))
    return tuple([str(text) for text in texts if text is not None and _is_name(str(text))])


@functools.lru_cache(maxsize=4096)
def _is_name(text: str) -> bool:
    return len(text) <= KEY_CAP_CHARACTERS and _WORD.search(text) is not None


def _phrases(items: Iterable[_Item]) -> dict[tuple[str, ...], list[str]]:
    """Return the topics that are looked for in texts, by their words."""
    uses = Counter(topic for item in items for topic in item.topics)
    phrases: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(sorted(uses, key=lambda topic: (-uses[topic], topic))[:_PHRASES]):
        words = tuple(_WORD.findall(topic.lower()))
        if len(words) <= _PHRASE_WORDS:
            phrases.setdefault(words, []).append(topic)
    return {words: named[:_TAKEN_OVER] for words, named in phrases.items()}


def _add_said(items: Iterable[_Item], phrases: Mapping[tuple[str, ...], list[str]]) -> None:
    """Give every turn the topics that are said in its text."""
    lengths: dict[str, set[int]] = {}
    for phrase in phrases:
        lengths.setdefault(phrase[0], set()).add(len(phrase))
    for item in items:
        if item.type != TURN.name:
            continue
        words, said = _WORD.findall(item.text.lower()), dict[str, None]()
        for position in [at for at, word in enumerate(words) if word in lengths]:
            if len(said) >= _TAKEN_OVER:
                break
            for length in sorted(lengths[words[position]]):
                phrase = tuple(words[position : position + length])
                said.update(dict.fromkeys(phrases.get(phrase, ())))
        item.topics += tuple(sorted(islice(said, _TAKEN_OVER)))


def _span(items: Sequence[_Item]) -> tuple[str | None, str | None]:
    """Return the first and the last time of items that are in order."""
    last = next((item.timestamp for item in reversed(items) if item.timestamp is not None), None)
    return items[0].timestamp if items else None, last


def _by_kind(items: Iterable[_Item]) -> dict[str, list[str]]:
    """Return the names of memories by the plural of their kind."""
    found: dict[str, list[str]] = {name: [] for name in _RANK}
    for item in items:
        found[item.type].append(item.name)
    by_plural = {plural: found[name] for name, plural in _PLURAL.items()}
    return {name: ids for name, ids in by_plural.items() if ids or name in _ALWAYS_LISTED}


# Topics.


def _topics(items: list[_Item], most: int | None = None) -> list[Topic]:
    # A few sets of topics come again and again.
    wide: dict[tuple[str, ...], tuple[str, ...]] = {}
    counts: Counter[str] = Counter()
    for item in items:
        if item.topics not in wide:
            above = (name for topic in item.topics if "." in topic for name in _above(topic))
            wide[item.topics] = tuple(sorted({*item.topics, *above}))
        counts.update(wide[item.topics])
    is_few = most is None or len(counts) <= most
    chosen = [name for name in counts if is_few or counts[name] > 1]
    chosen = sorted(chosen, key=lambda name: (-counts[name], name))[:most]
    about: dict[str, list[_Item]] = {name: [] for name in chosen}
    together: Counter[tuple[str, ...]] = Counter()
    for item in items:
        names = wide[item.topics]
        known = tuple([name for name in names if name in about])
        if item.type != _SESSION and len(names) <= _LIST_OF_TOPICS:
            together[known] += 1
        for name in known:
            about[name].append(item)
    subtopics: dict[str, list[str]] = {name: [] for name in chosen}
    wider = _wider(counts, chosen, together)
    for name in chosen:
        if name in wider:
            subtopics[wider[name]].append(name)
    found: list[Topic] = []
    for name in chosen:
        weight, related = round(counts[name] / len(items), 2), _by_kind(about[name])
        below = tuple(subtopics[name])
        found.append(Topic(name, weight, counts[name], *_span(about[name]), related, below))
    return found


def _above(name: str) -> list[str]:
    """Return the topics that this one is below by its name, the nearest first."""
    above: list[str] = []
    while "." in name and len(above) < _LEVELS:
        name = name.rpartition(".")[0]
        if not name.endswith(".") and _WORD.search(name):
            above.append(name)
    return above


def _wider(
    mentions: Mapping[str, int], chosen: Iterable[str], together: Mapping[tuple[str, ...], int]
) -> dict[str, str]:
    """Return the topic that each is a subtopic of, for those that are one."""
    both: Counter[tuple[str, str]] = Counter()
    for names, times in together.items():
        for narrow in names:
            if "." not in narrow:
                for wide in names:
                    if mentions[wide] > mentions[narrow]:
                        both[narrow, wide] += times
    chosen = set(chosen)
    nearest = {name: above[0] for name in chosen if (above := _above(name)) and above[0] in chosen}
    mostly = [pair for pair, times in both.items() if 2 * times > mentions[pair[0]]]
    for narrow, wide in sorted(mostly, key=lambda pair: (mentions[pair[1]], pair[1], pair[0])):
        nearest.setdefault(narrow, wide)
    return nearest


# Events and agents.


def _timeline(
    items: Sequence[_Item], since_us: int | None = None, until_us: int | None = None
) -> Timeline:
    timeline, without = Timeline(), list[tuple[str, str, str]]()
    for item in items:
        kind = type_of(item.type)
        if item.type == _SESSION:
            continue
        if item.at is None or item.timestamp is None:
            without.append((kind, item.session, item.id))
        elif (since_us is None or item.at >= since_us) and (
            until_us is None or item.at <= until_us
        ):
            said = (item.actor, item.text, item.topics, item.further, item.marks)
            timeline.append(Event(item.timestamp, item.at, kind, item.session, item.id, *said))
    timeline.without_time = without
    return timeline


def _agents(items: Iterable[_Item], most: int | None = None) -> list[AgentSummary]:
    """Return everybody who spoke or made something, those with the most memories first."""
    by_agent: dict[str, list[_Item]] = {}
    for item in items:
        if item.actor and len(item.actor) <= KEY_CAP_CHARACTERS:
            by_agent.setdefault(item.actor, []).append(item)
    found: list[AgentSummary] = []
    for name in sorted(by_agent, key=lambda name: (-len(by_agent[name]), name))[:most]:
        own = by_agent[name]
        uses = Counter(topic for item in own for topic in item.topics)
        topics = sorted(uses, key=lambda topic: (-uses[topic], topic))[:TOPICS_PER_AGENT]
        memories = {plural: ids for plural, ids in _by_kind(own).items() if ids}
        turns = memories.pop(TURNS, [])
        found.append(AgentSummary(name, len(turns), *_span(own), memories, tuple(topics)))
    return found
