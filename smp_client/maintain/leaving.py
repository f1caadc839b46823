"""The directory of a session that is put away: moved aside in one step, and removed only when nobody can write into it any more.

A program that has one of its files open goes on writing into it, wherever the directory is. So before it is removed it is compared
with the copy that was made of it, and whatever came late is brought into the copy; or, where the session is back by then, into the
session. Until that is done all of it stays under `.smp/leaving/`, beside a list of what the copy holds.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import rewrite
from ..errors import CorruptionDetected, LockTimeout, SMPError
from ..files import DEEPEST, is_left_alone, nobody_writes, read_from
from ..layout import ACTIVE, LEAVING, RETIRED, check_session_id
from ..locks import NO_PATIENCE, lock
from ..packing import Member, is_inner_path, member_of, plain_files
from ..quarantine import move_aside, set_aside
from ..scope import UPKEEP, Scope

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import Memory

# Somebody may have found the name just before it changed, and not have opened the file yet, which the kernel does not count.
GRACE_S = 2.0
_PAUSE_S = 0.05
_SHOWN_CHARACTERS = 60
_QUIET_S = 0.1  # after which a program that has a file open is not in the middle of a write


def leave(scope: Scope, copy: str, members: list[Member]) -> None:
    """Moves the directory of a scope aside; `copy` says where its copy is: archived or deleted."""
    tree = scope.tree
    slot = f"{LEAVING}/{scope.name}+{uuid.uuid4().hex[:8]}"
    tree.make_directory(LEAVING)
    tree.create(f"{slot}.json", _manifest(scope.name, copy, members))
    tree.rename_new(scope.directory, slot)
    tree.sync_parent(scope.directory)
    tree.sync_parent(slot)


def set_unfit_aside(tree: Tree, scope: str, directory: str, at: datetime) -> list[str]:
    """Move what no archive can hold to quarantine: what is too deep, or has a name that none of ours has.

    Return a sentence for each.
    """
    said: list[str] = []
    for one in tree.walk(directory):
        inner = one.path.removeprefix(f"{directory}/")
        if not one.is_deep and is_inner_path(inner):
            continue
        with suppress(FileNotFoundError):  # it is in a directory that went just now
            why = f"deeper than {DEEPEST} directories" if one.is_deep else "a name that no archive can hold"
            said.append(f"{scope}: {inner[:_SHOWN_CHARACTERS]!a} is not in the copy ({why}); it is in"
                        f" {move_aside(tree, scope, one.path, why, at)}.")  # fmt: skip
    return said


def is_leaving(tree: Tree, session_id: str) -> bool:
    """Whether something is left of it, or it was about to go."""
    return any(name.startswith(f"{session_id}+") for name in tree.list(LEAVING))


def finish_all(memory: Memory) -> list[str]:
    """Finishes what is left of sessions that were put away, and gives back what could not be. Waits for nobody."""
    problems: list[str] = []
    for session_id in sorted({name.partition("+")[0] for name in memory.tree.list(LEAVING)}):
        try:
            with lock(memory.tree, session_id, UPKEEP, NO_PATIENCE, "removing what was put away"):
                finish(memory, session_id)
        except LockTimeout:
            # Whoever has it is at work there.
            continue
        except (SMPError, OSError) as error:
            problems.append(f"{session_id}: what is left of it cannot be removed yet: {error}")
    return problems


def finish(memory: Memory, session_id: str) -> bool:
    """The same for one session, under the lock of its passes. Gives back whether nothing is left."""
    names = [name.removesuffix(".json") for name in memory.tree.list(LEAVING) if name.endswith(".json")]
    done = [_tried(memory, f"{LEAVING}/{name}") for name in names if name.partition("+")[0] == session_id]
    return all(done)


def _tried(memory: Memory, slot: str) -> bool:
    try:
        return _finish(memory, slot)
    except LockTimeout:
        return False  # somebody is writing one of its files just now: it is tried again


def finish_soon(memory: Memory, session_id: str) -> bool:
    """The same, waiting for as long as what is left has to stay in any case."""
    until = time.monotonic() + GRACE_S + _PAUSE_S
    while not (is_done := finish(memory, session_id)) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
    return is_done


def _finish(memory: Memory, slot: str) -> bool:
    tree = memory.tree
    if not tree.exists(slot):
        # It was never moved, or is removed already.
        tree.unlink(f"{slot}.json")
        return True
    try:
        manifest = json.loads(tree.read(f"{slot}.json"))
        session_id = check_session_id(manifest["session"])
    except (ValueError, KeyError, TypeError, RecursionError) as wrong:
        advice = f"Look into {slot}, bring back what you need, and remove both."
        raise CorruptionDetected(f"{slot}.json is nothing that SMP has written.", advice=advice) from wrong
    scope = Scope(tree, session_id, slot, memory.options)
    is_back = tree.exists(f"{ACTIVE}/{session_id}")
    is_copied = not is_back and _is_copied(memory, manifest)
    if is_copied:
        _fold_old_versions(scope)
    set_unfit_aside(tree, session_id, slot, memory.options.clock())
    contents = {file: _settled(scope, file) for file in plain_files(tree, slot)}
    known = _members(manifest)
    late = {file: content for file, content in contents.items() if content is not None and member_of(file, content) not in known}
    if late and is_copied and None not in contents.values():
        manifest["members"] = [list(member) for member in _repack(memory, session_id, manifest["copy"], slot)]
        tree.replace(f"{slot}.json", json.dumps(manifest).encode())
    elif late and not is_copied:
        _bring_into(memory, scope, manifest, late)
    is_closed = all(_is_closed(scope, file) for file in plain_files(tree, slot))
    if not is_closed or None in contents.values() or time.time() - tree.stat(slot).st_ctime <= GRACE_S:
        return False
    if is_copied and _old_versions(scope):
        return False
    if error := tree.remove_directory(slot):
        raise error
    tree.unlink(f"{slot}.json")
    return True


def _is_copied(memory: Memory, manifest: dict[str, Any]) -> bool:
    """Whether what the archive, or the backup, holds is still what this directory held. It is not where the session came back and
    was put away again, or where something was deleted from the archive: that must not be overwritten."""
    from . import archive, removal

    held = archive.held if manifest["copy"] == "archived" else removal.held
    return held(memory.tree, str(manifest["session"])) == _members(manifest)


def _settled(scope: Scope, file: str) -> bytes | None:
    """The content, if nobody is in the middle of a write; one that crosses a page is seen in two parts."""
    with scope.tree.opened(scope.path(file)) as descriptor:
        content = read_from(descriptor, 0)
        closed = nobody_writes(descriptor)
        status = os.fstat(descriptor)
    is_at_rest = content.endswith(b"\n") and time.time() - status.st_mtime > _QUIET_S
    return content if status.st_size == len(content) and (closed or is_at_rest) else None


def _manifest(session_id: str, copy: str, members: list[Member]) -> bytes:
    said: dict[str, Any] = {"version": 1, "session": session_id, "copy": copy, "members": members}
    return json.dumps(said).encode()


def _members(manifest: dict[str, Any]) -> set[Member]:
    return {Member(*member) for member in manifest["members"]}


def _repack(memory: Memory, session_id: str, copy: str, slot: str) -> list[Member]:
    from . import archive, removal

    repack = archive.repack if copy == "archived" else removal.repack
    return repack(memory, session_id, slot)


def _is_closed(scope: Scope, file: str) -> bool:
    with scope.tree.opened(scope.path(file), os.O_RDONLY) as descriptor:
        return is_left_alone(descriptor)


def _old_versions(scope: Scope) -> list[str]:
    return [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")]


def _fold_old_versions(scope: Scope) -> None:
    for file in sorted({rewrite.file_of_slot(name) for name in _old_versions(scope)}):
        with lock(scope.tree, scope.name, file, NO_PATIENCE, "folding in late writes"):
            rewrite.fold_retired(scope, file)


def _bring_into(memory: Memory, scope: Scope, manifest: dict[str, Any], late: Mapping[str, bytes]) -> None:
    """What came late, after the session was brought back: behind what it has now. Where that cannot be done it is set aside, and
    nothing else if it was only added."""
    known = {member.path: member for member in _members(manifest)}
    target = memory._scope(scope.name)
    for file, content in sorted(late.items()):
        before = known.get(file)
        is_longer = before is not None and member_of(file, content[: before.size_bytes]) == before
        extra = content[before.size_bytes :] if is_longer and before is not None else content
        if is_longer and scope.tree.exists(target.path(file)):
            with lock(scope.tree, scope.name, file, NO_PATIENCE, "bringing in late writes"):
                rewrite.append_extra(target, target.path(file), extra)
        else:
            why = "written while the session was put away and brought back"
            set_aside(scope.tree, scope.name, file, 0, extra, why, memory.options.clock())
        known[file] = member_of(file, content)
        scope.tree.replace(f"{scope.directory}.json", _manifest(scope.name, manifest["copy"], list(known.values())))
