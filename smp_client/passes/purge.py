"""Purging: what was deleted and is past its deadline is destroyed. Nothing else destroys memories.

So it must be sure. A deadline must be seen overdue twice (see overdue.py), or a person confirms it;
the root must have its marker; and most of a tree never goes at once without a person's word.
A purge removes by id every copy that SMP made, cleans the index, and lists where others wrote the
same words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ..change.change import Request, apply
from ..change.holdings import Holding, Place, holdings, in_bundle, is_in_use, place_of
from ..change.move import delete_session, destroy, sweep
from ..change.places import is_record_file
from ..change.restore import delete, removal, sessions_with
from ..change.select import Selection, agent_of, texts_of
from ..disk import audit, bundle, tombstones
from ..disk.bundle import Item
from ..disk.locks import NO_PATIENCE, lock
from ..disk.rewrite import file_of_slot
from ..disk.scopes import ARCHIVE, BACKUP
from ..disk.session_files import METADATA
from ..disk.tree import nobody_writes
from ..index.vacuum import ask_for_scrub, scrub_index
from ..model import layout
from ..model.errors import Conflict, Invalid, LockTimeout, MemoryNotFound, NewerFormat, SMPError
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LOCKS, MARKER, QUARANTINE, check_session_id
from ..model.outcome import Action, Outcome
from ..model.record import kind_of_file, type_of
from ..model.times import parse_time, render_time
from ..text.edits import spans
from ..text.format import plain
from . import overdue
from .tidy import remove_abandoned

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..disk.tree import Tree
    from ..index.database import Index
    from ..memory import Memory

    _Note = Callable[["Doomed", Sequence[Holding]], None]

_IMPLAUSIBLE_SESSIONS = 5
_NO_MARKER = f"The root has no {MARKER}, so it is not mounted, or none of ours: nothing is purged."
_ASKED_FOR = "asked for, without waiting for its deadline"
_COPIES: tuple[Place, ...] = ("deleted", "undo", "evicted")
_WAIT_S, _PAUSE_S = 4.0, 0.1  # for programs that have an old version of a file open
_OLD = (layout.RETIRED, layout.LEAVING)  # where versions wait that a program may have open
_LINE, _WORD = 12, 25  # characters; a shorter line, or a shorter word alone, may stand anywhere
_NEEDLES = 200


@dataclass(frozen=True)
class Doomed:
    """A bundle in `deleted/`: a whole session, or memories that were deleted together."""

    session: str
    path: str
    deleted_at: str
    deadline: datetime
    items: tuple[Item, ...] = ()  # the memories that are meant; none for a whole session
    size_bytes: int = 0
    in_use: bool = False  # a whole session of this name is in use, or archived, all the same
    batch: str = ""

    @property
    def is_session(self) -> bool:
        return self.path.endswith(f"/{BACKUP}")

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.items)

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
        kinds = tuple(type_of(item.type) for item in one.items)
        size = sum(item.length for item in one.items)
        return Action(one.session, "purge_memories", one.ids, self.reason, size, kinds=kinds)


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
    """Decide about every deleted bundle. With force, a person confirms the clock and the amount."""
    if not snapshot.has_marker:
        return PurgePlan(problems=(_NO_MARKER,))
    decided = [_decide(one, ledger, now, force=force) for one in snapshot.doomed]
    whole = {one.doomed.session for one in decided if one.purge and one.doomed.is_session}
    # Memories that were deleted one by one go with their session.
    decided = [one for one in decided if one.doomed.is_session or one.doomed.session not in whole]
    if (problem := _implausible(whole, snapshot.sizes)) and not force:
        kept = [replace(one, purge=False, reason=problem) if one.purge else one for one in decided]
        return PurgePlan(tuple(kept), (*snapshot.problems, problem))
    return PurgePlan(tuple(decided), snapshot.problems)


def _decide(one: Doomed, ledger: overdue.Ledger, now: datetime, *, force: bool) -> Decision:
    until, waited_s = render_time(one.deadline), ledger.waited_s(overdue.DELETED, one.key)
    if one.in_use:
        return Decision(one, False, f"a session of this name is in use; move {one.path} away")
    if now < one.deadline:
        return Decision(one, False, f"it can be restored until {until}")
    if waited_s >= overdue.WAIT_S:
        seen = f"was seen overdue for {waited_s / 86_400:.1f} days"
        return Decision(one, True, f"it could be restored until {until}, and {seen}")
    still = (overdue.WAIT_S - waited_s) / 86_400
    reason = f"it is overdue since {until}; it is kept for {still:.1f} days of running time more"
    return Decision(one, force, f"{reason}; confirmed with --force" if force else reason)


def _implausible(going: Collection[str], sizes: Mapping[str, int]) -> str | None:
    size, total = sum(sizes.get(name, 0) for name in going), sum(sizes.values())
    if len(going) < _IMPLAUSIBLE_SESSIONS or (2 * len(going) <= len(sizes) and 2 * size <= total):
        return None
    much = f"{len(going)} of {len(sizes)} sessions, {size:,} of {total:,} bytes, would be purged"
    unlikely = "at once, which is more than anybody would expect: nothing is."
    return f"{much} {unlikely} If it is right, run smp purge --force."


def look(memory: Memory) -> Snapshot:
    """Return the bundles in `deleted/`, and how large each session is."""
    tree = memory.tree
    if not tree.exists(MARKER):
        return Snapshot(has_marker=False)
    problems, sizes = list[str](), Counter[str]()
    names = tree.directories(DELETED)
    doomed = [one for name in names for one in doomed_of(memory, name, problems)]
    for place in (ACTIVE, ARCHIVED, DELETED):
        sizes.update({name: _size(tree, f"{place}/{name}") for name in tree.directories(place)})
    return Snapshot(tuple(doomed), sizes, tuple(problems))


def doomed_of(memory: Memory, name: str, problems: list[str]) -> list[Doomed]:
    """Return the deleted bundles of a session. One that nobody can understand is a problem."""
    tree, found = memory.tree, list[Doomed]()
    if name != GLOBAL and not layout.is_session_id(name):
        return []
    for path in bundle.paths(tree, f"{DELETED}/{name}"):
        try:
            said = bundle.read_manifest(tree, path)
            deadline = parse_time(said.until or "")
            one = Doomed(name, path, said.at, deadline, said.items, batch=said.batch)
        except (SMPError, OSError, ValueError, OverflowError) as error:
            problems.append(f"{path} is left as it is: {error}")
            continue
        if one.is_session:
            size, in_use = _size(tree, f"{DELETED}/{name}"), _is_here(memory, name)
            one = replace(one, items=(), size_bytes=size, in_use=in_use)
        found.append(one)
    return found


def _is_here(memory: Memory, name: str) -> bool:
    return is_in_use(memory, name) or memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}")


def _size(tree: Tree, directory: str) -> int:
    size = 0
    for file in tree.files_below(directory):
        with suppress(FileNotFoundError):
            size += tree.stat(file).st_size
    return size


# The two ways to a purge: by the deadline, and at once.


def planned(memory: Memory, *, force: bool = False, dry_run: bool = True) -> PurgePlan:
    """Return the plan of now. Unless it is for show, the ledger notes what is overdue."""
    memory.require()
    snapshot, now = look(memory), memory.options.clock()
    if not snapshot.has_marker:
        return plan(snapshot, overdue.Ledger(), now)
    keys = [one.key for one in snapshot.doomed if one.deadline <= now]
    ledger = overdue.look(memory, overdue.DELETED, keys, dry_run=dry_run)
    return plan(snapshot, ledger, now, force=force)


def purge(
    memory: Memory, *, dry_run: bool = False, force: bool = False, by: str = "user"
) -> Outcome:
    """Destroy everything that is due."""
    decided = planned(memory, force=force, dry_run=dry_run)
    outcome = Outcome(problems=list(decided.problems), dry_run=dry_run)
    if dry_run:
        outcome.actions += [one.as_action() for one in decided.going]
    elif memory.tree.exists(MARKER):
        outcome.add(carry_out(memory, decided.going, by=by, forced=force))
    return outcome


def purge_now(
    memory: Memory, name: str | None, ids: Sequence[str] | None = None, *, batch: str | None = None,
    by: str = "user", dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Destroy memories, a batch, or else a whole session, at once and whatever the deadline.

    Of an id under which something is deleted, or was anonymised, only that goes. Any other memory
    is deleted first. A batch is known without a session.
    """
    memory.require()
    if not memory.tree.exists(MARKER):
        return Outcome(problems=[_NO_MARKER])
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
        outcome.actions += [one.as_action() for one in decisions]
        return outcome
    outcome.add(carry_out(memory, decisions, by=by, forced=True))
    if outcome.actions and (backups := memory.root.parent / layout.BACKUP).is_dir():
        note = f"{backups} holds what was imported as it was then, also what was purged now;"
        outcome.notes.append(f"{note} remove it when you can.")
    return outcome


