"""Noticing changes under a root: the only user of watchdog.

Notices are hints, and the receiver's scan is the truth. A change is reported, or Lost is. A cookie
is reported after all changes before it. Where watching is impossible, polling takes its place, and
`check` says why. macOS is always polled.

On Linux this uses watchdog's reader of inotify and not its observers (measured with 7.1.0). An
observer has a queue for each watched place, so a cookie overtakes the writes before it. It holds
back events behind a file that was moved out, which every exchange is. It reports neither an
overflow nor directories that it could not watch, and a KeyError can leave it deaf.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smp_client import UnsafePath
from smp_client.disk.tree import DEEPEST, Tree
from smp_client.index.status import STOPPED
from smp_client.model.layout import ACCESS_LOG, ACTIVE, ARCHIVED, COOKIES, GLOBAL

if TYPE_CHECKING:
    from watchdog.observers.inotify_c import InotifyEvent, WatchDescriptor

POLLING = "polling"
COOKIE_EVERY_S = 0.1  # between two looks of polling for cookies
STOP_S = 2.0
RETRY_S = 10.0  # between two tries to watch a tree

_RECURSIVE = (ACTIVE, GLOBAL, ARCHIVED)
_PLACES = (*_RECURSIVE, COOKIES)

# Of the kernel's inotify.h. Without IN_CLOSE_WRITE, many appends to a file are one event.
_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_MOVE_SELF, _UNMOUNT, _IS_DIRECTORY = 0x800, 0x2000, 0x40000000
_HOW = 0x7000000  # only directories, no links, nothing of unlinked files
_CHANGES = _HOW | _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _MOVE_SELF
# The directory is gone, or has a name that is longer than any that SMP reads.
_NOT_WATCHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)

# Instead of watchdog's lines on stderr there is a Lost, or a sentence of `check`.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Changed:
    """A file at this path, relative to the root, or any file below this directory has changed."""

    path: str


@dataclass(frozen=True)
class Cookie:
    """A file stands in `.smp/cookies/`. Every change before it was reported before it."""

    name: str


@dataclass(frozen=True)
class Lost:
    """Changes may have gone unreported: only a scan of the whole tree finds them."""

    reason: str


Notice = Changed | Cookie | Lost


@dataclass(frozen=True)
class Outbox:
    tree: Tree
    report: Callable[[Notice], None]

    def lost(self, reason: str) -> None:
        """Report Lost, then the cookies that are there: their events may be among the lost."""
        # Listed first: the receiver's scan may come too early for the write before a later cookie.
        names = self.cookies()
        self.report(Lost(reason))
        for name in names:
            self.report(Cookie(name))

    def cookies(self) -> list[str]:
        try:
            return sorted(self.tree.sizes(COOKIES))  # plain files only, no directories
        except (OSError, UnsafePath):
            return []  # the root is out of reach, which the daemon notices by itself


class Inotify:
    """One inotify descriptor for all places, so that notices have the order of the kernel.

    All methods but `stop` and `trouble` run in the reader's thread, or before it is started.
    """

    mode = "inotify"

    def __init__(self, root: Path, outbox: Outbox) -> None:
        from watchdog.observers.inotify_c import CallbackId, InotifyFD, Mask

        self._root, self._outbox = root, outbox
        self._trouble = ""
        self._stopping = False
        self._watches: dict[WatchDescriptor, tuple[str, CallbackId]] = {}
        self._numbers = map(CallbackId, itertools.count())
        self._mask = Mask(_CHANGES)
        self._reader = InotifyFD()
        self.start = self._reader.start
        try:
            self._cover_places()
        except BaseException:
            self.stop(STOP_S)
            raise

    def stop(self, within_s: float) -> None:
        self._stopping = True
        if not self._reader.is_alive():
            # A reader that ends closes its descriptors; one that never ran or has died does not.
            self._reader._is_reading = False
        self._reader.stop()
        if self._reader.ident is not None:
            self._reader.join(within_s)

    def trouble(self) -> str:
        dead = "" if self._reader.is_alive() else "the thread that reads the events has died"
        return self._trouble or dead

    # Watchdog's reader calls these. An exception would end its thread.

    def on_event(self, event: InotifyEvent) -> None:
        try:
            if not self._stopping:
                self._handle(event)
        except Exception as error:
            self._fail(str(error))

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        path, _ = self._watches.pop(wd, ("", 0))
        if path in _PLACES and not self._stopping:
            self._fail(f"{path}/ was removed")

    def on_queue_overflow(self) -> None:
        try:
            seen = self._cover_places()
            self._remove([wd for wd in self._watches if wd not in seen])
        except Exception as error:
            self._fail(str(error))
        self._outbox.lost("the kernel's queue of events overflowed")

    def _handle(self, event: InotifyEvent) -> None:
        above, _ = self._watches.get(event.wd, ("", 0))
        if not above:
            return
        if not event.name:
            if above in _PLACES and event.mask & (_MOVE_SELF | _UNMOUNT):
                self._fail(f"{above}/ was moved or unmounted")
            return
        name, is_directory = os.fsdecode(event.name), bool(event.mask & _IS_DIRECTORY)
        path = f"{above}/{name}"
        if above == COOKIES:
            if is_directory or not event.mask & (_CREATE | _MOVED_TO):
                return
            if self._trouble:
                # A place is not watched: only a scan can vouch for the changes before the cookie.
                self._outbox.lost(self._trouble)
            self._outbox.report(Cookie(name))
            return
        if is_directory and path.count("/") <= DEEPEST:
            if event.mask & (_CREATE | _MOVED_TO | _ATTRIB):
                self._cover(path)
            elif event.mask & _MOVED_FROM:
                # If it was moved within the tree, the event of its arrival covers it anew.
                below = f"{path}/"
                watches = self._watches.items()
                self._remove([wd for wd, (old, _) in watches if f"{old}/".startswith(below)])
        # Last: a file in a new directory is watched by now, or there when the receiver looks.
        # Every reader of a memory appends to the access log, and no index depends on it.
        if name != ACCESS_LOG:
            self._outbox.report(Changed(path))

    def _cover_places(self) -> set[WatchDescriptor]:
        return {wd for place in _PLACES for wd in self._cover(place)}

    def _cover(self, top: str) -> set[WatchDescriptor]:
        """Watch a directory, in a recursive place with all below it; each before it is listed."""
        seen: set[WatchDescriptor] = set()
        waiting = [top]
        while waiting:
            path = waiting.pop()
            try:
                seen.add(self._add(path))
                if path.startswith(_RECURSIVE) and path.count("/") < DEEPEST:
                    with os.scandir(f"{self._root}/{path}") as entries:
                        names = [one.name for one in entries if one.is_dir(follow_symlinks=False)]
                    waiting += [f"{path}/{name}" for name in names]
            except OSError as error:
                if error.errno not in _NOT_WATCHED or path in _PLACES:
                    reason = error.strerror or str(error)
                    if error.errno == errno.ENOSPC:
                        limit = "sysctl fs.inotify.max_user_watches"
                        reason = f"the limit of watches is reached ({limit})"
                    raise OSError(f"{path}/ cannot be watched: {reason}") from error
        return seen

    def _add(self, path: str) -> WatchDescriptor:
        number, place = next(self._numbers), os.fsencode(f"{self._root}/{path}")
        wd = self._reader.add_callback(place, self._mask, self, number)
        if wd < 0:
            # The one error that watchdog swallows.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if wd in self._watches:
            # Its callback is there already; a second would report everything twice.
            self._reader.remove_callbacks([(wd, number)])
            number = self._watches[wd][1]
        self._watches[wd] = (path, number)
        return wd

    def _remove(self, wds: list[WatchDescriptor]) -> None:
        self._reader.remove_callbacks([(wd, self._watches.pop(wd)[1]) for wd in wds])

    def _fail(self, reason: str) -> None:
        self._trouble = self._trouble or reason
        self._outbox.lost(reason)


class Polling:
    """Report Lost at regular times, and at once when a cookie appears."""

    mode = POLLING

    def __init__(self, outbox: Outbox, every_s: float) -> None:
        self._outbox = outbox
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="smp-polling", daemon=True)
        self.start = self._thread.start

    def stop(self, within_s: float) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def trouble(self) -> str:
        return "" if self._thread.is_alive() else "the polling thread has died"

    def _run(self) -> None:
        due, known = time.monotonic() + self._every_s, set[str]()
        while not self._stopping.wait(min(COOKIE_EVERY_S, self._every_s)):
            cookies = set(self._outbox.cookies())
            if time.monotonic() >= due or cookies - known:
                self._outbox.lost(POLLING)
                due = time.monotonic() + self._every_s
            known = cookies


Source = Inotify | Polling


class Watcher:
    """Report changes from `start` to `stop`, from threads of its own.

    `report` must only put the notice somewhere.
    """

    def __init__(
        self, root: Path, report: Callable[[Notice], None], polling_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._root, self._polling_s, self._clock = root, polling_s, clock
        self._outbox = Outbox(Tree(root), report)
        self._lock = threading.Lock()
        self._try_at = 0.0
        self._source: Source | None = None
        self._why = ""  # changes are polled although they should be watched

    @property
    def mode(self) -> str:
        source = self._source
        return source.mode if source else STOPPED

    def start(self) -> None:
        """Watch. When this returns, every later change is noticed; so scan after it."""
        with self._lock:
            self._try_at = 0.0
            self._begin("")
            for name in self._outbox.cookies():
                self._outbox.report(Cookie(name))

    def stop(self) -> None:
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.stop(STOP_S)

    def restart(self, reason: str = "the watcher was told to begin again") -> None:
        """Begin again, because the caller knows that the watcher is deaf."""
        with self._lock:
            if self._source is not None:
                self._begin(reason)

    def check(self) -> str:
        """Return a problem, "" for none. Begin again, or poll, where the watcher is in trouble."""
        with self._lock:
            if self._source is None:
                return "The watcher is stopped."
            trouble = self._source.trouble()
            if trouble or (self._why and self._clock() >= self._try_at):
                self._begin(trouble or "the watcher is tried again")
            every = f"{self._polling_s:g} s instead of being watched: {self._why}."
            return f"Changes are looked for every {every}" if self._why else ""

    def _begin(self, reason: str) -> None:
        """Watch anew; poll where that is not possible, or was tried just now."""
        if self._source is not None:
            # Before its successor is armed, because both count towards the limit of watches.
            self._source.stop(STOP_S)
        try:
            if self._clock() < self._try_at:
                raise OSError(reason)
            self._try_at = self._clock() + RETRY_S
            self._source, self._why = self._armed(), ""
        except Exception as error:  # also what another release of watchdog may bring
            self._source, self._why = Polling(self._outbox, self._polling_s), str(error)
        if reason:
            # After arming and before any new report, so that no cookie overtakes the scan.
            self._outbox.lost(reason)
        self._source.start()

    def _armed(self) -> Source:
        if not (self._root / ACTIVE).is_dir():
            # Nothing may be made in the empty mount point of a disk that is gone.
            raise OSError(f"{self._root / ACTIVE} is missing")
        _make_places(self._outbox.tree)
        if sys.platform == "linux":
            return Inotify(self._root, self._outbox)
        return Polling(self._outbox, self._polling_s)


def _make_places(tree: Tree) -> None:
    for place in _PLACES:
        tree.make_directory(place)
    try:
        tree.list(COOKIES)
    except UnsafePath:  # a link or a file, as a cloned repository may bring it
        tree.unlink(COOKIES)
        tree.make_directory(COOKIES)
