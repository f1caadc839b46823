"""Deleting, restoring, purging and anonymising: `smp delete`, `restore`, `purge`, `anonymize`."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import ARCHIVED, DELETED, GLOBAL
from smp_client.model.outcome import Action, Outcome

from . import output as out
from .arguments import (
    ANYWHERE,
    CONDITIONS,
    KEPT,
    Call,
    Decorator,
    check_usage,
    complete_memory_id,
    find_id,
    flag,
    given_session,
    memories_argument,
    option,
    reason_option,
    selecting_options,
    several,
    suggesting_ids,
    takes,
    what_is_meant,
)
from .progress import progress

if TYPE_CHECKING:

    from smp_client import Memory
    from smp_client.change.restore import Deleted
    from smp_client.privacy.anonymise import Anonymized
    from smp_client.privacy.placeholder import Anonymization


# Deleting.


@click.command(epilog="""\b
smp delete session-2026-01-11-abc123 --reason "made by mistake"
smp delete latest DEC-001 FIND-002 --reason "no longer true"
smp delete latest --topic billing --since "last 7 days" --reason "not ours" --dry-run
smp delete --all --text "Jane Doe" --reason "she asked for it\"""")
@memories_argument(*KEPT, required=False)
@selecting_options
@flag("--all", "Of every session, archived ones too, and of global.", to="is_all")
@reason_option("Why; it is kept with the deleted memories.", required=True)
@takes("by", "yes", "dry_run")
def delete(
    call: Call, session: str | None, ids: tuple[str, ...], is_all: bool, reason: str,
    **conditions: Any,
) -> None:  # fmt: skip
    """Delete SESSION, or memories of it; smp restore brings them back until their deadline.

    Memories are named by their ids, or described by conditions that must all hold. They are deleted
    wherever they are: also from the archive, and where compaction has evicted them.
    """
    meant = what_is_meant(ids, conditions)
    check_usage(
        (is_all and not meant.conditions, f"--all needs a condition: {CONDITIONS}."),
        ((session is None) != is_all, "Give a session, or --all; not both."),
        (session == GLOBAL and meant.is_whole, f"Of global, give ids, or {CONDITIONS}."),
    )
    memory = call.memory()
    name = None if session is None else find_id(memory, session, *KEPT)

    def do(dry_run: bool) -> Outcome:
        said: dict[str, Any] = {"reason": reason, "deleted_by": call.by, "dry_run": dry_run}
        if name is None:
            return memory.delete_everywhere(**said, **meant.conditions)
        if meant.is_whole:
            return memory.delete_session(name, **said)
        with suggesting_ids(memory, name, meant.ids):
            return memory.delete(name, meant.ids or None, **said, **meant.conditions)

    days = f"{memory.options.retention.deleted_days:g} days"
    if not call.dry_run and out.asks(yes=call.yes) and (plan := do(True)).actions:
        question = f"Delete {_described(plan)}? For {days} smp restore brings it back."
        out.confirm(question, "Nothing was deleted.")
    with progress("deleting"):
        outcome = do(call.dry_run)
    back = f"--batch {outcome.batch}" if outcome.batch else name
    text = meant.conditions.get("text")
    elsewhere = f" smp show --all-about {shlex.quote(text)} finds other places." if text else ""
    call.finish(outcome, nothing="Nothing fits: nothing was deleted.",
           note=f"For {days} smp restore {back} brings it back.{elsewhere}")  # fmt: skip


def _described(plan: Outcome) -> str:
    """Return `2 decisions and 1 turn of s1 (DEC-001, DEC-002, turn-3)`."""
    first = plan.actions[0]
    if first.about == (first.session,):
        return f"the session {first.session} ({out.short_size(first.bytes_freed)})"
    counts = Counter(kind.replace("_", " ") for action in plan.actions for kind in action.kinds)
    *kinds, last = [out.counted(count, kind) for kind, count in counts.items()]
    what = f"{', '.join(kinds)} and {last}" if kinds else last
    sessions = out.listed([*dict.fromkeys(action.session for action in plan.actions)])
    return f"{what} of {sessions} ({out.listed(plan.ids)})"


# Restoring.


def _complete_deleted_id(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, (one.id for one in _deleted(ctx) if given_session(ctx)))


