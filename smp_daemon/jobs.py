"""The jobs of the daemon: for the index, for crashed writers, and the passes of sessions.

A job is a series of steps: of a pass, mostly one for each session. The worker does one step after
all other work that is due. So notices and cookies wait at most as long as one step takes.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from smp_client import Conflict, LockTimeout, Memory, SessionNotFound, SMPError
from smp_client.disk.rewrite import old_versions
from smp_client.disk.usage import CRITICAL_PCT, WARNING_PCT, Size, size_note
from smp_client.index import meaning
from smp_client.index.sync import asked_for, scrub
from smp_client.index.take_in import rebuild
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL
from smp_client.model.outcome import Outcome
from smp_client.model.record import TURN
from smp_client.model.times import now, render_time
from smp_client.passes import purge
from smp_client.passes.compaction import compact, policy_of, summarise_turns, trigger
from smp_client.passes.decay import decay
from smp_client.passes.lifecycle import lifecycle
from smp_client.passes.retention import retain
from smp_client.passes.tidy import tidy

from .ingest.debounce import EVERYTHING
from .log import ms_since
from .root import VANISHED, Root

if TYPE_CHECKING:
    from .worker import Worker

SCAN, REBUILD, TIDY, SCRUB = "scan", "rebuild", "tidy", "scrub"
DECAY, LIFECYCLE, ARCHIVE, PURGE = "decay", "lifecycle", "archive", "purge"
COMPACTION, MEANING = "compaction", "meaning"
FULLNESS = "fullness of "  # the subject of a problem, before the name of a session
GROWN_SHARE = 0.01  # of its quota: by so much a session grows before it is compacted again
AT_ONCE_SESSIONS = 50  # whose ages one step reads from the index
READER_WAIT_S = 0.2  # how long a scrub waits for a reader of the index; all other work waits too
TIDY_S = 30.0
SCRUB_EVERY_S = 5.0  # between two scrubs, where the first could not be finished
VECTORS_AT_ONCE = 10  # in about 100 ms; then other work has its turn
_NAMED_MEMORIES = 20
_TURNS = "SELECT COUNT(*) FROM memories WHERE scope = ? AND type = ?"


@dataclass
class Job:
    """The last result of a job for one tree."""

    last_success: str | None = None
    last_error: str | None = None
    duration_ms: float | None = None
    did: dict[str, Any] = field(default_factory=dict)


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
        """Do the work for each session, one a step."""
        for session in sessions:
            self.done["sessions"] += 1
            try:
                self.add(session, work(session))
            except (SessionNotFound, LockTimeout, Conflict):
                self.changed.add(session)  # it is gone, or in use: then the next run does it
            except Exception as error:  # also one that nobody expected: the others get a turn
                self.fail(session, error)
            yield

    def add(self, session: str, outcome: Outcome) -> None:
        """Count and log the outcome of a step."""
        self.done.update(outcome.counts)
        for action in outcome.actions:
            self.changed.add(session)
            self.done[action.type] += 1
            self.done["bytes_freed"] += action.bytes_freed
            self.root.log.info(
                action.type, component=self.name, session_id=action.session, reason=action.reason,
                about=list(action.about[:_NAMED_MEMORIES]), count=len(action.about),
            )  # fmt: skip
        for problem in outcome.problems:
            self._fail(session, problem)

    def fail(self, session: str, error: Exception) -> None:
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
        session, reason = next(iter(self.failures.items()))
        return f"{len(self.failures)} of {self.done['sessions']} sessions: {session}: {reason}"


class Maintenance:
    """The runs that are queued or under way, for all trees of the worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._runs: dict[tuple[str, Root], Run] = {}  # in the order in which they were asked for

    def ask_for(self, name: str, root: Root) -> None:
        """Queue a job, unless it is queued or running."""
        if (name, root) not in self._runs:
            self._runs[name, root] = self._begin(name, root)

    def look(self, root: Root, current: float) -> None:
        """Remove old versions of files past their grace, and scrub where it is requested.

        Ask for vectors and tidying.
        """
        for name in {old.scope for old in old_versions(root.memory.tree).values()}:
            fold = root.memory._scope(name).fold_old_versions
            root.apart(f"folding in late writes of {name}", fold, name)
        if current >= root.tidy_due:
            root.tidy_due = current + TIDY_S
            self.ask_for(TIDY, root)
        if current >= root.scrub_due and asked_for(root.memory):
            root.scrub_due = current + SCRUB_EVERY_S
            self.run_now(SCRUB, root)
        if meaning.is_installed() and root.vectors_of != root.index.generation:
            root.vectors_of = root.index.generation
            self.ask_for(MEANING, root)

    def has_work(self) -> bool:
        return bool(self._runs)

    def work(self) -> None:
        """Do one step of a job. A compaction comes before the others."""
        urgent = [key for key in self._runs if key[0] == COMPACTION]
        for key in (urgent or list(self._runs))[:1]:
            if self._step(self._runs[key]):
                del self._runs[key]

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
        root, started, is_over = run.root, time.perf_counter(), True
        if not root.is_there():
            run.skipped = root.problems["root"]
        elif VANISHED in root.problems and JOBS[run.name].needs_all:
            run.skipped = "the tree is not as it was"
        else:
            try:
                is_over = next(run.steps, True) is True
            except Exception as error:  # for example, the sessions cannot be listed
                run.fail("", error)
            for name in run.changed - {""}:
                places = [GLOBAL] if name == GLOBAL else [f"{ACTIVE}/{name}", f"{ARCHIVED}/{name}"]
                self._worker.take_in(root, places)
            run.changed.clear()
        run.spent_ms += ms_since(started)
        if is_over:
            self._finish(run)
        return is_over

    def _finish(self, run: Run) -> None:
        root, job = run.root, run.root.jobs[run.name]
        if run.skipped:
            job.did = {"skipped": run.skipped}
            root.log.warning(f"{run.name} skipped", component="job", reason=run.skipped)
            return
        job.did, job.duration_ms = dict(+run.done), round(run.spent_ms, 1)
        # A session that is nearly full is a problem of its own.
        job.last_error = None if run.name == COMPACTION else run.error
        if run.failures:
            root.counters.add("smp_job_failures_total", label=run.name)
        if "" not in run.failures:
            job.last_success = render_time(now())  # every session had its turn
        is_news = run.failures or job.did or JOBS[run.name].time
        say = root.log.info if is_news else root.log.debug
        say(run.name, component="job", duration_ms=job.duration_ms, failed=len(run.failures),
            **job.did)  # fmt: skip
        self._worker.save_successes(root)

    # The jobs for a tree as a whole.

    def _scan(self, run: Run) -> Iterator[None]:
        if not self._worker.take_in(run.root, [EVERYTHING]):
            run.skipped = "indexing failed and is tried again"
        yield

    def _rebuild(self, run: Run) -> Iterator[None]:
        root = run.root
        rebuild(root.memory, root.index)
        root.note_vanished()
        root.derived.note_stale()
        root.edits.look()
        yield

    def _tidy(self, run: Run) -> Iterator[None]:
        run.add("", tidy(run.root.memory))
        yield

    def _scrub(self, run: Run) -> Iterator[None]:
        """Remove every trace of removed memories from the index."""
        scrub(run.root.memory, run.root.index, READER_WAIT_S)
        yield

    def _meaning(self, run: Run) -> Iterator[None]:
        """Make vectors until each memory has one."""
        while made := meaning.make(run.root.index, VECTORS_AT_ONCE):
            run.done["vectors"] += made
            yield

    # The passes, session by session.

    def _decay(self, run: Run) -> Iterator[None]:
        memory = run.root.memory

        def work(name: str) -> Outcome:
            return decay(memory.everywhere if name == GLOBAL else memory._session(name))

        yield from run.each([GLOBAL, *_sessions(memory)], work)

    def _age(self, run: Run) -> Iterator[None]:
        root, memory, archives = run.root, run.root.memory, run.name == ARCHIVE
        sessions = _sessions(memory)
        if not archives:  # sessions that are still too full are compacted again
            root.compacted.clear()
            for about in [about for about in root.problems if about.startswith(FULLNESS)]:
                del root.problems[about]
        ages = partial(lifecycle, memory, archive=archives)
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
        memory = run.root.memory
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
            return purge.carry_out(memory, due.get(name, []), by="daemon")

        yield from run.each(due, carry_out)
        # Without a decision: the temporaries that an earlier purge has left.
        run.add("", carry_out(""))

    def weigh(self, root: Root, session: str) -> None:
        """Ask for a compaction of a session that is too full and has grown since the last one.

        A session that is nearly full is a problem, whether it can be compacted or not.
        """
        try:
            files = root.memory._session(session)
            size = files.size()
            ((turns,),) = root.index.execute(_TURNS, (session, TURN.name))
            due = trigger(size, policy_of(files), turns)
        except SessionNotFound:
            root.fullness.pop(session, None)
            return
        except (OSError, SMPError, ValueError, sqlite3.Error) as error:
            # Indexing must not fail because of this error, which status and check report too.
            root.log.warning("not weighed", component=COMPACTION, session_id=session,
                             error=str(error))  # fmt: skip
            return
        self._warn(root, session, size)
        root.problems.pop(FULLNESS + session, None)
        if size.utilization_pct >= CRITICAL_PCT:
            full = f"Session {session} is {size.utilization_pct:.0f} % full"
            root.problems[FULLNESS + session] = f"{full}: archive it or raise its quota."
        if due is None:
            root.compacted.pop(session, None)
            return
        last = root.compacted.get(session)
        if last is None or size.total_bytes - last >= size.quota_bytes * GROWN_SHARE:
            root.too_full[session] = due
            self.ask_for(COMPACTION, root)

    def _warn(self, root: Root, session: str, size: Size) -> None:
        """Log once that a session has come near to its limit."""
        pct = size.utilization_pct
        if pct >= WARNING_PCT and root.fullness.get(session, 0.0) < WARNING_PCT:
            note = size_note(session, size.total_bytes, size.quota_bytes)
            root.log.warning("session is nearly full", component=COMPACTION, session_id=session,
                             utilization_pct=pct, problem=note)  # fmt: skip
        root.fullness[session] = pct

    def _compaction(self, run: Run) -> Iterator[None]:
        root = run.root

        def work(name: str) -> Outcome:
            session, (pct, reason) = root.memory._session(name), root.too_full[name]
            root.log.info("compacting", component=COMPACTION, session_id=name, reason=reason)
            try:
                done = compact(session, reduction_pct=pct) if pct else summarise_turns(session)
                _log_compaction(root, name, done)
                # A target that was missed matters only while the session is nearly full.
                return Outcome(done.actions)
            finally:
                root.compacted[name] = session.size().total_bytes

        while root.too_full:
            session = next(iter(root.too_full))
            yield from run.each([session], work)
            del root.too_full[session]


