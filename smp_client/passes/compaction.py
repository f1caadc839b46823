"""Compaction: a session becomes smaller, and every memory that it evicts can be brought back.

Four operations, each only as far as the target asks for it: decayed memories, old conversation,
resolved findings, earlier states of agents. Memories that must be preserved are left out before any
of them begins, and every memory that stays has a reason. `plan` is pure; `compact` applies it: one
change evicts all of it into `archived/{session}/evicted-….tar.gz`.

Turns without a gap between them leave as a run, and a summary takes the place of the first.
Bringing back any turn of a run brings back the whole run, and removes its summary.
"""

from __future__ import annotations

import json
import math
import secrets
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from ..change.change import Change, Draft, Request, apply, replanned
from ..change.holdings import Holding, Place, holdings
from ..change.restore import removal
from ..disk.bundle import Manifest
from ..disk.scopes import ENDING, EVICTED, archived_scope
from ..disk.session_files import METADATA
from ..disk.usage import Size
from ..model.errors import Conflict, Invalid, MemoryNotFound, SMPError
from ..model.layout import is_file_id
from ..model.outcome import Action, Outcome
from ..model.policies import CompactionPolicy
from ..model.priority import PINNED, is_resolved
from ..model.record import (
    CONTENT_CAP_BYTES,
    DECISION,
    FINDING,
    PREFERENCE,
    RELATIONSHIP,
    STATE_HISTORY,
    TURN,
    check_memory_id,
    is_memory_id,
    kind_of_file,
    state_history,
    type_of,
)  # fmt: skip
from ..model.times import EPOCH, render_time, time_at, time_of
from ..text.edits import Span, spans, value_of
from ..text.fingerprint import hash_of, summary_hash
from ..text.format import format_of
from ..text.markdown import render_turn
from ..text.values import Value
from .summarise import CommandFailed, Extractive, by_command, references

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..memory import Memory
    from ..session import Session

Operation = Literal["remove_decayed", "summarize_conversation", "archive_findings",
                    "compress_agent_state"]  # in this order  # fmt: skip
SUMMARY, SUMMARIZES = "summary", "summarizes"  # type of a turn that stands for others, its field
STATE, ARTIFACT = "agent_state", "artifact"
_OLDEST = datetime.min.replace(tzinfo=UTC)
_EVICTED: tuple[Place, ...] = ("evicted",)
_NOTES_BYTES = 200  # by which the heads of the files, and the metadata, become longer at most
_ALL = 1 << 62  # a target that no session reaches


# The plan.


class Item(NamedTuple):
    """A memory, or an earlier state of an agent, as it stands in its file."""

    id: str
    type: str
    file: str
    start: int
    end: int  # with the blank lines behind it
    hash: str
    priority: float  # as of now
    at: datetime | None  # when it was made
    used: datetime | None  # when it was last made, changed or read
    pinned: bool = False
    closed: bool = False  # a decision that is closed, a finding that is resolved
    explicit: bool = False  # a preference that somebody has stated
    is_summary: bool = False
    is_open: bool = False  # the last of its file, by another writer: a part of it may be on its way
    is_double: bool = False  # another record of its file has its id
    actor: str = ""
    text: str = ""
    refs: tuple[str, ...] = ()  # the memories that a turn refers to; the two ends of a relationship

    @property
    def bytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Snapshot:
    """A session at one moment."""

    session: str
    items: Sequence[Item]  # in the order of their files
    decayed_below: float = 0.3
    history: Sequence[Item] = ()  # earlier states of agents


class Taken(NamedTuple):
    """A memory that goes, and why."""

    item: Item
    operation: Operation
    reason: str


@dataclass(frozen=True)
class Run:
    """Turns without a gap that go together, and their summary, if that is smaller."""

    turns: tuple[Item, ...]
    summary: bytes = b""

    @property
    def bytes(self) -> int:
        return self.turns[-1].end - self.turns[0].start

    @property
    def freed(self) -> int:
        return self.bytes - len(self.summary)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(turn.hash for turn in self.turns)

    def with_text(self, text: str) -> Run:
        """Return the run with this summary, a turn with the number and the time of the first."""
        first, last = self.turns[0], self.turns[-1]
        assert first.at is not None
        refs = references(self.turns)
        value: dict[str, Value] = {
            "id": first.id, "turn": int(first.id.removeprefix("turn-")), "speaker": "smp",
            "timestamp": render_time(first.at), "type": SUMMARY,
            **({"memory_refs": [*refs]} if refs else {}),
            SUMMARIZES: {"first": first.id, "last": last.id, "turns": len(self.turns)},
            "content": text,
        }  # fmt: skip
        return replace(self, summary=render_turn(value))


