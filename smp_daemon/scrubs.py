"""Taking every trace of what was removed out of the index: when somebody waits for it, and again where it could not be done."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from smp_client.model.deadline import step
from smp_client.model.layout import COOKIES
from smp_client.model.outcome import Outcome

from .jobs import Piece, Run, Stopping
from .root import Root

NAME = "scrub"
READER_WAIT_S = 0.2  # for whoever reads the index at this moment; all other work waits as well
FIRST_REST_S, LONGEST_REST_S = 2.0, 600.0  # before it is tried again
SAID_AFTER_S = 30.0
BETWEEN_LOOKS = 10_000  # steps of SQLite, between two looks whether to stop


class Scrubs:
    def __init__(self) -> None:
        self._asked: dict[str, tuple[Root, list[str]]] = {}  # by root, with the cookies of those who wait
        self._run: Run | None = None
        self._served: list[str] = []
        self._rests: dict[str, tuple[float, float]] = {}  # by root: until when, and how long that was

    def ask_for(self, root: Root, cookie: str | None = None) -> None:
        """One that is under way began too early for this one."""
        self._asked.setdefault(str(root.path), (root, []))[1].extend([cookie] if cookie else [])

    def look(self, root: Root, current: float) -> None:
        """Somebody may have asked for it and be gone, or it could not be done."""
        from smp_client.index.vacuum import asked_for

        path = str(root.path)
        until, rest_s = self._rests.get(path, (0.0, FIRST_REST_S))
        if not asked_for(root.memory):
            self._rests.pop(path, None)
            root.problems.pop(NAME, None)
        elif current >= until and not self.has_work():
            self._rests[path] = (current + rest_s, min(2 * rest_s, LONGEST_REST_S))
            if rest_s >= SAID_AFTER_S:
                root.problems[NAME] = "The index may still hold words of what was removed: it cannot be cleaned. The log says why."
            self.ask_for(root)

    def has_work(self) -> bool:
        return bool(self._asked or self._run)

    def work(self, step: Callable[[Run], None]) -> bool:
        """One step, where there is any; then those who waited for it are told."""
        if self._run is None and self._asked:
            root, self._served = self._asked.pop(next(iter(self._asked)))
            self._run = Run(NAME, root, _pieces(root), only="index")
        if self._run is None:
            return False
        step(self._run)
        if self._run.is_over:
            for cookie in self._served:
                self._run.root.memory.tree.unlink(f"{COOKIES}/{cookie}")
            self._run = None
        return True


def _pieces(root: Root) -> Iterator[Piece]:
    from smp_client.index.vacuum import scrubbing

    steps = scrubbing(root.memory, root.index, READER_WAIT_S)
    is_over = False

    def scrub() -> Outcome:
        nonlocal is_over
        is_over = True  # also where it fails
        with _stoppable(root.index.connection):
            for _ in steps:
                is_over = False
                break
        return Outcome()

    while not is_over:
        yield Piece("", scrub)


@contextmanager
def _stoppable(connection: sqlite3.Connection) -> Iterator[None]:
    """Merging and vacuuming a large index take seconds each, and nothing is lost with either."""
    stopping: list[Stopping] = []

    def is_stopping() -> bool:
        try:
            step()
        except Stopping as error:
            stopping.append(error)
        return bool(stopping)

    connection.set_progress_handler(is_stopping, BETWEEN_LOOKS)
    try:
        yield
    except sqlite3.OperationalError:
        if stopping:
            raise stopping[0] from None
        raise
    finally:
        with suppress(sqlite3.ProgrammingError):  # it was closed meanwhile
            connection.set_progress_handler(None, BETWEEN_LOOKS)
