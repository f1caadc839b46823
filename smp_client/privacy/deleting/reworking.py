"""Taking memories out, or putting others in their place, wherever they are kept; what they were goes to `deleted/` first.

A copy is durable there before anything is changed, and what stands in the files of the session changes in one transaction, if it
still is what was copied. So a crash leaves a memory where it was, or deleted. What compaction has taken out is changed after that;
until it is, the record says that it is unfinished, and whoever comes next finishes it.

A session in the archive is unpacked aside, changed there like any other, and packed anew.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ... import audit, rewrite
from ...errors import Conflict, CorruptionDetected, Invalid, SMPError, TransactionPending
from ...layout import ARCHIVED, DELETED, GLOBAL, RETIRED, check_session_id
from ...locks import NO_PATIENCE, lock, lock_all
from ...maintain import traces
from ...maintain.doomed import directories
from ...records import STATE_HISTORY, TURN, kind_of_file
from ...scope import UPKEEP, Scope
from ...session_files import METADATA
from ...text.values import Value
from .standing import EVICTED, Contents, Standing, heads, in_file, in_order, standing, taken_out_of
from .store import (
    ANONYMIZATION,
    DELETION,
    NEW,
    RECORD,
    RESTORING,
    UNFINISHED,
    Deleted,
    Store,
    as_deleted,
    check_said,
    copies_of,
    fingerprint_of,
    member_of,
    new_item,
    new_of,
)  # fmt: skip

if TYPE_CHECKING:
    from ...files import Tree
    from ...memory import Memory
    from ...records import Record
    from ...session import RecordFiles

_NEIGHBOURS_CAP = 16
New = Mapping[str, Value] | bytes | None
Back = list[tuple[Mapping[str, Any], "Record"]]  # what was put back, and what the record of deletions said of each


@dataclass(frozen=True)
class Change:
    """What is to become of a memory: another record, or other bytes for a whole file; nothing takes it out."""

    standing: Standing
    new: New = None


class Reworked(list[Deleted]):
    """What was taken out or replaced, and can be restored. In sentences, `problems` says what could not be reached, and `notes`
    where a text that was looked for stands in what is no memory."""

    def __init__(self, items: Iterable[Deleted] = (), batch: str = "", problems: Iterable[str] = ()) -> None:
        super().__init__(items)
        self.batch = batch
        self.problems = [*problems]
        self.notes: list[str] = []


Choose = Callable[[Sequence[Standing]], Iterable[Change]]


def rework(
    memory: Memory, name: str, choose: Choose, *, reason: str, by: str, action: str = DELETION, dry_run: bool = False,
    is_undisturbed: bool = False, batch: str = "",
) -> Reworked:  # fmt: skip
    """Changes what is chosen of all that a session, or `global`, holds, all or nothing; Conflict where somebody was quicker."""
    said = check_said(reason, by)
    doing = "anonymising" if action == ANONYMIZATION else "deleting"
    with locked(memory, name, doing, is_undisturbed=is_undisturbed):
        problems: list[str] = []
        if not dry_run:
            settle(memory, name)
            problems += _clear_before(memory, name)
        contents = require(memory, name)
        every = [*standing(memory, name, problems, contents)]
        changes = list(choose(every))
        _check(name, changes)
        store = Store(memory, name)
        store.require_no_session()
        items, batch = store.items(contents), batch or new_batch(memory)
        taken, now = store.taken(), memory.options.clock()
        added: list[dict[str, Any]] = []
        before = _before(every, changes, items)
        for change in changes:
            days = memory.options.retention.deleted_days
            item = new_item(change.standing, taken, said, now=now, days=days, batch=batch, action=action, new=change.new)
            if change.new is None and change.standing.key in before:
                item |= _behind(before[change.standing.key])
            added.append(item)
            taken.add(item["copy"])
        done = Reworked((as_deleted(name, item) for item in added), batch, problems)
        if dry_run or not changes:
            return done
        require_left(memory, contents)
        facts = {"session": name, "count": len(changes), "ids": [one.id for one in done], "batch": batch}
        with audit.noted(memory.tree, action, clock=memory.options.clock, by=by, **facts):
            traces.ask_for_scrub(memory, "" if name == GLOBAL else name)  # which whoever comes after a crash sees to
            _apply(memory, contents, store, items, added, changes)
        done.problems += _clear_after(memory, contents, added)
        return done


@contextmanager
def locked(memory: Memory, name: str, doing: str, *, is_undisturbed: bool = False) -> Iterator[None]:
    """The locks of the session's passes, unless the caller has that, and of its record, wherever it is."""
    memory.require()
    directory = GLOBAL if name == GLOBAL else f"{ARCHIVED}/{check_session_id(name)}"
    scope = Scope(memory.tree, name, directory, memory.options)
    with ExitStack() as stack:
        stack.enter_context(scope.answering(doing) if is_undisturbed else scope.undisturbed(doing))
        stack.enter_context(lock(memory.tree, name, RECORD, memory.options.patience, doing))
        yield


