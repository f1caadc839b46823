"""Notices in, an index that is true out: which files a notice means, and taking them in as one batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smp_client import Memory
from smp_client.index import Index
from smp_client.indexing import outdated, refresh
from smp_client.layout import ACTIVE, ARCHIVED, GLOBAL
from smp_client.scopes import archived_scope, files_of, is_archived, is_indexed, scopes

BATCH_FILES = 200  # a scan commits after so many, so that what it found first can be found by queries first


@dataclass
class Taken:
    """What a batch came to."""

    files: int = 0
    added: int = 0
    removed: int = 0
    parsed_bytes: int = 0
    scopes: set[str] = field(default_factory=set)  # that changed
    inboxes: set[str] = field(default_factory=set)  # that may hold drops
    gone: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # by session and file
    vanished: set[str] = field(default_factory=set)  # sessions that are in the index and not on disk


def take_in(memory: Memory, index: Index, paths: Iterable[str]) -> Taken:
    """What stands at these paths now, relative to the root; a path of a directory means all below it."""
    taken = Taken()
    present = set(scopes(memory))
    files: dict[tuple[str, str], None] = {}
    for path in paths:
        for item in _meant(memory, index, path, present, taken):
            files[item] = None
    _refresh(memory, index, list(files), taken)
    return taken


def scan(memory: Memory, index: Index) -> Taken:
    """Compares the whole tree with the index; events are only hints, this is the truth."""
    taken = Taken()
    known = {scope for scope, _ in index.files()}
    present = set(scopes(memory))
    taken.vanished = known - present
    taken.inboxes = {scope for scope in present if scope != GLOBAL and not is_archived(scope)}
    changed = [item for item in outdated(memory, index) if item[0] not in taken.vanished]
    for start in range(0, len(changed), BATCH_FILES):
        _refresh(memory, index, changed[start : start + BATCH_FILES], taken)
    return taken


def forget(index: Index, vanished: Iterable[str]) -> None:
    """Takes sessions that are gone out of the index."""
    with index.batch():
        for scope in vanished:
            index.forget_session(scope)


def _meant(memory: Memory, index: Index, path: str, present: set[str], taken: Taken) -> list[tuple[str, str]]:
    top, _, rest = path.partition("/")
    scope, _, file = rest.partition("/") if top in (ACTIVE, ARCHIVED) else (GLOBAL, "", rest) if top == GLOBAL else ("", "", "")
    if not scope:
        return []
    if top == ARCHIVED:
        return _places(memory, index, scope, present, taken)
    # A session that comes into one of the two places, or leaves it, may do the opposite in the other.
    placed = _places(memory, index, scope, present, taken) if not file or scope not in present else []
    return placed + _inside(memory, index, scope, file, present, taken)


def _places(memory: Memory, index: Index, session_id: str, present: set[str], taken: Taken) -> list[tuple[str, str]]:
    """The files of an archived session; and which of its two places the session is gone from."""
    archived = archived_scope(session_id)
    taken.vanished |= {scope for scope in (session_id, archived) if scope not in present and index.files(scope)}
    return _files(memory, index, archived) if archived in present else []


def _files(memory: Memory, index: Index, scope: str) -> list[tuple[str, str]]:
    """Return the files of a scope that are on disk or in the index."""
    known = (name for _, name in index.files(scope))
    return [(scope, name) for name in dict.fromkeys([*files_of(memory, scope), *known])]


def _inside(memory: Memory, index: Index, scope: str, file: str, present: set[str], taken: Taken) -> list[tuple[str, str]]:
    """What a notice of a session, or of `global/`, means."""
    if scope not in present:
        return []
    if file == "inbox" or file.startswith("inbox/"):
        taken.inboxes.add(scope)
        return []
    if is_indexed(file):
        return [(scope, file)]
    if file in ("", "agent-states", "artifacts"):
        taken.inboxes |= {scope} - {GLOBAL}
        return _files(memory, index, scope)
    return []


def _refresh(memory: Memory, index: Index, files: list[tuple[str, str]], taken: Taken) -> None:
    if not files:
        return
    with index.batch():
        for scope, file in files:
            before = index.connection.total_changes
            done = refresh(memory, index, scope, file)
            taken.files += 1
            taken.added += done.added
            taken.removed += done.removed
            taken.parsed_bytes += done.parsed_bytes
            if done.gone:
                taken.gone[scope, file] = done.gone
            if index.connection.total_changes != before:
                taken.scopes.add(scope)
