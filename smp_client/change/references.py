"""Where a memory is that is not in its file, and the references of a memory with their states.

A reference to a deleted memory stays, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import MemoryNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED, GLOBAL
from ..model.record import is_memory_name, split_name

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..disk.scope import Scope
    from ..disk.tree import Tree
    from ..session import RecordFiles

HERE, UNKNOWN, GONE, PURGED, EVICTED = "here", "unknown", "deleted", "purged", "evicted"
_HAPPENED = {
    GONE: ("it was deleted on", "To restore it: smp restore {0} {1}, or session.restore({1!r})."),
    EVICTED: ("compaction took it out on", "To bring it back: smp compact {0} {1} --bring-back,"
              " or session.bring_back([{1!r}])."),
    PURGED: ("it was purged on", "Nothing brings it back."),
}  # fmt: skip
_STATED = """
SELECT m.data FROM refs r JOIN memories m ON m.key = r.memory
WHERE r.scope = ? AND r.target = ? AND m.type = 'relationship' ORDER BY m.start
"""


class Reference(NamedTuple):
    """A memory that another one refers to, or is related to by a relationship."""

    id: str
    relation: str  # such as `refers to`, `comes from` or `resolves`; the end of a relationship
    state: str  # here, deleted, purged, evicted by compaction, or unknown
    is_inward: bool = False  # it is the other one that, say, resolves this one


def references(files: RecordFiles, memory_id: str) -> list[Reference]:
    """Return the references of a memory, in the order in which they stand. It is no access."""
    record, own = files.get(memory_id, count_access=False), files.scope.name
    found = [*_targets(record.data)]

    def question(view: View) -> list[tuple[str]]:
        return view.index.connection.execute(_STATED, (own, memory_id)).fetchall()

    for (data,) in files._asker().ask(question):
        stated = json.loads(data)
        source, target = str(stated.get("source")), str(stated.get("target"))
        relation = str(stated.get("relationship", "relates to"))
        if memory_id in (source, target):
            is_inward = source != memory_id
            found.append((source if is_inward else target, relation, is_inward))
    return [Reference(target, relation, _state(files, target), is_inward)
            for target, relation, is_inward in dict.fromkeys(found)]  # fmt: skip


def _state(files: RecordFiles, name: str) -> str:
    """Return the state of a memory of this scope, of `global` or, as `SESSION/ID`, of any."""
    own, tree = files.scope.name, files.scope.tree
    places = [name] if "/" in name else [f"{own}/{name}", f"{GLOBAL}/{name}"]
    for place in filter(is_memory_name, places):
        with suppress(SMPError):
            found = files.memory.get(place, count_access=False)
            return EVICTED if EVICTED in found.marks else HERE
        session, memory_id = split_name(place, own)
        if known := states(tree, session, [memory_id]).get(memory_id):
            return known[0]
    return UNKNOWN


def _targets(value: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield the memories that the fields of a memory name, each with how."""
    for name in ("source", "target") if "source" in value and "target" in value else ():
        yield str(value[name]), name, False
    for name in ("memory_refs", "references"):
        listed = value.get(name)
        for target in listed if isinstance(listed, list) else ():
            yield str(target), "refers to", False
    if type(turn := value.get("turn_ref")) is int:
        yield f"turn-{turn}", "comes from", False


def states(tree: Tree, name: str, wanted: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the states of memories of a session, and since when. An unreadable file says nothing.

    Of several places that know of a memory, `deleted/` tells, then the evicted, then the purged.
    """
    from ..disk.tombstones import Purged, load

    found: dict[str, tuple[str, str]] = {}
    with suppress(SMPError, OSError):
        purged = load(tree).get(name, Purged()).memories
        found |= {one: (PURGED, purged[one]) for one in wanted if one in purged}
    for place, state in ((ARCHIVED, EVICTED), (DELETED, GONE)):
        with suppress(SMPError, OSError):
            if not wanted or not tree.list(f"{place}/{name}"):
                continue
            from ..disk.bundle import manifests  # late: it loads tar and gzip

            bundles = (manifest for _, manifest in manifests(tree, f"{place}/{name}"))
            for one in sorted(bundles, key=lambda manifest: manifest.at):
                if one.kind in ("deleted", "evicted"):
                    found |= {item.id: (state, one.at) for item in one.items if item.id in wanted}
    return found


def missing(scope: Scope, memory_id: str) -> MemoryNotFound:
    """Return the error, with the way to bring the memory back where there is one. Takes no lock."""
    problem, advice = f"There is no memory {memory_id!r} in {scope.name}", None
    if known := states(scope.tree, scope.name, [memory_id]).get(memory_id):
        happened, advice = _HAPPENED[known[0]]
        problem += f": {happened} {known[1][:16].replace('T', ' ')} UTC"
        advice = advice.format(scope.name, memory_id)
    return MemoryNotFound(f"{problem}.", session_id=scope.name, advice=advice)
