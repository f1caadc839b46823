"""`smp demo`: two weeks of a made-up project in a small tree, and a tour of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .arguments import Call, command

if TYPE_CHECKING:
    from smp_client import Memory, Session

# How many days ago, in which session, the kind, by whom, its tag, the text, and further fields.
STORY: tuple[tuple[int, str, str, str, str, str, dict[str, Any]], ...] = (
    (13, "kickoff", "turn", "mia", "", "We sell ferry tickets online. Please keep it small.", {}),
    (13, "kickoff", "preference", "mia", "", "Short answers, in British English",
     {"topic": "language", "confidence": "explicit"}),
    (13, "kickoff", "decision", "claude", "database", "Keep bookings in SQLite",
     {"rationale": "One file, no server"}),
    (12, "kickoff", "finding", "claude", "database", "Nobody makes backups of the bookings",
     {"severity": "high"}),
    (9, "login", "decision", "claude", "login", "Log in with a link by e-mail, without passwords",
     {"rationale": "Nothing to leak and nothing to forget"}),
    (9, "login", "learning", "claude", "login",
     "The mail server takes up to a minute to send a link", {}),
    (8, "login", "finding", "codex", "login", "A login link works twice", {"severity": "critical"}),
    (5, "storage", "turn", "mia", "",
     "Two ticket offices write at once now, and SQLite says it is locked.", {}),
    (5, "storage", "decision", "claude", "database", "Move bookings to PostgreSQL",
     {"rationale": "Two offices write at once"}),
    (4, "storage", "learning", "codex", "database", "The nightly dump takes eleven minutes", {}),
    (2, "payment", "decision", "claude", "payment", "Take cards on a page that the bank hosts", {}),
    (1, "payment", "turn", "mia", "",
     "Ada Muster called from 555-0100: her refund is missing.", {}),
    (1, "payment", "finding", "claude", "payment", "Refunds are booked twice",
     {"severity": "critical"}),
)  # fmt: skip
STEPS = ["Write a test for double refunds", "Ask Mia about part refunds"]
NEXT_STEPS = ("payment", "claude", {"next_steps": STEPS})


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


@command("", "--root DIRECTORY  Where to make the tree; else a temporary directory.", shared=())
def demo(call: Call) -> None:
    """Make a small tree of a made-up project and show a few commands on it; needs no daemon.

    No existing tree is touched.
    """
    place = _new_place(call.root)
    tell_story(place, datetime.now(UTC))
    os.environ["SMP_ROOT"] = str(place)
    exported = f"export SMP_ROOT={shlex.quote(str(place))}"
    _say("Two weeks of a made-up project, in a tree of its own:", exported)
    for says, line in TOUR:
        _say(says, line)
        _run(line)
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
        raise click.UsageError(f"{root} exists. Name a new directory.")
    return place


def tell_story(root: Path, now: datetime) -> None:
    """Make the tree, as if the last two weeks had happened."""
    from smp_client import Memory

    memory = Memory(root)
    sessions: dict[str, Session] = {}
    for number, (days, name, kind, who, tag, text, fields) in enumerate(STORY):
        when = now - timedelta(days=days, minutes=len(STORY) - number)
        if name not in sessions:
            sessions[name] = _begun(memory, name, when)
        fields = {**fields, "tags": [tag]} if tag else fields
        _WRITE[kind](sessions[name], text, who, timestamp=when, **fields)
    name, agent, state = NEXT_STEPS
    sessions[name].save_agent_state(agent, state)
    sessions["storage"].supersede("kickoff/DEC-001", by="DEC-001")


def _begun(memory: Memory, name: str, when: datetime) -> Session:
    from smp_client.model.times import render_time

    session = memory.create_session(id=name, project="Ferry", topic=name, user="mia")
    session.update_metadata(created_at=render_time(when))
    return session


_WRITE: dict[str, Callable[..., Any]] = {
    "turn": lambda to, text, who, **more: to.add_turn(who, text, **more),
    "decision": lambda to, text, who, **more: to.record_decision(text, made_by=who, **more),
    "finding": lambda to, text, who, **more: to.record_finding(text, discovered_by=who, **more),
    "learning": lambda to, text, who, **more: to.record_learning(text, learned_by=who, **more),
    "preference": lambda to, text, _, **more: to.record_preference(text, **more),
}


def _say(says: str, command: str) -> None:
    click.echo("\n" + (click.style(f"# {says}\n", bold=True) if says else ""), nl=False)
    click.echo(click.style(f"$ {command}", fg="green"))


def _run(command: str) -> None:
    """Run the command in this process, with its real output; raise if it fails."""
    from . import smp

    try:
        smp.main(shlex.split(command)[1:], prog_name="smp", standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise
