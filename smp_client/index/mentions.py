"""The topics that each memory is about, as rows of the table `topics`, in lower case.

A memory is about its tags, a preference also about its `topic` and domains, a session about its
primary topic and tags, a turn also about the topics of memories that it refers to. Whatever is
about `security.login` is also about `security`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from ..model.record import KEY_CAP_CHARACTERS, TURN

SESSION = "session"  # the type of what a session itself is about; its key is below zero
NO_TIME = (1 << 63) - 1  # stands behind every time
# How a memory has a topic: by a reference, by a name below it, as a preference does, as a tag.
REFERRED, BELOW, TOPIC, TAG = range(4)
_THOSE = "IN (SELECT value FROM json_each(?))"
_REFERRING = (
    f"SELECT memory FROM refs WHERE relation = 'memory_refs' AND scope = ? AND target {_THOSE}"
)
_FOLLOW = f"""
INSERT OR IGNORE INTO topics
SELECT t.scope, x.topic, t.type, COALESCE(t.at, {NO_TIME}), t.id, t.key, {REFERRED}
FROM json_each(?) k CROSS JOIN memories t ON t.key = k.value AND t.type = '{TURN.name}'
CROSS JOIN refs r ON r.memory = t.key AND r.relation = 'memory_refs'
CROSS JOIN memories m ON m.scope = r.scope AND m.id = r.target
CROSS JOIN topics x ON x.memory = m.key AND x.how > {REFERRED}
"""


def named(tags: Iterable[Any], topics: Iterable[Any] = ()) -> dict[str, int]:
    """Return the names that something with these tags and topics is about, and how it has each."""
    found: dict[str, int] = {}
    for how, names in ((TOPIC, topics), (TAG, tags)):
        for name in (str(name).lower() for name in names):
            parts = name.split(".") if len(name) <= KEY_CAP_CHARACTERS else [name]
            for wider in (".".join(parts[:length]) for length in range(1, len(parts))):
                found.setdefault(wider, BELOW)
            found[name] = how
    return {name: how for name, how in found.items() if name and not name.endswith(".")}


def of_session(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the topics of a session by its metadata."""
    context = metadata.get("context")
    about = context if isinstance(context, dict) else {}
    tags, topic = about.get("tags"), about.get("primary_topic")
    return named(tags if isinstance(tags, list) else (), [topic] if topic else ())


def note(connection: Connection, scope: str, memories: Iterable[Sequence[Any]]) -> None:
    """Note the topics of memories: the type, the time, the id, the key and the names of each."""
    rows = (
        (scope, topic, kind, NO_TIME if at is None else at, name, key, how)
        for kind, at, name, key, names in memories
        for topic, how in names.items()
    )
    connection.executemany("INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def follow(connection: Connection, scope: str, ids: Iterable[str], keys: Iterable[int]) -> None:
    """Note anew the topics that turns refer to: these turns, and those that refer to these ids."""
    ask = connection.execute
    referring = ask(_REFERRING, (scope, json.dumps(list(ids)))).fetchall()
    turns = (json.dumps([*keys, *(key for (key,) in referring)]),)
    ask(f"DELETE FROM topics WHERE how = {REFERRED} AND memory {_THOSE}", turns)
    ask(_FOLLOW, turns)
