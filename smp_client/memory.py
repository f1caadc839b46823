"""The front door: a root, its sessions, and what holds for all of them."""

from __future__ import annotations

import functools
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .ask.asking import Asking
from .deletion import MemoryDeletion
from .disk import journal
from .disk.place import Place
from .disk.scope import Options, Scope
from .disk.scopes import directory_of, scopes
from .disk.session_files import METADATA, new_metadata
from .disk.temporaries import temporary_name
from .model.errors import Conflict, Invalid, MemoryNotFound, SessionNotFound, SessionPutAway, SMPError, StorageFailed
from .model.layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    JOURNAL,
    MARKER,
    QUARANTINE,
    RETIRED,
    SESSION_DIRECTORIES,
    TOP_DIRECTORIES,
    check_file_id,
    check_new_session_id,
    check_session_id,
    is_session_id,
)  # fmt: skip
from .model.record import GLOBAL_KINDS, GLOBAL_PREFERENCE, PATTERN, SESSION_KINDS, Record, check_memory_id, split_name
from .moving import MemoryMoving
from .redaction.redact import FIELD, with_counts
from .session import RecordFiles, Session
from .text.contents import plain_parts
from .text.format import format_of
from .text.mapping import load_mapping, render_mapping, replace_parts
from .text.values import Value
from .upkeep import MemoryUpkeep
from .writing import Time

if TYPE_CHECKING:
    from .agents.context import Context
    from .ask.asker import Asker
    from .disk.access import Readings
    from .disk.published import Published
    from .index.fresh import Fresh

_PROFILE = "user-profile.yaml"
_ARGUMENTS = ("user", "project", "phase", "topic", "tags", "agents", "id", "quota_bytes")  # of a new session


