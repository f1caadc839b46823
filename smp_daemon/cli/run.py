"""`smp run`: the daemon in the foreground."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.settings import Configuration


@click.command()
@click.option(
    "--root", "named", multiple=True, metavar="DIRECTORY",
    help="A sessions tree; repeat it for several. Else SMP_ROOT, else the configured ones,"
         " else the nearest .bmad/sessions upward, else a new one here.",
)  # fmt: skip
@click.option(
    "--config", metavar="FILE",
    help="The settings; else SMP_CONFIG, else your own file, else the system's."
         " See smp config sample.",
)
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
    import os

    from smp_client.layout import find_root

    if named:
        return list(named)
    configured = [] if os.environ.get("SMP_ROOT") else list(settings["roots"])
    return configured or [find_root()]
