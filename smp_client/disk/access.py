"""Reading counts: what was read is noted in `access.log`, and the decay job folds it into the records.

One line for each reading, a time and the ids, each with `*n` where it stands for n readings:

    2026-01-11T14:30:00Z DEC-001 FIND-002*3

A reading must cost next to nothing, so a line is appended without a lock and without waiting for the disk. The log may be removed
at any time: what is lost then is only that something was read. It is folded into one line for each memory when it has grown large.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from ..model.errors import LockTimeout, SMPError
from ..model.layout import ACCESS_LOG
from ..model.times import parse_time, render_time
from . import journal
from .locks import NO_PATIENCE, brief_lock
from .scope import Scope
from .tree import read_from, sync, write_all

_FOLD_BYTES = 256 * 1024
READ_CAP_BYTES = 4 * _FOLD_BYTES
_HEAD_BYTES = 80
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ITEM = re.compile(rf"({_ID.pattern})(?:\*([1-9]\d{{0,8}}))?")


class Access(NamedTuple):
    times: int
    last: datetime


class Noted(dict[str, Access]):
    """What a log says of each memory, those that were read last at the end."""

    log: object = None  # another one for each log that was read from its beginning


def note(scope: Scope, ids: Iterable[str], at: datetime) -> None:
    """Notes that these were read. Where it cannot be noted (a read-only disk, say), they were read all the same.

    An id that a person wrote may hold anything, also the end of the line and another line: only those of our form are noted.
    """
    noted = [memory_id for memory_id in ids if _ID.fullmatch(memory_id)]
    if not noted:
        return
    line = " ".join([render_time(at), *noted]).encode() + b"\n"
    with suppress(OSError, SMPError), scope.tree.holding():
        try:
            descriptor = scope.tree.open(scope.path(ACCESS_LOG), os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            descriptor = scope.tree.open(scope.path(ACCESS_LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(descriptor, line)
            is_large = os.fstat(descriptor).st_size > _FOLD_BYTES
        finally:
            os.close(descriptor)
        if is_large:
            _fold(scope)


class Readings:
    """What the logs of some scopes say; only what was appended since it was last asked is read.

    Safe in threads, and after a fork.
    """

    def __init__(self) -> None:
        # By scope: inode, size and time of its log, what it begins with, how much was read, and what that says.
        self._known: dict[str, tuple[tuple[int, int, int], bytes, int, Noted]] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def of(self, scope: Scope) -> Noted:
        """How often, and when last, each memory was read since the log was begun."""
        if self._pid != os.getpid():
            # A thread of the process that this one was forked from may have held it, and is not here to let go of it.
            self._lock, self._pid = threading.Lock(), os.getpid()
        none: tuple[tuple[int, int, int], bytes, int, Noted] = ((0, 0, 0), b"", 0, Noted())
        try:
            with self._lock:
                identity, head, done, said = self._known.get(scope.name, none)
                # Most logs are as they were. Only the name is looked at; where it is another file, it is opened with care.
                if _identity(os.lstat(f"{os.fspath(scope.tree.root)}/{scope.path(ACCESS_LOG)}")) == identity:
                    return said
                with scope.tree.opened(scope.path(ACCESS_LOG)) as descriptor:
                    status = os.fstat(descriptor)
                    # The inode of a log that was replaced may be given to a later one, which then begins with another mark.
                    if identity[0] != status.st_ino or done > status.st_size or os.pread(descriptor, len(head), 0) != head:
                        head, done, said = b"", max(0, status.st_size - READ_CAP_BYTES), Noted()
                        said.log = object()
                    whole = read_from(descriptor, done)
                    # Half a line is still being written.
                    whole = whole[: whole.rfind(b"\n") + 1]
                    log, said = said.log, Noted(parse(whole, said))
                    said.log = log
                    head = head or os.pread(descriptor, min(_HEAD_BYTES, done + len(whole)), 0)
                    self._known[scope.name] = (_identity(status), head, done + len(whole), said)
                    return said
        except (OSError, SMPError):
            return Noted()


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def parse(content: bytes, known: Mapping[str, Access] = MappingProxyType({})) -> dict[str, Access]:
    """With what is known already, those that were read last at the end.

    A line that makes no sense, such as one that a crash has cut off, is left out.
    """
    found = dict(known)
    stamps: dict[str, datetime] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        stamp, *items = line.split(" ")
        try:
            at = stamps.get(stamp) or stamps.setdefault(stamp, parse_time(stamp))
        except (ValueError, OverflowError):
            continue
        for item in items:
            if part := _ITEM.fullmatch(item):
                before, last = found.pop(part[1], (0, at))
                found[part[1]] = Access(before + int(part[2] or 1), max(last, at))
    return found


def render(accesses: Mapping[str, Access]) -> bytes:
    return b"".join(f"{render_time(access.last)} {name}*{access.times}\n".encode() for name, access in accesses.items())


def cut(content: bytes, kept: Mapping[str, Access], at: datetime) -> dict[str, Any]:
    """For the journal: takes these bytes, which the log begins with, out of it, and leaves what is kept of them.

    A mark begins what is left, by which it is known that this was done, even where a later line is the same as one taken out.
    """
    size, checksum = len(content), zlib.crc32(content)
    mark = f"# taken in {render_time(at)} {size} {checksum:08x}\n"
    return {"file": ACCESS_LOG, "cut": [size, checksum], "keep": mark + render(kept).decode()}


def after_cut(content: bytes, step: Mapping[str, Any]) -> bytes:
    """The log after the step; the log itself where that has been done, or somebody has replaced it."""
    size, checksum = step["cut"]
    keep: bytes = step["keep"].encode()
    if content.startswith(keep) or len(content) < size or zlib.crc32(content[:size]) != checksum:
        return content
    return keep + content[size:]


def can_cut(scope: Scope, step: Mapping[str, Any]) -> bool:
    """Return whether the log still begins with the bytes that a cut removes. Make them durable.

    A log that lost them in a power failure after the cut was recorded would count them twice.
    """
    try:
        with scope.tree.opened(scope.path(ACCESS_LOG)) as descriptor:
            sync(descriptor)
            content = read_from(descriptor, 0)
    except FileNotFoundError:
        return False
    return after_cut(content, step) != content


def _fold(scope: Scope) -> None:
    """Makes the log small again. A line that another process appends in this very moment may be lost, which costs one count."""
    with suppress(LockTimeout), brief_lock(scope.tree, scope.name, ACCESS_LOG, NO_PATIENCE):
        if journal.left_behind(scope, [ACCESS_LOG]):
            return  # what is to be taken out of it must be found in it
        folded = render(Readings().of(scope))
        if len(folded) < _FOLD_BYTES:
            scope.tree.replace_derived(scope.path(ACCESS_LOG), folded)
        else:
            scope.tree.unlink(scope.path(ACCESS_LOG))
