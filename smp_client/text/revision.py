"""Earlier versions of memories: `history.yaml` has a record for each change of another record.

A revision names the memory, who changed it and how, and the fields that stood there before. The
bookkeeping of decay makes no revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from ..model.times import time_of
from .values import Value

OUTSIDE = "outside of SMP"  # who changed a memory in an editor, or with another program
_BOOKKEEPING = ("id", "timestamp", "updated_at", "decay")


class Editor(NamedTuple):
    """Who changes a memory, and the verb for it."""

    by: str = "user"
    change: str = "updated"


class Revision(NamedTuple):
    """A memory as it stood before one change. A field that it did not have is None."""

    memory: str
    at: datetime | None
    by: str
    change: str
    before: Mapping[str, Value]
    id: str


def revision_fields(
    memory_id: str, old: Mapping[str, Value], new: Mapping[str, Value], editor: Editor
) -> dict[str, Value] | None:
    """Return the fields of the revision for a change; None if nothing but bookkeeping changed."""
    names = [name for name in {**old, **new} if name not in _BOOKKEEPING]
    before = {name: old.get(name) for name in names if old.get(name) != new.get(name)}
    if not before:
        return None
    return {
        "memory": memory_id,
        "change": editor.change,
        "changed_by": editor.by,
        "before": before,
    }


def parse_revision(value: Mapping[str, Value]) -> Revision:
    """Return a record of `history.yaml`, which anybody may have edited, as a revision."""
    before = value.get("before")
    return Revision(
        memory=str(value.get("memory", "")),
        at=time_of(value.get("timestamp")),
        by=str(value.get("changed_by", "")),
        change=str(value.get("change", "")),
        before=before if isinstance(before, dict) else {},
        id=str(value.get("id", "")),
    )


def parse_earlier_state(agent: str, value: Mapping[str, Value]) -> Revision:
    """Return a record of an agent's earlier states as a revision."""
    state = value.get("state")
    return Revision(
        memory=agent,
        at=time_of(value.get("timestamp")),
        by=agent,
        change="saved",
        before=state if isinstance(state, dict) else {},
        id=str(value.get("id", "")),
    )
