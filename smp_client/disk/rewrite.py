"""Replacing a file that others may edit without a lock, and losing nothing of theirs.

The new content is exchanged with the old in one step. The old file is then compared with the bytes
that had been read: bytes that somebody appended meanwhile are appended to the new file, and after
an edit the change is worked out again on top of it. The old file stays in `.smp/retired/` while a
writer has it open, and for a while in any case; whoever locks the file next folds late bytes in.

The name of an old file, its slot, ends with: the inode of the new file, size and checksum of the
bytes that are folded in, and a unique part.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..model.layout import RETIRED
from ..redaction.redact import WORD
from ..text.format import is_plain
from ..text.values import BadYaml, decode, load, render_lines
from .quarantine import A_COPY, quarantine_bytes, quarantine_entry
from .state_name import OldName, flat, parse_old
from .tree import GRACE_S as QUIET_S
from .tree import nobody_writes, read_from

if TYPE_CHECKING:
    from .scope import Scope
    from .tree import Tree

# A writer that has found the old file, and has not opened it yet, is not counted by the kernel.
GRACE_S = 2.0
_TRIES, _PAUSE_S = 50, 0.002  # how long somebody who is writing at this moment is waited for
_CROSSED = "an edit that a replacement crossed"
_GONE = "written into an old version of a file that is gone"
_NOT_A_VERSION = "in the place of an old version, and not a plain file: SMP has not made it"


def rewrite(scope: Scope, file: str, transform: Callable[[bytes], bytes]) -> bytes:
    """Put `transform(content)` in the place of the content, under the file's lock, and return it.

    `transform` may run again on an unlocked edit, so it must depend on nothing but its argument.
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
        keep_odd(scope, file, before)
    crossed: tuple[str, bytes] | None = None  # a slot with somebody's edit, and its content
    while after != before:
        temporary = scope.tree.create_temporary(after)
        # The name tells after a crash whether the exchange has happened, and which bytes were read.
        slot = _slot(scope, file, scope.tree.stat(temporary).st_ino, before)
        scope.tree.make_directory(RETIRED)
        scope.tree.rename(temporary, slot)
        scope.tree.exchange(slot, path)
        scope.tree.sync_parent(path)
        if crossed:
            # Only now: before, a crash would have left the edit nowhere but in its slot.
            _count_in(scope, file, *crossed)
            crossed = None
        came, _ = _read(scope.tree, slot)
        if came.startswith(before):
            _fold(scope, file, slot)
            break
        # Somebody edited the file: work the change out on top of that, and exchange our first try.
        try:
            again = transform(came)
        except BaseException:
            # It cannot be done there (the record is gone, say): the edit goes back into its place,
            # and our content is the old file.
            scope.tree.exchange(slot, path)
            scope.tree.sync_parent(path)
            scope.tree.rename(slot, _slot(scope, file, scope.tree.stat(path).st_ino, after))
            raise
        if again == after:
            quarantine_bytes(scope, file, came, _CROSSED)
        keep_odd(scope, file, came)
        crossed = slot, came
        before = after
        after = again
    if crossed:
        _count_in(scope, file, *crossed)
    return after


def read_whole(tree: Tree, path: str) -> bytes:
    """Return the content at a moment when nobody is in the middle of a write.

    A program that goes on writing, or has not written for a while, is not waited for.
    """
    for _ in range(_TRIES):
        content, closed = _read(tree, path)
        quiet = time.time() - tree.stat(path).st_mtime > _TRIES * _PAUSE_S
        if closed or quiet or (closed is None and content.endswith(b"\n")):
            break
        time.sleep(_PAUSE_S)
    return content


def fold_retired(scope: Scope, file: str) -> None:
    """Take in bytes that came into old files of `file`. Remove those that nobody can write."""
    for name, old in old_versions(scope.tree).items():
        if not old.is_of(scope.name, file):
            continue
        slot = f"{RETIRED}/{name}"
        if old.is_aside:
            # An exchange without the system's help was cut off, see `Tree.exchange`.
            aside, slot = slot, slot.removesuffix(".old")
            if scope.tree.stat(aside).st_ino == scope.tree.stat(scope.path(file)).st_ino:
                scope.tree.unlink(aside)
            else:
                scope.tree.rename(aside, slot)
        _fold(scope, file, slot)


def old_versions(tree: Tree) -> dict[str, OldName]:
    """Return the old versions of all files by their names in `.smp/retired/`."""
    parsed = {name: parse_old(name) for name in tree.entries_known(RETIRED)}
    return {name: old for name, old in parsed.items() if old is not None}


