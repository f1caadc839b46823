"""Where sessions are, in use, at rest, archived or deleted, and back: `smp archive`, `smp delete` and their counterparts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .arguments import LATEST, complete_memory_id, complete_session, find_session, json_option, only_one, open_memory, root_option
from .outcome import confirm, dry_run_option, finish, yes_option
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory, Session
    from smp_client.maintain.actions import Action, Outcome

Place = Callable[["Memory"], Mapping[str, str]]  # the ids of the sessions in it, and since when they are there


def _active(memory: Memory) -> Mapping[str, str]:
    return {session.id: "" for session in memory.sessions()}


def _archived(memory: Memory) -> Mapping[str, str]:
    return {one.session: one.archived_at for one in memory.archived_sessions()}


def _deleted(memory: Memory) -> Mapping[str, str]:
    return {one.session: one.deleted_at for one in memory.deleted_sessions()}


def _session_in(*places: Place, required: bool = True) -> Callable[[Any], Any]:
    return click.argument("session", metavar="SESSION" if required else "[SESSION]", required=required,
                          shell_complete=_completing(*places))  # fmt: skip


def _reason_option(help: str, *, default: str | None = None, shown: str = "", required: bool = False) -> Callable[[Any], Any]:
    given = {} if default is None else {"default": default}  # a default of None would count as given
    return click.option("--reason", show_default=shown or default is not None, required=required, help=help, callback=_in_words,
                        **given)  # type: ignore[arg-type]  # fmt: skip


def _in_words(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("it must be said in words.")
    return value


def _completing(*places: Place) -> Callable[..., list[str]]:
    """None where anything goes wrong, because an error would be printed into what is being typed."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from smp_client import Memory

        with suppress(Exception):
            memory = Memory(ctx.params.get("root"))
            return [name for name in (*(name for place in places for name in place(memory)), LATEST) if name.startswith(incomplete)]
        return []

    return complete


