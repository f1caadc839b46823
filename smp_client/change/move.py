"""The one way in which a whole session leaves or enters `active/`.

Leaving: pack the files into a bundle aside, record an intent, name the bundle, rename the directory
out of `active/` in one step, forget the intent. Entering goes the other way. A crash leaves the old
state, or an intent that whoever comes next rolls forward.

Drops and bytes that come while a session leaves come back with it, see latecomers.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..disk import audit, bundle, rewrite
from ..disk.bundle import Manifest, is_inner_path, item_of
from ..disk.place import ARCHIVE, BACKUP, FILES
from ..disk.quarantine import INBOX
from ..disk.scope import Scope
from ..disk.session_files import METADATA
from ..disk.tree import is_left_alone
from ..model.errors import Conflict, SessionNotFound, SMPError, UnsafePath
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    LEAVING,
    YAML_INDEXES,
    check_session_id,
    is_session_id,
)
from ..model.outcome import Action, Outcome
from ..model.times import render_time
from ..redaction.redact import harmless
from ..text.mapping import replace_parts
from ..text.values import Value
from ..text.version import is_versioned
from .change import happen, temporaries, unlink_step
from .digest import digest
from .latecomers import note_packed, take_in
from .restore import BY_HAND, manifest_of, said_reason

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory


def archive(memory: Memory, session_id: str, reason: str, *, dry_run: bool = False) -> Outcome:
    """Archive a session. Late writes are taken into the archive, or refused."""
    session = memory._session(session_id)
    path = f"{ARCHIVED}/{session_id}/{ARCHIVE}"
    scope = session.scope
    freed = 0
    head = manifest_of(memory, "archive", session_id, harmless(reason), "smp")
    if not dry_run:
        before = session.size().total_bytes
        with scope.undisturbed("archiving"):
            scope.require()
            _require_free(memory, path)
            freed = before - _leave(memory, scope, path, head)
    return Outcome([Action(session_id, "archive", (session_id,), head.why, freed)], dry_run=dry_run)


def archived(memory: Memory) -> list[Manifest]:
    """Return the sessions in the archive; one whose bundle cannot be read is named too."""
    found = _away(memory, ARCHIVED, ARCHIVE)
    return [one for one in found if not memory.tree.exists(f"{ACTIVE}/{one.session}")]


def unarchive(memory: Memory, session_id: str, *, dry_run: bool = False) -> Outcome:
    """Restore a session from the archive, active again."""
    action = Action(session_id, "unarchive", (session_id,), "brought back from the archive")
    return _enter(memory, f"{ARCHIVED}/{check_session_id(session_id)}/{ARCHIVE}", action, dry_run)


def delete_session(
    memory: Memory, session_id: str, reason: str, by: str, *, dry_run: bool = False
) -> Outcome:
    """Delete a session whole, from `active/` or from the archive, restorable until its deadline."""
    check_session_id(session_id)
    memory.require()
    days = memory.options.retention.deleted_days
    head = manifest_of(memory, "deleted", session_id, reason, by, days=days)
    tree, scope, target = memory.tree, memory._scope(session_id), f"{DELETED}/{session_id}/{BACKUP}"
    with scope.undisturbed("deleting the session"):
        is_active, packed = tree.exists(scope.directory), f"{ARCHIVED}/{session_id}/{ARCHIVE}"
        if not is_active and not tree.exists(packed):
            scope.require()
        _require_free(memory, target)
        inside = [*tree.files_below(scope.directory)] if is_active else [packed]
        size = sum(tree.stat(path).st_size for path in inside)
        action = Action(session_id, "delete_session", (session_id,), head.why, size)
        if dry_run:
            return Outcome([action], dry_run=True)
        with _noted(memory, "delete", action, by):
            if is_active:
                _leave(memory, scope, target, head)
            else:
                with temporaries(tree) as made:
                    files = dict(bundle.read(tree, packed).files())
                    made.append(_packed(tree, head, files))
                    steps = [{"bundle": target, "aside": made[0]}, unlink_step(tree, packed)]
                    happen(scope, steps, made)
    return Outcome([action])


def deleted_sessions(memory: Memory) -> list[Manifest]:
    """Return the sessions that were deleted whole and can be restored."""
    return _away(memory, DELETED, BACKUP)


def undelete_session(
    memory: Memory, session_id: str, reason: str = BY_HAND, *, by: str = "user",
    dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Restore a deleted session, active again. Metadata and audit log keep the reason."""
    action = Action(session_id, "undelete_session", (session_id,), said_reason(reason))
    source = f"{DELETED}/{check_session_id(session_id)}/{BACKUP}"
    return _enter(memory, source, action, dry_run, by)


def destroy(scope: Scope, bundles: Iterable[str]) -> None:
    """Unlink bundles of a session for good, all in one intent. Only a purge does that."""
    if steps := [unlink_step(scope.tree, path) for path in bundles]:
        happen(scope, steps, [])


# The two ways through the journal.


