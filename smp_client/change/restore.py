"""Deleting memories so that they can be restored, and restoring them.

A deletion moves memories into one bundle, `deleted/{session}/{batch}.tar.gz`. Restoring takes them
out of it: each comes back as its own span behind its old predecessor, else at the end of its file,
and a turn at its number. The undo of an anonymisation is restored in the same way.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..disk import audit, bundle
from ..disk.bundle import BundleKind, Item, Manifest
from ..disk.inventory import manifests
from ..disk.scopes import ARCHIVE, BACKUP
from ..model.errors import Invalid, MemoryNotFound, SessionNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED, GLOBAL, is_session_id
from ..model.outcome import Action, Outcome
from ..model.record import Record, as_record, check_memory_id, kind_of_file, type_of
from ..model.times import render_time
from ..redaction.redact import harmless
from ..text.contents import plain_fields
from ..text.edits import spans, value_of
from ..text.fingerprint import hash_of, summary_hash
from .change import Change, Draft, Request, apply, replanned
from .holdings import Holding, Place, holdings, is_in_use, place_of
from .places import value_of_file
from .select import Selection, agent_of, chosen

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..memory import Memory
    from ..session import Session

_EVICTED: tuple[Place, ...] = ("evicted",)
_MAY_BE_BACK = "smp restore --list shows what can be restored; what is not there may be back already."


@dataclass(frozen=True)
class Deleted:
    """A memory that can be restored, or that was anonymised."""

    id: str
    type: str
    session: str
    timestamp: str | None
    deleted_at: str
    deleted_by: str
    reason: str
    recovery_deadline: str
    batch: str = ""  # all memories that were deleted together have the same
    file: str = ""
    place: str = ""  # where it was: `evicted` for a memory that compaction had evicted
    action: str = "delete"


@contextmanager
def passing(memory: Memory, name: str, doing: str) -> Iterator[Scope]:
    """Hold the upkeep lock of a session, wherever it is. Every pending intent of it is done by then."""
    scope = memory._scope(name)
    with scope.undisturbed(doing):
        yield scope


def new_batch(memory: Memory) -> str:
    return f"{memory.options.clock():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def manifest_of(
    memory: Memory, kind: BundleKind, session: str, reason: str, by: str, batch: str = "", *, days: float | None = None
) -> Manifest:
    """Return the head of a bundle that is made now. Raises Invalid without a reason or a person."""
    problems: list[str] = []
    said = plain_fields({"reason": reason, "deleted_by": by}, problems)
    problems += [f"a deletion needs {what}" for what, text in (("a reason", reason), ("somebody who deletes", by))
                 if not isinstance(text, str) or not text.strip()]  # fmt: skip
    if problems:
        raise Invalid(problems)
    now = memory.options.clock()
    until = None if days is None else render_time(_deadline(now, days))
    texts = {name: harmless(str(value)) for name, value in said.items()}
    return Manifest(kind, session, render_time(now), texts["deleted_by"], texts["reason"], until, batch)


def _deadline(now: datetime, days: float) -> datetime:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def delete(
    memory: Memory, name: str, selection: Selection, *, reason: str, by: str, dry_run: bool = False, batch: str = ""
) -> Outcome:
    """Delete the memories of a session that are meant, all or none, under one batch."""
    selection.check()
    memory.require()
    batch = batch or new_batch(memory)
    head = manifest_of(memory, "deleted", name, reason, by, batch, days=memory.options.retention.deleted_days)
    if dry_run:
        _require(memory, name)
        return _deleted_outcome(memory, name, selection, head, dry_run=True)[0]
    with passing(memory, name, "deleting") as scope:
        _require(memory, name)
        outcome, found = _deleted_outcome(memory, name, selection, head, dry_run=False)
        if not found:
            return outcome
        changes = [removal(one) for one in found]
        draft = Draft(f"{DELETED}/{name}/{batch}.tar.gz", head)
        facts = {"session": name, "count": len(found), "ids": [one.id for one in found], "batch": batch}
        with audit.noted(memory.tree, "delete", clock=memory.options.clock, by=by, **facts):
            applied = apply(scope, Request(changes, draft, doing="deleting"))
        outcome.problems += [f"{name}: {memory_id} was changed while it was deleted, and stays." for memory_id in applied.kept]
    return outcome


def removal(one: Holding) -> Change:
    """Return the change that takes a memory out of where it is."""
    facts = {"place": one.place, "from": one.container} if one.container else {}
    return Change(one.file, one.id, one.hash, None, container=one.container, facts=facts)


def _deleted_outcome(
    memory: Memory, name: str, selection: Selection, head: Manifest, *, dry_run: bool
) -> tuple[Outcome, list[Holding]]:
    problems: list[str] = []
    found = chosen(memory, name, selection, problems)
    batch = "" if dry_run else head.batch  # nothing has been deleted under it yet
    outcome = Outcome(problems=problems, dry_run=dry_run, batch=batch)
    for place in dict.fromkeys(one.place for one in found):
        here = [one for one in found if one.place == place]
        freed = sum(len(one.raw) for one in here)
        kinds = tuple(type_of(one.type) for one in here)
        outcome.actions.append(Action(name, "delete_memories", tuple(one.id for one in here), head.why, freed, batch, place, kinds))
    return outcome, found


def delete_everywhere(
    memory: Memory, selection: Selection, *, reason: str, by: str, dry_run: bool = False
) -> Outcome:
    """Delete in `global` and in every session, under one batch. A session that fails stops no other."""
    from .holdings import names

    if selection.ids is not None:
        raise Invalid(["ids are given in every session anew: say in which one, or what the memories have in common"])
    selection.check()
    memory.require()
    whole = Outcome(dry_run=dry_run, batch=new_batch(memory))
    manifest_of(memory, "deleted", GLOBAL, reason, by)
    for name in names(memory):
        try:
            whole.add(delete(memory, name, selection, reason=reason, by=by, dry_run=dry_run, batch=whole.batch))
        except SessionNotFound:
            continue  # it went meanwhile
        except (SMPError, OSError) as error:
            whole.problems.append(f"{name}: {error}")
    return whole


def deleted(memory: Memory, name: str) -> list[Deleted]:
    """Return the memories of a session that can be restored, those deleted first before others."""
    with memory._scope(name).answering("listing what was deleted"):
        found = sorted(manifests(memory.tree, f"{DELETED}/{name}"), key=lambda one: one[1].at)
        return [_as_deleted(name, manifest, item) for path, manifest in found
                if not path.endswith(f"/{BACKUP}") for item in manifest.items if item.id]  # fmt: skip


def _as_deleted(name: str, manifest: Manifest, item: Item) -> Deleted:
    action = "anonymize" if manifest.kind == "undo" else "delete"
    return Deleted(item.id, type_of(item.type), name, item.timestamp, manifest.at, manifest.by, manifest.why,
                   manifest.until or "", manifest.batch, item.file, str(item.facts.get("place", "")), action)  # fmt: skip


def restore(
    memory: Memory, name: str, ids: str | Collection[str] | None = None, *, batch: str | None = None, by: str = "user"
) -> list[Record]:
    """Restore memories of a session, or a whole batch; of several with one id, the one deleted last.

    Raises Conflict, and changes nothing, where another memory has the id by now.
    """
    wanted = _meant(ids, batch)
    memory.require()
    with passing(memory, name, "restoring") as scope:
        _require(memory, name)
        found = _restorable(memory, name, wanted, batch)
        changes = [change for path, item, raw in found for change in _return(memory, name, path, item, raw)]
        facts = {"session": name, "count": len(found), "ids": [item.id for _, item, _ in found], "batch": batch}
        quota = memory._session(name).quota_bytes() if name != GLOBAL and is_in_use(memory, name) else None
        with audit.noted(memory.tree, "restore", clock=memory.options.clock, by=by, **facts):
            apply(scope, Request(changes, quota_bytes=quota, doing="restoring"))
    return [_record(name, item, raw) for _, item, raw in found if item.id]


def restore_batch(memory: Memory, batch: str, *, by: str = "user") -> Outcome:
    """Restore a batch in every session that it is of. A session that fails stops no other."""
    _meant(None, batch)
    sessions = list(sessions_with(memory, batch))
    if not sessions:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.", advice=_MAY_BE_BACK)
    outcome = Outcome(batch=batch)
    for name in sessions:
        try:
            back = restore(memory, name, batch=batch, by=by)
        except (SMPError, OSError) as error:
            if len(sessions) == 1:
                raise
            outcome.problems.append(f"{name}: {error}")
            continue
        about, kinds = tuple(record.id for record in back), tuple(record.type for record in back)
        outcome.actions.append(Action(name, "restore_memories", about, "restored", batch=batch, kinds=kinds))
    return outcome


def sessions_with(memory: Memory, batch: str) -> Iterable[str]:
    """Yield the sessions, and `global`, of which something was deleted under this batch."""
    for name in memory.tree.directories(DELETED):
        if (name == GLOBAL or is_session_id(name)) and any(
            manifest.batch == batch for _, manifest in manifests(memory.tree, f"{DELETED}/{name}")
        ):
            yield name


def _restorable(
    memory: Memory, name: str, ids: Sequence[str] | None, batch: str | None
) -> list[tuple[str, Item, bytes]]:
    """Return the items that are meant, each with its bundle and its bytes."""
    newest_first = sorted(manifests(memory.tree, f"{DELETED}/{name}"), key=lambda one: one[1].at, reverse=True)
    chosen_items: dict[tuple[str, ...], tuple[str, Item]] = {}
    for path, manifest in newest_first:
        if path.endswith(f"/{BACKUP}") or (batch is not None and manifest.batch != batch):
            continue
        for item in manifest.items:
            if ids is None or item.id in ids or agent_of(item) in ids:
                key = (*item.key, str(item.facts.get("from", "")), "" if item.id else item.hash)
                chosen_items.setdefault(key, (path, item))
    if not chosen_items:
        for path in bundle.paths(memory.tree, f"{DELETED}/{name}"):
            bundle.read_manifest(memory.tree, path)  # raises where one is damaged, which may hold it
    known = {name for _, item in chosen_items.values() for name in (item.id, agent_of(item))}
    if missing := [memory_id for memory_id in ids or () if memory_id not in known]:
        raise MemoryNotFound(f"{', '.join(missing)} of {name} cannot be restored: it is not deleted.", session_id=name,
                             advice=_MAY_BE_BACK)  # fmt: skip
    if not chosen_items:
        raise MemoryNotFound(f"Nothing of {name} is deleted under the batch {batch!r}.", session_id=name,
                             advice=_MAY_BE_BACK)  # fmt: skip
    opened = {path: bundle.read(memory.tree, path) for path in {path for path, _ in chosen_items.values()}}
    found = [(path, item, opened[path].raw(item)) for path, item in chosen_items.values()]
    order = {memory_id: number for number, memory_id in enumerate(ids or ())}
    return sorted(found, key=lambda one: order.get(one[1].id, 0)) if order else found


def _return(memory: Memory, name: str, path: str, item: Item, raw: bytes) -> list[Change]:
    """Return the changes that bring one item back: into its place, and out of its bundle."""
    home = "" if is_in_use(memory, name) else f"{ARCHIVED}/{name}/{ARCHIVE}"
    came_from = str(item.facts.get("from", ""))
    if place_of(came_from) == "evicted" if came_from else False:
        home = came_from if memory.tree.exists(came_from) else home
    replaced = item.facts.get("replaced_by")  # the hash of the memory that an anonymisation left there
    facts = {name: fact for name, fact in item.facts.items() if name not in ("place", "from", "replaced_by")}
    into = Change(item.file, item.id, str(replaced) if replaced else None, raw, item.behind, home, facts)
    return [into, Change(item.file, item.id, item.hash, None, container=path)]


def _record(name: str, item: Item, raw: bytes) -> Record:
    if item.is_file:
        value = value_of_file(item.file, raw)
        return Record(item.id, type_of(item.type), name, dict(value), str(value.get("content", "")))
    kind = kind_of_file(item.file)
    return as_record(kind, name, value_of(kind, raw))


def _meant(ids: object, batch: object) -> list[str] | None:
    """Return the ids. Raises Invalid where it is not said what is meant."""
    several = [ids] if isinstance(ids, str) else ids
    if several is not None and not (isinstance(several, Collection) and all(isinstance(one, str) for one in several)):
        raise Invalid(["ids of memories are texts"])
    if batch is not None and not (isinstance(batch, str) and batch.strip()):
        raise Invalid(["a batch has a name; smp restore --list shows it"])
    if (several is None) is (batch is None):
        raise Invalid(["say what is restored: memories, or a batch"])
    return None if several is None else [check_memory_id(str(one)) for one in several]


def _require(memory: Memory, name: str) -> None:
    """Raise where the session is neither in use nor archived."""
    if not is_in_use(memory, name) and not memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}"):
        memory._scope(name).require()


# Evicted memories.


def evicted(memory: Memory, name: str) -> list[Holding]:
    """Return the memories of a session that compaction has evicted, the oldest first.

    A bundle that cannot be read is left out: `smp check` reports it.
    """
    with memory._scope(name).answering("listing the evicted memories"):
        return [*holdings(memory, name, _EVICTED)]


def bring_back(
    session: Session, ids: str | Collection[str] | None = None, *, dry_run: bool = False
) -> Outcome:
    """Bring evicted memories, or these of them, back into their files, within the quota.

    A turn comes back with all turns that its summary stands for, and without the summary. A memory
    whose id another has by now stays evicted, and is a problem; the others come back.
    """
    several = [ids] if isinstance(ids, str) else ids
    wanted = None if several is None else {check_memory_id(one) for one in several}
    if dry_run:
        return _bring_back(session, wanted, dry_run=True)
    with session.scope.undisturbed("bringing back evicted memories"):
        session.scope.require()
        return replanned(lambda: _bring_back(session, wanted, dry_run=False))


def _bring_back(session: Session, wanted: set[str] | None, *, dry_run: bool) -> Outcome:
    outcome = Outcome(dry_run=dry_run)
    held = [*holdings(session.memory, session.id, _EVICTED, outcome.problems)]
    if missing := sorted((wanted or set()) - {one.id for one in held}):
        advice = f"smp compact {session.id} --list, or session.evicted(), lists them."
        raise MemoryNotFound(f"{', '.join(missing[:5])} of {session.id}: compaction has not evicted it.",
                             session_id=session.id, advice=advice)  # fmt: skip
    # A turn comes back with all turns of its run.
    runs = {_run(one) for one in held if wanted is None or one.id in wanted} - {None}
    chosen = [one for one in held if wanted is None or one.id in wanted or _run(one) in runs]
    changes: list[Change] = []
    for file in dict.fromkeys(one.file for one in chosen):
        records = spans(kind_of_file(file), session.scope.read(file)).records
        standing = {span.id: span.value for span in records if span.id}
        back: dict[str, Holding] = {}
        summaries: set[str] = set()
        for one in (one for one in chosen if one.file == file):
            value, summary = standing.get(one.id), str(one.facts.get("summary"))
            there = standing.get(summary, {})
            if there and summary_hash(there) == one.facts.get("summary_hash"):
                summaries.add(summary)
            is_in_file = value is not None and hash_of(value) == one.hash
            if one.id in back or not (value is None or is_in_file or one.id in summaries):
                why = f"was not brought back: another one stands in {file} by now."
                outcome.problems.append(f"{one.id} {why}")
                continue
            back[one.id] = one
            changes.append(removal(one))
            if not is_in_file:
                old = None if value is None else hash_of(value)
                changes.append(Change(file, one.id, old, one.raw, one.behind))
        changes += [Change(file, name, hash_of(standing[name]), None) for name in summaries - back.keys()]
        if back:
            kinds = tuple(type_of(one.type) for one in back.values())
            size = -sum(len(one.raw) for one in back.values())
            outcome.actions.append(Action(session.id, "bring_back", tuple(back), f"back into {file}",
                                          size, kinds=kinds))  # fmt: skip
    if not dry_run:
        request = Request(changes, quota_bytes=session.quota_bytes(), doing="bringing back")
        kept = apply(session.scope, request).kept
        outcome.problems += [f"{name} was changed meanwhile, and stays as it is" for name in kept]
    return outcome


def _run(one: Holding) -> tuple[str, str] | None:
    """Return the bundle and the summary that the turns of a run share."""
    return (one.container, str(one.facts["summary"])) if "summary" in one.facts else None
