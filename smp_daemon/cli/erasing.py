"""Destroying what was deleted, by hand: `smp purge`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from smp_client.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL

from .arguments import find_id, json_option, memories_argument, open_memory, root_option
from .deletion import complete_batch, complete_erasable_id
from .nearby import suggesting_ids
from .outcome import action_json, asks, by_option, confirm, dry_run_option, finish, listed, yes_option
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.model.outcome import Outcome
    from smp_client.passes.purge import Decision

_NAMED = 5
_PLACES = (ACTIVE, ARCHIVED, DELETED, GLOBAL)


@click.command(epilog="""\b
smp purge --dry-run
smp purge latest DEC-001 --now
smp purge --batch 20260111T144000-5f3a9c --now
smp purge session-2026-01-11-abc123 --now""")
@memories_argument(*_PLACES, required=False, complete_id=complete_erasable_id)
@click.option("--force", is_flag=True,
              help="What is past its deadline goes although no daemon has watched that pass, and however much it is.")  # fmt: skip
@click.option("--now", "is_now", is_flag=True, help="Erase what is named at once, whatever its deadline; deleted or not.")
@click.option("--batch", shell_complete=complete_batch, help="With --now: all that was deleted, or anonymised, in one go.")
@by_option
@yes_option
@root_option
@dry_run_option
@json_option
def purge(
    force: bool, is_now: bool, session: str | None, ids: tuple[str, ...], batch: str | None, by: str, yes: bool, root: str | None,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Destroy what was deleted and is past its deadline; with --now, what is named.

    With --now, SESSION alone is all of it, and ID what is deleted of that memory, else the memory.
    Nothing brings it back, and no byte of it stays below the root. Only this, and the daemon by the same rules, destroys anything.
    """
    _check(session, ids, batch, is_now=is_now, force=force)
    memory = open_memory(root)
    if is_now:
        _purge_now(memory, session, ids, batch, by, yes=yes, dry_run=dry_run, as_json=as_json)
    else:
        _purge_due(memory, by, force=force, yes=yes, dry_run=dry_run, as_json=as_json)


def _check(session: str | None, ids: Sequence[str], batch: str | None, *, is_now: bool, force: bool) -> None:
    if not is_now and (session is not None or ids or batch is not None):
        raise click.UsageError("A session and --batch go with --now: without it only what is past its deadline goes.")
    if is_now and force:
        raise click.UsageError("--force is for what is past its deadline; --now is for what is named. Give one of them.")
    if ids and batch is not None:
        raise click.UsageError("Give ids or --batch, not both.")
    if is_now and session is None and batch is None:
        raise click.UsageError("--now erases what is named: SESSION ID, --batch B, or SESSION for all of it.")
    if is_now and session == GLOBAL and not ids and batch is None:
        raise click.UsageError("global is not erased whole: say which of its memories, by their ids or with --batch.")


# At once.


def _purge_now(
    memory: Memory, session: str | None, ids: Sequence[str], batch: str | None, by: str, *, yes: bool, dry_run: bool, as_json: bool
) -> None:
    name = None if session is None else find_id(memory, session, *_PLACES)

    def do(dry_run: bool) -> Outcome:
        with suggesting_ids(memory, name or "", ids):
            return memory.purge_now(name, list(ids) or None, batch=batch, by=by, dry_run=dry_run)

    if not dry_run and asks(yes=yes):
        confirm(f"Erase {_named(do(True))} for good? Nothing brings it back.", yes=yes, what_stays="Nothing was erased.")
    with progress("erasing"):
        outcome = do(dry_run)
    finish(outcome, as_json=as_json)


def _named(plan: Outcome) -> str:
    from .output import short_size

    parts: list[str] = []
    for action in plan.actions:
        if action.type == "purge_session":
            parts.append(f"the session {action.session} ({short_size(action.bytes_freed)}), with all that was deleted of it")
        else:
            parts.append(f"{_listed(list(dict.fromkeys(action.about)))} of {action.session}")
    return " and ".join(dict.fromkeys(parts))


def _listed(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else "")


# What is due.


def _purge_due(memory: Memory, by: str, *, force: bool, yes: bool, dry_run: bool, as_json: bool) -> None:
    from smp_client.model.outcome import Outcome
    from smp_client.passes.purge import planned

    if force and not dry_run and (going := memory.purge(force=True, dry_run=True)).actions:
        confirm(f"Destroy {_going(going)} for good?", yes=yes, what_stays="Nothing was destroyed.")
    with progress("purging"):
        kept = [decision for decision in planned(memory, force=force).decisions if not decision.purge]
        outcome = memory.purge(force=force, by=by, dry_run=dry_run)
    waiting = Outcome([decision.as_action() for decision in kept])
    if not as_json:
        _say_what_is_held_back(memory, kept, known=outcome.problems, is_forced=force)
    nothing = f"Nothing is due yet. Waiting: {_going(waiting)}; smp restore --list shows until when."
    said = [{name: action_json(one)[name] for name in ("session", "about", "reason")} for one in waiting.actions]
    finish(outcome, as_json=as_json, nothing=nothing if kept else "There is nothing to do.", kept=said)


def _say_what_is_held_back(memory: Memory, kept: Sequence[Decision], *, known: Sequence[str], is_forced: bool) -> None:
    """Only what is past its deadline, each session once, then what can be done: nobody wonders about the rest."""
    from smp_client.locks import holder
    from smp_client.status import LEAD, LEAD_SCOPE

    from .output import one_line

    now = memory.options.clock()
    parts: dict[str, list[str]] = {}
    for decision in kept:
        one = decision.doomed
        if one.deadline <= now and decision.reason not in known:
            does = "stays" if one.is_session else f"keeps {listed(list(one.ids))}"
            parts.setdefault(one.session, []).append(f"{does}: {decision.reason}")
    for session, said in parts.items():
        click.echo(f"note: {one_line(session)} {one_line('; it '.join(said))}", err=True)
    if parts and not is_forced:
        who = "the running daemon" if holder(memory.tree, LEAD_SCOPE, LEAD) else "a daemon (smp run)"
        when = "once two purges at least 6 days of running time apart have seen it overdue"
        click.echo(f"note: smp purge --force destroys that now; {who} does so {when}", err=True)


def _going(planned: Outcome) -> str:
    whole = [action for action in planned.actions if action.type == "purge_session"]
    memories = sum(len(action.about) for action in planned.actions if action not in whole)
    parts = [f"{len(whole):,} deleted session{'' if len(whole) == 1 else 's'}" if whole else "",
             f"{memories:,} deleted memor{'y' if memories == 1 else 'ies'}" if memories else ""]  # fmt: skip
    return " and ".join(part for part in parts if part)
