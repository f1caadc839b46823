"""The desk of one server: a tree, the project that is asked about, the session that is written to.

The project is that of the working directory. If the tree belongs to the project, questions are
about the whole tree. If it has many projects (the user's tree, `--root`, SMP_ROOT), they are about
the sessions that name this one. The tree is made at the first record.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from smp_client import SessionNotFound
from smp_client.agents.page import plain_name
from smp_client.disk.home import Home, find_home
from smp_client.index.validity import project_of
from smp_client.model.agent_names import file_name
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL, is_tree
from smp_client.session_name import session_id

from .answer import BUDGET_BYTES

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Session

EVERY = "*"


@dataclass
class Desk:
    """The memory as one connected agent sees it."""

    memory: Memory
    directory: Path
    budget: int = BUDGET_BYTES
    has_made_tree: bool = False
    _own: dict[str | None, Session] = field(default_factory=dict)  # to write to, by project
    _task: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)  # calls come in threads

    @property
    def is_empty(self) -> bool:
        return not is_tree(self.memory.tree.path)

    @cached_property
    def home(self) -> Home:
        return find_home(self.directory, str(self.memory.root))

    def asked_project(self, given: str | None) -> str | None:
        """Return the project that a question is about; None for the whole tree."""
        if given is None:
            return None if self.home.owner is not None else self.home.name
        return None if given == EVERY else given

    def scope(self, given: str | None, session: str | None = None) -> str:
        """Return a sentence on the scope of an answer, and its time."""
        project = self.asked_project(given)
        what = f"session {session}" if session else "every session"
        if project is not None and not session:
            what = f"project {plain_name(project)} and what holds everywhere"
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        unread = ", ".join(map(plain_name, self.memory.unread))
        but = f" A change of {unread} cannot be read: see smp status." if unread else ""
        return f"Scope: {what} in {self.memory.root}, up to date at {now}.{but}"

    def session_id(self, name: str | None) -> str | None:
        """Return the id of the session that is meant, archived or not."""
        if name is None or name == GLOBAL:
            return name
        return session_id(self.memory, name, (ACTIVE, ARCHIVED))

    def own_session(self, project: str | None, agent: str) -> Session:
        """Return the session of a project that this server writes to, new where there is none."""
        name = project if project not in (None, EVERY) else None
        with self._lock:
            try:
                if name in self._own and self._own[name].metadata():
                    return self._own[name]
            except SessionNotFound:
                pass  # it was archived or deleted meanwhile: from now on another one is written
            is_new = self.is_empty
            about = self._project_name(name)
            agents = [file_name(agent)]
            made = self.memory.create_session(project=about, topic=self._task, agents=agents)
            self.has_made_tree = is_new
            self._own[name] = made
            return made

    def note_task(self, task: str | None) -> None:
        """Keep the first task that is asked for: it is the topic of the session."""
        words = plain_name(task)
        if words and self._task is None:
            self._task = words

    def told_tree(self) -> str:
        """Return a sentence on the tree if this server has just made it; only once."""
        with self._lock:
            is_new = self.has_made_tree
            self.has_made_tree = False
        return f" Made the sessions tree {self.memory.root}." if is_new else ""

    def _project_name(self, given: str | None) -> str | None:
        """Return the name of a project as other sessions of the tree have it."""
        names = [] if self.is_empty else self.memory._projects()
        wanted = given or self.home.name
        for one in names:
            if project_of(one) == project_of(wanted):
                return one
        is_own = given is None and self.home.owner is not None
        return names[0] if is_own and names else wanted

    def files(self, session: str) -> GlobalMemory | Session:
        """Return the files of a session that is not archived, by its whole id."""
        return self.memory.everywhere if session == GLOBAL else self.memory._session(session)
