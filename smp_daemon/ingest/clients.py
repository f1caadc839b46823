"""The lines that programs leave in `.smp/clients.log`: into the daemon's log and its metrics.

Anybody can write the file: every value is checked, and only so many lines are logged at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from smp_client import SMPError
from smp_client.disk.tally import BUCKETS_S, CAP_BYTES, CLIENT_LOG, LINE_BYTES, QUERY, WRITE
from smp_client.model.layout import is_session_id

from ..metrics import Counters

if TYPE_CHECKING:
    from ..root import Root

TAKEN = f"{CLIENT_LOG}.taken"
_LOGGED = 20  # lines of one look; more are only counted
_MOST = 1_000_000_000
_KINDS = 50
_TEXT = 700
# By the code of the error: its metric, its message, and whether it is worse than a warning.
_ERRORS = {
    "MEM_E001": ("smp_quota_errors_total", "session is full", False),
    "MEM_E002": ("smp_lock_timeouts_total", "lock timeout", False),
    "MEM_E003": ("smp_corruption_errors_total", "corruption detected", True),
    "MEM_E010": ("smp_storage_errors_total", "storage failed", True),
}


class Clients:
    """The lines of the programs that use one tree."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def take(self) -> None:
        """Take in the lines that were moved aside by the last call, and move the next ones aside.

        So a program that had just opened the file has written its line when it is read.
        """
        tree = self._root.memory.tree
        with suppress(FileNotFoundError):
            try:
                content = tree.read(TAKEN) if tree.stat(TAKEN).st_size <= 2 * CAP_BYTES else b""
                self._read(content)
            except SMPError as error:  # a link, say
                self._root.log.warning("odd file", component="client", problem=str(error))
            tree.unlink(TAKEN)
        with suppress(FileNotFoundError):
            tree.rename(CLIENT_LOG, TAKEN)

    def _read(self, content: bytes) -> None:
        counters = self._root.counters
        logged = 0
        for line in content.splitlines():
            try:
                said = _parsed(line)
                if said["event"] == "tally":
                    _count(said, counters)
                    self._root.log.debug("tally", component="client", waits=said["waits"])
                    continue
                metric, message, is_error = _ERRORS[said["code"]]
            except (ValueError, LookupError, TypeError, RecursionError):
                counters.add("smp_client_lines_refused_total")
                continue
            counters.add(metric)
            logged += 1
            if logged <= _LOGGED:
                say = self._root.log.error if is_error else self._root.log.warning
                _log(say, message, said)
        if logged > _LOGGED:
            more = logged - _LOGGED
            self._root.log.warning("more errors of programs", component="client", count=more)


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES:
        raise ValueError("too long")
    said = json.loads(line)
    if not isinstance(said, dict):
        raise TypeError
    return said


def _count(said: dict[str, Any], counters: Counters) -> None:
    """Add a tally. Raise where any part of it makes no sense, with nothing added."""
    took = {name: _numbers(said[name], len(BUCKETS_S) + 2) for name in (WRITE, QUERY)}
    waits, wait_s = _numbers(said["waits"], 2)
    compactions, freed_bytes = _numbers(said["compactions"], 2)
    kinds = [*_kinds(said["redactions"])]
    for name, (*counts, seconds) in took.items():
        counters.histograms[f"smp_{name}_seconds"].add(map(int, counts), seconds)
    counters.add("smp_lock_waits_total", waits)
    counters.add("smp_lock_wait_seconds_total", wait_s)
    counters.add("smp_compactions_total", compactions)
    counters.add("smp_compaction_freed_bytes_total", freed_bytes)
    for kind, count in kinds:
        counters.add("smp_redactions_total", count, kind)


def _numbers(said: Any, count: int) -> list[float]:
    if not isinstance(said, list) or len(said) != count:
        raise ValueError("another number of numbers")
    for number in said:
        # NaN is neither above nor below another number.
        if type(number) not in (int, float) or not 0 <= number <= _MOST:
            raise ValueError("a number that makes no sense")
    return said


def _kinds(said: Any) -> Iterator[tuple[str, float]]:
    if not isinstance(said, dict) or len(said) > _KINDS:
        raise ValueError("kinds of secrets")
    for kind, count in said.items():
        if not kind.isprintable() or len(kind) > 64:
            raise ValueError("the name of a kind")
        yield kind, _numbers([count], 1)[0]


def _log(say: Callable[..., Any], message: str, said: dict[str, Any]) -> None:
    session = said.get("session_id")
    say(
        message,
        component="client",
        session_id=session if isinstance(session, str) and is_session_id(session) else None,
        problem=str(said.get("problem"))[:_TEXT],
        by=str(said.get("by"))[:_TEXT],
        pid_of_client=said.get("pid") if type(said.get("pid")) is int else None,
        at=str(said.get("at"))[:40],
    )
