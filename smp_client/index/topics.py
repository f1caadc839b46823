"""What sessions are about, as data: their topics, what happened when, and who did it.

A pure function of the SQLite index: the same memories give the same, whenever and in whatever order they came.

**Topics** are the tags of the memories and of the session, the session's `primary_topic`, and a preference's `topic` and
`applies_to.domains`. A memory is about its own topics; a turn also about those of the memories it refers to, and about every
topic whose words stand one after the other in its text (`mfa_requirements` in "the MFA requirements"). What is about
`security.authentication` is about `security`. The session itself is about its primary topic and its tags, from its beginning.

**Mentions** of a topic are the memories, and perhaps the session, that are about it. Its **weight** is their share of all
memories, the session counted as one, rounded to two digits.

**Subtopics** of a topic are those one level below it by name, and those without a dot in their name that mostly occur together
with it: more than half of their mentions are mentions of this topic too, this topic has more mentions, and no other such topic
has fewer. So a topic is below the nearest wider one only. The session, and what is about more than 16 topics, is a list of topics
and does not bring them together.

**Bounds** keep the work in proportion to the memories: a turn takes over at most 32 topics from its references and 32 from its
text, a topic counts for the 8 nearest above it, and looked for in texts are only topics of up to 8 words, the 10,000 most used.

**Several scopes** can be asked about as one. What a memory is about is still a matter of its own session: a word that is a topic
in one session is not said of the turns of another, so that the mentions of a topic are the sum of those in each. Since `DEC-001` is
in many sessions, lists of ids then say `session/DEC-001`. An archived session is about what it was about before: its summary says
nothing of its own, and is left out.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from ..disk.scopes import is_archived, session_of
from ..model.record import GLOBAL_KINDS, KEY_CAP_CHARACTERS, PREFERENCE, SESSION_KINDS, TURN, type_of
from ..model.times import parse_time, render_time
from . import doubles
from .archived import STATE as ARCHIVED
from .database import Index
from .validity import marks

Scopes = str | Sequence[str]  # one by its name, or a list of them

TOPICS_PER_AGENT = 20
TURNS = "turns"
_LIST_OF_TOPICS = 16  # what is about more topics than this says nothing about any two of them
_TAKEN_OVER = 32  # by a turn
_LEVELS = 8  # above a topic, by its name
_PHRASES, _PHRASE_WORDS = 10_000, 8  # that are looked for in texts
_WORD = re.compile(r"[^\W_]+")
_decode = json.JSONDecoder().decode

_SESSION = "session"
_TYPES = dict.fromkeys((_SESSION, *(kind.name for kind in (*SESSION_KINDS, *GLOBAL_KINDS)), "agent_state", "artifact"))
_RANK = {name: rank for rank, name in enumerate(_TYPES)}  # in this order, of one time
_TELLING = {"finding": ("severity",), "preference": (), "relationship": ("source", "relationship", "target")}
_PLURAL = {
    "decision": "decisions", "finding": "findings", "preference": "preferences", "learning": "learnings", "pattern": "patterns",
    "relationship": "relationships", "artifact": "artifacts", "agent_state": "agent_states", TURN.name: TURNS,
}  # fmt: skip
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
    """A topic, how much there is about it, and what that is."""

    name: str
    weight: float
    mentions: int
    first_mentioned: str | None  # None where nothing about it has a time
    last_mentioned: str | None
    related: dict[str, list[str]]  # ids by the plural of their kind, in order; decisions, findings, preferences and turns always
    subtopics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A memory that has a time."""

    timestamp: str
    at: int  # the same in microseconds since 1970
    type: str
    session: str
    ref: str  # its id
    actor: str  # who said or made it; empty where nobody is named
    text: str
    topics: tuple[str, ...]
    further: dict[str, str]  # the severity of a finding; source, relationship and target of a relationship
    marks: tuple[str, ...] = ()  # as those of a Record


