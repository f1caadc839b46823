"""Putting a session right as far as that can be done without guessing; the rest is said, with what a person must do about it.

Nothing is thrown away: what cannot be read and stands in the way of the next record is set aside in `quarantine/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from .. import journal, rewrite
from ..append import settle
from ..check import Complaint, validate
from ..deletion import memory_of
from ..errors import SMPError
from ..files import is_left_alone
from ..layout import RETIRED, SESSION_DIRECTORIES, is_file_id
from ..records import Kind, state_history
from ..session_files import METADATA, new_metadata
from ..text.format import format_of
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..questions.priorities import View
    from ..session import Session

__all__ = ["repair", "validate"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class _Repair:
    """What is done, or would be, to one session."""

    session: Session
    outcome: Outcome
    cut_at: dict[str, int] = field(default_factory=dict)  # by file, the line from which on it is set aside

    @property
    def for_show(self) -> bool:
        return self.outcome.dry_run

    def note(self, type: str, about: str, reason: str) -> None:
        self.outcome.actions.append(Action(self.session.id, type, (about,), reason))

    def attempt(self, step: Callable[[_Repair], None]) -> None:
        """What cannot be done keeps nothing else from being done."""
        try:
            step(self)
        except (SMPError, OSError) as error:
            self.outcome.problems.append(f"{self.session.id}: {error}")


def repair(session: Session, *, dry_run: bool = False) -> Outcome:
    """Finishes what was cut off, sets aside what tears a file, makes what is missing; `problems` says what is left to a person."""
    work = _Repair(session, Outcome(dry_run=dry_run))
    with session.scope.undisturbed("repairing"):
        session.scope.require()  # one that was put away meanwhile must not come back, empty
        for step in (_finish_transactions, _finish_deletions, _fold_versions, _make_directories, _make_metadata, _mend_all):
            work.attempt(step)
    left = [complaint for complaint in validate(session) if not _is_dealt_with(work, complaint)]
    work.outcome.problems += [problem for problem in map(_sentence, left) if problem not in work.outcome.problems]
    return work.outcome


def _finish_transactions(work: _Repair) -> None:
    scope = work.session.scope
    for name in journal.pending(scope):
        reason = "a transaction that was recorded, and cut off before it was done"
        if not work.for_show:
            if not journal.load(scope, name):
                work.note("set_aside", name, "a recorded transaction that the disk has damaged; it is in quarantine/")
                continue
            journal.recover(scope, wait=True)
        work.note("finish_transaction", name, reason)


def _finish_deletions(work: _Repair) -> None:
    from ..privacy.deleting.reworking import is_cut_off, settle_memories

    session = work.session
    if is_cut_off(session.scope.tree, session.id):
        if not work.for_show:
            settle_memories(memory_of(session), session.id)
        work.note("finish_deletion", session.id, "a deletion or restoration that was cut off before it was finished")


def _fold_versions(work: _Repair) -> None:
    scope = work.session.scope
    for file in sorted({rewrite.file_of_slot(name) for name in _versions(work)}):
        before = _versions(work, file)
        if not work.for_show:
            with scope.locked([file], "folding in late writes", any_version=True):
                pass  # whoever takes the lock does it
        if work.for_show or _versions(work, file) != before:
            work.note("fold_versions", file, "an old version of it, into which somebody may have written after it was replaced")


def _versions(work: _Repair, file: str | None = None) -> list[str]:
    scope = work.session.scope
    found = [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+") and not rewrite.is_resting(name)]
    return [name for name in found if file is None or rewrite.file_of_slot(name) == file]


def _make_directories(work: _Repair) -> None:
    scope = work.session.scope
    for name in SESSION_DIRECTORIES:
        if not scope.tree.exists(scope.path(name)):
            if not work.for_show:
                scope.tree.make_directory(scope.path(name))
            work.note("make_directory", name, "it was missing")
        elif not scope.tree.is_directory(scope.path(name)):
            work.outcome.problems.append(f"{scope.name}: {name} is not a directory. Move it away, and repair again.")


def _make_metadata(work: _Repair) -> None:
    """Anew where there are none, or nothing in them: from what the memories tell. The session is in use from now on."""
    session = work.session
    if session.scope.read(METADATA).strip():
        return
    if not work.for_show:
        now = session._now()
        made = new_metadata(
            session.id, session._asker().ask(_first) or now, user=None, agents=[], quota_bytes=session.quota_bytes(),
            context={"tags": []}, last_accessed=now,
        )  # fmt: skip
        with session.scope.locked([METADATA], "making the metadata anew"):
            rewrite.rewrite(session.scope, METADATA, lambda content: content if content.strip() else made)
    work.note("make_metadata", METADATA, "it was missing or empty; the quota, the people and the context are not known any more")


def _first(view: View) -> datetime | None:
    (first,) = view.index.connection.execute("SELECT MIN(at) FROM memories WHERE scope = ?", view.scopes[:1]).fetchone()
    return None if first is None else _EPOCH + timedelta(microseconds=first)


def _mend_all(work: _Repair) -> None:
    for kind in work.session.kinds:
        work.attempt(partial(_mend, kind=kind))
    for agent in work.session.agent_states():
        if is_file_id(agent):
            work.attempt(partial(_mend, kind=state_history(agent)))


def _mend(work: _Repair, kind: Kind) -> None:
    """A record file that is missing is made; what a crash has cut off at its end is set aside."""
    scope = work.session.scope
    is_missing = not scope.tree.exists(scope.path(kind.file))
    if is_missing and "/" in kind.file:
        return  # the history of a state that was saved once
    line = None if is_missing else _torn_line(work, kind)
    if not is_missing and line is None:
        return
    if line is not None:
        work.cut_at[kind.file] = line
    if not work.for_show:
        with scope.locked([kind.file], f"repairing {kind.file}") as held:
            held[kind.file].note.pop("file", None)  # so that it is looked at, whatever the last writer knew of it
            settle(scope, kind, held[kind.file])
    if is_missing:
        work.note("make_file", kind.file, "it was missing")
    else:
        work.note("set_aside", kind.file, f"a record that was cut off while it was written, from line {line} on: into quarantine/")


def _torn_line(work: _Repair, kind: Kind) -> int | None:
    """Where a record begins that was cut off, and that nobody is still writing."""
    scope, form = work.session.scope, format_of(kind)
    content = scope.read(kind.file)
    torn = form.torn(form.parse(content), content)
    if torn is None:
        return None
    with scope.tree.opened(scope.path(kind.file)) as descriptor:
        if not (form.is_ours(content, torn) or is_left_alone(descriptor)):
            return None
    return content.count(b"\n", 0, torn) + 1


def _is_dealt_with(work: _Repair, complaint: Complaint) -> bool:
    """What was set aside is no problem of the session any more; nor, for show, is what would be set aside."""
    if complaint.scope != work.session.id:
        return complaint.file.startswith("quarantine/")
    return work.for_show and complaint.line is not None and complaint.line >= work.cut_at.get(complaint.file, complaint.line + 1)


def _sentence(complaint: Complaint) -> str:
    place = f"{complaint.scope}/{complaint.file}" + (f":{complaint.line}" if complaint.line else "")
    return f"{place}: {complaint.problem}. {complaint.advice}"
