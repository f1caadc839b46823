"""Purging: what was deleted and is past its deadline is destroyed. Nothing else in SMP destroys memories.

So it must be sure. A deadline must be seen overdue twice (see overdue.py), or a person confirms it; the
root must have its marker; and most of a tree never goes at once without a person's word. A purge removes
by id every copy that SMP made, cleans the index, and then lists where others wrote the same words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from .. import audit
from ..change.change import Change, Request, apply
from ..change.holdings import Holding, Place, holdings, in_bundle, is_in_use, place_of
from ..change.move import delete_session, destroy, sweep
from ..change.places import is_record_file
from ..change.restore import delete, passing, sessions_with
from ..change.select import Selection, agent_of, texts_of
from ..disk import bundle
from ..disk.bundle import Item, Manifest
from ..errors import Conflict, Invalid, LockTimeout, MemoryNotFound, SMPError
from ..files import nobody_writes
from ..layout import (
    ACTIVE,
    ARCHIVED,
    DELETED,
    GLOBAL,
    LEAVING,
    LOCKS,
    MARKER,
    QUARANTINE,
    RETIRED,
    check_session_id,
    is_session_id,
)
from ..layout import BACKUP as BEFORE_IMPORT
from ..locks import NO_PATIENCE, lock
from ..model.outcome import Action, Outcome
from ..records import kind_of_file, type_of
from ..scope import UPKEEP
from ..scopes import ARCHIVE, BACKUP
from ..session_files import METADATA
from ..tidy import remove_abandoned
from ..timestamps import parse_time, render_time
from ..vacuum import ask_for_scrub, scrub_index
from . import overdue, purged

if TYPE_CHECKING:
    from ..files import Tree
    from ..index import Index
    from ..memory import Memory
    from ..scope import Scope

_IMPLAUSIBLE_SESSIONS = 5
_ASKED_FOR = "asked for, without waiting for its deadline"
_COPIES: tuple[Place, ...] = ("deleted", "undo", "evicted")
_WAIT_S, _PAUSE_S = 4.0, 0.1  # for programs that have an old version of a file open
_LINE, _WORD = 12, 25  # characters; a shorter line, or a shorter word alone, may stand anywhere
_NEEDLES, _LISTED = 200, 10


@dataclass(frozen=True)
class Doomed:
    """A bundle in `deleted/`: a session that was deleted whole, or memories that were deleted together."""

    session: str
    path: str
    deleted_at: str
    deadline: datetime
    ids: tuple[str, ...] = ()  # none for a whole session
    kinds: tuple[str, ...] = ()
    size_bytes: int = 0
    in_use: bool = False  # a whole session of this name is in use, or archived, all the same

    @property
    def is_session(self) -> bool:
        return self.path.endswith(f"/{BACKUP}")

    @property
    def key(self) -> str:
        """The name under which the ledger knows it. Another deadline makes it another."""
        return f"{self.path} {render_time(self.deadline)}"


@dataclass(frozen=True)
class Decision:
    """What is to become of a bundle, or of some memories in it, and why."""

    doomed: Doomed
    purge: bool
    reason: str

    def as_action(self) -> Action:
        one = self.doomed
        if one.is_session:
            return Action(one.session, "purge_session", (one.session,), self.reason, one.size_bytes)
        return Action(
            one.session, "purge_memories", one.ids, self.reason, one.size_bytes, kinds=one.kinds
        )


@dataclass(frozen=True)
class Snapshot:
    """Everything that a purge decides about, as it was when somebody looked."""

    doomed: tuple[Doomed, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of every session, wherever it is
    problems: tuple[str, ...] = ()
    has_marker: bool = True


@dataclass(frozen=True)
class PurgePlan:
    """Every deleted bundle, and whether it goes."""

    decisions: tuple[Decision, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def going(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.purge]


def plan(
    snapshot: Snapshot, ledger: overdue.Ledger, now: datetime, *, force: bool = False
) -> PurgePlan:
    """Decide about every deleted bundle. With force, a person says that the clock is right and much may go."""
    if not snapshot.has_marker:
        problem = (
            f"The root has no {MARKER}, so it is not mounted, or none of ours: nothing is purged."
        )
        return PurgePlan(problems=(problem,))
    decided = [
        _decide(one, ledger.waited_s(overdue.DELETED, one.key), now, force=force)
        for one in snapshot.doomed
    ]
    whole = {
        decision.doomed.session
        for decision in decided
        if decision.purge and decision.doomed.is_session
    }
    # Memories that were deleted one by one go with their session.
    decided = [one for one in decided if one.doomed.is_session or one.doomed.session not in whole]
    implausible = None if force else _implausible(whole, snapshot.sizes)
    if implausible:
        decided = [
            replace(one, purge=False, reason=implausible) if one.purge else one for one in decided
        ]
    return PurgePlan(tuple(decided), (*snapshot.problems, *([implausible] if implausible else [])))


def _decide(one: Doomed, waited_s: float, now: datetime, *, force: bool) -> Decision:
    until = render_time(one.deadline)
    if one.in_use:
        return Decision(one, False, f"a session of this name is in use; move {one.path} away")
    if now < one.deadline:
        return Decision(one, False, f"it can be restored until {until}")
    if waited_s >= overdue.WAIT_S:
        days = waited_s / 86_400
        return Decision(
            one,
            True,
            f"it could be restored until {until}, and was seen overdue for {days:.1f} days",
        )
    still = (overdue.WAIT_S - waited_s) / 86_400
    reason = f"it is overdue since {until}; it is kept for {still:.1f} days of running time more"
    return Decision(one, force, f"{reason}; confirmed with --force" if force else reason)


def _implausible(going: Collection[str], sizes: Mapping[str, int]) -> str | None:
    size, total = sum(sizes.get(name, 0) for name in going), sum(sizes.values())
    if len(going) < _IMPLAUSIBLE_SESSIONS or (2 * len(going) <= len(sizes) and 2 * size <= total):
        return None
    return (
        f"{len(going)} of {len(sizes)} sessions, {size:,} of {total:,} bytes, would be purged at once, which is more"
        " than anybody would expect: nothing is. If it is right, run smp purge --force."
    )


def look(memory: Memory) -> Snapshot:
    """Return what stands in `deleted/`, and how large each session is."""
    tree = memory.tree
    if not tree.exists(MARKER):
        return Snapshot(has_marker=False)
    problems: list[str] = []
    doomed = [
        one for name in tree.directories(DELETED) for one in doomed_of(memory, name, problems)
    ]
    sizes: dict[str, int] = {}
    for place in (ACTIVE, ARCHIVED, DELETED):
        for name in tree.directories(place):
            sizes[name] = sizes.get(name, 0) + sum(
                _size(tree, file) for file in tree.files_below(f"{place}/{name}")
            )
    return Snapshot(tuple(doomed), sizes, tuple(problems))


def doomed_of(memory: Memory, name: str, problems: list[str]) -> list[Doomed]:
    """Return the deleted bundles of a session. One that cannot be understood is left, and a problem."""
    tree, found = memory.tree, list[Doomed]()
    if name != GLOBAL and not is_session_id(name):
        return []
    in_use = name != GLOBAL and (
        is_in_use(memory, name) or tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}")
    )
    for path in bundle.paths(tree, f"{DELETED}/{name}"):
        try:
            said = bundle.read_manifest(tree, path)
            one = Doomed(name, path, said.at, parse_time(said.until or ""))
            size = sum(_size(tree, file) for file in tree.files_below(f"{DELETED}/{name}"))
        except (SMPError, OSError, ValueError, OverflowError) as error:
            problems.append(f"{path} is left as it is: {error}")
            continue
        found.append(
            replace(one, in_use=in_use, size_bytes=size) if one.is_session else _of(one, said.items)
        )
    return found


def _of(one: Doomed, items: Iterable[Item]) -> Doomed:
    """Return the part of a batch that these items are."""
    meant = tuple(items)
    return replace(one, ids=tuple(item.id for item in meant), kinds=tuple(type_of(item.type) for item in meant),
                   size_bytes=sum(item.length for item in meant))  # fmt: skip


def _size(tree: Tree, file: str) -> int:
    with suppress(FileNotFoundError):
        return tree.stat(file).st_size
    return 0


# The two ways to a purge: by the deadline, and at once.


def planned(memory: Memory, *, force: bool = False, dry_run: bool = True) -> PurgePlan:
    """Return the plan of now. Unless it is for show, the ledger notes what is overdue."""
    memory.require()
    snapshot, now = look(memory), memory.options.clock()
    if not snapshot.has_marker:
        return plan(snapshot, overdue.Ledger(), now)
    keys = [one.key for one in snapshot.doomed if one.deadline <= now]
    return plan(
        snapshot, overdue.look(memory, overdue.DELETED, keys, dry_run=dry_run), now, force=force
    )


def purge(
    memory: Memory, *, dry_run: bool = False, force: bool = False, by: str = "user"
) -> Outcome:
    """Destroy everything that is due."""
    decided = planned(memory, force=force, dry_run=dry_run)
    if dry_run:
        return Outcome(
            [one.as_action() for one in decided.going], list(decided.problems), dry_run=True
        )
    outcome = Outcome(problems=list(decided.problems))
    if memory.tree.exists(MARKER):
        outcome.add(carry_out(memory, decided.going, by=by, forced=force))
    return outcome


def purge_now(
    memory: Memory, name: str | None, ids: Sequence[str] | None = None, *, batch: str | None = None, by: str = "user",
    dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Destroy memories, a batch, or with neither a whole session, at once and whatever the deadline.

    Of an id under which something is deleted, or was anonymised, only that goes. Any other memory is
    deleted first. A batch is known without a session.
    """
    memory.require()
    if not memory.tree.exists(MARKER):
        return Outcome(
            problems=list(plan(look(memory), overdue.Ledger(), memory.options.clock()).problems)
        )
    if ids is not None and batch is not None:
        raise Invalid(["ids and a batch cannot be given together"])
    outcome = Outcome(dry_run=dry_run)
    if batch is not None:
        decisions = _batch_now(memory, name, batch)
    elif name is None:
        raise Invalid(["it must be said of which session"])
    elif ids is not None:
        decisions = _memories_now(memory, name, list(dict.fromkeys(ids)), by, outcome)
    else:
        decisions = [_session_now(memory, check_session_id(name), by, outcome)]
    if dry_run:
        outcome.actions = [one.as_action() for one in decisions]
        return outcome
    outcome.actions = []
    outcome.add(carry_out(memory, decisions, by=by, forced=True))
    backups = memory.root.parent / BEFORE_IMPORT
    if outcome.actions and backups.is_dir():
        outcome.notes.append(
            f"{backups} holds what was imported as it was then, also what was purged now; remove it when you can."
        )
    return outcome


