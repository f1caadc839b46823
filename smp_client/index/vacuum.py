"""Taking every trace of removed memories out of the index.

SQLite keeps deleted rows: FTS5 in its segments, the WAL, and pages between their entries, where
`secure_delete` overwrites nothing that has moved. Only the leader of the root may mend that. Until
it has, a file `.smp/scrub+{session}+{any}` asks for it, one for each request.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..disk.scopes import archived_scope, has_moved, is_there
from ..model.errors import Invalid, SessionNotFound
from ..model.layout import GLOBAL, INDEX_FILE, SCRUB
from .take_in import outdated, refresh

if TYPE_CHECKING:
    from ..memory import Memory
    from .database import Index

_OWN, _TO_CUT = ".smp", ".cut"


def ask_for_scrub(memory: Memory, session_id: str = "") -> None:
    """Ask the leader to clean the index, durably: before a removal, so that no crash forgets it."""
    if memory.tree.exists(INDEX_FILE):
        memory.tree.create(f"{_OWN}/{SCRUB}+{session_id}+{os.urandom(16).hex()}", b"")


def asked_for(memory: Memory) -> list[str]:
    """Return the requests that are not served yet."""
    return [name for name in memory.tree.list(_OWN) if name.startswith(SCRUB)]


def scrubbing(memory: Memory, index: Index, wait_s: float) -> Iterator[None]:
    """Serve the requests in steps, for a leader with other work. Readers are waited for so long."""
    asked, ask = asked_for(memory), index.connection.execute
    if any(not name.endswith(_TO_CUT) for name in asked):
        _take_in_all(memory, index)
        sessions = {name.split("+")[1] for name in asked if "+" in name} - {"", GLOBAL}
        _renew_yaml_indexes(memory, index, sessions)
        yield
        with index.batch():
            ask("INSERT INTO words (words) VALUES ('optimize')")
        yield
        ask("VACUUM")
        for name in asked:
            # Only the last step is to be tried again where it fails.
            memory.tree.rename(f"{_OWN}/{name}", f"{_OWN}/{name.removesuffix(_TO_CUT)}{_TO_CUT}")
    if not asked:
        return
    before = ask("PRAGMA busy_timeout").fetchone()[0]
    try:
        ask(f"PRAGMA busy_timeout = {int(1000 * wait_s)}")
        # The WAL cannot be emptied while somebody reads.
        is_cut = not ask("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        ask(f"PRAGMA busy_timeout = {before}")
    for name in left_of(memory, asked) if is_cut else ():
        memory.tree.unlink(f"{_OWN}/{name}")


def left_of(memory: Memory, asked: Collection[str]) -> list[str]:
    """Return those of the requests that are not served yet."""
    names = {name.removesuffix(_TO_CUT) for name in asked}
    return [name for name in asked_for(memory) if name.removesuffix(_TO_CUT) in names]


def _take_in_all(memory: Memory, index: Index) -> None:
    from ..disk import tombstones  # late: few processes need it

    with index.batch():
        for scope, file in list(outdated(memory, index)):
            if is_there(memory, scope):
                refresh(memory, index, scope, file)
            elif has_moved(memory, scope):
                # Without a daemon nobody has forgotten it. One that is just gone may be unmounted.
                index.forget_session(scope)
        purged = tombstones.load(memory.tree).items()
        for session_id in [name for name, about in purged if about.whole]:
            for scope in (session_id, archived_scope(session_id)):
                if not is_there(memory, scope):
                    index.forget_session(scope)


def _renew_yaml_indexes(memory: Memory, index: Index, sessions: Collection[str]) -> None:
    """Render `indexes/` of these sessions anew; where no daemon leads, only existing ones."""
    from .yaml_indexes import directory_of, write

    for session_id in sessions:
        if memory.options.is_leading or memory.tree.sizes(directory_of(session_id)):
            with suppress(SessionNotFound, Invalid):  # it is archived or deleted by now
                write(memory, index, session_id)
