"""Nothing but `deleted/` holds the bytes of what was just taken out: not the old versions of the files, not the index, not the YAML
indexes, not what crashes have left.

What was set aside because nobody could read it is not destroyed by a deletion: it is told where that holds the same words.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import rewrite
from ...errors import SMPError
from ...layout import GLOBAL, QUARANTINE, TEMPORARY
from ...maintain import erasure, leaving, quarantined, traces
from ...maintain.doomed import as_gone
from ...status import INDEX_FILE
from .store import Store

if TYPE_CHECKING:
    from ...memory import Memory
    from ...scope import Scope

_WAIT_S, _PAUSE_S = 0.2, 0.005  # for a program that is writing at this moment
_LISTED = 5
UNTIL_PURGED = ("it is kept until that is purged.", "it is removed within the hour.")  # how it is told what whoever purges sees to


def clear(memory: Memory, scope: Scope, files: Collection[str], ids: Collection[str]) -> list[str]:
    """After these memories were taken out of these files of a scope, under the locks of its passes and of its record. Gives back
    what could not be done, in sentences: what was deleted is deleted all the same."""
    session_id = "" if scope.name == GLOBAL else scope.name
    problems = _tried(scope, wipe_old_versions, scope, files) if files else []  # of what is packed there are none
    # Once more than before they were taken out: whoever leads may have cleaned the index in between.
    problems += _tried(scope, _ask, memory, session_id)
    unclean = traces.scrub_index(memory)
    if session_id and (unclean or not memory.tree.exists(INDEX_FILE)):
        problems += _tried(scope, _remove_yaml_indexes, memory, session_id)
    return [*problems, *unclean, *_tried(scope, _elsewhere, memory, scope.name, ids)]


def _tried(scope: Scope, step: Any, *arguments: Any) -> list[str]:
    try:
        return list(step(*arguments))
    except (SMPError, OSError) as error:
        return [f"{scope.name}: not every trace of what was deleted could be looked for: {error}"]


def wipe_old_versions(scope: Scope, files: Collection[str]) -> list[str]:
    """What these files were before. Gives back which of it somebody still has open."""
    until = time.monotonic() + _WAIT_S
    while True:
        with scope.locked(files, "wiping old versions", any_version=True):
            still_open = sorted(file for file in set(files) if rewrite.wipe_retired(scope, file))
        if not still_open:
            return []
        if time.monotonic() > until:
            return [f"{scope.name}: a program has an old version of {file} open, which may hold what was deleted: it goes when that"
                    " program closes it." for file in still_open]  # fmt: skip
        time.sleep(_PAUSE_S)


def _ask(memory: Memory, session_id: str) -> list[str]:
    traces.ask_for_scrub(memory, session_id)
    return []


def _remove_yaml_indexes(memory: Memory, session_id: str) -> list[str]:
    """Where nobody has made them anew; whoever leads does so with the next change."""
    from ...yaml_indexes import directory_of

    directory = directory_of(session_id)
    for name in memory.tree.sizes(directory):
        memory.tree.unlink(f"{directory}/{name}")
    return []


def _elsewhere(memory: Memory, name: str, ids: Collection[str]) -> Iterator[str]:
    """What is not part of the tree, and may hold the same words."""
    tree = memory.tree
    if leaving.is_leaving(tree, name) and not leaving.finish_soon(memory, name):
        yield f"{name}: what is left of it from when it was put away may hold what was deleted; it goes within seconds."
    if not tree.list(f"{QUARANTINE}/{name}") and not tree.list(TEMPORARY):
        return
    telling, words = _words(memory, name, ids)
    for path in list(erasure.temporaries(tree, telling)):
        erasure.remove(tree, path)
    left = list(erasure.temporaries(tree, telling, older_than_s=rewrite.GRACE_S))
    if left:
        yield f"{name}: a write that was cut off has left what was deleted in {_listed(left)}; {UNTIL_PURGED[1]}"
    if aside := list(quarantined.holding(tree, name, telling, words)[0]):
        yield (f"{name}: what could not be read once, and was set aside in {_listed(aside)}, holds words of what was deleted;"
               f" {UNTIL_PURGED[0]}")  # fmt: skip


def _words(memory: Memory, name: str, ids: Collection[str]) -> tuple[traces.Telling, quarantined.Words]:
    """What they said, from their copies."""
    store = Store(memory, name)
    members = store.members()
    items = [item for item in store.items() if item["id"] in ids]
    values = [dict(store.copy(item, members)[1]) for item in items]
    gone = []
    for item in items:
        with suppress(ValueError, SMPError):
            gone.append(as_gone(name, item))
    return traces.Telling(erasure.lines_of_memories(memory, name, gone, values)), quarantined.own_words(gone, values)


def _listed(places: list[str]) -> str:
    return ", ".join(places[:_LISTED]) + (f" and {len(places) - _LISTED} more" if len(places) > _LISTED else "")
