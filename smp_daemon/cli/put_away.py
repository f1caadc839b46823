"""Where sessions are, in use, at rest or archived, and back: `smp activate`, `smp archive` and their counterparts."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from smp_client.layout import ARCHIVED

from .arguments import find_id, json_option, open_memory, root_option, session_argument
from .outcome import dry_run_option, finish, reason_option
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Session
    from smp_client.model.outcome import Outcome


@click.command()
@session_argument()
@reason_option("Why; it is written down.", default="activated by hand")
@root_option
@dry_run_option
@json_option
def activate(session: str, reason: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Say that SESSION is in use."""
    found = open_memory(root).session(session)
    outcome = _standing(found, "become_active", reason, but_not=("active",), dry_run=dry_run)
    if outcome.actions and not dry_run:
        found.activate(reason)
    finish(outcome, as_json=as_json, nothing=f"{found.id} is active: there is nothing to do.")


@click.command()
@session_argument()
@reason_option("Why; it is written down.", default="deactivated by hand")
@root_option
@dry_run_option
@json_option
def deactivate(session: str, reason: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Say that nobody uses SESSION for now; the next use makes it active again."""
    from smp_client.session_files import RESTING

    found = open_memory(root).session(session)
    outcome = _standing(found, "become_idle", reason, but_not=RESTING, dry_run=dry_run)
    if outcome.actions and not dry_run:
        found.deactivate(reason)
    finish(outcome, as_json=as_json, nothing=f"{found.id} is {found.state}: there is nothing to do.")


def _standing(session: Session, type: str, reason: str, *, but_not: Collection[str], dry_run: bool) -> Outcome:
    from smp_client.model.outcome import Action, Outcome

    # What cannot be read is said also where nothing is to be done.
    is_so = str(session.metadata().get("status", "active")) in but_not
    return Outcome([] if is_so else [Action(session.id, type, (session.id,), reason)], dry_run=dry_run)


@click.command(epilog="""\b
smp archive session-2026-01-11-abc123 --reason "all done"
smp archive --due --dry-run""")
@session_argument(required=False)
@click.option("--due", "is_due", is_flag=True, help="What the daemon does by the clock: each session into the state that is due.")
@reason_option("Why; it is written into the summary.", default=None, shown="archived by hand")
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
    found = memory.session(session).id
    with progress(f"archiving {found}"):
        outcome = memory.archive_session(found, reason or "archived by hand", dry_run=dry_run)
    finish(outcome, as_json=as_json, note=f"smp unarchive {found} brings it back.")


@click.command()
@session_argument(ARCHIVED)
@root_option
@dry_run_option
@json_option
def unarchive(session: str, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring SESSION back from the archive."""
    from smp_client.change.move import unarchive as bring_back

    memory = open_memory(root)
    found = find_id(memory, session, ARCHIVED)
    with progress(f"bringing back {found}"):
        outcome = bring_back(memory, found, dry_run=dry_run)
    finish(outcome, as_json=as_json)
