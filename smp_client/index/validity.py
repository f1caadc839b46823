"""Whether a memory still holds. The files say it; the index keeps the keys of those that do not in its table `past`.

A memory no longer holds

- when it says so itself: its `status` is `superseded`, `rejected` or `reverted`, or its `resolution` is closed;
- when a relationship of any session says that another memory `supersedes` it, or `resolves` it and it is a finding;
- when it is an explicit preference, and the same project has a later explicit one of the same topic and `applies_to`. Sessions
  that name no project are one project. Preferences in `global/` are compared with each other.

Whether the other memory still holds itself makes no difference: of a chain only the newest memory holds, of a circle none. So one
look at each memory is enough, and a change of the index judges anew only the memories that it bears on (`judge`). A relationship
that is deleted leaves the memory as it was before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from ..model.layout import ARCHIVED, GLOBAL
from ..model.priority import is_resolved
from ..model.record import FINDING, PREFERENCE, RELATIONSHIP, is_memory_name
from .sql import Sql

if TYPE_CHECKING:
    from .database import Index

SUPERSEDES, RESOLVES = "supersedes", "resolves"
RESOLVED = "resolved"
_WORDS = {SUPERSEDES: "superseded", RESOLVES: RESOLVED}  # of what the relation does to its target
_OVER = frozenset(("superseded", "rejected", "reverted"))
_LASTING = frozenset(("conversation_turn", "relationship", "agent_state", "artifact", "summary"))  # have no status of their own
_WORD = re.compile(r"[^\W_]+")

_SESSION = f"REPLACE({{}}.scope, '{ARCHIVED}/', '')"
_APPLIES = f"(e.relation = '{SUPERSEDES}' OR m.type = '{FINDING.name}')"
_PROJECT = (
    f"CASE {{0}}.scope WHEN '{GLOBAL}' THEN '/'"
    " ELSE COALESCE((SELECT s.project FROM sessions s WHERE s.scope = {0}.scope), '') END"
)
_LATER = (
    "FROM memories n WHERE n.subject = m.subject"
    " AND (COALESCE(n.at, 0), n.scope, n.start) > (COALESCE(m.at, 0), m.scope, m.start)"
    f" AND {_PROJECT.format('n')} = {_PROJECT.format('m')}"
)
# The memories that a change bears on: the changed ones, those that relationships name, and all of a subject.
_TOUCHED = f"""
SELECT value FROM json_each(?1)
UNION SELECT m.key FROM json_each(?2) e CROSS JOIN memories m ON m.id = json_extract(e.value, '$[1]')
    AND m.scope IN (json_extract(e.value, '$[0]'), '{ARCHIVED}/' || json_extract(e.value, '$[0]'))
UNION SELECT key FROM memories WHERE subject IN (SELECT value FROM json_each(?3))
"""
_ENDED = f"""
SELECT m.key FROM memories m WHERE m.key IN (SELECT value FROM json_each(?1)) AND (
    m.ended > '' OR EXISTS (SELECT 1 FROM endings e WHERE e.session = {_SESSION.format("m")} AND e.id = m.id AND {_APPLIES}))
