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
from ..disk.quarantine import INBOX, waiting
from ..disk.tree import version_of
from ..model.errors import Invalid, LockTimeout, NotInTime, SessionNotFound, SMPError
from ..model.layout import (
    ACTIVE,
    COOKIES,
    GLOBAL,
    INDEX_FILE,
    LEAD,
    LEAD_SCOPE,
    SCRUB,
    is_session_id,
)
from ..model.progress import tracked
from ..model.times import now, time_of
from . import gone
from .database import Index, outdated
from .schema import BUSY_MS
from .status import BEING_WRITTEN, daemon_report
from .take_in import rebuild, refresh
from .topics import write

if TYPE_CHECKING:
    from datetime import datetime

    from ..memory import Memory

Request = Literal["sync", "reindex", "scrub"]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_PENDING = "The index may still hold words of what was removed, because {}: it is tried again."
_OWN = ".smp"
_PROBLEMS = 3  # that a message names


def bring_up_to_date(memory: Memory, request: Request = "sync", timeout_s: float = 30.0) -> str:
    """Take everything on disk into the index. Return who did it: `daemon` or `here`.

    A daemon also takes in the drops that are there; without one they wait. Raise NotInTime if work
    is left, and name it.
    """
    memory.require()
    memory.create()
    began = now()
    deadline = time.monotonic() + timeout_s
    drops = _drops(memory) if request == "sync" else {}
    done_by = _have_done(memory, request, deadline)
    if drops and done_by == "daemon":
        _wait_for_drops(memory, drops, began, deadline)
        done_by = _have_done(memory, request, deadline)
    return done_by


def _have_done(memory: Memory, request: Request, deadline: float) -> str:
    """Have the daemon serve a request, or serve it here. Return who did it."""
    while True:
        if holder(memory.tree, LEAD_SCOPE, LEAD) is not None:
            if _ask_daemon(memory, request, deadline):
                return "daemon"
        else:
            # A daemon that takes the lead just now is asked instead.
            with suppress(LockTimeout):
                doing = f"{request} without a daemon"
                with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, doing):
                    _serve(memory, request)
                return "here"
        if time.monotonic() > deadline:
            raise NotInTime(f"Nobody could lead {memory.root} to do the {request}.")


def _serve(memory: Memory, request: Request) -> None:
    """Serve a request as the leader."""
    index, _ = Index.open_or_replace(memory.root / INDEX_FILE)
    with closing(index):
        if request == "reindex":
            rebuild(memory, index)
        elif request == "scrub":
            scrub(memory, index, memory.options.lock_timeout_s)
        else:
            with index.batch():
                for scope, file in tracked(outdated(memory, index)):
                    refresh(memory, index, scope, file)
                index.note_folders(memory.tree)


def _ask_daemon(memory: Memory, request: Request, deadline: float) -> bool:
    """Return whether the daemon answered; it did not where it died before."""
    cookie = f"{COOKIES}/{request}-{os.urandom(16).hex()}"
    memory.tree.make_directory(COOKIES)
    memory.tree.write_new(cookie, b"", durable=False)
    pause = _FIRST_PAUSE_S
    while memory.tree.exists(cookie):
        if time.monotonic() > deadline:
            memory.tree.unlink(cookie)
            said = f"The daemon of {memory.root} did not finish the {request} in time."
            raise NotInTime(" ".join([said, *daemon_report(memory)["problems"][:_PROBLEMS]]))
        if pause >= _LONGEST_PAUSE_S and holder(memory.tree, LEAD_SCOPE, LEAD) is None:
            memory.tree.unlink(cookie)
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


# Drops, which only a daemon takes in.


def _drops(memory: Memory) -> dict[str, dict[str, list[int]]]:
    """Return the drops of each session that has some, by name, each with its version."""
    found: dict[str, dict[str, list[int]]] = {}
    for session_id in filter(is_session_id, memory.tree.entries_known(ACTIVE)):
        if names := waiting(memory.tree, f"{ACTIVE}/{session_id}"):
            found[session_id] = {name: _version(memory, session_id, name) for name in names}
    return found


def waiting_drops(memory: Memory) -> str:
    """Return a sentence about the drops that wait for a daemon; nothing where there are none."""
    counts = {session_id: len(names) for session_id, names in _drops(memory).items()}
    return f"Drops wait until a daemon runs: {_named(counts, {})}." if counts else ""


def _version(memory: Memory, session_id: str, name: str) -> list[int]:
    """Return the version of a drop; nothing where it is gone."""
    with suppress(OSError, SMPError):
        return version_of(memory.tree.stat(f"{ACTIVE}/{session_id}/{INBOX}/{name}"))
    return []


def _wait_for_drops(
    memory: Memory, drops: dict[str, dict[str, list[int]]], began: datetime, deadline: float
) -> None:
    """Wait until these drops are taken in or rejected; not for those that somebody still writes.

    Raise NotInTime at the deadline, or as soon as the daemon has tried all that are left in vain.
    """
    pause = _FIRST_PAUSE_S
    while True:
        for session_id, names in drops.items():
            for name, version in [*names.items()]:
                if not version or _version(memory, session_id, name) != version:
                    del names[name]
        left = {session_id: len(names) for session_id, names in drops.items() if names}
        tried = _tried_since(memory, began)
        stuck = {one: count for one, count in left.items() if tried.get(one) != BEING_WRITTEN}
        if not stuck:
            return
        has_no_leader = holder(memory.tree, LEAD_SCOPE, LEAD) is None
        if has_no_leader or stuck.keys() <= tried.keys() or time.monotonic() > deadline:
            raise _not_taken_in(stuck, tried)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _tried_since(memory: Memory, began: datetime) -> dict[str, str]:
    """Return why drops wait, by session, as far as the daemon has tried them since a time."""
    said = daemon_report(memory).get("drops")
    found: dict[str, str] = {}
    for session_id, entry in said.items() if isinstance(said, dict) else ():
        tried_at = time_of(entry.get("tried_at")) if isinstance(entry, dict) else None
        if tried_at is not None and tried_at >= began:
            found[str(session_id)] = str(entry.get("reason"))
    return found


def _not_taken_in(left: dict[str, int], reasons: dict[str, str]) -> NotInTime:
    """Return the error that names the sessions whose drops wait, and why."""
    return NotInTime(f"Drops are not taken in: {_named(left, reasons)}.")


def _named(left: dict[str, int], reasons: dict[str, str]) -> str:
    """Return how many drops wait in the first sessions, and why."""
    named: list[str] = []
    for session_id, count in [*left.items()][:_PROBLEMS]:
        why = f" ({reasons[session_id].rstrip('.')})" if session_id in reasons else ""
        named.append(f"{count:,} in the inbox of {session_id}{why}")
    if len(left) > len(named):
        named.append(f"others in {len(left) - len(named):,} more")
    return ", ".join(named)


# Scrubbing.


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
                index.forget_session(scope, has_moved=True)
        for session_id, purged in tombstones.load(memory.tree).items():
            own_scopes = (session_id, archived_scope(session_id))
            for scope in own_scopes if purged.whole else ():
                if not is_there(memory, scope):
                    index.forget_session(scope, has_moved=True)
            is_kept = any(is_there(memory, scope) for scope in own_scopes)
            rows = gone.of_scopes(index, own_scopes)
            gone.forget(index, gone.purged_among(rows, purged, is_there=is_kept))
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
