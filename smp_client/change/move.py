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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..disk import audit, bundle, journal, rewrite
from ..disk.bundle import Item, Manifest, item_of
from ..disk.locks import NO_PATIENCE
from ..disk.quarantine import move_aside, set_aside
from ..disk.scope import Scope
from ..disk.scopes import ARCHIVE, BACKUP, EVICTED
from ..disk.session_files import METADATA, artifact_file, state_file
from ..disk.tarball import is_inner_path, plain_files
from ..disk.tree import DEEPEST, is_left_alone, temporary_name
from ..model import errors
from ..model.errors import Conflict, LockTimeout, SessionNotFound, SMPError
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
)  # fmt: skip
from ..model.outcome import Action, Outcome
from ..model.record import state_history
from ..model.times import render_time
from ..redaction.redact import harmless
from ..text.mapping import replace_parts
from ..text.values import Value
from .digest import digest
from .holdings import BESIDE
from .restore import manifest_of

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory

# The kernel does not count a writer that has found the name and not opened it yet.
GRACE_S = 2.0
_TRIES = 4
_SHOWN_CHARACTERS = 60
_NOTHING_CHANGED = "or rename this session; nothing was changed."


@dataclass(frozen=True)
class Away:
    """A session that is archived or deleted whole."""

    session: str
    at: str
    by: str
    reason: str
    until: str  # a deleted session can be restored until then
    total_bytes: int


# Archiving.


def archive(memory: Memory, session_id: str, reason: str, *, dry_run: bool = False) -> Outcome:
    """Archive a session. Late writes are in the archive, in quarantine, or refused."""
    reason = harmless(reason)
    session = memory._session(session_id)
    total, path = session.size().total_bytes, f"{ARCHIVED}/{session_id}/{ARCHIVE}"
    head = manifest_of(memory, "archive", session_id, reason, "smp")
    notes: list[str] = []
    if dry_run:
        size = bundle.size_of(*_packing(head, _contents(memory.tree, session.scope.directory)))
    else:
        scope = memory._scope(session_id)
        with scope.undisturbed("archiving"):
            scope.require()
            if memory.tree.exists(path):
                advice = f"Move its directory away, {_NOTHING_CHANGED}"
                raise Conflict(f"Another session of this id is archived already: {path}.",
                               session_id=session_id, advice=advice)  # fmt: skip
            notes = _quarantine_unfit(memory, session_id, scope.directory)
            _leave(memory, scope, path, head)
        size = memory.tree.stat(path).st_size
    action = Action(session_id, "archive", (session_id,), reason, total - size)
    return Outcome([action], notes=notes, dry_run=dry_run)


def unarchive(memory: Memory, session_id: str, *, dry_run: bool = False) -> Outcome:
    """Restore a session from the archive, active again."""
    path = f"{ARCHIVED}/{check_session_id(session_id)}/{ARCHIVE}"
    memory.require()
    reason = "brought back from the archive"
    scope = memory._scope(session_id)
    with scope.undisturbed(reason):
        if not memory.tree.exists(path):
            advice = "smp sessions --all lists those that there are."
            raise SessionNotFound(f"There is no session {session_id!r} in the archive.",
                                  session_id=session_id, advice=advice)  # fmt: skip
        _require_room(memory, session_id, ACTIVE)
        files = dict(bundle.read(memory.tree, path).files())
        size = -sum(map(len, files.values()))
        if not dry_run:
            _enter(memory, scope, path, _awake(memory, files, reason))
    return Outcome([Action(session_id, "unarchive", (session_id,), reason, size)], dry_run=dry_run)


def archived(memory: Memory) -> list[Away]:
    """Return the sessions in the archive; one whose bundle cannot be read is named too."""
    found = _away(memory, ARCHIVED, ARCHIVE)
    return [one for one in found if not memory.tree.exists(f"{ACTIVE}/{one.session}")]


# Deleting whole sessions.


