"""The machine that SMP runs on: `smp run`, `smp service`, `smp config` and `smp completion`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output as out
from .arguments import Call, command

if TYPE_CHECKING:
    from ..config.settings import Configuration
    from ..service.service_file import Place

_JSON = ("--json",)
_PLACED = (
    "--system  The system's service instead of yours.",
    "--force  Also where the file was edited or is not from SMP.",
    "--dry-run",
)


@command(
    "",
    "--root DIRECTORY...  A sessions tree; repeat it for several. Else SMP_ROOT, else those of the"
    " settings, else the nearest .bmad/sessions upward, else a new one here.",
    "--config FILE  The settings; else SMP_CONFIG, else your own file, else the system's. See"
    " smp config sample.",
    shared=(),
)
def run(call: Call) -> None:
    """Look after sessions trees until stopped; makes a tree where there is none."""
    from smp_client import Memory

    from ..config.file import load
    from ..daemon import run as run_daemon
    from ..log import Log

    settings = load(call.config)
    memories = [Memory(root, **settings.options) for root in roots_of(call.root or (), settings)]
    if sys.stderr is not None and sys.stderr.isatty():
        trees = " and ".join(str(memory.root) for memory in memories)
        click.echo(f"SMP looks after {trees} until you press Ctrl-C.", err=True)
        click.echo("In another terminal, try smp status or smp demo.", err=True)
    run_daemon(memories, Log(settings), settings, lambda: load(call.config))


def roots_of(named: Sequence[str], settings: Configuration) -> list[str] | list[Path]:
    """Return the roots of the flag, else of SMP_ROOT, else of the file, else the nearest one."""
    from smp_client.model.layout import find_root

    if named:
        return list(named)
    configured = [] if os.environ.get("SMP_ROOT") else list(settings["roots"])
    return configured or [find_root()]


@command("SHELL", shared=())
def completion(call: Call) -> None:
    """Print the script by which a shell completes smp.

    bash: eval "$(smp completion bash)"; zsh: eval "$(smp completion zsh)"; fish: smp completion
    fish | source.
    """
    from click.shell_completion import get_completion_class

    from . import smp

    script = get_completion_class(call.shell)
    assert script is not None
    click.echo(script(smp, {}, "smp", "_SMP_COMPLETE").source())


# Settings.


class _Config(click.Group):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from ..config.settings import SETTINGS

        with formatter.section("The settings"):
            formatter.write_dl([(key, one.says) for key, one in SETTINGS.items()])


@click.group(cls=_Config)
def config() -> None:
    """Show, check and explain the settings."""


@command(
    "",
    "--config FILE  Use this file; else SMP_CONFIG, else the user's, else the system's.",
    group=config,
    shared=_JSON,
)
def show(call: Call) -> None:
    """Print every setting in effect, and where it comes from."""
    from smp_client.text.values import render_flow

    from ..config.file import read
    from ..config.sample import shown

    loaded = read(call.config)
    values = shown(loaded.configuration)
    values["roots"] = [str(root) for root in roots_of((), loaded.configuration)]
    origins = {key: f"{loaded.file}:{loaded.lines[key]}" if key in loaded.lines else "default"
               for key in values}  # fmt: skip
    if os.environ.get("SMP_ROOT"):
        origins["roots"] = "SMP_ROOT"
    elif not loaded.configuration["roots"]:
        origins["roots"] = "found"
    if call.json:
        said = {key: {"value": value, "from": origins[key]} for key, value in values.items()}
        out.print_json({"file": loaded.file and str(loaded.file), "settings": said})
        return
    rows = [(key, render_flow(value), origins[key]) for key, value in values.items()]
    out.print_table("SETTING VALUE FROM", rows)


@command("[FILE]", group=config, shared=_JSON)
def check(call: Call) -> None:
    """Name everything that is wrong with FILE.

    Without it, with the file that is found. Exits 5 where something is.
    """
    from ..config.file import BadConfiguration, read
    from ..config.settings import SETTINGS
    from . import EXIT_BY_CODE

    try:
        loaded = read(call.file)
    except BadConfiguration as error:
        if not call.json:
            raise
        problems = [{"line": one.line or None, "key": one.key or None, "problem": one.says}
                    for one in error.problems]  # fmt: skip
        out.print_json({"file": str(error.file), "ok": False, "problems": problems})
        sys.exit(EXIT_BY_CODE[error.code])
    given = f"{len(loaded.lines)} of {len(SETTINGS)} settings are given in it"
    none = "There is no configuration file: the defaults are used."
    said: dict[str, Any] = {"file": loaded.file and str(loaded.file), "ok": True, "problems": []}
    call.print(said, f"{loaded.file} is good: {given}." if loaded.file else none)


@command("", group=config, shared=_JSON)
def sample(call: Call) -> None:
    """Print a file with every setting, its default and its meaning."""
    from ..config.sample import plain
    from ..config.sample import sample as whole
    from ..config.settings import SETTINGS

    said = {key: {"default": plain(one.default), "must_be": one.type.says, "says": one.says}
            for key, one in SETTINGS.items()}  # fmt: skip
    call.print(said, whole().removesuffix("\n"))


# The service.


@click.group()
def service() -> None:
    """Have systemd or launchd run the daemon."""


@command(
    "",
    "--root DIRECTORY...  A sessions tree; repeat it. Else the nearest one.",
    "--config FILE  The settings that it is started with.",
    "--user ACCOUNT_NAME  With --system, its account; else the owner of the first root.",
    *_PLACED,
    group=service,
    shared=_JSON,
)
def install(call: Call) -> None:
    """Write the service file, and say how to start it."""
    from ..config.file import Loaded, read
    from ..config.location import SYSTEM_FILE
    from ..config.settings import Configuration
    from ..service import service_file as work
    from ..service.description import describe, owner_of

    call.check((call.user and not call.system,
                "--user goes with --system: your own service runs as you."))  # fmt: skip
    where = service_place(system=call.system)
    # The system's service must not depend on the settings of the person who installs it.
    named = call.config or (str(SYSTEM_FILE) if call.system and SYSTEM_FILE.exists() else None)
    own = call.system and not named
    loaded = Loaded(Configuration(), None, {}) if own else read(named)
    roots = roots_of(call.root or (), loaded.configuration)
    account = (call.user or owner_of(roots)) if call.system else None
    wanted = describe(roots, loaded.file, account, loaded.configuration["log.file"])
    before, new = work.state(where), work.render(wanted, where)
    if call.dry_run:
        work.refuse_if_edited(where, force=call.force)
        changed = work.read(where) != new
    else:
        changed = work.install(wanted, where, force=call.force)
    replaced = changed and before is not work.State.ABSENT
    said = {"path": str(where.path), "changed": changed, "dry_run": call.dry_run,
            **({"file": new} if call.dry_run else {}),
            "next": work.after_install(where, replaced, os.getuid())}  # fmt: skip
    verb = ("Would write" if call.dry_run else "Wrote") if changed else "Nothing to change in"
    _say(call, said, verb)


@command("", *_PLACED, group=service, shared=_JSON)
def uninstall(call: Call) -> None:
    """Remove the service file, and say how to stop what runs."""
    from ..service import service_file as work

    where = service_place(system=call.system)
    if call.dry_run:
        work.refuse_if_edited(where, force=call.force)
        changed = work.state(where) is not work.State.ABSENT
    else:
        changed = work.uninstall(where, force=call.force)
    commands = work.after_uninstall(where, os.getuid()) if changed else []
    said = {"path": str(where.path), "changed": changed, "dry_run": call.dry_run, "next": commands}
    _say(call, said, ("Would remove" if call.dry_run else "Removed") if changed else "There is no")


@command("", _PLACED[0], group=service, shared=_JSON)
def show_(call: Call) -> None:
    """Print the installed service file; exits 1 where there is none."""
    from ..service import service_file as work

    where = service_place(system=call.system)
    state, content = work.state(where), work.read(where)
    if call.json:
        out.print_json({"path": str(where.path), "manager": where.manager, "state": state,
                        "file": content})  # fmt: skip
    elif state is work.State.ABSENT:
        out.say(f"There is no {where.path}; `smp service install` writes it.")
    else:
        whose = "edited, or not from SMP" if state is work.State.EDITED else "as SMP wrote it"
        click.echo(f"{where.path} ({whose}):\n\n{content}", nl=False)
    sys.exit(1 if state is work.State.ABSENT else 0)


def service_place(*, system: bool) -> Place:
    from ..service.service_file import place

    return place(sys.platform, system, Path.home(), os.environ)


def _say(call: Call, said: dict[str, Any], verb: str) -> None:
    if call.json:
        out.print_json(said)
        return
    click.echo(f"{verb} {said['path']}")
    if "file" in said:
        click.echo(f"\n{said['file']}", nl=False)
    if said["next"]:
        click.echo("\nThen run:\n" + "\n".join(f"  {line}" for line in said["next"]))
