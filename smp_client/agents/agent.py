"""A session as one agent sees it: its context, its records, its own state.

Party mode (party.py) makes the state of an agent its own. A workflow can narrow an agent down to
its `memory_requirements` (relevant.py). That keeps honest agents to their task; it is no wall
against a program that opens the files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ..ask.argument import require_text, sayable
from ..ask.engine import find, similar
from ..ask.options import Answer, QueryOptions, Wanted
from ..ask.priorities import View
from ..disk.place import scopes
from ..index.sql import Sql
from ..index.validity import holds
from ..model.door import front_door
from ..model.errors import AccessDenied, CorruptionDetected, InvalidQuery, MemoryNotFound
from ..model.layout import GLOBAL, check_file_id
from ..model.nearest import did_you_mean
from ..model.quotation import shown
from ..model.record import Record, check_memory_id, is_like_an_id
from ..text.values import Value
from .context import Context, Request, Rights, context_of
from .party import PARTY_MODE, record_or_merge
from .relevant import Requirements, Usage, bearing, covers, relevant, understand

if TYPE_CHECKING:
    from ..session import Session

_TURNS, _LIMIT = 20, 20

Question = Callable[[View, Wanted], Answer]


@front_door
class AgentMemory:
    """`session.agent("veritas")`: its records have the agent as author, unless another is named.

    Without a name it reads for nobody in particular. With requirements it reads and writes only the
    kinds that were granted.
    """

    def __init__(
        self, session: Session, name: str | None = None, requirements: Requirements | None = None
    ) -> None:
        self.session = session
        self.name = "" if name is None else check_file_id("agent", name)
        self.requirements = requirements

    # Reading.

    def conversation(self, turns: int = _TURNS) -> list[Record]:
        """Return the last turns, oldest first; at most as many as were granted."""
        self._require("read", "conversation")
        return self._ask(find, {"types": ["turn"], "sort": "newest", "limit": turns})[::-1]

    def relevant_decisions(
        self, topic: str | None = None, **options: Unpack[QueryOptions]
    ) -> Answer:
        """Return decisions, those that matter most first."""
        return self._about("decisions", topic, options)

    def relevant_findings(
        self, topic: str | None = None, unresolved_only: bool = True,
        **options: Unpack[QueryOptions],
    ) -> Answer:  # fmt: skip
        """Return findings, the most severe first."""
        return self._about("findings", topic, options, *([holds()] if unresolved_only else []))

    def preferences(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Return the preferences of this session and of all that apply to its project and topic."""
        return self._about("preferences", topic, options)

    def learnings(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Return the learnings of this session, and the patterns that were learned in any."""
        return self._about("learnings", topic, options)

    def artifact(self, artifact_id: str) -> Record:
        """Return an artifact by its id."""
        self._require("read", f"artifacts.{check_file_id('artifact', artifact_id)}")
        return self.session.artifact(artifact_id)

    def query(self, text: str = "", **options: Unpack[QueryOptions]) -> Answer:
        """Search as `session.search` does, in the memories that may be read."""
        require_text("What to search for", text)
        limited: QueryOptions = {"limit": _LIMIT, **options}
        return self._ask(lambda view, want: find(view, want, text), limited)

    def similar(self, memory_id_or_text: str, **options: Unpack[QueryOptions]) -> Answer:
        """Search as `session.similar` does, in the memories that may be read."""
        require_text("What others are to be like", memory_id_or_text)
        called = Sql("m.id = ?", (sayable(memory_id_or_text),))

        def question(view: View, want: Wanted) -> Answer:
            found = find(view, Wanted((called, *self._visible(view))))
            named = found[0] if found else None
            if named is None and is_like_an_id(memory_id_or_text):
                said = f"There is no memory {shown(memory_id_or_text)} that {self.name} may read."
                raise MemoryNotFound(said, session_id=self.session.id)
            return similar(view, want, named.text if named else memory_id_or_text, named)

        return self._ask(question, {"limit": _LIMIT, **options})

    def context(
        self, topic: str | None = None, max_tokens: int | None = None, task: str | None = None, *,
        project: str | None = None,
    ) -> Context:  # fmt: skip
        """Return the memories that this reader should know of a project, as Markdown for a prompt.

        The project is that of the session where none is named; `*` stands for all. See context.py.
        """
        project = self.project() if project is None else project
        own, memory, name = self.session.id, self.session.memory, self.name or None
        request = Request(project, name, task, topic, own, max_tokens)
        self.session.scope.require()
        asker = memory._asker_of([own, *(scope for scope in scopes(memory) if scope != own)])
        hints = self.requirements.hints if self.requirements else ()
        return context_of(asker, request, Rights(hints, self._visible, self.may_read))

    def project(self) -> str | None:
        """Return the name of the session's project, as its metadata have it."""
        try:
            context = self.session.metadata().get("context")
        except CorruptionDetected:  # which must not hide the memories
            return None
        name = context.get("project_name") if isinstance(context, dict) else None
        return None if name is None else str(name)

    # Writing.

    def add_turn(self, text: str, **fields: Any) -> Record:
        """Add a turn of this agent to the conversation."""
        self._require("write", "conversation")
        return self.session.add_turn(**{"speaker": self.name, **fields, "text": text})

    def record_decision(self, decision: str, **fields: Any) -> Record:
        """Record a decision of this agent."""
        self._require("write", "decisions")
        return self.session.record_decision(decision, **{"made_by": self.name, **fields})

    def record_finding(self, finding: str, **fields: Any) -> Record:
        """Record a finding. In party mode it is merged with one like it, see `Party`.

        An agent that may not read all findings gets one of its own.
        """
        self._require("write", "findings")
        fields = {"discovered_by": self.name, **fields}
        reads = self.requirements.reads if self.requirements else None
        sees_all = reads is None or any(one.kind == "findings" and not one.part for one in reads)
        if sees_all and self.in_party():
            return record_or_merge(self.session, finding, fields)
        return self.session.record_finding(finding, **fields)

    def resolve_finding(self, memory_id: str, action_taken: str, **fields: Any) -> Record:
        """Resolve a finding that this agent may read."""
        self._require("write", "findings")
        if self.requirements:
            called = Sql("m.id = ? AND m.type = 'finding'", (check_memory_id(memory_id),))
            if not self._ask(lambda view, want: find(view, want.also(called)), {}):
                said = f"There is no finding {shown(memory_id)} that {self.name} may read."
                raise MemoryNotFound(said, session_id=self.session.id)
        fields = {"resolved_by": self.name, **fields, "action_taken": action_taken}
        return self.session.resolve_finding(memory_id, **fields)

    def record_preference(self, preference: str, **fields: Any) -> Record:
        """Record a preference that this agent has noticed."""
        self._require("write", "preferences")
        return self.session.record_preference(preference, **{"created_by": self.name, **fields})

    def record_learning(self, learning: str, **fields: Any) -> Record:
        """Record a learning of this agent."""
        self._require("write", "learnings")
        return self.session.record_learning(learning, **{"learned_by": self.name, **fields})

    def save_artifact(self, artifact_id: str, content: str, **fields: Any) -> None:
        """Save an artifact of this agent."""
        self._require("write", "artifacts")
        self.session.save_artifact(artifact_id, content, **{"created_by": self.name, **fields})

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replace the named parts of the agent's own state and keep the others."""
        self._require("write", f"agent_states.{self.name}")
        self.session.save_agent_state(self.name, state)

    # The agent's own state, and its rights.

    def state(self) -> dict[str, Value]:
        """Return the state that this agent saved last; empty where it saved none."""
        return self.state_of(self.name)

    def state_of(self, agent: str) -> dict[str, Value]:
        """Return the state that an agent saved last. In party mode that of others is private."""
        self._require("read", f"agent_states.{check_file_id('agent', agent)}")
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

    def with_requirements(self, requirements: Mapping[str, object]) -> AgentMemory:
        """Return this agent's memory, narrowed down to a workflow's `memory_requirements`.

        A whole definition of a workflow is understood: `{"workflow": {…}}`.
        """
        if self.requirements:
            said = f"{self.name} has its requirements already, and cannot give itself others."
            raise AccessDenied(said, session_id=self.session.id)
        return AgentMemory(self.session, self.name, understand(requirements, self.name))

    def memory_usage(self, phase: str) -> list[tuple[Usage, Answer]]:
        """Return the uses that the workflow names for a phase, each with the memories it asks for.

        A use that writes, or that has no query, asks for none.
        """
        phases = self.requirements.phases if self.requirements else {}
        if phase not in phases:
            known = ", ".join(phases) or "none"
            meant = did_you_mean(phase, phases)
            raise InvalidQuery(
                f"There is no phase {shown(phase)}{meant}; the workflow has {known}."
            )
        uses: list[tuple[Usage, Answer]] = []
        for use in phases[phase]:
            is_asking = use.type == "read" and use.query
            uses.append((use, self.query(use.query) if is_asking else Answer()))
        return uses

    def may_read(self, kind: str) -> bool:
        """Return whether any memory of the kind (`decisions`, `findings`, …) may be read."""
        return self.requirements is None or covers(self.requirements.reads, kind)

    def may_write(self, kind: str) -> bool:
        """Return whether memories of the kind may be written."""
        return self.requirements is None or covers(self.requirements.writes, kind)

    def _require(self, doing: str, kind: str) -> None:
        if (self.may_read if doing == "read" else self.may_write)(kind) or not self.requirements:
            return
        granted = self.requirements.reads if doing == "read" else self.requirements.writes
        items = ", ".join(item.text for item in granted) or "nothing"
        said = f"{self.name} may not {doing} {kind}: {doing}_access grants {items}."
        raise AccessDenied(said, session_id=self.session.id)

    def _about(
        self, kind: str, topic: str | None, options: QueryOptions, *conditions: Sql
    ) -> Answer:
        self._require("read", kind)
        if topic is not None:
            require_text("A topic", topic)

        def question(view: View, want: Wanted) -> Answer:
            about = None if topic is None else bearing(view, topic)
            project = self.project() if kind == "preferences" else None
            return relevant(view, want.also(*conditions), kind, about, project)

        return self._ask(question, options, everywhere=kind in ("preferences", "learnings"))

    def _ask(
        self, question: Question, options: QueryOptions, *, everywhere: bool = False
    ) -> Answer:
        """Ask this session, and `global/` where that is wanted, for memories that may be seen."""
        self.session.scope.require()
        asker = self.session.memory._asker_of([self.session.id, *([GLOBAL] if everywhere else [])])
        return asker.answer(
            lambda view, want: question(view, want.also(*self._visible(view))), options
        )

    def _visible(self, view: View) -> tuple[Sql, ...]:
        """Return the conditions that every memory meets that is shown."""
        conditions: list[Sql] = []
        if self.name and self.in_party():
            conditions.append(Sql("m.type <> 'agent_state' OR m.id = ?", (self.name,)))
        if self.requirements:
            granted = [item.visible(view, self.session.id) for item in self.requirements.reads]
            either = Sql.joined(" OR ", [Sql(f"({one.text})", one.parameters) for one in granted])
            conditions.append(either if granted else Sql("0"))
        return tuple(conditions)
