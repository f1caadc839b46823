"""Several records with one id in one file, as a person or a merge makes them by hand.

All of them are memories that can be found. The id names the last one in the file; a change means
that one too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .database import Index

_ORDINALS = {1: "second", 2: "third"}  # by how many stand before it

# The condition that the id of a memory `m` names this memory. With a plus SQLite goes by the id.
NAMED = (
    "NOT EXISTS (SELECT 1 FROM memories o"
    " WHERE o.scope = m.scope AND o.id = m.id AND +o.file = m.file AND o.start > m.start)"
)
# Numbered in one go: there may be as many of one id as there are memories.
_BEFORE = """
WITH keys AS (SELECT value FROM json_each(?1)),
asked AS (SELECT DISTINCT scope, id, file FROM memories WHERE key IN keys),
numbered AS (
    SELECT m.key, m.id,
        ROW_NUMBER() OVER (PARTITION BY m.scope, m.id, m.file ORDER BY m.start) - 1 AS before
    FROM asked CROSS JOIN memories m
        ON m.scope = asked.scope AND m.id = asked.id AND m.file = asked.file
)
SELECT key, id, before FROM numbered WHERE before > 0 AND key IN keys
"""
# Almost no id stands twice; the index by id tells which do without a look at any memory.
_DOUBLES = """
WITH twice AS (
    SELECT scope, id FROM memories WHERE ?1 IS NULL OR scope = ?1
    GROUP BY scope, id HAVING COUNT(*) > 1
)
SELECT m.scope, m.file, m.id, COUNT(*)
FROM twice CROSS JOIN memories m ON m.scope = twice.scope AND m.id = twice.id
GROUP BY m.scope, m.file, m.id HAVING COUNT(*) > 1 ORDER BY 1, 2, 3
"""


class Double(NamedTuple):
    """An id that several records of one file have."""

    scope: str
    file: str
    id: str
    records: int


def doubles(index: Index, scope: str | None = None) -> list[Double]:
    """Return the ids that several records of one file have, of one scope or of all."""
    return [Double(*row) for row in index.connection.execute(_DOUBLES, (scope,))]


def marks(index: Index, keys: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return a mark such as `second DEC-001` for each memory that is not the first of its id."""
    rows = index.connection.execute(_BEFORE, (json.dumps(list(keys)),))
    return {key: (f"{_ORDINALS.get(at, f'{at + 1}th')} {name}",) for key, name, at in rows}