def _complete_any_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    known = complete_memory_id(ctx, param, incomplete) if given_session(ctx) else []
    gone = _complete_deleted_id(ctx, param, incomplete)
    return list(dict.fromkeys([*gone, *(item.value for item in known)]))


def _complete_batch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, (one.batch for one in _deleted(ctx)))


def _deleted(ctx: click.Context) -> list[Deleted]:
    """Return the deleted memories of the session that was typed, else of all."""
    from smp_client import Memory

    with suppress(Exception):  # an error would be printed into the line that is being typed
        memory, session = Memory(ctx.params.get("root")), given_session(ctx)
        names = [find_id(memory, session, *ANYWHERE)] if session else memory.tree.list(DELETED)
        return [one for name in names for one in memory.deleted(name)]
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name and name.startswith(incomplete)]


@click.command(epilog="""\b
smp restore --list
smp restore session-2026-01-11-abc123
smp restore latest DEC-001 FIND-002
smp restore --batch 20260111T144000-5f3a9c""")
@memories_argument(DELETED, *KEPT, required=False, complete_id=_complete_deleted_id)
@option("--batch", "All memories that were deleted, or anonymised, together.",
        shell_complete=_complete_batch)  # fmt: skip
@flag("--list", "List what can be restored, and until when.", to="is_list")
@takes("by", "dry_run")
def restore(
    call: Call, session: str | None, ids: tuple[str, ...], batch: str | None, is_list: bool
) -> None:
    """Restore the deleted SESSION, or deleted memories of it."""
    check_usage(
        (bool(ids) + bool(batch) + is_list > 1, "Give only one of ids, --batch and --list."),
        (session is None and batch is None and not is_list,
         "Say what: SESSION, SESSION ID, or --batch; smp restore --list shows what there is."),
    )  # fmt: skip
    memory = call.memory()
    if is_list:
        _print_restorable(call, memory, session and find_id(memory, session, *KEPT, DELETED))
        return
    with progress("restoring"):
        if ids or batch is not None:
            name = session and find_id(memory, session, *KEPT)
            outcome = _restored(call, memory, name, ids, batch)
        else:
            from smp_client.change.move import undelete_session

            name = find_id(memory, str(session), DELETED)
            why = "restored by hand"
            outcome = undelete_session(memory, name, why, by=call.by, dry_run=call.dry_run)
    call.finish(outcome)


