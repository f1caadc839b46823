"""A job for a tree: its last result, and a run of it in steps with other work in between."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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


@dataclass
class Job:
    """The last result of a job for one tree."""

    last_success: str | None = None
    last_error: str | None = None
    duration_ms: float | None = None
    did: dict[str, Any] = field(default_factory=dict)
    failed_at: float = 0.0  # by the monotonic clock


@dataclass
class Run:
    """One run of a job for one tree. A session that fails does not keep others from their turn."""

    name: str
    root: Root
    done: Counter[str] = field(default_factory=Counter)
    changed: set[str] = field(default_factory=set)  # sessions whose files may have changed
    failures: dict[str, str] = field(default_factory=dict)  # by session; "" is the whole run
    skipped: str = ""
    spent_ms: float = 0.0
    steps: Iterator[None] = field(default_factory=lambda: iter(()))

    def each(self, sessions: Iterable[str], work: Callable[[str], Outcome]) -> Iterator[None]:
        """Do the work for each session, one a step; a locked session is tried again at the end."""
        waiting = list(sessions)
        self.done["sessions"] += len(waiting)
        for is_last_try in (False, True):
            locked: list[str] = []
            for session in waiting:
                try:
                    self.add(session, work(session))
                except SessionNotFound:
                    self.changed.add(session)  # it was archived or deleted meanwhile
                except (LockTimeout, Conflict) as error:
                    locked.append(session)
                    if is_last_try:
                        self.fail(session, error)
                except Exception as error:  # also one that nobody expected: the others get a turn
                    self.fail(session, error)
                yield
            waiting = locked

    def add(self, session: str, outcome: Outcome) -> None:
        """Count and log the outcome of a step."""
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
        if outcome.actions:
            self.changed.add(session)

    def fail(self, session: str, error: Exception) -> None:
        step()  # a statement of SQL that a stop has interrupted did not fail
        is_expected = isinstance(error, (OSError, SMPError, sqlite3.Error))
        self._fail(session, str(error) or type(error).__name__, exc_info=not is_expected)

    def _fail(self, session: str, reason: str, **more: Any) -> None:
        reason = reason.removeprefix(f"{session}: ")
        self.changed.add(session)
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
