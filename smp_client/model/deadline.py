"""A limit on the work that one piece of data may cost, and a way to interrupt long work.

One edited file, drop or transcript must never keep the others waiting. Inside `deadline(…)` the
code that reads calls `step()` for each record, and every so many items of a list or mapping; the
first call after the limit raises TookTooLong.
Time is that of the processor for this thread, so that a busy machine makes no piece look slow.

Every access to a file of the tree is a step too: `interruptible(…)` is asked at each. A query of
SQLite has no steps, and calls `beat()` all along instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from .errors import TookTooLong

LIMIT_S = 5.0
ITEMS_A_STEP = 256

_Item = TypeVar("_Item")

_until: ContextVar[float | None] = ContextVar("until", default=None)
_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)
_heart: ContextVar[Callable[[], None] | None] = ContextVar("heart", default=None)


@contextmanager
def deadline(seconds: float = LIMIT_S) -> Iterator[None]:
    """Let the work inside take so many seconds of this thread's processor time at most."""
    token = _until.set(time.thread_time() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


@contextmanager
def interruptible(
    ask: Callable[[], None], heart: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `ask` at every step of the work inside. An exception of it ends the work.

    Call `heart` where the work is inside SQLite, and cannot be ended.
    """
    asked = _ask.set(ask)
    beating = _heart.set(heart)
    try:
        yield
    finally:
        _heart.reset(beating)
        _ask.reset(asked)


def step() -> None:
    """Ask whoever runs this work. Raise TookTooLong where the time of the present piece is over."""
    ask = _ask.get()
    if ask is not None:
        ask()
    until = _until.get()
    if until is not None and time.thread_time() > until:
        raise TookTooLong("It took too long to be read.")


def beat() -> None:
    """Show that whoever runs this work is alive. Nothing in it is a step, which could raise."""
    heart = _heart.get()
    if heart is None:
        return
    asked = _ask.set(None)
    until = _until.set(None)
    try:
        heart()
    finally:
        _until.reset(until)
        _ask.reset(asked)


def stepping(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items, with a step after every few of them."""
    for count, item in enumerate(items, 1):
        if not count % ITEMS_A_STEP:
            step()
        yield item
