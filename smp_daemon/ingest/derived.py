"""The files that the daemon writes into sessions: YAML indexes and metadata, when they are due."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

from smp_client import SessionNotFound, SMPError
from smp_client.index.yaml_indexes import write as write_yaml_indexes

from ..log import ms_since
from . import indexer, metadata

if TYPE_CHECKING:
    from ..root import Root

EVERY_S = 2.0  # the least time between two writes of a session
FAILED_AGAIN_S = 60.0


class Derived:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._due: dict[str, float] = {}  # by session
        self._rested: dict[str, float] = {}  # when a session may be written again

    def note(self, scope: str) -> None:
        """Note that a file of the session has changed."""
        rested = self._rested.get(scope, 0.0) + EVERY_S
        self._due.setdefault(scope, max(time.monotonic(), rested))

    def due_times(self) -> list[float]:
        return list(self._due.values())

    def write(self, current: float) -> str | None:
        """Write the files of the session that has waited longest, and return it.

        One session a call, so that new files are indexed between two sessions.
        """
        scope = min(self._due, key=self._due.__getitem__, default=None)
        if scope is None or self._due[scope] > current or not self._root.is_there():
            return None
        del self._due[scope]
        root, started = self._root, time.perf_counter()
        try:
            session = root.memory._session(scope)
            written = write_yaml_indexes(root.memory, root.index, scope)
            if metadata.bring_up_to_date(session, root.index):
                written.append("metadata.yaml")
                indexer.take_in(root.memory, root.index, [f"active/{scope}/metadata.yaml"])
        except SessionNotFound:  # it was archived or deleted
            return None
        except (OSError, SMPError, sqlite3.Error) as error:
            root.log.warning("derived files not written", component="indexer", session_id=scope,
                             error=str(error))  # fmt: skip
            if root.memory.tree.exists(f"active/{scope}"):
                self._due[scope] = time.monotonic() + FAILED_AGAIN_S
            return scope
        # A large session is written less often: at most a twentieth of the time goes into it.
        self._rested[scope] = time.monotonic() + 20 * (time.perf_counter() - started)
        if written:
            root.log.debug("derived files written", component="indexer", session_id=scope,
                           files=written, duration_ms=ms_since(started))  # fmt: skip
        return scope
