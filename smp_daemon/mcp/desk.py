"""The desk of one server: a tree, the project that is asked about, the session that is written to.

The project is that of the working directory. Where the tree belongs to the directory or one above,
that is the whole tree; where it is elsewhere (`--root`, SMP_ROOT), it is the sessions that name
the directory as their project. The tree is made at the first record.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from smp_client import SessionNotFound
from smp_client.agents.page import plain_name
from smp_client.model.layout import ACTIVE, ARCHIVED, GLOBAL, is_tree
from smp_client.session_name import session_id

from .answer import BUDGET_BYTES

if TYPE_CHECKING:
    from smp_client import GlobalMemory, Memory, Session

EVERY = "*"
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass
class Desk:
    """The memory as one connected agent sees it."""

    memory: Memory
    directory: Path
    budget: int = BUDGET_BYTES
    _own: dict[str, Session] = field(default_factory=dict)  # the session to write to, by project
    _lock: threading.Lock = field(default_factory=threading.Lock)  # calls come in threads

    @property
    def is_empty(self) -> bool:
        return not is_tree(self.memory.tree.path)

    @property
    def home(self) -> Path | None:
        """The directory that the tree belongs to, where it is this one or above it."""
        root = self.memory.root
        for one in (self.directory, *self.directory.parents):
            if root in (one / ".bmad/sessions", one / "_bmad/sessions"):
                return one
        return None

    def asked_project(self, given: str | None) -> str | None:
        """Return the project that a question is about; None for the whole tree."""
        if given is None:
            return None if self.home else self.directory.name
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
        name = project if project not in (None, EVERY) else (self.home or self.directory).name
        assert name is not None
        with self._lock:
            try:
                if name in self._own and self._own[name].metadata():
                    return self._own[name]
            except SessionNotFound:
                pass  # it was archived or deleted meanwhile: from now on another one is written
            made = self.memory.create_session(project=name or None, agents=[file_name(agent)])
            self._own[name] = made
            return made

    def files(self, session: str) -> GlobalMemory | Session:
        """Return the files of a session that is not archived, by its whole id."""
        return self.memory.everywhere if session == GLOBAL else self.memory._session(session)


def file_name(agent: str) -> str:
    """Return the name of an agent as files can have it."""
    return _UNFIT.sub("-", agent).strip("-_")[:64] or "agent"