def _batch_now(memory: Memory, name: str | None, batch: str) -> list[Decision]:
    if not batch:
        raise Invalid(["a batch has a name; smp restore --list shows it"])
    names = [*sessions_with(memory, batch)] if name is None else [name]
    found = [
        part for one in names for part in _parts(memory, one, lambda said, _: said.batch == batch)
    ]
    if not found:
        raise MemoryNotFound(f"Nothing{f' of {name}' if name else ''} is deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what is deleted.")  # fmt: skip
    return found


def _memories_now(
    memory: Memory, name: str, ids: Sequence[str], by: str, outcome: Outcome
) -> list[Decision]:
    def is_meant(_: Manifest, item: Item) -> bool:
        # Earlier states of an agent go with its state.
        return item.id in ids or (
            item.type == "agent_state" and item.file.rpartition("/")[2].removesuffix(".yaml") in ids
        )

    if not outcome.dry_run:
        memory._scope(name)._require_anywhere()
        with passing(memory, name, "purging"):
            pass  # every change that was cut off is done by now
    parts = _parts(memory, name, is_meant)
    known = {memory_id for part in parts for memory_id in part.doomed.ids}
    left = [one for one in ids if one not in known]
    if known and (standing := {*map(_named, holdings(memory, name))} & set(ids) - set(left)):
        outcome.notes += [
            f"{name}: only what is in {DELETED}/ of {one} is erased; one that is not deleted still stands."
            f" smp purge {name} {one} --now, once more, erases that too." for one in ids if one in standing
        ]  # fmt: skip
    if not left:
        return parts
    done = delete(
        memory,
        name,
        Selection(tuple(left)),
        reason="erased at once",
        by=by,
        dry_run=outcome.dry_run,
    )
    outcome.problems += done.problems
    if not outcome.dry_run:
        return [*parts, *_parts(memory, name, lambda said, _: said.batch == done.batch)]
    now = memory.options.clock()
    going = Doomed(name, f"{DELETED}/{name}/{done.batch}.tar.gz", render_time(now), now, tuple(done.ids),
                   tuple(kind for action in done.actions for kind in action.kinds), done.bytes_freed)  # fmt: skip
    return [*parts, Decision(going, True, _ASKED_FOR)]