class Memory(Place, Asking, MemoryDeletion, MemoryUpkeep, MemoryMoving):
    """The memory under one root; with no root given, the nearest one (see `find_root`). Making it touches no file.

    A question to it is one to all its sessions, archived or not, and to what holds everywhere.
    """

    def __init__(self, root: str | Path | None = None, **options: Any) -> None:
        super().__init__(root)
        self.options = Options(**options)
        self._answering: tuple[Fresh, Readings, Published] | None = None

    def close(self) -> None:
        """Closes the index, which stays open between questions; the next question opens it again."""
        if self._answering:
            self._answering[0].close()

    def _asker(self) -> Asker:
        self.require()
        return self._asker_of(scopes(self))

    def _asker_of(self, scopes: Sequence[str]) -> Asker:
        from .ask.asker import Asker
        from .disk.access import Readings
        from .disk.published import published
        from .index.fresh import Fresh

        self._answering = self._answering or (Fresh(self, self._scope), Readings(), published(self.tree))
        return Asker(*self._answering, scopes, self._scope, self.options, _wake)

    def _scope(self, name: str) -> Scope:
        return Scope(self.tree, name, directory_of(name), self.options)

    def create(self) -> None:
        """Makes the tree where there is none; does no harm where there is one."""
        try:
            self.require_known_version()
            self.require_room()
            self.tree.create_root(TOP_DIRECTORIES)
            if not self.tree.exists(MARKER):
                with suppress(FileExistsError):
                    self.tree.create(MARKER, b'{"version": 1}\n')
        except OSError as error:
            is_in_the_way = isinstance(error, (FileExistsError, NotADirectoryError))
            raise StorageFailed(f"Could not make {self.root}: {error}.",
                                advice="Name a directory as the root." if is_in_the_way else None) from error  # fmt: skip

    def create_session(
        self, *, user: str | None = None, project: str | None = None, phase: str | None = None, topic: str | None = None,
        tags: Sequence[str] = (), agents: Sequence[str] = (), id: str | None = None, quota_bytes: int | None = None,
        **context: Any,
    ) -> Session:  # fmt: skip
        """A new session, there with all its files or not at all. What else is given stands in its `context`."""
        created = self.options.clock()
        quota = self.options.quota_bytes if quota_bytes is None else quota_bytes
        session_id = id if id is not None else f"session-{created:%Y-%m-%d}-{uuid.uuid4().hex[:6]}"
        _check_new_session(session_id, user, agents, quota, context)
        redaction = self._scope(session_id).redaction
        for what, names in (("a session", [session_id]), ("a user", [user]), ("an agent", agents)):
            for name in names:
                redaction.require_clean_name(what, name)
        people = [*([user] if user else []), *agents]
        fields = {"project_name": project, "project_phase": phase, "primary_topic": topic, "tags": tags, **context}
        files = {kind.file: format_of(kind).empty(session_id, created, people) for kind in SESSION_KINDS}
        files[METADATA] = new_metadata(session_id, created, user=user, agents=list(agents), quota_bytes=quota, context=fields,
                                       redaction=redaction)  # fmt: skip
        for place in (ACTIVE, ARCHIVED, DELETED):
            if self.tree.root.is_dir() and self.tree.exists(f"{place}/{session_id}"):
                raise Conflict(f"There is a session {session_id!r} in {place}/ already.", advice="Choose another id.")
        self.create()
        self._lay_out(session_id, files)
        return self._session(session_id)

    def _lay_out(self, session_id: str, files: Mapping[str, bytes]) -> None:
        """Builds the directory aside and moves it into its place in one step."""
        aside = temporary_name()
        try:
            for directory in SESSION_DIRECTORIES:
                self.tree.make_directory(f"{aside}/{directory}")
            for name, content in files.items():
                self.tree.write_new(f"{aside}/{name}", content)
            self.tree.sync_parent(f"{aside}/{METADATA}")
            self._set_aside_leftovers(session_id)
            self.tree.rename_new(aside, f"{ACTIVE}/{session_id}")
            self.tree.sync_parent(f"{ACTIVE}/{session_id}")
        except OSError as error:
            self.tree.remove_directory(aside)
            if isinstance(error, FileExistsError):
                raise Conflict(f"There is a session {session_id!r} already.", advice="Choose another id.") from error
            raise StorageFailed(f"Could not make session {session_id!r}: {error}.") from error

    def _set_aside_leftovers(self, session_id: str) -> None:
        """What a removed session of the same id never finished is not for the new one."""
        if self.tree.exists(f"{ACTIVE}/{session_id}"):
            return
        for directory in (JOURNAL, RETIRED):
            for name in self.tree.list(directory):
                if name.startswith(f"{session_id}+"):
                    self.tree.make_directory(f"{QUARANTINE}/{session_id}")
                    self.tree.rename(f"{directory}/{name}", f"{QUARANTINE}/{session_id}/{name}.bytes")

    def session(self, name: str) -> Session:
        """Return the session that `name` means: its id, `latest` (the session that was written last), or
        the beginning or the last part of exactly one id."""
        try:
            return self._session(name)
        except SessionPutAway:
            raise
        except SessionNotFound:
            from .session_name import session_id

            return self._session(session_id(self, name))

    def _session(self, session_id: str) -> Session:
        """Return the session with exactly this id."""
        check_session_id(session_id)
        self.require()
        scope = self._scope(session_id)
        scope.require()
        return Session(self, scope)

    def get(self, name: str, *, count_access: bool = True) -> Record:
        """Return one memory, archived or not, by `SESSION/ID`, or by an id that only one session has.

        Reading a memory of an archived session brings nothing back and counts nothing.
        """
        session, memory_id = split_name(name, "")
        if not session:
            found = self._asker().ask(lambda view: self._named(view, check_memory_id(name)))
            if found is None:
                raise MemoryNotFound(f"There is no memory {name!r} under {self.root}.")
            session = found.session
        if session == GLOBAL:
            return self.everywhere.get(memory_id, count_access=count_access)
        try:
            files = self.session(session)
        except SessionPutAway as put_away:
            files = Session(self, self._scope(put_away.session_id or session))
        return files.get(memory_id, count_access=count_access)

    def sessions(self, state: str | None = None) -> list[Session]:
        """Return the sessions in `active/`, the one that was used last first; only those in a state where one is given.

        Reading is a use, too.
        """
        from .passes.lifecycle import activities

        found = [session for session in self._sessions() if state is None or session.state == state]
        used = activities(self, [session.id for session in found]) if found else {}
        long_ago = datetime.min.replace(tzinfo=UTC)
        return sorted(found, key=lambda session: used.get(session.id, long_ago), reverse=True)

    def _sessions(self) -> list[Session]:
        """Return the sessions in `active/`, by id."""
        if not self.root.is_dir():
            return []
        self._finish_moves()
        found: list[Session] = []
        for name in self.tree.list(ACTIVE):
            with suppress(FileNotFoundError, SessionNotFound):  # it went while we looked
                if self._is_session(name):
                    found.append(self._session(name))
        return found

    def _finish_moves(self) -> None:
        """Finish moves that were cut off, so that every session is in one place. Waits for nobody."""
        for name in {intent.partition("+")[0] for intent in self.tree.list(JOURNAL)}:
            if is_session_id(name):
                with suppress(SMPError, OSError):  # what cannot be finished yet is reported by status and check
                    journal.recover(self._scope(name), wait=False, only_moves=True)

    def _is_session(self, name: str) -> bool:
        try:
            check_session_id(name)
        except Invalid:
            return False
        return stat.S_ISDIR(self.tree.stat(f"{ACTIVE}/{name}").st_mode)

    def context(
        self, *, project: str | None = None, agent: str | None = None, task: str | None = None, topic: str | None = None,
        session: str | None = None, max_tokens: int | None = None, explain: bool = False,
    ) -> Context:  # fmt: skip
        """Return what an agent should know of a project, as Markdown for a prompt; see context.py.

        Without a project, or with `*`, it is about every session of this tree. With a session and no
        project, that session's project is meant; `session.agent(…).context()` says the same.
        """
        from .agents.context import Request, context_of

        if session is None:
            return context_of(self._asker(), Request(project, agent, task, topic, None, max_tokens, explain))
        from .agents.agent import Reader

        found = self.session(session)
        reader = Reader(found) if agent is None else found.agent(agent)
        return reader.context(topic, max_tokens, task, project=project, explain=explain)

    @property
    def everywhere(self) -> GlobalMemory:
        """What holds across sessions: preferences, patterns, the user's profile."""
        return GlobalMemory(self, self._scope(GLOBAL))


