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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ask.priorities import source
from ..change.change import Change, Draft, Request, apply, replanned
from ..change.holdings import in_file
from ..disk import access
from ..disk.bundle import Manifest
from ..disk.scopes import ENDING, EVICTED, archived_scope
from ..disk.session_files import METADATA
from ..disk.usage import Size
from ..index.database import NAMED
from ..model.errors import Invalid, SMPError
from ..model.layout import is_file_id
from ..model.outcome import Action, Outcome
from ..model.policies import CompactionPolicy
from ..model.priority import PINNED, is_resolved
from ..model.record import (
    DECISION,
    FINDING,
    PREFERENCE,
    RELATIONSHIP,
    STATE_HISTORY,
    TURN,
    is_memory_id,
    type_of,
)  # fmt: skip
from ..model.times import render_time, time_at, time_of
from ..text.edits import value_of
from ..text.fingerprint import summary_hash
from ..text.markdown import render_turn
from .summarise import SHARE, references, summary

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import Session

DECAYED, OLD, RESOLVED, EARLIER = OPERATIONS = (
    "remove_decayed", "summarize_conversation", "archive_findings", "compress_agent_state",
)  # fmt: skip
SUMMARY, SUMMARIZES = "summary", "summarizes"  # type of a turn that stands for others, its field
STATE, ARTIFACT = "agent_state", "artifact"
_STANDING = {  # why memories of a type stay, closed or not
    (ARTIFACT, None): "an artifact", (STATE, None): "the current state of an agent",
    (DECISION.name, False): "a decision that is not closed",
    (FINDING.name, False): "a finding that is not resolved",
}  # fmt: skip
_OLDEST = datetime.min.replace(tzinfo=UTC)
_SUMMARY_BYTES = 8_000  # that the summaries of a few runs take up
_NOTES_BYTES = 200  # by which the heads of the files, and the metadata, become longer at most


class Item(NamedTuple):
    """A memory, or an earlier state of an agent, as it stands in its file."""

    id: str
    type: str
    file: str
    start: int
    bytes: int
    hash: str
    priority: float  # as of now
    at: datetime | None  # when it was made
    used: datetime | None  # when it was last made, changed or read
    pinned: bool = False
    closed: bool = False  # a decision that is closed, a finding that is resolved
    explicit: bool = False  # a preference that somebody has stated
    is_summary: bool = False
    is_double: bool = False  # another record of its file has its id
    is_last: bool = False  # of its file
    actor: str = ""
    data: str = "{}"  # its fields, as JSON: most are never read

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.id

    @property
    def text(self) -> str:
        return str(json.loads(self.data).get(TURN.text, ""))

    @property
    def refs(self) -> list[str]:
        """The memories that a turn refers to; the two ends of a relationship."""
        if self.type == RELATIONSHIP.name:
            value = json.loads(self.data)
            return [str(value.get("source")), str(value.get("target"))]
        listed = json.loads(self.data).get("memory_refs") if '"memory_refs"' in self.data else None
        return [str(ref) for ref in listed] if isinstance(listed, list) else []


class Taken(NamedTuple):
    """A memory that goes, and why."""

    item: Item
    operation: str
    reason: str


class Run(NamedTuple):
    """Turns that follow each other and go together, with their summary, if that is smaller."""

    turns: Sequence[Item]
    summary: bytes = b""