class Timeline(list[Event]):
    """Events in order. What has no time is in none, and named apart: type, session and id of each."""

    def __init__(self, events: Iterable[Event], without_time: Iterable[tuple[str, str, str]] = ()) -> None:
        super().__init__(events)
        self.without_time = list(without_time)


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
    timeline: list[Event]
    agents: list[AgentSummary]
    last_updated: str | None  # the time of the newest memory; of the newest session where there is none


@dataclass(slots=True)
class _Item:
    """A memory, or the session itself, and what it is about."""

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
    """The most mentioned first."""
    return _topics(_read(index, scopes))


def timeline_of(index: Index, scopes: Scopes, since_us: int | None = None, until_us: int | None = None) -> Timeline:
    """The events of this time, both ends included, in order."""
    items = _read(index, scopes)
    keys = [item.key for item in items if item.key]
    ended, doubled = marks(index, keys), doubles.marks(index, keys)
    for item in items:
        item.marks += ended.get(item.key, ()) + doubled.get(item.key, ())
    return _timeline(items, since_us, until_us)


def agents_of(index: Index, scopes: Scopes) -> list[AgentSummary]:
    """Everybody who spoke or made something, those with the most memories first."""
    return _agents(_read(index, scopes))


def overview_of(index: Index, scopes: Scopes, most: int | None = None) -> Overview:
    """Return at most so many topics and agents. Of more topics, those with a single mention do not count."""
    items = _read(index, scopes)
    updated = _span([item for item in items if item.type != _SESSION])[1] or _span(items)[1]
    return Overview(_topics(items, most), _timeline(items), _agents(items, most), updated)


# What there is, and what it is about.


def _read(index: Index, scopes: Scopes) -> list[_Item]:
    """The sessions and their memories, in the order of their times, those without one at the end."""
    if isinstance(scopes, str):
        return sorted(_items(index, scopes, ""), key=_order)
    # Scope by scope in the order of their names, which then decides between equal ids of one time.
    return sorted((item for scope in sorted(set(scopes)) for item in _items(index, scope, f"{session_of(scope)}/")), key=_order)


def _items(index: Index, scope: str, prefix: str) -> list[_Item]:
    session, memories = _session(index, scope), _memories(index, scope, prefix)
    everything = [session, *memories] if session else memories
    phrases = _phrases(everything) if any(item.type == TURN.name for item in memories) else {}
    _add_said(memories, phrases)
    return everything


def _session(index: Index, scope: str) -> _Item | None:
    row = index.connection.execute("SELECT metadata FROM sessions WHERE scope = ?", (scope,)).fetchone()
    if row is None:
        return None
    metadata = _decode(row[0])
    context = metadata.get("context")
    topics = _names(context.get("primary_topic"), context.get("tags")) if isinstance(context, dict) else ()
    return _Item(session_of(scope), "", "", _SESSION, *_time(metadata.get("created_at")), topics=topics)


def _memories(index: Index, scope: str, prefix: str) -> list[_Item]:
    """The memories of the scope, with the topics of their own and those of what they refer to."""
    by_key: dict[int, _Item] = {}
    place = (ARCHIVED,) if is_archived(scope) else ()
    for key, memory_id, type_, timestamp, at, actor, text, has_tags, data in index.connection.execute(_MEMORIES, (scope,)):
        item = by_key[key] = _Item(session_of(scope), prefix + memory_id, memory_id, type_, timestamp, at, actor, text,
                                   marks=place, key=key)  # fmt: skip
        if has_tags or type_ in _TELLING:
            _describe(item, _decode(data))
    own = {item.id: item.topics for item in by_key.values()}
    rows = index.connection.execute(_TURN_REFS, (scope, TURN.name))
    for key, group in groupby(rows, key=itemgetter(0)):
        taken_over = (topic for _, target in group for topic in own.get(target, ())[:_TAKEN_OVER])
        by_key[key].topics += tuple(islice(dict.fromkeys(taken_over), _TAKEN_OVER))
    return list(by_key.values())