def files_to_fold(scope: Scope) -> list[str]:
    """Return the files of a scope with an old version that got late bytes, or is past its grace."""
    found: set[str] = set()
    for name, old in old_versions(scope.tree).items():
        if old.scope == scope.name and old.file not in found:
            with suppress(FileNotFoundError):
                status = scope.tree.stat(f"{RETIRED}/{name}")
                if status.st_size != old.size or not _is_recent(status):
                    found.add(old.file)
    return sorted(found)


def _is_recent(status: os.stat_result) -> bool:
    return abs(time.time() - status.st_ctime) <= GRACE_S


def _read(tree: Tree, path: str) -> tuple[bytes, bool | None]:
    """Return the content, and whether it is whole; None where the kernel cannot tell."""
    with tree.opened(path) as descriptor:
        content = read_from(descriptor, 0)
        closed = nobody_writes(descriptor)
        # Whoever wrote while we read, and is done since, has made it longer.
        return content, closed and os.fstat(descriptor).st_size == len(content)


def keep_odd(scope: Scope, file: str, content: bytes) -> None:
    """Quarantine a file that is not plain, and so about to be rendered anew, without secrets."""
    if not content.strip() or is_plain(file, content):
        return
    # A copy: nothing is lost where redaction is off, and a secret that must go has no second home.
    redaction = scope.redaction._replace(enabled=True)
    given = content.decode("utf-8", "surrogateescape")
    text, _ = redaction.redacted_value(given)
    with suppress(BadYaml):
        value = load(decode(content))
        secrets = [secret.strip() for secret in redaction.secrets_by_key(value)]
        if not all(secret in given for secret in secrets):  # spelled with escapes, or in two lines
            text = render_lines({"content": redaction.redacted_value(value)[0]})
        for secret in secrets:
            text = text.replace(secret, WORD)
    quarantine_bytes(scope, file, text.encode("utf-8", "surrogateescape"), A_COPY)


def _fold(scope: Scope, file: str, slot: str) -> None:
    inode = _named(slot).inode
    status = scope.tree.stat(slot)
    if not stat.S_ISREG(status.st_mode):
        quarantine_entry(scope, slot, _NOT_A_VERSION)
        return
    if status.st_nlink > 1:
        return  # a backup program gave it a second name: it waits until that is gone
    if status.st_ino == inode:
        # The exchange never happened: this is the new content of a rewrite that was cut off.
        scope.tree.unlink(slot)
        return
    old = _look_into(scope.tree, slot, status)
    if old is None:
        return
    following = None if old.may_go else _slot(scope, file, inode, old.content)
    if old.late and scope.tree.exists(scope.path(file)):
        scope.fold(file, old.late, slot, following)
        return
    if old.late or not old.is_same:
        late = old.late or old.content
        quarantine_bytes(scope, file, late, _GONE if old.is_same else _CROSSED)
    if following is None:
        scope.tree.unlink(slot)
    elif old.late or not old.is_same:
        scope.tree.rename(slot, following)


class Old(NamedTuple):
    """An old version of a file at a moment when nobody is in the middle of a write."""

    content: bytes
    late: bytes  # what was appended since the version was folded in
    is_same: bool  # whether what was folded in still stands there
    may_go: bool  # whether nobody can write to it any more


def _look_into(tree: Tree, slot: str, status: os.stat_result) -> Old | None:
    """Return what stands in an old version; None while there is nothing to be done with it."""
    named = _named(slot)
    is_recent = _is_recent(status)
    is_as_long = status.st_size == named.size
    if is_as_long and (is_recent or _is_being_written(tree, slot)):
        return None  # it has to stay anyway, and is not worth reading yet
    content, closed = _read(tree, slot)
    if not (closed or time.time() - tree.stat(slot).st_mtime > QUIET_S):
        return None  # bytes that somebody is still writing are taken in when they are whole
    is_same = zlib.crc32(content[: named.size]) == named.checksum
    late = content[named.size :] if is_same else b""
    return Old(content, late, is_same, may_go=not is_recent and closed is not False)


def _is_being_written(tree: Tree, slot: str) -> bool:
    with tree.opened(slot) as descriptor:
        return nobody_writes(descriptor) is False


def _count_in(scope: Scope, file: str, slot: str, content: bytes) -> None:
    """Give an old version the name that says: all of this content is in the file."""
    scope.tree.rename(slot, _slot(scope, file, _named(slot).inode, content))


def _named(slot: str) -> OldName:
    """Return the parts of the name of a slot, which is one of ours."""
    old = parse_old(slot.removeprefix(f"{RETIRED}/"))
    assert old is not None, slot
    return old


def _slot(scope: Scope, file: str, inode: int, content: bytes) -> str:
    said = f"{inode}+{len(content)}+{zlib.crc32(content)}+{os.urandom(4).hex()}"
    return f"{RETIRED}/{scope.name}+{flat(file)}+{said}"