def _leave(memory: Memory, scope: Scope, target: str, head: Manifest) -> int:
    """Move the directory of a session out of `active/` into a bundle. Evicted bundles stay.

    Return the size of the bundle.
    """
    tree = memory.tree
    below = (path.removeprefix(f"{scope.directory}/") for path in tree.files_below(scope.directory))
    locked = {*FILES, *filter(is_versioned, below)}
    with scope.locked(locked, "packing the session"), temporaries(tree) as made:
        files = _contents(tree, scope.directory)
        made.append(_packed(tree, head, files))
        size = tree.stat(made[0]).st_size  # now, because nothing may fail after the move
        slot = f"{LEAVING}/{scope.name}+{uuid.uuid4().hex[:8]}"
        steps = [{"bundle": target, "aside": made[0]}, _renaming(tree, scope.directory, slot)]
        # Bytes that this counts as packed are removed with the directory.
        made.append(note_packed(tree, slot, files))
        happen(scope, steps, made)
    return size


def _enter(memory: Memory, source: str, action: Action, dry_run: bool, by: str = "smp") -> Outcome:
    """Move a packed session out of its bundle into `active/`."""
    memory.require()
    tree, scope = memory.tree, memory._scope(action.session)
    with scope.undisturbed("bringing the session back"):
        if not tree.exists(source):
            said = f"There is no session {scope.name!r} in {source.partition('/')[0]}/."
            advice = "smp sessions --all lists those that there are."
            raise SessionNotFound(said, session_id=scope.name, advice=advice)
        for home in (scope.directory, f"{ARCHIVED}/{scope.name}/{ARCHIVE}"):
            if home != source:
                _require_free(memory, home)
        if not dry_run:
            take_in(scope)
        files = dict(bundle.read(tree, source).files())
        action = replace(action, bytes_freed=-sum(map(len, files.values())))
        if dry_run:
            return Outcome([action], dry_run=True)
        is_deleted = source.startswith(f"{DELETED}/")
        noted = _noted(memory, "restore", action, by) if is_deleted else nullcontext()
        with noted, temporaries(tree) as made:
            awake = _awake(memory, files, action.reason)
            rewrite.keep_odd(scope, METADATA, files.get(METADATA, b""))
            made.append(memory._aside(awake))
            step = _renaming(tree, made[0], scope.directory)
            happen(scope, [step, unlink_step(tree, source)], made)
    return Outcome([action])


def _renaming(tree: Tree, source: str, target: str) -> dict[str, Any]:
    """Return the step that renames a directory. By its inode it is known to be the one meant."""
    return {"directory": source, "to": target, "inode": tree.stat(source).st_ino}


def _noted(memory: Memory, name: str, action: Action, by: str) -> AbstractContextManager[object]:
    facts: dict[str, Any] = {"session": action.session, "count": 1, "whole_session": True}
    facts["reason"] = action.reason
    return audit.noted(memory.tree, name, clock=memory.options.clock, by=by, **facts)


def _packed(tree: Tree, head: Manifest, files: Mapping[str, bytes]) -> str:
    """Make the bundle of a whole session aside, and return its name."""
    if head.kind == "archive":
        head = replace(head, facts=digest(head.session, files))
    pieces = [item_of(file, "", "file", raw, whole=True) for file, raw in files.items()]
    return bundle.write(tree, head, pieces)


def _contents(tree: Tree, directory: str) -> dict[str, bytes]:
    """Return every file below a directory, none of them in the middle of a write.

    A drop that somebody is still writing comes late. YAML indexes are derived, and would outlive in
    a bundle the memories that are purged from it.
    """
    files: dict[str, bytes] = {}
    for one in tree.walk(directory):
        file = one.path.removeprefix(f"{directory}/")
        if one.problem or not is_inner_path(file):
            advice = "It is too deep, or its name is odd: move it out of the session."
            raise UnsafePath(f"No bundle can hold {one.path[:100]!a}.", advice=advice)
        if one.is_directory or file in YAML_INDEXES:
            continue
        with suppress(FileNotFoundError):  # it got another name just now, so it comes late
            if not (file.startswith(f"{INBOX}/") and _is_being_written(tree, one.path)):
                files[file] = rewrite.read_whole(tree, one.path)
    return files


def _is_being_written(tree: Tree, path: str) -> bool:
    with tree.opened(path) as descriptor:
        return not is_left_alone(descriptor)


def _awake(memory: Memory, files: dict[str, bytes], reason: str) -> dict[str, bytes]:
    """Return the files with metadata that say that the session is in use again."""
    if METADATA not in files:
        return files
    now = render_time(memory.options.clock())
    said: dict[str, Value] = {"status": "active", "status_since": now, "status_reason": reason,
                              "last_accessed": now}  # fmt: skip
    return files | {METADATA: replace_parts(files[METADATA], "session", said, METADATA)}


def _require_free(memory: Memory, path: str) -> None:
    if memory.tree.exists(path):
        session_id = path.split("/")[1]
        advice = "Move it away, or rename it; nothing was changed."
        raise Conflict(f"There is another session {session_id!r} already: {path}.",
                       session_id=session_id, advice=advice)  # fmt: skip


def _away(memory: Memory, place: str, name: str) -> list[Manifest]:
    found: list[Manifest] = []
    memory._recover_moves()
    for session_id in filter(is_session_id, memory.tree.directories(place)):
        path = f"{place}/{session_id}/{name}"
        if memory.tree.exists(path):
            try:
                found.append(replace(bundle.read_manifest(memory.tree, path), session=session_id))
            except (SMPError, OSError) as error:
                found.append(Manifest("archive", session_id, "", "", str(error)))
    return found
