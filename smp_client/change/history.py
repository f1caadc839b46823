"""The earlier versions of one memory, oldest first, wherever they are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..model.record import HISTORY, STATE_HISTORY, check_lookup, split_folder
from ..text.revision import Revision, parse_earlier_state, parse_revision
from .holdings import EVERY, Holding, holdings, in_file, in_use, is_in_use, missing

if TYPE_CHECKING:
    from ..memory import Memory

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def history(memory: Memory, session: str, memory_id: str) -> list[Revision]:
    """Return what stood in a memory before each of its changes.

    For the name of an agent, return its earlier states. Raise MemoryNotFound for an unknown id.
    """
    found = earlier_versions(memory, session, memory_id)
    if not found and not _is_known(memory, session, memory_id):
        raise missing(memory._scope(session), memory_id)
    return found


def earlier_versions(memory: Memory, session: str, memory_id: str) -> list[Revision]:
    """Return the versions before each change; none for a memory that is unknown."""
    type, bare = split_folder(check_lookup(memory_id))
    found = [one for one in _earlier(memory, session, bare, type) if one.memory == bare]
    return sorted(found, key=lambda one: one.at or _LONG_AGO)


def _is_known(memory: Memory, session: str, memory_id: str) -> bool:
    """Return whether a file or a bundle of the session has this memory."""
    if is_in_use(memory, session) and in_use(memory, session, [memory_id]):
        return True  # without reading the rest of a large session
    bare = split_folder(memory_id)[1]
    return any(one.id == bare for one in holdings(memory, session, EVERY))


def _earlier(memory: Memory, session: str, memory_id: str, type: str) -> list[Revision]:
    """Return the earlier versions; with a type, those of a state or of an artifact alone."""
    states = f"{STATE_HISTORY}/{memory_id}.yaml"
    held: list[Holding] = []
    if is_in_use(memory, session):
        scope = memory._scope(session)
        for file in (HISTORY, states):
            held += in_file(session, "active", "", file, scope.read(file))
    held += holdings(memory, session, ("archived", "evicted"))
    found: list[Revision] = []
    if type != "agent_state":
        found += [parse_revision(one.value) for one in held if one.file == HISTORY]
    if type != "artifact":
        found += [parse_earlier_state(memory_id, one.value) for one in held if one.file == states]
    return found
