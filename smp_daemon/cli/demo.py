"""`smp demo`: two weeks of a made-up project in a small tree, and a tour of it."""

from __future__ import annotations

import os
import shlex
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from .arguments import Call, command

# How many days ago, in which session, the kind, by whom, the text, and further fields.
STORY = """
13 | kickoff | turn | mia | We sell ferry tickets online. Please keep it small.
13 | kickoff | preference | mia | Short answers, in British English | confidence=explicit
13 | kickoff | decision | claude | Keep bookings in SQLite | tags=database | rationale=No server
12 | kickoff | finding | claude | Nobody backs the bookings up | tags=database | severity=high
8 | login | finding | codex | A login link works twice | tags=login | severity=critical
5 | storage | turn | mia | Two ticket offices write at once now, and SQLite says it is locked.
5 | storage | decision | claude | Move bookings to PostgreSQL | rationale=Two offices write at once
1 | payment | turn | mia | Ada Muster called from 555-0100: her refund is missing.
1 | payment | finding | claude | Refunds are booked twice | tags=payment | severity=critical
"""
STEPS = ["Write a test for double refunds", "Ask Mia about part refunds"]
# What is shown, and the command that shows it.
TOUR = (
    ("It has four sessions.", "smp sessions"),
    ("Search looks through every session, and marks what no longer holds.",
     "smp search which database for bookings"),
    ("A new session is given what matters for its task and still holds.",
     "smp context --agent claude --task 'move the bookings to another server'"),
    ("Somebody asks to be forgotten. A deleted memory is gone from every answer.",
     "smp delete payment turn-1 --reason 'on request' --yes"),
    ("", "smp search muster"),
    ("For 30 days it can be restored.", "smp restore payment turn-1"),
    ("", "smp search muster"),
)  # fmt: skip


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
    tell_story(place, datetime.now(UTC))
    os.environ["SMP_ROOT"] = str(place)
    click.echo(f"$ export SMP_ROOT={shlex.quote(str(place))}")
    for says, line in TOUR:
        click.echo(f"\n# {says}\n$ {line}" if says else f"\n$ {line}")
        try:  # in this process, with its real output
            smp.main(shlex.split(line)[1:], prog_name="smp", standalone_mode=False)
        except SystemExit as ended:
            if ended.code:
                raise
    click.echo(f"\nThe tree is {place}: plain files, look into them.")


def tell_story(root: Path, now: datetime) -> None:
    """Make the tree, as if the last two weeks had happened."""
    from smp_client import Memory
    from smp_client.model.record import SESSION_KINDS
    from smp_client.model.times import render_time

    memory, kinds = Memory(root), {kind.type: kind for kind in SESSION_KINDS}
    lines = STORY.strip().splitlines()
    for number, line in enumerate(lines):
        days, name, type, who, text, *more = line.split(" | ")
        when = now - timedelta(days=int(days), minutes=len(lines) - number)
        if name not in [session.id for session in memory.sessions()]:
            session = memory.create_session(id=name, project="Ferry", topic=name, user="mia")
            session.update_metadata(created_at=render_time(when))
        kind = kinds[type]
        fields: dict[str, Any] = dict(pair.split("=") for pair in more)
        fields |= {kind.actor: who, kind.text: text}
        fields |= {"tags": [fields["tags"]]} if "tags" in fields else {}
        memory.session(name).record(kind, fields, when)
    memory.session("payment").save_agent_state("claude", {"next_steps": STEPS})
    memory.session("storage").supersede("kickoff/DEC-001", by="DEC-001")
