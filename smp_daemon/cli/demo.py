"""`smp demo`: two sessions of a made-up project in a small tree, made and asked by commands."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

import click

from .arguments import Call, command

SCRIPT = """
# An agent writes down what matters in its session.
smp new --id kickoff --project Ferry --user mia
smp add kickoff preference 'Short answers, in British English' --topic language
smp add kickoff decision 'Keep bookings in SQLite' --by claude --rationale 'No server is needed'
smp add kickoff turn 'Ada Muster called from 555-0100: her refund is missing.' --by mia
# Another agent goes on in the next session, and decides anew.
smp new --id storage --project Ferry --user mia
smp add storage finding 'Refunds are booked twice' --by codex --severity critical
smp add storage decision 'Move bookings to PostgreSQL' --by codex --rationale 'Two offices write'
smp supersede storage kickoff/DEC-001 --by DEC-001
smp sessions
# Search looks through every session, and marks what no longer holds.
smp search which database for bookings
# A new session is given what matters for its task and still holds.
smp context --agent claude --task 'move the bookings to another server'
# Somebody asks to be forgotten. A deleted memory is gone from every answer.
smp delete kickoff turn-1 --reason 'on request' --yes
smp search muster
# For 30 days it can be restored.
smp restore kickoff turn-1
smp search muster
"""


@command("-", "--root DIRECTORY  Where to make the tree; else a temporary directory.")
def demo(call: Call) -> None:
    """Make a small tree of a made-up project and show a few commands on it; needs no daemon.

    No existing tree is touched.
    """
    from . import smp

    place = Path(call.root or Path(tempfile.mkdtemp(prefix="smp-demo-")) / ".bmad/sessions")
    place = place.absolute()
    call.check((place.exists() and (not place.is_dir() or any(place.iterdir())),
                f"{place} exists. Name a new directory."))  # fmt: skip
    os.environ["SMP_ROOT"] = str(place)
    click.echo(f"$ export SMP_ROOT={shlex.quote(str(place))}")
    for line in SCRIPT.strip().splitlines():
        if line.startswith("#"):
            click.echo(f"\n{line}")
            continue
        click.echo(f"$ {line}")
        try:  # in this process, with its real output
            smp.main(shlex.split(line)[1:], prog_name="smp", standalone_mode=False)
        except SystemExit as ended:
            if ended.code:
                raise
    click.echo(f"\nThe tree is {place}: plain files, look into them.")