def _batch_now(memory: Memory, name: str | None, batch: str) -> list[Decision]:
    if not batch:
        raise Invalid(["a batch has a name; smp restore --list shows it"])
    names = [*sessions_with(memory, batch)] if name is None else [name]
    parts = (_parts(memory, one, lambda doomed, _: doomed.batch == batch) for one in names)
    found = [part for several in parts for part in several]
    if not found:
        where = f" of {name}" if name else ""
        advice = "smp restore --list shows what is deleted."
        raise MemoryNotFound(f"Nothing{where} is deleted under the batch {batch!r}.", advice=advice)
    return found


def _memories_now(
    memory: Memory, name: str, ids: Sequence[str], by: str, outcome: Outcome
) -> list[Decision]:
    if not outcome.dry_run:
        with memory._scope(name).undisturbed("purging"):
            pass  # every change that was cut off is done by now
    # Earlier states of an agent go with its state.
    parts = _parts(memory, name, lambda _, item: item.id in ids or agent_of(item) in ids)
    known = {memory_id for part in parts for memory_id in part.doomed.ids}
    if known:
        standing = {agent_of(one) or one.id for one in holdings(memory, name)}
        still = "is erased; one that is not deleted still stands"
        outcome.notes += [f"{name}: only what is in {DELETED}/ of {one} {still}."
                          f" smp purge {name} {one} --now, once more, erases that too."
                          for one in ids if one in known and one in standing]  # fmt: skip
    left = tuple(one for one in ids if one not in known)
    if not left:
        return parts
    how = {"reason": "erased at once", "by": by}
    done = delete(memory, name, Selection(left), **how, dry_run=outcome.dry_run)
    outcome.problems += done.problems
    if not outcome.dry_run:
        return [*parts, *_parts(memory, name, lambda doomed, _: doomed.batch == done.batch)]
    for one in done.actions:
        outcome.actions.append(replace(one, type="purge_memories", reason=_ASKED_FOR))
    return parts


