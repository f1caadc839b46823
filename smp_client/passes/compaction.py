"""Compaction: a session becomes smaller, and every memory that it evicts can be brought back.

Four operations, each only as far as the target asks for it: decayed memories, old conversation,
resolved findings, earlier states of agents. Memories that must be preserved are left out before any
of them begins, and every memory that stays has a reason. `plan` is pure; `compact` applies it: one
change evicts all of it into `archived/{session}/evicted-….tar.gz`.

Turns that follow each other leave as a run, and a summary takes the place of the first. Bringing
back any turn of a run brings back the whole run, and removes its summary; see change/restore.py.
"""

from __future__ import annotations

import json
import math
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..change.change import Change, Draft, Request, apply, replanned
from ..change.holdings import in_file
from ..disk.bundle import Manifest
from ..disk.scopes import ENDING, EVICTED, archived_scope
from ..disk.session_files import METADATA
from ..disk.usage import Size
from ..model.errors import Invalid, SMPError
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
    is_memory_id,
    type_of,
)  # fmt: skip
from ..model.times import EPOCH, render_time, time_at, time_of
from ..text.edits import value_of
from ..text.fingerprint import summary_hash
from ..text.format import format_of
from ..text.markdown import render_turn
from ..text.values import Value
from .summarise import CommandFailed, Line, by_command, references, summary

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import Session

DECAYED, OLD, RESOLVED, EARLIER = OPERATIONS = (
    "remove_decayed", "summarize_conversation", "archive_findings", "compress_agent_state",
)  # fmt: skip
SUMMARY, SUMMARIZES = "summary", "summarizes"  # type of a turn that stands for others, its field
STATE, ARTIFACT = "agent_state", "artifact"
_OLDEST = datetime.min.replace(tzinfo=UTC)
_NOTES_BYTES = 200  # by which the heads of the files, and the metadata, become longer at most
_ALL = 1 << 62  # a target that no session reaches


class Item(NamedTuple):
    """A memory, or an earlier state of an agent, as it stands in its file."""

    id: str
    type: str
    file: str
    start: int
    end: int
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

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.id


class Snapshot(NamedTuple):
    """A session at one moment."""

    session: str
    items: Sequence[Item]  # in the order of their files
    decayed_below: float = 0.3
    history: Sequence[Item] = ()  # earlier states of agents


class Taken(NamedTuple):
    """A memory that goes, and why."""

    item: Item
    operation: str
    reason: str


@dataclass(frozen=True)
class Run:
    """Turns that follow each other and go together, with their summary, if that is smaller."""

    turns: tuple[Item, ...]
    summary: bytes = b""

    @property
    def bytes(self) -> int:
        return sum(turn.bytes for turn in self.turns)

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
    taken: tuple[Taken, ...]
    runs: tuple[Run, ...]  # of the turns in `taken`
    kept: tuple[tuple[Item, str], ...]

    @property
    def bytes_freed(self) -> int:
        records = sum(one.item.bytes for one in self.taken if one.item.file != TURN.file)
        return records + sum(run.freed for run in self.runs)

    def actions(self) -> list[Action]:
        """Return one action for each run of turns, and one for the other records of each file."""
        by_key = {one.item.key: one for one in self.taken}
        found = [self._run_action(run, [by_key[turn.key] for turn in run.turns])
                 for run in self.runs]  # fmt: skip
        groups: dict[tuple[str, str], list[Taken]] = {}
        for one in self.taken:
            if one.item.file != TURN.file:
                groups.setdefault((one.operation, one.item.file), []).append(one)
        for (operation, _), group in groups.items():
            freed = sum(one.item.bytes for one in group)
            found.append(self._action(group, operation, group[0].reason, freed))
        return sorted(found, key=lambda action: OPERATIONS.index(action.type))

    def _run_action(self, run: Run, turns: Sequence[Taken]) -> Action:
        days = [f"{turn.at:%Y-%m-%d}" for turn in (run.turns[0], run.turns[-1])]
        when = f"on {days[0]}" if days[0] == days[1] else f"from {days[0]} to {days[1]}"
        decayed = sum(one.operation == DECAYED for one in turns)
        counts = [f"{decayed} decayed", f"{len(turns) - decayed} old"]
        why = ", ".join(count for count in counts if not count.startswith("0 "))
        instead = f"; {run.turns[0].id} sums them up" if run.summary else ""
        operation = DECAYED if decayed == len(turns) else OLD
        return self._action(turns, operation, f"said {when}: {why}{instead}", run.freed)

    def _action(self, group: Sequence[Taken], operation: str, reason: str, freed: int) -> Action:
        about = tuple(one.item.id for one in group)
        kinds = tuple(type_of(one.item.type) for one in group)
        return Action(self.session, operation, about, reason, freed, kinds=kinds)

    def why_short(self) -> str:
        """Return why the plan misses its target: the memories that stay, by their reasons."""
        sizes, counts = Counter[str](), Counter[str]()
        for item, reason in self.kept:
            sizes[reason] += item.bytes
            counts[reason] += 1
        each = (f"{counts[reason]:,} with {size:,} bytes: {reason}"
                for reason, size in sizes.most_common())  # fmt: skip
        why = f"these stay ({'; '.join(each)})" if sizes else "no other memory is there"
        short = f"{self.target_bytes:,} bytes were to be freed, {self.bytes_freed:,} can be"
        return f"{self.session}: {short}: {why}"


