"""The decay pass: makes the files show what the formula says now, and takes in what was read since the last pass.

The index knows each priority as of now, see priorities.py. A record is written anew where what it shows differs from that in the
two digits that are shown, or where it was read; only the line of its `decay` changes. A reading is counted exactly once, also over
a crash: the new lines of what was read, and the cut of the access log, are one recorded transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import access, journal
from ..access import Access
from ..append import note_rewritten, settle
from ..decay import Policy, Rule
from ..decay_lines import Change, Line, Shown, begins_as_read, changed, is_state, renewed, shown_by_state, shown_in, still_shown
from ..errors import CorruptionDetected, NewerFormat, UnsafePath
from ..files import read_from, sync
from ..layout import ACCESS_LOG
from ..locks import Lock
from ..questions.doubles import NAMED
from ..questions.priorities import source
from ..questions.query import EPOCH
from ..records import kind_of_file
from ..rewrite import rewrite
from ..session_files import METADATA
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value
from ..timestamps import parse_time, render_time
from .actions import Action, Outcome

if TYPE_CHECKING:
    from ..questions.priorities import View
    from ..scope import Scope
    from ..session import RecordFiles

_TYPE = "refresh_priorities"
_DIGITS = 2  # of a priority, in the files
_DAY = timedelta(days=1)
_MOST_ACCESSES = (1 << 31) - 1
_SESSION_RATE = 0.05


# What the index says of a memory: its file, its id, where it begins and ends, how often it was read, when it was last read or else
# made (in microseconds), and its priority as of now, with what was noted since. No class: there are many of them.
Known = tuple[str, str, int, int, int, int | None, float]


@dataclass(frozen=True)
class Refresh:
    """The lines of one file that are to be replaced, and which of them because they were read."""

    file: str
    change: Change
    read: frozenset[str]
    differing: int  # how many priorities are not as shown

    @property
    def reason(self) -> str:
        differ, read = (self.differing, "priority differs", "priorities differ"), (len(self.read), "was", "were")
        said = [f"{_some(*differ)} from what the file shows"] if self.differing else []
        said += [f"{_some(*read)} read since the last pass"] if self.read else []
        return ", ".join(said)


@dataclass(frozen=True)
class DecayPlan:
    session: str
    now: datetime
    actions: list[Action] = field(default_factory=list)
    files: list[Refresh] = field(default_factory=list)
    log: bytes = b""  # what was read of the access log
    noted: dict[str, Access] = field(default_factory=dict)  # what that says
    kept: dict[str, Access] = field(default_factory=dict)  # and what of it stays there
    priority: float | None = None  # of the session itself, where its metadata are to say another
    problems: list[str] = field(default_factory=list)

    @property
    def takes_in(self) -> bool:
        return self.noted.keys() != self.kept.keys()


def decay(session: RecordFiles, *, dry_run: bool = False) -> Outcome:
    found = plan(session)
    return Outcome(found.actions, found.problems, dry_run=True) if dry_run else apply(session, found)


def plan(session: RecordFiles) -> DecayPlan:
    """Takes no lock and writes nothing."""
    scope = session.scope
    with scope.answering("planning to decay"):
        scope.finish_transactions()
        # Before the index: whatever was read then is in the index too.
        log = _read_log(scope)
        noted = access.parse(log[-access.READ_CAP_BYTES :])
        state = session._asker().ask(_ask)
        shown = {file: _shown(scope, file, known, state.files[file]) for file, known in state.memories.items()}
    exists = {known[1] for found in state.memories.values() for known in found} if noted else set()
    stuck = {known[1] for file, found in state.memories.items() for known, one in zip(found, shown[file], strict=True)
             if one is None and known[1] in noted} if noted else set()  # fmt: skip
    problems = [f"{file} was left as it is: {problem}" for file, (_, _, problem) in state.files.items() if problem]
    # An id that is missing may be in a file that cannot be read now.
    kept = {name: one for name, one in noted.items() if name in stuck or (problems and name not in exists)}
    taken = {name: one for name, one in noted.items() if name not in kept}
    files: list[Refresh] = []
    for file, found in state.memories.items():
        if refreshed := refresh(file, found, shown[file], taken, state.files[file][:2]):
            files.append(refreshed)
    actions = [Action(scope.name, _TYPE, (one.file,), one.reason) for one in files]
    if gone := taken.keys() - exists:
        reason = f"{_some(len(gone), 'memory that was read is', 'memories that were read are')} gone"
        actions.append(Action(scope.name, _TYPE, (ACCESS_LOG,), reason))
    priority = session_priority(state.metadata, state.policy, state.now)
    if priority is not None and (before := state.metadata["decay"].get("current_priority")) != priority:
        reason = f"the session's priority is {priority}, not {before}"
        actions.append(Action(scope.name, _TYPE, (METADATA,), reason))
    elif not any(refreshed.read for refreshed in files):
        priority = None
    return DecayPlan(scope.name, state.now, actions, files, log, noted, kept, priority, problems)


def refresh(
    file: str, memories: Iterable[Known], shown: Iterable[Shown | None], taken: Mapping[str, Access], read: tuple[int, int]
) -> Refresh | None:
    """Decides which lines of a file are to be replaced, and by what; None where all is as it should be."""
    lines: list[Line] = []
    differing = 0
    for (_, memory_id, _, _, accesses, last, exact), now in zip(memories, shown, strict=True):
        if now is None:
            continue
        start, end, text, before, _, _, _ = now
        noted = taken.get(memory_id) if taken else None
        priority = round(exact, _DIGITS)
        if noted is not None:
            latest = max(noted.last, _time(last) or noted.last)
            new = renewed(now, priority, render_time(latest), min(accesses + noted.times, _MOST_ACCESSES))
        elif before == priority or not text:
            # A turn that nobody has read shows nothing, so that a conversation stays pleasant to read.
            continue
        else:
            new = renewed(now, priority)
        differing += before != priority
        lines.append(Line(memory_id, start, end, text, new))
    ids = taken.keys() & {line.id for line in lines} if taken else ()
    return Refresh(file, Change(*read, lines), frozenset(ids), differing) if lines else None


def session_priority(metadata: Mapping[str, Any], policy: Policy, now: datetime) -> float | None:
    """How much the session itself still matters, by the rate in its own metadata; None where these hold no such thing."""
    block = metadata.get("decay")
    last = _stamp(metadata.get("last_accessed")) or _stamp(metadata.get("created_at"))
    if not isinstance(block, dict) or last is None:
        return None
    base, rate = _number(block.get("base_priority"), 1.0), _number(block.get("decay_rate"), _SESSION_RATE)
    own = replace(policy, rules={**policy.rules, "session": Rule(base, rate, 0.0)}).for_session(metadata)
    age = now - (_stamp(metadata.get("created_at")) or last)
    return round(own.priority("session", base=None, age_days=age / _DAY, idle_days=(now - last) / _DAY, accesses=0), _DIGITS)


def apply(session: RecordFiles, planned: DecayPlan) -> Outcome:
    """What somebody has changed meanwhile stays as it is until the next pass."""
    outcome = Outcome(planned.actions, planned.problems)
    if not planned.actions:
        return outcome
    scope = session.scope
    files = [refreshed.file for refreshed in planned.files]
    files += [METADATA] if planned.priority is not None else []
    files += [ACCESS_LOG] if planned.takes_in else []
    with scope.undisturbed("decaying"), scope.locked(files, "decaying") as held:
        refreshes = [one for one in planned.files if scope.tree.exists(scope.path(one.file))]
        if planned.priority is not None:
            _write_priority(scope, planned.priority, planned.now)
        steps: list[dict[str, Any]] = []
        if planned.takes_in:
            refreshes, steps = _prepare(scope, planned, refreshes)
        intent = journal.record(scope, steps) if steps else None
        for one in refreshes:
            _write(scope, one, held[one.file])
        if intent is not None:
            journal.carry_out(scope, steps[-1])
            journal.forget(scope, intent)
    return outcome


def _prepare(scope: Scope, planned: DecayPlan, refreshes: list[Refresh]) -> tuple[list[Refresh], list[dict[str, Any]]]:
    """What can be done now, and the steps of the part of it that must happen once: those for what was read, then the cut."""
    if not _begins_with(scope, planned.log):
        # Somebody has replaced the log: what it says now is for the next pass.
        return [_without(one, one.read) for one in refreshes], []
    steps: list[dict[str, Any]] = []
    possible: list[Refresh] = []
    done: set[str] = set()
    for one in refreshes:
        content = scope.tree.read(scope.path(one.file))
        wanted = [line for line in one.change.lines if line.id in one.read]
        lines = wanted if begins_as_read(content, *one.change[:2]) else still_shown(one.file, content, wanted)
        done |= {line.id for line in lines}
        possible.append(_without(one, one.read - done))
        if lines:
            steps.append(one.change._replace(lines=[line for line in wanted if line.id in done]).as_step(one.file))
    left = {name for refreshed in planned.files for name in refreshed.read} - done
    kept = planned.kept | {name: planned.noted[name] for name in left}
    if kept.keys() == planned.noted.keys():
        return possible, []
    return possible, [*steps, access.cut(planned.log, kept, planned.now)]


def _without(refreshed: Refresh, ids: Collection[str]) -> Refresh:
    if not ids:
        return refreshed
    lines = [line for line in refreshed.change.lines if line.id not in ids]
    return replace(refreshed, change=refreshed.change._replace(lines=lines), read=refreshed.read.difference(ids))


def _write(scope: Scope, refreshed: Refresh, held: Lock) -> None:
    file = refreshed.file
    if not refreshed.change.lines:
        return
    if is_state(file):
        rewrite(scope, file, lambda content: changed(file, content, refreshed.change))
        return
    # What the next writer needs to know of the file: see append.py.
    tail = settle(scope, kind_of_file(file), held)
    note_rewritten(held, tail, rewrite(scope, file, lambda content: changed(file, content, refreshed.change)))


def _write_priority(scope: Scope, priority: float, now: datetime) -> None:
    def said(content: bytes) -> bytes:
        try:
            block = load_mapping(content, "session", METADATA).get("decay")
        except (CorruptionDetected, NewerFormat):
            return content
        if not isinstance(block, dict):
            return content
        new: Value = {**block, "current_priority": priority, "last_decay_update": render_time(now)}
        return replace_parts(content, "session", {"decay": new}, METADATA)

    if scope.tree.exists(scope.path(METADATA)):
        rewrite(scope, METADATA, said)


class _State(NamedTuple):
    now: datetime
    policy: Policy
    memories: dict[str, list[Known]]  # by file
    files: dict[str, tuple[int, int, str | None]]  # size, checksum and what is wrong with it
    metadata: dict[str, Any]


def _ask(view: View) -> _State:
    ask = view.index.connection.execute
    joined, columns = source(view)
    wanted = f"m.file, m.id, m.start, m.end, m.accesses, COALESCE(m.accessed, m.at), {columns.priority}"
    found = ask(f"SELECT {wanted} {joined} WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start", view.scopes).fetchall()
    memories = {file: list(rows) for file, rows in groupby(found, itemgetter(0))}
    files = ask("SELECT file, size, checksum, problem FROM files WHERE scope = ?", view.scopes)
    session = ask("SELECT metadata FROM sessions WHERE scope = ?", view.scopes).fetchone()
    metadata = json.loads(session[0]) if session else {}
    return _State(view.now, view.policy, memories, {file: tuple(about) for file, *about in files}, metadata)


def _shown(scope: Scope, file: str, memories: Sequence[Known], read: tuple[int, int, str | None]) -> list[Shown | None]:
    """For each memory of a file what it shows of its decay; None where that may not be replaced."""
    size, checksum, problem = read
    try:
        content = b"" if problem or file.startswith("artifacts/") else scope.tree.read(scope.path(file))
    except (FileNotFoundError, UnsafePath):
        content = b""
    if not content or not begins_as_read(content, size, checksum):
        return [None] * len(memories)
    if is_state(file):
        return [shown_by_state(content, file) for _ in memories]
    return list(shown_in(kind_of_file(file), content, ((start, end) for _, _, start, end, *_ in memories)))


def _read_log(scope: Scope) -> bytes:
    """Its whole lines: what comes after them is still being written."""
    try:
        content = scope.tree.read(scope.path(ACCESS_LOG))
    except (FileNotFoundError, UnsafePath):
        return b""
    return content[: content.rfind(b"\n") + 1]


def _begins_with(scope: Scope, log: bytes) -> bool:
    """Whether the log still begins so; makes it as durable as what is going to be said of it."""
    try:
        with scope.tree.opened(scope.path(ACCESS_LOG)) as descriptor:
            sync(descriptor)
            return read_from(descriptor, 0).startswith(log)
    except FileNotFoundError:
        return False


def _some(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _time(at: int | None) -> datetime | None:
    return None if at is None else EPOCH + timedelta(microseconds=at)


def _stamp(text: Any) -> datetime | None:
    try:
        return parse_time(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def _number(value: Any, default: float) -> float:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if usable else default
