"""The questions that a session, `global/` and a whole memory have as methods.

Every answer is a list of records that also says its `source`. A list does not count as reading the
memories in it; `get` and `context` do. The engine and SQLite are imported with the first question:
a program that only writes needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ..model.errors import InvalidQuery, MemoryNotFound
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, Record, check_memory_id

if TYPE_CHECKING:
    from ..index.topics import Timeline, Topic
    from .asker import Asker
    from .options import Answer, QueryOptions, Wanted
    from .priorities import View
    from .summary import Summary
    from .when import When

_DEFAULT_LIMIT = 20
# What can only be meant as the id of a memory.
_ID = re.compile("|".join(rf"{kind.prefix}-\d+" for kind in (*SESSION_KINDS, *GLOBAL_KINDS)))


class Asked(Protocol):
    """Whoever can be asked: `_asker` answers, for the sessions that are meant."""

    def _asker(self) -> Asker: ...


def search(asked: Asked, text: str = "", **options: Unpack[QueryOptions]) -> Answer:
    """The memories that match a text best; without a text, those that matter most now.

    Words are optional and stemmed; "a phrase" and +word are required, -word is excluded, and AND, OR, NOT, ( ) and * work too.
    """
    from .engine import find
    from .options import require_text

    require_text("What to search for", text)
    limited: QueryOptions = {"limit": _DEFAULT_LIMIT, **options}
    return asked._asker().answer(lambda view, want: find(view, want, text), limited)


def by_topic(asked: Asked, topic: str, **options: Unpack[QueryOptions]) -> Answer:
    """What is about a topic or one below it: by its tags, by a preference's topic and domains; turns also by what they say, or
    refer to."""
    from .engine import by_topic
    from .options import require_text

    require_text("A topic", topic)
    return asked._asker().answer(lambda view, want: by_topic(view, want, topic), options)


def by_agent(asked: Asked, agent: str, **options: Unpack[QueryOptions]) -> Answer:
    """What an agent or a person said, decided, found or learned."""
    return _listed(asked, {**options, "agents": [agent]})


def by_time(
    asked: Asked,
    start: When | None = None,
    end: When | None = None,
    **options: Unpack[QueryOptions],
) -> Answer:
    """What happened between two times, both included, oldest first."""
    times: QueryOptions = {}
    if start is not None:
        times["since"] = start
    if end is not None:
        times["until"] = end
    return _listed(asked, {"sort": "oldest", **options, **times})


def by_type(asked: Asked, type: str, **options: Unpack[QueryOptions]) -> Answer:
    return _listed(asked, {**options, "types": [type]})


def similar(asked: Asked, memory_or_text: str, **options: Unpack[QueryOptions]) -> Answer:
    """Memories whose text is like that of a memory, named by its id, or like a text."""
    from .engine import similar
    from .options import require_text

    require_text("What others are to be like", memory_or_text)
    limited: QueryOptions = {"limit": _DEFAULT_LIMIT, **options}

    def question(view: View, want: Wanted) -> Answer:
        itself = named(view, memory_or_text)
        if itself is None and _ID.fullmatch(memory_or_text):
            raise MemoryNotFound(
                f"There is no memory {memory_or_text!r} in {', '.join(view.scopes)}."
            )
        return similar(view, want, itself.text if itself else memory_or_text, itself)

    return asked._asker().answer(question, limited)


def related(
    asked: Asked, memory_id: str, depth: int = 1, **options: Unpack[QueryOptions]
) -> Answer:
    """What a memory is connected with, within so many steps, nearest first; `path` of each says how."""
    from .fields import shown
    from .related import related

    if type(depth) is not int or not 1 <= depth <= 10:
        raise InvalidQuery(f"depth must be a whole number from 1 to 10, not {shown(depth)}.")

    def question(view: View, want: Wanted) -> Answer:
        start = named(view, check_memory_id(memory_id))
        if start is None:
            raise MemoryNotFound(
                f"There is no memory {memory_id!r} in {', '.join(view.scopes) or 'this memory'}."
            )
        return related(view, want, start, depth)

    return asked._asker().answer(question, options)


def query(
    asked: Asked, specification: Mapping[str, Any], **options: Unpack[QueryOptions]
) -> Answer:
    """A query specification: `filters`, `sort`, `aggregations`, `limit`, `offset`, `include_related`.

    The options narrow it down further; `limit` and `offset` may stand in either, and what sorts or scores only in itself.
    """
    from .engine import ask
    from .related import related_to_all

    _refuse_options(specification, options)

    def question(view: View, want: Wanted) -> Answer:
        answer = ask(view, _with_options(specification, want), want)
        if specification.get("include_related", specification.get("includeRelated")):
            answer.related = related_to_all(view, answer)
        return answer

    return asked._asker().answer(question, options)


def topics(asked: Asked) -> list[Topic]:
    """What it is about, the most mentioned first."""
    from ..index.topics import topics_of

    return asked._asker().ask(lambda view: topics_of(view.index, view.together))


def timeline(asked: Asked, since: When | None = None, until: When | None = None) -> Timeline:
    """What happened, in order; `without_time` of the list names what has no time."""
    from ..index.topics import timeline_of
    from .options import microseconds
    from .when import moment

    def at(value: When | None, now: datetime, *, end: bool) -> int | None:
        try:
            return None if value is None else microseconds(moment(value, now, end=end))
        except (ValueError, OverflowError) as error:
            raise InvalidQuery(f"{error}.") from error

    def question(view: View) -> Timeline:
        return timeline_of(
            view.index, view.together, at(since, view.now, end=False), at(until, view.now, end=True)
        )

    return asked._asker().ask(question)


def summary(asked: Asked) -> Summary:
    """The whole in short: how much of what, topics, what was decided, what is open, what is preferred, who took part."""
    from .summary import summarise

    return asked._asker().ask(summarise)


def _listed(asked: Asked, options: QueryOptions) -> Answer:
    from .engine import find

    return asked._asker().answer(find, options)


def named(view: View, memory_id: str) -> Record | None:
    """The memory of this id, wherever it is; where several sessions have one, nobody can tell which is meant."""
    from .engine import of_id

    found = of_id(view, memory_id)
    if len(found) > 1:
        sessions = ", ".join(record.session for record in found[:5])
        advice = f"Name it {found[0].session}/{memory_id}, or ask one session."
        raise InvalidQuery(f"{memory_id!r} is in several sessions ({sessions}).", advice=advice)
    return found[0] if found else None


def _refuse_options(specification: Mapping[str, Any], options: QueryOptions) -> None:
    """Raises InvalidQuery for what a specification says in its own words, or cannot say at all."""
    problems = []
    if "sort" in options:
        problems.append(
            'the order stands in the specification: {"sort": [{"field": "timestamp", "direction": "asc"}]}'
        )
    if options.get("min_relevance") or options.get("explain"):
        problems.append(
            "min_relevance and explain are for search and similar: what a specification finds has no score"
        )
    if isinstance(specification, Mapping):
        both = [
            name
            for name in ("limit", "offset")
            if name in options and specification.get(name) is not None
        ]
        problems += [f"{name} is given twice, in the specification and beside it" for name in both]
    if problems:
        raise InvalidQuery(f"In query(), {'; '.join(problems)}.")


def _with_options(specification: Mapping[str, Any], want: Wanted) -> Mapping[str, Any]:
    """The specification with those options that are no conditions on what is stored; what is wrong with it is for others to say."""
    if not isinstance(specification, Mapping):
        return specification
    said = dict(specification)
    if want.offset:
        said["offset"] = want.offset
    filters = [] if said.get("filters") is None else said["filters"]
    if want.min_priority is not None and isinstance(filters, (list, tuple)):
        said["filters"] = [
            *filters,
            {"field": "priority", "operator": "greaterOrEqual", "value": float(want.min_priority)},
        ]
    return said