def _named(one: Holding) -> str:
    return agent_of(one) or one.id


def _parts(memory: Memory, name: str, is_meant: Callable[[Manifest, Item], bool]) -> list[Decision]:
    """Return, for each batch of a session, the memories in it that are meant."""
    found: list[Decision] = []
    for one in doomed_of(memory, name if name == GLOBAL else check_session_id(name), []):
        if not one.is_session:
            said = bundle.read_manifest(memory.tree, one.path)
            if items := [item for item in said.items if is_meant(said, item)]:
                found.append(Decision(_of(one, items), True, _ASKED_FOR))
    return found


def _session_now(memory: Memory, session_id: str, by: str, outcome: Outcome) -> Decision:
    path, now = f"{DELETED}/{session_id}/{BACKUP}", memory.options.clock()
    is_here = is_in_use(memory, session_id) or memory.tree.exists(
        f"{ARCHIVED}/{session_id}/{ARCHIVE}"
    )
    size = sum(
        _size(memory.tree, file) for file in memory.tree.files_below(f"{DELETED}/{session_id}")
    )
    if is_here or not memory.tree.exists(path):
        # Raises Conflict where another session of this name is deleted already.
        done = delete_session(memory, session_id, "erased at once", by, dry_run=outcome.dry_run)
        outcome.notes += done.notes
        size += done.bytes_freed if outcome.dry_run else _size(memory.tree, path)
    # The bundle goes also where nobody can read it any more.
    known = [one for one in doomed_of(memory, session_id, []) if one.is_session]
    return Decision(
        known[0] if known else Doomed(session_id, path, render_time(now), now, size_bytes=size),
        True,
        _ASKED_FOR,
    )


