"""Purging: deleted memories past their deadline are destroyed. Nothing else destroys memories.

So it must be sure: the root must have its marker, and a clock that leaps makes deadlines pass that
have not. A bundle must be seen overdue twice, with `WAIT_S` of uptime between, or a person confirms
it. Uptime adds up over restarts; time in which the machine was off does not count. The ledger of it
is derived: losing it only delays.

A purge removes a memory and every copy that SMP made of it, cleans the index, and lists where
others wrote the same words.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..ask.argument import When, moment
from ..change.change import Request, apply
from ..change.holdings import EVERY, Holding, Place, holdings, is_in_use, is_kept, place_of
from ..change.latecomers import sweep
from ..change.move import delete_session, destroy
from ..change.restore import delete, removal, sessions_with
from ..change.select import is_revision, owner_of, several, texts_of
from ..disk import audit, bundle, journal, tombstones
from ..disk.bundle import Item
from ..disk.foreign import foreign
from ..disk.place import BACKUP, STATES
from ..disk.quarantine import BYTES, is_of_file, quarantined
from ..disk.session_files import METADATA, state_file
from ..index.sync import ask_for_scrub, scrub_index
from ..model import layout
from ..model.errors import Conflict, Invalid, MemoryNotFound, NewerFormat, SMPError, StorageFailed
from ..model.layout import ARCHIVED, DELETED, GLOBAL, MARKER, QUARANTINE, check_session_id
from ..model.outcome import Action, Outcome
from ..model.progress import tracked
from ..model.record import kind_of_file, type_of
from ..model.times import parse_time, render_time, time_of
from ..privacy.find import notes_about
from ..text.edits import spans
from ..text.format import plain
from .tidy import clear_foreign, remove_abandoned

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..disk.tree import Tree
    from ..memory import Memory

LEDGER = ".smp/overdue.json"
WAIT_S = 6 * 86_400.0
_NO_MARKER = f"The root has no {MARKER}, so it is not mounted, or none of ours: nothing is purged."
_ASKED_FOR = "asked for, without waiting for its deadline"
_COPIES: tuple[Place, ...] = ("deleted", "undo", "evicted")
_CLOSING_S, _PAUSE_S = 4.0, 0.1  # how long old versions of files are waited for, and each look
_LINE = 12  # characters; a shorter line may stand anywhere
_NEEDLES = 20  # lines of purged memories that are sought in other files


@dataclass(frozen=True)
class Ledger:
    """For how long the machine ran at the last look, and for how long each bundle was overdue."""

    running_s: float = 0.0
    waited_s: Mapping[str, float] = field(default_factory=dict)  # by the key of a bundle

    def seen(self, running_s: float, keys: Iterable[str]) -> Ledger:
        """Return the ledger after one more look, which saw exactly these overdue."""
        # A machine that was started anew has run since then at least; more is not known.
        passed_s = running_s - self.running_s if running_s >= self.running_s else running_s
        waited_s = {key: self.waited_s.get(key, -passed_s) + passed_s for key in keys}
        return Ledger(running_s, waited_s)


@dataclass(frozen=True)
class Doomed:
    """A bundle in `deleted/`: a whole session, or memories that were deleted together."""

    session: str
    path: str
    deleted_at: str
    deadline: datetime
    items: tuple[Item, ...] = ()  # the memories that are meant; the files of a whole session
    batch: str = ""
    goes: bool = False
    reason: str = ""

    @property
    def is_session(self) -> bool:
        return self.path.endswith(f"/{BACKUP}")

    @property
    def key(self) -> str:
        """The name under which the ledger knows it. Another deadline makes it another."""
        return f"{self.path} {render_time(self.deadline)}"

    @property
    def action(self) -> Action:
        size = sum(item.length for item in self.items)
        if self.is_session:
            return Action(self.session, "purge_session", (self.session,), self.reason, size)
        ids, kinds = zip(*((item.id, type_of(item.type)) for item in self.items), strict=True)
        return Action(self.session, "purge_memories", ids, self.reason, size, kinds=kinds)


def plan(
    doomed: Iterable[Doomed], ledger: Ledger, now: datetime, *, force: bool = False,
    older_than: datetime | None = None,
) -> list[Doomed]:  # fmt: skip
    """Decide about every deleted bundle. With force, a person confirms the clock.

    With `older_than`, a person names the bundles: those that were deleted before that time.
    """
    decided: list[Doomed] = []
    for one in doomed:
        if older_than is not None:
            is_older = parse_time(one.deleted_at) < older_than
            reason = f"{_ASKED_FOR}: deleted before {render_time(older_than)}"
            decided.append(replace(one, goes=is_older, reason=reason))
            continue
        until, left_s = render_time(one.deadline), WAIT_S - ledger.waited_s.get(one.key, 0.0)
        is_overdue = now >= one.deadline
        goes = is_overdue and (force or left_s <= 0)
        reason = f"it {'could' if is_overdue else 'can'} be restored until {until}"
        if is_overdue and not goes:
            days = f"{left_s / 86_400:.1f} days of uptime"
            reason = f"it is overdue since {until}; it is kept for {days} more"
        decided.append(replace(one, goes=goes, reason=reason))
    whole = {one.session for one in decided if one.goes and one.is_session}
    # Memories that were deleted one by one go with their session.
    return [one for one in decided if one.is_session or one.session not in whole]


def _doomed(memory: Memory, name: str, problems: list[str]) -> Iterator[Doomed]:
    """Yield the deleted bundles of a session. One that nobody can understand is a problem."""
    is_ours = name == GLOBAL or layout.is_session_id(name)
    for path in bundle.paths(memory.tree, f"{DELETED}/{name}") if is_ours else ():
        try:
            said = bundle.read_manifest(memory.tree, path)
            deadline = parse_time(said.until or "")
        except (SMPError, OSError, ValueError) as error:
            problems.append(f"{path} is left as it is: {error}")
            continue
        yield Doomed(name, path, said.at, deadline, said.items, said.batch)


def load_ledger(memory: Memory) -> Ledger:
    """Return the ledger; an empty one where the file is missing, or makes no sense."""
    try:
        said: Any = json.loads(memory.tree.read(LEDGER))
        waited_s = {str(key): float(waited) for key, waited in said["waited_s"].items()}
        ledger = Ledger(float(said["running_s"]), waited_s)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Ledger()
    is_sound = all(0 <= time_s < math.inf for time_s in (ledger.running_s, *waited_s.values()))
    return ledger if is_sound else Ledger()


def running_s() -> float:
    """Return the seconds since the machine was started, asleep or not, which nobody can set."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


