"""The composition root: takes the lead over one root, looks after it, and stops when told to."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from smp_client import Memory
from smp_client.errors import AlreadyLed, LockTimeout, SMPError
from smp_client.locks import NO_PATIENCE, lock
from smp_client.tidy import tidy

from .log import FilteringBoundLogger

LEAD = "+daemon"  # where the lead's lock is; no session can have this name
TIDY_EVERY_S = 30.0


def run(memory: Memory, log: FilteringBoundLogger) -> None:
    """Returns after SIGTERM or SIGINT; raises AlreadyLed where another daemon has the lead."""
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ask_to_stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        memory.create()
        with lock(memory.tree, LEAD, "lead", NO_PATIENCE, "leading"):
            _lead(memory, log, stop)
    except LockTimeout as error:
        raise AlreadyLed(f"{memory.root} is looked after already: {str(error).removesuffix(error.advice).strip()}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lead(memory: Memory, log: FilteringBoundLogger, stop: threading.Event) -> None:
    _tidy(memory, log)
    log.info("ready", component="daemon", root=str(memory.root), pid=os.getpid(), sessions=len(memory.sessions()))
    while not stop.wait(TIDY_EVERY_S):
        _tidy(memory, log)
    log.info("stopped", component="daemon", root=str(memory.root))


def _tidy(memory: Memory, log: FilteringBoundLogger) -> None:
    started = time.perf_counter()
    try:
        done = tidy(memory)
    except (SMPError, OSError) as error:
        log.error("tidy failed", component="tidy", error=str(error))
        return
    for item in done:
        say = log.warning if item.problem else log.info
        say(item.what, component="tidy", session_id=item.scope, problem=item.problem,
            duration_ms=round(1000 * (time.perf_counter() - started), 1))  # fmt: skip
