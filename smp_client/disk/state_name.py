"""The names of the pieces in `.smp/`: one grammar for everybody who lists them.

A name is parsed once into a small value. A name that does not fit is not SMP's own: `foreign.py`
finds it and moves it into quarantine.

- journal: `{scope}+{any}.json`
- retired: `{scope}+{file}+{inode}+{size}+{checksum}+{any}`, perhaps with `.old` behind it
- leaving: `{scope}+{any}`, and its note with `.json` behind it
- locks: `{scope}/{file}.lock`, also below the scope of the daemon
- tmp: 32 hexadecimal digits

A `/` in the name of a file is written `+`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from ..model.layout import LEAD_SCOPE, is_file_id
from ..model.record import STATE_HISTORY
from ..text.version import is_versioned

_ANY = r"[A-Za-z0-9_-]{1,64}"
_SCOPE = r"(?P<scope>[A-Za-z0-9][A-Za-z0-9_-]{0,63})"
_NUMBER = r"0|[1-9][0-9]{0,19}"
_INTENT = re.compile(rf"{_SCOPE}\+{_ANY}\.json")
_OLD = re.compile(
    rf"{_SCOPE}\+(?P<file>.+)\+(?P<inode>{_NUMBER})\+(?P<size>{_NUMBER})\+(?P<checksum>{_NUMBER})"
    rf"\+{_ANY}(?P<aside>\.old)?"
)
_LEAVING = re.compile(rf"{_SCOPE}\+{_ANY}(?P<note>\.json)?")
_LOCK = re.compile(r"[^\0/]+\.lock")
_TEMPORARY = re.compile(r"[0-9a-f]{32}")
_FOLDERS = (STATE_HISTORY, "agent-states", "artifacts")  # the inner one first
_PART_BYTES = 255  # no filesystem has longer names
_PATH_PARTS = 8


class IntentName(NamedTuple):
    """The name of a recorded change."""

    scope: str


class OldName(NamedTuple):
    """The name of an old version: its file, and which of its bytes are folded in."""

    scope: str
    file: str
    inode: int  # of the file that took its place
    size: int
    checksum: int
    is_aside: bool  # an exchange without the system's help was cut off, see `Tree.exchange`

    def is_of(self, scope: str, file: str) -> bool:
        """Return whether it is an old version of this file."""
        return self.scope == scope and flat(self.file) == flat(file)


class LeavingName(NamedTuple):
    """The name of a directory that has left `active/`, or of the note beside it."""

    scope: str
    is_note: bool


@lru_cache(maxsize=1024)
def parse_intent(name: str) -> IntentName | None:
    """Return the parts of a name in the journal; None where it does not fit."""
    found = _INTENT.fullmatch(name)
    return IntentName(found["scope"]) if found else None


@lru_cache(maxsize=1024)
def parse_old(name: str) -> OldName | None:
    """Return the parts of the name of an old version; None where it does not fit."""
    found = _OLD.fullmatch(name)
    if found is None:
        return None
    file = _unflat(found["file"])
    if not (is_versioned(file) and is_path(file)):
        return None
    inode = int(found["inode"])
    size = int(found["size"])
    checksum = int(found["checksum"])
    return OldName(found["scope"], file, inode, size, checksum, found["aside"] is not None)


def flat(file: str) -> str:
    """Return the name of a file in a name of `.smp/`, which has no directories."""
    return file.replace("/", "+")


def _unflat(name: str) -> str:
    # Only SMP's own folders: a person may have given a file a name with a `+`.
    for folder in _FOLDERS:
        if name.startswith(f"{flat(folder)}+"):
            return f"{folder}/{name.removeprefix(f'{flat(folder)}+')}"
    return name


def parse_leaving(name: str) -> LeavingName | None:
    """Return the parts of a name in `.smp/leaving/`; None where it does not fit."""
    found = _LEAVING.fullmatch(name)
    return LeavingName(found["scope"], found["note"] is not None) if found else None


def is_lock_scope(name: str) -> bool:
    """Return whether a directory of this name may hold lock files."""
    return name == LEAD_SCOPE or is_file_id(name)


def is_lock(name: str) -> bool:
    """Return whether a lock file may have this name."""
    return _LOCK.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return whether a temporary may have this name."""
    return _TEMPORARY.fullmatch(name) is not None


def scope_in(name: str) -> str | None:
    """Return the scope that a name begins with, also where the name does not fit; else None."""
    scope = name.partition("+")[0]
    return scope if is_file_id(scope) else None


def is_path(path: object) -> bool:
    """Return whether a filesystem can have this path below a directory, with no `..` in it."""
    if not isinstance(path, str):
        return False
    parts = path.split("/")
    return len(parts) <= _PATH_PARTS and all(map(_is_part, parts))


def _is_part(part: str) -> bool:
    try:
        size = len(part.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return False
    return 0 < size <= _PART_BYTES and part not in (".", "..") and "\0" not in part
