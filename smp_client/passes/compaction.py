"""Compaction: a session becomes smaller, and every memory that it evicts can be brought back.

Four operations, each only as far as the target asks for it: decayed memories, old conversation,
resolved findings, earlier states of agents. `plan` is pure and has a reason for every memory that
goes or stays; `compact` applies it: one change evicts all of it into one bundle.

Turns that follow each other leave as a run, and a summary takes the place of the first. Bringing
back any turn of a run brings back the whole run, and removes its summary; see change/restore.py.
"""

from __future__ import annotations

import json
import math
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ask.priorities import source
from ..change.change import Change, Request, apply, replanned
from ..change.holdings import in_file
from ..disk import access, tally
from ..disk.bundle import Manifest
from ..disk.place import ENDING, EVICTED, archived_scope
from ..disk.session_files import METADATA
from ..disk.usage import Size
from ..model.errors import Invalid, QuotaExceeded, SMPError
from ..model.layout import is_file_id
from ..model.outcome import Action, Outcome
from ..model.policies import CompactionPolicy
from ..model.priority import PINNED, is_resolved
from ..model.record import DECISION, FINDING, HISTORY, STATE_HISTORY, TURN, is_memory_id, type_of
from ..model.times import EPOCH, render_time, time_at, time_of
from ..text.edits import value_of
from ..text.markdown import Conversation
from ..text.values import summary_hash
from .summarise import SHARE, summary

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import Session

REVISED = "evict_history"
DECAYED = "remove_decayed"
OLD = "summarize_conversation"
RESOLVED = "archive_findings"
EARLIER = "compress_agent_state"
OPERATIONS = (REVISED, DECAYED, OLD, RESOLVED, EARLIER)  # in the order in which memories go
SUMMARY, SUMMARIZES = "summary", "summarizes"  # type of a turn that stands for others, its field
_STAYING = {  # why memories of a standing, see model/priority.py, stay
    PINNED: "it is pinned", "preference.explicit": "an explicit preference",
    "artifact": "an artifact", "agent_state": "the current state of an agent",
}  # fmt: skip
_OLDEST = datetime.min.replace(tzinfo=UTC)
_SUMMARY_BYTES = 8_000  # that the summaries of a few runs take up
_NOTES_BYTES = 200  # by which the heads of the files, and the metadata, become longer at most


class Item(NamedTuple):
    """A memory, or an earlier state of an agent, as it stands in its file."""

    id: str
    type: str
    file: str
    start: int  # where it begins, in bytes; the line of an earlier state
    bytes: int
    hash: str
    priority: float  # as of now
    at: datetime | None  # when it was made
    used: datetime  # when it was last made, changed or read
    standing: str = ""
    closed: bool = False  # a decision that is closed, a finding that is resolved
    fixed: str = ""  # why its place in the file keeps it there
    actor: str = ""
    data: str = "{}"  # its fields, as JSON: most are never read

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.id

    @property
    def is_earlier(self) -> bool:
        return self.file == HISTORY or self.file.startswith(f"{STATE_HISTORY}/")


class Taken(NamedTuple):
    """A memory that goes, and why."""

    item: Item
    operation: str
    reason: str


class Run(NamedTuple):
    """Turns that follow each other and go together, with their summary, if that is smaller."""

    turns: Sequence[Item]
    summary: bytes


