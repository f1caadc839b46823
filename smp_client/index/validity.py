"""Whether a memory still holds. The index keeps the keys of those that do not in its table `past`.

A memory no longer holds when

- its own `status` is `superseded`, `rejected` or `reverted`, or its `resolution` is closed;
- a relationship of any session says that another `supersedes` it, or `resolves` it, a finding;
- it is an explicit preference, and its project has a later one of its topic and `applies_to`, of
  the same person, about the same thing (model/sameness.py). Sessions that name no project are one
  project; so is `global/`.

Whether the other memory still holds makes no difference, so a change judges few memories.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.layout import ARCHIVED, GLOBAL
from ..model.priority import is_resolved
from ..model.record import FINDING, PREFERENCE, RELATIONSHIP, is_memory_name
from ..model.sameness import is_same_thing
from .sql import Sql

if TYPE_CHECKING:
    from sqlite3 import Connection

    from .database import Index

STATE, EVICTED = "archived", "evicted"  # the marks of memories that are in a bundle
SUMMARY = "summary"  # the id and the type of the memory that an archived session is
SUPERSEDES, RESOLVES = "supersedes", "resolves"
RESOLVED = "resolved"
_WORDS = {SUPERSEDES: "superseded", RESOLVES: RESOLVED}  # by the relation to its target
_OVER = frozenset(("superseded", "rejected", "reverted"))
# These have no status of their own.
_LASTING = frozenset(("conversation_turn", "relationship", "agent_state", "artifact", SUMMARY))
_WORD = re.compile(r"[^\W_]+")
_RIVALS_CAP = 100  # later preferences of one subject that an earlier one is compared with

_PAST = "m.key IN (SELECT memory FROM past)"
_SESSION = f"REPLACE({{}}.scope, '{ARCHIVED}/', '')"
_APPLIES = f"(e.relation = '{SUPERSEDES}' OR m.type = '{FINDING.name}')"
_ENDING = f"e.session = {_SESSION.format('m')} AND e.id = m.id AND {_APPLIES}"
_PROJECT = (
    f"CASE m.scope WHEN '{GLOBAL}' THEN '/'"
    " ELSE COALESCE((SELECT s.project FROM sessions s WHERE s.scope = m.scope), '') END"
)
# The memories that a change bears on: changed ones, targets of relationships, all of a subject.
_TOUCHED = f"""
SELECT value FROM json_each(?1)
UNION SELECT m.key FROM json_each(?2) e
    CROSS JOIN memories m ON m.id = json_extract(e.value, '$[1]') AND m.scope IN
    (json_extract(e.value, '$[0]'), '{ARCHIVED}/' || json_extract(e.value, '$[0]'))
UNION SELECT key FROM memories WHERE subject IN (SELECT value FROM json_each(?3))
"""
_ENDED = f"""
SELECT m.key, NULL FROM memories m WHERE m.key IN (SELECT value FROM json_each(?1))
    AND (m.ended > '' OR EXISTS (SELECT 1 FROM endings e WHERE {_ENDING}))
"""
# The preferences of the subjects of these memories, the latest first.
_RIVALS = f"""
SELECT m.subject, {_PROJECT}, m.key, {_SESSION.format("m")} || '/' || m.id, m.text, m.actor,
    json_extract(m.data, '$.keep_both')
FROM memories m WHERE m.subject IN
    (SELECT subject FROM memories WHERE key IN (SELECT value FROM json_each(?1)))
ORDER BY m.subject, COALESCE(m.at, 0) DESC, m.scope DESC, m.start DESC
"""
# Why each memory no longer holds, in the order of the marks: key, session, word, the other memory.
_WHY = f"""
WITH keys AS (SELECT memory FROM past WHERE memory IN (SELECT value FROM json_each(?1)))
SELECT m.key, '', m.ended, NULL FROM memories m WHERE m.ended > '' AND m.key IN keys
UNION ALL SELECT * FROM (
    SELECT m.key, {_SESSION.format("m")}, e.relation, e.by
    FROM memories m CROSS JOIN endings e ON {_ENDING} WHERE m.key IN keys ORDER BY e.at, e.memory)
UNION ALL SELECT m.key, {_SESSION.format("m")}, 'replaced', p.latest
    FROM past p CROSS JOIN memories m ON m.key = p.memory
    WHERE p.latest IS NOT NULL AND p.memory IN keys