@dataclass(frozen=True)
class CompactionPlan:
    """The memories that go, the summaries that come, and why each other memory stays."""

    session: str
    target_bytes: int
    taken: tuple[Taken, ...] = ()
    runs: tuple[Run, ...] = ()  # of the turns in `taken`
    kept: Mapping[str, str] = field(default_factory=dict)  # by id
    kept_bytes: Mapping[str, int] = field(default_factory=dict)
    decayed_below: float = 0.3

    @property
    def bytes_freed(self) -> int:
        records = sum(one.item.bytes for one in self.taken if one.item.type != TURN.name)
        return records + sum(run.freed for run in self.runs)

    @property
    def missing_bytes(self) -> int:
        return max(0, self.target_bytes - self.bytes_freed)

    def actions(self) -> list[Action]:
        """Return one action for each run and each record, and one for the states of each agent."""
        turns = {one.item.id: one for one in self.taken if one.item.file == TURN.file}
        by_run = [action for run in self.runs for action in self._run_actions(run, turns)]
        others = [one for one in self.taken if one.item.file != TURN.file]
        agents: dict[str, list[Taken]] = {}
        for one in others:
            if one.operation == "compress_agent_state":
                agents.setdefault(one.item.actor, []).append(one)
        singles = ([one] for one in others if one.operation != "compress_agent_state")
        found = [*by_run, *map(self._action, singles), *map(self._action, agents.values())]
        return sorted(found, key=lambda action: get_args(Operation).index(action.type))

    def _action(self, group: Sequence[Taken], reason: str = "", freed: int | None = None) -> Action:
        freed = sum(one.item.bytes for one in group) if freed is None else freed
        about, kinds = zip(*((one.item.id, type_of(one.item.type)) for one in group), strict=True)
        reason = reason or group[0].reason
        return Action(self.session, group[0].operation, about, reason, freed, kinds=kinds)

    def _run_actions(self, run: Run, taken: Mapping[str, Taken]) -> Iterator[Action]:
        """Yield one action for decayed turns and one for old ones, each with its share of bytes."""
        turns = [taken[turn.id] for turn in run.turns]
        decayed = [one for one in turns if one.operation == "remove_decayed"]
        old = [one for one in turns if one.operation != "remove_decayed"]
        for_old = run.freed * sum(one.item.bytes for one in old) // run.bytes
        place = f"; in their place {run.turns[0].id} says in short what was said"
        instead = place if run.summary else ""
        if decayed:
            ranked = sorted(one.item.priority for one in decayed)
            least, most = f"{ranked[0]:.2f}", f"{ranked[-1]:.2f}"
            several = f"priorities of {least} to {most}"
            shown = several if least != most else f"a priority of {least}"
            reason = f"{shown}, below {self.decayed_below:g}{instead}"
            yield self._action(decayed, reason, run.freed - for_old)
        if old:
            first, last = (f"{one.item.at:%Y-%m-%d}" for one in (old[0], old[-1]))
            days = f"on {first}" if first == last else f"from {first} to {last}"
            yield self._action(old, f"{old[0].reason}, {days}{instead}", for_old)

    def why_short(self, total_bytes: int = 0, *, is_done: bool = False) -> list[str]:
        """Return why a session of this size misses the target; nothing where it is reached."""
        if not self.missing_bytes:
            return []
        counts, sizes = Counter(self.kept.values()), Counter[str]()
        for memory_id, reason in self.kept.items():
            sizes[reason] += self.kept_bytes.get(memory_id, 0)
        staying = sum(sizes.values())
        why = "it holds no memory" if not self.taken else "no memory is left"
        if self.kept:
            each = "; ".join(f"{counts[reason]:,} with {size:,} bytes: {reason}"
                             for reason, size in sizes.most_common())  # fmt: skip
            memories, stay = ("memory", "stays") if len(self.kept) == 1 else ("memories", "stay")
            why = f"{len(self.kept):,} {memories} with {staying:,} bytes {stay} ({each})"
        if (rest := total_bytes - self.bytes_freed - staying) > 0:
            which = f"the other {rest:,}" if self.kept or self.taken else f"its {rest:,}"
            has_summary = any(run.summary for run in self.runs)
            summaries = ", summaries of what was said" if has_summary else ""
            why += f"; {which} bytes are metadata{summaries} and the heads of the files"
        freed = f"{self.bytes_freed:,} {'were freed' if is_done else 'can be'}"
        return [f"{self.session}: {self.target_bytes:,} bytes were to be freed, {freed}: {why}"]


