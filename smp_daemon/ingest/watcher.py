"""Noticing what changes under a root: the only user of watchdog.

Notices are hints, and the receiver's scan is the truth. What is promised: a change is reported, or Lost is; a cookie is
reported after all that was written before it; and where watching is impossible, polling takes its place and `check` says why.

On Linux this uses watchdog's reader of inotify and not its observers. An observer has a thread and a queue for each watched
place, so a cookie overtakes the writes before it; holds whatever follows a file moved out for half a second, which every
exchange is; tells nobody of an overflow or of directories that it could not watch; and goes deaf with a KeyError when a
directory is moved out, made anew and both are removed (all measured with 7.1.0).
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
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from smp_client.disk.tree import DEEPEST, Tree
from smp_client.model.layout import ACTIVE, ARCHIVED, COOKIES, DELETED, GLOBAL

from .notices import Changed, Cookie, Lost, Notice, Outbox
from .polling import POLLING, Polling, Retry, remote_filesystem

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.inotify_c import InotifyEvent, WatchDescriptor

__all__ = ["Changed", "Cookie", "Lost", "Notice", "Watcher"]

STOP_S = 2.0
STOPPED = "stopped"

_RECURSIVE, _FLAT = (ACTIVE, GLOBAL, ARCHIVED), (DELETED,)
_PLACES = (*_RECURSIVE, *_FLAT, COOKIES)

# Of the kernel's inotify.h. Not IN_CLOSE_WRITE: without it the kernel makes one event of many appends to a file.
_MODIFY, _ATTRIB, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_MOVE_SELF, _UNMOUNT, _IS_DIRECTORY = 0x800, 0x2000, 0x40000000
_ONLY_DIRECTORIES, _NO_LINKS, _NOT_UNLINKED = 0x1000000, 0x2000000, 0x4000000
_HOW = _ONLY_DIRECTORIES | _NO_LINKS | _NOT_UNLINKED
_CHANGES = _HOW | _MODIFY | _ATTRIB | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_ARRIVALS = _HOW | _MOVED_TO | _CREATE
# It is gone, or has a name that is longer than any that SMP reads.
_NOT_WATCHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)

# What watchdog would print on stderr comes as a Lost or from `check`.
logging.getLogger("watchdog").addHandler(logging.NullHandler())


class CannotWatch(Exception):
    """Why only polling is left."""


class Source(Protocol):
    """Made armed: what happens from then on is reported once it is started."""

    mode: str

    def start(self) -> None: ...
    def stop(self, within_s: float) -> None: ...
    def trouble(self) -> str | None: ...


class Watcher:
    """Reports what changes from `start` to `stop`, from threads of its own: `report` must only put the notice somewhere."""

    def __init__(
        self, root: Path, report: Callable[[Notice], None], polling_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self._polling_s = polling_s
        self._clock = clock
        self._outbox = Outbox(Tree(root), report)
        self._lock = threading.Lock()
        self._retry = Retry()
        self._source: Source | None = None
        self._why = ""

    @property
    def mode(self) -> str:
        source = self._source
        return source.mode if source else STOPPED

    def start(self) -> None:
        """When it returns, everything is watched; so scan after it."""
        with self._lock:
            if self._source is None:
                self._retry = Retry()
                self._source = self._arm("") or Polling(self._outbox, self._polling_s)
                self._outbox.name_cookies()
                self._source.start()

    def stop(self) -> None:
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.stop(STOP_S)

    def restart(self, reason: str = "the watcher was told to begin again") -> None:
        """For whoever knows that the watcher is deaf, although it does not."""
        with self._lock:
            if self._source is not None:
                self._replace(self._source, reason)

    def check(self) -> list[str]:
        """What is wrong now. Begins again, or polls, where the watcher is in trouble; costs a handful of stat calls."""
        with self._lock:
            if self._source is None:
                return ["The watcher is stopped."]
            trouble = self._source.trouble()
            if trouble or (self._source.mode == POLLING and self._retry.is_due(self._clock())):
                self._replace(self._source, trouble)
            self._outbox.settle()
            polls = self.mode == POLLING
        return [f"Changes are looked for every {self._polling_s:g} s instead of being watched: {self._why}."] if polls else []

    def _replace(self, old: Source, trouble: str | None) -> None:
        was_polling = old.mode == POLLING
        if trouble:
            # Before its successor is armed, because both count towards the limit of watches.
            old.stop(STOP_S)
        new = self._arm(trouble or self._why)
        if new is None and was_polling and not trouble:
            return
        old.stop(STOP_S)
        self._source = new or Polling(self._outbox, self._polling_s)
        # After arming and before anything new is reported: what fell between is in the scan, and no cookie overtakes it.
        self._outbox.lost(trouble or "changes are watched again")
        self._source.start()

    def _arm(self, trouble: str) -> Source | None:
        """A source that watches; None where it is not possible, or too early to try again."""
        now = self._clock()
        if not self._retry.is_due(now):
            self._why = trouble
            return None
        self._retry.note(now)
        try:
            return _watching(self._root, self._outbox)
        except Exception as error:  # also what another release of watchdog may bring
            self._why = str(error)
            return None


def _watching(root: Path, outbox: Outbox) -> Source:
    if not (root / ACTIVE).is_dir():
        # Also keeps us from making anything in the empty mount point of a disk that is gone.
        raise CannotWatch(f"{root / ACTIVE} is missing")
    Tree(root).make_directory(COOKIES)
    if sys.platform == "darwin":
        return Observed(root, outbox)
    if kind := remote_filesystem(root):
        raise CannotWatch(f"{root} is on {kind}, which does not announce what others change")
    return Inotify(root, outbox)


def _identities(root: Path) -> dict[str, tuple[int, int] | None]:
    """Which directories stand at the watched places now."""
    found: dict[str, tuple[int, int] | None] = {}
    for place in _PLACES:
        try:
            status = os.stat(f"{root}/{place}", follow_symlinks=False)
            found[place] = (status.st_dev, status.st_ino)
        except OSError:
            found[place] = None
    return found


class Inotify:
    """One inotify descriptor for all places, so that notices have the order of the kernel. All but `stop` and `trouble` runs in
    the reader's thread, or before it is started."""

    mode = "inotify"

    def __init__(self, root: Path, outbox: Outbox) -> None:
        from watchdog.observers.inotify_c import CallbackId, InotifyFD, Mask

        self._root = root
        self._outbox = outbox
        self._trouble: str | None = None
        self._stopping = False
        self._watches: dict[WatchDescriptor, tuple[str, CallbackId]] = {}
        self._numbers = map(CallbackId, itertools.count())
        self._masks = {place: Mask(_CHANGES | _MOVE_SELF) for place in _PLACES} | {COOKIES: Mask(_ARRIVALS | _MOVE_SELF)}
        self._below = Mask(_CHANGES)
        self._identities = _identities(root)
        self._reader = InotifyFD()
        try:
            self._cover_places()
        except BaseException:
            self.stop(STOP_S)
            raise

    def start(self) -> None:
        self._reader.start()

    def stop(self, within_s: float) -> None:
        self._stopping = True
        if not self._reader.is_alive():
            # The reader closes its descriptors itself when it ends; one that never ran or has died does not.
            self._reader._is_reading = False
        self._reader.stop()
        if self._reader.ident is not None:
            self._reader.join(within_s)

    def trouble(self) -> str | None:
        if self._trouble:
            return self._trouble
        if not self._reader.is_alive():
            return "the thread that reads the events has died"
        now = _identities(self._root)
        moved = [place for place in _PLACES if now[place] != self._identities[place]]
        return f"{moved[0]}/ is not the directory that was watched" if moved else None

    # What watchdog's reader calls. An exception would end its thread.

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
            if event.mask & (_MOVE_SELF | _UNMOUNT):
                self._fail(f"{above}/ was moved or unmounted")
            return
        name = os.fsdecode(event.name)
        if above == COOKIES:
            if not event.mask & _IS_DIRECTORY:
                self._handle_cookie(name)
            return
        if event.mask & _IS_DIRECTORY and above not in _FLAT:
            self._follow(f"{above}/{name}", event.mask)
        # After following: what comes into a new directory is either watched by now or there when the receiver looks.
        self._outbox.send(Changed(f"{above}/{name}"))

    def _handle_cookie(self, name: str) -> None:
        if self._trouble:
            # Something is not watched and `check` has not replaced us yet: only a scan can vouch for what came before.
            self._outbox.lost(self._trouble)
        self._outbox.send(Cookie(name))

    def _follow(self, path: str, mask: int) -> None:
        if path.count("/") > DEEPEST:
            return
        if mask & (_CREATE | _MOVED_TO | _ATTRIB):
            self._cover(path)
        elif mask & _MOVED_FROM:
            # Where it was moved within the tree, the event of its arrival follows and covers it anew.
            self._remove([wd for wd, (watched, _) in self._watches.items() if f"{watched}/".startswith(f"{path}/")])

    def _cover_places(self) -> set[WatchDescriptor]:
        seen: set[WatchDescriptor] = set()
        for place in _PLACES:
            if self._identities[place] is not None:
                seen |= self._cover(place)
        return seen

    def _cover(self, top: str) -> set[WatchDescriptor]:
        """Watches a directory, and all below it where its place says so. None is listed before it is watched."""
        seen: set[WatchDescriptor] = set()
        waiting = [top]
        while waiting:
            path = waiting.pop()
            try:
                seen.add(self._add(path))
                if path.startswith(_RECURSIVE) and path.count("/") < DEEPEST:
                    waiting += self._directories_in(path)
            except OSError as error:
                if error.errno not in _NOT_WATCHED or path in _PLACES:
                    raise CannotWatch(f"{path}/ cannot be watched: {_explain(error)}") from error
        return seen

    def _directories_in(self, path: str) -> list[str]:
        with os.scandir(f"{self._root}/{path}") as entries:
            return [f"{path}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)]

    def _add(self, path: str) -> WatchDescriptor:
        number = next(self._numbers)
        wd = self._reader.add_callback(os.fsencode(f"{self._root}/{path}"), self._masks.get(path, self._below), self, number)
        if wd < 0:
            # The one error that watchdog swallows.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        known = self._watches.get(wd)
        if known is not None:
            # Its callback is there already; a second would report everything twice.
            self._reader.remove_callbacks([(wd, number)])
            number = known[1]
        self._watches[wd] = (path, number)
        return wd

    def _remove(self, wds: list[WatchDescriptor]) -> None:
        self._reader.remove_callbacks([(wd, self._watches.pop(wd)[1]) for wd in wds])

    def _fail(self, reason: str) -> None:
        self._trouble = self._trouble or reason
        self._outbox.lost(reason)


def _explain(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the limit of watches is reached (sysctl fs.inotify.max_user_watches)"
    return error.strerror or str(error)


class Observed:
    """A watchdog observer on the whole root, for macOS, where one stream of events has no limit of watches and keeps the order."""

    mode = "fsevents"

    def __init__(self, root: Path, outbox: Outbox) -> None:
        from watchdog import events
        from watchdog.observers import Observer

        self._root = root
        self._top = f"{root.resolve()}/"
        self._outbox = outbox
        self._go = threading.Event()
        self._stopping = False
        self._identities = _identities(root)
        self._observer = Observer()
        handler = events.FileSystemEventHandler()
        handler.dispatch = self._dispatch  # type: ignore[method-assign]
        self._observer.schedule(handler, self._top, recursive=True, event_filter=[
            events.FileCreatedEvent, events.FileModifiedEvent, events.FileMovedEvent, events.FileDeletedEvent,
            events.DirCreatedEvent, events.DirMovedEvent, events.DirDeletedEvent,
        ])  # fmt: skip
        self._observer.start()

    def start(self) -> None:
        self._go.set()

    def stop(self, within_s: float) -> None:
        self._stopping = True
        self._go.set()
        self._observer.stop()
        self._observer.join(within_s)

    def trouble(self) -> str | None:
        if not self._observer.is_alive() or not all(emitter.is_alive() for emitter in self._observer.emitters):
            return "a thread that reads the events has died"
        return None if _identities(self._root) == self._identities else "a watched directory was removed or replaced"

    def _dispatch(self, event: FileSystemEvent) -> None:
        self._go.wait()
        if self._stopping:
            return
        self._tell(event.src_path, appeared=event.event_type in ("created", "modified"))
        if event.dest_path:
            self._tell(event.dest_path, appeared=True)

    def _tell(self, path: bytes | str, *, appeared: bool) -> None:
        inside = os.fsdecode(path).removeprefix(self._top)
        above, _, name = inside.rpartition("/")
        if above == COOKIES:
            if appeared:
                self._outbox.send(Cookie(name))
        elif above in _FLAT or above.partition("/")[0] in _RECURSIVE:
            self._outbox.send(Changed(inside))
