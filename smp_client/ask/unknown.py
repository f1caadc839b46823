"""Names in a question that nothing has: an agent, a tag, a topic, a confidence, a project.

An answer has a note for each, with the nearest name that something has. Names are looked up only
if a question gives them, and all known names are read only if one is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..index.mentions import TAG
from ..index.sql import Sql
from ..index.validity import project_of
from ..model.nearest import did_you_mean
from ..model.quotation import shown
from ..model.record import CHOICES
from .argument import sayable

if TYPE_CHECKING:
    from .options import QueryOptions
    from .priorities import View

_NAMES_CAP = 5000  # known names that an unknown one is compared with
_MEMORIES_CAP = 1000  # the latest, whose fields are known
_TAGS = ("tags", "all_tags", "without_tags")
_CONFIDENCE = "json_extract(data, '$.confidence')"
_CONFIDENCES = dict.fromkeys(
    word for (_, field), words in CHOICES.items() if field == "confidence" for word in words
)


def unknown_names(view: View, options: QueryOptions) -> Iterator[str]:
    """Yield a sentence on each name in the options that nothing has."""
    for agent in _texts(options, "agents"):
        is_from = Sql("actor = ?", (agent,))
        if not _has(view, "memories", is_from):
            near = did_you_mean(agent, _names(view, "actor", "memories"))
            yield f"No memory is from {shown(agent)}{near}."
    for tag in (tag for name in _TAGS for tag in _texts(options, name)):
        lower = tag.lower()
        # The slash follows the dot in the order of characters.
        known = Sql("(topic = ? OR topic >= ? AND topic < ?)", (lower, f"{lower}.", f"{lower}/"))
        tagged = Sql(f"{known.text} AND how = {TAG}", known.parameters)
        if not _has(view, "topics", tagged):
            near = did_you_mean(tag, _names(view, "topic", "topics", Sql(f"how = {TAG}")))
            yield f"No memory has the tag {shown(tag)}{near}."
    for confidence in _texts(options, "confidence"):
        if not _has(view, "memories", Sql(f"{_CONFIDENCE} = ?", (confidence,))):
            near = did_you_mean(confidence, _CONFIDENCES)
            yield f"No memory has the confidence {shown(confidence)}{near}."
    project = options.get("project")
    if project is not None:
        yield from unknown_project(view, project)


def unknown_topic(view: View, topic: str) -> Iterator[str]:
    """Yield a sentence if no memory is about a topic."""
    near = did_you_mean(topic, _names(view, "topic", "topics"))
    yield f"No memory is about {shown(topic)}{near}."


def unknown_project(view: View, project: str) -> Iterator[str]:
    """Yield a sentence if no session is of a project."""
    named = Sql("project = ?", (project_of(sayable(project)),))
    if _has(view, "sessions", named, is_whole=True):
        return
    asked = (
        "SELECT DISTINCT json_extract(metadata, '$.context.project_name') FROM sessions"
        " WHERE project <> '' LIMIT ?"
    )
    rows = view.index.execute(asked, (_NAMES_CAP,))
    near = did_you_mean(project, [str(name) for (name,) in rows if name])
    yield f"No session is of the project {shown(project)}{near}."


def unknown_fields(view: View, fields: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on each field that no memory has."""
    for field in fields:
        last = json.dumps(field.rpartition(".")[2], ensure_ascii=False)
        if not _has(view, "memories", Sql("instr(data, ?)", (sayable(last),))):
            yield f"No memory has the field {shown(field)}{did_you_mean(field, _fields(view))}."


def _texts(options: QueryOptions, name: str) -> list[str]:
    given = options.get(name)
    texts = [given] if isinstance(given, str) else given
    return [sayable(text) for text in texts] if isinstance(texts, (list, tuple, set)) else []


def _has(view: View, table: str, condition: Sql, *, is_whole: bool = False) -> bool:
    """Return whether a row of the table fulfils a condition: of these scopes, or of the whole."""
    scopes = Sql("1") if is_whole else view.within("scope")
    asked = f"SELECT 1 FROM {table} WHERE {scopes.text} AND {condition.text} LIMIT 1"
    given = (*scopes.parameters, *condition.parameters)
    return view.index.execute(asked, given).fetchone() is not None


def _names(view: View, column: str, table: str, condition: Sql | None = None) -> list[str]:
    scopes = view.within("scope")
    asked = f"SELECT DISTINCT {column} FROM {table} WHERE {scopes.text} AND {column} <> ''"
    asked += f" AND {condition.text}" if condition else ""
    rows = view.index.execute(f"{asked} LIMIT {_NAMES_CAP}", scopes.parameters)
    return [name for (name,) in rows]


def _fields(view: View) -> list[str]:
    """Return the fields of the latest memories, as paths of names."""
    scopes = view.within("scope")
    asked = f"SELECT data FROM memories WHERE {scopes.text} ORDER BY at DESC LIMIT {_MEMORIES_CAP}"
    found: dict[str, None] = {}
    for (data,) in view.index.execute(asked, scopes.parameters):
        waiting = [("", json.loads(data))]
        while waiting:
            place, fields = waiting.pop()
            for name, value in fields.items():
                found[f"{place}{name}"] = None
                if isinstance(value, dict):
                    waiting.append((f"{place}{name}.", value))
    return ["type", "agent", "session", "text", "priority", *found]
