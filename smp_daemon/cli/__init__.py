"""The `smp` command: the only place that prints and chooses exit codes."""

from __future__ import annotations

import sys

import click

from smp_client import AlreadyLed, Memory, SMPError, __version__

EXIT_ERROR, EXIT_ALREADY_LED = 1, 4


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="smp")
def smp() -> None:
    """The memory of AI agents, kept in plain files."""


@smp.command()
@click.option("--root", help="The sessions tree; else SMP_ROOT, else the nearest .bmad/sessions upward, else a new one here.")
def run(root: str | None) -> None:
    """Look after a sessions tree until stopped; makes the tree if there is none."""
    from ..daemon import run as run_daemon
    from ..log import configure

    try:
        run_daemon(Memory(root), configure())
    except AlreadyLed as error:
        _fail(error, EXIT_ALREADY_LED)


def main() -> None:
    try:
        smp()
    except SMPError as error:
        _fail(error, EXIT_ERROR)


def _fail(error: SMPError, code: int) -> None:
    click.echo(f"smp: {error}", err=True)
    sys.exit(code)
