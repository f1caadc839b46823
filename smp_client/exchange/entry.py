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

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..change.holdings import holds_memories, id_of_file, type_of_file
from ..disk.session_files import METADATA, parse_artifact
from ..model.layout import GLOBAL, is_session_id
from ..model.quotation import shown
from ..model.record import Kind, kind_of_file
from ..text.mapping import load_mapping, render_mapping
from ..text.values import render_entries
from ..text.version import is_record_file, top_of

Entry: TypeAlias = dict[str, Any]
Transform: TypeAlias = Callable[[Entry], Entry | None]  # None leaves the entry out
Wanted: TypeAlias = Callable[[Entry], bool]  # of a memory

VERSION = 1
HEADER = "smp_export"
IMPORTED, IMPORTED_ID = "imported", "imported_id"
_SHAPES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "session": {"session": str, "metadata": (dict, type(None))},
    "memory": {"session": str, "file": str, "record": dict},
    "tombstone": {"session": str, "id": str},
}


class Read(NamedTuple):
    """An entry of a source with its file and line, or the problem of an unreadable entry."""

    where: str
    entry: Entry | None
    problem: str = ""


@functools.lru_cache(maxsize=4096)
def kind_for(session: str, file: str) -> Kind | None:
    """Return the kind whose records a file of this session holds; None for any other file."""
    is_held = holds_memories(file, GLOBAL if session == GLOBAL else "")
    return kind_of_file(file) if is_held and is_record_file(file) else None


def type_for(session: str, file: str) -> str | None:
    """Return the type of the memories in a file of this session; None for a file without any."""
    if kind := kind_for(session, file):
        return kind.type
    is_held = holds_memories(file, GLOBAL if session == GLOBAL else "") and file != METADATA
    return type_of_file(file) if is_held else None


def file_record(file: str, content: bytes) -> dict[str, Any]:
    """Return the fields of a file that is one memory. Raises where it cannot be read."""
    if (top := top_of(file)) is not None:
        return {**load_mapping(content, top, file), "id": id_of_file(file)}
    head, text = parse_artifact(content)
    return {**head, "id": id_of_file(file), "content": text}


def file_content(file: str, record: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that is one memory."""
    if (top := top_of(file)) is not None:
        return render_mapping(top, {name: record[name] for name in record if name != "id"})
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
        is_known = entry[HEADER] == VERSION
        return (
            "" if is_known else f"an export of version {shown(entry[HEADER])}; SMP knows {VERSION}"
        )
    name = entry.get("entry")
    if not isinstance(name, str) or name not in _SHAPES:
        return f"{shown(name)} is no kind of entry"
    for key, types in _SHAPES[name].items():
        if not isinstance(entry.get(key), types):
            return f"{key!r} of a {name} is missing, or of another type"
    session = entry["session"]
    if session != GLOBAL and not is_session_id(session):
        return f"{shown(session)} is no id of a session"
    if name != "memory":
        return ""
    file, memory_id = entry["file"], entry["record"].get("id")
    if type_for(session, file) is None:
        return f"no memories are kept in a file {shown(file)}"
    if not isinstance(memory_id, str) or not memory_id:
        return "a memory must have an id that is a text"
    is_named = kind_for(session, file) is not None or id_of_file(file) == memory_id
    return "" if is_named else f"{shown(memory_id)} is not the name of {file}"