@dataclass(frozen=True)
class CompactionPlan:
    """The memories that go, the summaries that come, and why each other memory stays."""

    taken: tuple[Taken, ...]
    runs: tuple[Run, ...]  # of the turns in `taken`
    kept: tuple[tuple[Item, str], ...]

    @property
    def bytes_freed(self) -> int:
        summaries = sum(len(run.summary) for run in self.runs)
        return sum(one.item.bytes for one in self.taken) - summaries

    def actions(self, session: str) -> list[Action]:
        """Return one action for each operation and file."""
        groups: dict[tuple[str, str, str], list[Item]] = {}
        for item, operation, reason in self.taken:
            groups.setdefault((operation, item.file, reason), []).append(item)
        summaries = {run.turns[0].key: len(run.summary) for run in self.runs}
        found: list[Action] = []
        for (operation, _, reason), items in groups.items():
            freed = sum(item.bytes - summaries.get(item.key, 0) for item in items)
            about = tuple(item.id for item in items)
            kinds = tuple(type_of(item.type) for item in items)
            found.append(Action(session, operation, about, reason, freed, kinds=kinds))
        return sorted(found, key=lambda action: OPERATIONS.index(action.type))

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
    if item.file.startswith(f"{STATE_HISTORY}/"):
        # Earlier states go however new they are: the memory is the current one, which stays.
        return None
    if reason := _STANDING.get((item.type, item.closed)) or _STANDING.get((item.type, None)):
        return reason
    if item.is_double or not is_memory_id(item.id):
        return "its id stands there more than once, or is none"
    if item.pinned or item.is_summary:
        return "it is pinned" if item.pinned else "it stands for turns that were evicted"
    if item.explicit and item.type == PREFERENCE.name:
        return "an explicit preference"
    if item.at is None or item.used is None:
        return "it has no time, so that nobody can tell how old it is"
    said_h, used_h = policy.recent_conversation_hours, policy.recent_access_hours
    if item.type == TURN.name and now - item.at < timedelta(hours=said_h):
        return f"said within the last {said_h:g} hours"
    if item.priority > policy.preserved_above:
        return f"its priority is above {policy.preserved_above:g}"
    if now - item.used < timedelta(hours=used_h):
        return f"made, changed or read within the last {used_h:g} hours"
    return "the last in its file, which somebody may still be writing" if item.is_last else None


def plan(
    items: Sequence[Item], policy: CompactionPolicy, now: datetime, target_bytes: int,
    decayed_below: float = 0.3,
) -> CompactionPlan:  # fmt: skip
    """Return so many memories as reach the target; all that may go where they do not."""
    reasons = {item.key: preserved(item, policy, now) for item in items}
    free = [item for item in items if reasons[item.key] is None]
    order = _candidates(free, policy, now, decayed_below)
    turns = [item for item in items if item.file == TURN.file]
    sums = [0, *accumulate(one.item.bytes for one in order)]
    room, wanted = min(int(SHARE * target_bytes), _SUMMARY_BYTES), target_bytes
    if any(one.item.file == TURN.file for one in order[: bisect_left(sums, wanted)]):
        wanted += room  # for their summaries
    while True:
        count = min(bisect_left(sums, wanted), len(order))
        chosen = {one.item.key: one for one in order[:count]}
        runs = tuple(_runs(turns, chosen))
        gone = {turn.key for run in runs for turn in run.turns}
        taken = [one for key, one in chosen.items() if one.item.file != TURN.file or key in gone]
        made = CompactionPlan(tuple(taken), runs, ())
        missing = target_bytes - made.bytes_freed
        if missing <= 0 or count == len(order):
            break
        wanted = sums[count] + missing + room
    taken.sort(key=lambda one: (one.item.file, one.item.start))
    left, going = {one.item.key for one in order}, {one.item.key for one in taken}
    kept: list[tuple[Item, str]] = []
    for item in items:
        reason = reasons[item.key]
        if reason is None and item.key in left:
            reason = "the target was reached without it"
            reason = "a summary of it would not be smaller" if item.key in chosen else reason
        reason = reason or "neither decayed, nor old conversation, nor a resolved finding"
        kept += [(item, reason)] if item.key not in going else []
    return CompactionPlan(tuple(taken), runs, tuple(kept))


