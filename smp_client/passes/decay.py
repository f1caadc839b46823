"""The decay pass: files show each priority as of now, and how often each memory was read.

The index knows each priority as of now, with the readings in the access log, see ask/priorities.py.
A record changes where its file shows another priority in two digits, or where it was
read since the last pass. Only its line of `decay` changes; a record without one stays as it is, but
a turn gets one with its first reading. A state and the metadata are rendered whole. Then the
readings are cut from the access log.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ask.priorities import source
from ..change.change import Change, Request, apply, replanned
from ..disk import access
from ..disk.access import Access
from ..disk.place import STATES
from ..disk.session_files import METADATA
from ..index.database import NAMED
from ..model.errors import Conflict, SMPError
from ..model.outcome import Action, Outcome
from ..model.priority import Policy, Rule
from ..model.record import TURN, kind_of_file
from ..model.times import render_time, time_at, time_of
from ..text.edits import Span, Spans, value_of
from ..text.format import format_of, is_plain
from ..text.mapping import load_mapping, replace_parts
from ..text.values import Value, hash_of_bytes, render_flow
from ..text.version import is_record_file

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
    start: int = 0
    end: int = 0
    data: str = ""  # its fields as JSON


@dataclass
class Seen:
    """A session at one moment, without the memories that stay as they are."""

    now: datetime
    policy: Policy
    memories: list[Known]  # by file
    noted: Mapping[str, Access]  # the readings in the log
    records: dict[tuple[str, str], Span] = field(default_factory=dict)  # by file and id
    parsed: dict[str, tuple[bytes, Spans]] = field(default_factory=dict)  # files taken apart
    files: dict[str, tuple[int, int]] = field(default_factory=dict)  # the size and checksum of each
    metadata: dict[str, Any] = field(default_factory=dict)
    head: bytes = b""  # the metadata as bytes
    problems: list[str] = field(default_factory=list)


def decay(session: RecordFiles, *, dry_run: bool = False) -> Outcome:
    """Write the priorities as of now, and the readings since the last pass, into the files."""
    scope = session.scope

    def attempt() -> Outcome:
        with scope.answering("planning to decay"):
            log = access.load(scope)
            seen = _look(session, access.parse(log))
        changes = plan(seen)
        outcome = Outcome(problems=seen.problems, dry_run=dry_run)
        for file, group in groupby(changes, key=lambda change: change.file):
            count = len([*group])
            differ = "priorities or readings differ" if count > 1 else "priority or reading differs"
            outcome.actions.append(Action(scope.name, _TYPE, (file,), f"{count:,} {differ}"))
        if not dry_run:
            request = Request(changes, parsed=seen.parsed, doing="decaying")
            kept = apply(scope, request)
            outcome.notes += [f"{name} was changed meanwhile, and stays as it is" for name in kept]
            if log:
                access.cut(scope, log)
        return outcome

    return replanned(attempt)


def plan(seen: Seen) -> list[Change]:
    """Return the changes of memories, by file, and of the session's own priority; pure."""
    changes: list[Change] = []
    for one in seen.memories:
        span = seen.records.get((one.file, one.id))
        new = _renewed(one, span, seen.noted.get(one.id)) if span is not None else None
        if span is not None and new is not None and new != span.raw:
            old = one.hash if is_record_file(one.file) else hash_of_bytes(span.raw)
            changes.append(Change(one.file, one.id, old, new))
    parts = _session_parts(seen)
    if parts and seen.head:
        new = replace_parts(seen.head, "session", parts, METADATA)
        changes.append(Change(METADATA, "metadata", hash_of_bytes(seen.head), new))
    return changes


def _session_parts(seen: Seen) -> dict[str, Value]:
    """Return the parts of the metadata that differ: the last reading, and the own priority."""
    parts: dict[str, Value] = {}
    times = [one.last for one in seen.noted.values() if one.last <= seen.now]
    known = time_of(seen.metadata.get("last_accessed"))
    if times and known is not None and max(times) > known:
        parts["last_accessed"] = render_time(max(times))
    priority = session_priority({**seen.metadata, **parts}, seen.policy, seen.now)
    shown: dict[str, Any] = seen.metadata.get("decay", {})
    if priority is not None and shown.get("current_priority") != priority:
        said: dict[str, Value] = {"current_priority": priority}
        said["last_decay_update"] = render_time(seen.now)
        parts["decay"] = {**shown, **said}
    return parts


