"""Replacing a file that others may edit without a lock, and losing nothing of theirs.

The new content is exchanged with the old in one step. What came out is compared with what had been read: bytes that somebody
appended meanwhile are appended to the new file, and an edit makes the change be worked out again on top of it. The old file
stays in `.smp/retired/` while a writer has it open, and for a while in any case; what comes into it is folded in by whoever locks
the file next.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..model.layout import RETIRED
from ..text.format import is_plain, plain
from .quarantine import set_aside
from .tree import GRACE_S as QUIET_S
from .tree import nobody_writes, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope
    from .tree import Tree

# A writer that has found the old file by its name, and is held up before it has opened it, is not counted by the kernel yet.
GRACE_S = 2.0
_TRIES, _PAUSE_S = 50, 0.002  # how long somebody who is writing at this moment is waited for
_ODD = "the file as it was before SMP wrote it in its own style"
_CROSSED = "an edit that a replacement crossed"


def rewrite(scope: Scope, file: str, transform: Callable[[bytes], bytes]) -> bytes:
    """Puts `transform(content)` in the place of the content, under the file's lock; gives back what it wrote.

    `transform` may run again on what an unlocked editor wrote meanwhile, so it must depend on nothing but its argument.
    """
    path = scope.path(file)
    try:
        before = read_whole(scope.tree, path)
    except FileNotFoundError:
        after = transform(b"")
        scope.tree.create(path, after)
        return after
    after = transform(before)
    if after != before:
        _keep_odd(scope, file, before)
    slots: dict[str, bytes] = {}  # what came out, as far as it is dealt with; more may come at any moment
    while after != before:
        slot = _prepare(scope, file, before, after)
        scope.tree.exchange(slot, path)
        scope.tree.sync_parent(path)
        came, closed = _read(scope.tree, slot)
        if came.startswith(before):
            # What somebody is still writing is taken in when it is whole.
            came = before if closed is False else came
            slots[_take_in(scope, file, slot, came[len(before) :])] = came
            break
        slots[slot] = came
        # Somebody edited the file: work the change out again on top of the edit, and exchange that for our first try.
        try:
            again = transform(came)
        except BaseException:
            # It cannot be done on top of the edit (the record is gone, say): the edit goes back into its place.
            _put_back(scope, file, slot, after)
            raise
        if again == after:
            set_aside(scope.tree, scope.name, file, 0, came, _CROSSED, scope.options.clock())
        _keep_odd(scope, file, came)
        before, after = after, again
    for slot, came in slots.items():
        _retire(scope, file, slot, came)
    return after


def _keep_odd(scope: Scope, file: str, content: bytes) -> None:
    """Set the bytes of a file aside that is not plain, and so about to be rendered anew. Secrets stay out."""
    if content.strip() and not is_plain(file, content):
        text, _ = scope.redaction.redacted_text(content.decode("utf-8", "surrogateescape"))
        old = text.encode("utf-8", "surrogateescape")
        set_aside(scope.tree, scope.name, file, 0, old, _ODD, scope.options.clock())


def make_plain(scope: Scope, file: str) -> None:
    """Render a file anew, under its lock, where records cannot be appended to it."""
    rewrite(scope, file, lambda content: plain(file, content))


def read_whole(tree: Tree, path: str) -> bytes:
    """The content at a moment when nobody is in the middle of a write; one that crosses a page comes in two parts.

    A program that goes on and on writing, or has the file open and has not written for a while, is not waited for.
    """
    for _ in range(_TRIES):
        content, closed = _read(tree, path)
        quiet = time.time() - tree.stat(path).st_mtime > _TRIES * _PAUSE_S
        if closed or quiet or (closed is None and content.endswith(b"\n")):
            break
        time.sleep(_PAUSE_S)
    return content


def _read(tree: Tree, path: str) -> tuple[bytes, bool | None]:
    """The content, and whether it is whole because nobody had the file open for writing; None where the kernel cannot tell."""
    with tree.opened(path) as descriptor:
        content = read_from(descriptor, 0)
        closed = nobody_writes(descriptor)
        # Whoever was writing while we read, and is done since, has made it longer.
        return content, closed and os.fstat(descriptor).st_size == len(content)


def _put_back(scope: Scope, file: str, slot: str, ours: bytes) -> None:
    path = scope.path(file)
    scope.tree.exchange(slot, path)
    scope.tree.sync_parent(path)
    # From here on it is our content that was replaced, by the edit.
    slot = _renamed(scope, slot, _slot(scope, file, scope.tree.stat(path).st_ino, ours))
    came, closed = _read(scope.tree, slot)
    if came.startswith(ours):
        came = ours if closed is False else came
        slot = _take_in(scope, file, slot, came[len(ours) :])
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
    """Takes in what came into old files of `file` after they were replaced, and removes those that nobody can write any more."""
    beginning = _slot_prefix(scope, file)
    for name in scope.tree.list(RETIRED):
        if name.startswith(beginning) and not is_resting(name):
            slot = f"{RETIRED}/{name}"
            _fold(scope, file, _finish_exchange(scope, file, slot) if slot.endswith(".old") else slot)


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
    inode, size, checksum = _said(slot)
    status = scope.tree.stat(slot)
    if status.st_ino == inode:
        # The exchange never happened: this is the new content of a rewrite that was cut off.
        scope.tree.unlink(slot)
        return
    is_recent = abs(time.time() - status.st_ctime) <= GRACE_S
    if is_recent and status.st_size == size:
        # It has to stay anyway, and is not worth reading yet.
        return
    content, closed = _read(scope.tree, slot)
    if not (closed or time.time() - scope.tree.stat(slot).st_mtime > QUIET_S):
        return
    if zlib.crc32(content[:size]) == checksum:
        slot = _take_in(scope, file, slot, content[size:])
    else:
        set_aside(scope.tree, scope.name, file, 0, content, _CROSSED, scope.options.clock())
    if is_recent or closed is False:
        _mark(scope, file, slot, content, rests=bool(closed))
    else:
        scope.tree.unlink(slot)


def _take_in(scope: Scope, file: str, slot: str, extra: bytes) -> str:
    """Appends what came into an old file to the new one, once: the name of the old one says first where, should a crash follow.

    Gives back that name.
    """
    if not extra:
        return slot
    path = scope.path(file)
    try:
        begun_at = _begun_at(slot)
        if begun_at is None or extra not in scope.tree.read(path)[begun_at:]:
            name = f"{slot.rpartition('+')[0]}+{os.urandom(4).hex()}-{scope.tree.stat(path).st_size}"
            slot = _renamed(scope, slot, name)
            scope.tree.sync_parent(slot)
            append_extra(scope, path, extra)
    except FileNotFoundError:
        why = "written into an old version of a file that is gone"
        set_aside(scope.tree, scope.name, file, 0, extra, why, scope.options.clock())
    return slot


def _retire(scope: Scope, file: str, slot: str, folded: bytes) -> None:
    """Marks the old file with what is folded in already, and leaves it to whoever locks the file next."""
    with scope.tree.opened(slot) as descriptor:
        rests = bool(nobody_writes(descriptor)) and os.fstat(descriptor).st_size == len(folded)
    slot = _mark(scope, file, slot, folded, rests=rests)
    if not rests:
        _fold(scope, file, slot)


def _mark(scope: Scope, file: str, slot: str, folded: bytes, *, rests: bool) -> str:
    inode, *said = _said(slot)
    if not rests and said == [len(folded), zlib.crc32(folded)] and _begun_at(slot) is None:
        # Renamed, it would count as just retired.
        return slot
    return _renamed(scope, slot, _slot(scope, file, inode, folded) + (f"@{int(time.time())}" if rests else ""))


def is_resting(name: str) -> bool:
    """Whether nobody had it open, and it stays only for the while that it has to: nothing is to be done yet, not even a look."""
    since = name.rpartition("@")[2]
    return since.isdecimal() and abs(time.time() - int(since)) <= GRACE_S


def _renamed(scope: Scope, slot: str, name: str) -> str:
    scope.tree.rename(slot, name)
    return name


def _said(slot: str) -> list[int]:
    """The inode of what replaced it, and size and checksum of what is folded in."""
    return [int(number) for number in slot.split("+")[-4:-1]]


def _begun_at(slot: str) -> int | None:
    """Where in the new file somebody was about to append what is not folded in."""
    at = slot.rpartition("+")[2].partition("-")[2]
    return int(at) if at else None


def _prepare(scope: Scope, file: str, before: bytes, after: bytes) -> str:
    """The new content, durable, under a name that tells after a crash whether the exchange has happened and what was read."""
    temporary = scope.tree.create_temporary(after)
    slot = _slot(scope, file, scope.tree.stat(temporary).st_ino, before)
    scope.tree.make_directory(RETIRED)
    scope.tree.rename(temporary, slot)
    return slot


def _slot(scope: Scope, file: str, inode: int, content: bytes) -> str:
    return f"{RETIRED}/{_slot_prefix(scope, file)}{inode}+{len(content)}+{zlib.crc32(content)}+{os.urandom(4).hex()}"


def _slot_prefix(scope: Scope, file: str) -> str:
    return f"{scope.name}+{file.replace('/', '+')}+"