def delete_session(
    memory: Memory, session_id: str, reason: str, by: str, *, dry_run: bool = False
) -> Outcome:
    """Delete a session whole, from `active/` or from the archive, restorable until its deadline."""
    check_session_id(session_id)
    memory.require()
    days = memory.options.retention.deleted_days
    head = manifest_of(memory, "deleted", session_id, reason, by, days=days)
    tree, target = memory.tree, f"{DELETED}/{session_id}/{BACKUP}"
    scope = memory._scope(session_id)
    with scope.undisturbed("deleting the session"):
        is_active, packed = tree.exists(scope.directory), f"{ARCHIVED}/{session_id}/{ARCHIVE}"
        if not is_active and not tree.exists(packed):
            scope.require()
        if tree.exists(target):
            advice = f"Move {DELETED}/{session_id} away, {_NOTHING_CHANGED}"
            raise Conflict(f"Another session {session_id!r} was deleted, and can be restored.",
                           session_id=session_id, advice=advice)  # fmt: skip
        evicted = [path for path in bundle.paths(tree, f"{ARCHIVED}/{session_id}")
                   if path.rpartition("/")[2].startswith(EVICTED)]  # fmt: skip
        inside = [packed]
        if is_active:
            inside = [f"{scope.directory}/{file}" for file in plain_files(tree, scope.directory)]
        size = sum(tree.stat(path).st_size for path in [*inside, *evicted])
        action = Action(session_id, "delete_session", (session_id,), head.why, size)
        outcome = Outcome([action], dry_run=dry_run)
        if dry_run:
            return outcome
        head = replace(head, facts={"was": ACTIVE if is_active else ARCHIVED})
        with _audited(memory, "delete", session_id, by):
            if is_active:
                outcome.notes += _quarantine_unfit(memory, session_id, scope.directory)
                _leave(memory, scope, target, head, evicted)
            else:
                files = dict(bundle.read(tree, packed).files()) | _beside(tree, evicted)
                aside = bundle.write(tree, *_packing(head, files))
                steps = [{"bundle": target, "aside": aside}, *_unlinks(tree, [packed, *evicted])]
                _happen(scope, steps, [aside])
    return outcome


