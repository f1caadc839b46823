"""What to say of a memory that is not where it was asked for: compaction has taken it out, or it was deleted or purged."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .errors import MemoryNotFound, SMPError
from .layout import ARCHIVED, DELETED

if TYPE_CHECKING:
    from .scope import Scope


def missing(scope: Scope, memory_id: str) -> MemoryNotFound:
    """The error, with the way to bring the memory back where there is one. Takes no lock, and never raises itself."""
    problem = f"There is no memory {memory_id!r} in {scope.name}"
    for look in (_deleted, _evicted, _purged):
        with suppress(SMPError, OSError):
            if found := look(scope, memory_id):
                happened, advice = found
                return MemoryNotFound(f"{problem}: {happened}.", session_id=scope.name, advice=advice)
    return MemoryNotFound(f"{problem}.", session_id=scope.name)


def _deleted(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    at = _at(scope, f"{DELETED}/{scope.name}", memory_id)
    advice = f"To restore it: smp restore {scope.name} {memory_id}, or session.restore({memory_id!r})."
    return None if at is None else (f"it was deleted on {_shown(at)}", advice)


def _evicted(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    at = _at(scope, f"{ARCHIVED}/{scope.name}", memory_id)
    advice = f"To bring it back: smp compact {scope.name} {memory_id} --bring-back, or session.bring_back([{memory_id!r}])."
    return None if at is None else (f"compaction took it out on {_shown(at)}", advice)


def _at(scope: Scope, directory: str, memory_id: str) -> str | None:
    """Return when the newest bundle in a directory was made that holds the memory."""
    if not scope.tree.list(directory):
        return None
    from .disk.inventory import manifests  # late: it loads tar and gzip

    found = (manifest.at for _, manifest in manifests(scope.tree, directory)
             if any(item.id == memory_id for item in manifest.items))  # fmt: skip
    return max(found, default=None)


def _purged(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    from .passes.purged import memories

    stamp = memories(scope.tree, scope.name).get(memory_id)
    return None if stamp is None else (f"it was purged on {_shown(stamp)}", "Nothing brings it back.")


def _shown(stamp: object) -> str:
    """The minute of a time that we have written down."""
    return f"{str(stamp)[:16].replace('T', ' ')} UTC"
