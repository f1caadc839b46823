"""Deleting, restoring, purging and anonymising: `smp delete`, `restore`, `purge`, `anonymize`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from smp_client.model.layout import DELETED, GLOBAL
from smp_client.model.outcome import Action, Outcome

from . import output as out
from .arguments import ANYWHERE, KEPT, SELECTING, Call, command, find_id
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.privacy.anonymise import Anonymized


# Deleting.


@command(
    "[SESSION] [ID]...",
    *SELECTING,
    "--all  Of every session, archived ones too, and of global.",
    "--reason WHY!  Why; it is kept with the deleted memories.",
    "--by",
    "--yes",
    "--dry-run",
    places=KEPT,
)
def delete(call: Call) -> None:
    """Delete SESSION, or memories of it; smp restore brings them back until their deadline.

    Memories are named by their ids, or described by conditions that must all hold. They are deleted
    wherever they are: also from the archive, and where compaction has evicted them.

    \b
    smp delete session-2026-01-11-abc123 --reason "made by mistake"
    smp delete latest DEC-001 FIND-002 --reason "no longer true"
    smp delete latest --topic billing --since "last 7 days" --reason "not ours" --dry-run
    smp delete --all --text "Jane Doe" --reason "she asked for it"
    """
    given = call.conditions()
    is_whole = not call.id and not given
    call.check(
        (call.all and not given, f"--all needs a condition: {', '.join(SELECTING)}."),
        ((call.session is None) != call.all, "Give a session, or --all; not both."),
        (call.session == GLOBAL and is_whole, "Of global, give ids or conditions."),
    )
    memory = call.memory()
    name = None if call.all else find_id(memory, call.session, *KEPT)

    def do(dry_run: bool) -> Outcome:
        said: dict[str, Any] = {"reason": call.reason, "deleted_by": call.by, "dry_run": dry_run}
        if name is None:
            return memory.privacy.delete_everywhere(**said, **given)
        if is_whole:
            return memory.delete_session(name, **said)
        return memory.privacy.delete(name, call.id or None, **said, **given)

    days = f"{memory.options.retention.deleted_days:g} days"
    question = f"Delete {{}}? For {days} smp restore brings it back."
    call.ask(lambda: do(True), lambda plan: _asked(question, plan), "Nothing was deleted.")
    with progress("deleting"):
        outcome = do(call.dry_run)
    back = f"--batch {outcome.batch}" if outcome.batch else name
    text = given.get("text")
    elsewhere = f" smp show --all-about {shlex.quote(text)} finds other places." if text else ""
    note = f"For {days} smp restore {back} brings it back.{elsewhere}"
    call.finish(outcome, nothing="Nothing fits: nothing was deleted.", note=note)


def _asked(question: str, plan: Outcome) -> str:
    """Return the question about `1 decision, 1 turn of s1 (DEC-001, turn-3)`."""
    if not plan.actions:
        return ""
    whole = [action for action in plan.actions if action.about == (action.session,)]
    counts = Counter(kind.replace("_", " ") for action in plan.actions for kind in action.kinds)
    counts.update({"session": len(whole)} if whole else {})
    kinds = ", ".join(out.counted(count, kind) for kind, count in counts.items())
    sessions = out.listed([*dict.fromkeys(action.session for action in plan.actions)])
    size = f", {out.short_size(plan.bytes_freed)}" if whole else ""
    return question.format(f"{kinds} of {sessions} ({out.listed(plan.ids)}{size})")


# Restoring.


@command(
    "[SESSION] [ID]...",
    "--batch BATCH  All memories that were deleted, or anonymised, together.",
    "--list  List what can be restored, and until when.",
    "--by",
    "--dry-run",
    places=(DELETED, *KEPT),
)
def restore(call: Call) -> None:
    """Restore the deleted SESSION, or deleted memories of it.

    \b
    smp restore --list
    smp restore session-2026-01-11-abc123
    smp restore latest DEC-001 FIND-002
    smp restore --batch 20260111T144000-5f3a9c
    """
    call.check(
        (bool(call.id) + bool(call.batch) + call.list > 1,
         "Give only one of ids, --batch and --list."),
        (not call.session and not call.batch and not call.list,
         "Say what: SESSION, SESSION ID, or --batch; smp restore --list shows what there is."),
    )  # fmt: skip
    memory = call.memory()
    if call.list:
        _print_restorable(call, memory)
    with progress("restoring"):
        if call.id or call.batch:
            outcome = _restored(call, memory)
        else:
            from smp_client.change.move import undelete_session

            name, why = find_id(memory, call.session, DELETED), "restored by hand"
            outcome = undelete_session(memory, name, why, by=call.by, dry_run=call.dry_run)
    call.finish(outcome)


def _restored(call: Call, memory: Memory) -> Outcome:
    """Restore memories of one session all or none; of a batch, a session stops no other."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.change.places import id_of_file
    from smp_client.change.restore import sessions_with

    ids, batch = call.id, call.batch
    session = call.session and find_id(memory, call.session, *KEPT)
    names = [session] if session else list(sessions_with(memory, batch))
    if not names:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what can be restored.")  # fmt: skip
    outcome = Outcome(dry_run=call.dry_run, batch=batch or "")
    for name in names:
        # Earlier states of an agent come back with its state. Of several, the last one counts.
        fitting = {one.id: one for one in memory.privacy.deleted(name)
                   if one.batch == batch or {one.id, id_of_file(one.file)} & {*ids}}  # fmt: skip
        try:
            if not call.dry_run or not fitting:
                memory.privacy.restore(name, list(ids) or None, batch=batch, by=call.by)
        except SMPError as error:
            if len(names) == 1:
                raise
            outcome.problems.append(f"{name}: {error}")
            continue
        last = [*fitting.values()][-1]
        done = "anonymised" if last.action == "anonymize" else "deleted"
        outcome.actions.append(Action(
            name, "restore_memories", tuple(fitting), batch=last.batch, place=last.place,
            reason=f"{done} at {last.deleted_at} by {last.deleted_by}: {last.reason}",
            kinds=tuple(one.type for one in fitting.values()),
        ))  # fmt: skip
    return outcome