def _parts(memory: Memory, name: str, is_meant: Callable[[Doomed, Item], bool]) -> list[Decision]:
    """Return, for each batch of a session, the memories in it that are meant."""
    found: list[Decision] = []
    for one in doomed_of(memory, name if name == GLOBAL else check_session_id(name), []):
        items = tuple(item for item in one.items if is_meant(one, item))  # a session has none
        found += [Decision(replace(one, items=items), True, _ASKED_FOR)] if items else []
    return found


def _session_now(memory: Memory, session_id: str, by: str, outcome: Outcome) -> Decision:
    path, now = f"{DELETED}/{session_id}/{BACKUP}", memory.options.clock()
    size = _size(memory.tree, f"{DELETED}/{session_id}")
    if _is_here(memory, session_id) or not memory.tree.exists(path):
        # Raises Conflict where another session of this name is deleted already.
        done = delete_session(memory, session_id, "erased at once", by, dry_run=outcome.dry_run)
        outcome.notes += done.notes
        size += done.bytes_freed
    known = [one for one in doomed_of(memory, session_id, []) if one.is_session]
    # The bundle goes also where nobody can read it any more.
    one = known[0] if known else Doomed(session_id, path, render_time(now), now, size_bytes=size)
    return Decision(one, True, _ASKED_FOR)


# Doing it.