def require(memory: Memory, name: str) -> Contents:
    """Raises where there is no such session, or none whose memories can be changed one by one."""
    contents = Contents(memory, name)
    if not contents.is_there:
        memory._session(name)  # which says where it is
    return contents


def require_left(memory: Memory, contents: Contents) -> None:
    """What came late into a session that was archived just now is packed with all that it held then: so that must be over."""
    if not contents.is_archived:
        return
    from ...maintain import leaving

    if not leaving.finish_soon(memory, contents.name):
        raise Conflict(f"A program still has files of {contents.name} open from before it was archived; nothing was changed.",
                       session_id=contents.name, advice="Try it again when that program is done.")  # fmt: skip


def settle_all(memory: Memory) -> list[str]:
    """Finishes what a crash has cut off, of every session; gives back of which. What somebody is at work on is left to them."""
    tree = memory.tree
    settled: list[str] = []
    for name in directories(tree, DELETED):
        # What is wrong with one keeps no other waiting: `check` tells of it.
        with suppress(SMPError, OSError):
            if not is_cut_off(tree, name) or Store(memory, name).holds_session():
                continue
            with lock_all(tree, name, (UPKEEP, RECORD), NO_PATIENCE, "finishing a deletion"):
                settle(memory, name)
                settled.append(name)
    return settled


def is_cut_off(tree: Tree, name: str) -> bool:
    """Return whether a deletion or restoration was cut off. Some records are long, so only the words are looked for."""
    path = f"{DELETED}/{name}/{RECORD}"
    content = tree.read(path) if tree.exists(path) else b""
    return any(f" {mark}:".encode() in content for mark in (UNFINISHED, RESTORING))


def standing_as_deleted(memory: Memory, name: str, ids: Collection[str]) -> set[str]:
    """Those of these ids of which the very memory that was deleted stands again, or never went: an editor has saved it back, or a
    crash came first. Whoever erases what is deleted must take that out too."""
    store = Store(memory, name)
    if store.holds_session():
        return set()
    out = store.items()
    there = [item for item in store.known() if "replaced_by" not in item and item not in out]
    histories = {f"{STATE_HISTORY}/{agent}.yaml": agent for agent in ids}
    return {found for item in there if (found := histories.get(str(item["file"]), str(item["id"]))) in ids}


def settle_memories(memory: Memory, name: str) -> None:
    """The same of one session for whoever has the lock of its passes. What cannot be finished now is left for later."""
    with suppress(SMPError):
        if is_cut_off(memory.tree, name):
            with lock(memory.tree, name, RECORD, memory.options.patience, "finishing a deletion"):
                settle(memory, name)


def settle(memory: Memory, name: str) -> Back:
    """Finishes what a crash has cut off, under both locks; gives back what it has put back."""
    if name != GLOBAL:
        from ...maintain import archive

        archive.settle(memory, name)
    store = Store(memory, name)
    if name != GLOBAL and store.holds_session():
        from ...maintain import removal

        removal.settle(memory, name)  # the session may be on its way out, or back
    contents = Contents(memory, name)
    back: Back = []
    if not is_cut_off(memory.tree, name) or store.holds_session():
        return back
    if store.restoring():
        from .restoring import finish

        back = finish(memory, contents, store)
        contents = Contents(memory, name)
    if (batch := store.unfinished()) is not None:
        _settle_unfinished(memory, contents, store, [item for item in store.known() if item.get("batch") == batch])
    return back


def _settle_unfinished(memory: Memory, contents: Contents, store: Store, batch: Sequence[Mapping[str, Any]]) -> None:
    if replacing := [item for item in batch if "replaced_by" in item]:
        _settle_replacing(memory, contents, store, replacing)
        return
    out = store.items(contents)
    if any(item.get("place") != EVICTED and item not in out for item in batch):
        # What stands in the files of the session went at once, or not at all: then nothing of it was deleted.
        store.save([item for item in out if item not in batch], {})
        return
    going = {(item.get("file"), item.get("id"), item.get("sha256")) for item in batch}
    left = [Change(one) for one in standing(memory, contents.name, [], contents)
            if one.place == EVICTED and (one.file, one.id, fingerprint_of(one)) in going]  # fmt: skip
    if left:
        _carry_out(memory, contents, left)
    store.finished()
    _clear_after(memory, contents, batch)