def _print_restorable(call: Call, memory: Memory) -> NoReturn:
    problems: list[str] = []
    session = call.session and find_id(memory, call.session, *KEPT, DELETED)
    found = [one for one in _restorable(memory, problems) if session in (None, one["session"])]
    rows = [(one["session"], one["id"], out.short_type(one["type"]),
             out.short_time(one["recovery_deadline"]) + (" (overdue)" if one["is_overdue"] else ""),
             one["batch"], out.short_time(one["deleted_at"]), one["deleted_by"], one["reason"],
             one["text"]) for one in found]  # fmt: skip
    titles = "SESSION~ ID TYPE? UNTIL BATCH DELETED? BY? REASON? TEXT"
    nothing = "There is nothing to restore."
    outcome = Outcome(problems=problems)
    call.finish(outcome, body=lambda: call.table(found, titles, rows, nothing), restorable=found)


def _restorable(memory: Memory, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the deleted sessions, and the memories that were deleted or anonymised one by one."""
    from smp_client.change.holdings import holdings
    from smp_client.disk.scopes import BACKUP
    from smp_client.model.layout import is_session_id
    from smp_client.model.record import type_of
    from smp_client.model.times import render_time

    now = render_time(memory.options.clock())

    def row(session: str, id: str | None, type: str, until: Any, **more: Any) -> dict[str, Any]:
        is_overdue = str(until) <= now
        return {"session": session, "id": id, "type": type, "recovery_deadline": until,
                "is_overdue": is_overdue, **more}  # fmt: skip

    for away in memory.deleted_sessions():
        yield row(away.session, None, "session", away.until, deleted_at=away.at,
                  deleted_by=away.by, reason=away.reason, batch=None, place=None,
                  action="deleted", text=None)  # fmt: skip
    for name in memory.tree.directories(DELETED):
        is_named = name == GLOBAL or is_session_id(name)
        for one in holdings(memory, name, ("deleted", "undo"), problems) if is_named else ():
            facts = one.facts
            if not one.container.endswith(f"/{BACKUP}"):
                yield row(name, one.id, type_of(one.type), facts.get("until"),
                          deleted_at=facts.get("at"), deleted_by=facts.get("by"),
                          reason=facts.get("why"), batch=facts.get("batch") or None,
                          place=facts.get("place") or "active", text=out.held_text(one),
                          action="anonymised" if one.place == "undo" else "deleted")  # fmt: skip


# Purging.


@command(
    "[SESSION] [ID]...",
    "--force  Everything past its deadline goes, although no daemon has watched it pass.",
    "--now  Destroy what is named at once, deleted or not.",
    "--batch BATCH  With --now: all memories of a batch.",
    "--by",
    "--yes",
    "--dry-run",
    places=ANYWHERE,
)
def purge(call: Call) -> None:
    """Destroy what was deleted and is past its deadline; with --now, what is named.

    With --now, SESSION alone is all of it, and ID the deleted memory, else the memory itself.
    Nothing brings it back, and no byte of it stays below the root. Only this, and the daemon by
    the same rules, destroys anything.

    \b
    smp purge --dry-run
    smp purge latest DEC-001 --now
    smp purge --batch 20260111T144000-5f3a9c --now
    smp purge session-2026-01-11-abc123 --now
    """
    is_named = call.session is not None or call.batch is not None
    call.check(
        (is_named and not call.now, "A session and --batch go with --now."),
        (call.now and call.force, "--force is for overdue memories, --now for named ones."),
        (call.id and call.batch, "Give ids or --batch, not both."),
        (call.now and not is_named, "--now destroys what is named: SESSION, ID, or --batch."),
        (call.session == GLOBAL and not call.id and not call.batch,
         "Of global, give ids, or --batch."),
    )  # fmt: skip
    memory = call.memory()
    name = None if call.session is None else find_id(memory, call.session, *ANYWHERE)

    def do(dry_run: bool) -> Outcome:
        if call.now:
            said: dict[str, Any] = {"batch": call.batch, "by": call.by, "dry_run": dry_run}
            return memory.privacy.purge_now(name, list(call.id) or None, **said)
        return memory.privacy.purge(force=call.force, by=call.by, dry_run=dry_run)

    if call.now or call.force:
        question = "Destroy {} for good? Nothing brings it back."
        call.ask(lambda: do(True), lambda plan: _asked(question, plan), "Nothing was destroyed.")
    waiting: list[Action] = []
    if not call.now:
        from smp_client.passes.purge import planned

        decided = planned(memory, force=call.force).decisions
        waiting = [one.as_action() for one in decided if not one.purge]
    with progress("purging"):
        outcome = do(call.dry_run)
    outcome.notes += [f"{one.session} keeps {out.listed(one.about)}: {one.reason}"
                      for one in waiting if "overdue" in one.reason]  # fmt: skip
    named = out.listed([*dict.fromkeys(one.session for one in waiting)])
    nothing = f"Nothing is due yet. Waiting: {named}; smp restore --list names the memories."
    kept = [{"session": one.session, "about": one.about, "reason": one.reason} for one in waiting]
    call.finish(outcome, nothing=nothing if kept else "There is nothing to do.", kept=kept)


# Anonymising.


_KINDS = "user_names, project_names, file_paths, contacts, addresses, accounts, secrets"
NAMING = (
    "--name NAME...  Somebody to be replaced; repeat it.",
    "--names-file PATH  Names, one in each line.",
    "--project NAME...  A project; repeat it.",
    f"--keep KIND,…  Not replaced: {_KINDS}.",
)


def naming(call: Call) -> dict[str, Any]:
    """Return the names that are known; in a file of names, `#` begins a comment."""
    from smp_client.privacy.placeholder import Anonymization

    lines = Path(call.names_file).read_text("utf-8").splitlines() if call.names_file else []
    stripped = (line.strip() for line in lines)
    names = [*call.name, *(line for line in stripped if line and not line.startswith("#"))]
    kept = (part.strip() for part in (call.keep or "").split(","))
    config = Anonymization.keeping(part for part in kept if part)
    return {"names": names, "projects": call.project, "config": config}


@command(
    "SESSION [ID]...",
    *NAMING,
    "--now  Destroy the originals at once; else smp restore --batch brings them back.",
    "--reason WHY:anonymised  Why; it is kept with the originals.",
    "--by",
    "--yes",
    "--dry-run",
    places=KEPT,
)
def anonymize(call: Call) -> None:
    """Replace names in SESSION, or in its memories, by placeholders.

    User names, project names, file paths, e-mail addresses, phone and card numbers, IP addresses,
    IBANs and secrets; the same one always by the same placeholder. Known are the names in the
    metadata, in the user's profile, of whoever spoke, and those given.

    \b
    smp anonymize latest --dry-run
    smp anonymize latest --name "Anna Berg" --project Apollo
    smp anonymize latest DEC-001 --keep file_paths,addresses
    smp anonymize session-2026-01-11-abc123 --names-file staff.txt --now
    """
    how = {**naming(call), "reason": call.reason, "by": call.by, "now": call.now}
    memory = call.memory()
    found = find_id(memory, call.session, *KEPT)
    days = f"{memory.options.retention.deleted_days:g} days"

    def do(dry_run: bool) -> Anonymized:
        return memory.privacy.anonymize(found, call.id or None, dry_run=dry_run, **how)

    def question(plan: Anonymized) -> str:
        places = out.counted(sum(plan.counts.values()), "place")
        after = f"For {days} smp restore brings the originals back."
        after = "Nothing brings the originals back, or earlier ones." if call.now else after
        if not plan.actions and not (call.now and plan.earlier):
            return ""
        return f"Replace {places} in {out.counted(len(plan.ids), 'memory')} of {found}? {after}"

    call.ask(lambda: do(True), question, "Nothing was changed.")
    with progress("anonymising"):
        done = do(call.dry_run)
    done.notes += limits(done.agents, done.cannot_find) if done.actions else []
    note = f"For {days} smp restore --batch {done.batch} brings back the originals."
    if done.earlier and not done.erased:
        purging = "; ".join(f"smp purge --batch {batch} --now" for batch in done.earlier)
        done.notes.append(f"Earlier originals can still be restored; {purging} destroys them.")

    def print_replacements() -> None:
        if done.replacements:
            titles = "PLACEHOLDER PLACES> KIND" + (" STANDS_FOR" if done.dry_run else "")
            out.print_table(titles, [
                (one.placeholder, one.count, one.kind.replace("_", " "),
                 *[one.what][: done.dry_run]) for one in done.replacements
            ])  # fmt: skip
        end = " would be changed; nothing was changed" if done.dry_run else " changed"
        out.say(out.counted(len(done.ids), "memory") + end)

    names = ("batch", "session", "agents", "earlier", "cannot_find", "erased")
    told = {name: getattr(done, name) for name in names}
    told |= {"memories": done.ids, "replacements": [asdict(one) for one in done.replacements]}
    call.finish(done, body=print_replacements, note=note if done.batch else "", **told)


def limits(agents: Sequence[str], cannot_find: Sequence[str]) -> list[str]:
    """Return what a person must know who passes an anonymous text on."""
    kept = (
        f"taken for agents, and kept: {out.listed(agents)}. Give a person among them with --name."
    )
    return [*([kept] if agents else []), *(f"not found: {sentence}" for sentence in cannot_find)]