"""
# Of each subject and project only the latest holds.
_REPLACED = f"""
SELECT key FROM (
    SELECT m.key, RANK() OVER (PARTITION BY m.subject, {_PROJECT.format("m")}
        ORDER BY COALESCE(m.at, 0) DESC, m.scope DESC, m.start DESC) AS place
    FROM memories m WHERE m.subject IN (SELECT subject FROM memories WHERE key IN (SELECT value FROM json_each(?1)))
) WHERE place > 1
"""
_PAST = "m.key IN (SELECT memory FROM past)"


def holds() -> Sql:
    """Return the condition that a memory `m` still holds."""
    return Sql(f"NOT {_PAST}")


def factor(ended: float) -> str:
    """Return the SQL of what a score is multiplied by: `ended` for a memory that no longer holds."""
    return f"CASE WHEN {_PAST} THEN {float(ended)} ELSE 1.0 END"


def judge(
    connection: Connection, keys: Iterable[int], ended: Iterable[Sequence[str]], subjects: Iterable[str | None]
) -> None:
    """Note anew which memories hold: these, those that relationships end by session and id, and those of these subjects."""
    asked = [json.dumps(list(each)) for each in (keys, ended, subjects)]
    touched = (json.dumps([key for (key,) in connection.execute(_TOUCHED, asked)]),)
    connection.execute("DELETE FROM past WHERE memory IN (SELECT value FROM json_each(?))", touched)
    connection.execute(f"INSERT INTO past {_ENDED}", touched)
    connection.execute(f"INSERT OR IGNORE INTO past {_REPLACED}", touched)


def marks(index: Index, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return for each of these memories that no longer holds why, such as `superseded by DEC-004`."""
    ask = index.connection.execute
    past = ask("SELECT memory FROM past WHERE memory IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)).fetchall()
    if not past:
        return {}
    these = (json.dumps([key for (key,) in past]),)
    wanted = "m.key IN (SELECT value FROM json_each(?))"
    session = _SESSION.format("m")
    found: dict[int, dict[str, str]] = {}
    for key, said in ask(f"SELECT m.key, m.ended FROM memories m WHERE m.ended > '' AND {wanted}", these):
        found.setdefault(key, {})[said.partition(" ")[0]] = said
    related = (
        f"SELECT m.key, {session}, e.relation, e.by FROM memories m CROSS JOIN endings e ON e.session = {session} AND e.id = m.id"
        f" WHERE {wanted} AND {_APPLIES} ORDER BY e.at, e.memory"
    )
    for key, own, relation, by in ask(related, these):
        word = _WORDS[relation]
        found.setdefault(key, {})[word] = f"{word} by {short_name(by, own)}"  # the last of several is meant
    later = f"SELECT {_SESSION.format('n')} || '/' || n.id {_LATER} ORDER BY n.at DESC, n.scope DESC, n.start DESC LIMIT 1"
    replaced = f"SELECT m.key, {session}, ({later}) AS by FROM memories m WHERE {wanted} AND m.subject IS NOT NULL"
    for key, own, by in ask(replaced, these):
        if by is not None:
            found.setdefault(key, {})["replaced"] = f"replaced by {short_name(by, own)}"
    return {key: tuple(said.values()) for key, said in found.items()}


def project_scopes(index: Index, session: str) -> list[str]:
    """Return the scopes of all sessions of the project that a session is of."""
    said = dict(index.connection.execute("SELECT scope, project FROM sessions UNION SELECT DISTINCT scope, '' FROM files"
                                         " WHERE scope NOT IN (SELECT scope FROM sessions)").fetchall())  # fmt: skip
    own = next((said[scope] for scope in (session, f"{ARCHIVED}/{session}") if scope in said), "")
    return [scope for scope, project in said.items() if project == own]


def short_name(name: str, session: str) -> str:
    """Return the name of a memory as it is said in its own session, where that is this one."""
    return name.removeprefix(f"{session}/")


# What a record says of itself.


def own_mark(type: str, data: Mapping[str, Any]) -> str:
    """Return why a memory no longer holds by its own fields; an empty text where they do not say that."""
    if type in _LASTING:
        return ""
    status, by = data.get("status"), data.get("superseded_by")
    word = status.strip().lower() if isinstance(status, str) else ""
    if is_memory_name(by) and word in ("", "superseded"):
        return f"superseded by {by}"
    if word in _OVER:
        return word
    return RESOLVED if type == FINDING.name and is_resolved(data) else ""


def relation_of(data: Mapping[str, Any]) -> str:
    """Return what a relationship says, however it is written: `Resolves` resolves."""
    return str(data.get(RELATIONSHIP.text)).strip().lower()


def endings(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what a relationship ends: the target, the relation and the source, as they are written."""
    relation = relation_of(data)
    source, target = data.get("source"), data.get("target")
    if relation in _WORDS and is_memory_name(source) and is_memory_name(target):
        yield target, relation, source


def subject(type: str, data: Mapping[str, Any]) -> str | None:
    """Return what an explicit preference is about: a later one about this replaces it. None for every other memory."""
    if type != PREFERENCE.name or str(data.get("confidence")).lower() != "explicit":
        return None
    topic = loosely(str(data.get("topic") or ""))
    if not topic or own_mark(type, data) in ("rejected", "reverted"):
        return None
    return json.dumps([topic, data.get("applies_to")], sort_keys=True) if data.get("applies_to") else topic


def project_of(name: Any) -> str:
    """Return the name of a project in the form by which sessions of one project are known."""
    return loosely(str(name)) if name else ""


def loosely(text: str) -> str:
    """Return the words of a text, however it is written: `E-Commerce` and `e commerce` are one."""
    return " ".join(_WORD.findall(text.casefold()))