def _renewed(one: Known, span: Span, reading: Access | None) -> bytes | None:
    """Return the bytes of a memory with its decay as of now; None where it cannot show it."""
    block = span.value.get("decay")
    if not isinstance(block, dict) or not block:
        return None
    said: dict[str, Value] = {**block, "priority": round(one.priority, _DIGITS)}
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
    pattern = re.compile(rb"(?m)^%b(\{[^#\r\n]*\})\r?$" % re.escape(start))
    lines, kind = [*pattern.finditer(raw, 0, end)], kind_of_file(one.file)
    if lines:
        new = raw[: lines[-1].start(1)] + flow + raw[lines[-1].end(1) :]
        # Behind the last line of a record of ours no text can be open.
        is_last = len(lines) == 1 and not raw[lines[0].end() :].strip()
        is_known = head is None and lines[0][1] == render_flow(block).encode()
        if is_last and is_known and format_of(kind).is_ours(raw, 0):
            return new
    elif head is not None and reading is not None and format_of(TURN).is_ours(raw, 0):
        new = raw[:end] + start + flow + head[0] + raw[end:]  # a turn that was never read has none
    else:
        return None
    # In somebody's own style, such a line may belong to a text: only reading tells.
    return new if value_of(kind, new) == {**span.value, "decay": said} else None


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
    own = policy._replace(rules={**policy.rules, "session": Rule(base, rate, 0.0)})
    age, idle = (now - (created or last)) / _DAY, (now - last) / _DAY
    own = own.for_session(metadata)
    exact = own.priority("session", base=None, age_days=age, idle_days=idle, accesses=0)
    return round(exact, _DIGITS)


def _look(session: RecordFiles, noted: Mapping[str, Access]) -> Seen:
    """Ask the index, and read only the files in which something differs or was read.

    The index knows where each memory stands and its fields, so that no record is parsed.
    """
    scope, seen = session.scope, session._own_asker().ask(lambda view: _question(view, noted))
    for file, group in groupby(seen.memories, key=lambda one: one.file):
        try:
            content = scope.read(file)
            if file.startswith(f"{STATES}/"):
                value = load_mapping(content, "agent_state", file)
                found = [Span(one.id, value, content, None) for one in group]
            elif not is_record_file(file) or not is_plain(file, content):
                continue  # an artifact shows none, and another style waits for its next write
            else:
                size, checksum = seen.files[file]
                if zlib.crc32(memoryview(content)[:size]) != checksum:
                    raise Conflict(f"{file} is being changed.", session_id=scope.name)
                read = ((one, json.loads(one.data), content[one.start : one.end]) for one in group)
                found = [Span(one.id, value, raw, None, one.start) for one, value, raw in read]
                seen.parsed[file] = content, Spans(b"", found, 0)
            seen.records |= {(file, span.id): span for span in found}
        except Conflict:
            raise  # it is planned again
        except SMPError as error:
            seen.problems.append(f"{file} was left as it is: {error}")
    if seen.metadata:
        seen.head = scope.read(METADATA)
        seen.metadata = load_mapping(seen.head, "session", METADATA)
    return seen


def _question(view: View, noted: Mapping[str, Access]) -> Seen:
    ask = view.index.execute
    session = ask("SELECT metadata FROM sessions WHERE scope = ?", view.scopes).fetchone()
    known = view.index.files(view.scopes[0])
    left = {file: one.problem for (_, file), one in known.items() if one.problem}
    metadata = json.loads(session[0]) if session else {}
    seen = Seen(view.now, view.policy, [], noted, metadata=metadata)
    seen.files = {file: (one.size, one.checksum) for (_, file), one in known.items()}
    seen.problems += [f"{file} was left as it is: {why}" for file, why in left.items()]
    joined, columns = source(view)
    asked = (
        "SELECT m.file, m.id, m.hash, m.accesses, COALESCE(m.accessed, m.at),"
        f" {columns.priority}, json_extract(m.data, '$.decay.priority'), m.start, m.end, m.data"
        f" {joined} WHERE m.scope = ? AND {NAMED} ORDER BY m.file, m.start"
    )
    for file, name, hash, accesses, at, priority, shown, *rest in ask(asked, view.scopes):
        # A turn that nobody has read shows nothing, so that a conversation reads well.
        is_hidden = shown is None or (file == TURN.file and not accesses)
        differs = not is_hidden and shown != round(priority, _DIGITS)
        if file not in left and (differs or name in noted):
            seen.memories.append(Known(file, name, hash, accesses, time_at(at), priority, *rest))
    return seen
