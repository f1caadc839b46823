"""An export is a stream of entries, each one mapping.

    header     smp_export                            first: the version of all that follows
    session    session place metadata                begins a session; the whole of its metadata
    memory     session place file type record        one memory with all its fields
    tombstone  session id [at reason]                a memory that was deleted at the source
    end        entries                               last: how many stood before it

A memory is a record of its file, or a whole file: the state of an agent, an artifact with its text
as `content`, the user's profile. Such a file has its name as `id`.
`session` is `global` for the memories that hold everywhere. `place` says where the source keeps it:
active, archived or evicted. An import adds all of them to `active/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..disk.scopes import ARTIFACTS, STATES
from ..disk.session_files import parse_artifact
from ..model.layout import GLOBAL, is_file_id, is_session_id
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, Kind, state_history
from ..text.mapping import load_mapping, render_mapping
from ..text.values import render_entries

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
    "tombstone": {"session": str, "id": str},
    "end": {"entries": int},
}
_TOPS = {"agent_state": "agent_state", "user_profile": "user_profile"}


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


def type_for(session: str, file: str) -> str | None:
    """Return the type of the memories in a file of this session; None for a file without any."""
    if kind := kind_for(session, file):
        return kind.type
    folder, _, name = file.rpartition("/")
    stem, _, ending = name.rpartition(".")
    if session == GLOBAL:
        return "user_profile" if file == PROFILE else None
    known = {(STATES, "yaml"): "agent_state", (ARTIFACTS, "md"): "artifact"}
    return known.get((folder, ending)) if is_file_id(stem) else None


def file_record(file: str, type: str, content: bytes) -> dict[str, Any]:
    """Return the fields of a file that is one memory."""
    stem = file.rpartition("/")[2].rpartition(".")[0]
    if type != "artifact":
        return {**load_mapping(content, _TOPS[type], file), "id": stem}
    head, text = parse_artifact(content)
    return {**head, "id": stem, "content": text}


def file_content(type: str, record: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that is one memory."""
    if type != "artifact":
        fields = {name: value for name, value in record.items() if name != "id"}
        return render_mapping(_TOPS[type], fields)
    head = {name: value for name, value in record.items() if name != "content"}
    front = "".join(line + "\n" for line in render_entries(head, 0))
    before = f"---\n{front}---\n" if head.keys() != {"id"} else ""
    return (before + str(record["content"])).encode()


def memory_entry(
    session: str, file: str, type: str, record: dict[str, Any], place: str = "active"
) -> Entry:
    """Return the entry of one memory."""
    return {"entry": "memory", "session": session, "place": place, "file": file, "type": type,
            "record": record}  # fmt: skip


def problem_of(entry: Entry) -> str:
    """Return the reason why this is no entry; empty for one that is."""
    if HEADER in entry:
        version = entry[HEADER]
        is_known = isinstance(version, int) and 0 < version <= VERSION
        return "" if is_known else f"an export of version {version!r}; SMP knows version {VERSION}"
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
    if name != "memory":
        return ""
    file, memory_id = entry["file"], entry["record"].get("id")
    if type_for(session, file) is None:
        return f"no memories are kept in a file {file!r}"
    if not isinstance(memory_id, str) or not memory_id:
        return "a memory must have an id that is a text"
    is_file = kind_for(session, file) is None
    is_named = not is_file or file.rpartition("/")[2].rpartition(".")[0] == memory_id
    return "" if is_named else f"{memory_id!r} is not the name of {file}"
