"""Taking memories and sessions out, and bringing them back: `smp delete` and `smp restore`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL
from smp_client.maintain.actions import Action, MemoryAction, Outcome

from .arguments import find_id, json_option, memories_argument, open_memory, root_option
from .conditions import CONDITIONS, What, selecting_options, what_is_meant
from .nearby import explain_memory, suggesting_ids, why_nothing_fits
from .outcome import asks, by_option, confirm, dry_run_option, finish, merged, reason_option, yes_option
from .progress import progress
from .restorable import complete_batch, complete_deleted_id, print_restorable

if TYPE_CHECKING:
    from smp_client import Memory, MemoryNotFound
    from smp_client.privacy.deleting.reworking import Reworked
    from smp_client.privacy.deleting.store import Deleted

_NAMED = 5
_STANDING = (ACTIVE, ARCHIVED, GLOBAL)


@click.command(epilog="""\b
smp delete session-2026-01-11-abc123 --reason "made by mistake"
smp delete latest DEC-001 FIND-002 --reason "no longer true"
smp delete latest --topic billing --since "last 7 days" --reason "not ours" --dry-run
smp delete --all --text "Jane Doe" --reason "she asked for it\"""")
@memories_argument(*_STANDING, required=False)
@selecting_options
@click.option("--all", "is_all", is_flag=True, help="Of every session, the archived ones too, and of global; needs a condition.")
@reason_option("Why; it is kept with what was deleted.", required=True)
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

    Memories are named by their ids, or described by conditions that must all hold. They go wherever they
    are kept: from the archive, and from what compaction has taken out, too.
    """
    meant = what_is_meant(ids, conditions)
    _check(session, meant, is_all=is_all)
    memory = open_memory(root)
    plain = _deletion(memory, session, meant, reason, by)

    def do(dry_run: bool) -> Outcome:
        with _in_words_of_a_deletion():
            return plain(dry_run)

    days = f"{memory.options.retention.deleted_days:g} days"
    if not dry_run and asks(yes=yes) and (plan := do(True)).actions:
        confirm(f"Delete {_told(plan)}? For {days} smp restore brings it back.", yes=yes, what_stays="Nothing was deleted.")
    with progress("deleting"):
        outcome = do(dry_run)
    nothing = "Nothing fits: nothing was deleted."
    if not outcome.actions and meant.conditions:
        nothing = f"{nothing} {why_nothing_fits(memory, _found(memory, session), meant.conditions)}"
    text = meant.conditions.get("text")
    elsewhere = "" if text is None else f" smp show --all-about {shlex.quote(text)} says where else it stands."
    finish(outcome, as_json=as_json, note=f"For {days} {_again(outcome)} brings it back.{elsewhere}",
           nothing=nothing)  # fmt: skip


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
    if session is None:
        return lambda dry_run: _outcome(
            memory, memory.delete_everywhere(reason=reason, deleted_by=by, dry_run=dry_run, **meant.conditions), reason, dry_run
        )  # fmt: skip
    name = _found(memory, session)
    assert name is not None
    if meant.is_whole:
        return lambda dry_run: _whole(memory, name, reason, by, dry_run=dry_run)

    def do(dry_run: bool) -> Outcome:
        with suggesting_ids(memory, name, meant.ids):
            done = memory.delete(name, meant.ids or None, reason=reason, deleted_by=by, dry_run=dry_run, **meant.conditions)
        return _outcome(memory, {name: done}, reason, dry_run)

    return do


def _whole(memory: Memory, name: str, reason: str, by: str, *, dry_run: bool) -> Outcome:
    from smp_client.maintain.removal import wait_until_left

    outcome = memory.delete_session(name, reason=reason, deleted_by=by, dry_run=dry_run)
    if not dry_run:
        outcome.problems += wait_until_left(memory, name)
    return outcome


def _outcome(memory: Memory, done: Mapping[str, Reworked], reason: str, dry_run: bool) -> Outcome:
    """One action for each session and place."""
    outcome = Outcome(dry_run=dry_run)
    for name, reworked in done.items():
        # What would be deleted has no batch yet.
        planned = [replace(one, batch="") for one in reworked] if dry_run else reworked
        outcome.actions += _actions(memory, name, "delete_memories", planned, reason)
        outcome.problems += reworked.problems
        outcome.notes += reworked.notes
    return outcome


def _told(plan: Outcome) -> str:
    """How many of what, and where: `2 decisions and 1 turn of s1 (DEC-001, DEC-002, turn-3)`. What is kept twice counts once."""
    from .output import short_size

    first = plan.actions[0]
    if first.type == "delete_session":
        return f"the session {first.session} ({short_size(first.bytes_freed)})"
    memories: Counter[tuple[str, str, str]] = Counter()  # two agents each have an earlier state of the same id
    places: dict[str, None] = {}
    for action in plan.actions:
        assert isinstance(action, MemoryAction)
        memories |= Counter((action.session, kind, one) for one, kind in zip(action.about, action.kinds, strict=True))
        places |= {f"{action.session} (archived)" if action.place == "archived" else action.session: None}
    counts = Counter(kind for _, kind, _ in memories.elements())
    kinds = [_counted(kind, count) for kind, count in counts.items()]
    what = f"{', '.join(kinds[:-1])} and {kinds[-1]}" if len(kinds) > 1 else kinds[0]
    return f"{what} of {_listed(list(places))} ({_listed([one for _, _, one in memories])})"


def _counted(kind: str, count: int) -> str:
    name = kind.replace("_", " ")
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def _actions(memory: Memory, name: str, type: str, found: Iterable[Deleted], reason: str) -> list[Action]:
    """What is done to memories, one action for each place that they are in."""
    by_place: dict[str, list[Deleted]] = {}
    for one in found:
        by_place.setdefault(one.place or _place(memory, name), []).append(one)
    return [
        MemoryAction(name, type, tuple(one.id for one in some), reason, batch=some[0].batch, place=place,
                     kinds=tuple(one.type for one in some))
        for place, some in by_place.items()
    ]  # fmt: skip


def _place(memory: Memory, name: str) -> str:
    from smp_client.privacy.deleting.standing import Contents

    return GLOBAL if name == GLOBAL else "archived" if Contents(memory, name).is_archived else "active"


def _again(outcome: Outcome) -> str:
    """How what was deleted comes back."""
    if not outcome.actions:
        return ""
    first = outcome.actions[0]
    return f"smp restore --batch {first.batch}" if isinstance(first, MemoryAction) else f"smp restore {first.session}"


# Restoring.


@click.command(epilog="""\b
smp restore --list
smp restore session-2026-01-11-abc123
smp restore latest DEC-001 FIND-002
smp restore --batch 20260111T144000-5f3a9c""")
@memories_argument(DELETED, *_STANDING, required=False, complete_id=complete_deleted_id)
@click.option("--batch", shell_complete=complete_batch, help="All that was deleted, or anonymised, in one go.")
@click.option("--list", "is_list", is_flag=True, help="Say what can be restored, and until when.")
@by_option
@root_option
@dry_run_option
@json_option
def restore(
    session: str | None, ids: tuple[str, ...], batch: str | None, is_list: bool, by: str, root: str | None, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Bring back the deleted SESSION, or deleted memories of it."""
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
        if batch is not None:
            outcome = _restore_batch(memory, batch, session, by, dry_run=dry_run)
        elif ids:
            outcome = _each(_restore(memory, find_id(memory, str(session), *_STANDING), by), ids, dry_run=dry_run)
        else:
            outcome = _undelete(memory, str(session), by, dry_run=dry_run)
    finish(outcome, as_json=as_json)


