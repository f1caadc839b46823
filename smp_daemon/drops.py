"""The turns of the inboxes: a few drops at a time, and later again those that have to wait."""

from __future__ import annotations

import time
from dataclasses import replace

from smp_client import LockTimeout, SessionNotFound
from smp_client.ids import give_ids
from smp_client.layout import GLOBAL
from smp_client.locks import NO_PATIENCE
from smp_client.scopes import directory_of, kinds_of

from .ingest import inbox
from .log import FilteringBoundLogger, ms_since
from .root import Root

ROUND = 200  # after so many drops of a session the others get their turn
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LOCKED_PAUSE_S = 4.0  # at the longest, where somebody writes the file that the drops go into


class Drops:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._waiting: dict[tuple[str, str], tuple[float, float]] = {}  # to when they are tried again, and after which pause
        self._from_the_front = True

    def take_in(self, root: Root, scope: str) -> None:
        """Some of the drops of a session; the rest, and those that have to wait, come again."""
        try:
            session = root.memory._session(scope)
        except SessionNotFound:  # it was archived or deleted just now
            return
        names = inbox.waiting(session)
        # From the back every other time, so that drops that wait do not keep those behind them from being tried.
        self._from_the_front = not self._from_the_front
        held_up: list[inbox.Drop] = []
        started = time.perf_counter()
        for drop in inbox.take_in(session, names[:ROUND] if self._from_the_front else names[-ROUND:]):
            if drop.outcome == "waiting":
                held_up.append(drop)
                continue
            if drop.outcome == "gone":
                continue
            say = self._log.info if drop.outcome == "taken" else self._log.warning
            say(f"drop {drop.outcome}", component="inbox", root=str(root.path), session_id=scope, drop=drop.name,
                memory_id=drop.memory_id, reason=drop.reason, duration_ms=ms_since(started))  # fmt: skip
        self._note(root, scope, held_up)
        if len(names) > ROUND and len(held_up) < ROUND:
            root.note(f"active/{scope}/inbox")

    def give_ids(self, root: Root, scope: str) -> None:
        """Give an id to records that somebody has written into the files without one."""
        bad = [file for (_, file), state in root.index.files(scope).items() if state.bad and file in kinds_of(scope)]
        for file in bad:
            try:
                files = root.memory.everywhere if scope == GLOBAL else root.memory._session(scope)
                # One writer who has locked the file must not keep everybody else waiting.
                files.scope.options = replace(files.scope.options, patience=NO_PATIENCE)
                given = give_ids(files, kinds_of(scope)[file])
            except SessionNotFound:  # it was archived or deleted just now
                return
            except LockTimeout:
                root.note(f"{directory_of(scope)}/{file}")  # once more, when its writer is done
                continue
            if given:
                self._log.info("ids given", component="inbox", root=str(root.path), session_id=scope, file=file, memories=given)
                root.note(f"{directory_of(scope)}/{file}")

    def _note(self, root: Root, scope: str, held_up: list[inbox.Drop]) -> None:
        key, about = (str(root.path), scope), f"inbox of {scope}"
        stuck = [drop for drop in held_up if not drop.is_being_written]
        if stuck:
            root.problems[about] = f"Drops wait in the inbox of {scope}: {stuck[0].reason}"
        else:
            root.problems.pop(about, None)
        if not held_up:
            self._waiting.pop(key, None)
            return
        longest_s = LOCKED_PAUSE_S if any(drop.is_locked_out for drop in held_up) else LONGEST_PAUSE_S
        pause_s = min(2 * self._waiting[key][1], longest_s) if key in self._waiting and stuck else FIRST_PAUSE_S
        self._waiting[key] = (time.monotonic() + pause_s, pause_s)

    def ask_again(self, root: Root, current: float) -> None:
        """Notes the inboxes of a root whose drops have waited long enough."""
        for (path, scope), (due, _) in list(self._waiting.items()):
            if path != str(root.path) or due > current:
                continue
            if root.memory.tree.exists(f"active/{scope}"):
                root.note(f"active/{scope}/inbox")
            else:
                del self._waiting[path, scope]
                root.problems.pop(f"inbox of {scope}", None)
