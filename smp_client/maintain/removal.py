"""A session that is deleted whole, and brought back: into `deleted/{session}/`, until its deadline.

`backup.tar.gz` then holds, beside the copies of memories that were deleted before (see deletion.py), every file of the session
under `session/` and what the archive has of it under `archived/`; `deleted_session` in `deletion-record.yaml` says when, by whom,
why, until when it can be restored, and the checksum of each file. After a crash its `state` says what was going on, see archive.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import audit
from ..errors import Conflict, SessionNotFound, SMPError
from ..layout import ACTIVE, ARCHIVED, DELETED
from ..locks import lock
from ..packing import Member, member_of, read_members, write_archive
from ..privacy.deleting.store import BACKUP, RECORD, check_said, deadline
from ..privacy.redact import harmless
from ..text.mapping import load_mapping, render_mapping, replace_parts
from ..text.values import Value
from ..timestamps import render_time
from . import archive, leaving, traces
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import Memory

TOP, WHOLE = "deletion", "deleted_session"
DELETING, IN_DELETED, RESTORING = "deleting", "deleted", "restoring"
_SESSION, _ARCHIVED = "session/", "archived/"


@dataclass(frozen=True)
class DeletedSession:
    """A session that can be restored."""

    session: str
    deleted_at: str
    deleted_by: str
    reason: str
    recovery_deadline: str
    total_bytes: int


def delete_session(memory: Memory, session_id: str, reason: str, deleted_by: str = "user", *, dry_run: bool = False) -> Outcome:
    """Takes a session out whole, from its place or from the archive. For the retention period `undelete_session` brings it back."""
    from ..privacy.deleting import reworking  # which needs us

    said = check_said(reason, deleted_by)
    tree = memory.tree
    memory.require()
    scope = archive.put_away_scope(memory, session_id)
    with scope.undisturbed("deleting the session"):
        if not dry_run:
            settle(memory, session_id)
            archive.settle(memory, session_id)
            reworking.settle_memories(memory, session_id)
        is_active = tree.exists(f"{ACTIVE}/{session_id}")
        if not is_active and not archive.is_archived(tree, session_id):
            if not dry_run:
                traces.scrub_index(memory)  # where it is gone, but for a crash
            raise SessionNotFound(f"There is no session {session_id!r} under {memory.root}.", session_id=session_id)
        if whole_deletion(tree, session_id) is not None:
            raise Conflict(f"Another session {session_id!r} was deleted, and can still be restored.", session_id=session_id,
                           advice=f"Move {DELETED}/{session_id} away, or rename this session; nothing was changed.")  # fmt: skip
        places = [f"{place}/{session_id}" for place in (ACTIVE, ARCHIVED)]
        clock = memory.options.clock
        notes = [] if dry_run else [note for place in places for note in leaving.set_unfit_aside(tree, session_id, place, clock())]
        files = [*_files(tree, session_id)]
        action = Action(session_id, "delete_session", (session_id,), str(said["reason"]), sum(len(content) for _, content in files))
        if dry_run:
            return Outcome([action], dry_run=True)
        facts = {"session": session_id, "count": 1, "whole_session": True}
        with audit.noted(tree, "delete", clock=memory.options.clock, by=deleted_by, **facts):
            traces.ask_for_scrub(memory)  # which whoever comes after a crash sees to
            _take_away(memory, session_id, said, is_active=is_active)
        settle(memory, session_id)
    return Outcome([action], traces.scrub_index(memory), notes=notes)


def wait_until_left(memory: Memory, session_id: str) -> list[str]:
    """Until nothing but the backup holds a byte of a session that was deleted; gives back why that may not be so."""
    with archive.put_away_scope(memory, session_id).undisturbed("removing what was deleted"):
        if leaving.finish_soon(memory, session_id):
            return []
    return [f"{session_id}: a program has files of it open; they go when it closes them."]


def _take_away(memory: Memory, session_id: str, said: dict[str, Any], *, is_active: bool) -> None:
    if is_active:
        session = memory._session(session_id)
        with lock(memory.tree, session_id, RECORD, memory.options.patience, "deleting"):
            with session.scope.locked(archive.locked_files(session), "deleting the session"):
                members = _copy(memory, session_id, said, was=ACTIVE)
                leaving.leave(session.scope, "deleted", members)
            _note(memory, session_id, IN_DELETED, None)
    else:
        _copy(memory, session_id, said, was=ARCHIVED)
        _note(memory, session_id, IN_DELETED, None)


def undelete_session(
    memory: Memory, session_id: str, reason: str = "restored", *, by: str = "user", dry_run: bool = False
) -> Outcome:
    """Puts a deleted session back where it was."""
    reason = harmless(reason)
    tree = memory.tree
    memory.require()
    with archive.put_away_scope(memory, session_id).undisturbed("restoring the session"):
        if not dry_run:
            settle(memory, session_id)
        said = whole_deletion(tree, session_id)
        if said is None:
            raise SessionNotFound(f"There is no deleted session {session_id!r} under {memory.root}.", session_id=session_id,
                                  advice="smp restore --list shows what can be restored.")  # fmt: skip
        for place in (ACTIVE, ARCHIVED):
            if tree.exists(f"{place}/{session_id}"):
                raise Conflict(f"There is a session {session_id!r} in {place}/ by now.",
                               advice="Move or rename it, then restore again; nothing was changed.")  # fmt: skip
        members = archive.members_of(said, _path(session_id, RECORD))
        size = sum(member.size_bytes for member in members)
        action = Action(session_id, "undelete_session", (session_id,), reason, -size)
        if dry_run:
            return Outcome([action], dry_run=True)
        facts = {"session": session_id, "count": 1, "whole_session": True}
        with audit.noted(tree, "restore", clock=memory.options.clock, by=by, **facts):
            _put_back(memory, session_id, said, members, reason)
        settle(memory, session_id)
    return Outcome([action])


def deleted_sessions(memory: Memory) -> list[DeletedSession]:
    """The sessions that can be restored."""
    found: list[DeletedSession] = []
    tree = memory.tree
    for session_id in tree.list(DELETED):
        if not tree.is_directory(f"{DELETED}/{session_id}"):
            continue
        try:
            said = whole_deletion(tree, session_id)
        except (SMPError, OSError) as error:
            # Named all the same: what can be restored is not hidden by what cannot.
            found.append(DeletedSession(session_id, "", "", str(error), "", 0))
            continue
        if said is not None and not tree.exists(f"{ACTIVE}/{session_id}") and not archive.is_archived(tree, session_id):
            at, who, why, until = (str(said.get(name)) for name in ("deleted_at", "deleted_by", "reason", "recovery_deadline"))
            total = said.get("total_bytes")
            found.append(DeletedSession(session_id, at, who, why, until, total if isinstance(total, int) else 0))
    return found


def whole_deletion(tree: Tree, session_id: str) -> dict[str, Any] | None:
    """What the record says of the deletion of the whole session; None where only memories of it were deleted, or nothing."""
    said = _record(tree, session_id).get(WHOLE)
    return said if isinstance(said, dict) else None


def settle(memory: Memory, session_id: str) -> None:
    """Finishes or undoes what a crash has cut off, under the lock of the session's passes."""
    tree = memory.tree
    archive.drop_unpacked(tree, session_id)
    leaving.finish(memory, session_id)
    said = whole_deletion(tree, session_id)
    if said is None:
        return
    state, was = said.get("state"), said.get("was")
    standing = archive.inode_of(tree, f"{ACTIVE}/{session_id}")
    is_there = standing is not None and standing == said.get("directory")
    if was == ARCHIVED:
        is_there = state == DELETING or tree.exists(f"{ARCHIVED}/{session_id}/{archive.SUMMARY}")
    if state in (DELETING, RESTORING) and is_there:
        # The session that was to go is still there, or the one that was to come is there already: the copy is one too many.
        _forget_copy(memory, session_id)
    elif state in (DELETING, RESTORING):
        _note(memory, session_id, IN_DELETED, None)
        _clear_archive(memory, session_id, said)
    elif state == IN_DELETED:
        _clear_archive(memory, session_id, said)