def _settle_replacing(memory: Memory, contents: Contents, store: Store, replacing: Sequence[Mapping[str, Any]]) -> None:
    """What stands in the files of the session was replaced at once, or not at all. What compaction holds of it follows."""
    from ...maintain import evictions

    there, members = _fingerprints(memory, contents), store.members()
    as_before = [item for item in replacing if there.get(_key(contents, item)) == item.get("sha256")]
    if any(item.get("place") != EVICTED for item in as_before):
        store.save([item for item in store.items(contents) if item not in replacing], {})
        return
    left = {_key(contents, item): json.loads(members[name]) for item in as_before if (name := f"{NEW}{member_of(item)}") in members}
    evictions.change(memory.tree, left)
    store.finished()
    _clear_after(memory, contents, replacing)


def _fingerprints(memory: Memory, contents: Contents) -> dict[tuple[str, str, str], str]:
    every = [*standing(memory, contents.name, [], contents), *heads(contents)]
    return {one.key: fingerprint_of(one) for one in every}


def _key(contents: Contents, item: Mapping[str, Any]) -> tuple[str, str, str]:
    """Where it stood: see `Standing.key`."""
    file = str(item["file"])
    return str(item["eviction"]) if item.get("place") == EVICTED else contents.container(file), file, str(item["id"])


def _before(
    every: Sequence[Standing], changes: Sequence[Change], items: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, str], list[str]]:
    """Of each that goes the ids that it stands behind, the nearest first, with those among them that are deleted already."""
    found: dict[tuple[str, str, str], list[str]] = {}
    going = {change.standing.key for change in changes if change.standing.place != EVICTED and not change.standing.is_file}
    for file in {file for _, file, _ in going}:
        there = [one for one in every if one.file == file and one.place != EVICTED and one.id]
        order = in_order([one.id for one in there], taken_out_of(file, items))
        place = {memory_id: number for number, memory_id in enumerate(order)}
        standing_ids = {one.id for one in there}
        for one in there:
            if one.key in going:
                found[one.key] = _nearest(order, place[one.id], standing_ids)
    return found


def _nearest(order: Sequence[str], place: int, there: Collection[str]) -> list[str]:
    """As far as the second that stands: the first may be gone for good one day."""
    near = order[max(0, place - _NEIGHBOURS_CAP) : place][::-1]
    standing_ones = [number for number, one in enumerate(near, 1) if one in there]
    return [*near[: standing_ones[1]]] if len(standing_ones) > 1 else [*near]


def _behind(before: Sequence[str]) -> dict[str, Any]:
    return {"behind": before[0] if before else None, **({"behind_that": [*before[1:]]} if len(before) > 1 else {})}


def new_batch(memory: Memory) -> str:
    """A name for all that is taken out or replaced in one go."""
    return f"{memory.options.clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


def _check(name: str, changes: Sequence[Change]) -> None:
    """Of two records with one id neither is taken: the other would answer again."""
    seen: dict[tuple[str, str, str], Standing] = {}
    for change in changes:
        one = change.standing
        if not one.id:
            raise CorruptionDetected(f"{one.container}, line {one.line}: the record has no id, so it cannot be changed.",
                                     advice="Give it one, or edit the file by hand; nothing was changed.")  # fmt: skip
        if one.file == METADATA and change.new is None:
            raise Invalid(["the metadata of a session cannot be deleted: delete the session, or change them"])
        if (other := seen.setdefault(one.key, one)) is not one:
            places = f"{one.file} line {other.line}, {one.file} line {one.line}"
            raise CorruptionDetected(f"{one.id} stands more than once: {places}; nothing was changed.", session_id=name)


def _apply(
    memory: Memory, contents: Contents, store: Store, items: list[dict[str, Any]], added: list[dict[str, Any]],
    changes: Sequence[Change],
) -> None:  # fmt: skip
    copies = {name: raw for item, change in zip(added, changes, strict=True)
              for name, raw in copies_of(item, change.standing).items()}  # fmt: skip
    for item, change in zip(added, changes, strict=True):
        if change.standing.place == EVICTED and isinstance(change.new, Mapping):
            copies |= new_of(item, change.new)
    # Until all of it is done it must be known what was on its way: it may still stand, and be changed, when somebody looks again.
    store.save([*items, *added], copies, unfinished=added[0]["batch"])
    try:
        _carry_out(memory, contents, changes)
    except TransactionPending:
        # It will happen, and then the copies are all that there is.
        raise
    except BaseException:
        # What is still there was not deleted, changed or not. Reading sees a recorded transaction as done, so this is safe.
        with suppress(OSError, SMPError):
            there = _fingerprints(memory, Contents(memory, contents.name))
            store.save([*items, *(item for item, change in zip(added, changes, strict=True)
                                  if there.get(change.standing.key) == item.get("replaced_by"))], {})  # fmt: skip
        raise
    store.finished()


