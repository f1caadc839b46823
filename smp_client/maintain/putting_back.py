"""Records that were taken out of a file, back into it: pure, for many at once, with one reading before and one after.

Each goes where its number says, with the bytes that it had. What comes out is read again and must hold exactly what stood there and
what was put back; where the style of the file has changed since, the records are rendered anew instead. A summary that stands for
some of them and stays says nothing of them any more: what is deleted later would still be told there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate
from typing import NamedTuple

from ..indexing import hash_of
from ..records import TURN, Kind, is_deleted
from ..text.document import Located, RecordList
from ..text.format import Format, format_of, plain
from ..text.values import BadYaml, Value, decode, load
from ..timestamps import parse_time
from .compaction import SUMMARIZES, SUMMARY, Item
from .summarising import Extractive, references, without

_BLANK_LINE = (b"\n\n", b"\n\r\n")


class Copy(NamedTuple):
    """A record that was taken out."""

    id: str
    hash: str  # see indexing.hash_of
    raw: bytes


class PutBack(NamedTuple):
    content: bytes
    conflicts: dict[str, str]  # why each that could not be put back was not, by its id


class _Edit(NamedTuple):
    start: int
    end: int
    number: int
    copy: Copy


def put_back(
    kind: Kind, content: bytes, copies: Sequence[Copy], evictions: Sequence[Sequence[Copy]] = (),
    behind: Mapping[str, str] | None = None, places: Mapping[str, int] | None = None,
) -> PutBack:  # fmt: skip
    """The file with these records in it; the file itself where they are there already.

    `evictions` is all that was taken out of it, the newest first: summaries stand for turns that follow each other there. `behind`
    says which record that stands there each comes behind, or nothing for the first; then the copies come in their order. Of some
    `places` says where exactly.
    """
    form = format_of(kind)
    as_it_was, content = content, plain(kind.file, content)
    found = form.parse(content)
    standing = by_id(found.records)
    conflicts: dict[str, str] = {}
    missing: list[Copy] = []
    for copy in copies:
        record = standing.get(copy.id)
        if record is None or stands_in(kind, record.value):
            missing.append(copy)
        elif hash_of(record.value) != copy.hash:
            conflicts[copy.id] = f"another {copy.id} stands in {kind.file} by now"
    if not missing:
        return PutBack(as_it_was, conflicts)
    if shorter := _shorter(kind, standing, {copy.id for copy in missing}, evictions):
        content = form.rewrite(content, shorter, 0)
        found = form.parse(content)
        standing = by_id(found.records)
    replaced = {copy.id: standing[copy.id] for copy in missing if copy.id in standing}
    for after in _attempts(kind, form, content, found, replaced, missing, behind, places or {}):
        if _is_whole(form, found, after, replaced, missing):
            return PutBack(after, conflicts)
    why = f"it cannot be put back into {kind.file} as that is now"
    return PutBack(as_it_was, {**conflicts, **{copy.id: why for copy in missing}})


def by_id(records: Iterable[Located]) -> dict[str, Located]:
    """Of a hand-made double only the last is meant."""
    return {str(record.value["id"]): record for record in records if record.has_id}


def stands_in(kind: Kind, value: Mapping[str, Value]) -> bool:
    """Whether it only stands in the place of a turn: as a summary, or as what a deleted one leaves."""
    return is_deleted(kind, value) or (kind is TURN and _summarized(value) is not None)


def _summarized(value: Mapping[str, Value]) -> dict[str, Value] | None:
    """What a summary says of the turns that it stands for; None for any other turn."""
    said = value.get(SUMMARIZES)
    return said if isinstance(said, dict) and value.get("type") == SUMMARY else None


def _shorter(
    kind: Kind, standing: Mapping[str, Located], back: set[str], evictions: Sequence[Sequence[Copy]]
) -> dict[str, dict[str, Value]]:
    """The summaries that stay, and stand for turns that come back: each with what it says of those that do not."""
    values = {memory_id: record.value for memory_id, record in standing.items() if kind is TURN and memory_id not in back}
    shorter = told_without(values, back, evictions)
    return {memory_id: value for memory_id, value in shorter.items() if value is not None}


def told_without(
    values: Mapping[str, dict[str, Value]], gone: set[str], evictions: Sequence[Sequence[Copy]]
) -> dict[str, dict[str, Value] | None]:
    """The summaries among these turns that stand for turns that go: each with what it says of the others; None with none left."""
    found: dict[str, dict[str, Value] | None] = {}
    for memory_id, value in values.items():
        said = _summarized(value)
        turns = _turns_of(said, evictions) if said is not None else []
        left = [turn for turn in turns if turn.id not in gone]
        if said is None or len(left) == len(turns):
            continue
        told = {**said, "first": left[0].id, "last": left[-1].id, "turns": len(left)} if left else {}
        found[memory_id] = {**value, **_told_of(value, gone, left), SUMMARIZES: told} if left else None
    return found


def _turns_of(said: Mapping[str, Value], evictions: Sequence[Sequence[Copy]]) -> Sequence[Copy]:
    """The copies of the turns that a summary stands for, as far as they are still out."""
    for turns in evictions:
        ids = [turn.id for turn in turns]
        if said.get("first") in ids:
            first = ids.index(str(said["first"]))
            if said.get("last") in ids[first:]:
                return turns[first : ids.index(str(said["last"]), first) + 1]
            # The last of them is back, from a time when no summary was told so: then their numbers say which.
            last = number_of(TURN, str(said.get("last"))) or 0
            return [turn for turn in turns[first:] if (number_of(TURN, turn.id) or 0) <= last]
    return []


def _told_of(value: Mapping[str, Value], back: set[str], left: Sequence[Copy]) -> dict[str, Value]:
    """What a summary says of the turns that are left. What a command wrote says of no sentence whose it is: then ours stands in."""
    known = [(turn, value_of(TURN, turn.raw)) for turn in left]
    turns = [_as_item(turn, said) for turn, said in known if said]
    refs: dict[str, Value] = {"memory_refs": list(references(turns))} if "memory_refs" in value else {}
    text = without(str(value.get("content", "")), back, [_as_item(turn, said or {}) for turn, said in known])
    if text is not None:
        return {"content": text, **refs}
    if not turns:
        return {"content": "What was said cannot be read any more."}
    return {"content": Extractive().summary(turns, sum(turn.bytes for turn in turns)), **refs}


def _as_item(turn: Copy, value: Mapping[str, Value]) -> Item:
    refs = value.get("memory_refs")
    at: datetime | None = None
    with suppress(ValueError):
        at = parse_time(str(value.get("timestamp")))
    return Item(turn.id, TURN.name, TURN.file, 0, len(turn.raw), turn.hash, 0.0, at, at, actor=str(value.get("speaker", "")),
                text=str(value.get("content", "")), refs=tuple(map(str, refs)) if isinstance(refs, list) else ())  # fmt: skip


def _attempts(
    kind: Kind, form: Format, content: bytes, found: RecordList, replaced: Mapping[str, Located], missing: Sequence[Copy],
    behind: Mapping[str, str] | None, places: Mapping[str, int],
) -> Iterator[bytes]:  # fmt: skip
    """The file with the records in it, the best way first."""
    if found.listed:
        yield _with(kind, content, found, replaced, missing, behind, places)
    values = {copy.id: value for copy in missing if (value := value_of(kind, copy.raw))}
    if len(values) < len(missing):
        return
    if found.listed:
        again = [copy._replace(raw=form.render(values[copy.id], found.indent)) for copy in missing]
        yield _with(kind, content, found, replaced, again, behind, places)
    if not replaced:
        yield form.insert(content, *values.values())


def _with(
    kind: Kind, content: bytes, found: RecordList, replaced: Mapping[str, Located], copies: Sequence[Copy],
    known: Mapping[str, str] | None, exact: Mapping[str, int],
) -> bytes:  # fmt: skip
    records = sorted((record for record in found.records if record.has_id), key=lambda record: record.start)
    starts = [record.start for record in records]
    highest = list(accumulate((number_of(kind, str(record.value["id"])) or 0 for record in records), max))
    ends = {copy.id: _end(content, replaced[copy.id], starts, copy.raw) for copy in copies if copy.id in replaced}
    places = {str(record.value["id"]): place for place, record in enumerate(records, 1)}
    edits: list[_Edit] = []
    for order, copy in enumerate(copies):
        number = number_of(kind, copy.id)
        if place := replaced.get(copy.id):
            edits.append(_Edit(place.start, ends[copy.id], number or 0, copy))
            continue
        if known is not None and ((nearest := known.get(copy.id, "?")) == "" or nearest in places):
            behind = places.get(nearest, 0)
            at = exact.get(copy.id, starts[behind] if behind < len(records) else len(content))
            edits.append(_Edit(at, at, order, copy))
            continue
        # Before the first record of a higher number; one whose id is of another form knows no place but the end.
        behind = bisect_right(highest, number) if number is not None else len(records)
        at = starts[behind] if behind < len(records) else len(content)
        if behind and _stood_for(kind, records[behind - 1].value, number or 0):
            # Right behind the first of the turns that it stood with, whatever a person has written behind them.
            at = ends.get(str(records[behind - 1].value["id"]), at)
        edits.append(_Edit(at, at, number or 0, copy))
    pieces: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: (edit.end, edit.number)):
        pieces.append(content[position : max(edit.start, position)])
        before = next((piece for piece in reversed(pieces) if piece), b"\n")
        pieces += [b"" if before.endswith(b"\n") else b"\n", edit.copy.raw]
        position = max(edit.end, position)
    rest = content[position:]
    return b"".join([*pieces, b"\n" if rest and not pieces[-1].endswith(b"\n") else b"", rest])


def _stood_for(kind: Kind, value: Mapping[str, Value], number: int) -> bool:
    """Whether it is a summary of this turn among others."""
    said = _summarized(value) if kind is TURN else None
    last = number_of(kind, str(said.get("last"))) if said is not None else None
    return last is not None and number <= last


def _end(content: bytes, place: Located, starts: Sequence[int], raw: bytes) -> int:
    """Where the bytes end that a turn takes the place of: with the blank lines behind them if it brings its own."""
    behind = bisect_right(starts, place.start)
    following = starts[behind] if behind < len(starts) else len(content)
    return following if raw.endswith(_BLANK_LINE) and content[place.end : following].isspace() else place.end


def number_of(kind: Kind, memory_id: str) -> int | None:
    prefix, _, number = memory_id.rpartition("-")
    return int(number) if prefix == kind.prefix and number.isdecimal() and len(number) < 16 else None


def value_of(kind: Kind, raw: bytes) -> dict[str, Value] | None:
    """What the bytes of one record say; None where they are not those of a record."""
    form = format_of(kind)
    try:
        if raw.startswith(b"{"):
            value = load(decode(raw))
            return value if isinstance(value, dict) else None
    except BadYaml:
        return None
    records = form.parse_tail(raw, 0, len(raw) - len(raw.lstrip(b" "))).records
    return records[0].value if len(records) == 1 else None


def _is_whole(form: Format, found: RecordList, after: bytes, replaced: Mapping[str, Located], missing: Sequence[Copy]) -> bool:
    """Whether it holds what stood there, but for what is replaced, and what is put back: each exactly once."""
    now = form.parse(after)
    gone = {record.start for record in replaced.values()}
    stay = (hash_of(record.value) for record in found.records if record.start not in gone)
    expected = Counter([*stay, *(copy.hash for copy in missing)])
    return Counter(hash_of(record.value) for record in now.records) == expected and len(now.bad) <= len(found.bad)
