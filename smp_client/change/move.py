"""The one way in which a whole session leaves or enters `active/`.

Leaving: pack the files into a bundle aside, record an intent, name the bundle, rename the directory
out of `active/` in one step, forget the intent. Entering goes the other way. A crash leaves the old
state, or an intent that whoever comes next rolls forward.

A program that has a file of the session open goes on writing into it. So the directory waits in
`.smp/leaving/` until nobody has it open; bytes that came late go to quarantine, and status says so.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..disk import audit, bundle, rewrite
from ..disk.bundle import Manifest, is_inner_path, item_of
from ..disk.locks import NO_PATIENCE
from ..disk.place import ARCHIVE, BACKUP, FILES
from ..disk.quarantine import quarantine_bytes
from ..disk.scope import Scope
from ..disk.session_files import METADATA
from ..disk.tree import is_left_alone
from ..model.errors import Conflict, LockTimeout, SessionNotFound, SMPError, UnsafePath
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    LEAVING,
    RETIRED,
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
from .restore import BY_HAND, manifest_of, said_reason

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory

# The kernel does not count a writer that has found the name and not opened it yet.
GRACE_S = 2.0


def archive(memory: Memory, session_id: str, reason: str, *, dry_run: bool = False) -> Outcome:
    """Archive a session. Late writes are in the archive, in quarantine, or refused."""
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
        sizes = {file: [len(content), zlib.crc32(content)] for file, content in files.items()}
        tree.make_directory(LEAVING)
        made.append(f"{slot}.json")
        tree.replace(f"{slot}.json", json.dumps(sizes).encode())
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

    YAML indexes are derived, and would outlive in a bundle the memories that are purged from it.
    """
    files: dict[str, bytes] = {}
    for one in tree.walk(directory):
        file = one.path.removeprefix(f"{directory}/")
        if one.problem or not is_inner_path(file):
            advice = "It is too deep, or its name is odd: move it out of the session."
            raise UnsafePath(f"No bundle can hold {one.path[:100]!a}.", advice=advice)
        if not one.is_directory and file not in YAML_INDEXES:
            files[file] = rewrite.read_whole(tree, one.path)
    return files


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


# Directories that have left.


def sweep(memory: Memory, only: str | None = None) -> list[str]:
    """Remove the directories of sessions that have left, when nobody has them open.

    It waits for nobody. Bytes that came after the bundle was made go to quarantine. Return why
    directories could not be removed yet.
    """
    tree, problems = memory.tree, list[str]()
    hurried = memory.with_options(lock_timeout_s=NO_PATIENCE)
    for name in tree.list(LEAVING):
        session_id, slot = name.partition("+")[0], f"{LEAVING}/{name.removesuffix('.json')}"
        if not is_session_id(session_id) or (only is not None and session_id != only):
            continue
        try:
            with hurried._scope(session_id).undisturbed("removing what has left"):
                if not tree.exists(slot):
                    tree.unlink(f"{slot}.json")  # the note of a directory that never left
                elif not name.endswith(".json"):
                    _sweep_one(memory, slot, session_id)
        except LockTimeout:
            continue  # whoever holds the lock is at work there
        except (SMPError, OSError) as error:
            problems.append(f"{session_id}: {slot} cannot be removed yet: {error}")
    return problems


def _sweep_one(memory: Memory, slot: str, session_id: str) -> None:
    tree = memory.tree
    for path in [*tree.files_below(slot)]:
        with suppress(FileNotFoundError), tree.opened(path) as descriptor:
            if not is_left_alone(descriptor):
                return
    if time.time() - tree.stat(slot).st_ctime <= GRACE_S:
        return
    scope = Scope(tree, session_id, slot, memory.options)
    if not tree.exists(f"{ACTIVE}/{session_id}"):
        for name in tree.list(RETIRED):  # late writes into old versions belong into the files
            if name.startswith(f"{session_id}+"):
                with suppress(FileNotFoundError):
                    rewrite.fold_retired(scope, rewrite.file_of_slot(name))
    try:
        said = json.loads(tree.read(f"{slot}.json"))
        packed = {str(file): (int(size), int(check)) for file, (size, check) in said.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        packed = {}  # nobody can tell, so no byte counts as packed
    for file, content in _contents(tree, slot).items():
        size, checksum = packed.get(file, (0, 0))
        late = content[size:] if zlib.crc32(content[:size]) == checksum else content
        if late:
            why = "written while the session was packed"
            quarantine_bytes(scope, file, late, why, len(content) - len(late))
    if error := tree.remove_directory(slot):
        raise error
    tree.unlink(f"{slot}.json")