def _carry_out(memory: Memory, contents: Contents, changes: Sequence[Change]) -> None:
    taken_out = [change for change in changes if change.standing.place == EVICTED]
    own = [change for change in changes if change.standing.place != EVICTED]
    own += _summaries(memory, contents, own, taken_out)
    if own and contents.is_archived:
        with unpacked(memory, contents.name) as aside:
            _commit(aside.files, own)
            aside.pack()
    elif own:
        _commit(files_of(memory, contents.name), own)
    if taken_out:
        from ...maintain import evictions

        evictions.change(memory.tree, {change.standing.key: change.new for change in taken_out})


def files_of(memory: Memory, name: str) -> RecordFiles:
    files = memory.everywhere if name == GLOBAL else memory._session(name)
    files.scope.in_upkeep = True  # looking after it is not using it
    return files


def _commit(files: RecordFiles, changes: Iterable[Change]) -> None:
    with files.transaction() as transaction:
        for change in changes:
            one = change.standing
            if one.is_file:
                assert change.new is None or isinstance(change.new, bytes)
                transaction.replace_file(one.file, one.raw, change.new)
            elif change.new is None:
                transaction.remove(kind_of_file(one.file), one.value)
            else:
                assert not isinstance(change.new, bytes)
                transaction.replace(kind_of_file(one.file), one.value, change.new)


def _summaries(memory: Memory, contents: Contents, own: Sequence[Change], taken_out: Sequence[Change]) -> list[Change]:
    """What summaries in the conversation tell of turns that go for good, though compaction has taken them out before."""
    gone = {change.standing.id for change in taken_out if change.standing.file == TURN.file and change.new is None}
    if not gone or TURN.file not in contents.files():
        return []
    from ...maintain.evictions import turns
    from ...maintain.putting_back import told_without

    touched = {change.standing.id for change in own if change.standing.file == TURN.file}
    found = {one.id: one for one in in_file(contents, TURN.file) if one.id and one.id not in touched}
    left = told_without({memory_id: one.value for memory_id, one in found.items()}, gone, turns(memory.tree, contents.name))
    return [Change(found[memory_id], new) for memory_id, new in left.items()]


@dataclass(frozen=True)
class _Aside:
    """A session out of the archive, in a root of its own."""

    files: RecordFiles
    pack: Callable[[], None]


@contextmanager
def unpacked(memory: Memory, name: str) -> Iterator[_Aside]:
    """For changing a session that is archived; `pack` puts it back, changed, in one step."""
    from ...maintain import archive, summary_file
    from ...memory import Memory as Root

    tree = memory.tree
    inner = archive.unpack_aside(tree, name, archive.packed(memory, name, archive.load_summary(tree, name)))
    outer = archive.aside_of(name)
    try:
        tree.make_directory(f"{outer}/active")
        tree.rename(inner, f"{outer}/active/{name}")
        root = Root(tree.root / outer)
        root.options = replace(memory.options, count_access=False)
        root.create()
        session = root._session(name)
        session.scope.in_upkeep = True

        def pack() -> None:
            for file in session.scope.tree.sizes(session.scope.path("indexes")):
                session.scope.tree.unlink(session.scope.path(f"indexes/{file}"))
            archive.repack_changed(memory, name, f"{outer}/active/{name}", summary_file.content(session))

        try:
            yield _Aside(session, pack)
        finally:
            root.close()
    finally:
        tree.remove_directory(inner)
        tree.remove_directory(outer)


def _clear_before(memory: Memory, name: str) -> list[str]:
    """What a crash has left uncleared when all else of a deletion was done: that it was asked for still stands."""
    if memory.options.is_leading or not traces.asked_for(memory, "" if name == GLOBAL else name):
        return []
    from .clearing import clear

    scope = memory._scope(name)
    slots = memory.tree.list(RETIRED) if memory.tree.exists(scope.directory) else []
    return clear(memory, scope, {rewrite.file_of_slot(slot) for slot in slots if slot.startswith(f"{name}+")}, ())


def _clear_after(memory: Memory, contents: Contents, items: Collection[Mapping[str, Any]]) -> list[str]:
    from .clearing import clear

    # Of what compaction had taken out, a summary in the file that it came from may have told.
    files, ids = {str(item["file"]) for item in items}, {str(item["id"]) for item in items}
    return clear(memory, memory._scope(contents.name), () if contents.is_archived else files, ids)
