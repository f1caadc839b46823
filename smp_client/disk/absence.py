"""The error for a session that is not in `active/`: there is none, or it is archived or deleted."""

from __future__ import annotations

from contextlib import suppress

from ..model.errors import SessionNotFound, SessionPutAway, SMPError
from ..model.layout import ARCHIVED, DELETED
from .scopes import ARCHIVE, BACKUP
from .tree import Tree


def missing(tree: Tree, session_id: str) -> SessionNotFound:
    """Return the error, with the way to bring the session back where there is one."""
    with suppress(SMPError, OSError):
        if tree.exists(f"{DELETED}/{session_id}/{BACKUP}"):
            return SessionPutAway(
                f"Session {session_id!r} is deleted{_since(tree, f'{DELETED}/{session_id}/{BACKUP}')}.", session_id=session_id,
                advice=f"smp restore {session_id}, or memory.undelete_session({session_id!r}), brings it back.",
            )  # fmt: skip
        if tree.exists(f"{ARCHIVED}/{session_id}/{ARCHIVE}"):
            return SessionPutAway(
                f"Session {session_id!r} is archived{_since(tree, f'{ARCHIVED}/{session_id}/{ARCHIVE}')}.", session_id=session_id,
                advice=f"smp unarchive {session_id}, or memory.restore_session({session_id!r}), brings it back.",
            )  # fmt: skip
    return SessionNotFound(f"There is no session {session_id!r} under {tree.root}.", session_id=session_id)


def _since(tree: Tree, path: str) -> str:
    from .bundle import read_manifest  # late: it loads tar and gzip

    with suppress(SMPError, OSError):
        return f" since {read_manifest(tree, path).at}"
    return ""