def _describe(item: _Item, data: Mapping[str, Any]) -> None:
    item.topics = _names(data.get("tags"))
    if item.type == PREFERENCE.name:
        applies_to = data.get("applies_to")
        item.topics += _names(data.get("topic"), applies_to.get("domains") if isinstance(applies_to, dict) else None)
    if telling := _TELLING.get(item.type):
        item.further = {name: value for name in telling if isinstance(value := data.get(name), str)}


def _names(*given: Any) -> tuple[str, ...]:
    """Texts, and lists of texts, that can be the name of a topic."""
    texts = [text for one in given for text in (one if isinstance(one, list) else (one,)) if text is not None]
    return tuple([name for text in texts if _is_name(name := str(text))])


@functools.lru_cache(maxsize=4096)
def _is_name(text: str) -> bool:
    return len(text) <= KEY_CAP_CHARACTERS and _WORD.search(text) is not None


def _time(stamp: Any) -> tuple[str | None, int | None]:
    try:
        time = parse_time(str(stamp))
    except (ValueError, OverflowError):
        return None, None
    return render_time(time), int(time.timestamp() * 1_000_000)


def _order(item: _Item) -> tuple[Any, ...]:
    # By its length first, so that DEC-1000 is behind DEC-999.
    return item.at is None, item.at or 0, _RANK[item.type], len(item.id), item.id


def _phrases(items: Iterable[_Item]) -> dict[tuple[str, ...], list[str]]:
    """Return the topics that are looked for in texts, by their words."""
    uses = Counter(topic for item in items for topic in item.topics)
    phrases: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(sorted(uses, key=lambda topic: (-uses[topic], topic))[:_PHRASES]):
        if len(words := tuple(_WORD.findall(topic.lower()))) <= _PHRASE_WORDS:
            phrases.setdefault(words, []).append(topic)
    return {words: named[:_TAKEN_OVER] for words, named in phrases.items()}


def _add_said(items: Iterable[_Item], phrases: Mapping[tuple[str, ...], list[str]]) -> None:
    """Give every turn the topics that are said in its text, and make the topics of each item distinct."""
    lengths: dict[str, set[int]] = {}
    for phrase in phrases:
        lengths.setdefault(phrase[0], set()).add(len(phrase))
    for item in items:
        topics_of_item = dict.fromkeys(item.topics)
        if item.type == TURN.name and phrases:
            said = islice(_said(_WORD.findall(item.text.lower()), phrases, lengths), _TAKEN_OVER)
            topics_of_item.update(dict.fromkeys(sorted(said)))
        item.topics = tuple(topics_of_item)


def _said(words: list[str], phrases: Mapping[tuple[str, ...], list[str]], lengths: Mapping[str, set[int]]) -> Iterator[str]:
    """Yield the topics in the order of the text."""
    seen: set[tuple[str, ...]] = set()
    for position in [position for position, word in enumerate(words) if word in lengths]:
        for length in sorted(lengths[words[position]]):
            if (phrase := tuple(words[position : position + length])) in phrases and phrase not in seen:
                seen.add(phrase)
                yield from phrases[phrase]


def _span(items: Sequence[_Item]) -> tuple[str | None, str | None]:
    """The first and the last time of what is in order."""
    first = items[0].timestamp if items else None
    return first, next((item.timestamp for item in reversed(items) if item.timestamp is not None), None)


def _by_kind(items: Iterable[_Item]) -> dict[str, list[str]]:
    """How the memories are called, by the plural of their kind."""
    found: dict[str, list[str]] = {type_: [] for type_ in _RANK}
    for item in items:
        found[item.type].append(item.name)
    return {plural: found[type_] for type_, plural in _PLURAL.items() if found[type_] or plural in _ALWAYS_LISTED}


# Topics.


