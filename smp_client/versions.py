"""Format versions: which one a file says it has, and what a file of an older one says in the words of the present one.

A step leads from a version to the next and is a pure function of what was parsed: a record, the parts of a file that is one
mapping, the front matter of an artifact. Reading takes all the steps that a file needs, so that nobody above sees an older version;
its bytes change when it is next written (`migration.py`). A step is never changed again: it also says what its version was, for
which reason the numbers and names in it are its own. What has its field of the newer name already is left as it is.

Version 0 is made up, to show how this is done; see FORMAT.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .errors import NewerFormat
from .layout import FORMAT_VERSION
from .timestamps import parse_time, render_time

if TYPE_CHECKING:
    from .records import Kind
    from .values import Value

    Fields = dict[str, Value]

OLDEST = 0
HEAD_BYTES = 4096  # so much of a file is looked at for its version
_CONVERSATION, _ARTIFACTS = "conversation.md", "artifacts/"

_SAYS = rb"([\"']?)version\1[ \t]*:[ \t]*[\"']?(\d{1,9})[\"']?[ \t]*(?=[,}#\r\n]|\Z)"
_AT_THE_TOP = re.compile(rb"^(?:\xef\xbb\xbf)?" + _SAYS, re.MULTILINE)
_LINES = (b"\nversion", b"\n'version", b'\n"version')
_IN_BRACES = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*" + _SAYS)
_IN_MARKDOWN = re.compile(rb"^\*\*Format-Version:\*\*[ \t]*(\d{1,9})[ \t\r]*$", re.MULTILINE)
_FIRST_TURN = re.compile(rb"^## Turn \d", re.MULTILINE)


def stated(value: Value) -> int:
    """The version that a head says; none means 1, and so does what is no number."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def require_known(version: int, file: str) -> None:
    if not OLDEST <= version <= FORMAT_VERSION:
        raise NewerFormat(f"{file} has format version {version}; this SMP knows versions up to {FORMAT_VERSION}.")


def number_in(file: str, content: bytes) -> tuple[int, int] | None:
    """Where in a file, or in its beginning, the number of its version stands; None where it does not say one. Parses nothing."""
    if file == _CONVERSATION:
        first = _FIRST_TURN.search(content)
        found = _IN_MARKDOWN.search(content, 0, first.start() if first else len(content))
        return found.span(1) if found else None
    end = len(content)
    if file.startswith(_ARTIFACTS):
        if not content.startswith(b"---\n"):
            return None
        end = content.find(b"\n---\n", 3) + 1 or end
    found = _AT_THE_TOP.search(content, 0, end) or _IN_BRACES.match(content)
    return found.span(2) if found else None


def version_in(file: str, content: bytes) -> int:
    """The version of a file, by the line that says it; 1 where none does. Parses nothing."""
    place = number_in(file, content[:HEAD_BYTES])
    # Hardly a file says it further down, and looking for each beginning of a line in a large one would take long.
    if place is None and len(content) > HEAD_BYTES and (file == _CONVERSATION or any(line in content for line in _LINES)):
        place = number_in(file, content)
    return 1 if place is None else int(content[slice(*place)])


# What was read, as it is said now.


def record_now(kind: Kind, value: Fields, version: int) -> Fields:
    for step in range(version, FORMAT_VERSION):
        value = _RECORD_STEPS[step](kind, value)
    return value


def parts_now(top: str, parts: Fields, version: int) -> Fields:
    for step in range(version, FORMAT_VERSION):
        parts = _PARTS_STEPS[step].get(top, dict)(parts)
    return parts


def front_now(fields: Fields, version: int) -> Fields:
    """The front matter of an artifact, with the version that it is of now."""
    for step in range(version, FORMAT_VERSION):
        fields = _FRONT_STEPS[step](fields)
    return {**fields, "version": FORMAT_VERSION}


# From version 0 to version 1.

_STATE_PRIORITY = 0.80


