"""Making a session smaller: look, plan, copy, and take out in one step.

What goes is made durable in `archived/{session}/`, and read back, before one intent in the journal says that it goes. So a crash
leaves all of it where it was, or none; and whatever somebody writes or edits meanwhile stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, NamedTuple

from .. import journal
from ..append import Tail, note_rewritten, settle
from ..errors import Invalid, LockTimeout, SMPError, StorageFailed, TransactionPending
from ..locks import Lock
from ..policies import CompactionPolicy
from ..quota import Size
from ..records import CONTENT_CAP_BYTES, TURN, kind_of_file
from ..session_files import METADATA
from ..splicing import Part, Splice, is_as_read, splice
from ..text.format import format_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value
from ..timestamps import render_time
from . import evictions
from .actions import Outcome
from .compaction import CompactionPlan, Run, plan
from .putting_back import by_id, stands_in
from .summarising import CommandFailed, Extractive, by_command
from .survey import EPOCH, look, look_further

if TYPE_CHECKING:
    from ..questions.priorities import View
    from ..session import Session

_DAY = timedelta(days=1)
_ATTEMPTS = 4  # against somebody who edits the files meanwhile
_NOTES_BYTES = 200  # by which the heads of the files, and the metadata, become longer at most
_BLANK_LINE = (b"\n\n", b"\n\r\n")


@dataclass
class CompactionResult(Outcome):
    """`success` says whether the target was reached; where not, `problems` says what is in the way."""

    target_bytes: int = 0
    before_bytes: int = 0
    after_bytes: int = 0
    reached: bool = False
    notes: list[str] = field(default_factory=list)  # what went another way than was asked for

    @property
    def bytes_freed(self) -> int:
        return self.before_bytes - self.after_bytes

    @property
    def success(self) -> bool:
        return self.reached


def trigger(size: Size, growth_bytes_per_day: float, policy: CompactionPolicy) -> tuple[float, str] | None:
    """By how many percent a session should become smaller now, and why; None where it need not."""
    if not policy.automatic or size.quota_bytes <= 0:
        return None
    used_pct = 100 * size.total_bytes / size.quota_bytes
    forced, gentle = (policy.forced_at_pct, policy.forced_reduction_pct), (policy.gentle_at_pct, policy.gentle_reduction_pct)
    for at_pct, reduction_pct in (forced, gentle):
        if used_pct >= at_pct:
            return reduction_pct, f"it holds {used_pct:.1f} % of its quota, which is {at_pct:g} % or more"
    left = size.quota_bytes - size.total_bytes
    if policy.predict_days > 0 and growth_bytes_per_day > 0 and left / growth_bytes_per_day <= policy.predict_days:
        days = left / growth_bytes_per_day
        return policy.gentle_reduction_pct, f"at the growth of the last day it would be full in {days:.1f} days"
    return None


def growth_bytes_per_day(session: Session) -> int:
    """How much was added within the last 24 hours."""

    def question(view: View) -> int:
        since_us = (view.now - _DAY - EPOCH) // timedelta(microseconds=1)
        asked = "SELECT COALESCE(SUM(end - start), 0) FROM memories WHERE scope = ? AND at >= ?"
        return int(view.index.connection.execute(asked, (session.id, since_us)).fetchone()[0])

    return session._asker().ask(question)


def estimate(session: Session) -> int:
    """How many bytes could be freed at most; nothing is done."""
    return _planned(session, policy_of(session), 1 << 62).made.bytes_freed


def policy_of(session: Session) -> CompactionPolicy:
    """With what the session's own metadata say."""
    try:
        metadata = session.metadata()
    except SMPError:
        # A slip in the metadata must not keep a full session from becoming smaller.
        metadata = {}
    return session.scope.options.compaction.for_session(metadata)


def compact(
    session: Session, *, reduction_pct: float | None = None, dry_run: bool = False, keep_going: Callable[[], None] = lambda: None
) -> CompactionResult:
    """Frees so many percent of the session's size, or as much as may go. `keep_going` may raise to end it between two steps."""
    policy = policy_of(session)
    share = policy.forced_reduction_pct if reduction_pct is None else reduction_pct
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 100:
        raise Invalid([f"a session can become smaller by more than 0 and at most 100 percent, not by {share!r}"])
    before = session.size().total_bytes
    target = math.ceil(before * share / 100)
    result = CompactionResult(dry_run=dry_run, target_bytes=target, before_bytes=before, after_bytes=before)
    if dry_run:
        made = replace(_planned(session, policy, target + _NOTES_BYTES).made, target_bytes=target)
        result.after_bytes -= made.bytes_freed
        return _told(result, made)
    spoken = _spoken(session, policy, target, result.notes) if policy.summarizer else _Spoken({}, 0)
    keep_going()
    with session.scope.undisturbed("compacting"):
        session.scope.require()
        evictions.settle_deletions(session)
        result.notes += evictions.drop_leftovers(session)
        done = _compact(session, policy, spoken, result, keep_going)
        _note_in_metadata(session, result)
    result.after_bytes = session.size().total_bytes
    return _told(result, done)


