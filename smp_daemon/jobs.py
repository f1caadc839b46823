"""A job for a tree: its last result, and a run of it in pieces with other work in between."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from smp_client import Conflict, LockTimeout, SessionNotFound, SMPError
from smp_client.model.deadline import step
from smp_client.model.outcome import Outcome

if TYPE_CHECKING:
    from .root import Root

_NAMED_FAILURES = 3
_NAMED_MEMORIES = 20


class Stopping(BaseException):
    """The daemon was told to stop in the middle of work that can be begun again.

    It is no Exception: code that lets a piece of data fail alone must not catch it.
    """


class Skipped(Exception):
    """A job cannot be done now, which is no failure of the job."""


@dataclass
class Job:
    """The last result of a job for one tree."""

    last_success: str | None = None
    last_error: str | None = None
    duration_ms: float | None = None
    did: dict[str, Any] = field(default_factory=dict)
    failed_at: float = 0.0  # by the monotonic clock


@dataclass(frozen=True)
class Piece:
    """The part of a job for one session, or for the whole tree where `session` is empty."""

    session: str
    do: Callable[[], Outcome]
    is_last_try: bool = False


@dataclass
class Run:
    """One run of a job for one tree. A session that fails does not keep others from their turn."""

    name: str
    root: Root
    pieces: Iterator[Piece]
    done: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)  # by session
    skipped: str = ""
    spent_ms: float = 0.0
    is_over: bool = False

    def step(self) -> Piece | None:
        """Do the next piece. Return the piece if it may have changed files."""
        piece, session = None, ""
        try:
            piece = next(self.pieces, None)
            if piece is None:
                self.is_over = True
                return None
            session = piece.session
            self.done["sessions"] += bool(session) and not piece.is_last_try
            try:
                outcome = piece.do()
            except (LockTimeout, Conflict):
                if piece.is_last_try:
                    raise
                # Somebody writes the session: it is tried once more, after all others.
                self.pieces = chain(self.pieces, [replace(piece, is_last_try=True)])
                return None
        except Skipped as reason:
            self.skipped = str(reason)
            return None
        except SessionNotFound:
            return piece  # it was archived or deleted since the sessions were listed
        except Exception as error:  # also an error that nobody expected: the others get their turn
            step()  # a statement of SQL that a stop has interrupted did not fail
            is_expected = isinstance(error, (OSError, SMPError, sqlite3.Error))
            self._fail(session, str(error) or type(error).__name__, exc_info=not is_expected)
            return piece
        self.done.update(outcome.counts)
        for action in outcome.actions:
            self.done[action.type] += 1
            self.done["bytes_freed"] += action.bytes_freed
            self.root.log.info(
                action.type, component=self.name, session_id=action.session, reason=action.reason,
                bytes_freed=action.bytes_freed, about=list(action.about[:_NAMED_MEMORIES]),
                count=len(action.about),
            )  # fmt: skip
        for problem in outcome.problems:
            self._fail(session, problem)
        return piece if outcome.actions or outcome.problems else None

    def _fail(self, session: str, reason: str, **more: Any) -> None:
        reason = reason.removeprefix(f"{session}: ")
        self.failures.setdefault(session, reason)
        self.root.log.error(f"{self.name} failed", component=self.name, session_id=session or None,
                            reason=reason, **more)  # fmt: skip

    @property
    def error(self) -> str | None:
        """Return a sentence about the failures; None where nothing failed."""
        if not self.failures or "" in self.failures:
            return self.failures.get("")
        named = [f"{session}: {reason}" for session, reason in self.failures.items()]
        more = "; …" if len(named) > _NAMED_FAILURES else ""
        listed = "; ".join(named[:_NAMED_FAILURES])
        return f"{len(named)} of {self.done['sessions']} sessions: {listed}{more}"
