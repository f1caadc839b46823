"""The drops in the inboxes, taken in a few at a time. Drops that must wait are tried again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from smp_client import LockTimeout, SessionNotFound
from smp_client.change.ids import give_ids
from smp_client.disk.inboxes import waiting
from smp_client.disk.locks import NO_PATIENCE
from smp_client.disk.scopes import directory_of, kinds_of
from smp_client.model.layout import GLOBAL

from ..log import ms_since
from . import inbox

if TYPE_CHECKING:
    from ..root import Root

ROUND = 200  # after so many drops of a session the other sessions get their turn
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0


class Drops:
    def __init__(self, root: Root) -> None:
        self._root = root
        # By session: when its drops are tried again, and after which pause.
        self._waiting: dict[str, tuple[float, float]] = {}
        self._from_the_front = True

    def take_in(self, scope: str) -> None:
        """Take in some drops of a session. The rest, and drops that must wait, are tried again."""
        root, started = self._root, time.perf_counter()
        names = waiting(root.memory.tree, directory_of(scope))
        if not names and scope not in self._waiting:
            return
        try:
            session = root.memory._session(scope)
        except SessionNotFound:  # it was archived or deleted just now
            return
        # From the back every other time, so that waiting drops do not hold up those behind them.
        self._from_the_front = not self._from_the_front
        held_up: list[inbox.Drop] = []
        batch = names[:ROUND] if self._from_the_front else names[-ROUND:]
        for drop in inbox.take_in(session, batch):
            if drop.outcome == "waiting":
                held_up.append(drop)
            elif drop.outcome != "gone":
                say = root.log.info if drop.outcome == "taken" else root.log.warning
                say(f"drop {drop.outcome}", component="inbox", session_id=scope, drop=drop.name,
                    memory_id=drop.memory_id, reason=drop.reason,
                    duration_ms=ms_since(started))  # fmt: skip
        stuck = [drop for drop in held_up if not drop.is_being_written]
        root.problems.pop(f"inbox of {scope}", None)
        if stuck:
            reason = stuck[0].reason
            root.problems[f"inbox of {scope}"] = f"Drops wait in the inbox of {scope}: {reason}"
        _, last_pause_s = self._waiting.pop(scope, (0.0, FIRST_PAUSE_S / 2))
        if held_up:
            pause_s = min(2 * last_pause_s, LONGEST_PAUSE_S) if stuck else FIRST_PAUSE_S
            self._waiting[scope] = time.monotonic() + pause_s, pause_s
        if len(names) > ROUND and len(held_up) < ROUND:
            root.note(f"active/{scope}/inbox")

    def unnumbered(self) -> set[str]:
        """Return the scopes whose files may hold a record without an id."""
        asked = "SELECT DISTINCT scope FROM files WHERE bad"
        return {scope for (scope,) in self._root.index.connection.execute(asked)}

    def give_ids(self, scope: str) -> None:
        """Give ids to records that a person has written into the files without an id."""
        root = self._root
        for (_, file), state in root.index.files(scope).items():
            if not state.bad or file not in kinds_of(scope):
                continue
            try:
                files = root.memory.everywhere if scope == GLOBAL else root.memory._session(scope)
                # A writer that has locked the file must not keep everybody else waiting.
                files.scope.options = files.scope.options._replace(lock_timeout_s=NO_PATIENCE)
                given = give_ids(files, kinds_of(scope)[file])
            except SessionNotFound:  # it was archived or deleted just now
                return
            except LockTimeout:
                root.note(f"{directory_of(scope)}/{file}")  # tried again after the writer
                continue
            if given:
                root.log.info("ids given", component="inbox", session_id=scope, file=file,
                              memories=given)  # fmt: skip
                root.note(f"{directory_of(scope)}/{file}")

    def ask_again(self) -> None:
        """Note the inboxes whose drops have waited long enough."""
        current = time.monotonic()
        for scope, (due_at, _) in list(self._waiting.items()):
            if due_at > current:
                continue
            if self._root.memory.tree.exists(f"active/{scope}"):
                self._root.note(f"active/{scope}/inbox")
            else:
                del self._waiting[scope]
                self._root.problems.pop(f"inbox of {scope}", None)
