"""Where a memory is that is not in its file: deleted, or evicted by compaction."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..model.errors import MemoryNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED

if TYPE_CHECKING:
    from ..disk.scope import Scope

_BACK = {
    "deleted": "To restore it: smp restore {0} {1}, or session.restore({1!r}).",
    "evicted": "To bring it back: smp compact {0} {1} --bring-back,"
    " or session.bring_back([{1!r}]).",
}


def missing(scope: Scope, memory_id: str) -> MemoryNotFound:
    """Return the error, with the way to bring the memory back where there is one. Takes no lock."""
    problem, advice = f"There is no memory {memory_id!r} in {scope.name}", None
    with suppress(SMPError, OSError):  # an unreadable file says nothing
        if known := _state(scope, memory_id):
            state, at = known
            problem += f": it was {state} on {at[:16].replace('T', ' ')} UTC"
            advice = _BACK[state].format(scope.name, memory_id)
    return MemoryNotFound(f"{problem}.", session_id=scope.name, advice=advice)


def _state(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    """Return the state of a memory, and since when."""
    for place, state in ((DELETED, "deleted"), (ARCHIVED, "evicted")):
        if scope.tree.list(f"{place}/{scope.name}"):
            from ..disk.bundle import manifests  # late: it loads tar and gzip

            found = [manifest for _, manifest in manifests(scope.tree, f"{place}/{scope.name}")
                     if any(item.id == memory_id for item in manifest.items)]  # fmt: skip
            if times := [manifest.at for manifest in found if manifest.kind == state]:
                return state, max(times)
    return None
