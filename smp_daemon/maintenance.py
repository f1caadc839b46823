"""The jobs of the daemon: for the index, for crashed writers, and the passes of sessions.

A job is a series of steps, each for one session. The worker does one step after all other work that
is due. So notices, cookies and the heartbeat wait at most as long as one session takes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from smp_client import Memory, SessionNotFound, SMPError
from smp_client.index import meaning
from smp_client.index.sync import asked_for, scrub
from smp_client.index.take_in import outdated, rebuild
from smp_client.model.layout import ACTIVE, ARCHIVED, COOKIES, GLOBAL
from smp_client.model.outcome import Outcome
from smp_client.model.times import now, render_time
from smp_client.passes import purge
from smp_client.passes.compaction import compact
from smp_client.passes.decay import decay
from smp_client.passes.lifecycle import lifecycle, observe
from smp_client.passes.retention import retain
from smp_client.passes.tidy import tidy

from .ingest.debounce import EVERYTHING
from .jobs import Run
from .log import ms_since
from .root import Root

if TYPE_CHECKING:
    from .worker import Worker

SCAN, REBUILD, TIDY, SCRUB = "scan", "rebuild", "tidy", "scrub"
DECAY, LIFECYCLE, ARCHIVE, PURGE = "decay", "lifecycle", "archive", "purge"
COMPACTION, MEANING = "compaction", "meaning"
FAILED_AGAIN_S = 3600.0
AT_ONCE_SESSIONS = 50  # whose ages one step reads from the index
READER_WAIT_S = 0.2  # how long a scrub waits for a reader of the index; all other work waits too
SCRUB_EVERY_S = 5.0  # between two scrubs, where the first could not be finished
VECTORS_AT_ONCE = 200  # in about 30 ms; then other work has its turn
STOP_CHECK_STEPS = 10_000  # of SQLite, between two checks whether to stop


class Maintenance:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._asked: dict[tuple[str, Root], None] = {}  # a job that is asked for twice runs once
        self._runs: list[Run] = []  # the last run goes on; it has interrupted those before it

    def ask_for(self, name: str, root: Root) -> None:
        """Queue a job. A job that is running runs again afterwards."""
        self._asked[name, root] = None

    def look(self, root: Root, current: float) -> None:
        """Ask for a scrub that is requested or unfinished, and for the vectors of new memories."""
        if current >= root.scrub_due and asked_for(root.memory):
            root.scrub_due = current + SCRUB_EVERY_S
            self.ask_for(SCRUB, root)
        if meaning.is_installed() and root.vectors_of != root.index.generation:
            root.vectors_of = root.index.generation
            self.ask_for(MEANING, root)

    def has_work(self) -> bool:
        return bool(self._asked or self._runs)

    def work(self) -> None:
        """Do one step of a job. An urgent job interrupts any other."""
        urgent = [key for key in self._asked if JOBS[key[0]].is_urgent]
        if self._asked and (not self._runs or (urgent and not JOBS[self._runs[-1].name].is_urgent)):
            key = (urgent or list(self._asked))[0]
            del self._asked[key]
            self._runs.append(self._begin(*key))
        if self._runs and self._step(run := self._runs[-1]):
            self._runs.remove(run)

    def run_now(self, name: str, root: Root) -> bool:
        """Run a whole job at once. Return whether it succeeded."""
        run = self._begin(name, root)
        while not self._step(run):
            pass
        return not run.failures and not run.skipped

    def _begin(self, name: str, root: Root) -> Run:
        run = Run(name, root)
        run.steps = JOBS[name].steps(self, run)
        return run

    def _step(self, run: Run) -> bool:
        """Do the next step of a run. Return whether it was the last."""
        root, started, is_over = run.root, time.perf_counter(), False
        if not root.is_there():
            run.skipped = root.problems["root"]
        elif "vanished" in root.problems and JOBS[run.name].needs_all:
            run.skipped = "the tree is not as it was"
        else:
            try:
                next(run.steps)
            except StopIteration:
                is_over = True
            except Exception as error:  # for example, the sessions cannot be listed
                run.fail("", error)
                is_over = True
            for name in run.changed - {""}:
                places = [GLOBAL] if name == GLOBAL else [f"{ACTIVE}/{name}", f"{ARCHIVED}/{name}"]
                self._worker.take_in(root, places)
            run.changed.clear()
        run.spent_ms += ms_since(started)
        if is_over or run.skipped:
            self._finish(run)
        return is_over or bool(run.skipped)

    def _finish(self, run: Run) -> None:
        root, job = run.root, run.root.jobs[run.name]
        if run.skipped:
            job.did = {"skipped": run.skipped}
            root.log.warning(f"{run.name} skipped", component="job", reason=run.skipped)
            return
        job.did, job.duration_ms = dict(+run.done), round(run.spent_ms, 1)
        # The fullness of a session reports that its compaction failed.
        job.last_error = None if run.name == COMPACTION else run.error
        if job.last_error:
            job.failed_at = time.monotonic()
        if "" not in run.failures:
            job.last_success = render_time(now())  # every session had its turn
        is_news = run.failures or set(job.did) - {"sessions"} or not JOBS[run.name].is_frequent
        say = root.log.info if is_news else root.log.debug
        say(run.name, component="job", duration_ms=job.duration_ms, failed=len(run.failures),
            **job.did)  # fmt: skip
        if run.name == LIFECYCLE:
            # A job that failed need not wait for its own time, which may be a week away.
            for name, failed in root.jobs.items():
                waited_s = time.monotonic() - failed.failed_at
                if JOBS[name].time and failed.last_error and waited_s >= FAILED_AGAIN_S:
                    self.ask_for(name, root)
        self._worker.save_successes(root)

    # The jobs for a tree as a whole.

    def _scan(self, run: Run) -> Iterator[None]:
        root = run.root
        is_new = not root.index.generation
        if not self._worker.take_in(root, [EVERYTHING]):
            run.skipped = "indexing failed and is tried again"
        elif is_new:
            # A scan into an empty index is a rebuild, so the next one is not due at once.
            root.jobs[REBUILD].last_success = render_time(now())
        yield

    def _rebuild(self, run: Run) -> Iterator[None]:
        root = run.root
        rebuild(root.memory, root.index)
        root.edits.look()
        (count,) = root.index.connection.execute("SELECT COUNT(*) FROM memories").fetchone()
        run.done.update(memories=count, outdated=sum(1 for _ in outdated(root.memory, root.index)))
        yield

    def _tidy(self, run: Run) -> Iterator[None]:
        run.add("", tidy(run.root.memory))
        yield

    def _scrub(self, run: Run) -> Iterator[None]:
        """Remove every trace of removed memories from the index, then answer waiting clients."""
        root = run.root
        waiting, root.waiting_for_scrub = root.waiting_for_scrub, []
        connection = root.index.connection
        # Vacuuming a large index takes seconds, and nothing is lost if it is interrupted.
        connection.set_progress_handler(self._worker.is_interrupted, STOP_CHECK_STEPS)
        try:
            scrub(root.memory, root.index, READER_WAIT_S)
        finally:
            connection.set_progress_handler(None, 0)
            for cookie in waiting:
                root.memory.tree.unlink(f"{COOKIES}/{cookie}")
        yield

    def _meaning(self, run: Run) -> Iterator[None]:
        """Make vectors until each memory has one."""
        while made := meaning.make(run.root.index, VECTORS_AT_ONCE):
            run.done["vectors"] += made
            yield

    # The passes, session by session.

    def _decay(self, run: Run) -> Iterator[None]:
        memory = run.root.hasty_memory

        def work(name: str) -> Outcome:
            return decay(memory.everywhere if name == GLOBAL else memory._session(name))

        yield from run.each([GLOBAL, *_sessions(memory)], work)

    def _age(self, run: Run) -> Iterator[None]:
        root, memory, archives = run.root, run.root.hasty_memory, run.name == ARCHIVE
        sessions = _sessions(memory)
        root.fullness.forget_others(set(sessions))
        # The ledger counts the time that a daemon saw each session unused, without clock leaps.
        ages = partial(lifecycle, memory, archive=archives, ledger=observe(memory))
        due: list[str] = []
        # A question to the index looks at every session, so one question covers many sessions.
        for start in range(0, len(sessions), AT_ONCE_SESSIONS):
            batch = sessions[start : start + AT_ONCE_SESSIONS]
            for name in [] if archives else batch:
                self.weigh(root, name)
            plan = ages(only=batch, dry_run=True)
            due += [action.session for action in plan.actions]
            due += [problem.partition(":")[0] for problem in plan.problems]
            yield
        run.done["sessions"] += len(sessions) - len(due)
        yield from run.each(due, lambda name: ages(only=[name]))

    def _purge(self, run: Run) -> Iterator[None]:
        """Delete memories past their retention, then purge deleted memories past their deadline."""
        memory, index = run.root.hasty_memory, run.root.index
        if memory.options.retention.by_type_days:
            yield from run.each(_sessions(memory), lambda name: retain(memory._session(name)))
        problems: list[str] = []
        decisions = purge.planned(memory, problems)
        run.add("", Outcome(problems=problems))
        due: dict[str, list[purge.Doomed]] = {}
        for decision in decisions:
            if decision.goes:
                due.setdefault(decision.session, []).append(decision)

        def carry_out(name: str) -> Outcome:
            return purge.carry_out(memory, due.get(name, []), by="daemon", index=index)

        yield from run.each(due, carry_out)
        # Without a decision: the locks and temporaries that an earlier purge has left.
        run.add("", carry_out(""))

    def weigh(self, root: Root, session: str) -> None:
        """Ask for a compaction of a session that is too full."""
        try:
            is_due = root.fullness.due(root.memory._session(session))
        except SessionNotFound:
            return
        except (OSError, SMPError, ValueError, sqlite3.Error) as error:
            # Indexing must not fail because of this error, which status and check report too.
            root.log.warning("not weighed", component=COMPACTION, session_id=session,
                             error=str(error))  # fmt: skip
            return
        if is_due:
            root.too_full[session] = None
            self.ask_for(COMPACTION, root)

    def _compaction(self, run: Run) -> Iterator[None]:
        root = run.root

        def work(name: str) -> Outcome:
            session = root.hasty_memory._session(name)
            if not (due := root.fullness.due(session)):
                return Outcome()
            pct, reason = due
            root.log.info("compacting", component=COMPACTION, session_id=name, reason=reason)
            try:
                outcome = compact(session, reduction_pct=pct)
            except Exception as error:
                root.fullness.note(session, str(error), failed=True)
                raise
            freed = f"{outcome.counts['bytes_freed']:,} bytes were all that may go"
            # A target that was missed matters only while the session is too full.
            root.fullness.note(session, "; ".join(outcome.problems) or freed)
            return Outcome(outcome.actions)

        while root.too_full:
            session = next(iter(root.too_full))
            del root.too_full[session]
            yield from run.each([session], work)


def _sessions(memory: Memory) -> list[str]:
    return [session.id for session in memory._sessions()]


class JobKind(NamedTuple):
    """A kind of job: its steps, its time and the rules for its runs."""

    steps: Callable[[Maintenance, Run], Iterator[None]]
    time: str = ""  # the setting of its time; empty for a job that runs on request
    needs_all: bool = False  # skipped in a tree from which most sessions vanished
    is_urgent: bool = False  # a client waits for it, or a session is nearly full
    is_frequent: bool = False  # logged only where it did something


JOBS = {
    SCAN: JobKind(Maintenance._scan, "scan.every_s"),
    REBUILD: JobKind(Maintenance._rebuild, "index.rebuild_cron", needs_all=True),
    TIDY: JobKind(Maintenance._tidy, is_frequent=True),
    SCRUB: JobKind(Maintenance._scrub, is_urgent=True),
    MEANING: JobKind(Maintenance._meaning, is_frequent=True),
    DECAY: JobKind(Maintenance._decay, "decay.cron"),
    LIFECYCLE: JobKind(Maintenance._age, "lifecycle.check_every_s", is_frequent=True),
    ARCHIVE: JobKind(Maintenance._age, "archive.cron", needs_all=True),
    COMPACTION: JobKind(Maintenance._compaction, needs_all=True, is_urgent=True),
    PURGE: JobKind(Maintenance._purge, "purge.cron", needs_all=True),
}
