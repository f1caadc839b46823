"""Answers questions about some sessions of a root: asks a true index, and notes the readings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from ..disk import access
from ..disk.policy import Published
from ..disk.scope import Options, Scope
from ..disk.scopes import is_archived, session_of
from ..disk.session_files import METADATA, RESTING
from ..index.archive import is_away
from ..index.fresh import Fresh, Question, Source
from ..index.validity import project_of
from ..model.errors import InvalidQuery
from ..model.priority import Policy
from ..model.ranking import Weights
from ..model.record import RELATIONSHIP
from .argument import sayable
from .options import Answer, QueryOptions, Wanted, wanted
from .priorities import View, prepare

if TYPE_CHECKING:
    from ..index.database import Index

T = TypeVar("T")

_WOKEN_AT_ONCE = 8  # each costs a file that is made durable


class Asker:
    def __init__(
        self, fresh: Fresh, readings: access.Readings, published: Published, scopes: Sequence[str],
        scope: Callable[[str], Scope], options: Options, wake: Callable[[Scope, str], object],
    ) -> None:  # fmt: skip
        self._fresh = fresh
        self._readings = readings
        self._published = published
        self._scopes = tuple(scopes)
        self._scope = scope
        self._options = options
        self._wake = wake

    def answer(
        self,
        question: Callable[[View, Wanted], Answer],
        options: QueryOptions,
        files: Sequence[str] | None = None,
    ) -> Answer:
        if unknown := sorted(set(options) - QueryOptions.__annotations__.keys()):
            known = ", ".join(QueryOptions.__annotations__)
            names = ", ".join(unknown)
            raise InvalidQuery(f"There is no option {names}; a question takes {known}.")
        now = self._now()
        want = wanted(now, self._policy()[0], options)
        if files is not None:
            # They may say how the session decays, and whether a memory still holds.
            files = [*files, METADATA, RELATIONSHIP.file]
        counts = want.count_access and self._options.count_access
        resting: list[str] = []

        def asked(view: View) -> Answer:
            found = question(_of_project(view, options.get("project")), want)
            resting[:] = _resting(view, found) if counts and found else []
            return found

        found, source = self._ask(asked, now, files)
        found.source = source
        if counts:
            self._note(found, now)
            self._wake_all(resting)
        return found

    def ask(self, question: Callable[[View], T]) -> T:
        """A question whose answer is no list of memories, and counts as no access."""
        return self._ask(question, self._now(), None)[0]

    def _ask(
        self, question: Callable[[View], T], now: datetime, files: Sequence[str] | None
    ) -> tuple[T, Source]:
        noted = {
            scope: self._readings.of(self._scope(scope))
            for scope in self._scopes
            if not is_archived(scope)
        }
        policy, weights = self._policy()

        def asked(index: Index) -> T:
            return question(View(index, self._scopes, now, policy, weights))

        def ready(index: Index) -> None:
            prepare(index, now, policy, noted)

        return self._fresh.answer(Question(self._scopes, files, ready, asked))

    def _now(self) -> datetime:
        now = self._options.clock()
        return now if now.tzinfo else now.replace(tzinfo=UTC)

    def _policy(self) -> tuple[Policy, Weights]:
        if self._options.policy and self._options.weights:
            return self._options.policy, self._options.weights
        policy, weights = self._published.now()
        return self._options.policy or policy, self._options.weights or weights

    def _note(self, found: Answer, now: datetime) -> None:
        by_session: dict[str, list[str]] = {}
        for record in found:
            # In a bundle nothing changes by being read.
            if not is_away(record.marks):
                by_session.setdefault(record.session, []).append(record.id)
        for session, ids in by_session.items():
            access.note(self._scope(session), ids, now)

    def _wake_all(self, resting: Sequence[str]) -> None:
        """Wake sessions that were read. Of many only some: the next pass sees the others."""
        for session in resting[:_WOKEN_AT_ONCE]:
            self._wake(self._scope(session), "read")


def _of_project(view: View, project: str | None) -> View:
    """Return the view without the sessions of other projects, and what was evicted of them."""
    if project is None:
        return view
    asked = "SELECT scope FROM sessions WHERE project NOT IN ('', ?)"
    rows = view.index.connection.execute(asked, (project_of(sayable(project)),))
    others = {session_of(scope) for (scope,) in rows}
    scopes = tuple(scope for scope in view.scopes if session_of(scope) not in others)
    return replace(view, scopes=scopes)


def _resting(view: View, found: Answer) -> list[str]:
    """Return the sessions of these memories that are idle or decaying, by the index."""
    ask = view.index.connection.execute
    asked = "SELECT 1 FROM sessions WHERE scope = ? AND status IN (?, ?)"
    sessions = sorted({record.session for record in found if not is_away(record.marks)})
    return [session for session in sessions if ask(asked, (session, *RESTING)).fetchone()]
