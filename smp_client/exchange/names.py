"""Sessions of an export under names that sessions can have here: one that is called `latest` gets another, wherever it is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..layout import ACTIVE, ARCHIVED, DELETED, LATEST
from .formats import Read
from .layouts.shaping import session_id

if TYPE_CHECKING:
    from ..memory import Memory

_OTHER = session_id(LATEST)  # which is also what one of another layout gets
# Where an entry names its session once more.
_INSIDE = {"session": ("metadata", "session", "id"), "state": ("state", "agent_state", "session_id"), "file": ("head", "Session")}


def with_allowed_names(memory: Memory, given: Iterable[Read]) -> Iterator[Read]:
    """A tree that has a session of that name, from before there was such a rule, takes in what is of that one."""
    is_here: bool | None = None
    for one in given:
        entry = one.entry
        if entry is not None and entry.get("session") == LATEST:
            if is_here is None:
                is_here = memory.root.is_dir() and any(memory.tree.exists(f"{top}/{LATEST}") for top in (ACTIVE, ARCHIVED, DELETED))
            if not is_here:
                one = one._replace(entry={**_renamed(entry, *_INSIDE.get(entry["entry"], ())), "session": _OTHER})
        yield one


def _renamed(value: Any, *path: str) -> Any:
    if not path or not isinstance(value, dict) or path[0] not in value:
        return value
    return {**value, path[0]: _renamed(value[path[0]], *path[1:]) if path[1:] else _OTHER}


def note_of(session: str) -> list[str]:
    """What is to be told of a session that has another name here, and why."""
    if not session.startswith(_OTHER):
        return []
    return [f"a session that is called {LATEST!r} there is {session} here: {LATEST!r} means the one that changed last"]
