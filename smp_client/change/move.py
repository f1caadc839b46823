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
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..disk import audit, bundle, journal, rewrite
from ..disk.bundle import Bundle, Item, Manifest, item_of
from ..disk.locks import NO_PATIENCE
from ..disk.packing import is_inner_path, plain_files
from ..disk.quarantine import move_aside, set_aside
from ..disk.scope import Scope
from ..disk.scopes import ARCHIVE, BACKUP, EVICTED
from ..disk.session_files import METADATA, artifact_file, state_file
from ..disk.temporaries import temporary_name
from ..disk.tree import DEEPEST, is_left_alone
from ..model.errors import Conflict, LockTimeout, SessionNotFound, SMPError, StorageFailed, TransactionPending
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    LEAVING,
    RETIRED,
    SESSION_DIRECTORIES,
    YAML_INDEXES,
    check_session_id,
    is_session_id,
)
from ..model.outcome import Action, Outcome
from ..model.record import state_history
from ..model.times import render_time
from ..redaction.redact import harmless
from ..text.mapping import replace_parts
from ..text.values import Value
from .digest import digest
from .holdings import BESIDE
from .restore import manifest_of, passing

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory
    from ..session import Session

# A writer that found the name just before it changed, and has not opened it, is not counted by the kernel.
GRACE_S = 2.0
_SHOWN_CHARACTERS = 60
_TRIES = 4


@dataclass(frozen=True)
class Away:
    """A session that is archived or deleted whole."""

    session: str
    at: str
    by: str
    reason: str
    until: str
    total_bytes: int
    bundle_bytes: int

    @property
    def archived_at(self) -> str:
        return self.at

    @property
    def deleted_at(self) -> str:
        return self.at

    @property
    def recovery_deadline(self) -> str:
        return self.until


# Archiving.


def archive(memory: Memory, session_id: str, reason: str, *, dry_run: bool = False) -> Outcome:
    """Archive a session. What is written meanwhile is in the archive, in quarantine, or refused."""
    reason = harmless(reason)
    session = memory._session(session_id)
    total = session.size().total_bytes
    if dry_run:
        head = manifest_of(memory, "archive", session_id, reason, "smp")
        files = _contents(memory.tree, session.scope.directory)
        size = bundle.size_of(*_packing(session_id, head, files))
        return Outcome([Action(session_id, "archive", (session_id,), reason, total - size)], dry_run=True)
    path = f"{ARCHIVED}/{session_id}/{ARCHIVE}"
    with passing(memory, session_id, "archiving") as scope:
        scope.require()
        if memory.tree.exists(path):
            raise Conflict(f"Another session of this id is archived already: {path}.", session_id=session_id,
                           advice="Move its directory away, or rename this session; nothing was changed.")  # fmt: skip
        notes = _quarantine_unfit(memory, session_id)
        head = manifest_of(memory, "archive", session_id, reason, "smp")
        _leave(memory, scope, path, head)
    size = memory.tree.stat(path).st_size
    return Outcome([Action(session_id, "archive", (session_id,), reason, total - size)], notes=notes)


def unarchive(memory: Memory, session_id: str, *, dry_run: bool = False) -> Outcome:
    """Bring a session back from the archive, active again."""
    path = f"{ARCHIVED}/{check_session_id(session_id)}/{ARCHIVE}"
    memory.require()
    reason = "brought back from the archive"
    with passing(memory, session_id, reason) as scope:
        if not memory.tree.exists(path):
            raise SessionNotFound(f"There is no session {session_id!r} in the archive.", session_id=session_id,
                                  advice="smp sessions --all lists those that there are.")  # fmt: skip
        _require_room(memory, session_id, ACTIVE)
        packed = bundle.read(memory.tree, path)
        files = dict(packed.files())
        action = Action(session_id, "unarchive", (session_id,), reason, -sum(map(len, files.values())))
        if not dry_run:
            _enter(memory, scope, _awake(memory, files, reason), {}, [path])
    return Outcome([action], dry_run=dry_run)


def archived(memory: Memory) -> list[Away]:
    """Return the sessions in the archive; one whose bundle cannot be read is named too."""
    found = _away(memory, ARCHIVED, ARCHIVE)
    return [one for one in found if not memory.tree.exists(f"{ACTIVE}/{one.session}")]


