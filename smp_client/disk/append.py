"""Adding a record at the end of its file, at a cost that does not depend on the size of the file.

The last writer leaves a note in the lock file: size and checksum of the file, the indentation, the
highest number given. If the file is still the one in the note, nothing is read. If it has only
grown, only the new part is parsed. Otherwise, and whenever the note is lost, the whole file is.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import StorageFailed
from ..model.layout import FORMAT_VERSION
from ..model.record import TURN, Kind
from ..text.format import Format, format_of
from ..text.values import Value
from ..text.version import require_known, version_in
from .locks import Lock
from .quarantine import quarantine_bytes
from .rewrite import make_plain, read_whole, rewrite
from .tree import identity, is_left_alone, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope

Quota = Callable[[], int | None]  # how large the scope may become; None for no limit
_NUMBER_DIGITS = 12  # no file holds so many records: a note with a longer number is not ours
_TORN = "a record that was cut off while it was written"


class Tail:
    """The end of a record file, ready for the next record."""

    def __init__(
        self, size: int, checksum: int, indent: int, last: int, opening: bytes = b""
    ) -> None:
        self.size = size
        self.checksum = checksum  # of all bytes before `size`
        self.indent = indent
        self.last = last  # the highest number ever given here
        self.opening = opening  # these bytes must stand before the next record


class Reserved(NamedTuple):
    """Numbers that one transaction may give, and the lock file in which that is noted."""

    first: int
    last: int
    inode: int

    def is_held_by(self, held: Lock) -> bool:
        """Return whether the note is still there: a lock file that was removed has lost it."""
        return os.fstat(held.descriptor).st_ino == self.inode


def append(scope: Scope, kind: Kind, fields: Mapping[str, Value], quota: Quota) -> dict[str, Value]:
    """Give a record its id under the lock, make it durable, and return it with its id."""
    # Any version: the tail of a file is that of a known one.
    with scope.locked([kind.file], f"adding a {kind.name}", any_version=True) as held:
        tail = tail_of(scope, kind, held[kind.file])
        return _add(scope, kind, held[kind.file], tail, [fields], quota)[0]


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
        values = _add(scope, kind, held[kind.file], tail, given, lambda: None)
        return values, int(held[kind.file].note["size"])


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
    """Return the tail of a file. Make the file where there is none.

    A record that a crash cut off is quarantined first, and a file in another style rendered plain.
    """
    path, form = scope.path(kind.file), format_of(kind)
    note = held.note = _sound(held.note)
    try:
        is_same = identity(scope.tree.stat(path)) == note.get("file")
        if is_same and note.get("version") == FORMAT_VERSION:
            return Tail(note["size"], note["checksum"], note["indent"], note["last"])
    except FileNotFoundError:
        note = held.note = {"last": note["last"]}
        if "/" in kind.file:
            scope.tree.make_directory(path.rpartition("/")[0])
        scope.tree.create(path, form.empty(scope.name, scope.options.clock(), []))
    # A shell may be appending without a lock: between two of its lines is no place for ours.
    content = read_whole(scope.tree, path)
    require_known(version_in(kind.file, content), path)
    tail, torn = _examine(form, content, note, kind)
    if tail is None:
        make_plain(scope, kind.file)
        return tail_of(scope, kind, held)
    if torn is None:
        return tail
    with scope.tree.opened(path) as descriptor:
        # An unfinished record that is not ours may be on its way. The writer of ours is gone.
        if not form.is_ours(content, torn) and not is_left_alone(descriptor):
            return tail
    cut = content[torn:]
    quarantine_bytes(scope.tree, scope.name, kind.file, torn, cut, _TORN, scope.options.clock())
    rewrite(scope, kind.file, lambda now: now[:torn] + now[torn:].removeprefix(cut))
    held.note = {"last": tail.last}
    return tail_of(scope, kind, held)


def _examine(
    form: Format, content: bytes, note: Mapping[str, Any], kind: Kind
) -> tuple[Tail | None, int | None]:
    """Return the tail, None where the content is not plain, and the place of a torn record."""
    size = note.get("size", 0)
    grown = 0 < size <= len(content) and zlib.crc32(content[:size]) == note["checksum"]
    if grown:
        found = form.parse_tail(content, size, note["indent"])
        # A part that cannot be read alone may belong to the record before it.
        grown = not found.bad
    if not grown:
        found = form.parse(content)
    opening = form.opening(found, content)
    if opening is None:
        return None, None
    # A note can have come with a cloned repository: no number in the file is given again.
    numbers = _numbers(kind, content) if grown else ()
    last = max([form.highest(found, content), note["last"], *numbers])
    tail = Tail(len(content), zlib.crc32(content), found.indent, last, opening)
    return tail, form.torn(found, content)


def _numbers(kind: Kind, content: bytes) -> Iterator[int]:
    """Yield the numbers of the ids in the file, found without parsing it."""
    line = rb"[ -]*id: *[\"']?%b-(\d{1,12})\b" % kind.prefix.encode()
    if kind is TURN:
        line = rb"## Turn (\d{1,12})\b"
    return (int(match[1]) for match in re.finditer(rb"(?m)^" + line, content))


def _add(
    scope: Scope, kind: Kind, held: Lock, tail: Tail,
    given: Iterable[Mapping[str, Value]], quota: Quota,
) -> list[dict[str, Value]]:  # fmt: skip
    """Write records behind the tail, within the quota, and note the new tail.

    Return them with their ids. Where that fails, everything is as it was.
    """
    values: list[dict[str, Value]] = []
    for fields in given:
        prefix, _, number = str(fields.get("id", "")).rpartition("-")
        if "id" not in fields:
            tail.last += 1
        elif prefix == kind.prefix and number.isdecimal() and len(number) <= _NUMBER_DIGITS:
            tail.last = max(tail.last, int(number))
        values.append(dict(fields) if "id" in fields else with_id(kind, tail.last, fields))
    form, path, size = format_of(kind), scope.path(kind.file), tail.size
    content = tail.opening + b"".join(form.render(value, tail.indent) for value in values)
    limit = quota()
    if limit is not None:
        scope.usage.require(scope.name, len(content), limit)
    for is_last in (False, False, True):
        with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
            # A file of another size by now: somebody writes there, and may be between two lines.
            if is_last or os.fstat(descriptor).st_size == size:
                try:
                    write_all(descriptor, content)
                    if scope.options.fsync == "every_write":
                        sync(descriptor)
                except OSError as error:
                    _undo(descriptor, tail.size, content)
                    problem = f"Could not write {kind.file}: {error}."
                    raise StorageFailed(problem, session_id=scope.name) from error
                note_tail(held, tail, content, os.fstat(descriptor))
                break
        size = len(read_whole(scope.tree, path))
    return values


def _undo(descriptor: int, size: int, content: bytes) -> None:
    """Cut off the part of `content` that was written, unless somebody else has written there."""
    written = read_from(descriptor, size)
    if written and content.startswith(written):
        os.ftruncate(descriptor, size)


# The note for the next writer.


def note_tail(held: Lock, tail: Tail, added: bytes, status: os.stat_result) -> None:
    """Note the tail of a file that was appended to."""
    if status.st_size == tail.size + len(added):
        tail = Tail(status.st_size, zlib.crc32(added, tail.checksum), tail.indent, tail.last)
        held.note = {**_note(tail), "file": identity(status)}
    else:
        # Somebody wrote without a lock as well: the next writer parses all behind the known tail.
        held.note = _note(tail)


def note_rewritten(held: Lock, tail: Tail, content: bytes) -> None:
    """Note the tail of a file that was rewritten; it is as plain as it was."""
    held.note = {"last": tail.last}
    if content.endswith(b"\n"):
        held.note = _note(Tail(len(content), zlib.crc32(content), tail.indent, tail.last))


def _note(tail: Tail) -> dict[str, Any]:
    known = {"size": tail.size, "checksum": tail.checksum, "indent": tail.indent}
    return {"version": FORMAT_VERSION, **known, "last": tail.last}


def _sound(note: dict[str, Any]) -> dict[str, Any]:
    """Return the note without anything that cannot be true: a lock file may hold anything."""
    last = note.get("last")
    is_number = type(last) is int and 0 <= last < 10**_NUMBER_DIGITS
    kept: dict[str, Any] = {"last": last if is_number else 0}
    known = {name: note.get(name) for name in ("size", "checksum", "indent")}
    if all(type(value) is int for value in known.values()):
        kept |= known | {name: note[name] for name in ("file", "version") if name in note}
    return kept