# Doing it.


@dataclass(frozen=True)
class _Purge:
    """Who destroys, whether a person confirmed it, and what it comes to."""

    memory: Memory
    by: str
    forced: bool
    outcome: Outcome = field(default_factory=Outcome)

    def note(self, one: Doomed, gone: Sequence[Holding] = ()) -> None:
        """Write down what goes, durably, before anything of it does."""
        tree, now = self.memory.tree, self.memory.options.clock()
        ask_for_scrub(self.memory, one.session)
        deadline = render_time(one.deadline)
        entry = purged.Entry(
            one.session, gone, one.deleted_at, deadline, one.size_bytes, self.forced
        )
        purged.note(self.memory, entry, now)
        facts = {"ids": [held.id for held in gone], "whole_session": one.is_session or None,
                 "deleted_at": one.deleted_at, "at_once": now < one.deadline or None}  # fmt: skip
        audit.note(
            tree, "purge", at=now, by=self.by, session=one.session, count=len(gone) or 1, **facts
        )


def carry_out(
    memory: Memory, going: Sequence[Decision], *, by: str, forced: bool, index: Index | None = None
) -> Outcome:
    """Destroy one after the other; one that fails stops no other. Then clean the index.

    The leader of the root gives its index, and waits for nobody. For anybody else, programs that have
    an old version open are waited for, and the places are noted where others wrote the same words.
    """
    work, words = _Purge(memory, by, forced), list[str]()
    for decision in going:
        one = decision.doomed
        try:
            with passing(memory, one.session, "purging") as scope:
                gone = (_purge_session if one.is_session else _purge_memories)(work, scope, one)
            ask_for_scrub(
                memory, one.session
            )  # again: the leader may have served the first too early
        except (SMPError, OSError) as error:
            work.outcome.problems.append(f"{one.session}: not purged: {error}")
            continue
        work.outcome.actions.append(decision.as_action())
        if not one.is_session:
            work.outcome.problems += _await_closed(
                memory, one.session, gone, 0.0 if index else _WAIT_S
            )
        words += [word for held in gone for word in _words_of(held)]
    remove_abandoned(memory)
    _remove_old_locks(memory)
    work.outcome.problems += scrub_index(memory, index)
    if index is None and (places := places_with(memory, words)):
        more = f" and {len(places) - _LISTED} more" if len(places) > _LISTED else ""
        work.outcome.notes.append(
            f"The same words still stand in {', '.join(places[:_LISTED])}{more}."
        )
    return work.outcome


