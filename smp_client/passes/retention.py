"""Retention by type: memories past the retention of their type are deleted, and can be restored.

Retention is off unless the configuration sets days for a type. Pinned and archived memories stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ..change.restore import delete
from ..change.select import Selection
from ..model.outcome import Action, Outcome
from ..model.policies import RetentionPolicy
from ..model.priority import PINNED
from ..model.record import SESSION_KINDS, type_of
from ..model.times import EPOCH

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import Session

DELETED_BY = "smp"
_TYPES = frozenset(kind.name for kind in SESSION_KINDS)


class Candidate(NamedTuple):
    """A memory that may be past its retention."""

    session: str
    id: str
    type: str
    at: datetime
    is_pinned: bool = False


def plan(candidates: Iterable[Candidate], policy: RetentionPolicy, now: datetime) -> list[Action]:
    """Return one action for each type of each session that has memories past their retention."""
    old: dict[tuple[str, str], list[str]] = {}
    for memory in candidates:
        may_go = memory.type in _TYPES and not memory.is_pinned
        days = policy.by_type_days.get(memory.type) if may_go else None
        if days is not None and (now - memory.at) / timedelta(days=1) > days:
            old.setdefault((memory.session, memory.type), []).append(memory.id)
    return [
        Action(session, "delete_old", tuple(ids),
               f"older than {policy.by_type_days[type]:g} days, the retention of {type_of(type)}")
        for (session, type), ids in old.items()
    ]  # fmt: skip


def retain(session: Session, *, dry_run: bool = False) -> Outcome:
    """Delete the memories of a session that are past their retention, as one batch."""
    policy = session.scope.options.retention
    outcome = Outcome(dry_run=dry_run)
    if not policy.by_type_days:
        return outcome
    outcome.actions = plan(_candidates(session, policy), policy, session._now())
    if outcome.ids and not dry_run:
        reason = "; ".join(action.reason for action in outcome.actions)
        old = Selection(tuple(outcome.ids))
        deleted = delete(session.memory, session.id, old, reason=reason, by=DELETED_BY)
        outcome.problems += deleted.problems
    return outcome


def _candidates(session: Session, policy: RetentionPolicy) -> list[Candidate]:
    def question(view: View) -> list[Candidate]:
        own = "scope = ? AND at IS NOT NULL"
        asked = f"SELECT id, type, at, standing FROM memories WHERE {own} ORDER BY type, at"
        rows = view.index.connection.execute(asked, (session.id,))
        return [Candidate(session.id, memory_id, type, EPOCH + timedelta(microseconds=at_us),
                          standing == PINNED)
                for memory_id, type, at_us, standing in rows
                if type in policy.by_type_days]  # fmt: skip

    return session._own_asker().ask(question)