# The two ways to a purge: by the deadline, and at once.


def planned(
    memory: Memory, problems: list[str], *, force: bool = False, dry_run: bool = False,
    older_than: datetime | None = None,
) -> list[Doomed]:  # fmt: skip
    """Return the plan of now. Unless it is for show, the ledger notes the overdue bundles."""
    memory.require()
    now = memory.options.clock()
    if not memory.tree.exists(MARKER):
        problems.append(_NO_MARKER)
        return []
    names = memory.tree.directories(DELETED)
    doomed = [one for name in names for one in _doomed(memory, name, problems)]
    keys = [one.key for one in doomed if one.deadline <= now]
    ledger = load_ledger(memory).seen(running_s(), keys)
    if not dry_run:
        try:
            memory.tree.replace(
                LEDGER, json.dumps(asdict(ledger), indent=1).encode(), durable=False
            )
        except OSError as error:
            raise StorageFailed(f"{LEDGER} could not be written: {error}.") from error
    return plan(doomed, ledger, now, force=force, older_than=older_than)


def purge(
    memory: Memory, older_than: When | None = None, *, dry_run: bool = False, force: bool = False,
    by: str = "user",
) -> Outcome:  # fmt: skip
    """Destroy everything that is due. A note names what is overdue and kept all the same.

    With `older_than`, everything that was deleted before that time goes instead, and nothing else.
    """
    now = memory.options.clock()
    outcome = Outcome(dry_run=dry_run)
    before = None if older_than is None else moment(older_than, now)
    if before is not None and (force or before > now):
        raise Invalid(["older_than must be a time in the past, and goes without force"])
    how: Any = {"force": force, "dry_run": dry_run, "older_than": before}
    decided = planned(memory, outcome.problems, **how)
    going = [one for one in decided if one.goes]
    outcome.add(carry_out(memory, going, by=by, dry_run=dry_run))
    if before is not None:
        return outcome
    kept = [one for one in decided if not one.goes and one.deadline <= now]
    outcome.notes += [f"{one.path}: {one.reason}" for one in kept]
    return outcome