@dataclass(frozen=True)
class CompactionPlan:
    """The memories that go, the summaries that come, and why each other memory stays."""

    taken: Sequence[Taken]
    runs: Sequence[Run]  # of the turns in `taken`
    kept: Sequence[tuple[Item, str]]

    @property
    def bytes_freed(self) -> int:
        summaries = sum(len(run.summary) for run in self.runs)
        return sum(one.item.bytes for one in self.taken) - summaries

    def actions(self, session: str) -> list[Action]:
        """Return one action for each operation and file."""
        groups: dict[tuple[str, str, str], list[Item]] = {}
        for item, operation, reason in self.taken:
            groups.setdefault((operation, reason, item.file), []).append(item)
        summaries = {run.turns[0].key: len(run.summary) for run in self.runs}
        found: list[Action] = []
        for (operation, reason, _), items in groups.items():
            freed = sum(item.bytes - summaries.get(item.key, 0) for item in items)
            about = tuple(item.id for item in items)
            kinds = tuple(type_of(item.type) for item in items)
            found.append(Action(session, operation, about, reason, freed, kinds=kinds))
        return found

    def why_short(self, target_bytes: int) -> str:
        """Return why the plan misses its target: the memories that stay, by their reasons."""
        sizes, counts = Counter[str](), Counter[str]()
        for item, reason in self.kept:
            sizes[reason] += item.bytes
            counts[reason] += 1
        each = (f"{counts[reason]:,} with {size:,} bytes: {reason}"
                for reason, size in sizes.most_common())  # fmt: skip
        short = f"{target_bytes:,} bytes were to be freed, {self.bytes_freed:,} can be"
        return f"{short}; these stay ({'; '.join(each)})"


def preserved(item: Item, policy: CompactionPolicy, now: datetime) -> str | None:
    """Return why a memory stays whatever the target is; None where it may go."""
    if item.is_earlier:
        return item.fixed or None  # earlier states go however new they are
    if reason := _STAYING.get(item.standing):
        return reason
    if item.type in (DECISION.name, FINDING.name) and not item.closed:
        return f"a {item.type} that is not closed"
    if item.at is None:
        return "it has no time, so that nobody can tell how old it is"
    said_h, used_h = policy.recent_conversation_hours, policy.recent_access_hours
    if item.type == TURN.name and now - item.at < timedelta(hours=said_h):
        return f"said within the last {said_h:g} hours"
    if item.priority > policy.preserved_above:
        return f"its priority is above {policy.preserved_above:g}"
    if now - item.used < timedelta(hours=used_h):
        return f"made, changed or read within the last {used_h:g} hours"
    return item.fixed or None


def plan(
    items: Sequence[Item], policy: CompactionPolicy, now: datetime, target_bytes: int,
    decayed_below: float = 0.3,
) -> CompactionPlan:  # fmt: skip
    """Return so many memories as reach the target; all that may go where they do not.

    The oldest turns beyond the limit of the policy go first, whatever the target is.
    """
    reasons = [preserved(item, policy, now) for item in items]
    free = [item for item, reason in zip(items, reasons, strict=True) if reason is None]
    turns = [item for item in items if item.file == TURN.file]
    excess = _excess(free, turns, policy)
    gone = {one.item.key for one in excess}
    rest = [item for item in free if item.key not in gone]
    order = [*excess, *_candidates(rest, policy, now, decayed_below)]
    sums = [0, *accumulate(one.item.bytes for one in order)]
    room, wanted = min(int(SHARE * target_bytes), _SUMMARY_BYTES), target_bytes
    if any(one.item.file == TURN.file for one in order[: bisect_left(sums, wanted)]):
        wanted += room  # for their summaries
    while True:
        count = max(len(excess), min(bisect_left(sums, wanted), len(order)))
        taken = order[:count]
        runs = [*_runs(turns, {one.item.id for one in taken if one.item.file == TURN.file})]
        missing = target_bytes - sums[count] + sum(len(run.summary) for run in runs)
        if missing <= 0 or count == len(order):
            break
        wanted = sums[count] + missing + room
    taken.sort(key=lambda one: (OPERATIONS.index(one.operation), one.item.file, one.item.start))
    going, left = ({one.item.key for one in some} for some in (taken, order))
    kept: list[tuple[Item, str]] = []
    for item, reason in zip(items, reasons, strict=True):
        if item.key in left:
            reason = "the target was reached without it"
        if item.key not in going:
            why = reason or "neither decayed, nor old conversation, nor a resolved finding"
            kept.append((item, why))
    return CompactionPlan(taken, runs, kept)


