"""The index of one session as YAML, for people and for agents in any language: topics, timeline and agents in `indexes/`.

A pure function of the SQLite index: the same memories give the same bytes, whenever and in whatever order they came.

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
"""

from __future__ import annotations

import functools
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import UnsafePath
from .index import Index
from .layout import TEMPORARY
from .memory import Memory
from .records import PREFERENCE, SESSION_KINDS, TURN
from .timestamps import parse_time, render_time
from .values import KEY_CAP_CHARACTERS, render_entries, render_flow

TOPICS, TIMELINE, AGENTS = "topics.yaml", "timeline.yaml", "agents.yaml"
VERSION = 1
TOPICS_PER_AGENT = 20
_HEADING = "# Made by SMP from this session's memories; changes made here are overwritten."
_LIST_OF_TOPICS = 16  # what is about more topics than this says nothing about any two of them
_WORD = re.compile(r"[^\W_]+")
_ITEMS_PER_LINE = 10

_SESSION = "session"
# In this order, of one time.
_RANK = {name: rank for rank, name in enumerate((_SESSION, *(kind.name for kind in SESSION_KINDS), "agent_state", "artifact"))}
_ACTOR = {kind.name: kind.actor for kind in SESSION_KINDS} | {"agent_state": "agent", "artifact": "created_by"}
_TELLING = {"finding": ("severity",), "preference": (), "relationship": ("source", "relationship", "target")}
_PLURAL = {
    "decision": "decisions", "finding": "findings", "preference": "preferences", "learning": "learnings",
    "relationship": "relationships", "artifact": "artifacts", "agent_state": "agent_states",
}  # fmt: skip
_TURNS = "turns"
_ALWAYS_LISTED = ("decisions", "findings", "preferences", _TURNS)
_MEMORIES = "SELECT key, id, type, timestamp, at, actor, text, tags <> '', data FROM memories WHERE scope = ? ORDER BY file, start"
_TURN_REFS = """
SELECT memory, target FROM refs JOIN memories ON key = memory
WHERE memories.scope = ? AND type = ? AND relation = 'memory_refs' ORDER BY memory, target
"""


@dataclass(slots=True)
class _Item:
    """A memory, or the session itself, and what it is about."""

    id: str
    type: str
    timestamp: str | None
    at: int | None
    actor: str
    text: str = ""
    topics: list[str] = field(default_factory=list)
    further: dict[str, str] = field(default_factory=dict)  # more of what its event tells


class _Rendered(dict[str, str]):
    """Each text as YAML shows it on a line, worked out once: the same few stand in these files a thousand times."""

    def __missing__(self, text: str) -> str:
        shown = self[text] = render_flow(text)
        return shown


def render(index: Index, session_id: str) -> dict[str, bytes]:
    """The content of each file, by its name."""
    items = _items(index, session_id)
    session = _session(index, session_id)
    everything = sorted([session, *items] if session else items, key=_order)
    memories = [item for item in everything if item is not session]
    _add_said(memories, {topic for item in everything for topic in item.topics})
    updated = _newest(memories) or _newest(everything)
    shown = _Rendered()
    return {
        TOPICS: _file("topic_index", updated, _topics(everything, shown)),
        TIMELINE: _file("timeline_index", updated, _timeline([item for item in memories if item.at is not None], shown)),
        AGENTS: _file("agent_index", updated, _agents(memories, shown)),
    }


def write(memory: Memory, index: Index, session_id: str) -> list[str]:
    """Writes the files that are not what they should be, and gives back their names."""
    directory = f"{memory.session(session_id).scope.directory}/indexes"
    _make(memory, directory)
    changed = {name: content for name, content in render(index, session_id).items()
               if _read(memory, f"{directory}/{name}") != content}  # fmt: skip
    for name, content in changed.items():
        memory.tree.replace_derived(f"{directory}/{name}", content)
    return list(changed)


def _make(memory: Memory, directory: str) -> None:
    """Moves a new directory into its place, so that a session which is deleted meanwhile does not come back by it."""
    if not memory.tree.exists(directory):
        aside = f"{TEMPORARY}/{uuid.uuid4().hex}"
        memory.tree.make_directory(aside)
        memory.tree.rename_new(aside, directory)


def _read(memory: Memory, name: str) -> bytes | None:
    try:
        return memory.tree.read(name)
    except (FileNotFoundError, UnsafePath):
        return None


def _file(top: str, updated: str | None, body: list[str]) -> bytes:
    head = [_HEADING, *render_entries({top: {"version": VERSION, "last_updated": updated}}, 0)]
    return ("\n".join([*head, *body]) + "\n").encode()


def _listed(items: Sequence[str], indent: int) -> str:
    """A list in flow style, ten to a line where it is long."""
    if len(items) <= _ITEMS_PER_LINE:
        return f"[{', '.join(items)}]"
    lines = [", ".join(items[start : start + _ITEMS_PER_LINE]) for start in range(0, len(items), _ITEMS_PER_LINE)]
    margin = " " * indent
    return f"[\n{margin}  " + f",\n{margin}  ".join(lines) + f"\n{margin}]"