def _purge_session(work: _Purge, scope: Scope, one: Doomed) -> list[Holding]:
    """Destroy everything that SMP has of a session. Return its memories, as far as they can be read."""
    tree, name = work.memory.tree, one.session
    if is_in_use(work.memory, name) or not tree.exists(one.path):
        raise Conflict(f"{name} was restored meanwhile, and was left.", session_id=name)
    gone: list[Holding] = []
    with suppress(SMPError, OSError):  # a damaged bundle goes as well
        gone += in_bundle(bundle.read(tree, one.path), name, "deleted")
    work.note(one)
    for path in [*_old_versions(tree, name), f"{QUARANTINE}/{name}"]:
        work.outcome.notes += [
            f"{name}: a program still has {file} open; its bytes are gone when it closes it."
            for file in _files(tree, path) if _is_open(tree, file)
        ]  # fmt: skip
        _remove(tree, path)
    # The bundles go last: after a crash they say that there is something left to purge.
    destroy(
        scope, bundle.paths(tree, f"{ARCHIVED}/{name}") + bundle.paths(tree, f"{DELETED}/{name}")
    )
    for directory in (f"{ARCHIVED}/{name}", f"{DELETED}/{name}"):
        _remove(tree, directory)
    remove_locks(work.memory, name, held=UPKEEP)
    return gone


def _purge_memories(work: _Purge, scope: Scope, one: Doomed) -> list[Holding]:
    """Destroy memories of a batch and every copy of them in other bundles. Return them."""
    memory, tree, name = work.memory, work.memory.tree, one.session
    packed = bundle.read(tree, one.path) if tree.exists(one.path) else None
    there = [*in_bundle(packed, name, place_of(one.path))] if packed else []
    gone = [held for held in there if held.id in one.ids]
    if {held.id for held in gone} != set(one.ids):
        raise Conflict(
            f"{name}: what was to be purged has changed meanwhile, and was left.", session_id=name
        )
    problems: list[str] = []
    known = {(held.file, held.id, held.hash) for held in gone}
    copies = [held for held in holdings(memory, name, _COPIES, problems)
              if (held.file, held.id, held.hash) in known and held.container != one.path
              and not held.container.endswith(f"/{BACKUP}")]  # fmt: skip
    if problems:
        raise Conflict(
            f"{name}: {problems[0]}, and may hold a copy; nothing was purged.", session_id=name
        )
    work.note(one, gone)
    _cut_from_quarantine(tree, name, gone)
    for file in tree.files_below(scope.path("indexes")):
        if any(held.id.encode() in tree.read(file) for held in gone):
            tree.unlink(file)  # older than the deletion; it is made anew
    changes = [
        Change(held.file, held.id, held.hash, None, container=held.container)
        for held in [*gone, *copies]
    ]
    apply(scope, Request(changes, doing="purging"))
    return gone


def _cut_from_quarantine(tree: Tree, name: str, gone: Iterable[Holding]) -> None:
    """Take the very bytes of these memories out of quarantined pieces. A piece of nothing else goes."""
    for path in [
        path for path in tree.files_below(f"{QUARANTINE}/{name}") if not path.endswith(".note.yaml")
    ]:
        content = rest = tree.read(path)
        for held in gone:
            rest = rest.replace(held.raw.strip(b"\n"), b"")
        if rest == content:
            continue
        if rest.strip():
            tree.replace(path, rest)
        else:
            tree.unlink(f"{path.removesuffix('.bytes')}.note.yaml")
            tree.unlink(path)
    tree.remove_empty(f"{QUARANTINE}/{name}")


