"""How far a command is: one line on stderr, on a terminal, once it has taken longer than a second.

The line erases itself, and contains no escape sequence but colour.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import click

from .output import cut, one_line, width

if TYPE_CHECKING:
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

HIDDEN_S, _BETWEEN_S = 1.0, 0.2
_BAR_COLUMNS, _LABEL_COLUMNS = 20, 40
_Files = TypeVar("_Files", bound="RecordFiles")


def line(label: str, done: int, total: int | None, passed_s: float) -> str:
    """Return how many items are done, how fast, and how long the rest will take."""
    label = cut(one_line(label), _LABEL_COLUMNS)
    rate = done / passed_s if passed_s > 0 else 0.0
    speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
    if total is None or total < 2:
        return f"{label}  {f'{done:,}  {speed}  ' if done > 1 else ''}{_length(passed_s)}"
    bar = "#" * round(min(1.0, done / total) * _BAR_COLUMNS)
    # More may be done than was counted before.
    left = f"{speed}  {_length(max(total - done, 0) / rate)} left" if rate else _length(passed_s)
    return f"{label}  [{bar:.<{_BAR_COLUMNS}}]  {done:,}/{total:,}  {left}"


def _length(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def progress(label: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Yield the function to call for each item. A single long step shows how long it has taken."""
    stream = sys.stderr
    if stream is None or not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda: None
        return
    done, shown, began, is_over = 0, "", time.monotonic(), threading.Event()

    def advance() -> None:
        nonlocal done
        done += 1

    def write(text: str) -> None:
        plain = text.encode(stream.encoding or "utf-8", "backslashreplace").decode(stream.encoding)
        is_plain = bool(os.environ.get("NO_COLOR")) or not text.strip()
        with suppress(OSError, ValueError):  # a terminal that is gone stops no work
            stream.write("\r" + (plain if is_plain else click.style(plain, fg="cyan")))
            stream.flush()

    def draw() -> None:
        nonlocal shown
        pause_s = HIDDEN_S
        while not is_over.wait(pause_s):
            pause_s = _BETWEEN_S
            columns = os.get_terminal_size(stream.fileno()).columns or 80
            now = line(label, done, total, time.monotonic() - began)
            before, shown = shown, cut(now, columns - 1)
            write(shown + " " * (width(before) - width(shown)))

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    try:
        yield advance
    finally:
        is_over.set()
        drawing.join()
        if shown:
            write(" " * width(shown) + "\r")


def for_each(
    files: Sequence[_Files], label: str, do: Callable[[_Files], Outcome], *, dry_run: bool
) -> Outcome:
    """Return the outcome of all. Of several, one that fails stops no other."""
    from smp_client import SessionNotFound, SMPError
    from smp_client.model.outcome import Outcome

    whole = Outcome(dry_run=dry_run)
    with progress(label, len(files)) as advance:
        for one in files:
            name = one.scope.name
            try:
                part = do(one)
            except (SMPError, OSError) as error:
                if len(files) == 1:
                    raise
                # A session that is gone went meanwhile.
                gone = isinstance(error, SessionNotFound)
                part = Outcome(problems=[] if gone else [f"{name}: {error}"])
            for said in (part.problems, part.notes) if len(files) > 1 else ():
                said[:] = [text if name in text else f"{name}: {text}" for text in said]
            whole.add(part)
            advance()
    return whole
