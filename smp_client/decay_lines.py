"""The `decay` of a record in the bytes of its file: found, and replaced, with every other byte copied.

Only what the library wrote is touched: a marked record whose last line is its `decay`, a marked turn, an agent's state. A record in
a style of its own is left as it is.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import CorruptionDetected, NewerFormat
from .records import TURN, Kind, is_deleted, kind_of_file
from .text.document import Located
from .text.format import format_of
from .text.mapping import load_mapping, replace_parts
from .text.markdown import MARK as TURN_MARK
from .text.values import BadYaml, Value, load, render_flow
from .text.yaml_list import ONLY_COMMENTS

_FEW = 32  # so many records are looked for one by one
_STATE_KEY = "agent_state"
_MARKED, _DECAY, _TURN_DECAY = b" # smp", b"decay: {", b"**Decay:**"
_FIRST_LINE = re.compile(rb"( *)- id: [^\n]*# smp[ \t\r]*\n")
_FIELD_LINE = re.compile(rb"\*\*[^*:\n]{1,64}:\*\*[^\n]*\n")
_NUMBER = re.compile(rb"\d(?:\.\d+)?")
# What the library writes behind the priority.
_USUAL = re.compile(rb'(, last_accessed: )"[^"\\]*"(, access_count: )\d+(, base_priority: [\d.]+\}\r?\n?)')
_NOT_YET = -1.0
_new = tuple.__new__  # half as long as calling the class, where there are thousands
_UNREAD: dict[str, Value] = {"priority": 0.0, "last_accessed": None, "access_count": 0, "base_priority": TURN.base_priority}


class Shown(NamedTuple):
    """What a record shows of its decay, and where; the text is empty for a turn that nobody has read."""

    start: int
    end: int
    text: bytes
    priority: Value
    number_at: int = 0  # where in the text the priority stands, if that is clear at once
    number_end: int = 0
    line_end: bytes = b"\n"


class Line(NamedTuple):
    """Where a record shows its decay, what stands there, and what is to."""

    id: str
    start: int
    end: int
    old: bytes
    new: bytes


class Change(NamedTuple):
    """What is to become of a file. `size` and `checksum` are those of the bytes that the places are right for."""

    size: int
    checksum: int
    lines: list[Line]

    def as_step(self, file: str) -> dict[str, Any]:
        """For the journal."""
        lines = [[line.id, line.start, line.end, line.old.decode(), line.new.decode()] for line in self.lines]
        return {"file": file, "decay": lines, "of": [self.size, self.checksum]}


def from_step(step: Mapping[str, Any]) -> Change:
    size, checksum = step["of"]
    lines = [Line(name, start, end, old.encode(), new.encode()) for name, start, end, old, new in step["decay"]]
    return Change(size, checksum, lines)


def is_state(file: str) -> bool:
    return file.startswith("agent-states/")


def begins_as_read(content: bytes, size: int, checksum: int) -> bool:
    """Whether every record still stands where it stood when these were taken."""
    return len(content) >= size and zlib.crc32(memoryview(content)[:size]) == checksum


def shown_in(kind: Kind, content: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[Shown | None]:
    """For each record what it shows; None where it has a style of its own."""
    if kind is TURN:
        return (_shown_by_turn(content, start, end) for start, end in spans)
    return _shown_by_records(content, spans)


def shown_by_state(content: bytes, file: str) -> Shown | None:
    """The text is the whole block on one line, in whatever style it stands in the file."""
    try:
        decay = load_mapping(content, _STATE_KEY, file).get("decay")
    except (CorruptionDetected, NewerFormat):
        return None
    return Shown(0, len(content), render_flow(decay).encode(), decay.get("priority")) if isinstance(decay, dict) else None


def renewed(shown: Shown, priority: float, last_accessed: str | None = None, accesses: int = 0) -> bytes:
    """The line with another priority and, where a time is given, with when and how often it was read."""
    _, _, text, _, number_at, number_end, _ = shown
    if number_at and last_accessed is None:
        return text[:number_at] + _rendered(priority) + text[number_end:]
    if number_at and last_accessed is not None and (usual := _USUAL.fullmatch(text, number_end)):
        read = b'%s"%s"%s%d%s' % (usual[1], last_accessed.encode(), usual[2], accesses, usual[3])
        return text[:number_at] + _rendered(priority) + read
    return _render(shown, priority, last_accessed, accesses)


def changed(file: str, content: bytes, change: Change) -> bytes:
    """The file with its decay lines replaced; the file itself where that has been done before."""
    lines: Iterable[Line] = change.lines
    if not begins_as_read(content, change.size, change.checksum):
        lines = still_shown(file, content, change.lines)
    if is_state(file):
        for line in lines:
            content = replace_parts(content, _STATE_KEY, {"decay": load(line.new.decode())}, file)
        return content
    pieces: list[bytes] = []
    position = 0
    for line in lines:
        pieces += (content[position : line.start], line.new)
        position = line.end
    return b"".join([*pieces, content[position:]])


def still_shown(file: str, content: bytes, lines: Sequence[Line]) -> list[Line]:
    """Those of the lines that stand in the file as they did, each where it stands now, in the order of the file."""
    if is_state(file):
        now = shown_by_state(content, file)
        return [line for line in lines if now is not None and now.text == line.old]
    kind = kind_of_file(file)
    try:
        found = dict(_records(kind, content, [line.id for line in lines]))
    except (CorruptionDetected, NewerFormat):
        return []
    kept: list[Line] = []
    for line in lines:
        record = found.get(line.id)
        span = [(record.start, record.end)] if record and not is_deleted(kind, record.value) else []
        now = next(shown_in(kind, content, span), None)
        if now is not None and now.text == line.old:
            kept.append(line._replace(start=now.start, end=now.end))
    return sorted(kept, key=lambda line: line.start)


def _records(kind: Kind, content: bytes, ids: list[str]) -> Iterator[tuple[str, Located]]:
    """Of a hand-made double only the last is meant."""
    form = format_of(kind)
    if len(ids) > _FEW:
        yield from ((str(record.value["id"]), record) for record in form.parse(content).records if record.has_id)
        return
    for memory_id in ids:
        if record := form.find(content, memory_id):
            yield memory_id, record


def _shown_by_records(content: bytes, spans: Iterable[tuple[int, int]]) -> Iterator[Shown | None]:
    """Without a look at the record itself, of which there may be many: at its first line and its last only."""
    numbers: dict[bytes, float | None] = {}
    opening = expected = b""  # how the record before began, and how its last line did
    begin = 0
    for start, end in spans:
        at = content.rfind(b"\n", start, end - 1) + 1
        while at > start and ONLY_COMMENTS.fullmatch(content, at, end):
            # Comments and blank lines below a record belong to it.
            at, end = content.rfind(b"\n", start, at - 1) + 1, at
        marked = content.find(b"\n", start, at) - len(_MARKED)
        if not (content.startswith(opening, start) and opening and content.startswith(_MARKED, marked)):
            first = _FIRST_LINE.match(content, start, at)
            if first is None:
                yield None
                continue
            opening = first[1] + b"- id: "
            expected = first[1] + b"  " + _DECAY + b"priority: "
            begin = len(expected)
        text = content[at:end]
        if text.startswith(expected):
            until = text.find(b",", begin)
            number = numbers.get(text[begin:until], _NOT_YET)
            if number is _NOT_YET:
                number = numbers[text[begin:until]] = float(text[begin:until]) if _NUMBER.fullmatch(text, begin, until) else None
            # Nothing is open at its end, so it is no part of a value that spans lines.
            if number is not None and text.find(b"{", begin) < 0 and text.find(b"}") == len(text) - 2:
                yield _new(Shown, (at, end, text, number, begin, until, b"\n"))
                continue
        # A value of another field cannot have a line at this column.
        yield _read(at, end, text) if text.startswith(expected[: -len("priority: ")]) else None


def _shown_by_turn(content: bytes, start: int, end: int) -> Shown | None:
    if not content.startswith(TURN_MARK[:-1], start):
        return None
    heading = content.find(b"\n", start) + 1
    at = content.find(b"\n", heading) + 1
    line_end = b"\r\n" if content[at - 2 : at] == b"\r\n" else b"\n"
    found: tuple[int, int] | None = None
    while line := _FIELD_LINE.match(content, at, end):
        if line[0].startswith(_TURN_DECAY):
            found = line.span()  # the last one counts
        at = line.end()
    if found:
        return _read(*found, content[slice(*found)])
    return Shown(at, at, b"", None, line_end=line_end) if content.startswith((b"\n", b"\r\n"), at) else None


def _read(start: int, end: int, line: bytes) -> Shown | None:
    """What a line says; None where it is no decay that can be read by itself, or has a comment behind it."""
    decay = None if b" #" in line else _parse(line)
    line_end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
    return None if decay is None else Shown(start, end, line, decay.get("priority"), line_end=line_end)


@functools.lru_cache
def _rendered(priority: float) -> bytes:
    return render_flow(priority).encode()


def _parse(line: bytes) -> dict[str, Value] | None:
    try:
        said = load(line.removeprefix(_TURN_DECAY).decode())
    except (BadYaml, UnicodeDecodeError):
        return None
    if not line.startswith((_TURN_DECAY, b"{")):
        said = said.get("decay") if isinstance(said, dict) and len(said) == 1 else None
    return said if isinstance(said, dict) else None


def _render(shown: Shown, priority: float, last_accessed: str | None, accesses: int) -> bytes:
    """Every further key of the block stays, and so does the order."""
    text = shown.text
    known = _parse(text) if text else _UNREAD
    read: dict[str, Value] = {"last_accessed": last_accessed, "access_count": accesses} if last_accessed is not None else {}
    block = render_flow({**(known or {}), "priority": priority, **read}).encode()
    if text.startswith(b"{"):
        return block
    name = _TURN_DECAY if not text or text.startswith(_TURN_DECAY) else text[: text.index(_DECAY)] + b"decay:"
    return name + b" " + block + shown.line_end