"""


def holds() -> Sql:
    """Return the condition that a memory `m` still holds."""
    return Sql(f"NOT {_PAST}")


def factor(ended: float) -> str:
    """Return the SQL by which a score is multiplied: `ended` for a memory that no longer holds."""
    return f"CASE WHEN {_PAST} THEN {float(ended)} ELSE 1.0 END"


def judge(
    connection: Connection, keys: Iterable[int], ended: Iterable[Any], subjects: Iterable[str]
) -> None:
    """Judge memories anew: these, those that relationships end, and those of these subjects."""
    asked = [json.dumps(list(each)) for each in (keys, ended, subjects)]
    touched = (json.dumps([key for (key,) in connection.execute(_TOUCHED, asked)]),)
    connection.execute("DELETE FROM past WHERE memory IN (SELECT value FROM json_each(?))", touched)
    connection.execute(f"INSERT INTO past {_ENDED}", touched)
    replaced = _replaced(map(_Rival._make, connection.execute(_RIVALS, touched)))
    connection.executemany("INSERT OR REPLACE INTO past VALUES (?, ?)", replaced)


class _Rival(NamedTuple):
    """An explicit preference beside others of its subject."""

    subject: str
    project: str
    key: int
    name: str
    text: str
    person: str | None
    keeps_both: bool | None  # it stands beside the others, whatever they say

    def replaces(self, earlier: _Rival) -> bool:
        """Return whether this later preference is about the same thing, of the same person."""
        if self.keeps_both or (self.subject, self.project) != (earlier.subject, earlier.project):
            return False
        is_of_another = self.person and earlier.person and self.person != earlier.person
        return not is_of_another and is_same_thing(self.text, earlier.text)


def _replaced(rivals: Iterable[_Rival]) -> Iterator[tuple[int, str]]:
    """Yield each preference that a later one replaces, and the name of that one."""
    later: list[_Rival] = []
    for rival in rivals:  # the latest of a subject first
        if later and later[0].subject != rival.subject:
            later.clear()
        heir = next((one for one in later[:_RIVALS_CAP] if one.replaces(rival)), None)
        if heir is not None:
            yield rival.key, heir.name
        else:
            later.append(rival)


def is_away(marks: Iterable[str]) -> bool:
    """Return whether a memory with these marks is in a bundle."""
    return any(mark in (STATE, EVICTED) for mark in marks)


def marks(index: Index, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return why each of these memories no longer holds, such as `superseded by DEC-004`."""
    found: dict[int, dict[str, str]] = {}
    rows = index.execute(_WHY, (json.dumps(list(keys)),)) if keys else ()
    for key, session, why, by in rows:
        if by is not None:
            word = _WORDS.get(why, why)
            # Of several relationships of one kind the last is meant.
            found.setdefault(key, {})[word] = f"{word} by {by.removeprefix(f'{session}/')}"
        else:
            found.setdefault(key, {})[why.partition(" ")[0]] = why
    return {key: tuple(said.values()) for key, said in found.items()}


# The fields of a record.


def own_mark(type: str, data: Mapping[str, Any]) -> str:
    """Return why a memory no longer holds by its own fields; empty where it does."""
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
    """Return the relation of a relationship, however it is written: `Resolves` resolves."""
    return str(data.get(RELATIONSHIP.text)).strip().lower()


def endings(data: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the target, the relation and the source where a relationship ends its target."""
    relation = relation_of(data)
    source, target = data.get("source"), data.get("target")
    if relation in _WORDS and is_memory_name(source) and is_memory_name(target):
        yield target, relation, source


def subject(type: str, data: Mapping[str, Any]) -> str | None:
    """Return the subject of an explicit preference, which a later one replaces; else None."""
    if type != PREFERENCE.name or str(data.get("confidence")).lower() != "explicit":
        return None
    topic = project_of(data.get("topic"))
    if not topic or own_mark(type, data) in ("rejected", "reverted"):
        return None
    applies = data.get("applies_to")
    return json.dumps([topic, applies], sort_keys=True) if applies else topic


def project_of(name: Any) -> str:
    """Return the words of a name, however it is written: `E-Commerce` and `e commerce` are one."""
    return " ".join(_WORD.findall(str(name).casefold())) if name else ""
