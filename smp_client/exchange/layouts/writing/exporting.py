"""Sessions as another layout, so that a program that was built for it reads them: `smp export --layout`.

The entries of an export are taken session by session; each is laid down (sessions.py), turned into entries of the layout
(entries.py) and written with what the layout keeps beside it (single.py, per_kind.py, checked.py).
What a layout has no place for is told, and what cannot be read is a problem. All of it appears under its name when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .... import audit
from ....errors import Invalid, NewerFormat, SMPError
from ....layout import GLOBAL
from ....maintain.archive import ARCHIVE, SUMMARY
from ....maintain.evictions import is_eviction
from ....text.version import is_versioned
from ....timestamps import render_time
from ...entries import ACTIVE, ARCHIVED, BESIDE, HEADER, Entry, content_of, kind_of, made
from ...pieces import take_values
from ...reading import Reading, Transform, Wanted
from ...transfer import Exported
from .. import checked, per_kind, single
from ..shaping import Values
from .checked import CheckedLayout
from .per_kind import PerKindLayout
from .sessions import Held, deleted
from .single import ENDING, SingleLayout
from .target import Target, folder_name

if TYPE_CHECKING:
    from ....memory import Memory

LAYOUTS = (single.LAYOUT, per_kind.LAYOUT, checked.LAYOUT)
_TIMES = {single.LAYOUT: "ts", checked.LAYOUT: "timestamp"}
_NOTHING: Callable[[], None] = lambda: None  # noqa: E731
_NAMED = 5
AnyLayout = SingleLayout | PerKindLayout | CheckedLayout


@dataclass
class LayoutExported(Exported):
    """What it came to; `left_out` says what the layout has no place for."""

    left_out: list[str] = field(default_factory=list)


def export_layout(
    memory: Memory, target: str | Path, sessions: Sequence[str] | None, *, layout: str, wanted: Wanted | None,
    transform: Transform | None, overwrite: bool, by: str, advance: Callable[[], None] | None,
) -> LayoutExported:  # fmt: skip
    if layout not in LAYOUTS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(LAYOUTS)}"])
    reading = Reading(memory, sessions, wanted=wanted, transform=transform)
    said = LayoutExported(reading.sessions, format=layout, problems=reading.problems)
    is_file = layout == single.LAYOUT and len(reading.sessions) == 1 and sessions is not None and str(target).endswith(ENDING)
    place = Target(target, is_file=is_file, overwrite=overwrite)
    try:
        with audit.noted(
            memory.tree, "export", clock=memory.options.clock, by=by, count=len(reading.sessions), layout=layout,
            session=reading.sessions[0] if len(reading.sessions) == 1 and not reading.with_global else None,
            selected=wanted is not None or None, changed=transform is not None or None,
            anonymized=getattr(transform, "anonymizes", None),
        ):  # fmt: skip
            # A selection must not name what it leaves out, and why something was deleted is not looked through for names.
            with_marks = wanted is None and transform is None
            _Writing(memory, place, layout, said, with_marks=with_marks).write(reading, advance or _NOTHING)
            place.finish()
    finally:
        place.discard()
    said.bytes = place.bytes
    return said


class _Writing:
    def __init__(self, memory: Memory, target: Target, layout: str, said: LayoutExported, *, with_marks: bool) -> None:
        self._memory, self._target, self._layout, self._said, self._with_marks = memory, target, layout, said, with_marks
        now = render_time(memory.options.clock())
        self._writer: AnyLayout
        if layout == single.LAYOUT:
            self._writer = SingleLayout(target)
        else:
            self._writer = PerKindLayout(target, now) if layout == per_kind.LAYOUT else CheckedLayout(target, now)
        self._taken: set[str] = set()
        self._everywhere = 0
        self._left_out: dict[str, list[str]] = {}  # by what it is: of which sessions

    def write(self, reading: Reading, advance: Callable[[], None]) -> None:
        told = (entry for entry in reading.entries(advance) if HEADER not in entry and entry["entry"] != "end")
        given = (entry for one in told for entry in self._read(one))
        for name, entries in groupby(given, key=_session_of):
            if name == GLOBAL:
                self._take_everywhere(entries)
            else:
                self._session(name, entries)
        self._writer.finish()
        self._said.entries = self._writer.entries
        self._tell()

    def _read(self, entry: Entry) -> Iterator[Entry]:
        """A file of records that travels as its bytes, as the records that can be read of it; whatever cannot be is told."""
        session, file = _session_of(entry), str(entry.get("path") or entry.get("file"))
        place = entry.get("place") if entry["entry"] == "bytes" else None
        kind = kind_of(session, file) if place in (ACTIVE, ARCHIVED) else None
        unreadable = entry.get("bad") or 0
        if kind is not None:
            try:
                pieces = take_values(kind, content_of(entry))
            except NewerFormat as error:
                self._said.problems.append(f"{session}: nothing of {file} is in it: {error}")
                return
            unreadable = pieces.unreadable
            where = {name: value for name, value in entry.items() if name in ("session", "place")}
            yield from (made("memory", **where, file=file, type=kind.name, record=piece.record) for piece in pieces.records)
        elif (place in (ACTIVE, ARCHIVED) and is_versioned(file)) or (place == BESIDE and _is_packed(file)):
            self._said.problems.append(f"{session}: {file} cannot be read, or was written by a later SMP, and was left out.")
        else:
            yield entry
        if unreadable:
            records = "1 record that cannot be read was" if unreadable == 1 else f"{unreadable} records that cannot be read were"
            self._said.problems.append(f"{session}/{file}: {records} left out.")

    def _take_everywhere(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            if not isinstance(self._writer, SingleLayout):
                self._writer.shared.take(entry)
            if entry["entry"] == "memory" and not isinstance(self._writer, PerKindLayout):
                self._everywhere += 1

    def _session(self, name: str, entries: Iterator[Entry]) -> None:
        with self._target.spool() as spool:
            held = Held(name, spool)
            for entry in entries:
                held.take(entry)
            if held.has_session or held.live:
                came_from = held.notes.get("layout") == self._layout
                folder = folder_name(held.notes.get("session_id") if came_from else None, name, self._taken)
                self._writer.session(held, folder, self._marks(held))
            if held.place == "archived" and self._layout != per_kind.LAYOUT:
                held.leave_out("the fact that it is archived")
        for what in held.left_out:
            self._left_out.setdefault(what, []).append(name)

    def _marks(self, held: Held) -> list[Values]:
        if not self._with_marks:
            return []
        gone = held.notes.get("tombstones")
        marks = [mark for mark in gone if isinstance(mark, dict)] if isinstance(gone, list) else []
        try:
            return deleted(self._memory, held, _TIMES.get(self._layout, "timestamp")) + marks
        except (SMPError, OSError) as error:
            self._said.problems.append(f"{held.name}: what was deleted could not be told: {error}")
            return marks

    def _tell(self) -> None:
        left_out = self._said.left_out
        if self._everywhere:
            many = f"{self._everywhere:,} memories that hold everywhere"
            left_out.append(many if self._everywhere > 1 else "1 memory that holds everywhere")
        if not isinstance(self._writer, SingleLayout):
            left_out += [f"{what} that holds everywhere" for what in self._writer.shared.left_out]
        for what, names in self._left_out.items():
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            left_out.append(f"{what}: {', '.join(names[:_NAMED])}{more}")


def _is_packed(file: str) -> bool:
    return file in (SUMMARY, ARCHIVE) or is_eviction(file)


def _session_of(entry: Entry) -> str:
    return str(entry.get("session", GLOBAL))