def carry_out(
    memory: Memory, going: Sequence[Decision], *, by: str, forced: bool, index: Index | None = None
) -> Outcome:
    """Destroy one after the other; one that fails stops no other. Then clean the index.

    The leader of the root gives its index, and waits for nobody. For anybody else, programs that
    have an old version open are waited for, and places are noted where others wrote the same words.
    """
    outcome, words = Outcome(), list[str]()

    def note(one: Doomed, gone: Sequence[Holding]) -> None:
        """Write down what goes, durably, before anything of it does."""
        now, deadline = memory.options.clock(), render_time(one.deadline)
        ask_for_scrub(memory, one.session)
        entry = tombstones.Entry(one.session, gone, one.deleted_at, deadline, one.size_bytes, forced)
        tombstones.note(memory, entry, now)
        audit.note(
            memory.tree, "purge", at=now, by=by, session=one.session, count=len(gone) or 1,
            ids=[held.id for held in gone], deleted_at=one.deleted_at,
            whole_session=one.is_session or None, at_once=now < one.deadline or None,
        )  # fmt: skip

    for decision in going:
        one = decision.doomed
        try:
            scope = memory._scope(one.session)
            with scope.undisturbed("purging"):
                if one.is_session:
                    gone = _purge_session(memory, scope, one, note, outcome.notes)
                else:
                    gone = _purge_memories(memory, scope, one, note)
            ask_for_scrub(memory, one.session)  # again: the first may have been served too early
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{one.session}: not purged: {error}")
            continue
        outcome.actions.append(decision.as_action())
        if not one.is_session:
            wait_s = _WAIT_S if index is None else 0.0
            outcome.problems += _await_closed(memory, one.session, gone, wait_s)
        # Of a memory that was anonymised most words stay on purpose.
        words += [word for held in gone if held.place != "undo" for word in _words_of(held)]
    try:
        remove_abandoned(memory)
        _remove_locks(memory)
    except OSError as error:
        outcome.problems.append(f"locks and temporaries could not be removed: {error}")
    outcome.problems += scrub_index(memory, index)
    if index is None:
        outcome.notes += _still_there(memory, words)
    return outcome


def _purge_session(
    memory: Memory, scope: Scope, one: Doomed, note: _Note, notes: list[str]
) -> list[Holding]:
    """Destroy everything that SMP has of a session. Return its memories, if they can be read."""
    tree, name = memory.tree, one.session
    if _is_here(memory, name) or not tree.exists(one.path):
        raise Conflict(f"{name} was restored meanwhile, and was left.", session_id=name)
    gone: list[Holding] = []
    with suppress(SMPError, OSError):  # a damaged bundle goes as well
        gone += in_bundle(bundle.read(tree, one.path), name, "deleted")
    note(one, ())
    for path in [*_old_versions(tree, name), f"{QUARANTINE}/{name}"]:
        notes += [f"{name}: a program still has {file} open; its bytes are gone when it closes it."
                  for file in _files(tree, path) if _is_open(tree, file)]  # fmt: skip
        _remove(tree, path)
    # The bundles go last: after a crash they say that there is something left to purge.
    places = (f"{ARCHIVED}/{name}", f"{DELETED}/{name}")
    destroy(scope, [path for place in places for path in bundle.paths(tree, place)])
    for place in places:
        _remove(tree, place)
    return gone


def _purge_memories(memory: Memory, scope: Scope, one: Doomed, note: _Note) -> list[Holding]:
    """Destroy memories of a batch and every copy of them in other bundles. Return them."""
    tree, name = memory.tree, one.session
    packed = bundle.read(tree, one.path) if tree.exists(one.path) else None
    there = [*in_bundle(packed, name, place_of(one.path))] if packed else []
    meant = {_identity(item) for item in one.items}
    gone = [held for held in there if _identity(held) in meant]
    if {*map(_identity, gone)} != meant:
        why = "what was to be purged has changed meanwhile, and was left"
        raise Conflict(f"{name}: {why}.", session_id=name)
    problems: list[str] = []
    copies = [held for held in holdings(memory, name, _COPIES, problems) if _identity(held) in meant
              and not held.container.endswith((one.path, f"/{BACKUP}"))]  # fmt: skip
    if problems:
        why = f"{problems[0]}, and may hold a copy; nothing was purged"
        raise Conflict(f"{name}: {why}.", session_id=name)
    note(one, gone)
    _cut_from_quarantine(tree, name, gone)
    for file in tree.files_below(scope.path("indexes")):
        if any(held.id.encode() in tree.read(file) for held in gone):
            tree.unlink(file)  # older than the deletion; it is made anew
    apply(scope, Request([removal(held) for held in [*gone, *copies]], doing="purging"))
    return gone


def _identity(one: Holding | Item) -> tuple[str, str, str]:
    """Return what makes two holdings copies of one memory."""
    return one.file, one.id, one.hash


def _cut_from_quarantine(tree: Tree, name: str, gone: Iterable[Holding]) -> None:
    """Take the very bytes of these memories out of quarantined pieces, or all of a piece."""
    for path in [*tree.files_below(f"{QUARANTINE}/{name}")]:
        if path.endswith(".note.yaml"):
            continue
        content = tree.read(path)
        rest = _without(content, gone)
        for one in gone:
            rest = _without_id(rest, one)
        if not rest.strip():
            tree.unlink(f"{path.removesuffix('.bytes')}.note.yaml")
            tree.unlink(path)
        elif rest != content:
            tree.replace(path, rest)
    tree.remove_empty(f"{QUARANTINE}/{name}")