def preserved(item: Item, policy: CompactionPolicy, now: datetime) -> str | None:
    """Return why a memory stays whatever the target is; None where it may go."""
    type, above = item.type, policy.preserved_above
    said_h, used_h = policy.recent_conversation_hours, policy.recent_access_hours
    age_h, idle_h = ((now - (at or now)) / timedelta(hours=1) for at in (item.at, item.used))
    rules = (
        (type == ARTIFACT, "an artifact"),
        (type == STATE, "the current state of an agent"),
        (item.is_summary, "it stands for turns that were taken out"),
        (item.is_open, "the last in its file, which somebody may still be writing"),
        (item.is_double, "its id stands there more than once"),
        (not is_memory_id(item.id), "it could not be asked for by its id, were it taken out"),
        (item.pinned, "it is pinned"),
        (type == DECISION.name and not item.closed, "a decision that is not closed"),
        (type == FINDING.name and not item.closed, "a finding that is not resolved"),
        (type == PREFERENCE.name and item.explicit, "an explicit preference"),
        (not (item.at and item.used), "it has no time, so that nobody can tell how old it is"),
        (type == TURN.name and age_h < said_h, f"said within the last {said_h:g} hours"),
        (item.priority > above, f"its priority is above {above:g}"),
        (idle_h < used_h, f"made, changed or read within the last {used_h:g} hours"),
    )
    return next((reason for holds, reason in rules if holds), None)


def plan(
    snapshot: Snapshot, policy: CompactionPolicy, now: datetime, target_bytes: int
) -> CompactionPlan:
    """Return as few memories as reach the target; all that may go where none do."""
    return _Planner(snapshot, policy, now, target_bytes).plan()


