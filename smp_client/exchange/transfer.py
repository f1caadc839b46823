"""An export from its first byte to its last, and an import: the file, its form, the line in the audit log."""

from __future__ import annotations

import functools
import io
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import audit
from ..errors import Conflict, Invalid, StorageFailed
from ..files import Tree, sync
from . import formats
from .entries import Entry
from .importing import Imported, Importing
from .reading import Reading, Transform, Wanted

if TYPE_CHECKING:
    from ..memory import Memory

_NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@dataclass
class Exported:
    """What an export came to."""

    sessions: list[str] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


class _Counted:
    def __init__(self, out: IO[bytes]) -> None:
        self._out, self.bytes = out, 0

    def write(self, piece: bytes) -> None:
        self._out.write(piece)
        self.bytes += len(piece)


def export(
    memory: Memory, target: str | Path | IO[bytes], sessions: Sequence[str] | None, *, format: str | None, deleted: bool,
    wanted: Wanted | None, transform: Transform | None, overwrite: bool, by: str, advance: Callable[[], None] | None,
) -> Exported:  # fmt: skip
    reading = Reading(memory, sessions, wanted=wanted, transform=transform, deleted=deleted)
    form = checked_format(format, target)
    said = Exported(reading.sessions, problems=reading.problems)
    noted = functools.partial(
        audit.noted, memory.tree, "export", clock=memory.options.clock, by=by, count=len(reading.sessions), format=form,
        session=reading.sessions[0] if len(reading.sessions) == 1 and not reading.with_global else None,
        deleted=deleted or None, selected=wanted is not None or None, changed=transform is not None or None,
        anonymized=getattr(transform, "anonymizes", None),
    )  # fmt: skip
    if not isinstance(target, (str, Path)):
        with noted():
            _write(reading, form, target, said, advance)
        return said
    place = Path(target).expanduser().absolute()
    tree = Tree(place.parent)
    if not overwrite and place.exists():
        raise Conflict(f"{place} is there already.", advice="Choose another name, or have it overwritten.")
    with noted():
        _write_file(tree, place.name, overwrite, lambda out: _write(reading, form, out, said, advance))
    return said


def checked_format(format: str | None, target: object = None) -> str:
    """The format that was asked for, else the one that the name of the file says, else YAML."""
    named = formats.format_of_name(str(target)) if isinstance(target, (str, Path)) else None
    form = format or named or "yaml"
    if form not in formats.FORMATS:
        raise Invalid([f"format {form!r} must be one of {', '.join(formats.FORMATS)}"])
    return form


def _write(reading: Reading, form: str, out: IO[bytes], said: Exported, advance: Callable[[], None] | None) -> None:
    counted = _Counted(out)

    def counting() -> Iterator[Entry]:
        for entry in reading.entries(advance or _NOTHING):
            said.entries += "entry" in entry and entry["entry"] != "end"
            yield entry

    formats.write(counting(), form, counted.write)
    said.bytes = counted.bytes


def _write_file(tree: Tree, name: str, overwrite: bool, write: Callable[[IO[bytes]], None]) -> None:
    """Under its name only when it is whole and durable."""
    aside = f".{name}.{uuid.uuid4().hex[:8]}.part"
    try:
        descriptor = tree.open(aside, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        raise StorageFailed(f"Could not write {tree.root / name}: {error}.") from error
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as out:
            write(out)
            out.flush()
            sync(out.fileno())
        (tree.rename if overwrite else tree.rename_new)(aside, name)
        tree.sync_parent(name)
    except FileExistsError as error:
        tree.unlink(aside)
        raise Conflict(f"{tree.root / name} is there already.", advice="Choose another name, or have it overwritten.") from error
    except BaseException:
        tree.unlink(aside)
        raise


def import_(
    memory: Memory, source: str | Path | IO[bytes], *, dry_run: bool, transform: Transform | None, by: str,
    advance: Callable[[], None] | None,
) -> Imported:  # fmt: skip
    if isinstance(source, (str, Path)):
        with Path(source).expanduser().open("rb") as opened:
            return _import(memory, opened, str(source), dry_run=dry_run, transform=transform, by=by, advance=advance)
    name = str(getattr(source, "name", "the export"))
    return _import(memory, source, name, dry_run=dry_run, transform=transform, by=by, advance=advance)


def _import(
    memory: Memory, source: IO[bytes], name: str, *, dry_run: bool, transform: Transform | None, by: str,
    advance: Callable[[], None] | None,
) -> Imported:  # fmt: skip
    beginning = source.read(formats.BEGINNING_BYTES)
    form = formats.recognise(beginning)
    if form is None:
        raise Invalid([f"{name} is no export of SMP: it begins with neither JSON, YAML nor Markdown of one"])
    given = formats.read(io.BufferedReader(_Joined(beginning, source), 1 << 20), form)
    importing = Importing(memory, name, dry_run=dry_run, transform=transform)
    if dry_run:
        return importing.take_all(given, advance or _NOTHING)
    memory.create()
    with audit.noted(memory.tree, "import", clock=memory.options.clock, by=by, format=form):
        return importing.take_all(given, advance or _NOTHING)


class _Joined(io.RawIOBase):
    """What was read of a stream to see what it is, and the rest: a pipe cannot be begun again."""

    def __init__(self, beginning: bytes, rest: IO[bytes]) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._beginning[: len(buffer)] or self._rest.read(len(buffer))
        self._beginning = self._beginning[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)