def _candidates(
    free: Sequence[Item], policy: CompactionPolicy, now: datetime, below: float
) -> list[Taken]:
    """Return the memories that may go, in the order in which they go, each with its reason."""

    def age(item: Item) -> tuple[datetime, str, int]:
        return item.at or _OLDEST, item.file, item.start

    earlier = [item for item in free if item.file.startswith(f"{STATE_HISTORY}/")]
    others = [item for item in free if not item.file.startswith(f"{STATE_HISTORY}/")]
    decayed = [item for item in others if item.priority < below]
    decayed.sort(key=lambda item: (item.priority, *age(item)))
    gone = {item.id for item in decayed if item.type != RELATIONSHIP.name}
    # A relationship goes only with one of its ends.
    ends = [item for item in decayed if item.type != RELATIONSHIP.name]
    links = [item for item in decayed if item.type == RELATIONSHIP.name and gone & {*item.refs}]
    days, standing = policy.old_conversation_days, [one for one in others if one.priority >= below]
    old = [item for item in standing if item.type == TURN.name and item.at is not None
           and now - item.at > timedelta(days=days)]  # fmt: skip
    closed = [item for item in standing if item.type == FINDING.name and item.closed]
    closed.sort(key=lambda item: (item.priority, *age(item)))
    return [
        *(Taken(item, DECAYED, f"a priority below {below:g}") for item in [*ends, *links]),
        *(Taken(item, OLD, f"said more than {days:g} days ago") for item in sorted(old, key=age)),
        *(Taken(item, RESOLVED, "it is resolved") for item in closed),
        *(Taken(item, EARLIER, f"an earlier state of {item.actor}; the current one stays")
          for item in sorted(earlier, key=age)),
    ]  # fmt: skip


def _runs(turns: Sequence[Item], chosen: dict[tuple[str, str], Taken]) -> Iterator[Run]:
    """Yield the runs of turns that are chosen. A turn that stays breaks a run."""
    for group in _unbroken(turns, chosen):
        text = _summary_turn(group)
        if len(text) < sum(turn.bytes for turn in group):
            yield Run(group, text)
            continue
        # Old turns stay where their summary is no smaller; decayed ones go all the same.
        decayed = {turn.key for turn in group if chosen[turn.key].operation == DECAYED}
        yield from (Run(part) for part in _unbroken(group, decayed))


def _unbroken(
    turns: Sequence[Item], chosen: Collection[tuple[str, str]]
) -> Iterator[Sequence[Item]]:
    for is_chosen, group in groupby(turns, key=lambda turn: turn.key in chosen):
        if is_chosen:
            yield tuple(group)


def _summary_turn(turns: Sequence[Item]) -> bytes:
    """Return the summary of turns: a turn with the number and the time of the first."""
    first, refs = turns[0], references(turns)
    assert first.at is not None
    return render_turn({
        "id": first.id, "turn": int(first.id.removeprefix("turn-")), "speaker": "smp",
        "timestamp": render_time(first.at), "type": SUMMARY,
        **({"memory_refs": [*refs]} if refs else {}),
        SUMMARIZES: {"first": first.id, "last": turns[-1].id, "turns": len(turns)},
        "content": summary(turns, sum(turn.bytes for turn in turns)),
    })  # fmt: skip


# The session as the plan needs it.


def _planned(session: Session, target_bytes: int) -> CompactionPlan:
    """Return the plan for the session as it is now."""
    now = session._now()
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    readings = access.parse(access.load(session.scope))
    last_read = {name: reading.last for name, reading in readings.items()}
    found, decayed_below = session._own_asker().ask(lambda view: _question(view, last_read))
    last = {item.file: item.key for item in found}
    items = [item._replace(is_last=last[item.file] == item.key) for item in found]
    items += _histories(session)
    return plan(items, policy_of(session), now, target_bytes, decayed_below)


def _question(view: View, last_read: Mapping[str, datetime]) -> tuple[list[Item], float]:
    joined, columns = source(view)
    same = "o.scope = m.scope AND o.id = m.id AND +o.file = m.file AND o.key != m.key"
    twice = f"EXISTS (SELECT 1 FROM memories o WHERE {same})"
    asked = (
        f"SELECT m.id, m.type, m.file, m.start, m.end - m.start, m.hash, {columns.priority},"
        f" m.standing, {twice}, m.actor, m.data, m.at, m.accessed {joined}"
        f" WHERE m.scope = ? AND {NAMED} AND NOT EXISTS (SELECT 1 FROM files f"
        " WHERE f.scope = m.scope AND f.file = m.file AND f.problem IS NOT NULL)"
        " ORDER BY m.file, m.start"
    )
    rows = view.index.connection.execute(asked, view.scopes)
    return [_item(row, last_read.get(row[0])) for row in rows], view.policy.decayed_below


