"""Retention by type: memories that are older than their type may become are deleted, and can be restored like any other.

Off unless the configuration says how many days. What is pinned stays, and so does what is archived.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ..decay import PINNED
from ..deletion import memory_of
from ..errors import SMPError
from ..policies import RetentionPolicy
from ..privacy.deleting.selection import Selection, delete
from ..records import SESSION_KINDS, type_of
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..memory import Memory
    from ..questions.priorities import View
    from ..session import Session

DELETED_BY = "smp"
_TYPES = frozenset(kind.name for kind in SESSION_KINDS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Standing(NamedTuple):
    """A memory that may be too old."""

    session: str
    id: str
    type: str
    at: datetime
    is_pinned: bool = False


def plan(standings: Iterable[Standing], policy: RetentionPolicy, now: datetime) -> list[Action]:
    """One action for each type of each session that has something too old."""
    old: dict[tuple[str, str], list[str]] = {}
    for one in standings:
        days = policy.by_type_days.get(one.type)
        if days is not None and one.type in _TYPES and not one.is_pinned and _age_days(one, now) > days:
            old.setdefault((one.session, one.type), []).append(one.id)
    return [
        Action(session, "delete_old", tuple(ids),
               f"older than {policy.by_type_days[type]:g} days, the retention of {type_of(type)}")
        for (session, type), ids in old.items()
    ]  # fmt: skip


def _age_days(one: Standing, now: datetime) -> float:
    return (now - one.at) / timedelta(days=1)


def retention(memory: Memory, *, dry_run: bool = False) -> Outcome:
    """One session after the other: what is wrong with one keeps no other."""
    whole = Outcome(dry_run=dry_run)
    for session in memory._sessions() if memory.options.retention.by_type_days else ():
        outcome = retain(session, dry_run=dry_run)
        whole.actions += outcome.actions
        whole.problems += outcome.problems
    return whole


def retain(session: Session, *, dry_run: bool = False) -> Outcome:
    """In one go: deleting makes the backup of a session anew each time."""
    policy = session.scope.options.retention
    if not policy.by_type_days:
        return Outcome(dry_run=dry_run)
    try:
        if dry_run:
            return Outcome(plan(_standings(session, policy), policy, session._now()), dry_run=True)
        with session.scope.undisturbed("deleting what is too old"):
            actions = plan(_standings(session, policy), policy, session._now())
            if ids := [memory_id for action in actions for memory_id in action.about]:
                reason = "; ".join(action.reason for action in actions)
                delete(memory_of(session), session.id, Selection(tuple(ids)), reason=reason, by=DELETED_BY, is_undisturbed=True)
    except SMPError as error:
        return Outcome(problems=[f"{session.id}: nothing was deleted for its age: {error}"], dry_run=dry_run)
    return Outcome(actions)


def _standings(session: Session, policy: RetentionPolicy) -> list[Standing]:
    def question(view: View) -> list[Standing]:
        found: list[Standing] = []
        for type in policy.by_type_days:
            rows = view.index.connection.execute(
                "SELECT id, at, standing FROM memories"
                " WHERE scope = ? AND type = ? AND at IS NOT NULL ORDER BY at", (session.id, type),
            )  # fmt: skip
            found += [Standing(session.id, memory_id, type, _EPOCH + timedelta(microseconds=at), standing == PINNED)
                      for memory_id, at, standing in rows]  # fmt: skip
        return found

    return session._asker().ask(question)
