"""What a workflow says it needs of a session's memory (`memory_requirements`), read, resolved and enforced.

    read_access:  conversation  conversation.last_N_turns
                  decisions  decisions.by_topic:X    learnings  learnings.by_topic:X
                  findings  findings.unresolved  findings.by_severity:X  findings.by_topic:X
                  preferences  preferences.X  preferences.by_topic:X
                  agent_states.NAME  agent_states.{self}    artifacts  artifacts.NAME
    write_access: conversation  decisions  findings  preferences  learnings  artifacts  agent_states.NAME  agent_states.{self}
    memory_hints: sentences; they stand in the context

What is not granted is refused: a kind that no item names raises AccessDenied, and of a kind that is granted in part only that part
is shown. It keeps honest agents to their task; it is no wall against a program that opens the files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..ask.engine import find
from ..ask.fields import shown
from ..ask.options import Answer, QueryOptions, Wanted, listed, one_of, type_named
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds
from ..model.errors import AccessDenied, InvalidQuery
from ..model.layout import check_file_id, is_file_id
from ..model.record import TURN, Record, check_memory_id, type_of
from ..model.severity import IN_WORDS, WORDS, same
from . import relevant
from .agent import DEFAULT_TURNS, AgentMemory

if TYPE_CHECKING:
    from ..session import Session

_TYPES = {  # of the memories that a kind names
    "conversation": (TURN.name,), "decisions": ("decision",), "findings": ("finding",), "preferences": ("preference",),
    "learnings": ("learning", "pattern"), "agent_states": ("agent_state",), "artifacts": ("artifact",),
}  # fmt: skip
READS = (
    "conversation", "conversation.last_N_turns", "decisions", "decisions.by_topic:X", "findings", "findings.unresolved",
    "findings.by_severity:X", "findings.by_topic:X", "preferences", "preferences.X", "preferences.by_topic:X", "learnings",
    "learnings.by_topic:X", "agent_states.NAME", "agent_states.{self}", "artifacts", "artifacts.NAME",
)  # fmt: skip
WRITES = (
    "conversation", "decisions", "findings", "preferences", "learnings", "artifacts", "agent_states.NAME", "agent_states.{self}",
)  # fmt: skip
_PARTS = ("read_access", "write_access", "memory_hints")
_LAST_TURNS = re.compile(r"last_([1-9]\d{0,5})_turns?")
_SELF = "{self}"
_BY_TOPIC, _BY_SEVERITY = "by_topic:", "by_severity:"


@dataclass(frozen=True)
class Item:
    """One thing that may be read or written."""

    text: str  # as the workflow has it
    kind: str
    part: str = ""  # all of the kind, or: turns, topic, severity, unresolved, name
    value: str = ""

    def resolve(self, view: View, want: Wanted, project: str | None) -> Answer:
        """The memories that it names."""
        topic = self.value if self.part == "topic" else None
        if self.kind == "preferences":
            return relevant.preferences(view, want, topic, project, general=False)
        want = want.also(*self._conditions(view))
        if self.kind == "findings":
            return relevant.findings(view, want, topic, unresolved_only=False)
        if self.kind == "conversation":
            return find(view, replace(want, order="m.start"))
        return relevant.about(view, want, _TYPES[self.kind], topic)

    def visible(self, view: View, project: str | None) -> Sql:
        """The condition that its memories meet."""
        conditions = self._conditions(view)
        if self.part == "topic":
            names = [f"{record.session}/{record.id}" for record in self.resolve(view, Wanted(), project)]
            conditions.append(relevant.named(names))
        return Sql.joined(" AND ", [Sql(f"({one.text})", one.parameters) for one in conditions])

    def _conditions(self, view: View) -> list[Sql]:
        """All but what it says of topics, which takes a question of its own."""
        conditions = [one_of("m.type", _TYPES[self.kind])]
        if self.part == "turns":
            last = "m.key IN (SELECT t.key FROM memories t WHERE t.scope = ? AND t.type = ? ORDER BY t.start DESC LIMIT ?)"
            conditions.append(Sql(last, (view.scopes[0], TURN.name, int(self.value))))
        elif self.part == "severity":
            conditions.append(one_of("json_extract(m.data, '$.severity')", same(self.value)))
        elif self.part == "unresolved":
            conditions.append(holds())
        elif self.part == "name":
            conditions.append(Sql("m.id = ?", (self.value,)))
        return conditions


@dataclass(frozen=True)
class Requirements:
    reads: tuple[Item, ...]
    writes: tuple[Item, ...]
    hints: tuple[str, ...]


def understand(requirements: Mapping[str, Any], agent: str) -> Requirements:
    """Raises InvalidQuery with everything that is wrong, and what would be right."""
    if not isinstance(requirements, Mapping):
        raise InvalidQuery(f"memory_requirements must be a mapping with {', '.join(_PARTS)}, not {shown(requirements)}.")
    problems = [f"{shown(name)} is not one of {', '.join(_PARTS)}" for name in requirements if name not in _PARTS]
    given = {name: _texts(name, requirements.get(name), problems) for name in _PARTS}
    reads = {text: _read_item(text, agent) for text in given["read_access"]}
    writes = {text: _write_item(text, agent) for text in given["write_access"]}
    for part, items, right in (("read_access", reads, READS), ("write_access", writes, WRITES)):
        if unknown := [repr(text) for text, item in items.items() if item is None]:
            problems.append(f"{part}: {', '.join(unknown)} is not one of {', '.join(right)}")
    if problems:
        sentence = f"In the memory_requirements, {'; '.join(problems)}."
        raise InvalidQuery(sentence, advice=f"X is a topic, or one of the severities {IN_WORDS}; correct them.")
    return Requirements(
        tuple(item for item in reads.values() if item), tuple(item for item in writes.values() if item),
        tuple(given["memory_hints"]),
    )  # fmt: skip


def require(session: Session, agent: str, requirements: Mapping[str, Any]) -> WorkflowMemory:
    """The memory of an agent, narrowed down to what the workflow asks for."""
    return WorkflowMemory(session, agent, understand(requirements, check_file_id("agent", agent)))


class WorkflowMemory(AgentMemory):
    """An agent's memory that gives, and takes, only what was granted."""

    def __init__(self, session: Session, name: str, requirements: Requirements) -> None:
        super().__init__(session, name)
        self.requirements = requirements
        self.hints = requirements.hints

    def load(self) -> dict[str, list[Record]]:
        """The memories that each item of `read_access` names, by the item."""
        for item in self.requirements.reads:
            if item.kind == "agent_states":
                self.state_of(item.value)  # refuses what is private
        project = self.project()
        found: dict[str, list[Record]] = {}

        def question(view: View, want: Wanted) -> Answer:
            for item in self.requirements.reads:
                found[item.text] = list(item.resolve(view, want, project))
            # As with session.turns(), having the conversation at hand is no sign that a turn matters.
            return Answer([record for records in found.values() for record in records if record.type != TURN.type])

        self.ask(question, {}, everywhere=True)
        return found

    def conversation(self, turns: int = DEFAULT_TURNS) -> list[Record]:
        """The last turns, as many of them as were granted."""
        if not isinstance(turns, int):
            raise InvalidQuery(f"How many of the last turns must be a whole number, not {shown(turns)}.")
        granted = [int(item.value) if item.part else turns for item in self.requirements.reads if item.kind == "conversation"]
        return super().conversation(min(turns, max(granted, default=0)))

    def record_finding(self, finding: str, **fields: Any) -> Record:
        """Of one that a party has had already and that may not be read, no more is given back than was said here."""
        record = super().record_finding(finding, **fields)
        if not self.in_party() or self._sees(record.id):
            return record
        return Record(record.id, record.type, record.session, {**fields, "id": record.id, "finding": finding}, finding)

    def resolve_finding(self, memory_id: str, action_taken: str, **fields: Any) -> Record:
        """Of a finding that may not be read, only its id and how it was resolved are given back."""
        # Before it is resolved: afterwards it is not among the open ones any more.
        seen = self.may_write("findings") and self._sees(memory_id)
        record = super().resolve_finding(memory_id, action_taken, **fields)
        if seen:
            return record
        said = ("status", "resolved_at", "resolved_by", "action_taken", *fields)
        resolution = {name: value for name, value in record.data["resolution"].items() if name in said}
        return Record(record.id, record.type, record.session, {"id": record.id, "resolution": resolution}, "")

    def _sees(self, finding_id: str) -> bool:
        """Whether a finding may be read."""
        reads = [item for item in self.requirements.reads if item.kind == "findings"]
        if not reads or any(not item.part for item in reads):
            return bool(reads)
        called = Sql("m.id = ? AND m.type = 'finding'", (check_memory_id(finding_id),))
        return bool(self.ask(lambda view, want: find(view, want.also(called)), {}))

    def with_requirements(self, requirements: Mapping[str, Any]) -> WorkflowMemory:
        raise AccessDenied(f"{self.name} has its requirements already, and cannot give itself others.", session_id=self.session.id)

    def may_read(self, kind: str) -> bool:
        return _covers(self.requirements.reads, kind)

    def may_write(self, kind: str) -> bool:
        return _covers(self.requirements.writes, kind)

    def _require_read(self, kind: str) -> None:
        if not self.may_read(kind):
            raise self._denied("read", kind, self.requirements.reads)

    def _require_write(self, kind: str) -> None:
        if not self.may_write(kind):
            raise self._denied("write", kind, self.requirements.writes)

    def _require_types(self, options: QueryOptions) -> None:
        if "types" in options:
            problems: list[str] = []
            names = [type_named(name, problems) for name in listed("types", options["types"], problems)]
            if problems:
                raise InvalidQuery("; ".join(problems) + ".")
            granted = {type_ for item in self.requirements.reads for type_ in map(type_of, _TYPES[item.kind])}
            for name in names:
                if name not in granted:
                    raise self._denied("read", f"{name}s", self.requirements.reads)

    def _denied(self, doing: str, kind: str, granted: tuple[Item, ...]) -> AccessDenied:
        items = ", ".join(item.text for item in granted) or "nothing"
        return AccessDenied(
            f"{self.name} may not {doing} {kind.replace('turns', 'conversation')}: {doing}_access grants {items}.",
            session_id=self.session.id,
        )

    def _visible(self, view: View) -> tuple[Sql, ...]:
        project = self.project()
        granted = [item.visible(view, project) for item in self.requirements.reads]
        either = Sql.joined(" OR ", [Sql(f"({one.text})", one.parameters) for one in granted]) if granted else Sql("0")
        return (*super()._visible(view), either)


