"""A tree that the daemon leads: its lock, its index, its watcher, and its problems."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smp_client import AlreadyLed, LockTimeout, Memory, Options, SMPError
from smp_client.disk.locks import holder, lock
from smp_client.disk.place import has_moved, is_there
from smp_client.disk.policy import publish
from smp_client.index.database import Index, refuse_links
from smp_client.index.gone import is_waiting
from smp_client.index.schema import UnusableIndex
from smp_client.index.unreadable import Unreadable, unreadable
from smp_client.model.errors import is_of_machine
from smp_client.model.layout import COOKIES, INDEX_FILE, LEAD, LEAD_SCOPE, MARKER
from smp_client.model.outcome import Action
from smp_client.passes.vanished import BUSY, OUTSIDE, QUIET_S, settle
from smp_client.redaction.redact import harmless

from .gauges import Measure
from .ingest.clients import Clients
from .ingest.debounce import EVERYTHING, Debounce
from .ingest.derived import Derived
from .ingest.inbox import Inbox
from .ingest.unlocked_edits import UnlockedEdits
from .ingest.watcher import Notice, Watcher
from .log import FilteringBoundLogger
from .metrics import Counters

if TYPE_CHECKING:
    from .jobs import Job

# Whoever asks who leads (`smp status`) takes the lock for an instant.
LEAD_PATIENCE_S = 0.5
# A client that brings the index up to date, because nobody leads, holds the lock meanwhile.
CLIENT_PATIENCE_S = 60.0
# A writer who holds a file for longer comes before the daemon.
PATIENCE_S = 1.0
LEADING = "leading"
SECRETS = "looking for secrets"  # the subject of a failure
SETTLING = "asking where memories went"  # the subject of a failure
VANISHED = "vanished"  # the subject of a problem: most sessions are gone at once
SETTLE_AGAIN_S = 60.0
NAMED_MEMORIES = 50  # of those that a line of the log names
CLIENTS, METRICS = "reading lines of programs", "writing metrics"  # subjects, too
STARTING = "starting"  # the subject of a problem, until the tree is watched and scanned
# A changed file is read when it was quiet for so long, or has waited for so long.
FILE_QUIET_S, LONGEST_WAIT_S = 0.05, 0.5


def _leading(options: Options) -> Options:
    return options._replace(is_leading=True, lock_timeout_s=PATIENCE_S)


class Root:
    """A tree. `lead` takes the lead, `close` gives it up."""

    def __init__(
        self, memory: Memory, polling_s: float, report: Callable[[Root, Notice], None],
        log: FilteringBoundLogger,
    ) -> None:  # fmt: skip
        self.memory = memory
        self.configured = memory.options  # as published; the daemon itself waits less for a lock
        memory.options = _leading(memory.options)
        self.path: Path = memory.root
        self.log: FilteringBoundLogger = log.bind(root=str(memory.root))
        # Changed paths that wait to be indexed: the watcher's threads add, the worker's takes.
        self.waiting = Debounce(FILE_QUIET_S, LONGEST_WAIT_S)
        self.problems: dict[str, str] = {}  # by subject, so that each can go again
        self.problems[STARTING] = (
            "The daemon is starting: it has not looked at all files yet, and may not watch them."
            " Ask again in a few seconds."
        )
        self._failed_in: dict[str, str] = {}  # the session of a failure, by its subject
        self.jobs: dict[str, Job] = {}  # by name; the worker fills it
        self.known_since = ""  # when a daemon first looked after the tree
        self.lag_ms: float | None = None
        self.canary, self.canary_sent = "", 0.0  # the file that is under way through the watcher
        self.proved_at = 0.0  # when a canary last came through
        self.was_there = True  # when the worker last looked
        self.unanswered: set[str] = set()  # cookies whose changes could not be indexed yet
        self.scrub_due = self.tidy_due = 0.0
        self.vectors_of = 0  # the generation of the index whose memories have their vectors
        # Sessions to be compacted: by how many percent, and why.
        self.too_full: dict[str, tuple[float, str]] = {}
        self.compacted: dict[str, int] = {}  # the sizes of sessions after their compaction
        self.futile: dict[str, int] = {}  # the sizes at which a compaction freed nothing
        self.fullness: dict[str, float] = {}  # by session, in percent of its quota
        self.counters = Counters()
        self.measure = Measure(self)
        self.clients = Clients(self)
        self.known_vanished: set[str] = set()
        self.settle_due: float | None = None  # when to ask where vanished memories went
        self.is_believed = False  # that most sessions may be gone
        self.watcher = Watcher(memory.root, lambda notice: report(self, notice), polling_s)
        self.inbox, self.derived = Inbox(self), Derived(self)
        self.edits = UnlockedEdits(self)
        self._unreadable: set[Unreadable] = set()  # the files that were logged
        self._held = ExitStack()
        self._inode = 0  # of the directory that this process leads

    def note(self, path: str) -> bool:
        """Note a changed path. Return whether it is the first one of a batch."""
        return self.waiting.add(path, time.monotonic())

    # Failures.

    def apart(self, about: str, work: Callable[[], object], scope: str = "") -> None:
        """Do work on one piece of data, perhaps of a session.

        A failure costs nothing else, and the status names it. A fault of the machine is raised.
        """
        try:
            work()
        except Exception as error:
            if is_of_machine(error):
                raise
            self.note_failure(about, error, scope)
        else:
            self.problems.pop(about, None)

    def note_failure(self, about: str, error: Exception, scope: str = "") -> None:
        """Log a failure, and have the status name it for as long as its session is there."""
        reason = self.log_failure(about, error)
        subject = about[:1].upper() + about[1:]
        self.problems[about] = f"{subject} failed and is tried again: {reason}"
        if scope:
            self._failed_in[about] = scope

    def _forget_failures_of_gone_sessions(self) -> None:
        for about, scope in [*self._failed_in.items()]:
            if about not in self.problems or not is_there(self.memory, scope):
                del self._failed_in[about]
                self.problems.pop(about, None)

    def log_failure(self, about: str, error: Exception) -> str:
        """Log a failure, and return its reason."""
        is_expected = isinstance(error, (OSError, SMPError, sqlite3.Error))
        reason = harmless(str(error) or repr(error))
        self.log.error(
            f"{about} failed", component="worker", error=reason, exc_info=not is_expected
        )
        return reason

    # The lead.

    def lead(self) -> str | None:
        """Take the lead, for as long as this process lives. Return why the index begins empty."""
        self.memory.create()
        self._take_lead()
        replaced = self._open_index()
        self._held.callback(lambda: self.index.close())
        return replaced

    def close(self) -> None:
        self.watcher.stop()
        self._held.close()

    def _take_lead(self) -> None:
        deadline = time.monotonic() + CLIENT_PATIENCE_S
        while True:
            try:
                held = lock(self.memory.tree, LEAD_SCOPE, LEAD, LEAD_PATIENCE_S, LEADING)
                self._lead = self._held.enter_context(held)
                break
            except LockTimeout as error:
                if f", {LEADING} since" in str(error) or time.monotonic() > deadline:
                    who = holder(self.memory.tree, LEAD_SCOPE, LEAD) or "another process"
                    raise AlreadyLed(f"{self.path} is looked after already, by {who}.") from error
        self._inode = os.stat(self.path).st_ino
        publish(self.memory.tree, self.configured)

    def configure(self, options: Mapping[str, Any]) -> None:
        """Use other options from now on, and publish them for every client."""
        self.configured = self.configured._replace(**options)
        self.memory.options = _leading(self.configured)
        if self.is_there():
            publish(self.memory.tree, self.configured)

    # The index.

    def _open_index(self) -> str | None:
        self.index, replaced = Index.open_or_replace(self.path / INDEX_FILE)
        self._index_inode = os.stat(self.path / INDEX_FILE).st_ino
        return replaced

    def _index_is_gone(self) -> bool:
        """Return whether somebody has removed or replaced a file of the index."""
        try:
            refuse_links(self.path / INDEX_FILE)
            return os.stat(self.path / INDEX_FILE).st_ino != self._index_inode
        except (FileNotFoundError, UnusableIndex):
            return True

    def replace_index(self, reason: str) -> None:
        """Begin again with an empty index, because the old one cannot be used."""
        self.index.close()
        self.problems["index"] = f"The index was damaged ({reason}) and is being rebuilt."
        (self.path / INDEX_FILE).write_bytes(b"")
        self._open_index()

    # The tree.

    def is_there(self) -> bool:
        """Return whether there is a tree, and not the mount point of one that is gone."""
        try:
            self.memory.require_known_version()
            there = self.memory.tree.exists(MARKER)
        except (OSError, SMPError):
            there = False
        self.problems.pop("root", None)
        if not there:
            self.problems["root"] = (
                f"{self.path} is missing, unmounted, without its {MARKER}, or of a newer format:"
                " nothing is forgotten or removed."
            )
        return there

    def believe_vanished(self, vanished: set[str]) -> set[str]:
        """Return the vanished sessions that may be forgotten: none where most vanished at once."""
        if not vanished and not self.known_vanished:
            return set()
        rows = self.index.execute("SELECT DISTINCT scope FROM files")
        known = {scope for (scope,) in rows}
        gone = (vanished | self.known_vanished) & known
        gone = {scope for scope in gone if not is_there(self.memory, scope)}
        moved = {scope for scope in gone if has_moved(self.memory, scope)}
        gone -= moved
        if len(gone) >= 3 and 2 * len(gone) > len(known):
            self.known_vanished = gone
            self.problems[VANISHED] = (
                f"{len(gone)} of {len(known)} sessions have disappeared at once;"
                " the index keeps them."
                " If that is right, run smp reindex; if not, bring the directories back."
            )
            return moved
        if gone and not self.is_there():
            return set()
        self.known_vanished = set()
        self.problems.pop(VANISHED, None)
        return gone | moved

    def believe_all(self) -> None:
        """Forget which sessions vanished, because somebody said that they may be gone."""
        self.known_vanished = set()
        self.is_believed = True
        self.problems.pop(VANISHED, None)

    # Files that cannot be read.

    def log_unreadable(self) -> None:
        """Log each file that cannot be read as a whole, once for each of its changes."""
        found = {*unreadable(self.index)}
        for one in sorted(found - self._unreadable):
            reason = one.problem or f"{one.sentence}; smp check names the lines"
            self.log.error(
                "unreadable", component="indexer", session_id=one.scope, file=one.file,
                records=one.bad, reason=harmless(reason),
            )  # fmt: skip
        self._unreadable = found

    # Memories that vanished.

    def note_vanished(self) -> None:
        """Have the worker ask where memories went, if some have vanished from their files."""
        if self.settle_due is None and (is_waiting(self.index) or VANISHED in self.problems):
            self.settle_due = time.monotonic() + QUIET_S

    def settle(self) -> None:
        """Make deleted memories of those that vanished outside of SMP, and log each file."""
        self.settle_due = time.monotonic() + SETTLE_AGAIN_S  # if this one fails
        outcome = settle(self.memory, self.index, is_believed=self.is_believed)
        self.settle_due = None
        self.is_believed = False
        if not self.known_vanished:
            self.problems.pop(VANISHED, None)
        for action in outcome.actions:
            self.log.warning(
                OUTSIDE, component="indexer", session_id=action.session,
                file=action.reason.removeprefix(f"{OUTSIDE}: "), count=len(action.about),
                memories=list(action.about[:NAMED_MEMORIES]), advice=_way_back(action),
            )  # fmt: skip
        if outcome.counts[BUSY]:
            self.settle_due = time.monotonic() + QUIET_S
        for problem in outcome.problems:
            self.problems[VANISHED] = problem
            self.log.error("vanished memories wait", component="indexer", reason=problem)

    # Regular looks.

    def look_around(self) -> None:
        """Look whether tree, lead, watcher and index are as they were."""
        was_there, self.was_there = self.was_there, self.is_there()
        if not self.was_there:
            if was_there:
                problem = self.problems["root"]
                self.log.error("root is missing", component="daemon", problem=problem)
            return
        is_other = os.stat(self.path).st_ino != self._inode
        if is_other or not os.fstat(self._lead.descriptor).st_nlink:
            # Somebody replaced the tree or removed the lock's file; AlreadyLed if it is too late.
            self._take_lead()
        if not was_there:
            self.log.info("root is back", component="daemon")
            self.note(EVERYTHING)
        self.problems.pop("watcher", None)
        if problem := self.watcher.check():
            self.problems["watcher"] = problem
        self._forget_failures_of_gone_sessions()
        self.apart(CLIENTS, self.clients.take)
        self.inbox.ask_again()
        if self.edits.is_unfinished:
            self.apart(SECRETS, self.edits.look)
        if self._index_is_gone():
            self.log.warning("index is gone", component="indexer")
            self.index.close()
            self._open_index()
            self.note(EVERYTHING)

    def send_canary(self, every_s: float) -> None:
        """Send a file through the watcher. Where the last one was lost, watch and scan anew."""
        if time.monotonic() - self.canary_sent < (2 if self.canary else 1) * every_s:
            return
        tree = self.memory.tree
        try:
            if self.canary:
                self.counters.add("smp_watch_events_total", label="missed")
                sentence = "The watcher does not report changes on the disk; scanning instead."
                self.problems["canary"] = sentence
                self.watcher.restart()
                self.note(EVERYTHING)
                tree.unlink(f"{COOKIES}/{self.canary}")
            self.canary, self.canary_sent = f"canary-{uuid.uuid4().hex}", time.monotonic()
            tree.write_new(f"{COOKIES}/{self.canary}", b"", durable=False)
        except (OSError, SMPError) as error:
            self.problems["canary"] = f"No canary can be sent: {error}"


def _way_back(action: Action) -> str:
    """Return how a person brings memories back that were removed outside of SMP."""
    name = f"--batch {action.batch}" if action.batch else action.session
    return f"smp restore {name} brings it back."
