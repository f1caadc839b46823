"""`smp check --repair`: every session put right as far as that can be done without guessing, and what is left over said."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from .outcome import for_each
from .progress import progress

if TYPE_CHECKING:
    from smp_client import Memory
    from smp_client.model.outcome import Action, Outcome


def repaired(memory: Memory, session: str | None, *, dry_run: bool) -> Outcome:
    """Repair one session, or all of them with their bundles and whatever crashes have left behind."""
    sessions = memory.sessions() if session is None else [memory.session(session)]
    outcome = for_each(sessions, "repairing", lambda one: one.repair(dry_run=dry_run), dry_run=dry_run)
    if session is None:
        with progress("reading everything"):
            outcome.actions += _described(memory, [one.id for one in sessions], dry_run=dry_run)
            if not dry_run:
                outcome.actions += _tidied(memory, outcome.problems)
            outcome.problems += _further_problems(memory, [one.id for one in sessions], outcome.problems)
    return outcome


def _described(memory: Memory, known: Collection[str], *, dry_run: bool) -> list[Action]:
    """Render the files for people beside the bundles of all other sessions."""
    from smp_client.layout import ARCHIVED, DELETED
    from smp_client.passes.check import describe_bundles

    names = {name for place in (ARCHIVED, DELETED) for name in memory.tree.directories(place)} - set(known)
    return [action for name in sorted(names) for action in describe_bundles(memory, name, dry_run=dry_run)]


def _tidied(memory: Memory, problems: list[str]) -> list[Action]:
    from smp_client.model.outcome import Action
    from smp_client.tidy import tidy

    done: list[Action] = []
    for one in tidy(memory):
        if one.problem is None:
            done.append(Action(one.scope, "tidy", (one.scope,) if one.scope else (), one.what))
        else:
            problems.append(": ".join(part for part in (one.scope, one.what, one.problem) if part))
    return done


def _further_problems(memory: Memory, sessions: Collection[str], known: Collection[str]) -> list[str]:
    """Return what is wrong with anything but the sessions that were repaired. Quarantine is no problem."""
    from smp_client.passes.check import check, sentence

    complaints = [one for one in check(memory) if one.scope not in sessions and not one.file.startswith("quarantine/")]
    return [problem for problem in map(sentence, complaints) if problem not in known]
