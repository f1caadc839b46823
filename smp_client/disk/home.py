"""The home of a project: the one tree that has its memory.

A project is the top of its git repository, else the directory itself. All worktrees of a repository
are one project: that of the main worktree. Its memory is in the nearest tree upward, else in the
user's tree, which has the memory of many projects. If there is neither, the first write makes a
tree in the project. Git is not run: its files are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..model.errors import UnsafePath
from ..model.layout import TREES, absolute, is_tree, sessions_of
from .tree import Tree

_LONGEST = 8192  # bytes of a file in which git names a directory


class Home(NamedTuple):
    """The tree of a project, and the project."""

    root: str
    project: str  # the directory of the project
    owner: str | None  # the directory that has the tree; None if the tree is of many projects

    @property
    def name(self) -> str | None:
        """Return the name of the project: that of its directory."""
        return os.path.basename(self.project) or None

    @property
    def is_users(self) -> bool:
        """Return whether this is the user's tree, where sessions name their projects."""
        return self.owner is None and self.root == user_tree()


def find_home(directory: str | os.PathLike[str] = "", root: str | None = None) -> Home:
    """Return the home of the project in a directory: `root`, else SMP_ROOT, else the tree of the
    project or the nearest one upward, else the user's tree, else a new one in the project."""
    start = absolute(directory).rstrip("/")
    top, places = _places(start)
    if named := root or os.environ.get("SMP_ROOT"):
        path = absolute(named)
        owner = _owner(path, places)
        return Home(path, _project(top, owner) or start, owner)
    for place in places:
        if found := sessions_of(place):
            return Home(found, _project(top, place) or start, place)
    project = start if top is None else top
    if is_tree(user_tree()):
        return Home(user_tree(), project, None)
    return _own_home(project)


def new_home(directory: str | os.PathLike[str] = "") -> Home:
    """Return the home that the project in a directory has when its tree is made."""
    start = absolute(directory).rstrip("/")
    top, _ = _places(start)
    project = start if top is None else top
    return _own_home(project)


def user_tree() -> str:
    """Return the tree of the user, for projects that have none of their own."""
    given = os.environ.get("XDG_DATA_HOME", "")
    data = given if os.path.isabs(given) else os.path.expanduser("~/.local/share")
    return f"{data.rstrip('/')}/smp/sessions"


def _places(start: str) -> tuple[str | None, list[str]]:
    """Return the top of the repository, if any, and the directories that may have the tree."""
    below: list[str] = []
    for directory in _upward(start):
        if _is_top(directory):
            main = _main_worktree(directory)
            if main is None:
                return directory, [*below, *_upward(directory)]
            return main, [*below, *_upward(main), *_upward(directory)]
        below.append(directory)
    return None, below


def _upward(directory: str) -> Iterator[str]:
    """Yield a directory and those above it; the top of all is the empty text."""
    yield directory
    while directory:
        directory = directory.rpartition("/")[0]
        yield directory


def _is_top(directory: str) -> bool:
    """Return whether git has its files here: a directory, or a file that names one."""
    return os.path.isfile(f"{directory}/.git") or os.path.isfile(f"{directory}/.git/HEAD")


def _main_worktree(directory: str) -> str | None:
    """Return the main worktree, if this one is linked to it; None for a repository of its own.

    The repository must name this worktree, too: else any checkout could ask for the memory of
    another project.
    """
    own = _named_in(directory, ".git", "gitdir:")
    if own is None:
        return None
    back = _named_in(own, "gitdir")
    common = _named_in(own, "commondir")  # a submodule has none: it is its own project
    if back is None or common is None:
        return None
    if os.path.realpath(back) != os.path.realpath(f"{directory}/.git"):
        return None
    main, _, name = common.rpartition("/")
    # A bare repository has no worktree of its own, unless it is hidden among its worktrees.
    return main if name.startswith(".") and os.path.isdir(main) else None


def _named_in(directory: str, file: str, before: str = "") -> str | None:
    """Return the path that a file of git names, as a whole path."""
    if not os.path.isfile(f"{directory}/{file}"):
        return None
    with suppress(OSError, UnsafePath, ValueError):
        tree = Tree(directory)
        if tree.stat(file).st_size > _LONGEST:
            return None
        said = os.fsdecode(tree.read(file)).strip()
        path = said.removeprefix(before).strip()
        if path and said.startswith(before) and "\0" not in path:
            return os.path.normpath(os.path.join(directory, path))
    return None


def _own_home(project: str) -> Home:
    return Home(f"{project}/{TREES[0]}", project, project)


def _owner(root: str, places: list[str]) -> str | None:
    """Return the directory whose own tree this is, if it is one of these."""
    for place in places:
        if root in [f"{place}/{name}" for name in TREES]:
            return place
    return None


def _project(top: str | None, owner: str | None) -> str | None:
    """Return the project in a tree: its owner, or the repository below it."""
    if owner is None or (top is not None and top.startswith(f"{owner}/")):
        return top
    return owner
