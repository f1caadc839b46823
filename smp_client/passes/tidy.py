"""Tidying a whole root after crashed or slow writers.

Whoever locks a file does this for that file anyway; tidying is for files nobody comes back to.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..change.latecomers import sweep
from ..disk import journal, rewrite
from ..disk.foreign import Foreign, clear, foreign
from ..disk.state_name import is_temporary
from ..index.sync import scrub_index
from ..model.errors import SMPError
from ..model.layout import GLOBAL, TEMPORARY
from ..model.outcome import Action, Outcome

if TYPE_CHECKING:
    from ..memory import Memory

ABANDONED_S = 600.0  # no write takes this long, so a temporary this old belongs to nobody


def tidy(memory: Memory) -> Outcome:
    """Finish changes that were cut off, fold in late writes, and remove leftovers.

    It waits for no lock: whoever holds one looks after that file. A session that fails stops no
    other.
    """
    outcome = clear_foreign(memory, foreign(memory.tree))
    tree = memory.tree
    begun = {intent.scope for intent in journal.intents(tree).values()}
    old = {one.scope for one in rewrite.old_versions(tree).values()}
    for name in sorted(begun | old):
        scope = memory._scope(name)
        try:
            before = {*journal.pending(scope)}
            journal.recover(scope, wait=False)
            for _ in before - {*journal.pending(scope)}:
                outcome.actions.append(Action(name, "tidied", (name,), "finished a transaction"))
            scope.fold_old_versions()
        except Exception as error:  # nobody thought of this
            outcome.problems.append(f"{name} was left as it was: {error}")
    try:
        outcome.problems += sweep(memory)
        remove_abandoned(memory)
        outcome.problems += scrub_index(memory)  # where a purge could not
    except Exception as error:
        outcome.problems.append(f"{tree.path} was left as it was: {error}")
    return outcome


def clear_foreign(memory: Memory, pieces: Iterable[Foreign]) -> Outcome:
    """Move pieces of `.smp/` that SMP has not made into quarantine. One that stays is a problem."""
    outcome = Outcome()
    for one in pieces:
        try:
            if clear(memory._scope(one.scope), one):
                action = Action(one.scope, "set_aside", (one.path,), f"{one.path}: {one.problem}")
                outcome.actions.append(action)
        except (OSError, SMPError) as error:
            outcome.problems.append(f"{one.path} was left as it was: {error}")
    return outcome


def remove_abandoned(memory: Memory) -> None:
    """Remove temporaries that nobody makes any more and that no intent names.

    A piece that is not a temporary of SMP, by its name, goes to quarantine.
    """
    tree = memory.tree
    old: dict[str, bool] = {}  # by path: whether it is a directory
    for name in tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        with suppress(FileNotFoundError):  # its owner is done with it
            status = tree.stat(path)
            if time.time() - status.st_mtime <= ABANDONED_S:
                continue
            if is_temporary(name):
                old[path] = stat.S_ISDIR(status.st_mode)
            else:
                clear(memory._scope(GLOBAL), Foreign(path, GLOBAL, "it is not a temporary of SMP"))
    for path in sorted(old.keys() - journal.asides(tree)) if old else []:
        if old[path]:
            tree.remove_directory(path)
        else:
            tree.unlink(path)
