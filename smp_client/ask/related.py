"""The memories that a memory has ties with: by relationships, references, its turn, shared topics.

Ties count in both directions, and a circle of ties is walked once. A shared topic is the weakest
tie: only the nearest few memories are followed, and not from one topic to the next. A relationship,
which somebody has stated, is the strongest: from its other end, relationships lead one step
further. So the preference that influenced a decision is related to the finding that it resolves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


class Tie(NamedTuple):
    """A memory one step from another, and the step: `DEC-002 resolves FIND-001`."""

    other: str
    step: str
    is_stated: bool = False  # by a relationship
    is_topic: bool = False


def related(view: View, want: Wanted, start: Record, depth: int) -> Answer:
    """Return the related memories, nearest first, each with its `path`."""
    scope = scope_of(start)
    paths: dict[str, tuple[Tie, ...]] = {start.id: ()}
    frontier = [start.id]
    for _ in range(depth):
        reached: list[str] = []
        for memory_id in frontier:
            by_topic = bool(paths[memory_id]) and paths[memory_id][-1].is_topic
            for tie in _ties(view, scope, memory_id, topics=not by_topic):
                if tie.other not in paths:
                    paths[tie.other] = (*paths[memory_id], tie)
                    reached.append(tie.other)
        frontier = reached
    for memory_id in [one for one in frontier if paths[one][-1].is_stated]:
        for tie in _ties(view, scope, memory_id, topics=False):
            if tie.is_stated and tie.other not in paths:
                paths[tie.other] = (*paths[memory_id], tie)
    del paths[start.id]
    records = of_ids(view, want, scope, list(paths))
    nearest: list[Record] = []
    for record in records:
        steps = tuple(tie.step for tie in paths[record.id])
        nearest.append(record.shown(path=steps))
    nearest.sort(key=lambda record: (len(record.path), -record.priority, record.id))
    return Answer(nearest[want.offset : want.end])


def related_to_all(view: View, records: Sequence[Record]) -> list[Record]:
    """Return the other memories one step from these. A shared topic is no step here."""
    starts = dict.fromkeys((scope_of(record), record.id) for record in records)
    steps_of: dict[str, dict[str, str]] = {}  # by scope, then by memory
    for scope, memory_id in starts:
        for tie in _ties(view, scope, memory_id, topics=False):
            if (scope, tie.other) not in starts:
                steps_of.setdefault(scope, {}).setdefault(tie.other, tie.step)
    return [
        record.shown(path=(steps[record.id],))
        for scope, steps in steps_of.items()
        for record in of_ids(view, Wanted(), scope, list(steps))
    ]


def _ties(view: View, scope: str, memory_id: str, *, topics: bool) -> Iterator[Tie]:
    """Yield the ties of a memory: relationships, references, and shared topics if wanted."""
    ask = view.index.execute
    inward = ask(_INWARD, (scope, memory_id)).fetchall()
    for referrer, is_relationship, data, target, relation in inward:
        fields = json.loads(data) if is_relationship else {}
        source, other = str(fields.get("source")), str(fields.get("target"))
        if memory_id in (source, other):
            step = f"{source} {fields.get('relationship', 'relates to')} {other}"
            yield Tie(other if source == memory_id else source, step, is_stated=True)
        else:
            step = f"{referrer} {_RELATION_NAMES.get(relation, relation)} {target}"
            yield Tie(referrer, step)
    for referrer, _, _, target, relation in ask(_OUTWARD, (scope, memory_id)):
        yield Tie(target, f"{referrer} {_RELATION_NAMES.get(relation, relation)} {target}")
    if topics:
        for other, tags in ask(_BY_TOPIC, (scope, memory_id, _TOPIC_TIES_CAP)):
            yield Tie(other, f"{memory_id} {_SHARES} {tags} with {other}", is_topic=True)
