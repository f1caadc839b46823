"""A session as one agent sees it: its context, its records, its own state.

In party mode (see party.py) all agents share conversation, decisions, findings and preferences, and
the state of an agent is its own. A workflow can narrow an agent down to its `memory_requirements`
(see requirements.py). That keeps honest agents to their task; it is no wall against a program that
opens the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ..ask.argument import listed, require_text, sayable, shown
from ..ask.engine import find, similar
from ..ask.options import Answer, QueryOptions, Wanted, type_named
from ..ask.priorities import View
from ..disk.scopes import scopes
from ..index.sql import Sql
from ..index.validity import RESOLVES, SUPERSEDES
from ..model.errors import AccessDenied, CorruptionDetected, InvalidQuery
from ..model.layout import GLOBAL, check_file_id
from ..model.record import (
    SESSION_KINDS,
    TURN,
    Record,
    check_memory_id,
    check_memory_name,
    kind_of,
    type_of,
)
from ..text.values import Value
from . import relevant
from .aggregation import record_or_merge
from .context import KINDS, Context, Request, Rights, context_of
from .requirements import TYPES, Item, Requirements, covers, understand

if TYPE_CHECKING:
    from ..session import Session

DEFAULT_TURNS = 20
PARTY_MODE = "party_mode"  # in the metadata of a session
_LIMIT = 20

Question = Callable[[View, Wanted], Answer]


class Reader:
    """A session as somebody reads it who may see all of it."""

    name: str | None = None  # the agent that reads; None for nobody in particular
    hints: tuple[str, ...] = ()  # of a workflow, for the context

    def __init__(self, session: Session) -> None:
        self.session = session

    def conversation(self, turns: int = DEFAULT_TURNS) -> list[Record]:
        """Return the last turns, oldest first."""
        self._require_read("conversation")
        return self.session.turns(last=turns)

    def relevant_decisions(
        self, topic: str | None = None, **options: Unpack[QueryOptions]
    ) -> Answer:
        """Return decisions, those that matter most first.

        Of a topic, decisions that have it as a tag stand before those that only mention it.
        """
        self._require_read("decisions")
        _check_topic(topic)
        return self.ask(lambda view, want: relevant.about(view, want, ["decision"], topic), options)

    def relevant_findings(
        self,
        topic: str | None = None,
        unresolved_only: bool = True,
        **options: Unpack[QueryOptions],
    ) -> Answer:
        """Return findings, the most severe first."""
        self._require_read("findings")
        _check_topic(topic)

        def question(view: View, want: Wanted) -> Answer:
            return relevant.findings(view, want, topic, unresolved_only=unresolved_only)

        return self.ask(question, options)

    def preferences(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Return the preferences of this session and of all that apply to its project and topic."""
        self._require_read("preferences")
        _check_topic(topic)

        def question(view: View, want: Wanted) -> Answer:
            return relevant.preferences(view, want, topic, self.project())

        return self.ask(question, options, everywhere=True)

    def learnings(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Return the learnings of this session, and the patterns that were learned in any."""
        self._require_read("learnings")
        _check_topic(topic)

        def question(view: View, want: Wanted) -> Answer:
            return relevant.about(view, want, ["learning", "pattern"], topic)

        return self.ask(question, options, everywhere=True)

    def artifact(self, artifact_id: str) -> Record:
        """Return an artifact by its id."""
        self._require_read(f"artifacts.{check_file_id('artifact', artifact_id)}")
        return self.session.artifact(artifact_id)

    def query(self, text: str = "", **options: Unpack[QueryOptions]) -> Answer:
        """Search as `session.search` does, in the memories that may be read."""
        self._require_types(options)
        require_text("What to search for", text)
        return self.ask(lambda view, want: find(view, want, text), {"limit": _LIMIT, **options})

    def similar(self, memory_id_or_text: str, **options: Unpack[QueryOptions]) -> Answer:
        """Search as `session.similar` does, in the memories that may be read."""
        self._require_types(options)
        require_text("What others are to be like", memory_id_or_text)
        called = Sql("m.id = ?", (sayable(memory_id_or_text),))

        def question(view: View, want: Wanted) -> Answer:
            found = find(view, Wanted((called, *self._visible(view))))
            # A record comes before a state or an artifact of the same name.
            named = min(
                found, key=lambda one: one.type in ("agent_state", "artifact"), default=None
            )
            return similar(view, want, named.text if named else memory_id_or_text, named)

        return self.ask(question, {"limit": _LIMIT, **options})

    def context(
        self,
        topic: str | None = None,
        max_tokens: int | None = None,
        task: str | None = None,
        *,
        project: str | None = None,
        explain: bool = False,
    ) -> Context:
        """Return the memories that this reader should know of a project, as Markdown for a prompt.

        The project is that of the session where none is named; `*` stands for all. See context.py.
        """
        project = self.project() if project is None else project
        request = Request(project, self.name, task, topic, self.session.id, max_tokens, explain)
        self.session.scope.require()
        own, memory = self.session.id, self.session.memory
        asker = memory._asker_of([own, *(scope for scope in scopes(memory) if scope != own)])
        context = context_of(asker, request, self._rights)
        self.session._looked_at()
        return context

    def project(self) -> str | None:
        """Return the name of the session's project, as its metadata have it."""
        try:
            context = self.session.metadata().get("context")
        except CorruptionDetected:  # which must not hide the memories
            return None
        name = context.get("project_name") if isinstance(context, dict) else None
        return None if name is None else str(name)

    def ask(self, question: Question, options: QueryOptions, *, everywhere: bool = False) -> Answer:
        """Ask this session, and `global/` where that is wanted, for memories that may be seen."""
        self.session.scope.require()
        asker = self.session.memory._asker_of([self.session.id, *([GLOBAL] if everywhere else [])])
        return asker.answer(
            lambda view, want: question(view, want.also(*self._visible(view))), options
        )

    def may_read(self, kind: str) -> bool:
        """Return whether any memory of the kind (`decisions`, `findings`, …) may be read."""
        return True

    def _rights(self, view: View) -> Rights:
        granted = frozenset(kind for kind in KINDS if self.may_read(kind))
        return Rights(self.hints, self._visible(view), granted)

    def _require_read(self, kind: str) -> None:
        """Raise AccessDenied where no memory of the kind may be read."""

    def _require_types(self, options: QueryOptions) -> None:
        """Raise AccessDenied where the options name a type that may not be read."""

    def _visible(self, view: View) -> tuple[Sql, ...]:
        """Return the conditions that every memory meets that is shown."""
        return ()


class AgentMemory(Reader):
    """`session.agent("veritas")`: its records have the agent as author, unless another is named."""

    name: str

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session)
        self.name = check_file_id("agent", name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session.id!r}, {self.name!r})"

    def add_turn(self, text: str, **fields: Any) -> Record:
        """Add a turn of this agent to the conversation."""
        self._require_write("conversation")
        return self.session.add_turn(**{"speaker": self.name, **fields, "text": text})

    def record_decision(self, decision: str, **fields: Any) -> Record:
        """Record a decision of this agent."""
        self._require_write("decisions")
        return self.session.record_decision(decision, **{"made_by": self.name, **fields})

    def record_finding(self, finding: str, **fields: Any) -> Record:
        """Record a finding. In party mode it is merged with one like it, see `Party`."""
        self._require_write("findings")
        fields = {"discovered_by": self.name, **fields}
        if self.in_party():
            return record_or_merge(self.session, finding, fields)
        return self.session.record_finding(finding, **fields)

    def resolve_finding(self, memory_id: str, action_taken: str, **fields: Any) -> Record:
        """Resolve a finding."""
        self._require_write("findings")
        fields = {"resolved_by": self.name, **fields, "action_taken": action_taken}
        return self.session.resolve_finding(memory_id, **fields)

    def relate(self, source: str, target: str, relationship: str, **fields: Any) -> Record:
        """Relate two memories as `session.relate` does. Whoever may record the source may do so."""
        kind = kind_of(check_memory_name(source).rpartition("/")[2], SESSION_KINDS)
        self._require_write(kind.file.partition(".")[0] if kind else "artifacts")
        if relationship == RESOLVES:
            self._require_write("findings")
        fields = {"created_by": self.name, **fields}
        return self.session.relate(source, target, relationship, **fields)

    def supersede(self, old: str, *, by: str, **fields: Any) -> Record:
        """Supersede a memory by another one, as `session.supersede` does."""
        return self.relate(by, old, SUPERSEDES, **fields)

    def record_preference(self, preference: str, **fields: Any) -> Record:
        """Record a preference that this agent has noticed."""
        self._require_write("preferences")
        return self.session.record_preference(preference, **{"created_by": self.name, **fields})

    def record_learning(self, learning: str, **fields: Any) -> Record:
        """Record a learning of this agent."""
        self._require_write("learnings")
        return self.session.record_learning(learning, **{"learned_by": self.name, **fields})

    def save_artifact(self, artifact_id: str, content: str, **fields: Any) -> None:
        """Save an artifact of this agent."""
        self._require_write("artifacts")
        self.session.save_artifact(artifact_id, content, **{"created_by": self.name, **fields})

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the named parts of the agent's own state and keep the others."""
        self._require_write(f"agent_states.{self.name}")
        self.session.save_agent_state(self.name, state)

    def state(self) -> dict[str, Value]:
        """Return the state that this agent saved last; empty where it saved none."""
        return self.state_of(self.name)

    def state_of(self, agent: str) -> dict[str, Value]:
        """Return the state that an agent saved last. In party mode that of others is private."""
        self._require_read(f"agent_states.{check_file_id('agent', agent)}")
        if agent != self.name and self.in_party():
            raise AccessDenied(
                f"{self.name} may not read the state of {agent}: in party mode it is private.",
                session_id=self.session.id,
                advice="Read its records, or ask it in the conversation.",
            )
        return self.session.agent_state(agent)

    def in_party(self) -> bool:
        """Return whether the session is in party mode; also where its metadata are unreadable."""
        try:
            return self.session.metadata().get(PARTY_MODE) is True
        except CorruptionDetected:
            return True

    def with_requirements(self, requirements: Mapping[str, Any]) -> WorkflowMemory:
        """Return this agent's memory, narrowed down to a workflow's `memory_requirements`."""
        return require(self.session, self.name, requirements)

    def _require_write(self, kind: str) -> None:
        """Raise AccessDenied where the kind may not be written."""

    def _visible(self, view: View) -> tuple[Sql, ...]:
        own = Sql("m.type <> 'agent_state' OR m.id = ?", (self.name,))
        return (own,) if self.in_party() else ()