def _item(row: tuple[Any, ...], last_read: datetime | None) -> Item:
    memory_id, type, file, start, size, hash, priority, *more = row
    standing, is_double, actor, data, *times = more
    is_plain = type in (STATE, ARTIFACT) or (
        type == TURN.name and '"updated_at"' not in data and f'"{SUMMARIZES}"' not in data
    )
    value: dict[str, Any] = {} if is_plain else json.loads(data)
    changed = time_of(value["updated_at"]) if value and "updated_at" in value else None
    uses = [at for at in (*map(time_at, times), changed, last_read) if at is not None]
    return Item(
        memory_id, type, file, start, size, hash, priority, time_at(times[0]),
        max(uses, default=None), pinned=standing == PINNED, closed=is_resolved(value),
        explicit=str(value.get("confidence")).lower() == "explicit",
        is_summary=value.get("type") == SUMMARY and SUMMARIZES in value,
        is_double=bool(is_double), actor=actor, data=data,
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
        counts = Counter(one.id for one in states)
        for one in states:
            if one.id and counts[one.id] == 1:
                at, about = time_of(one.value.get("timestamp")), (one.id, one.type, file, one.line)
                yield Item(*about, len(one.raw), one.hash, 0.0, at, at, actor=agent)


# Compacting.


def trigger(size: Size, policy: CompactionPolicy) -> tuple[float, str] | None:
    """Return by how many percent a session must become smaller now, and why, or None."""
    if not policy.automatic or size.quota_bytes <= 0:
        return None
    used_pct = 100 * size.total_bytes / size.quota_bytes
    forced = (policy.forced_at_pct, policy.forced_reduction_pct)
    for at_pct, reduction_pct in (forced, (policy.gentle_at_pct, policy.gentle_reduction_pct)):
        if used_pct >= at_pct:
            why = f"it holds {used_pct:.1f} % of its quota, which is {at_pct:g} % or more"
            return reduction_pct, why
    return None


def policy_of(session: Session) -> CompactionPolicy:
    """Return the policy with the session's own settings. Unreadable metadata leave it as it is."""
    try:
        metadata = session.metadata()
    except SMPError:
        metadata = {}  # a full session must become smaller all the same
    return session.scope.options.compaction.for_session(metadata)


def compact(
    session: Session, *, reduction_pct: float | None = None, dry_run: bool = False
) -> Outcome:
    """Free so many percent of the session, or as much as may go. A target missed is a problem."""
    share = policy_of(session).forced_reduction_pct if reduction_pct is None else reduction_pct
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 100:
        share_of = "a session can become smaller by more than 0 and at most 100 percent"
        raise Invalid([f"{share_of}, not by {share!r}"])
    before, outcome = session.size().total_bytes, Outcome(dry_run=dry_run)
    target = math.ceil(before * share / 100)
    wanted = target + _NOTES_BYTES
    if dry_run:
        made = _planned(session, wanted)
        after = before - made.bytes_freed
    else:
        with session.scope.undisturbed("compacting"):
            session.scope.require()
            made = replanned(lambda: _evict(session, wanted, outcome.notes))
            _note_in_metadata(session, outcome.notes)
        after = session.size().total_bytes
    outcome.actions = made.actions(session.id)
    if before - after < target:
        outcome.problems.append(f"{session.id}: {made.why_short(target)}")
    sizes = {"target_bytes": target, "before_bytes": before, "after_bytes": after}
    outcome.counts.update(sizes, bytes_freed=before - after)
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
    draft = Draft(path, Manifest("evicted", session.id, render_time(now), "smp", why))
    kept = apply(session.scope, Request(changes, draft, doing="compacting")).kept
    if kept:
        copies = [replace(one, new=None, container=path) for one in changes if one.id in kept]
        apply(session.scope, Request(copies, doing="compacting"))
        notes += [f"{memory_id} was changed meanwhile, and stays" for memory_id in sorted(kept)]
    return made


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
