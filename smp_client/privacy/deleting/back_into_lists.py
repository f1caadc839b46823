"""Records that were deleted or anonymised, back into the file that they stood in: pure.

Each goes back to where it would stand if nothing else had been deleted. What comes out is read again, and must hold exactly what
stood there and what was put back.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import Conflict, CorruptionDetected
from ...indexing import hash_of
from ...maintain.putting_back import Copy, put_back, value_of
from ...records import TURN, Kind, is_deleted
from ...text.document import Located, RecordList
from ...text.format import HEAD, Format, format_of, plain, with_head
from ...text.values import Value, canonical
from ...text.yaml_list import MARK
from .standing import in_order
from .store import fingerprint

if TYPE_CHECKING:
    from ...scope import Scope

_SIGN = re.compile(rb"(?<![^ \t\n])#[^\n]*[^\s]")
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
    content = plain(kind.file, content) or form.empty(scope.name, scope.options.clock(), [])
    content = _with_old_head(kind, content, [copy for copy in copies if copy.id == HEAD])
    content = _replaced(kind, content, [copy for copy in copies if "replaced_by" in copy.item and copy.id != HEAD])
    missing = [copy for copy in copies if "replaced_by" not in copy.item]
    if not missing:
        return content
    records = sorted((record for record in form.parse(content).records if record.has_id), key=lambda record: record.start)
    order = in_order([str(record.value["id"]) for record in records], items)
    place = {memory_id: number for number, memory_id in enumerate(order)}
    missing.sort(key=lambda copy: place[copy.id])
    if len(missing) > _FEW:
        return _with_many(kind, content, missing, order)
    for copy in missing:
        content = _with_one(kind, content, copy, order[: place[copy.id]][::-1])
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


def _with_many(kind: Kind, content: bytes, copies: Sequence[Copied], order: Sequence[str]) -> bytes:
    """With one reading before and one after."""
    coming, before, behind = {copy.id for copy in copies}, "", dict[str, str]()
    for one in order:
        behind[one] = before
        before = before if one in coming else one
    found, number = format_of(kind).parse(content), {one: number for number, one in enumerate(order)}
    for fit in zip(*(_fitting(kind, copy.raw, found, content) for copy in copies), strict=True):
        again = [Copy(copy.id, hash_of(copy.value), raw) for copy, raw in zip(copies, fit, strict=True)]
        done = put_back(kind, content, again, behind=behind)
        for memory_id in done.conflicts:
            if kind is TURN or found.find(memory_id):
                raise _conflict(kind, memory_id)
        if not done.conflicts and all(raw in done.content for raw in fit if _may_hold_comments(kind, raw)):
            return done.content
    if not done.conflicts and not any(_comments(kind, copy) for copy in copies):
        return done.content
    for copy in copies:
        # Rendered anew they would be without what a person wrote beside them.
        content = _with_one(kind, content, copy, order[: number[copy.id]][::-1])
    return content


def _conflict(kind: Kind, memory_id: str) -> Conflict:
    return Conflict(f"Another {memory_id} stands in {kind.file} by now; the deleted one was left where it is.",
                    advice="Give the other one another id, then restore again.")  # fmt: skip


def _with_one(kind: Kind, content: bytes, copy: Copied, before: Sequence[str]) -> bytes:
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
    at = _place(before, found) if found.records else len(content)
    for after in _attempts(kind, copy, content, found, place, at):
        now = form.parse(after)
        read = form.find(after, copy.id)
        is_whole = Counter(canonical(record.value) for record in now.records) == wanted and len(now.bad) <= len(found.bad)
        keeps_head = canonical({**now.head, **found.head}) == canonical(now.head)
        if is_whole and keeps_head and read and canonical(read.value) == canonical(copy.value):
            return after
    raise CorruptionDetected(f"{copy.id} cannot be put back into {kind.file} as it is now; nothing was changed.")


def _attempts(
    kind: Kind, copy: Copied, content: bytes, found: RecordList, place: Located | None, at: int
) -> Iterator[bytes]:  # fmt: skip
    """The file with the memory in it, the best way first; its style may have changed since, so none is sure to be right."""
    form, raw = format_of(kind), copy.raw
    if place is not None:
        # What stands in the place of a turn.
        yield content[: place.start] + raw + content[place.end :]
        yield form.rewrite(content, {copy.id: copy.value}, 0)
        return
    yield _with_lines(form, content, found, raw, at)
    if kind is not TURN:
        yield from (_with_lines(form, content, found, fit, there)
                    for there in _places(found, content, at) for fit in _fitting(kind, raw, found, content))  # fmt: skip
    anew = form.insert(content, copy.value)
    if (said := _comments(kind, copy)) and (record := form.find(anew, copy.id)):
        column = b" " * found.indent
        lines = b"".join(column + comment + b"\n" for comment in said)
        yield anew[: record.start] + lines + anew[record.start :]
    yield anew


def _with_lines(form: Format, content: bytes, found: RecordList, raw: bytes, at: int) -> bytes:
    """The file with these lines in it."""
    before, rest = content[:at], content[at:]
    opening = b"" if not before or before.endswith(b"\n") else _line_end(content)
    if not rest:
        opening = form.opening(found, content) or opening
    return before + opening + raw + (_line_end(content) if rest and not raw.endswith(b"\n") else b"") + rest


def _line_end(content: bytes) -> bytes:
    return b"\r\n" if content.count(b"\r\n") * 2 > content.count(b"\n") else b"\n"


def _fitting(kind: Kind, raw: bytes, found: RecordList, content: bytes) -> Iterator[bytes]:
    """The bytes of a record as they were, then with the indentation and the line ends that the list has now."""
    yield raw
    if kind is TURN:
        return
    column = len(raw) - len(raw.lstrip(b" "))
    if not raw.startswith(b"-", column):
        # It stood in a flow list.
        raw, column = b"- " + raw.replace(b"\n", b"\n  ") + b"\n", 0
    wider, end = found.indent - column, _line_end(content)
    if wider >= 0:
        raw = re.sub(rb"^(?=[^\r\n])", b" " * wider, raw, flags=re.MULTILINE)
    else:
        raw = re.sub(rb"^ {1,%d}" % -wider, b"", raw, flags=re.MULTILINE)
    yield re.sub(rb"\r?\n", lambda _: end, raw)


def _places(found: RecordList, content: bytes, at: int) -> Iterator[int]:
    """Where a record can go: to its place, to the end, before the last (which may lack its end)."""
    last = max(found.records, key=lambda record: record.start, default=None)
    yield from dict.fromkeys([at, len(content), last.start if last else at])


def _may_hold_comments(kind: Kind, raw: bytes) -> bool:
    return kind is not TURN and any(sign[0] != MARK.encode() for sign in _SIGN.finditer(raw))


def _comments(kind: Kind, copy: Copied) -> list[bytes]:
    """What a person wrote beside the fields of a record. Whether it is a comment, reading tells: then it says nothing there."""
    found: list[bytes] = []
    begin = 0
    while _may_hold_comments(kind, copy.raw) and (sign := _SIGN.search(copy.raw, begin)):
        without = copy.raw[: sign.start() + 1] + copy.raw[sign.end() :]
        is_comment = sign[0] == MARK.encode() or canonical(value_of(kind, without)) == canonical(copy.value)
        found += [sign[0]] if is_comment and sign[0] != MARK.encode() else []
        begin = sign.end() if is_comment else sign.start() + 1
    return found


def _place(before: Sequence[str], found: RecordList) -> int:
    """Behind the nearest of those that it was behind."""
    known = {str(record.value.get("id", "")): record for record in found.records}
    for one in before:
        if record := known.get(one):
            return min((other.start for other in found.records if other.start >= record.end), default=record.end)
    return min(record.start for record in found.records)