def _await_closed(memory: Memory, name: str, gone: Sequence[Holding], wait_s: float) -> list[str]:
    """Wait for old versions of files that still hold a memory. Return a problem for each that stays.

    A program that has one open may still write into it, so it is not removed before it is closed.
    """
    until = time.monotonic() + wait_s
    files = {held.file for held in gone if is_record_file(held.file)}
    while True:
        if is_in_use(memory, name):
            with suppress(SMPError), memory._scope(name).locked(files, "purging", any_version=True):
                pass  # whoever takes the locks folds late writes in, and removes what is closed
        sweep(memory, name)
        left = [
            slot for slot in _old_versions(memory.tree, name) if _holds(memory.tree, slot, gone)
        ]
        if not left or time.monotonic() >= until:
            return [f"{name}: {slot} still holds what was purged, because a program has it open; it goes when that closes it."
                    for slot in left]  # fmt: skip
        time.sleep(_PAUSE_S)


def _old_versions(tree: Tree, name: str) -> list[str]:
    return [
        f"{place}/{slot}"
        for place in (RETIRED, LEAVING)
        for slot in tree.list(place)
        if slot.startswith(f"{name}+")
    ]


def _holds(tree: Tree, slot: str, gone: Iterable[Holding]) -> bool:
    with suppress(FileNotFoundError):
        contents = [tree.read(file) for file in _files(tree, slot)]
        return any(held.raw.strip() in content for held in gone for content in contents)
    return False


def _files(tree: Tree, path: str) -> list[str]:
    if not tree.exists(path):
        return []
    return [*tree.files_below(path)] if tree.is_directory(path) else [path]


def _is_open(tree: Tree, file: str) -> bool:
    with suppress(SMPError, OSError), tree.opened(file) as descriptor:
        return nobody_writes(descriptor) is False
    return False


def _remove(tree: Tree, path: str) -> None:
    if not tree.exists(path):
        return
    if tree.is_directory(path):
        if error := tree.remove_directory(path):
            raise error
    else:
        tree.unlink(path)
    tree.sync_parent(path)


def remove_locks(memory: Memory, name: str, held: str | None = None) -> None:
    """Remove the lock files of a session that is nowhere any more, except those that somebody holds.

    Each is removed by whoever holds it: a waiter then sees that its lock has lost its name.
    """
    tree = memory.tree
    for entry in tree.list(f"{LOCKS}/{name}"):
        file = entry.removesuffix(".lock")
        if file != held:
            with suppress(LockTimeout), lock(tree, name, file, NO_PATIENCE, "purging"):
                tree.unlink(f"{LOCKS}/{name}/{entry}")
    if held is not None:
        tree.unlink(f"{LOCKS}/{name}/{held}.lock")
    tree.remove_empty(f"{LOCKS}/{name}")


def _remove_old_locks(memory: Memory) -> None:
    """Remove locks of purged sessions that somebody held when they were purged."""
    for name in purged.sessions(memory) & set(memory.tree.list(LOCKS)):
        if not any(memory.tree.exists(f"{place}/{name}") for place in (ACTIVE, ARCHIVED, DELETED)):
            remove_locks(memory, name)


# Where others wrote the same words.


def _words_of(one: Holding) -> list[str]:
    """Return the lines of a memory by which it would be known again; a name or a time is none."""
    if is_record_file(one.file):
        texts = [str(one.value.get(kind_of_file(one.file).text, ""))]
    else:
        texts = [*texts_of(one.value)] if one.file != METADATA else []
    lines = (line.strip() for text in texts for line in text.splitlines())
    return [line for line in lines if len(line) >= (_LINE if " " in line else _WORD)]


def places_with(memory: Memory, words: Sequence[str]) -> list[str]:
    """Return the files below the root, bundles unpacked, that hold one of these lines; of very many, some are sought."""
    every = list(dict.fromkeys(words))
    needles = [
        word.encode("utf-8", "replace") for word in every[:: -(-len(every) // _NEEDLES) or 1]
    ]
    if not needles:
        return []
    found: list[str] = []
    for place in (ACTIVE, GLOBAL, ARCHIVED, DELETED, QUARANTINE):
        for file in memory.tree.files_below(place):
            with suppress(SMPError, OSError):  # one that cannot be read is `smp check`'s
                if any(
                    needle in content
                    for content in _contents(memory.tree, file)
                    for needle in needles
                ):
                    found.append(file)
    return found


def _contents(tree: Tree, file: str) -> Iterator[bytes]:
    if file.endswith(".tar.gz"):
        yield from bundle.read(tree, file).members.values()
    else:
        yield tree.read(file)
