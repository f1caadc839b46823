"""The one thread that makes every write of the daemon: all work meets in its queue."""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from smp_client import AlreadyLed, SMPError, __version__
from smp_client.disk.place import is_archived
from smp_client.model.deadline import interruptible
from smp_client.model.layout import COOKIES, GLOBAL, STATUS_FILE
from smp_client.model.progress import watched
from smp_client.model.times import now, render_time
from smp_client.redaction.redact import harmless

from .ingest import indexer
from .ingest.debounce import EVERYTHING
from .ingest.watcher import Changed, Cookie, Lost, Notice
from .jobs import JOBS, REBUILD, SCAN, SCRUB, TIDY, Job, Maintenance
from .log import FilteringBoundLogger, ms_since
from .root import METRICS, SECRETS, SETTLING, STARTING, Root
from .schedule import KNOWN_SINCE, load_successes, save_successes

HEARTBEAT_S, LOOK_AROUND_S, CANARY_S = 1.0, 1.0, 5.0
REST_S = 1.0  # between a failure and the next try
QUEUE_ROUND = 1000  # after so many items, the worker looks after itself
LOGGED_SESSIONS = 20  # of one batch: more are a scan of a new tree
LOGGED_IDS = 20  # of memories on one line of the log
SCAN_SAID_S = 2.0  # between two lines on the progress of one scan
INDEXING = "indexing"  # the subject of a failure


class Stopping(BaseException):
    """The daemon was told to stop. Code that lets a piece of data fail alone must not catch it."""


class _ScanProgress:
    """Lines of the log about a scan that takes long, as the first one of a large tree does."""

    def __init__(self, root: Root, started: float) -> None:
        self._log = root.log
        self._started = started
        self._said = started

    def reach(self, done: int, total: int) -> None:
        """Note that so many parts of the scan are done."""
        now_s = time.perf_counter()
        if now_s - self._said < SCAN_SAID_S or done == total:
            return
        self._said = now_s
        left_s = (now_s - self._started) * (total - done) / done
        self._log.info(
            "scanning",
            component="indexer",
            done_pct=round(100 * done / total),
            seconds_left=round(left_s),
        )