def settle_all(memory: Memory) -> list[str]:
    """The same for every session that may be in both places; gives back which. One that somebody is at work on is left to them."""
    return [name for name in memory.tree.list(DELETED) if _is_unsettled(memory.tree, name)
            and archive.settle_alone(memory, name, settle)]  # fmt: skip


def _is_unsettled(tree: Tree, name: str) -> bool:
    if not tree.is_directory(f"{DELETED}/{name}"):
        return False
    if not any(tree.exists(f"{place}/{name}") for place in (ACTIVE, ARCHIVED)) and not leaving.is_leaving(tree, name):
        return False
    # Most records are of single memories, and some are long: they need not be understood.
    return tree.exists(_path(name, RECORD)) and f"{WHOLE}:".encode() in tree.read(_path(name, RECORD))


def held(tree: Tree, session_id: str) -> set[Member]:
    """What the backup holds of a session that was deleted whole; nothing where none was."""
    said = whole_deletion(tree, session_id)
    return set() if said is None else set(_of_session(archive.members_of(said, _path(session_id, RECORD))))


def repack(memory: Memory, session_id: str, directory: str) -> list[Member]:
    """The backup anew with what is left of the session, into which somebody has still written."""
    tree = memory.tree
    said = whole_deletion(tree, session_id) or {}
    kept = [(path, content) for path, content in _backup(tree, session_id) if not path.startswith(_SESSION)]
    packed = write_archive(tree, _path(session_id, BACKUP), [*kept, *archive.files_in(tree, directory, _SESSION)])
    _save(memory, session_id, {**said, "members": _listed(packed)})
    return _of_session(packed)