# Deleting whole sessions.


def delete_session(memory: Memory, session_id: str, reason: str, by: str, *, dry_run: bool = False) -> Outcome:
    """Delete a session whole, from `active/` or from the archive. It can be restored until its deadline."""
    check_session_id(session_id)
    memory.require()
    days = memory.options.retention.deleted_days
    head = manifest_of(memory, "deleted", session_id, reason, by, days=days)
    target = f"{DELETED}/{session_id}/{BACKUP}"
    tree = memory.tree
    with passing(memory, session_id, "deleting the session") as scope:
        is_active = tree.exists(scope.directory)
        packed = f"{ARCHIVED}/{session_id}/{ARCHIVE}"
        if not is_active and not tree.exists(packed):
            scope.require()
        if tree.exists(target):
            raise Conflict(f"Another session {session_id!r} was deleted, and can still be restored.", session_id=session_id,
                           advice=f"Move {DELETED}/{session_id} away, or rename this session; nothing was changed.")  # fmt: skip
        notes = _quarantine_unfit(memory, session_id) if is_active and not dry_run else []
        beside = {path: tree.read(path) for path in bundle.paths(tree, f"{ARCHIVED}/{session_id}")
                  if path.rpartition("/")[2].startswith(EVICTED)}  # fmt: skip
        size = sum(map(len, beside.values()))
        size += sum(tree.stat(f"{scope.directory}/{file}").st_size for file in plain_files(tree, scope.directory)) \
            if is_active else tree.stat(packed).st_size
        outcome = Outcome([Action(session_id, "delete_session", (session_id,), head.why, size)], notes=notes, dry_run=dry_run)
        if dry_run:
            return outcome
        facts = {"session": session_id, "count": 1, "whole_session": True}
        with audit.noted(tree, "delete", clock=memory.options.clock, by=by, **facts):
            head = replace(head, facts={"was": ACTIVE if is_active else ARCHIVED})
            if is_active:
                _leave(memory, scope, target, head, beside)
            else:
                files = dict(bundle.read(tree, packed).files())
                _exchange(scope, target, head, files, {packed: b"", **beside})
    return outcome


def undelete_session(
    memory: Memory, session_id: str, reason: str = "restored", *, by: str = "user", dry_run: bool = False
) -> Outcome:
    """Restore a deleted session to where it was: `active/` or the archive."""
    reason = harmless(reason)
    target = f"{DELETED}/{check_session_id(session_id)}/{BACKUP}"
    memory.require()
    tree = memory.tree
    with passing(memory, session_id, "restoring the session") as scope:
        if not tree.exists(target):
            raise SessionNotFound(f"There is no deleted session {session_id!r} under {memory.root}.", session_id=session_id,
                                  advice="smp restore --list shows what can be restored.")  # fmt: skip
        for place in (ACTIVE, ARCHIVED):
            _require_room(memory, session_id, place)
        packed = bundle.read(tree, target)
        files, beside = _unpacked(packed)
        action = Action(session_id, "undelete_session", (session_id,), reason, -sum(map(len, files.values())))
        if dry_run:
            return Outcome([action], dry_run=True)
        facts = {"session": session_id, "count": 1, "whole_session": True}
        with audit.noted(tree, "restore", clock=memory.options.clock, by=by, **facts):
            if packed.manifest.facts.get("was") == ARCHIVED:
                head = manifest_of(memory, "archive", session_id, reason, by)
                _exchange(scope, f"{ARCHIVED}/{session_id}/{ARCHIVE}", head, files, {target: b""}, beside)
            else:
                _enter(memory, scope, _awake(memory, files, reason), beside, [target])
    return Outcome([action])


def deleted_sessions(memory: Memory) -> list[Away]:
    """Return the sessions that were deleted whole and can be restored."""
    return _away(memory, DELETED, BACKUP)


def destroy(scope: Scope, bundles: Iterable[str]) -> None:
    """Unlink bundles of a session for good, all in one intent. Only a purge does that."""
    if steps := _unlinks(scope.tree, bundles):
        _happen(scope, steps, [])


# The two ways through the journal.


