"""The topics that each memory is about, kept in the table `mentions`.

**Own topics** of a memory are its tags, and a preference's `topic` and `applies_to.domains`; of a
session, its primary topic and its tags. They are compared in lower case. Whatever is about
`security.authentication` is also about `security`. **A turn** is further about the own topics of
memories that it refers to, and about every topic of its session whose words stand in its text:
`mfa_requirements` in "the MFA requirements". A memory is about 16 topics at most.

So a change of the index bears on the memories that came, and on turns that refer to memories, or
say topics, that came or went (`tell`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from ..model.record import KEY_CAP_CHARACTERS, TURN

SESSION = "session"  # the type of what a session itself is about; its key is below zero
NO_TIME = (1 << 63) - 1  # stands behind every time
_TOPICS, _LEVELS, _PHRASE_WORDS = 16, 8, 4
_WORD = re.compile(r"[^\W_]+")
_THOSE = "IN (SELECT value FROM json_each(?))"
# Topic by topic, so that the cost does not depend on how much there is about each.
_VOCABULARY = """
WITH RECURSIVE found (topic) AS (
    SELECT MIN(topic) FROM mentions INDEXED BY vocabulary WHERE scope = ?1 AND own
    UNION ALL SELECT (SELECT MIN(topic) FROM mentions INDEXED BY vocabulary
        WHERE scope = ?1 AND own AND topic > found.topic) FROM found WHERE found.topic IS NOT NULL
) SELECT topic FROM found WHERE topic IS NOT NULL
"""
_REFERRED = f"""
SELECT DISTINCT r.memory, x.topic FROM refs r
CROSS JOIN memories m ON m.scope = r.scope AND m.id = r.target
CROSS JOIN mentions x ON x.memory = m.key AND x.own
WHERE r.relation = 'memory_refs' AND r.memory {_THOSE} ORDER BY r.memory, x.topic
"""


def own_topics(names: Iterable[Any]) -> tuple[str, ...]:
    """Return the topics that something with these names is about, the names above them included."""
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(_named(str(name))))
        if len(found) >= _TOPICS:
            break
    return tuple(found)[:_TOPICS]


@functools.lru_cache(maxsize=4096)
def _named(name: str) -> tuple[str, ...]:
    if len(name) > KEY_CAP_CHARACTERS:
        return ()
    parts = name.lower().split(".")
    above = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return tuple(name for name in list(above)[:_LEVELS] if _WORD.search(name) and name[-1] != ".")


def of_session(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the topics of a session by its metadata."""
    context = metadata.get("context")
    about = context if isinstance(context, dict) else {}
    tags, topic = about.get("tags"), about.get("primary_topic")
    return own_topics([*([topic] if topic else ()), *(tags if isinstance(tags, list) else ())])


def tell(
    connection: Connection, scope: str, gone: Iterable[int], rows: Sequence[Sequence[Any]],
    ids: Iterable[str],
) -> None:  # fmt: skip
    """Replace the own topics of memories that are gone by rows of type, at, id, key and topics.

    `ids` are the memories that came or went. The index has all other changes already.
    """
    ask, went = connection.execute, json.dumps(list(gone))
    before = f"SELECT DISTINCT topic FROM mentions WHERE own AND memory {_THOSE}"
    names = {topic for (topic,) in ask(before, (went,))} | {
        topic for row in rows for topic in row[4]
    }
    of = (scope, json.dumps(list(names)))
    used = (
        "SELECT DISTINCT topic FROM mentions INDEXED BY vocabulary"
        f" WHERE scope = ? AND own AND topic {_THOSE}"
    )
    old = set(ask(used, of)) if names else set()
    ask(f"DELETE FROM mentions WHERE memory {_THOSE}", (went,))
    own = [
        (scope, topic, kind, NO_TIME if at is None else at, name, key, 1)
        for kind, at, name, key, topics in rows
        for topic in topics
    ]
    connection.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?)", own)
    new = set(ask(used, of)) if names else set()
    turns = {key for kind, _, _, key, _ in rows if kind == TURN.name}
    referring = (
        f"SELECT memory FROM refs WHERE relation = 'memory_refs' AND scope = ? AND target {_THOSE}"
    )
    turns.update(key for (key,) in ask(referring, (scope, json.dumps(list(ids)))))
    if lost := [topic for (topic,) in old - new]:
        saying = f"SELECT memory FROM mentions WHERE scope = ? AND NOT own AND topic {_THOSE}"
        turns.update(key for (key,) in ask(saying, (scope, json.dumps(lost))))
    if came := _phrases(topic for (topic,) in new - old):
        texts = "SELECT key, text FROM memories WHERE scope = ? AND type = ?"
        turns.update(key for key, text in ask(texts, (scope, TURN.name)) if _said(text, came))
    if turns:
        _tell_turns(connection, scope, json.dumps(list(turns)))


def _tell_turns(connection: Connection, scope: str, keys: str) -> None:
    """Find the topics that these turns refer to or say."""
    ask = connection.execute
    ask(f"DELETE FROM mentions WHERE NOT own AND memory {_THOSE}", (keys,))
    phrases = _phrases(topic for (topic,) in ask(_VOCABULARY, (scope,)))
    about: dict[int, dict[str, None]] = {}
    owned = f"SELECT memory, topic FROM mentions WHERE memory {_THOSE}"
    own = set(ask(owned, (keys,)))
    for key, topic in ask(_REFERRED, (keys,)):
        about.setdefault(key, {})[topic] = None
    rows: list[tuple[Any, ...]] = []
    turns = f"SELECT key, at, id, text FROM memories WHERE +type = '{TURN.name}' AND key {_THOSE}"
    for key, at, name, text in ask(turns, (keys,)):
        found = [*about.get(key, ()), *sorted(_said(text, phrases))]
        topics = [topic for topic in dict.fromkeys(found) if (key, topic) not in own]
        time = NO_TIME if at is None else at
        rows += ((scope, topic, TURN.name, time, name, key, 0) for topic in topics[:_TOPICS])
    connection.executemany("INSERT INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _phrases(topics: Iterable[str]) -> dict[str, dict[tuple[str, ...], list[str]]]:
    """Return topics by their words, and these by the first of them."""
    found: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for topic in topics:
        words = tuple(_WORD.findall(topic))
        if len(words) <= _PHRASE_WORDS:
            found.setdefault(words[0], {}).setdefault(words, []).append(topic)
    return found


def _said(text: str, phrases: Mapping[str, Mapping[tuple[str, ...], list[str]]]) -> set[str]:
    """Return the topics whose words stand in a text, one behind the other."""
    said: set[str] = set()
    words = _WORD.findall(text.lower())
    if not phrases.keys().isdisjoint(words):
        for at, word in enumerate(words):
            for phrase, topics in phrases.get(word, {}).items():
                if tuple(words[at : at + len(phrase)]) == phrase:
                    said.update(topics)
    return said
