"""The scopes of a root, and which files of each are indexed.

A session is a scope by its id, and so is `global`. The bundles of a session in the archive are the
scope `archived/{id}`: the archive with all its memories, and those that compaction has evicted. An
archive counts only while the session itself is not in `active/`.
"""

from __future__ import annotations

import os
from functools import lru_cache

from ..model.errors import UnsafePath
from ..model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    check_session_id,
    is_file_id,
    is_session_id,
)
from ..model.record import GLOBAL_KINDS, SESSION_KINDS, Kind
from .place import Place
from .session_files import METADATA
from .tree import Tree

ARCHIVE, BACKUP = "archive.tar.gz", "backup.tar.gz"  # a whole session, archived and deleted
EVICTED, ENDING = "evicted-", ".tar.gz"
STATES, ARTIFACTS = "agent-states", "artifacts"
_FOLDERS = {STATES: ".yaml", ARTIFACTS: ".md"}  # of files that are one memory each
FILES = (METADATA, *(kind.file for kind in SESSION_KINDS))  # that are indexed, beside the folders
_SESSION_KINDS = {kind.file: kind for kind in SESSION_KINDS}
_GLOBAL_KINDS = {kind.file: kind for kind in GLOBAL_KINDS}


def scopes(memory: Place) -> list[str]:
    """Return every scope that there is now: `global`, then the sessions, then the archived ones."""
    sessions = filter(is_session_id, memory.tree.list_known(ACTIVE, directories=True))
    return [GLOBAL, *sessions, *archived_scopes(memory)]


def archived_scopes(memory: Place) -> list[str]:
    """Return the scope of every session that is archived, or has evicted memories."""
    names = (archived_scope(name) for name in _list(memory, ARCHIVED) if is_session_id(name))
    return [scope for scope in names if files_of(memory, scope)]


def has_evicted(tree: Tree, session_id: str) -> bool:
    """Return whether compaction has evicted memories of a session."""
    return any(name.startswith(EVICTED) for name in tree.list(archived_scope(session_id)))


def archived_scope(session_id: str) -> str:
    return f"{ARCHIVED}/{session_id}"


def is_archived(scope: str) -> bool:
    return scope.startswith(f"{ARCHIVED}/")


def session_of(scope: str) -> str:
    """Return the session that the scope is, or was."""
    return scope.removeprefix(f"{ARCHIVED}/")


@lru_cache(maxsize=4096)  # asked for each file and each record of an answer
def directory_of(scope: str) -> str:
    if is_archived(scope):
        return archived_scope(check_session_id(session_of(scope)))
    return GLOBAL if scope == GLOBAL else f"{ACTIVE}/{check_session_id(scope)}"


def is_there(memory: Place, scope: str) -> bool:
    """Return whether a scope still exists. One that cannot be looked at does."""
    try:
        if is_archived(scope):
            return bool(files_of(memory, scope))
        return memory.tree.exists(directory_of(scope))
    except (OSError, UnsafePath):
        return True


def counts(memory: Place, scope: str, file: str) -> bool:
    """Return whether a bundle counts now: an archive does not while its session is in use."""
    return file != ARCHIVE or not memory.tree.exists(directory_of(session_of(scope)))


def has_moved(memory: Place, scope: str) -> bool:
    """Return whether a scope that is gone was archived, deleted or restored: nothing was lost."""
    session = session_of(scope)
    other = session if is_archived(scope) else archived_scope(scope)
    is_deleted = memory.tree.exists(f"{DELETED}/{session}/{BACKUP}")
    return scope != GLOBAL and (is_deleted or is_there(memory, other))


def files_of(memory: Place, scope: str) -> list[str]:
    """Return the files of a scope that are indexed, whether they can be read or not."""
    found = [name for name in _list(memory, directory_of(scope)) if is_of(scope, name)]
    if is_archived(scope):
        return [name for name in found if counts(memory, scope, name)]
    return found if scope == GLOBAL else found + files_of_folders(memory, scope)


def files_of_folders(memory: Place, session_id: str) -> list[str]:
    """Return the states and the artifacts of a session."""
    top, found = directory_of(session_id), list[str]()
    for folder in _FOLDERS:
        if names := _list(memory, f"{top}/{folder}"):  # most have none, and all are asked
            paths = (f"{folder}/{name}" for name in names)
            found += [path for path in paths if is_of(session_id, path)]
    return found


def unnameable(memory: Place, scope: str) -> list[str]:
    """Return files among states and artifacts with names that none of these can have."""
    if scope == GLOBAL or is_archived(scope):
        return []
    top = directory_of(scope)
    return [
        f"{folder}/{file}"
        for folder, ending in _FOLDERS.items()
        for file in _list(memory, f"{top}/{folder}")
        if file.endswith(ending) and not is_file_id(file.removesuffix(ending))
    ]


def kinds_of(scope: str) -> dict[str, Kind]:
    """Return the kinds of memory in the scope that have a file of records, by that file."""
    return {} if is_archived(scope) else _GLOBAL_KINDS if scope == GLOBAL else _SESSION_KINDS


def is_of(scope: str, file: str) -> bool:
    """Return whether a file of this name is indexed in this scope."""
    if is_archived(scope):
        return file == ARCHIVE or (file.startswith(EVICTED) and file.endswith(ENDING))
    folder, _, name = file.rpartition("/")
    if not folder:
        return file in kinds_of(scope) or (file == METADATA and scope != GLOBAL)
    stem, ending = os.path.splitext(name)
    return scope != GLOBAL and _FOLDERS.get(folder) == ending and is_file_id(stem)


def is_indexed(file: str) -> bool:
    """Return whether a file of this name is indexed in a session, or in `global/`."""
    return is_of("", file) or is_of(GLOBAL, file)


def _list(memory: Place, name: str) -> list[str]:
    """Return the names in a directory. Every question asks this of each session."""
    try:
        return memory.tree.list_known(name)
    except (OSError, UnsafePath):
        return []  # files that are known to be in it are asked for, and cannot be read
