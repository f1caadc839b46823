"""Where everything is: the names of the tree, and how its root is found."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from .errors import Invalid

FORMAT_VERSION = 1

ACTIVE, ARCHIVED, DELETED, GLOBAL, QUARANTINE = "active", "archived", "deleted", "global", "quarantine"
LOCKS, JOURNAL, RETIRED, LEAVING, TEMPORARY = ".smp/locks", ".smp/journal", ".smp/retired", ".smp/leaving", ".smp/tmp"
LATEST = "latest"  # what people call the session that changed last: no id
ACCESS_LOG = "access.log"  # of a session: what was read, see access.py
BACKUP = "backup-pre-smp"  # beside a root: the copies that are made before a migration, see exchange/backup.py
MARKER = ".smp/root.json"  # where this is missing, the disk is not the one that we know
LEAD_SCOPE, LEAD = "+daemon", "lead"  # the lock of whoever leads a root; no session can have this name
STATUS_FILE, INDEX_FILE, COOKIES = ".smp/status.json", ".smp/index.db", ".smp/cookies"
SCRUB = "scrub"  # begins the names of requests in .smp/ to take purged memories out of the index
TOP_DIRECTORIES = (ACTIVE, ARCHIVED, DELETED, GLOBAL, QUARANTINE, LOCKS, JOURNAL, RETIRED, LEAVING, TEMPORARY)
SESSION_DIRECTORIES = ("agent-states", "artifacts", "inbox", "indexes")
YAML_INDEXES = ("indexes/topics.yaml", "indexes/timeline.yaml", "indexes/agents.yaml")  # derived, for people

# The order in which locks are taken: whoever needs several takes them from left to right, so nobody waits in a circle.
LOCK_ORDER = (
    "metadata.yaml", "conversation.md", "decisions.yaml", "findings.yaml", "preferences.yaml",
    "learnings.yaml", "relationships.yaml", "agent-states/", "artifacts/", "indexes/",
    "cross-session-preferences.yaml", "learned-patterns.yaml", "user-profile.yaml", "usage",
)  # fmt: skip

_OWN = (ACTIVE, ARCHIVED, DELETED, GLOBAL)  # the directories that hold what nobody can make again
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def find_root(start: Path | None = None) -> Path:
    """SMP_ROOT, else the nearest sessions tree upward, else the one that would be made in the working directory."""
    if named := os.environ.get("SMP_ROOT"):
        return Path(named).expanduser().absolute()
    here = (start or Path.cwd()).absolute()
    found = (sessions_of(directory) for directory in (here, *here.parents))
    return next((place for place in found if place), here / ".bmad/sessions")


def sessions_of(project: Path) -> Path | None:
    """Where the project in this directory has its sessions; None where it has no such directory."""
    places = (project / name for name in (".bmad/sessions", "_bmad/sessions"))
    return next((place for place in places if place.is_dir()), None)


def is_tree(root: Path) -> bool:
    """Whether there is one. Its marker is derived, so that a copy by hand may be without it: any directory of its own will do."""
    return os.path.lexists(f"{os.fspath(root)}/{MARKER}") or any((root / name).is_dir() for name in _OWN)


def is_session_id(name: object) -> bool:
    return isinstance(name, str) and _SESSION_ID.fullmatch(name) is not None and name != GLOBAL


def check_session_id(session_id: str) -> str:
    """Refuses anything that could name another place than a session's own directory."""
    if not is_session_id(session_id):
        raise Invalid([f"session id {session_id!r} must be 1 to 64 letters, digits, '_' or '-', and not '{GLOBAL}'"])
    return session_id


def check_new_session_id(session_id: str) -> str:
    """The same for a session that is not there yet. A tree from before this rule may have one that is called so."""
    if session_id == LATEST:
        raise Invalid([f"session id {LATEST!r} cannot be given: it means the session that changed last"])
    return check_session_id(session_id)


def short_names(session_ids: Collection[str]) -> dict[str, str]:
    """Return for each session the shortest ending of its id, by whole parts, that no other id has."""
    endings = Counter(ending for name in session_ids for ending in _endings(name))
    return {
        name: next((ending for ending in reversed(_endings(name)) if endings[ending] == 1), name)
        for name in session_ids
    }


def _endings(name: str) -> list[str]:
    """Return `a-b-c`, `b-c`, `c`."""
    parts = name.split("-")
    return list(dict.fromkeys(ending for at in range(len(parts)) if (ending := "-".join(parts[at:]))))


def is_file_id(name: str) -> bool:
    return _FILE_ID.fullmatch(name) is not None


def check_file_id(what: str, name: str) -> str:
    if not isinstance(name, str) or not _FILE_ID.fullmatch(name):
        raise Invalid([f"{what} {name!r} must be 1 to 64 letters, digits, '_' or '-', beginning with a letter or digit"])
    return name


def lock_rank(file: str) -> tuple[int, str]:
    """Sorts the files of one session into the order of their locks."""
    for rank, name in enumerate(LOCK_ORDER):
        if file == name or (name.endswith("/") and file.startswith(name)):
            return rank, file
    return len(LOCK_ORDER), file