class _Planner:
    def __init__(
        self, snapshot: Snapshot, policy: CompactionPolicy, now: datetime, target: int
    ) -> None:
        self._snapshot, self._policy, self._now, self._target = snapshot, policy, now, target
        self._extractive = Extractive()
        self._summarised: dict[tuple[int, int], Run] = {}  # by the first byte and the last
        reasons = {item.id: preserved(item, policy, now) for item in snapshot.items}
        self._kept = {name: reason for name, reason in reasons.items() if reason is not None}
        self._free = [item for item in snapshot.items if reasons[item.id] is None]
        # A turn that stays breaks a run.
        self._turns = [item for item in snapshot.items if item.type == TURN.name]
        self._taken: dict[tuple[str, str], Taken] = {}
        self._gained = 0

    def plan(self) -> CompactionPlan:
        below, days = self._snapshot.decayed_below, self._policy.old_conversation_days
        decayed = [item for item in self._free if item.priority < below]
        related = [item for item in decayed if item.type == RELATIONSHIP.name]
        self._take("remove_decayed", (item for item in decayed if item.type != RELATIONSHIP.name),
                   lambda item: f"its priority of {item.priority:.2f} is below {below:g}")
        gone = {memory_id for _, memory_id in self._taken}
        self._take("remove_decayed", (item for item in related if gone & {*item.refs}),
                   lambda item: f"its priority of {item.priority:.2f} is below {below:g}, and"
                                f" {' and '.join(sorted(gone & {*item.refs}))} goes too")
        self._take("summarize_conversation", (item for item in self._free if self._is_old(item)),
                   lambda _: f"said more than {days:g} days ago", _oldest_first)  # fmt: skip
        resolved = (item for item in self._free if item.type == FINDING.name and item.closed)
        self._take("archive_findings", resolved, lambda _: "it is resolved")
        # Earlier states go however new they are: the memory is the current one, which stays.
        why = "an earlier state of {}; the current one stays"
        self._take("compress_agent_state", self._snapshot.history,
                   lambda item: why.format(item.actor), _oldest_first)
        runs = tuple(self._runs(self._taken))
        self._explain({turn.id for run in runs for turn in run.turns})
        sizes = {item.id: item.bytes for item in self._snapshot.items if item.id in self._kept}
        taken = tuple(sorted(self._taken.values(), key=lambda one: (one.item.file, one.item.start)))
        kept = self._kept
        return CompactionPlan(self._snapshot.session, self._target, taken, runs, kept, sizes, below)

    def _take(
        self, operation: Operation, candidates: Iterable[Item], reason: Callable[[Item], str],
        order: Callable[[Item], tuple[Any, ...]] = lambda one: (one.priority, *_oldest_first(one)),
    ) -> None:  # fmt: skip
        """Take as many candidates as the target needs, in their order."""
        left = [item for item in candidates if (item.file, item.id) not in self._taken]
        if not left or self._gained >= self._target:
            return
        left.sort(key=order)
        new = [((item.file, item.id), Taken(item, operation, reason(item))) for item in left]
        before = dict(self._taken)

        @cache
        def freed(count: int) -> int:
            taken = {**before, **dict(new[:count])}
            records = sum(one.item.bytes for one in taken.values() if one.item.type != TURN.name)
            return records + sum(run.freed for run in self._runs(taken))

        count = _fewest(left, self._target - self._gained, self._target, freed)
        self._taken, self._gained = {**before, **dict(new[:count])}, freed(count)

    def _runs(self, taken: Mapping[tuple[str, str], Taken]) -> Iterator[Run]:
        chosen = {memory_id: one.operation for (file, memory_id), one in taken.items()
                  if file == TURN.file}
        for turns in _unbroken(self._turns, chosen.keys()):
            run = self._run(turns)
            if run.summary or all(chosen[turn.id] == "remove_decayed" for turn in turns):
                yield run
            else:
                # Old turns stay where their summary is no smaller; decayed ones go all the same.
                decayed = {turn.id for turn in turns if chosen[turn.id] == "remove_decayed"}
                yield from map(self._run, _unbroken(turns, decayed))

    def _run(self, turns: Sequence[Item]) -> Run:
        place = turns[0].start, turns[-1].end
        if place not in self._summarised:
            run = Run(tuple(turns))
            with_summary = run.with_text(self._extractive.summary(turns, run.bytes))
            self._summarised[place] = with_summary if with_summary.freed > 0 else run
        return self._summarised[place]

    def _explain(self, gone: set[str]) -> None:
        """Say of every memory that may go and stays why it stays."""
        below, days = self._snapshot.decayed_below, self._policy.old_conversation_days
        for key, one in list(self._taken.items()):
            if one.item.type == TURN.name and one.item.id not in gone:
                del self._taken[key]
                self._kept[one.item.id] = "a summary of it would not be smaller"
        for item in self._free:
            if (item.file, item.id) in self._taken or item.id in self._kept:
                continue
            if item.type == RELATIONSHIP.name and item.priority < below:
                self._kept[item.id] = "what it relates stays"
            elif (item.priority < below or (item.type == FINDING.name and item.closed)
                  or self._is_old(item)):
                self._kept[item.id] = "the target was reached without it"
            elif item.type == TURN.name:
                self._kept[item.id] = f"neither decayed nor older than {days:g} days"
            else:
                self._kept[item.id] = f"its priority is not below {below:g}"

    def _is_old(self, item: Item) -> bool:
        days = timedelta(days=self._policy.old_conversation_days)
        return item.type == TURN.name and item.at is not None and self._now - item.at > days


