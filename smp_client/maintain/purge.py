"""Purging: what was deleted, and whose time to be restored is over, is destroyed. Nothing else in SMP destroys anything, unless a
person asks for it to be erased at once.

So it must be sure: the deadline has passed and somebody has waited for it (see deadlines.py), or a person confirms it; the root is
the one that we know; and what would go is not most of what there is. What goes leaves no byte below the root, see erasure.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import Conflict, Invalid, MemoryNotFound, SMPError
from ..files import DEEPEST
from ..layout import ACTIVE, ARCHIVED, BACKUP, DELETED, GLOBAL, MARKER, QUARANTINE, TEMPORARY, check_session_id
from ..privacy.deleting.store import is_known_file
from ..records import STATE_HISTORY, name_of
from ..text.mapping import load_mapping
from ..timestamps import render_time
from . import deadlines, erasure, purged, quarantined, removal, traces
from .actions import Action, Outcome
from .archive import is_archived
from .deadlines import Seen
from .doomed import TOP, Doomed, Gone, Snapshot, directories, doomed_of, items_of, look, record_of
from .quarantined import Words

if TYPE_CHECKING:
    from ..files import Tree
    from ..index import Index
    from ..memory import Memory

_IMPLAUSIBLE_SESSIONS = 5
_OWN = ".smp"
_CHECKED_LINES = 16
_ASKED_FOR = "asked for, without waiting for its deadline"


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


def purge(
    memory: Memory, *, dry_run: bool = False, force: bool = False, by: str = "user", index: Index | None = None
) -> Outcome:
    """What is due goes. Whoever leads the root gives its index; a daemon observes the deadlines (see deadlines.py) just before."""
    decided = planned(memory, force=force)
    if dry_run:
        return Outcome([decision.as_action() for decision in decided.going], list(decided.problems), dry_run=True)
    if not memory.tree.exists(MARKER):
        return Outcome(problems=list(decided.problems))
    outcome = apply(memory, decided.going, forced=force, by=by, index=index)
    outcome.problems[:0] = decided.problems
    return outcome


def purge_now(
    memory: Memory, name: str | None, ids: Iterable[str] | None = None, *, batch: str | None = None, by: str = "user",
    dry_run: bool = False, index: Index | None = None,
) -> Outcome:  # fmt: skip
    """Erases memories, all that was deleted under a batch, or with neither a whole session, at once and whatever the deadline.

    Of an id under which something is deleted, or was anonymised, only that; of any other what stands there, which is deleted first.
    Also says where else the same words still stand. A batch is known without a session.
    """
    memory.require()
    if ids is not None and batch is not None:
        raise Invalid(["ids and a batch cannot be given together"])
    told = Outcome(dry_run=dry_run)
    if batch is not None:
        decisions = _batch_now(memory, name, batch)
    elif name is None:
        raise Invalid(["it must be said of which session"])
    elif ids is not None:
        decisions = _memories_now(memory, name, list(dict.fromkeys(ids)), by, told)
    else:
        decisions = [_session_now(memory, check_session_id(name), by, dry_run=dry_run)]
    if dry_run:
        told.actions += [decision.as_action() for decision in decisions]
        return told
    outcome = apply(memory, decisions, forced=True, by=by, index=index, thorough=True)
    outcome.problems[:0] = told.problems
    outcome.notes[:0] = told.notes
    return outcome


def purge_memory(memory: Memory, session_id: str, ids: Iterable[str], *, index: Index | None = None) -> Outcome:
    """The same of memories that were deleted, and of nothing else."""
    memory.require()
    wanted = list(dict.fromkeys(ids))
    decisions = _parts(memory, session_id, lambda gone: gone.id in wanted)
    known = {gone.id for decision in decisions for gone in decision.doomed.memories}
    if missing := [memory_id for memory_id in wanted if memory_id not in known]:
        raise MemoryNotFound(f"There is no deleted memory {', '.join(missing)} of {session_id}.", session_id=session_id,
                             advice="Delete it first; session.deleted() lists what is deleted.")  # fmt: skip
    return apply(memory, decisions, forced=True, index=index, thorough=True)


def _parts(memory: Memory, name: str, is_meant: Callable[[Gone], bool]) -> list[Decision]:
    """Those of the deleted memories that are meant."""
    found = doomed_of(memory, name if name == GLOBAL else check_session_id(name), [])
    parts = [replace(one, memories=part) for one in found if (part := tuple(gone for gone in one.memories if is_meant(gone)))]
    return [Decision(part, True, _ASKED_FOR) for part in parts]


def _batch_now(memory: Memory, name: str | None, batch: str) -> list[Decision]:
    from ..privacy.deleting.restoring import of_batch

    if not batch:
        raise Invalid(["a batch has a name; smp restore --list shows it"])  # what was deleted without one would be meant
    names = of_batch(memory, batch) if name is None else [name]
    found = [decision for one in names for decision in _parts(memory, one, lambda gone: gone.batch == batch)]
    if not found:
        raise MemoryNotFound(f"Nothing of {', '.join(names)} is deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what is deleted.")  # fmt: skip
    return found


def _memories_now(memory: Memory, name: str, ids: Sequence[str], by: str, told: Outcome) -> list[Decision]:
    from ..privacy.deleting import clearing, reworking
    from ..privacy.deleting.selection import Selection, delete, is_named
    from ..privacy.deleting.standing import standing

    def is_meant(gone: Gone) -> bool:
        # What an agent's state was earlier goes with the state.
        return gone.id in ids or any(gone.file == f"{STATE_HISTORY}/{agent}.yaml" for agent in ids)

    if not told.dry_run:
        _settle(memory, name)
    # What stands as it was deleted goes with its copy: it is taken out once more.
    again = reworking.standing_as_deleted(memory, name, ids)
    parts = _parts(memory, name, lambda gone: is_meant(gone) and gone.id not in again)
    deleted = {gone.id for part in parts for gone in part.doomed.memories}
    if deleted:
        found = [*standing(memory, name, [])]
        still = [one for one in ids if one in deleted and any(is_named(other, [one]) for other in found)]
        told.notes += [_still_stands(name, one) for one in still]
    left = [one for one in ids if one not in deleted]
    if not left:
        return parts
    done = delete(memory, name, Selection(tuple(left)), reason="erased at once", by=by, dry_run=told.dry_run)
    told.problems += [problem for problem in done.problems if not problem.endswith(clearing.UNTIL_PURGED)]
    if not told.dry_run:
        return _parts(memory, name, lambda gone: is_meant(gone) or gone.batch == done.batch)
    now = memory.options.clock()
    going = tuple(Gone(one.id, name_of(one.type), one.file, "", "", one.batch) for one in done)
    return [*parts, Decision(Doomed(name, render_time(now), now, going), True, _ASKED_FOR)]


def _still_stands(name: str, memory_id: str) -> str:
    return (f"{name}: only what is in {DELETED}/ of {memory_id} is erased; one that is not deleted still stands."
            f" smp purge {name} {memory_id} --now, once more, erases that too.")  # fmt: skip


def _settle(memory: Memory, name: str) -> None:
    """Finishes first what a crash has cut off: only then it is known what is deleted, and what stands."""
    from ..privacy.deleting import reworking

    with reworking.locked(memory, name, "purging"):
        reworking.settle(memory, name)


def _session_now(memory: Memory, session_id: str, by: str, *, dry_run: bool) -> Decision:
    is_cut_off = dry_run and not memory.tree.exists(f"{ACTIVE}/{session_id}") and not is_archived(memory.tree, session_id)

    def whole() -> list[Doomed]:
        return [one for one in doomed_of(memory, session_id, []) if one.is_session and (is_cut_off or not one.in_use)]

    if not dry_run:
        _settle(memory, session_id)
    if not whole():
        deleted = removal.delete_session(memory, session_id, "erased at once", by, dry_run=dry_run)
        if dry_run:
            now = memory.options.clock()
            return Decision(Doomed(session_id, render_time(now), now, size_bytes=deleted.bytes_freed), True, _ASKED_FOR)
    for one in whole():
        return Decision(one, True, _ASKED_FOR)
    raise Conflict(f"{session_id} is just being deleted or brought back; nothing was purged.", session_id=session_id,
                   advice="Try it again.")  # fmt: skip


def apply(
    memory: Memory, going: Sequence[Decision], *, forced: bool, by: str = "user", index: Index | None = None, thorough: bool = False
) -> Outcome:
    """One after the other: what is wrong with one keeps no other. Then the index is cleaned, and all is looked through."""
    outcome = Outcome()
    now = memory.options.clock()
    lines: dict[str, list[str]] = {}
    short: dict[str, Words] = {}
    for decision in going:
        try:
            erased = erasure.erase(memory, decision.doomed, now, forced=forced, by=by)
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{decision.doomed.session}: not purged: {error}")
            continue
        outcome.actions.append(decision.as_action(erased.bytes_freed))
        outcome.notes += erased.notes
        outcome.problems += erased.problems
        lines.setdefault(decision.doomed.session, []).extend(erased.lines)
        short[decision.doomed.session] = Words((*short.get(decision.doomed.session, Words()).said, *erased.short.said))
    try:
        erasure.sweep(memory)
    except (SMPError, OSError) as error:
        # What was done must be told all the same.
        outcome.problems.append(f"what an earlier purge has left could not be removed: {error}")
    outcome.problems += (unclean := traces.scrub_index(memory, index))
    for session_id, said in lines.items():
        # While the index could not be cleaned, it is known where the words are.
        own = [f"{QUARANTINE}/{session_id}", *([] if unclean else [_OWN])]
        _look_for_the_rest(memory, session_id, said, short[session_id], own, outcome, thorough=thorough)
    if outcome.actions and thorough and (backups := memory.root.parent / BACKUP).is_dir():
        outcome.notes.append(f"{backups} holds what was imported as it was then, also what was purged now; remove it when you can.")
    return outcome


def _look_for_the_rest(
    memory: Memory, session_id: str, lines: list[str], short: Words, own: list[str], outcome: Outcome, *, thorough: bool
) -> None:
    """Places that still hold what was purged. That others say the same, and the index has it from them, is no trace of it."""
    # The index may be large, and a few lines are enough to know whether it was cleaned.
    every = traces.needles(lines, traces.NEEDLES_CAP if thorough else _CHECKED_LINES)
    # What stands in our own list of what was purged is an id or a time, and nothing that anybody has said.
    needles = [needle for needle in every if not traces.found_in(memory.tree, purged.FILE, [needle])]
    said_again = [*_others_with(memory, needles), *_beside_with(memory, session_id, short)] if thorough else []
    if said_again:
        outcome.notes.append(f"{session_id}: the same words still stand in {_listed(list(dict.fromkeys(said_again)))}.")
    if thorough and (deep := [one.path for one in memory.tree.walk("", _skip) if one.is_deep]):
        outcome.notes.append(f"Deeper than {DEEPEST} directories nothing was looked into: {_listed(deep)}.")
    places = [file for file in memory.tree.files_below(TEMPORARY) if quarantined.stand_as_values(memory.tree, file, short)]
    if traces.places_with(memory, needles, own):
        rest = [needle for needle in needles if not _others_with(memory, [needle])]
        places += traces.places_with(memory, rest, own)
    if places:
        outcome.problems.append(f"{session_id}: what was purged can still be found in {_listed(list(dict.fromkeys(places)))}.")


def _skip(_path: str, _error: Exception) -> None:
    """Leave out what cannot be listed."""


def _others_with(memory: Memory, needles: Sequence[bytes]) -> list[str]:
    """The files of memories in which others say the same; of the records of deletions only the reasons are anybody's words."""
    tree = memory.tree
    records = {record_of(name): name for name in directories(tree, DELETED)}
    found = [file for file in traces.places_with(memory, needles, (ACTIVE, GLOBAL, ARCHIVED, DELETED)) if file != purged.FILE]
    return [file for file in found if file not in records or any(needle in _reasons(tree, file) for needle in needles)]


def _beside_with(memory: Memory, session_id: str, short: Words) -> list[str]:
    """What editors keep beside the files of a session, and drops that wait, where one of these short texts stands by itself: it may
    be of what was purged. In the files of memories many would say the same."""
    directory = GLOBAL if session_id == GLOBAL else f"{ACTIVE}/{session_id}"
    files = [file for file in memory.tree.files_below(directory) if short.said]
    beside = [file for file in files if not is_known_file(session_id, file.removeprefix(f"{directory}/"))]
    return [file for file in beside if quarantined.stand_as_values(memory.tree, file, short)]


def _reasons(tree: Tree, record: str) -> bytes:
    try:
        said = load_mapping(tree.read(record), TOP, record)
    except (SMPError, OSError):
        return b""
    given = [said.get("reason"), *(item.get("reason_specific") for item in items_of(said) if isinstance(item, dict))]
    whole = said.get("deleted_session")
    given += [whole.get("reason")] if isinstance(whole, dict) else []
    return "\n".join(str(one) for one in given).encode("utf-8", "replace")


def _listed(places: list[str]) -> str:
    return ", ".join(places[:10]) + (f" and {len(places) - 10} more" if len(places) > 10 else "")
