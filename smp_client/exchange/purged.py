"""What was purged here stays away: an older export that still holds it does not bring it back, unless that is asked for.

Ids are never given twice, so the same id in the same session is the same memory. Other programs number theirs by themselves: what
comes from their layouts is known by its time as well, and gets another id where it only has that of a purged one. An agent's state
and an artifact keep their names, and are known by their time, too; so is a session that was made anew under the id of one that was
purged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import SMPError
from ..layout import ACTIVE, GLOBAL
from ..maintain.archive import is_archived
from ..privacy.deleting.standing import Contents, value_of_file
from ..privacy.deleting.store import RECORD, TOP
from ..records import is_deleted
from ..session_files import METADATA, artifact_file, state_file
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value
from ..timestamps import parse_time
from .entries import DELETED, PROFILE, Entry, kind_of
from .pieces import render

if TYPE_CHECKING:
    from ..maintain.purged import Purged
    from ..memory import Memory
    from .building import Building

TAKE_IN_ALL_THE_SAME = "smp import --purged takes it in all the same"
_NAMED = 5
_TIMES = ("last_updated", "updated_at", "timestamp", "created_at")


def purged_note(ids: Sequence[str]) -> str:
    every = list(dict.fromkeys(ids))
    named = ", ".join(every[:_NAMED]) + (f" and {len(every) - _NAMED:,} more" if len(every) > _NAMED else "")
    return f"{named}: purged here, and not taken in; {TAKE_IN_ALL_THE_SAME}."


def is_here(memory: Memory, session: str) -> bool:
    """Whether what comes is compared with what stands; else it comes as it is."""
    return session == GLOBAL or memory.tree.exists(f"{ACTIVE}/{session}") or is_archived(memory.tree, session)


def named_by(entry: Entry) -> tuple[str, str]:
    """The file and the id of the memory that an entry is; nothing for one that is none."""
    kind = entry["entry"]
    if kind == "memory":
        return entry["file"], str(entry["record"].get("id"))
    if kind == "evicted":
        return str(entry["item"].get("file")), str(entry["record"].get("id"))
    if kind == "state":
        return state_file(entry["agent"]), entry["agent"]
    return (artifact_file(entry["artifact"]), entry["artifact"]) if kind == "artifact" else ("", "")


def is_purged(entry: Entry, purged: Purged) -> bool:
    file, memory_id = named_by(entry)
    if "record" in entry:
        kind = kind_of(entry["session"], file)
        is_place = kind is not None and is_deleted(kind, entry["record"])  # of a deleted turn only its number stands
        return purged.holds(file, entry["record"]) and not is_place
    at = purged.when(file, memory_id) if file else None
    if at is None:
        return False
    said = entry["state"].get("agent_state", entry["state"]) if entry["entry"] == "state" else entry["head"]
    return not _is_later(said, at)


def is_purged_file(purged: Purged, file: str, content: bytes) -> bool:
    """The same of a file that is a memory: an agent's state, an artifact, the user's profile."""
    name = file.rpartition("/")[2].rpartition(".")[0]
    if file not in (state_file(name), artifact_file(name), PROFILE) or (at := purged.when(file, name)) is None:
        return False
    try:
        return not _is_later(value_of_file(file, content), at)
    except SMPError:
        return True


def _is_later(said: Mapping[str, Any] | None, at: str) -> bool:
    """Whether it was written when that was gone already."""
    times = [when for name in _TIMES if (when := _time((said or {}).get(name)))]
    purged_at = _time(at)
    return bool(times and purged_at and max(times) > purged_at)


def _time(stamp: object) -> datetime | None:
    try:
        return parse_time(str(stamp))
    except (ValueError, OverflowError):
        return None


def is_purged_session(memory: Memory, building: Building) -> bool:
    """Whether it is the one that was purged, and not another that was made under the same id since."""
    if building.purged is None:
        return False
    about: Mapping[str, Value] = {}
    with suppress(SMPError, OSError):
        about = load_mapping(building.read(METADATA), "session", METADATA)
    return is_of_purged_session(memory, building.session, building.purged, about)


def is_of_purged_session(memory: Memory, session: str, purged: Purged, about: Mapping[str, Value]) -> bool:
    """The same by what its metadata say. A time that it has borrowed, such as that of its file, says nothing."""
    notes = about.get("imported")
    is_borrowed = isinstance(notes, dict) and "created_at" in (notes.get("borrowed") or ())  # type: ignore[operator]
    at, created = _time(purged.whole), None if is_borrowed else _time(about.get("created_at"))
    if at is None:
        return False
    if not is_here(memory, session):
        return created is None or created <= at
    own = None
    with suppress(SMPError, OSError):
        own = _time(load_mapping(Contents(memory, session).read(METADATA), "session", METADATA).get("created_at"))
    return created is not None and created <= at and created != own


def renumber(building: Building, at: datetime) -> dict[str, str]:
    """Of a session that is not here any more: what only has the id of one that was purged gets another, which what refers to it
    follows. Gives back which."""
    from .merge import Standing
    from .merging import plan

    purged = building.purged or building.taken_back
    if purged is None or not purged.memories:
        return {}
    merge = plan(building, Standing(lambda _: None, lambda kind, _: purged.highest(kind)), at)
    for file, values in merge.added.items() if merge.renamed else ():
        kind = kind_of(building.session, file)
        assert kind
        content = building.read(file)
        start = min(record.start for record in format_of(kind).parse(content).records)
        rendered = [render(kind, value) for value in values]
        building.tree.replace(f"{building.path()}/{file}", b"".join([content[:start], *rendered]))
    return merge.renamed


def deletes_what_was_purged(building: Building) -> bool:
    """Whether what was deleted where it comes from holds what was purged here."""
    if not building.purged or not building.tree.exists(building.path(DELETED)) or RECORD not in building.files(DELETED):
        return False
    try:
        items = load_mapping(building.read(RECORD, DELETED), TOP, RECORD).get("deleted_items")
    except SMPError:
        return True
    listed = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return any(building.purged.when(str(item.get("file")), str(item.get("id"))) for item in listed)
