"""What an agent should know, as one Markdown text for a prompt, within a budget.

A token is taken for four characters, which is about right for English; for code or Chinese ask for less than there is room for.

The most valuable comes first. What a workflow hints at, explicit preferences, open critical findings, decisions by their score and
the latest turns may each take a quarter of the budget, so that none crowds out those behind it. Then comes, as far as it fits, what
is left of these, then other open findings, the agent's own state, other preferences. Older turns and learnings are only taken if
nothing before them had to be left out. Turns go from the oldest. An item is whole or not there, except one that alone needs more
than a quarter of the budget: that is shortened as far as it must be, and ends with "…". Each has its id, by which the whole of it
can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import relevant
from .errors import InvalidQuery
from .layout import GLOBAL
from .questions.engine import similar
from .questions.fields import shown
from .questions.priorities import View
from .questions.query import Answer, Wanted, one_of, require_text
from .records import SEVERITIES, TURN, Record

if TYPE_CHECKING:
    from .agent import Reader
    from .session import Session

CHARACTERS_PER_TOKEN = 4
TURNS = 20
_LATEST_TURNS = 4
_MEMORIES = 50  # of each kind, also without a budget
_SHARES = 4
_HEADER_SHARES = 8  # it says less than what follows it
_MATCHES = 0.3  # from this score on a memory matches the task: less may be a chance word
_NAME_CHARACTERS = 64
_LEAST_SAID = 12  # characters of an item: less would only be its id
_STATE_ITSELF = ("agent_id", "session_id", "last_updated", "decay")
_HINTS, _PREFERENCES, _FINDINGS, _DECISIONS = "Hints of the workflow", "Preferences", "Open findings", "Decisions"
_LEARNINGS, _STATE, _CONVERSATION = "Learnings", "Own state", "Conversation"
_SECTIONS = (_HINTS, _PREFERENCES, _FINDINGS, _DECISIONS, _LEARNINGS, _STATE, _CONVERSATION)  # as they are read


@dataclass(frozen=True)
class Item:
    """A line or a short block."""

    place: int  # in its section
    name: str  # `[DEC-001]`; nothing for a hint
    text: str
    record: Record | None = None

    def rendered(self, limit: int | None) -> str | None:
        """As it is shown, in at most so many characters; None where that would say nothing."""
        start = f"- {self.name} ".replace("  ", " ")
        whole = (start + "\n  ".join(line.rstrip() for line in self.text.strip().splitlines())).rstrip()
        if limit is None or len(whole) <= limit:
            return whole
        return f"{whole[: limit - 1].rstrip()}…" if limit >= len(start) + _LEAST_SAID else None


@dataclass(frozen=True)
class Group:
    """Items of about the same worth, the best first."""

    section: str
    items: Sequence[Item]
    is_core: bool = False  # has a share of the budget before the others
    if_room: bool = False  # only taken if nothing before it was left out
    unbroken: bool = False  # no item without those before it


@dataclass
class _Page:
    """What has been chosen, and what it comes to."""

    budget: int | None
    totals: dict[str, int]
    used: int = 0
    chosen: dict[str, dict[int, str]] = field(default_factory=dict)
    shortened: list[tuple[str, Item]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def has(self, section: str, item: Item) -> bool:
        return item.place in self.chosen.get(section, {})

    def take(self, section: str, item: Item) -> int | None:
        """Takes the item if there is room, and says how many characters it is; None where there is none."""
        text = item.rendered(None if self.budget is None else self.budget // _SHARES)
        if text is None:
            return None
        # A blank line, the heading with the longest numbers it can have, and the line ends.
        heading = 0 if section in self.chosen else len(_heading(section, self.totals[section], self.totals[section] + 1)) + 2
        if self.budget is not None and self.used + heading + len(text) + 1 > self.budget:
            return None
        self.used += heading + len(text) + 1
        self.chosen.setdefault(section, {})[item.place] = text
        if text != item.rendered(None):
            self.shortened.append((section, item))
        if item.record is not None and item.record.type != TURN.name:
            # As with session.turns(), having the conversation at hand is no sign that a turn matters.
            self.records.append(item.record)
        return len(text)

    def lengthen(self) -> None:
        """Gives the room that nothing else needed to the items that were shortened, the most valuable first."""
        for section, item in self.shortened:
            before = self.chosen[section][item.place]
            text = item.rendered(None if self.budget is None else self.budget - self.used + len(before)) or before
            self.used += len(text) - len(before)
            self.chosen[section][item.place] = text


def context_for(session: Session, *, topic: str | None = None, max_tokens: int | None = None, task: str | None = None) -> str:
    """The context of a session for nobody in particular."""
    from .agent import Reader

    return build(Reader(session), topic=topic, max_tokens=max_tokens, task=task)


def build(reader: Reader, *, topic: str | None, max_tokens: int | None, task: str | None) -> str:
    """What the reader may see, as text. It does not count as read: a context that is asked for before every answer would soon have
    made everything in it matter equally."""
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 0):
        raise InvalidQuery(f"max_tokens must be a whole number from 0, not {shown(max_tokens)}.")
    for name, said in (("The topic", topic), ("The task", task)):
        if said is not None:
            require_text(f"{name} of a context", said)
    budget = None if max_tokens is None else max_tokens * CHARACTERS_PER_TOKEN
    turns = reader.conversation(TURNS) if reader.may_read("conversation") else []
    header = _header(reader, topic, task)
    text = ""

    def question(view: View, want: Wanted) -> Answer:
        nonlocal text
        text, records = pack(header, _groups(reader, _Memories(reader, view, want, topic, task), turns), budget)
        return Answer(records)

    reader.ask(question, {"count_access": False}, everywhere=True)
    reader.session._looked_at()
    return text


def pack(header: Sequence[str], groups: Sequence[Group], budget: int | None) -> tuple[str, list[Record]]:
    """The text, and the memories, other than turns, that are shown in it. The text never has more characters than the budget."""
    totals: dict[str, int] = {}
    for group in groups:
        totals[group.section] = totals.get(group.section, 0) + len(group.items)
    head = _fitting(header, budget)
    page = _Page(budget, totals, used=len(head))
    if budget is not None:
        for group in groups:
            if group.is_core:
                _take_share(page, group, budget // _SHARES)
    left_out = False
    for group in groups:
        if left_out and group.if_room:
            continue
        for item in group.items:
            if not page.has(group.section, item) and page.take(group.section, item) is None:
                left_out = True
                if group.unbroken:
                    break
    page.lengthen()
    blocks = [head] if head else []
    for section in _SECTIONS:
        if items := page.chosen.get(section):
            lines = [_heading(section, len(items), totals[section]), *(items[place] for place in sorted(items))]
            blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks), page.records


def _take_share(page: _Page, group: Group, share: int) -> None:
    """The first items of the group, up to its share."""
    taken = 0
    for item in group.items:
        size = item.rendered(share)
        if size is None or taken + len(size) > share:
            return
        if page.take(group.section, item) is None:
            return
        taken += len(size)


def _heading(section: str, shown: int, total: int) -> str:
    return f"## {section}" if shown == total else f"## {section} ({shown} of {total})"


def _fitting(header: Sequence[str], budget: int | None) -> str:
    """As many lines of the header as need no more than their share."""
    while header:
        text = "\n".join(header) + "\n"
        if budget is None or len(text) <= budget // _HEADER_SHARES:
            return text
        header = header[:-1]
    return ""


def _header(reader: Reader, topic: str | None, task: str | None) -> list[str]:
    said = {"Project": reader.project(), "Topic": topic, "Agent": reader.name}
    lines = [f"# Memory of {reader.session.id}"]
    if any(said.values()):
        lines.append(". ".join(f"{name}: {_line(value)}" for name, value in said.items() if value) + ".")
    if task:
        lines.append(f"Task: {_line(task)}")
    return lines


# What there is to say.


@dataclass(frozen=True)
class _Memories:
    """The memories that bear on a topic, and on a task, in one state of the index."""

    reader: Reader
    view: View
    want: Wanted
    topic: str | None
    task: str | None

    def decisions(self) -> list[Record]:
        return self._first("decisions", lambda want: relevant.about(self.view, want, ["decision"], self.topic))

    def findings(self) -> list[Record]:
        """All that are open: one that is about something else may still stop the work. Those about the topic come first."""
        found = self._first("findings", lambda want: relevant.findings(self.view, want))
        own: list[Record] = []
        if self.topic is not None:
            own = self._first("findings", lambda want: relevant.findings(self.view, want, self.topic))
        return sorted(_distinct([*own, *found]), key=relevant.severity)[:_MEMORIES]

    def preferences(self) -> list[Record]:
        if not self.reader.may_read("preferences"):
            return []
        return list(relevant.preferences(self.view, replace(self.want, limit=_MEMORIES), self.topic, self.reader.project()))

    def learnings(self) -> list[Record]:
        return self._first("learnings", lambda want: relevant.about(self.view, want, ["learning", "pattern"], self.topic))

    def _first(self, kind: str, question: Callable[[Wanted], Answer]) -> list[Record]:
        """The first of what answers; with a task, what matches that comes before the rest."""
        if not self.reader.may_read(kind):
            return []
        found = question(replace(self.want, limit=_MEMORIES))
        if self.task is None or not found:
            return list(found)
        keys = [(record.session, record.id) for record in self._matching({record.type for record in found})]
        matching = {key: place for place, key in enumerate(keys)}
        named = relevant.named([f"{session}/{memory_id}" for session, memory_id in keys])
        # The question is asked again for these alone, since they may be behind its first ones.
        asked = question(self.want.also(named))
        return _distinct([*sorted(asked, key=lambda record: matching[record.session, record.id]), *found])[:_MEMORIES]

    def _matching(self, types: Iterable[str]) -> Answer:
        want = replace(self.want, limit=_MEMORIES, min_relevance=_MATCHES).also(one_of("m.type", sorted(types)))
        return similar(self.view, want, self.task or "")


def _distinct(records: Iterable[Record]) -> list[Record]:
    return list({(record.session, record.type, record.id): record for record in records}.values())


def _groups(reader: Reader, memories: _Memories, turns: Sequence[Record]) -> list[Group]:
    """In the order of their worth."""
    preferences, findings = memories.preferences(), memories.findings()
    explicit = [record for record in preferences if record.data.get("confidence") == "explicit"]
    critical = [record for record in findings if record.data.get("severity") == SEVERITIES[0]]
    said = _items(turns, _turn)[::-1]
    hints = [Item(place, "", hint) for place, hint in enumerate(reader.hints)]
    return [
        Group(_HINTS, hints, is_core=True),
        Group(_PREFERENCES, _items(explicit, _preference), is_core=True),
        Group(_FINDINGS, _items(critical, _finding), is_core=True),
        Group(_DECISIONS, _items(memories.decisions(), _decision), is_core=True),
        Group(_CONVERSATION, said[:_LATEST_TURNS], is_core=True, unbroken=True),
        Group(_FINDINGS, _items(findings[len(critical) :], _finding, len(critical))),
        Group(_STATE, list(_state(reader))),
        Group(_PREFERENCES, _items(preferences[len(explicit) :], _preference, len(explicit))),
        Group(_CONVERSATION, said[_LATEST_TURNS:], if_room=True, unbroken=True),
        Group(_LEARNINGS, _items(memories.learnings(), _learning), if_room=True),
    ]


def _items(records: Sequence[Record], say: Any, start: int = 0) -> list[Item]:
    return [Item(place, f"[{_name(record.id)}]", say(record), record) for place, record in enumerate(records, start)]


def _name(memory_id: str) -> str:
    """On one line, also where a person wrote an id that is none and could pass for a part of the text."""
    return memory_id if memory_id.isprintable() and len(memory_id) <= _NAME_CHARACTERS else shown(memory_id)


def _preference(record: Record) -> str:
    marks = [record.data.get("confidence"), record.data.get("topic"), "in every session" if record.session == GLOBAL else None]
    return f"{_listed(marks)}: {record.text}"


def _finding(record: Record) -> str:
    also = record.data.get("also_found_by")
    people = [record.data.get("discovered_by"), *(also if isinstance(also, list) else [])]
    resolution = record.data.get("resolution")
    steps = resolution.get("next_steps") if isinstance(resolution, dict) else None
    return f"{_listed([record.data.get('severity')])}: {record.text}{_by(people)}" + (f"\nNext: {_line(steps)}" if steps else "")


def _decision(record: Record) -> str:
    rationale = record.data.get("rationale")
    return f"{record.text}{_by([record.data.get('made_by')])}" + (f"\nBecause: {_line(rationale)}" if rationale else "")


def _learning(record: Record) -> str:
    return f"{record.text}{_by([record.data.get('learned_by')])}"


def _turn(record: Record) -> str:
    return f"{record.data.get('speaker', '')}: {record.text}"


def _state(reader: Reader) -> Iterable[Item]:
    """Each part of the agent's own state."""
    state = reader.own_state()
    parts = [(name, value) for name, value in state.items() if name not in _STATE_ITSELF and value not in (None, "", [], {})]
    for place, (name, value) in enumerate(parts):
        yield Item(place, f"[{reader.name}]", f"{name}: {_in_words(value)}")


def _in_words(value: Any) -> str:
    """`task: review; concerns: (MFA; timeout)`"""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_inner(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(map(_inner, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else _line(value)


def _inner(value: Any) -> str:
    return f"({_in_words(value)})" if isinstance(value, (dict, list)) else _in_words(value)


def _by(people: Iterable[Any]) -> str:
    names = _listed(people)
    return f" ({names})" if names else ""


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(_line(value) for value in values if value)


def _line(value: Any) -> str:
    return " ".join(str(value).split())
