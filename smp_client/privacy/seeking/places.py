"""What a file below the root is, by its name alone: of which session, and in which of the places where memories can be."""

from __future__ import annotations

from dataclasses import dataclass

from ...audit import FILE as AUDIT_LOG
from ...layout import ACCESS_LOG, ACTIVE, ARCHIVED, DELETED, GLOBAL, JOURNAL, LEAVING, LOCKS, QUARANTINE, RETIRED, TOP_DIRECTORIES
from ...layout import SESSION_DIRECTORIES as _FOLDERS
from ...maintain.evictions import is_eviction
from ...records import GLOBAL_KINDS, SESSION_KINDS
from ...rewrite import file_of_slot
from ...scopes import SUMMARY
from ...session_files import METADATA
from ...status import INDEX_FILE
from ..deleting.standing import EVICTED, PROFILE
from ..deleting.store import BACKUP, RECORD

ARCHIVE = "archive.tar.gz"
INBOX, REJECTED, QUARANTINED, OTHER, DERIVED = "inbox", "rejected", "quarantined", "other", "derived"
_OWN_PLACES = {JOURNAL: "journal", RETIRED: "retired", LEAVING: "leaving"}
_OWN_NAMES = frozenset((
    *(kind.file for kind in (*SESSION_KINDS, *GLOBAL_KINDS)), *_FOLDERS, *TOP_DIRECTORIES, ".smp", "history", "rejected",
    METADATA, PROFILE, ACCESS_LOG, SUMMARY, ARCHIVE, BACKUP, RECORD, AUDIT_LOG, "purged.yaml", "manifest.json",
))  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a file is: in a place of a session, or of none."""

    session: str  # nothing where it belongs to none
    name: str
    file: str  # as it is called in the session


def place_of(path: str) -> Place:
    top, _, rest = path.partition("/")
    session, _, file = rest.partition("/")
    if top == GLOBAL:
        return Place(GLOBAL, GLOBAL, rest)
    if top == ".smp":
        return _own_place(path)
    if not file or top not in (ACTIVE, ARCHIVED, DELETED, QUARANTINE):
        return Place(session if file else "", OTHER, path)
    if top == ACTIVE:
        return Place(session, _active_place(file), file)
    if top == ARCHIVED:
        return Place(session, EVICTED if is_eviction(file) else ARCHIVED, file)
    return Place(session, DELETED if top == DELETED else QUARANTINED, file)


def is_own_name(name: str) -> bool:
    """Whether a file or directory is called so because of the format, and not because somebody chose it."""
    return name in _OWN_NAMES or is_eviction(name)


def _active_place(file: str) -> str:
    if file.startswith("inbox/rejected/"):
        return REJECTED
    return INBOX if file.startswith("inbox/") else DERIVED if file.startswith("indexes/") else ACTIVE


def _own_place(path: str) -> Place:
    """Of SMP's own files: those of a session begin with its name, which has no `+`."""
    if path.startswith(INDEX_FILE):
        return Place("", DERIVED, path)
    folder, _, name = path.removeprefix(".smp/").partition("/")
    session, plus, _ = name.partition("+")
    place = _OWN_PLACES.get(f".smp/{folder}")
    if place is None or not plus:
        in_locks = folder == LOCKS.rpartition("/")[2]
        return Place(name.partition("/")[0] if in_locks else "", OTHER, path)
    if place == "retired":
        return Place(session, place, file_of_slot(name.removesuffix(".old")))
    return Place(session, place, name.partition("/")[2] or name)
