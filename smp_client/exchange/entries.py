"""What an export is made of: a stream of entries, each one mapping with its keys in a fixed order.

    header    smp_export                                        first: the version of all that follows
    session   session place metadata [written]                  begins a session; place: active or archived
    file      session place file head [before behind bad]       what a record file holds beside its records
    memory    session place file type record [written before]   one record, all its fields as they stand
    state     session place agent state [written]               an agent's state, the whole mapping of its file
    artifact  session place artifact head text [written]        front matter (null where there is none) and text
    access    session place text                                the log of what was read
    evicted   session eviction manifest item record [written]   a memory that compaction has taken out
    archive   session summary                                   what stays in sight of an archived session
    profile   profile [written]                                 the user's
    bytes     session place path text | base64                  any other file; one that is not UTF-8 in base64
    end       entries                                           last: how many came before, without the header

`written`, `before` and `behind` are there only where the file says the same in other bytes than SMP would write, so that it comes
back byte for byte; they are left out of an export that is a selection, or that was changed on its way. Whoever makes entries from
another layout needs none of them, and may give the memories of a session in any order.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

from ..errors import Invalid
from ..layout import GLOBAL, check_session_id, is_file_id
from ..maintain.evictions import is_eviction
from ..packing import is_inner_path
from ..records import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, TURN, Kind, state_history
from ..text.values import DEPTH_CAP

Entry: TypeAlias = dict[str, Any]

VERSION = 1
HEADER = "smp_export"
ACTIVE, ARCHIVED, BESIDE, DELETED, QUARANTINE = "active", "archived", "beside", "deleted", "quarantine"
PLACES = (ACTIVE, ARCHIVED, BESIDE, DELETED, QUARANTINE)
PROFILE = "user-profile.yaml"
ENTRY_LEVELS = 8  # by which an entry may be deeper than a file: what it holds stands deeper in it than in its own
LARGEST_NUMBER = 10**299  # YAML takes more digits than that for a text

_TEXT, _MAPPING = (str,), (dict,)
_OR_NONE = (dict, type(None))
_IN_PLACE: dict[str, tuple[type, ...]] = {"session": _TEXT, "place": _TEXT}
_SHAPES: dict[str, dict[str, tuple[type, ...]]] = {
    "session": {**_IN_PLACE, "metadata": _OR_NONE},
    "file": {**_IN_PLACE, "file": _TEXT, "head": _MAPPING},
    "memory": {**_IN_PLACE, "file": _TEXT, "type": _TEXT, "record": _MAPPING},
    "state": {**_IN_PLACE, "agent": _TEXT, "state": _MAPPING},
    "artifact": {**_IN_PLACE, "artifact": _TEXT, "head": _OR_NONE, "text": _TEXT},
    "access": {**_IN_PLACE, "text": _TEXT},
    "evicted": {"session": _TEXT, "eviction": _TEXT, "manifest": _MAPPING, "item": _MAPPING, "record": _MAPPING},
    "archive": {"session": _TEXT, "summary": _MAPPING},
    "profile": {"profile": _MAPPING},
    "bytes": {**_IN_PLACE, "path": _TEXT},
    "end": {"entries": (int,)},
}
_WORDS = {str: "text", dict: "mapping", int: "number"}
_ONLY_TEXTS = {str}
_EXACT = ("written", "before", "behind")


def header() -> Entry:
    return {HEADER: VERSION}


def made(kind: str, /, **parts: Any) -> Entry:
    """An entry of a kind; parts that are None and may be missing are left out."""
    needed = _SHAPES[kind]
    return {"entry": kind, **{name: value for name, value in parts.items() if name in needed or value is not None}}


def file_bytes(session: str, place: str, path: str, content: bytes) -> Entry:
    """A file as it is. As text where it is one, because a person, or whoever anonymises it, can read that."""
    where = {"session": session, "place": place, "path": path}
    try:
        return made("bytes", **where, text=content.decode())
    except UnicodeDecodeError:
        return made("bytes", **where, base64=base64.b64encode(content).decode())


def content_of(entry: Mapping[str, Any]) -> bytes:
    """The bytes of a `bytes` entry; raises ValueError where it has none."""
    if isinstance(text := entry.get("text"), str):
        return text.encode()
    if not isinstance(coded := entry.get("base64"), str):
        raise ValueError("it has neither 'text' nor 'base64'")
    try:
        return base64.b64decode(coded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"its base64 cannot be read: {error}") from error


@functools.lru_cache(maxsize=1024)
def kind_of(session: str, file: str) -> Kind | None:
    """The kind of memory that a session, or `global`, keeps in a file; None where it is no record file."""
    if session == GLOBAL:
        return next((kind for kind in GLOBAL_KINDS if kind.file == file), None)
    folder, _, name = file.rpartition("/")
    if folder == STATE_HISTORY and name.endswith(".yaml") and is_file_id(agent := name.removesuffix(".yaml")):
        return state_history(agent)
    return next((kind for kind in SESSION_KINDS if kind.file == file), None)


def problem_of(entry: object) -> str | None:
    """Why something is no entry, or one that nothing can be made of; None where it is sound."""
    if not isinstance(entry, dict):
        return "an entry must be a mapping"
    shape = _SHAPES.get(entry["entry"]) if isinstance(entry.get("entry"), str) else None
    if shape is None:
        return f"there is no kind of entry {_shown(entry.get('entry'))}"
    for name, types in shape.items():
        if name not in entry or not isinstance(entry[name], types) or isinstance(entry[name], bool):
            return f"its {name!r} is missing, or no {_WORDS[types[0]]}"
    if wrong := [name for name in _EXACT if not isinstance(entry.get(name, ""), str)]:
        return f"its {wrong[0]!r} must be a text"
    return _name_problem(entry) or storable_problem(entry, _depth(entry))


def _depth(entry: Entry) -> int:
    """Of the entry, so that what it holds is as deep as in its file."""
    if entry["entry"] in ("memory", "evicted"):
        file = entry.get("file") or entry["item"].get("file")
        return -ENTRY_LEVELS if file == TURN.file else 1
    return -1


def _name_problem(entry: Entry) -> str | None:
    """Whether its names can only lead to where they belong."""
    kind, session = entry["entry"], entry.get("session")
    is_named = session is not None and not (session == GLOBAL and kind in ("file", "memory", "bytes"))
    if is_named and (problem := _session_problem(str(session))):
        return problem
    place = entry.get("place", ACTIVE)
    if place not in (PLACES if kind == "bytes" else (ACTIVE, ARCHIVED)):
        return f"there is no place {_shown(place)}"
    if kind in ("file", "memory") and kind_of(str(session), entry["file"]) is None:
        return f"no memories are kept in a file {_shown(entry['file'])}"
    if kind == "evicted" and not (is_eviction(name := entry["eviction"]) and is_inner_path(name) and "/" not in name):
        return f"{_shown(entry['eviction'])} is no name of an eviction"
    if kind == "evicted" and kind_of(str(session), str(entry["item"].get("file"))) is None:
        return f"no memories are kept in a file {_shown(entry['item'].get('file'))}"
    if kind in ("state", "artifact") and not is_file_id(name := entry["agent" if kind == "state" else "artifact"]):
        return f"{_shown(name)} must be 1 to 64 letters, digits, '_' or '-'"
    if kind == "bytes" and not is_inner_path(entry["path"]):
        return f"{_shown(entry['path'])} is no path inside a session"
    return None


@functools.lru_cache(maxsize=64)
def _session_problem(session: str) -> str | None:
    """Asked again for every entry of a session."""
    try:
        check_session_id(session)
    except Invalid as error:
        return error.problems[0]
    return None


def storable_problem(value: object, depth: int = -ENTRY_LEVELS) -> str | None:
    """Why YAML could not hold a value at this depth of a file; None where it can."""
    level = [value]
    while level:
        inner: list[object] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii() and not _is_text(item):  # type: ignore[attr-defined,arg-type]
                    return "it holds a lone surrogate, which is no character"
            elif kind is dict:
                inner += item  # type: ignore[arg-type]
                inner += item.values()  # type: ignore[attr-defined]
                if item and {*map(type, item)} != _ONLY_TEXTS:  # type: ignore[call-overload]
                    return "a key must be a text"
            elif kind is list:
                inner += item  # type: ignore[arg-type]
            elif kind is int:
                if abs(item) >= LARGEST_NUMBER:  # type: ignore[arg-type]
                    return "it holds too large a number"
            elif kind not in (bool, float, type(None)):
                return f"it holds a {kind.__name__}"
        if depth >= DEPTH_CAP and any(type(item) in (dict, list) for item in level):
            return f"it is nested deeper than {DEPTH_CAP} levels"
        level = inner
        depth += 1
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
