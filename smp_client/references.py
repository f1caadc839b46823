"""What a memory refers to, and what has become of it: a reference to something that was deleted is kept, and says so."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import SMPError
from .layout import ARCHIVED, DELETED, GLOBAL
from .records import GLOBAL_KINDS, is_memory_name, kind_of, split_name
from .text.format import format_of

if TYPE_CHECKING:
    from .files import Tree
    from .place import Place
    from .questions.priorities import View
    from .session import RecordFiles

HERE, GONE, PURGED, EVICTED, UNKNOWN = "here", "deleted", "purged", "evicted", "unknown"
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
    whereabouts = _Whereabouts(files.scope.tree, files.scope.name, missing - others.keys())
    states = {**dict.fromkeys(here, (HERE, None)), **others}
    return [Reference(target, relation, *(states.get(target) or whereabouts.of(target)), inward)
            for target, relation, inward in dict.fromkeys(found)]  # fmt: skip


def _elsewhere(files: RecordFiles, name: str) -> tuple[str, str | None]:
    """What has become of a memory of another session, named `SESSION/ID`."""
    from .deletion import memory_of

    try:
        memory_of(files).get(name, count_access=False)
    except SMPError:
        session, memory_id = split_name(name, files.scope.name)
        return _Whereabouts(files.scope.tree, session, {memory_id}).of(memory_id)
    return HERE, None


def taken_by_hand(place: Place, scope: str, gone: Collection[str]) -> list[str]:
    """Those of memories that are gone from their file which were not deleted, purged or compacted: an editor did it."""
    whereabouts = _Whereabouts(place.tree, scope, set(gone), in_global=False)
    return [memory_id for memory_id in gone if whereabouts.of(memory_id)[0] == UNKNOWN]


class _Whereabouts:
    """Of memories that are not in their session: the first of several places that knows of one tells."""

    def __init__(self, tree: Tree, name: str, wanted: Collection[str], *, in_global: bool = True) -> None:
        self._tree, self._name = tree, name
        self._known: dict[str, tuple[str, str | None]] = {}
        for look in (*([self._in_global] if in_global else []), self._deleted, self._evicted, self._purged):
            if missing := [memory_id for memory_id in wanted if memory_id not in self._known]:
                with suppress(SMPError, OSError):  # what cannot be read says nothing
                    self._known |= look(missing)

    def of(self, memory_id: str) -> tuple[str, str | None]:
        return self._known.get(memory_id, (UNKNOWN, None))

    def _in_global(self, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
        found: dict[str, tuple[str, str | None]] = {}
        for memory_id in wanted:
            kind = kind_of(memory_id, GLOBAL_KINDS)
            with suppress(FileNotFoundError):
                if kind and format_of(kind).find(self._tree.read(f"{GLOBAL}/{kind.file}"), memory_id):
                    found[memory_id] = (HERE, None)
        return found

    def _deleted(self, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
        return self._bundled(DELETED, GONE, wanted)

    def _evicted(self, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
        return self._bundled(ARCHIVED, EVICTED, wanted)

    def _bundled(self, place: str, state: str, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
        """Return those that a bundle of the session in this place holds; the newest bundle tells."""
        if not self._tree.list(f"{place}/{self._name}"):
            return {}
        from .disk.inventory import manifests  # late: it loads tar and gzip

        found = sorted(manifests(self._tree, f"{place}/{self._name}"), key=lambda one: one[1].at)
        return {item.id: (state, manifest.at) for _, manifest in found if manifest.kind in ("deleted", "evicted")
                for item in manifest.items if item.id in wanted}  # fmt: skip

    def _purged(self, wanted: Collection[str]) -> dict[str, tuple[str, str | None]]:
        from .passes.purged import memories

        return {memory_id: (PURGED, at) for memory_id, at in memories(self._tree, self._name).items() if memory_id in wanted}