def preserved(item: Item, policy: CompactionPolicy, now: datetime) -> str | None:
    """Return why a memory stays whatever the target is; None where it may go."""
    type, above = item.type, policy.preserved_above
    said_h, used_h = policy.recent_conversation_hours, policy.recent_access_hours
    age_h, idle_h = ((now - (at or now)) / timedelta(hours=1) for at in (item.at, item.used))
    rules = (
        (type == ARTIFACT, "an artifact"),
        (type == STATE, "the current state of an agent"),
        (item.is_summary, "it stands for turns that were evicted"),
        (item.is_open, "the last in its file, which somebody may still be writing"),
        (item.is_double, "its id stands there more than once"),
        (not is_memory_id(item.id), "nobody could ask for it by its id"),
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
    reasons = {item.key: preserved(item, policy, now) for item in snapshot.items}
    free = [item for item in snapshot.items if reasons[item.key] is None]
    order = _candidates(snapshot, free, policy, now)
    turns = [item for item in snapshot.items if item.type == TURN.name]
    lines: dict[str, list[Line]] = {}

    def runs(count: int) -> Iterator[Run]:
        """Yield the runs of turns among the first candidates. A turn that stays breaks one."""
        chosen = {one.item.id: one.operation for one in order[:count] if one.item.file == TURN.file}
        for group in _unbroken(turns, chosen):
            run = Run(tuple(group))
            shorter = run.with_text(summary(group, run.bytes, lines))
            if shorter.freed > 0:
                yield shorter
                continue
            # Old turns stay where their summary is no smaller; decayed ones go all the same.
            decayed = [turn.id for turn in group if chosen[turn.id] == DECAYED]
            yield from (Run(tuple(part)) for part in _unbroken(group, decayed))

    def freed(count: int) -> int:
        records = sum(one.item.bytes for one in order[:count] if one.item.file != TURN.file)
        return records + sum(run.freed for run in runs(count))

    # Summaries take up room, so at least as many go as their bytes alone ask for.
    sizes = [0, *accumulate(one.item.bytes for one in order)]
    least = min(bisect_left(sizes, target_bytes), len(order))
    count = bisect_left(range(len(order)), target_bytes, lo=least, key=freed)
    made = tuple(runs(count))
    summed = {turn.id for run in made for turn in run.turns}
    taken = [one for one in order[:count] if one.item.file != TURN.file or one.item.id in summed]
    taken.sort(key=lambda one: (one.item.file, one.item.start))
    gone, refused = {one.item.key for one in taken}, {one.item.key for one in order[:count]}
    wanted = {one.item.key for one in order}
    kept: list[tuple[Item, str]] = []
    for item in snapshot.items:
        if (reason := reasons[item.key]) is None and item.key not in gone:
            if item.key in refused:
                reason = "a summary of it would not be smaller"
            elif item.key in wanted:
                reason = "the target was reached without it"
            else:
                reason = "neither decayed, nor old conversation, nor a resolved finding"
        kept += [(item, reason)] if reason else []
    return CompactionPlan(snapshot.session, target_bytes, tuple(taken), made, tuple(kept))


def _candidates(
    snapshot: Snapshot, free: Sequence[Item], policy: CompactionPolicy, now: datetime
) -> list[Taken]:
    """Return the memories that may go, in the order in which they go, each with its reason."""
    below, days = snapshot.decayed_below, policy.old_conversation_days
    by_priority = sorted(free, key=lambda item: (item.priority, *_age(item)))
    decayed = [item for item in by_priority if item.priority < below]
    others = [item for item in by_priority if item.priority >= below]
    why = f"a priority below {below:g}"
    found = [Taken(item, DECAYED, why) for item in decayed if item.type != RELATIONSHIP.name]
    gone = {one.item.id for one in found}
    # A relationship goes only with one of its ends.
    links = [item for item in decayed if item.type == RELATIONSHIP.name and gone & {*item.refs}]
    found += [Taken(item, DECAYED, why) for item in links]
    old = [item for item in others if item.type == TURN.name and item.at is not None
           and now - item.at > timedelta(days=days)]  # fmt: skip
    found += [
        Taken(item, OLD, f"said more than {days:g} days ago") for item in sorted(old, key=_age)
    ]
    found += [Taken(item, RESOLVED, "it is resolved")
              for item in others if item.type == FINDING.name and item.closed]  # fmt: skip
    # Earlier states go however new they are: the memory is the current one, which stays.
    return found + [Taken(item, EARLIER, f"an earlier state of {item.actor}; the current one stays")
                    for item in sorted(snapshot.history, key=_age)]  # fmt: skip


def _age(item: Item) -> tuple[datetime, str, int]:
    """Return the key that sorts the oldest first."""
    return item.at or _OLDEST, item.file, item.start


def _unbroken(turns: Sequence[Item], chosen: Iterable[str]) -> Iterator[list[Item]]:
    """Yield the chosen turns, those together that follow each other."""
    wanted = set(chosen)
    for is_chosen, group in groupby(turns, key=lambda turn: turn.id in wanted):
        if is_chosen:
            yield [*group]


# The session as the plan needs it.


def _planned(session: Session, policy: CompactionPolicy, target_bytes: int) -> CompactionPlan:
    """Return the plan for the session as it is now."""
    now = session._now()
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    items, decayed_below = session._own_asker().ask(_question)
    last = {item.file: place for place, item in enumerate(items)}
    for kind in session.kinds:
        if kind.file in last:
            item, content = items[last[kind.file]], session.scope.read(kind.file)
            is_open = not format_of(kind).is_ours(content, item.start)
            items[last[kind.file]] = item._replace(is_open=is_open)
    snapshot = Snapshot(session.id, items, decayed_below, [*_histories(session)])
    return plan(snapshot, policy, now, target_bytes)


def _question(view: View) -> tuple[list[Item], float]:
    from ..ask.priorities import source
    from ..index.doubles import NAMED

    joined, columns = source(view)
    read = "a.last" if view.index.noted else "NULL"
    same = "o.scope = m.scope AND o.id = m.id AND +o.file = m.file AND o.key != m.key"
    twice = f"EXISTS (SELECT 1 FROM memories o WHERE {same})"
    asked = (
        f"SELECT m.id, m.type, m.file, m.start, m.end, m.hash, {columns.priority}, m.standing,"
        f" m.actor, m.data, {twice}, m.at, m.accessed, {read} {joined}"
        f" WHERE m.scope = ? AND {NAMED} AND NOT EXISTS (SELECT 1 FROM files f"
        " WHERE f.scope = m.scope AND f.file = m.file AND f.problem IS NOT NULL)"
        " ORDER BY m.file, m.start"
    )
    rows = view.index.connection.execute(asked, view.scopes)
    return [_item(row[:11], row[11:]) for row in rows], view.policy.decayed_below


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
    """Yield the earlier states of every agent. A history that cannot be read stays."""
    scope = session.scope
    for name in sorted(scope.tree.sizes(scope.path(STATE_HISTORY))):
        agent, file = name.removesuffix(".yaml"), f"{STATE_HISTORY}/{name}"
        if not name.endswith(".yaml") or not is_file_id(agent):
            continue
        try:
            states = [*in_file(session.id, "active", "", file, scope.read(file))]
        except SMPError:
            continue
        counts = Counter(state.id for state in states)
        for state in states:
            if counts[state.id] == 1 and state.id:
                at, place = (
                    time_of(state.value.get("timestamp")),
                    (state.line, state.line + len(state.raw)),
                )
                yield Item(state.id, state.type, file, *place, state.hash, 0.0, at, at, actor=agent)


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
    return _planned(session, policy_of(session), _ALL).bytes_freed


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
        made = _planned(session, policy, wanted)
        after = before - made.bytes_freed
    else:
        texts = _by_command(session, policy, wanted, outcome.notes) if policy.summarizer else {}
        with session.scope.undisturbed("compacting"):
            session.scope.require()
            made = replanned(lambda: _evict(session, policy, wanted, texts, outcome.notes))
            _note_in_metadata(session, outcome.notes)
        after = session.size().total_bytes
    outcome.actions = made.actions()
    if before - after < target:
        outcome.problems.append(replace(made, target_bytes=target).why_short())
    sizes = {"target_bytes": target, "before_bytes": before, "after_bytes": after}
    outcome.counts.update(sizes, bytes_freed=before - after)
    return outcome


def _evict(
    session: Session, policy: CompactionPolicy, target: int, texts: Mapping[tuple[str, ...], str],
    notes: list[str],
) -> CompactionPlan:  # fmt: skip
    """Plan and apply once. The caller holds the upkeep lock."""
    made = _planned(session, policy, target)
    made = replace(made, runs=tuple(run.with_text(texts[run.key]) if run.key in texts else run
                                    for run in made.runs))  # fmt: skip
    if not made.taken:
        return made
    facts: dict[tuple[str, str], dict[str, str]] = {}  # of each turn: id and hash of its summary
    summaries: dict[tuple[str, str], bytes] = {}
    for run in made.runs:
        if run.summary:
            first, hash = run.turns[0], summary_hash(value_of(TURN, run.summary))
            summaries[first.key] = run.summary
            facts |= {turn.key: {"summary": first.id, "summary_hash": hash} for turn in run.turns}
    changes: list[Change] = []
    for item, operation, reason in made.taken:
        known = {"operation": operation, "reason": reason, **facts.get(item.key, {})}
        new = summaries.get(item.key)
        changes.append(Change(item.file, item.id, item.hash, new, facts=known))
    now, why = session._now(), f"compaction, to free {target:,} bytes"
    name = f"{EVICTED}{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}{ENDING}"
    path = f"{archived_scope(session.id)}/{name}"
    draft = Draft(path, Manifest("evicted", session.id, render_time(now), "smp", why))
    kept = apply(session.scope, Request(changes, draft, doing="compacting")).kept
    if kept:
        copies = [replace(one, new=None, container=path) for one in changes if one.id in kept]
        apply(session.scope, Request(copies, doing="compacting"))
        notes += [f"{memory_id} was changed meanwhile, and stays" for memory_id in sorted(kept)]
    return made


def _by_command(
    session: Session, policy: CompactionPolicy, target: int, notes: list[str]
) -> dict[tuple[str, ...], str]:
    """Return the command's summary of each run. No lock is held meanwhile.

    Where the command fails, our own summaries are used, and a note says why.
    """
    texts: dict[tuple[str, ...], str] = {}
    try:
        for run in _planned(session, policy, target).runs:
            if run.summary:
                text = by_command(policy.summarizer, run.turns, policy.summarizer_timeout_s)
                made = run.with_text(text).summary
                if max(len(text.encode()), len(made)) > min(CONTENT_CAP_BYTES, run.bytes) // 2:
                    raise CommandFailed("what it printed is longer than half of what was said")
                if value_of(TURN, made).get("content") != text:
                    raise CommandFailed("what it printed cannot be kept in a conversation")
                texts[run.key] = text
    except CommandFailed as failure:
        notes.append(f"the summarizer {policy.summarizer[0]!r} was not used: {failure}")
    return texts


def _note_in_metadata(session: Session, notes: list[str]) -> None:
    if not session.scope.tree.exists(session.scope.path(METADATA)):
        return
    at, quota = render_time(session._now()), session.quota_bytes()
    try:
        for _ in range(2):  # again: the first note may make the metadata longer
            total = session.scope.usage.total()
            used = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1)}
            session.update_metadata(storage={**used, "last_compaction": at})
    except SMPError as error:  # the session is smaller all the same
        notes.append(f"the metadata do not say so: {error}")
