"""Deleting memories and sessions, and restoring them: `smp delete` and `smp restore`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from smp_client.model.outcome import Action, Outcome

from .arguments import complete_memory_id, find_id, given_session, json_option, memories_argument, open_memory, root_option
from .conditions import CONDITIONS, What, selecting_options, what_is_meant
from .nearby import explain_memory, suggesting_ids, why_nothing_fits
from .outcome import asks, by_option, confirm, dry_run_option, finish, reason_option, yes_option
from .progress import progress

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from smp_client import Memory
    from smp_client.change.restore import Deleted

_NAMED = 5
_STANDING = (ACTIVE, ARCHIVED, GLOBAL)


@click.command(epilog="""\b
smp delete session-2026-01-11-abc123 --reason "made by mistake"
smp delete latest DEC-001 FIND-002 --reason "no longer true"
smp delete latest --topic billing --since "last 7 days" --reason "not ours" --dry-run
smp delete --all --text "Jane Doe" --reason "she asked for it\"""")
@memories_argument(*_STANDING, required=False)
@selecting_options
@click.option("--all", "is_all", is_flag=True, help="Of every session, archived ones too, and of global; needs a condition.")
@reason_option("Why; it is kept with the deleted memories.", required=True)
@by_option
@yes_option
@root_option
@dry_run_option
@json_option
def delete(
    session: str | None, ids: tuple[str, ...], is_all: bool, reason: str, by: str, yes: bool, root: str | None,
    dry_run: bool, as_json: bool, **conditions: Any,
) -> None:  # fmt: skip
    """Delete SESSION, or memories of it; smp restore brings them back until their deadline.

    Memories are named by their ids, or described by conditions that must all hold. They are deleted
    wherever they are kept: also from the archive, and where compaction has evicted them.
    """
    meant = what_is_meant(ids, conditions)
    _check(session, meant, is_all=is_all)
    memory = open_memory(root)
    do = _deletion(memory, session, meant, reason, by)
    days = f"{memory.options.retention.deleted_days:g} days"
    if not dry_run and asks(yes=yes) and (plan := do(True)).actions:
        question = f"Delete {_told(plan)}? For {days} smp restore brings it back."
        confirm(question, yes=yes, what_stays="Nothing was deleted.")
    with progress("deleting"):
        outcome = do(dry_run)
    nothing = "Nothing fits: nothing was deleted."
    if not outcome.actions and meant.conditions:
        nothing = f"{nothing} {why_nothing_fits(memory, _found(memory, session), meant.conditions)}"
    text = meant.conditions.get("text")
    elsewhere = "" if text is None else f" smp show --all-about {shlex.quote(text)} says where else it stands."
    note = f"For {days} {_again(outcome)} brings it back.{elsewhere}"
    finish(outcome, as_json=as_json, note=note, nothing=nothing)


def _check(session: str | None, meant: What, *, is_all: bool) -> None:
    if is_all and (meant.ids or not meant.conditions):
        raise click.UsageError(f"--all needs a condition: {CONDITIONS}. Ids and whole sessions are deleted one session at a time.")
    if (session is None) != is_all:
        raise click.UsageError("Give a session, or --all; not both.")
    if session == GLOBAL and meant.is_whole:
        raise click.UsageError(f"global is not deleted whole: say which of its memories, by their ids or with {CONDITIONS}.")


def _found(memory: Memory, session: str | None) -> str | None:
    from smp_client import SessionNotFound, SessionPutAway

    try:
        return None if session is None else find_id(memory, session, *_STANDING)
    except SessionPutAway:
        raise
    except SessionNotFound as error:
        explain_memory(memory, str(session), error, "smp delete SESSION ID --reason … deletes it.")


@contextmanager
def _in_words_of_a_deletion() -> Iterator[None]:
    from smp_client import InvalidQuery

    try:
        yield
    except InvalidQuery as error:
        raise InvalidQuery(str(error).removesuffix(error.advice).rstrip(), advice="Nothing was deleted.") from error


def _deletion(memory: Memory, session: str | None, meant: What, reason: str, by: str) -> Callable[[bool], Outcome]:
    name = _found(memory, session)

    def do(dry_run: bool) -> Outcome:
        said: dict[str, Any] = {"reason": reason, "deleted_by": by, "dry_run": dry_run}
        if name is not None and meant.is_whole:
            return memory.delete_session(name, **said)
        with _in_words_of_a_deletion():
            if name is None:
                return memory.delete_everywhere(**said, **meant.conditions)
            with suggesting_ids(memory, name, meant.ids):
                return memory.delete(name, meant.ids or None, **said, **meant.conditions)

    return do


