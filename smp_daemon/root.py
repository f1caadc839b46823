"""One root that the daemon leads: its index, its watcher, and what it must not believe."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from smp_client import AlreadyLed, LockTimeout, Memory, NewerFormat, SMPError, UnsafePath
from smp_client.decay import Policy
from smp_client.index import Index, UnusableIndex, refuse_links
from smp_client.layout import MARKER
from smp_client.locks import Patience, holder, lock
from smp_client.published import publish
from smp_client.questions.ranking import Weights
from smp_client.scopes import has_moved, is_there
from smp_client.status import COOKIES, INDEX_FILE, LEAD, LEAD_SCOPE

from .ingest.debounce import Debounce
from .ingest.notices import Notice
from .ingest.watcher import Watcher
from .jobs import Job

# Whoever asks who leads (`smp status`) takes the lock for an instant.
LEAD_PATIENCE = Patience(timeout_s=0.5, attempts=1)
# A client that brings the index up to date, because nobody leads, has it for as long as that takes.
CLIENT_PATIENCE_S = 60.0
LEADING = "leading"


class Root:
    """Made by `lead`, given up by `close`."""

    def __init__(self, memory: Memory, debounce: Debounce, polling_s: float, report: Callable[[Root, Notice], None]) -> None:
        self.memory = memory
        memory.options = replace(memory.options, is_leading=True)
        self._debounce = debounce
        self._debounce_lock = threading.Lock()  # filled by the watcher's threads, emptied by the worker's
        self.problems: dict[str, str] = {}  # by what they are about, so that each is said once and can go again
        self.jobs: dict[str, Job] = {}  # by name; filled by whoever runs them
        self.known_since: str | None = None  # when a daemon first looked after it
        self.lag_ms: float | None = None
        self.was_there = True  # when the worker last looked
        self.rest_until = 0.0  # after a failure: so that trying again is not all that is done
        self.unanswered: set[str] = set()  # cookies of those who wait for what could not be taken in yet
        self.known_vanished: set[str] = set()
        self.watcher = Watcher(memory.root, lambda notice: report(self, notice), polling_s)
        self._held = ExitStack()
        self._identity: tuple[int, int] | None = None

    @property
    def path(self) -> Path:
        return self.memory.root

    # What has changed and is waiting to be taken in: bounded, however many events come and however busy the worker is.

    def note(self, item: Hashable) -> bool:
        """Gives back whether it is the first one of a batch."""
        with self._debounce_lock:
            was_empty = not len(self._debounce)
            self._debounce.add(item, time.monotonic())
            return was_empty

    def due_in(self, current: float) -> float | None:
        with self._debounce_lock:
            due_s = self._debounce.due_in(current)
        return None if due_s is None else max(due_s, self.rest_until - current)

    def take_waiting(self) -> list[Hashable]:
        with self._debounce_lock:
            return self._debounce.take_all()

    def waiting(self) -> int:
        with self._debounce_lock:
            return len(self._debounce)

    def change_debounce(self, debounce: Debounce) -> None:
        with self._debounce_lock:
            for item in self._debounce.take_all():
                debounce.add(item, time.monotonic())
            self._debounce = debounce

    @property
    def generation(self) -> int | None:
        """The generation of the index; None where somebody has damaged the file."""
        try:
            return self.index.generation
        except sqlite3.Error:
            return None

    def lead(self) -> str | None:
        """Takes the lead, for as long as this process lives. Gives back why the index begins empty, where it does."""
        self.memory.create()
        self._take_lead()
        self.publish()
        self.make_cookies()
        status = os.stat(self.path)
        self._identity = (status.st_dev, status.st_ino)
        replaced = self._open_index()
        self._held.callback(lambda: self.index.close())
        return replaced

    def publish(self) -> None:
        """Says to every client how memories decay, what stands first and what is redacted, as the configuration has it."""
        options = self.memory.options
        publish(self.memory.tree, options.policy or Policy(), options.weights or Weights(), options.redaction)

    def _take_lead(self) -> None:
        deadline = time.monotonic() + CLIENT_PATIENCE_S
        while True:
            try:
                self._lead = self._held.enter_context(lock(self.memory.tree, LEAD_SCOPE, LEAD, LEAD_PATIENCE, LEADING))
                return
            except LockTimeout as error:
                if f", {LEADING} since" in str(error) or time.monotonic() > deadline:
                    who = holder(self.memory.tree, LEAD_SCOPE, LEAD) or "another process"
                    raise AlreadyLed(f"{self.path} is looked after already, by {who}.") from error

    def keep_lead(self) -> None:
        """Takes the lead anew where somebody has removed the lock's file; raises AlreadyLed where another was faster."""
        if not os.fstat(self._lead.descriptor).st_nlink:
            self._take_lead()

    def make_cookies(self) -> bool:
        """Make the directory of requests, which nobody but SMP uses. Return whether something else had to go from its place."""
        tree = self.memory.tree
        tree.make_directory(COOKIES)
        try:
            tree.list(COOKIES)
        except UnsafePath:
            tree.unlink(COOKIES)
            tree.make_directory(COOKIES)
            return True
        return False

    def _open_index(self) -> str | None:
        self.index, replaced = Index.open_or_replace(self.path / INDEX_FILE)
        self._index_inode = os.stat(self.path / INDEX_FILE).st_ino
        return replaced

    def index_is_gone(self) -> bool:
        """Whether somebody has removed or replaced the file, or one beside it: what is written to the old one, nobody reads."""
        try:
            refuse_links(self.path / INDEX_FILE)
            return os.stat(self.path / INDEX_FILE).st_ino != self._index_inode
        except (FileNotFoundError, UnusableIndex):
            return True

    def reopen_index(self) -> None:
        self.index.close()
        self._open_index()

    def close(self) -> None:
        self.watcher.stop()
        self._held.close()

    def replace_index(self, reason: str) -> None:
        """Begins again with an empty index, where the old one turned out to be unusable."""
        self.index.close()
        self.problems["index"] = f"The index was damaged ({reason}) and is being rebuilt."
        (self.path / INDEX_FILE).write_bytes(b"")
        self._open_index()

    def is_there(self) -> bool:
        """Whether the tree is the one that was led at the start, and not an empty mount point or somebody else's disk."""
        wrong = f"{self.path} is missing, unmounted or without its {MARKER}: nothing is forgotten or removed."
        try:
            self.memory.require_known_version()
            status = os.stat(self.path)
            there = (status.st_dev, status.st_ino) == self._identity and self.memory.tree.exists(MARKER)
        except NewerFormat as error:
            there, wrong = False, f"{error} Nothing is done there until this daemon is a later one."
        except (OSError, SMPError):
            there = False
        if there:
            self.problems.pop("root", None)
        else:
            self.problems["root"] = wrong
        return there

    def believe_vanished(self, vanished: set[str]) -> set[str]:
        """Which of the sessions that are gone may be forgotten: none where most of them are gone at once. One that was
        archived, brought back or deleted is only in another place."""
        known = {scope for (scope,) in self.index.connection.execute("SELECT DISTINCT scope FROM files")}
        gone = {scope for scope in vanished | self.known_vanished if scope in known and not is_there(self.memory, scope)}
        moved = {scope for scope in gone if has_moved(self.memory, scope)}
        gone -= moved
        if len(gone) >= 3 and 2 * len(gone) > len(known):
            self.known_vanished = gone
            self.problems["vanished"] = (
                f"{len(gone)} of {len(known)} sessions have disappeared at once; the index keeps them."
                " If that is right, run smp reindex; if not, bring the directories back."
            )
            return moved
        if gone and not self.is_there():
            return set()
        self.believe_all()
        return gone | moved

    def believe_all(self) -> None:
        """Somebody said that what is gone may be gone."""
        self.known_vanished = set()
        self.problems.pop("vanished", None)
