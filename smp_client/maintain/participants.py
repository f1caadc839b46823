"""Agents whom `metadata.yaml` names, with a count, only for what they said: when the last of that is purged, their names go too.

What is deleted and can be restored, or was taken out by compaction, still names them. An agent without a count, or of whom more is
said there, was put down by a person, and stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import SMPError
from ..privacy.deleting import clearing, reworking
from ..privacy.deleting.fitting import describe
from ..privacy.deleting.standing import Contents, is_record_file, value_of_file
from ..privacy.deleting.store import Store, member_of
from ..session import Session
from ..session_files import METADATA

if TYPE_CHECKING:
    from ..memory import Memory

_COUNTED = frozenset(("message_count", "last_active"))  # what the daemon writes of each, beside the name


def forget(memory: Memory, session_id: str, values: Iterable[Mapping[str, Any]], going: Collection[str]) -> list[str]:
    """Before the copies of these memories are destroyed, under the locks of the session's passes and of its record. Gives back
    which old versions somebody has open."""
    contents = Contents(memory, session_id)
    said = {text for value in values for text in _texts(value)}
    if METADATA not in contents.files():
        return []
    metadata = value_of_file(METADATA, contents.read(METADATA))
    unsaid = _counted(metadata) & said
    unsaid -= describe(memory, session_id).agents if unsaid else set()
    unsaid -= _in_deleted(memory, session_id, going) if unsaid else set()
    if not unsaid:
        return []
    if contents.is_archived:
        with reworking.unpacked(memory, session_id) as aside:
            _take_out(aside.files, unsaid)
            aside.pack()
        return []
    files = reworking.files_of(memory, session_id)
    _take_out(files, unsaid)
    return clearing.wipe_old_versions(files.scope, [METADATA])


def _take_out(files: object, unsaid: Collection[str]) -> None:
    assert isinstance(files, Session)
    files.change_metadata(lambda metadata: {"participants": {"agents": [
        left for one in _agents(metadata) if (left := _without_counts(one) if _name(one) in unsaid else one)
    ]}})  # fmt: skip


def _without_counts(agent: Mapping[str, Any]) -> dict[str, Any] | None:
    left = {name: value for name, value in agent.items() if name not in _COUNTED}
    return left if left.keys() > {"agent_id"} else None


def _counted(metadata: Mapping[str, Any]) -> set[str]:
    return {_name(one) for one in _agents(metadata) if isinstance(one, dict) and "message_count" in one}


def _agents(metadata: Mapping[str, Any]) -> list[Any]:
    people = metadata.get("participants")
    agents = people.get("agents") if isinstance(people, dict) else None
    return agents if isinstance(agents, list) else []


def _name(agent: object) -> str:
    return str(agent.get("agent_id")) if isinstance(agent, dict) else ""


def _in_deleted(memory: Memory, session_id: str, going: Collection[str]) -> set[str]:
    store = Store(memory, session_id)
    members = store.members()
    found: set[str] = set()
    for item in store.known():
        if member_of(item) in going:
            continue
        with suppress(SMPError):
            raw, value = store.copy(item, members)
            file = str(item["file"])
            found.update(_texts(value if is_record_file(file) else value_of_file(file, raw)))
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