def _mapping(name: str, entries: Iterable[str], indent: int) -> list[str]:
    """The lines of a mapping below its name; what is empty says so, since nothing would be null."""
    margin = " " * indent
    lines = [f"{margin}  {entry}" for entry in entries]
    return [f"{margin}{name}:", *lines] if lines else [f"{margin}{name}: {{}}"]


# What there is, and what it is about.


def _session(index: Index, session_id: str) -> _Item | None:
    row = index.connection.execute("SELECT metadata FROM sessions WHERE scope = ?", (session_id,)).fetchone()
    if row is None:
        return None
    metadata = json.loads(row[0])
    context = metadata.get("context")
    topics = _names(context.get("primary_topic"), context.get("tags")) if isinstance(context, dict) else []
    return _Item("", _SESSION, *_time(metadata.get("created_at")), actor="", topics=topics)


def _items(index: Index, session_id: str) -> list[_Item]:
    """The memories of the session, with the topics of their own and those of what they refer to."""
    by_key: dict[int, _Item] = {}
    latest: dict[tuple[str, str], int] = {}
    for key, *row, has_tags, data in index.connection.execute(_MEMORIES, (session_id,)):
        item = by_key[key] = _Item(*row)
        latest[item.type, item.id] = key  # of a hand-made double only the last is meant
        if has_tags or item.type in _TELLING:
            _describe(item, json.loads(data))
    own = {item.id: item.topics for item in by_key.values()}
    for key, target in index.connection.execute(_TURN_REFS, (session_id, TURN.name)):
        by_key[key].topics = [*by_key[key].topics, *own.get(target, ())]
    return [by_key[key] for key in latest.values()]


def _describe(item: _Item, data: Mapping[str, Any]) -> None:
    item.topics = _names(data.get("tags"))
    if item.type == PREFERENCE.name:
        applies_to = data.get("applies_to")
        item.topics += _names(data.get("topic"), applies_to.get("domains") if isinstance(applies_to, dict) else None)
    item.further = {name: value for name in _TELLING.get(item.type, ()) if isinstance(value := data.get(name), str)}


def _names(*given: Any) -> list[str]:
    """Texts, and lists of texts, that can be the name of a topic."""
    texts = [str(text) for one in given for text in (one if isinstance(one, list) else [one]) if text is not None]
    return [text for text in texts if _is_name(text)]


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


def _newest(items: Iterable[_Item]) -> str | None:
    return max(((item.at, item.timestamp) for item in items if item.at is not None), default=(0, None))[1]


def _add_said(items: Iterable[_Item], topics: Iterable[str]) -> None:
    """Gives every turn the topics that are said in its text, and makes the topics of each item distinct."""
    phrases: dict[tuple[str, ...], list[str]] = {}
    for topic in sorted(topics):
        phrases.setdefault(tuple(_WORD.findall(topic.lower())), []).append(topic)
    lengths: dict[str, set[int]] = {}
    for phrase in phrases:
        lengths.setdefault(phrase[0], set()).add(len(phrase))
    for item in items:
        said = sorted(_said(_WORD.findall(item.text.lower()), phrases, lengths)) if item.type == TURN.name else []
        item.topics = list(dict.fromkeys([*item.topics, *said]))


def _said(words: list[str], phrases: Mapping[tuple[str, ...], list[str]], lengths: Mapping[str, set[int]]) -> set[str]:
    said: set[str] = set()
    for position, word in enumerate(words):
        if word in lengths:
            for length in lengths[word]:
                said.update(phrases.get(tuple(words[position : position + length]), ()))
    return said


# topics.yaml


def _topics(items: list[_Item], shown: _Rendered) -> list[str]:
    about: dict[str, list[_Item]] = {}
    together: Counter[tuple[str, ...]] = Counter()
    for item in items:
        names = _with_wider(tuple(item.topics))
        if item.type != _SESSION:
            together[names] += 1
        for name in names:
            about.setdefault(name, []).append(item)
    mentions = {name: len(about[name]) for name in sorted(about, key=lambda name: (-len(about[name]), name))}
    subtopics: dict[str, list[str]] = {name: [] for name in mentions}
    wider = _wider(mentions, together)
    for name in mentions:
        if name in wider:
            subtopics[wider[name]].append(shown[name])
    return _mapping("topics", _topic_lines(mentions, about, subtopics, len(items), shown), 2)


def _topic_lines(
    mentions: Mapping[str, int], about: Mapping[str, list[_Item]], subtopics: Mapping[str, list[str]], everything: int,
    shown: _Rendered,
) -> Iterator[str]:  # fmt: skip
    for name, count in mentions.items():
        times = [item.timestamp for item in about[name] if item.timestamp is not None]
        yield f"{shown[name]}:"
        yield f"  weight: {round(count / everything, 2)}"
        yield f"  mentions: {count}"
        yield f"  first_mentioned: {shown[times[0]] if times else 'null'}"
        yield f"  last_mentioned: {shown[times[-1]] if times else 'null'}"
        yield "  related_memories:"
        yield from (f"    {plural}: {_listed(refs, 8)}" for plural, refs in _by_kind(about[name], shown, _ALWAYS_LISTED).items())
        yield f"  subtopics: {_listed(subtopics[name], 6)}"


