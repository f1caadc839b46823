"""The files of a session that hold memories, and the memory that a whole file is."""

from __future__ import annotations

from ..disk.scopes import ARTIFACTS, STATES, is_of, kinds_of
from ..disk.session_files import METADATA, parse_artifact
from ..model.errors import SMPError
from ..model.layout import GLOBAL, is_file_id
from ..model.record import STATE_HISTORY, kind_of_file
from ..text.mapping import load_mapping
from ..text.values import Value

PROFILE = "user-profile.yaml"
_TOPS = {METADATA: "session", PROFILE: "user_profile"}


def is_record_file(file: str) -> bool:
    """Return whether a file of this name is a list of records, and not one memory itself."""
    return file.startswith(f"{STATE_HISTORY}/") or file in kinds_of("") or file in kinds_of(GLOBAL)


def holds_memories(file: str, scope: str) -> bool:
    """Return whether a file of this name, in a session or in `global`, holds memories."""
    folder, _, name = file.rpartition("/")
    if folder == STATE_HISTORY and scope != GLOBAL:
        return name.endswith(".yaml") and is_file_id(name.removesuffix(".yaml"))
    return is_of(scope, file) or (scope == GLOBAL and file == PROFILE)


def type_of_file(file: str) -> str:
    """Return the type of the memories in a file of this name."""
    folder, _, _ = file.rpartition("/")
    if folder in (STATES, ARTIFACTS):
        return "agent_state" if folder == STATES else "artifact"
    return {METADATA: "metadata", PROFILE: "user_profile"}.get(file) or kind_of_file(file).name


def id_of_file(file: str) -> str:
    """Return the id of the memory that a whole file is: its name without the ending."""
    return file.rpartition("/")[2].rpartition(".")[0]


def value_of_file(file: str, content: bytes) -> dict[str, Value]:
    """Return the fields of a file that is one memory. One that cannot be read is a text."""
    folder, _, _ = file.rpartition("/")
    memory_id = id_of_file(file)
    try:
        if folder == ARTIFACTS:
            fields, text = parse_artifact(content)
            return {**fields, "id": memory_id, "content": text}
        value = load_mapping(content, "agent_state" if folder == STATES else _TOPS[file], file)
    except SMPError:
        return {"id": memory_id, "content": content.decode("utf-8", "replace")}
    return {"timestamp": value.get("last_updated"), **value, "id": memory_id}