def _log_compaction(root: Root, session: str, done: Outcome) -> None:
    """Log the sizes. A compaction that freed nothing is a warning, once for each size."""
    sizes = done.counts
    freed = sizes["bytes_freed"] > 0
    if freed:
        root.futile.pop(session, None)
        say = root.log.info
    elif root.futile.get(session) == sizes["before_bytes"]:
        say = root.log.debug
    else:
        root.futile[session] = sizes["after_bytes"]
        say = root.log.warning
    say(
        "compacted" if freed else "compaction freed nothing",
        component=COMPACTION,
        session_id=session,
        before_size=sizes["before_bytes"],
        after_size=sizes["after_bytes"],
        removed_count=len(done.ids),
        why=done.problems[:1],
    )


def _sessions(memory: Memory) -> list[str]:
    return memory._session_ids()


class JobKind(NamedTuple):
    """A kind of job: its steps, its time and the rules for its runs."""

    steps: Callable[[Maintenance, Run], Iterator[None]]
    time: str = ""  # the setting of its time; empty for a job that runs on request
    needs_all: bool = False  # skipped in a tree from which most sessions vanished


JOBS = {
    SCAN: JobKind(Maintenance._scan, "scan.every_s"),
    REBUILD: JobKind(Maintenance._rebuild, "index.rebuild_cron", needs_all=True),
    TIDY: JobKind(Maintenance._tidy),
    SCRUB: JobKind(Maintenance._scrub),
    MEANING: JobKind(Maintenance._meaning),
    DECAY: JobKind(Maintenance._decay, "decay.cron"),
    LIFECYCLE: JobKind(Maintenance._age, "lifecycle.check_every_s"),
    ARCHIVE: JobKind(Maintenance._age, "archive.cron", needs_all=True),
    COMPACTION: JobKind(Maintenance._compaction, needs_all=True),
    PURGE: JobKind(Maintenance._purge, "purge.cron", needs_all=True),
}
