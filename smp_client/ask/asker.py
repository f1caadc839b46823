"""Answers questions about some sessions of a root: asks a true index, and notes the readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..disk import access, tally
from ..disk.place import session_of
from ..disk.policy import Options, published
from ..index.fresh import Answered, Fresh, Question
from ..index.unreadable import Unreadable, left_out, unreadable
from ..index.validity import is_away, project_of
from ..model.priority import Policy
from ..model.ranking import Weights
from ..model.record import GLOBAL_KINDS, SESSION_KINDS
from .argument import sayable
from .options import Answer, QueryOptions, Wanted, wanted
from .priorities import View, prepare
from .readings import take_in_readings
from .unknown import unknown_names

if TYPE_CHECKING:
    from ..disk.scope import Scope
    from ..index.database import Index
    from ..model.record import Record

T = TypeVar("T")
_KINDS = (*SESSION_KINDS, *GLOBAL_KINDS)


# Options that name something that nothing may have.
_NAMING = {"agents", "tags", "all_tags", "without_tags", "confidence", "project"}


class Asker(NamedTuple):
    fresh: Fresh
    scopes: Sequence[str]
    scope: Callable[[str], Scope]
    options: Options

    def answer(self, question: Callable[[View, Wanted], Answer], options: QueryOptions) -> Answer:
        """Return the answer of a question."""
        now = self.options.clock()
        want = wanted(now, self._policy()[0], options)
        project = options.get("project")
        types = options.get("types", ())
        names = [types] if isinstance(types, str) else types
        kinds = [kind for kind in _KINDS if {kind.name, kind.type} & {*names}]

        def asked(view: View) -> Answer:
            own = _of_project(view, project)
            answer = question(own, want)
            missing = left_out([one for one in unreadable(own.index, own.scopes) if concerns(one)])
            answer.add_notes([missing] if missing else [])
            if _NAMING & options.keys():
                answer.add_notes(unknown_names(view, options))
            return answer

        def concerns(file: Unreadable) -> bool:
            return not kinds or any(map(file.may_hold, kinds))

        found = self._ask(asked, now)
        found.answer.source = found.source
        found.answer.unread = found.unread
        return found.answer

    def noted(self, record: Record) -> Record:
        """Note that a memory is read, and return it."""
        self.note([record])
        return record

    def note(self, records: Iterable[Record]) -> None:
        """Note that memories are read, where that counts; in a bundle nothing changes by it.

        A session that rests is active again.
        """
        if not self.options.count_access:
            return
        ids: dict[str, list[str]] = {}
        for record in records:
            if not is_away(record.marks):
                ids.setdefault(record.session, []).append(record.id)
        if not ids:
            return
        from ..disk.wakeup import wake  # late: it loads all that writes, and a list is no reading

        now = self.options.clock()
        for session, read in ids.items():
            scope = self.scope(session)
            access.note(scope, list(dict.fromkeys(read)), now)
            wake(scope)

    def ask(self, question: Callable[[View], T]) -> T:
        """Return the answer of a question that is no list of memories."""
        return self._ask(question, self.options.clock()).answer

    def _ask(self, question: Callable[[View], T], now: datetime) -> Answered[T]:
        policy, weights = self._policy()

        def asked(index: Index) -> T:
            return question(View(index, self.scopes, now, policy, weights))

        def ready(index: Index) -> None:
            prepare(index, now, policy)
            take_in_readings(index, self.fresh.place.tree, self.scopes)

        with tally.timed(self.fresh.place.tree.path, tally.QUERY):
            return self.fresh.answer(Question(self.scopes, ready, asked))

    def _policy(self) -> tuple[Policy, Weights]:
        if self.options.policy and self.options.weights:
            return self.options.policy, self.options.weights
        said = published(self.fresh.place.tree)
        return self.options.policy or said.policy, self.options.weights or said.weights


def _of_project(view: View, project: str | None) -> View:
    """Return the view without the sessions of other projects, and what was evicted of them."""
    if project is None:
        return view
    asked = "SELECT scope FROM sessions WHERE project NOT IN ('', ?)"
    rows = view.index.execute(asked, (project_of(sayable(project)),))
    others = {session_of(scope) for (scope,) in rows}
    scopes = [scope for scope in view.scopes if session_of(scope) not in others]
    return View(view.index, scopes, view.now, view.policy, view.weights)
