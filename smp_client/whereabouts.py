"""What to say of a memory that is not where it was asked for: compaction has taken it out, or it was deleted or purged."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .errors import MemoryNotFound, SMPError
from .layout import ARCHIVED, DELETED
from .text.mapping import load_mapping

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
    from .privacy.deleting.store import RECORD

    path = f"{DELETED}/{scope.name}/{RECORD}"
    if not scope.tree.exists(path):
        return None
    items = load_mapping(scope.tree.read(path), "deletion", path).get("deleted_items")
    for item in reversed(items) if isinstance(items, list) else ():
        if isinstance(item, dict) and item.get("id") == memory_id:
            advice = f"To restore it: smp restore {scope.name} {memory_id}, or session.restore({memory_id!r})."
            return f"it was deleted on {_shown(item.get('deleted_at'))}", advice
    return None


def _evicted(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    if not scope.tree.list(f"{ARCHIVED}/{scope.name}"):
        return None
    from .maintain.evictions import evicted_at

    if (stamp := evicted_at(scope.tree, scope.name, memory_id)) is None:
        return None
    advice = f"To bring it back: smp compact {scope.name} {memory_id} --bring-back, or session.bring_back([{memory_id!r}])."
    return f"compaction took it out on {_shown(stamp)}", advice


def _purged(scope: Scope, memory_id: str) -> tuple[str, str] | None:
    from .maintain.purged import memories

    stamp = memories(scope.tree, scope.name).get(memory_id)
    return None if stamp is None else (f"it was purged on {_shown(stamp)}", "Nothing brings it back.")


def _shown(stamp: object) -> str:
    """The minute of a time that we have written down."""
    return f"{str(stamp)[:16].replace('T', ' ')} UTC"
