"""Tidying a whole root after crashed or slow writers.

Whoever locks a file does this for that file anyway; tidying is for files nobody comes back to.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ..change.move import sweep
from ..disk import journal, rewrite
from ..disk.locks import NO_PATIENCE, lock_all
from ..disk.scope import Scope
from ..index.sync import asked_for, scrub_index
from ..model.errors import LockTimeout
from ..model.layout import GLOBAL, JOURNAL, LEAVING, RETIRED, TEMPORARY, is_session_id
from ..model.outcome import Action, Outcome

if TYPE_CHECKING:
    from ..memory import Memory

ABANDONED_S = 600.0  # no write takes this long, so a temporary this old belongs to nobody


def tidy(memory: Memory) -> Outcome:
    """Finish changes that were cut off, fold in late writes, and remove leftovers.

    It waits for no lock: whoever holds one looks after that file. A step that fails stops no other.
    """
    outcome, tree = Outcome(), memory.tree

    def attempt(name: str, step: Callable[[], list[str]]) -> None:
        about = (name,) if name else ()
        try:
            outcome.actions += [Action(name, "tidied", about, reason) for reason in step()]
        except Exception as error:  # nobody thought of this
            outcome.problems.append(f"{name or tree.root} was left as it was: {error}")

    def roll_forward(scope: Scope) -> list[str]:
        before = journal.pending(scope)
        journal.recover(scope, wait=False)
        return ["finished a transaction" for _ in {*before} - {*journal.pending(scope)}]

    def fold(scope: Scope) -> list[str]:
        return [f"looked after old versions of {file}" for file in fold_retired(scope)]

    active = [GLOBAL, *(session.id for session in memory._sessions())]
    moved = {name.partition("+")[0] for name in tree.list(JOURNAL)} - {*active}
    for name in [*active, *sorted(filter(is_session_id, moved))]:
        attempt(name, partial(roll_forward, memory._scope(name)))
        if name in active:
            attempt(name, partial(fold, memory._scope(name)))
    attempt("", partial(_sweep, memory, outcome.problems))
    attempt("", partial(remove_abandoned, memory))
    attempt("", partial(_scrub, memory, outcome.problems))
    return outcome


def stale_files(scope: Scope) -> list[str]:
    """Return the files of which an old version waits that somebody may have written into."""
    names = (name for name in _versions(scope) if not rewrite.is_resting(scope.tree, name))
    return sorted({rewrite.file_of_slot(name) for name in names})


def fold_retired(scope: Scope) -> list[str]:
    """Fold late writes into these files, and return those in which that changed something."""
    done: list[str] = []
    for file in stale_files(scope):
        held = lock_all(scope.tree, scope.name, [file], NO_PATIENCE, "folding in late writes")
        with suppress(LockTimeout), held:
            before = _versions(scope)  # a holder of the lock folds them in itself
            rewrite.fold_retired(scope, file)
            done += [file] if _versions(scope) != before else []
    return done


def _versions(scope: Scope) -> list[str]:
    return [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")]


def _sweep(memory: Memory, problems: list[str]) -> list[str]:
    if memory.tree.list(LEAVING):
        problems += sweep(memory)
    return []


def remove_abandoned(memory: Memory) -> list[str]:
    """Remove temporaries that nobody makes any more and that no intent names."""
    tree = memory.tree
    abandoned: dict[str, bool] = {}  # by path: whether it is a directory
    for name in tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        with suppress(FileNotFoundError):  # its owner is done with it
            status = tree.stat(path)
            if time.time() - status.st_mtime > ABANDONED_S:
                abandoned[path] = stat.S_ISDIR(status.st_mode)
    named = journal.asides(tree) if abandoned else set()
    for path in abandoned.keys() - named:
        (tree.remove_directory if abandoned[path] else tree.unlink)(path)
    gone = sorted(path.rpartition("/")[2] for path in abandoned.keys() - named)
    return [f"removed the abandoned temporary {name}" for name in gone]


def _scrub(memory: Memory, problems: list[str]) -> list[str]:
    """Clean the index where a purge could not. A daemon looks for that itself."""
    if memory.options.is_leading:
        return []

    asked, failed = asked_for(memory), scrub_index(memory)
    problems += failed
    return ["cleaned the index"] if asked and not failed else []
