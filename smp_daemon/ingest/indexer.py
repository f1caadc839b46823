"""The indexer: which files a notice means, and a batch of files into the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from smp_client import Memory
from smp_client.disk.scopes import archived_scope, files_of, is_archived, is_indexed, scopes
from smp_client.index.database import Index
from smp_client.index.take_in import outdated, refresh
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL

BATCH_FILES = 200  # a scan commits after so many, so that queries find the first files early


@dataclass
class Taken:
    """The result of a batch."""

    files: int = 0
    added: int = 0
    removed: int = 0
    parsed_bytes: int = 0
    scopes: set[str] = field(default_factory=set)  # that changed
    inboxes: set[str] = field(default_factory=set)  # that may hold drops
    # The ids that are gone, by session and file.
    gone: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    vanished: set[str] = field(default_factory=set)  # sessions in the index and not on disk


def take_in(memory: Memory, index: Index, paths: Iterable[str]) -> Taken:
    """Index the files at these paths, relative to the root, and all files below directories."""
    batch = _Batch(memory, index)
    files = dict.fromkeys(file for path in paths for file in batch.files_at(path))
    batch.refresh(list(files))
    return batch.taken


def scan(memory: Memory, index: Index) -> Taken:
    """Compare the whole tree with the index. Events are only hints, this is the truth."""
    batch = _Batch(memory, index)
    taken, present = batch.taken, batch.present
    taken.vanished = {scope for scope, _ in index.files()} - present
    taken.inboxes = {scope for scope in present if scope != GLOBAL and not is_archived(scope)}
    changed = [item for item in outdated(memory, index) if item[0] not in taken.vanished]
    for start in range(0, len(changed), BATCH_FILES):
        batch.refresh(changed[start : start + BATCH_FILES])
    return taken


def forget(index: Index, vanished: Iterable[str]) -> None:
    """Take vanished sessions out of the index."""
    with index.batch():
        for scope in vanished:
            index.forget_session(scope)


class _Batch:
    def __init__(self, memory: Memory, index: Index) -> None:
        self.taken = Taken()
        self.present = set(scopes(memory))
        self._memory = memory
        self._index = index

    def files_at(self, path: str) -> list[tuple[str, str]]:
        """Return the files that a notice of this path means, each with its session."""
        top, _, rest = path.partition("/")
        scope, _, file = (GLOBAL, "", rest) if top == GLOBAL else rest.partition("/")
        if top not in (ACTIVE, ARCHIVED, GLOBAL) or not scope:
            return []
        # A session that comes into one of the two places may leave the other, and the reverse.
        is_moved = top == ARCHIVED or not file or scope not in self.present
        files = self._files_archived(scope) if is_moved else []
        return files if top == ARCHIVED else files + self._files_inside(scope, file)

    def _files_archived(self, session_id: str) -> list[tuple[str, str]]:
        """Return the files of an archived session. Note the place that the session is gone from."""
        archived = archived_scope(session_id)
        absent = {session_id, archived} - self.present
        self.taken.vanished |= {scope for scope in absent if self._index.files(scope)}
        return self._all_files(archived) if archived in self.present else []

    def _files_inside(self, scope: str, file: str) -> list[tuple[str, str]]:
        """Return the files that a notice of a session, or of `global/`, means."""
        if scope not in self.present:
            return []
        if file == "inbox" or file.startswith("inbox/"):
            self.taken.inboxes.add(scope)
            return []
        if is_indexed(file):
            return [(scope, file)]
        if file in ("", "agent-states", "artifacts"):
            self.taken.inboxes |= {scope} - {GLOBAL}
            return self._all_files(scope)
        return []

    def _all_files(self, scope: str) -> list[tuple[str, str]]:
        """Return the files of a scope that are on disk or in the index."""
        known = (name for _, name in self._index.files(scope))
        return [(scope, name) for name in dict.fromkeys([*files_of(self._memory, scope), *known])]

    def refresh(self, files: list[tuple[str, str]]) -> None:
        """Bring these files up to date in the index, in one transaction."""
        if not files:
            return
        taken, index = self.taken, self._index
        with index.batch():
            for scope, file in files:
                before = index.connection.total_changes
                done = refresh(self._memory, index, scope, file)
                taken.files += 1
                taken.added += done.added
                taken.removed += done.removed
                taken.parsed_bytes += done.parsed_bytes
                if done.gone:
                    taken.gone[scope, file] = done.gone
                if index.connection.total_changes != before:
                    taken.scopes.add(scope)
