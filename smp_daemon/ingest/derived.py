"""When the daemon writes the files for people: YAML indexes and `metadata.yaml`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smp_client import SessionNotFound, SMPError
from smp_client.disk.place import FILES
from smp_client.model.errors import is_of_machine
from smp_client.model.layout import ACTIVE, is_session_id
from smp_client.passes.for_people import look_stale, write_for_people

from ..log import ms_since
from . import indexer

if TYPE_CHECKING:
    from ..root import Root

EVERY_S = 2.0  # the least time between two writes of a session
FAILED_AGAIN_S = 60.0


class Derived:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._due: dict[str, float] = {}  # by session
        self._rests: dict[str, float] = {}  # until when a session is not written again

    def note(self, scope: str) -> None:
        """Note that a file of the session has changed."""
        self._due.setdefault(scope, max(time.monotonic(), self._rests.get(scope, 0.0)))

    def note_stale(self) -> None:
        """Note the sessions whose files for people are missing, or older than their memories."""
        tree = self._root.memory.tree
        for name in filter(is_session_id, tree.entries_known(ACTIVE)):
            if look_stale(tree, name):
                self.note(name)

    def write(self, current: float) -> str | None:
        """Write the files of the session that has waited longest, and return it.

        One session a call, so that new files are indexed between two sessions.
        """
        root = self._root
        started = time.perf_counter()
        scope = min(self._due, key=self._due.__getitem__, default=None)
        if scope is None or self._due[scope] > current or not root.is_there():
            return None
        del self._due[scope]
        about = f"keeping indexes and metadata of {scope} up to date"
        root.problems.pop(about, None)
        try:
            written = self._write(scope)
        except SessionNotFound:  # it was archived or deleted
            return None
        except Exception as error:
            if root.memory.tree.exists(f"active/{scope}"):
                self._due[scope] = time.monotonic() + FAILED_AGAIN_S
            if is_of_machine(error):
                raise
            if isinstance(error, SMPError) and error.recoverable:
                root.log_failure(about, error)  # somebody else is writing it, or it is full
            else:
                root.note_failure(about, error, scope)
            return scope
        # A large session is written less often: at most a twentieth of the time goes into it.
        self._rests[scope] = time.monotonic() + EVERY_S + 20 * (time.perf_counter() - started)
        if written:
            root.log.debug("derived files written", component="indexer", session_id=scope,
                           files=written, duration_ms=ms_since(started))  # fmt: skip
        return scope

    def _write(self, scope: str) -> list[str]:
        """Write the derived files of a session, and return those that have changed."""
        root = self._root
        session = root.memory._session(scope)
        written = write_for_people(session, root.index)
        if changed := [f"{ACTIVE}/{scope}/{file}" for file in written if file in FILES]:
            indexer.take_in(root.memory, root.index, changed)
        return written
