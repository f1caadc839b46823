"""Readings are noted in `access.log`, and the decay job folds them into the records.

One line for each reading, a time and the ids, each with `*n` where it stands for n readings:

    2026-01-11T14:30:00Z DEC-001 FIND-002*3

A reading must cost next to nothing, so a line is appended without a lock and without a sync. The
log may be removed at any time: only counts are lost. A large log is folded into one line for each
memory.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
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
from .tree import read_from, sync, version_of, write_all

_FOLD_BYTES = 256 * 1024
READ_CAP_BYTES = 4 * _FOLD_BYTES
_HEAD_BYTES = 80
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ITEM = re.compile(rf"({_ID.pattern})(?:\*([1-9]\d{{0,8}}))?")


class Access(NamedTuple):
    times: int
    last: datetime


class Noted(dict[str, Access]):
    """The readings of each memory in a log, those that were read last at the end."""

    log: object = None  # another one for each log that was read from its beginning


def note(scope: Scope, ids: Iterable[str], at: datetime) -> None:
    """Note that these were read, where that can be noted. A reading never fails for it.

    An id that a person wrote may hold anything, also the end of the line: only ours are noted.
    """
    noted = [memory_id for memory_id in ids if _ID.fullmatch(memory_id)]
    if not noted:
        return
    line = " ".join([render_time(at), *noted]).encode() + b"\n"
    path, flags = scope.path(ACCESS_LOG), os.O_WRONLY | os.O_APPEND
    with suppress(OSError, SMPError), scope.tree.holding():
        try:
            descriptor = scope.tree.open(path, flags)
        except FileNotFoundError:
            descriptor = scope.tree.open(path, flags | os.O_CREAT)
        try:
            write_all(descriptor, line)
            is_large = os.fstat(descriptor).st_size > _FOLD_BYTES
        finally:
            os.close(descriptor)
        if is_large:
            _fold(scope)


def _fold(scope: Scope) -> None:
    """Make the log small again. A line that is appended in this very moment may be lost."""
    path = scope.path(ACCESS_LOG)
    with suppress(LockTimeout), brief_lock(scope.tree, scope.name, ACCESS_LOG, NO_PATIENCE):
        if journal.left_behind(scope, [ACCESS_LOG]):
            return  # bytes that are to be cut must be found
        folded = render(Readings().of(scope))
        if len(folded) < _FOLD_BYTES:
            scope.tree.replace_derived(path, folded)
        else:
            scope.tree.unlink(path)


class _Known(NamedTuple):
    """A log that was read: its identity, its first bytes, how much was read, and the readings."""

    version: Sequence[int] = (0, 0, 0)
    head: bytes = b""
    done: int = 0
    noted: Noted = Noted()


class Readings:
    """The readings in the logs of some scopes. Only new lines are read. Safe in threads, forks."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}  # by scope
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def of(self, scope: Scope) -> Noted:
        """Return how often, and when last, each memory was read since the log was begun."""
        if self._pid != os.getpid():
            # A thread of the parent process may have held it, and is not here to let go of it.
            self._lock, self._pid = threading.Lock(), os.getpid()
        path = scope.path(ACCESS_LOG)
        try:
            with self._lock:
                known = self._known.get(scope.name, _Known())
                # Most logs are as they were. Another file is opened with care.
                if version_of(os.lstat(f"{os.fspath(scope.tree.root)}/{path}")) != known.version:
                    with scope.tree.opened(path) as descriptor:
                        known = self._known[scope.name] = _read(descriptor, known)
                return known.noted
        except (OSError, SMPError):
            return Noted()


def _read(descriptor: int, known: _Known) -> _Known:
    status = os.fstat(descriptor)
    is_same = known.version[0] == status.st_ino and known.done <= status.st_size
    # A replaced log's inode may be given to a later one, which then begins with another mark.
    if not is_same or os.pread(descriptor, len(known.head), 0) != known.head:
        known = _Known(done=max(0, status.st_size - READ_CAP_BYTES), noted=Noted())
        known.noted.log = object()
    lines = read_from(descriptor, known.done)
    lines = lines[: lines.rfind(b"\n") + 1]  # half a line is still being written
    noted = Noted(parse(lines, known.noted))
    noted.log = known.noted.log
    done = known.done + len(lines)
    head = known.head or os.pread(descriptor, min(_HEAD_BYTES, done), 0)
    return _Known(version_of(status), head, done, noted)


def parse(content: bytes, known: Mapping[str, Access] = MappingProxyType({})) -> dict[str, Access]:
    """Return the readings with those that are known already. Skip lines that make no sense."""
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
    lines = (f"{render_time(one.last)} {name}*{one.times}\n" for name, one in accesses.items())
    return "".join(lines).encode()


def cut(content: bytes, kept: Mapping[str, Access], at: datetime) -> dict[str, Any]:
    """Return the step that cuts these bytes, with which the log begins, and keeps some readings.

    A mark begins the rest of the log, by which the step is known to be done.
    """
    size, checksum = len(content), zlib.crc32(content)
    mark = f"# taken in {render_time(at)} {size} {checksum:08x}\n"
    return {"file": ACCESS_LOG, "cut": [size, checksum], "keep": mark + render(kept).decode()}


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
    return journal.after_cut(content, step) != content
