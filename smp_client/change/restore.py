"""Deleting memories so that they can be restored, restoring them, and bringing back evicted ones.

A deletion moves memories into one bundle, `deleted/{session}/{batch}.tar.gz`. Restoring takes them
out of it: each comes back as its own span behind its old predecessor, else at the end of its file,
and a turn at its number. Evicted memories, and the undo of an anonymisation, come back in this way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..disk import audit
from ..disk.bundle import BundleKind, Manifest, manifests
from ..disk.place import ARCHIVE, BACKUP
from ..model.errors import CorruptionDetected, Invalid, MemoryNotFound, SessionNotFound, SMPError
from ..model.layout import ARCHIVED, DELETED, GLOBAL, is_session_id
from ..model.outcome import Action, Outcome
from ..model.record import check_lookup, check_memory_id, kind_of_file, type_of
from ..model.times import render_time
from ..redaction.redact import harmless
from ..text.contents import plain_fields
from ..text.edits import spans
from ..text.values import hash_of, summary_hash
from .change import Change, Request, apply, replanned
from .holdings import Holding, holdings, is_in_use, is_kept, names, place_of
from .select import Selection, chosen, ids_of, is_named, is_revision, owner_of, several

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import Session

# Facts of a holding that are of its bundle, or of the deletion.
_OF_BUNDLE = ("at", "by", "why", "until", "batch", "place", "from", "replaced_by")
BY_HAND = "restored by hand"
_MAY_BE_BACK = "smp restore --list shows what can be restored; other memories may be back already."


def new_batch(memory: Memory) -> str:
    return f"{memory.options.clock():%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def manifest_of(
    memory: Memory, kind: BundleKind, session: str, reason: str, by: str, batch: str = "", *,
    days: float | None = None,
) -> Manifest:  # fmt: skip
    """Return the head of a bundle that is made now. Raises Invalid without a reason or a person."""
    problems: list[str] = []
    said = plain_fields({"reason": reason, "deleted_by": by}, problems)
    for name, text in (("a reason", reason), ("somebody who deletes", by)):
        if not isinstance(text, str) or not text.strip():
            problems.append(f"a deletion needs {name}")
    if problems:
        raise Invalid(problems)
    why, who = (harmless(str(text)) for text in said.values())
    now = memory.options.clock()
    until = None if days is None else render_time(now + timedelta(days=days))
    return Manifest(kind, session, render_time(now), who, why, until, batch)


def said_reason(reason: str) -> str:
    """Return a reason as it may be written. Raises Invalid if it says nothing."""
    problems: list[str] = []
    said = plain_fields({"reason": reason}, problems)
    if not isinstance(reason, str) or not reason.strip():
        problems.append('say why: reason="…"')
    if problems:
        raise Invalid(problems)
    return harmless(str(said["reason"]))


def delete(
    memory: Memory, name: str, id: str | Sequence[str] | None = None, *, reason: str,
    reasons: Mapping[str, str] | None = None, deleted_by: str = "user", dry_run: bool = False,
    batch: str = "", **meant: Any,
) -> Outcome:  # fmt: skip
    """Delete memories, all or none: those with these ids, or all that meet every condition:
    `topic`, `agent`, `since`, `until`, `types`, `tags`, `text`.

    `reasons` are those of single memories, by id. Until their deadline `restore` brings the
    memories back. All have one batch.
    """
    selection = Selection(id, **meant)
    own = {one: said_reason(text) for one, text in (reasons or {}).items()}
    memory.require()
    batch, days = batch or new_batch(memory), memory.options.retention.deleted_days
    head = manifest_of(memory, "deleted", name, reason, deleted_by, batch, days=days)
    outcome = Outcome(dry_run=dry_run, batch="" if dry_run else batch)
    scope = memory._scope(name)
    with nullcontext() if dry_run else scope.undisturbed("deleting"):
        _require(memory, name)
        found = chosen(memory, name, selection, outcome.problems)
        if strange := [one for one in own if one not in {held.id for held in found}]:
            raise Invalid([f"reasons name {one}, which is not deleted here" for one in strange])
        for place in dict.fromkeys(one.place for one in found):
            here = [one for one in found if one.place == place]
            action = _action("delete_memories", head.why, here, outcome.batch)
            freed = -action.bytes_freed
            outcome.actions.append(replace(action, bytes_freed=freed, place=place))
        if found and not dry_run:
            draft = (f"{DELETED}/{name}/{batch}.tar.gz", head)
            changes = [removal(one, own.get(one.id, "")) for one in found]
            request = Request(changes, draft, doing="deleting")
            noted: Any = {"by": deleted_by, "session": name, "count": len(found)}
            noted |= {"ids": outcome.ids, "batch": batch}
            noted |= {"reason": head.why, "criteria": selection.criteria}
            with audit.noted(memory.tree, "delete", clock=memory.options.clock, **noted):
                kept = apply(scope, request)
            said = "was changed while it was deleted, and stays."
            outcome.problems += [f"{name}: {one} {said}" for one in kept]
    return outcome


def _action(type: str, reason: str, held: Sequence[Holding], batch: str = "") -> Action:
    """Return the action that brings these memories of one session back."""
    every = {one.id for one in held}
    # The name of a memory stands for its earlier versions, too.
    named = [one for one in held if one.id and not (is_revision(one) and owner_of(one) in every)]
    ids, kinds = tuple(one.id for one in named), tuple(type_of(one.type) for one in named)
    size = -sum(len(one.raw) for one in held)
    return Action(held[0].session, type, ids, reason, size, batch, kinds=kinds)


def removal(one: Holding, why: str = "") -> Change:
    """Return the change that takes a memory out of where it is, perhaps for a reason of its own."""
    facts = {"place": one.place, "from": one.container} if one.container else {}
    if why:
        facts["why"] = why
    return Change(one.file, one.id, one.hash, None, container=one.container, facts=facts)


def delete_everywhere(
    memory: Memory, *, reason: str, deleted_by: str = "user", dry_run: bool = False, **meant: Any
) -> Outcome:
    """Delete in `global` and in every session, archived or not, under one batch.

    A session that fails stops no other.
    """
    if Selection(**meant).ids is not None:
        raise Invalid(["ids are given in every session anew: say in which one, or give conditions"])
    memory.require()
    manifest_of(memory, "deleted", GLOBAL, reason, deleted_by)  # raises before anything is touched
    how: Any = {"dry_run": dry_run, "batch": new_batch(memory)}
    said: Any = {"reason": reason, "deleted_by": deleted_by, **how, **meant}
    return _in_each(names(memory), lambda name: delete(memory, name, **said), how)


def restore_batch(
    memory: Memory, batch: str, *, reason: str = BY_HAND, by: str = "user", dry_run: bool = False
) -> Outcome:
    """Restore a batch in every session that it is of. A session that fails stops no other."""
    said_reason(reason)
    sessions = [*sessions_with(memory, batch)] if batch.strip() else []
    if not sessions:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.", advice=_MAY_BE_BACK)
    how: Any = {"batch": batch, "reason": reason, "by": by, "dry_run": dry_run}
    return _in_each(sessions, lambda name: restore(memory, name, **how), how)


def _in_each(
    sessions: Sequence[str], act: Callable[[str], Outcome], how: Mapping[str, Any]
) -> Outcome:
    whole = Outcome(dry_run=how["dry_run"], batch=how["batch"])
    for name in sessions:
        try:
            whole.add(act(name))
        except SessionNotFound:
            continue  # it went meanwhile
        except (SMPError, OSError) as error:
            if len(sessions) == 1:
                raise
            whole.problems.append(f"{name}: {error}")
    return whole


def sessions_with(memory: Memory, batch: str) -> Iterable[str]:
    """Yield the sessions, and `global`, of which something was deleted under this batch."""
    for name in memory.tree.directories(DELETED):
        if name == GLOBAL or is_session_id(name):
            found = manifests(memory.tree, f"{DELETED}/{name}")
            if any(manifest.batch == batch for _, manifest in found):
                yield name


def deleted(memory: Memory, name: str) -> list[Holding]:
    """Return the memories of a session that can be restored, those deleted first before others."""
    found = [one for one in _taken(memory, name, []) if one.id and not is_revision(one)]
    return sorted(found, key=lambda one: str(one.facts["at"]))


def _taken(memory: Memory, name: str, problems: list[str]) -> list[Holding]:
    """Return the memories that were deleted, or anonymised, and not with their whole session."""
    with memory._scope(name).answering("listing the deleted memories"):
        found = [*holdings(memory, name, ("deleted", "undo"), problems)]
    return [one for one in found if not one.container.endswith(f"/{BACKUP}")]


def restore(
    memory: Memory, name: str, ids: str | Collection[str] | None = None, *,
    batch: str | None = None, reason: str = BY_HAND, by: str = "user", dry_run: bool = False,
) -> Outcome:  # fmt: skip
    """Restore memories of a session, or a whole batch; of several with one id, the newest.

    The audit log keeps the reason. Raises Conflict, and changes nothing, if another memory has the
    id by now.
    """
    if (ids is None) is (batch is None) or (batch is not None and not batch.strip()):
        raise Invalid(["say what is restored: memories, or a batch"])
    wanted = None if ids is None else [check_lookup(one) for one in several(ids)]
    why = said_reason(reason)
    memory.require()
    scope = memory._scope(name)
    with scope.undisturbed("restoring"):
        _require(memory, name)
        found = _restorable(memory, name, wanted, batch)
        done, facts = "anonymised" if found[0].place == "undo" else "deleted", found[0].facts
        before = f"{done} at {facts['at']} by {facts['by']}: {facts['why']}"
        action = _action("restore_memories", before, found, found[0].batch)
        if dry_run:
            return Outcome([action], dry_run=True, batch=batch or "")
        changes = _return(memory, name, found)
        noted: Any = {"session": name, "count": len(found), "ids": [*action.about]}
        noted |= {"batch": batch, "reason": why}
        is_limited = name != GLOBAL and is_in_use(memory, name)
        quota = memory._session(name).quota_bytes() if is_limited else None
        with audit.noted(memory.tree, "restore", clock=memory.options.clock, by=by, **noted):
            apply(scope, Request(changes, quota_bytes=quota, doing="restoring"))
    return Outcome([action], batch=batch or "")


def _restorable(
    memory: Memory, name: str, ids: list[str] | None, batch: str | None
) -> list[Holding]:
    """Return the deleted memories that are meant, the newest of each."""
    problems: list[str] = []
    held = [one for one in _taken(memory, name, problems) if batch is None or one.batch == batch]
    held = [one for one in held if ids is None or is_named(one, ids)]
    found: dict[tuple[str, ...], Holding] = {}
    for one in sorted(held, key=lambda one: str(one.facts["at"]), reverse=True):
        key = (one.file, one.id, str(one.facts.get("from", "")), "" if one.id else one.hash)
        found.setdefault(key, one)
    known = {known for one in held for known in ids_of(one)}
    missing = [memory_id for memory_id in ids or () if memory_id not in known]
    if missing or not found:
        about = f"{', '.join(missing)} of {name} cannot be restored: it is not deleted."
        nothing = f"Nothing of {name} is deleted under the batch {batch!r}."
        advice = " ".join([*problems, _MAY_BE_BACK])
        error = CorruptionDetected if problems else MemoryNotFound
        raise error(about if missing else nothing, session_id=name, advice=advice)
    return [*found.values()]


def _return(memory: Memory, name: str, found: Sequence[Holding]) -> list[Change]:
    """Return the changes that bring memories back: into their places, and out of their bundles.

    A turn that does not go back into an evicted bundle takes the place of its summary.
    """
    summaries: dict[str, str] = {}  # their hashes, by id
    standing: dict[str, str] = {}
    for one in found:
        if one.facts.get("summary") == one.id and place_of(_home(memory, one)) != "evicted":
            summaries[one.id] = one.facts["summary_hash"]
    if summaries:
        for one in holdings(memory, name, ("active", "archived")):
            if summaries.get(one.id) == summary_hash(one.value):
                standing[one.id] = one.hash
    changes: list[Change] = []
    for one in found:
        home = _home(memory, one)
        if summaries.get(one.id) != summary_hash(one.value):
            # An anonymisation left another memory in its place.
            old = one.facts.get("replaced_by") or standing.get(one.id)
            facts = {fact: value for fact, value in one.facts.items() if fact not in _OF_BUNDLE}
            changes.append(Change(one.file, one.id, old, one.raw, one.behind, home, facts))
        changes.append(Change(one.file, one.id, one.hash, None, container=one.container))
    return changes


def _home(memory: Memory, one: Holding) -> str:
    """Return the bundle that a memory goes back to; empty if it goes into its file."""
    came_from = str(one.facts.get("from", ""))
    if came_from and place_of(came_from) == "evicted" and memory.tree.exists(came_from):
        return came_from
    return "" if is_in_use(memory, one.session) else f"{ARCHIVED}/{one.session}/{ARCHIVE}"


def _require(memory: Memory, name: str) -> None:
    """Raise where the session is neither in use nor archived."""
    if not is_kept(memory, name):
        memory._scope(name).require()


# Evicted memories.


def bring_back(
    session: Session, ids: str | Collection[str] | None = None, *, dry_run: bool = False
) -> Outcome:
    """Bring evicted memories, or these of them, back into their files, within the quota.

    A turn comes back with all turns that its summary stands for, and without the summary. A memory
    whose id another has by now stays evicted, and is a problem; the others come back.
    """
    wanted = None if ids is None else {check_memory_id(one) for one in several(ids)}
    with session.scope.undisturbed("bringing back evicted memories"):
        session.scope.require()
        return replanned(lambda: _bring_back(session, wanted, dry_run=dry_run))


def _bring_back(session: Session, wanted: set[str] | None, *, dry_run: bool) -> Outcome:
    outcome = Outcome(dry_run=dry_run)
    found = holdings(session.memory, session.id, ["evicted"], outcome.problems)
    held = sorted(found, key=lambda one: one.container, reverse=True)  # the newest copy comes back
    if missing := sorted((wanted or set()) - {one.id for one in held}):
        advice = f"smp compact {session.id} --list, or session.evicted(), lists them."
        said = f"{', '.join(missing[:5])} of {session.id}: compaction has not evicted it."
        raise MemoryNotFound(said, session_id=session.id, advice=advice)
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
            if summary_hash(standing.get(summary, {})) == one.facts.get("summary_hash", ""):
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
        for name in summaries - back.keys():
            changes.append(Change(file, name, hash_of(standing[name]), None))
        if back:
            action = _action("bring_back", f"back into {file}", [*back.values()])
            outcome.actions.append(action)
    if not dry_run:
        request = Request(changes, quota_bytes=session.quota_bytes(), doing="bringing back")
        kept = apply(session.scope, request)
        outcome.problems += [f"{name} was changed meanwhile, and stays as it is" for name in kept]
    return outcome


def _run(one: Holding) -> tuple[str, str] | None:
    """Return the bundle and the summary that the turns of a run share."""
    return (one.container, str(one.facts["summary"])) if "summary" in one.facts else None
