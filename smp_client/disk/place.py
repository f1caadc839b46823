"""A root, its scopes, and which files of each are indexed.

A session is a scope by its id, and so is `global`. The bundles of a session below `archived/` are
the scope `archived/{id}`: the archive of the whole session, and the memories that compaction has
evicted. An archive counts only while the session itself is not in `active/`. Evicted memories of a
deleted session count when it is restored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from ..model import layout
from ..model.door import front_door
from ..model.errors import OUT_OF_FILES, SessionNotFound, UnsafePath
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, METADATA, is_session_id
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, Kind
from ..text.version import require_known, stated
from .home import Home, find_home
from .tree import Tree, version_of

if TYPE_CHECKING:
    from pathlib import Path

ARCHIVE, BACKUP = "archive.tar.gz", "backup.tar.gz"  # a whole session, archived and deleted
EVICTED, ENDING = "evicted-", ".tar.gz"
STATES, ARTIFACTS = "agent-states", "artifacts"
FOLDERS = {STATES: ".yaml", ARTIFACTS: ".md"}  # each file in them is one memory
FILES = (METADATA, *(kind.file for kind in SESSION_KINDS))  # that are indexed, beside the folders
_SESSION_KINDS = {kind.file: kind for kind in SESSION_KINDS}
_GLOBAL_KINDS = {kind.file: kind for kind in GLOBAL_KINDS}


@front_door
class Place:
    """A root; with none given, that of the working directory. Making it touches no file."""

    def __init__(self, root: str | Path | None = None) -> None:
        # The project on whose behalf it is asked; None if a program names the root.
        self.home: Home | None = None
        if root is None:
            self.home = find_home()
            root = self.home.root
        self.tree = Tree(layout.absolute(root))
        self._marked: list[int] | None = None  # the marker that was looked into

    @property
    def root(self) -> Path:
        from pathlib import Path  # late: it loads `urllib`, and most programs do without

        return Path(self.tree.path)

    def require(self) -> None:
        """Raise where there is no tree: a mistyped name must not make one."""
        if not layout.is_tree(self.tree.path):
            below = layout.sessions_of(self.tree.path)
            raise self._no_memory(below if below and layout.is_tree(below) else None)
        self.require_known_version()

    def require_room(self) -> None:
        """Raise in a project, whose sessions have a place of their own below it."""
        path = self.tree.path
        if not layout.is_tree(path) and (below := layout.sessions_of(path)):
            raise self._no_memory(below)

    def _no_memory(self, below: str | None) -> SessionNotFound:
        make = "Make it with smp init, or name another root."
        advice = f"Name {below} as the root." if below else make
        return SessionNotFound(f"There is no memory at {self.root}.", advice=advice)

    def require_known_version(self) -> None:
        """Raise NewerFormat where the whole tree is of a later version."""
        marked, said = None, None
        with suppress(OSError, UnsafePath, ValueError, RecursionError):  # which states no version
            marked = version_of(os.lstat(f"{self.tree.path}/{layout.MARKER}"))
            if marked == self._marked:
                return
            said = json.loads(self.tree.read(layout.MARKER))
        version = stated(said.get("version")) if isinstance(said, dict) else 1
        require_known(version, f"{self.tree.path}/{layout.MARKER}")
        self._marked = marked


def scopes(memory: Place) -> list[str]:
    """Return every scope of a root: `global`, then the sessions, then the archived sessions."""
    active = memory.tree.entries_known(ACTIVE)
    sessions = (name for name, is_directory in active.items() if is_directory)
    packed = (archived_scope(name) for name in _list(memory, ARCHIVED) if is_session_id(name))
    known = (scope for scope in packed if files_of(memory, scope))
    return [GLOBAL, *filter(is_session_id, sessions), *known]


def has_evicted(tree: Tree, session_id: str) -> bool:
    """Return whether compaction has evicted memories of a session."""
    return any(name.startswith(EVICTED) for name in tree.entries_known(archived_scope(session_id)))


def archived_scope(session_id: str) -> str:
    return f"{ARCHIVED}/{session_id}"


def is_archived(scope: str) -> bool:
    return scope.startswith(f"{ARCHIVED}/")


def session_of(scope: str) -> str:
    """Return the id of the session that a scope is, or that its bundles hold."""
    return scope.removeprefix(f"{ARCHIVED}/")


@lru_cache(maxsize=65_536)  # called for each file of each session
def directory_of(scope: str) -> str:
    if is_archived(scope):
        return archived_scope(layout.check_session_id(session_of(scope)))
    return GLOBAL if scope == GLOBAL else f"{ACTIVE}/{layout.check_session_id(scope)}"


def is_there(memory: Place, scope: str) -> bool:
    """Return whether a scope still exists. A scope that cannot be read counts as existing."""
    try:
        if is_archived(scope):
            return bool(files_of(memory, scope))
        return memory.tree.exists(directory_of(scope))
    except (OSError, UnsafePath):
        return True


def counts(memory: Place, scope: str, file: str) -> bool:
    """Return whether a bundle counts: an archive only while its session is not in `active/`, and
    evicted memories only beside their session, in use or archived."""
    is_active = memory.tree.exists(directory_of(session_of(scope)))
    if file == ARCHIVE:
        return not is_active
    return is_active or memory.tree.exists(f"{scope}/{ARCHIVE}")


def has_moved(memory: Place, scope: str) -> bool:
    """Return whether a missing scope was archived, deleted or restored, so nothing is lost."""
    session = session_of(scope)
    other = session if is_archived(scope) else archived_scope(scope)
    is_deleted = memory.tree.exists(f"{DELETED}/{session}/{BACKUP}")
    return scope != GLOBAL and (is_deleted or is_there(memory, other))


def files_of(memory: Place, scope: str) -> list[str]:
    """Return the files of a scope that are indexed, whether they can be read or not."""
    files = [name for name in _list(memory, directory_of(scope)) if is_of(scope, name)]
    if is_archived(scope):
        return [name for name in files if counts(memory, scope, name)]
    if scope != GLOBAL:
        for folder in FOLDERS:
            files += files_of_folder(memory, scope, folder)
    return files


def files_of_folder(memory: Place, session_id: str, folder: str) -> list[str]:
    """Return the files in the folder of the states, or of the artifacts, of a session."""
    names = _list(memory, f"{directory_of(session_id)}/{folder}")
    paths = [f"{folder}/{name}" for name in names]
    return [path for path in paths if is_of(session_id, path)]


def kinds_of(scope: str) -> dict[str, Kind]:
    """Return the kinds of memory in a scope, each by the name of its record file."""
    return {} if is_archived(scope) else _GLOBAL_KINDS if scope == GLOBAL else _SESSION_KINDS


def is_of(scope: str, file: str) -> bool:
    """Return whether a file of this name is indexed in this scope."""
    if is_archived(scope):
        return file == ARCHIVE or (file.startswith(EVICTED) and file.endswith(ENDING))
    folder, _, name = file.rpartition("/")
    if not folder:
        return file in kinds_of(scope) or (file == METADATA and scope != GLOBAL)
    stem, ending = os.path.splitext(name)
    return scope != GLOBAL and FOLDERS.get(folder) == ending and layout.is_file_id(stem)


def _list(memory: Place, name: str) -> Iterable[str]:
    """Return the names in a directory, from a cache: every question lists every session."""
    try:
        return memory.tree.entries_known(name)
    except (OSError, UnsafePath) as error:
        if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
            raise  # nothing is wrong with the directory
        return ()  # the index still knows the files, and finds each unreadable
