"""Readings are noted in `access.log`. They count once the decay pass has added them to the records.

One line for each reading, a time and the ids, each with `*n` where it stands for n readings:

    2026-01-11T14:30:00Z DEC-001 FIND-002*3

A line is appended without a lock and without a sync. Counts are approximate: the log may be
removed, and a crash may lose a reading or count it twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from ..model.errors import SMPError
from ..model.layout import ACCESS_LOG
from ..model.times import parse_time, render_time
from .scope import Scope
from .tree import write_all

_FOLD_BYTES = 256 * 1024  # a larger log gets one line for each memory
_KEPT = 4096  # memories, those read last; their lines usually take half of that
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ITEM = re.compile(rf"({_ID.pattern})(?:\*([1-9]\d{{0,8}}))?")


class Access(NamedTuple):
    times: int
    last: datetime


def note(scope: Scope, ids: Iterable[str], at: datetime) -> None:
    """Note that these were read, where that can be noted. A reading never fails for it."""
    # An id that a person wrote may hold anything, also the end of the line.
    noted = [memory_id for memory_id in ids if _ID.fullmatch(memory_id)]
    if not noted:
        return
    line = " ".join([render_time(at), *noted]).encode() + b"\n"
    path, flags = scope.path(ACCESS_LOG), os.O_WRONLY | os.O_APPEND
    with suppress(OSError, SMPError), scope.tree.holding():
        if not scope.tree.exists(path):
            flags |= os.O_CREAT
        with scope.tree.opened(path, flags) as descriptor:
            write_all(descriptor, line)
            is_large = os.fstat(descriptor).st_size > _FOLD_BYTES
        if is_large:
            log = load(scope)
            readings = list(parse(log).items())
            cut(scope, log, dict(readings[-_KEPT:]))


def load(scope: Scope) -> bytes:
    """Return the whole lines of the log; none where it cannot be read."""
    try:
        content = scope.tree.read(scope.path(ACCESS_LOG))
    except (OSError, SMPError):
        return b""
    return content[: content.rfind(b"\n") + 1]


def cut(scope: Scope, log: bytes, kept: Mapping[str, Access]) -> None:
    """Put some readings in the place of the bytes with which the log begins, unless it is another.

    A line that is appended in this very moment may be lost.
    """
    path = scope.path(ACCESS_LOG)
    with suppress(FileNotFoundError):
        content = scope.tree.read(path)
        if content.startswith(log):
            lines = (f"{render_time(at)} {name}*{times}\n" for name, (times, at) in kept.items())
            scope.tree.replace(path, "".join(lines).encode() + content[len(log) :], durable=False)


def last_reading(scope: Scope) -> datetime | None:
    """Return the time of the last reading in the log; None where it has none."""
    return max((one.last for one in parse(load(scope)).values()), default=None)


def parse(content: bytes) -> dict[str, Access]:
    """Return the readings of each memory, the latest at the end. Skip lines that make no sense."""
    found: dict[str, Access] = {}
    for line in content[-4 * _FOLD_BYTES :].decode("utf-8", "replace").splitlines():
        stamp, *items = line.split(" ")
        try:
            at = parse_time(stamp)
        except (ValueError, OverflowError):
            continue
        for item in items:
            if part := _ITEM.fullmatch(item):
                before, last = found.pop(part[1], (0, at))
                found[part[1]] = Access(before + int(part[2] or 1), max(last, at))
    return found
