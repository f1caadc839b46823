"""Which of a session's memories fit conditions, wherever they are kept: in their files, packed in the archive, or taken out.

They are asked for as the library's own questions ask: an index is made of just these memories, in this process alone. So what is
meant by a topic, an agent or a time cannot be one thing where something is found, and another where it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import TYPE_CHECKING

from ...decay import Policy
from ...entries import Entry
from ...errors import SMPError
from ...index import Index
from ...indexing import entry_of, entry_of_file
from ...layout import GLOBAL
from ...maintain.compaction import SUMMARIZES
from ...questions.engine import is_about, starts
from ...questions.priorities import View
from ...questions.query import Wanted, wanted
from ...questions.ranking import Weights
from ...records import STATE_HISTORY, kind_of_file, state_history
from ...session_files import METADATA
from ...text.document import Located
from ...text.values import Value
from ..seeking.needle import Needle
from ..seeking.passages import FIELDS
from .standing import EVICTED, PROFILE, Standing, id_of_file, standing

if TYPE_CHECKING:
    from datetime import datetime

    from ...memory import Memory
    from .selection import Selection

_KEPT, _EVERY = "kept", "every"  # scopes of the index that is made
_BOOKKEEPING = frozenset(("decay", "imported", "imported_id", SUMMARIZES))  # whose names nobody chose


def fitting(found: Sequence[Standing], selection: Selection, now: datetime) -> list[Standing]:
    """Those for which all conditions hold, in their order; the metadata of a session are no memory."""
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    want = wanted(
        now, Policy(), types=selection.types or None, tags=selection.tags or None, since=selection.since, until=selection.until,
        agents=None if selection.agent is None else [selection.agent],
    )  # fmt: skip
    memories = [one for one in found if one.file != METADATA]
    if selection.text is not None:
        needle = Needle(selection.text)
        memories = [one for one in memories if any(next(needle.find(text), None) for text in _said(one.value))]
    if not want.conditions and not want.tags and selection.topic is None:
        return memories
    asked = {id(found[number]) for number in _asked(found, want, selection.topic, now)}
    return [one for one in memories if id(one) in asked]


def texts_of(value: Value) -> Iterator[str]:
    """What a memory says, without the names of its fields, and without what SMP counts there. A number is what it is written as:
    a person may have written one that others would quote."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name != "decay":
                yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _said(value: Value) -> Iterator[str]:
    yield from texts_of(value)
    yield from _names(value)


def _names(value: Value) -> Iterator[str]:
    """The names that somebody chose, of fields that are not those of the format: they can say what any text does."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in _BOOKKEEPING:
                yield from () if name in FIELDS else (str(name),)
                yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _asked(found: Sequence[Standing], want: Wanted, topic: str | None, now: datetime) -> set[int]:
    """The places in the list of those that a question finds.

    What is in its place is asked of all that is in its place, as a session would be: that an older state of a memory was about the
    topic says nothing of a turn that refers to it. What compaction has taken out may refer to anything.
    """
    entries = [(number, one, entry) for number, one in enumerate(found) if (entry := _entry(one, number))]
    kept = {number for number, one, _ in entries if _is_found_by_questions(one)}
    with closing(Index.in_memory()) as index, index.batch():
        _add(index, _KEPT, ((one, entry) for number, one, entry in entries if number in kept))
        _add(index, _EVERY, ((one, entry) for _, one, entry in entries))
        of_kept = _numbers(View(index, (_KEPT,), now, Policy(), Weights()), want, topic)
        of_every = _numbers(View(index, (_EVERY,), now, Policy(), Weights()), want, topic)
    return of_kept | (of_every - kept)


def _is_found_by_questions(one: Standing) -> bool:
    return one.place != EVICTED and bool(one.id) and not one.file.startswith(f"{STATE_HISTORY}/")


def _add(index: Index, scope: str, entries: Iterable[tuple[Standing, Entry]]) -> None:
    by_file: dict[str, list[Entry]] = {}
    for one, entry in entries:
        by_file.setdefault(one.file, []).append(entry)
    for file, group in by_file.items():
        index.add(scope, file, group)


def _numbers(view: View, want: Wanted, topic: str | None) -> set[int]:
    return starts(view, want if topic is None else want.also(is_about(view, topic)))


def _entry(one: Standing, number: int) -> Entry | None:
    """The memory as an index has it, known by its number; None for what no index has."""
    if one.file == METADATA or (one.session == GLOBAL and one.file == PROFILE):
        return None
    agent = id_of_file(one.file) if one.type == "agent_state" else None
    if agent is not None and not one.is_file:
        # An earlier state says inside what the state itself says.
        state = one.value.get("state")
        entry = entry_of(kind_of_file(one.file), _located({**(state if isinstance(state, dict) else {}), **one.value}))
    elif one.is_file:
        try:
            entry = entry_of_file(one.file, one.raw)
        except SMPError:
            entry = entry_of(state_history(one.id), _located(one.value))
    else:
        entry = entry_of(kind_of_file(one.file), _located(one.value))
    return replace(entry, start=number, end=number, actor=entry.actor if agent is None else agent)


def _located(value: dict[str, Value]) -> Located:
    return Located(0, 0, {"id": "", **value})


@dataclass
class Described:
    """Who and what memories are by and about, for one who named somebody or something that none of them is."""

    topics: set[str] = field(default_factory=set)
    agents: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    of_sessions: set[str] = field(default_factory=set)  # topics and tags of sessions themselves, in their metadata

    def add(self, other: Described) -> None:
        for name in ("topics", "agents", "tags", "of_sessions"):
            getattr(self, name).update(getattr(other, name))


def describe(memory: Memory, name: str) -> Described:
    """Of a session, wherever it is, or of `global`."""
    found = Described()
    for number, one in enumerate(standing(memory, name, [])):
        if one.file == METADATA:
            context = one.value.get("context")
            told = context if isinstance(context, dict) else {}
            tags = told.get("tags")
            said = [told.get("primary_topic"), *(tags if isinstance(tags, list) else ())]
            found.of_sessions.update(str(topic) for topic in said if topic)
        elif entry := _entry(one, number):
            found.tags.update(entry.tags)
            found.topics.update((*entry.tags, *entry.topics))
            found.agents.update([entry.actor] if entry.actor else [])
    return found
