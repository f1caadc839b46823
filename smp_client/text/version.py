"""Format versions: the version that a file states, and the steps from an older one to the present.

Reading takes every step that a file needs, so that nobody above sees an older version. The bytes of
a file change when it is next written: it is then rendered plain, see `format.plain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from ..model.errors import NewerFormat
from ..model.layout import FORMAT_VERSION
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, STATE_HISTORY, TURN
from .values import Value

HEAD_BYTES = 4096  # so much of a file is looked at for its version

Fields: TypeAlias = dict[str, Value]
# A step leads from the version that is its key to the next one. It is a pure function of what was
# parsed: the name of it (a kind of memory, the top key of a mapping, or "artifact") and its
# fields. A step is never changed after its release.
STEPS: dict[int, Callable[[str, Fields], Fields]] = {}

TOPS = {
    "metadata.yaml": "session",
    "user-profile.yaml": "user_profile",
}  # the top key of files that are one mapping
_STATES, _ARTIFACTS = "agent-states", "artifacts"
_RECORD_FILES = frozenset(kind.file for kind in (*SESSION_KINDS, *GLOBAL_KINDS))

_SAYS = rb"([\"']?)version\1[ \t]*:[ \t]*[\"']?(\d{1,9})[\"']?[ \t]*(?=[,}#\r\n]|\Z)"
_AT_THE_TOP = re.compile(rb"^(?:\xef\xbb\xbf)?" + _SAYS, re.MULTILINE)
_LINES = (b"\nversion", b"\n'version", b'\n"version')
_IN_BRACES = re.compile(rb"(?:\xef\xbb\xbf)?\s*\{\s*" + _SAYS)
_IN_MARKDOWN = re.compile(rb"^\*\*Format-Version:\*\*[ \t]*()(\d{1,9})[ \t\r]*$", re.MULTILINE)
_FIRST_TURN = re.compile(rb"^## Turn \d", re.MULTILINE)


def stated(value: Value) -> int:
    """Return the version that a head states. None, and what is no number, mean 1."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def require_known(version: int, file: str) -> None:
    """Raise NewerFormat where there is no step from this version."""
    if not min(STEPS, default=FORMAT_VERSION) <= version <= FORMAT_VERSION:
        raise NewerFormat(
            f"{file} has format version {version}; this SMP knows versions up to {FORMAT_VERSION}."
        )


def in_present_words(name: str, fields: Fields, version: int) -> Fields:
    """Return what a file of this version says in the words of the present one."""
    for number in range(version, FORMAT_VERSION):
        fields = STEPS[number](name, fields)
    return fields


def top_of(file: str) -> str | None:
    """Return the top key of a file that is one mapping; None of other files."""
    return (
        "agent_state"
        if file.rpartition("/")[0] == _STATES and file.endswith(".yaml")
        else TOPS.get(file)
    )


def is_record_file(file: str) -> bool:
    folder, _, name = file.rpartition("/")
    return file in _RECORD_FILES or (folder == STATE_HISTORY and name.endswith(".yaml"))


def is_versioned(file: str) -> bool:
    """Return whether a file of a session, or of `global/`, states its version."""
    return (
        is_record_file(file)
        or top_of(file) is not None
        or (file.startswith(f"{_ARTIFACTS}/") and file.endswith(".md"))
    )


def version_in(file: str, content: bytes) -> int:
    """Return the version of a file by the line that states it, without parsing; 1 where no line
    does."""
    version = version_line(file, content[:HEAD_BYTES])
    # Hardly a file states it further down, and looking for each beginning of a line in a large one
    # would take long.
    if (
        version is None
        and len(content) > HEAD_BYTES
        and (file == TURN.file or any(line in content for line in _LINES))
    ):
        version = version_line(file, content)
    return 1 if version is None else version


def version_line(file: str, content: bytes) -> int | None:
    """Return the version that a line in the beginning of a file states; None where no line does."""
    end = len(content)
    if file == TURN.file:
        first = _FIRST_TURN.search(content)
        found = _IN_MARKDOWN.search(content, 0, first.start() if first else end)
    elif file.startswith(f"{_ARTIFACTS}/"):
        is_front = content.startswith(b"---\n")
        found = (
            _AT_THE_TOP.search(content, 0, content.find(b"\n---\n", 3) + 1 or end)
            if is_front
            else None
        )
    else:
        found = _AT_THE_TOP.search(content) or _IN_BRACES.match(content)
    return int(found[2]) if found else None
