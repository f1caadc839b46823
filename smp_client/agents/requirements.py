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
from dataclasses import dataclass
from typing import Any

from ..ask.argument import shown
from ..ask.options import one_of
from ..ask.priorities import View
from ..index.sql import Sql
from ..index.validity import holds
from ..model.errors import InvalidQuery
from ..model.layout import is_file_id
from ..model.record import SEVERITY_WORDS, TURN, severity_rank
from .relevant import bearing

_TOPIC = {"topic": r"by_topic:\s*(.*\S)\s*"}
_NAME = {"name": r"(.+)"}
# The types of memory that a kind names, and the parts of it that may be granted alone.
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "conversation": ((TURN.name,), {"turns": r"last_([1-9]\d{0,5})_turns?"}),
    "decisions": (("decision",), _TOPIC),
    "findings": (("finding",), {
        **_TOPIC, "severity": rf"by_severity:({'|'.join(SEVERITY_WORDS)})",
        "unresolved": "(unresolved)",
    }),
    "preferences": (("preference",), {"topic": r"(?:by_topic:\s*)?([^:]*[^:\s])\s*"}),
    "learnings": (("learning", "pattern"), _TOPIC),
    "agent_states": (("agent_state",), _NAME),
    "artifacts": (("artifact",), _NAME),
}  # fmt: skip
_PARTS = ("read_access", "write_access", "memory_hints")
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

    def visible(self, view: View, session: str) -> Sql:
        """Return the condition of the memories that the item names in a session."""
        conditions = [one_of("m.type", KINDS[self.kind][0])]
        if self.part == "turns":
            conditions.append(Sql(_LATEST, (session, TURN.name, int(self.value))))
        elif self.part == "severity":
            place = severity_rank(self.value)
            words = [word for word in SEVERITY_WORDS if severity_rank(word) == place]
            conditions.append(one_of("json_extract(m.data, '$.severity')", words))
        elif self.part == "unresolved":
            conditions.append(holds())
        elif self.part == "name":
            conditions.append(one_of("m.id", [self.value]))
        elif self.part == "topic":
            conditions.append(bearing(view, self.value))
        return Sql.joined(" AND ", conditions)


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
    texts: dict[str, list[str]] = {}
    items: dict[str, list[Item]] = {"read_access": [], "write_access": []}
    for name in _PARTS:
        texts[name] = requirements.get(name) or []
        if not isinstance(texts[name], (list, tuple)) or not all(
            isinstance(text, str) for text in texts[name]
        ):
            problems.append(f"{name} must be a list of texts, not {shown(texts[name])}")
            continue
        for text in texts[name] if name in items else ():
            item = _item(text, agent)
            if item and (name == "read_access" or not item.part or item.kind == "agent_states"):
                items[name].append(item)
            else:
                problems.append(f"{name}: {text!r} grants nothing that SMP knows")
    if problems:
        advice = "docs/agents.md lists all that a workflow may name."
        raise InvalidQuery(f"In the memory_requirements, {'; '.join(problems)}.", advice=advice)
    reads, writes = map(tuple, items.values())
    return Requirements(reads, writes, tuple(texts["memory_hints"]))


def covers(items: tuple[Item, ...], kind: str) -> bool:
    """Return whether an item names some of the kind; of `agent_states.veritas`, just this one."""
    name, _, one = kind.partition(".")
    fitting = (item for item in items if item.kind == name)
    return any(not one or not item.part or item.value == one for item in fitting)


def _item(text: str, agent: str) -> Item | None:
    kind, dot, rest = text.strip().partition(".")
    if kind not in KINDS or (not dot and kind == "agent_states"):
        return None
    if not dot:
        return Item(text, kind)
    for part, pattern in KINDS[kind][1].items():
        if found := re.fullmatch(pattern, rest):
            value = agent if (kind, found[1]) == ("agent_states", "{self}") else found[1]
            return Item(text, kind, part, value) if part != "name" or is_file_id(value) else None
    return None