class Worker:
    def __init__(self, log: FilteringBoundLogger) -> None:
        self.roots: list[Root] = []
        self.ready = threading.Event()  # set when every tree has been watched and then scanned
        self.next_runs: dict[str, str] = {}
        self.log_problem = ""  # why lines of the log are dropped
        self.settings: dict[str, Any] = {}  # for the status: the file, when it was read, …
        self._log = log
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._is_stopping = False
        self._started_at = render_time(now())
        self._heartbeat_due = self._look_due = 0.0
        self._maintenance = Maintenance(self)

    def add(self, root: Root) -> None:
        """Add a tree, with the successes of earlier daemons. Call it before the thread starts."""
        successes = load_successes(root.memory)
        root.jobs = {name: Job(successes.get(name)) for name in JOBS}
        root.known_since = successes.get(KNOWN_SINCE) or self._started_at
        self.roots.append(root)

    # Other threads may call these.

    def successes(self) -> dict[str, str]:
        """Return when each job last succeeded for all trees, or when a tree became known."""
        times = {name: [root.jobs[name].last_success or root.known_since for root in self.roots]
                 for name in JOBS}  # fmt: skip
        return {name: min(successes) for name, successes in times.items()}

    def is_proved(self, current: float) -> bool:
        """Return whether the canaries of every tree have lately reached the worker."""
        return current - min(root.proved_at for root in self.roots) < 3 * CANARY_S + 1

    def notice(self, root: Root, notice: Notice) -> None:
        if isinstance(notice, Cookie):
            self._queue.put(partial(self._answer, root, notice.name))
            return
        if isinstance(notice, Lost) and notice.reason != "polling":
            root.log.warning("events lost", component="watcher", reason=notice.reason)
        if isinstance(notice, Changed):
            root.counters.add("smp_watch_events_total", label="seen")
        elif notice.reason != "polling":
            root.counters.add("smp_watch_events_total", label="overflow")
        if root.note(notice.path if isinstance(notice, Changed) else EVERYTHING):
            self._wake()

    def ask_for(self, job: str) -> None:
        for root in self.roots:
            self._queue.put(partial(self._maintenance.ask_for, job, root))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Use and publish these options for every tree, between two pieces of work."""
        for root in self.roots:
            self._queue.put(partial(root.configure, options))

    def stop(self) -> None:
        self._stop.set()
        self._wake()

    def _wake(self) -> None:
        self._queue.put(lambda: None)

    # Only the worker's own thread calls these.

    def run(self) -> None:
        try:
            with interruptible(self._keep_going, self._beat):
                # Watched, then scanned: every change is noticed or found.
                for root in self.roots:
                    root.watcher.start()
                for root in self.roots:
                    self._maintenance.run_now(TIDY, root)
                    self._maintenance.run_now(SCAN, root)
                    del root.problems[STARTING]
                    self._heartbeat(root)
                self.ready.set()
                while True:
                    self._keep_going()
                    self._do_what_is_due()
        except Stopping:
            for root in self.roots:
                root.problems["stopping"] = "The daemon is stopping. smp run starts another."
                self._heartbeat(root)
                root.measure.write_last()
        except Exception:
            self._log.exception("the worker failed", component="worker", exc_info=True)
            raise

    def _keep_going(self) -> None:
        """Stop if asked to, and beat the heart if it is due. Every step of the work calls this."""
        if self._stop.is_set() and not self._is_stopping:
            self._is_stopping = True  # raised once, so that all that is open can be closed
            raise Stopping
        self._beat()

    def _do_what_is_due(self) -> None:
        try:
            self._handle_queue(self._pause())
            current = time.monotonic()
            for root in self.roots:
                if root.waiting.due_in(current) == 0 and root.is_there():
                    self.take_in(root, root.waiting.take_all())
                if written := root.derived.write(current):
                    self._maintenance.weigh(root, written)
                if root.inbox.has_work() and root.is_there():
                    root.inbox.serve()
                if root.settle_due is not None and current >= root.settle_due and root.is_there():
                    root.apart(SETTLING, root.settle)
            self._look_after_self(current)
            self._maintenance.work()
        except AlreadyLed:
            # Somebody removed the lock's file, and another daemon has taken the lead.
            raise
        except Exception as error:
            # A disk that fails for a moment, or unexpected data, must not end the daemon.
            with suppress(Exception):  # the next round meets the same failure again
                for root in self.roots:
                    self._fail(root, "work", error)
                    self._heartbeat(root)
        else:
            for root in self.roots:
                root.problems.pop("work", None)

    def _pause(self) -> float:
        """Return the seconds until work is due."""
        has_drops = any(root.was_there and root.inbox.has_work() for root in self.roots)
        if has_drops or self._maintenance.has_work():
            return 0.0
        current = time.monotonic()
        waits = [root.waiting.due_in(current) for root in self.roots]
        waits += [root.settle_due - current for root in self.roots if root.settle_due is not None]
        waits.append(min(self._heartbeat_due, self._look_due) - current)
        # Work that is due for a missing tree stays due, and must not keep the worker spinning.
        least_s = 0.0 if all(root.was_there for root in self.roots) else 0.2
        return max(least_s, min(wait for wait in waits if wait is not None))

    def _handle_queue(self, pause_s: float) -> None:
        """Do everything in the queue, so that a burst is one batch. Wait for the first item."""
        with suppress(queue.Empty):
            for _ in range(QUEUE_ROUND):
                work = self._queue.get(block=bool(pause_s), timeout=pause_s or None)
                pause_s = 0.0
                work()

    def _answer(self, root: Root, name: str) -> None:
        """Answer a cookie: index every change before it, then remove the cookie."""
        if not root.memory.tree.exists(f"{COOKIES}/{name}"):
            return  # it was answered, or nobody waits any more
        if name == root.canary:
            root.canary, root.proved_at = "", time.monotonic()
            root.lag_ms = round(1000 * (root.proved_at - root.canary_sent), 1)
            root.problems.pop("canary", None)
            is_done = True
        elif name.startswith("reindex-"):
            root.believe_all()
            is_done = self._maintenance.run_now(REBUILD, root)
        else:
            is_done = root.is_there() and self.take_in(root, root.waiting.take_all())
            root.inbox.ask_again(at_once=True)
        if not is_done:
            root.unanswered.add(name)
            root.note(EVERYTHING)
            self._stop.wait(REST_S)
            return
        if name.startswith("scrub-"):
            self._maintenance.run_now(SCRUB, root)
        root.memory.tree.unlink(f"{COOKIES}/{name}")

    def _log_written(self, root: Root, taken: indexer.Taken) -> None:
        """Log which memories are new or changed, whoever wrote them, without their content.

        A scan of many sessions, as at the first start, is one line by itself.
        """
        if len(taken.written) > LOGGED_SESSIONS:
            return
        for scope, ids in taken.written.items():
            root.log.info(
                "memories written",
                component="indexer",
                session_id=scope,
                memories=ids[:LOGGED_IDS],
                count=len(ids),
            )

    def take_in(self, root: Root, paths: list[str]) -> bool:
        """Index these paths. Return whether it succeeded; a failure is tried again."""
        started, is_scan = time.perf_counter(), EVERYTHING in paths
        try:
            if is_scan:
                with watched(_ScanProgress(root, started).reach):
                    taken = indexer.scan(root.memory, root.index)
            else:
                taken = indexer.take_in(root.memory, root.index, paths)
            for scope in taken.inboxes:
                root.inbox.note(scope)
            if is_scan:
                took_s = time.perf_counter() - started
                root.counters.add("smp_scan_seconds_total", took_s)
            vanished = root.believe_vanished(taken.vanished)
            if vanished:
                indexer.forget(root.memory, root.index, vanished)
            if taken.changed or vanished:
                # Every write leads to a line "indexed".
                say = root.log.info if is_scan else root.log.debug
                say("scanned" if is_scan else "indexed", component="indexer", files=taken.files,
                    sessions=sorted(taken.changed)[:20], forgotten=sorted(vanished)[:20],
                    duration_ms=ms_since(started))  # fmt: skip
            self._log_written(root, taken)
            # A scan also looks at files that a client has indexed while no daemon ran.
            for scope in taken.changed | (root.inbox.unnumbered() if is_scan else set()):
                if not is_archived(scope):
                    give_ids = partial(root.inbox.give_ids, scope)
                    root.apart(f"giving ids in {scope}", give_ids, scope)
            for scope in taken.changed - {GLOBAL}:
                if not is_archived(scope):
                    root.derived.note(scope)
            for scope in taken.without_indexes:
                root.derived.note(scope)
            if is_scan:
                root.derived.note_stale()
                root.edits.is_unfinished = True  # the next look around searches: READY comes first
            else:
                root.apart(SECRETS, root.edits.look)
            root.log_unreadable()
            root.note_vanished()
        except Exception as error:
            self._fail(root, INDEXING, error)
            return False
        root.problems.pop(INDEXING, None)
        root.problems.pop("index", None)
        while root.unanswered:
            self._queue.put(partial(self._answer, root, root.unanswered.pop()))
        return True

    def _fail(self, root: Root, about: str, error: Exception) -> None:
        """Note a failure, rest, and scan anew. Replace an index that is damaged."""
        root.note_failure(about, error)
        is_damage = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError  # as on a full disk, which passes
        )  # fmt: skip
        if is_damage:
            root.replace_index(str(error))
        root.note(EVERYTHING)
        self._stop.wait(REST_S)

    # The worker's own regular work.

    def _look_after_self(self, current: float) -> None:
        if current >= self._look_due:
            self._look_due = current + LOOK_AROUND_S
            for root in self.roots:
                root.look_around()
                if root.was_there:
                    root.send_canary(CANARY_S)
                    self._maintenance.look(root, current)
                    root.apart(METRICS, partial(self._measure, root, current))
        self._beat()

    def _measure(self, root: Root, current: float) -> None:
        is_good = not self.settings.get("problem")
        root.measure.write(current, problems=len(root.problems), is_good=is_good)

    def _beat(self) -> None:
        current = time.monotonic()
        if current >= self._heartbeat_due:
            self._heartbeat_due = current + HEARTBEAT_S
            for root in self.roots:
                self._heartbeat(root)

    def _heartbeat(self, root: Root) -> None:
        if not root.is_there():
            return
        settings = self.settings
        own = [*root.problems.values(), self.log_problem, settings.get("problem", "")]
        problems = filter(None, own)
        status = {
            "version": __version__, "pid": os.getpid(), "started_at": self._started_at,
            "heartbeat_at": render_time(now()), "watching": root.watcher.mode,
            "lag_ms": root.lag_ms, "unindexed_files": len(root.waiting),
            "drops": root.inbox.waits, "settings": settings,
            "problems": sorted(map(harmless, problems)),
            "jobs": {name: {**vars(job), "next_run": self.next_runs.get(name)}
                     for name, job in root.jobs.items()},
        }  # fmt: skip
        try:
            root.memory.tree.replace(
                STATUS_FILE, json.dumps(status, indent=1).encode(), durable=False
            )
        except (OSError, SMPError) as error:
            root.log.error("no heartbeat", component="daemon", error=str(error))

    def save_successes(self, root: Root) -> None:
        try:
            successes = {name: job.last_success for name, job in root.jobs.items()}
            save_successes(root.memory, {**successes, KNOWN_SINCE: root.known_since})
        except OSError as error:
            root.log.error("job time not kept", component="job", error=str(error))