def _excess(free: Sequence[Item], turns: Sequence[Item], policy: CompactionPolicy) -> list[Taken]:
    """Return the oldest turns that may go and that a long conversation has too many of.

    A fifth more than needed go, so that the next turn does not begin this again.
    """
    most = policy.summarized_above_turns
    if not most or len(turns) <= most:
        return []
    reason = f"the conversation has more than {most:,} turns"
    count = len(turns) - most * 4 // 5
    oldest = [item for item in free if item.file == TURN.file][:count]
    return [Taken(item, OLD, reason) for item in oldest]


def _candidates(
    free: Sequence[Item], policy: CompactionPolicy, now: datetime, below: float
) -> list[Taken]:
    """Return the memories that may go, in the order in which they go, each with its reason."""
    found: dict[str, list[Item]] = {operation: [] for operation in OPERATIONS}
    days = policy.old_conversation_days
    for item in free:
        if item.is_earlier:
            found[REVISED if item.file == HISTORY else EARLIER].append(item)
        elif item.priority < below:
            found[DECAYED].append(item)
        elif item.type == TURN.name and item.at and now - item.at > timedelta(days=days):
            found[OLD].append(item)
        elif item.type == FINDING.name:
            found[RESOLVED].append(item)
    reasons = {
        REVISED: "an earlier version; the present one stays",
        DECAYED: f"a priority below {below:g}",
        OLD: f"said more than {days:g} days ago",
        RESOLVED: "it is resolved",
        EARLIER: "an earlier state of an agent; the current one stays",
    }

    def first(item: Item) -> tuple[float, datetime, str, int]:
        weight = 0.0 if item.type == TURN.name and item.priority >= below else item.priority
        return weight, item.at or _OLDEST, item.file, item.start

    return [Taken(item, operation, reasons[operation]) for operation, items in found.items()
            for item in sorted(items, key=first)]  # fmt: skip


def _runs(turns: Sequence[Item], chosen: Collection[str]) -> Iterator[Run]:
    """Yield the runs of turns that are chosen. A turn that stays breaks a run."""
    for is_chosen, group in groupby(turns, key=lambda turn: turn.id in chosen):
        if is_chosen:
            run = [*group]
            text = _summary_turn(run)
            yield Run(run, text if len(text) < sum(turn.bytes for turn in run) else b"")


def _summary_turn(turns: Sequence[Item]) -> bytes:
    """Return the summary of turns: a turn with the number and the time of the first."""
    first = turns[0]
    assert first.at is not None
    return Conversation().render({
        "id": first.id, "turn": int(first.id.removeprefix("turn-")), "speaker": "smp",
        "timestamp": render_time(first.at), "type": SUMMARY,
        SUMMARIZES: {"first": first.id, "last": turns[-1].id, "turns": len(turns)},
        "content": summary(turns, sum(turn.bytes for turn in turns)),
    })  # fmt: skip


# The session as the plan needs it.


def _planned(session: Session, target_bytes: int) -> CompactionPlan:
    """Return the plan for the session as it is now."""
    found, decayed_below = session._own_asker().ask(_question)
    last = {item.file: item.start for item in found}
    readings = access.parse(access.load(session.scope))
    items = [*found, *_histories(session)]
    counts = Counter(item.key for item in items)
    for place, item in enumerate(items):
        fixed, reading = item.fixed, readings.get(item.id)
        if last.get(item.file) == item.start:
            fixed = "the last in its file, which somebody may still be writing"
        if counts[item.key] > 1 or not is_memory_id(item.id):
            fixed = "its id stands there more than once, or is none"
        if fixed or reading:
            used = max(item.used, reading.last) if reading else item.used
            items[place] = item._replace(fixed=fixed, used=used)
    return plan(items, policy_of(session), session._now(), target_bytes, decayed_below)


