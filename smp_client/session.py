"""A session, and the record files that it and `global/` have in common.

A method reads or writes files itself, or is one call into the layer that does the work. Such a
layer is imported late, so that a program that only writes starts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from .ask import questions
from .disk import journal, tally
from .disk.append import append
from .disk.place import archived_scope, has_evicted
from .disk.rewrite import rewrite
from .disk.scope import Scope
from .disk.session_files import METADATA, artifact_file, parse_artifact, state_file
from .disk.tree import version_of
from .disk.usage import Size
from .disk.wakeup import wake
from .model import errors
from .model.door import front_door
from .model.layout import GLOBAL, check_file_id
from .model.quotation import shown
from .model.record import (
    GLOBAL_KINDS,
    PATTERN,
    SESSION_KINDS,
    Kind,
    Record,
    as_record,
    check_lookup,
    is_deleted,
    kind_named,
    kind_of,
    split_name,
)
from .model.times import render_time, time_of
from .redaction.redact import FIELD, with_counts
from .text.contents import new_fields, plain_parts
from .text.document import Bad
from .text.format import format_of
from .text.mapping import load_mapping, replace_parts
from .text.values import Value
from .text.version import PROFILE
from .transaction import Transaction
from .writer import T, Time, Writer

if TYPE_CHECKING:
    from .agents.agent import AgentMemory
    from .agents.context import Context
    from .agents.party import Party
    from .ask.asker import Asker
    from .ask.priorities import View
    from .ask.summary import Statistics
    from .change.holdings import Holding
    from .memory import Memory
    from .model.outcome import Outcome
    from .passes.check import Complaint
    from .text.revision import Revision

CONTEXT_SWITCH = "context_switch"  # the type of a turn
_ATTEMPTS = 50  # at a change that conflicts with changes of other writers
# Counts, state and the time of a compaction are written into a full session, too.
_BOOKKEEPING_BYTES = 1024


class Problem(NamedTuple):
    """Bytes in a record file that cannot be read as a record; they stay where they are."""

    file: str
    line: int
    problem: str


@front_door
class RecordFiles(Writer):
    """The record files of one scope: a session is one, and `global/` is one."""

    kinds: tuple[Kind, ...] = ()

    def __init__(self, memory: Memory, scope: Scope) -> None:
        self.memory = memory
        self.scope = scope

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

    def quota_bytes(self) -> int | None:
        """Return how many bytes the scope may have; None for no limit."""
        return None

    def get(self, memory_id: str, *, count_access: bool = True) -> Record:
        """Return the memory of this id. Raise MemoryNotFound where there is none."""
        from .ask.engine import of_id

        kind = kind_of(check_lookup(memory_id), self.kinds)

        def question(view: View) -> Sequence[Record]:
            # The index is out of date for an unreadable file; reading the file raises the reason.
            state = view.index.file_state(self.scope.name, kind.file) if kind else None
            return [] if state and state.problem else of_id(view, memory_id)

        asker = self._asker()
        found = asker.ask(question)
        record = found[0] if found else self._find(memory_id)
        return asker.noted(record) if count_access else record

    def records(self, type: str) -> list[Record]:
        """Return all memories of one type that can be read, in the order of the file."""
        kind = self._kind_named(type)
        return [
            as_record(kind, self.scope.name, record.value)
            for record in format_of(kind).parse(self.scope.read(kind.file)).records
            if record.has_id and not is_deleted(kind, record.value)
        ]

    def problems(self) -> list[Problem]:
        """Return the places in the record files that cannot be read."""
        problems: list[Problem] = []
        for kind in self.kinds:
            problems += self._problems_in(kind)
        return problems

    def _problems_in(self, kind: Kind) -> list[Problem]:
        """Return the places in the file of a kind that cannot be read."""
        problems: list[Problem] = []
        content = self.scope.read(kind.file)
        found = format_of(kind).parse(content)
        line = 0
        at = 0
        why = "the record has no id, or one that is no text"
        nameless = (Bad(*one[:2], 1, why) for one in found.records if not one.has_id)
        for bad in sorted([*found.bad, *nameless]):
            line += content.count(b"\n", at, bad.start)
            at = bad.start
            problems.append(Problem(kind.file, line + bad.line, bad.problem))
        return problems

    def transaction(self, numbers: int = 1) -> Transaction:
        """Begin several writes, all or nothing: `with session.transaction() as tx: …`"""
        return Transaction(self, numbers)

    def delete(self, id: str | Sequence[str] | None = None, *, reason: str, **how: Any) -> Outcome:
        """Delete memories, all or none; `how` is as for `memory.privacy.delete`."""
        return self.memory.privacy.delete(self.scope.name, id, reason=reason, **how)

    def deleted(self) -> list[Holding]:
        """Return the memories that were deleted or anonymised and can still be restored.

        The `facts` of each say `at`, `by`, `why`, `until` and `batch`.
        """
        return self.memory.privacy.deleted(self.scope.name)

    def restore(
        self, memory_id: str, reason: str = "restored by hand", *, by: str = "user"
    ) -> Record:
        """Restore a deleted memory to its place, with its old id. The audit log has the reason."""
        self.memory.privacy.restore(self.scope.name, [memory_id], reason=reason, by=by)
        try:
            return self._memory_named(memory_id)
        except (OSError, errors.StorageFailed) as error:
            said = f"{memory_id} is restored, but cannot be read: {error}"
            advice = "Do not restore it again; read it when the disk is well."
            raise errors.StorageFailed(said, advice=advice, session_id=self.scope.name) from error

    def restore_batch(
        self, batch: str, reason: str = "restored by hand", *, by: str = "user"
    ) -> Outcome:
        """Restore all memories that were deleted, or anonymised, as one batch."""
        return self.memory.privacy.restore(self.scope.name, batch=batch, reason=reason, by=by)

    def history(self, memory_id: str) -> list[Revision]:
        """Return what stood in a memory before each of its changes, oldest first.

        Each revision says `at`, `by`, `change` and `before`, the earlier values of the fields.
        For the name of an agent, the revisions are its earlier states.
        """
        from .change.history import history

        return history(self.memory, self.scope.name, memory_id)

    def kind_of_record(self, memory_id: str) -> Kind:
        """Return the kind of a memory. An unknown prefix has all files searched."""
        return self._located(memory_id)[0]

    def _located(self, memory_id: str) -> tuple[Kind, dict[str, Value]]:
        kind = kind_of(memory_id, self.kinds)
        for one in self.kinds if kind is None else [kind]:
            found = format_of(one).find(self.scope.read(one.file), memory_id)
            if found and not is_deleted(one, found.value):
                return one, found.value
        from .change.holdings import missing

        raise missing(self.scope, memory_id)

    def _asker(self) -> Asker:
        """Return the asker for this scope and for the memories that compaction has evicted."""
        self.scope.require()
        name = self.scope.name
        evicted = [archived_scope(name)] if has_evicted(self.scope.tree, name) else []
        return self.memory._asker_of([name, *evicted])

    def _own_asker(self) -> Asker:
        """Return the asker for the files of this scope alone."""
        self.scope.require()
        return self.memory._asker_of([self.scope.name])

    def _kind_named(self, name: str) -> Kind:
        if kind := kind_named(name, self.kinds):
            return kind
        known = ", ".join(kind.type for kind in self.kinds)
        raise errors.Invalid([f"type {shown(name)} must be one of {known}"])

    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record:
        kind = self._kind_named(kind.name)
        at = timestamp if timestamp is not None else self._now()
        body = new_fields(kind, fields, at, self.scope.redaction)
        with tally.timed(self.scope.tree.path, tally.WRITE):
            value = self._fitted(lambda: append(self.scope, kind, body, self.quota_bytes))
        tally.redacted(self.scope.tree.path, body.get(FIELD))
        wake(self.scope)
        record = as_record(kind, self.scope.name, value)
        record.notes = self._size_notes()
        return record

    def _fitted(self, write: Callable[[], T]) -> T:
        """Do a write into this scope, which may have to become smaller for it."""
        return write()

    def _size_notes(self) -> tuple[str, ...]:
        """Return a warning where the scope was nearly full after the last write."""
        warning = self.scope.usage.warning(self.scope.name)
        return (warning,) if warning else ()

    def _write(self, write: Callable[[Transaction], T]) -> T:
        """Commit one write. After a conflict, write again on top of the other writer's change."""
        for attempt in range(_ATTEMPTS):
            transaction = Transaction(self)
            written = write(transaction)
            try:
                transaction.commit()
                break
            except errors.Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
        if isinstance(written, Record):
            written.notes = transaction.notes
        return written

    def _find(self, memory_id: str) -> Record:
        kind, value = self._located(memory_id)
        return as_record(kind, self.scope.name, value)

    def _memory_named(self, name: str) -> Record:
        """Return the memory of an id in this scope, or of `SESSION/ID` anywhere."""
        session, memory_id = split_name(name, self.scope.name)
        if session != self.scope.name:
            return self.memory.get(name, count_access=False)
        try:
            return self._find(memory_id)
        except errors.MemoryNotFound:
            return self.get(memory_id, count_access=False)  # it may be an artifact or a state

    def _replace_parts(
        self, file: str, top: str, changes_of: Callable[[dict[str, Value]], Mapping[str, Any]]
    ) -> None:
        """Change a file that is one mapping by a function of its parts, within the quota."""

        quota = self.quota_bytes()

        def changed(content: bytes) -> bytes:
            old = load_mapping(content, top, file)
            parts, kinds = plain_parts(changes_of(old), self.scope.redaction)
            parts = with_counts(parts, old.get(FIELD), kinds) if kinds else parts
            new = replace_parts(content, top, parts, file)
            growth = len(new) - len(content)
            if quota is not None and growth > _BOOKKEEPING_BYTES:
                self.scope.usage.require(self.scope.name, growth, quota)
            return new

        with self.scope.locked([file], f"changing {file}"):
            rewrite(self.scope, file, changed)


