"""The index of one session as YAML, for people and for agents in any language: topics, timeline and agents in `indexes/`.

What topics.py says of the session, and nothing else: the same memories give the same bytes.
"""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..model.errors import UnsafePath
from ..model.layout import ACTIVE, TEMPORARY, YAML_INDEXES
from ..model.record import SESSION_KINDS, TURN, name_of
from ..text.values import render_entries, render_flow
from .database import Index
from .topics import TURNS, AgentSummary, Event, Topic, overview_of

if TYPE_CHECKING:
    from ..memory import Memory

TOPICS, TIMELINE, AGENTS = (name.rpartition("/")[2] for name in YAML_INDEXES)
VERSION = 1
_HEADING = "# Made by SMP from this session's memories; changes made here are overwritten."
_ITEMS_PER_LINE = 10
# The files are for people, and must not outgrow what they are made from.
_TOPICS_AND_AGENTS, _EVENTS, _TOPICS_PER_EVENT = 1000, 10_000, 16
_ACTOR = {kind.name: kind.actor for kind in SESSION_KINDS} | {"agent_state": "agent", "artifact": "created_by"}


class _Rendered(dict[str, str]):
    """Each text as YAML shows it on a line, worked out once: the same few stand in these files a thousand times."""

    def __missing__(self, text: str) -> str:
        shown = self[text] = render_flow(text)
        return shown


def render(index: Index, session_id: str) -> dict[str, bytes]:
    """The content of each file, by its name."""
    found, shown = overview_of(index, session_id, _TOPICS_AND_AGENTS), _Rendered()
    topics = (line for topic in found.topics for line in _topic_lines(topic, shown))
    agents = (line for agent in found.agents for line in _agent_lines(agent, shown))
    return {
        TOPICS: _file("topic_index", found.last_updated, _mapping("topics", topics, 2)),
        TIMELINE: _file("timeline_index", found.last_updated, _timeline(found.timeline[-_EVENTS:], shown)),
        AGENTS: _file("agent_index", found.last_updated, _mapping("agents", agents, 2)),
    }


def write(memory: Memory, index: Index, session_id: str) -> list[str]:
    """Writes the files that are not what they should be, and gives back their names."""
    memory._session(session_id)  # which must be there
    directory = directory_of(session_id)
    _make(memory, directory)
    changed = {name: content for name, content in render(index, session_id).items()
               if _read(memory, f"{directory}/{name}") != content}  # fmt: skip
    for name, content in changed.items():
        memory.tree.replace_derived(f"{directory}/{name}", content)
    return list(changed)


def directory_of(session_id: str) -> str:
    return f"{ACTIVE}/{session_id}/indexes"


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


def _refs(plural: str, ids: list[str], shown: _Rendered) -> str:
    """The ids of one kind: turns by number."""
    listed = [memory_id.removeprefix("turn-") for memory_id in ids] if plural == TURNS else [shown[memory_id] for memory_id in ids]
    return f"{plural}: {_listed(listed, 8)}"


def _names(topics: Iterable[str], indent: int, shown: _Rendered) -> str:
    return _listed([shown[name] for name in topics], indent)


def _time(timestamp: str | None, shown: _Rendered) -> str:
    return "null" if timestamp is None else shown[timestamp]


def _topic_lines(topic: Topic, shown: _Rendered) -> Iterator[str]:
    yield f"{shown[topic.name]}:"
    yield f"  weight: {topic.weight}"
    yield f"  mentions: {topic.mentions}"
    yield f"  first_mentioned: {_time(topic.first_mentioned, shown)}"
    yield f"  last_mentioned: {_time(topic.last_mentioned, shown)}"
    yield "  related_memories:"
    yield from (f"    {_refs(plural, ids, shown)}" for plural, ids in topic.related.items())
    yield f"  subtopics: {_names(topic.subtopics, 6, shown)}"


def _timeline(timeline: list[Event], shown: _Rendered) -> list[str]:
    hours: defaultdict[str, list[str]] = defaultdict(list)
    for event in timeline:
        hours[event.timestamp[:13]].append(shown[event.ref])
    buckets = [
        f'"{hour}:00":\n      event_count: {len(refs)}\n      event_refs: {_listed(refs, 6)}' for hour, refs in hours.items()
    ]
    # Many are about the same.
    topics = functools.cache(lambda names: _names(names, 8, shown))
    lines = (_event(event, topics(event.topics[:_TOPICS_PER_EVENT]), shown) for event in timeline)
    events = ["  events:", *lines] if timeline else ["  events: []"]
    return [*events, *_mapping("buckets", buckets, 2)]


def _event(event: Event, topics: str, shown: _Rendered) -> str:
    # One text and no list of lines: there is one event for each memory.
    kind = name_of(event.type)
    if kind == TURN.name:
        more = f"\n      participants: [{shown[event.actor] if event.actor else ''}]"
    else:
        more = f"\n      {_ACTOR[kind]}: {shown[event.actor]}" if event.actor else ""
    for name, value in event.further.items():
        more += f"\n      {name}: {shown[value]}"
    return (
        f"    - timestamp: {shown[event.timestamp]}\n      type: {kind}\n      ref: {shown[event.ref]}{more}\n"
        f"      topics: {topics}"
    )


def _agent_lines(agent: AgentSummary, shown: _Rendered) -> Iterator[str]:
    yield f"{shown[agent.name]}:"
    yield f"  message_count: {agent.message_count}"
    yield f"  first_active: {_time(agent.first_active, shown)}"
    yield f"  last_active: {_time(agent.last_active, shown)}"
    yield from _mapping("memories", [_refs(plural, ids, shown) for plural, ids in agent.memories.items()], 2)
    yield f"  topics: {_names(agent.topics, 6, shown)}"