def _leave(memory: Memory, scope: Scope, target: str, head: Manifest, beside: Mapping[str, bytes] | None = None) -> None:
    """Move the directory of a session out of `active/` and its files into a bundle."""
    beside = beside or {}
    session = memory._session(scope.name)
    with scope.locked(locked_files(session), "packing the session"):
        files = _contents(scope.tree, scope.directory)
        aside = _pack(scope, head, files, beside)
        slot = f"{LEAVING}/{scope.name}+{uuid.uuid4().hex[:8]}"
        _note_packed(scope.tree, slot, files)
        steps = [{"bundle": target, "aside": aside}, _renaming(scope.tree, scope.directory, slot)]
        _happen(scope, [*steps, *_unlinks(scope.tree, beside)], [aside])
        # Whoever wrote without a lock while the bundle was made wrote into the directory.
        for _ in range(_TRIES):
            now = _contents(scope.tree, slot)
            if now == files:
                break
            aside = _pack(scope, head, now, beside)
            _happen(scope, [{"bundle": target, "aside": aside}], [aside])
            # Only now: bytes that the note counts as packed are removed with the directory.
            _note_packed(scope.tree, slot, now)
            files = now


def _enter(
    memory: Memory, scope: Scope, files: Mapping[str, bytes], beside: Mapping[str, bytes], sources: Iterable[str]
) -> None:
    """Move files out of a bundle into `active/`."""
    tree = memory.tree
    aside = _laid_out(tree, files)
    made = [aside]
    try:
        steps: list[dict[str, Any]] = []
        for name, content in beside.items():
            made.append(tree.create_temporary(content))
            steps.append({"bundle": f"{ARCHIVED}/{scope.name}/{name}", "aside": made[-1]})
        steps.append(_renaming(tree, aside, scope.directory))
        _happen(scope, [*steps, *_unlinks(tree, sources)], made)
    except BaseException:
        tree.remove_directory(aside)
        raise


def _exchange(
    scope: Scope, target: str, head: Manifest, files: Mapping[str, bytes], gone: Mapping[str, bytes],
    beside: Mapping[str, bytes] | None = None,
) -> None:  # fmt: skip
    """Move a packed session from one bundle to another, with the evicted bundles beside it."""
    evicted = {path: content for path, content in gone.items() if content}
    made = [_pack(scope, head, files, evicted)]
    steps: list[dict[str, Any]] = [{"bundle": target, "aside": made[0]}]
    for name, content in (beside or {}).items():
        made.append(scope.tree.create_temporary(content))
        steps.append({"bundle": f"{ARCHIVED}/{scope.name}/{name}", "aside": made[-1]})
    _happen(scope, [*steps, *_unlinks(scope.tree, gone)], made)


def _happen(scope: Scope, steps: list[dict[str, Any]], made: Iterable[str]) -> None:
    """Record an intent and carry it out. Temporaries that no intent took over are removed."""
    try:
        intent = journal.record(scope, steps)
    except OSError as error:
        for name in made:
            scope.tree.unlink(name) if not scope.tree.is_directory(name) else scope.tree.remove_directory(name)
        raise StorageFailed(f"Could not record the move: {error}.", session_id=scope.name) from error
    try:
        for step in steps:
            journal.carry_out(scope, step)
        journal.forget(scope, intent)
    except OSError as error:
        raise TransactionPending(f"The move is recorded, but: {error}.", session_id=scope.name) from error


def _renaming(tree: Tree, source: str, target: str) -> dict[str, Any]:
    """The step that renames a directory. By its inode it is known to be the one that was meant."""
    return {"directory": source, "to": target, "inode": tree.stat(source).st_ino}


def _unlinks(tree: Tree, paths: Iterable[str]) -> list[dict[str, Any]]:
    return [{"bundle": path, "aside": None, "was": journal.version_of(tree.stat(path))} for path in paths]


def _pack(scope: Scope, head: Manifest, files: Mapping[str, bytes], beside: Mapping[str, bytes]) -> str:
    return bundle.write(scope.tree, *_packing(scope.name, head, files, beside))


