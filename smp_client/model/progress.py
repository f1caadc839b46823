"""How far long work has come, for whoever watches it: a person at a terminal, say.

Work goes over its pieces by `tracked(…)`. Whoever wants to see that calls it inside `watched(…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

Watcher = Callable[[int, int], None]  # how many pieces are done, of how many

_Item = TypeVar("_Item")


@dataclass
class _Watch:
    watcher: Watcher
    is_taken: bool = False  # by work over whose pieces the present work is one


_watch: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` after each piece of the work inside."""
    token = _watch.set(_Watch(watcher))
    try:
        yield
    finally:
        _watch.reset(token)


def tracked(pieces: Sequence[_Item]) -> Iterator[_Item]:
    """Yield the pieces of a work. Work inside a piece that has pieces of its own is not shown."""
    watch = _watch.get()
    if watch is None or watch.is_taken or len(pieces) < 2:
        yield from pieces
        return
    watch.is_taken = True
    try:
        for done, piece in enumerate(pieces, 1):
            yield piece
            watch.watcher(done, len(pieces))
    finally:
        watch.is_taken = False
