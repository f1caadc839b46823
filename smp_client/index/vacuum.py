"""Taking every trace of memories that were removed out of the index.

SQLite keeps deleted rows: FTS5 in its segments until they are merged, the WAL until it is cut off,
and a page between its entries, where entries stood that have moved (`secure_delete` does not
overwrite those; only VACUUM does). Only the leader of the root may put that right. Until it has,
`.smp/scrub+{session}+{any}` asks for it, one file for each that asked.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..disk.scopes import archived_scope, has_moved, is_there
from ..model.errors import Invalid, NotInTime, SessionNotFound, SMPError
from ..model.layout import GLOBAL, INDEX_FILE, SCRUB
from .take_in import outdated, refresh

if TYPE_CHECKING:
    from ..memory import Memory
    from .database import Index

_OWN, _TO_CUT = ".smp", ".cut"
_PENDING = "The index may still hold words of what was removed, because {}: it is tried again."


def ask_for_scrub(memory: Memory, session_id: str = "") -> None:
    """Ask the leader to clean the index, durably: before a removal, so that no crash forgets it."""
    if memory.tree.exists(INDEX_FILE):
        memory.tree.create(f"{_OWN}/{SCRUB}+{session_id}+{uuid.uuid4().hex}", b"")


def asked_for(memory: Memory) -> list[str]:
    """Return the requests that are not served yet."""
    return [name for name in memory.tree.list(_OWN) if name.startswith(SCRUB)]


def scrub_index(memory: Memory, index: Index | None = None) -> list[str]:
    """Serve the requests, with the index as the leader, else by asking it. Return problems."""
    from .sync import bring_up_to_date  # late: it needs this module

    asked = asked_for(memory)
    if not asked or (memory.options.is_leading and index is None):
        return []  # the leader sees the request soon, and cannot wait for itself
    try:
        if index is not None:
            scrub(memory, index)
        else:
            bring_up_to_date(memory, "scrub")
    except NotInTime as error:
        return [f"{_PENDING.format('somebody is reading it')} ({error})"]
    except (SMPError, sqlite3.Error, OSError) as error:
        return [_PENDING.format(f"it could not be cleaned ({error})")]
    return [_PENDING.format("somebody is reading it")] if _left_of(memory, asked) else []


def scrub(memory: Memory, index: Index) -> None:
    """Serve the requests in one go. The caller leads the root."""
    for _ in scrubbing(memory, index, memory.options.patience.timeout_s):
        pass


def scrubbing(memory: Memory, index: Index, wait_s: float) -> Iterator[None]:
    """Serve the requests in steps, for a leader with other work. Readers are waited for so long."""
    asked = asked_for(memory)
    if any(not name.endswith(_TO_CUT) for name in asked):
        _take_in_all(memory, index)
        _renew_yaml_indexes(
            memory, index, {name.split("+")[1] for name in asked if "+" in name} - {"", GLOBAL}
        )
        yield
        with index.batch():
            index.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        yield
        index.connection.execute("VACUUM")
        for name in asked:
            # Only the last step is to be tried again where it fails.
            memory.tree.rename(f"{_OWN}/{name}", f"{_OWN}/{name.removesuffix(_TO_CUT)}{_TO_CUT}")
    if asked and _cut_wal(index, wait_s):
        for name in _left_of(memory, asked):
            memory.tree.unlink(f"{_OWN}/{name}")


def _left_of(memory: Memory, asked: Collection[str]) -> list[str]:
    names = {name.removesuffix(_TO_CUT) for name in asked}
    return [name for name in asked_for(memory) if name.removesuffix(_TO_CUT) in names]


def _take_in_all(memory: Memory, index: Index) -> None:
    from ..disk.tombstones import sessions as purged_sessions  # late: few processes need it

    with index.batch():
        for scope, file in list(outdated(memory, index)):
            if is_there(memory, scope):
                refresh(memory, index, scope, file)
            elif has_moved(memory, scope):
                # With no daemon nobody has taken it out. One that is just gone may be unmounted.
                index.forget_session(scope)
        for session_id in purged_sessions(memory):
            for scope in (session_id, archived_scope(session_id)):
                if not is_there(memory, scope):
                    index.forget_session(scope)


def _renew_yaml_indexes(memory: Memory, index: Index, sessions: Iterable[str]) -> None:
    """Render `indexes/` of these sessions anew; where no daemon leads, only existing ones."""
    from .yaml_indexes import directory_of, write

    for session_id in sessions:
        if memory.options.is_leading or memory.tree.sizes(directory_of(session_id)):
            with suppress(SessionNotFound, Invalid):  # it is archived or deleted by now
                write(memory, index, session_id)


def _cut_wal(index: Index, wait_s: float) -> bool:
    """Return whether the WAL could be emptied: it cannot while somebody reads."""
    before = index.connection.execute("PRAGMA busy_timeout").fetchone()[0]
    try:
        index.connection.execute(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")
        return not index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        index.connection.execute(f"PRAGMA busy_timeout = {before}")