def _restored(
    call: Call, memory: Memory, session: str | None, ids: Sequence[str], batch: str | None
) -> Outcome:
    """Restore memories. A session, or an id, that fails stops no other."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.change.places import id_of_file
    from smp_client.change.restore import sessions_with

    names = [session] if session else list(sessions_with(memory, str(batch)))
    if not names:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what can be restored.")  # fmt: skip
    outcome = Outcome(dry_run=call.dry_run, batch=batch or "")
    steps = [(name, one) for name in names for one in (ids or (None,))]
    for name, one in steps:
        # Earlier states of an agent come back with its state.
        known = memory.deleted(name)
        if one is None:
            known = [item for item in known if item.batch == batch]
        else:
            known = [item for item in known if one in (item.id, id_of_file(item.file))]
        known = [item for item in known if item.batch == known[-1].batch]
        try:
            if not call.dry_run or not known:
                memory.restore(name, one, batch=batch, by=call.by)
        except SMPError as error:
            if len(steps) == 1:
                raise
            outcome.problems.append(str(error))
            continue
        last = known[-1]
        done = "anonymised" if last.action == "anonymize" else "deleted"
        outcome.actions.append(Action(
            name, "restore_memories", tuple(item.id for item in known), batch=last.batch,
            reason=f"{done} at {last.deleted_at} by {last.deleted_by}: {last.reason}",
            place=last.place or _place(memory, name), kinds=tuple(item.type for item in known),
        ))  # fmt: skip
    return outcome


def _place(memory: Memory, name: str) -> str:
    from smp_client.change.holdings import is_in_use
    from smp_client.disk.scopes import ARCHIVE

    if name == GLOBAL or is_in_use(memory, name):
        return GLOBAL if name == GLOBAL else "active"
    return "archived" if memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}") else "deleted"


def _print_restorable(call: Call, memory: Memory, session: str | None) -> None:
    problems: list[str] = []
    every = (*_restorable_sessions(memory), *_restorable_memories(memory, problems))
    found = [one for one in every if session in (None, one["session"])]
    if call.as_json:
        out.print_json({"restorable": found, "problems": problems})
        sys.exit(1 if problems else 0)
    if found:
        usual = {"active", "deleted", GLOBAL}
        more = [name for name in ("action", "place") if {one[name] for one in found} - usual]
        extra = " ".join(f"{name.upper()}?" for name in more)
        out.print_table(f"SESSION~ ID TYPE? UNTIL BATCH {extra} DELETED? BY? REASON:20 TEXT:20", [
            (one["session"], one["id"], out.short_type(one["type"]),
             out.short_time(one["recovery_deadline"]) + (" (overdue)" if one["is_overdue"] else ""),
             one["batch"], *(one[name] for name in more), out.short_time(one["deleted_at"]),
             one["deleted_by"], one["reason"], one["text"]) for one in found
        ])  # fmt: skip
        for first in sorted({one["first"] for one in found if one["first"]}):
            out.tell(f"Some of it can be restored after {first}.")
    nothing = "" if found else "There is nothing to restore."
    call.finish(Outcome(problems=problems), nothing=nothing)


def _restorable_sessions(memory: Memory) -> Iterator[dict[str, Any]]:
    for one in memory.deleted_sessions():
        yield {
            "session": one.session, "id": None, "type": "session", "recovery_deadline": one.until,
            "deleted_at": one.at, "deleted_by": one.by, "reason": one.reason, "batch": None,
            "place": "deleted", "action": "deleted", "first": None, "text": None,
            "is_overdue": _is_past(one.until, memory.options.clock()),
        }  # fmt: skip


def _restorable_memories(memory: Memory, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the memories that were deleted one by one. Those of a deleted session wait for it."""
    from smp_client.change.holdings import holdings
    from smp_client.change.select import texts_of
    from smp_client.disk.scopes import BACKUP
    from smp_client.model.layout import is_session_id
    from smp_client.model.record import kind_of_file, type_of

    for name in memory.tree.directories(DELETED):
        if not (name == GLOBAL or is_session_id(name)):
            continue
        place = _place(memory, name)
        for one in holdings(memory, name, ("deleted", "undo"), problems):
            if one.container.endswith(f"/{BACKUP}"):
                continue
            facts = one.facts
            text = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
            rest = {key: part for key, part in one.value.items() if key not in ("id", "timestamp")}
            yield {
                "session": name, "id": one.id, "type": type_of(one.type),
                "recovery_deadline": facts.get("until"), "deleted_at": facts.get("at"),
                "deleted_by": facts.get("by"), "reason": facts.get("why"),
                "batch": facts.get("batch") or None, "place": facts.get("place") or place,
                "action": "anonymised" if one.place == "undo" else "deleted",
                "first": f"smp restore {name}" if place == "deleted" else None,
                "text": str(text) if text else "; ".join(texts_of(rest)),
                "is_overdue": _is_past(facts.get("until"), memory.options.clock()),
            }  # fmt: skip


def _is_past(deadline: Any, now: datetime) -> bool:
    from smp_client.model.times import parse_time

    with suppress(ValueError, OverflowError, TypeError):
        return parse_time(deadline) <= now
    return False


# Purging.


