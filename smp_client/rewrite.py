"""Replacing a file that others may edit without a lock, and losing nothing of theirs.

The new content is exchanged with the old in one step. What came out is compared with what had been read: bytes that somebody
appended meanwhile are appended to the new file, and an edit makes the change be worked out again on top of it. A writer that
still has the old file open keeps it alive in `.smp/retired/`, and what it adds is folded in by whoever locks the file next.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from .files import is_quiet, nobody_writes, read_from, sync, write_all
from .layout import RETIRED
from .quarantine import set_aside

if TYPE_CHECKING:
    from .scope import Scope


def rewrite(scope: Scope, file: str, transform: Callable[[bytes], bytes]) -> bytes:
    """Puts `transform(content)` in the place of the content, under the file's lock; gives back what it wrote.

    `transform` may run again on what an unlocked editor wrote meanwhile, so it must depend on nothing but its argument.
    """
    path = scope.path(file)
    try:
        before = scope.tree.read(path)
    except FileNotFoundError:
        after = transform(b"")
        scope.tree.create(path, after)
        return after
    after = transform(before)
    slots: dict[str, bytes] = {}  # what came out, as far as it is dealt with; more may come at any moment
    while after != before:
        slot = _prepare(scope, file, before, after)
        scope.tree.exchange(slot, path)
        scope.tree.sync_parent(path)
        came = slots[slot] = scope.tree.read(slot)
        if came.startswith(before):
            append_extra(scope, path, came[len(before) :])
            break
        # Somebody edited the file: work the change out again on top of the edit, and exchange that for our first try.
        try:
            again = transform(came)
        except BaseException:
            # It cannot be done on top of the edit (the record is gone, say): the edit goes back into its place.
            _put_back(scope, file, slot, after)
            raise
        if again == after:
            set_aside(scope.tree, scope.name, file, 0, came, "an edit that a replacement crossed", scope.options.clock())
        before, after = after, again
    for slot, came in slots.items():
        _retire(scope, file, slot, came)
    return after


def _put_back(scope: Scope, file: str, slot: str, ours: bytes) -> None:
    path = scope.path(file)
    scope.tree.exchange(slot, path)
    scope.tree.sync_parent(path)
    came = scope.tree.read(slot)
    if came.startswith(ours):
        append_extra(scope, path, came[len(ours) :])
    else:
        set_aside(scope.tree, scope.name, file, 0, came, "an edit that crossed a change that failed", scope.options.clock())
    _retire(scope, file, slot, came)


def append_extra(scope: Scope, path: str, extra: bytes) -> None:
    """Adds bytes that an unlocked writer had put behind the old content."""
    if not extra:
        return
    with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
        size = os.fstat(descriptor).st_size
        fresh_line = b"" if not size or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
        write_all(descriptor, fresh_line + extra)
        sync(descriptor)


def fold_retired(scope: Scope, file: str) -> None:
    """Takes in what came into old files of `file` after they were replaced, and removes those that nobody writes any more."""
    beginning = _slot_prefix(scope, file)
    for name in scope.tree.list(RETIRED):
        if name.startswith(beginning):
            slot = f"{RETIRED}/{name}"
            _fold(scope, file, _finish_exchange(scope, file, slot) if name.endswith(".old") else slot)


def _finish_exchange(scope: Scope, file: str, aside: str) -> str:
    """What an exchange without the system's help was doing when it was cut off (see `files.Tree.exchange`)."""
    slot = aside.removesuffix(".old")
    if scope.tree.stat(aside).st_ino == scope.tree.stat(scope.path(file)).st_ino:
        scope.tree.unlink(aside)
    else:
        scope.tree.rename(aside, slot)
    return slot


def file_of_slot(name: str) -> str:
    """The file that an entry of `.smp/retired/` is an old version of."""
    return "/".join(name.split("+")[1:-4])


def _fold(scope: Scope, file: str, slot: str) -> None:
    inode, size, checksum = (int(number) for number in slot.split("+")[-4:-1])
    with scope.tree.opened(slot) as descriptor:
        status = os.fstat(descriptor)
        if status.st_ino == inode:
            # The exchange never happened: this is the new content of a rewrite that was cut off.
            scope.tree.unlink(slot)
            return
        closed = nobody_writes(descriptor)
        content = read_from(descriptor, 0)
        if not (closed or is_quiet(descriptor)):
            return
    if zlib.crc32(content[:size]) == checksum:
        extra = content[size:]
        if extra.strip() and extra not in scope.tree.read(scope.path(file)):
            append_extra(scope, scope.path(file), extra)
    else:
        set_aside(scope.tree, scope.name, file, 0, content, "an edit that crossed an interrupted rewrite", scope.options.clock())
    _finish(scope, file, slot, content, removable=bool(closed) or closed is None)


def _retire(scope: Scope, file: str, slot: str, folded: bytes) -> None:
    """Removes the old file if nobody can write to it any more; else keeps it, marked with what is folded in already."""
    with scope.tree.opened(slot) as descriptor:
        closed = nobody_writes(descriptor)
        content = read_from(descriptor, 0)
    if closed and content.startswith(folded):
        append_extra(scope, scope.path(file), content[len(folded) :])
    elif closed:
        set_aside(scope.tree, scope.name, file, 0, content, "an edit that a replacement crossed", scope.options.clock())
    _finish(scope, file, slot, content if closed else folded, removable=bool(closed))


def _finish(scope: Scope, file: str, slot: str, folded: bytes, *, removable: bool) -> None:
    if removable:
        scope.tree.unlink(slot)
    else:
        scope.tree.rename(slot, _slot(scope, file, int(slot.split("+")[-4]), folded))


def _prepare(scope: Scope, file: str, before: bytes, after: bytes) -> str:
    """The new content, durable, under a name that tells after a crash whether the exchange has happened and what was read."""
    temporary = scope.tree.create_temporary(after)
    slot = _slot(scope, file, scope.tree.stat(temporary).st_ino, before)
    scope.tree.make_directory(RETIRED)
    scope.tree.rename(temporary, slot)
    return slot


def _slot(scope: Scope, file: str, inode: int, content: bytes) -> str:
    return f"{RETIRED}/{_slot_prefix(scope, file)}{inode}+{len(content)}+{zlib.crc32(content)}+{uuid.uuid4().hex[:8]}"


def _slot_prefix(scope: Scope, file: str) -> str:
    return f"{scope.name}+{file.replace('/', '+')}+"
