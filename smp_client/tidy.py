"""Putting right what crashed or slow writers have left behind, for a whole root.

Whoever locks a file does this for that file anyway; this is for the files that nobody comes back to.
"""

from __future__ import annotations

import stat
import time
from dataclasses import dataclass

from . import journal, rewrite
from .errors import LockTimeout, SMPError
from .layout import ACTIVE, GLOBAL, RETIRED, TEMPORARY
from .locks import NO_PATIENCE, lock
from .memory import Memory
from .scope import Scope

ABANDONED_S = 3600.0  # no write takes this long, so a temporary this old belongs to nobody


@dataclass(frozen=True)
class Tidied:
    """What was found and what became of it; `problem` where it could not be put right."""

    scope: str
    what: str
    problem: str | None = None


def tidy(memory: Memory) -> list[Tidied]:
    """Never waits for a lock: what somebody is working on is left to them."""
    done: list[Tidied] = []
    for name in [GLOBAL, *(session.id for session in memory.sessions())]:
        scope = Scope(memory.tree, name, GLOBAL if name == GLOBAL else f"{ACTIVE}/{name}", memory.options)
        try:
            done += _finish_transactions(scope) + _fold_retired(scope)
        except (SMPError, OSError) as error:
            done.append(Tidied(name, "left as it was", str(error)))
    return done + _remove_abandoned(memory)


def _finish_transactions(scope: Scope) -> list[Tidied]:
    before = journal.pending(scope)
    journal.recover(scope, wait=False)
    finished = set(before) - set(journal.pending(scope))
    return [Tidied(scope.name, "finished a transaction") for _ in finished]


def _fold_retired(scope: Scope) -> list[Tidied]:
    done: list[Tidied] = []
    for file in sorted({rewrite.file_of_slot(name) for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")}):
        try:
            with lock(scope.tree, scope.name, file, NO_PATIENCE, "folding in late writes"):
                rewrite.fold_retired(scope, file)
                done.append(Tidied(scope.name, f"looked after old versions of {file}"))
        except LockTimeout:
            # Its holder folds them in.
            continue
    return done


def _remove_abandoned(memory: Memory) -> list[Tidied]:
    done: list[Tidied] = []
    for name in memory.tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        try:
            status = memory.tree.stat(path)
        except FileNotFoundError:
            # Its owner is done with it.
            continue
        if time.time() - status.st_mtime > ABANDONED_S:
            (memory.tree.remove_directory if stat.S_ISDIR(status.st_mode) else memory.tree.unlink)(path)
            done.append(Tidied("", f"removed the abandoned temporary {name}"))
    return done