@click.command(epilog="""\b
smp purge --dry-run
smp purge latest DEC-001 --now
smp purge --batch 20260111T144000-5f3a9c --now
smp purge session-2026-01-11-abc123 --now""")
@memories_argument(*ANYWHERE, required=False, complete_id=_complete_any_id)
@flag("--force", "Everything past its deadline goes, although no daemon has watched it pass.")
@flag("--now", "Destroy what is named at once, deleted or not.", to="is_now")
@option("--batch", "With --now: all memories of a batch.", shell_complete=_complete_batch)
@takes("by", "yes", "dry_run")
def purge(
    call: Call, session: str | None, ids: tuple[str, ...], force: bool, is_now: bool,
    batch: str | None,
) -> None:  # fmt: skip
    """Destroy what was deleted and is past its deadline; with --now, what is named.

    With --now, SESSION alone is all of it, and ID the deleted memory, else the memory itself.
    Nothing brings it back, and no byte of it stays below the root. Only this, and the daemon by
    the same rules, destroys anything.
    """
    is_named = session is not None or batch is not None
    check_usage(
        (is_named and not is_now, "A session and --batch go with --now."),
        (is_now and force, "--force is for overdue memories, --now for named ones."),
        (bool(ids) and batch is not None, "Give ids or --batch, not both."),
        (is_now and not is_named, "--now destroys what is named: SESSION, SESSION ID, or --batch."),
        (session == GLOBAL and not ids and not batch, "Of global, give ids, or --batch."),
    )
    memory = call.memory()
    if not is_now:
        _purge_overdue(call, memory, force=force)
    name = None if session is None else find_id(memory, session, *ANYWHERE)

    def do(dry_run: bool) -> Outcome:
        with suggesting_ids(memory, name or "", ids):
            chosen = list(ids) or None
            return memory.purge_now(name, chosen, batch=batch, by=call.by, dry_run=dry_run)

    if not call.dry_run and out.asks(yes=call.yes) and (plan := do(True)).actions:
        question = f"Destroy {_described(plan)} for good? Nothing brings it back."
        out.confirm(question, "Nothing was destroyed.")
    with progress("purging"):
        outcome = do(call.dry_run)
    call.finish(outcome)


def _purge_overdue(call: Call, memory: Memory, *, force: bool) -> None:
    from smp_client.passes.purge import planned

    if force and not call.dry_run and out.asks(yes=call.yes):
        plan = memory.purge(force=True, dry_run=True)
        if plan.actions:
            out.confirm(f"Destroy {_going(plan.actions)} for good?", "Nothing was destroyed.")
    with progress("purging"):
        kept = [one for one in planned(memory, force=force).decisions if not one.purge]
        outcome = memory.purge(force=force, by=call.by, dry_run=call.dry_run)
    waiting = [decision.as_action() for decision in kept]
    overdue = [action for action, decision in zip(waiting, kept, strict=True)
               if decision.doomed.deadline <= memory.options.clock()]  # fmt: skip
    if not call.as_json:
        for one in overdue:
            out.tell(f"note: {one.session} keeps {out.listed(one.about)}: {one.reason}", err=True)
        if overdue and not force:
            how = "once two purges at least 6 days of running time apart have seen it overdue"
            out.tell(f"note: smp purge --force destroys that now; a daemon does so {how}", err=True)
    nothing = f"Nothing is due yet. Waiting: {_going(waiting)}; smp restore --list names them."
    said = [{"session": one.session, "about": one.about, "reason": one.reason} for one in waiting]
    call.finish(outcome, nothing=nothing if kept else "There is nothing to do.", kept=said)


def _going(actions: Sequence[Action]) -> str:
    sessions = sum(action.type == "purge_session" for action in actions)
    memories = sum(len(action.about) for action in actions if action.type != "purge_session")
    parts = ((sessions, "deleted session"), (memories, "deleted memory"))
    return " and ".join(out.counted(count, noun) for count, noun in parts if count)


# Anonymising.


_KINDS = "user_names, project_names, file_paths, contacts, addresses, accounts, secrets"
naming_options: Decorator = several([
    option("--name", "Somebody to be replaced; repeat it.",
           to="names", multiple=True, metavar="NAME"),
    option("--names-file", "Names, one in each line.",
           type=click.Path(exists=True, dir_okay=False), metavar="FILE"),
    option("--project", "A project; repeat it.", to="projects", multiple=True, metavar="NAME"),
    option("--keep", f"Not replaced: {_KINDS}.", metavar="WHAT,…"),
])  # fmt: skip


def given_names(names: Sequence[str], names_file: str | None) -> list[str]:
    """Return the names of the command line and of the file; `#` begins a comment there."""
    lines = Path(names_file).read_text("utf-8").splitlines() if names_file else []
    stripped = (line.strip() for line in lines)
    return [*names, *(line for line in stripped if line and not line.startswith("#"))]