def _without(content: bytes, gone: Iterable[Holding]) -> bytes:
    """Return bytes without these records, and none where they are the whole of a memory."""
    for one in gone:
        if not one.is_file:
            content = content.replace(one.raw.strip(b"\n"), b"")
        elif content == one.raw:
            return b""
    return content


def _without_id(content: bytes, one: Holding) -> bytes:
    """Return a file of another style, which is kept here since it was rendered plain, without a record."""
    if one.is_file:
        return content
    with suppress(NewerFormat):
        head, records, _ = spans(kind_of_file(one.file), plain(one.file, content))
        left = [span.raw for span in records if span.id != one.id]
        if len(left) < len(records):
            return head + b"".join(left) if left else b""
    return content


def _await_closed(memory: Memory, name: str, gone: Sequence[Holding], wait_s: float) -> list[str]:
    """Wait for old versions of files that still hold a memory; a version that stays is a problem.

    A program that has one open may still write into it, so it is not removed before it is closed.
    """
    tree, until, files = memory.tree, time.monotonic() + wait_s, {held.file for held in gone}
    while True:
        if is_in_use(memory, name):
            with suppress(SMPError), memory._scope(name).locked(files, "purging", any_version=True):
                pass  # whoever takes the locks folds late writes in, and removes what is closed
        sweep(memory, name)
        left = [slot for slot in _old_versions(tree, name) if _holds(tree, slot, gone)]
        if not left or time.monotonic() >= until:
            why = "still holds what was purged, because a program has it open"
            return [f"{name}: {slot} {why}; it goes when that closes it." for slot in left]
        time.sleep(_PAUSE_S)


def _old_versions(tree: Tree, name: str) -> list[str]:
    paths = [f"{place}/{slot}" for place in _OLD for slot in tree.list(place)]
    return [path for path in paths if path.rpartition("/")[2].startswith(f"{name}+")]


def _holds(tree: Tree, slot: str, gone: Sequence[Holding]) -> bool:
    if slot.startswith(layout.RETIRED):
        # An old version of a file that was a memory as a whole is an earlier state of it.
        file = file_of_slot(slot.rpartition("/")[2])
        if any(held.is_file and held.file == file for held in gone):
            return True
    with suppress(FileNotFoundError):
        contents = [tree.read(file) for file in _files(tree, slot)]
        return any(_without(content, gone) != content for content in contents)
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


def _remove_locks(memory: Memory) -> None:
    """Remove the lock files of purged sessions that are nowhere, unless somebody holds them.

    Each is removed by whoever holds it: a waiter then sees that its lock has lost its name.
    """
    tree = memory.tree
    for name in tombstones.sessions(memory) & set(tree.list(LOCKS)):
        if any(tree.exists(f"{place}/{name}") for place in (ACTIVE, ARCHIVED, DELETED)):
            continue
        for entry in tree.list(f"{LOCKS}/{name}"):
            file = entry.removesuffix(".lock")
            with suppress(LockTimeout), lock(tree, name, file, NO_PATIENCE, "purging"):
                tree.unlink(f"{LOCKS}/{name}/{entry}")
        tree.remove_empty(f"{LOCKS}/{name}")


# Where others wrote the same words.


def _words_of(one: Holding) -> list[str]:
    """Return the lines of a memory by which it would be known again; a name or a time is none."""
    if is_record_file(one.file):
        texts = [str(one.value.get(kind_of_file(one.file).text, ""))]
    else:
        texts = [*texts_of(one.value)] if one.file != METADATA else []
    lines = (line.strip() for text in texts for line in text.splitlines())
    return [line for line in lines if len(line) >= (_LINE if " " in line else _WORD)]


def _still_there(memory: Memory, words: Sequence[str]) -> list[str]:
    """Return notes of the files that `smp find` would find these lines in, or could not search.

    Of very many lines, some are sought.
    """
    from ..privacy.find import notes_about  # late: it is the layer above, and a daemon needs it not

    every = list(dict.fromkeys(words))
    some = every[:: len(every) // _NEEDLES + 1]
    return notes_about(memory, some, "The same words still stand in") if some else []
