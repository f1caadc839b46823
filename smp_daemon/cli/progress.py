"""How far a command is: one line on stderr, only on a terminal, and only once it has taken longer than a second.

It erases itself, so that what is printed afterwards stands where it would have stood, and it prints no escape sequence but colour.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

from .output import cut, one_line, width

_HIDDEN_S = 1.0
_BETWEEN_S = 0.1  # a hundred thousand items are not to be slowed down by being counted
_BAR_COLUMNS = 20
_LABEL_COLUMNS = 40
_Item = TypeVar("_Item")


class Bar:
    """The line itself. It draws when something is done, or when it is told to; never more often than a person can see."""

    def __init__(self, label: str, total: int | None, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._total, self._stream, self._clock = cut(one_line(label), _LABEL_COLUMNS), total, stream, clock
        self._done = 0
        self._columns = 0  # of what stands on the terminal now
        self._began = clock()
        self._next = self._began + _HIDDEN_S
        self._lock = threading.Lock()

    def advance(self, count: int = 1) -> None:
        self._done += count
        self.draw()

    def draw(self) -> None:
        now = self._clock()
        with self._lock:
            if now < self._next:
                return
            self._next = now + _BETWEEN_S
            line = cut(self.line(now - self._began), _columns(self._stream) - 1)
            self._write(line + " " * (self._columns - width(line)))
            self._columns = width(line)

    def erase(self) -> None:
        with self._lock:
            self._next = float("inf")
            if self._columns:
                self._write(" " * self._columns + "\r")
                self._columns = 0

    def line(self, passed_s: float) -> str:
        """What is shown after so many seconds."""
        if self._total is None or self._total < 2:
            done = f"{self._done:,}  {_rate(self._done / passed_s)}  " if self._done > 1 and passed_s > 0 else ""
            return f"{self._label}  {done}{_length(passed_s)}"
        share = min(1.0, self._done / self._total)
        bar = "#" * round(share * _BAR_COLUMNS)
        rate = self._done / passed_s if passed_s > 0 else 0.0
        # More may be done than was counted before.
        left = f"{_rate(rate)}  {_length(max(self._total - self._done, 0) / rate)} left" if rate else _length(passed_s)
        return f"{self._label}  [{bar:.<{_BAR_COLUMNS}}]  {self._done:,}/{self._total:,}  {left}"

    def _write(self, line: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        text = line.encode(encoding, "backslashreplace").decode(encoding)
        is_plain = bool(os.environ.get("NO_COLOR")) or not text.strip()
        with suppress(OSError, ValueError):  # a terminal that is gone stops no work
            self._stream.write("\r" + (text if is_plain else f"\x1b[36m{text}\x1b[0m"))
            self._stream.flush()


@contextmanager
def progress(label: str, total: int | None = None, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[], None]]:
    """Gives what is to be called for each thing that is done. A single long thing shows how long it has taken."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    bar = Bar(label, total, sys.stderr, clock)
    is_over = threading.Event()

    def tick() -> None:
        while not is_over.wait(_BETWEEN_S * 2):
            bar.draw()

    # Also while one thing takes long.
    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield bar.advance
    finally:
        is_over.set()
        ticking.join()
        bar.erase()


@contextmanager
def each(items: Sequence[_Item], label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Iterator[_Item]]:
    """The items, with how many of them are done: `with each(sessions, "decaying") as them: for session in them: …`"""
    with progress(label, len(items), clock) as advance:
        yield _counted(items, advance)


def _counted(items: Sequence[_Item], advance: Callable[[], None]) -> Iterator[_Item]:
    for item in items:
        yield item
        advance()


def _columns(stream: TextIO) -> int:
    """Of the terminal that the stream leads to: stdout may lead elsewhere."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns


def _length(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 0.1 else f"{rate * 60:.1f}/min"
