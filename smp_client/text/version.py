"""Format versions: the version that a file states, and the steps from an older one to the present.

Reading takes every step that a file needs, so that nobody above sees an older version. The bytes of
a file change when it is next written: it is then rendered plain, see `format.plain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..model.errors import NewerFormat
from ..model.layout import FORMAT_VERSION, METADATA
from ..model.record import GLOBAL_KINDS, REVISION, SESSION_KINDS, STATE_HISTORY, TURN, Kind

if TYPE_CHECKING:
    from .document import RecordList
    from .values import Value

    Fields: TypeAlias = dict[str, Value]

HEAD_BYTES = 4096  # a file states its version in so many bytes, else it is 1
# A step leads from the version that is its key to the next one. It is a pure function of the
# parsed fields and of their name: a kind of memory, the top key of a mapping, or "artifact".
# A step is never changed after its release.
STEPS: dict[int, Callable[[str, Fields], Fields]] = {}

PROFILE = "user-profile.yaml"
_TOPS = {METADATA: "session", PROFILE: "user_profile"}
_RECORD_FILES = frozenset(kind.file for kind in (*SESSION_KINDS, *GLOBAL_KINDS, REVISION))
_IN_YAML = (
    rb"^(?:\xef\xbb\xbf)?(?:\{\s*)?([\"']?)version\1[ \t]*:[ \t]*[\"']?(\d{1,9})[\"']?"
    rb"[ \t]*(?=[,}#\r\n]|\Z)"
)
_IN_MARKDOWN = rb"^\*\*Format-Version:\*\*[ \t]*()(\d{1,9})[ \t\r]*$"


def stated(value: Value) -> int:
    """Return the version that a head states. None, and anything that is no number, mean 1."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def require_known(version: int, file: str) -> None:
    """Raise NewerFormat where there is no step from this version."""
    if not min(STEPS, default=FORMAT_VERSION) <= version <= FORMAT_VERSION:
        known = f"this SMP knows versions up to {FORMAT_VERSION}"
        raise NewerFormat(f"{file} has format version {version}; {known}.")


def in_present_words(name: str, fields: Fields, version: int) -> Fields:
    """Return the fields of a file of this version in the words of the present one."""
    for number in range(version, FORMAT_VERSION):
        fields = STEPS[number](name, fields)
    return fields


def renewed(kind: Kind, content: bytes, found: RecordList) -> RecordList:
    """Return records of a file of any known version in the words of the present one."""
    version = version_in(kind.file, content)
    require_known(version, kind.file)
    if version != FORMAT_VERSION:
        found.head["version"] = FORMAT_VERSION
        found.records = [
            one._replace(value=in_present_words(kind.name, one.value, version))
            for one in found.records
        ]
    return found


def top_of(file: str) -> str | None:
    """Return the top key of a file that is one mapping; None of other files."""
    is_state = file.rpartition("/")[0] == "agent-states" and file.endswith(".yaml")
    return "agent_state" if is_state else _TOPS.get(file)


def is_record_file(file: str) -> bool:
    """Return whether a file of this name is a list of records, and not one memory itself."""
    folder, _, name = file.rpartition("/")
    return file in _RECORD_FILES or (folder == STATE_HISTORY and name.endswith(".yaml"))


def is_versioned(file: str) -> bool:
    """Return whether a file of a session, or of `global/`, states its version."""
    is_artifact = file.startswith("artifacts/") and file.endswith(".md")
    return is_artifact or is_record_file(file) or top_of(file) is not None


def version_in(file: str, content: bytes) -> int:
    """Return the version of a file by the line that states it, without parsing; 1 for none."""
    head, pattern = content[:HEAD_BYTES], _IN_YAML
    if file == TURN.file:
        head = re.split(rb"^## Turn \d", head, maxsplit=1, flags=re.MULTILINE)[0]
        pattern = _IN_MARKDOWN
    elif file.startswith("artifacts/"):
        head = head[: head.find(b"\n---\n", 3) + 1] if head.startswith(b"---\n") else b""
    found = re.search(pattern, head, re.MULTILINE)
    return int(found[2]) if found else 1
