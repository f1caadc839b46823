"""What to say of a session that is not in its place: that there is none, or where it was put and how it comes back."""

from __future__ import annotations

from contextlib import suppress

from .errors import SessionNotFound, SessionPutAway, SMPError
from .files import Tree
from .layout import ARCHIVED


def missing(tree: Tree, session_id: str) -> SessionNotFound:
    with suppress(SMPError, OSError):
        return _deleted(tree, session_id) or _archived(tree, session_id) or _nowhere(tree, session_id)
    return _nowhere(tree, session_id)


def _nowhere(tree: Tree, session_id: str) -> SessionNotFound:
    return SessionNotFound(f"There is no session {session_id!r} under {tree.root}.", session_id=session_id)


def _deleted(tree: Tree, session_id: str) -> SessionPutAway | None:
    from .maintain.removal import DELETING, whole_deletion

    said = whole_deletion(tree, session_id)
    if said is None or (said.get("state") == DELETING and _is_archived(tree, session_id)):
        return None
    return SessionPutAway(
        f"Session {session_id!r} is deleted{_since(said.get('deleted_at'))}.", session_id=session_id,
        advice=f"smp restore {session_id}, or memory.undelete_session({session_id!r}), brings it back.",
    )  # fmt: skip


def _archived(tree: Tree, session_id: str) -> SessionPutAway | None:
    from .maintain.archive import load_summary

    if not _is_archived(tree, session_id):
        return None
    since = ""
    with suppress(SMPError):
        since = _since(load_summary(tree, session_id).get("archived_at"))
    return SessionPutAway(
        f"Session {session_id!r} is archived{since}.", session_id=session_id,
        advice=f"smp unarchive {session_id}, or memory.restore_session({session_id!r}), brings it back.",
    )  # fmt: skip


def _is_archived(tree: Tree, session_id: str) -> bool:
    from .scopes import SUMMARY

    return tree.exists(f"{ARCHIVED}/{session_id}/{SUMMARY}")


def _since(time: object) -> str:
    return f" since {time}" if isinstance(time, str) and time else ""
