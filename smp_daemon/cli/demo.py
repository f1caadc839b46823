"""`smp demo`: a small tree with two weeks of a made-up project, and a tour of it in a few commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from smp_client import Memory, Session

# How many days ago, in which session, what, by whom, the text, and further fields.
STORY: tuple[tuple[int, str, str, str, str, dict[str, Any]], ...] = (
    (13, "kickoff", "turn", "mia", "We sell ferry tickets online. Please keep it small.", {}),
    (13, "kickoff", "preference", "mia", "Short answers, in British English", {"topic": "language", "confidence": "explicit"}),
    (13, "kickoff", "decision", "claude", "Keep bookings in SQLite", {"rationale": "One file, no server", "tags": ["database"]}),
    (12, "kickoff", "finding", "claude", "Nobody makes backups of the bookings", {"severity": "high", "tags": ["database"]}),
    (9, "login", "decision", "claude", "Log in with a link by e-mail, without passwords",
     {"rationale": "Nothing to leak and nothing to forget", "tags": ["login"]}),
    (9, "login", "learning", "claude", "The mail server takes up to a minute to send a link", {"tags": ["login"]}),
    (8, "login", "finding", "codex", "A login link works twice", {"severity": "critical", "tags": ["login"]}),
    (5, "storage", "turn", "mia", "Two ticket offices write at once now, and SQLite says it is locked.", {}),
    (5, "storage", "decision", "claude", "Move bookings to PostgreSQL",
     {"rationale": "Two offices write at once", "tags": ["database"]}),
    (4, "storage", "learning", "codex", "The nightly dump takes eleven minutes", {"tags": ["database"]}),
    (2, "payment", "decision", "claude", "Take cards on a page that the bank hosts", {"tags": ["payment"]}),
    (1, "payment", "turn", "mia", "Ada Muster called from 555-0100: her refund is missing.", {}),
    (1, "payment", "finding", "claude", "Refunds are booked twice", {"severity": "critical", "tags": ["payment"]}),
)  # fmt: skip
NEXT_STEPS = ("payment", "claude", {"next_steps": ["Write a test for double refunds", "Ask Mia about part refunds"]})


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


@click.command()
@click.option("--root", help="Where to make the tree, which must not exist yet; else a temporary directory.")
def demo(root: str | None) -> None:
    """Make a small tree of a made-up project and show a few commands on it; needs no daemon.

    No existing tree is touched.
    """
    place = _new_place(root)
    tell_story(place, datetime.now(UTC))
    os.environ["SMP_ROOT"] = str(place)
    _say("Two weeks of a made-up project, in a tree of its own:", f"export SMP_ROOT={shlex.quote(str(place))}")
    for says, command in TOUR:
        _say(says, command)
        _run(command)
    click.echo(
        f"\nThe tree is {place}: plain files, look into them."
        f"\nTo go on, run the export above, and then for example:"
        f"\n  smp timeline storage\n  smp show --all-about muster\n  smp run"
    )


def _new_place(root: str | None) -> Path:
    """Return where the tree will be; raise if something is there already."""
    if root is None:
        import tempfile

        return Path(tempfile.mkdtemp(prefix="smp-demo-")) / ".bmad/sessions"
    place = Path(root).absolute()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise click.UsageError(f"{root} exists, and the demo changes nothing that exists. Name a new directory.")
    return place


def tell_story(root: Path, now: datetime) -> None:
    """Make the tree, as if the last two weeks had happened."""
    from smp_client import Memory

    memory = Memory(root)
    sessions: dict[str, Session] = {}
    for number, (days, name, kind, who, text, fields) in enumerate(STORY):
        when = now - timedelta(days=days, minutes=len(STORY) - number)
        if name not in sessions:
            sessions[name] = _begun(memory, name, when)
        _WRITE[kind](sessions[name], who, text, timestamp=when, **fields)
    name, agent, state = NEXT_STEPS
    sessions[name].save_agent_state(agent, state)
    sessions["storage"].supersede("kickoff/DEC-001", by="DEC-001")


def _begun(memory: Memory, name: str, when: datetime) -> Session:
    from smp_client.timestamps import render_time

    session = memory.create_session(id=name, project="Ferry", topic=name, user="mia")
    session.update_metadata(created_at=render_time(when))
    return session


_WRITE: dict[str, Callable[..., Any]] = {
    "turn": lambda session, who, text, **more: session.add_turn(who, text, **more),
    "decision": lambda session, who, text, **more: session.record_decision(text, made_by=who, **more),
    "finding": lambda session, who, text, **more: session.record_finding(text, discovered_by=who, **more),
    "learning": lambda session, who, text, **more: session.record_learning(text, learned_by=who, **more),
    "preference": lambda session, _, text, **more: session.record_preference(text, **more),
}


def _say(says: str, command: str) -> None:
    click.echo("\n" + (click.style(f"# {says}", bold=True) + "\n" if says else "") + click.style(f"$ {command}", fg="green"))


def _run(command: str) -> None:
    """Run the command in this process, with its real output; raise if it fails."""
    from . import smp

    try:
        smp.main(shlex.split(command)[1:], prog_name="smp", standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise
