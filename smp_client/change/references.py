"""What a memory refers to, and what has become of it: a reference to something that was deleted is kept, and says so."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model.errors import SMPError
from ..model.layout import GLOBAL
from ..model.record import GLOBAL_KINDS, is_memory_name, kind_of, split_name
from ..text.format import format_of
from .whereabouts import states

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..disk.place import Place
    from ..disk.tree import Tree
    from ..session import RecordFiles

HERE, UNKNOWN = "here", "unknown"
_STATED = """
SELECT m.data FROM refs r JOIN memories m ON m.key = r.memory
WHERE r.scope = ? AND r.target = ? AND m.type = 'relationship' ORDER BY m.start
"""


@dataclass(frozen=True)
class Reference:
    """A memory that another one refers to, or is related to by a relationship."""

    id: str
    relation: str  # such as `refers to`, `comes from` or `resolves`; `source` and `target` of a relationship itself
    state: str  # here, deleted, purged, evicted by compaction, or unknown
    at: str | None = None  # since when, where it is not here
    is_inward: bool = False  # it is the other one that, say, resolves this one


def references(files: RecordFiles, memory_id: str) -> list[Reference]:
    """Of a memory of a session, or of `global`, in the order in which they stand there. Counts as no access."""
    record = files.get(memory_id, count_access=False)
    name = files.scope.name

    def question(view: View) -> tuple[list[tuple[str, str, bool]], set[str]]:
        asked = view.index.connection.execute
        stated = [json.loads(data) for (data,) in asked(_STATED, (name, memory_id))]
        found = [*targets(record.data), *_ends(stated, memory_id)]
        known = "SELECT 1 FROM memories WHERE scope = ? AND id = ?"
        return found, {target for target, _, _ in found if asked(known, (name, target)).fetchone()}

    found, here = files._asker().ask(question)
    return told(files, found, here)


def targets(value: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """What the fields of a memory name, each with how."""
    for name in ("source", "target") if "source" in value and "target" in value else ():
        yield str(value[name]), name, False
    for name in ("memory_refs", "references"):
        listed = value.get(name)
        yield from ((str(target), "refers to", False) for target in (listed if isinstance(listed, list) else ()))
    if type(turn := value.get("turn_ref")) is int:
        yield f"turn-{turn}", "comes from", False


def _ends(stated: list[dict[str, Any]], memory_id: str) -> Iterator[tuple[str, str, bool]]:
    """The other ends of relationships that a memory is in."""
    for one in stated:
        source, target = str(one.get("source")), str(one.get("target"))
        relation = str(one.get("relationship", "relates to"))
        if source == memory_id:
            yield target, relation, False
        elif target == memory_id:
            yield source, relation, True


def told(files: RecordFiles, found: Collection[tuple[str, str, bool]], here: Collection[str]) -> list[Reference]:
    """Each once, with what has become of it; what is not here is looked for only where there is any."""
    missing = {target for target, _, _ in found} - set(here)
    others = {target: _elsewhere(files, target) for target in missing if "/" in target and is_memory_name(target)}
    known = {**dict.fromkeys(here, (HERE, None)), **others}
    known |= _whereabouts(files.scope.tree, files.scope.name, missing - others.keys())
    return [Reference(target, relation, *known.get(target, (UNKNOWN, None)), inward)
            for target, relation, inward in dict.fromkeys(found)]  # fmt: skip


def _elsewhere(files: RecordFiles, name: str) -> tuple[str, str | None]:
    """What has become of a memory of another session, named `SESSION/ID`."""

    try:
        files.memory.get(name, count_access=False)
    except SMPError:
        session, memory_id = split_name(name, files.scope.name)
        known = _whereabouts(files.scope.tree, session, {memory_id})
        return known.get(memory_id, (UNKNOWN, None))
    return HERE, None


def taken_by_hand(place: Place, scope: str, gone: Collection[str]) -> list[str]:
    """Those of memories that are gone from their file which were not deleted, purged or compacted: an editor did it."""
    known = states(place.tree, scope, set(gone))
    return [memory_id for memory_id in gone if memory_id not in known]


def _whereabouts(tree: Tree, name: str, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
    """Return those that are in `global`, and what became of the others where something tells."""
    found: dict[str, tuple[str, str | None]] = {**states(tree, name, wanted)}
    for memory_id in wanted:
        kind = kind_of(memory_id, GLOBAL_KINDS)
        with suppress(SMPError, OSError):  # what cannot be read says nothing
            if kind and format_of(kind).find(tree.read(f"{GLOBAL}/{kind.file}"), memory_id):
                found[memory_id] = (HERE, None)
    return found