def _fewest(items: Sequence[Item], missing: int, target: int, freed: Callable[[int], int]) -> int:
    """Return how many of the first items reach the target; all of them where none do."""
    guess, size = 0, 0
    while guess < len(items) and size < missing:
        size += items[guess].bytes
        guess += 1
    known = 0
    while freed(guess) < target:  # since the summaries take up room
        if guess == len(items):
            return guess
        known, guess = guess, min(len(items), guess + 1 + guess // 4)
    # More items free more, but for a few bytes where a summary grows.
    counts = range(known + 1, guess)
    return known + 1 + bisect_left(counts, True, key=lambda count: freed(count) >= target)


def _unbroken(turns: Sequence[Item], chosen: Iterable[str]) -> Iterator[list[Item]]:
    """Yield the chosen turns, those together that have nothing between them."""
    wanted = set(chosen)
    run: list[Item] = []
    for turn in turns:
        if run and (turn.id not in wanted or run[-1].end != turn.start):
            yield run
            run = []
        if turn.id in wanted:
            run.append(turn)
    if run:
        yield run


def _oldest_first(item: Item) -> tuple[Any, ...]:
    return item.at or _OLDEST, item.file, item.start


# The session as the plan needs it.


def _planned(session: Session, policy: CompactionPolicy, target_bytes: int) -> CompactionPlan:
    """Plan for the session as it is now. Raises Conflict where somebody edits a file just now."""
    now = session._now()
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    return plan(_look(session), policy, now, target_bytes)


def _look(session: Session) -> Snapshot:
    items, files, decayed_below = session._own_asker().ask(_question)
    found: list[Item] = []
    for file, group in groupby(items, key=lambda item: item.file):
        of_file = list(group)
        if any(kind.file == file for kind in session.kinds):
            size, checksum = files[file]
            content = session.scope.read(file)[:size]
            if (len(content), zlib.crc32(content)) != (size, checksum):
                raise Conflict(f"{file} of {session.id} was edited just now; nothing was changed.",
                               session_id=session.id)
            is_ours = format_of(kind_of_file(file)).is_ours(content, of_file[-1].start)
            of_file[-1] = of_file[-1]._replace(is_open=not is_ours)
            following = [*(item.start for item in of_file[1:]), size]
            of_file = [item._replace(end=start) if not content[item.end : start].strip() else item
                       for item, start in zip(of_file, following, strict=True)]  # fmt: skip
        found += of_file
    return Snapshot(session.id, found, decayed_below, list(_histories(session)))


def _question(view: View) -> tuple[list[Item], dict[str, tuple[int, int]], float]:
    from ..ask.priorities import source
    from ..index.doubles import NAMED

    joined, columns = source(view)
    read = "a.last" if view.index.noted else "NULL"
    same = "o.scope = m.scope AND o.id = m.id AND +o.file = m.file AND o.key != m.key"
    twice = f"EXISTS (SELECT 1 FROM memories o WHERE {same})"
    asked = (f"SELECT m.id, m.type, m.file, m.start, m.end, m.hash, {columns.priority}, m.standing,"
             f" m.actor, m.data, {twice}, m.at, m.accessed, {read} {joined}"
             f" WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start")
    (scope,) = view.scopes
    files = {file: (state.size, state.checksum)
             for (_, file), state in view.index.files(scope).items() if state.problem is None}
    rows = view.index.connection.execute(asked, (scope,))
    items = [_item(row[:11], row[11:]) for row in rows if row[2] in files]
    return items, files, view.policy.decayed_below


def _item(row: tuple[Any, ...], times: Sequence[int | None]) -> Item:
    memory_id, type, file, start, end, hash, priority, standing, actor, data, is_double = row
    value: dict[str, Any] = json.loads(data) if type not in (STATE, ARTIFACT) else {}
    uses = (*map(time_at, times), time_of(value.get("updated_at")))
    is_turn, is_link = type == TURN.name, type == RELATIONSHIP.name
    refs = [value.get("source"), value.get("target")] if is_link else value.get("memory_refs")
    return Item(
        memory_id, type, file, start, end, hash, priority, uses[0],
        max((at for at in uses if at is not None), default=None),
        pinned=standing == PINNED, closed=not is_turn and is_resolved(value),
        explicit=str(value.get("confidence")).lower() == "explicit",
        is_summary=is_turn and value.get("type") == SUMMARY and SUMMARIZES in value,
        is_double=bool(is_double), actor=actor,
        text=str(value.get(TURN.text, "")) if is_turn else "",
        refs=tuple(str(ref) for ref in refs) if isinstance(refs, list) else (),
    )  # fmt: skip


def _histories(session: Session) -> Iterator[Item]:
    """Yield the earlier states of every agent."""
    scope = session.scope
    for name in sorted(scope.tree.sizes(scope.path(STATE_HISTORY))):
        agent = name.removesuffix(".yaml")
        if not name.endswith(".yaml") or not is_file_id(agent):
            continue
        kind, start = state_history(agent), 0
        try:
            states = spans(kind, scope.read(kind.file)).records
        except SMPError:
            continue  # a history that cannot be read stays; whoever asks for it hears why
        counts = Counter(span.id for span in states)
        for span in states:
            at, end = time_of(span.value.get("timestamp")), start + len(span.raw)
            if counts[span.id] == 1 and span.id:
                place = span.id, kind.name, kind.file, start, end, hash_of(span.value)
                yield Item(*place, 0.0, at, at, actor=agent)
            start = end


# Compacting.


def trigger(
    size: Size, growth_bytes_per_day: float, policy: CompactionPolicy
) -> tuple[float, str] | None:
    """Return by how many percent a session must become smaller now, and why, or None."""
    if not policy.automatic or size.quota_bytes <= 0:
        return None
    used_pct = 100 * size.total_bytes / size.quota_bytes
    forced = (policy.forced_at_pct, policy.forced_reduction_pct)
    for at_pct, reduction_pct in (forced, (policy.gentle_at_pct, policy.gentle_reduction_pct)):
        if used_pct >= at_pct:
            why = f"it holds {used_pct:.1f} % of its quota, which is {at_pct:g} % or more"
            return reduction_pct, why
    growth, left = growth_bytes_per_day, size.quota_bytes - size.total_bytes
    days = left / growth if growth > 0 else math.inf
    if policy.predict_days > 0 and days <= policy.predict_days:
        why = f"at the growth of the last day it would be full in {days:.1f} days"
        return policy.gentle_reduction_pct, why
    return None


def growth_bytes_per_day(session: Session) -> int:
    """Return how many bytes were added within the last 24 hours."""

    def question(view: View) -> int:
        since = (view.now - timedelta(days=1) - EPOCH) // timedelta(microseconds=1)
        asked = "SELECT COALESCE(SUM(end - start), 0) FROM memories WHERE scope = ? AND at >= ?"
        return int(view.index.connection.execute(asked, (session.id, since)).fetchone()[0])

    return session._own_asker().ask(question)


def policy_of(session: Session) -> CompactionPolicy:
    """Return the policy with the session's own settings. Unreadable metadata leave it as it is."""
    try:
        metadata = session.metadata()
    except SMPError:
        metadata = {}  # a full session must become smaller all the same
    return session.scope.options.compaction.for_session(metadata)


def estimate(session: Session) -> int:
    """Return how many bytes compaction could free at most."""
    return replanned(lambda: _planned(session, policy_of(session), _ALL)).bytes_freed


def compact(
    session: Session, *, reduction_pct: float | None = None, dry_run: bool = False
) -> Outcome:
    """Free so many percent of the session, or as much as may go. A target missed is a problem."""
    policy = policy_of(session)
    share = policy.forced_reduction_pct if reduction_pct is None else reduction_pct
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 100:
        share_of = "a session can become smaller by more than 0 and at most 100 percent"
        raise Invalid([f"{share_of}, not by {share!r}"])
    before, outcome = session.size().total_bytes, Outcome(dry_run=dry_run)
    target = math.ceil(before * share / 100)
    wanted = target + _NOTES_BYTES
    if dry_run:
        made = replanned(lambda: _planned(session, policy, wanted))
        after = before - made.bytes_freed
    else:
        texts = _by_command(session, policy, wanted, outcome.notes) if policy.summarizer else {}
        with session.scope.undisturbed("compacting"):
            session.scope.require()
            made = replanned(lambda: _evict(session, policy, wanted, texts, outcome))
            _note_in_metadata(session, outcome)
        after = session.size().total_bytes
    made = replace(made, target_bytes=target)
    outcome.actions = made.actions()
    if made.missing_bytes and before - after < target:
        outcome.problems += made.why_short(before, is_done=not dry_run)
    sizes = {"target_bytes": target, "before_bytes": before, "after_bytes": after}
    outcome.counts.update(sizes, bytes_freed=before - after)
    return outcome


def _evict(
    session: Session, policy: CompactionPolicy, target: int, texts: Mapping[tuple[str, ...], str],
    outcome: Outcome,
) -> CompactionPlan:  # fmt: skip
    """Plan and apply once. The caller holds the upkeep lock."""
    made = _planned(session, policy, target)
    runs = tuple(run.with_text(texts[run.key]) if run.summary and run.key in texts else run
                 for run in made.runs)
    made = replace(made, runs=runs)
    if not made.taken:
        return made
    now, why = session._now(), f"compaction, to free {target:,} bytes"
    name = f"{EVICTED}{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}{ENDING}"
    path = f"{archived_scope(session.id)}/{name}"
    draft = Draft(path, Manifest("evicted", session.id, render_time(now), "smp", why))
    kept = apply(session.scope, Request(list(_changes(made)), draft, doing="compacting")).kept
    if kept:
        copies = [Change(one.item.file, one.item.id, one.item.hash, None, container=path)
                  for one in made.taken if one.item.id in kept]  # fmt: skip
        apply(session.scope, Request(copies, doing="compacting"))
        outcome.notes += [f"{name} was changed meanwhile, and stays" for name in sorted(kept)]
    if texts and any(run.summary and run.key not in texts for run in runs):
        outcome.notes.append("the conversation changed meanwhile: some turns have our own summary")
    return made


def _changes(made: CompactionPlan) -> Iterator[Change]:
    """Yield the change that evicts each memory; a summary takes the place of a run's first turn."""
    instead: dict[str, dict[str, str]] = {}  # by turn: id and hash of its summary
    summaries = {run.turns[0].id: run.summary for run in made.runs if run.summary}
    for run in made.runs:
        if run.summary:
            hash = summary_hash(value_of(TURN, run.summary))
            facts = {"summary": run.turns[0].id, "summary_hash": hash}
            instead |= dict.fromkeys((turn.id for turn in run.turns), facts)
    for item, operation, reason in made.taken:
        is_turn, facts = item.file == TURN.file, {"operation": operation, "reason": reason}
        new = summaries.get(item.id) if is_turn else None
        facts |= instead.get(item.id, {}) if is_turn else {}
        yield Change(item.file, item.id, item.hash, new, facts=facts)


def _by_command(
    session: Session, policy: CompactionPolicy, target: int, notes: list[str]
) -> dict[tuple[str, ...], str]:
    """Return the command's summary of each run. No lock is held meanwhile."""
    texts: dict[tuple[str, ...], str] = {}
    try:
        for run in replanned(lambda: _planned(session, policy, target)).runs:
            if run.summary:
                text = by_command(policy.summarizer, run.turns, policy.summarizer_timeout_s)
                texts[run.key] = _usable(run, text)
    except CommandFailed as failure:
        notes.append(f"the summarizer {policy.summarizer[0]!r} was not used: {failure}")
    return texts


def _usable(run: Run, text: str) -> str:
    """Return the text if a turn with it is smaller than the turns and reads back equal."""
    summary = run.with_text(text).summary
    turns = format_of(TURN).parse(summary).records
    if len(text.encode()) > CONTENT_CAP_BYTES // 2 or len(summary) * 2 > run.bytes:
        raise CommandFailed("what it printed is longer than half of what was said")
    if len(turns) != 1 or turns[0].value.get("content") != text:
        raise CommandFailed("what it printed cannot be kept in a conversation")
    return text


def _note_in_metadata(session: Session, outcome: Outcome) -> None:
    if not session.scope.tree.exists(session.scope.path(METADATA)):
        return
    at, quota = render_time(session._now()), session.quota_bytes()
    try:
        for _ in range(2):  # again: the first note may make the metadata longer
            total = session.scope.usage.total()
            used = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1)}
            session.update_metadata(storage={**used, "last_compaction": at})
    except SMPError as error:  # the session is smaller all the same
        outcome.notes.append(f"the metadata do not say so: {error}")


