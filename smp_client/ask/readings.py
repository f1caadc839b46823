"""The readings that no decay pass has added to the records yet: they count at once.

A temporary table of the connection has them. Before each question the access logs of its sessions
are looked at, and only the new lines of a changed log are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..disk import access
from ..disk.place import directory_of, is_archived
from ..disk.tree import Tree, read_from
from ..index.database import Index
from ..model.errors import SMPError
from ..model.layout import ACCESS_LOG
from ..model.times import microseconds

_ADD = """
INSERT INTO temp.readings VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
accessed = MAX(accessed, excluded.accessed), accesses = accesses + excluded.accesses
"""


class Log(NamedTuple):
    """An access log as far as it was read."""

    inode: int
    size: int  # of the file
    mtime_ns: int
    end: int = 0  # of the last whole line


def take_in_readings(index: Index, tree: Tree, scopes: Sequence[str]) -> None:
    """Make the table true for the access logs of these scopes."""
    with suppress(OSError), tree.root() as root:
        for scope in scopes:
            if is_archived(scope):
                continue
            path = f"{directory_of(scope)}/{ACCESS_LOG}"
            known = index.readings.get(scope)
            try:
                status = os.lstat(path, dir_fd=root)
            except OSError:
                if known is not None:
                    _forget(index, scope)
                continue
            now = Log(status.st_ino, status.st_size, status.st_mtime_ns)
            if known is None or known[:3] != now[:3]:
                with suppress(OSError, SMPError):
                    _read(index, tree, scope, path, now)


def _read(index: Index, tree: Tree, scope: str, path: str, now: Log) -> None:
    """Add the lines of a log behind those that are known; all of them if it is another log."""
    known = index.readings.get(scope)
    has_grown = known is not None and known.inode == now.inode and known.end <= now.size
    if not has_grown:
        _forget(index, scope)
    begin = known.end if known is not None and has_grown else 0
    with tree.opened(path) as descriptor:
        lines = access.whole_lines(read_from(descriptor, begin))
    rows = [
        (scope, memory_id, microseconds(one.last), one.times)
        for memory_id, one in access.parse(lines).items()
    ]
    index.connection.executemany(_ADD, rows)
    index.readings[scope] = now._replace(end=begin + len(lines))


def _forget(index: Index, scope: str) -> None:
    known = index.readings.pop(scope, None)
    if known is not None and known.end:
        index.execute("DELETE FROM temp.readings WHERE scope = ?", (scope,))
