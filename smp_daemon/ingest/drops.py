"""The drops in the inboxes, taken in a few at a time; those that must wait are tried again."""

from __future__ import annotations

import time
from dataclasses import replace

from smp_client import LockTimeout, SessionNotFound
from smp_client.change.ids import give_ids
from smp_client.disk.locks import NO_PATIENCE
from smp_client.disk.scopes import directory_of, kinds_of
from smp_client.model.layout import GLOBAL

from ..log import FilteringBoundLogger, ms_since
from . import inbox
from .led_tree import LedTree

ROUND = 200  # after so many drops of a session the others get their turn
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LOCKED_PAUSE_S = 4.0  # at the longest, where somebody writes the file that the drops go into


class Drops:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        # By root and session: when its drops are tried again, and after which pause.
        self._waiting: dict[tuple[str, str], tuple[float, float]] = {}
        self._from_the_front = True

    def take_in(self, root: LedTree, scope: str) -> None:
        """Take in some drops of a session. The rest, and drops that must wait, are tried again."""
        try:
            session = root.memory._session(scope)
        except SessionNotFound:  # it was archived or deleted just now
            return
        names = inbox.waiting(session)
        # From the back every other time, so that waiting drops do not hold up those behind them.
        self._from_the_front = not self._from_the_front
        held_up: list[inbox.Drop] = []
        started = time.perf_counter()
        some = names[:ROUND] if self._from_the_front else names[-ROUND:]
        for drop in inbox.take_in(session, some):
            if drop.outcome == "waiting":
                held_up.append(drop)
                continue
            if drop.outcome == "gone":
                continue
            say = self._log.info if drop.outcome == "taken" else self._log.warning
            say(f"drop {drop.outcome}", component="inbox", root=str(root.path), session_id=scope,
                drop=drop.name, memory_id=drop.memory_id, reason=drop.reason,
                duration_ms=ms_since(started))
        self._note(root, scope, held_up)
        if len(names) > ROUND and len(held_up) < ROUND:
            root.note(f"active/{scope}/inbox")

    def give_ids(self, root: LedTree, scope: str) -> None:
        """Give an id to records that somebody has written into the files without one."""
        for (_, file), state in root.index.files(scope).items():
            if not state.bad or file not in kinds_of(scope):
                continue
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
                self._log.info("ids given", component="inbox", root=str(root.path),
                               session_id=scope, file=file, memories=given)
                root.note(f"{directory_of(scope)}/{file}")

    def _note(self, root: LedTree, scope: str, held_up: list[inbox.Drop]) -> None:
        key, about = (str(root.path), scope), f"inbox of {scope}"
        stuck = [drop for drop in held_up if not drop.is_being_written]
        if stuck:
            root.problems[about] = f"Drops wait in the inbox of {scope}: {stuck[0].reason}"
        else:
            root.problems.pop(about, None)
        if not held_up:
            self._waiting.pop(key, None)
            return
        is_locked = any(drop.is_locked_out for drop in held_up)
        pause_s = FIRST_PAUSE_S
        if key in self._waiting and stuck:
            longest_s = LOCKED_PAUSE_S if is_locked else LONGEST_PAUSE_S
            pause_s = min(2 * self._waiting[key][1], longest_s)
        self._waiting[key] = (time.monotonic() + pause_s, pause_s)

    def ask_again(self, root: LedTree, current: float) -> None:
        """Note the inboxes of a root whose drops have waited long enough."""
        for (path, scope), (due, _) in list(self._waiting.items()):
            if path != str(root.path) or due > current:
                continue
            if root.memory.tree.exists(f"active/{scope}"):
                root.note(f"active/{scope}/inbox")
            else:
                del self._waiting[path, scope]
                root.problems.pop(f"inbox of {scope}", None)
