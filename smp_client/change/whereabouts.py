"""Where a memory is that is not in its file: deleted, evicted by compaction, or purged."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from ..model.errors import MemoryNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..disk.tree import Tree

GONE, PURGED, EVICTED = "deleted", "purged", "evicted"
_HAPPENED = {
    GONE: ("it was deleted on", "To restore it: smp restore {0} {1}, or session.restore({1!r})."),
    EVICTED: ("compaction took it out on", "To bring it back: smp compact {0} {1} --bring-back,"
              " or session.bring_back([{1!r}])."),
    PURGED: ("it was purged on", "Nothing brings it back."),
}  # fmt: skip


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