def _wake(scope: Scope, reason: str) -> None:
    from .passes.lifecycle import wake  # late: most sessions that are asked are in use

    wake(scope, reason)


def _check_new_session(
    session_id: str, user: str | None, agents: Sequence[str], quota_bytes: int, context: Iterable[str]
) -> None:  # fmt: skip
    problems = [problem for name in context for problem in _misspelt(name)]
    checks: list[Callable[[], str]] = [functools.partial(check_new_session_id, session_id)]
    checks += [functools.partial(check_file_id, "agent", agent) for agent in agents]
    for check in checks:
        try:
            check()
        except Invalid as invalid:
            problems += invalid.problems
    # The user's name stands in the head of the conversation, where another line could pass for a turn.
    if user is not None and not (isinstance(user, str) and user.isprintable() and len(user) <= 128):
        problems.append("'user' must be one printable line of at most 128 characters")
    if not isinstance(quota_bytes, int) or quota_bytes <= 0:
        problems.append(f"'quota_bytes' must be a whole number above 0, not {quota_bytes!r}")
    if problems:
        raise Invalid(problems)


def _misspelt(name: str) -> list[str]:
    """What is nearly the name of an argument is hardly meant as a further field of the context."""
    from difflib import get_close_matches  # late, because most give none

    near = ["id"] if name == "session_id" else get_close_matches(name, _ARGUMENTS, 1, cutoff=0.85)
    return [f"there is no {name!r} (did you mean {near[0]!r}?)"] if near else []


class GlobalMemory(RecordFiles):
    """`global/`: read and written like a session."""

    kinds = GLOBAL_KINDS

    def _asker(self) -> Asker:
        self.memory.require()
        return self.memory._asker_of([GLOBAL])

    def record_preference(
        self, preference: str, *, topic: str | None = None, confidence: str = "inferred", tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """A preference that holds in every session."""
        self.memory.create()
        fields = {"topic": topic, "preference": preference, "confidence": confidence, **further, "tags": tags}
        return self._add(GLOBAL_PREFERENCE, fields, timestamp)

    def record_pattern(
        self, pattern: str, *, learned_by: str | None = None, tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """Something agents have learned that holds beyond one session."""
        self.memory.create()
        return self._add(PATTERN, {"learned_by": learned_by, "pattern": pattern, **further, "tags": tags}, timestamp)

    def profile(self) -> dict[str, Value]:
        return load_mapping(self.scope.read(_PROFILE), "user_profile", _PROFILE)

    def save_profile(self, **parts: Any) -> None:
        """Replaces the named parts of the user's profile and keeps the others; None takes one out."""
        self.memory.create()
        checked, kinds = plain_parts(parts, self.scope.redaction)

        def changed(content: bytes) -> bytes:
            old = load_mapping(content, "user_profile", _PROFILE)
            new = with_counts(checked, old.get(FIELD), kinds) if kinds else checked
            if content.strip():
                return replace_parts(content, "user_profile", new, _PROFILE)
            return render_mapping("user_profile", {name: value for name, value in new.items() if value is not None})

        self._replace(_PROFILE, changed, "saving the profile")

    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None:
        raise Invalid(["agent states belong to a session"])

    def _save_artifact(self, artifact_id: str, content: str, fields: Mapping[str, Any]) -> None:
        raise Invalid(["artifacts belong to a session"])
