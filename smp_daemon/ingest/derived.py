"""The files that the daemon writes into sessions: YAML indexes and metadata, when they are due."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import TypeVar

from smp_client import SessionNotFound, SMPError
from smp_client.index.yaml_indexes import write as write_yaml_indexes

from ..log import FilteringBoundLogger, ms_since
from . import indexer, metadata
from .led_tree import LedTree

T = TypeVar("T", bound=LedTree)

REST_S = 1.0  # after a failure, at the least


class Derived:
    def __init__(self, active_s: float, idle_s: float, log: FilteringBoundLogger) -> None:
        self.active_s = active_s  # between two writes of an active session, at the least
        self.idle_s = idle_s  # and of any other
        self._log = log
        self._due: dict[tuple[str, str], float] = {}  # by root and session
        self._written: dict[tuple[str, str], float] = {}

    def note(self, root: LedTree, scope: str) -> None:
        """Note that a file of the session has changed."""
        key = (str(root.path), scope)
        sql = "SELECT status FROM sessions WHERE scope = ?"
        row = root.index.connection.execute(sql, (scope,)).fetchone()
        interval = self.active_s if row is None or row[0] == "active" else self.idle_s
        self._due.setdefault(key, max(time.monotonic(), self._written.get(key, 0.0) + interval))

    def due_times(self) -> list[float]:
        return list(self._due.values())

    def write(self, roots: Sequence[T], current: float) -> tuple[T, str] | None:
        """Write the files of the session that has waited longest, and return it.

        One session a call, so that new files are indexed between two sessions.
        """
        for (path, scope), due in sorted(self._due.items(), key=lambda item: item[1]):
            root = next(root for root in roots if str(root.path) == path)
            if due <= current and root.is_there():
                del self._due[path, scope]
                self._write(root, scope)
                return root, scope
        return None

    def _write(self, root: LedTree, scope: str) -> None:
        started = time.perf_counter()
        try:
            session = root.memory._session(scope)
            written = write_yaml_indexes(root.memory, root.index, scope)
            if metadata.bring_up_to_date(session, root.index):
                written.append("metadata.yaml")
                indexer.take_in(root.memory, root.index, [f"active/{scope}/metadata.yaml"])
        except SessionNotFound:  # it was archived or deleted
            return
        except (OSError, SMPError, sqlite3.Error) as error:
            self._log.warning("derived files not written", component="indexer",
                              session_id=scope, error=str(error))
            if root.memory.tree.exists(f"active/{scope}"):
                self._due[str(root.path), scope] = time.monotonic() + max(REST_S, self.idle_s)
            return
        # A large session is written less often: at most a twentieth of the time goes into it.
        pause_s = 20 * (time.perf_counter() - started)
        self._written[str(root.path), scope] = time.monotonic() + pause_s
        if written:
            self._log.debug("derived files written", component="indexer", session_id=scope,
                            files=written, duration_ms=ms_since(started))
