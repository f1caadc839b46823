"""Putting right what crashed or slow writers have left behind, for a whole root.

Whoever locks a file does this for that file anyway; this is for the files that nobody comes back to.
"""

from __future__ import annotations

import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..disk import journal, rewrite
from ..disk.locks import NO_PATIENCE, lock
from ..disk.scope import Scope
from ..disk.temporaries import maker_is_gone
from ..model.errors import LockTimeout
from ..model.layout import ACTIVE, GLOBAL, JOURNAL, LEAVING, RETIRED, TEMPORARY, is_session_id

if TYPE_CHECKING:
    from ..memory import Memory

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
    for name in [GLOBAL, *(session.id for session in memory._sessions())]:
        scope = Scope(memory.tree, name, GLOBAL if name == GLOBAL else f"{ACTIVE}/{name}", memory.options)
        try:
            done += _roll_forward(scope)
            done += [Tidied(name, f"looked after old versions of {file}") for file in fold_retired(scope)]
        except Exception as error:  # one session that nobody thought of costs no other its turn
            done.append(Tidied(name, "left as it was", str(error) or repr(error)))
    return done + _sweep_leaving(memory) + remove_abandoned(memory) + _scrub(memory)


def _roll_forward(scope: Scope) -> list[Tidied]:
    before = journal.pending(scope)
    journal.recover(scope, wait=False)
    finished = set(before) - set(journal.pending(scope))
    return [Tidied(scope.name, "finished a transaction") for _ in finished]


def stale_files(scope: Scope) -> list[str]:
    """Return the files of which an old version waits that somebody may have written into."""
    return sorted({rewrite.file_of_slot(name) for name in _versions(scope) if not rewrite.is_resting(name)})


def fold_retired(scope: Scope) -> list[str]:
    """Fold late writes into these files, and return those in which that changed something."""
    done: list[str] = []
    for file in stale_files(scope):
        with suppress(LockTimeout), lock(scope.tree, scope.name, file, NO_PATIENCE, "folding in late writes"):
            before = _versions(scope)  # a holder of the lock folds them in itself
            rewrite.fold_retired(scope, file)
            done += [file] if _versions(scope) != before else []
    return done


def _versions(scope: Scope) -> list[str]:
    return [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")]


def _sweep_leaving(memory: Memory) -> list[Tidied]:
    """Finish the moves of sessions that were cut off, and remove directories that have left."""
    done: list[Tidied] = []
    for name in sorted({name.partition("+")[0] for name in memory.tree.list(JOURNAL)}):
        if is_session_id(name) and not memory.tree.exists(f"{ACTIVE}/{name}"):
            try:
                done += _roll_forward(memory._scope(name))
            except Exception as error:  # one that nobody thought of costs no other its turn
                done.append(Tidied(name, "left as it was", str(error) or repr(error)))
    if memory.tree.list(LEAVING):
        from ..change.move import sweep  # late: it loads tar and gzip

        try:
            done += [Tidied("", "left as it was", problem) for problem in sweep(memory)]
        except Exception as error:
            done.append(Tidied("", "left as it was", str(error) or repr(error)))
    return done


def remove_abandoned(memory: Memory) -> list[Tidied]:
    """Remove temporaries that nobody makes any more and that no intent names."""
    tree = memory.tree
    abandoned: dict[str, bool] = {}  # by path: whether it is a directory
    for name in tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        with suppress(FileNotFoundError):  # its owner is done with it
            status = tree.stat(path)
            if maker_is_gone(name) or time.time() - status.st_mtime > ABANDONED_S:
                abandoned[path] = stat.S_ISDIR(status.st_mode)
    # Asked last: a process that is gone by now has recorded every intent that it ever will.
    named = journal.asides(tree) if abandoned else set()
    for path in abandoned.keys() - named:
        (tree.remove_directory if abandoned[path] else tree.unlink)(path)
    return [Tidied("", f"removed the abandoned temporary {path.rpartition('/')[2]}") for path in abandoned.keys() - named]


def _scrub(memory: Memory) -> list[Tidied]:
    """The index, where somebody removed something and could not clean it. A daemon looks for that itself."""
    if memory.options.is_leading:
        return []
    from ..index.vacuum import asked_for, scrub_index  # late: it loads the index

    asked = asked_for(memory)
    problems = scrub_index(memory)
    return [Tidied("", "left as it was", problem) for problem in problems] or [Tidied("", "cleaned the index") for _ in asked[:1]]