class WorkflowMemory(AgentMemory):
    """An agent's memory that reads and writes only the kinds that were granted."""

    def __init__(self, session: Session, name: str, requirements: Requirements) -> None:
        super().__init__(session, name)
        self.requirements = requirements
        self.hints = requirements.hints

    def load(self) -> dict[str, list[Record]]:
        """Return the memories that each item of `read_access` names, by the item."""
        for item in self.requirements.reads:
            if item.kind == "agent_states":
                self.state_of(item.value)  # raises where it is private
        project = self.project()
        found: dict[str, list[Record]] = {}

        def question(view: View, want: Wanted) -> Answer:
            for item in self.requirements.reads:
                found[item.text] = list(item.resolve(view, want, project))
            # To have the conversation at hand is no sign that a turn matters.
            every = [record for records in found.values() for record in records]
            return Answer([record for record in every if record.type != TURN.type])

        self.ask(question, {}, everywhere=True)
        return found

    def conversation(self, turns: int = DEFAULT_TURNS) -> list[Record]:
        """Return the last turns, as many of them as were granted."""
        if not isinstance(turns, int):
            count = f"must be a whole number, not {shown(turns)}"
            raise InvalidQuery(f"How many of the last turns {count}.")
        granted = [item for item in self.requirements.reads if item.kind == "conversation"]
        most = max((int(item.value) if item.part else turns for item in granted), default=0)
        return super().conversation(min(turns, most))

    def record_finding(self, finding: str, **fields: Any) -> Record:
        """Record a finding. A merged one that may not be read is not shown."""
        record = super().record_finding(finding, **fields)
        if not self.in_party() or self._sees(record.id):
            return record
        own = {**fields, "id": record.id, "finding": finding}
        return Record(record.id, record.type, record.session, own, finding)

    def resolve_finding(self, memory_id: str, action_taken: str, **fields: Any) -> Record:
        """Resolve a finding. Of one that may not be read, only the resolution is returned."""
        seen = self.may_write("findings") and self._sees(
            memory_id
        )  # a resolved one may not be seen
        record = super().resolve_finding(memory_id, action_taken, **fields)
        if seen:
            return record
        said = ("status", "resolved_at", "resolved_by", "action_taken", *fields)
        resolution = {
            name: part for name, part in record.data["resolution"].items() if name in said
        }
        own = {"id": record.id, "resolution": resolution}
        return Record(record.id, record.type, record.session, own, "")

    def with_requirements(self, requirements: Mapping[str, Any]) -> WorkflowMemory:
        """Refuse: an agent cannot give itself other requirements."""
        said = f"{self.name} has its requirements already, and cannot give itself others."
        raise AccessDenied(said, session_id=self.session.id)

    def may_read(self, kind: str) -> bool:
        return covers(self.requirements.reads, kind)

    def may_write(self, kind: str) -> bool:
        """Return whether memories of the kind may be written."""
        return covers(self.requirements.writes, kind)

    def _sees(self, finding_id: str) -> bool:
        reads = [item for item in self.requirements.reads if item.kind == "findings"]
        if not reads or any(not item.part for item in reads):
            return bool(reads)
        called = Sql("m.id = ? AND m.type = 'finding'", (check_memory_id(finding_id),))
        return bool(self.ask(lambda view, want: find(view, want.also(called)), {}))

    def _require_read(self, kind: str) -> None:
        if not self.may_read(kind):
            raise self._denied("read", kind, self.requirements.reads)

    def _require_write(self, kind: str) -> None:
        if not self.may_write(kind):
            raise self._denied("write", kind, self.requirements.writes)

    def _require_types(self, options: QueryOptions) -> None:
        problems: list[str] = []
        given = listed("types", options["types"], problems) if "types" in options else []
        names = [type_named(name, problems) for name in given]
        if problems:
            raise InvalidQuery("; ".join(problems) + ".")
        reads = self.requirements.reads
        granted = {type_of(type_) for item in reads for type_ in TYPES[item.kind]}
        for name in names:
            if name not in granted:
                raise self._denied("read", f"{name}s", reads)

    def _denied(self, doing: str, kind: str, granted: tuple[Item, ...]) -> AccessDenied:
        items = ", ".join(item.text for item in granted) or "nothing"
        kind = kind.replace("turns", "conversation")
        said = f"{self.name} may not {doing} {kind}: {doing}_access grants {items}."
        return AccessDenied(said, session_id=self.session.id)

    def _visible(self, view: View) -> tuple[Sql, ...]:
        project = self.project()
        granted = [item.visible(view, project) for item in self.requirements.reads]
        bracketed = [Sql(f"({one.text})", one.parameters) for one in granted]
        either = Sql.joined(" OR ", bracketed) if granted else Sql("0")
        return (*super()._visible(view), either)


def require(session: Session, agent: str, requirements: Mapping[str, Any]) -> WorkflowMemory:
    """Return the memory of an agent, narrowed down to the requirements of a workflow."""
    return WorkflowMemory(session, agent, understand(requirements, check_file_id("agent", agent)))


def context_for(session: Session, **asked: Any) -> Context:
    """Return the context of a session for nobody in particular."""
    return Reader(session).context(**asked)


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        require_text("A topic", topic)
