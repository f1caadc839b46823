"""Decisions, findings, preferences and learnings that bear on a topic, as questions to the index.

A memory tagged with the topic, or with a topic below it, stands before one that only mentions it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..ask.argument import sayable
from ..ask.engine import find, is_about, of_keys, where
from ..ask.options import NEWEST, Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds, project_of
from ..model.layout import GLOBAL
from ..model.severity import RANK

EVERY = "*"
_WIDER = "SELECT memory FROM topics WHERE topic IN (SELECT value FROM json_each(?))"
_MENTIONING = "SELECT rowid FROM words WHERE words MATCH ?"
_GENERAL = (
    "NOT EXISTS (SELECT 1 FROM tags WHERE memory = m.key)"
    " AND NOT EXISTS (SELECT 1 FROM topics WHERE memory = m.key)"
)
_SURE = (
    "CASE json_extract(m.data, '$.confidence')"
    " WHEN 'explicit' THEN 0 WHEN 'inferred' THEN 1 ELSE 2 END"
)
_PROJECTS = "json_extract(m.data, '$.applies_to.projects')"


class Topic(NamedTuple):
    """The keys of the memories that bear on a topic."""

    tagged: list[int]  # with the topic or one below it, or a preference with one above it
    mentioning: list[int]  # the topic in their words

    def condition(self) -> Sql:
        """Return the condition that a memory bears on the topic."""
        return of_keys([*self.tagged, *self.mentioning], Wanted()).conditions[0]


def bearing(view: View, topic: str | None) -> Topic | None:
    """Return the memories of all types that bear on a topic; None without a topic."""
    if topic is None:
        return None

    def keys(asked: str, parameters: Sequence[Any]) -> list[int]:
        return [key for (key,) in view.index.connection.execute(asked, parameters)]

    levels = sayable(topic).lower().split(".")
    above = [".".join(levels[:count]) for count in range(1, len(levels))]
    condition = is_about(view, topic)
    select = condition.text.removeprefix("m.key IN (").removesuffix(")")
    tagged = keys(select, condition.parameters) + keys(_WIDER, [json.dumps([*above, EVERY])])
    words = project_of(topic)
    mentioning = keys(_MENTIONING, [f'{{text more}} : "{words}"']) if words else []
    return Topic(tagged, mentioning)


def about(view: View, want: Wanted, types: Sequence[str], topic: Topic | None = None) -> Answer:
    """Return the memories of these types, the most important ones first."""
    want = want.also(one_of("m.type", types))
    if topic is None:
        return find(view, want)
    # Keys are numbers, so they may stand in the text.
    is_untagged = f"m.key NOT IN (SELECT value FROM json_each('{topic.tagged}'))"
    order = want.order or f"{is_untagged}, score DESC, {NEWEST}"
    return find(view, want.also(topic.condition())._replace(order=order, has_keys=True))


def findings(
    view: View, want: Wanted, topic: Topic | None = None, *, unresolved_only: bool = True
) -> Answer:
    """Return the findings, the most severe first."""
    if unresolved_only:
        want = want.also(holds())
    worst = want.order or f"{RANK}, score DESC, {NEWEST}"
    return about(view, want._replace(order=worst), ["finding"], topic)


def preferences(
    view: View, want: Wanted, topic: Topic | None, project: str | None, *, all: bool = True
) -> Answer:
    """Return the preferences that apply to a project: explicit ones first, then the session's.

    A preference without topic, domains and tags applies to every topic, unless `all` is false.
    """
    named = Wanted((one_of("m.type", ["preference"]), Sql(f"{_PROJECTS} IS NOT NULL")))
    condition, given = where(view, named)
    asked = f"SELECT m.key, json_quote({_PROJECTS}) FROM memories m WHERE {condition}"
    rows = view.index.connection.execute(asked, given)
    others = [key for key, projects in rows if not _applies(json.loads(projects), project)]
    want = want.also(Sql("m.key NOT IN (SELECT value FROM json_each(?))", (json.dumps(others),)))
    if topic is not None:
        bears = topic.condition()
        want = want.also(Sql(f"{bears.text} OR ({_GENERAL if all else 0})", bears.parameters))
    order = want.order or f"score DESC, {NEWEST}"
    want = want._replace(order=f"{_SURE}, m.scope = '{GLOBAL}', {order}")
    return about(view, want, ["preference"])


def _applies(projects: Any, project: str | None) -> bool:
    """Return whether the projects that a preference names include this project."""
    names = [str(name) for name in (projects if isinstance(projects, list) else [projects])]
    return not names or EVERY in names or project_of(project) in map(project_of, names)
