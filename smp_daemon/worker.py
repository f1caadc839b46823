"""The one thread that makes every write of the daemon: all work meets in its queue."""

from __future__ import annotations

import json
import math
import os
import queue
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from smp_client import AlreadyLed, SMPError, __version__
from smp_client.disk.scopes import is_archived
from smp_client.index.take_in import outdated, rebuild
from smp_client.model.deadline import interruptible
from smp_client.model.layout import COOKIES, GLOBAL, STATUS_FILE
from smp_client.model.times import now, render_time
from smp_client.passes.tidy import Tidied, tidy
from smp_client.redaction.redact import harmless

from .ingest import indexer
from .ingest.debounce import EVERYTHING, Debounce
from .ingest.derived import Derived
from .ingest.drops import Drops
from .ingest.notices import Changed, Cookie, Lost, Notice
from .ingest.report import Report
from .ingest.unlocked_edits import UnlockedEdits
from .jobs import Job, Stopping
from .log import FilteringBoundLogger, ms_since
from .maintenance import Maintenance
from .root import Root
from .schedule import KNOWN_SINCE, save_successes

LOOK_AROUND_S = 1.0
REST_S = 1.0  # between a failure and trying again
_SAID = 5  # actions of a tidying that are named
QUEUE_ROUND = 1000  # after so many, the worker looks after itself before it goes on


@dataclass(frozen=True)
class Timing:
    """How often the worker does its own regular work."""

    heartbeat_s: float = 1.0
    canary_s: float = 5.0
    tidy_s: float = 30.0
    # The least time between two writes of a session's YAML indexes and metadata.
    derived_active_s: float = 2.0
    derived_idle_s: float = 60.0  # for sessions that are not active


