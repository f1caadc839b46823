"""Changing records of one file: pure, for many at once.

A file is its head and its records; every byte belongs to the head or to exactly one record, whose
span is its lines up to the next record. Replacing, removing and inserting records are changes of
that list of spans, so every other byte stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..model.record import TURN, Kind
from .document import Bad, Located
from .fingerprint import hash_of, hash_of_bytes
from .format import format_of, plain
from .values import Value

FEW = 32  # records of a file that are found, and changed, without parsing the others


class Edit(NamedTuple):
    """The change of one record.

    `old` is the hash that it has now, or None where it comes in. `new` is its bytes, or None where
    it goes. One that comes in stands behind the record with the id `behind`, and first where that
    is None; where there is no such record it stands last. A turn stands where its number says.
    An edit without an id is of the line of the head that has this hash.
    """

    id: str
    old: str | None
    new: str | None
    behind: str | None = None


class Edited(NamedTuple):
    """A file after its edits, and the ids of the records that were somebody else's by then."""

    content: bytes
    kept: list[str]


class Span(NamedTuple):
    """A record, or bytes that cannot be read as one, with its lines up to the next."""

    id: str  # empty for bytes that are no record with an id
    value: dict[str, Value]
    raw: bytes
    behind: str | None  # the id of the record before it


class Spans(NamedTuple):
    """A file taken apart: its head and its records."""

    head: bytes
    records: list[Span]
    indent: int  # of the dashes that begin records


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
        records.append(Span(memory_id, value, content[item.start : item.end], behind))
        behind = memory_id or behind
    return Spans(content[: items[0].start] if items else content, records, found.indent)


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
        found[memory_id] = Span(memory_id, record.value, raw, behind)
    return found


def edited(
    kind: Kind, content: bytes, edits: Sequence[Edit], last: int, known: Spans | None = None
) -> Edited:
    """Return the file after these edits; an edit that was done before changes nothing.

    A record that is neither as it was nor as it is to become stays as it is, and is reported.
    `last` is the highest number ever given in this file, which a removal writes into its head.
    `known` is the file taken apart, where the caller has done that already.
    """
    content = plain(kind.file, content)
    is_few = len(edits) <= FEW and all(edit.old is not None and edit.id for edit in edits)
    if known is None and is_few:
        return _edited_few(kind, content, edits, last)
    head, records, indent = known or spans(kind, content)
    position = {span.id: number for number, span in enumerate(records) if span.id}
    pieces: list[Span | None] = [*records]
    arriving: list[tuple[Edit, bytes]] = []
    kept: list[str] = []
    for edit in edits:
        if not edit.id:
            lines = head.splitlines(keepends=True)
            new_line = (edit.new or "").encode()
            head = b"".join(new_line if hash_of_bytes(line) == edit.old else line for line in lines)
            continue
        new = None if edit.new is None else _indented(kind, edit.new.encode(), indent)
        at = position.get(edit.id)
        if at is None:
            if new is not None and edit.old is None:
                arriving.append((edit, new))
            elif new is not None:
                kept.append(edit.id)
        elif edit.old is not None and hash_of(records[at].value) == edit.old:
            pieces[at] = None if new is None else records[at]._replace(raw=_closed(new))
        elif new is None or records[at].raw.rstrip() != new.rstrip():
            kept.append(edit.id)
    left = [span for span in pieces if span is not None]
    body = _arranged(kind, left, arriving)
    if body and not records:
        form = format_of(kind)
        head += form.opening(form.parse(head), head) or b""
    after = b"".join([head, *body])
    if len(left) < len(records):
        after = format_of(kind).with_last(after, last)
    return Edited(after, kept)


def _edited_few(kind: Kind, content: bytes, edits: Sequence[Edit], last: int) -> Edited:
    """Return the file after edits of records that stand in it, without parsing the others."""
    kept: list[str] = []
    splices: list[tuple[int, int, bytes]] = []
    for edit in edits:
        record = format_of(kind).find(content, edit.id)
        if record is None:
            kept += [edit.id] if edit.new is not None else []  # somebody else removed it
            continue
        raw = content[record.start : record.end]
        new = b"" if edit.new is None else _indented(kind, edit.new.encode(), _indent(raw))
        if hash_of(record.value) == edit.old:
            splices.append((record.start, record.end, _closed(new) if new else b""))
        elif raw.rstrip() != new.rstrip():
            kept.append(edit.id)
    after = content
    for start, end, new in sorted(splices, reverse=True):
        after = after[:start] + new + after[end:]
    is_shorter = any(not new for _, _, new in splices)
    return Edited(format_of(kind).with_last(after, last) if is_shorter else after, kept)


def replaced(kind: Kind, span: Span, value: Mapping[str, Value]) -> bytes:
    """Return a span with other fields. Comments and blank lines below the record stay."""
    own = format_of(kind).own_end(span.raw, span.value)
    return format_of(kind).render(value, _indent(span.raw)).rstrip(b"\n") + b"\n" + span.raw[own:]


def value_of(kind: Kind, raw: bytes) -> dict[str, Value]:
    """Return the fields of one record from its bytes; none where they cannot be read."""
    found = format_of(kind).parse_tail(raw, 0, _indent(raw)).records
    return found[0].value if found else {}


def _arranged(
    kind: Kind, pieces: Sequence[Span], arriving: Sequence[tuple[Edit, bytes]]
) -> list[bytes]:
    """Return the records in their order, each that arrives in its place."""
    if not arriving:
        return [span.raw for span in pieces]
    if kind is TURN:
        highest = 0
        keyed: list[tuple[int, int, bytes]] = []
        for place, span in enumerate(pieces):
            highest = max(highest, _number(span.id))  # an unnumbered piece stays where it is
            keyed.append((highest, place, span.raw))
        keyed += [(_number(edit.id), -1, raw) for edit, raw in arriving]
        turns = [raw for _, _, raw in sorted(keyed, key=lambda one: one[:2])]
        is_closed = (b"\n\n", b"\n\r\n")
        return [raw if raw.endswith(is_closed) else raw.rstrip(b"\n") + b"\n\n" for raw in turns]
    following: dict[str | None, list[tuple[str, bytes]]] = {}
    present = {span.id for span in pieces if span.id} | {edit.id for edit, _ in arriving}
    last: list[tuple[str, bytes]] = []
    for edit, raw in arriving:
        is_placed = edit.behind is None or (edit.behind in present and edit.behind != edit.id)
        (following.setdefault(edit.behind, []) if is_placed else last).append((edit.id, raw))
    order: list[bytes] = []
    for start, raw in [(None, b""), *((span.id, span.raw) for span in pieces)]:
        todo: list[tuple[str | None, bytes]] = [(start, raw)]
        while todo:
            memory_id, piece = todo.pop()
            order += [_closed(piece)] if piece else []
            todo += reversed(following.pop(memory_id, []) if memory_id != "" else [])
    # Records that stood behind each other, and whose first is nowhere, come last.
    last += [one for several in following.values() for one in several]
    return [*order, *(_closed(raw) for _, raw in last)]


def _indented(kind: Kind, raw: bytes, indent: int) -> bytes:
    """Return the bytes of a record at the indentation of its file."""
    if kind is TURN or _indent(raw) == indent:
        return raw
    return format_of(kind).render(value_of(kind, raw), indent)


def _indent(raw: bytes) -> int:
    return len(raw) - len(raw.lstrip(b" "))


def _closed(raw: bytes) -> bytes:
    return raw if raw.endswith(b"\n") else raw + b"\n"


def _number(memory_id: str) -> int:
    number = memory_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
