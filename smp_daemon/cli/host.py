"""The machine that SMP runs on: `smp run`, `smp service`, `smp config` and `smp completion`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output as out
from .arguments import flag, option, several

if TYPE_CHECKING:
    from ..config.file import Loaded
    from ..config.settings import Configuration
    from ..service.description import Service
    from ..service.service_file import Place

EXIT_ABSENT = 1
SHELLS = ("bash", "zsh", "fish")
_json = flag("--json", "Print JSON.", to="as_json")
_dry_run = flag("--dry-run", "Only say what would be done.")


@click.command()
@option("--root", "A sessions tree; repeat it for several. Else SMP_ROOT, else the configured"
        " ones, else the nearest .bmad/sessions upward, else a new one here.",
        to="named", multiple=True, metavar="DIRECTORY")  # fmt: skip
@option("--config", "The settings; else SMP_CONFIG, else your own file, else the system's. See"
        " smp config sample.", metavar="FILE")  # fmt: skip
def run(named: Sequence[str], config: str | None) -> None:
    """Look after sessions trees until stopped; makes a tree where there is none."""
    from smp_client import Memory

    from ..config.file import load
    from ..daemon import run as run_daemon
    from ..log import Log

    settings = load(config)
    memories = [Memory(root, **settings.options) for root in roots_of(named, settings)]
    if sys.stderr is not None and sys.stderr.isatty():
        trees = " and ".join(str(memory.root) for memory in memories)
        click.echo(f"SMP looks after {trees} until you press Ctrl-C.", err=True)
        click.echo("In another terminal, try smp status or smp demo.", err=True)
    log = Log(settings)
    try:
        run_daemon(memories, log, settings, lambda: load(config))
    finally:
        log.close()


def roots_of(named: Sequence[str], settings: Configuration) -> list[str] | list[Path]:
    """Return the roots of the flag, else of SMP_ROOT, else of the file, else the nearest one."""
    from smp_client.model.layout import find_root

    if named:
        return list(named)
    configured = [] if os.environ.get("SMP_ROOT") else list(settings["roots"])
    return configured or [find_root()]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script by which a shell completes smp.

    bash: eval "$(smp completion bash)"; zsh: eval "$(smp completion zsh)"; fish: smp completion
    fish | source.
    """
    from click.shell_completion import get_completion_class

    from . import smp

    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(smp, {}, "smp", "_SMP_COMPLETE").source())


# Settings.


def _epilog() -> str:
    from ..config.settings import SETTINGS

    columns = max(map(len, SETTINGS)) + 2
    lines = [f"  {key:<{columns}}{one.says}" for key, one in SETTINGS.items()]
    return "\n".join(["\b", "The settings:", *lines])