@front_door
class Session(RecordFiles):
    """One session: its conversation, its memories, the states of its agents and its artifacts."""

    kinds = SESSION_KINDS

    def __init__(self, memory: Memory, scope: Scope) -> None:
        super().__init__(memory, scope)
        self._quota: tuple[list[int], int] | None = None  # with the version of the metadata

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def id(self) -> str:
        return self.scope.name

    @property
    def state(self) -> str:
        """The status in the metadata; `unreadable` where the metadata cannot be read."""
        try:
            return str(self.metadata().get("status", "active"))
        except (errors.CorruptionDetected, errors.NewerFormat):
            return "unreadable"

    def with_options(self, **options: Any) -> Session:
        """Return this session with other options."""
        return Session(memory := self.memory.with_options(**options), memory._scope(self.id))

    def metadata(self) -> dict[str, Value]:
        """Return the metadata below `session`; empty where there is no `metadata.yaml`."""
        return load_mapping(self.scope.read(METADATA), "session", METADATA)

    def update_metadata(self, **changes: Any) -> None:
        """Replace parts of the metadata (`context`, `status`, …), merged one level deep."""
        self.change_metadata(lambda _: changes)

    def change_metadata(self, changes_of: Callable[[dict[str, Value]], Mapping[str, Any]]) -> None:
        """Change the metadata by a function, which gets the metadata as read under the lock."""

        def merged(old: dict[str, Value]) -> dict[str, Any]:
            parts = dict(changes_of(old))
            if "status" in parts:  # the reason of the old status does not hold for the new one
                since = render_time(self._now())
                parts = {"status_since": since, "status_reason": None, **parts}
            return {name: _merge(old.get(name), value) for name, value in parts.items()}

        self._replace_parts(METADATA, "session", merged)

    def turns(self, last: int | None = None) -> list[Record]:
        """Return the conversation, or its last turns."""
        turns = self.records("turn")
        return turns if last is None else turns[len(turns) - min(max(last, 0), len(turns)) :]

    def switch_context(
        self, topic: str, *, speaker: str = "user", text: str = "", phase: str | None = None
    ) -> Record:
        """Note that the conversation turns to another topic, and perhaps another phase.

        A turn of type `context_switch` says so, and the context in the metadata changes.
        """
        about = self.metadata().get("context")
        old = about.get("primary_topic") if isinstance(about, dict) else None
        new: dict[str, Any] = {"primary_topic": topic}
        if phase is not None:
            new["project_phase"] = phase
        said = text or f"Now about {topic}."
        turn = self.add_turn(
            speaker, said, type=CONTEXT_SWITCH, from_topic=old, to_topic=topic, to_phase=phase
        )
        self.update_metadata(context=new)
        return turn

    def context_switches(self) -> list[Record]:
        """Return the turns at which the conversation came to another topic, in their order."""
        return [one for one in self.turns() if one.data.get("type") == CONTEXT_SWITCH]

    def agent_state(self, agent: str) -> dict[str, Value]:
        """Return the last state of an agent; empty where the agent saved none."""
        file = state_file(check_file_id("agent", agent))
        return load_mapping(self.scope.read(file), "agent_state", file)

    def agent_states(self) -> list[str]:
        """Return the agents that have a state."""
        return self._names("agent-states", ".yaml")

    def artifact(self, artifact_id: str) -> Record:
        """Return an artifact by its id."""
        file = artifact_file(check_file_id("artifact", artifact_id))
        content = self.scope.read(file)
        exists = self.scope.tree.exists(self.scope.path(file))
        if not content and (not exists or file in journal.going(self.scope)):
            problem = f"There is no artifact {artifact_id!r} in {self.id}."
            raise errors.MemoryNotFound(problem, session_id=self.id)
        fields, text = parse_artifact(content)
        fields |= {"id": artifact_id, "content": text}
        return Record(artifact_id, "artifact", self.id, fields, text)

    def artifacts(self) -> list[str]:
        """Return the ids of the artifacts."""
        return self._names("artifacts", ".md")

    def _names(self, directory: str, suffix: str) -> list[str]:
        with self.scope.answering(f"listing {directory}"):
            self.scope.recover()
            going = journal.going(self.scope)
            files = self.scope.tree.sizes(self.scope.path(directory))
        names = [name for name in files if f"{directory}/{name}" not in going]
        return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix))

    def agent(self, name: str | None = None) -> AgentMemory:
        """Return the session as an agent sees it: its context, its records, its own state."""
        from .agents.agent import AgentMemory

        return AgentMemory(self, name)

    def party(self) -> Party:
        """Begin party mode: agents share findings and decisions, and keep their states."""
        from .agents.party import Party

        return Party(self)

    def context(
        self, topic: str | None = None, max_tokens: int | None = None, task: str | None = None,
        **how: Any,
    ) -> Context:  # fmt: skip
        """Return the memories that matter for this session's project, as Markdown for a prompt.

        `how` is as for `AgentMemory.context`.
        """
        return self.agent().context(topic, max_tokens, task, **how)

    def size(self) -> Size:
        """Return the size of the session and of its files, and in how many days it will be full."""
        self.scope.require()
        since = None
        with suppress(errors.CorruptionDetected):
            since = time_of(self.metadata().get("created_at"))
        with self.scope.answering("measuring the session"):
            return self.scope.usage.measure(self.quota_bytes(), since, self._now())

    def statistics(self) -> Statistics:
        """Return how many memories of each type the session has, its size and its last activity."""
        from .ask.summary import statistics_of

        size = self.size().total_bytes
        return self._own_asker().ask(lambda view: statistics_of(view, size))

    def quota_bytes(self) -> int:
        """Return the session's own limit where its metadata give one, else the client's."""
        try:
            status = self.scope.tree.stat(self.scope.path(METADATA))
        except FileNotFoundError:
            return self.scope.options.quota_bytes
        version = version_of(status)
        if self._quota is None or self._quota[0] != version:
            try:
                metadata = self.metadata()
            except errors.SMPError as error:
                if errors.is_of_machine(error):
                    raise
                metadata = {}  # metadata that cannot be read must not stop other writes
            storage = metadata.get("storage")
            quota = storage.get("quota_bytes") if isinstance(storage, dict) else None
            if not isinstance(quota, int) or quota <= 0:
                quota = self.scope.options.quota_bytes
            self._quota = version, quota
        return self._quota[1]

    def _fitted(self, write: Callable[[], T]) -> T:
        """Do a write. Where it does not fit, compact the session once and try again."""
        try:
            return write()
        except errors.QuotaExceeded as full:
            from .passes.compaction import make_room

            tried = make_room(self, full)
        try:
            return write()
        except errors.QuotaExceeded as full:
            raise full.after(tried) from full

    def activate(self, reason: str = "activated by hand") -> None:
        """Mark the session as in use."""
        now = render_time(self._now())
        self.update_metadata(status="active", status_reason=reason, last_accessed=now)

    def deactivate(self, reason: str = "deactivated by hand") -> None:
        """Mark the session as not in use, until its next use."""
        self.update_metadata(status="idle", status_reason=reason)

    def decay(self, *, dry_run: bool = False) -> Outcome:
        """Write the priorities as of now, and how often each memory was read, into the files."""
        from .passes.decay import decay

        return decay(self, dry_run=dry_run)

    def compact(self, *, reduction_pct: float | None = None, dry_run: bool = False) -> Outcome:
        """Make the session smaller. `bring_back` restores the evicted memories."""
        from .passes.compaction import compact

        return compact(self, reduction_pct=reduction_pct, dry_run=dry_run)

    def estimate_compaction(self) -> int:
        """Return how many bytes a compaction could free at most."""
        from .passes.compaction import compact

        return int(compact(self, reduction_pct=100, dry_run=True).counts["bytes_freed"])

    def evicted(self) -> list[Holding]:
        """Return the memories that compaction has evicted, the oldest first."""
        from .change.holdings import holdings

        with self.scope.answering("listing the evicted memories"):
            return [*holdings(self.memory, self.id, ["evicted"])]

    def bring_back(self, ids: Sequence[str] | None = None, *, dry_run: bool = False) -> Outcome:
        """Restore these memories that compaction has evicted, or all, to their places."""
        from .change.restore import bring_back

        return bring_back(self, ids, dry_run=dry_run)

    def validate(self) -> list[Complaint]:
        """Return everything that is wrong with the session's files and bundles."""
        from .passes.check import validate

        return validate(self)

    def repair(self, *, dry_run: bool = False) -> Outcome:
        """Set broken records and metadata aside, and bring back what the index or a copy knows."""
        from .passes.repair import repair

        return repair(self, dry_run=dry_run)


@front_door
class GlobalMemory(RecordFiles):
    """`global/`: read and written like a session."""

    kinds = GLOBAL_KINDS

    def _asker(self) -> Asker:
        self.memory.require()
        return self.memory._asker_of([GLOBAL])

    def record_pattern(
        self, pattern: str, *, learned_by: str | None = None, tags: Sequence[str] = (),
        timestamp: Time | None = None, **further: Any,
    ) -> Record:  # fmt: skip
        """Record a pattern that agents have learned and that holds beyond one session."""
        fields = {"learned_by": learned_by, "pattern": pattern, **further, "tags": tags}
        return self._add(PATTERN, fields, timestamp)

    def profile(self) -> dict[str, Value]:
        """Return the user's profile."""
        return load_mapping(self.scope.read(PROFILE), "user_profile", PROFILE)

    def save_profile(self, **parts: Any) -> None:
        """Replace the named parts of the user's profile and keep the others; None removes one."""
        self.memory.create()
        self._replace_parts(PROFILE, "user_profile", lambda _: parts)

    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record:
        self.memory.create()
        return super()._add(kind, fields, timestamp)


def _merge(old: Value, new: Any) -> Any:
    return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new
