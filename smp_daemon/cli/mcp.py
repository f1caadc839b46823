"""`smp mcp`: a server for agents over standard input and output, and how an agent starts it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .arguments import Call, command, place_memory

AGENTS = ("claude", "codex", "copilot", "cursor", "gemini", "opencode")
_MISSING = "smp mcp needs the package mcp: pip install 'session-memory-persistence[mcp]'"


@command(
    "",
    f"--install {'|'.join(AGENTS)}  Print how this agent starts the server.",
    "--yes  With --install: write it into the agent's file, which is copied before.",
    "--directory DIR  The project's; else CLAUDE_PROJECT_DIR, else the working directory.",
    "--max-bytes LIMIT:8192  No answer is longer.",
    shared=["--root"],
)
def mcp(call: Call) -> None:
    """Let agents ask and record over the Model Context Protocol.

    It answers on standard input and output. Agents start it themselves; --install says how.

    \b
    smp mcp --install claude
    smp mcp --install codex --yes
    """
    directory = call.directory or Path(os.environ.get("CLAUDE_PROJECT_DIR") or ".")
    place = directory.absolute()
    call.check((call.yes and not call.install, "--yes is for --install."))
    if call.install:
        _install(call, place)
        return
    try:
        from ..mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise click.ClickException(_MISSING) from error
    from ..mcp.desk import Desk

    serve(Desk(place_memory(call.root, place), place, call.max_bytes))


def _install(call: Call, project: Path) -> None:
    from ..mcp.install import AGENTS as KNOWN
    from ..mcp.install import apply, plan
    from .output import say

    chosen = KNOWN[call.install]
    wanted = plan(chosen, project, call.root, os.environ)
    if wanted.after == wanted.before:
        click.echo(f"{chosen.title} knows the server already: {wanted.path}", err=True)
    elif not call.yes:
        say(wanted.entry.rstrip("\n"))
        click.echo(f"Put this into {wanted.path}, or have it written there with --yes.", err=True)
    else:
        copy = apply(wanted)
        click.echo(f"Wrote {wanted.path}." + (f" What it was is in {copy}." if copy else ""))
