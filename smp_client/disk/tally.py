"""The tally: how long the writes and questions of this process took, its waits and its errors.

A process counts in memory and appends one line to `.smp/clients.log` every 15 seconds of work and
at its end, and one line for each error that an operator should know. So no write costs a second
write. A daemon takes the lines into its log and its metrics. The file is never synced, and nobody
appends beyond its cap: without a daemon the rest is dropped.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from ..model import errors
from .tree import Tree

CLIENT_LOG = ".smp/clients.log"
CAP_BYTES = 256 * 1024
LINE_BYTES = 2048
EVERY_S = 15.0
WRITE, QUERY = "write", "query"
# The upper bounds of the buckets, in seconds. Longer ones count in a last bucket.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# The errors that are noted one by one.
NOTED = ("MEM_E001", "MEM_E002", "MEM_E003", "MEM_E010")
_TEXT_CHARACTERS = 600


class Durations:
    """How many operations took how long."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.seconds += seconds


class Tally:
    """The counts of this process for one tree since they were last written down."""

    def __init__(self) -> None:
        self.durations = {WRITE: Durations(), QUERY: Durations()}
        self.waits = 0
        self.wait_seconds = 0.0
        self.compactions = 0
        self.freed_bytes = 0
        self.redactions: Counter[str] = Counter()
        self.due = time.monotonic() + EVERY_S

    def render(self) -> dict[str, object]:
        took = {name: [*one.counts, round(one.seconds, 6)] for name, one in self.durations.items()}
        return {
            "event": "tally",
            **took,
            "waits": [self.waits, round(self.wait_seconds, 6)],
            "compactions": [self.compactions, self.freed_bytes],
            "redactions": dict(self.redactions),
        }


_TALLIES: dict[str, Tally] = {}  # by the path of the tree


@contextmanager
def timed(path: str, operation: str) -> Iterator[None]:
    """Count how long the block takes, unless it fails."""
    started = time.perf_counter()
    yield
    tally = _of(path)
    tally.durations[operation].add(time.perf_counter() - started)
    if time.monotonic() >= tally.due:
        flush(path)


def waited(path: str, seconds: float) -> None:
    """Count that somebody waited for a lock, whether the lock was free in time or not."""
    tally = _of(path)
    tally.waits += 1
    tally.wait_seconds += seconds


def compacted(path: str, freed_bytes: int) -> None:
    """Count that a session was compacted, and by how much."""
    tally = _of(path)
    tally.compactions += 1
    tally.freed_bytes += max(0, freed_bytes)


def redacted(path: str, kinds: object) -> None:
    """Count the secrets that a write did without, by their kinds."""
    if isinstance(kinds, dict):
        _of(path).redactions.update(kinds)


def flush(path: str) -> None:
    """Write the counts for a tree down, and begin again."""
    if tally := _TALLIES.pop(path, None):
        _append(path, tally.render())


def note(root: str, error: errors.SMPError) -> None:
    """Write an error down that an operator should know."""
    if error.code in NOTED:
        said = {
            "event": "error",
            "code": error.code,
            "session_id": error.session_id,
            "problem": str(error)[:_TEXT_CHARACTERS],
            "by": errors.conceal(sys.argv[0] or "python")[:_TEXT_CHARACTERS],
        }
        _append(root, said)


def _append(path: str, said: Mapping[str, object]) -> None:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps({"at": at, "pid": os.getpid(), **said}).encode() + b"\n"
    # A tree that is gone, read-only or full gets no line: the work itself has its own errors.
    with suppress(OSError, errors.SMPError):
        tree = Tree(path)
        flags = os.O_WRONLY | os.O_APPEND
        try:
            descriptor = tree.open(CLIENT_LOG, flags)
        except FileNotFoundError:
            descriptor = tree.open(CLIENT_LOG, flags | os.O_CREAT)
        try:
            if len(line) <= LINE_BYTES and os.fstat(descriptor).st_size < CAP_BYTES:
                os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _of(path: str) -> Tally:
    tally = _TALLIES.get(path)
    if tally is None:
        tally = _TALLIES[path] = Tally()
    return tally


def _flush_all() -> None:
    for path in [*_TALLIES]:
        flush(path)


atexit.register(_flush_all)
# The counts of a process are its own: a child that is forked begins with none.
os.register_at_fork(after_in_child=_TALLIES.clear)
errors.report = note
