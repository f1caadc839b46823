"""The index of one session as YAML, for people and for agents in any language.

`indexes/` has topics, timeline and agents. They show the topics of topics.py and nothing else:
equal memories give equal bytes.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ..model.errors import UnsafePath
from ..model.layout import ACTIVE, TEMPORARY, YAML_INDEXES
from ..model.record import SESSION_KINDS, TURN, name_of
from ..text.values import Value, render_entries
from .database import Index
from .topics import TURNS, Event, by_plural, shown_time, timeline_of, topics_of

if TYPE_CHECKING:
    from ..memory import Memory

TOPICS, TIMELINE, AGENTS = (name.rpartition("/")[2] for name in YAML_INDEXES)
VERSION = 1
_HEADING = "# Made by SMP from this session's memories; changes made here are overwritten."
# The files are for people, and must not outgrow the files that they are made from.
_TOPICS_AND_AGENTS, _EVENTS, _TOPICS_PER_AGENT, _NAME_CHARACTERS = 1000, 10_000, 20, 128
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


def render(index: Index, session_id: str) -> dict[str, bytes]:
    """Return the content of each file, by its name."""
    topics: dict[str, Value] = {}
    for one in topics_of(index, session_id, _TOPICS_AND_AGENTS):
        topics[one.name] = {
            "weight": one.weight,
            "mentions": one.mentions,
            "first_mentioned": one.first_mentioned,
            "last_mentioned": one.last_mentioned,
            "related_memories": _refs(one.related),
            "subtopics": list(one.subtopics),
        }
    events, hours = timeline_of(index, session_id)[-_EVENTS:], dict[str, list[Value]]()
    for event in events:
        hours.setdefault(f"{event.timestamp[:13]}:00", []).append(event.ref)
    buckets: dict[str, Value] = {
        hour: {"event_count": len(refs), "event_refs": refs} for hour, refs in hours.items()
    }
    bodies: dict[str, tuple[str, dict[str, Value]]] = {
        TOPICS: ("topic_index", {"topics": topics}),
        TIMELINE: ("timeline_index", {"events": [*map(_event, events)], "buckets": buckets}),
        AGENTS: ("agent_index", {"agents": _agents(index, session_id)}),
    }
    asked = (
        "SELECT COALESCE((SELECT MAX(at) FROM memories WHERE scope = ?1),"
        " (SELECT MIN(at) FROM mentions WHERE scope = ?1 AND type = 'session'))"
    )
    last = shown_time(index.connection.execute(asked, (session_id,)).fetchone()[0])
    files: dict[str, bytes] = {}
    for name, (top, body) in bodies.items():
        lines = render_entries({top: {"version": VERSION, "last_updated": last, **body}}, 0)
        files[name] = ("\n".join([_HEADING, *lines]) + "\n").encode()
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


def _refs(related: dict[str, list[str]]) -> dict[str, Value]:
    """Return the ids of each kind: turns by number."""
    found: dict[str, Value] = {plural: [*ids] for plural, ids in related.items()}
    if TURNS in found:
        numbers = (one.removeprefix("turn-") for one in related[TURNS])
        found[TURNS] = [int(one) if one.isdecimal() else one for one in numbers]
    return found


def _event(event: Event) -> dict[str, Value]:
    kind = name_of(event.type)
    shown: dict[str, Value] = {"timestamp": event.timestamp, "type": kind, "ref": event.ref}
    if kind == TURN.name:
        shown["participants"] = [event.actor] if event.actor else []
    elif event.actor:
        shown[_ACTOR[kind]] = event.actor
    return {**shown, **event.further, "topics": [*event.topics]}


def _agents(index: Index, session_id: str) -> dict[str, Value]:
    """Return everybody who spoke or made a memory, those with the most first."""
    ids: dict[str, dict[str, list[str]]] = {}
    times: dict[str, list[int]] = {}
    for actor, kind, first, last, listed in index.connection.execute(_BY_AGENT, (session_id,)):
        ids.setdefault(actor, {})[kind] = json.loads(listed)
        times.setdefault(actor, []).extend(at for at in (first, last) if at is not None)
    about: dict[str, list[Value]] = {}
    for actor, topic in index.connection.execute(_TOPICS_OF_AGENTS, (session_id,)):
        about.setdefault(actor, []).append(topic)
    agents: dict[str, Value] = {}
    order = sorted((-sum(map(len, kinds.values())), actor) for actor, kinds in ids.items())
    for _, actor in order[:_TOPICS_AND_AGENTS]:
        memories = by_plural(ids[actor])
        agents[actor] = {
            "message_count": len(memories.pop(TURNS, [])),
            "first_active": shown_time(min(times[actor], default=None)),
            "last_active": shown_time(max(times[actor], default=None)),
            "memories": _refs(memories),
            "topics": about.get(actor, [])[:_TOPICS_PER_AGENT],
        }
    return agents