class _Config(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.epilog = _epilog()
        super().format_epilog(ctx, formatter)


@click.group(cls=_Config)
def config() -> None:
    """Show, check and explain the settings."""


@config.command()
@option("--config", "Use this file; else SMP_CONFIG, else the user's, else the system's.",
        to="file", metavar="FILE")  # fmt: skip
@_json
def show(file: str | None, as_json: bool) -> None:
    """Print every setting in effect, and where it comes from."""
    from smp_client.text.values import render_flow

    from ..config.file import read
    from ..config.sample import shown

    loaded = read(file)
    values = shown(loaded.configuration)
    values["roots"] = [str(root) for root in roots_of((), loaded.configuration)]
    origins = {key: _origin(loaded, key) for key in values}
    if as_json:
        said = {key: {"value": value, "from": origins[key]} for key, value in values.items()}
        out.print_json({"file": loaded.file and str(loaded.file), "settings": said})
        return
    texts = {key: render_flow(value) for key, value in values.items()}
    widths = max(map(len, texts)), min(40, max(map(len, texts.values())))
    for key, text in texts.items():
        out.say(f"{key:<{widths[0]}}  {text:<{widths[1]}}  {origins[key]}")


def _origin(loaded: Loaded, key: str) -> str:
    if key == "roots" and os.environ.get("SMP_ROOT"):
        return "SMP_ROOT"
    if key == "roots" and not loaded.configuration["roots"]:
        return "found"
    return f"{loaded.file}:{loaded.lines[key]}" if key in loaded.lines else "default"


@config.command()
@click.argument("file", required=False)
@_json
def check(file: str | None, as_json: bool) -> None:
    """Name everything that is wrong with FILE.

    Without it, with the file that is found. Exits 5 where something is.
    """
    from ..config.file import BadConfiguration, read
    from ..config.settings import SETTINGS
    from . import EXIT_BY_CODE

    try:
        loaded = read(file)
    except BadConfiguration as error:
        if not as_json:
            raise
        problems = [{"line": one.line or None, "key": one.key or None, "problem": one.says}
                    for one in error.problems]  # fmt: skip
        out.print_json({"file": str(error.file), "ok": False, "problems": problems})
        sys.exit(EXIT_BY_CODE[error.code])
    if as_json:
        out.print_json({"file": loaded.file and str(loaded.file), "ok": True, "problems": []})
    elif loaded.file is None:
        out.say("There is no configuration file: the defaults are used.")
    else:
        given = f"{len(loaded.lines)} of {len(SETTINGS)} settings are given in it"
        out.say(f"{loaded.file} is good: {given}.")


@config.command("sample")
@_json
def print_sample(as_json: bool) -> None:
    """Print a file with every setting, its default and its meaning."""
    from ..config.sample import plain, sample
    from ..config.settings import SETTINGS

    if as_json:
        out.print_json({
            key: {"default": plain(one.default), "must_be": one.type.says, "says": one.says}
            for key, one in SETTINGS.items()
        })  # fmt: skip
    else:
        click.echo(sample(), nl=False)


# The service.


_placed = several([
    flag("--system", "The system's service instead of yours."),
    flag("--force", "Also where the file was edited or is not from SMP."),
    _dry_run, _json,
])  # fmt: skip


@click.group()
def service() -> None:
    """Have systemd or launchd run the daemon."""


@service.command()
@option("--root", "A sessions tree; repeat it. Else the nearest one.", to="roots", multiple=True)
@option("--config", "The settings that it is started with.", type=click.Path(dir_okay=False))
@option("--user", "With --system, the account that it runs as; else the owner of the roots.")
@_placed
def install(
    system: bool, force: bool, dry_run: bool, as_json: bool, roots: tuple[str, ...],
    **given: str | None,
) -> None:  # fmt: skip
    """Write the service file, and say how to start it."""
    from ..service import service_file as work
    from ..service.description import out_of_reach

    if given["user"] is not None and not system:
        raise click.UsageError("--user goes with --system: your own service runs as you.")
    where = service_place(system=system)
    wanted = _describe(system, roots, given["config"], given["user"])
    before = work.state(where)
    if dry_run:
        work.refuse_if_edited(where, force=force)
        changed = work.read(where) != work.render(wanted, where)
    else:
        changed = work.install(wanted, where, force=force)
    commands = work.after_install(where, changed and before is not work.State.ABSENT, os.getuid())
    said: dict[str, Any] = {"path": str(where.path), "changed": changed, "dry_run": dry_run}
    if dry_run:
        said["file"] = work.render(wanted, where)
    said["notes"] = [f"{place} does not let the account {wanted.user} in."
                     for place in out_of_reach(wanted)]  # fmt: skip
    verb = ("Would write" if dry_run else "Wrote") if changed else "Nothing to change in"
    _say({**said, "next": commands}, verb, as_json=as_json)


@service.command()
@_placed
def uninstall(system: bool, force: bool, dry_run: bool, as_json: bool) -> None:
    """Remove the service file, and say how to stop what runs."""
    from ..service import service_file as work

    where = service_place(system=system)
    if dry_run:
        work.refuse_if_edited(where, force=force)
        changed = work.state(where) is not work.State.ABSENT
    else:
        changed = work.uninstall(where, force=force)
    commands = work.after_uninstall(where, os.getuid()) if changed else []
    said = {"path": str(where.path), "changed": changed, "dry_run": dry_run, "next": commands}
    verb = ("Would remove" if dry_run else "Removed") if changed else "There is no"
    _say(said, verb, as_json=as_json)


@service.command("show")
@flag("--system", "The system's service instead of yours.")
@_json
def show_service(system: bool, as_json: bool) -> None:
    """Print the installed service file; exits 1 where there is none."""
    from ..service import service_file as work

    where = service_place(system=system)
    state, content = work.state(where), work.read(where)
    if as_json:
        out.print_json({"path": str(where.path), "manager": where.manager, "state": state,
                        "file": content})  # fmt: skip
    elif state is work.State.ABSENT:
        out.say(f"There is no {where.path}; `smp service install` writes it.")
    else:
        whose = "edited, or not from SMP" if state is work.State.EDITED else "as SMP wrote it"
        click.echo(f"{where.path} ({whose}):\n\n{content}", nl=False)
    if state is work.State.ABSENT:
        sys.exit(EXIT_ABSENT)


def service_place(*, system: bool) -> Place:
    from ..service.service_file import place

    return place(sys.platform, system, Path.home(), os.environ)


def _describe(
    system: bool, roots: tuple[str, ...], config: str | None, user: str | None
) -> Service:
    from ..config.file import Loaded, read
    from ..config.location import SYSTEM_FILE
    from ..config.settings import Configuration
    from ..service.description import describe, owner_of

    # The system's service must not depend on the settings of the person who installs it.
    named = config or (str(SYSTEM_FILE) if system and SYSTEM_FILE.exists() else None)
    loaded = Loaded(Configuration(), None, {}) if system and not named else read(named)
    found = roots_of(roots, loaded.configuration)
    account = (user or owner_of(found)) if system else None
    return describe(found, loaded.file, account, loaded.configuration["log.file"])


def _say(said: dict[str, Any], verb: str, *, as_json: bool) -> None:
    if as_json:
        out.print_json(said)
        return
    click.echo(f"{verb} {said['path']}")
    if "file" in said:
        click.echo(f"\n{said['file']}", nl=False)
    for note in said.get("notes", []):
        click.echo(f"\nBut {note}")
    if said["next"]:
        click.echo("\nThen run:\n" + "\n".join(f"  {command}" for command in said["next"]))
