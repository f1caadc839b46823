"""The machine that SMP runs on: `smp run`, `service`, `config`, `mcp` and `completion`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output as out
from .arguments import Call, command, place_memory

if TYPE_CHECKING:
    from ..config.settings import Configuration
    from ..service.unit import Place

AGENTS = ("claude", "codex", "copilot", "cursor", "gemini", "opencode")
_ROOTS = "--root DIRECTORY...  A sessions tree; repeat it. Else that of SMP_ROOT or the settings."
_SYSTEM = "--system  The system's service instead of yours; it runs as the owner of the roots."
_FORCE = "--force  Also where another file is in its place."
_MISSING = "smp mcp needs the package mcp: pip install 'session-memory-persistence[mcp]'"


@command("--config -", _ROOTS)
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
    run_daemon(memories, Log(settings), settings, lambda: load(call.config))


def roots_of(named: Sequence[str], settings: Configuration) -> list[str] | list[Path]:
    """Return the roots of the flag, else of SMP_ROOT, else of the file, else the project's."""
    from smp_client.disk.home import find_home

    if named:
        return list(named)
    configured = [] if os.environ.get("SMP_ROOT") else list(settings["roots"])
    return configured or [Path(find_home().root)]


@command("SHELL -")
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


@command(
    "- --root",
    f"--install {'|'.join(AGENTS)}  Print how this agent starts the server.",
    "--yes  With --install: write it into the agent's file, which is copied before.",
    "--directory DIR  The project's; else CLAUDE_PROJECT_DIR, else the working directory.",
    "--max-bytes LIMIT:8192  No answer is longer.",
)
def mcp(call: Call) -> None:
    """Let agents ask and record over the Model Context Protocol.

    It answers on standard input and output. Agents start it themselves; --install says how.
    """
    project = (call.directory or Path(os.environ.get("CLAUDE_PROJECT_DIR") or ".")).absolute()
    if call.install:
        _install(call, project)
        return
    try:
        from ..mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise click.ClickException(_MISSING) from error
    from ..mcp.desk import Desk

    serve(Desk(place_memory(call.root, project), project, call.max_bytes))


def _install(call: Call, project: Path) -> None:
    from ..mcp.install import AGENTS as KNOWN
    from ..mcp.install import apply, plan

    chosen = KNOWN[call.install]
    wanted = plan(chosen, project, call.root, os.environ)
    if wanted.after == wanted.before:
        click.echo(f"{chosen.title} knows the server already: {wanted.path}", err=True)
    elif not call.yes:
        out.say(wanted.entry.rstrip("\n"))
        click.echo(f"Put this into {wanted.path}, or have it written there with --yes.", err=True)
    else:
        copy = apply(wanted)
        click.echo(f"Wrote {wanted.path}." + (f" What it was is in {copy}." if copy else ""))


@click.group()
def config() -> None:
    """Show, check and explain the settings."""


@command("--config --json", group=config)
def show(call: Call) -> None:
    """Print every setting in effect, and where it comes from."""
    from smp_client.text.values import render_flow

    from ..config.file import load, plain

    loaded = load(call.config)
    values = {**loaded, "roots": tuple(roots_of((), loaded))}
    rows = [{"setting": key, "value": plain(value),
             "from": str(loaded.file) if key in loaded.given else "default"}
            for key, value in values.items()]  # fmt: skip
    if call.json:
        settings = {row["setting"]: {"value": row["value"], "from": row["from"]} for row in rows}
        out.print_json({"file": loaded.file and str(loaded.file), "settings": settings})
    else:
        flow = [{**row, "value": render_flow(row["value"])} for row in rows]
        out.print_table("setting value from", flow)


@command("[FILE] --json", group=config)
def check(call: Call) -> None:
    """Name everything that is wrong with FILE, or with the file that is found; then exit 5."""
    from ..config.file import load
    from ..config.settings import SETTINGS

    loaded = load(call.file)
    given = f"{len(loaded.given)} of {len(SETTINGS)} settings are given in it"
    none = "There is no configuration file: the defaults are used."
    said: dict[str, Any] = {"file": loaded.file and str(loaded.file), "ok": True}
    call.print(said, f"{loaded.file} is good: {given}." if loaded.file else none)


