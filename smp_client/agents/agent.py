"""A session as one agent sees it: what bears on its work, what it records, what it keeps for itself.

In party mode (see party.py) all agents share conversation, decisions, findings and preferences; the state of an agent is its own.
A workflow can narrow an agent down to what it says it needs (see requirements.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ..ask.engine import find, similar
from ..ask.options import Answer, QueryOptions, Wanted, require_text, sayable
from ..ask.priorities import View
from ..disk.place import Place
from ..disk.scopes import scopes
from ..index.sql import Sql
from ..index.validity import RESOLVES, SUPERSEDES
from ..model.errors import AccessDenied, CorruptionDetected
from ..model.layout import GLOBAL, check_file_id
from ..model.record import SESSION_KINDS, Record, check_memory_name, kind_of
from ..text.values import Value
from . import relevant
from .context import KINDS, Context, Request, Rights, context_of

if TYPE_CHECKING:
    from ..session import Session
    from .workflow import WorkflowMemory

DEFAULT_TURNS = 20
PARTY_MODE = "party_mode"  # in the metadata of a session
_LIMIT = 20

Question = Callable[[View, Wanted], Answer]


class Reader:
    """What is read of a session, by whoever may see all of it."""

    hints: tuple[str, ...] = ()  # what a workflow would have the agent look for

    def __init__(self, session: Session) -> None:
        self.session = session

    def conversation(self, turns: int = DEFAULT_TURNS) -> list[Record]:
        """The last turns, oldest first."""
        self._require_read("conversation")
        return self.session.turns(last=turns)

    def relevant_decisions(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Those that matter most first; of a topic those that have it as a tag before those that only mention it."""
        self._require_read("decisions")
        _check_topic(topic)
        return self.ask(lambda view, want: relevant.about(view, want, ["decision"], topic), options)

    def relevant_findings(
        self, topic: str | None = None, unresolved_only: bool = True, **options: Unpack[QueryOptions]
    ) -> Answer:
        """The most severe first."""
        self._require_read("findings")
        _check_topic(topic)
        return self.ask(lambda view, want: relevant.findings(view, want, topic, unresolved_only=unresolved_only), options)

    def preferences(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Those of this session and of every session that apply to its project, and to the topic where one is given."""
        self._require_read("preferences")
        _check_topic(topic)
        return self.ask(lambda view, want: relevant.preferences(view, want, topic, self.project()), options, everywhere=True)

    def learnings(self, topic: str | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """What was learned in this session, and the patterns that were learned in any."""
        self._require_read("learnings")
        _check_topic(topic)
        return self.ask(lambda view, want: relevant.about(view, want, ["learning", "pattern"], topic), options, everywhere=True)

    def artifact(self, artifact_id: str) -> Record:
        self._require_read(f"artifacts.{check_file_id('artifact', artifact_id)}")
        return self.session.artifact(artifact_id)

    def query(self, text: str = "", **options: Unpack[QueryOptions]) -> Answer:
        """As `session.search`, in what may be read."""
        self._require_types(options)
        require_text("What to search for", text)
        return self.ask(lambda view, want: find(view, want, text), {"limit": _LIMIT, **options})

    def similar(self, memory_id_or_text: str, **options: Unpack[QueryOptions]) -> Answer:
        """As `session.similar`, in what may be read."""
        self._require_types(options)
        require_text("What others are to be like", memory_id_or_text)

        def question(view: View, want: Wanted) -> Answer:
            itself = self._named(view, memory_id_or_text)
            return similar(view, want, itself.text if itself else memory_id_or_text, itself)

        return self.ask(question, {"limit": _LIMIT, **options})

    def context(
        self, topic: str | None = None, max_tokens: int | None = None, task: str | None = None, *,
        project: str | None = None, explain: bool = False,
    ) -> Context:  # fmt: skip
        """Return what this reader should know of the session's project, or of another one, as Markdown for a prompt.

        The project `*` stands for all. See context.py.
        """
        project = self.project() if project is None else project
        request = Request(project, self.name, task, topic, self.session.id, max_tokens, explain)
        self.session.scope.require()
        asker = self.session.memory._asker_of(_session_first(self.session))
        context = context_of(asker, request, self._rights)
        self.session._looked_at()
        return context

    def _rights(self, view: View) -> Rights:
        granted = frozenset(kind for kind in KINDS if self.may_read(kind))
        return Rights(self.hints, self._visible(view), granted)

    def project(self) -> str | None:
        """What the session's metadata call the project."""
        try:
            context = self.session.metadata().get("context")
        except CorruptionDetected:
            # A slip in the metadata must not hide the memories; only preferences that name a project are left out.
            return None
        name = context.get("project_name") if isinstance(context, dict) else None
        return None if name is None else str(name)

    def ask(self, question: Question, options: QueryOptions, *, everywhere: bool = False) -> Answer:
        """Asks the session, and what holds in every session where that is wanted too, for what may be seen of it."""
        self.session.scope.require()
        asker = self.session.memory._asker_of([self.session.id, *([GLOBAL] if everywhere else [])])
        return asker.answer(lambda view, want: question(view, want.also(*self._visible(view))), options)

    def _named(self, view: View, memory_id: str) -> Record | None:
        """The memory of this id, if it may be seen: one that may not is as one that is not there. A record before a file."""
        called = Sql("m.id = ?", (sayable(memory_id),))
        found = find(view, Wanted((called, *self._visible(view))))
        return min(found, key=lambda record: record.type in ("agent_state", "artifact"), default=None)

    @property
    def name(self) -> str | None:
        """The agent that reads; None where nobody in particular does."""
        return None

    def may_read(self, kind: str) -> bool:
        """Whether any of the kind (`decisions`, `findings`, `conversation`…) may be read."""
        return True

    def _require_read(self, kind: str) -> None:
        """Raises AccessDenied where nothing of the kind may be read."""

    def _require_types(self, options: QueryOptions) -> None:
        """Raises AccessDenied where a type is asked for that may not be read."""

    def _visible(self, view: View) -> tuple[Sql, ...]:
        """The conditions that every memory meets that is shown."""
        return ()


class AgentMemory(Reader):
    """`session.agent("veritas")`. What it records has the agent as its author, unless another is named."""

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session)
        self._name = check_file_id("agent", name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session.id!r}, {self.name!r})"

    @property
    def name(self) -> str:
        return self._name

    def add_turn(self, text: str, **fields: Any) -> Record:
        self._require_write("conversation")
        return self.session.add_turn(**{"speaker": self.name, **fields, "text": text})

    def record_decision(self, decision: str, **fields: Any) -> Record:
        self._require_write("decisions")
        return self.session.record_decision(decision, **{"made_by": self.name, **fields})

    def record_finding(self, finding: str, **fields: Any) -> Record:
        """In party mode a finding that another agent has had already is merged with it, as `Party.record_finding` says."""
        self._require_write("findings")
        fields = {"discovered_by": self.name, **fields}
        if self.in_party():
            from .party import record_or_merge

            return record_or_merge(self.session, finding, fields)
        return self.session.record_finding(finding, **fields)

    def resolve_finding(self, memory_id: str, action_taken: str, **fields: Any) -> Record:
        self._require_write("findings")
        return self.session.resolve_finding(memory_id, **{"resolved_by": self.name, **fields, "action_taken": action_taken})

    def relate(self, source: str, target: str, relationship: str, **fields: Any) -> Record:
        """As `session.relate`; who may record a memory may say how it hangs together with others."""
        kind = kind_of(check_memory_name(source).rpartition("/")[2], SESSION_KINDS)
        self._require_write(kind.file.partition(".")[0] if kind else "artifacts")
        if relationship == RESOLVES:
            self._require_write("findings")
        return self.session.relate(source, target, relationship, **{"created_by": self.name, **fields})

    def supersede(self, old: str, *, by: str, **fields: Any) -> Record:
        """As `session.supersede`."""
        return self.relate(by, old, SUPERSEDES, **fields)

    def record_preference(self, preference: str, **fields: Any) -> Record:
        self._require_write("preferences")
        return self.session.record_preference(preference, **{"created_by": self.name, **fields})

    def record_learning(self, learning: str, **fields: Any) -> Record:
        self._require_write("learnings")
        return self.session.record_learning(learning, **{"learned_by": self.name, **fields})

    def save_artifact(self, artifact_id: str, content: str, **fields: Any) -> None:
        self._require_write("artifacts")
        self.session.save_artifact(artifact_id, content, **{"created_by": self.name, **fields})

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Replaces the named parts of the agent's own state and keeps the others."""
        self._require_write(f"agent_states.{self.name}")
        self.session.save_agent_state(self.name, state)

    def state(self) -> dict[str, Value]:
        """What this agent last saved; nothing where it has not."""
        return self.state_of(self.name)

    def state_of(self, agent: str) -> dict[str, Value]:
        """What another agent last saved. In party mode that is private."""
        self._require_read(f"agent_states.{check_file_id('agent', agent)}")
        if agent != self.name and self.in_party():
            raise AccessDenied(
                f"{self.name} may not read the state of {agent}: in party mode it is private.", session_id=self.session.id,
                advice="Read what it has recorded for all, or ask it in the conversation.",
            )  # fmt: skip
        return self.session.agent_state(agent)

    def in_party(self) -> bool:
        """Whether the session is in party mode."""
        try:
            return self.session.metadata().get(PARTY_MODE) is True
        except CorruptionDetected:
            # They may say so; until they can be read, what may be private stays so.
            return True

    def with_requirements(self, requirements: Mapping[str, Any]) -> WorkflowMemory:
        """This agent's memory, narrowed down to what a workflow's `memory_requirements` grant."""
        from .workflow import require

        return require(self.session, self.name, requirements)

    def _require_write(self, kind: str) -> None:
        """Raises AccessDenied where the kind may not be written."""

    def _visible(self, view: View) -> tuple[Sql, ...]:
        return (Sql("m.type <> 'agent_state' OR m.id = ?", (self.name,)),) if self.in_party() else ()


def context_for(session: Session, **asked: Any) -> Context:
    """Return the context of a session for nobody in particular."""
    return Reader(session).context(**asked)


def _session_first(session: Session) -> list[str]:
    """Return every scope of the tree, the session's own first."""
    place = Place(session.scope.tree.root)
    return [session.id, *(scope for scope in scopes(place) if scope != session.id)]


def _check_topic(topic: str | None) -> None:
    if topic is not None:
        require_text("A topic", topic)
