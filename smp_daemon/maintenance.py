"""What time does to the sessions of a root, by the clock: decay, lifecycle, archive, compaction, purge.

A job is told as pieces of one session each. The worker does one piece after all else that is due, so that notices, cookies and the
heartbeat never wait for longer than one session takes, however many there are.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from smp_client import LockTimeout, Memory, SMPError
from smp_client.disk.locks import Patience
from smp_client.model.deadline import step
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL
from smp_client.model.outcome import Outcome
from smp_client.model.times import now, render_time

from .fullness import Fullness
from .jobs import Piece, Run
from .log import FilteringBoundLogger
from .root import Root
from .scrubs import Scrubs

DECAY, LIFECYCLE, ARCHIVE, COMPACTION, PURGE = "decay", "lifecycle", "archive", "compaction", "purge"
TAKES_OUT = (ARCHIVE, COMPACTION, PURGE)  # not where the tree is not as it was
# A writer who has a file for longer comes first: the piece is tried once more after all others.
PATIENCE = Patience(timeout_s=1.0, attempts=1)
FAILED_AGAIN_S = 3600.0
MEANWHILE_S = 0.05


class Household(Protocol):
    """What the jobs need of the worker, whose thread they run in."""

    def take_in(self, root: Root, paths: list[Any]) -> bool:
        """Brings what has changed into the index."""

    def save_successes(self, root: Root) -> None:
        """Writes down when each job was last done."""

    def go_on(self, pause_s: float) -> None:
        """Does all that is due but the jobs, and waits for so long where there is nothing."""


class Maintenance:
    def __init__(self, log: FilteringBoundLogger, household: Household) -> None:
        self._log = log
        self._household = household
        self._fullness = Fullness()
        self._asked: dict[tuple[str, str], Root] = {}  # by job and root: asked for twice is once
        self._urgent: dict[tuple[str, str, str], Root] = {}  # by job, root and session
        self._run: Run | None = None
        self._failed_at: dict[tuple[str, str], float] = {}  # by job and root
        self._taking_in: str | None = None  # the session whose own piece is being taken in
        self._memories: dict[str, Memory] = {}
        self._scrubs = Scrubs()
        self.pieces: Mapping[str, Callable[[Root], Iterator[Piece]]] = {
            DECAY: self._decay, LIFECYCLE: self._lifecycle, ARCHIVE: self._archive, PURGE: self._purge,
        }  # fmt: skip
        self.names = (*self.pieces, COMPACTION)

    def ask_for(self, name: str, roots: list[Root]) -> None:
        """One that is running runs once more after it."""
        for root in roots:
            self._asked[name, str(root.path)] = root

    def note(self, root: Root, session: str) -> None:
        """The session has changed: it may have become too full, or be used again."""
        if session != self._taking_in:  # else by a piece of ours, which knew how large it left it
            self._weigh(root, session)
        row = root.index.connection.execute("SELECT status FROM sessions WHERE scope = ?", (session,)).fetchone()
        if row is not None and row[0] != "active":
            self._urgent[LIFECYCLE, str(root.path), session] = root

    def scrub(self, root: Root, cookie: str) -> None:
        """Has every trace of what was removed taken out of the index; the cookie of whoever waits for that is then removed."""
        self._scrubs.ask_for(root, cookie)

    def look(self, root: Root, current: float) -> None:
        """Somebody may have asked for that, and be gone; or it could not be done."""
        self._scrubs.look(root, current)

    def has_work(self) -> bool:
        return bool(self._urgent or self._run or self._asked or self._scrubs.has_work())

    def work(self) -> None:
        """One piece: of what somebody waits for, else of a session that cannot wait, else of the job that is running, else of the
        next one."""
        if self._scrubs.work(self._step):
            return
        if self._urgent:
            (name, _, session), root = next(iter(self._urgent.items()))
            del self._urgent[name, str(root.path), session]
            run = Run(name, root, iter([self._one(name, root, session)]), only=session)
            while not run.is_over:
                self._step(run)
            return
        if self._run is None and self._asked:
            (name, _), root = next(iter(self._asked.items()))
            del self._asked[name, str(root.path)]
            self._run = Run(name, root, self.pieces[name](root))
        if self._run is not None:
            self._step(self._run)
            if self._run.is_over:
                self._run = None

    def _step(self, run: Run) -> None:
        if why := self._unsafe(run):
            run.is_over = True
            self._log.warning(f"{run.name} skipped", component="job", root=str(run.root.path), reason=why)
            if not run.only:
                run.root.jobs[run.name].did = {"skipped": why}
            return
        piece = run.step(self._log)
        if piece is not None and piece.session:
            scope = self._taking_in = piece.session
            self._household.take_in(run.root, [GLOBAL] if scope == GLOBAL else [f"{ACTIVE}/{scope}", f"{ARCHIVED}/{scope}"])
            self._taking_in = None
        if run.is_over:
            self._finish(run)

    def _unsafe(self, run: Run) -> str | None:
        if not run.root.is_there():
            return run.root.problems["root"]
        return "the tree is not as it was" if run.name in TAKES_OUT and "vanished" in run.root.problems else None

    def _finish(self, run: Run) -> None:
        if run.only and run.name != COMPACTION:
            return  # a look in between; the job itself has its own time
        job = run.root.jobs[run.name]
        job.did, job.duration_ms, job.last_error = run.did, round(run.spent_ms, 1), None if run.only else run.error
        if run.is_whole and not (run.only and run.failures):
            job.last_success = render_time(now())
        say = self._log.info if run.changed_something or run.failures or run.name != LIFECYCLE else self._log.debug
        say(run.name, component="job", root=str(run.root.path), duration_ms=job.duration_ms, failed=len(run.failures), **job.did)
        if job.last_error:
            self._failed_at[run.name, str(run.root.path)] = time.monotonic()
        if run.name == LIFECYCLE:
            self._ask_again(run.root)
        self._household.save_successes(run.root)

    def _ask_again(self, root: Root) -> None:
        """A job that failed need not wait for its own time, which may be a week away."""
        for name in self.pieces:
            failed_at = self._failed_at.get((name, str(root.path)), 0.0)
            if name != LIFECYCLE and root.jobs[name].last_error and time.monotonic() - failed_at >= FAILED_AGAIN_S:
                self.ask_for(name, [root])

    def _memory(self, root: Root) -> Memory:
        """The root's memory with less patience, and with whatever options that has now."""
        memory = self._memories.setdefault(str(root.path), Memory(root.path))
        memory.options = replace(root.memory.options, patience=PATIENCE)
        return memory

    # The jobs.

    def _decay(self, root: Root) -> Iterator[Piece]:
        memory = self._memory(root)
        yield Piece(GLOBAL, partial(_decay_session, memory, GLOBAL))
        for session in _sessions(memory):
            yield Piece(session, partial(_decay_session, memory, session))

    def _lifecycle(self, root: Root) -> Iterator[Piece]:
        sessions = _sessions(self._memory(root))
        self._fullness.forget_others(root, set(sessions))
        yield Piece("", lambda: self._observe(root))
        for session in sessions:
            self._weigh(root, session, ahead=True)
            yield self._one(LIFECYCLE, root, session)

    def _archive(self, root: Root) -> Iterator[Piece]:
        yield Piece("", lambda: self._observe(root))
        for session in _sessions(self._memory(root)):
            yield self._one(ARCHIVE, root, session)

    def _one(self, name: str, root: Root, session: str) -> Piece:
        """The piece of a job that is about this session."""
        if name == COMPACTION:
            return Piece(session, lambda: self._compact(root, session))
        from smp_client.passes.lifecycle import lifecycle
        from smp_client.passes.overdue import load

        def age() -> Outcome:
            memory = self._memory(root)
            return lifecycle(memory, archive=name == ARCHIVE, only=[session], ledger=load(memory))

        return Piece(session, age)

    def _weigh(self, root: Root, session: str, *, ahead: bool = False) -> None:
        """Has a session made smaller soon, where it is too full."""
        try:
            is_due = self._fullness.is_due(root, session, ahead=ahead)
        except (OSError, SMPError, ValueError, sqlite3.Error) as error:
            # Indexing must not fail for it; whatever it is, status and check say so too.
            self._log.warning("not weighed", component=COMPACTION, root=str(root.path), session_id=session, error=str(error))
            return
        if is_due:
            self._urgent[COMPACTION, str(root.path), session] = root

    def _compact(self, root: Root, session: str) -> Outcome:
        from smp_client.passes.compaction import compact

        fill = self._fullness.fill(root, session, ahead=True)
        if fill is None or not fill.level:
            return Outcome()
        self._log.info("compacting", component=COMPACTION, root=str(root.path), session_id=session, reason=fill.reason)
        try:
            full = self._memory(root)._session(session)
            going = partial(compact, full, reduction_pct=fill.reduction_pct)
            outcome = self._while_going_on(going) if fill.policy.summarizer else going()
        except LockTimeout as error:
            self._fullness.note(root, session, fill, str(error), busy=True)
            raise
        except Exception as error:
            self._fullness.note(root, session, fill, str(error), failed=True)
            raise
        after = self._fullness.fill(root, session)
        # To fall short of what was wanted is no failure: it matters when the session is still too full.
        reason = "; ".join(outcome.problems) or f"{outcome.counts['bytes_freed']:,} bytes were all that may go"
        self._fullness.note(root, session, after, reason, level=fill.level)
        return Outcome(outcome.actions)

    def _while_going_on(self, compacting: Callable[[], Outcome]) -> Outcome:
        """A summarizer of somebody else's takes its time: all but the jobs goes on meanwhile, as if another process compacted."""
        results: list[Outcome | Exception] = []

        def run() -> None:
            try:
                results.append(compacting())
            except Exception as error:
                results.append(error)

        thread = threading.Thread(target=run, name="summarizer", daemon=True)  # it must not keep the daemon from stopping
        thread.start()
        while thread.is_alive():
            step()
            self._household.go_on(MEANWHILE_S)
        if isinstance(result := results[0], Exception):
            raise result
        return result

    def _purge(self, root: Root) -> Iterator[Piece]:
        """First what is too old is deleted, for which its time begins; then what was deleted and is past its time goes for good."""
        memory = self._memory(root)
        if memory.options.retention.by_type_days:
            yield from (Piece(session, partial(_retain, memory, session)) for session in _sessions(memory))
        yield from _past_its_time(memory, root)

    def _observe(self, root: Root) -> Outcome:
        """Note how long each session is seen unused: a leap of the clock archives nothing."""
        from smp_client.passes.lifecycle import observe

        observe(self._memory(root))
        return Outcome()


def _decay_session(memory: Memory, session: str) -> Outcome:
    from smp_client.passes.decay import decay

    return decay(memory.everywhere if session == GLOBAL else memory._session(session))


def _sessions(memory: Memory) -> list[str]:
    return [session.id for session in memory._sessions()]


def _retain(memory: Memory, session: str) -> Outcome:
    from smp_client.passes.retention import retain

    return retain(memory._session(session))


def _past_its_time(memory: Memory, root: Root) -> Iterator[Piece]:
    from smp_client.passes import purge

    by_session: dict[str, list[purge.Decision]] = {}

    def decide() -> Outcome:
        decided = purge.planned(memory, dry_run=False)
        for decision in decided.going:
            by_session.setdefault(decision.doomed.session, []).append(decision)
        return Outcome(problems=list(decided.problems))

    def destroy(decisions: list[purge.Decision]) -> Outcome:
        return purge.carry_out(memory, decisions, by="daemon", forced=False, index=root.index)

    yield Piece("", decide)
    yield from (Piece(session, partial(destroy, decisions)) for session, decisions in by_session.items())
    yield Piece("", partial(destroy, []))  # locks and temporaries that an earlier one has left
