"""Tidying a whole root after crashed or slow writers.

Whoever locks a file does this for that file anyway; tidying is for files nobody comes back to.
"""

from __future__ import annotations

import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..change.latecomers import sweep
from ..disk import journal, rewrite
from ..disk.locks import NO_PATIENCE, lock_all
from ..disk.scope import Scope
from ..index.sync import scrub_index
from ..model.errors import LockTimeout
from ..model.layout import GLOBAL, JOURNAL, RETIRED, TEMPORARY, is_session_id
from ..model.outcome import Action, Outcome

if TYPE_CHECKING:
    from ..memory import Memory

ABANDONED_S = 600.0  # no write takes this long, so a temporary this old belongs to nobody


def tidy(memory: Memory) -> Outcome:
    """Finish changes that were cut off, fold in late writes, and remove leftovers.

    It waits for no lock: whoever holds one looks after that file. A session that fails stops no
    other.
    """
    outcome, tree = Outcome(), memory.tree
    active = [GLOBAL, *(session.id for session in memory._sessions())]
    moved = {name.partition("+")[0] for name in tree.list(JOURNAL)} - {*active}
    for name in [*active, *sorted(filter(is_session_id, moved))]:
        scope = memory._scope(name)
        try:
            before = {*journal.pending(scope)}
            journal.recover(scope, wait=False)
            for _ in before - {*journal.pending(scope)}:
                outcome.actions.append(Action(name, "tidied", (name,), "finished a transaction"))
            if name in active:
                fold_retired(scope)
        except Exception as error:  # nobody thought of this
            outcome.problems.append(f"{name} was left as it was: {error}")
    try:
        outcome.problems += sweep(memory)
        remove_abandoned(memory)
        outcome.problems += scrub_index(memory)  # where a purge could not
    except Exception as error:
        outcome.problems.append(f"{tree.path} was left as it was: {error}")
    return outcome


def fold_retired(scope: Scope) -> None:
    """Fold late writes into files. A holder of a file's lock does this itself."""
    old = [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")]
    for file in sorted(map(rewrite.file_of_slot, old)):
        held = lock_all(scope.tree, scope.name, [file], NO_PATIENCE, "folding in late writes")
        with suppress(LockTimeout), held:
            # An unfinished change comes first; a session that is leaving takes nothing in.
            if not journal.left_behind(scope, [file]):
                rewrite.fold_retired(scope, file)


def remove_abandoned(memory: Memory) -> None:
    """Remove temporaries that nobody makes any more and that no intent names."""
    tree, old = memory.tree, dict[str, bool]()  # by path: whether it is a directory
    for name in tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        with suppress(FileNotFoundError):  # its owner is done with it
            status = tree.stat(path)
            if time.time() - status.st_mtime > ABANDONED_S:
                old[path] = stat.S_ISDIR(status.st_mode)
    for path in sorted(old.keys() - journal.asides(tree)) if old else []:
        (tree.remove_directory if old[path] else tree.unlink)(path)
