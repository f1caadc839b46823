"""Changing records of one file by splices of their spans, so that every other byte stays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..model.record import NUMBERS, TURN, Kind
from .document import Bad, Located
from .format import format_of, plain
from .values import Value, hash_of, hash_of_bytes

FEW = 32  # records of a file that are found, and changed, without parsing the others
_Splice = tuple[int, int, bytes]  # from, to, the bytes that come there


class Edit(NamedTuple):
    """The change of one record.

    `old` is the hash that it has now, or None where it comes in. `new` is its text, or its fields,
    or None where it goes. One that comes in stands behind the record with the id `behind`, and
    first where that is None; where there is no such record it stands last. A turn stands where its
    number says. An edit without an id is of the line of the head that has this hash.
    """

    id: str
    old: str | None
    new: str | Mapping[str, Value] | None
    behind: str | None = None


class Span(NamedTuple):
    """A record, or bytes that cannot be read as one, with its lines up to the next."""

    id: str  # empty for bytes that are no record with an id
    value: dict[str, Value]
    raw: bytes
    behind: str | None  # the id of the record before it
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.raw)


class Edited(NamedTuple):
    """A file after its edits."""

    content: bytes
    kept: list[str]  # the ids of records that somebody else changed, and that therefore stay
    before: dict[str, Span]  # by id, or by hash for a line of the head: as the edits found them


class Spans(NamedTuple):
    """A file taken apart: its head and its records."""

    head: bytes
    records: list[Span]
    indent: int  # of the dashes that begin records
    bad: Sequence[Bad] = ()  # bytes that cannot be read, also those in the head


def spans(kind: Kind, content: bytes) -> Spans:
    """Return the head and the records of a plain file. Joined, they are the file."""
    found = format_of(kind).parse(content)
    items = found.items() if found.listed else []
    starts = [item.start for item in items[1:]]
    while items and isinstance(items[0], Bad) and items[0].end != (starts or [len(content)])[0]:
        del items[0], starts[:1]  # it is in the head: the line that opens the list is behind it
    records: list[Span] = []
    behind: str | None = None
    for item in items:
        value = item.value if isinstance(item, Located) else {}
        memory_id = str(value["id"]) if isinstance(item, Located) and item.has_id else ""
        raw = content[item.start : item.end]
        records.append(Span(memory_id, value, raw, behind, item.start))
        behind = memory_id or behind
    head = content[: items[0].start] if items else content
    return Spans(head, records, found.indent, found.bad)


def located(kind: Kind, content: bytes, ids: Collection[str]) -> dict[str, Span]:
    """Return the records with these ids. A few are found without parsing the others."""
    if len(ids) > FEW:
        wanted = set(ids)
        return {span.id: span for span in spans(kind, content).records if span.id in wanted}
    found: dict[str, Span] = {}
    for memory_id in filter(None, ids):
        record = format_of(kind).find(content, memory_id)
        if record is None:
            continue
        raw, behind = content[record.start : record.end], None
        if kind is not TURN:
            before = content.rfind(b"\n" + b" " * _indent(raw) + b"- ", 0, record.start) + 1
            behind = value_of(kind, content[before : record.start]).get("id") if before else None
        behind = behind if isinstance(behind, str) else None
        found[memory_id] = Span(memory_id, record.value, raw, behind, record.start)
    return found


def edited(
    kind: Kind, content: bytes, edits: Sequence[Edit], last: int, known: Spans | None = None
) -> Edited:
    """Return the file after these edits; an edit that was done before changes nothing.

    A record that is neither as it was nor as it is to become stays as it is, and is reported.
    `last` is the highest number ever given in this file, which a removal writes into its head.
    `known` is the file taken apart, where the caller has done that already.
    """
    given, content = content, plain(kind.file, content)
    known = known if content == given else None
    is_few = len(edits) <= FEW and all(edit.old is not None and edit.id for edit in edits)
    if known is None and is_few:
        standing = located(kind, content, [edit.id for edit in edits])
        known = Spans(b"", [], 0)
    else:
        known = known or spans(kind, content)
        standing = {span.id: span for span in known.records if span.id}
    splices: list[_Splice] = []
    arriving: list[tuple[Edit, bytes]] = []
    kept: list[str] = []
    for edit in edits:
        if not edit.id:
            at = 0
            for line in known.head.splitlines(keepends=True):
                if edit.old == (digest := hash_of_bytes(line)):
                    standing[digest] = Span("", {}, line, None, at)
                    splices.append((at, at + len(line), str(edit.new or "").encode()))
                at += len(line)
            continue
        span = standing.get(edit.id)
        new = _rendered(kind, edit.new, span, known.indent)
        if span is None:
            if new and edit.old is None:
                arriving.append((edit, new))
            elif new:
                kept.append(edit.id)  # somebody else removed it
        elif edit.old is not None and hash_of(span.value) == edit.old:
            splices.append((span.start, span.end, _closed(new)))
        elif span.raw.rstrip() != new.rstrip():
            kept.append(edit.id)
    is_shorter = any(not new and start >= len(known.head) for start, _, new in splices)
    splices += _arrivals(kind, known, len(content), arriving) if arriving else []
    pieces: list[bytes] = []
    done = 0
    for start, end, new in sorted(splices, key=lambda splice: splice[:2]):
        pieces.append(content[done:start])
        is_open = pieces[-1] and not pieces[-1].endswith(b"\n")
        pieces += [b"\n", new] if new and is_open else [new]
        done = end
    after = b"".join([*pieces, content[done:]])
    after = format_of(kind).with_last(after, last) if is_shorter else after
    return Edited(after, kept, standing)


def _arrivals(
    kind: Kind, known: Spans, end: int, arriving: Sequence[tuple[Edit, bytes]]
) -> list[_Splice]:
    """Return each record that arrives with its place: behind its predecessor, or at the end."""
    head, records, *_ = known
    if kind is TURN:
        # A turn with an id of another form has no place among the numbers: it arrives last.
        highest = [*accumulate((TURN.number_of(span.id) or 0 for span in records), max)]
        starts = [*(span.start for span in records), end]
        numbered = [(_place(edit), raw) for edit, raw in arriving]
        splices = [
            (starts[bisect_right(highest, place)], raw.rstrip(b"\n") + b"\n\n")
            for place, raw in sorted(numbered, key=lambda one: one[0])
        ]
        return [(at, at, raw) for at, raw in splices]
    form = format_of(kind)
    opening = b"" if records else form.opening(form.parse(head), head) or b""
    placed: list[_Splice] = [(end, end, opening)] if opening else []
    places: dict[str | None, int] = {span.id: span.end for span in records if span.id}
    places[None] = len(head)
    for edit, raw in arriving:
        at = places[edit.id] = places.get(edit.behind, end)
        placed.append((at, at, _closed(raw)))
    return placed


def _rendered(
    kind: Kind, new: str | Mapping[str, Value] | None, span: Span | None, indent: int
) -> bytes:
    """Return the bytes of a record at the indentation of its file; none where it goes.

    With other fields, comments and blank lines below the record stay.
    """
    if new is None:
        return b""
    indent = indent if span is None else _indent(span.raw)
    if isinstance(new, str):
        raw = new.encode()
        if kind is TURN or _indent(raw) == indent:
            return raw
        value = value_of(kind, raw)
        return format_of(kind).render(value, indent) if value else raw
    rendered = format_of(kind).render(new, indent)
    if span is None:
        return rendered
    own = format_of(kind).own_end(span.raw, span.value)
    return rendered.rstrip(b"\n") + b"\n" + span.raw[own:]


def value_of(kind: Kind, raw: bytes) -> dict[str, Value]:
    """Return the fields of one record from its bytes; none where they cannot be read."""
    found = format_of(kind).parse_tail(raw, 0, _indent(raw)).records
    return found[0].value if found else {}


def _indent(raw: bytes) -> int:
    return len(raw) - len(raw.lstrip(b" "))


def _closed(raw: bytes) -> bytes:
    return raw if not raw or raw.endswith(b"\n") else raw + b"\n"


def _place(edit: Edit) -> int:
    """Return the place of a turn among the numbers of a conversation."""
    number = TURN.number_of(edit.id)
    return NUMBERS if number is None else number