def _question(view: View) -> tuple[list[Item], float]:
    joined, columns = source(view)
    asked = (
        f"SELECT m.id, m.type, m.file, m.start, m.end - m.start, m.hash, {columns.priority},"
        " m.at, MAX(COALESCE(m.at, 0), COALESCE(m.accessed, 0)), m.standing, m.actor, m.data"
        f" {joined} WHERE m.scope = ? AND NOT EXISTS (SELECT 1 FROM files f"
        " WHERE f.scope = m.scope AND f.file = m.file AND f.problem IS NOT NULL)"
        " ORDER BY m.file, m.start"
    )
    rows = view.index.execute(asked, view.scopes)
    return [_item(*row) for row in rows], view.policy.decayed_below


def _item(*row: Any) -> Item:
    memory_id, type, file, start, size, hash, priority, at, used, standing, actor, data = row
    is_closed, used_at = standing == "finding.resolved", EPOCH + timedelta(microseconds=used)
    if type == DECISION.name and '"status"' in data:
        is_closed = is_resolved(json.loads(data))
    if '"updated_at"' in data:
        used_at = max(used_at, time_of(json.loads(data).get("updated_at")) or EPOCH)
    is_summary = type == TURN.name and f'"{SUMMARIZES}"' in data
    fixed = "it stands for turns that were evicted" if is_summary else ""
    about = (memory_id, type, file, start, size, hash, priority, time_at(at), used_at)
    return Item(*about, standing, is_closed, fixed, actor, data)


def _histories(session: Session) -> Iterator[Item]:
    """Yield earlier memories, and earlier states of agents. An unreadable history stays."""
    scope = session.scope
    names = sorted(scope.tree.sizes(scope.path(STATE_HISTORY)))
    agents = [name for name in names if name.endswith(".yaml") and is_file_id(name[:-5])]
    for file in [HISTORY, *(f"{STATE_HISTORY}/{name}" for name in agents)]:
        with suppress(SMPError):
            for one in in_file(session.id, "active", "", file, scope.read(file)):
                at = time_of(one.value.get("timestamp"))
                about = (one.id, one.type, file)
                yield Item(*about, one.line, len(one.raw), one.hash, 0.0, at, at or EPOCH)


# Compacting.


def trigger(size: Size, policy: CompactionPolicy, turns: int = 0) -> tuple[float, str] | None:
    """Return by how many percent a session must become smaller now, and why, or None.

    A session with too many turns that is not too full is to be smaller by 0 percent.
    """
    if not policy.automatic or size.quota_bytes <= 0:
        return None
    used_pct = 100 * size.total_bytes / size.quota_bytes
    forced = (policy.forced_at_pct, policy.forced_reduction_pct)
    for at_pct, reduction_pct in (forced, (policy.gentle_at_pct, policy.gentle_reduction_pct)):
        if used_pct >= at_pct:
            why = f"it holds {used_pct:.1f} % of its quota, which is {at_pct:g} % or more"
            return reduction_pct, why
    most = policy.summarized_above_turns
    if most and turns > most:
        return 0.0, f"its conversation has {turns:,} turns, which is more than {most:,}"
    return None


def policy_of(session: Session) -> CompactionPolicy:
    """Return the policy with the session's own settings. Unreadable metadata leave it as it is."""
    try:
        metadata = session.metadata()
    except SMPError:
        metadata = {}  # a full session must become smaller all the same
    return session.scope.options.compaction.for_session(metadata)


def make_room(session: Session, full: QuotaExceeded) -> str:
    """Compact a session because a write does not fit. Return a sentence on the result.

    A compaction that freed too little is not tried again until the session has changed.
    """
    policy = policy_of(session)
    if not policy.automatic:
        return "Its automatic compaction is switched off."
    if full.needed_bytes >= full.quota_bytes:
        return "The write alone is larger than the session may become."
    futile = session.memory._futile
    size, said = futile.get(session.id, (-1, ""))
    if size == full.total_bytes:
        return said
    missing = full.total_bytes + full.needed_bytes - full.quota_bytes
    share = max(policy.forced_reduction_pct, 100 * missing / full.total_bytes)
    try:
        outcome = compact(session, reduction_pct=min(100.0, share))
    except SMPError as error:
        return f"It could not be compacted: {error}"
    freed = outcome.counts["bytes_freed"]
    said = f"A compaction freed {max(0, freed):,} bytes."
    if outcome.problems:
        said = f"{said} {_capital(outcome.problems[0].removeprefix(f'{session.id}: '))}."
    if freed < missing:
        futile[session.id] = (outcome.counts["after_bytes"], said)
    return said


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def compact(
    session: Session, *, reduction_pct: float | None = None, dry_run: bool = False
) -> Outcome:
    """Free so many percent of the session, or as much as may go. A target missed is a problem."""
    share = policy_of(session).forced_reduction_pct if reduction_pct is None else reduction_pct
    if type(share) not in (int, float) or not 0 < share <= 100:
        raise Invalid([f"a session can shrink by more than 0 and at most 100 %, not by {share!r}"])
    target = math.ceil(session.size().total_bytes * share / 100)
    return _compact(session, target, dry_run=dry_run)