class Worker:
    def __init__(self, timing: Timing, log: FilteringBoundLogger) -> None:
        self.roots: list[Root] = []
        self.ready = threading.Event()  # set when every root has been watched and then scanned
        self.next_runs: dict[str, str] = {}
        self.log_problem = ""  # why lines of the log are dropped
        self._timing = timing
        self._log = log
        self._queue: queue.SimpleQueue[tuple[str, Root | None, Any]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._is_stopping = False
        self._derived = Derived(timing.derived_active_s, timing.derived_idle_s, log)
        self._drops = Drops(log)
        self._edits = UnlockedEdits(log)
        self._report = Report(log)
        self._canaries: dict[str, tuple[Root, float]] = {}
        self._started_at = render_time(now())
        self._due = {"heartbeat": 0.0, "canary": 0.0, "tidy": 0.0, "look": 0.0}
        self._maintenance = Maintenance(log, self)
        self._at_once: dict[str, Callable[[Root], dict[str, Any]]] = {
            "scan": self._scan_job, "rebuild": self._rebuild_job, "tidy": self._tidy_job,
        }  # fmt: skip
        self._proved_at: dict[str, float] = {}  # when a canary last came through, by root

    def add(self, root: Root, successes: Mapping[str, str | None]) -> None:
        """Add a tree, with the successes of earlier daemons. Call it before the thread starts."""
        names = (*self._at_once, *self._maintenance.names)
        root.jobs = {name: Job(successes.get(name)) for name in names}
        root.known_since = successes.get(KNOWN_SINCE) or self._started_at
        self.roots.append(root)

    # Other threads may call these.

    def successes(self) -> dict[str, str | None]:
        """Return when each job last succeeded for all roots; None where it never did for one.

        A pass over sessions does not run at once in a tree that no daemon knew before: it counts
        as done when the tree became known.
        """
        oldest: dict[str, str | None] = {}
        for name in self.roots[0].jobs:
            is_pass = name in self._maintenance.names
            times = [
                root.jobs[name].last_success or (root.known_since if is_pass else None)
                for root in self.roots
            ]
            oldest[name] = min(filter(None, times)) if all(times) else None
        return oldest

    def is_proved(self, current: float) -> bool:
        """Return whether the canaries of every root have lately reached the worker."""
        oldest = min(self._proved_at.get(str(root.path), 0.0) for root in self.roots)
        return current - oldest < 3 * self._timing.canary_s + 1

    def change(
        self, timing: Timing, debounce: Callable[[], Debounce], upkeep: Mapping[str, Any]
    ) -> None:
        self._queue.put(("change", None, (timing, debounce, upkeep)))

    def notice(self, root: Root, notice: Notice) -> None:
        if isinstance(notice, Cookie):
            self._queue.put(("cookie", root, notice.name))
            return
        if isinstance(notice, Lost) and notice.reason != "polling":
            self._queue.put(("lost", root, notice.reason))
        if root.note(notice.path if isinstance(notice, Changed) else EVERYTHING):
            self._queue.put(("wake", None, None))

    def ask_for(self, job: str) -> None:
        self._queue.put(("job", None, job))

    def stop(self) -> None:
        self._stop.set()
        self._queue.put(("wake", None, None))

    # Only the worker's own thread calls these.

    def _keep_going(self) -> None:
        """Stop if asked to, and beat the heart if it is due. Every step of the work calls this.

        It raises once, so that everything that is closed on the way out comes to its end.
        """
        if self._stop.is_set() and not self._is_stopping:
            self._is_stopping = True
            raise Stopping
        self._beat(time.monotonic())

    def prepare(self) -> None:
        """Arm the watchers, then scan: every change is either noticed or scanned."""
        for root in self.roots:
            root.watcher.start()
        for root in self.roots:
            self._run_job("tidy", [root])
            self._run_job("scan", [root])
            self._heartbeat(root)

    def run(self) -> None:
        try:
            with interruptible(self._keep_going):
                self.prepare()
                self.ready.set()
                self._work()
        except Stopping:
            for root in self.roots:
                self._heartbeat(root)
        except Exception:
            self._log.exception("the worker failed", component="worker", exc_info=True)
            raise

    def _work(self) -> None:
        while True:
            try:
                self._keep_going()
                self._do_what_is_due()
            except AlreadyLed:
                # Somebody removed the lock's file, and another daemon has taken the lead.
                raise
            except Exception as error:
                # A disk that fails for a moment, or unexpected data, must not end the daemon.
                with suppress(Exception):  # the next round meets the same failure again
                    self._say_failed(error)
                self._stop.wait(REST_S)
            else:
                for root in self.roots:
                    root.problems.pop("work", None)

    def _say_failed(self, error: Exception) -> None:
        self._log.error("work failed", component="worker", error=str(error), exc_info=True)
        reason = harmless(str(error) or repr(error))
        for root in self.roots:
            root.problems["work"] = f"Something failed and is tried again: {reason}"
            if isinstance(error, sqlite3.DatabaseError) and root.generation is None:
                self._index_failed(root, error)
                root.note(EVERYTHING)
            self._heartbeat(root)

    def _do_what_is_due(self) -> None:
        self.go_on(self._pause())
        if self._maintenance.has_work():
            self._maintenance.work()

    def go_on(self, pause_s: float) -> None:
        """Do all work that is due but the passes over sessions, which call this in between."""
        self._handle_queue(pause_s)
        current = time.monotonic()
        for root in self.roots:
            if root.due_in(current) == 0 and root.is_there():
                self.take_in(root, root.take_waiting())
        if written := self._derived.write(self.roots, current):
            self._maintenance.note(*written)
        self._look_after_self(current)

    def _pause(self) -> float:
        if self._maintenance.has_work():
            return 0.0
        current = time.monotonic()
        waits = [due - current for due in (*self._due.values(), *self._derived.due_times())]
        waits += [wait for root in self.roots if (wait := root.due_in(current)) is not None]
        # Work that is due for a missing root stays due, and must not keep the worker spinning.
        least_s = 0.0 if all(root.was_there for root in self.roots) else 0.2
        return max(least_s, min(waits))

    def _handle_queue(self, pause_s: float) -> None:
        try:
            kind, root, item = self._queue.get(block=bool(pause_s), timeout=pause_s or None)
        except queue.Empty:
            return
        # All that is in the queue already belongs to this round, so that a burst is one batch.
        for _ in range(QUEUE_ROUND):
            if kind == "cookie" and root is not None:
                self._answer(root, item)
            elif kind == "lost" and root is not None:
                self._log.warning("events lost", component="watcher", root=str(root.path),
                                  reason=item)
            elif kind == "job" and item in self._at_once:
                self._run_job(item, self.roots)
            elif kind == "job":
                self._maintenance.ask_for(item, self.roots)
            elif kind == "change":
                self._change(*item)
            try:
                kind, root, item = self._queue.get_nowait()
            except queue.Empty:
                return

    def _change(
        self, timing: Timing, debounce: Callable[[], Debounce], upkeep: Mapping[str, Any]
    ) -> None:
        self._timing = timing
        self._derived.active_s = timing.derived_active_s
        self._derived.idle_s = timing.derived_idle_s
        for root in self.roots:
            root.change_debounce(debounce())
            root.memory.options = replace(root.memory.options, **upkeep)
            root.publish()

    def _answer(self, root: Root, name: str) -> None:
        """Answer a cookie: index every change before it, then remove the cookie."""
        done = True
        sent = self._canaries.pop(name, None)
        if sent is not None:
            root.lag_ms = round(1000 * (time.monotonic() - sent[1]), 1)
            root.problems.pop("canary", None)
            self._proved_at[str(root.path)] = time.monotonic()
        elif name.startswith("reindex-"):
            root.believe_all()
            done = self._run_job("rebuild", [root])
        elif name.startswith("scrub-"):
            done = root.is_there() and self.take_in(root, root.take_waiting())
            if done:
                # A scrub takes long, and other work is done between its steps.
                self._maintenance.scrub(root, name)
                return
        else:
            done = root.is_there() and self.take_in(root, root.take_waiting())
        if done:
            root.memory.tree.unlink(f"{COOKIES}/{name}")
        elif root.memory.tree.exists(f"{COOKIES}/{name}"):
            root.unanswered.add(name)
            root.rest_until = time.monotonic() + REST_S
            root.note(EVERYTHING)

    def take_in(self, root: Root, paths: list[Any]) -> bool:
        """Index these paths. Return whether it succeeded; a failure is tried again."""
        started = time.perf_counter()
        try:
            everything = EVERYTHING in paths
            if everything:
                taken = indexer.scan(root.memory, root.index)
            else:
                taken = indexer.take_in(root.memory, root.index, [str(path) for path in paths])
            self._after(root, taken, started, "scanned" if everything else "indexed")
        except sqlite3.DatabaseError as error:
            self._index_failed(root, error)
        except Exception as error:
            self._indexing_failed(root, error)
        else:
            root.problems.pop("indexing", None)
            root.problems.pop("index", None)
            while root.unanswered:
                self._queue.put(("cookie", root, root.unanswered.pop()))
            return True
        root.rest_until = time.monotonic() + REST_S
        root.note(EVERYTHING)
        return False

    def _indexing_failed(self, root: Root, error: Exception) -> None:
        reason = harmless(str(error) or repr(error))
        root.problems["indexing"] = f"Indexing failed and is tried again: {reason}"
        self._log.error("indexing failed", component="indexer", root=str(root.path),
                        error=str(error))

    def _index_failed(self, root: Root, error: sqlite3.DatabaseError) -> None:
        """Note a full disk, which passes. Replace a damaged index."""
        self._log.error("index failed", component="indexer", root=str(root.path), error=str(error))
        if isinstance(error, sqlite3.OperationalError):
            root.problems["indexing"] = f"The index cannot be written: {error}"
        else:
            root.replace_index(str(error))

    def _after(self, root: Root, taken: indexer.Taken, started: float, event: str) -> None:
        """Do the work that follows from a batch: drops, log, ids, derived files, secrets."""
        for scope in taken.inboxes:
            self._apart(root, f"inbox of {scope}", partial(self._drops.take_in, root, scope))
        vanished = root.believe_vanished(taken.vanished)
        if vanished:
            indexer.forget(root.index, vanished)
        if taken.scopes or vanished:
            # Every write leads to a line "indexed".
            say = self._log.debug if event == "indexed" else self._log.info
            say(event, component="indexer", root=str(root.path), files=taken.files,
                added=taken.added, removed=taken.removed, parsed_bytes=taken.parsed_bytes,
                sessions=sorted(taken.scopes)[:20], forgotten=sorted(vanished)[:20],
                generation=root.index.generation, duration_ms=ms_since(started))
        self._report.say(root, taken)
        for scope in taken.scopes:
            if is_archived(scope):
                continue
            give_ids = partial(self._drops.give_ids, root, scope)
            self._apart(root, f"giving ids in {scope}", give_ids)
            if scope != GLOBAL:
                self._derived.note(root, scope)
                self._maintenance.note(root, scope)
        self._apart(root, "looking for secrets", partial(self._edits.look, root))

    def _apart(self, root: Root, about: str, work: Callable[[], None]) -> None:
        """Do this work alone: a failure costs nothing else, and the status names it."""
        key = f"{about} failed"
        try:
            work()
        except (OSError, SMPError, sqlite3.Error):
            raise  # a failure of the machine, not of this work: all is tried again
        except Exception as error:
            reason = harmless(repr(error))
            sentence = f"{key.capitalize()}, and is tried again at the next change: {reason}"
            root.problems[key] = sentence
            self._log.error(key, component="worker", root=str(root.path), error=str(error),
                            exc_info=True)
        else:
            root.problems.pop(key, None)

    # The worker's own regular work.

    def _look_after_self(self, current: float) -> None:
        if current >= self._due["look"]:
            self._due["look"] = current + LOOK_AROUND_S
            for root in self.roots:
                self._look_around(root, current)
        if current >= self._due["canary"]:
            self._due["canary"] = current + self._timing.canary_s
            for root in self.roots:
                self._send_canary(root, current)
        if current >= min(self._due["tidy"], self._edits.old_versions_due):
            self._due["tidy"] = current + self._timing.tidy_s
            self._edits.old_versions_due = math.inf
            self._run_job("tidy", self.roots)
        self._beat(current)

    def _beat(self, current: float) -> None:
        if current >= self._due["heartbeat"]:
            self._due["heartbeat"] = current + self._timing.heartbeat_s
            for root in self.roots:
                self._heartbeat(root)

    def _look_around(self, root: Root, current: float) -> None:
        was_there, root.was_there = root.was_there, root.is_there()
        if not root.was_there:
            if was_there:
                self._log.error("root is missing", component="daemon", root=str(root.path),
                                problem=root.problems["root"])
            return
        root.keep_lead()
        if not was_there:
            self._log.info("root is back", component="daemon", root=str(root.path))
            root.note(EVERYTHING)
        for problem in root.watcher.check():
            root.problems["watcher"] = problem
            break
        else:
            root.problems.pop("watcher", None)
        self._drops.ask_again(root, current)
        if root in self._edits.unfinished:
            self._edits.look(root)
        self._maintenance.look(root, current)
        if root.index_is_gone():
            self._log.warning("index is gone", component="indexer", root=str(root.path))
            root.reopen_index()
            root.note(EVERYTHING)

    def _send_canary(self, root: Root, current: float) -> None:
        if not root.is_there():
            return
        since = current - 2 * self._timing.canary_s
        canaries = self._canaries.items()
        late = [name for name, (owner, sent) in canaries if owner is root and sent < since]
        try:
            is_replaced = root.make_cookies()
        except (OSError, SMPError) as error:
            root.problems["canary"] = f"No canary can be sent: {error}"
            return
        if is_replaced:
            self._log.warning("requests replaced", component="daemon", root=str(root.path),
                              file=COOKIES,
                              reason="a link or a file stood in the place of the directory")
        for name in late:
            del self._canaries[name]
            root.memory.tree.unlink(f"{COOKIES}/{name}")
        if late or is_replaced:
            sentence = "The watcher does not report what happens on the disk; scanning instead."
            root.problems["canary"] = sentence
            root.watcher.restart()
            root.note(EVERYTHING)
        name = f"canary-{uuid.uuid4().hex}"
        self._canaries[name] = (root, time.monotonic())
        try:
            root.memory.tree.create_cookie(f"{COOKIES}/{name}")
        except (OSError, SMPError) as error:
            root.problems["canary"] = f"No canary can be sent: {error}"

    def _heartbeat(self, root: Root) -> None:
        if not root.is_there():
            return
        status = {
            "version": __version__, "pid": os.getpid(), "started_at": self._started_at,
            "heartbeat_at": render_time(now()), "watching": root.watcher.mode,
            "lag_ms": root.lag_ms, "unindexed_files": root.waiting(),
            "problems": sorted(filter(None, [*root.problems.values(), self.log_problem])),
            "generation": root.generation,
            "jobs": {
                name: {"last_success": job.last_success, "next_run": self.next_runs.get(name),
                       "last_error": job.last_error, "duration_ms": job.duration_ms,
                       "did": job.did}
                for name, job in root.jobs.items()
            },
        }  # fmt: skip
        try:
            root.memory.tree.replace_derived(STATUS_FILE, json.dumps(status, indent=1).encode())
        except (OSError, SMPError) as error:
            self._log.error("no heartbeat", component="daemon", root=str(root.path),
                            error=str(error))

    # Jobs.

    def _run_job(self, name: str, roots: Sequence[Root]) -> bool:
        """Run a job for these roots. Return whether it succeeded for all of them."""
        all_done = True
        for root in roots:
            job = root.jobs[name]
            started = time.perf_counter()
            try:
                job.did = self._at_once[name](root)
            except AlreadyLed:
                raise
            except Exception as error:
                job.last_error = str(error) or repr(error)
                is_expected = isinstance(error, (OSError, SMPError, sqlite3.Error))
                self._log.error(f"{name} failed", component="job", root=str(root.path),
                                error=job.last_error, duration_ms=ms_since(started),
                                exc_info=not is_expected)
                all_done = False
                continue
            if "skipped" in job.did:
                self._log.warning(f"{name} skipped", component="job", root=str(root.path),
                                  reason=job.did["skipped"])
                all_done = False
                continue
            job.duration_ms = ms_since(started)
            job.last_error = None
            job.last_success = render_time(now())
            did_nothing = name == "tidy" and not any(job.did.values())
            say = self._log.debug if did_nothing else self._log.info
            say(name, component="job", root=str(root.path), duration_ms=job.duration_ms, **job.did)
            self.save_successes(root)
        return all_done

    def save_successes(self, root: Root) -> None:
        if not root.is_there():
            return
        try:
            successes = {name: job.last_success for name, job in root.jobs.items()}
            save_successes(root.memory, {**successes, KNOWN_SINCE: root.known_since})
        except OSError as error:
            self._log.error("the time of a job was not kept", component="job",
                            root=str(root.path), error=str(error))

    def _scan_job(self, root: Root) -> dict[str, Any]:
        if not root.is_there():
            return {"skipped": root.problems["root"]}
        before = root.index.generation
        if not self.take_in(root, [EVERYTHING]):
            return {"skipped": "indexing failed and is tried again"}
        if not before:
            # A scan into an empty index is a rebuild, so the next one is not due at once.
            root.jobs["rebuild"].last_success = render_time(now())
        return {"changed": root.index.generation != before}

    def _rebuild_job(self, root: Root) -> dict[str, Any]:
        if not root.is_there() or "vanished" in root.problems:
            return {"skipped": "the tree is not as it was"}
        rebuild(root.memory, root.index)
        self._edits.look(root)
        (count,) = root.index.connection.execute("SELECT COUNT(*) FROM memories").fetchone()
        return {"memories": count, "outdated": sum(1 for _ in outdated(root.memory, root.index))}

    def _tidy_job(self, root: Root) -> dict[str, Any]:
        if not root.is_there():
            return {"skipped": root.problems["root"]}
        done = tidy(root.memory)
        failed = [item.problem for item in done if item.problem]
        return {"tidied": len(done) - len(failed), "failed": failed, "did": _actions(done)}


def _actions(done: Sequence[Tidied]) -> list[str]:
    """Return the actions of a tidying in words, each once with its number."""
    counts = Counter(item.what for item in done if not item.problem)
    named = [what if count == 1 else f"{what} ({count:,} times)" for what, count in counts.items()]
    more = [f"and {len(named) - _SAID:,} things more"] if len(named) > _SAID else []
    return named[:_SAID] + more
