"""Pieces in `.smp/` that SMP has not made: named by the check, moved into quarantine by tidying.

A piece is foreign by its name (see `state_name.py`), or because it is not a plain file. It may have
come with a cloned repository, or from a program that copies files. It costs nobody but itself: all
who list `.smp/` pass over it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import UnsafePath
from ..model.layout import GLOBAL, JOURNAL, LEAVING, LOCKS, RETIRED
from .quarantine import quarantine_entry
from .state_name import (
    is_lock,
    is_lock_scope,
    parse_intent,
    parse_leaving,
    parse_old,
    scope_in,
)

if TYPE_CHECKING:
    from .scope import Scope
    from .tree import Tree

_NAMES: dict[str, Callable[[str], object]] = {
    JOURNAL: parse_intent,
    RETIRED: parse_old,
    LEAVING: parse_leaving,
}
_ODD_NAME = "SMP gives no such name"
_ODD_SHAPE = "it is not a plain file"
_TWO_NAMES = "it has a second name elsewhere"
_CLOSED = "nobody may read and write it"
_BY_ITSELF = "Run smp doctor --fix."
_BY_HAND = "Remove its other name."
_NO_DIRECTORY = "it is not a directory"
_AWAY = "Move it out of the tree while nobody uses it."


class Foreign(NamedTuple):
    """A piece of `.smp/` that is not as SMP makes it."""

    path: str
    scope: str  # the session that it names; `global` where it names none
    problem: str
    advice: str = _BY_ITSELF


def foreign(tree: Tree) -> Iterator[Foreign]:
    """Yield the foreign pieces of the journal, and of the old versions and directories."""
    for place, parse in _NAMES.items():
        try:
            entries = tree.entries(place)
        except UnsafePath:
            yield Foreign(place, GLOBAL, _NO_DIRECTORY, _AWAY)
            continue
        for name, is_directory in entries.items():
            path = f"{place}/{name}"
            scope = scope_in(name) or GLOBAL
            if parse(name) is None:
                yield Foreign(path, scope, _ODD_NAME)
            elif place != LEAVING and (is_directory or not _is_file(tree, path)):
                yield Foreign(path, scope, _ODD_SHAPE)


def odd_locks(tree: Tree) -> Iterator[Foreign]:
    """Yield the lock files that protect nobody. This looks at every lock file."""
    try:
        entries = tree.entries(LOCKS)
    except UnsafePath:
        yield Foreign(LOCKS, GLOBAL, _NO_DIRECTORY, _AWAY)
        return
    for scope, is_directory in entries.items():
        directory = f"{LOCKS}/{scope}"
        about = scope_in(scope) or GLOBAL
        if not is_lock_scope(scope) or not is_directory:
            problem = _ODD_SHAPE if is_lock_scope(scope) else _ODD_NAME
            yield Foreign(directory, about, problem)
            continue
        for name in tree.list(directory):
            path = f"{directory}/{name}"
            if not is_lock(name):
                yield Foreign(path, about, _ODD_NAME)
            elif found := _odd_lock(tree, path, about):
                yield found


def _odd_lock(tree: Tree, path: str, scope: str) -> Foreign | None:
    with suppress(FileNotFoundError):
        if not _is_file(tree, path):
            return Foreign(path, scope, _ODD_SHAPE)
        try:
            # Closing it again frees nobody's lock: each open file has a lock of its own.
            with tree.opened(path, os.O_RDWR):
                return None
        except UnsafePath:
            return Foreign(path, scope, _TWO_NAMES, _BY_HAND)
        except PermissionError:
            return Foreign(path, scope, _CLOSED)
    return None


def _is_file(tree: Tree, path: str) -> bool:
    try:
        return stat.S_ISREG(tree.stat(path).st_mode)
    except FileNotFoundError:
        return True  # it went just now


def clear(scope: Scope, one: Foreign) -> bool:
    """Move a foreign piece into quarantine. Return whether this process did it.

    A plain lock file always stays: somebody may hold it. One that may not be opened may be again.
    """
    tree = scope.tree
    if one.path in (*_NAMES, LOCKS):
        return False  # another process may have made the directory by now
    try:
        if not one.path.startswith(f"{LOCKS}/"):
            quarantine_entry(scope, one.path, one.problem)
            return True
        # Two processes that come at once: the second finds the new lock file, and leaves it.
        with tree.alone_in(one.path):
            if one.problem == _ODD_NAME or not _is_lock_place(tree, one.path):
                quarantine_entry(scope, one.path, one.problem)
                return True
            if one.problem == _CLOSED:
                tree.make_private(one.path)
                return True
    except FileNotFoundError:
        return False  # another process was first
    return False


def _is_lock_place(tree: Tree, path: str) -> bool:
    """Return whether there is by now what belongs there: a lock file, or their directory."""
    mode = tree.stat(path).st_mode
    is_scope = path.count("/") == LOCKS.count("/") + 1
    return stat.S_ISDIR(mode) if is_scope else stat.S_ISREG(mode)
