"""Retention by type: memories older than their type may become are deleted, and can be restored.

Off unless the configuration gives days for a type. Pinned and archived memories stay.
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


class Standing(NamedTuple):
    """A memory that may be too old."""

    session: str
    id: str
    type: str
    at: datetime
    is_pinned: bool = False


def plan(standings: Iterable[Standing], policy: RetentionPolicy, now: datetime) -> list[Action]:
    """Return one action for each type of each session that has memories too old."""
    old: dict[tuple[str, str], list[str]] = {}
    for one in standings:
        may_go = one.type in _TYPES and not one.is_pinned
        days = policy.by_type_days.get(one.type) if may_go else None
        if days is not None and (now - one.at) / timedelta(days=1) > days:
            old.setdefault((one.session, one.type), []).append(one.id)
    return [
        Action(session, "delete_old", tuple(ids),
               f"older than {policy.by_type_days[type]:g} days, the retention of {type_of(type)}")
        for (session, type), ids in old.items()
    ]  # fmt: skip


def retain(session: Session, *, dry_run: bool = False) -> Outcome:
    """Delete the memories too old of one session, as one batch."""
    policy = session.scope.options.retention
    outcome = Outcome(dry_run=dry_run)
    if not policy.by_type_days:
        return outcome
    outcome.actions = plan(_standings(session, policy), policy, session._now())
    if outcome.ids and not dry_run:
        reason = "; ".join(action.reason for action in outcome.actions)
        chosen = Selection(tuple(outcome.ids))
        done = delete(session.memory, session.id, chosen, reason=reason, by=DELETED_BY)
        outcome.problems += done.problems
    return outcome


def _standings(session: Session, policy: RetentionPolicy) -> list[Standing]:
    def question(view: View) -> list[Standing]:
        own = "scope = ? AND at IS NOT NULL"
        asked = f"SELECT id, type, at, standing FROM memories WHERE {own} ORDER BY type, at"
        found = view.index.connection.execute(asked, (session.id,))
        rows = ((*row[:2], EPOCH + timedelta(microseconds=row[2]), row[3]) for row in found)
        return [Standing(session.id, name, type, at, standing == PINNED)
                for name, type, at, standing in rows if type in policy.by_type_days]  # fmt: skip

    return session._own_asker().ask(question)
