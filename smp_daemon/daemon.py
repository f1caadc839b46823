"""The daemon: takes the lead over its roots, starts the worker, follows the schedule, stops."""

from __future__ import annotations

import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from smp_client import Memory, SMPError
from smp_client.model.deadline import interruptible
from smp_client.model.times import now, render_time

from .config.settings import Configuration
from .jobs import JOBS
from .log import FilteringBoundLogger, Log
from .root import Root
from .schedule import Schedule
from .worker import Stopping, Worker

LOOK_EVERY_S = 1.0
STOP_WITHIN_S = 8.0
PATIENCE_S = 2.0  # with systemd
# These settings take effect when the daemon starts.
AT_START = ("roots", "watch.polling_s")


class Signals:
    """SIGTERM and SIGINT, which stop, and SIGHUP, which asks for a reload of the settings.

    They wait in a queue until the main thread looks.

    A handler runs between any two instructions of the main thread, also inside `wait`. So it may
    take no lock that the main thread can hold: `SimpleQueue.put` takes none, `Event.set` does.
    """

    def __init__(self) -> None:
        self._stop = False
        self._reload = False
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: self._numbers.put(number))

    def wait(self, longest_s: float) -> bool:
        """Wait for a signal. Return whether the daemon was told to stop, now or before."""
        with suppress(queue.Empty):
            while not self._stop:
                number = self._numbers.get(timeout=longest_s)
                longest_s = 0.0
                if number == signal.SIGHUP:
                    self._reload = True
                else:
                    self._stop = True
        return self._stop

    def take_reload(self) -> bool:
        """Return whether a reload was asked for since the last call."""
        asked = self._reload
        self._reload = False
        return asked

    def keep_going(self) -> None:
        """Raise Stopping where the daemon was told to stop."""
        if self.wait(0.0):
            raise Stopping


Load = Callable[[], Configuration]


def run(memories: Sequence[Memory], log: Log, settings: Configuration, load: Load) -> None:
    """Look after the trees until a signal. Raise AlreadyLed where another daemon does.

    `load` reads the settings again when SIGHUP asks for it.
    """
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
        worker.settings = _loaded(settings)
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
        schedule = _schedule(settings, worker)
        pause_s = min(LOOK_EVERY_S, (_watchdog_s() or math.inf) / 2)
        while thread.is_alive() and not signals.wait(pause_s):
            if signals.take_reload():
                settings = _reload(settings, load, log, worker)
                schedule = _schedule(settings, worker)
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


def _schedule(settings: Configuration, worker: Worker) -> Schedule:
    times = {name: settings[job.time] for name, job in JOBS.items() if job.time}
    return Schedule(times, worker.successes(), now())


# Settings that change while the daemon runs.


def _loaded(settings: Configuration) -> dict[str, Any]:
    """Return what the status says of the settings in effect."""
    file = settings.file and str(settings.file)
    return {"file": file, "loaded_at": render_time(now()), "changed": [], "needs_restart": []}


def _reload(old: Configuration, load: Load, log: Log, worker: Worker) -> Configuration:
    """Read the settings again and return those in effect. A bad file leaves the old ones."""
    try:
        new = load()
        options = new.options
    except (SMPError, OSError, ValueError) as error:
        log.logger.error("configuration not reloaded", component="config", reason=str(error))
        worker.settings = {
            **worker.settings,
            "loaded_at": render_time(now()),
            "problem": f"The settings were not reloaded, and the old ones hold: {error}",
        }
        return old
    changed = [key for key in new if new[key] != old[key]]
    waiting = [key for key in changed if key in AT_START]
    for key in waiting:
        new[key] = old[key]
    done = [key for key in changed if key not in AT_START]
    log.configure(new)
    worker.configure(options)
    worker.settings = {**_loaded(new), "changed": done, "needs_restart": waiting}
    log.logger.info(
        "configuration reloaded",
        component="config",
        file=new.file and str(new.file),
        changed=done,
        needs_restart=waiting,
    )
    if waiting:
        said = "these settings take effect when the daemon is started again"
        log.logger.warning(said, component="config", settings=waiting)
    return new


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