# Evicted memories.


@dataclass(frozen=True)
class Evicted:
    """A memory that compaction has evicted, and that can be brought back."""

    id: str
    type: str
    session: str
    file: str
    timestamp: str | None
    evicted_at: str
    operation: str
    reason: str
    size_bytes: int
    text: str = ""  # only where that was asked for


def evicted(session: Session, *, texts: bool = False) -> list[Evicted]:
    """Return the evicted memories of a session, the oldest first, if asked for with their texts."""
    return evicted_of(session.memory, session.id, texts=texts)


def evicted_of(memory: Memory, name: str, *, texts: bool = False) -> list[Evicted]:
    """Return the evicted memories of a session that may be archived.

    A bundle that cannot be read is left out: `smp check` reports it.
    """
    with memory._scope(name).answering("listing the evicted memories"):
        return [_as_evicted(one, texts=texts) for one in holdings(memory, name, _EVICTED)]


def _as_evicted(one: Holding, *, texts: bool) -> Evicted:
    stamp = one.value.get("timestamp")
    when = stamp if isinstance(stamp, str) else None
    at, operation, reason = (str(one.facts.get(fact)) for fact in ("at", "operation", "reason"))
    text = str(one.value.get(kind_of_file(one.file).text, "")) if texts else ""
    return Evicted(one.id, type_of(one.type), one.session, one.file, when, at, operation, reason,
                   len(one.raw), text)  # fmt: skip


