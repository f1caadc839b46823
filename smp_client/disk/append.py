"""Adding a record at the end of its file, at a cost that does not depend on how much the file holds.

What the last writer knew of the file (its size and checksum, the indentation, the highest number given) is noted in the lock
file. If the file is still the one in the note, nothing is read. If it has only grown, only the new part is parsed. Otherwise,
and whenever the note is lost, the whole file is.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import StorageFailed
from ..model.layout import FORMAT_VERSION
from ..model.record import TURN, Kind
from ..text.format import Format, format_of
from ..text.values import Value
from .locks import Lock, brief_lock
from .quarantine import set_aside
from .rewrite import make_plain, read_whole, rewrite
from .tree import identity, is_left_alone, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope


Quota = Callable[[], int | None]  # how large the scope may become; None for no limit


@dataclass
class Tail:
    """The end of a record file, ready for the next record."""

    size: int
    checksum: int  # of all bytes before `size`
    indent: int
    last: int  # the highest number ever given here
    opening: bytes = b""  # what must stand before the next record


def append(scope: Scope, kind: Kind, fields: Mapping[str, Value], quota: Quota) -> dict[str, Value]:
    """Gives the record its id under the lock and makes it durable; gives back the record with its id."""
    with scope.locked([kind.file], f"adding a {kind.name}") as held:
        tail = tail_of(scope, kind, held[kind.file])
        value = with_id(kind, tail.last + 1, fields)
        tail.last += 1
        content = tail.opening + format_of(kind).render(value, tail.indent)
        add(scope, kind.file, held[kind.file], tail, content, quota)
        return value


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
        values: list[dict[str, Value]] = []
        for fields in given:
            prefix, _, number = str(fields.get("id", "")).rpartition("-")
            if "id" not in fields:
                tail.last += 1
                values.append(with_id(kind, tail.last, fields))
                continue
            if prefix == kind.prefix and number.isdecimal() and len(number) <= _NUMBER_DIGITS:
                tail.last = max(tail.last, int(number))
            values.append(dict(fields))
        form = format_of(kind)
        content = tail.opening + b"".join(form.render(value, tail.indent) for value in values)
        add(scope, kind.file, held[kind.file], tail, content, lambda: None)
        return values, tail.size + len(content)


class Reserved(NamedTuple):
    """Numbers that one transaction may give, and the lock file in which that is noted."""

    first: int
    last: int
    inode: int

    def is_held_by(self, held: Lock) -> bool:
        """Return whether the note is still there: a lock file that was removed has lost it."""
        return os.fstat(held.descriptor).st_ino == self.inode


def reserve(scope: Scope, kind: Kind, count: int) -> Reserved:
    """Reserve numbers for records that a transaction adds later."""
    with scope.locked([kind.file], f"numbering a {kind.name}") as held:
        lock = held[kind.file]
        last = tail_of(scope, kind, lock).last
        lock.note["last"] = last + count
        lock.save()
        return Reserved(last + 1, last + count, os.fstat(lock.descriptor).st_ino)


def with_id(kind: Kind, number: int, fields: Mapping[str, Value]) -> dict[str, Value]:
    head: dict[str, Value] = {"id": kind.memory_id(number)}
    return {**head, **({"turn": number} if kind.prefix == "turn" else {}), **fields}


def tail_of(scope: Scope, kind: Kind, held: Lock) -> Tail:
    """The tail of the file, after setting aside a record that a crash cut off; makes the file where there is none. A file in
    another style is rendered plain first."""
    path = scope.path(kind.file)
    form = format_of(kind)
    note = held.note = _sound(held.note)
    try:
        status = scope.tree.stat(path)
    except FileNotFoundError:
        note = held.note = {"last": note.get("last", 0)}
        if "/" in kind.file:
            scope.tree.make_directory(path.rpartition("/")[0])
        scope.tree.create(path, form.empty(scope.name, scope.options.clock(), []))
    else:
        if identity(status) == note.get("file"):
            return Tail(note["size"], note["checksum"], note["indent"], note["last"])
    # Somebody may be appending without a lock, line by line as shells do: between two of their lines is no place for ours.
    content = read_whole(scope.tree, path)
    with scope.tree.opened(path) as descriptor:
        tail, torn = _examine(form, content, note, kind)
        if tail is None:
            make_plain(scope, kind.file)
            return tail_of(scope, kind, held)
        # What is unfinished and not ours may still be on its way; what is ours cannot be, for we hold its writer's lock.
        if torn is None or not (form.is_ours(content, torn) or is_left_alone(descriptor)):
            return tail
    _cut(scope, kind.file, content, torn)
    held.note = {"last": tail.last}
    return tail_of(scope, kind, held)


def add(scope: Scope, file: str, held: Lock, tail: Tail, content: bytes, quota: Quota) -> None:
    """Writes behind the tail, within the quota, and notes the new tail; leaves everything as it was where it fails."""
    path, size = scope.path(file), tail.size
    for is_last in (False, False, True):
        with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
            try:
                is_written = _put(scope, descriptor, content, None if is_last else size, quota)
                if is_written and scope.options.fsync == "every_write":
                    sync(descriptor)
            except OSError as error:
                _undo(descriptor, tail.size, content)
                raise StorageFailed(f"Could not write {file}: {error}.", session_id=scope.name) from error
            if is_written:
                note_tail(held, tail, content, os.fstat(descriptor))
                return
        size = len(read_whole(scope.tree, path))


def _put(scope: Scope, descriptor: int, content: bytes, size: int | None, quota: Quota) -> bool:
    """Not where the file has another size by now: somebody has begun to write there, and may be between two lines."""
    with ExitStack() as stack:
        if (limit := quota()) is not None:
            stack.enter_context(brief_lock(scope.tree, scope.name, "usage", scope.options.patience))
            scope.usage.require(scope.name, len(content), limit)
        if size is not None and os.fstat(descriptor).st_size != size:
            return False
        write_all(descriptor, content)
        return True


def note_rewritten(held: Lock, tail: Tail, content: bytes) -> None:
    """Note the tail of a file that was rewritten; it is as plain as it was."""
    if not content.endswith(b"\n"):
        held.note = {"last": tail.last}
    else:
        held.note = _note(Tail(len(content), zlib.crc32(content), tail.indent, tail.last))


def note_tail(held: Lock, tail: Tail, added: bytes, status: os.stat_result) -> None:
    """Leaves for the next writer what this one knows."""
    if status.st_size == tail.size + len(added):
        tail = Tail(status.st_size, zlib.crc32(added, tail.checksum), tail.indent, tail.last)
        held.note = {**_note(tail), "file": identity(status)}
    else:
        # Somebody without a lock wrote as well: what stands before is still known, the rest is for the next to parse.
        held.note = _note(tail)


_NUMBER_DIGITS = 12
_LAST_CAP = 10**_NUMBER_DIGITS  # no file holds so many records: a note that says so is not ours


def _sound(note: dict[str, Any]) -> dict[str, Any]:
    """The note without what cannot be true: a lock file may hold anything."""
    last = note.get("last")
    kept: dict[str, Any] = {"last": last if type(last) is int and 0 <= last < _LAST_CAP else 0}
    known = {name: note.get(name) for name in ("size", "checksum", "indent")}
    if all(isinstance(value, int) for value in known.values()):
        kept |= known | {name: note[name] for name in ("file", "version") if name in note}
    return kept


def _note(tail: Tail) -> dict[str, Any]:
    return {"version": FORMAT_VERSION, "size": tail.size, "checksum": tail.checksum, "indent": tail.indent, "last": tail.last}


def _numbers(kind: Kind, content: bytes) -> Iterator[int]:
    """Yield the numbers of the ids in the file, found without parsing it."""
    line = rb"## Turn (\d{1,12})\b" if kind is TURN else rb"[ -]*id: *[\"']?%b-(\d{1,12})\b" % kind.prefix.encode()
    return (int(match[1]) for match in re.finditer(rb"(?m)^" + line, content))


def _examine(form: Format, content: bytes, note: Mapping[str, Any], kind: Kind) -> tuple[Tail | None, int | None]:
    """The tail of the content, none where it is not plain; and where a record begins that was cut off."""
    size = note.get("size")
    grown = isinstance(size, int) and 0 < size <= len(content) and zlib.crc32(content[:size]) == note["checksum"]
    if grown:
        found = form.parse_tail(content, note["size"], note["indent"])
        # What cannot be read alone may belong to what stands before.
        grown = not found.bad
    if not grown:
        found = form.parse(content)
    opening = form.opening(found, content)
    if opening is None:
        return None, None
    # A note can have come with a cloned repository: no number that stands in the file is given again.
    last = max([form.highest(found, content), note.get("last", 0), *(_numbers(kind, content) if grown else ())])
    tail = Tail(len(content), zlib.crc32(content), found.indent, last, opening)
    return tail, form.torn(found, content)


def _cut(scope: Scope, file: str, content: bytes, at: int) -> None:
    """Sets the end of a file aside and takes it out; keeps whatever an unlocked writer adds in the meantime."""
    torn = content[at:]
    set_aside(scope.tree, scope.name, file, at, torn, "a record that was cut off while it was written", scope.options.clock())
    rewrite(scope, file, lambda now: now[:at] + now[at:].removeprefix(torn))


def _undo(descriptor: int, size: int, content: bytes) -> None:
    """Takes back what was written of `content`, unless somebody else has written there as well."""
    written = read_from(descriptor, size)
    if written and content.startswith(written):
        os.ftruncate(descriptor, size)
