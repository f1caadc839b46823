"""The `memory_requirements` of a workflow: which memories it may read and write.

read_access:  conversation  conversation.last_N_turns
              decisions  decisions.by_topic:X    learnings  learnings.by_topic:X
              findings  findings.unresolved  findings.by_severity:X  findings.by_topic:X
              preferences  preferences.X  preferences.by_topic:X
              agent_states.NAME  agent_states.{self}    artifacts  artifacts.NAME
write_access: conversation  decisions  findings  preferences  learnings  artifacts
              agent_states.NAME  agent_states.{self}
memory_hints: sentences; they stand in the context
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..ask.argument import shown
from ..ask.engine import find
from ..ask.options import Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds
from ..model.errors import InvalidQuery
from ..model.layout import is_file_id
from ..model.record import TURN
from ..model.severity import IN_WORDS, WORDS, same
from . import relevant

# The types of memory that a kind names.
TYPES = {
    "conversation": (TURN.name,),
    "decisions": ("decision",),
    "findings": ("finding",),
    "preferences": ("preference",),
    "learnings": ("learning", "pattern"),
    "agent_states": ("agent_state",),
    "artifacts": ("artifact",),
}
READS: tuple[str, ...] = (
    "conversation", "conversation.last_N_turns", "decisions", "decisions.by_topic:X",
    "findings", "findings.unresolved", "findings.by_severity:X", "findings.by_topic:X",
    "preferences", "preferences.X", "preferences.by_topic:X", "learnings", "learnings.by_topic:X",
    "agent_states.NAME", "agent_states.{self}", "artifacts", "artifacts.NAME",
)  # fmt: skip
WRITES: tuple[str, ...] = (
    "conversation", "decisions", "findings", "preferences", "learnings", "artifacts",
    "agent_states.NAME", "agent_states.{self}",
)  # fmt: skip
_PARTS = ("read_access", "write_access", "memory_hints")
_LAST_TURNS = re.compile(r"last_([1-9]\d{0,5})_turns?")
_BY_TOPIC, _BY_SEVERITY = "by_topic:", "by_severity:"
_LATEST = (
    "m.key IN (SELECT t.key FROM memories t WHERE t.scope = ? AND t.type = ?"
    " ORDER BY t.start DESC LIMIT ?)"
)


@dataclass(frozen=True)
class Item:
    """One kind of memory, or a part of it, that may be read or written."""

    text: str  # as the workflow has it
    kind: str
    part: str = ""  # all of the kind, or: turns, topic, severity, unresolved, name
    value: str = ""

    def resolve(self, view: View, want: Wanted, project: str | None) -> Answer:
        """Return the memories that the item names."""
        topic = self.value if self.part == "topic" else None
        if self.kind == "preferences":
            return relevant.preferences(view, want, topic, project, general=False)
        want = want.also(*self._conditions(view))
        if self.kind == "findings":
            return relevant.findings(view, want, topic, unresolved_only=False)
        if self.kind == "conversation":
            return find(view, replace(want, order="m.start"))
        return relevant.about(view, want, TYPES[self.kind], topic)

    def visible(self, view: View, project: str | None) -> Sql:
        """Return the condition that the memories of the item meet."""
        conditions = self._conditions(view)
        if self.part == "topic":
            found = self.resolve(view, Wanted(), project)
            conditions.append(relevant.named([f"{one.session}/{one.id}" for one in found]))
        return Sql.joined(" AND ", [Sql(f"({one.text})", one.parameters) for one in conditions])

    def _conditions(self, view: View) -> list[Sql]:
        """Return all conditions but that of a topic, which takes a question of its own."""
        conditions = [one_of("m.type", TYPES[self.kind])]
        if self.part == "turns":
            conditions.append(Sql(_LATEST, (view.scopes[0], TURN.name, int(self.value))))
        elif self.part == "severity":
            conditions.append(one_of("json_extract(m.data, '$.severity')", same(self.value)))
        elif self.part == "unresolved":
            conditions.append(holds())
        elif self.part == "name":
            conditions.append(Sql("m.id = ?", (self.value,)))
        return conditions


@dataclass(frozen=True)
class Requirements:
    """Everything that a workflow may read and write, and its hints."""

    reads: tuple[Item, ...]
    writes: tuple[Item, ...]
    hints: tuple[str, ...]


def understand(requirements: Mapping[str, Any], agent: str) -> Requirements:
    """Return the requirements of a workflow. Raise InvalidQuery with every problem."""
    if not isinstance(requirements, Mapping):
        right = f"a mapping with {', '.join(_PARTS)}"
        raise InvalidQuery(f"memory_requirements must be {right}, not {shown(requirements)}.")
    unknown = [name for name in requirements if name not in _PARTS]
    problems = [f"{shown(name)} is not one of {', '.join(_PARTS)}" for name in unknown]
    given = {name: _texts(name, requirements.get(name), problems) for name in _PARTS}
    items: dict[str, list[Item]] = {}
    for part, read, right in (
        ("read_access", _read_item, READS),
        ("write_access", _write_item, WRITES),
    ):
        found = {text: read(text, agent) for text in given[part]}
        items[part] = [item for item in found.values() if item]
        if wrong := [repr(text) for text, item in found.items() if item is None]:
            problems.append(f"{part}: {', '.join(wrong)} is not one of {', '.join(right)}")
    if problems:
        advice = f"X is a topic, or one of the severities {IN_WORDS}; correct them."
        raise InvalidQuery(f"In the memory_requirements, {'; '.join(problems)}.", advice=advice)
    reads, writes = tuple(items["read_access"]), tuple(items["write_access"])
    return Requirements(reads, writes, tuple(given["memory_hints"]))


def covers(items: tuple[Item, ...], kind: str) -> bool:
    """Return whether an item names some of the kind; of `agent_states.veritas`, just this one."""
    name, _, one = kind.partition(".")
    fitting = (item for item in items if item.kind == name)
    return any(not one or not item.part or item.value == one for item in fitting)


def _texts(name: str, value: Any, problems: list[str]) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
        problems.append(f"{name} must be a list of texts, not {shown(value)}")
        return []
    return list(value)


def _read_item(text: str, agent: str) -> Item | None:
    kind, dot, rest = text.strip().partition(".")
    if not dot and kind in TYPES and kind != "agent_states":
        return Item(text, kind)
    if kind == "conversation" and (last := _LAST_TURNS.fullmatch(rest)):
        return Item(text, kind, "turns", last[1])
    if kind in ("decisions", "findings", "preferences", "learnings") and rest.startswith(_BY_TOPIC):
        topic = rest.removeprefix(_BY_TOPIC).strip()
        return Item(text, kind, "topic", topic) if topic else None
    if kind == "findings" and rest == "unresolved":
        return Item(text, kind, "unresolved")
    if kind == "findings" and rest.startswith(_BY_SEVERITY):
        severity = rest.removeprefix(_BY_SEVERITY).strip()
        return Item(text, kind, "severity", severity) if severity in WORDS else None
    if kind == "preferences" and rest and ":" not in rest:
        return Item(text, kind, "topic", rest)
    return _named(text, kind, rest, agent) if kind in ("agent_states", "artifacts") else None


def _write_item(text: str, agent: str) -> Item | None:
    kind, dot, rest = text.strip().partition(".")
    if not dot and kind in TYPES and kind != "agent_states":
        return Item(text, kind)
    return _named(text, kind, rest, agent) if kind == "agent_states" else None


def _named(text: str, kind: str, name: str, agent: str) -> Item | None:
    name = agent if kind == "agent_states" and name == "{self}" else name
    return Item(text, kind, "name", name) if is_file_id(name) else None
