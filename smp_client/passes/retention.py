"""Retention by type: memories past the retention of their type are deleted, and can be restored.

Retention is off unless the configuration sets days for a type. Pinned and archived memories stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ..model.outcome import Action, Outcome
from ..model.policies import RetentionPolicy
from ..model.priority import PINNED
from ..model.record import SESSION_KINDS, type_of
from ..model.times import EPOCH

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import Session

_TYPES = frozenset(kind.name for kind in SESSION_KINDS)


class Candidate(NamedTuple):
    """A memory that may be past its retention."""

    id: str
    type: str
    at: datetime
    standing: str = ""


def plan(
    session: str, memories: Iterable[Candidate], policy: RetentionPolicy, now: datetime
) -> list[Action]:
    """Return one action for each type that has memories past their retention."""
    old: dict[str, list[str]] = {}
    for one in memories:
        days = policy.by_type_days.get(one.type) if one.type in _TYPES else None
        if days is not None and one.standing != PINNED and now - one.at > timedelta(days=days):
            old.setdefault(one.type, []).append(one.id)
    return [
        Action(session, "delete_old", tuple(ids),
               f"older than {policy.by_type_days[type]:g} days, the retention of {type_of(type)}")
        for type, ids in old.items()
    ]  # fmt: skip


def retain(session: Session, *, dry_run: bool = False) -> Outcome:
    """Delete the memories of a session that are past their retention, as one batch."""
    policy, outcome = session.scope.options.retention, Outcome(dry_run=dry_run)
    if not policy.by_type_days:
        return outcome

    def question(view: View) -> list[Candidate]:
        asked = "SELECT id, type, at, standing FROM memories WHERE scope = ? AND at IS NOT NULL"
        rows = view.index.execute(f"{asked} ORDER BY type, at", (session.id,))
        return [Candidate(memory_id, type, EPOCH + timedelta(microseconds=at), standing)
                for memory_id, type, at, standing in rows]  # fmt: skip

    found = session._own_asker().ask(question)
    outcome.actions = plan(session.id, found, policy, session._now())
    if outcome.ids and not dry_run:
        reason = "; ".join(action.reason for action in outcome.actions)
        deleted = session.delete(outcome.ids, reason=reason, deleted_by="smp")
        outcome.problems += deleted.problems
    return outcome
