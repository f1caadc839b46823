"""Bundles as a pass makes them, for tests that need one and not the pass."""

from __future__ import annotations

from smp_client import Memory
from smp_client.change.change import Request, apply
from smp_client.change.holdings import holdings
from smp_client.change.restore import removal
from smp_client.disk.bundle import Manifest, paths

AT = "2026-03-01T12:00:00Z"


def evict(memory: Memory, session: str, *ids: str) -> str:
    """Move memories out of a session as compaction does. Return the bundle."""
    number = len(paths(memory.tree, f"archived/{session}"))
    path = f"archived/{session}/evicted-20260301T120000-{number:08x}.tar.gz"
    move(memory, path, Manifest("evicted", session, AT, "smp", "a test"), *ids)
    return path


def move(memory: Memory, path: str, head: Manifest, *ids: str) -> None:
    """Move memories out of the files of a session into a bundle."""
    scope = memory._scope(head.session)
    meant = [removal(one) for one in holdings(memory, head.session, ("active",)) if one.id in ids]
    with scope.undisturbed("moving memories"):
        apply(scope, Request(meant, (path, head)))
