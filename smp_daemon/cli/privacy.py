"""Deleting, restoring, purging and anonymising: `smp delete`, `restore`, `purge`, `anonymize`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from smp_client.model.layout import DELETED, GLOBAL
from smp_client.model.outcome import Outcome

from . import output as out
from .arguments import ANYWHERE, CONDITIONS, KEPT, SELECTING, Call, command, find_id

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.ask.options import QueryOptions
    from smp_client.privacy.anonymise import Anonymized


@command(
    f"[SESSION] [ID]... {SELECTING} --by --yes --dry-run",
    "--all  Of every session, archived ones too, and of global.",
    "--whole  The whole SESSION, if no memory is named. A script must say so.",
    "--reason WHY:unstated  Why; it is kept with the deleted memories.",
    "--reason-for ID=WHY...  Why this memory, if it has a reason of its own; repeat it.",
)
def delete(call: Call) -> None:
    """Delete SESSION, or memories of it; smp restore brings them back until their deadline.

    Memories are named by their ids, or described by conditions that must all hold. They are deleted
    wherever they are, also from the archive.

    \b
    smp delete --all --text "Jane Doe" --reason "she asked for it" --dry-run
    """
    given = call.given(CONDITIONS)
    is_whole = not call.id and not given
    call.check(
        ((call.session is None) != call.all, "Give a session, or --all; not both."),
        (is_whole and (call.all or call.session == GLOBAL),
         f"Say which memories, by one of {SELECTING}."),
        (call.whole and not is_whole, "--whole is for a session of which no memory is named."),
        (is_whole and call.reason_for, "--reason-for is for memories, not for a whole session."),
        (is_whole and _is_unsaid(call),
         f"This would delete the whole session: say --whole, or name memories by their ids or by"
         f" one of {SELECTING}."),
    )  # fmt: skip
    reasons = _reasons(call.reason_for)
    memory = call.memory()
    name = None if call.all else find_id(memory, call.session, *KEPT)

    def do(dry_run: bool) -> Outcome:
        said: dict[str, Any] = {"reason": call.reason, "deleted_by": call.by, "dry_run": dry_run}
        if name is None:
            return memory.privacy.delete_everywhere(**said, **given)
        if is_whole:
            return memory.delete_session(name, **said)
        return memory.privacy.delete(name, call.id or None, reasons=reasons, **said, **given)

    days = f"For {memory.options.retention.deleted_days:g} days smp restore"
    call.ask(do, f"Delete {{}}? {days} brings it back.")
    outcome = do(call.dry_run)
    note = f"{days} {f'--batch {outcome.batch}' if outcome.batch else name} brings it back."
    if call.text:
        note += f" smp show --all-about {shlex.quote(call.text)} finds other places."
    if not outcome.actions:
        _tell_unknown(call, memory)
    call.finish(outcome, nothing="Nothing fits: nothing was deleted.", note=note)


def _tell_unknown(call: Call, memory: Memory) -> None:
    """Name each agent, tag and topic of the conditions that no memory has."""
    named: QueryOptions = {"limit": 1}
    if call.agent:
        named["agents"] = [call.agent]
    if call.tag:
        named["tags"] = [*call.tag]
    notes = [memory.search(**named).note]
    if call.topic:
        notes.append(memory.by_topic(call.topic, limit=1).note)
    for note in filter(None, notes):
        out.tell(f"note: {note}", err=True)


def _is_unsaid(call: Call) -> bool:
    """Return whether nobody has said, and nobody will be asked, that a whole session is meant.

    In a script, `smp delete SESSION $ID` with an empty ID must not mean the session.
    """
    return not (call.whole or call.dry_run or call.will_ask)


def _reasons(said: Sequence[str]) -> dict[str, str]:
    """Return the reasons of single memories, by id."""
    pairs = [one.partition("=") for one in said]
    wrong = [one for one, (_, sign, why) in zip(said, pairs, strict=True) if not (sign and why)]
    if wrong:
        raise click.UsageError(f"--reason-for must be ID=WHY, not {wrong[0]!r}.")
    return {memory_id: why for memory_id, _, why in pairs}


@command(
    "[SESSION] [ID]... --batch --by --dry-run",
    "--reason WHY  Why; the audit log keeps it.",
    "--list  List what can be restored, and until when.",
)
def restore(call: Call) -> None:
    """Restore the deleted SESSION, or deleted memories of it."""
    ids, batch, how = call.id, call.batch, {"by": call.by, "dry_run": call.dry_run}
    if call.reason is not None:
        how["reason"] = call.reason
    call.check(
        (ids and batch, "Give ids or --batch, not both."),
        (not call.session and not batch and not call.list,
         "Say what: SESSION, SESSION ID, or --batch; smp restore --list shows what there is."),
    )  # fmt: skip
    memory = call.memory()
    if call.list:
        _print_restorable(call, memory)
        return
    if not ids and not batch:
        from smp_client.change.move import undelete_session

        name = find_id(memory, call.session, DELETED)
        call.finish(undelete_session(memory, name, **how))
    if session := call.session and find_id(memory, call.session, *KEPT):
        outcome = memory.privacy.restore(session, list(ids) or None, batch=batch, **how)
    else:
        outcome = memory.privacy.restore_batch(batch, **how)
    call.finish(outcome)


def _print_restorable(call: Call, memory: Memory) -> None:
    """List the deleted sessions, and the memories that were deleted or anonymised one by one."""
    from smp_client.model.layout import is_session_id
    from smp_client.model.record import type_of

    found: list[dict[str, Any]] = [
        {"session": one.session, "id": None, "type": "session", "deleted_at": one.at,
         "deleted_by": one.by, "reason": one.why, "recovery_deadline": one.until}
        for one in memory.deleted_sessions()
    ]  # fmt: skip
    for name in memory.tree.directories(DELETED):
        if name == GLOBAL or is_session_id(name):
            for one in memory.privacy.deleted(name):
                facts = one.facts
                found.append({
                    "session": name, "id": one.id, "type": type_of(one.type), "batch": one.batch,
                    "deleted_at": facts["at"], "deleted_by": facts["by"], "reason": facts["why"],
                    "recovery_deadline": facts["until"], "text": out.held_text(one),
                })  # fmt: skip
    if call.session:
        session = find_id(memory, call.session, *KEPT, DELETED)
        found = [one for one in found if one["session"] == session]
    columns = "session id type? recovery_deadline batch deleted_at? deleted_by? reason? text"
    call.table(columns, found, "There is nothing to restore.")


@command(
    "[SESSION] [ID]... --batch --by --yes --dry-run",
    "--force  Everything past its deadline goes, although no daemon has watched it pass.",
    "--older-than WHEN  Everything that was deleted before then, whatever its deadline.",
    "--now  Destroy what is named at once, deleted or not.",
    "--whole  With --now, the whole SESSION, if no memory is named. A script must say so.",
)
def purge(call: Call) -> None:
    """Destroy what was deleted and is past its deadline; with --now, what is named.

    With --now, SESSION alone is all of it, and ID the deleted memory, else the memory itself.
    Nothing brings it back, and no byte of it stays below the root.
    """
    is_named = call.session is not None or call.batch is not None
    is_whole = call.now and call.session is not None and not call.id and not call.batch
    call.check(
        (is_named != call.now, "--now goes with SESSION, ID or --batch, and they with --now."),
        (call.now and call.force, "--force is for overdue memories, --now for named ones."),
        (call.id and call.batch, "Give ids or --batch, not both."),
        (call.session == GLOBAL and not call.id and not call.batch, "Of global, give ids."),
        (call.older_than and (call.now or call.force),
         "--older-than goes without --now and --force."),
        (call.whole and not is_whole, "--whole is for a session of which no memory is named."),
        (is_whole and _is_unsaid(call),
         "This would destroy the whole session: say --whole, or name memories by their ids."),
    )  # fmt: skip
    memory = call.memory()
    name = None if call.session is None else find_id(memory, call.session, *ANYWHERE)
    how: dict[str, Any] = {"by": call.by}

    def do(dry_run: bool) -> Outcome:
        if call.now:
            ids = list(call.id) or None
            return memory.privacy.purge_now(name, ids, batch=call.batch, **how, dry_run=dry_run)
        return memory.privacy.purge(call.older_than, force=call.force, **how, dry_run=dry_run)

    if call.now or call.force or call.older_than:
        call.ask(do, "Destroy {} for good? Nothing brings it back.")
    outcome = do(call.dry_run)
    call.finish(outcome, nothing="Nothing is due; smp restore --list shows what waits.")


_KINDS = "user_names|project_names|file_paths|contacts|addresses|secrets"
NAMING = (
    "--name NAME...  Somebody to be replaced; repeat it.",
    "--project NAME...  A project; repeat it.",
    f"--keep {_KINDS}...  Not replaced; repeat it.",
)


def naming(call: Call) -> dict[str, Any]:
    """Return the names that are known, and the kinds that are kept."""
    from smp_client.privacy.placeholder import Anonymization

    config = Anonymization(**dict.fromkeys(call.keep, False))
    return {"names": call.name, "projects": call.project, "config": config}


def limits(agents: list[str]) -> list[str]:
    """Return the sentences that a person must know who passes an anonymous text on."""
    from smp_client.privacy.anonymise import CANNOT_FIND

    kept = f"taken for agents, and kept: {out.listed(agents)}. Give a person with --name."
    return [*([kept] if agents else []), *(f"not found: {sentence}" for sentence in CANNOT_FIND)]


@command(
    "[SESSION] [ID]... --by --yes --dry-run",
    "--all  Every session, archived ones too, and global, with the same placeholder everywhere.",
    *NAMING,
    "--now  Destroy the originals at once; else smp restore --batch brings them back.",
    "--reason WHY:anonymised  Why; it is kept with the originals.",
)
def anonymize(call: Call) -> None:
    """Replace names in SESSION, in its memories, or everywhere, by placeholders.

    Also paths, addresses, numbers and secrets. Known are the names in the metadata, in the user's
    profile, of whoever spoke, and those given.
    """
    call.check(((call.session is None) != call.all, "Give a session, or --all; not both."))
    how = {**naming(call), "reason": call.reason, "by": call.by, "now": call.now}
    memory = call.memory()
    name = None if call.all else find_id(memory, call.session, *KEPT)
    days = f"For {memory.options.retention.deleted_days:g} days smp restore"

    def do(dry_run: bool) -> Anonymized:
        if name is None:
            return memory.privacy.anonymize_everywhere(dry_run=dry_run, **how)
        return memory.privacy.anonymize(name, call.id or None, dry_run=dry_run, **how)

    after = "Nothing brings the originals back." if call.now else f"{days} brings them back."
    call.ask(do, f"Replace names in {{}}? {after}")
    done = do(call.dry_run)
    done.notes += limits(done.agents) if done.actions else []
    replaced = [asdict(one) for one in done.replacements]

    def print_replacements() -> None:
        if replaced:
            out.print_table("placeholder count> kind what?", replaced)
        end = " would be changed; nothing was changed" if done.dry_run else " changed"
        out.say(out.counted(len(done.ids), "memory") + end)

    note = f"{days} --batch {done.batch} brings back the originals." if done.batch else ""
    call.finish(done, body=print_replacements, note=note, memories=done.ids, batch=done.batch,
                session=name, agents=done.agents, replacements=replaced)  # fmt: skip