def purge_now(
    memory: Memory, name: str | None, ids: str | Sequence[str] | None = None, *,
    batch: str | None = None, by: str = "user", dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Destroy memories, a batch, or else a whole session, at once and whatever the deadline.

    Of an id under which something is deleted, only that goes. Any other memory is deleted first;
    what it said before an anonymisation goes with it. A batch is known without a session.
    """
    memory.require()
    if not memory.tree.exists(MARKER):
        return Outcome(problems=[_NO_MARKER])
    if (ids is not None and batch is not None) or (name is None and not batch) or batch == "":
        raise Invalid(["say what is purged: a session, memories of it, or a batch"])
    outcome = Outcome(dry_run=dry_run)
    if batch is not None:
        names = sessions_with(memory, batch) if name is None else [name]
        meant = [one for part in names for one in _parts(memory, part, outcome, batch=batch)]
        if not meant:
            said = f"Nothing that can be read is deleted under the batch {batch!r}."
            raise MemoryNotFound(said, advice="smp restore --list shows all batches.")
    elif ids is not None:
        meant = _memories_now(memory, name or "", tuple(dict.fromkeys(several(ids))), by, outcome)
    else:
        meant = [_session_now(memory, check_session_id(name or ""), by, outcome)]
    meant = [replace(one, reason=_ASKED_FOR) for one in meant]
    outcome.add(carry_out(memory, meant, by=by, dry_run=dry_run))
    backups = memory.root.parent / layout.BACKUP
    if outcome.actions and not dry_run and backups.is_dir():
        note = f"{backups} holds imported files as they were then, also purged memories;"
        outcome.notes.append(f"{note} remove it when you can.")
    return outcome


def _memories_now(
    memory: Memory, name: str, ids: tuple[str, ...], by: str, outcome: Outcome
) -> list[Doomed]:
    if not outcome.dry_run:
        memory._scope(name).recover()  # every change that was cut off is done by now
    # An id is the memory. Its words before an anonymisation go with it, or with their batch.
    found = _parts(memory, name, outcome, ids)
    parts = [one for one in found if place_of(one.path) == "deleted"]
    known = {item.id for part in parts for item in part.items}
    left = tuple(one for one in ids if one not in known)
    if left:
        dry_run = outcome.dry_run
        why = "purged at once"
        done = delete(memory, name, left, reason=why, deleted_by=by, dry_run=dry_run)
        outcome.problems += done.problems
        for one in done.actions if outcome.dry_run else ():
            outcome.actions.append(replace(one, type="purge_memories", reason=_ASKED_FOR))
        parts += [] if outcome.dry_run else _parts(memory, name, outcome, batch=done.batch)
    return parts


def _parts(
    memory: Memory, name: str, outcome: Outcome, ids: Collection[str] = (), *,
    batch: str | None = None,
) -> list[Doomed]:  # fmt: skip
    """Return the bundles of a session with their memories of these ids, or of this batch.

    Earlier states of an agent go with its state.
    """
    found: list[Doomed] = []
    known = name if name == GLOBAL else check_session_id(name)
    for one in _doomed(memory, known, outcome.problems):
        items = one.items if one.batch == batch else ()
        if batch is None:
            items = tuple(item for item in one.items if {item.id, owner_of(item)} & {*ids})
        found += [replace(one, items=items)] if items and not one.is_session else []
    return found


def _session_now(memory: Memory, session_id: str, by: str, outcome: Outcome) -> Doomed:
    path, now = f"{DELETED}/{session_id}/{BACKUP}", memory.options.clock()
    if is_kept(memory, session_id) or not memory.tree.exists(path):
        # Raises Conflict where another session of this name is deleted already.
        done = delete_session(memory, session_id, "purged at once", by, dry_run=outcome.dry_run)
        outcome.notes += done.notes
    known = [one for one in _doomed(memory, session_id, []) if one.is_session]
    # The bundle goes also where nobody can read it any more.
    return known[0] if known else Doomed(session_id, path, render_time(now), now)


def _await_closed(memory: Memory, name: str) -> list[str]:
    """Wait a moment until no old version of a file is left, in which memories may stand.

    A program that has one open may still write into it, so it is not removed before it is closed.
    """
    until, scope = time.monotonic() + _CLOSING_S, memory._scope(name)
    clear_foreign(memory, [one for one in foreign(memory.tree) if one.scope == name])
    while left := _old_versions(memory.tree, name):
        if is_in_use(memory, name):
            scope.fold_old_versions()
        sweep(memory, name)
        if time.monotonic() >= until:
            break
        time.sleep(_PAUSE_S)
    why = "may hold purged memories until the program that has it open closes it"
    return [f"{name}: {slot} {why}." for slot in left]


# Doing it.


def carry_out(
    memory: Memory, going: Sequence[Doomed], *, by: str, dry_run: bool = False
) -> Outcome:
    """Destroy one after the other; one that fails stops no other. Then have the index cleaned.

    The leader of the root waits for nobody. For anybody else, places are noted where others wrote
    the same words.
    """
    if dry_run:
        return Outcome([one.action for one in going])
    outcome = Outcome()
    words: dict[str, None] = {}
    for one in tracked(going):
        scope = memory._scope(one.session)
        try:
            with scope.undisturbed("purging"):
                purge_one = _purge_session if one.is_session else _purge_memories
                gone = purge_one(memory, scope, one, by)
            ask_for_scrub(memory, one.session)  # again: the first may have been served too early
        except (SMPError, OSError) as error:
            outcome.problems.append(f"{one.session}: not purged: {error}")
            continue
        outcome.actions.append(one.action)
        # Of a memory that was anonymised most words stay on purpose.
        for held in gone:
            words |= dict.fromkeys(_words_of(held) if held.place != "undo" else ())
    try:
        remove_abandoned(memory)
    except OSError as error:
        outcome.problems.append(f"temporaries could not be removed: {error}")
    if memory.options.is_leading:
        return outcome
    for name in {one.session for one in outcome.actions}:
        outcome.problems += _await_closed(memory, name)
    outcome.problems += scrub_index(memory)
    if words:
        some = [*words][:: len(words) // _NEEDLES + 1]  # of very many lines
        outcome.notes += notes_about(memory, some, "The same words still stand in")
    return outcome


def _note(memory: Memory, one: Doomed, gone: Sequence[Holding], by: str) -> None:
    """Write down the purge, durably, before anything goes."""
    now = memory.options.clock()
    ask_for_scrub(memory, one.session)
    tombstones.note(memory.tree, one.session, gone, one.deleted_at, now)
    audit.note(
        memory.tree, "purge", at=now, by=by, session=one.session, count=len(gone) or 1,
        ids=[held.id for held in gone], deleted_at=one.deleted_at,
        whole_session=one.is_session or None, at_once=now < one.deadline or None,
        reason=one.reason,
    )  # fmt: skip


def _purge_session(memory: Memory, scope: Scope, one: Doomed, by: str) -> list[Holding]:
    """Destroy everything that SMP has of a session. Return its memories, if they can be read."""
    tree, name = memory.tree, one.session
    if is_kept(memory, name) or not tree.exists(one.path):
        raise Conflict(f"Another session {name} is in use; move {one.path} away.", session_id=name)
    gone = [*holdings(memory, name, EVERY)]  # a damaged bundle goes as well
    _note(memory, one, (), by)
    # A change of files that was cut off waits in the journal until the session is back.
    pending = journal.pending(scope)
    for path in [*_old_versions(tree, name), *pending, f"{QUARANTINE}/{name}"]:
        _remove(tree, path)
    # The bundles go last: after a crash they say that there is something left to purge.
    places = (f"{ARCHIVED}/{name}", f"{DELETED}/{name}")
    destroy(scope, [path for place in places for path in bundle.paths(tree, place)])
    for place in places:
        _remove(tree, place)
    return gone


def _purge_memories(memory: Memory, scope: Scope, one: Doomed, by: str) -> list[Holding]:
    """Destroy memories of a batch and every copy of them in other bundles. Return them."""
    tree, name, problems = memory.tree, one.session, list[str]()
    meant = {_identity(item) for item in one.items}
    named = {(item.file, item.id) for item in one.items if place_of(one.path) == "deleted"}
    found: list[Holding] = []
    for held in holdings(memory, name, _COPIES, problems):
        # An anonymisation has kept the memory with other words. Nobody can undo it any more.
        is_before = held.place == "undo" and (held.file, held.id) in named
        if (is_before or _identity(held) in meant) and not held.container.endswith(f"/{BACKUP}"):
            found.append(held)
    gone = [held for held in found if held.container == one.path]
    if problems or {*map(_identity, gone)} != meant:
        why = f"{problems[0]}, and may hold a copy" if problems else "the memories have changed"
        raise Conflict(f"{name}: {why}; nothing was purged.", session_id=name)
    found += _earlier(memory, name, named)
    _note(memory, one, gone, by)
    _cut_from_quarantine(tree, name, gone)
    for file in tree.files_below(scope.path("indexes")):
        tree.unlink(file)  # it may be older than the deletion; it is made anew
    apply(scope, Request([removal(held) for held in found], doing="purging"))
    return gone


def _earlier(memory: Memory, name: str, keys: Collection[tuple[str, str]]) -> list[Holding]:
    """Return the earlier versions that a session still has of memories of these files and ids.

    A deletion takes them along, but not if an editor removed the memory. The earlier versions of a
    memory that stands in its file again are its own.
    """
    held = [*holdings(memory, name, ("active", "archived"))]
    away = {*keys} - {(one.file, one.id) for one in held}
    states = {memory_id for file, memory_id in away if file == state_file(memory_id)}
    others = {memory_id for file, memory_id in away if not file.startswith(f"{STATES}/")}
    earlier: list[Holding] = []
    for one in held:
        owners = others if is_revision(one) else states
        if not one.is_file and owner_of(one) in owners:
            earlier.append(one)
    return earlier


def _identity(one: Holding | Item) -> tuple[str, str, str]:
    """Return the key that all copies of one memory share."""
    return one.file, one.id, one.hash


def _cut_from_quarantine(tree: Tree, name: str, gone: Collection[Holding]) -> None:
    """Remove these memories from quarantined bytes: by their file, own bytes, or ids."""
    for path in [one for one in quarantined(tree, name) if one.endswith(BYTES)]:
        content = rest = tree.read(path)
        for one in gone:
            # A piece of a state's file may be an earlier state, which is a record of its history.
            file = state_file(agent) if (agent := owner_of(one)) else one.file
            if (one.is_file or agent) and is_of_file(path, file):
                rest = b""
            if one.is_file:
                continue
            rest = rest.replace(one.raw.strip(b"\n"), b"")
            # A file in another style is kept since it was rendered plain.
            with suppress(NewerFormat):
                head, records, *_ = spans(kind_of_file(one.file), plain(one.file, rest))
                left = [span.raw for span in records if span.id != one.id]
                if len(left) < len(records):
                    rest = head + b"".join(left) if left else b""
        if not rest.strip():
            tree.unlink(f"{path.removesuffix('.bytes')}.note.yaml")
            tree.unlink(path)
        elif rest != content:
            tree.replace(path, rest)
    tree.remove_empty(f"{QUARANTINE}/{name}")


def _old_versions(tree: Tree, name: str) -> list[str]:
    places = (layout.RETIRED, layout.LEAVING)
    paths = [f"{place}/{slot}" for place in places for slot in tree.list(place)]
    return [path for path in paths if path.rpartition("/")[2].startswith(f"{name}+")]


def _remove(tree: Tree, path: str) -> None:
    if not tree.exists(path):
        return
    if tree.is_directory(path):
        if error := tree.remove_directory(path):
            raise error
    else:
        tree.unlink(path)
    tree.sync_parent(path)


def _words_of(one: Holding) -> list[str]:
    """Return the lines of a memory by which it would be known again; a name or a time is none."""
    texts = [] if one.file == METADATA else [*texts_of(one.value)]
    if not one.is_file:
        texts = [str(one.value.get(kind_of_file(one.file).text, ""))]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return [line for line in lines if len(line) >= _LINE and not time_of(line)]
