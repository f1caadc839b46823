"""Readings are noted in `access.log`. They count at once, see ask/readings.py.

The decay pass adds them to the records. One line for each reading, a time and the ids:

    2026-01-11T14:30:00Z DEC-001 FIND-002

A line is appended without a lock and without a sync. Counts are approximate: the log may be
removed, and a crash may lose a reading or count it twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import SMPError
from ..model.layout import ACCESS_LOG
from ..model.times import parse_time, render_time
from .place import directory_of
from .tree import Tree, write_all

if TYPE_CHECKING:
    from .scope import Scope

_CAP_BYTES = 256 * 1024  # a larger log gets no more lines until the decay pass has counted it
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Access(NamedTuple):
    times: int
    last: datetime


def note(scope: Scope, memory_ids: Sequence[str], at: datetime) -> None:
    """Note that memories were read, where that can be noted. A reading never fails for it."""
    line = f"{render_time(at)} {' '.join(memory_ids)}\n".encode()
    path, flags = scope.path(ACCESS_LOG), os.O_WRONLY | os.O_APPEND
    with suppress(OSError, SMPError), scope.tree.holding():
        if not scope.tree.exists(path):
            flags |= os.O_CREAT
        with scope.tree.opened(path, flags) as descriptor:
            if os.fstat(descriptor).st_size < _CAP_BYTES:
                write_all(descriptor, line)


def load(scope: Scope) -> bytes:
    """Return the whole lines of the log; none where it cannot be read."""
    try:
        content = scope.tree.read(scope.path(ACCESS_LOG))
    except (OSError, SMPError):
        return b""
    return whole_lines(content)


def whole_lines(content: bytes) -> bytes:
    """Return a log without a line that somebody is still writing."""
    return content[: content.rfind(b"\n") + 1]


def cut(scope: Scope, log: bytes) -> None:
    """Cut these bytes off the beginning of the log, unless it is another one.

    A line that is appended in this very moment may be lost.
    """
    path = scope.path(ACCESS_LOG)
    with suppress(FileNotFoundError):
        content = scope.tree.read(path)
        if content.startswith(log):
            scope.tree.replace(path, content[len(log) :], durable=False)


def last_readings(tree: Tree, sessions: Iterable[str]) -> dict[str, datetime]:
    """Return the time of the last reading in each log. Most sessions have no log."""
    found: dict[str, datetime] = {}
    with tree.root() as root:
        for session in sessions:
            path = f"{directory_of(session)}/{ACCESS_LOG}"
            with suppress(OSError, SMPError):
                os.lstat(path, dir_fd=root)
                if readings := parse(whole_lines(tree.read(path))):
                    found[session] = max(one.last for one in readings.values())
    return found


def parse(content: bytes) -> dict[str, Access]:
    """Return the readings of each memory. Skip lines that make no sense."""
    found: dict[str, Access] = {}
    for line in content[-4 * _CAP_BYTES :].decode("utf-8", "replace").splitlines():
        stamp, *items = line.split(" ")
        try:
            at = parse_time(stamp)
        except (ValueError, OverflowError):
            continue
        for memory_id in filter(_ID.fullmatch, items):
            times, last = found.get(memory_id, (0, at))
            found[memory_id] = Access(times + 1, max(last, at))
    return found
