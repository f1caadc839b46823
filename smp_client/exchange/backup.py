"""A copy of what is about to be imported, beside the root: the first step of a migration, and the way back from it.

    {project}/.bmad/backup-pre-smp/{name}-{digest of the path}/    files as they stood below the path, and backup.json

It gets its name when it is whole, durable and read back, and is never written again: a second migration of the same path finds it
and leaves it. What that one lacks, because the other program went on or more of it is read, is copied to a further one, with `-2`
behind its name. One that was cut off is gone on with. Nobody but the user removes it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CorruptionDetected, Invalid, SMPError
from ..files import Tree
from ..layout import BACKUP, is_file_id
from ..timestamps import render_time
from .layouts.recognising import Found

if TYPE_CHECKING:
    from ..memory import Memory

LIST = "backup.json"
_FILES = "files"
_STEM_CHARACTERS = 40
_NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@dataclass(frozen=True)
class BackedUp:
    path: Path  # of the one that was made, else of the first
    files: int
    bytes: int
    is_new: bool  # or all of it was there
    earlier: list[Path] = field(default_factory=list)  # that hold the rest of what was read


def directory_of(memory: Memory, source: Path) -> Path:
    """Where the backup of a path is, or would be; further ones have a number behind that."""
    name = "".join(character if is_file_id(character) else "-" for character in source.name)[:_STEM_CHARACTERS].strip("-") or "root"
    return memory.root.parent / BACKUP / f"{name}-{hashlib.sha256(str(source).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def back_up(memory: Memory, found: Iterable[Found], advance: Callable[[], None] = _NOTHING) -> BackedUp:
    """Copies every file that these were found in, as far as no earlier backup of the path holds it as it is now. Raises OSError or
    SMPError where a copy cannot be made, or is not the same."""
    found = list(found)
    memory.root.parent.mkdir(parents=True, exist_ok=True)
    tree, source = Tree(memory.root.parent), found[0].source.tree
    earlier = _earlier(memory, found[0].path)
    held = {(file, digest): size for listed in earlier.values() for file, (size, digest) in listed.items()}
    lacking = _lacking(source, found, held)
    if earlier and not lacking:
        place, *others = earlier
        return BackedUp(place, len(held), sum(held.values()), is_new=False, earlier=others)
    place = directory_of(memory, found[0].path)
    place = place.with_name(f"{place.name}-{len(earlier) + 1}") if earlier else place
    name, part = f"{BACKUP}/{place.name}", f"{BACKUP}/.{place.name}.part"
    listed: dict[str, tuple[int, str]] = {}
    for file in lacking:
        listed[file] = _copy(source, tree, file, f"{part}/{_FILES}/{file}")
        advance()
    told = {"version": 1, "source": str(found[0].path), "made_at": render_time(memory.options.clock()),
            "files": [{"path": file, "bytes": size, "sha256": digest} for file, (size, digest) in listed.items()]}  # fmt: skip
    tree.make_directory(part)
    _write(tree, f"{part}/{LIST}", json.dumps(told, indent=1).encode())
    _check(tree, part, listed)
    try:
        tree.rename_new(part, name)
    except FileExistsError:  # another one was as quick, and has copied the same
        tree.remove_directory(part)
    tree.sync_parent(name)
    return BackedUp(place, len(listed), sum(size for size, _ in listed.values()), is_new=True, earlier=list(earlier))


def not_backed_up(memory: Memory, found: Iterable[Found]) -> list[str]:
    """Files that no backup holds as they are now: somebody has written to them since, or they cannot be read."""
    found = list(found)
    held = {(file, digest) for listed in _earlier(memory, found[0].path).values() for file, (_, digest) in listed.items()}
    return _lacking(found[0].source.tree, found, held)


def _earlier(memory: Memory, source: Path) -> dict[Path, dict[str, tuple[int, str]]]:
    """The backups of a path in their order, each with what it holds."""
    tree, first = Tree(memory.root.parent), directory_of(memory, source)
    found: dict[Path, dict[str, tuple[int, str]]] = {}
    for number in itertools.count(1):
        place = first if number == 1 else first.with_name(f"{first.name}-{number}")
        if not memory.root.parent.is_dir() or not tree.exists(f"{BACKUP}/{place.name}"):
            return found
        found[place] = _listed(tree, f"{BACKUP}/{place.name}")
    return found


def _lacking(source: Tree, found: Iterable[Found], held: Collection[tuple[str, str]]) -> list[str]:
    files = dict.fromkeys(file for one in found for file in one.files())
    return [file for file in files if (file, _digest(source, file)) not in held]


def _digest(source: Tree, file: str) -> str:
    with suppress(SMPError, OSError):  # which is told when it is copied, or read
        return hashlib.sha256(source.read(file)).hexdigest()
    return ""


def _copy(source: Tree, tree: Tree, file: str, target: str) -> tuple[int, str]:
    """Size and digest of what was read; durable in its place."""
    content = source.read(file)
    if not tree.exists(target) or tree.read(target) != content:
        tree.make_directory(target.rpartition("/")[0])
        _write(tree, target, content)
    return len(content), hashlib.sha256(content).hexdigest()


def _write(tree: Tree, name: str, content: bytes) -> None:
    """Not in one step: it counts only when all of the backup has got its name."""
    if tree.exists(name):
        tree.unlink(name)
    tree.write_new(name, content)
    tree.sync_parent(name)


def _check(tree: Tree, directory: str, listed: dict[str, tuple[int, str]]) -> None:
    for file, (_, digest) in listed.items():
        if hashlib.sha256(tree.read(f"{directory}/{_FILES}/{file}")).hexdigest() != digest:
            raise CorruptionDetected(f"The copy of {file} in {tree.root / directory} is not what was copied.")


def _listed(tree: Tree, directory: str) -> dict[str, tuple[int, str]]:
    """What a backup holds, each file checked."""
    try:
        told = json.loads(tree.read(f"{directory}/{LIST}"))
        listed = {str(one["path"]): (int(one["bytes"]), str(one["sha256"])) for one in told["files"]}
        _check(tree, directory, listed)
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise Invalid([f"{tree.root / directory} is no backup that SMP has made, or something of it is missing ({error});"
                       " move it away, and another one is made"]) from error  # fmt: skip
    return listed
