"""Adding a record at the end of its file, at a cost that does not depend on the size of the file.

The last writer leaves a note in the lock file: the identity of the file, its indentation and the
highest number given. While the file is the one in the note, it is not read. Else it is parsed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import Invalid, StorageFailed
from ..model.layout import FORMAT_VERSION
from ..model.record import NUMBERS, Kind
from ..text.format import format_of, plain
from ..text.values import Value
from ..text.version import require_known, version_in
from .locks import Lock
from .quarantine import quarantine_bytes
from .rewrite import read_whole, rewrite
from .state_name import flat
from .tree import identity, is_left_alone, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope

Quota = Callable[[], int | None]  # how large the scope may become; None for no limit
_INDENT_CAP = 1000
_TRIES = 3  # at a file to which somebody writes without a lock
_TORN = "a record that was cut off while it was written"


class Tail(NamedTuple):
    """The end of a record file, ready for the next record."""

    size: int
    indent: int
    last: int  # the highest number ever given here
    opening: bytes = b""  # these bytes must stand before the next record
    is_noted: bool = False  # whether nobody has written since the last holder of the lock


class Note(NamedTuple):
    """The note of the last holder of a lock on the record file that it protects."""

    last: int  # the highest number ever given here
    series: str = ""  # another one wherever a note was lost, and numbers with it
    file: list[int] | None = None  # the identity of the file, where its end is known
    indent: int = 0

    @classmethod
    def parse(cls, said: Mapping[str, object]) -> Note | None:
        """Return a note as it was rendered. With one part out of range it is not a note of ours."""
        last = said.get("last")
        series = said.get("series", "")
        file = said.get("file")
        indent = said.get("indent", 0)
        if type(last) is not int or not 0 <= last < NUMBERS:
            return None
        if type(indent) is not int or not 0 <= indent < _INDENT_CAP:
            return None
        if not isinstance(series, str) or not (file is None or isinstance(file, list)):
            return None
        is_present = said.get("version") == FORMAT_VERSION
        return cls(last, series, file if is_present else None, indent)

    def render(self) -> dict[str, Value]:
        said: dict[str, Value] = {"last": self.last, "series": self.series}
        if self.file is not None:
            said |= {"version": FORMAT_VERSION, "file": [*self.file], "indent": self.indent}
        return said


class Reserved(NamedTuple):
    """Numbers that one transaction may give, and the series of notes that says so."""

    first: int
    last: int
    series: str

    def is_held_by(self, held: Lock) -> bool:
        """Return whether no note was lost since, and so nobody else was given these numbers."""
        note = Note.parse(held.note)
        return note is not None and note.series == self.series


def append(scope: Scope, kind: Kind, fields: Mapping[str, Value], quota: Quota) -> dict[str, Value]:
    """Give a record its id under the lock, make it durable, and return it with its id."""
    # Any version: `tail_of` checks that of a file whose end is not noted.
    with scope.locked([kind.file], f"adding a {kind.name}", any_version=True) as held:
        tail = tail_of(scope, kind, held[kind.file])
        return _add(scope, kind, held[kind.file], tail, [fields], quota)[0][0]


def append_many(
    scope: Scope, kind: Kind, given: Iterable[Mapping[str, Value]], size: int
) -> tuple[list[dict[str, Value]], int] | None:
    """Append records in one durable write; one without an id gets the next number.

    `size` is that of the file as the caller has read it, 0 for none. Return the records and the new
    size, or None where the file is another one by now: then the caller has to look again.
    """
    with scope.locked([kind.file], f"adding {kind.name}s") as held:
        is_new = not scope.tree.exists(scope.path(kind.file))
        tail = tail_of(scope, kind, held[kind.file])
        if size != (0 if is_new else tail.size):
            return None
        return _add(scope, kind, held[kind.file], tail, given, lambda: None)


def reserve(scope: Scope, kind: Kind, count: int) -> Reserved:
    """Reserve numbers for records that a transaction adds later."""
    with scope.locked([kind.file], f"numbering a {kind.name}") as held:
        lock = held[kind.file]
        last = tail_of(scope, kind, lock).last
        require_number(scope, kind, last + count)
        note = _noted(lock)._replace(last=last + count)
        lock.note = note.render()
        lock.save()
        return Reserved(last + 1, last + count, note.series)


def require_number(scope: Scope, kind: Kind, number: int) -> None:
    """Raise Invalid behind the last number, since a longer one is not counted."""
    if number >= NUMBERS:
        said = f"{kind.file} has no number left below {kind.memory_id(NUMBERS)}"
        lock_file = f".smp/locks/{scope.name}/{flat(kind.file)}.lock"
        mend = "give the record with the highest number an id of another form"
        advice = f"Nothing was written; {mend}, and remove {lock_file}."
        raise Invalid([said], advice=advice, session_id=scope.name)


def with_id(kind: Kind, number: int, fields: Mapping[str, Value]) -> dict[str, Value]:
    head: dict[str, Value] = {"id": kind.memory_id(number)}
    return {**head, **({"turn": number} if kind.prefix == "turn" else {}), **fields}


def tail_of(scope: Scope, kind: Kind, held: Lock) -> Tail:
    """Return the tail of a file. Make the file where there is none.

    A record that a crash cut off is quarantined first, and a file in another style rendered plain.
    """
    path = scope.path(kind.file)
    form = format_of(kind)
    note = _noted(held)
    try:
        status = scope.tree.stat(path)
        if note.file == identity(status):
            return Tail(status.st_size, note.indent, note.last, is_noted=True)
    except FileNotFoundError:
        if "/" in kind.file:
            scope.tree.make_directory(path.rpartition("/")[0], inside=scope.directory)
        scope.tree.create(path, form.empty(scope.name, scope.options.clock(), []))
        return tail_of(scope, kind, held)
    # A shell may be appending without a lock: between two of its lines is no place for ours.
    content = read_whole(scope.tree, path)
    require_known(version_in(kind.file, content), path)
    found = form.parse(content)
    opening, torn = form.opening(found, content), form.torn(found, content)
    if opening is None:
        rewrite(scope, kind.file, lambda now: plain(kind.file, now))
        return tail_of(scope, kind, held)
    last = max(form.highest(found, content), note.last)
    tail = Tail(len(content), found.indent, last, opening)
    if torn is None:
        note_tail(held, tail, status, -1 if opening else len(content))
        return tail
    with scope.tree.opened(path) as descriptor:
        # An unfinished record that is not ours may be on its way. The writer of ours is gone.
        if not form.is_ours(content, torn) and not is_left_alone(descriptor):
            return tail
    cut = content[torn:]
    quarantine_bytes(scope, kind.file, cut, _TORN, torn)
    rewrite(scope, kind.file, lambda now: now[:torn] + now[torn:].removeprefix(cut))
    held.note = note._replace(last=last, file=None).render()
    return tail_of(scope, kind, held)


def _add(
    scope: Scope, kind: Kind, held: Lock, tail: Tail,
    given: Iterable[Mapping[str, Value]], quota: Quota,
) -> tuple[list[dict[str, Value]], int]:  # fmt: skip
    """Write records behind the tail, within the quota, and note the new tail.

    Return them with their ids, and the new size. Where that fails, everything is as it was.
    """
    records = list(given)
    limit = quota()
    tries = _TRIES
    while True:
        tries -= 1
        values, last = _numbered(kind, records, tail.last)
        require_number(scope, kind, last)
        rendered = (format_of(kind).render(value, tail.indent) for value in values)
        content = tail.opening + b"".join(rendered)
        if limit is not None:
            scope.usage.require(scope.name, len(content), limit)
        flags = os.O_RDWR | os.O_APPEND
        with scope.tree.opened(scope.path(kind.file), flags) as descriptor:
            # Somebody wrote meanwhile: there may be half a record, or one with the id of ours.
            if not tries or os.fstat(descriptor).st_size == tail.size:
                try:
                    write_all(descriptor, content)
                    sync(descriptor)
                except OSError as error:
                    _undo(descriptor, tail.size, content)
                    problem = f"Could not write {kind.file}: {error}."
                    raise StorageFailed(problem, session_id=scope.name) from error
                size = tail.size + len(content)
                note_tail(held, tail._replace(last=last), os.fstat(descriptor), size)
                return values, size
        tail = tail_of(scope, kind, held)


def _numbered(
    kind: Kind, records: Sequence[Mapping[str, Value]], last: int
) -> tuple[list[dict[str, Value]], int]:
    """Return the records, each with an id, and the highest number. One without an id gets one.

    No number that is given is below that of a record which has its id already.
    """
    numbers = [kind.number_of(fields["id"]) for fields in records if "id" in fields]
    last = max([last, *(number for number in numbers if number is not None)])
    values: list[dict[str, Value]] = []
    for fields in records:
        if "id" in fields:
            values.append(dict(fields))
        else:
            last += 1
            values.append(with_id(kind, last, fields))
    return values, last


def _undo(descriptor: int, size: int, content: bytes) -> None:
    """Cut off the part of `content` that was written, unless somebody else has written there."""
    written = read_from(descriptor, size)
    if written and content.startswith(written):
        os.ftruncate(descriptor, size)


def note_tail(held: Lock, tail: Tail, status: os.stat_result, size: int) -> None:
    """Note the tail of a plain file; only its number where others have written to the file too."""
    note = Note(tail.last, _noted(held).series)
    if status.st_size == size:
        note = note._replace(file=identity(status), indent=tail.indent)
    held.note = note.render()


def _noted(held: Lock) -> Note:
    """Return the note in a lock file; where there is none, one of a new series."""
    note = Note.parse(held.note)
    if note is None:
        note = Note(0, os.urandom(4).hex())
        held.note = note.render()
    return note
