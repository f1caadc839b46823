"""Drops and bytes that come into a session's directory after it was packed. They come back with it.

A program that has a file of the session open goes on writing into it, and a drop may come until the
directory is renamed. So the directory waits in `.smp/leaving/`, its slot, until nobody has it open.
The note beside it has size and checksum of each file as it was packed. Everything else is late.

Late bytes go into the session if it is active again, else into its bundle, in one intent with the
note that counts them as packed: they come once. A new file of an active session is renamed into it.
An edit of bytes that were packed goes to quarantine, because nobody can tell what belongs where.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..disk import bundle, journal, rewrite
from ..disk.bundle import is_inner_path, item_of
from ..disk.locks import NO_PATIENCE
from ..disk.place import ARCHIVE, BACKUP
from ..disk.quarantine import INBOX, quarantine_bytes
from ..disk.scope import Scope
from ..disk.state_name import LeavingName, parse_leaving
from ..disk.tree import is_left_alone, read_from
from ..model.errors import LockTimeout, SMPError, UnsafePath
from ..model.layout import (
    ACCESS_LOG,
    ARCHIVED,
    DELETED,
    LEAVING,
    YAML_INDEXES,
    is_session_id,
)
from ..text.version import is_versioned
from .change import happen, temporaries
from .digest import digest

if TYPE_CHECKING:
    from ..disk.tree import Tree
    from ..memory import Memory

# The kernel does not count a writer that has found the name and not opened it yet.
GRACE_S = 2.0
_DOING = "taking in what came late"
_EDITED = "an edit that came while the session was packed"
_GONE = "written while the session was packed, into a file that is gone since"
_Stamp = tuple[int, int]  # size and checksum of the part of a file that was packed


def note_packed(tree: Tree, slot: str, files: Mapping[str, bytes]) -> str:
    """Write the note of a slot: everything in these files is packed. Return its name."""
    name = f"{slot}.json"
    tree.make_directory(LEAVING)
    tree.replace(name, json.dumps({file: _stamp(raw) for file, raw in files.items()}).encode())
    return name


def sweep(memory: Memory, only: str | None = None) -> list[str]:
    """Take in what came late, and remove the directories that nobody has open. Wait for nobody.

    Return why late bytes could not be taken in, or directories not be removed.
    """
    tree = memory.tree
    problems: list[str] = []
    hurried = memory.with_options(lock_timeout_s=NO_PATIENCE)
    for name in tree.list(LEAVING):
        left = parse_leaving(name)
        if left is None or not is_session_id(left.scope) or only not in (None, left.scope):
            continue
        session_id = left.scope
        slot = f"{LEAVING}/{name.removesuffix('.json')}"
        scope = hurried._scope(session_id)
        try:
            with scope.undisturbed(_DOING, is_new=True):
                if not tree.exists(slot):
                    tree.unlink(f"{slot}.json")  # the note of a directory that never left
                elif not left.is_note and (problem := _settle(scope, slot)):
                    raise problem
        except LockTimeout:
            continue  # whoever holds the lock is at work there
        except (SMPError, OSError) as error:
            problems.append(f"{session_id}: {slot} cannot be removed yet: {error}")
    return problems


def take_in(scope: Scope) -> None:
    """Take in what came late for a session that is about to come back, as far as it is whole.

    The caller holds the upkeep lock. The rest comes with a sweep, into the active session.
    """
    for name in scope.tree.directories(LEAVING):
        if parse_leaving(name) == LeavingName(scope.name, is_note=False):
            _settle(scope, f"{LEAVING}/{name}")  # a sweep reports a file that nobody can take in


@dataclass
class _Late:
    """The late bytes of a slot, as far as they are whole."""

    slot: str
    packed: dict[str, _Stamp]
    is_noted: bool  # whether the note could be read
    files: dict[str, bytes] = field(default_factory=dict)  # that differ from the note, whole
    is_open: bool = False  # whether somebody is writing a file
    problem: SMPError | OSError | None = None  # with a file that nobody can take in

    def rest(self, file: str) -> bytes | None:
        """Return the bytes behind those that were packed; None where these were changed."""
        content = self.files[file]
        size, checksum = self.packed.get(file, (0, 0))
        return content[size:] if zlib.crc32(content[:size]) == checksum else None


def _settle(scope: Scope, slot: str) -> SMPError | OSError | None:
    """Take the late bytes of a slot in, and remove it if nobody can write into it any more.

    Return the problem with a file that nobody can take in, or with the removal.
    """
    tree = scope.tree
    is_active = tree.exists(scope.directory)
    # A change of files that was cut off waits for the session, and folds its old version then.
    if not is_active and not journal.files_of(scope):
        _fold_old_versions(scope, slot)
    late = _look_into(tree, slot)
    if late.files:
        path = _bundle_of(scope)
        if is_active:
            _into_session(scope, late)
        elif path is not None:
            _into_bundle(scope, path, late)
        else:
            for file in late.files:
                _quarantine(scope, late, file, _GONE)
            journal.happen(scope, [_counting(late)])
    is_recent = time.time() - tree.stat(slot).st_ctime <= GRACE_S
    if late.problem or late.is_open or is_recent:
        return late.problem
    if error := tree.remove_directory(slot):
        return error
    tree.unlink(f"{slot}.json")
    return None


def _fold_old_versions(scope: Scope, slot: str) -> None:
    """Fold late writes into old versions of files into the files of the slot."""
    left = Scope(scope.tree, scope.name, slot, scope.options)
    for old in rewrite.old_versions(scope.tree).values():
        if old.scope == scope.name:
            with suppress(FileNotFoundError):
                rewrite.fold_retired(left, old.file)


def _bundle_of(scope: Scope) -> str | None:
    """Return the bundle that a session, which is not active, is in."""
    paths = (f"{ARCHIVED}/{scope.name}/{ARCHIVE}", f"{DELETED}/{scope.name}/{BACKUP}")
    return next(filter(scope.tree.exists, paths), None)


# Looking.


def _stamp(content: bytes) -> _Stamp:
    return len(content), zlib.crc32(content)


def _look_into(tree: Tree, slot: str) -> _Late:
    """Return the late bytes of a slot. A file that somebody is writing has to wait."""
    late = _Late(slot, *_read_note(tree, slot))
    for one in tree.walk(slot):
        file = one.path.removeprefix(f"{slot}/")
        if one.problem or not is_inner_path(file):
            advice = "It is too deep, or its name is odd: move it out of there."
            late.problem = UnsafePath(f"No bundle can hold {one.path[:100]!a}.", advice=advice)
        elif not one.is_directory and file not in YAML_INDEXES:
            try:
                content = _whole(tree, one.path)
            except (SMPError, OSError) as error:
                late.problem = error
                continue
            if content is None:
                late.is_open = True
            elif file not in late.packed or late.packed[file] != _stamp(content):
                late.files[file] = content
    return late


def _read_note(tree: Tree, slot: str) -> tuple[dict[str, _Stamp], bool]:
    """Return the stamp of each packed file, and whether the note could be read."""
    try:
        said = json.loads(tree.read(f"{slot}.json"))
        return {str(file): (int(size), int(check)) for file, (size, check) in said.items()}, True
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}, False  # nobody can tell, so no byte counts as packed


def _whole(tree: Tree, path: str) -> bytes | None:
    """Return the content of a file; None while somebody is writing it."""
    with tree.opened(path) as descriptor:
        content = read_from(descriptor, 0)
        # Whoever wrote while we read, and is done since, has made it longer.
        is_whole = is_left_alone(descriptor) and os.fstat(descriptor).st_size == len(content)
        return content if is_whole else None


# Taking in.


def _counting(late: _Late) -> journal.Step:
    """Return the step that counts everything that was looked at as packed."""
    packed = late.packed | {file: _stamp(content) for file, content in late.files.items()}
    return {"left": late.slot, "packed": packed}


def _quarantine(scope: Scope, late: _Late, file: str, why: str) -> None:
    rest = late.rest(file)
    content = late.files[file]
    piece = content if rest is None else rest
    if piece and file != ACCESS_LOG:  # readings are no memories
        quarantine_bytes(scope, file, piece, why, len(content) - len(piece))


def _into_bundle(scope: Scope, path: str, late: _Late) -> None:
    """Make a bundle with the late bytes, which replaces the old one."""
    tree = scope.tree
    old = bundle.read(tree, path)
    files = dict(old.files())
    for file in late.files:
        merged = _merged(files.get(file), late, file)
        if merged is None:
            _quarantine(scope, late, file, _EDITED if file in files else _GONE)
        else:
            files[file] = merged
    head = old.manifest
    if head.kind == "archive":
        head = replace(head, facts={**head.facts, **digest(head.session, files)})
    pieces = [item_of(file, "", "file", raw, whole=True) for file, raw in files.items()]
    with temporaries(tree) as made:
        made.append(bundle.write(tree, head, pieces))
        happen(scope, [{"bundle": path, "aside": made[0]}, _counting(late)], made)


def _merged(packed: bytes | None, late: _Late, file: str) -> bytes | None:
    """Return a file of a bundle with its late bytes; None where they do not fit behind it."""
    content = late.files[file]
    if packed is None:
        return None if file in late.packed else content
    if content.startswith(packed):
        return content
    rest = late.rest(file) if file in late.packed else None
    if rest is None:
        return None
    return packed + (b"" if packed.endswith(b"\n") or not packed else b"\n") + rest


def _into_session(scope: Scope, late: _Late) -> None:
    """Bring new files into a session that is active again, and append bytes to those it has."""
    tree = scope.tree
    appended: dict[str, bytes] = {}
    for file in [*late.files]:
        rest = late.rest(file)
        is_there = tree.exists(scope.path(file))
        if _is_new(scope, late, file):
            _bring(scope, late, file)
            del late.files[file]
        elif is_there and late.is_noted and rest is not None and is_versioned(file):
            appended[file] = rest
        elif not is_there or tree.read(scope.path(file)) != late.files[file]:
            _quarantine(scope, late, file, _EDITED if is_there else _GONE)
    if not late.files:
        return
    with scope.locked(appended, _DOING):
        steps = [journal.appending(scope, file, rest) for file, rest in appended.items() if rest]
        happen(scope, [*steps, _counting(late)], [])


def _is_new(scope: Scope, late: _Late, file: str) -> bool:
    """Return whether a file was not packed, so that it can come into the session as it is."""
    is_drop = file.startswith(f"{INBOX}/")
    is_free = is_drop or not scope.tree.exists(scope.path(file))
    return late.is_noted and file not in late.packed and is_free


def _bring(scope: Scope, late: _Late, file: str) -> None:
    """Rename a file of the slot into the session: whoever is writing it goes on there."""
    source, target = f"{late.slot}/{file}", scope.path(file)
    scope.tree.make_directory(target.rpartition("/")[0], inside=scope.directory)
    named = scope.tree.rename_beside(source, target)
    for name in (named, source):
        scope.tree.sync_parent(name)