def _told(plan: Outcome) -> str:
    """How many of each kind, and where: `2 decisions and 1 turn of s1 (DEC-001, DEC-002, turn-3)`."""
    from .output import short_size

    first = plan.actions[0]
    if first.type == "delete_session":
        return f"the session {first.session} ({short_size(first.bytes_freed)})"
    counts = Counter(kind for action in plan.actions for kind in action.kinds)
    kinds = [f"{count:,} {kind.replace('_', ' ')}{'' if count == 1 else 's'}" for kind, count in counts.items()]
    what = f"{', '.join(kinds[:-1])} and {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    places = dict.fromkeys(f"{action.session} (archived)" if action.place == "archived" else action.session
                           for action in plan.actions)  # fmt: skip
    return f"{what} of {_listed([*places])} ({_listed(plan.ids)})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def _again(outcome: Outcome) -> str:
    """The command that restores all of it."""
    if not outcome.actions:
        return ""
    return f"smp restore --batch {outcome.batch}" if outcome.batch else f"smp restore {outcome.actions[0].session}"


# Restoring.


def _complete_deleted_id(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(incomplete, (one.id for one in _deleted_of(ctx, given_session(ctx))))


def complete_erasable_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the ids of deleted memories, and of those that are not deleted yet."""
    from click.shell_completion import CompletionItem

    gone = _complete_deleted_id(ctx, param, incomplete)
    known = complete_memory_id(ctx, param, incomplete) if given_session(ctx) else []
    return [*(CompletionItem(one) for one in gone), *(item for item in known if item.value not in gone)]


def complete_batch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from smp_client import Memory

    with suppress(Exception):  # an error would be printed into what is being typed
        session = given_session(ctx)
        names = [session] if session else Memory(ctx.params.get("root")).tree.list(DELETED)
        return _beginning(incomplete, (one.batch for name in names for one in _deleted_of(ctx, name)))
    return []


def _deleted_of(ctx: click.Context, session: str | None) -> list[Deleted]:
    from smp_client import Memory

    with suppress(Exception):
        memory = Memory(ctx.params.get("root"))
        return memory.deleted(find_id(memory, str(session), ACTIVE, ARCHIVED, DELETED, GLOBAL))
    return []


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name and name.startswith(incomplete)]


@click.command(epilog="""\b
smp restore --list
smp restore session-2026-01-11-abc123
smp restore latest DEC-001 FIND-002
smp restore --batch 20260111T144000-5f3a9c""")
@memories_argument(DELETED, *_STANDING, required=False, complete_id=_complete_deleted_id)
@click.option("--batch", shell_complete=complete_batch, help="All that was deleted, or anonymised, together.")
@click.option("--list", "is_list", is_flag=True, help="List what can be restored, and until when.")
@by_option
@root_option
@dry_run_option
@json_option
def restore(
    session: str | None, ids: tuple[str, ...], batch: str | None, is_list: bool, by: str, root: str | None, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Restore the deleted SESSION, or deleted memories of it."""
    if bool(ids) + (batch is not None) + is_list > 1:
        raise click.UsageError("Give only one of ids, --batch and --list.")
    memory = open_memory(root)
    if is_list:
        found = find_id(memory, session, *_STANDING, DELETED) if session else None
        print_restorable(memory, found, as_json=as_json)
        return
    if session is None and batch is None:
        raise click.UsageError("Say what: SESSION, SESSION ID, or --batch; smp restore --list shows what there is.")
    with progress("restoring"):
        if batch is not None or ids:
            outcome = _restored(memory, session, ids, batch, by, dry_run=dry_run)
        else:
            from smp_client.change.move import undelete_session

            name = _find_deleted(memory, str(session))
            outcome = undelete_session(memory, name, "restored by hand", by=by, dry_run=dry_run)
    finish(outcome, as_json=as_json)


def _restored(
    memory: Memory, session: str | None, ids: Sequence[str], batch: str | None, by: str, *, dry_run: bool
) -> Outcome:
    """Restore memories. A session, or an id, that fails stops no other."""
    from smp_client import MemoryNotFound, SMPError
    from smp_client.change.restore import sessions_with

    names = [find_id(memory, session, *_STANDING)] if session else list(sessions_with(memory, str(batch)))
    if not names:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what can be restored.")  # fmt: skip
    outcome = Outcome(dry_run=dry_run, batch=batch or "")
    wanted: list[list[str] | None] = [None] if batch is not None else [[one] for one in dict.fromkeys(ids)]
    for name in names:
        for some in wanted:
            try:
                outcome.actions += _restore_some(memory, name, some, batch, by, dry_run=dry_run)
            except SMPError as error:
                if len(names) == len(wanted) == 1:
                    raise
                outcome.problems.append(str(error))
    return outcome


def _restore_some(
    memory: Memory, name: str, ids: list[str] | None, batch: str | None, by: str, *, dry_run: bool
) -> list[Action]:
    known = [one for one in memory.deleted(name) if (one.batch == batch if ids is None else _is_of(one, ids))]
    if ids is not None and not known:
        raise _not_deleted(memory, name, ids[0])
    known = known if ids is None else [one for one in known if one.batch == known[-1].batch]
    if not dry_run or not known:
        memory.restore(name, ids, batch=batch, by=by)
    last = known[-1]
    done = "anonymised" if last.action == "anonymize" else "deleted"
    reason = f"{done} at {last.deleted_at} by {last.deleted_by}: {last.reason}"
    kinds = tuple(one.type for one in known)
    place = last.place or _place(memory, name)
    return [Action(name, "restore_memories", tuple(one.id for one in known), reason, batch=last.batch, place=place, kinds=kinds)]


def _is_of(one: Deleted, ids: Sequence[str]) -> bool:
    """Whether an id means it: earlier states of an agent come back with its state."""
    from smp_client.change.places import id_of_file

    return one.id in ids or (one.type == "agent_state" and id_of_file(one.file) in ids)


def _not_deleted(memory: Memory, session: str, name: str) -> Exception:
    """The error for a memory that is not deleted: where it is instead, or that it is nowhere."""
    from smp_client import MemoryNotFound
    from smp_client.change.holdings import holdings
    from smp_client.whereabouts import missing

    if any(one.id == name for one in holdings(memory, session, ("active", "archived"))):
        return MemoryNotFound(f"{name!r} of {session} is not deleted: it is in its place.", session_id=session, advice="")
    found = missing(memory._scope(session), name)
    if found.advice != MemoryNotFound.advice:
        return found
    return MemoryNotFound(f"There is no deleted memory {name!r} of {session}.", session_id=session,
                          advice="smp restore --list shows what can be restored.")  # fmt: skip


def _find_deleted(memory: Memory, name: str) -> str:
    """Return the id of a deleted session. For a memory or a batch, the error says how it is restored."""
    from smp_client import MemoryNotFound, SessionNotFound, SessionPutAway
    from smp_client.records import SESSION_KINDS, kind_of

    try:
        return find_id(memory, name, DELETED)
    except SessionPutAway:
        raise
    except SessionNotFound:
        every = [one for session in memory.tree.directories(DELETED) for one in memory.deleted(session)]
        if any(one.batch == name for one in every):
            advice = f"smp restore --batch {name} restores it."
            raise MemoryNotFound(f"{name!r} is a batch, not a session.", advice=advice) from None
        holders = sorted({one.session for one in every if one.id == name})
        if not holders and kind_of(name, SESSION_KINDS) is None:
            raise
        of = f" of {', '.join(holders[:5])}{', …' if len(holders) > 5 else ''}" if holders else ""
        whose = holders[0] if len(holders) == 1 else "SESSION"
        advice = f"smp restore {whose} {name} restores it; smp restore --list shows what can be restored."
        raise MemoryNotFound(f"{name!r} is a memory{of}, not a session.", advice=advice) from None


# Listing.


def print_restorable(memory: Memory, session: str | None, *, as_json: bool) -> None:
    """Print what can be restored of one session, or of all."""
    from .output import one_line, print_json, say, tell

    problems: list[str] = []
    now = memory.options.clock()
    found = [{**one, "is_overdue": _is_past(one["recovery_deadline"], now)}
             for one in (*_sessions(memory), *_memories(memory, problems, session))
             if session is None or one["session"] == session]  # fmt: skip
    if as_json:
        print_json({"restorable": found, "problems": problems})
    elif found:
        _print_table(found)
        for first in sorted({one["first"] for one in found if one["first"]}):
            tell(f"Some of it can be restored after {one_line(first)}.")
    else:
        say("There is nothing to restore.")
    for problem in () if as_json else problems:
        tell(f"smp: {one_line(problem)}", err=True)
    if problems:
        raise SystemExit(1)


def _print_table(found: list[dict[str, Any]]) -> None:
    from .output import Column, print_table, short_time
    from .read import short_type

    shown = {"ACTION": any(one["action"] != "deleted" for one in found),
             "PLACE": any(one["place"] in ("archived", "evicted") for one in found)}  # fmt: skip
    columns = [Column("SESSION", ends=True), Column("ID"), Column("TYPE", spare=True), Column("UNTIL"), Column("BATCH"),
               *(Column(title) for title, is_shown in shown.items() if is_shown), Column("DELETED", spare=True),
               Column("BY", spare=True), Column("REASON", least=20), Column("TEXT", least=20)]  # fmt: skip
    print_table(columns, [
        (one["session"], one["id"], short_type(one["type"]),
         short_time(one["recovery_deadline"]) + (" (overdue)" if one["is_overdue"] else ""), one["batch"],
         *(one[title.lower()] for title, is_shown in shown.items() if is_shown), short_time(one["deleted_at"]),
         one["deleted_by"], one["reason"], one["text"]) for one in found
    ])  # fmt: skip


def describe_deleted(memory: Memory) -> list[dict[str, Any]]:
    """The deleted sessions, as `smp sessions` lists those that are not."""
    unknown = dict.fromkeys(("created_at", "last_activity", "quota_bytes", "utilization_pct", "memories", "project", "topic"))
    return [
        {"id": one.session, "state": "deleted", **unknown, "total_bytes": one.total_bytes, "deleted_at": one.at}
        for one in memory.deleted_sessions()
    ]


def _sessions(memory: Memory) -> Iterator[dict[str, Any]]:
    for one in memory.deleted_sessions():
        yield {"session": one.session, "id": None, "type": "session", "recovery_deadline": one.until,
               "deleted_at": one.at, "deleted_by": one.by, "reason": one.reason, "batch": None,
               "place": "deleted", "action": "deleted", "first": None, "text": None}  # fmt: skip


def _memories(memory: Memory, problems: list[str], only: str | None) -> Iterator[dict[str, Any]]:
    """The memories that were deleted one by one. Those of a deleted session wait until that is back."""
    from smp_client.change.holdings import holdings
    from smp_client.layout import is_session_id
    from smp_client.records import type_of
    from smp_client.scopes import BACKUP

    for name in memory.tree.directories(DELETED):
        if only not in (None, name) or not (name == GLOBAL or is_session_id(name)):
            continue
        place = _place(memory, name)
        for one in holdings(memory, name, ("deleted", "undo"), problems):
            if one.container.endswith(f"/{BACKUP}"):
                continue
            facts = one.facts
            yield {"session": name, "id": one.id, "type": type_of(one.type), "recovery_deadline": facts.get("until"),
                   "deleted_at": facts.get("at"), "deleted_by": facts.get("by"), "reason": facts.get("why"),
                   "batch": facts.get("batch") or None, "place": facts.get("place") or place,
                   "action": "anonymised" if one.place == "undo" else "deleted",
                   "first": f"smp restore {name}" if place == "deleted" else None, "text": _text(one)}  # fmt: skip


def _text(one: Any) -> str:
    from smp_client.change.select import texts_of
    from smp_client.records import kind_of_file

    said = one.value.get("content" if one.is_file else kind_of_file(one.file).text)
    return str(said) if said else "; ".join(texts_of({k: v for k, v in one.value.items() if k not in ("id", "timestamp")}))


def _place(memory: Memory, name: str) -> str:
    from smp_client.change.holdings import is_in_use
    from smp_client.scopes import ARCHIVE

    if name == GLOBAL or is_in_use(memory, name):
        return GLOBAL if name == GLOBAL else "active"
    return "archived" if memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}") else "deleted"


def _is_past(deadline: str, now: datetime) -> bool:
    from smp_client.timestamps import parse_time

    try:
        return parse_time(deadline) <= now
    except (ValueError, OverflowError, TypeError):
        return False
