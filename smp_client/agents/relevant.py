"""The memories that bear on the work of an agent, by kind, and those that a workflow may read.

The `memory_requirements` of a workflow name kinds (`findings`) or parts of them
(`findings.unresolved`) under `read_access` and `write_access`; KINDS has all. `memory_hints` are
sentences that stand in the context. The `memory_usage` of a phase has the questions that it asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..ask.argument import sayable
from ..ask.engine import about, find, where
from ..ask.options import NEWEST, Answer, Wanted, one_of
from ..ask.priorities import View
from ..index.mentions import TOPIC
from ..index.sql import Sql
from ..index.validity import holds, project_of
from ..model.errors import InvalidQuery
from ..model.layout import GLOBAL, is_file_id
from ..model.quotation import shown
from ..model.record import SEVERITIES, SEVERITY_WORDS, TURN, severity_rank

EVERY = "*"
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
_WORKFLOW = "workflow"
_REQUIREMENTS = "memory_requirements"
_PHASES = "phases"
_USAGE = "memory_usage"
_LATEST = (
    "m.key IN (SELECT t.key FROM memories t WHERE t.scope = ? AND t.type = ?"
    " ORDER BY t.start DESC LIMIT ?)"
)
_WIDER = (
    f"SELECT memory FROM topics WHERE type = 'preference' AND how >= {TOPIC} AND {{}}"
    " AND topic IN (SELECT value FROM json_each(?))"
)
_MENTIONING = "SELECT rowid FROM words WHERE words MATCH ?"
_GENERAL = "NOT EXISTS (SELECT 1 FROM topics WHERE memory = m.key)"
_SURE = (
    "CASE json_extract(m.data, '$.confidence')"
    " WHEN 'explicit' THEN 0 WHEN 'inferred' THEN 1 ELSE 2 END"
)
_RANKS = " ".join(f"WHEN '{word}' THEN {severity_rank(word)}" for word in SEVERITY_WORDS)
_WORST = f"CASE LOWER(json_extract(m.data, '$.severity')) {_RANKS} ELSE {len(SEVERITIES)} END"
_FIRST = {"findings": _WORST, "preferences": f"{_SURE}, m.scope = '{GLOBAL}'"}
_PROJECTS = "json_extract(m.data, '$.applies_to.projects')"


def bearing(view: View, topic: str) -> Sql:
    """Return the condition that a memory is about a topic or a wider one, or mentions it."""
    levels = sayable(topic).lower().split(".")
    above = [".".join(levels[:count]) for count in range(1, len(levels))]
    scopes = view.within("scope")
    parts = [
        about(view, topic),
        Sql(_WIDER.format(scopes.text), (*scopes.parameters, json.dumps([*above, EVERY]))),
    ]
    if words := project_of(topic):
        parts.append(Sql(_MENTIONING, (f'{{text more}} : "{words}"',)))
    # Asked once here, and not again by each question that has this condition.
    found = Sql.joined(" UNION ", parts)
    asked = f"SELECT json_group_array(memory) FROM ({found.text})"
    keys = view.index.execute(asked, found.parameters).fetchone()
    return Sql("m.key IN (SELECT value FROM json_each(?))", keys)


def relevant(
    view: View, want: Wanted, kind: str, topic: Sql | None = None, project: str | None = None
) -> Answer:
    """Return memories of a kind: the worst findings, the surest preferences, the most important.

    Of preferences only those that apply to the project; one without topic, domains and tags applies
    to every topic.
    """
    want = want.also(one_of("m.type", KINDS[kind][0]))
    if kind == "preferences":
        want = want.also(_applying(view, project))
        topic = topic and Sql(f"{topic.text} OR ({_GENERAL})", topic.parameters)
    if topic is not None:
        want = want.also(topic)._replace(has_keys=kind != "preferences")
    if kind in _FIRST and not want.order:
        want = want._replace(order=f"{_FIRST[kind]}, score DESC, {NEWEST}")
    return find(view, want)


def _applying(view: View, project: str | None) -> Sql:
    """Return the condition that a preference applies to a project: it names this one, or none."""
    # To look at the text is fast, and few preferences name projects.
    naming = Sql(f"m.data LIKE '%\"projects\"%' AND {_PROJECTS} IS NOT NULL")
    named = Wanted((one_of("m.type", ["preference"]), naming))
    condition, given = where(view, named)
    asked = f"SELECT m.key, json_quote({_PROJECTS}) FROM memories m WHERE {condition}"
    others: list[int] = []
    for key, stored in view.index.execute(asked, given):
        said = json.loads(stored)
        names = [str(name) for name in (said if isinstance(said, list) else [said])]
        if names and EVERY not in names and project_of(project) not in map(project_of, names):
            others.append(key)
    return Sql("m.key NOT IN (SELECT value FROM json_each(?))", (json.dumps(others),))


# Requirements of a workflow.


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
            conditions.append(Sql(f"{_WORST} = ?", (severity_rank(self.value),)))
        elif self.part == "unresolved":
            conditions.append(holds())
        elif self.part == "name":
            conditions.append(one_of("m.id", [self.value]))
        elif self.part == "topic":
            conditions.append(bearing(view, self.value))
        return Sql.joined(" AND ", conditions)


@dataclass(frozen=True)
class Usage:
    """What a phase of a workflow says that it does with the memory."""

    type: str  # read or write
    query: str
    purpose: str


@dataclass(frozen=True)
class Requirements:
    """Everything that a workflow may read and write, its hints, and the uses by phase."""

    reads: tuple[Item, ...]
    writes: tuple[Item, ...]
    hints: tuple[str, ...]
    phases: Mapping[str, tuple[Usage, ...]] = field(default_factory=dict)


def understand(given: Mapping[str, object], agent: str) -> Requirements:
    """Return the requirements of a workflow, given alone or as its whole definition.

    Raise InvalidQuery with the first mistake.
    """
    workflow = given.get(_WORKFLOW, given) if isinstance(given, Mapping) else given
    if not isinstance(workflow, Mapping) or not {_REQUIREMENTS, _PHASES} & {*workflow}:
        return _requirements(workflow, agent)
    found = _requirements(workflow.get(_REQUIREMENTS) or {}, agent)
    return replace(found, phases=_phases(workflow.get(_PHASES) or []))


def _phases(given: object) -> dict[str, tuple[Usage, ...]]:
    """Return the uses of the memory by the name of the phase."""
    found: dict[str, tuple[Usage, ...]] = {}
    for number, phase in enumerate(given if isinstance(given, (list, tuple)) else [given]):
        place = f"{_PHASES}[{number}]"
        name = phase.get("name") if isinstance(phase, Mapping) else None
        if not isinstance(phase, Mapping) or not isinstance(name, str):
            raise InvalidQuery(f"{place} must be a mapping with a name, not {shown(phase)}.")
        uses = phase.get(_USAGE) or []
        if not isinstance(uses, (list, tuple)):
            raise InvalidQuery(f"{place}.{_USAGE} must be a list, not {shown(uses)}.")
        found[name] = tuple(_usage(f"{place}.{_USAGE}[{at}]", use) for at, use in enumerate(uses))
    return found


def _usage(place: str, given: object) -> Usage:
    if not isinstance(given, Mapping) or given.get("type") not in ("read", "write"):
        said = "a mapping with type read or write, and perhaps query and purpose"
        raise InvalidQuery(f"{place} must be {said}, not {shown(given)}.")
    query = given.get("query") or ""
    return Usage(str(given["type"]), str(query), str(given.get("purpose") or ""))


def _requirements(requirements: object, agent: str) -> Requirements:
    if not isinstance(requirements, Mapping) or not {*requirements} <= {*_PARTS}:
        right = f"a mapping with {', '.join(_PARTS)}"
        raise InvalidQuery(f"memory_requirements must be {right}, not {shown(requirements)}.")
    texts = {name: requirements.get(name) or [] for name in _PARTS}
    for name, given in texts.items():
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
            raise InvalidQuery(f"{name} must be a list of texts, not {shown(given)}.")
    reads, writes = (tuple(_item(name, text, agent) for text in texts[name]) for name in _PARTS[:2])
    return Requirements(reads, writes, tuple(texts["memory_hints"]))


def _item(name: str, text: str, agent: str) -> Item:
    kind, dot, rest = text.strip().partition(".")
    parts = KINDS[kind][1] if kind in KINDS else {}
    if parts and not dot:
        return Item(text, kind)
    for part, pattern in parts.items() if name == "read_access" or kind == "agent_states" else ():
        if found := re.fullmatch(pattern, rest):
            value = agent if (kind, found[1]) == ("agent_states", "{self}") else found[1]
            if part != "name" or is_file_id(value):
                return Item(text, kind, part, value)
    advice = "docs/agents.md lists all that a workflow may name."
    raise InvalidQuery(f"{name}: {shown(text)} grants nothing that SMP knows.", advice=advice)


def covers(items: Iterable[Item], kind: str) -> bool:
    """Return whether an item names some of the kind; of `agent_states.veritas`, just this one."""
    name, _, one = kind.partition(".")
    fitting = (item for item in items if item.kind == name)
    return any(not one or not item.part or item.value == one for item in fitting)
