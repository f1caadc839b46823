"""A session: what is written into it, and what is read back straight from its files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .ask.asking import Asking
from .ask.fields import shown
from .change.whereabouts import missing
from .deletion import Deletion
from .disk import journal
from .disk.append import append, with_id
from .disk.locks import brief_lock, holder
from .disk.rewrite import rewrite
from .disk.scope import Options, Scope
from .disk.scopes import ARCHIVE, archived_scope, has_evicted
from .disk.session_files import (
    METADATA,
    RESTING,
    artifact_file,
    parse_artifact,
    render_artifact,
    state_after,
    state_file,
    state_history_entry,
)  # fmt: skip
from .disk.tree import READ_CAP_BYTES, sync
from .disk.usage import Size
from .model.errors import (
    Conflict,
    CorruptionDetected,
    Invalid,
    InvalidQuery,
    MemoryNotFound,
    NewerFormat,
    SessionPutAway,
    UnsafePath,
)
from .model.layout import FORMAT_VERSION, check_file_id
from .model.record import (
    RELATIONSHIP,
    SESSION_KINDS,
    TURN,
    Kind,
    Neighbours,
    Record,
    as_record,
    check_memory_id,
    is_deleted,
    kind_of,
    split_name,
    state_history,
)
from .model.times import parse_time, render_time
from .redaction.redact import FIELD, with_counts
from .text.contents import changed_fields, new_fields, plain_parts
from .text.document import INDENT, Lines
from .text.fingerprint import hash_of
from .text.format import format_of
from .text.mapping import load_mapping, replace_parts
from .text.markdown import last_turns
from .text.values import Value
from .text.version import HEAD_BYTES, version_in
from .transaction import Transaction
from .upkeep import SessionUpkeep
from .writing import Time, Writing

if TYPE_CHECKING:
    from .agents.agent import AgentMemory
    from .agents.context import Context
    from .agents.party import Party
    from .ask.asker import Asker
    from .ask.options import Answer, Wanted
    from .ask.priorities import View
    from .memory import Memory

_TURN_PIECE_BYTES = 64 * 1024
_ATTEMPTS = 50  # at a change that others cross


@dataclass(frozen=True)
class Problem:
    """Bytes in a record file that cannot be read as a record; they stay where they are."""

    file: str
    line: int
    problem: str


class RecordFiles(Writing, Asking, Deletion):
    """The record files of one scope: adding, changing, finding. A session and `global/` are both one."""

    kinds: tuple[Kind, ...] = ()

    def __init__(self, memory: Memory, scope: Scope) -> None:
        self.memory = memory
        self.scope = scope

    def _asker(self) -> Asker:
        """Who answers questions to this session, also about memories that compaction has evicted."""
        self.scope.require()
        evicted = has_evicted(self.scope.tree, self.scope.name)
        return self.memory._asker_of([self.scope.name, *([archived_scope(self.scope.name)] if evicted else [])])

    def _own_asker(self) -> Asker:
        """Who answers about the files of this session alone."""
        self.scope.require()
        return self.memory._asker_of([self.scope.name])

    def quota_bytes(self) -> int | None:
        """How large the scope may become; None for no limit."""
        return None

    def get(self, memory_id: str, *, count_access: bool = True) -> Record:
        """One memory; raises MemoryNotFound where there is none of this id."""
        from .ask.engine import of_id
        from .ask.options import Answer as Found

        kind = kind_of(check_memory_id(memory_id), self.kinds)

        def question(view: View, _: Wanted) -> Answer:
            # What the index knows of a file that cannot be read now is old; the file itself says what is wrong.
            return Found() if kind and view.index.has_problem(self.scope.name, kind.file) else of_id(view, memory_id)

        # An id can stand in another file than its form says, so only where it is not in that one are all looked at.
        for files in ([kind.file], None) if kind else (None,):
            if found := self._asker().answer(question, {"count_access": count_access}, files):
                return found[0]
        return self._find(memory_id)

    def records(self, type: str) -> list[Record]:
        """All memories of one type that can be read, in the order of the file."""
        kind = self._kind_named(type)
        found = format_of(kind).parse(self.scope.read(kind.file))
        return [as_record(kind, self.scope.name, record.value) for record in found.records
                if record.has_id and not is_deleted(kind, record.value)]  # fmt: skip

    def problems(self) -> list[Problem]:
        """What stands in the record files and cannot be read."""
        problems: list[Problem] = []
        for kind in self.kinds:
            content = self.scope.read(kind.file)
            found = format_of(kind).parse(content)
            problems += [Problem(kind.file, bad.line, bad.problem) for bad in found.bad]
            lines = Lines(content, b"\n")
            problems += [Problem(kind.file, lines.at(record.start), "the record has no id, or one that is no text")
                         for record in found.records if not record.has_id]  # fmt: skip
        return problems

    def transaction(self, numbers: int = 1) -> Transaction:
        """Several writes, all or nothing: `with session.transaction() as tx: …`"""
        return Transaction(self, numbers)

    def lock_holder(self, file: str) -> str | None:
        """Who is writing the file now, since when and for what; None when nobody is."""
        with self.scope.answering(f"looking for who holds {file!r}"):
            return holder(self.scope.tree, self.scope.name, file)

    def kind_of_record(self, memory_id: str) -> Kind:
        """The kind of a memory; one with an id from elsewhere is looked for in all files."""
        kind = kind_of(memory_id, self.kinds)
        if kind is not None:
            return kind
        for kind in self.kinds:
            if format_of(kind).find(self.scope.read(kind.file), memory_id):
                return kind
        raise self._missing(memory_id)

    def _missing(self, memory_id: str) -> MemoryNotFound:
        return missing(self.scope, memory_id)

    def _kind_named(self, name: str) -> Kind:
        names = {kind.name: kind for kind in self.kinds} | {kind.prefix.lower(): kind for kind in self.kinds}
        if not isinstance(name, str) or name not in names:
            raise Invalid([f"type {shown(name)} must be one of {', '.join(kind.type for kind in self.kinds)}"])
        return names[name]

    def _now(self) -> datetime:
        return self.scope.options.clock()

    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record:
        body = new_fields(kind, fields, timestamp if timestamp is not None else self._now(), self.scope.redaction)
        value = append(self.scope, kind, body, self.quota_bytes)
        self._written()
        return self._looking(as_record(kind, self.scope.name, value))

    def _looking(self, record: Record) -> Record:
        """The record, able to say what stands beside it."""
        if record.type in (TURN.name, RELATIONSHIP.name):
            return record
        return replace(record, look=functools.partial(_look, self.scope.tree.root, self.scope.options))

    def _written(self) -> None:
        """Somebody has written here, and has let go of the files' locks."""

    def _find(self, memory_id: str) -> Record:
        kind = self.kind_of_record(memory_id)
        located = format_of(kind).find(self.scope.read(kind.file), memory_id)
        if located is None or is_deleted(kind, located.value):
            raise self._missing(memory_id)
        return as_record(kind, self.scope.name, located.value)

    def _memory_named(self, name: str) -> Record:
        """The memory of an id here, or of `SESSION/ID` anywhere."""
        session, memory_id = split_name(name, self.scope.name)
        if session != self.scope.name:
            return self.memory.get(name, count_access=False)
        try:
            return self._find(memory_id)
        except MemoryNotFound:
            return self.get(memory_id, count_access=False)  # which may be an artifact or a state

    def _session_id(self) -> str:
        return self.scope.name

    def _change(self, memory_id: str, changes: Mapping[str, Any]) -> Record:
        from .change.change import Change, Request, apply

        kind = self.kind_of_record(memory_id)
        for attempt in range(_ATTEMPTS):
            old = self._find(memory_id)
            new = changed_fields(kind, old.data, changes, self._now(), self.scope.redaction)
            change = Change(kind.file, memory_id, hash_of(old.data), new)
            try:
                request = Request([change], quota_bytes=self.quota_bytes(), doing=f"changing {memory_id}")
                if not apply(self.scope, request).kept:
                    break
                self._find(memory_id)  # raises where an editor has removed it just now
            except Conflict:
                # Somebody else changed it just now: this change goes on top of theirs.
                if attempt == _ATTEMPTS - 1:
                    raise
        self._written()
        return as_record(kind, self.scope.name, new)

    def _replace(self, file: str, transform: Callable[[bytes], bytes], doing: str) -> None:
        """Replaces a file that is not a list of records, within the quota."""
        with self.scope.locked([file], doing):
            before = self.scope.read(file)
            quota = self.quota_bytes()
            if quota is None:
                rewrite(self.scope, file, transform)
                return
            with brief_lock(self.scope.tree, self.scope.name, "usage", self.scope.options.patience):
                self.scope.usage.require(self.scope.name, len(transform(before)) - len(before), quota)
                rewrite(self.scope, file, transform)