def _each(do: Callable[[str, bool], Outcome], names: Sequence[str], *, dry_run: bool) -> Outcome:
    """One that cannot be restored stops no other."""
    from smp_client import SMPError
    outcome = Outcome(dry_run=dry_run)
    for name in dict.fromkeys(names):
        try:
            merged(outcome, do(name, dry_run))
        except SMPError as error:
            if len(names) == 1:
                raise
            outcome.problems.append(str(error))
    return outcome


def _undelete(memory: Memory, name: str, by: str, *, dry_run: bool) -> Outcome:
    from smp_client.maintain.removal import undelete_session

    return undelete_session(memory, _find_deleted(memory, name), "restored by hand", by=by, dry_run=dry_run)


def _find_deleted(memory: Memory, name: str) -> str:
    """Says also how a memory is restored: its id alone is not enough."""
    from smp_client import MemoryNotFound, SessionNotFound, SessionPutAway
    from smp_client.maintain.doomed import all_doomed
    from smp_client.records import SESSION_KINDS, kind_of

    try:
        return find_id(memory, name, DELETED)
    except SessionPutAway:
        raise
    except SessionNotFound:
        every = all_doomed(memory)[0]
        if any(gone.batch == name for one in every for gone in one.memories):
            advice = f"smp restore --batch {name} restores it."
            raise MemoryNotFound(f"{name!r} is a batch, not a session.", advice=advice) from None
        holders = sorted({one.session for one in every for gone in one.memories if gone.id == name})
        if not holders and kind_of(name, SESSION_KINDS) is None:
            raise
        of = f" of {', '.join(holders[:5])}{', …' if len(holders) > 5 else ''}" if holders else ""
        whose = holders[0] if len(holders) == 1 else "SESSION"
        advice = f"smp restore {whose} {name} restores it; smp restore --list shows what can be restored."
        raise MemoryNotFound(f"{name!r} is a memory{of}, not a session.", advice=advice) from None