@command(
    "--root --json",
    "--timeout SECONDS:30  How long to wait for the daemon.",
    group=config,
)
def reload(call: Call) -> None:
    """Have the running daemon read its settings again; exits 5 where the file is bad.

    Settings that need a restart are named.
    """
    from smp_client.disk.place import Place

    from ..reload import reload as ask_to_reload
    from . import EXIT_BY_CODE

    said = ask_to_reload(Place(call.root), call.timeout)
    problem = str(said.get("problem") or "")
    waiting = [str(key) for key in said.get("needs_restart") or ()]
    changed = [str(key) for key in said.get("changed") or ()]
    text = f"Reloaded: {', '.join(changed) or 'nothing has changed'}."
    if waiting:
        text += f" Start the daemon again for: {', '.join(waiting)}."
    call.print(said, problem or text)
    sys.exit(EXIT_BY_CODE["MEM_E016"] if problem else 0)


@command("", group=config)
def sample(_call: Call) -> None:
    """Print a file with every setting, its default and its meaning."""
    from ..config.file import sample as whole

    out.say(whole().removesuffix("\n"))


@click.group()
def service() -> None:
    """Have systemd or launchd run the daemon."""


@command("--config --dry-run --json", _ROOTS, _SYSTEM, _FORCE, group=service)
def install(call: Call) -> None:
    """Write the service file, and say how to start it."""
    from ..config import SYSTEM_FILE
    from ..config.file import load
    from ..config.settings import Configuration
    from ..service import unit as work

    where = service_place(system=call.system)
    # The system's service must not depend on the settings of the person who installs it.
    named = call.config or (str(SYSTEM_FILE) if call.system and SYSTEM_FILE.exists() else None)
    own = call.system and not named
    loaded = Configuration() if own else load(named)
    roots = roots_of(call.root or (), loaded)
    account = Path(roots[0]).owner() if call.system else None
    wanted = work.describe(roots, loaded.file, account, loaded["log.file"])
    changed = work.install(wanted, where, force=call.force, dry_run=call.dry_run)
    if call.dry_run:
        file = work.render(wanted, where)
        call.print({"path": str(where.path), "file": file, "dry_run": True}, file.rstrip("\n"))
        return
    verb = "Wrote" if changed else "Nothing to change in"
    _say(call, where, verb, changed, work.after_install(where))


@command("--dry-run --json", _SYSTEM, _FORCE, group=service)
def uninstall(call: Call) -> None:
    """Remove the service file, and say how to stop what runs."""
    from ..service import unit as work

    where = service_place(system=call.system)
    changed = work.uninstall(where, force=call.force, dry_run=call.dry_run)
    commands = [work.after_uninstall(where)] if changed else []
    verb = ("Would remove" if call.dry_run else "Removed") if changed else "There is no"
    _say(call, where, verb, changed, commands)


@command("--json", _SYSTEM, group=service)
def show_(call: Call) -> None:
    """Print the installed service file; exits 1 where there is none."""
    from ..service import unit as work

    where = service_place(system=call.system)
    content = work.read(where)
    none = f"There is no {where.path}; `smp service install` writes it."
    text = none if content is None else f"{where.path}:\n\n{content}"
    call.print({"path": str(where.path), "file": content}, text)
    sys.exit(1 if content is None else 0)


def service_place(*, system: bool) -> Place:
    from ..service.unit import place

    return place(sys.platform, system, Path.home(), os.environ)


def _say(call: Call, where: Place, verb: str, changed: bool, commands: Sequence[str]) -> None:
    after = "\n".join(["\n\nThen run:", *(f"  {line}" for line in commands)]) if commands else ""
    said = {"path": str(where.path), "changed": changed, "dry_run": call.dry_run, "next": commands}
    call.print(said, f"{verb} {where.path}{after}")