def _copy(memory: Memory, session_id: str, said: dict[str, Any], *, was: str) -> list[Member]:
    """The record, then the backup, durable and read back."""
    tree = memory.tree
    now = memory.options.clock()
    files = [*_files(tree, session_id)]
    until = deadline(now, memory.options.retention.deleted_days)
    facts = {
        "state": DELETING, "was": was, "directory": archive.inode_of(tree, f"{ACTIVE}/{session_id}"),
        "deleted_at": render_time(now), **said, "recovery_deadline": render_time(until),
        "total_bytes": sum(len(content) for _, content in files), "members": [],
    }  # fmt: skip
    tree.make_directory(f"{DELETED}/{session_id}")
    _save(memory, session_id, facts)
    packed = write_archive(tree, _path(session_id, BACKUP), [*_others(tree, session_id), *files])
    _save(memory, session_id, {**facts, "members": _listed(packed)})
    return _of_session(packed)


def _put_back(memory: Memory, session_id: str, said: dict[str, Any], members: list[Member], reason: str) -> None:
    tree = memory.tree
    wanted = {member.path for member in members}
    copies = {path: content for path, content in _backup(tree, session_id) if path in wanted}
    # Everything is looked at before anything is put anywhere.
    for _ in archive.checked(copies.items(), members, _path(session_id, BACKUP)):
        pass
    beside = {path.removeprefix(_ARCHIVED): content for path, content in copies.items() if path.startswith(_ARCHIVED)}
    inside = [(path.removeprefix(_SESSION), content) for path, content in copies.items() if path.startswith(_SESSION)]
    is_packed = said.get("was") == ARCHIVED
    aside = None if is_packed else archive.unpack_aside(tree, session_id, archive.awakened(memory, inside, reason))
    try:
        _note(memory, session_id, RESTORING, archive.inode_of(tree, aside) if aside else None)
        # The summary last: with it, the session is in the archive.
        for name in sorted(beside, key=lambda name: (name == archive.SUMMARY, name)):
            tree.make_directory(f"{ARCHIVED}/{session_id}")
            tree.replace(f"{ARCHIVED}/{session_id}/{name}", beside[name])
        if aside:
            archive.put_in_place(memory, aside, session_id)
    except BaseException:
        if aside:
            tree.remove_directory(aside)
        settle(memory, session_id)
        raise


