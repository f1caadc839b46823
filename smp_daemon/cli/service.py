"""`smp service`: the system starts the daemon and keeps it running."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..service.description import Service
    from ..service.service_file import Place

EXIT_ABSENT = 1

_system = click.option("--system", is_flag=True, help="The system's service instead of yours.")
_force = click.option(
    "--force", is_flag=True, help="Also where the file was edited or is not from SMP."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
_json = click.option("--json", "as_json", is_flag=True, help="Say it in JSON.")


@click.group()
def service() -> None:
    """Have systemd or launchd run the daemon."""


@service.command()
@_system
@click.option(
    "--root", "roots", multiple=True,
    help="A sessions tree to look after; repeat it for several. Else the nearest one.",
)
@click.option(
    "--config", type=click.Path(dir_okay=False),
    help="The configuration file it is started with.",
)
@click.option(
    "--user",
    help="With --system, the account it runs as; else the one that the roots belong to.",
)
@_force
@_dry_run
@_json
def install(
    system: bool, roots: tuple[str, ...], config: str | None, user: str | None,
    force: bool, dry_run: bool, as_json: bool,
) -> None:
    """Write the service file, and say how to start it."""
    from ..service import service_file as work
    from ..service.description import out_of_reach

    if user is not None and not system:
        raise click.UsageError("--user goes with --system: your own service runs as you.")
    where = _place(system)
    wanted = _describe(system, roots, config, user)
    before = work.state(where)
    if dry_run:
        work.refuse_if_edited(where, force=force)
        changed = work.read(where) != work.render(wanted, where)
    else:
        changed = work.install(wanted, where, force=force)
    replaced = changed and before is not work.State.ABSENT
    commands = work.after_install(where, replaced, os.getuid())
    text = {"file": work.render(wanted, where)} if dry_run else {}
    closed = out_of_reach(wanted)
    notes = [f"{place} does not let the account {wanted.user} in." for place in closed]
    said = {"path": str(where.path), "changed": changed, "dry_run": dry_run, **text,
            "notes": notes, "next": commands}
    verb = _verb("write", "wrote", dry_run) if changed else "nothing to change in"
    _say(said, as_json, verb)


@service.command()
@_system
@_force
@_dry_run
@_json
def uninstall(system: bool, force: bool, dry_run: bool, as_json: bool) -> None:
    """Remove the service file, and say how to stop what runs."""
    from ..service import service_file as work

    where = _place(system)
    if dry_run:
        work.refuse_if_edited(where, force=force)
        changed = work.state(where) is not work.State.ABSENT
    else:
        changed = work.uninstall(where, force=force)
    commands = work.after_uninstall(where, os.getuid()) if changed else []
    said = {"path": str(where.path), "changed": changed, "dry_run": dry_run, "next": commands}
    verb = _verb("remove", "removed", dry_run) if changed else "there is no"
    _say(said, as_json, verb)


@service.command()
@_system
@_json
def show(system: bool, as_json: bool) -> None:
    """Print the installed service file; exits 1 where there is none."""
    from ..service import service_file as work

    where = _place(system)
    state = work.state(where)
    if as_json:
        said = {"path": str(where.path), "manager": where.manager, "state": state,
                "file": work.read(where)}
        click.echo(json.dumps(said, indent=2))
    elif state is work.State.ABSENT:
        click.echo(f"There is no {where.path}; `smp service install` writes it.")
    else:
        whose = "edited, or not from SMP" if state is work.State.EDITED else "as SMP wrote it"
        click.echo(f"{where.path} ({whose}):\n\n{work.read(where)}", nl=False)
    if state is work.State.ABSENT:
        sys.exit(EXIT_ABSENT)


def _place(system: bool) -> Place:
    from ..service.service_file import place

    return place(sys.platform, system, Path.home(), os.environ)


def _describe(
    system: bool, roots: tuple[str, ...], config: str | None, user: str | None
) -> Service:
    from ..config.file import Loaded, read
    from ..config.location import SYSTEM_FILE
    from ..config.settings import Configuration
    from ..service.description import describe, owner_of
    from .run import roots_of

    # The system's service must not depend on the settings of the person who installs it.
    named = config or (str(SYSTEM_FILE) if system and SYSTEM_FILE.exists() else None)
    loaded = Loaded(Configuration(), None, {}) if system and not named else read(named)
    found = roots_of(roots, loaded.configuration)
    account = (user or owner_of(found)) if system else None
    return describe(found, loaded.file, account, loaded.configuration["log.file"])


def _verb(would: str, did: str, dry_run: bool) -> str:
    return f"would {would}" if dry_run else did


def _say(said: dict[str, Any], as_json: bool, verb: str) -> None:
    if as_json:
        click.echo(json.dumps(said, indent=2))
        return
    click.echo(f"{verb[0].upper()}{verb[1:]} {said['path']}")
    if "file" in said:
        click.echo(f"\n{said['file']}", nl=False)
    for note in said.get("notes", []):
        click.echo(f"\nBut {note}")
    if said["next"]:
        commands = "".join(f"  {command}\n" for command in said["next"])
        click.echo(f"\nThen run:\n{commands}", nl=False)