def _restore(memory: Memory, session: str, by: str) -> Callable[[str, bool], Outcome]:
    def do(name: str, dry_run: bool) -> Outcome:
        known = [one for one in memory.deleted(session) if one.id == name]
        if not known:
            raise _not_deleted(memory, session, name)
        if not dry_run:
            memory.restore(session, [name], by=by)
        return Outcome(_restorations(memory, session, [known[-1]]), dry_run=dry_run)

    return do


def _not_deleted(memory: Memory, session: str, name: str) -> MemoryNotFound:
    """Where it is instead, or that it is nowhere any more."""
    from smp_client import MemoryNotFound
    from smp_client.privacy.deleting.standing import EVICTED, standing
    from smp_client.whereabouts import missing

    if any(one.id == name and one.place != EVICTED for one in standing(memory, session, [])):
        return MemoryNotFound(f"{name!r} of {session} is not deleted: it is in its place.", session_id=session, advice="")
    found = missing(memory._scope(session), name)
    if found.advice != MemoryNotFound.advice:
        return found
    return MemoryNotFound(f"There is no deleted memory {name!r} of {session}.", session_id=session,
                          advice="smp restore --list shows what can be restored.")  # fmt: skip


def _restore_batch(memory: Memory, batch: str, session: str | None, by: str, *, dry_run: bool) -> Outcome:
    from smp_client.privacy.deleting.restoring import of_batch

    sessions = [find_id(memory, session, *_STANDING)] if session else of_batch(memory, batch)

    def do(name: str, dry_run: bool) -> Outcome:
        going = [one for one in memory.deleted(name) if one.batch == batch]
        if not dry_run or not going:
            memory.restore(name, batch=batch, by=by)
        return Outcome(_restorations(memory, name, going), dry_run=dry_run)

    return _each(do, sessions, dry_run=dry_run)


def _restorations(memory: Memory, session: str, found: Sequence[Deleted]) -> list[Action]:
    last = found[-1]
    what = "anonymised" if last.action == "anonymize" else "deleted"
    return _actions(memory, session, "restore_memories", found, f"{what} at {last.deleted_at} by {last.deleted_by}: {last.reason}")