def _record_from_0(kind: Kind, value: Fields) -> Fields:
    names = {"created": "timestamp", "changed": "updated_at"}
    if kind.file == _CONVERSATION:
        names |= {"by": "speaker", "kind": "type"}
    else:
        names |= {"by": kind.actor, **({"text": kind.text} if kind.text else {})}
    if "from" in value and "to" in value:
        names |= {"from": "source", "to": "target"}
    new = _renamed(value, names)
    _make_utc(new, "timestamp", "updated_at")
    if isinstance(state := new.get("state"), dict) and kind.name == "agent_state":
        new["state"] = {name: part for name, part in _state_from_0(state).items() if name != "decay"}
    return _with_decay(new, kind.base_priority, new.get("timestamp"))


def _state_from_0(parts: Fields) -> Fields:
    new = _renamed(parts, {"agent": "agent_id", "session": "session_id", "saved": "last_updated"})
    _make_utc(new, "last_updated")
    return _with_decay(new, _STATE_PRIORITY, new.get("last_updated"))


def _metadata_from_0(parts: Fields) -> Fields:
    new = _renamed(parts, {"created": "created_at", "used": "last_accessed"})
    _make_utc(new, "created_at", "last_accessed")
    _gather(new, "storage", {"quota": "quota_bytes"})
    agents = new.get("agents")
    if isinstance(agents, list) and all(isinstance(agent, str) for agent in agents):
        active = new.get("last_accessed") or new.get("created_at")
        new["agents"] = [{"agent_id": agent, "message_count": 0, "last_active": active} for agent in agents]
    _gather(new, "participants", {"user": "user_id", "agents": "agents"})
    about = {"name": "project_name", "phase": "project_phase", "topic": "primary_topic", "tags": "tags"}
    _gather(new, "context", about)
    return new


def _profile_from_0(parts: Fields) -> Fields:
    new = _renamed(parts, {"user": "user_id", "changed": "last_updated"})
    _make_utc(new, "last_updated")
    return new


def _front_from_0(fields: Fields) -> Fields:
    new = _renamed(fields, {"created": "timestamp", "by": "created_by"})
    _make_utc(new, "timestamp")
    return new


def _renamed(fields: Mapping[str, Value], names: Mapping[str, str]) -> Fields:
    return {new if (new := names.get(name, name)) not in fields else name: value for name, value in fields.items()}


def _make_utc(fields: Fields, *names: str) -> None:
    """Times were written as `2026-01-11 14:40:00`; what is none of these stays as it is."""
    for name in names:
        if isinstance(said := fields.get(name), str):
            try:
                fields[name] = render_time(parse_time(said))
            except ValueError:
                continue


def _with_decay(fields: Fields, base: float, last: Value) -> Fields:
    """`access` was how often it was read; when it was last was not kept."""
    count = _count(fields.pop("access", None))
    known = fields.pop("decay", None)
    begins: Fields = {"priority": base, "last_accessed": last, "access_count": 0, "base_priority": base}
    decay = known if isinstance(known, dict) else begins
    return {**fields, "decay": {**decay, "access_count": count} if count else decay}


def _count(value: Value) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _gather(fields: Fields, block: str, names: Mapping[str, str]) -> None:
    """What stood side by side goes into a block, unless there is one that says it."""
    given = fields.get(block, {})
    if not isinstance(given, dict):
        return
    moved = {new: fields.pop(name) for name, new in names.items() if name in fields and new not in given}
    if moved:
        fields[block] = {**given, **moved}


_RECORD_STEPS: dict[int, Callable[[Kind, Fields], Fields]] = {0: _record_from_0}
_PARTS_STEPS: dict[int, dict[str, Callable[[Fields], Fields]]] = {
    0: {"session": _metadata_from_0, "agent_state": _state_from_0, "user_profile": _profile_from_0},
}
_FRONT_STEPS: dict[int, Callable[[Fields], Fields]] = {0: _front_from_0}
