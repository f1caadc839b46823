"""Making the index true, or clean, now: by the daemon where one leads the root, else here.

A request to the daemon is a file in `.smp/cookies/`. It comes through the watcher behind every
earlier write, and the daemon removes it when all of these are in the index.

SQLite keeps the words of deleted rows. Only the leader of the root may scrub them. Until it has, a
file `.smp/scrub+{session}+{any}` asks for it, one for each removal.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Literal

from ..disk import tombstones
from ..disk.locks import NO_PATIENCE, holder, lock
from ..disk.place import archived_scope, has_moved, is_there
from ..model.errors import Invalid, LockTimeout, NotInTime, SessionNotFound, SMPError
from ..model.layout import ACTIVE, COOKIES, GLOBAL, INDEX_FILE, LEAD, LEAD_SCOPE, SCRUB
from .database import Index, outdated
from .schema import BUSY_MS
from .take_in import rebuild, refresh
from .topics import write

if TYPE_CHECKING:
    from ..memory import Memory

Request = Literal["sync", "reindex", "scrub"]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_PENDING = "The index may still hold words of what was removed, because {}: it is tried again."
_OWN = ".smp"


def bring_up_to_date(memory: Memory, request: Request = "sync", timeout_s: float = 30.0) -> str:
    """Take everything on disk into the index. Return who did it: `daemon` or `here`."""
    memory.require()
    memory.create()
    deadline = time.monotonic() + timeout_s
    while True:
        if holder(memory.tree, LEAD_SCOPE, LEAD) is not None:
            if _ask_daemon(memory, request, deadline):
                return "daemon"
            continue
        # A daemon that takes the lead just now is asked instead.
        with suppress(LockTimeout):
            doing = f"{request} without a daemon"
            with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, doing):
                index, _ = Index.open_or_replace(memory.root / INDEX_FILE)
                with closing(index):
                    if request == "reindex":
                        rebuild(memory, index)
                    elif request == "scrub":
                        scrub(memory, index, memory.options.lock_timeout_s)
                    else:
                        with index.batch():
                            for scope, file in outdated(memory, index):
                                refresh(memory, index, scope, file)
            return "here"


def _ask_daemon(memory: Memory, request: Request, deadline: float) -> bool:
    """Return whether the daemon answered; it did not where it died before."""
    cookie = f"{COOKIES}/{request}-{os.urandom(16).hex()}"
    memory.tree.make_directory(COOKIES)
    memory.tree.write_new(cookie, b"", durable=False)
    pause = _FIRST_PAUSE_S
    while memory.tree.exists(cookie):
        if time.monotonic() > deadline:
            memory.tree.unlink(cookie)
            raise NotInTime(f"The daemon of {memory.root} did not finish the {request} in time.")
        if pause >= _LONGEST_PAUSE_S and holder(memory.tree, LEAD_SCOPE, LEAD) is None:
            memory.tree.unlink(cookie)
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def ask_for_scrub(memory: Memory, session_id: str = "") -> None:
    """Ask the leader to clean the index, durably: before a removal, so that no crash forgets it."""
    if memory.tree.exists(INDEX_FILE):
        memory.tree.create(f"{_OWN}/{SCRUB}+{session_id}+{os.urandom(16).hex()}", b"")


def asked_for(memory: Memory) -> list[str]:
    """Return the requests for a scrub that are not served yet."""
    return [name for name in memory.tree.list(_OWN) if name.startswith(f"{SCRUB}+")]


def scrub_index(memory: Memory) -> list[str]:
    """Have the requests served, and return problems. The leader serves them in its own time."""
    asked = asked_for(memory)
    if not asked or memory.options.is_leading:
        return []
    try:
        bring_up_to_date(memory, "scrub")
    except NotInTime as error:
        return [f"{_PENDING.format('somebody is reading it')} ({error})"]
    except (SMPError, sqlite3.Error, OSError) as error:
        return [_PENDING.format(f"it could not be cleaned ({error})")]
    is_left = not set(asked).isdisjoint(asked_for(memory))
    return [_PENDING.format("somebody is reading it")] if is_left else []


def scrub(memory: Memory, index: Index, wait_s: float) -> None:
    """Serve the requests as the leader. They stay where a reader does not go away in time."""
    asked, ask = asked_for(memory), index.execute
    if not asked or not _empty_wal(index, wait_s):
        return
    with index.batch():
        for scope, file in outdated(memory, index):
            if is_there(memory, scope):
                refresh(memory, index, scope, file)
            elif has_moved(memory, scope):
                # Without a daemon nobody has forgotten it. One that is just gone may be unmounted.
                index.forget_session(scope)
        for session_id, purged in tombstones.load(memory.tree).items():
            for scope in (session_id, archived_scope(session_id)) if purged.whole else ():
                if not is_there(memory, scope):
                    index.forget_session(scope)
    for session_id in {name.split("+")[1] for name in asked} - {"", GLOBAL}:
        # A daemon renders missing files itself, and without a daemon nobody needs them.
        if memory.tree.sizes(f"{ACTIVE}/{session_id}/indexes"):
            with suppress(SessionNotFound, Invalid):  # it is archived or deleted by now
                write(memory, index, session_id)
    with index.batch():
        ask("INSERT INTO words (words) VALUES ('optimize')")
    ask("VACUUM")
    for name in asked if _empty_wal(index, wait_s) else ():
        memory.tree.unlink(f"{_OWN}/{name}")


def _empty_wal(index: Index, wait_s: float) -> bool:
    """Empty the WAL, which cannot be done while somebody reads. Return whether it was."""
    ask = index.execute
    ask(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")
    try:
        return not ask("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        ask(f"PRAGMA busy_timeout = {BUSY_MS}")