def summarise_turns(session: Session) -> Outcome:
    """Summarise the oldest turns of a conversation that has more than its policy allows."""
    return _compact(session, 0, dry_run=False)


def _compact(session: Session, target: int, *, dry_run: bool) -> Outcome:
    """Free so many bytes, or as much as may go. Turns beyond their limit go in any case."""
    before = session.size().total_bytes
    outcome = Outcome(dry_run=dry_run)
    wanted = target + _NOTES_BYTES if target else 0
    if dry_run:
        made = _planned(session, wanted)
        after = before - made.bytes_freed
    else:
        with session.scope.undisturbed("compacting"):
            session.scope.require()
            made = replanned(lambda: _evict(session, wanted, outcome.notes))
            _note_in_metadata(session, outcome.notes)
        after = session.size().total_bytes
        tally.compacted(session.scope.tree.path, before - after)
    outcome.actions = made.actions(session.id)
    if target and before - after < target:
        outcome.problems.append(f"{session.id}: {made.why_short(target)}")
    sizes = {"target_bytes": target, "before_bytes": before, "after_bytes": after}
    outcome.counts.update(sizes, bytes_freed=before - after)
    if not made.taken and not outcome.problems:
        outcome.notes.append(f"{session.id}: nothing was freed, because nothing may go")
    return outcome


def _evict(session: Session, target: int, notes: list[str]) -> CompactionPlan:
    """Plan and apply once. The caller holds the upkeep lock."""
    made = _planned(session, target)
    if not made.taken:
        return made
    summaries: dict[tuple[str, str], bytes] = {}
    facts: dict[tuple[str, str], dict[str, str]] = {}  # of each turn: id and hash of its summary
    for turns, text in made.runs:
        if text:
            first, hash = turns[0], summary_hash(value_of(TURN, text))
            summaries[first.key] = text
            facts |= {turn.key: {"summary": first.id, "summary_hash": hash} for turn in turns}
    changes: list[Change] = []
    for item, operation, reason in made.taken:
        known = {"operation": operation, "reason": reason, **facts.get(item.key, {})}
        new = summaries.get(item.key)
        changes.append(Change(item.file, item.id, item.hash, new, facts=known))
    now, why = session._now(), f"compaction, to free {target:,} bytes"
    name = f"{EVICTED}{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}{ENDING}"
    path = f"{archived_scope(session.id)}/{name}"
    draft = (path, Manifest("evicted", session.id, render_time(now), "smp", why))
    kept = apply(session.scope, Request(changes, draft, doing="compacting"))
    if kept:  # changed without a lock: they stay in their files, and leave the bundle
        copies = [replace(one, new=None, container=path) for one in changes if one.id in kept]
        apply(session.scope, Request(copies, doing="compacting"))
        notes += [f"{memory_id} was changed meanwhile, and stays" for memory_id in sorted(kept)]
    return made


def _note_in_metadata(session: Session, notes: list[str]) -> None:
    if session.scope.tree.exists(session.scope.path(METADATA)):
        try:
            session.update_metadata(storage={"last_compaction": render_time(session._now())})
        except SMPError as error:  # the session is smaller all the same
            notes.append(f"the metadata do not say so: {error}")
