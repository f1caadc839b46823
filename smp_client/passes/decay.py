"""The decay pass: files show each priority as of now, and readings are counted.

The index knows each priority as of now, see ask/priorities.py. A record changes where its file
shows another one in two digits, or where it was read since the last pass. Only its line of `decay`
changes, all other bytes stay; a record without one is left as it is. The access log is cut behind
the change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..change.change import Change, Request, apply, replanned
from ..change.places import is_record_file
from ..disk import access
from ..disk.access import Access
from ..disk.scopes import STATES
from ..disk.session_files import METADATA
from ..model.errors import SMPError
from ..model.layout import ACCESS_LOG
from ..model.outcome import Action, Outcome
from ..model.priority import Policy, Rule
from ..model.record import TURN, kind_of_file
from ..model.times import render_time, time_at, time_of
from ..text.edits import FEW, Span, Spans, located, spans
from ..text.fingerprint import hash_of_bytes
from ..text.format import format_of
from ..text.mapping import load_mapping, replace_parts
from ..text.values import BadYaml, Value, load, render_flow

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import RecordFiles

_TYPE = "refresh_priorities"
_DIGITS = 2  # of a priority, in the files
_DAY = timedelta(days=1)
_MOST_ACCESSES = (1 << 31) - 1
_BLANK = re.compile(rb"(?m)^\r?\n")


class Known(NamedTuple):
    """A memory in the index."""

    file: str
    id: str
    hash: str
    accesses: int
    last: datetime | None  # when it was last read, else when it was made
    priority: float  # as of now, with the readings of the log
    shown: Value = None  # the priority in its file

    @property
    def differs(self) -> bool:
        # A turn that nobody has read shows nothing, so that a conversation reads well.
        is_hidden = self.shown is None or (self.file == TURN.file and not self.accesses)
        return not is_hidden and self.shown != round(self.priority, _DIGITS)


class Seen(NamedTuple):
    """A session at one moment."""

    name: str
    now: datetime
    policy: Policy
    memories: list[Known]  # those that may change, by file
    records: Mapping[tuple[str, str], Span]  # the same, by file and id
    ids: frozenset[str]  # of all memories
    metadata: tuple[Mapping[str, Any], bytes] = ({}, b"")  # as fields, and as bytes
    log: bytes = b""  # the whole lines of the access log
    parsed: Mapping[str, tuple[bytes, Spans]] = {}  # files that were parsed whole
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class DecayPlan:
    actions: list[Action] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    kept: dict[str, Access] | None = None  # the readings that stay in the log; None for all
    problems: list[str] = field(default_factory=list)


def decay(session: RecordFiles, *, dry_run: bool = False) -> Outcome:
    """Write the priorities as of now, and the readings since the last pass, into the files."""

    def attempt() -> Outcome:
        seen = _look(session)
        planned = plan(seen)
        outcome = Outcome(planned.actions, planned.problems, dry_run=dry_run)
        if not dry_run:
            request = Request(planned.changes, parsed=seen.parsed, doing="decaying")
            kept = apply(session.scope, request).kept
            outcome.notes += [f"{name} was changed meanwhile, and stays as it is" for name in kept]
            if planned.kept is not None:
                access.cut(session.scope, seen.log, planned.kept)
        return outcome

    return replanned(attempt)


def plan(seen: Seen) -> DecayPlan:
    """Return which memories change, and how; pure."""
    noted = access.parse(seen.log)
    made = DecayPlan(problems=list(seen.problems))
    taken = set[str]()
    for file, group in groupby(seen.memories, key=lambda one: one.file):
        differing, read, count = 0, 0, len(made.changes)
        for one in group:
            span, reading = seen.records.get((file, one.id)), noted.get(one.id)
            new = _renewed(one, span, reading) if span is not None else None
            if span is None or new is None:
                continue
            differing += _block(span).get("priority") != round(one.priority, _DIGITS)
            read += reading is not None
            taken |= {one.id} if reading else set()
            old = one.hash if is_record_file(file) else hash_of_bytes(span.raw)
            made.changes.append(Change(file, one.id, old, new))
        if len(made.changes) > count:
            made.actions.append(Action(seen.name, _TYPE, (file,), _reason(differing, read)))
    # An id that is nowhere may be in a file that cannot be read now: its readings wait.
    gone = set() if seen.problems else noted.keys() - seen.ids
    if gone:
        reason = (
            f"{_some(len(gone), 'memory that was read is', 'memories that were read are')} gone"
        )
        made.actions.append(Action(seen.name, _TYPE, (ACCESS_LOG,), reason))
    _plan_session(seen, made, is_read=bool(taken))
    if not taken and not gone:
        return made
    kept = {name: one for name, one in noted.items() if name not in taken | gone}
    return replace(made, kept=kept)


def _renewed(one: Known, span: Span, reading: Access | None) -> bytes | None:
    """Return the bytes of a memory with its decay as of now; None where it stays as it is."""
    block, priority = _block(span), round(one.priority, _DIGITS)
    if not block or (reading is None and block.get("priority") == priority):
        return None
    said: dict[str, Value] = {**block, "priority": priority}
    if reading is not None:
        said["last_accessed"] = render_time(max(reading.last, one.last or reading.last))
        said["access_count"] = min(one.accesses + reading.times, _MOST_ACCESSES)
    if not is_record_file(one.file):
        return replace_parts(span.raw, "agent_state", {"decay": said}, one.file)
    raw, flow = span.raw, render_flow(said).encode()
    start, end = b" " * (len(raw) - len(raw.lstrip(b" ")) + 2) + b"decay: ", len(raw)
    head = _BLANK.search(raw) if one.file == TURN.file else None
    if head is not None:
        start, end = b"**Decay:** ", head.start()  # among the fields
    line = re.compile(rb"(?m)^%b(\{[^\r\n]*\})\r?$" % re.escape(start)).search(raw, 0, end)
    # Most lines are as SMP renders them; any other is read.
    is_block = line is not None and (
        line[1] == render_flow(block).encode() or _parsed(line[1]) == block
    )
    if line is not None and is_block:
        return raw[: line.start(1)] + flow + raw[line.end(1) :]
    # A turn that was never read has none yet. A record in somebody's own style stays as it is.
    is_first = head is not None and line is None and reading is not None
    if head is not None and is_first and format_of(TURN).is_ours(raw, 0):
        return raw[:end] + start + flow + head[0] + raw[end:]
    return None


def _block(span: Span) -> dict[str, Value]:
    block = span.value.get("decay")
    return block if isinstance(block, dict) else {}


def _parsed(block: bytes) -> Value:
    try:
        return load(block.decode())
    except (BadYaml, UnicodeDecodeError):
        return None


def session_priority(metadata: Mapping[str, Any], policy: Policy, now: datetime) -> float | None:
    """Return how much the session itself still matters, by its own rate; None without a `decay`."""
    block = metadata.get("decay")
    created = time_of(metadata.get("created_at"))
    last = time_of(metadata.get("last_accessed")) or created
    if not isinstance(block, dict) or last is None:
        return None

    def share(name: str, default: float) -> float:
        value: Any = block.get(name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value <= 1 else default

    base, rate = share("base_priority", 1.0), share("decay_rate", 0.05)
    own = replace(policy, rules={**policy.rules, "session": Rule(base, rate, 0.0)})
    age, idle = (now - (created or last)) / _DAY, (now - last) / _DAY
    own = own.for_session(metadata)
    exact = own.priority("session", base=None, age_days=age, idle_days=idle, accesses=0)
    return round(exact, _DIGITS)


def _plan_session(seen: Seen, made: DecayPlan, *, is_read: bool) -> None:
    """Add the change of the session's own priority in its metadata."""
    metadata, content = seen.metadata
    priority = session_priority(metadata, seen.policy, seen.now)
    if priority is None or not content:
        return
    block = metadata["decay"]
    before = block.get("current_priority")
    if before != priority:
        reason = f"the session's priority is {priority}, not {before}"
        made.actions.append(Action(seen.name, _TYPE, (METADATA,), reason))
    elif not is_read:
        return
    said = {**block, "current_priority": priority, "last_decay_update": render_time(seen.now)}
    new = replace_parts(content, "session", {"decay": said}, METADATA)
    made.changes.append(Change(METADATA, "metadata", hash_of_bytes(content), new))


