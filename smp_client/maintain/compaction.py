"""What of a session goes when it is to become smaller, in which order, and why: pure, and nothing is done here.

Four operations, each only as far as the target asks for it: what has decayed, old conversation, resolved findings and agents'
earlier states. What must be preserved is left out before any of them begins, and every memory that stays can be asked why.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Literal, NamedTuple

from ..policies import CompactionPolicy
from ..records import DECISION, FINDING, PREFERENCE, RELATIONSHIP, TURN, is_memory_id
from ..text.markdown import render_turn
from ..text.values import Value
from ..timestamps import render_time
from .actions import Action
from .summarising import Extractive, references

Operation = Literal["remove_decayed", "summarize_conversation", "archive_findings", "compress_agent_state"]
SUMMARY = "summary"  # the type of a turn that stands for others
SUMMARIZES = "summarizes"
SPEAKER = "smp"
STATE, ARTIFACT = "agent_state", "artifact"
_NOT_SMALLER = "a summary of it would not be smaller"
_NOT_NEEDED = "the target was reached without it"
_OLDEST = datetime.min.replace(tzinfo=UTC)


class Item(NamedTuple):
    """A memory, or an earlier state of an agent, as it stands in its file."""

    id: str
    type: str
    file: str
    start: int
    end: int  # of a turn, with the blank lines behind it
    hash: str  # see indexing.hash_of
    priority: float  # as of now
    at: datetime | None  # when it was made
    used: datetime | None  # when it was last made, changed or read
    pinned: bool = False
    closed: bool = False  # a decision that is closed, a finding that is resolved
    explicit: bool = False  # a preference that somebody has stated
    is_summary: bool = False
    is_open: bool = False  # the last of its file and not written by the library: a part of it may still be on its way
    is_double: bool = False  # its id stands there twice: without it the other one would answer
    actor: str = ""
    text: str = ""
    refs: tuple[str, ...] = ()  # what a turn refers to; the two ends of a relationship

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Snapshot:
    """A session at one moment."""

    session: str
    items: Sequence[Item]  # in the order of their files
    decayed_below: float = 0.3
    history: Sequence[Item] = ()  # agents' earlier states


class Taken(NamedTuple):
    item: Item
    operation: Operation
    reason: str


@dataclass(frozen=True)
class Run:
    """Turns without a gap that go together, and the one that takes their place; none where even that would be larger."""

    turns: tuple[Item, ...]
    summary: bytes = b""

    @property
    def bytes(self) -> int:
        return self.turns[-1].end - self.turns[0].start

    @property
    def freed(self) -> int:
        return self.bytes - len(self.summary)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        return tuple((turn.id, turn.hash) for turn in self.turns)

    def with_text(self, text: str) -> Run:
        return replace(self, summary=rendered_summary(self.turns, text))


@dataclass(frozen=True)
class CompactionPlan:
    session: str
    target_bytes: int
    taken: tuple[Taken, ...] = ()
    runs: tuple[Run, ...] = ()  # of the turns in `taken`
    kept: Mapping[str, str] = field(default_factory=dict)  # why each other memory stays, by its id
    kept_bytes: Mapping[str, int] = field(default_factory=dict)
    decayed_below: float = 0.3
    old_conversation_days: float = 7.0

    @property
    def bytes_freed(self) -> int:
        records = sum(one.item.bytes for one in self.taken if one.item.type != TURN.name)
        return records + sum(run.freed for run in self.runs)

    @property
    def missing_bytes(self) -> int:
        return max(0, self.target_bytes - self.bytes_freed)

    def with_runs(self, change: Callable[[Run], Run]) -> CompactionPlan:
        return replace(self, runs=tuple(change(run) for run in self.runs))

    def actions(self) -> list[Action]:
        return list(_actions(self))

    def why_short(self, total_bytes: int = 0, *, is_done: bool = False) -> list[str]:
        """What stands in the way of the target, for a session of this size; nothing where it is reached."""
        if not self.missing_bytes:
            return []
        counts, sizes = Counter(self.kept.values()), Counter[str]()
        for memory_id, reason in self.kept.items():
            sizes[reason] += self.kept_bytes.get(memory_id, 0)
        staying = sum(sizes.values())
        why = "it holds no memory" if not self.taken else "no memory is left"
        if self.kept:
            each = "; ".join(f"{counts[reason]:,} with {sizes[reason]:,} bytes: {reason}" for reason, _ in sizes.most_common())
            memories, stay = ("memory", "stays") if len(self.kept) == 1 else ("memories", "stay")
            why = f"{len(self.kept):,} {memories} with {staying:,} bytes {stay} ({each})"
        if (rest := total_bytes - self.bytes_freed - staying) > 0:
            which = f"the other {rest:,}" if self.kept or self.taken else f"its {rest:,}"
            summaries = ", summaries of what was said" if any(run.summary for run in self.runs) else ""
            why += f"; {which} bytes are metadata{summaries} and the heads of the files"
        freed = f"{self.bytes_freed:,} {'were freed' if is_done else 'can be'}"
        return [f"{self.session}: {self.target_bytes:,} bytes were to be freed, {freed}: {why}"]


def plan(
    snapshot: Snapshot, policy: CompactionPolicy, now: datetime, target_bytes: int, extractive: Extractive | None = None
) -> CompactionPlan:
    """As little as reaches the target; all that may go where nothing does. Whoever plans twice gives the same `extractive`."""
    return _Planner(snapshot, policy, now, target_bytes, extractive or Extractive()).plan()


def preserved(item: Item, policy: CompactionPolicy, now: datetime) -> str | None:
    """Why a memory stays whatever happens; None where it may go."""
    if item.type in (ARTIFACT, STATE):
        return "an artifact" if item.type == ARTIFACT else "the current state of an agent"
    if item.is_summary:
        return "it stands for turns that were taken out"
    if item.is_open:
        return "the last in its file, which somebody may still be writing"
    if item.is_double:
        return "its id stands there more than once"
    if not is_memory_id(item.id):
        return "it could not be asked for by its id, were it taken out"
    if item.pinned:
        return "it is pinned"
    if item.type == DECISION.name and not item.closed:
        return "a decision that is not closed"
    if item.type == FINDING.name and not item.closed:
        return "a finding that is not resolved"
    if item.type == PREFERENCE.name and item.explicit:
        return "an explicit preference"
    if item.at is None or item.used is None:
        return "it has no time, so that nobody can tell how old it is"
    if item.type == TURN.name and now - item.at < timedelta(hours=policy.recent_conversation_hours):
        return f"said within the last {policy.recent_conversation_hours:g} hours"
    if item.priority > policy.preserved_above:
        return f"its priority is above {policy.preserved_above:g}"
    if now - item.used < timedelta(hours=policy.recent_access_hours):
        return f"made, changed or read within the last {policy.recent_access_hours:g} hours"
    return None


def rendered_summary(turns: Sequence[Item], text: str) -> bytes:
    """The turn that takes the place of others: the number and the time of the first."""
    first, last = turns[0], turns[-1]
    assert first.at is not None
    value: dict[str, Value] = {
        "id": first.id, "turn": int(first.id.removeprefix("turn-")), "timestamp": render_time(first.at),
        "speaker": SPEAKER, "type": SUMMARY, "memory_refs": list(references(turns)),
        SUMMARIZES: {"first": first.id, "last": last.id, "turns": len(turns)}, "content": text,
    }  # fmt: skip
    return render_turn(value if value["memory_refs"] else {name: part for name, part in value.items() if name != "memory_refs"})


class _Planner:
    def __init__(
        self, snapshot: Snapshot, policy: CompactionPolicy, now: datetime, target_bytes: int, extractive: Extractive
    ) -> None:
        self._snapshot, self._policy, self._now, self._target = snapshot, policy, now, target_bytes
        self._extractive = extractive
        self._known: dict[tuple[int, int], Run] = {}  # by the bytes from the first turn to the last
        self._kept: dict[str, str] = {}
        self._free: list[Item] = []
        for item in snapshot.items:
            reason = preserved(item, policy, now)
            if reason is None:
                self._free.append(item)
            else:
                self._kept[item.id] = reason
        self._turns = [item for item in snapshot.items if item.type == TURN.name]  # all of them: one that stays breaks a run
        self._taken: dict[tuple[str, str], Taken] = {}
        self._gained = 0  # what these free

    def plan(self) -> CompactionPlan:
        for operation in (self._decayed, self._relations, self._conversation, self._findings, self._history):
            if self._gained < self._target:
                operation()
        self._say_why_the_rest_stays()
        sizes = {item.id: item.bytes for item in self._snapshot.items if item.id in self._kept}
        taken = tuple(sorted(self._taken.values(), key=lambda one: (one.item.file, one.item.start)))
        return CompactionPlan(self._snapshot.session, self._target, taken, tuple(self._runs(self._taken)), self._kept, sizes,
                              self._snapshot.decayed_below, self._policy.old_conversation_days)  # fmt: skip

    # The operations, in their order.

    def _decayed(self) -> None:
        below = self._snapshot.decayed_below
        found = [item for item in self._free if item.priority < below and item.type != RELATIONSHIP.name]
        self._take(found, "remove_decayed", lambda item: f"its priority of {item.priority:.2f} is below {below:g}")

    def _relations(self) -> None:
        """Only those with an end that goes as well."""
        below = self._snapshot.decayed_below
        gone = {memory_id for _, memory_id in self._taken}
        decayed = [item for item in self._free if item.type == RELATIONSHIP.name and item.priority < below]
        related = [item for item in decayed if gone & set(item.refs)]
        self._take(related, "remove_decayed", lambda item: f"its priority of {item.priority:.2f} is below {below:g}, and"
                                                           f" {' and '.join(sorted(gone & set(item.refs)))} goes too")  # fmt: skip

    def _conversation(self) -> None:
        days = self._policy.old_conversation_days
        old = [item for item in self._free if item.type == TURN.name and _is_older(item, self._now, days)]
        self._take(old, "summarize_conversation", lambda _: f"said more than {days:g} days ago", _oldest_first)

    def _findings(self) -> None:
        resolved = [item for item in self._free if item.type == FINDING.name and item.closed]
        self._take(resolved, "archive_findings", lambda _: "it is resolved")

    def _history(self) -> None:
        """Earlier states are no memories of their own: the memory is the current one, which stays. So they go, however new."""
        self._take(self._snapshot.history, "compress_agent_state",
                   lambda item: f"an earlier state of {item.actor}; the current one stays", _oldest_first)  # fmt: skip

    def _take(
        self, candidates: Iterable[Item], operation: Operation, reason: Callable[[Item], str],
        order: Callable[[Item], tuple[object, ...]] | None = None,
    ) -> None:  # fmt: skip
        """As many as the target needs, in their order."""
        left = sorted((item for item in candidates if (item.file, item.id) not in self._taken), key=order or _least_first)
        if not left:
            return
        new = [((item.file, item.id), Taken(item, operation, reason(item))) for item in left]
        before = dict(self._taken)

        @cache
        def freed(count: int) -> int:
            return self._freed({**before, **dict(new[:count])})

        count = _fewest(left, self._target - self._gained, self._target, freed)
        self._taken, self._gained = {**before, **dict(new[:count])}, freed(count)

    # What comes of it.

    def _freed(self, taken: Mapping[tuple[str, str], Taken]) -> int:
        records = sum(one.item.bytes for one in taken.values() if one.item.type != TURN.name)
        return records + sum(run.freed for run in self._runs(taken))

    def _runs(self, taken: Mapping[tuple[str, str], Taken]) -> Iterator[Run]:
        chosen = {memory_id: one.operation for (file, memory_id), one in taken.items() if file == TURN.file}
        for turns in _unbroken(self._turns, chosen):
            run = self._summarised(turns)
            if run.summary or all(chosen[turn.id] == "remove_decayed" for turn in turns):
                yield run
            else:
                # The old ones stay; what has decayed goes all the same.
                decayed = {turn.id for turn in turns if chosen[turn.id] == "remove_decayed"}
                yield from (self._summarised(part) for part in _unbroken(turns, decayed))

    def _summarised(self, turns: Sequence[Item]) -> Run:
        """With no summary where that would not be smaller."""
        place = turns[0].start, turns[-1].end
        if place not in self._known:
            run = Run(tuple(turns))
            with_summary = run.with_text(self._extractive.summary(turns, run.bytes))
            self._known[place] = with_summary if with_summary.freed > 0 else run
        return self._known[place]

    def _say_why_the_rest_stays(self) -> None:
        gone = {turn.id for run in self._runs(self._taken) for turn in run.turns}
        for key, one in list(self._taken.items()):
            if one.item.type == TURN.name and one.item.id not in gone:
                del self._taken[key]
                self._kept[one.item.id] = _NOT_SMALLER
        for item in self._free:
            if (item.file, item.id) not in self._taken and item.id not in self._kept:
                self._kept[item.id] = self._why(item)

    def _why(self, item: Item) -> str:
        below, days = self._snapshot.decayed_below, self._policy.old_conversation_days
        if item.type == RELATIONSHIP.name and item.priority < below:
            return "what it relates stays"
        if item.priority < below or (item.type == FINDING.name and item.closed):
            return _NOT_NEEDED
        if item.type == TURN.name:
            return _NOT_NEEDED if _is_older(item, self._now, days) else f"neither decayed nor older than {days:g} days"
        return f"its priority is not below {below:g}"


def _fewest(items: Sequence[Item], missing: int, target: int, freed: Callable[[int], int]) -> int:
    """How many of the first items reach the target, which summaries make a little more than their bytes say; all if none do."""
    guess, size = 0, 0
    while guess < len(items) and size < missing:
        size += items[guess].bytes
        guess += 1
    known = 0
    while freed(guess) < target:
        if guess == len(items):
            return guess
        known, guess = guess, min(len(items), guess + 1 + guess // 4)
    # The more go the more is freed, but for a few bytes where a summary becomes longer: what is found does reach the target.
    return known + 1 + bisect_left(range(known + 1, guess), True, key=lambda count: freed(count) >= target)


def _unbroken(turns: Sequence[Item], chosen: Iterable[str]) -> Iterator[list[Item]]:
    """The chosen turns, those together that stand one behind the other with nothing between them."""
    wanted = chosen if isinstance(chosen, (set, dict)) else set(chosen)
    run: list[Item] = []
    for turn in turns:
        if run and (turn.id not in wanted or run[-1].end != turn.start):
            yield run
            run = []
        if turn.id in wanted:
            run.append(turn)
    if run:
        yield run


def _is_older(item: Item, now: datetime, days: float) -> bool:
    return item.at is not None and now - item.at > timedelta(days=days)


def _least_first(item: Item) -> tuple[object, ...]:
    return item.priority, item.at or _OLDEST, item.file, item.start


def _oldest_first(item: Item) -> tuple[object, ...]:
    return item.at or _OLDEST, item.file, item.start


def _day(item: Item) -> str:
    return f"{item.at:%Y-%m-%d}" if item.at else "an unknown day"


def _actions(made: CompactionPlan) -> Iterator[Action]:
    operations = {one.item.id: one.operation for one in made.taken if one.item.file == TURN.file}
    by_run = [action for run in made.runs for action in _run_actions(made, run, operations)]
    yield from (action for action in by_run if action.type == "remove_decayed")
    yield from (_action(made, [one]) for one in made.taken if one.operation == "remove_decayed" and one.item.file != TURN.file)
    yield from (action for action in by_run if action.type == "summarize_conversation")
    yield from (_action(made, [one]) for one in made.taken if one.operation == "archive_findings")
    agents: dict[str, list[Taken]] = {}
    for one in made.taken:
        if one.operation == "compress_agent_state":
            agents.setdefault(one.item.actor, []).append(one)
    for states in agents.values():
        yield _action(made, states)


def _action(made: CompactionPlan, group: Sequence[Taken]) -> Action:
    return Action(made.session, group[0].operation, tuple(one.item.id for one in group), group[0].reason,
                  sum(one.item.bytes for one in group))  # fmt: skip


def _run_actions(made: CompactionPlan, run: Run, operations: Mapping[str, Operation]) -> Iterator[Action]:
    """One for what has decayed and one for what is old; each bears its share of the summary."""
    decayed = [turn for turn in run.turns if operations[turn.id] == "remove_decayed"]
    old = [turn for turn in run.turns if operations[turn.id] != "remove_decayed"]
    for_old = run.freed * sum(turn.bytes for turn in old) // run.bytes
    instead = f"; in their place {run.turns[0].id} says in short what was said" if run.summary else ""
    if decayed:
        least, most = (f"{choose(turn.priority for turn in decayed):.2f}" for choose in (min, max))
        said = f"a priority of {least}" if least == most else f"priorities of {least} to {most}"
        reason = f"{said}, below {made.decayed_below:g}{instead}"
        yield Action(made.session, "remove_decayed", tuple(turn.id for turn in decayed), reason, run.freed - for_old)
    if old:
        days = f"on {_day(old[0])}" if _day(old[0]) == _day(old[-1]) else f"from {_day(old[0])} to {_day(old[-1])}"
        reason = f"said more than {made.old_conversation_days:g} days ago, {days}{instead}"
        yield Action(made.session, "summarize_conversation", tuple(turn.id for turn in old), reason, for_old)
