"""The front door: a root, its sessions, and the verbs that are about all of them.

Every verb is one call into the layer that does it, which is imported late: `smp status` and a
program that only writes load nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .ask import questions
from .disk.place import ARCHIVE, Place, archived_scope, directory_of, scopes
from .disk.policy import Options, Published, published
from .model import errors, layout
from .model.door import front_door
from .model.fields import CONTEXT, misspellings
from .model.layout import GLOBAL, METADATA
from .model.nearest import did_you_mean
from .model.quotation import shown
from .model.record import SESSION_KINDS, Record, check_lookup, split_name

if TYPE_CHECKING:
    from pathlib import Path

    from .agents.context import Context
    from .ask.alike import Alike
    from .ask.asker import Asker
    from .ask.summary import Statistics
    from .disk.bundle import Manifest
    from .disk.scope import Scope
    from .erasure import Privacy
    from .exchange.gate import Exchange
    from .index.fresh import Fresh
    from .model.outcome import Outcome
    from .session import GlobalMemory, Session
    from .text.revision import Revision

T = TypeVar("T")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@front_door
class Memory(Place):
    """The memory under one root; with no root given, the nearest one. Making it touches no file.

    A question to it is one to all its sessions, archived or not, and to `global/`.
    """

    def __init__(self, root: str | Path | None = None, **options: Any) -> None:
        super().__init__(root)
        self._options = Options(**options)
        self._given: dict[str, Any] = options
        self._said: Published | None = None
        self._futile: dict[str, tuple[int, str]] = {}  # compactions that freed too little
        self._fresh: Fresh | None = None

    @property
    def options(self) -> Options:
        """Return the options that were given, then those that are published under the root."""
        said = published(self.tree)
        if self._said is not said:
            self._said = said
            self._options = Options(**{**said.client, **self._given})
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        self._options = options
        self._given = options._asdict()
        self._said = None

    search = questions.search
    by_topic = questions.by_topic
    by_agent = questions.by_agent
    by_time = questions.by_time
    by_type = questions.by_type
    similar = questions.similar
    related = questions.related
    query = questions.query
    topics = questions.topics
    timeline = questions.timeline
    summary = questions.summary

    @property
    def everywhere(self) -> GlobalMemory:
        """`global/`, which holds across sessions: preferences, patterns, the user's profile."""
        from .session import GlobalMemory

        return GlobalMemory(self, self._scope(GLOBAL))

    @property
    def exchange(self) -> Exchange:
        """Exports and imports."""
        from .exchange.gate import Exchange

        return Exchange(self)

    @property
    def privacy(self) -> Privacy:
        """Deleting, restoring, anonymising, finding and purging, in any session."""
        from .erasure import Privacy

        return Privacy(self)

    def with_options(self, **options: Any) -> Memory:
        """Return this memory with other options. Both share the open index."""
        changed = Memory.__new__(Memory)
        vars(changed).update(vars(self))
        changed._given = {**self._given, **options}
        changed._options = Options(**changed._given)
        changed._said = None
        return changed

    @property
    def unread(self) -> dict[str, str]:
        """Sessions that the last question could not read as a whole, each with the reason."""
        return dict(self._fresh.unread) if self._fresh else {}

    def close(self) -> None:
        """Close the index, which stays open between questions. The next question opens it again."""
        if self._fresh:
            self._fresh.close()

    def create(self) -> None:
        """Make the tree where there is none. It does no harm where there is one."""
        try:
            self.require_known_version()
            self.require_room()
            if not layout.is_tree(self.tree.path):
                self.tree.create_root(())
                with suppress(FileExistsError):
                    self.tree.create(layout.IGNORE, layout.IGNORED)
            self.tree.create_root(layout.TOP_DIRECTORIES)
            if not self.tree.exists(layout.MARKER):
                with suppress(FileExistsError):
                    self.tree.create(layout.MARKER, b'{"version": 1}\n')
        except OSError as error:
            raise errors.StorageFailed(f"Could not make {self.root}: {error}.") from error

    def create_session(
        self,
        user: str | None = None,
        context: Mapping[str, object] | None = None,
        *,
        project: str | None = None,
        phase: str | None = None,
        topic: str | None = None,
        tags: Sequence[str] = (),
        agents: Sequence[str] = (),
        id: str | None = None,
        quota_bytes: int | None = None,
        user_id: str | None = None,
        agent_ids: Sequence[str] = (),
        session_id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        **further: object,
    ) -> Session:
        """Make a new session, with all its files or not at all.

        `context` and further arguments become fields of its context. `user_id`, `agent_ids`,
        `session_id` and `metadata` are other names of `user`, `agents`, `id` and `context`.
        """
        user = _either("user", user, "user_id", user_id)
        agents = _either("agents", agents, "agent_ids", agent_ids) or ()
        id = _either("id", id, "session_id", session_id)
        about = {**(_either("context", context, "metadata", metadata) or {}), **further}
        if wrong := misspellings(about, CONTEXT):
            raise errors.Invalid(wrong)
        given: dict[str, object] = {"project_name": project, "project_phase": phase}
        given |= {"primary_topic": topic, "tags": tags or None}
        about |= {name: value for name, value in given.items() if value is not None}
        about.setdefault("tags", [])
        if self._project_here is not None:
            about.setdefault("project_name", self._project_here)
        from .disk.session_files import new_metadata
        from .text.format import format_of

        created = self.options.clock()
        quota = self.options.quota_bytes if quota_bytes is None else quota_bytes
        session_id = f"session-{created:%Y-%m-%d}-{os.urandom(4).hex()}" if id is None else id
        layout.check_new_session_id(session_id)
        redaction = self._scope(session_id).redaction
        redaction.require_clean_name("a session", session_id)
        for agent in agents:
            redaction.require_clean_name("an agent", layout.check_file_id("agent", agent))
        # The name stands in the head of the conversation, where a new line could pass for a turn.
        is_line = isinstance(user, str) and user.isprintable() and len(user) <= 128
        if user is not None and not is_line:
            raise errors.Invalid(["'user' must be one printable line of at most 128 characters"])
        redaction.require_clean_name("a user", user)
        if not isinstance(quota, int) or quota <= 0:
            raise errors.Invalid([f"'quota_bytes' must be a whole number above 0, not {quota!r}"])
        people = [*([user] if user else []), *agents]
        files = {
            kind.file: format_of(kind).empty(session_id, created, people) for kind in SESSION_KINDS
        }
        files[METADATA] = new_metadata(
            session_id, created, user=user, agents=list(agents), quota_bytes=quota,
            context=about, redaction=redaction,
        )  # fmt: skip
        self.create()
        for place in (layout.ACTIVE, layout.ARCHIVED, layout.DELETED):
            if self.tree.exists(f"{place}/{session_id}"):
                raise _taken(session_id)
        self._lay_out(session_id, files)
        return self._opened(session_id)

    def _lay_out(self, session_id: str, files: Mapping[str, bytes]) -> None:
        """Build the directory aside and move it into its place in one step.

        Raise SessionPutAway where a session of this name is archived or deleted by now.
        """
        from .disk.scope import missing

        home = f"{layout.ACTIVE}/{session_id}"
        with self._scope(session_id).undisturbed("making the session", is_new=True):
            # Under the lock of moves, so that no session of this name leaves meanwhile.
            refusal = missing(self.tree, session_id)
            if isinstance(refusal, errors.SessionPutAway):
                raise refusal
            try:
                self.tree.rename_new(self._aside(files), home)
            except FileExistsError as error:
                raise _taken(session_id) from error
            self.tree.sync_parent(home)

    def _aside(self, files: Mapping[str, bytes]) -> str:
        """Build the directory of a session aside, durably, and return its name."""
        aside = self.tree.new_temporary()
        homes = {f"{aside}/{file}".rpartition("/")[0] for file in files}
        try:
            for directory in (*(f"{aside}/{name}" for name in layout.SESSION_DIRECTORIES), *homes):
                self.tree.make_directory(directory)
            for file, content in files.items():
                self.tree.write_new(f"{aside}/{file}", content)
            for directory in homes:
                self.tree.sync_parent(f"{directory}/any")
        except OSError:
            self.tree.remove_directory(aside)
            raise
        return aside

    def session(self, name: str) -> Session:
        """Return the session that a name means: its id, `latest` (the session that was written
        last), or the beginning or the last part of exactly one id."""
        try:
            return self._session(name)
        except errors.SessionPutAway:
            raise
        except errors.SessionNotFound:
            from .session_name import session_id

            return self._session(session_id(self, name))

    def sessions(self, state: str | None = None) -> list[Session]:
        """Return the sessions in `active/`, or those in one state, the last used first."""
        from .ask.overview import last_uses, states
        from .disk.access import last_readings

        found = {session.id: session for session in self._sessions()}
        if not found:
            if state is not None:
                _check_state(state)
            return []
        read = last_readings(self.tree, found)
        asker = self._asker_of(list(found))
        used, known = asker.ask(lambda view: (last_uses(view, read), states(view)))
        if state is not None and state not in known.values():
            _check_state(state)
        ids = [one for one in found if state is None or known.get(one, "active") == state]
        ids.sort(key=lambda one: used.get(one, _LONG_AGO), reverse=True)
        return [found[one] for one in ids]

    def get(self, name: str, *, count_access: bool = True) -> Record:
        """Return one memory, archived or not, by `SESSION/ID`, or by an id of one session alone.

        Reading a memory of an archived session brings nothing back and counts nothing.
        """
        session, memory_id = split_name(name, "")
        if not session:
            return questions.one(self, check_lookup(memory_id), count_access=count_access)
        if session == GLOBAL:
            return self.everywhere.get(memory_id, count_access=count_access)
        try:
            return self.session(session).get(memory_id, count_access=count_access)
        except errors.SessionPutAway as put_away:
            return self._archived(put_away, check_lookup(memory_id))

    def alike(self, record: Record) -> Alike:
        """Return the memories that say the same as this one, and preferences that it replaced."""
        from .ask.alike import alike

        return self._asker().ask(lambda view: alike(view, record))

    def history(self, name: str) -> list[Revision]:
        """Return what stood in the memory `SESSION/ID` before each of its changes, oldest first.

        An id alone will do if only one session has it.
        """
        from .change.history import history

        session, memory_id = split_name(name, "")
        if not session:
            session = self.get(name, count_access=False).session
        elif session != GLOBAL:
            session = self._id_of(session)
        return history(self, session, memory_id)

    def _id_of(self, name: str) -> str:
        """Return the id of the session that a name means, archived or not."""
        try:
            return self.session(name).id
        except errors.SessionPutAway as put_away:
            return str(put_away.session_id)

    def _archived(self, put_away: errors.SessionPutAway, memory_id: str) -> Record:
        """Return a memory of an archived session; raise the error where it is deleted."""
        from .ask.engine import of_id
        from .change.holdings import missing
        from .disk.bundle import read

        session_id = str(put_away.session_id)
        place = archived_scope(session_id)
        if not self.tree.exists(f"{place}/{ARCHIVE}"):
            raise put_away
        asker = self._asker_of([place])
        if found := asker.answer(lambda view, _: of_id(view, memory_id), {}):
            return found[0]
        read(self.tree, f"{place}/{ARCHIVE}")  # raises where the archive is damaged
        raise missing(self._scope(session_id), memory_id)

    def context(
        self, *, project: str | None = None, agent: str | None = None, task: str | None = None,
        topic: str | None = None, session: str | None = None, max_tokens: int | None = None,
    ) -> Context:  # fmt: skip
        """Return the memories that an agent should know of a project, as Markdown for a prompt.

        Without a project, or with `*`, it is about every session of this tree. With a session and
        no project, that session's project is meant. In the user's tree, it is the project of the
        working directory.
        """
        from .agents.context import Request, Rights, context_of

        if session is None:
            if project is None:
                project = self._project_here
            request = Request(project, agent, task, topic, None, max_tokens)
            return context_of(self._asker(), request, Rights())
        reader = self.session(session).agent(agent)
        return reader.context(topic, max_tokens, task, project=project)

    def close_session(self, session_id: str, reason: str = "closed by hand") -> None:
        """End the work in a session: it is idle from now on, and the index is closed.

        Its next use makes it active again.
        """
        self.session(session_id).deactivate(reason)
        self.close()

    def add_memory(self, session_id: str, memory: Mapping[str, object]) -> str:
        """Record a memory of a session by its `type`, and return its id.

        See `Session.write_memory`.
        """
        return self.session(session_id).write_memory(memory)

    write_memory = add_memory

    def statistics(self, session_id: str | None = None) -> Statistics:
        """Return how much a session holds; without one, all sessions that are in use together."""
        if session_id is not None:
            return self.session(session_id).statistics()
        from .ask.summary import statistics_of

        self.require()
        held = self._sessions()
        size = sum(one.size().total_bytes for one in held)
        asker = self._asker_of([one.id for one in held])
        return asker.ask(lambda view: statistics_of(view, size))

    def rebuild_index(self, session: str | None = None, *, timeout_s: float = 600.0) -> str:
        """Rebuild the index, and write `indexes/*.yaml` and the counts in `metadata.yaml` again.

        With a session, these files are written for it alone. Return who did it: `daemon` or `here`.
        """
        from .passes.for_people import rebuild_index

        name = None if session is None else self._id_of(session)
        return rebuild_index(self, name, timeout_s)

    def archive_session(
        self, session_id: str, reason: str = "archived by hand", *, dry_run: bool = False
    ) -> Outcome:
        """Archive a session. Its memories are still found."""
        from .change.move import archive

        return archive(self, session_id, reason, dry_run=dry_run)

    def restore_session(self, session_id: str) -> Session:
        """Bring a session back from the archive."""
        from .change.move import unarchive

        unarchive(self, session_id)
        return self._opened(session_id)

    def archived_sessions(self) -> list[Manifest]:
        """Return the archived sessions."""
        from .change.move import archived

        return archived(self)

    def delete_session(
        self, session_id: str, *, reason: str, deleted_by: str = "user", dry_run: bool = False
    ) -> Outcome:
        """Delete a whole session, archived or not. Until its deadline it can be restored."""
        from .change.move import delete_session

        return delete_session(self, session_id, reason, deleted_by, dry_run=dry_run)

    def undelete_session(
        self, session_id: str, reason: str = "restored by hand", *, by: str = "user"
    ) -> None:
        """Restore a deleted session, active again."""
        from .change.move import undelete_session

        undelete_session(self, session_id, reason, by=by)

    def deleted_sessions(self) -> list[Manifest]:
        """Return the sessions that can be restored, and until when."""
        from .change.move import deleted_sessions

        return deleted_sessions(self)

    @property
    def _project_here(self) -> str | None:
        """Return the project that is meant where none is named: only the user's tree has many."""
        return self.home.name if self.home is not None and self.home.is_users else None

    # For the layers below and the daemon, which have ids and never the names that people give.

    def _projects(self) -> list[str]:
        """Return the projects that sessions in `active/` name, that of the newest session first."""
        from .ask.overview import projects

        return self._asker_of(self._session_ids()).ask(projects)

    def _scope(self, name: str) -> Scope:
        from .disk.scope import Scope

        return Scope(self.tree, name, directory_of(name), self.options)

    def _session(self, session_id: str) -> Session:
        """Return the session with exactly this id."""
        layout.check_session_id(session_id)
        self.require()
        self._scope(session_id).require()
        return self._opened(session_id)

    def _opened(self, session_id: str) -> Session:
        """Return the session without a look at the disk, for a caller that knows it is there."""
        from .session import Session

        return Session(self, self._scope(session_id))

    def _sessions(self) -> list[Session]:
        """Return the sessions in `active/`, by id."""
        return [self._opened(name) for name in self._session_ids()]

    def _session_ids(self) -> list[str]:
        """Return the ids of the sessions in `active/`."""
        if not os.path.isdir(self.tree.path):
            return []
        self._recover_moves()
        entries = self.tree.entries(layout.ACTIVE).items()
        names = [name for name, is_directory in entries if is_directory]
        if names:
            self.require()
        return [name for name in names if layout.is_session_id(name)]

    def _is_session(self, name: str) -> bool:
        return layout.is_session_id(name) and self.tree.is_directory(f"{layout.ACTIVE}/{name}")

    def _recover_moves(self) -> None:
        """Finish moves that were cut off, so that every session is in one place."""
        if not self.tree.entries_known(layout.JOURNAL):
            return
        from .disk import journal

        for name in {intent.scope for intent in journal.intents(self.tree).values()}:
            with suppress(errors.SMPError, OSError):  # reported by status and check
                journal.recover(self._scope(name), wait=False)

    def _asker(self) -> Asker:
        self.require()
        return self._asker_of(scopes(self))

    def _asker_of(self, scopes: Sequence[str]) -> Asker:
        from .ask.asker import Asker
        from .index.fresh import Fresh

        if self._fresh is None:
            self._fresh = Fresh(self, self._scope)
        return Asker(self._fresh, scopes, self._scope, self.options)


def _either(name: str, given: T | None, other: str, alias: T | None) -> T | None:
    """Return the argument under the name that was used. Raise Invalid if both are given."""
    if given and alias and given != alias:
        raise errors.Invalid([f"{name!r} and {other!r} are one argument; give one of them"])
    return given if alias is None or given else alias


def _check_state(state: str) -> None:
    """Raise InvalidQuery if no session can be in this state."""
    from .passes.lifecycle import STATES

    if state not in STATES:
        said = f"state must be one of {', '.join(STATES)}, not {shown(state)}"
        raise errors.InvalidQuery(f"{said}{did_you_mean(str(state), STATES)}.")


def _taken(session_id: str) -> errors.Conflict:
    said = f"There is a session {session_id!r} already, in use, archived or deleted."
    return errors.Conflict(said, advice="Choose another id.")
