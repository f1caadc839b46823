"""An export is a stream of entries, each one mapping.

    header     smp_export                            first: the version of all that follows
    session    session place metadata                begins a session; the whole of its metadata
    memory     session place file type record        one record with all its fields
    state      session place agent state             the whole file of an agent's state
    artifact   session place artifact head text      front matter and text
    profile    profile                               the whole file of the user's profile
    tombstone  session id [at reason]                a memory that was deleted at the source
    end        entries                               last: how many stood before it

`session` is `global` for the memories that hold everywhere. `place` says where the source keeps it:
active, archived or evicted. An import adds all of them to `active/`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ..layout import GLOBAL, is_file_id, is_session_id
from ..records import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, Kind, state_history

Entry: TypeAlias = dict[str, Any]
Transform: TypeAlias = Callable[[Entry], Entry | None]  # None leaves the entry out
Wanted: TypeAlias = Callable[[str, str, str, dict[str, Any]], bool]  # session, file, type, fields

VERSION = 1
HEADER = "smp_export"
IMPORTED, IMPORTED_ID = "imported", "imported_id"
PROFILE = "user-profile.yaml"
_SESSION_KINDS = {kind.file: kind for kind in SESSION_KINDS}
_GLOBAL_KINDS = {kind.file: kind for kind in GLOBAL_KINDS}
_SHAPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "session": {"session": str, "metadata": (dict, type(None))},
    "memory": {"session": str, "file": str, "record": dict},
    "state": {"session": str, "agent": str, "state": dict},
    "artifact": {"session": str, "artifact": str, "head": dict, "text": str},
    "profile": {"profile": dict},
    "tombstone": {"session": str, "id": str},
    "end": {"entries": int},
}


class Read(NamedTuple):
    """One entry of a source, or the reason why there is none, with its file and line."""

    where: str
    entry: Entry | None
    problem: str = ""


def header() -> Entry:
    """Return the entry that every export begins with."""
    return {HEADER: VERSION}


def kind_for(session: str, file: str) -> Kind | None:
    """Return the kind whose records a file of this session holds; None for any other file."""
    if session == GLOBAL:
        return _GLOBAL_KINDS.get(file)
    agent = file.removeprefix(f"{STATE_HISTORY}/").removesuffix(".yaml")
    if file == f"{STATE_HISTORY}/{agent}.yaml" and is_file_id(agent):
        return state_history(agent)
    return _SESSION_KINDS.get(file)


def memory_entry(session: str, kind: Kind, record: dict[str, Any], place: str = "active") -> Entry:
    """Return the entry of one record."""
    return {"entry": "memory", "session": session, "place": place, "file": kind.file,
            "type": kind.type, "record": record}  # fmt: skip


def problem_of(entry: Entry) -> str:
    """Return the reason why this is no entry; empty for one that is."""
    if HEADER in entry:
        version = entry[HEADER]
        is_known = isinstance(version, int) and 0 < version <= VERSION
        return "" if is_known else f"it is an export of version {version!r}, and SMP knows version {VERSION}"
    name = entry.get("entry")
    shape = _SHAPES.get(name) if isinstance(name, str) else None
    if shape is None:
        return f"{name!r} is no kind of entry"
    for key, types in shape.items():
        if not isinstance(entry.get(key), types):
            return f"{key!r} of a {name} is missing, or of another type"
    session = entry.get("session", GLOBAL)
    if session != GLOBAL and not is_session_id(session):
        return f"{session!r} is no id of a session"
    if name == "memory":
        if kind_for(session, entry["file"]) is None:
            return f"no memories are kept in a file {entry['file']!r}"
        memory_id = entry["record"].get("id")
        return "" if isinstance(memory_id, str) and memory_id else "a memory must have an id that is a text"
    if name in ("state", "artifact"):
        named = entry["agent" if name == "state" else "artifact"]
        return "" if is_file_id(named) and session != GLOBAL else f"{named!r} is no name of an {name}"
    return ""
