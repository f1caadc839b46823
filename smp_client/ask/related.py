"""The memories that a memory has ties with: by relationships, references, its turn, shared topics.

Ties count in both directions, and a circle of ties is walked once. A shared topic is the weakest
tie: only the nearest few memories are followed, and not from one topic to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ..index.mentions import TAG
from ..model.record import Record
from .engine import of_ids, scope_of
from .options import Answer, Wanted
from .priorities import View

_SHARES = "shares"
_TOPIC_TIES_CAP = 10  # of each memory
_RELATION_NAMES = {"memory_refs": "refers to", "references": "refers to", "turn_ref": "comes from"}
# The memory that refers, whether it is a relationship, its fields, and the memory referred to.
_TIES = """
SELECT m.id, m.type = 'relationship', m.data, r.target, r.relation
FROM refs r JOIN memories m ON m.key = r.memory WHERE {} ORDER BY 2 DESC, m.start, m.id, r.target
"""
_OUTWARD = _TIES.format("m.scope = ?1 AND m.id = ?2 AND m.type <> 'relationship'")
_INWARD = _TIES.format("r.scope = ?1 AND r.target = ?2")
_BY_TOPIC = f"""
SELECT n.id, GROUP_CONCAT(b.topic, ', ') FROM memories m
JOIN topics a ON a.memory = m.key AND a.how = {TAG}
JOIN topics b ON b.scope = a.scope AND b.topic = a.topic AND b.how = {TAG} AND b.memory <> a.memory
JOIN memories n ON n.key = b.memory WHERE m.scope = ? AND m.id = ? AND n.type <> 'summary'
GROUP BY b.memory ORDER BY COUNT(*) DESC, n.at DESC, n.id LIMIT ?
"""


def related(view: View, want: Wanted, start: Record, depth: int) -> Answer:
    """Return the related memories, nearest first, each with its `path`."""
    scope = scope_of(start)
    # The steps from the start to each memory: `DEC-002 resolves FIND-001`.
    paths: dict[str, tuple[str, ...]] = {start.id: ()}
    frontier = [start.id]
    for _ in range(depth):
        reached: list[str] = []
        for memory_id in frontier:
            by_topic = bool(paths[memory_id]) and f" {_SHARES} " in paths[memory_id][-1]
            for other, step in _ties(view, scope, memory_id, topics=not by_topic):
                if other not in paths:
                    paths[other] = (*paths[memory_id], step)
                    reached.append(other)
        frontier = reached
    del paths[start.id]
    records = of_ids(view, want, scope, list(paths))
    nearest = [record.shown(path=paths[record.id]) for record in records]
    nearest.sort(key=lambda record: (len(record.path), -record.priority, record.id))
    return Answer(nearest[want.offset : want.end])


def related_to_all(view: View, records: Sequence[Record]) -> list[Record]:
    """Return the other memories one step from these. A shared topic is no step here."""
    starts = dict.fromkeys((scope_of(record), record.id) for record in records)
    steps_of: dict[str, dict[str, str]] = {}  # by scope, then by memory
    for scope, memory_id in starts:
        for other, step in _ties(view, scope, memory_id, topics=False):
            if (scope, other) not in starts:
                steps_of.setdefault(scope, {}).setdefault(other, step)
    return [
        record.shown(path=(steps[record.id],))
        for scope, steps in steps_of.items()
        for record in of_ids(view, Wanted(), scope, list(steps))
    ]


def _ties(view: View, scope: str, memory_id: str, *, topics: bool) -> Iterator[tuple[str, str]]:
    """Yield the id of each memory one step from a memory, with the step."""
    ask = view.index.execute
    inward = ask(_INWARD, (scope, memory_id)).fetchall()
    for referrer, is_relationship, data, target, relation in inward:
        fields = json.loads(data) if is_relationship else {}
        source, other = str(fields.get("source")), str(fields.get("target"))
        if memory_id in (source, other):
            step = f"{source} {fields.get('relationship', 'relates to')} {other}"
            yield (other if source == memory_id else source), step
        else:
            yield referrer, f"{referrer} {_RELATION_NAMES.get(relation, relation)} {target}"
    for referrer, _, _, target, relation in ask(_OUTWARD, (scope, memory_id)):
        yield target, f"{referrer} {_RELATION_NAMES.get(relation, relation)} {target}"
    if topics:
        for other, tags in ask(_BY_TOPIC, (scope, memory_id, _TOPIC_TIES_CAP)):
            yield other, f"{memory_id} {_SHARES} {tags} with {other}"