def _packing(
    name: str, head: Manifest, files: Mapping[str, bytes], beside: Mapping[str, bytes] | None = None
) -> tuple[Manifest, list[tuple[Item, bytes]]]:
    """Return the manifest and the items of a packed session."""
    facts = {**head.facts, **digest(name, files)} if head.kind == "archive" else head.facts
    pieces: list[tuple[Item, bytes]] = [item_of(file, "", "file", content, whole=True) for file, content in files.items()]
    pieces += [item_of(f"{BESIDE}{path.rpartition('/')[2]}", "", "bundle", content, whole=True)
               for path, content in (beside or {}).items()]  # fmt: skip
    return replace(head, facts=facts), pieces


def _unpacked(packed: Bundle) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files of a packed session, and the evicted bundles that were beside it."""
    files = dict(packed.files())
    beside = {file.removeprefix(BESIDE): files.pop(file) for file in [*files] if file.startswith(BESIDE)}
    return files, beside


def _contents(tree: Tree, directory: str) -> dict[str, bytes]:
    """Return every file below a directory, none of them in the middle of a write.

    YAML indexes are derived, and would outlive in a bundle the memories that are purged from it.
    """
    files = (file for file in plain_files(tree, directory) if file not in YAML_INDEXES)
    return {file: rewrite.read_whole(tree, f"{directory}/{file}") for file in files}


def _laid_out(tree: Tree, files: Mapping[str, bytes]) -> str:
    """Return a new directory with these files, durable, under a temporary name."""
    aside = temporary_name()
    directories = {aside, *(f"{aside}/{name}" for name in SESSION_DIRECTORIES)}
    directories |= {f"{aside}/{file}".rpartition("/")[0] for file in files}
    try:
        for directory in sorted(directories):
            tree.make_directory(directory)
        for file, content in files.items():
            tree.write_new(f"{aside}/{file}", content)
        for directory in directories:
            tree.sync_parent(f"{directory}/any")
    except BaseException:
        tree.remove_directory(aside)
        raise
    return aside


def _awake(memory: Memory, files: Mapping[str, bytes], reason: str) -> dict[str, bytes]:
    """Return the files with metadata that say that the session is in use again."""
    now = render_time(memory.options.clock())
    changes: dict[str, Value] = {"status": "active", "status_since": now, "status_reason": reason, "last_accessed": now}
    metadata = files.get(METADATA)
    awake = {METADATA: replace_parts(metadata, "session", changes, METADATA)} if metadata else {}
    return {**files, **awake}


def locked_files(session: Session) -> list[str]:
    """Return every file of a session that a writer locks before it writes."""
    states, artifacts = session.agent_states(), session.artifacts()
    return [METADATA, *(kind.file for kind in session.kinds), *map(state_file, states),
            *(state_history(agent).file for agent in states), *map(artifact_file, artifacts)]  # fmt: skip


def _require_room(memory: Memory, session_id: str, place: str) -> None:
    path = f"{ACTIVE}/{session_id}" if place == ACTIVE else f"{ARCHIVED}/{session_id}/{ARCHIVE}"
    if memory.tree.exists(path):
        raise Conflict(f"There is a session {session_id!r} in {place}/ by now.", session_id=session_id,
                       advice="Move or rename it, then try again; nothing was changed.")  # fmt: skip


def _away(memory: Memory, place: str, name: str) -> list[Away]:
    found: list[Away] = []
    memory._finish_moves()
    for session_id in memory.tree.directories(place):
        path = f"{place}/{session_id}/{name}"
        if not is_session_id(session_id) or not memory.tree.exists(path):
            continue
        try:
            said = bundle.read_manifest(memory.tree, path)
        except (SMPError, OSError) as error:
            found.append(Away(session_id, "", "", str(error), "", 0, 0))
            continue
        total = sum(item.length for item in said.items)
        found.append(Away(session_id, said.at, said.by, said.why, said.until or "", total, memory.tree.stat(path).st_size))
    return found


# What is left of a directory that has left.


def sweep(memory: Memory, only: str | None = None) -> list[str]:
    """Remove the directories of sessions that have left, when nobody has them open. Waits for nobody.

    Bytes that came after the bundle was made go to quarantine. Return what could not be removed yet.
    """
    problems: list[str] = []
    for name in memory.tree.list(LEAVING):
        if name.endswith(".json") and not memory.tree.exists(f"{LEAVING}/{name.removesuffix('.json')}"):
            _forget_note(memory, name)
    for name in memory.tree.directories(LEAVING):
        session_id = name.partition("+")[0]
        if not is_session_id(session_id) or (only is not None and session_id != only):
            continue
        scope = _without_patience(memory, session_id)
        try:
            with scope.undisturbed("removing what has left"):
                if _swept(memory, f"{LEAVING}/{name}", session_id):
                    continue
        except LockTimeout:
            continue  # whoever holds the lock is at work there
        except (SMPError, OSError) as error:
            problems.append(f"{session_id}: {LEAVING}/{name} cannot be removed yet: {error}")
    return problems


def _forget_note(memory: Memory, name: str) -> None:
    """Remove the note of a directory that never left, or is removed, once nobody is at work on it."""
    session_id = name.partition("+")[0]
    if is_session_id(session_id):
        with suppress(LockTimeout, SMPError), _without_patience(memory, session_id).undisturbed("tidying"):
            if not memory.tree.exists(f"{LEAVING}/{name.removesuffix('.json')}"):
                memory.tree.unlink(f"{LEAVING}/{name}")


def _without_patience(memory: Memory, session_id: str) -> Scope:
    scope = memory._scope(session_id)
    return Scope(scope.tree, scope.name, scope.directory, replace(scope.options, patience=NO_PATIENCE))


def _swept(memory: Memory, slot: str, session_id: str) -> bool:
    tree = memory.tree
    for one in [*tree.walk(slot)]:
        if one.is_directory:
            continue
        with suppress(FileNotFoundError), tree.opened(one.path) as descriptor:
            if not is_left_alone(descriptor):
                return False
    if time.time() - tree.stat(slot).st_ctime <= GRACE_S:
        return False
    if not tree.exists(f"{ACTIVE}/{session_id}"):
        _fold_old_versions(Scope(tree, session_id, slot, memory.options))
    _quarantine_unfit(memory, session_id, slot)
    packed = _packed(tree, slot)
    for file, content in _contents(tree, slot).items():
        size, checksum = packed.get(file, (0, 0))
        late = content[size:] if zlib.crc32(content[:size]) == checksum else content
        if late:
            why = "written while the session was packed away"
            set_aside(tree, session_id, file, len(content) - len(late), late, why, memory.options.clock())
    if error := tree.remove_directory(slot):
        raise error
    tree.unlink(f"{slot}.json")
    return True


def _note_packed(tree: Tree, slot: str, files: Mapping[str, bytes]) -> None:
    """Write down beside a directory that leaves how much of each file its bundle holds."""
    tree.make_directory(LEAVING)
    sizes = {file: [len(content), zlib.crc32(content)] for file, content in files.items()}
    tree.replace(f"{slot}.json", json.dumps(sizes).encode())


def _packed(tree: Tree, slot: str) -> dict[str, tuple[int, int]]:
    """Return size and checksum of each packed file. Where nobody can tell, no byte counts as packed."""
    try:
        said = json.loads(tree.read(f"{slot}.json"))
        return {str(file): (int(size), int(checksum)) for file, (size, checksum) in said.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _fold_old_versions(scope: Scope) -> None:
    """Append what was written late into old versions of the files to the files themselves."""
    for name in scope.tree.list(RETIRED):
        if name.startswith(f"{scope.name}+"):
            with suppress(FileNotFoundError):
                rewrite.fold_retired(scope, rewrite.file_of_slot(name))


def _quarantine_unfit(memory: Memory, session_id: str, directory: str | None = None) -> list[str]:
    """Quarantine what no bundle can hold: what is too deep, or has a name that none of ours has."""
    said: list[str] = []
    top = directory or f"{ACTIVE}/{session_id}"
    at: datetime = memory.options.clock()
    for one in memory.tree.walk(top):
        inner = one.path.removeprefix(f"{top}/")
        if not one.is_deep and is_inner_path(inner):
            continue
        with suppress(FileNotFoundError):  # it is in a directory that went just now
            why = f"deeper than {DEEPEST} directories" if one.is_deep else "a name that no bundle can hold"
            moved = move_aside(memory.tree, session_id, one.path, why, at)
            said.append(f"{session_id}: {inner[:_SHOWN_CHARACTERS]!a} is not in the bundle ({why}); it is in {moved}.")
    return said
