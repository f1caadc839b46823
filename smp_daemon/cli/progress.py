"""How far a command is: one line on stderr, on a terminal, once it has taken longer than a second.

The line erases itself, and contains no escape sequence.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from .output import cut, one_line, width

if TYPE_CHECKING:
    from smp_client.model.outcome import Outcome
    from smp_client.session import RecordFiles

HIDDEN_S, _BETWEEN_S = 1.0, 0.2
_Files = TypeVar("_Files", bound="RecordFiles")


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
        with suppress(OSError, ValueError):  # a terminal that is gone stops no work
            stream.write("\r" + plain)
            stream.flush()

    def draw() -> None:
        nonlocal shown
        pause_s = HIDDEN_S
        while not is_over.wait(pause_s):
            pause_s = _BETWEEN_S
            count = f"  {done:,}" + (f" of {total:,}" if total else "") if done or total else ""
            now = f"{one_line(label)}{count}  {time.monotonic() - began:.0f} s"
            before, shown = shown, cut(now, os.get_terminal_size(stream.fileno()).columns - 1)
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

    if len(files) == 1:
        with progress(label):
            return do(files[0])
    whole = Outcome(dry_run=dry_run)
    with progress(label, len(files)) as advance:
        for one in files:
            name = one.scope.name
            try:
                part = do(one)
            except SessionNotFound:
                continue  # it went meanwhile
            except (SMPError, OSError) as error:
                part = Outcome(problems=[str(error)])
            for said in (part.problems, part.notes):
                said[:] = [text if name in text else f"{name}: {text}" for text in said]
            whole.add(part)
            advance()
    return whole