def _look(session: RecordFiles) -> Seen:
    """Ask the index, and read only the files in which something differs or was read."""
    scope = session.scope
    with scope.answering("planning to decay"):
        # Before the index, which then knows at least these readings.
        log = access.load(scope)
        noted = access.parse(log)
        now, policy, known, bad, metadata = session._own_asker().ask(_question)
        problems = [f"{file} was left as it is: {why}" for file, why in bad.items() if why]
        changing = [one for one in known
                    if (one.differs or one.id in noted) and not bad.get(one.file)]  # fmt: skip
        records: dict[tuple[str, str], Span] = {}
        parsed: dict[str, tuple[bytes, Spans]] = {}
        for file, group in groupby(changing, key=lambda one: one.file):
            ids = [one.id for one in group]
            try:
                content = scope.read(file)
                if file.startswith(f"{STATES}/"):
                    value = load_mapping(content, "agent_state", file)
                    found = [Span(ids[0], value, content, None)]
                elif not is_record_file(file):
                    continue  # an artifact shows none
                elif len(ids) <= FEW:
                    found = [*located(kind_of_file(file), content, ids).values()]
                else:
                    parsed[file] = content, spans(kind_of_file(file), content)
                    found = parsed[file][1].records
                records |= {(file, span.id): span for span in found}
            except SMPError as error:
                problems.append(f"{file} was left as it is: {error}")
        about = metadata, scope.read(METADATA) if metadata else b""
    ids_known = frozenset(one.id for one in known)
    seen = (scope.name, now, policy, changing, records, ids_known)
    return Seen(*seen, about, log, parsed, tuple(problems))


def _question(
    view: View,
) -> tuple[datetime, Policy, list[Known], dict[str, str | None], dict[str, Any]]:
    from ..ask.priorities import source
    from ..index.database import NAMED

    ask = view.index.connection.execute
    joined, columns = source(view)
    asked = (
        "SELECT m.file, m.id, m.hash, m.accesses, COALESCE(m.accessed, m.at),"
        f" {columns.priority}, json_extract(m.data, '$.decay.priority') {joined}"
        f" WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start"
    )
    rows = ask(asked, view.scopes)
    known = [Known(file, name, hash, accesses, time_at(at), priority, shown)
             for file, name, hash, accesses, at, priority, shown in rows]  # fmt: skip
    problems = dict(ask("SELECT file, problem FROM files WHERE scope = ?", view.scopes))
    session = ask("SELECT metadata FROM sessions WHERE scope = ?", view.scopes).fetchone()
    return view.now, view.policy, known, problems, json.loads(session[0]) if session else {}


def _reason(differing: int, read: int) -> str:
    shows = f"{_some(differing, 'priority differs', 'priorities differ')} from what the file shows"
    counted = f"{_some(read, 'was', 'were')} read since the last pass"
    return ", ".join([*([shows] if differing else []), *([counted] if read else [])])


def _some(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