@click.command()
@_session_in(_active)
@_reason_option("Why; it is written down.", default="activated by hand")
@root_option
@dry_run_option
@json_option
def activate(session: str, reason: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Say that SESSION is in use."""
    found = find_session(open_memory(root), session)
    outcome = _standing(found, "become_active", reason, but_not=("active",), dry_run=dry_run)
    if outcome.actions and not dry_run:
        found.activate(reason)
    finish(outcome, as_json=as_json, nothing=f"{found.id} is active: there is nothing to do.")


@click.command()
@_session_in(_active)
@_reason_option("Why; it is written down.", default="deactivated by hand")
@root_option
@dry_run_option
@json_option
def deactivate(session: str, reason: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Say that nobody uses SESSION for now; the next use makes it active again."""
    from smp_client.session_files import RESTING

    found = find_session(open_memory(root), session)
    outcome = _standing(found, "become_idle", reason, but_not=RESTING, dry_run=dry_run)
    if outcome.actions and not dry_run:
        found.deactivate(reason)
    finish(outcome, as_json=as_json, nothing=f"{found.id} is {found.state}: there is nothing to do.")


def _standing(session: Session, type: str, reason: str, *, but_not: Collection[str], dry_run: bool) -> Outcome:
    from smp_client.maintain.actions import Action, Outcome

    # What cannot be read is said also where nothing is to be done.
    is_so = str(session.metadata().get("status", "active")) in but_not
    return Outcome([] if is_so else [Action(session.id, type, (session.id,), reason)], dry_run=dry_run)


@click.command(epilog="""\b
smp archive session-2026-01-11-abc123 --reason "all done"
smp archive --due --dry-run""")
@_session_in(_active, required=False)
@click.option("--due", "is_due", is_flag=True, help="What the daemon does by the clock: each session into the state that is due.")
@_reason_option("Why; it is written into the summary.", default=None, shown="archived by hand")
@root_option
@dry_run_option
@json_option
def archive(session: str | None, is_due: bool, reason: str | None, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Put SESSION into the archive, or all that are due; a summary is still found.

    With --due, every session that nobody has used for long becomes idle, decaying or archived, and one that was used again active.
    """
    if (session is None) != is_due:
        raise click.UsageError("Give a session, or --due; not both.")
    if is_due and reason is not None:
        raise click.UsageError("--reason goes with a session: of what is due, the reason is known.")
    memory = open_memory(root)
    if session is None:
        with progress("ageing"):
            outcome = memory.age_sessions(dry_run=dry_run)
        packed = any(action.type == "archive" for action in outcome.actions)
        finish(outcome, as_json=as_json, note="smp unarchive brings what is archived back." if packed else "",
               nothing="Every session is in the state that is due: there is nothing to do.")  # fmt: skip
    found = find_session(memory, session).id
    with progress(f"archiving {found}"):
        outcome = memory.archive_session(found, reason or "archived by hand", dry_run=dry_run)
    finish(outcome, as_json=as_json, note=f"smp unarchive {found} brings it back.")


@click.command()
@_session_in(_archived)
@root_option
@dry_run_option
@json_option
def unarchive(session: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring SESSION back from the archive."""
    from smp_client.maintain.archive import unarchive as bring_back

    memory = open_memory(root)
    found = _find(memory, session, _archived, "archived")
    with progress(f"bringing back {found}"):
        outcome = bring_back(memory, found, dry_run=dry_run)
    finish(outcome, as_json=as_json)


@click.command(epilog="""\b
smp delete session-2026-01-11-abc123 --reason "made by mistake"
smp delete latest --id DEC-001 --id FIND-002 --reason "no longer true\"""")
@_session_in(_active, _archived)
@click.option("--id", "ids", multiple=True, metavar="ID", shell_complete=complete_memory_id,
              help="Only this memory of it; repeat it for several, all or none.")  # fmt: skip
@_reason_option("Why; it is kept with what was deleted.", required=True)
@click.option("--by", "deleted_by", metavar="WHO", default="user", show_default=True, callback=_in_words, help="Who deletes it.")
@yes_option
@root_option
@dry_run_option
@json_option
def delete(
    session: str, ids: tuple[str, ...], reason: str, deleted_by: str, yes: bool, root: str | None, dry_run: bool, as_json: bool
) -> None:
    """Delete SESSION, or memories of it; smp restore brings them back until their deadline."""
    memory = open_memory(root)
    do = _memories_of(memory, session, ids, reason, deleted_by) if ids else _whole(memory, session, reason, deleted_by)
    days = f"{memory.options.retention.deleted_days:g} days"
    outcome = do(True)
    if not dry_run:
        confirm(f"Delete {_what(outcome)}? For {days} smp restore brings it back.", yes=yes, what_stays="Nothing was deleted.")
        with progress("deleting"):
            outcome = do(False)
    found = outcome.actions[0].session
    again = f"smp restore {' '.join(ids)} --session {found}" if ids else f"smp restore {found}"
    finish(outcome, as_json=as_json, note=f"For {days} {again} brings it back.")


def _whole(memory: Memory, session: str, reason: str, deleted_by: str) -> Callable[[bool], Outcome]:
    found = _find_standing(memory, session)
    return lambda dry_run: memory.delete_session(found, reason=reason, deleted_by=deleted_by, dry_run=dry_run)


def _memories_of(memory: Memory, name: str, ids: Sequence[str], reason: str, deleted_by: str) -> Callable[[bool], Outcome]:
    from smp_client.maintain.actions import Action, Outcome

    session = find_session(memory, name)

    def do(dry_run: bool) -> Outcome:
        deleted = session.delete(ids, reason=reason, deleted_by=deleted_by, dry_run=dry_run)
        return Outcome([Action(session.id, "delete_memory", (one.id,), reason) for one in deleted], dry_run=dry_run)

    return do


def _what(outcome: Outcome) -> str:
    from .output import short_size

    (first, *others) = outcome.actions
    if first.type == "delete_session":
        return f"the session {first.session} ({short_size(first.bytes_freed)})"
    named = ", ".join(action.about[0] for action in outcome.actions[:5]) + (" and more" if len(others) >= 5 else "")
    return f"{named} of {first.session}"


def _complete_restorable(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The deleted memories of the session that was given already, else the deleted sessions."""
    if not ctx.params.get("session"):
        return _completing(_deleted)(ctx, param, incomplete)
    from smp_client import Memory

    with suppress(Exception):
        found = find_session(Memory(ctx.params.get("root")), ctx.params["session"]).deleted()
        return [one.id for one in found if one.id.startswith(incomplete)]
    return []


@click.command(epilog="""\b
smp restore --list
smp restore session-2026-01-11-abc123
smp restore DEC-001 FIND-002 --session latest""")
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=_complete_restorable)
@click.option("--session", shell_complete=complete_session, help="Whose memories the names are; else they are those of sessions.")
@click.option("--list", "is_list", is_flag=True, help="Say what can be restored, and until when.")
@root_option
@dry_run_option
@json_option
def restore(names: tuple[str, ...], session: str | None, is_list: bool, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring back deleted sessions, or memories of a session."""
    memory = open_memory(root)
    if is_list:
        from .restorable import print_restorable

        if names:
            raise click.UsageError("Give either names or --list.")
        print_restorable(memory, find_session(memory, session).id if session else None, as_json=as_json)
        return
    if not names:
        raise click.UsageError("Say what: sessions, or memories and --session; smp restore --list shows what can be restored.")
    do = _undelete(memory, names) if session is None else _restore(find_session(memory, session))
    with progress("restoring"):
        outcome = _restored(do, names, dry_run=dry_run)
    finish(outcome, as_json=as_json)


def _restored(do: Callable[[str, bool], Action], names: Sequence[str], *, dry_run: bool) -> Outcome:
    """One that cannot be restored stops no other."""
    from smp_client import SMPError
    from smp_client.maintain.actions import Outcome

    outcome = Outcome(dry_run=dry_run)
    for name in dict.fromkeys(names):
        try:
            outcome.actions.append(do(name, dry_run))
        except SMPError as error:
            if len(names) == 1:
                raise
            outcome.problems.append(str(error))
    return outcome


def _undelete(memory: Memory, names: Sequence[str]) -> Callable[[str, bool], Action]:
    from smp_client.maintain.removal import undelete_session

    # Before the first comes back: then the others would be fewer, and a beginning might mean another.
    meant = {name: _find_deleted(memory, name) for name in names}
    return lambda name, dry_run: undelete_session(memory, meant[name], "restored by hand", dry_run=dry_run).actions[0]


def _find_deleted(memory: Memory, name: str) -> str:
    """Says also how a memory is restored: its id alone is not enough."""
    from smp_client import MemoryNotFound, SessionNotFound, SessionPutAway
    from smp_client.maintain.doomed import all_doomed
    from smp_client.records import SESSION_KINDS, kind_of

    try:
        return _find(memory, name, _deleted, "deleted")
    except SessionPutAway:
        raise
    except SessionNotFound:
        holders = sorted({one.session for one in all_doomed(memory)[0] for gone in one.memories if gone.id == name})
        if not holders and kind_of(name, SESSION_KINDS) is None:
            raise
        of = f" of {', '.join(holders[:5])}{', …' if len(holders) > 5 else ''}" if holders else ""
        whose = holders[0] if len(holders) == 1 else "SESSION"
        advice = f"smp restore {name} --session {whose} restores it; smp restore --list shows what can be restored."
        raise MemoryNotFound(f"{name!r} is a memory{of}, not a session.", advice=advice) from None


def _restore(session: Session) -> Callable[[str, bool], Action]:
    from smp_client import MemoryNotFound
    from smp_client.maintain.actions import Action

    known = {one.id: one for one in session.deleted()}

    def do(name: str, dry_run: bool) -> Action:
        if name not in known:
            raise MemoryNotFound(f"There is no deleted memory {name!r} of {session.id}.", session_id=session.id,
                                 advice="smp restore --list shows what can be restored.")  # fmt: skip
        if not dry_run:
            session.restore(name)
        one = known[name]
        return Action(session.id, "restore_memory", (name,), f"deleted at {one.deleted_at} by {one.deleted_by}: {one.reason}")

    return do


def _find(memory: Memory, name: str, place: Place, what: str) -> str:
    """The session with this id, the only one whose id begins so, or with `latest` the one that came there last."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway

    known = place(memory)
    if name in known:
        return name
    if name == LATEST and known:
        return max(known, key=lambda session: known[session])
    try:
        standing = memory.session(name).id
    except SessionPutAway:
        raise  # elsewhere: its id is not to be the beginning of another's
    except (SessionNotFound, Invalid):
        return only_one(memory, name, known, what)
    raise SessionNotFound(f"The session {standing!r} is not {what}.", session_id=standing, advice="It is in its place.")


def _find_standing(memory: Memory, name: str) -> str:
    """One that is in its place or in the archive."""
    from smp_client import Invalid, SessionNotFound, SessionPutAway

    known = [*_active(memory), *_archived(memory)]
    if name in known:
        return name
    if name == LATEST:
        return find_session(memory, name).id
    try:
        return memory.session(name).id
    except SessionPutAway:
        raise  # deleted already: its id is not to be the beginning of another's
    except (SessionNotFound, Invalid):
        return only_one(memory, name, known)