def _compact(
    session: Session, policy: CompactionPolicy, spoken: _Spoken, result: CompactionResult, keep_going: Callable[[], None]
) -> CompactionPlan:
    """Plans and applies, again where somebody edits a file between the two; gives back what was done."""
    for _ in range(_ATTEMPTS):
        planned = _planned(session, policy, result.target_bytes + _NOTES_BYTES + spoken.further_bytes)
        made = replace(planned.made.with_runs(spoken.over), target_bytes=result.target_bytes)
        keep_going()
        stayed = _apply(session, made, planned.files) if made.taken else set()
        if stayed is not None:
            result.notes += [f"{memory_id} was changed meanwhile, and stays" for memory_id in sorted(stayed)]
            if spoken.texts and any(run.summary and run.key not in spoken.texts for run in made.runs):
                result.notes.append("the conversation changed meanwhile: some turns have our own summary")
            return made
    result.problems.append(f"{session.id} was edited again and again while it was compacted: nothing was taken out")
    return CompactionPlan(session.id, result.target_bytes)


def _told(result: CompactionResult, done: CompactionPlan) -> CompactionResult:
    """With what was done, and what is in the way; what others wrote meanwhile does not count against it."""
    result.actions = done.actions()
    result.reached = not done.missing_bytes or result.bytes_freed >= result.target_bytes
    if not result.reached and not result.problems:
        result.problems += done.why_short(result.before_bytes, is_done=not result.dry_run)
    return result


class _Planned(NamedTuple):
    made: CompactionPlan
    files: Mapping[str, tuple[int, int]]  # size and checksum of the bytes that the places are right for


def _planned(session: Session, policy: CompactionPolicy, target_bytes: int) -> _Planned:
    seen = look(session)
    now = session._now()
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    extractive = Extractive()
    made = plan(seen.snapshot, policy, now, target_bytes, extractive)
    if made.missing_bytes:
        # Only now are the earlier states worth reading.
        seen = look_further(session, seen)
        made = plan(seen.snapshot, policy, now, target_bytes, extractive)
    return _Planned(made, seen.files)


# The summaries of a command, made before any lock is held.


class _Spoken(NamedTuple):
    texts: Mapping[tuple[tuple[str, str], ...], str]  # by the turns that they stand for
    further_bytes: int  # by which these are longer than ours

    def over(self, run: Run) -> Run:
        return run.with_text(self.texts[run.key]) if run.summary and run.key in self.texts else run


def _spoken(session: Session, policy: CompactionPolicy, target_bytes: int, notes: list[str]) -> _Spoken:
    texts: dict[tuple[tuple[str, str], ...], str] = {}
    further_bytes = 0
    for is_last in (False, True):
        made = _planned(session, policy, target_bytes + _NOTES_BYTES + further_bytes).made
        try:
            for run in made.runs:
                if run.summary and run.key not in texts:
                    texts[run.key] = _usable(run, by_command(policy.summarizer, run.turns, policy.summarizer_timeout_s))
        except CommandFailed as failure:
            notes.append(f"the summarizer {policy.summarizer[0]!r} was not used: {failure}")
            break
        missing = target_bytes + _NOTES_BYTES - made.with_runs(_Spoken(texts, 0).over).bytes_freed
        if is_last or missing <= 0 or made.missing_bytes:
            break
        # Longer summaries than ours free less: then more turns go, and are summarised with the others.
        further_bytes = 2 * missing
    return _Spoken(texts, further_bytes)


def _usable(run: Run, text: str) -> str:
    """The text, if a turn with it is smaller than the turns and reads back the same."""
    summary = run.with_text(text).summary
    records = format_of(TURN).parse(summary).records
    if len(text.encode()) > CONTENT_CAP_BYTES // 2 or len(summary) * 2 > run.bytes:
        raise CommandFailed("what it printed is longer than half of what was said")
    if len(records) != 1 or records[0].value.get("content") != text:
        raise CommandFailed("what it printed cannot be kept in a conversation")
    return text


# Taking out.


def _apply(session: Session, made: CompactionPlan, files: Mapping[str, tuple[int, int]]) -> set[str] | None:
    """Gives back the ids of what stays because it was changed in the last moment; None where nothing was done for that reason."""
    scope = session.scope
    wanted = sorted({one.item.file for one in made.taken})
    contents = {file: scope.read(file) for file in wanted}
    splices = {file: Splice(*files[file], _parts(made, file, contents[file])) for file in wanted}
    if not all(is_as_read(contents[file], splices[file]) for file in wanted):
        return None
    copies = [(one.item, contents[one.item.file][one.item.start : one.item.end], one.operation, one.reason) for one in made.taken]
    name = evictions.write(session, copies, f"compaction, to free {made.target_bytes:,} bytes")
    try:
        expected = _take_out(session, name, splices)
    except LockTimeout:
        evictions.drop(scope.tree, name)
        raise
    if expected is None:
        evictions.drop(scope.tree, name)
        return None
    return _drop_what_stayed(session, made, name, expected)


