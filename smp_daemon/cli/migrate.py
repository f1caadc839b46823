"""`smp migrate`: files of an older version brought up to the present one, all at once instead of each when it is next written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smp_client.layout import ACTIVE, GLOBAL

from .arguments import completing, find_scope, json_option, open_memory, root_option
from .outcome import dry_run_option, finish, for_each

if TYPE_CHECKING:
    from smp_client.session import RecordFiles


@click.command(epilog="""\b
smp migrate latest --dry-run
smp migrate --all""")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1, shell_complete=completing(ACTIVE, GLOBAL))
@click.option("--all", "is_all", is_flag=True, help="Every session, and what holds everywhere.")
@root_option
@dry_run_option
@json_option
def migrate(sessions: tuple[str, ...], is_all: bool, root: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring files that an older SMP has written up to this version.

    Nobody has to: they are read as they are, and brought up when they are next written. What is archived or deleted is brought up
    when it is back. What a later SMP has written is left alone, and named.
    """
    from smp_client import migration
    from smp_client.maintain.actions import VersionAction

    if not sessions and not is_all:
        raise click.UsageError("Say which: one or more sessions, or --all for every file of this tree. What other programs keep is"
                               " taken in by smp import PATH --migrate.")  # fmt: skip
    if sessions and is_all:
        raise click.UsageError("--all is every session: give it, or sessions, not both.")
    memory = open_memory(root)
    files: list[RecordFiles] = [find_scope(memory, name) for name in sessions] or [memory.everywhere, *memory._sessions()]
    outcome = for_each(files, "migrating", lambda one: migration.migrate(one.scope, dry_run=dry_run), dry_run=dry_run)
    brought_up = [{"session": one.session, "file": one.about[0], "from": one.version_from, "to": one.version_to}
                  for one in outcome.actions if isinstance(one, VersionAction)]  # fmt: skip
    finish(outcome, as_json=as_json, nothing="Every file is of this version.", files=brought_up)
