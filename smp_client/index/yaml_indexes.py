"""The index of one session as YAML, for people and for agents in any language.

`indexes/` has topics, timeline and agents. They show the topics of topics.py and nothing else:
equal memories give equal bytes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..model.errors import UnsafePath
from ..model.layout import ACTIVE, TEMPORARY, YAML_INDEXES
from ..model.record import SESSION_KINDS, TURN, name_of
from ..text.values import render_entries, render_flow
from .database import Index
from .topics import TURNS, Event, Topic, by_plural, shown_time, timeline_of, topics_of

if TYPE_CHECKING:
    from ..memory import Memory

TOPICS, TIMELINE, AGENTS = (name.rpartition("/")[2] for name in YAML_INDEXES)
VERSION = 1
_HEADING = "# Made by SMP from this session's memories; changes made here are overwritten."
_ITEMS_PER_LINE = 10
# The files are for people, and must not outgrow the files that they are made from.
_TOPICS_AND_AGENTS, _EVENTS, _TOPICS_PER_EVENT = 1000, 10_000, 16
_TOPICS_PER_AGENT, _NAME_CHARACTERS = 20, 128
_BY_AGENT = f"""
SELECT actor, type, MIN(at), MAX(at), json_group_array(id) FROM (
    SELECT actor, type, at, id FROM memories
    WHERE scope = ? AND actor <> '' AND LENGTH(actor) <= {_NAME_CHARACTERS}
    ORDER BY actor, type, at, LENGTH(id), id
) GROUP BY actor, type
"""
_TOPICS_OF_AGENTS = """
SELECT m.actor, x.topic FROM mentions x CROSS JOIN memories m ON m.key = x.memory
WHERE x.scope = ? GROUP BY 1, 2 ORDER BY 1, COUNT(*) DESC, 2
"""
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
    shown, ask = _Rendered(), index.connection.execute
    found = topics_of(index, session_id, _TOPICS_AND_AGENTS)
    topics = (line for topic in found for line in _topic_lines(topic, shown))
    bodies = {
        TOPICS: ("topic_index", _mapping("topics", topics)),
        TIMELINE: ("timeline_index", _timeline(timeline_of(index, session_id)[-_EVENTS:], shown)),
        AGENTS: ("agent_index", _mapping("agents", _agent_lines(index, session_id, shown))),
    }
    newest = "SELECT MAX(at) FROM memories WHERE scope = ? AND type <> 'summary'"
    began = "SELECT MIN(at) FROM mentions WHERE scope = ? AND type = 'session'"
    last = ask(newest, (session_id,)).fetchone()[0] or ask(began, (session_id,)).fetchone()[0]
    files: dict[str, bytes] = {}
    for name, (top, body) in bodies.items():
        head = render_entries({top: {"version": VERSION, "last_updated": shown_time(last)}}, 0)
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


def _agent_lines(index: Index, session_id: str, shown: _Rendered) -> Iterator[str]:
    """Yield the lines of everybody who spoke or made a memory, those with the most first."""
    agents: dict[str, dict[str, tuple[int | None, int | None, list[str]]]] = {}
    for actor, kind, first, last, ids in index.connection.execute(_BY_AGENT, (session_id,)):
        agents.setdefault(actor, {})[kind] = first, last, json.loads(ids)
    about: dict[str, list[str]] = {}
    for actor, topic in index.connection.execute(_TOPICS_OF_AGENTS, (session_id,)):
        about.setdefault(actor, []).append(topic)

    def order(actor: str) -> tuple[int, str]:
        return -sum(len(ids) for _, _, ids in agents[actor].values()), actor

    for actor in sorted(agents, key=order)[:_TOPICS_AND_AGENTS]:
        kinds = agents[actor]
        firsts = [first for first, _, _ in kinds.values() if first is not None]
        lasts = [last for _, last, _ in kinds.values() if last is not None]
        memories = by_plural({kind: ids for kind, (_, _, ids) in kinds.items()})
        yield f"{shown[actor]}:"
        yield f"  message_count: {len(memories.pop(TURNS, []))}"
        yield f"  first_active: {shown[shown_time(min(firsts, default=None))]}"
        yield f"  last_active: {shown[shown_time(max(lasts, default=None))]}"
        yield from _mapping("memories", [_refs(*item, shown) for item in memories.items()])
        yield f"  topics: {shown.listed(about.get(actor, [])[:_TOPICS_PER_AGENT], 6)}"


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
