"""Decisions, findings, preferences and learnings of a topic, as questions to the index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..ask.argument import sayable
from ..ask.engine import find, is_about, where
from ..ask.options import NEWEST, Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.mentions import TOPIC
from ..index.sql import Sql
from ..index.validity import holds, project_of
from ..model.layout import GLOBAL
from ..model.record import SEVERITIES, SEVERITY_WORDS, severity_rank

EVERY = "*"
_WIDER = (
    f"SELECT memory FROM topics WHERE type = 'preference' AND how >= {TOPIC} AND {{}}"
    " AND topic IN (SELECT value FROM json_each(?))"
)
_MENTIONING = "SELECT rowid FROM words WHERE words MATCH ?"
_GENERAL = "NOT EXISTS (SELECT 1 FROM topics WHERE memory = m.key)"
_SURE = (
    "CASE json_extract(m.data, '$.confidence')"
    " WHEN 'explicit' THEN 0 WHEN 'inferred' THEN 1 ELSE 2 END"
)
_RANKS = " ".join(f"WHEN '{word}' THEN {severity_rank(word)}" for word in SEVERITY_WORDS)
_WORST = f"CASE LOWER(json_extract(m.data, '$.severity')) {_RANKS} ELSE {len(SEVERITIES)} END"
_PROJECTS = "json_extract(m.data, '$.applies_to.projects')"


def bearing(view: View, topic: str) -> Sql:
    """Return the condition that a memory is about a topic or a wider one, or mentions it."""
    levels = sayable(topic).lower().split(".")
    above = [".".join(levels[:count]) for count in range(1, len(levels))]
    about, scopes = is_about(view, topic), view.within("scope")
    parts = [
        Sql(f"SELECT m.key FROM memories m WHERE {about.text}", about.parameters),
        Sql(_WIDER.format(scopes.text), (*scopes.parameters, json.dumps([*above, EVERY]))),
    ]
    if words := project_of(topic):
        parts.append(Sql(_MENTIONING, (f'{{text more}} : "{words}"',)))
    either = Sql.joined(" UNION ALL ", parts)
    return Sql(f"m.key IN ({either.text})", either.parameters)


def about(view: View, want: Wanted, types: Sequence[str], topic: Sql | None = None) -> Answer:
    """Return the memories of these types, the most important ones first."""
    want = want.also(one_of("m.type", types))
    return find(view, want if topic is None else want.also(topic)._replace(has_keys=True))


def findings(
    view: View, want: Wanted, topic: Sql | None = None, *, unresolved_only: bool = True
) -> Answer:
    """Return the findings, the most severe first."""
    if unresolved_only:
        want = want.also(holds())
    worst = want.order or f"{_WORST}, score DESC, {NEWEST}"
    return about(view, want._replace(order=worst), ["finding"], topic)


def preferences(view: View, want: Wanted, topic: Sql | None, project: str | None) -> Answer:
    """Return the preferences that apply to a project: explicit ones first, then the session's.

    A preference without topic, domains and tags applies to every topic.
    """
    named = Wanted((one_of("m.type", ["preference"]), Sql(f"{_PROJECTS} IS NOT NULL")))
    condition, given = where(view, named)
    asked = f"SELECT m.key, json_quote({_PROJECTS}) FROM memories m WHERE {condition}"
    rows = view.index.connection.execute(asked, given)
    others = [key for key, projects in rows if not _applies(json.loads(projects), project)]
    want = want.also(Sql("m.key NOT IN (SELECT value FROM json_each(?))", (json.dumps(others),)))
    if topic is not None:
        want = want.also(Sql(f"{topic.text} OR ({_GENERAL})", topic.parameters))
    order = want.order or f"score DESC, {NEWEST}"
    return about(
        view, want._replace(order=f"{_SURE}, m.scope = '{GLOBAL}', {order}"), ["preference"]
    )


def _applies(projects: Any, project: str | None) -> bool:
    """Return whether the projects that a preference names include this project."""
    names = [str(name) for name in (projects if isinstance(projects, list) else [projects])]
    return not names or EVERY in names or project_of(project) in map(project_of, names)
