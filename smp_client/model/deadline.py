"""A limit on the work that one piece of data may cost, and a way to interrupt long work.

One edited file, drop or transcript must never keep the others waiting. Inside `deadline(…)` the
code that reads calls `step()` for each record; the first call after the limit raises TookTooLong.
Time is that of the processor for this thread, so that a busy machine makes no piece look slow.

Every access to a file of the tree is a step too: `interruptible(…)` is asked at each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .errors import TookTooLong

LIMIT_S = 5.0

_until: ContextVar[float | None] = ContextVar("until", default=None)
_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


@contextmanager
def deadline(seconds: float = LIMIT_S) -> Iterator[None]:
    """Let the work inside take so many seconds of this thread's processor time at most."""
    token = _until.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


@contextmanager
def interruptible(ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` at every step of the work inside. An exception of it ends the work."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def step() -> None:
    """Ask whoever runs this work. Raise TookTooLong where the time of the present piece is over."""
    ask = _ask.get()
    if ask is not None:
        ask()
    until = _until.get()
    if until is not None and time.thread_time() > until:
        raise TookTooLong("It took too long to be read.")
