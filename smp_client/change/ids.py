"""Ids for records that somebody wrote into a file without one.

The daemon gives them, as it gives one to a drop. A record gets an id when it is written in block
style and its fields are valid, also under other names; it gets a timestamp where it has none. Every
other byte stays. A record that gets no id stays as it is, and `smp check` names it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..disk.append import note_tail, require_number, tail_of
from ..disk.rewrite import rewrite
from ..model.record import TURN, Kind
from ..model.synonyms import own_names, with_own_names
from ..model.times import render_time
from ..text.contents import check
from ..text.format import format_of

if TYPE_CHECKING:
    from ..session import RecordFiles

_DASH = re.compile(rb" *-( +)(?=[\w\"'])")


def give_ids(files: RecordFiles, kind: Kind) -> list[str]:
    """Give an id to each record of this kind that has none and can have one; return these ids."""
    scope, stamp = files.scope, render_time(files.scope.options.clock())
    if kind is TURN or not _numbered(kind, scope.read(kind.file), 0, stamp)[1]:
        return []
    given: list[str] = []
    with scope.locked([kind.file], f"giving ids to {kind.name}s") as held:
        tail = tail_of(scope, kind, held[kind.file])
        form = format_of(kind)

        def numbered(content: bytes) -> bytes:
            nonlocal tail
            # Somebody may have written another id by hand since the tail was looked at.
            last = max(tail.last, form.highest(form.parse(content), content))
            after, given[:] = _numbered(kind, content, last, stamp)
            require_number(scope, kind, last + len(given))
            tail = tail._replace(last=last + len(given))
            return after

        rewrite(scope, kind.file, numbered)
        note_tail(held[kind.file], tail, scope.tree.stat(scope.path(kind.file)), -1)
    return given


def _numbered(kind: Kind, content: bytes, last: int, stamp: str) -> tuple[bytes, list[str]]:
    """Return a file with ids from the number behind `last` on, and these ids."""
    pieces, at, given = list[bytes](), 0, list[str]()
    for record in format_of(kind).parse(content).records:
        raw, problems = content[record.start : record.end], list[str]()
        dash, value = _DASH.match(raw), with_own_names(kind, record.value)
        check(kind, value, problems)
        if "id" in record.value or problems or not dash:
            continue
        memory_id = kind.memory_id(last + len(given) + 1)
        wanted = {"timestamp": stamp, **value, "id": memory_id}
        column = b" " * dash.end()
        body = column + raw[dash.end() :]
        for other, own in own_names(kind, record.value).items():
            name = re.escape(other.encode())
            body = re.sub(rb"(?m)^(%b)%b(?=[ \t]*:)" % (column, name), rb"\1" + own.encode(), body)
        lines = [f"id: {memory_id}"] + ([] if "timestamp" in value else [f'timestamp: "{stamp}"'])
        new = dash[0] + (b"\n" + column).join([*map(str.encode, lines), body[len(column) :]])
        # It is read back before anything is written: an odd style is better left alone.
        again = format_of(kind).parse_tail(new, 0, len(raw) - len(raw.lstrip(b" "))).records
        if len(again) == 1 and again[0].value == wanted:
            pieces += [content[at : record.start], new]
            at = record.end
            given.append(memory_id)
    return b"".join([*pieces, content[at:]]), given
