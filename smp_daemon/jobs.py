"""A job over all sessions of a root: what it did last, and a run of it, in pieces between which there is time for all else."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from smp_client import Conflict, LockTimeout, SessionNotFound, SMPError
from smp_client.model.outcome import Action, Outcome

from .log import FilteringBoundLogger, ms_since

if TYPE_CHECKING:
    from .root import Root

_NAMED_FAILURES = 3
_NAMED_MEMORIES = 20


class Stopping(BaseException):
    """The daemon was told to stop in the middle of work that can be begun again.

    No `except Exception`, by which a piece of data costs only itself, may take it for the fault of the piece.
    """


@dataclass
class Job:
    """Something that runs by the clock, for one root: what it did last."""

    last_success: str | None = None
    last_error: str | None = None
    duration_ms: float | None = None
    did: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Piece:
    """What is done in one go: the part of a job that is about one session, or, with no name, about all of them together."""

    session: str
    do: Callable[[], Outcome]


@dataclass
class Run:
    """One run of a job for one root. One session that fails does not keep the others from their turn."""

    name: str
    root: Root
    pieces: Iterator[Piece]
    only: str = ""  # where the run is about one session alone
    looked_at: int = 0
    failures: dict[str, str] = field(default_factory=dict)  # by session
    bytes_freed: int = 0
    spent_ms: float = 0.0
    is_over: bool = False
    is_whole: bool = True  # whether each session had its turn, whatever came of it
    _done: Counter[str] = field(default_factory=Counter)
    _busy: deque[Piece] = field(default_factory=deque)  # somebody had their files: once more, after all others

    def step(self, log: FilteringBoundLogger) -> Piece | None:
        """The next piece; gives it back where it may have changed files."""
        started = time.perf_counter()
        try:
            piece = next(self.pieces, None)
            if piece is not None:
                return self._try(piece, log, is_last_try=False)
            if self._busy:
                return self._try(self._busy.popleft(), log, is_last_try=True)
            self.is_over = True
            return None
        except Exception as error:
            # The pieces themselves could not be told: nothing more can be done in this run.
            self._fail("", error, log)
            self.is_over = True
            return None
        finally:
            self.spent_ms += ms_since(started)

    def _try(self, piece: Piece, log: FilteringBoundLogger, *, is_last_try: bool) -> Piece | None:
        self.looked_at += bool(piece.session)
        try:
            outcome = piece.do()
        except SessionNotFound:
            # It was archived, deleted or moved away since the sessions were listed.
            return piece
        except (LockTimeout, Conflict) as error:
            if is_last_try:
                self._fail(piece.session, error, log)
            else:
                self.looked_at -= bool(piece.session)
                self._busy.append(piece)
            return None
        except Exception as error:
            # Also what nobody has thought of: the other sessions need their turn, and the daemon its life.
            self._fail(piece.session, error, log)
            return piece
        for action in outcome.actions:
            self._note(action, log)
        for problem in outcome.problems:
            self._say_failed(piece.session, problem, log)
        return piece if outcome.actions or outcome.problems else None

    def _note(self, action: Action, log: FilteringBoundLogger) -> None:
        self._done[action.type] += 1
        self.bytes_freed += action.bytes_freed
        log.info(action.type, component=self.name, root=str(self.root.path), session_id=action.session, reason=action.reason,
                 bytes_freed=action.bytes_freed, about=list(action.about[:_NAMED_MEMORIES]), count=len(action.about))  # fmt: skip

    def _fail(self, session: str, error: Exception, log: FilteringBoundLogger) -> None:
        self.is_whole = self.is_whole and bool(session)
        is_expected = isinstance(error, (OSError, SMPError, sqlite3.Error))
        self._say_failed(session, str(error) or type(error).__name__, log, exc_info=not is_expected)

    def _say_failed(self, session: str, reason: str, log: FilteringBoundLogger, **more: Any) -> None:
        reason = reason.removeprefix(f"{session}: ")
        self.failures.setdefault(session, reason)
        log.error(f"{self.name} failed", component=self.name, root=str(self.root.path), session_id=session or None,
                  reason=reason, **more)  # fmt: skip

    @property
    def did(self) -> dict[str, Any]:
        return {"sessions": self.looked_at, **self._done, **({"bytes_freed": self.bytes_freed} if self.bytes_freed else {})}

    @property
    def changed_something(self) -> bool:
        return bool(self._done)

    @property
    def error(self) -> str | None:
        """What went wrong, in one sentence; None where nothing did."""
        if not self.failures:
            return None
        if whole := self.failures.get(""):
            return whole
        named = [f"{session}: {reason}" for session, reason in self.failures.items()]
        more = "; …" if len(named) > _NAMED_FAILURES else ""
        return f"{len(named)} of {self.looked_at} sessions: " + "; ".join(named[:_NAMED_FAILURES]) + more