def undelete_session(
    memory: Memory, session_id: str, reason: str = "restored", *, by: str = "user",
    dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Restore a deleted session to where it was: `active/` or the archive."""
    reason = harmless(reason)
    target = f"{DELETED}/{check_session_id(session_id)}/{BACKUP}"
    memory.require()
    scope = memory._scope(session_id)
    with scope.undisturbed("restoring the session"):
        if not memory.tree.exists(target):
            advice = "smp restore --list shows what can be restored."
            raise SessionNotFound(f"There is no deleted session {session_id!r}.",
                                  session_id=session_id, advice=advice)  # fmt: skip
        for place in (ACTIVE, ARCHIVED):
            _require_room(memory, session_id, place)
        packed = bundle.read(memory.tree, target)
        files = dict(packed.files())
        size = -sum(len(raw) for file, raw in files.items() if not file.startswith(BESIDE))
        if not dry_run:
            with _audited(memory, "restore", session_id, by):
                if packed.manifest.facts.get("was") == ARCHIVED:
                    head = manifest_of(memory, "archive", session_id, reason, by)
                    _enter(memory, scope, target, files, head)
                else:
                    _enter(memory, scope, target, _awake(memory, files, reason))
    action = Action(session_id, "undelete_session", (session_id,), reason, size)
    return Outcome([action], dry_run=dry_run)


@contextmanager
def _audited(memory: Memory, verb: str, session_id: str, by: str) -> Iterator[None]:
    facts = {"session": session_id, "count": 1, "whole_session": True}
    with audit.noted(memory.tree, verb, clock=memory.options.clock, by=by, **facts):
        yield


def deleted_sessions(memory: Memory) -> list[Away]:
    """Return the sessions that were deleted whole and can be restored."""
    return _away(memory, DELETED, BACKUP)


def destroy(scope: Scope, bundles: Iterable[str]) -> None:
    """Unlink bundles of a session for good, all in one intent. Only a purge does that."""
    if steps := _unlinks(scope.tree, bundles):
        _happen(scope, steps, [])


# The two ways through the journal.


def _leave(
    memory: Memory, scope: Scope, target: str, head: Manifest, evicted: Iterable[str] = ()
) -> None:
    """Move the directory of a session, and its evicted bundles, out of `active/` into a bundle."""
    tree, session = memory.tree, memory._session(scope.name)
    states, artifacts = session.agent_states(), session.artifacts()
    kinds = [*session.kinds, *map(state_history, states)]
    locked = [METADATA, *(kind.file for kind in kinds), *map(state_file, states),
              *map(artifact_file, artifacts)]  # fmt: skip
    with scope.locked(locked, "packing the session"):
        beside, files = _beside(tree, evicted), _contents(tree, scope.directory)
        aside = bundle.write(tree, *_packing(head, {**files, **beside}))
        slot = f"{LEAVING}/{scope.name}+{uuid.uuid4().hex[:8]}"
        try:
            _note_packed(tree, slot, files)
        except OSError:
            _remove(tree, [aside, f"{slot}.json"])
            raise
        steps = [{"bundle": target, "aside": aside}, _renaming(tree, scope.directory, slot)]
        _happen(scope, [*steps, *_unlinks(tree, evicted)], [aside, f"{slot}.json"])
        # Whoever wrote without a lock while the bundle was made wrote into the directory.
        for _ in range(_TRIES):
            now = _contents(tree, slot)
            if now == files:
                break
            aside = bundle.write(tree, *_packing(head, {**now, **beside}))
            _happen(scope, [{"bundle": target, "aside": aside}], [aside])
            # Only now: bytes that the note counts as packed are removed with the directory.
            _note_packed(tree, slot, now)
            files = now


def _enter(
    memory: Memory,
    scope: Scope,
    source: str,
    files: Mapping[str, bytes],
    head: Manifest | None = None,
) -> None:
    """Move a packed session out of a bundle: into `active/`, or with a head into the archive."""
    tree, own = (
        memory.tree,
        {file: raw for file, raw in files.items() if not file.startswith(BESIDE)},
    )
    made: list[str] = []
    try:
        steps: list[dict[str, Any]] = []
        for file, raw in files.items():
            if file not in own:
                made.append(tree.create_temporary(raw))
                path = f"{ARCHIVED}/{scope.name}/{file.removeprefix(BESIDE)}"
                steps.append({"bundle": path, "aside": made[-1]})
        if head is None:
            made.append(_laid_out(tree, own))
            steps.append(_renaming(tree, made[-1], scope.directory))
        else:
            made.append(bundle.write(tree, *_packing(head, own)))
            path = f"{ARCHIVED}/{scope.name}/{ARCHIVE}"
            steps.append({"bundle": path, "aside": made[-1]})
        steps += _unlinks(tree, [source])
    except BaseException:
        _remove(tree, made)
        raise
    _happen(scope, steps, made)


def _happen(scope: Scope, steps: list[dict[str, Any]], made: Iterable[str]) -> None:
    """Record an intent and carry it out. Temporaries that no intent took over are removed."""
    name = scope.name
    try:
        intent = journal.record(scope, steps)
    except OSError as error:
        _remove(scope.tree, made)
        raise errors.StorageFailed(
            f"Could not record the move: {error}.", session_id=name
        ) from error
    try:
        for step in steps:
            journal.carry_out(scope, step)
        journal.forget(scope, intent, steps)
    except OSError as error:
        said = f"The move is recorded, but: {error}."
        raise errors.TransactionPending(said, session_id=name) from error


def _remove(tree: Tree, made: Iterable[str]) -> None:
    for name in made:
        (tree.remove_directory if tree.is_directory(name) else tree.unlink)(name)


def _renaming(tree: Tree, source: str, target: str) -> dict[str, Any]:
    """Return the step that renames a directory. By its inode it is known to be the one meant."""
    return {"directory": source, "to": target, "inode": tree.stat(source).st_ino}


def _unlinks(tree: Tree, paths: Iterable[str]) -> list[dict[str, Any]]:
    versions = ((path, journal.version_of(tree.stat(path))) for path in paths)
    return [{"bundle": path, "aside": None, "was": version} for path, version in versions]


def _beside(tree: Tree, evicted: Iterable[str]) -> dict[str, bytes]:
    """Return the evicted bundles as files of the bundle of a deleted session."""
    return {f"{BESIDE}{path.rpartition('/')[2]}": tree.read(path) for path in evicted}


def _packing(
    head: Manifest, files: Mapping[str, bytes]
) -> tuple[Manifest, list[tuple[Item, bytes]]]:
    """Return the manifest and the items of a packed session."""
    facts = {**head.facts, **digest(head.session, files)} if head.kind == "archive" else head.facts
    pieces = [item_of(file, "", "bundle" if file.startswith(BESIDE) else "file", raw, whole=True)
              for file, raw in files.items()]  # fmt: skip
    return replace(head, facts=facts), pieces


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


def _awake(memory: Memory, files: dict[str, bytes], reason: str) -> dict[str, bytes]:
    """Return the files with metadata that say that the session is in use again."""
    now = render_time(memory.options.clock())
    said: dict[str, Value] = {"status": "active", "status_since": now, "status_reason": reason,
                              "last_accessed": now}  # fmt: skip
    metadata = files.get(METADATA)
    return files | (
        {METADATA: replace_parts(metadata, "session", said, METADATA)} if metadata else {}
    )


def _require_room(memory: Memory, session_id: str, place: str) -> None:
    path = f"{place}/{session_id}" if place == ACTIVE else f"{place}/{session_id}/{ARCHIVE}"
    if memory.tree.exists(path):
        advice = "Move or rename it, then try again; nothing was changed."
        raise Conflict(f"There is a session {session_id!r} in {place}/ by now.",
                       session_id=session_id, advice=advice)  # fmt: skip


def _away(memory: Memory, place: str, name: str) -> list[Away]:
    found: list[Away] = []
    memory._recover_moves()
    for session_id in filter(is_session_id, memory.tree.directories(place)):
        path = f"{place}/{session_id}/{name}"
        if memory.tree.exists(path):
            try:
                said = bundle.read_manifest(memory.tree, path)
            except (SMPError, OSError) as error:
                found.append(Away(session_id, "", "", str(error), "", 0))
                continue
            total = sum(item.length for item in said.items)
            found.append(Away(session_id, said.at, said.by, said.why, said.until or "", total))
    return found


# Directories that have left.


def sweep(memory: Memory, only: str | None = None) -> list[str]:
    """Remove the directories of sessions that have left, when nobody has them open.

    It waits for nobody. Bytes that came after the bundle was made go to quarantine. Return why
    directories could not be removed yet.
    """
    tree, problems = memory.tree, list[str]()
    for name in tree.list(LEAVING):
        session_id, path = name.partition("+")[0], f"{LEAVING}/{name}"
        if not is_session_id(session_id) or (only is not None and session_id != only):
            continue
        scope = memory._scope(session_id)
        options = scope.options._replace(lock_timeout_s=NO_PATIENCE)
        try:
            hurried = Scope(tree, session_id, scope.directory, options)
            with hurried.undisturbed("removing what has left"):
                slot = path.removesuffix(".json")
                if not tree.exists(slot):
                    tree.unlink(f"{slot}.json")  # the note of a directory that never left
                elif path == slot:
                    _sweep_one(memory, slot, session_id)
        except LockTimeout:
            continue  # whoever holds the lock is at work there
        except (SMPError, OSError) as error:
            problems.append(f"{session_id}: {path} cannot be removed yet: {error}")
    return problems


def _sweep_one(memory: Memory, slot: str, session_id: str) -> None:
    tree = memory.tree
    for one in [*tree.walk(slot)]:
        if not one.is_directory:
            with suppress(FileNotFoundError), tree.opened(one.path) as descriptor:
                if not is_left_alone(descriptor):
                    return
    if time.time() - tree.stat(slot).st_ctime <= GRACE_S:
        return
    if not tree.exists(f"{ACTIVE}/{session_id}"):
        scope = Scope(tree, session_id, slot, memory.options)
        for name in tree.list(RETIRED):  # late writes into old versions belong into the files
            if name.startswith(f"{session_id}+"):
                with suppress(FileNotFoundError):
                    rewrite.fold_retired(scope, rewrite.file_of_slot(name))
    _quarantine_unfit(memory, session_id, slot)
    packed = _packed(tree, slot)
    for file, content in _contents(tree, slot).items():
        size, checksum = packed.get(file, (0, 0))
        late = content[size:] if zlib.crc32(content[:size]) == checksum else content
        if late:
            why, at = "written while the session was packed", memory.options.clock()
            set_aside(tree, session_id, file, len(content) - len(late), late, why, at)
    if error := tree.remove_directory(slot):
        raise error
    tree.unlink(f"{slot}.json")


def _note_packed(tree: Tree, slot: str, files: Mapping[str, bytes]) -> None:
    """Write down beside a directory that leaves how much of each file its bundle holds."""
    tree.make_directory(LEAVING)
    sizes = {file: [len(content), zlib.crc32(content)] for file, content in files.items()}
    tree.replace(f"{slot}.json", json.dumps(sizes).encode())


def _packed(tree: Tree, slot: str) -> dict[str, tuple[int, int]]:
    """Return size and checksum of each packed file. Where nobody can tell, no byte is packed."""
    try:
        said = json.loads(tree.read(f"{slot}.json"))
        return {str(file): (int(size), int(checksum)) for file, (size, checksum) in said.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _quarantine_unfit(memory: Memory, session_id: str, top: str) -> list[str]:
    """Quarantine files that no bundle can hold: too deep, or of a name that none of ours has."""
    said: list[str] = []
    for one in memory.tree.walk(top):
        inner = one.path.removeprefix(f"{top}/")
        if one.is_deep or not is_inner_path(inner):
            with suppress(FileNotFoundError):  # it is in a directory that went just now
                deep = f"deeper than {DEEPEST} directories"
                why = deep if one.is_deep else "a name that no bundle can hold"
                moved = move_aside(memory.tree, session_id, one.path, why, memory.options.clock())
                name = f"{inner[:_SHOWN_CHARACTERS]!a}"
                said.append(f"{session_id}: {name} is not in the bundle ({why}); it is in {moved}.")
    return said