def configuration(keep: str | None) -> Anonymization:
    from smp_client.privacy.placeholder import Anonymization

    return Anonymization.keeping(part.strip() for part in (keep or "").split(",") if part.strip())


@click.command(epilog="""\b
smp anonymize latest --dry-run
smp anonymize latest --name "Anna Berg" --project Apollo
smp anonymize latest DEC-001 --keep file_paths,addresses
smp anonymize session-2026-01-11-abc123 --names-file staff.txt --now""")
@memories_argument(*KEPT)
@naming_options
@flag("--now", "Destroy the originals at once; else smp restore --batch brings them back.",
      to="is_now")  # fmt: skip
@reason_option("Why; it is kept with the originals.", default="anonymised")
@takes("by", "yes", "dry_run")
def anonymize(
    call: Call, session: str, ids: tuple[str, ...], names: tuple[str, ...], names_file: str | None,
    projects: tuple[str, ...], keep: str | None, is_now: bool, reason: str,
) -> None:  # fmt: skip
    """Replace names in SESSION, or in its memories, by placeholders.

    User names, project names, file paths, e-mail addresses, phone and card numbers, IP addresses,
    IBANs and secrets; the same one always by the same placeholder. Known are the names in the
    metadata, in the user's profile, of whoever spoke, and those given.
    """
    config, known = configuration(keep), given_names(names, names_file)
    memory = call.memory()
    found = find_id(memory, session, *KEPT)
    days = f"{memory.options.retention.deleted_days:g} days"

    how: dict[str, Any] = {"names": known, "projects": projects, "config": config, "reason": reason,
                           "by": call.by, "now": is_now}  # fmt: skip

    def do(dry_run: bool) -> Anonymized:
        with suggesting_ids(memory, found, ids):
            return memory.anonymize(found, ids or None, dry_run=dry_run, **how)

    asks = not call.dry_run and out.asks(yes=call.yes)
    if asks and ((plan := do(True)).actions or (is_now and plan.earlier)):
        after = f"For {days} smp restore brings the originals back."
        after = "Nothing brings the originals back." if is_now else after
        if is_now and plan.earlier:
            after += " The originals of earlier anonymisations go too."
        places = out.counted(sum(plan.counts.values()), "place")
        what = f"{places} in {out.counted(len(plan.ids), 'memory')} of {found}"
        out.confirm(f"Replace {what}? {after}", "Nothing was changed.")
    with progress("anonymising"):
        done = do(call.dry_run)
    if call.as_json:
        plain = asdict(replace(done, counts=Counter()))  # asdict cannot copy a counter
        out.print_json({**plain, "counts": done.counts, "memories": done.ids})
    else:
        _print_anonymised(done, days)
    sys.exit(1 if done.problems else 0)


def _print_anonymised(done: Anonymized, days: str) -> None:
    if done.replacements:
        titles = "PLACEHOLDER PLACES> KIND" + (" STANDS_FOR:20" if done.dry_run else "")
        out.print_table(titles, [
            (one.placeholder, one.count, one.kind.replace("_", " "), *[one.what][: done.dry_run])
            for one in done.replacements
        ])  # fmt: skip
    end = " would be changed; nothing was changed" if done.dry_run else " changed"
    out.say(out.counted(len(done.ids), "memory") + end)
    if done.batch:
        out.tell(f"For {days} smp restore --batch {done.batch} brings back the originals.")
    if done.erased and done.earlier:
        out.tell("The originals of earlier anonymisations are destroyed.")
    elif done.earlier:
        purging = "; ".join(f"smp purge --batch {batch} --now" for batch in done.earlier)
        out.tell(f"Earlier originals can still be restored. --now destroys them, or {purging}.")
    if done.actions:
        say_what_it_leaves(done.agents, done.cannot_find)
    out.print_problems(done)


def say_what_it_leaves(agents: Sequence[str], cannot_find: Sequence[str]) -> None:
    """Print on stderr what a person must know who passes an anonymous text on."""
    if agents:
        out.tell(f"note: taken for agents, and kept: {out.listed(agents)}. Give a person among them"
                 " with --name.", err=True)  # fmt: skip
    click.echo("note: not looked for, or not found:", err=True)
    for sentence in cannot_find:
        out.tell(f"  - {sentence}", err=True)
