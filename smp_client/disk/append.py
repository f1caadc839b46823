"""Adding a record at the end of its file, at a cost that does not depend on the size of the file.

The last writer leaves a note in the lock file: the identity of the file, its indentation and the
highest number given. While the file is the one in the note, it is not read. Else it is parsed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import StorageFailed
from ..model.layout import FORMAT_VERSION
from ..model.record import Kind
from ..text.format import format_of, plain
from ..text.values import Value
from ..text.version import require_known, version_in
from .locks import Lock
from .quarantine import quarantine_bytes
from .rewrite import read_whole, rewrite
from .tree import identity, is_left_alone, read_from, sync, write_all

if TYPE_CHECKING:
    from .scope import Scope

Quota = Callable[[], int | None]  # how large the scope may become; None for no limit
_NUMBER_DIGITS = 12  # no file holds so many records: a note with a longer number is not ours
_TORN = "a record that was cut off while it was written"


class Tail(NamedTuple):
    """The end of a record file, ready for the next record."""

    size: int
    indent: int
    last: int  # the highest number ever given here
    opening: bytes = b""  # these bytes must stand before the next record


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
    path, form, note = scope.path(kind.file), format_of(kind), held.note
    last, indent = note.get("last"), note.get("indent")
    if type(last) is not int or not 0 <= last < 10**_NUMBER_DIGITS:
        last = 0  # a lock file may hold anything
    try:
        status = scope.tree.stat(path)
        is_same = [note.get("file"), note.get("version")] == [identity(status), FORMAT_VERSION]
        if is_same and type(indent) is int:
            return Tail(status.st_size, indent, last)
    except FileNotFoundError:
        if "/" in kind.file:
            scope.tree.make_directory(path.rpartition("/")[0])
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
    last = max(form.highest(found, content), last)
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
    held.note = {"last": last}
    return tail_of(scope, kind, held)


def _add(
    scope: Scope, kind: Kind, held: Lock, tail: Tail,
    given: Iterable[Mapping[str, Value]], quota: Quota,
) -> tuple[list[dict[str, Value]], int]:  # fmt: skip
    """Write records behind the tail, within the quota, and note the new tail.

    Return them with their ids, and the new size. Where that fails, everything is as it was.
    """
    values, last = list[dict[str, Value]](), tail.last
    for fields in given:
        prefix, _, number = str(fields.get("id", "")).rpartition("-")
        if "id" not in fields:
            last += 1
        elif prefix == kind.prefix and number.isdecimal() and len(number) <= _NUMBER_DIGITS:
            last = max(last, int(number))
        values.append(dict(fields) if "id" in fields else with_id(kind, last, fields))
    form, path, size = format_of(kind), scope.path(kind.file), tail.size
    content = tail.opening + b"".join(form.render(value, tail.indent) for value in values)
    limit = quota()
    if limit is not None:
        scope.usage.require(scope.name, len(content), limit)
    tries = 3
    while True:
        tries -= 1
        with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
            # A file of another size by now: somebody writes there, and may be between two lines.
            if not tries or os.fstat(descriptor).st_size == size:
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
        size = len(read_whole(scope.tree, path))


def _undo(descriptor: int, size: int, content: bytes) -> None:
    """Cut off the part of `content` that was written, unless somebody else has written there."""
    written = read_from(descriptor, size)
    if written and content.startswith(written):
        os.ftruncate(descriptor, size)


def note_tail(held: Lock, tail: Tail, status: os.stat_result, size: int) -> None:
    """Note the tail of a plain file; only its number where others have written to the file too."""
    held.note = {"last": tail.last}
    if status.st_size == size:
        held.note |= {"version": FORMAT_VERSION, "file": identity(status), "indent": tail.indent}