def _forget_copy(memory: Memory, session_id: str) -> None:
    """Takes the session out of the backup, because it is in its place; copies of memories that were deleted before stay."""
    tree = memory.tree
    others = _others(tree, session_id)
    if others or _record(tree, session_id).get("deleted_items"):
        write_archive(tree, _path(session_id, BACKUP), others)
        _save(memory, session_id, None)
        return
    tree.unlink(_path(session_id, BACKUP))
    tree.unlink(_path(session_id, RECORD))
    tree.remove_empty(f"{DELETED}/{session_id}")


def _clear_archive(memory: Memory, session_id: str, said: dict[str, Any]) -> None:
    """Removes what the archive still has of a deleted session, as far as the backup has the same."""
    tree = memory.tree
    known = {member.path: member for member in archive.members_of(said, _path(session_id, RECORD))}
    for path, content in list(archive.files_in(tree, f"{ARCHIVED}/{session_id}", _ARCHIVED)):
        if known.get(path) == member_of(path, content):
            tree.unlink(f"{ARCHIVED}/{session_id}/{path.removeprefix(_ARCHIVED)}")
    tree.remove_empty(f"{ARCHIVED}/{session_id}")


def _files(tree: Tree, session_id: str) -> Iterator[tuple[str, bytes]]:
    yield from archive.files_in(tree, f"{ACTIVE}/{session_id}", _SESSION)
    yield from archive.files_in(tree, f"{ARCHIVED}/{session_id}", _ARCHIVED)


def _others(tree: Tree, session_id: str) -> list[tuple[str, bytes]]:
    """What the backup holds of memories that were deleted one by one."""
    return [(path, content) for path, content in _backup(tree, session_id) if not path.startswith((_SESSION, _ARCHIVED))]


def _backup(tree: Tree, session_id: str) -> Iterator[tuple[str, bytes]]:
    if tree.exists(_path(session_id, BACKUP)):
        yield from read_members(tree, _path(session_id, BACKUP))


def _of_session(packed: list[Member]) -> list[Member]:
    """As they are called in the session's own directory."""
    return [member._replace(path=member.path.removeprefix(_SESSION)) for member in packed if member.path.startswith(_SESSION)]


def _listed(packed: list[Member]) -> list[dict[str, Value]]:
    return archive.listed(member for member in packed if member.path.startswith((_SESSION, _ARCHIVED)))


def _record(tree: Tree, session_id: str) -> dict[str, Any]:
    name = _path(session_id, RECORD)
    return load_mapping(tree.read(name), TOP, name) if tree.exists(name) else {}


def _note(memory: Memory, session_id: str, state: str, inode: int | None) -> None:
    said = whole_deletion(memory.tree, session_id) or {}
    _save(memory, session_id, {**said, "state": state, "directory": inode})


def _save(memory: Memory, session_id: str, facts: dict[str, Any] | None) -> None:
    """What the record says of the whole session, and at its top of what was deleted last."""
    name = _path(session_id, RECORD)
    items = _record(memory.tree, session_id).get("deleted_items") or []
    last = facts or (items[-1] if items and isinstance(items[-1], dict) else {})
    parts = {name: last.get(name) for name in ("deleted_at", "deleted_by", "recovery_deadline")}
    parts |= {"reason": last.get("reason") or last.get("reason_specific"), WHOLE: facts}
    if memory.tree.exists(name):
        memory.tree.replace(name, replace_parts(memory.tree.read(name), TOP, parts, name))
        return
    head: dict[str, Any] = {"session_id": session_id, "deleted_items": [], "backup_location": _path(session_id, BACKUP)}
    memory.tree.replace(name, render_mapping(TOP, {**head, **parts}))


def _path(session_id: str, name: str) -> str:
    return f"{DELETED}/{session_id}/{name}"
