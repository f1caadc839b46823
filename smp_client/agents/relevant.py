"""Decisions, findings, preferences and learnings that bear on a topic, as questions to the index.

A memory that has the topic as a tag, or one below it, stands before one that only says it in words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..ask.argument import sayable
from ..ask.engine import Ranked, find, is_about, of_keys, ranked, read, where
from ..ask.options import NEWEST, Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds, project_of
from ..model.layout import GLOBAL
from ..model.severity import RANK, rank

EVERY = "*"
_WIDER = "m.key IN (SELECT memory FROM topics WHERE topic IN (SELECT value FROM json_each(?)))"
_GENERAL = (
    "NOT EXISTS (SELECT 1 FROM tags WHERE memory = m.key)"
    " AND NOT EXISTS (SELECT 1 FROM topics WHERE memory = m.key)"
)
_CONFIDENCE = ("explicit", "inferred")  # whatever else it is, it comes last
_PROJECTS = "json_extract(m.data, '$.applies_to.projects')"


def about(
    view: View, want: Wanted, types: Sequence[str], topic: Sequence[Sql] | None = None
) -> Answer:
    """Return the memories of these types, those that matter most first.

    A topic is given by its conditions, see `bearing`; memories that meet the first come first.
    """
    want = want.also(one_of("m.type", types))
    if topic is None:
        return find(view, want)
    found: dict[int, Ranked] = {}
    for condition in topic:
        has_keys = condition.text != _GENERAL
        some = want.also(condition)._replace(offset=0, limit=want.end, has_keys=has_keys)
        for item in ranked(view, some):
            found.setdefault(item.key, item)
    return read(view, list(found.values())[want.offset : want.end])


def bearing(view: View, topic: str | None) -> list[Sql] | None:
    """Return the conditions that a memory has a topic or one below it, and that it says it.

    A preference also bears on every topic below its own.
    """
    if topic is None:
        return None
    levels = sayable(topic).lower().split(".")
    above = [".".join(levels[:count]) for count in range(1, len(levels))]
    conditions = [is_about(view, topic), Sql(_WIDER, (json.dumps([*above, EVERY]),))]
    if words := project_of(topic):
        phrase = (f'{{text more}} : "{words}"',)
        conditions.append(Sql("m.key IN (SELECT rowid FROM words WHERE words MATCH ?)", phrase))
    found: list[Sql] = []
    for condition in conditions:
        # By their keys: several kinds of memory are asked for each topic.
        asked = condition.text.removeprefix("m.key IN (").removesuffix(")")
        rows = view.index.connection.execute(asked, condition.parameters)
        found.append(of_keys([key for (key,) in rows], Wanted()).conditions[0])
    return found


def findings(
    view: View, want: Wanted, topic: Sequence[Sql] | None = None, *, unresolved_only: bool = True
) -> Answer:
    """Return findings, the most severe first."""
    if unresolved_only:
        want = want.also(holds())
    if topic is None:
        worst = want.order or f"{RANK}, score DESC, {NEWEST}"
        return about(view, want._replace(order=worst), ["finding"])
    found = about(view, want._replace(limit=None, offset=0), ["finding"], topic)
    found.sort(key=lambda record: rank(record.data.get("severity")))
    return Answer(found[want.offset : want.end])


def preferences(
    view: View, want: Wanted, topic: Sequence[Sql] | None, project: str | None, *, all: bool = True
) -> Answer:
    """Return the preferences that apply to a project: explicit ones first, then the session's.

    One without topic, domains and tags applies to every topic, unless `all` is false.
    """
    named = Wanted((one_of("m.type", ["preference"]), Sql(f"{_PROJECTS} IS NOT NULL")))
    condition, given = where(view, named)
    asked = f"SELECT m.key, json_quote({_PROJECTS}) FROM memories m WHERE {condition}"  # noqa: S608
    rows = view.index.connection.execute(asked, given)
    others = [key for key, projects in rows if not _applies(json.loads(projects), project)]
    here = Sql("m.key NOT IN (SELECT value FROM json_each(?))", (json.dumps(others),))
    words = " ".join(f"WHEN '{word}' THEN {at}" for at, word in enumerate(_CONFIDENCE))
    sure = f"CASE json_extract(m.data, '$.confidence') {words} ELSE {len(_CONFIDENCE)} END"
    order = f"{sure}, m.scope = '{GLOBAL}', {want.order or f'score DESC, {NEWEST}'}"
    want = want.also(here)._replace(order=order)
    if topic is None:
        return about(view, want, ["preference"])
    wider = [*topic, *([Sql(_GENERAL)] if all else [])]
    found = about(view, want._replace(limit=None, offset=0), ["preference"], wider)
    confidences = {word: at for at, word in enumerate(_CONFIDENCE)}
    found.sort(
        key=lambda record: (
            confidences.get(str(record.data.get("confidence")), len(_CONFIDENCE)),
            record.session == GLOBAL,
        )
    )
    return Answer(found[want.offset : want.end])


def _applies(projects: Any, project: str | None) -> bool:
    """Return whether projects, as a preference names them, are all or have this one."""
    names = [str(name) for name in (projects if isinstance(projects, list) else [projects])]
    return not names or EVERY in names or project_of(project) in map(project_of, names)
