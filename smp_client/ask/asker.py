"""Answers questions about some sessions of a root: asks a true index, and notes the readings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..disk import access
from ..disk.policy import Published
from ..disk.scope import Options, Scope
from ..disk.scopes import session_of
from ..disk.session_files import RESTING
from ..index.archive import is_away
from ..index.fresh import Fresh, Question, Source
from ..index.validity import project_of
from ..model.priority import Policy
from ..model.ranking import Weights
from .argument import sayable
from .options import Answer, QueryOptions, Wanted, wanted
from .priorities import View, prepare

if TYPE_CHECKING:
    from ..index.database import Index

T = TypeVar("T")

_WOKEN_AT_ONCE = 8  # each costs a file that is made durable; the next pass sees the others


class Asker(NamedTuple):
    fresh: Fresh
    published: Published
    scopes: Sequence[str]
    scope: Callable[[str], Scope]
    options: Options
    wake: Callable[[Scope, str], object]

    def answer(
        self,
        question: Callable[[View, Wanted], Answer],
        options: QueryOptions,
    ) -> Answer:
        """Return the answer of a question."""
        now = self._now()
        want = wanted(now, self._policy()[0], options)
        read: dict[str, list[str]] = {}
        resting: list[str] = []

        def asked(view: View) -> Answer:
            found = question(_of_project(view, options.get("project")), want)
            read.clear()
            if want.count_access and self.options.count_access:
                for record in found:
                    # In a bundle nothing changes by being read.
                    if not is_away(record.marks):
                        read.setdefault(record.session, []).append(record.id)
            resting[:] = _resting(view, list(read)) if read else []
            return found

        found, source = self._ask(asked, now)
        found.source = source
        for session, ids in read.items():
            access.note(self.scope(session), ids, now)
        for session in resting[:_WOKEN_AT_ONCE]:
            self.wake(self.scope(session), "read")
        return found

    def ask(self, question: Callable[[View], T]) -> T:
        """Return the answer of a question that is no list of memories, and counts as no access."""
        return self._ask(question, self._now())[0]

    def _ask(self, question: Callable[[View], T], now: datetime) -> tuple[T, Source]:
        policy, weights = self._policy()

        def asked(index: Index) -> T:
            return question(View(index, tuple(self.scopes), now, policy, weights))

        def ready(index: Index) -> None:
            prepare(index, now, policy)

        return self.fresh.answer(Question(self.scopes, ready, asked))

    def _now(self) -> datetime:
        now = self.options.clock()
        return now if now.tzinfo else now.replace(tzinfo=UTC)

    def _policy(self) -> tuple[Policy, Weights]:
        if self.options.policy and self.options.weights:
            return self.options.policy, self.options.weights
        policy, weights = self.published.now()
        return self.options.policy or policy, self.options.weights or weights


def _of_project(view: View, project: str | None) -> View:
    """Return the view without the sessions of other projects, and what was evicted of them."""
    if project is None:
        return view
    asked = "SELECT scope FROM sessions WHERE project NOT IN ('', ?)"
    rows = view.index.connection.execute(asked, (project_of(sayable(project)),))
    others = {session_of(scope) for (scope,) in rows}
    return replace(
        view, scopes=tuple(scope for scope in view.scopes if session_of(scope) not in others)
    )


def _resting(view: View, sessions: Sequence[str]) -> list[str]:
    """Return those of the sessions that are idle or decaying, by the index."""
    asked = (
        "SELECT scope FROM sessions WHERE scope IN (SELECT value FROM json_each(?))"
        " AND status IN (?, ?)"
    )
    rows = view.index.connection.execute(asked, (json.dumps(sessions), *RESTING))
    return sorted(scope for (scope,) in rows)
