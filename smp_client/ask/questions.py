"""The questions that a session, `global/` and a whole memory have as methods.

Every answer is a list of records that also says its `source`. `get` and a context count as reading
a memory, a list does not. The engine and SQLite are imported with the first question: a
program that only writes needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ..model.errors import CorruptionDetected, InvalidQuery, MemoryNotFound, SMPError
from ..model.nearest import nearest
from ..model.quotation import shown
from ..model.record import (
    GLOBAL_KINDS,
    SESSION_KINDS,
    Record,
    check_memory_id,
    is_like_an_id,
    kind_of,
)
from ..model.times import microseconds, time_at
from .argument import When, moment, require_text

if TYPE_CHECKING:
    from ..index.topics import Event, Topic
    from .asker import Asker
    from .options import Answer, QueryOptions, Wanted
    from .priorities import View
    from .summary import Summary

_DEFAULT_LIMIT = 20
_COMPARED_IDS = 2000  # with a mistyped one, the latest first


class Asked(Protocol):
    """An object that answers questions: its `_asker` answers for its own sessions."""

    def _asker(self) -> Asker: ...


def search(asked: Asked, text: str = "", **options: Unpack[QueryOptions]) -> Answer:
    """Return the memories that match a text best; without a text, those that matter most now.

    Words are optional and stemmed. "a phrase" and +word are required, and -word is excluded. auth*,
    *ization and depr?cated are forms of words. AND, OR, NOT and ( ) are written in capitals.
    """
    from .engine import find

    require_text("What to search for", text)
    limited: QueryOptions = {"limit": _DEFAULT_LIMIT, **options}
    return asked._asker().answer(lambda view, want: find(view, want, text), limited)


def by_topic(asked: Asked, topic: str, **options: Unpack[QueryOptions]) -> Answer:
    """Return the memories of a topic or one below it: by tags, a preference's topic and domains.

    Turns are found also by their words, and by the memories that they refer to.
    """
    from .engine import by_topic

    require_text("A topic", topic)
    return asked._asker().answer(lambda view, want: by_topic(view, want, topic), options)


def by_agent(asked: Asked, agent: str, **options: Unpack[QueryOptions]) -> Answer:
    """Return the memories of an agent or a person."""
    return _listed(asked, {**options, "agents": [agent]})


def by_time(
    asked: Asked,
    start: When | None = None,
    end: When | None = None,
    **options: Unpack[QueryOptions],
) -> Answer:
    """Return the memories between two times, both included, oldest first."""
    times: Any = {"since": start, "until": end}
    return _listed(asked, {"sort": "oldest", **options, **times})


def by_type(asked: Asked, type: str, **options: Unpack[QueryOptions]) -> Answer:
    """Return the memories of a type."""
    return _listed(asked, {**options, "types": [type]})


def similar(asked: Asked, memory_or_text: str, **options: Unpack[QueryOptions]) -> Answer:
    """Return memories whose text is like that of a memory, named by its id, or like a text."""
    from .engine import similar

    require_text("What others are to be like", memory_or_text)
    limited: QueryOptions = {"limit": _DEFAULT_LIMIT, **options}

    def question(view: View, want: Wanted) -> Answer:
        itself = named(view, memory_or_text)
        if itself is None and is_like_an_id(memory_or_text):
            raise _missing(view, memory_or_text)
        return similar(view, want, itself.text if itself else memory_or_text, itself)

    return asked._asker().answer(question, limited)


def like_text(asked: Asked, text: str, **options: Unpack[QueryOptions]) -> Answer:
    """Return memories that are like a text, whatever its form: `DEC-001` is a text too."""
    from .engine import similar

    limited: QueryOptions = {"limit": _DEFAULT_LIMIT, **options}
    return asked._asker().answer(
        lambda view, want: similar(view, want, text, by_meaning=False), limited
    )


def related(
    asked: Asked, memory_id: str, depth: int = 1, **options: Unpack[QueryOptions]
) -> Answer:
    """Return the memories within so many steps of one, nearest first; `path` says how."""
    from .related import related

    if type(depth) is not int or not 1 <= depth <= 10:
        raise InvalidQuery(f"depth must be a whole number from 1 to 10, not {shown(depth)}.")
    check_memory_id(memory_id)
    return asked._asker().answer(
        lambda view, want: related(view, want, existing(view, memory_id), depth), options
    )


def query(
    asked: Asked, specification: Mapping[str, Any], **options: Unpack[QueryOptions]
) -> Answer:
    """Answer a specification of `filters`, `sort`, `aggregations`, `limit`, `offset` and
    `include_related`. Options narrow it down.
    """
    from .spec import ask

    if {"sort", "min_relevance", "explain"} & options.keys():
        said = "the specification has its order, and what it finds has no score"
        raise InvalidQuery(f"query() takes no sort, min_relevance and explain: {said}.")
    for name in ("limit", "offset"):
        if isinstance(specification, Mapping) and specification.get(name) is not None:
            options[name] = specification[name]
    return asked._asker().answer(lambda view, want: ask(view, specification, want), options)


def topics(asked: Asked) -> list[Topic]:
    """Return the topics, the most mentioned first."""
    from ..index.topics import topics_of

    return asked._asker().ask(lambda view: topics_of(view.index, view.scopes))


def timeline(asked: Asked, since: When | None = None, until: When | None = None) -> list[Event]:
    """Return the memories that have a time, in order."""
    from ..index.topics import timeline_of
    from .options import reversed_times

    def at(value: When | None, now: datetime, *, end: bool) -> int | None:
        try:
            return None if value is None else microseconds(moment(value, now, end=end))
        except (ValueError, OverflowError) as error:
            raise InvalidQuery(f"{error}.") from error

    def question(view: View) -> list[Event]:
        times = at(since, view.now, end=False), at(until, view.now, end=True)
        first, last = map(time_at, times)
        if first and last and first > last:
            raise InvalidQuery(f"{reversed_times(first, last)}.")
        return timeline_of(view.index, view.scopes, *times)

    return asked._asker().ask(question)


def summary(asked: Asked) -> Summary:
    """Return the whole in short: counts, topics, decisions, open findings and preferences."""
    from .summary import summarise

    return asked._asker().ask(summarise)


def one(asked: Asked, memory_id: str, *, count_access: bool) -> Record:
    """Return the memory of this id. Raise MemoryNotFound where there is none."""
    asker = asked._asker()
    record = asker.ask(lambda view: existing(view, memory_id))
    return asker.noted(record) if count_access else record


def _listed(asked: Asked, options: QueryOptions) -> Answer:
    from .engine import find

    return asked._asker().answer(find, options)


def existing(view: View, memory_id: str) -> Record:
    """Return the memory of this id. Raise MemoryNotFound where there is none."""
    found = named(view, memory_id)
    if found is None:
        raise _missing(view, memory_id)
    return found


def _missing(view: View, memory_id: str) -> SMPError:
    """Return the error for a memory that the view has not, or cannot read."""
    from ..index.unreadable import LOOK, unreadable

    scopes = ", ".join(view.scopes[:5])
    kind = kind_of(memory_id, SESSION_KINDS + GLOBAL_KINDS)
    unread = [one for one in unreadable(view.index, view.scopes) if kind and one.may_hold(kind)]
    if unread:
        where = f"There is no memory {memory_id!r} that can be read in {scopes}"
        return CorruptionDetected(f"{where}: {unread[0].sentence}.", advice=LOOK)
    meant = _nearest_id(view, memory_id)
    advice = f"Did you mean {meant}?" if meant else None
    return MemoryNotFound(f"There is no memory {memory_id!r} in {scopes}.", advice=advice)


def _nearest_id(view: View, memory_id: str) -> str | None:
    """Return the id that a mistyped one is nearest to."""
    scopes = view.within("scope")
    asked = f"SELECT DISTINCT id FROM memories WHERE {scopes.text} ORDER BY at DESC LIMIT ?"
    rows = view.index.execute(asked, (*scopes.parameters, _COMPARED_IDS))
    return nearest(memory_id, [found for (found,) in rows])


def named(view: View, memory_id: str) -> Record | None:
    """Return the memory of this id. Raise InvalidQuery where several sessions have one."""
    from .engine import of_id

    found = of_id(view, memory_id)
    if len(found) > 1:
        sessions = ", ".join(record.session for record in found[:5])
        advice = f"Name it {found[0].session}/{memory_id}, or ask one session."
        raise InvalidQuery(f"{memory_id!r} is in several sessions ({sessions}).", advice=advice)
    return found[0] if found else None
