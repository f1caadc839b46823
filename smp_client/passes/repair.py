"""Repairing a session: broken records and metadata go to quarantine, and what is known comes back.

Nothing is thrown away, and nothing is made up. What was lost comes from the index, from memories
that compaction has evicted, or from the history of the memory, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..change.change import Change, Request, apply
from ..change.history import earlier_versions
from ..change.holdings import holdings, ids_named
from ..disk import journal, rewrite
from ..disk.append import tail_of
from ..disk.place import STATES
from ..disk.quarantine import quarantine_bytes
from ..disk.session_files import METADATA, new_metadata, state_file
from ..disk.tree import is_left_alone
from ..index import gone
from ..index.gone import GONE, Gone
from ..model import layout
from ..model.errors import CorruptionDetected, SMPError
from ..model.layout import QUARANTINE
from ..model.outcome import Action, Outcome
from ..model.record import REVISION, TURN, Kind, state_history
from ..model.times import parse_time
from ..text.format import format_of
from ..text.mapping import load_mapping, render_mapping
from ..text.values import Value
from .check import MEND, REPAIR, sentence, validate
from .vanished import content_of

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..disk.scope import Scope
    from ..session import Session

_BROKEN = "it could not be read"
_BUSY = "somebody is writing it just now; repair it again later."


class Known(NamedTuple):
    """What the index knows of a session whose files are broken."""

    metadata: Mapping[str, Value]
    created: datetime | None  # the time of the first memory
    lost: Mapping[str, Gone]  # by id: memories that stand in no file
    states: Mapping[str, Gone]  # by file: states of agents as they were


def repair(session: Session, *, dry_run: bool = False) -> Outcome:
    """Finish changes that were cut off, set broken bytes aside, and bring back what is known.

    The problems of the outcome are left to a person.
    """
    outcome, scope = Outcome(dry_run=dry_run), session.scope
    outcome.actions += _finish_changes(scope, dry_run)
    with scope.undisturbed("repairing"):
        scope.require()  # a session that was archived meanwhile must not come back, empty
        known = _known(session)
        work = _Work(session, known, outcome)
        agents = [*filter(layout.is_file_id, session.agent_states())]
        for kind in [*session.kinds, REVISION, *map(state_history, agents)]:
            # A file that cannot be read is named below, and keeps no other from being repaired.
            with suppress(SMPError, OSError):
                outcome.actions += _quarantine_torn(scope, kind, dry_run)
        work.apart(work.mend_metadata)
        for kind in session.kinds:
            work.apart(lambda kind=kind: work.mend_records(kind))  # type: ignore[misc]
        for agent in agents:
            work.apart(lambda agent=agent: work.mend_state(agent))  # type: ignore[misc]
    cut = {action.about[0] for action in outcome.actions if action.type == "set_aside"}
    for one in validate(session):
        is_aside = one.file.startswith(f"{QUARANTINE}/")
        is_mended = one.advice in (REPAIR, MEND) or one.file in cut
        if not is_aside and not (dry_run and is_mended):
            outcome.problems.append(sentence(one))
    return outcome


def _known(session: Session) -> Known:
    """Return what the index knows; nothing if it cannot be asked."""

    def question(view: View) -> Known:
        name = session.id
        asked = "SELECT MIN(timestamp) FROM memories WHERE scope = ?"
        ((first,),) = view.index.execute(asked, (name,))
        rows = [row for row in gone.of_scopes(view.index, [name]) if row.state == GONE and row.id]
        files = [file for _, file in view.index.files(name) if file.startswith(f"{STATES}/")]
        states = {file: gone.still_known(view.index, name, file) for file in files}
        created = parse_time(first) if first else None
        last = {file: some[-1] for file, some in states.items() if some}
        metadata = gone.metadata_of(view.index, name)
        return Known(metadata, created, {row.id: row for row in rows}, last)

    return session.memory._asker_of([session.id]).ask(question)


class _Work:
    """The repair of one session. The caller holds its upkeep lock."""

    def __init__(self, session: Session, known: Known, outcome: Outcome) -> None:
        self._session = session
        self._scope = session.scope
        self._known = known
        self._outcome = outcome

    def apart(self, step: Callable[[], None]) -> None:
        """Do one step. A failure is a problem, and keeps no other step from its turn."""
        try:
            step()
        except (SMPError, OSError) as error:
            self._outcome.problems.append(f"{self._session.id}: {error}")

    def _did(self, type: str, about: str, reason: str) -> None:
        self._outcome.actions.append(Action(self._session.id, type, (about,), reason))

    def _is_left_alone(self, file: str) -> bool:
        """Return whether nobody has a file open to write it. Else name it as a problem."""
        with self._scope.tree.opened(self._scope.path(file)) as descriptor:
            if is_left_alone(descriptor):
                return True
        self._outcome.problems.append(f"{self._session.id}/{file}: {_BUSY}")
        return False

    def mend_metadata(self) -> None:
        """Make missing metadata again, and set unreadable metadata aside."""
        content = self._scope.read(METADATA)
        if content.strip():
            try:
                load_mapping(content, "session", METADATA)
                return
            except CorruptionDetected as error:
                self._did("set_aside", METADATA, f"{_BROKEN}: {error}".rstrip("."))
        known = self._known
        dry_run = self._outcome.dry_run
        self._outcome.actions += make_metadata(
            self._session, known.created, known.metadata, broken=content, dry_run=dry_run
        )

    def mend_state(self, agent: str) -> None:
        """Set the unreadable state of an agent aside, and bring the last known one back."""
        file = state_file(agent)
        content = self._scope.read(file)
        try:
            load_mapping(content, "agent_state", file)
            return
        except CorruptionDetected as error:
            if not self._is_left_alone(file):
                return
            self._did("set_aside", file, f"{_BROKEN}: {error}".rstrip("."))
        new = b""
        if row := self._known.states.get(file):
            state = content_of(self._scope, row)
            assert isinstance(state, bytes)
            new = state
            self._did("bring_back", agent, "its last state, from the index")
        elif earlier := earlier_versions(self._session.memory, self._session.id, agent):
            new = render_mapping("agent_state", earlier[-1].before)
            self._did("bring_back", agent, "an earlier state, from its history")
        if not self._outcome.dry_run:
            self._replace(file, content, new)

    def _replace(self, file: str, broken: bytes, new: bytes) -> None:
        """Put new content in the place of a broken file, which goes to quarantine."""
        with self._scope.locked([file], f"repairing {file}"):
            quarantine_bytes(self._scope, file, broken, _BROKEN)
            rewrite.rewrite(self._scope, file, lambda now: new if now == broken else now)

    def mend_records(self, kind: Kind) -> None:
        """Set the broken records of a kind aside, and bring back those that are known."""
        content = self._scope.read(kind.file)
        form = format_of(kind)
        found = form.parse(content)
        torn = form.torn(found, content)
        # A dry run has left a torn record where it is.
        bad = [one for one in found.bad if torn is None or one.start < torn]
        named: list[str] = []
        if not bad:
            if any(kind.file in action.about for action in self._outcome.actions):
                self._bring_back(kind, named)
            return
        if not self._is_left_alone(kind.file):
            return
        for one in bad:
            line = content.count(b"\n", 0, one.start) + one.line
            self._did("set_aside", kind.file, f"line {line} {_BROKEN}: {one.problem}")
            named += ids_named(kind, content[one.start : one.end])
        if not self._outcome.dry_run:
            with self._scope.locked([kind.file], f"repairing {kind.file}"):
                for one in bad:
                    raw = content[one.start : one.end]
                    quarantine_bytes(self._scope, kind.file, raw, one.problem, one.start)
                rewrite.rewrite(self._scope, kind.file, lambda now: self._without_bad(kind, now))
        self._bring_back(kind, named)

    def _without_bad(self, kind: Kind, content: bytes) -> bytes:
        """Return a file without the bytes that cannot be read."""
        form = format_of(kind)
        rest = content
        for one in reversed(form.parse(content).bad):
            rest = rest[: one.start] + rest[one.end :]
        if rest.strip():
            return rest
        return form.empty(self._session.id, self._known.created or self._session._now(), [])

    def _bring_back(self, kind: Kind, named: list[str]) -> None:
        """Bring back the memories of a kind that its file has lost."""
        lost = [row.id for row in self._known.lost.values() if row.file == kind.file]
        standing = {record.id for record in self._session.records(kind.name)}
        changes: list[Change] = []
        for memory_id in dict.fromkeys([*lost, *named]):
            if memory_id in standing:
                continue
            fields, source, behind = self._found(kind, memory_id)
            if fields is None:
                said = "nothing is known of it but the bytes in quarantine"
                self._outcome.problems.append(f"{self._session.id}: {memory_id}: {said}.")
                continue
            changes.append(Change(kind.file, memory_id, None, fields, behind))
            self._did("bring_back", memory_id, f"{memory_id}, from {source}")
        if changes and not self._outcome.dry_run:
            apply(self._scope, Request(changes, doing="repairing"))

    def _found(
        self, kind: Kind, memory_id: str
    ) -> tuple[Mapping[str, Value] | None, str, str | None]:
        """Return the last known fields of a memory, where they are from, and its predecessor."""
        if row := self._known.lost.get(memory_id):
            fields = content_of(self._scope, row)
            assert not isinstance(fields, bytes)
            return fields, "the index", row.behind
        memory = self._session.memory
        for one in holdings(memory, self._session.id, ["evicted"]):
            if one.id == memory_id and one.file == kind.file:
                return one.value, "a bundle of compaction", one.behind
        before: dict[str, Value] = {}
        for revision in earlier_versions(memory, self._session.id, memory_id):
            before |= revision.before
        if before.get(kind.text) and kind is not TURN:
            return {"id": memory_id, **before}, "its history, as it was before a change", ""
        return None, "", ""


def _finish_changes(scope: Scope, dry_run: bool) -> Iterator[Action]:
    """Name the changes that were cut off. Whoever takes the session's lock finishes them."""
    for name in journal.pending(scope):
        sort, reason = "finish_transaction", "a recorded change that was cut off before it was done"
        if not dry_run and not journal.load(scope, name):
            sort, reason = "set_aside", "a recorded change that the disk has damaged"
        yield Action(scope.name, sort, (name,), reason)


