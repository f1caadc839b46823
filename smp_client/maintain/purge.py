"""Purging: what was deleted, and whose time to be restored is over, is destroyed. Nothing else in SMP destroys anything.

So it must be sure: the deadline has passed and somebody has waited for it (see deadlines.py), or a person confirms it; the root is
the one that we know; and what would go is not most of what there is. What goes leaves no byte below the root, see erasure.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import MemoryNotFound, SMPError
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, MARKER, QUARANTINE, check_session_id
from . import deadlines, erasure, traces
from .actions import Action, Outcome
from .deadlines import Seen
from .doomed import Doomed, Snapshot, doomed_of, look

if TYPE_CHECKING:
    from ..index import Index
    from ..memory import Memory

_IMPLAUSIBLE_SESSIONS = 5
_OWN = ".smp"
_CHECKED_LINES = 16


@dataclass(frozen=True)
class Decision:
    doomed: Doomed
    purge: bool
    reason: str

    def as_action(self, bytes_freed: int = 0) -> Action:
        one = self.doomed
        if one.is_session:
            return Action(one.session, "purge_session", (one.session,), self.reason, bytes_freed or one.size_bytes)
        return Action(one.session, "purge_memories", tuple(gone.id for gone in one.memories), self.reason, bytes_freed)


@dataclass(frozen=True)
class PurgePlan:
    """Everything that is deleted, and what is to become of it."""

    decisions: tuple[Decision, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def going(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.purge]


def plan(snapshot: Snapshot, now: datetime, seen: Seen, *, force: bool = False) -> PurgePlan:
    """With force, a person says that the clock is right and that so much may go. The deadline holds all the same."""
    if not snapshot.has_marker:
        return PurgePlan(problems=(f"The root has no {MARKER}, so it is not mounted, or none of ours: nothing is purged.",))
    sessions = [_decide(one, now, seen, force=force) for one in snapshot.doomed if one.is_session]
    whole = {decision.doomed.session for decision in sessions if decision.purge}
    # What was deleted one by one goes with its session.
    memories = [_decide(one, now, seen, force=force) for one in snapshot.doomed if not one.is_session and one.session not in whole]
    decided = (*sessions, *memories)
    implausible = None if force else _implausible(whole, snapshot)
    if implausible:
        decided = tuple(replace(decision, purge=False, reason=implausible) if decision.purge else decision for decision in decided)
    return PurgePlan(decided, (*snapshot.problems, *([implausible] if implausible else [])))


def _decide(one: Doomed, now: datetime, seen: Seen, *, force: bool) -> Decision:
    if one.in_use:
        return Decision(one, False, "it is just being deleted or brought back")
    is_over, reason = deadlines.verdict(seen, one, now)
    if not is_over and force and now >= one.deadline:
        return Decision(one, True, f"{reason}; confirmed with --force")
    return Decision(one, is_over, reason)


def _implausible(going: set[str], snapshot: Snapshot) -> str | None:
    if len(going) < _IMPLAUSIBLE_SESSIONS:
        return None
    size, total = sum(snapshot.sizes.get(name, 0) for name in going), sum(snapshot.sizes.values())
    if 2 * len(going) <= len(snapshot.sizes) and 2 * size <= total:
        return None
    return (
        f"{len(going)} of {len(snapshot.sizes)} sessions, {size:,} of {total:,} bytes, would be purged at once, which is more than"
        " anybody would expect: nothing is. If it is right, run smp purge --force."
    )


def planned(memory: Memory, *, force: bool = False) -> PurgePlan:
    memory.require()
    return plan(look(memory), memory.options.clock(), deadlines.load(memory), force=force)


def purge(memory: Memory, *, dry_run: bool = False, force: bool = False, index: Index | None = None) -> Outcome:
    """What is due goes. Whoever leads the root gives its index; a daemon observes the deadlines (see deadlines.py) just before."""
    decided = planned(memory, force=force)
    if dry_run:
        return Outcome([decision.as_action() for decision in decided.going], list(decided.problems), dry_run=True)
    if not memory.tree.exists(MARKER):
        return Outcome(problems=list(decided.problems))
    outcome = apply(memory, decided.going, forced=force, index=index)
    outcome.problems[:0] = decided.problems
    return outcome


def purge_memory(memory: Memory, session_id: str, ids: Iterable[str], *, index: Index | None = None) -> Outcome:
    """Erases memories that were deleted, at once and whatever their deadline. Also says where else their words still stand."""
    memory.require()
    wanted = list(dict.fromkeys(ids))
    found = doomed_of(memory, check_session_id(session_id), [])
    parts = [replace(one, memories=part) for one in found if (part := tuple(gone for gone in one.memories if gone.id in wanted))]
    known = {gone.id for part in parts for gone in part.memories}
    if missing := [memory_id for memory_id in wanted if memory_id not in known]:
        raise MemoryNotFound(f"There is no deleted memory {', '.join(missing)} of {session_id}.", session_id=session_id,
                             advice="Delete it first; session.deleted() lists what is deleted.")  # fmt: skip
    decisions = [Decision(part, True, "asked for, without waiting for its deadline") for part in parts]
    return apply(memory, decisions, forced=True, index=index, thorough=True)


def apply(
    memory: Memory, going: Sequence[Decision], *, forced: bool, index: Index | None = None, thorough: bool = False
) -> Outcome:
    """One after the other: what is wrong with one keeps no other. Then the index is cleaned, and all is looked through."""
    outcome = Outcome()
    now = memory.options.clock()
    lines: dict[str, list[str]] = {}
    for decision in going:
        try:
            erased = erasure.erase(memory, decision.doomed, now, forced=forced)
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{decision.doomed.session}: not purged: {error}")
            continue
        outcome.actions.append(decision.as_action(erased.bytes_freed))
        lines.setdefault(decision.doomed.session, []).extend(erased.lines)
    try:
        erasure.sweep(memory)
    except (SMPError, OSError) as error:
        # What was done must be told all the same.
        outcome.problems.append(f"what an earlier purge has left could not be removed: {error}")
    outcome.problems += (unclean := traces.scrub_index(memory, index))
    for session_id, said in lines.items():
        # While the index could not be cleaned, it is known where the words are.
        own = [f"{QUARANTINE}/{session_id}", *([] if unclean else [_OWN])]
        outcome.problems += _left_over(memory, session_id, said, own, thorough=thorough)
    return outcome


def _left_over(memory: Memory, session_id: str, lines: list[str], own: list[str], *, thorough: bool) -> list[str]:
    """Places that still hold what was purged. That others say the same, and the index has it from them, is no trace of it."""
    # The index may be large, and a few lines are enough to know whether it was cleaned.
    needles = traces.needles(lines, traces.NEEDLES_CAP if thorough else _CHECKED_LINES)
    others = (ACTIVE, GLOBAL, ARCHIVED, DELETED)
    problems = []
    if thorough and (said_again := traces.places_with(memory, needles, others)):
        problems.append(f"{session_id}: the same words still stand in {_listed(said_again)}.")
    if traces.places_with(memory, needles, own):
        rest = [needle for needle in needles if not traces.places_with(memory, [needle], others)]
        if places := traces.places_with(memory, rest, own):
            problems.append(f"{session_id}: what was purged can still be found in {_listed(places)}.")
    return problems


def _listed(places: list[str]) -> str:
    return ", ".join(places[:10]) + (f" and {len(places) - 10} more" if len(places) > 10 else "")