def _by_kind(items: Iterable[_Item], shown: _Rendered, always: Iterable[str] = ()) -> dict[str, list[str]]:
    """How the memories are called, by the plural of their kind: turns by number."""
    found: dict[str, list[str]] = {type_: [] for type_ in _RANK}
    for item in items:
        found[item.type].append(item.id)
    turns = [memory_id.removeprefix("turn-") for memory_id in found.pop(TURN.name)]
    ids = {plural: [shown[memory_id] for memory_id in found[type_]] for type_, plural in _PLURAL.items()}
    return {plural: refs for plural, refs in (ids | {_TURNS: turns}).items() if refs or plural in always}


@functools.lru_cache(maxsize=4096)
def _with_wider(names: tuple[str, ...]) -> tuple[str, ...]:
    """The topics and those that they are below by name, sorted, each once."""
    return tuple(sorted({wider for name in names for wider in (name, *_above(name))}))


@functools.lru_cache(maxsize=4096)
def _above(name: str) -> tuple[str, ...]:
    """The topics that this one is below by its name, the nearest first."""
    above = []
    while "." in name:
        name = name.rpartition(".")[0]
        if not name.endswith(".") and _WORD.search(name):
            above.append(name)
    return tuple(above)


def _wider(mentions: Mapping[str, int], together: Mapping[tuple[str, ...], int]) -> dict[str, str]:
    """The topic that each is a subtopic of, for those that are one."""
    both: Counter[tuple[str, str]] = Counter()
    for names, times in together.items():
        if len(names) <= _LIST_OF_TOPICS:
            for pair in _narrow_and_wide(mentions, names):
                both[pair] += times
    nearest = {name: above[0] for name in mentions if (above := _above(name))}
    mostly = [(mentions[wide], wide, narrow) for (narrow, wide), times in both.items() if 2 * times > mentions[narrow]]
    for _, wide, narrow in sorted(mostly):
        nearest.setdefault(narrow, wide)
    return nearest


def _narrow_and_wide(mentions: Mapping[str, int], names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for narrow in names:
        if "." not in narrow:
            yield from ((narrow, wide) for wide in names if mentions[wide] > mentions[narrow])


# timeline.yaml


def _timeline(items: list[_Item], shown: _Rendered) -> list[str]:
    buckets: dict[str, list[str]] = {}
    for item in items:
        buckets.setdefault(f"{str(item.timestamp)[:13]}:00", []).append(shown[item.id])
    hours = [f'"{hour}":\n      event_count: {len(refs)}\n      event_refs: {_listed(refs, 6)}' for hour, refs in buckets.items()]
    events = ["  events:", *(_event(item, shown) for item in items)] if items else ["  events: []"]
    return [*events, *_mapping("buckets", hours, 2)]


def _event(item: _Item, shown: _Rendered) -> str:
    lines = [f"    - timestamp: {shown[str(item.timestamp)]}", f"type: {item.type}", f"ref: {shown[item.id]}"]
    if item.type == TURN.name:
        lines.append(f"participants: [{shown[item.actor] if item.actor else ''}]")
    elif item.actor:
        lines.append(f"{_ACTOR[item.type]}: {shown[item.actor]}")
    lines += [f"{name}: {shown[value]}" for name, value in item.further.items()]
    lines.append(f"topics: {_listed([shown[topic] for topic in item.topics], 8)}")
    return "\n      ".join(lines)


# agents.yaml


def _agents(items: list[_Item], shown: _Rendered) -> list[str]:
    """Everybody who spoke or made something, those with the most memories first."""
    by_agent: dict[str, list[_Item]] = {}
    for item in items:
        if item.actor and len(item.actor) <= KEY_CAP_CHARACTERS:
            by_agent.setdefault(item.actor, []).append(item)
    busiest = sorted(by_agent.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return _mapping("agents", [line for agent, own in busiest for line in _agent_lines(agent, own, shown)], 2)


def _agent_lines(agent: str, items: list[_Item], shown: _Rendered) -> Iterator[str]:
    times = [item.timestamp for item in items if item.timestamp is not None]
    topics = Counter(topic for item in items for topic in item.topics)
    most = sorted(topics, key=lambda topic: (-topics[topic], topic))[:TOPICS_PER_AGENT]
    memories = _by_kind(items, shown)
    yield f"{shown[agent]}:"
    yield f"  message_count: {len(memories.pop(_TURNS, []))}"
    yield f"  first_active: {shown[times[0]] if times else 'null'}"
    yield f"  last_active: {shown[times[-1]] if times else 'null'}"
    yield from _mapping("memories", [f"{plural}: {_listed(refs, 8)}" for plural, refs in memories.items()], 2)
    yield f"  topics: {_listed([shown[topic] for topic in most], 6)}"
