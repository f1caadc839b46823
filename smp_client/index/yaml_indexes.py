"""The index of one session as YAML, for people and for agents in any language.

`indexes/` has topics, timeline and agents. They show the topics of topics.py and nothing else:
equal memories give equal bytes.
"""

from __future__ import annotations

import functools
import os
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
# The files are for people, and must not outgrow the files that they are made from.
_TOPICS_AND_AGENTS, _EVENTS, _TOPICS_PER_EVENT = 1000, 10_000, 16
_ACTOR = {kind.name: kind.actor for kind in SESSION_KINDS}
_ACTOR |= {"agent_state": "agent", "artifact": "created_by"}


class _Rendered(dict[str | None, str]):
    """Each text as YAML shows it on a line, rendered once: a few stand there a thousand times."""

    def __missing__(self, text: str | None) -> str:
        shown = self[text] = "null" if text is None else render_flow(text)
        return shown

    def listed(self, texts: Iterable[str], indent: int) -> str:
        return _listed([self[text] for text in texts], indent)


def render(index: Index, session_id: str) -> dict[str, bytes]:
    """Return the content of each file, by its name."""
    found, shown = overview_of(index, session_id, _TOPICS_AND_AGENTS), _Rendered()
    topics = (line for topic in found.topics for line in _topic_lines(topic, shown))
    agents = (line for agent in found.agents for line in _agent_lines(agent, shown))
    bodies = {
        TOPICS: ("topic_index", _mapping("topics", topics)),
        TIMELINE: ("timeline_index", _timeline(found.timeline[-_EVENTS:], shown)),
        AGENTS: ("agent_index", _mapping("agents", agents)),
    }
    files: dict[str, bytes] = {}
    for name, (top, body) in bodies.items():
        head = render_entries({top: {"version": VERSION, "last_updated": found.last_updated}}, 0)
        files[name] = ("\n".join([_HEADING, *head, *body]) + "\n").encode()
    return files


def write(memory: Memory, index: Index, session_id: str) -> list[str]:
    """Write the files that differ, and return their names."""
    memory._session(session_id)  # raises where there is none
    directory = directory_of(session_id)
    if not memory.tree.exists(directory):
        # Moved into its place, so that it brings no session back that is deleted meanwhile.
        aside = f"{TEMPORARY}/{os.urandom(16).hex()}"
        memory.tree.make_directory(aside)
        memory.tree.rename_new(aside, directory)
    changed: list[str] = []
    for name, content in render(index, session_id).items():
        try:
            is_same = memory.tree.read(f"{directory}/{name}") == content
        except (FileNotFoundError, UnsafePath):
            is_same = False
        if not is_same:
            memory.tree.replace_derived(f"{directory}/{name}", content)
            changed.append(name)
    return changed


def directory_of(session_id: str) -> str:
    return f"{ACTIVE}/{session_id}/indexes"


def _listed(items: Sequence[str], indent: int) -> str:
    """Return a list in flow style, ten to a line where it is long."""
    if len(items) <= _ITEMS_PER_LINE:
        return f"[{', '.join(items)}]"
    starts = range(0, len(items), _ITEMS_PER_LINE)
    lines = [", ".join(items[start : start + _ITEMS_PER_LINE]) for start in starts]
    margin = " " * indent
    return f"[\n{margin}  " + f",\n{margin}  ".join(lines) + f"\n{margin}]"


def _mapping(name: str, entries: Iterable[str]) -> list[str]:
    """Return the lines of a mapping; an empty one says so, since nothing would be null."""
    lines = [f"    {entry}" for entry in entries]
    return [f"  {name}:", *lines] if lines else [f"  {name}: {{}}"]


def _refs(plural: str, ids: list[str], shown: _Rendered) -> str:
    """Return the ids of one kind: turns by number."""
    if plural == TURNS:
        return f"{plural}: {_listed([one.removeprefix('turn-') for one in ids], 8)}"
    return f"{plural}: {shown.listed(ids, 8)}"


def _topic_lines(topic: Topic, shown: _Rendered) -> Iterator[str]:
    yield f"{shown[topic.name]}:"
    yield f"  weight: {topic.weight}"
    yield f"  mentions: {topic.mentions}"
    yield f"  first_mentioned: {shown[topic.first_mentioned]}"
    yield f"  last_mentioned: {shown[topic.last_mentioned]}"
    yield "  related_memories:"
    yield from (f"    {_refs(plural, ids, shown)}" for plural, ids in topic.related.items())
    yield f"  subtopics: {shown.listed(topic.subtopics, 6)}"


def _agent_lines(agent: AgentSummary, shown: _Rendered) -> Iterator[str]:
    yield f"{shown[agent.name]}:"
    yield f"  message_count: {agent.message_count}"
    yield f"  first_active: {shown[agent.first_active]}"
    yield f"  last_active: {shown[agent.last_active]}"
    yield from _mapping("memories", [_refs(*item, shown) for item in agent.memories.items()])
    yield f"  topics: {shown.listed(agent.topics, 6)}"


def _timeline(timeline: list[Event], shown: _Rendered) -> list[str]:
    hours: dict[str, list[str]] = {}
    for event in timeline:
        hours.setdefault(event.timestamp[:13], []).append(shown[event.ref])
    buckets = [
        f'"{hour}:00":\n      event_count: {len(refs)}\n      event_refs: {_listed(refs, 6)}'
        for hour, refs in hours.items()
    ]
    # Many events have equal topics.
    topics = functools.cache(lambda names: shown.listed(names, 8))
    lines = [_event(one, topics(one.topics[:_TOPICS_PER_EVENT]), shown) for one in timeline]
    events = ["  events:", *lines] if timeline else ["  events: []"]
    return [*events, *_mapping("buckets", buckets)]


def _event(event: Event, topics: str, shown: _Rendered) -> str:
    # One text and no list of lines: there is one event for each memory.
    kind = name_of(event.type)
    more = ""
    if kind == TURN.name:
        more = f"\n      participants: [{shown[event.actor] if event.actor else ''}]"
    elif event.actor:
        more = f"\n      {_ACTOR[kind]}: {shown[event.actor]}"
    for name, value in event.further.items():
        more += f"\n      {name}: {shown[value]}"
    return (
        f"    - timestamp: {shown[event.timestamp]}\n      type: {kind}\n"
        f"      ref: {shown[event.ref]}{more}\n      topics: {topics}"
    )
