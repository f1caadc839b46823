"""The rows of an index, in an order and without keys that depend on history: equal after equal
files."""

from __future__ import annotations

from typing import Any

from smp_client.index.database import COLUMNS, Index

OF_MEMORY = "SELECT m.scope, m.file, m.start, {} JOIN memories m ON m.key = memory ORDER BY {}"
QUERIES = {
    "files": "SELECT scope, file, size, checksum, bad, problem FROM files ORDER BY 1, 2",
    "memories": f"SELECT scope, file, tags, {', '.join(COLUMNS)} FROM memories"
    " ORDER BY scope, file, start",
    "topics": "SELECT scope, id, topic, type, at, how FROM topics ORDER BY 1, 2, 3, 4, 5, 6",
    "refs": OF_MEMORY.format("r.target, r.relation FROM refs r", "1, 2, 3, 4, 5"),
    "endings": "SELECT session, id, relation, by, at FROM endings ORDER BY 1, 2, 3, 4, 5",
    "miscounted": "SELECT scope FROM scopes s WHERE memories <>"
    " (SELECT COUNT(*) FROM memories m WHERE m.scope = s.scope)",
    "places": "SELECT m.scope, m.file, m.start, s.scope, p.place FROM places p"
    " JOIN memories m ON m.key = p.memory JOIN scopes s ON s.number = p.scope ORDER BY 1, 2, 3",
    "past": OF_MEMORY.format("latest FROM past", "1, 2, 3"),
    "sessions": "SELECT scope, status, project, metadata FROM sessions ORDER BY scope",
}


def contents(index: Index) -> dict[str, list[tuple[Any, ...]]]:
    with index.undone(10_000):
        # Raises where the words and the memories disagree. Only a writer may ask that.
        index.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        return {name: index.execute(query).fetchall() for name, query in QUERIES.items()}