def bring_back(
    session: Session, ids: str | Iterable[str] | None = None, *, dry_run: bool = False
) -> Outcome:
    """Bring evicted memories, or these of them, back into their files, within the quota.

    A memory whose id another has by now stays evicted, and is a problem; the others come back.
    """
    several = [ids] if isinstance(ids, str) else ids
    wanted = None if several is None else {check_memory_id(one) for one in several}
    if dry_run:
        return _bring_back(session, wanted, dry_run=True)
    with session.scope.undisturbed("bringing back evicted memories"):
        session.scope.require()
        return replanned(lambda: _bring_back(session, wanted))


def _bring_back(session: Session, wanted: set[str] | None, *, dry_run: bool = False) -> Outcome:
    outcome = Outcome(dry_run=dry_run)
    oldest_first = list(holdings(session.memory, session.id, _EVICTED, outcome.problems))
    held = sorted(oldest_first, key=lambda one: one.container, reverse=True)
    if missing := sorted((wanted or set()) - {one.id for one in held}):
        problem = f"Compaction has not taken {', '.join(missing[:5])} out of {session.id}."
        advice = f"smp compact {session.id} --list, or session.evicted(), lists them."
        raise MemoryNotFound(problem, session_id=session.id, advice=advice)
    runs = {_run_of(one) for one in held if wanted is None or one.id in wanted} - {None}
    chosen = [one for one in held if wanted is None or one.id in wanted or _run_of(one) in runs]
    changes: list[Change] = []
    for file in dict.fromkeys(one.file for one in chosen):
        content = session.scope.read(file)
        standing = {span.id: span for span in spans(kind_of_file(file), content).records if span.id}
        predecessors = {one.id: one.behind for one in held if one.file == file}
        back = _returnable([one for one in chosen if one.file == file], standing, outcome.problems)
        there = standing.keys() | {one.id for one in back}
        for one in back:
            behind, passed = one.behind, set[str]()
            while behind in predecessors and behind not in there and behind not in passed:
                passed.add(behind)
                behind = predecessors[behind]
            span = standing.get(one.id)
            if span is None or hash_of(span.value) != one.hash:
                old = hash_of(span.value) if span else None
                changes.append(Change(file, one.id, old, one.raw, behind))
            changes.append(removal(one))
        summaries = {span.id: span for one in back if (span := _summary(one, standing))}
        left = summaries.keys() - {one.id for one in back}  # whose first turn was deleted since
        changes += [Change(file, name, hash_of(summaries[name].value), None) for name in left]
        if back:
            about, kinds = tuple(one.id for one in back), tuple(type_of(one.type) for one in back)
            size = -sum(len(one.raw) for one in back)
            action = Action(session.id, "bring_back", about, f"back into {file}", size, kinds=kinds)
            outcome.actions.append(action)
    if not dry_run:
        request = Request(changes, quota_bytes=session.quota_bytes(), doing="bringing back")
        kept = apply(session.scope, request).kept
        outcome.problems += [f"{name} was changed meanwhile, and stays as it is" for name in kept]
    return outcome


def _returnable(chosen: Sequence[Holding], standing: Mapping[str, Span],
                problems: list[str]) -> list[Holding]:
    """Return the memories that can come back: those whose id no other memory has."""
    back: dict[str, Holding] = {}
    for one in chosen:
        span = standing.get(one.id)
        if one.id in back:
            problems.append(f"{one.id} was evicted twice: the older copy stays in {one.container}.")
        elif span is None or span is _summary(one, standing) or hash_of(span.value) == one.hash:
            back[one.id] = one
        else:
            problem = f"was not brought back: another one stands in {one.file} by now."
            problems.append(f"{one.id} {problem}")
    return [*back.values()]


def _run_of(one: Holding) -> tuple[str, str, str] | None:
    """Return the bundle, and the id and hash of the summary, that the turns of a run share."""
    if "summary" not in one.facts:
        return None
    return one.container, str(one.facts["summary"]), str(one.facts.get("summary_hash"))


def _summary(one: Holding, standing: Mapping[str, Span]) -> Span | None:
    """Return the summary of the memory's run; None where it is gone, or was changed."""
    run = _run_of(one)
    span = standing.get(run[1]) if run else None
    return span if run and span and summary_hash(span.value) == run[2] else None