class Session(RecordFiles, SessionUpkeep):
    kinds = SESSION_KINDS

    def __init__(self, memory: Memory, scope: Scope) -> None:
        super().__init__(memory, scope)
        self._known: tuple[tuple[int, int, int], int, str] | None = None  # which metadata, and what they say of quota and status

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    @property
    def id(self) -> str:
        return self.scope.name

    def get(self, memory_id: str, *, count_access: bool = True) -> Record:
        """One memory, also where the session was archived meanwhile; reading in the archive counts nothing."""
        try:
            return super().get(memory_id, count_access=count_access)
        except SessionPutAway:
            archive = f"{archived_scope(self.id)}/{ARCHIVE}"
            if not self.scope.tree.exists(archive):
                raise
            return self._get_archived(memory_id, archive)

    def _get_archived(self, memory_id: str, archive: str) -> Record:
        from .ask.engine import of_id
        from .disk.bundle import read

        asker = self.memory._asker_of([archived_scope(self.id)])
        if found := asker.answer(lambda view, _: of_id(view, memory_id), {}):
            return found[0]
        read(self.scope.tree, archive)  # raises where it is damaged, so that not all of it is known
        raise self._missing(memory_id)

    def with_options(self, **options: Any) -> Session:
        """Return this session with other options. Its answers keep the clock of the memory."""
        scope = self.scope
        return Session(self.memory, Scope(scope.tree, self.id, scope.directory, replace(scope.options, **options)))

    @property
    def state(self) -> str:
        """Where the session is in its life, as its metadata say; `unreadable` where they cannot be read."""
        try:
            return str(self.metadata().get("status", "active"))
        except (CorruptionDetected, NewerFormat):
            return "unreadable"

    def metadata(self) -> dict[str, Value]:
        """What `metadata.yaml` holds below `session`; nothing for a directory that was dropped in without one."""
        return load_mapping(self.scope.read(METADATA), "session", METADATA)

    def update_metadata(self, **changes: Any) -> None:
        """Replaces parts of the metadata (`context`, `storage`, `status`…); mappings are merged one level deep."""
        plain_parts(changes, self.scope.redaction)
        self.change_metadata(lambda _: changes)

    def change_metadata(self, changes_of: Callable[[dict[str, Value]], Mapping[str, Any]]) -> None:
        """The same for whoever has to know what they say at that moment."""

        def changed(content: bytes) -> bytes:
            old = load_mapping(content, "session", METADATA)
            parts, kinds = plain_parts(changes_of(old), self.scope.redaction)
            if "status" in parts:  # the reason of the one before does not hold for it
                parts = {"status_since": render_time(self._now()), "status_reason": None, **parts}
            merged = {name: _merge(old.get(name), value) for name, value in parts.items()}
            merged = with_counts(merged, old.get(FIELD), kinds) if kinds else merged
            return replace_parts(content, "session", merged, METADATA)

        self._replace(METADATA, changed, "updating the metadata")

    def turns(self, last: int | None = None) -> list[Record]:
        """The conversation, or its last turns; reads only as much of the file as holds them."""
        if last is None:
            return self.records("turn")
        if not isinstance(last, int):
            raise InvalidQuery(f"How many of the last turns must be a whole number, not {shown(last)}.")
        with self.scope.answering("reading the last turns"):
            # Those that were deleted are not among them, so a few more may be needed.
            wanted = last
            while True:
                found = self._last_turns(wanted)
                turns = [located for located in found if not is_deleted(TURN, located.value)]
                if len(turns) >= last or len(found) < wanted:
                    return [as_record(TURN, self.id, located.value) for located in turns[-last:]] if last > 0 else []
                wanted *= 2

    def _last_turns(self, count: int) -> list[Any]:
        content = b""
        size = _TURN_PIECE_BYTES
        self.scope.read(METADATA)  # finishes what a crash left behind
        try:
            with self.scope.tree.opened(self.scope.path(TURN.file)) as descriptor:
                end = os.fstat(descriptor).st_size
                if end > READ_CAP_BYTES:
                    raise UnsafePath(f"A conversation of {end:,} bytes is larger than anything SMP writes.")
                is_present = version_in(TURN.file, os.pread(descriptor, HEAD_BYTES, 0)) == FORMAT_VERSION
                size = size if is_present else end  # what another version says is for who reads the whole
                while True:
                    content = os.pread(descriptor, min(size, end), max(end - size, 0))
                    found = last_turns(content, count) if is_present else []
                    if found or size >= end:
                        break
                    size *= 4
        except FileNotFoundError:
            return []
        return found or format_of(TURN).parse(content).records[-count:] if count > 0 else []

    def agent_state(self, agent: str) -> dict[str, Value]:
        """What an agent last saved; nothing where it has not."""
        file = state_file(_agent(agent))
        return load_mapping(self.scope.read(file), "agent_state", file)

    def agent_states(self) -> list[str]:
        return self._names("agent-states", ".yaml")

    def agent_state_history(self, agent: str) -> list[dict[str, Value]]:
        """The earlier states, oldest first."""
        kind = state_history(_agent(agent))
        current = {name: value for name, value in self.agent_state(agent).items() if name != "decay"}
        states = [record.value.get("state") for record in format_of(kind).parse(self.scope.read(kind.file)).records]
        # A save that was cut off has filed a state that is still the current one.
        return [state for state in states if isinstance(state, dict) and state != current]

    def artifact(self, artifact_id: str) -> Record:
        file = artifact_file(check_file_id("artifact", artifact_id))
        content = self.scope.read(file)
        if not content and (not self.scope.tree.exists(self.scope.path(file)) or file in journal.going(self.scope)):
            raise MemoryNotFound(f"There is no artifact {artifact_id!r} in {self.id}.", session_id=self.id)
        fields, text = parse_artifact(content)
        return Record(artifact_id, "artifact", self.id, {**fields, "id": artifact_id, "content": text}, text)

    def artifacts(self) -> list[str]:
        return self._names("artifacts", ".md")

    def _names(self, directory: str, suffix: str) -> list[str]:
        with self.scope.answering(f"listing {directory}"):
            self.scope.finish_transactions()
            names = self.scope.tree.sizes(self.scope.path(directory))
            going = journal.going(self.scope)
        return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix) and f"{directory}/{name}" not in going)

    def agent(self, name: str) -> AgentMemory:
        """The session as an agent sees it: what bears on its work, what it records, its own state."""
        from .agents.agent import AgentMemory

        return AgentMemory(self, name)

    def party(self) -> Party:
        """Begins party mode, in which agents share what they find and decide, and keep their states to themselves."""
        from .agents.party import Party

        return Party(self)

    def context(self, topic: str | None = None, max_tokens: int | None = None, task: str | None = None, **how: Any) -> Context:
        """Return what matters for this session's project, as Markdown for a prompt; `how` is as for `AgentMemory.context`."""
        from .agents.agent import Reader

        return Reader(self).context(topic, max_tokens, task, **how)

    def size(self) -> Size:
        """How full the session is, of what, and how long it will last at its present growth."""
        self.scope.require()
        try:
            since = parse_time(str(self.metadata().get("created_at")))
        except (ValueError, CorruptionDetected):
            since = None
        with self.scope.answering("measuring the session"):
            return self.scope.usage.measure(self.quota_bytes(), since, self._now())

    def sync(self) -> None:
        """Makes durable what was written with `fsync="batch"`."""
        with self.scope.answering("making everything durable"):
            for kind in self.kinds:
                if self.scope.tree.exists(self.scope.path(kind.file)):
                    with self.scope.tree.opened(self.scope.path(kind.file)) as descriptor:
                        sync(descriptor)

    def quota_bytes(self) -> int:
        """The session's own limit where its metadata give one, else the client's."""
        try:
            status = self.scope.tree.stat(self.scope.path(METADATA))
        except FileNotFoundError:
            return self.scope.options.quota_bytes
        identity = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known is None or self._known[0] != identity:
            try:
                metadata = self.metadata()
            except CorruptionDetected:
                # A slip in the metadata must not stop the writes into the other files.
                metadata = {}
            storage = metadata.get("storage")
            quota = storage.get("quota_bytes") if isinstance(storage, dict) else None
            allowed = quota if isinstance(quota, int) and quota > 0 else self.scope.options.quota_bytes
            self._known = (identity, allowed, str(metadata.get("status")))
        return self._known[1]

    def _written(self) -> None:
        """A session that was resting is active again. What is known of it is from just now: every write asks for the quota."""
        self._wake("written to")

    def _looked_at(self) -> None:
        """The same for one that somebody was told about, in a way that counts as a reading of no memory in it."""
        if self.scope.options.count_access:
            self.quota_bytes()  # looks at the metadata
            self._wake("read")

    def _wake(self, reason: str) -> None:
        if self._known and self._known[2] in RESTING and not self.scope.in_upkeep:
            from .passes.lifecycle import wake

            wake(self.scope, reason)

    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None:
        at = self._now()
        redaction = self.scope.redaction
        redaction.require_clean_name("an agent", agent)  # before a lock has the name
        before = self.scope.read(state_file(agent))
        entry = state_history_entry(before, agent, at, redaction)
        state_now = functools.partial(state_after, session_id=self.id, agent=agent, changes=state, at=at, redaction=redaction)
        if entry is not None:
            self._require_room(*entry, len(state_now(before)) - len(before))
            # The old state is filed before it is replaced: a crash in between costs a double, not a state.
            append(self.scope, *entry, self.quota_bytes)
        self._replace(state_file(agent), state_now, f"saving {agent}'s state")
        self._written()

    def _require_room(self, kind: Kind, fields: Mapping[str, Value], further_bytes: int) -> None:
        """Refuses a record, and what will be written after it, before either is there."""
        form = format_of(kind)
        head = 0 if self.scope.read(kind.file) else len(form.empty(self.id, self._now(), []))
        record = len(form.render(with_id(kind, 1, fields), INDENT))
        self.scope.usage.require(self.id, head + record + further_bytes, self.quota_bytes())

    def _save_artifact(self, artifact_id: str, content: str, fields: Mapping[str, Any]) -> None:
        rendered = render_artifact(artifact_id, content, fields, self._now(), self.scope.redaction)
        self._replace(artifact_file(artifact_id), lambda _: rendered, f"saving {artifact_id}")
        self._written()


def _look(root: Path, options: Options, record: Record) -> Neighbours:
    """Return what stands in the tree beside a memory now. Counts as no access."""
    from .ask.neighbours import neighbours
    from .memory import Memory

    memory = Memory(root)
    memory.options = options
    try:
        return memory._asker().ask(lambda view: neighbours(view, record))
    finally:
        memory.close()


def _agent(agent: str) -> str:
    return check_file_id("agent", agent)


def _merge(old: Value, new: Value) -> Value:
    return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new

