"""`smp mcp`: a server for agents over standard input and output, and how an agent starts it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .arguments import flag, option, place_memory, root_option

AGENTS = ("claude", "codex", "copilot", "cursor", "gemini", "opencode")
_MISSING = "smp mcp needs the package mcp: pip install 'session-memory-persistence[mcp]'"


@click.command(epilog="""\b
smp mcp --install claude
smp mcp --install codex --yes""")
@option("--install", "Print how this agent starts the server.",
        to="agent", type=click.Choice(AGENTS))  # fmt: skip
@flag("--yes", "With --install: write it into the agent's file, which is copied before.")
@option("--directory", "The project's directory; else CLAUDE_PROJECT_DIR, else the working"
        " directory.", type=click.Path(file_okay=False, path_type=Path))  # fmt: skip
@option("--max-bytes", "No answer is longer.",
        type=click.IntRange(min=2048), metavar="N", default=8192, show_default=True)  # fmt: skip
@root_option
def mcp(
    agent: str | None, yes: bool, directory: Path | None, max_bytes: int, root: str | None
) -> None:
    """Let agents ask and record over the Model Context Protocol.

    It answers on standard input and output. Agents start it themselves; --install says how.
    """
    place = (directory or Path(os.environ.get("CLAUDE_PROJECT_DIR") or ".")).absolute()
    if agent is not None:
        _install(agent, place, root, yes=yes)
        return
    if yes:
        raise click.UsageError("--yes is for --install.")
    try:
        from ..mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise click.ClickException(_MISSING) from error
    from ..mcp.desk import Desk

    serve(Desk(place_memory(root, place), place, max_bytes))


def _install(agent: str, project: Path, root: str | None, *, yes: bool) -> None:
    from ..mcp.install import AGENTS as KNOWN
    from ..mcp.install import apply, plan
    from .output import say

    chosen = KNOWN[agent]
    wanted = plan(chosen, project, root, os.environ)
    if wanted.after == wanted.before:
        click.echo(f"{chosen.title} knows the server already: {wanted.path}", err=True)
    elif not yes:
        say(wanted.entry.rstrip("\n"))
        click.echo(f"Put this into {wanted.path}, or have it written there with --yes.", err=True)
    else:
        copy = apply(wanted)
        click.echo(f"Wrote {wanted.path}." + (f" What it was is in {copy}." if copy else ""))