def make_metadata(
    session: Session,
    created: datetime | None = None,
    known: Mapping[str, Value] | None = None,
    *,
    broken: bytes = b"",
    dry_run: bool = False,
) -> list[Action]:
    """Make missing, empty or broken metadata again. The session is in use from now on.

    `known` are the metadata that the index has. Without them, quota, people and context are lost.
    """
    if session.scope.read(METADATA).strip() != broken.strip():
        return []
    now = session._now()
    if known:
        made = render_mapping("session", {**known, "id": session.id})
        reason = "it was missing or broken; the index had it"
    else:
        made = new_metadata(
            session.id,
            created or now,
            user=None,
            agents=[],
            quota_bytes=session.quota_bytes(),
            context={"tags": []},
            last_accessed=now,
        )
        reason = "it was missing or broken; quota, people and context are not known any more"
    if not dry_run:
        with session.scope.locked([METADATA], "making the metadata again"):
            if broken.strip():
                quarantine_bytes(session.scope, METADATA, broken, _BROKEN)
            rewrite.rewrite(
                session.scope,
                METADATA,
                lambda old: made if old.strip() == broken.strip() else old,
            )
    return [Action(session.id, "make_metadata", (METADATA,), reason)]


def _quarantine_torn(scope: Scope, kind: Kind, dry_run: bool) -> Iterator[Action]:
    """Quarantine a record that a crash has cut off at the end of its file."""
    form, path = format_of(kind), scope.path(kind.file)
    if not scope.tree.exists(path):
        return  # the next writer makes it
    content = scope.read(kind.file)
    torn = form.torn(form.parse(content), content)
    if torn is None:
        return
    with scope.tree.opened(path) as descriptor:
        if not (form.is_ours(content, torn) or is_left_alone(descriptor)):
            return  # somebody may still be writing it
    if not dry_run:
        with scope.locked([kind.file], f"repairing {kind.file}") as held:
            held[kind.file].note.pop("file", None)  # look, whatever the last writer knew
            tail_of(scope, kind, held[kind.file])
    line = content.count(b"\n", 0, torn) + 1
    reason = f"a record that was cut off while it was written, from line {line} on"
    yield Action(scope.name, "set_aside", (kind.file,), reason)
