"""The references of a memory, each with its state: one to a deleted memory stays, and says so."""

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
    relation: str  # such as `refers to`, `comes from` or `resolves`; the end of a relationship
    state: str  # here, deleted, purged, evicted by compaction, or unknown
    at: str | None = None  # since when, where it is not here
    is_inward: bool = False  # it is the other one that, say, resolves this one


def references(files: RecordFiles, memory_id: str) -> list[Reference]:
    """Return the references of a memory, in the order in which they stand. It is no access."""
    record = files.get(memory_id, count_access=False)
    name = files.scope.name

    def question(view: View) -> tuple[list[tuple[str, str, bool]], set[str]]:
        asked = view.index.connection.execute
        found = [*targets(record.data)]
        for (data,) in asked(_STATED, (name, memory_id)):
            stated = json.loads(data)
            source, target = str(stated.get("source")), str(stated.get("target"))
            relation = str(stated.get("relationship", "relates to"))
            if memory_id in (source, target):
                is_inward = source != memory_id
                found.append((source if is_inward else target, relation, is_inward))
        known = "SELECT 1 FROM memories WHERE scope = ? AND id = ?"
        return found, {target for target, *_ in found if asked(known, (name, target)).fetchone()}

    found, here = files._asker().ask(question)
    return told(files, found, here)


def targets(value: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield the memories that the fields of a memory name, each with how."""
    for name in ("source", "target") if "source" in value and "target" in value else ():
        yield str(value[name]), name, False
    for name in ("memory_refs", "references"):
        listed = value.get(name)
        for target in listed if isinstance(listed, list) else ():
            yield str(target), "refers to", False
    if type(turn := value.get("turn_ref")) is int:
        yield f"turn-{turn}", "comes from", False


def told(
    files: RecordFiles, found: Collection[tuple[str, str, bool]], here: Collection[str]
) -> list[Reference]:
    """Return each reference once, with the state of its memory."""
    tree, name = files.scope.tree, files.scope.name
    missing = {target for target, *_ in found} - set(here)
    known: dict[str, tuple[str, str | None]] = dict.fromkeys(here, (HERE, None))
    known |= _whereabouts(tree, name, {target for target in missing if "/" not in target})
    for target in missing:
        if "/" in target and is_memory_name(target):  # of another session
            session, memory_id = split_name(target, name)
            known[target] = (HERE, None)
            try:
                files.memory.get(target, count_access=False)
            except SMPError:
                unknown = (UNKNOWN, None)
                known[target] = _whereabouts(tree, session, {memory_id}).get(memory_id, unknown)
    return [Reference(target, relation, *known.get(target, (UNKNOWN, None)), inward)
            for target, relation, inward in dict.fromkeys(found)]  # fmt: skip


def taken_by_hand(place: Place, scope: str, gone: Collection[str]) -> list[str]:
    """Return the memories gone from their file that SMP did not take: an editor did."""
    known = states(place.tree, scope, set(gone))
    return [memory_id for memory_id in gone if memory_id not in known]


def _whereabouts(
    tree: Tree, name: str, wanted: Collection[str]
) -> dict[str, tuple[str, str | None]]:
    """Return which are in `global`, and the states of the others where something tells."""
    found: dict[str, tuple[str, str | None]] = {**states(tree, name, wanted)}
    for memory_id in wanted:
        kind = kind_of(memory_id, GLOBAL_KINDS)
        with suppress(SMPError, OSError):  # a file that cannot be read says nothing
            if kind and format_of(kind).find(tree.read(f"{GLOBAL}/{kind.file}"), memory_id):
                found[memory_id] = (HERE, None)
    return found
