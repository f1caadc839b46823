"""Ids for records that somebody wrote into a file without one.

The daemon gives them, as it gives one to a drop. A record gets an id when it is written in block style
and its fields are valid, also under other names for them; it gets a timestamp where it has none. Every
other byte stays. What gets no id stays as it is, and `smp check` names it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..disk.append import note_rewritten, settle
from ..disk.rewrite import rewrite
from ..model.record import TURN, Kind
from ..model.synonyms import own_names, with_own_names
from ..model.times import render_time
from ..text.contents import check
from ..text.document import Located
from ..text.format import format_of
from ..text.values import Value

if TYPE_CHECKING:
    from ..session import RecordFiles

_DASH = re.compile(rb" *-( +)(?=[\w\"'])")


def give_ids(files: RecordFiles, kind: Kind) -> list[str]:
    """Give an id to each record of this kind that has none and can have one; return these ids."""
    if kind is TURN or not _lacking(kind, files.scope.read(kind.file)):
        return []
    scope, stamp = files.scope, render_time(files.scope.options.clock())
    given: list[str] = []
    with scope.locked([kind.file], f"giving ids to {kind.name}s") as held:
        tail = settle(scope, kind, held[kind.file])

        def numbered(content: bytes) -> bytes:
            lacking = _lacking(kind, content)
            given[:] = [kind.memory_id(tail.last + place) for place in range(1, len(lacking) + 1)]
            for record, memory_id in reversed([*zip(lacking, given, strict=True)]):
                raw = _with_id(kind, content[record.start : record.end], record.value, (memory_id, stamp))
                content = content[: record.start] + raw + content[record.end :]
            return content

        rewritten = rewrite(scope, kind.file, numbered)
        note_rewritten(held[kind.file], replace(tail, last=tail.last + len(given)), rewritten)
    return given


def _lacking(kind: Kind, content: bytes) -> list[Located]:
    """Return the records that have no id and can be given one, in their order."""
    found = format_of(kind).parse(content).records
    return [record for record in found if "id" not in record.value and _can_have_one(kind, content, record)]


def _can_have_one(kind: Kind, content: bytes, record: Located) -> bool:
    problems: list[str] = []
    check(kind, with_own_names(kind, record.value), problems)
    raw = content[record.start : record.end]
    if problems or not _DASH.match(raw):
        return False
    # The result is read back before anything is written: an odd style is better left alone.
    sample = _with_id(kind, raw, record.value, ("X-1", "2026-01-01T00:00:00Z"))
    again = format_of(kind).parse_tail(sample, 0, len(raw) - len(raw.lstrip(b" ")))
    wanted = with_own_names(kind, record.value)
    return len(again.records) == 1 and again.records[0].value == {
        "id": "X-1", "timestamp": "2026-01-01T00:00:00Z", **wanted
    }  # fmt: skip


def _with_id(kind: Kind, raw: bytes, value: dict[str, Value], new: tuple[str, str]) -> bytes:
    """Return the record's bytes with an id before its first key, and its fields under their own names."""
    memory_id, stamp = new
    dash = _DASH.match(raw)
    assert dash is not None
    column = b" " * dash.end()
    lines = [b"id: " + memory_id.encode()]
    if "timestamp" not in with_own_names(kind, value):
        lines.append(b'timestamp: "%b"' % stamp.encode())
    body = column + raw[dash.end() :]
    for other, own in own_names(kind, value).items():
        body = re.sub(rb"(?m)^(%b)%b(?=[ \t]*:)" % (column, re.escape(other.encode())), rb"\1" + own.encode(), body)
    return dash[0] + (b"\n" + column).join([*lines, body[len(column) :]])
