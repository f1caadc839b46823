"""The names of the tree, and of the places that it can have in a project."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from .errors import Invalid
from .quotation import shown

FORMAT_VERSION = 1

TREES = (".bmad/sessions", "_bmad/sessions", "_bmad/memory/smp")  # in a project; ours first
ACTIVE, ARCHIVED, DELETED, GLOBAL = "active", "archived", "deleted", "global"
QUARANTINE = "quarantine"
LOCKS, JOURNAL, RETIRED = ".smp/locks", ".smp/journal", ".smp/retired"
LEAVING, TEMPORARY = ".smp/leaving", ".smp/tmp"
LATEST = "latest"  # people call the session so that changed last: no id
ACCESS_LOG = "access.log"  # of a session, see access.py
BACKUP = "backup-pre-smp"  # beside a root: copies from before a migration, see exchange/gate.py
MARKER = ".smp/root.json"  # where this is missing, the disk is not the one that we know
LEAD_SCOPE, LEAD = "+daemon", "lead"  # the lock of the leader; no session can have this name
STATUS_FILE, INDEX_FILE, COOKIES = ".smp/status.json", ".smp/index.db", ".smp/cookies"
IGNORE, IGNORED = ".gitignore", b"*\n"  # of a new tree: nobody is to publish it unawares
SCRUB = "scrub"  # begins the names of requests in .smp/ to clean the index
_OWN = (ACTIVE, ARCHIVED, DELETED, GLOBAL)  # these hold files that nobody can make again
TOP_DIRECTORIES = (*_OWN, QUARANTINE, LOCKS, JOURNAL, RETIRED, LEAVING, TEMPORARY)
SESSION_DIRECTORIES = ("agent-states", "artifacts", "inbox", "indexes")
YAML_INDEXES = ("indexes/topics.yaml", "indexes/timeline.yaml", "indexes/agents.yaml")  # derived

METADATA = "metadata.yaml"

# Whoever needs several locks takes them in this order, so nobody waits in a circle.
LOCK_ORDER = (
    METADATA, "conversation.md", "decisions.yaml", "findings.yaml", "preferences.yaml",
    "learnings.yaml", "relationships.yaml", "history.yaml", "agent-states/", "artifacts/",
    "indexes/",
    "cross-session-preferences.yaml", "learned-patterns.yaml", "user-profile.yaml",
)  # fmt: skip

_FILE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SIGNS = "must be 1 to 64 letters, digits, '_' or '-'"


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the whole path that is meant, its links and `..` as they are."""
    path = os.path.expanduser(path)
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def sessions_of(project: str) -> str | None:
    """Return where the project in this directory has its sessions, if it has any."""
    places = (f"{project}/{name}" for name in TREES)
    return next(filter(os.path.isdir, places), None)


def is_tree(root: str) -> bool:
    """Return whether there is a tree. A copy by hand may be without its marker."""
    if os.path.lexists(f"{root}/{MARKER}"):
        return True
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as found:
        return any(one.name in _OWN and one.is_dir() for one in found)
    return False


def is_file_id(name: str) -> bool:
    return _FILE_ID.fullmatch(name) is not None


def check_file_id(role: str, name: str) -> str:
    if not isinstance(name, str) or not is_file_id(name):
        raise Invalid([f"{role} {shown(name)} {_SIGNS}, beginning with a letter or digit"])
    return name


def is_session_id(name: object) -> bool:
    return isinstance(name, str) and is_file_id(name) and name != GLOBAL


def check_session_id(session_id: str) -> str:
    """Refuse anything that could name another place than a session's own directory."""
    if not is_session_id(session_id):
        raise Invalid([f"session id {shown(session_id)} {_SIGNS}, and not '{GLOBAL}'"])
    return session_id


def check_new_session_id(session_id: str) -> str:
    """Refuse also the name for the newest session. An old tree may have one that is called so."""
    if session_id == LATEST:
        raise Invalid([f"session id {LATEST!r} means the session that changed last"])
    return check_session_id(session_id)


def lock_rank(file: str) -> tuple[int, str]:
    """Return the place of a file in the order of locks."""
    for rank, name in enumerate(LOCK_ORDER):
        if file == name or (name.endswith("/") and file.startswith(name)):
            return rank, file
    return len(LOCK_ORDER), file
