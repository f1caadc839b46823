"""The daemon: takes the lead over its roots, starts the worker and the schedule, stops them."""

from __future__ import annotations

import math
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from smp_client import Memory, SMPError
from smp_client.model.deadline import interruptible
from smp_client.model.times import now

from .config.settings import Configuration
from .ingest.debounce import Debounce
from .jobs import Stopping
from .log import FilteringBoundLogger, Log
from .maintenance import ARCHIVE, DECAY, LIFECYCLE, PURGE
from .root import Root
from .schedule import Schedule, load_successes
from .service import systemd
from .worker import Timing, Worker

LOOK_EVERY_S = 1.0
STOP_WITHIN_S = 8.0


class WorkerDied(SMPError):
    """The worker ended by itself; the service manager starts everything anew."""

    code = "MEM_E018"
    advice = "The log says why; a service manager starts the daemon again."


class Signals:
    """Handlers only set flags and wake the main thread, which looks at them.

    A handler runs between any two instructions of the main thread, also inside `wait`. So it may
    take no lock that the main thread can hold: `SimpleQueue.put` takes none, `Event.set` does.
    """

    def __init__(self) -> None:
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.stop = False
        self.reload = False

    def _ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True
        self._wake.put(None)

    def _ask_to_reload(self, _number: int, _frame: FrameType | None) -> None:
        self.reload = True
        self._wake.put(None)

    def keep_going(self) -> None:
        """Raise Stopping where the daemon was told to stop."""
        if self.stop:
            raise Stopping

    def wait(self, longest_s: float) -> None:
        """Return when a signal has come, or after the time."""
        with suppress(queue.Empty):
            self._wake.get(timeout=longest_s)

    @contextmanager
    def handled(self) -> Iterator[None]:
        wanted = {
            signal.SIGTERM: self._ask_to_stop,
            signal.SIGINT: self._ask_to_stop,
            signal.SIGHUP: self._ask_to_reload,
        }
        before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    memories: Sequence[Memory], log: Log, settings: Configuration,
    reload: Callable[[], Configuration],
) -> None:
    """Look after the trees until SIGTERM or SIGINT. Raise AlreadyLed where another daemon does."""
    signals = Signals()
    with signals.handled(), ExitStack() as open_parts:
        worker = Worker(_timing(settings), log.logger)
        try:
            # A client may have the lead for as long as it brings the index up to date.
            with interruptible(signals.keep_going):
                for memory in memories:
                    polling_s = settings["watch.polling_s"]
                    root = Root(memory, _debounce(settings), polling_s, worker.notice)
                    open_parts.callback(root.close)
                    if reason := root.lead():
                        log.logger.warning("index replaced", component="daemon",
                                           root=str(root.path), reason=reason)
                    worker.add(root, load_successes(memory))
        except Stopping:
            return
        thread = threading.Thread(target=worker.run, name="worker")
        thread.start()
        open_parts.callback(_stop_worker, worker, thread, log.logger)
        while not worker.ready.wait(0.05) and thread.is_alive() and not signals.stop:
            pass
        schedule = _schedule(settings, worker)
        try:
            if worker.ready.is_set():
                _say_ready(worker, schedule, log.logger)
            pause_s = min(LOOK_EVERY_S, (systemd.watchdog_s() or math.inf) / 2)
            while not signals.stop and thread.is_alive():
                signals.wait(pause_s)
                if signals.reload:
                    signals.reload = False
                    schedule = _reload(worker, schedule, log, reload)
                schedule.follow(now())
                worker.next_runs = schedule.next_runs()
                log.retry()
                worker.log_problem = log.problem
                if worker.is_proved(time.monotonic()):
                    systemd.feed_watchdog()
        finally:
            schedule.stop()
            systemd.stopping()
        if not thread.is_alive() and not signals.stop:
            raise WorkerDied("The worker has ended by itself.")


def _say_ready(worker: Worker, schedule: Schedule, log: FilteringBoundLogger) -> None:
    for name in schedule.start(worker.successes(), now()):
        log.info("catching up", component="schedule", job=name)
    worker.next_runs = schedule.next_runs()
    for root in worker.roots:
        # Only the worker reads the tree and the index: a fault there must not end this thread.
        log.info("ready", component="daemon", root=str(root.path), pid=os.getpid(),
                 watching=root.watcher.mode)
    systemd.ready(f"looks after {', '.join(str(root.path) for root in worker.roots)}")


def _reload(
    worker: Worker, schedule: Schedule, log: Log, reload: Callable[[], Configuration]
) -> Schedule:
    """Use the new settings, or keep the old ones where the new are bad. Return the schedule."""
    systemd.reloading(time.monotonic_ns() // 1000)
    try:
        settings = reload()
    except SMPError as error:
        log.logger.error("configuration refused", component="config", error=str(error))
    else:
        log.change(settings)
        worker.change(_timing(settings), lambda: _debounce(settings), settings.upkeep)
        schedule.stop()
        schedule = _schedule(settings, worker)
        schedule.start(worker.successes(), now())
        log.logger.info("configuration reloaded", component="config")
    systemd.ready("settings read again")
    return schedule


def _stop_worker(worker: Worker, thread: threading.Thread, log: FilteringBoundLogger) -> None:
    worker.stop()
    thread.join(STOP_WITHIN_S)
    if thread.is_alive():
        # Every write is safe to be cut off at any instruction; waiting longer is not.
        frame = sys._current_frames().get(thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame else []
        where = [f"{call.filename}:{call.lineno} {call.name}" for call in stack]
        log.error("the worker did not stop in time", component="daemon", where=where)
        os._exit(1)
    for root in worker.roots:
        log.info("stopped", component="daemon", root=str(root.path))


def _schedule(settings: Configuration, worker: Worker) -> Schedule:
    times: dict[str, str | float] = {
        "scan": settings["scan.every_s"],
        "rebuild": settings["index.rebuild_cron"],
        DECAY: settings["decay.cron"],
        LIFECYCLE: settings["lifecycle.check_every_s"],
        ARCHIVE: settings["archive.cron"],
        PURGE: settings["purge.cron"],
    }
    return Schedule(times, worker.ask_for)


def _timing(settings: Configuration) -> Timing:
    names = ("heartbeat.every_s", "canary.every_s", "tidy.every_s",
             "indexes.active_every_s", "indexes.idle_every_s")
    return Timing(*(settings[name] for name in names))


def _debounce(settings: Configuration) -> Debounce:
    return Debounce(settings["watch.quiet_ms"] / 1000, settings["watch.longest_wait_ms"] / 1000)