def _covers(items: tuple[Item, ...], kind: str) -> bool:
    """Whether an item names some of the kind; of `agent_states.veritas`, just this one."""
    name, _, one = kind.partition(".")
    return any(item.kind == name and (not one or not item.part or item.value == one) for item in items)


# Reading the items.


def _texts(name: str, value: Any, problems: list[str]) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
        problems.append(f"{name} must be a list of texts, not {shown(value)}")
        return []
    return list(value)


def _read_item(text: str, agent: str) -> Item | None:
    kind, dot, rest = text.strip().partition(".")
    if not dot and kind in _TYPES and kind != "agent_states":
        return Item(text, kind)
    if kind == "conversation" and (last := _LAST_TURNS.fullmatch(rest)):
        return Item(text, kind, "turns", last[1])
    if kind in ("decisions", "findings", "preferences", "learnings") and rest.startswith(_BY_TOPIC):
        if topic := rest.removeprefix(_BY_TOPIC).strip():
            return Item(text, kind, "topic", topic)
    elif kind == "findings" and rest == "unresolved":
        return Item(text, kind, "unresolved")
    elif kind == "findings" and rest.startswith(_BY_SEVERITY):
        if (severity := rest.removeprefix(_BY_SEVERITY).strip()) in WORDS:
            return Item(text, kind, "severity", severity)
    elif kind == "preferences" and rest and ":" not in rest:
        return Item(text, kind, "topic", rest)
    elif kind in ("agent_states", "artifacts"):
        return _named(text, kind, rest, agent)
    return None


def _write_item(text: str, agent: str) -> Item | None:
    kind, dot, rest = text.strip().partition(".")
    if not dot and kind in _TYPES and kind != "agent_states":
        return Item(text, kind)
    return _named(text, kind, rest, agent) if kind == "agent_states" else None


def _named(text: str, kind: str, name: str, agent: str) -> Item | None:
    if kind == "agent_states" and name == _SELF:
        name = agent
    return Item(text, kind, "name", name) if is_file_id(name) else None