def _take_out(session: Session, name: str, splices: Mapping[str, Splice]) -> dict[str, bytes] | None:
    """What the files become; None where one of them was edited since it was looked at, and nothing is done."""
    scope = session.scope
    with scope.locked(splices, "compacting") as held:
        tails = {file: settle(scope, kind_of_file(file), held[file]) for file in splices}
        now = {file: scope.tree.read(scope.path(file)) for file in splices}
        if not all(is_as_read(now[file], change) for file, change in splices.items()):
            return None
        changes = {file: change._replace(last=tails[file].last) for file, change in splices.items()}
        expected = {file: splice(kind_of_file(file), now[file], change) for file, change in changes.items()}
        _carry_out(session, name, changes, expected, held, tails)
        return expected


def _parts(made: CompactionPlan, file: str, content: bytes) -> list[Part]:
    summaries = {run.turns[0].id: _fitting(run, content) for run in made.runs if run.summary} if file == TURN.file else {}
    items = [one.item for one in made.taken if one.item.file == file]
    return [Part(item.id, item.start, item.end, item.hash, summaries.get(item.id, "")) for item in items]


def _fitting(run: Run, content: bytes) -> str:
    """The summary without the blank line behind it, where the last turn had none either."""
    last = run.turns[-1]
    has_blank_line = content[last.start : last.end].endswith(_BLANK_LINE)
    return (run.summary if has_blank_line else run.summary.removesuffix(b"\n")).decode()


def _carry_out(
    session: Session, name: str, changes: Mapping[str, Splice], expected: Mapping[str, bytes], held: Mapping[str, Lock],
    tails: Mapping[str, Tail],
) -> None:  # fmt: skip
    scope = session.scope
    steps = [change.as_step(file) for file, change in changes.items()]
    try:
        intent = journal.record(scope, steps)
    except OSError as error:
        evictions.drop(scope.tree, name)
        raise StorageFailed(f"Could not record the compaction: {error}.", session_id=session.id) from error
    try:
        for step in steps:
            file = step["file"]
            journal.carry_out(scope, step)
            if scope.tree.stat(scope.path(file)).st_size == len(expected[file]):
                note_rewritten(held[file], tails[file], expected[file])
            else:
                held[file].note = {"last": tails[file].last}
        journal.forget(scope, intent)
    except OSError as error:
        raise TransactionPending(f"The compaction is recorded, but: {error}.", session_id=session.id) from error


def _drop_what_stayed(session: Session, made: CompactionPlan, name: str, expected: Mapping[str, bytes]) -> set[str]:
    """What was edited in the very moment of the exchange stays where it is, and its copy goes."""
    stayed: set[tuple[str, str]] = set()
    for file, content in expected.items():
        now = session.scope.read(file)
        if not now.startswith(content):
            kind = kind_of_file(file)
            standing = by_id(format_of(kind).parse(now).records)
            taken = [one.item.id for one in made.taken if one.item.file == file and one.item.id in standing]
            stayed |= {(file, memory_id) for memory_id in taken if not stands_in(kind, standing[memory_id].value)}
    if stayed:
        eviction = evictions.load(session.scope.tree, name)
        evictions.keep_only(session.scope.tree, eviction, lambda item: (item["file"], item["id"]) not in stayed)
    return {memory_id for _, memory_id in stayed}


# What says what there is.


def _note_in_metadata(session: Session, result: CompactionResult) -> None:
    scope = session.scope
    if not scope.tree.exists(scope.path(METADATA)):
        return
    others = scope.usage.total() - scope.tree.stat(scope.path(METADATA)).st_size
    quota, at = session.quota_bytes(), render_time(session._now())

    def noted(content: bytes) -> bytes:
        storage = load_mapping(content, "session", METADATA).get("storage")
        known = storage if isinstance(storage, dict) else {}
        after = content
        for _ in range(3):
            # The size of this file is part of what it says.
            total = others + len(after)
            said: dict[str, Value] = {"total_bytes": total, "utilization_pct": round(100 * total / quota, 1), "last_compaction": at}
            after = replace_parts(content, "session", {"storage": {**known, **said}}, METADATA)
        return after

    try:
        session._replace(METADATA, noted, "noting the compaction")
    except SMPError as error:
        # The session is smaller all the same.
        result.notes.append(f"the metadata do not say so: {error}")
