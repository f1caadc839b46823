"""The daemon: takes the lead over its roots, starts the worker, follows the schedule, stops."""

from __future__ import annotations

import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from smp_client import Memory, SMPError
from smp_client.model.deadline import interruptible
from smp_client.model.times import now

from .config.settings import Configuration
from .jobs import JOBS
from .log import FilteringBoundLogger, Log
from .root import Root
from .schedule import Schedule
from .worker import Stopping, Worker

LOOK_EVERY_S = 1.0
STOP_WITHIN_S = 8.0
PATIENCE_S = 2.0  # with systemd


class Signals:
    """SIGTERM, SIGINT and SIGHUP, which wait in a queue until the main thread looks.

    A handler runs between any two instructions of the main thread, also inside `wait`. So it may
    take no lock that the main thread can hold: `SimpleQueue.put` takes none, `Event.set` does.
    """

    def __init__(self) -> None:
        self._stop = False
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: self._numbers.put(number))

    def wait(self, longest_s: float) -> bool:
        """Wait for a signal. Return whether one has come, now or before."""
        with suppress(queue.Empty):
            self._stop = self._stop or bool(self._numbers.get(timeout=longest_s))
        return self._stop

    def keep_going(self) -> None:
        """Raise Stopping where the daemon was told to stop."""
        if self.wait(0.0):
            raise Stopping


def run(memories: Sequence[Memory], log: Log, settings: Configuration) -> None:
    """Look after the trees until a signal. Raise AlreadyLed where another daemon does."""
    signals, worker = Signals(), Worker(log.logger)
    with ExitStack() as open_parts:
        try:
            # A client may have the lead for as long as it brings the index up to date.
            with interruptible(signals.keep_going):
                for memory in memories:
                    root = Root(memory, settings["watch.polling_s"], worker.notice, log.logger)
                    open_parts.callback(root.close)
                    if reason := root.lead():
                        root.log.warning("index replaced", component="daemon", reason=reason)
                    worker.add(root)
        except Stopping:
            return
        thread = threading.Thread(target=worker.run, name="worker")
        thread.start()
        open_parts.callback(_stop_worker, worker, thread, log.logger)
        open_parts.callback(_notify, "STOPPING=1")
        while not worker.ready.is_set() and thread.is_alive() and not signals.wait(0.05):
            pass
        if worker.ready.is_set():
            for root in worker.roots:
                mode = root.watcher.mode
                root.log.info("ready", component="daemon", pid=os.getpid(), watching=mode)
            _notify("READY=1", f"STATUS=trees looked after: {len(worker.roots)}")
        times = {name: settings[job.time] for name, job in JOBS.items() if job.time}
        schedule = Schedule(times, worker.successes(), now())
        pause_s = min(LOOK_EVERY_S, (_watchdog_s() or math.inf) / 2)
        while thread.is_alive() and not signals.wait(pause_s):
            for name in schedule.due(now()):
                log.logger.info("due", component="schedule", job=name)
                worker.ask_for(name)
            worker.next_runs = schedule.next_runs()
            if log.problem:  # until this line is written
                log.logger.info("logging again", component="log")
            worker.log_problem = log.problem
            if worker.is_proved(time.monotonic()):
                _notify("WATCHDOG=1")
        if not signals.wait(0.0):
            raise SMPError("The worker has ended by itself; the log says why.")


def _stop_worker(worker: Worker, thread: threading.Thread, log: FilteringBoundLogger) -> None:
    worker.stop()
    thread.join(STOP_WITHIN_S)
    if thread.is_alive():
        # Every write is safe to be cut off at any instruction; waiting longer is not.
        log.error("the worker did not stop in time", component="daemon")
        os._exit(1)
    for root in worker.roots:
        root.log.info("stopped", component="daemon")


def _watchdog_s() -> float | None:
    """Return how often systemd wants to be fed; None where it does not ask."""
    interval_us = os.environ.get("WATCHDOG_USEC", "")
    return int(interval_us) / 1_000_000 or None if interval_us.isdecimal() else None


def _notify(*assignments: str) -> None:
    """Send such as READY=1 to systemd. A daemon that cannot reach it works all the same."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # A busy manager is waited for, because a lost READY would end the daemon. A manager
        # that never reads must not hold it up.
        sender.settimeout(PATIENCE_S)
        sender.sendto("\n".join(assignments).encode(errors="replace"), address)
