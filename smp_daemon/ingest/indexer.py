"""The indexer: which files a notice means, and a batch of files into the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smp_client import Memory
from smp_client.disk.place import archived_scope, files_of, has_moved, is_archived, is_of, scopes
from smp_client.index.database import Index, outdated
from smp_client.index.take_in import refresh
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL, YAML_INDEXES
from smp_client.model.progress import tracked

BATCH_FILES = 200  # a scan commits after so many, so that queries find the first files early


@dataclass
class Taken:
    """The result of a batch."""

    present: set[str]  # sessions on disk, and `global`
    files: int = 0
    changed: set[str] = field(default_factory=set)  # sessions
    written: dict[str, list[str]] = field(default_factory=dict)  # by session: ids of memories
    inboxes: set[str] = field(default_factory=set)  # sessions that may have drops
    without_indexes: set[str] = field(default_factory=set)  # sessions that lost files for people
    vanished: set[str] = field(default_factory=set)  # sessions in the index and not on disk


def take_in(memory: Memory, index: Index, paths: Iterable[str]) -> Taken:
    """Index the files at these paths, relative to the root, and all files below directories."""
    taken = Taken(set(scopes(memory)))
    files = dict.fromkeys(file for path in paths for file in _files_at(memory, index, path, taken))
    _refresh(memory, index, list(files), taken)
    return taken


def scan(memory: Memory, index: Index) -> Taken:
    """Compare the whole tree with the index. Events are only hints, this is the truth."""
    taken = Taken(set(scopes(memory)))
    taken.vanished = {scope for scope, _ in index.files()} - taken.present
    taken.inboxes = {scope for scope in taken.present - {GLOBAL} if not is_archived(scope)}
    changed = [item for item in outdated(memory, index) if item[0] not in taken.vanished]
    for start in tracked(range(0, len(changed), BATCH_FILES)):
        _refresh(memory, index, changed[start : start + BATCH_FILES], taken)
    with index.batch(is_silent=True):
        index.note_folders(memory.tree)
    return taken


def forget(memory: Memory, index: Index, vanished: Iterable[str]) -> None:
    """Remove vanished sessions from the index."""
    with index.batch():
        for scope in vanished:
            index.forget_session(scope, has_moved=has_moved(memory, scope))


def _files_at(memory: Memory, index: Index, path: str, taken: Taken) -> list[tuple[str, str]]:
    """Return the files that a notice of this path means, each with its session.

    Note in `taken` an inbox, and a place that a session is gone from.
    """

    def all_files(scope: str) -> list[tuple[str, str]]:
        """Return the files of a scope that are on disk or in the index."""
        names = [*files_of(memory, scope), *(name for _, name in index.files(scope))]
        return [(scope, name) for name in dict.fromkeys(names)]

    top, _, rest = path.partition("/")
    scope, _, file = (GLOBAL, "", rest) if top == GLOBAL else rest.partition("/")
    if top not in (ACTIVE, ARCHIVED, GLOBAL) or not scope:
        return []
    found: list[tuple[str, str]] = []
    if top == ARCHIVED or not file or scope not in taken.present:
        # A session that comes into one of the two places may leave the other, and the reverse.
        archived = archived_scope(scope)
        absent = {scope, archived} - taken.present
        taken.vanished |= {place for place in absent if index.files(place)}
        found += all_files(archived) if archived in taken.present else []
    if top == ARCHIVED or scope not in taken.present:
        return found
    if file == "inbox" or file.startswith("inbox/"):
        taken.inboxes.add(scope)
    elif is_of(scope, file):
        found.append((scope, file))
    elif (file == "indexes" or file in YAML_INDEXES) and not memory.tree.exists(path):
        taken.without_indexes.add(scope)
    elif file in ("", "agent-states", "artifacts"):
        taken.inboxes |= {scope} - {GLOBAL}
        found += all_files(scope)
    return found


def _refresh(memory: Memory, index: Index, files: list[tuple[str, str]], taken: Taken) -> None:
    """Bring these files up to date in the index, in one transaction."""
    if not files:
        return
    with index.batch():
        for scope, file in files:
            before = index.connection.total_changes
            taken.files += 1
            refresh(memory, index, scope, file)
            if index.connection.total_changes != before:
                taken.changed.add(scope)
        for scope, memory_id in index.written:
            if not is_archived(scope):
                taken.written.setdefault(scope, []).append(memory_id)
