"""Making the index true now: by the daemon where one leads the root, else here.

A request to the daemon is a file in `.smp/cookies/`. It comes through the watcher behind every
earlier write, and the daemon removes it when all of these are in the index.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from ..disk.locks import NO_PATIENCE, holder, lock
from ..model.errors import LockTimeout, NotInTime, SMPError
from ..model.layout import COOKIES, INDEX_FILE, LEAD, LEAD_SCOPE
from .database import Index
from .take_in import outdated, rebuild, refresh
from .vacuum import asked_for, left_of, scrubbing

if TYPE_CHECKING:
    from ..memory import Memory

Request = Literal["sync", "reindex", "scrub"]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_SILENT_S = 2.0  # before the caller learns whom it waits for
_PENDING = "The index may still hold words of what was removed, because {}: it is tried again."


def bring_up_to_date(
    memory: Memory,
    request: Request = "sync",
    timeout_s: float = 30.0,
    waits: Callable[[str], None] = lambda _: None,
) -> str:
    """Take everything on disk into the index. Return who did it: `daemon` or `here`.

    `waits` is called once with the daemon's name, where it has not answered after two seconds.
    """
    memory.require()
    memory.create()
    deadline = time.monotonic() + timeout_s
    while True:
        if holder(memory.tree, LEAD_SCOPE, LEAD) is not None:
            if _ask_daemon(memory, request, deadline, waits):
                return "daemon"
            continue
        try:
            doing = f"{request} without a daemon"
            with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, doing):
                _do_here(memory, request)
            return "here"
        except LockTimeout:
            continue  # a daemon took the lead just now: ask it


def _ask_daemon(
    memory: Memory, request: Request, deadline: float, waits: Callable[[str], None]
) -> bool:
    """Return whether the daemon answered; it did not where it died before."""
    cookie = f"{COOKIES}/{request}-{os.urandom(16).hex()}"
    memory.tree.make_directory(COOKIES)
    memory.tree.create_cookie(cookie)
    pause, is_silent, said_at = _FIRST_PAUSE_S, True, time.monotonic() + _SILENT_S
    while memory.tree.exists(cookie):
        if time.monotonic() > deadline:
            memory.tree.unlink(cookie)
            raise NotInTime(f"The daemon of {memory.root} did not finish the {request} in time.")
        if pause >= _LONGEST_PAUSE_S:
            leader = holder(memory.tree, LEAD_SCOPE, LEAD)
            if leader is None:
                memory.tree.unlink(cookie)
                return False
            if is_silent and time.monotonic() > said_at:
                is_silent = False
                waits(leader)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def _do_here(memory: Memory, request: Request) -> None:
    index, _ = Index.open_or_replace(memory.root / INDEX_FILE)
    with closing(index):
        if request == "reindex":
            rebuild(memory, index)
        elif request == "scrub":
            for _ in scrubbing(memory, index, memory.options.lock_timeout_s):
                pass
        else:
            with index.batch():
                for scope, file in list(outdated(memory, index)):
                    refresh(memory, index, scope, file)


def scrub_index(memory: Memory, index: Index | None = None) -> list[str]:
    """Serve the requests, with the index as the leader, else by asking it. Return problems."""
    asked = asked_for(memory)
    if not asked or (memory.options.is_leading and index is None):
        return []  # the leader sees the request soon, and cannot wait for itself
    try:
        if index is None:
            bring_up_to_date(memory, "scrub")
        else:
            for _ in scrubbing(memory, index, memory.options.lock_timeout_s):
                pass
    except NotInTime as error:
        return [f"{_PENDING.format('somebody is reading it')} ({error})"]
    except (SMPError, sqlite3.Error, OSError) as error:
        return [_PENDING.format(f"it could not be cleaned ({error})")]
    return [_PENDING.format("somebody is reading it")] if left_of(memory, asked) else []
