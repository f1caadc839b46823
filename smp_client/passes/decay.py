"""The decay pass: files show each priority as of now, and every reading is counted exactly once.

The index knows each priority as of now, see questions/priorities.py. A record changes where its
file shows another one in two digits, or where it was read since the last pass. Only the `decay`
that the library wrote changes, all other bytes stay; a record without one is left as it is. The new
records and the cut of the access log are one change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..change.change import Change, Request, apply, replanned
from ..change.places import is_record_file
from ..disk import access
from ..disk.access import Access
from ..disk.session_files import METADATA
from ..model.errors import SMPError
from ..model.layout import ACCESS_LOG
from ..model.outcome import Action, Outcome
from ..model.priority import Policy, Rule
from ..model.record import TURN, Kind, kind_of_file
from ..model.times import render_time, time_at, time_of
from ..text.edits import FEW, Spans, located, spans
from ..text.fingerprint import hash_of_bytes
from ..text.mapping import load_mapping, replace_parts
from ..text.markdown import MARK as TURN_MARK
from ..text.values import BadYaml, Value, load, render_flow
from ..text.yaml_list import ONLY_COMMENTS

if TYPE_CHECKING:
    from ..ask.priorities import View
    from ..session import RecordFiles

_TYPE = "refresh_priorities"
_DIGITS = 2  # of a priority, in the files
_DAY = timedelta(days=1)
_MOST_ACCESSES = (1 << 31) - 1
_UNREAD: dict[str, Value] = {"priority": 0.0, "last_accessed": None, "access_count": 0,
                             "base_priority": TURN.base_priority}  # fmt: skip
_MARKED = re.compile(rb"( *)- id: [^\n]*# smp[ \t\r]*\n")
_FIELD_LINE = re.compile(rb"\*\*[^*:\n]{1,64}:\*\*[^\n]*\n")
_TURN_DECAY = b"**Decay:** "
# The library writes this block, so that of thousands none needs to be parsed and rendered.
_USUAL = re.compile(
    rb'(\{priority: )(\d(?:\.\d+)?)(, last_accessed: )("[^"\\]*")(, access_count: )(\d+)'
    rb"(, base_priority: [\d.]+\})"
)


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
    memories: Mapping[str, list[Known]]  # by file: those that may change
    records: Mapping[str, Mapping[str, bytes]]  # by file and id: their bytes
    ids: frozenset[str]  # of all memories
    metadata: tuple[Mapping[str, Any], bytes] = ({}, b"")  # as fields, and as bytes
    log: bytes = b""  # the whole lines of the access log
    parsed: Mapping[str, tuple[bytes, Spans]] = {}  # files that were parsed whole
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class DecayPlan:
    actions: list[Action] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    cut: dict[str, Any] | None = None  # of the access log
    problems: list[str] = field(default_factory=list)


def decay(session: RecordFiles, *, dry_run: bool = False) -> Outcome:
    """Write the priorities as of now, and the readings since the last pass, into the files."""
    if dry_run:
        planned = plan(_look(session))
        return Outcome(planned.actions, planned.problems, dry_run=True)
    return replanned(lambda: _pass(session))


def _pass(session: RecordFiles) -> Outcome:
    seen = _look(session)
    planned = plan(seen)
    steps = [planned.cut] if planned.cut else []
    request = Request(planned.changes, steps=steps, parsed=seen.parsed, doing="decaying")
    kept = apply(session.scope, request).kept
    notes = [f"{memory_id} was changed meanwhile, and stays as it is" for memory_id in kept]
    return Outcome(planned.actions, planned.problems, notes=notes)


def plan(seen: Seen) -> DecayPlan:
    """Return which memories change, and how; pure."""
    noted = access.parse(seen.log[-access.READ_CAP_BYTES :])
    made = DecayPlan(problems=list(seen.problems))
    taken = set[str]()
    for file, memories in seen.memories.items():
        changes, differing = _of_file(seen.records.get(file, {}), memories, noted)
        read = {change.id for change in changes if change.id in noted}
        taken |= read
        made.changes.extend(changes)
        if changes:
            made.actions.append(Action(seen.name, _TYPE, (file,), _reason(differing, len(read))))
    # An id that is nowhere may be in a file that cannot be read now: its readings wait.
    gone = set() if seen.problems else noted.keys() - seen.ids
    if gone:
        reason = f"{_some(len(gone), 'memory that was read is', 'memories that were read are')} gone"
        made.actions.append(Action(seen.name, _TYPE, (ACCESS_LOG,), reason))
    kept = {name: one for name, one in noted.items() if name not in taken | gone}
    cut = access.cut(seen.log, kept, seen.now) if taken or gone else None
    _plan_session(seen, made, is_read=bool(taken))
    return replace(made, cut=cut)


def _of_file(
    records: Mapping[str, bytes], memories: list[Known], noted: Mapping[str, Access]
) -> tuple[list[Change], int]:
    """Return the changes of one file, and how many priorities differ from those that it shows."""
    changes: list[Change] = []
    differing = 0
    for one in memories:
        file, raw = one.file, records.get(one.id, b"")
        kind = kind_of_file(file) if is_record_file(file) else None
        shown = _shown(kind, raw) if kind else _shown_by_state(raw, file)
        priority, reading = round(one.priority, _DIGITS), noted.get(one.id)
        if shown is None or (reading is None and (shown.priority == priority or not shown.block)):
            continue
        last, count = None, 0
        if reading is not None:
            last = render_time(max(reading.last, one.last or reading.last))
            count = min(one.accesses + reading.times, _MOST_ACCESSES)
        differing += shown.priority != priority
        if kind is None:
            block: Value = {**shown.value(), **_said(priority, last, count)}
            new = replace_parts(raw, "agent_state", {"decay": block}, file)
            changes.append(Change(file, one.id, hash_of_bytes(raw), new))
        else:
            new = raw[: shown.start] + shown.renewed(priority, last, count) + raw[shown.end :]
            changes.append(Change(file, one.id, one.hash, new))
    return changes, differing


def session_priority(metadata: Mapping[str, Any], policy: Policy, now: datetime) -> float | None:
    """Return how much the session itself still matters, by its own rate; None without a `decay`."""
    block = metadata.get("decay")
    created = time_of(metadata.get("created_at"))
    last = time_of(metadata.get("last_accessed")) or created
    if not isinstance(block, dict) or last is None:
        return None
    base, rate = _number(block.get("base_priority"), 1.0), _number(block.get("decay_rate"), 0.05)
    rules = {**policy.rules, "session": Rule(base, rate, 0.0)}
    age, idle = (now - (created or last)) / _DAY, (now - last) / _DAY
    own = replace(policy, rules=rules).for_session(metadata)
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


# The decay in the bytes of a record.


class Shown(NamedTuple):
    """The `decay` of a record, and where it stands; empty in a turn that nobody has read."""

    start: int
    end: int
    block: bytes
    priority: Value
    opening: bytes = b""  # before and behind a block that is not there yet
    closing: bytes = b""

    def value(self) -> dict[str, Value]:
        return _parsed(self.block) or {} if self.block else _UNREAD

    def renewed(self, priority: float, last: str | None, count: int) -> bytes:
        """Return the block with another priority and, where it was read, when and how often."""
        usual = _USUAL.fullmatch(self.block)
        if usual is None:
            block = render_flow({**self.value(), **_said(priority, last, count)}).encode()
            return self.opening + block + self.closing
        parts = list(usual.groups())
        parts[1] = render_flow(priority).encode()
        if last is not None:
            parts[3], parts[5] = f'"{last}"'.encode(), str(count).encode()
        return b"".join(parts)


def _said(priority: float, last: str | None, count: int) -> dict[str, Value]:
    read: dict[str, Value] = {} if last is None else {"last_accessed": last, "access_count": count}
    return {"priority": priority, **read}


def _shown(kind: Kind, raw: bytes) -> Shown | None:
    """Return the decay of a record that the library wrote: of a list, its last line."""
    if kind is TURN:
        return _shown_by_turn(raw)
    marked = _MARKED.match(raw)
    # A value of another field cannot have a line at this column.
    at = raw.rfind(b"\n" + marked[1] + b"  decay: {") if marked else -1
    if at < 0:
        return None
    start = raw.index(b"{", at)
    end = raw.find(b"\n", start)
    end = end if end >= 0 else len(raw)
    end -= raw[end - 1 : end] == b"\r"
    return _read(raw, start, end) if ONLY_COMMENTS.fullmatch(raw, end) else None


def _shown_by_turn(raw: bytes) -> Shown | None:
    if not raw.startswith(TURN_MARK[:-1]):
        return None
    at = raw.find(b"\n", raw.find(b"\n") + 1) + 1  # behind the mark and the heading
    line_end = b"\r\n" if raw[at - 2 : at] == b"\r\n" else b"\n"
    found: tuple[int, int] | None = None
    while line := _FIELD_LINE.match(raw, at):
        if line[0].startswith(_TURN_DECAY):
            found = at + len(_TURN_DECAY), line.end() - len(line_end)  # the last one counts
        at = line.end()
    if found:
        return _read(raw, *found)
    is_end = raw.startswith((b"\n", b"\r\n"), at)
    return Shown(at, at, b"", None, _TURN_DECAY, line_end) if is_end else None


def _shown_by_state(content: bytes, file: str) -> Shown | None:
    if not content or is_record_file(file) or file.startswith("artifacts/"):
        return None
    block = load_mapping(content, "agent_state", file).get("decay")
    if not isinstance(block, dict):
        return None
    return Shown(0, 0, render_flow(block).encode(), block.get("priority"))


def _read(raw: bytes, start: int, end: int) -> Shown | None:
    block = raw[start:end]
    if usual := _USUAL.fullmatch(block):
        return Shown(start, end, block, float(usual[2]))
    value = _parsed(block) if b" #" not in block else None
    return None if value is None else Shown(start, end, block, value.get("priority"))


def _parsed(block: bytes) -> dict[str, Value] | None:
    try:
        value = load(block.decode())
    except (BadYaml, UnicodeDecodeError):
        return None
    return value if isinstance(value, dict) else None


# The session as the plan needs it.


def _look(session: RecordFiles) -> Seen:
    """Ask the index, and read only the files in which something differs or was read."""
    scope = session.scope
    with scope.answering("planning to decay"):
        # Before the index, which then knows at least these readings.
        log = scope.read(ACCESS_LOG)
        log = log[: log.rfind(b"\n") + 1]
        noted = access.parse(log[-access.READ_CAP_BYTES :])
        now, policy, known, problems, metadata = session._own_asker().ask(_question)
        said = [f"{file} was left as it is: {why}" for file, why in problems.items() if why]
        differing = (one for one in known if one.differs or one.id in noted)
        changing = [one for one in differing if not problems.get(one.file)]
        memories = {file: list(group) for file, group in groupby(changing, key=attrgetter("file"))}
        records: dict[str, Mapping[str, bytes]] = {}
        parsed: dict[str, tuple[bytes, Spans]] = {}
        for file, wanted in memories.items():
            try:
                content = scope.read(file)
                if not is_record_file(file):
                    records[file] = {one.id: content for one in wanted}
                elif len(wanted) <= FEW:
                    found = located(kind_of_file(file), content, [one.id for one in wanted])
                    records[file] = {memory_id: span.raw for memory_id, span in found.items()}
                else:
                    parsed[file] = content, spans(kind_of_file(file), content)
                    records[file] = {span.id: span.raw for span in parsed[file][1].records}
            except SMPError as error:
                said.append(f"{file} was left as it is: {error}")
        about = metadata, scope.read(METADATA) if metadata else b""
    ids = frozenset(one.id for one in known)
    return Seen(scope.name, now, policy, memories, records, ids, about, log, parsed, tuple(said))


def _question(
    view: View,
) -> tuple[datetime, Policy, list[Known], dict[str, str | None], dict[str, Any]]:
    from ..ask.priorities import source
    from ..index.doubles import NAMED

    ask = view.index.connection.execute
    joined, columns = source(view)
    shown = "json_extract(m.data, '$.decay.priority')"
    last = "COALESCE(m.accessed, m.at)"
    asked = f"SELECT {last}, m.file, m.id, m.hash, m.accesses, {columns.priority}, {shown} {joined}"
    rows = ask(f"{asked} WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start", view.scopes)
    known = [Known(file, memory_id, hash, accesses, time_at(at), exact, said)
             for at, file, memory_id, hash, accesses, exact, said in rows]  # fmt: skip
    problems = dict(ask("SELECT file, problem FROM files WHERE scope = ?", view.scopes))
    session = ask("SELECT metadata FROM sessions WHERE scope = ?", view.scopes).fetchone()
    return view.now, view.policy, known, problems, json.loads(session[0]) if session else {}


def _reason(differing: int, read: int) -> str:
    shows = f"{_some(differing, 'priority differs', 'priorities differ')} from what the file shows"
    counted = f"{_some(read, 'was', 'were')} read since the last pass"
    return ", ".join([*([shows] if differing else []), *([counted] if read else [])])


def _some(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _number(value: Any, default: float) -> float:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    return float(value) if usable else default
