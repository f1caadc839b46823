"""The memories that one is connected with: by relationships, references, its turn, shared topics.

Connections count in both directions, and a circle of them is walked once. A shared topic is the
weakest tie: only the nearest few are followed, and not from one topic to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..model.record import Record
from .engine import of_ids, scope_of
from .options import Answer, Wanted
from .priorities import View

_TOPIC = "shares"
_BY_TOPIC = 10  # at most, of each memory
_RELATION_NAMES = {"memory_refs": "refers to", "references": "refers to", "turn_ref": "comes from"}
# The memory that refers, whether it is a relationship, its fields, and the memory referred to.
_TIES = """
SELECT m.id, m.type = 'relationship', m.data, r.target, r.relation
FROM refs r JOIN memories m ON m.key = r.memory WHERE {} ORDER BY 2 DESC, m.start, m.id, r.target
"""
_OUTWARD = _TIES.format("m.scope = ?1 AND m.id = ?2 AND m.type <> 'relationship'")
_INWARD = _TIES.format("r.scope = ?1 AND r.target = ?2")
_SHARED = """
SELECT n.id, GROUP_CONCAT(b.tag, ', ') FROM memories m JOIN tags a ON a.memory = m.key
JOIN tags b ON b.scope = a.scope AND b.tag = a.tag AND b.memory <> a.memory
JOIN memories n ON n.key = b.memory WHERE m.scope = ? AND m.id = ? AND n.type <> 'summary'
GROUP BY b.memory ORDER BY COUNT(*) DESC, n.at DESC, n.id LIMIT ?
"""


def related(view: View, want: Wanted, start: Record, depth: int) -> Answer:
    """Return the related memories, nearest first, each with its `path`."""
    scope = scope_of(start)
    # Every memory within so many steps, with its steps: `DEC-002 resolves FIND-001`.
    paths: dict[str, tuple[str, ...]] = {start.id: ()}
    edge = [start.id]
    for _ in range(depth):
        reached: list[str] = []
        for memory_id in edge:
            by_topic = bool(paths[memory_id]) and f" {_TOPIC} " in paths[memory_id][-1]
            for other, step in _ties(view, scope, memory_id, topics=not by_topic):
                if other not in paths:
                    paths[other] = (*paths[memory_id], step)
                    reached.append(other)
        edge = reached
    del paths[start.id]
    found = [one.shown(path=paths[one.id]) for one in of_ids(view, want, scope, list(paths))]
    found.sort(key=lambda record: (len(record.path), -record.priority, record.id))
    return Answer(found[want.offset : want.end])


def related_to_all(view: View, records: Sequence[Record]) -> list[Record]:
    """Return the memories one step from these, without themselves and without shared topics."""
    known = {(scope_of(record), record.id) for record in records}
    wanted: dict[str, dict[str, str]] = {}
    for scope, memory_id in dict.fromkeys((scope_of(record), record.id) for record in records):
        for other, step in _ties(view, scope, memory_id, topics=False):
            if (scope, other) not in known:
                wanted.setdefault(scope, {}).setdefault(other, step)
    return [
        record.shown(path=(steps[record.id],))
        for scope, steps in wanted.items()
        for record in of_ids(view, Wanted(), scope, list(steps))
    ]


def _ties(view: View, scope: str, memory_id: str, *, topics: bool) -> Iterator[tuple[str, str]]:
    """Yield the memories one step from a memory, each with the step."""
    ask = view.index.connection.execute
    inward = ask(_INWARD, (scope, memory_id)).fetchall()
    for one, is_relationship, data, target, relation in inward:
        stated = json.loads(data) if is_relationship else {}
        source, other = str(stated.get("source")), str(stated.get("target"))
        if memory_id in (source, other):
            step = f"{source} {stated.get('relationship', 'relates to')} {other}"
            yield (other if source == memory_id else source), step
        else:
            yield one, f"{one} {_RELATION_NAMES.get(relation, relation)} {target}"
    for one, _, _, target, relation in ask(_OUTWARD, (scope, memory_id)):
        yield target, f"{one} {_RELATION_NAMES.get(relation, relation)} {target}"
    if topics:
        for other, tags in ask(_SHARED, (scope, memory_id, _BY_TOPIC)):
            yield other, f"{memory_id} {_TOPIC} {tags} with {other}"
