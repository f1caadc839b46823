"""`smp check --repair`: every session put right as far as that can be done without guessing, and what is left over said."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .outcome import for_each
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.maintain.actions import Action, Outcome


def repaired(memory: Memory, session: str | None, *, dry_run: bool) -> Outcome:
    """One session, or all with what was put away and what crashes have left behind."""
    sessions = memory.sessions() if session is None else [memory.session(session)]
    outcome = for_each(sessions, "repairing", lambda one: one.repair(dry_run=dry_run), dry_run=dry_run)
    if session is None:
        with progress("reading everything"):
            if not dry_run:
                outcome.actions += _tidied(memory, outcome.problems)
            outcome.problems += _further_problems(memory, [one.id for one in sessions], outcome.problems)
    return outcome


def _tidied(memory: Memory, problems: list[str]) -> list[Action]:
    from smp_client.maintain.actions import Action
    from smp_client.tidy import tidy

    done: list[Action] = []
    for one in tidy(memory):
        if one.problem is None:
            done.append(Action(one.scope, "tidy", (one.scope,) if one.scope else (), one.what))
        else:
            problems.append(": ".join(part for part in (one.scope, one.what, one.problem) if part))
    return done


def _further_problems(memory: Memory, sessions: Collection[str], known: Collection[str]) -> list[str]:
    """What belongs to none of the sessions that were repaired. What is set aside in `quarantine/` is dealt with."""
    from smp_client.check import check

    complaints = [one for one in check(memory) if one.scope not in sessions and not one.file.startswith("quarantine/")]
    said = [f"{'/'.join(part for part in (one.scope, one.file) if part)}: {one.problem}. {one.advice}" for one in complaints]
    return [problem for problem in said if problem not in known]
