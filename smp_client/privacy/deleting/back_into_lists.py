"""Records that were deleted or anonymised, back into the file that they stood in: pure.

Each goes back to where it would stand if nothing else had been deleted. What comes out is read again, and must hold exactly what
stood there and what was put back.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...document import Located, RecordList
from ...editing import end_of
from ...errors import Conflict, CorruptionDetected
from ...formats import HEAD, Format, format_of, with_head
from ...indexing import hash_of
from ...records import Kind, is_deleted
from ...values import Value, canonical
from .standing import in_order, start_of_list
from .store import fingerprint

if TYPE_CHECKING:
    from ...scope import Scope

_Counts = Mapping[str, tuple[int, str | None]]  # by id, how many lines stood between it and which record, or the list's beginning
_COMMENT = re.compile(rb"[ \t]*(?:#[^\n]*)?\n")
_FEW = 4  # of one file, for which the place of each is looked for with care


@dataclass(frozen=True)
class Copied:
    """What is to be put back."""

    item: Mapping[str, Any]
    raw: bytes
    value: dict[str, Value]

    @property
    def id(self) -> str:
        return str(self.item["id"])


def into_list(
    scope: Scope, kind: Kind, content: bytes, copies: Sequence[Copied], items: Sequence[Mapping[str, Any]]
) -> bytes:  # fmt: skip
    form = format_of(kind)
    content = content or form.empty(scope.name, scope.options.clock(), [])
    content = _with_old_head(kind, content, [copy for copy in copies if copy.id == HEAD])
    content = _replaced(kind, content, [copy for copy in copies if "replaced_by" in copy.item and copy.id != HEAD])
    missing = [copy for copy in copies if "replaced_by" not in copy.item]
    if not missing:
        return content
    records = sorted((record for record in form.parse(content).records if record.has_id), key=lambda record: record.start)
    order = in_order([str(record.value["id"]) for record in records], items)
    place = {memory_id: number for number, memory_id in enumerate(order)}
    missing.sort(key=lambda copy: place[copy.id])
    counted = ((str(item["id"]), item.get("lines_before"), item.get("counted_from")) for item in items)
    counts = {memory_id: (lines, start) for memory_id, lines, start in counted if isinstance(lines, int)}
    if len(missing) > _FEW:
        return _with_many(kind, content, missing, order, counts)
    for copy in missing:
        content = _with_one(kind, content, copy, order[: place[copy.id]][::-1], counts)
    return content


def _with_old_head(kind: Kind, content: bytes, copies: Sequence[Copied]) -> bytes:
    """What stands before the first record; only anonymising ever changes that."""
    form = format_of(kind)
    for copy in copies:
        found = form.find(content, HEAD)
        if found is None or fingerprint(found.value) not in (copy.item.get("replaced_by"), copy.item.get("sha256")):
            raise _conflict(kind, "beginning")
        content = with_head(form, content, found, copy.raw)
    return content


def _replaced(kind: Kind, content: bytes, copies: Sequence[Copied]) -> bytes:
    """What was anonymised, as it was before; each stands where its place is."""
    if not copies:
        return content
    standing = {str(record.value["id"]): record for record in format_of(kind).parse(content).records if record.has_id}
    changes: list[tuple[Located, Copied]] = []
    for copy in copies:
        found = standing.get(copy.id)
        if found is not None and canonical(found.value) == canonical(copy.value):
            continue
        if found is None or fingerprint(found.value) != copy.item["replaced_by"]:
            raise _conflict(kind, copy.id)
        changes.append((found, copy))
    pieces: list[bytes] = []
    position = 0
    for found, copy in sorted(changes, key=lambda change: change[0].start):
        pieces += [content[position : found.start], copy.raw]
        position = found.end
    spliced = b"".join([*pieces, content[position:]])
    wanted = {**{memory_id: record.value for memory_id, record in standing.items()}, **{copy.id: copy.value for copy in copies}}
    now = format_of(kind).parse(spliced)
    if {str(record.value["id"]): canonical(record.value) for record in now.records if record.has_id} == {
        memory_id: canonical(value) for memory_id, value in wanted.items()}:  # fmt: skip
        return spliced
    return format_of(kind).rewrite(content, {copy.id: copy.value for _, copy in changes}, 0)


def _with_many(
    kind: Kind, content: bytes, copies: Sequence[Copied], order: Sequence[str], counts: _Counts
) -> bytes:  # fmt: skip
    """With one reading before and one after."""
    from ...maintain.putting_back import Copy, put_back

    coming, before, behind = {copy.id for copy in copies}, "", dict[str, str]()
    for one in order:
        behind[one] = before
        before = before if one in coming else one
    gaps, number = _Gaps(format_of(kind).parse(content), content, counts), {one: number for number, one in enumerate(order)}
    exact = {copy.id: gaps.place(copy.id, order[: number[copy.id]][::-1]) for copy in copies}
    places = {memory_id: at for memory_id, at in exact.items() if at is not None}
    done = put_back(kind, content, [Copy(copy.id, hash_of(copy.value), copy.raw) for copy in copies], behind=behind, places=places)
    for memory_id in done.conflicts:
        raise _conflict(kind, memory_id)
    return done.content


def _conflict(kind: Kind, memory_id: str) -> Conflict:
    return Conflict(f"Another {memory_id} stands in {kind.file} by now; the deleted one was left where it is.",
                    advice="Give the other one another id, then restore again.")  # fmt: skip


def _with_one(kind: Kind, content: bytes, copy: Copied, before: Sequence[str], counts: _Counts) -> bytes:
    form = format_of(kind)
    found = form.parse(content)
    same = [record for record in found.records if record.value.get("id") == copy.id]
    standing = [record for record in same if not is_deleted(kind, record.value)]
    if [canonical(record.value) for record in standing] == [canonical(copy.value)]:
        # A crash kept the record from being cleared.
        return content
    if standing:
        raise _conflict(kind, copy.id)
    place = same[-1] if same else None
    wanted = Counter([canonical(copy.value), *(canonical(record.value) for record in found.records if record is not place)])
    if (at := _Gaps(found, content, counts).place(copy.id, before)) is None:
        at = _place(before, found) if found.records else len(content)
    for after in _attempts(form, copy, content, found, place, at):
        now = form.parse(after)
        read = form.find(after, copy.id)
        is_whole = Counter(canonical(record.value) for record in now.records) == wanted and len(now.bad) <= len(found.bad)
        keeps_head = canonical({**now.head, **found.head}) == canonical(now.head)
        if is_whole and keeps_head and read and canonical(read.value) == canonical(copy.value):
            return after
    raise CorruptionDetected(f"{copy.id} cannot be put back into {kind.file} as it is now; nothing was changed.")


def _attempts(
    form: Format, copy: Copied, content: bytes, found: RecordList, place: Located | None, at: int
) -> Iterator[bytes]:  # fmt: skip
    """The file with the memory in it, the best way first; its style may have changed since, so none is sure to be right."""
    raw = copy.raw
    if place is not None:
        # What stands in the place of a turn.
        yield content[: place.start] + raw + content[place.end :]
        yield form.rewrite(content, {copy.id: copy.value}, 0)
        return
    before, rest = content[:at], content[at:]
    if found.flow and any(record.start == at for record in found.records):
        # With the comma that went with it, and one of the two blanks that it stood between.
        yield before.removesuffix(b" ") + raw + b", " + rest if before.endswith(b"  ") else before + raw + b"," + rest
    opening = b"" if not before or before.endswith(b"\n") else b"\n"
    if not rest:
        opening = form.opening(found, content) or opening
    yield before + opening + raw + (b"\n" if rest and not raw.endswith(b"\n") else b"") + rest
    yield form.insert(content, copy.value)


class _Gaps:
    """The comments and blank lines between the records of a list: among them each comes back to where it stood."""

    def __init__(self, found: RecordList, content: bytes, counts: _Counts) -> None:
        self._content, self._counts = content, counts
        self._records = sorted(found.records, key=lambda record: record.start)
        self._starts = [record.start for record in self._records]
        self._ends = {record.start: end_of(found, content, record) for record in self._records}
        self._known = {str(record.value.get("id", "")): record for record in self._records}
        self._beginning = None if found.null else start_of_list(found, content)

    def place(self, memory_id: str, before: Sequence[str]) -> int | None:
        """As many lines behind the record that it was behind as there were; None where that is not known."""
        base: str | None = memory_id
        lines, tried = 0, set[str]()
        while base is not None and base not in self._known:
            if base in tried or base not in self._counts:
                return None
            tried.add(base)
            # The lines before one that is deleted as well are still there.
            count, base = self._counts[base]
            lines += count
        if self._beginning is None:
            return None
        at = self._beginning if base is None else self._ends[self._known[base].start]
        last = next((self._known[one].start for one in before if one in self._known), -1)
        for start in self._starts[bisect_left(self._starts, at) : bisect_right(self._starts, last)]:  # what has come back between
            lines -= self._content.count(b"\n", at, start)
            at = self._ends[start]
        for _ in range(lines):
            line = _COMMENT.match(self._content, at)
            at = line.end() if line else at
        return at


def _place(before: Sequence[str], found: RecordList) -> int:
    """Behind the nearest of those that it was behind."""
    known = {str(record.value.get("id", "")): record for record in found.records}
    for one in before:
        if record := known.get(one):
            return min((other.start for other in found.records if other.start >= record.end), default=record.end)
    return min(record.start for record in found.records)
