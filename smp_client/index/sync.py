"""Making the index true now: by the daemon where one leads the root, else here.

A request to the daemon is a file in `.smp/cookies/`. It comes through the watcher behind everything that was written before it,
and the daemon removes it when all of that is in the index.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ..disk.locks import NO_PATIENCE, holder, lock
from ..model.errors import LockTimeout, NotInTime
from ..model.layout import COOKIES, INDEX_FILE, LEAD, LEAD_SCOPE
from .database import Index
from .take_in import outdated, rebuild, refresh

if TYPE_CHECKING:
    from ..memory import Memory

Request = Literal["sync", "reindex", "scrub"]
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_SILENT_S = 2.0  # before whoever waits is told for whom


def bring_up_to_date(
    memory: Memory, request: Request = "sync", timeout_s: float = 30.0, waits: Callable[[str], None] = lambda _: None
) -> str:
    """Returns when all that is on disk now is in the index; gives back who did it: `daemon` or `here`.

    `waits` is called once with who is waited for, where the daemon has not answered after two seconds.
    """
    memory.require()
    memory.create()
    deadline = time.monotonic() + timeout_s
    while True:
        if holder(memory.tree, LEAD_SCOPE, LEAD) is not None:
            if _ask_daemon(memory, request, deadline, waits):
                return "daemon"
        else:
            try:
                with lock(memory.tree, LEAD_SCOPE, LEAD, NO_PATIENCE, f"{request} without a daemon"):
                    _do_here(memory, request)
                return "here"
            except LockTimeout:
                # Somebody took the lead just now: ask them.
                continue


def _ask_daemon(memory: Memory, request: Request, deadline: float, waits: Callable[[str], None]) -> bool:
    """False where the daemon died before it answered."""
    cookie = f"{COOKIES}/{request}-{uuid.uuid4().hex}"
    memory.tree.make_directory(COOKIES)
    memory.tree.create_cookie(cookie)
    pause = _FIRST_PAUSE_S
    patient_until: float | None = time.monotonic() + _SILENT_S
    while memory.tree.exists(cookie):
        if time.monotonic() > deadline:
            memory.tree.unlink(cookie)
            raise NotInTime(f"The daemon of {memory.root} did not finish the {request} in time.")
        leader = holder(memory.tree, LEAD_SCOPE, LEAD) if pause >= _LONGEST_PAUSE_S else "the daemon"
        if leader is None:
            memory.tree.unlink(cookie)
            return False
        if patient_until is not None and time.monotonic() > patient_until:
            patient_until = None
            waits(leader)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True


def _do_here(memory: Memory, request: Request) -> None:
    index, _ = Index.open_or_replace(memory.root / INDEX_FILE)
    try:
        if request == "reindex":
            rebuild(memory, index)
            return
        if request == "scrub":
            from .vacuum import scrub  # late: few processes need it

            scrub(memory, index)
            return
        with index.batch():
            for scope, file in list(outdated(memory, index)):
                refresh(memory, index, scope, file)
    finally:
        index.close()