def _topics(items: list[_Item], most: int | None = None) -> list[Topic]:
    counts: Counter[str] = Counter()
    for item in items:
        counts.update(_with_wider(item.topics))
    chosen = list(counts) if most is None or len(counts) <= most else [name for name in counts if counts[name] > 1]
    mentions = {name: counts[name] for name in sorted(chosen, key=lambda name: (-counts[name], name))[:most]}
    about: dict[str, list[_Item]] = {name: [] for name in mentions}
    together: Counter[tuple[str, ...]] = Counter()
    for item in items:
        names = _with_wider(item.topics)
        known = tuple([name for name in names if name in mentions])
        if item.type != _SESSION and len(names) <= _LIST_OF_TOPICS:
            together[known] += 1
        for name in known:
            about[name].append(item)
    subtopics: dict[str, list[str]] = {name: [] for name in mentions}
    wider = _wider(mentions, together)
    for name in mentions:
        if name in wider:
            subtopics[wider[name]].append(name)
    return [
        Topic(name, round(count / len(items), 2), count, *_span(about[name]), _by_kind(about[name]), tuple(subtopics[name]))
        for name, count in mentions.items()
    ]


def _with_wider(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topics and those that they are below by name, sorted, each once."""
    # A few topics come again and again. A long list does not, and is not worth to be kept.
    return _few_with_wider(names) if len(names) <= _LIST_OF_TOPICS else _all_with_wider(names)


def _all_with_wider(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({*names, *(wider for name in names if "." in name for wider in _above(name))}))


_few_with_wider = functools.lru_cache(maxsize=4096)(_all_with_wider)


@functools.lru_cache(maxsize=4096)
def _above(name: str) -> tuple[str, ...]:
    """The topics that this one is below by its name, the nearest first."""
    above: list[str] = []
    while "." in name and len(above) < _LEVELS:
        name = name.rpartition(".")[0]
        if not name.endswith(".") and _WORD.search(name):
            above.append(name)
    return tuple(above)


def _wider(mentions: Mapping[str, int], together: Mapping[tuple[str, ...], int]) -> dict[str, str]:
    """The topic that each is a subtopic of, for those that are one."""
    both: Counter[tuple[str, str]] = Counter()
    for names, times in together.items():
        for pair in _narrow_and_wide(mentions, names):
            both[pair] += times
    nearest = {name: above[0] for name in mentions if (above := _above(name)) and above[0] in mentions}
    mostly = [(mentions[wide], wide, narrow) for (narrow, wide), times in both.items() if 2 * times > mentions[narrow]]
    for _, wide, narrow in sorted(mostly):
        nearest.setdefault(narrow, wide)
    return nearest


def _narrow_and_wide(mentions: Mapping[str, int], names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for narrow in names:
        if "." not in narrow:
            yield from ((narrow, wide) for wide in names if mentions[wide] > mentions[narrow])


# Events.


def _timeline(items: Sequence[_Item], since_us: int | None = None, until_us: int | None = None) -> Timeline:
    memories = [item for item in items if item.type != _SESSION]
    events = (
        Event(item.timestamp, item.at, type_of(item.type), item.session, item.id, item.actor, item.text, item.topics, item.further,
              item.marks)
        for item in memories
        if item.at is not None and item.timestamp is not None
        and (since_us is None or item.at >= since_us) and (until_us is None or item.at <= until_us)
    )  # fmt: skip
    timeless = [item for item in memories if item.at is None or item.timestamp is None]
    return Timeline(events, ((type_of(item.type), item.session, item.id) for item in timeless))


# Agents.


def _agents(items: Iterable[_Item], most: int | None = None) -> list[AgentSummary]:
    by_agent: dict[str, list[_Item]] = {}
    for item in items:
        if item.actor and len(item.actor) <= KEY_CAP_CHARACTERS:
            by_agent.setdefault(item.actor, []).append(item)
    busiest = sorted(by_agent, key=lambda name: (-len(by_agent[name]), name))[:most]
    return [_agent(name, by_agent[name]) for name in busiest]


def _agent(name: str, items: list[_Item]) -> AgentSummary:
    topics = Counter(topic for item in items for topic in item.topics)
    most = tuple(sorted(topics, key=lambda topic: (-topics[topic], topic))[:TOPICS_PER_AGENT])
    memories = {plural: ids for plural, ids in _by_kind(items).items() if ids}
    turns = memories.pop(TURNS, [])
    return AgentSummary(name, len(turns), *_span(items), memories, most)
