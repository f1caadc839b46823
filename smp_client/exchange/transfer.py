"""An export from its first byte to its last, and an import: the file, its form, the line in the audit log."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .. import audit
from ..errors import Conflict, Invalid, StorageFailed
from ..files import Tree, sync
from . import formats
from .entries import Entry
from .importing import Imported, Importing
from .names import with_allowed_names
from .opening import opened
from .reading import Reading, Transform, Wanted

if TYPE_CHECKING:
    from ..memory import Memory
    from .layouts import Found

_NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@dataclass
class Exported:
    """What an export came to."""

    sessions: list[str] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    format: str = ""
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
    said = Exported(reading.sessions, format=form, problems=reading.problems)
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
    if _is_stream(place):
        with noted(), _named(place), place.open("wb") as out:
            _write(reading, form, out, said, advance)
        return said
    _check(place, overwrite=overwrite)
    with noted():
        _write_file(Tree(place.parent), place.name, overwrite, lambda out: _write(reading, form, out, said, advance))
    return said


@contextmanager
def _named(place: Path) -> Iterator[None]:
    """A disk that is full does not say which."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageFailed(f"Could not write {place}: {error.strerror or error}.") from error


def _is_stream(place: Path) -> bool:
    """A pipe or a device, which cannot be replaced."""
    return place.exists() and not place.is_file() and not place.is_dir()


def _check(place: Path, *, overwrite: bool) -> None:
    if place.is_dir():
        raise Invalid([f"{place} is a directory, and no file can be written there"])
    if not place.parent.is_dir():
        raise Invalid([f"the directory {place.parent} does not exist"])
    if not overwrite and place.exists():
        raise _there_already(place)


def _there_already(place: Path) -> Conflict:
    advice = "Choose another name, or overwrite it with --force, in Python overwrite=True."
    return Conflict(f"{place} is there already.", advice=advice)


def checked_format(format: str | None, target: object = None) -> str:
    """The format that was asked for, else the one that the name of the file says, else YAML."""
    named = formats.format_of_name(str(target)) if isinstance(target, (str, Path)) else None
    form = formats.format_named(format) if format else named or "yaml"
    if form is None:
        raise Invalid([f"format {format!r} must be one of {', '.join(formats.FORMATS)}"])
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
        with _named(tree.root / name), os.fdopen(descriptor, "wb", buffering=1 << 20) as out:
            write(out)
            out.flush()
            sync(out.fileno())
        (tree.rename if overwrite else tree.rename_new)(aside, name)
        tree.sync_parent(name)
    except FileExistsError as error:
        tree.unlink(aside)
        raise _there_already(tree.root / name) from error
    except BaseException:
        tree.unlink(aside)
        raise


def import_(
    memory: Memory, source: str | Path | IO[bytes] | Sequence[Found], *, layout: str | None, extract: bool, dry_run: bool,
    transform: Transform | None, by: str, advance: Callable[[], None] | None, purged: bool,
) -> Imported:  # fmt: skip
    from .elsewhere import found_at, import_found

    found = found_at(source, layout, extract=extract) if isinstance(source, (str, Path)) else source
    if isinstance(found, Sequence):
        return import_found(memory, found, dry_run=dry_run, transform=transform, by=by, advance=advance, purged=purged)
    if layout not in (None, "smp"):
        raise Invalid(["a stream can only be an export of SMP; give a file or a folder"])
    name = str(getattr(found, "name", "the export"))
    return _import(memory, found, name, dry_run=dry_run, transform=transform, by=by, advance=advance, purged=purged)


def _import(
    memory: Memory, source: IO[bytes], name: str, *, dry_run: bool, transform: Transform | None, by: str,
    advance: Callable[[], None] | None, purged: bool,
) -> Imported:  # fmt: skip
    form, read = opened(source, name)
    given = with_allowed_names(memory, read)
    importing = Importing(memory, name, dry_run=dry_run, transform=transform, purged=purged)
    if dry_run:
        return importing.take_all(given, advance or _NOTHING)
    memory.create()
    with audit.noted(memory.tree, "import", clock=memory.options.clock, by=by, count=None, format=form) as tell:
        done = importing.take_all(given, advance or _NOTHING)
        tell(done.added)
        return done
