"""A copy of what is about to be imported, beside the root: the first step of a migration, and the way back from it.

    {project}/.bmad/backup-pre-smp/{name}-{digest of the path}/    files as they stood below the path, and backup.json

It gets its name when it is whole, durable and read back, and is never written again: a second migration of the same path finds it
and leaves it. One that was cut off is gone on with. Nobody but the user removes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CorruptionDetected, Invalid
from ..files import Tree
from ..layout import is_file_id
from ..timestamps import render_time
from .layouts.recognising import BACKUP, Found

if TYPE_CHECKING:
    from ..memory import Memory

LIST = "backup.json"
_FILES = "files"
_STEM_CHARACTERS = 40
_NOTHING: Callable[[], None] = lambda: None  # noqa: E731


@dataclass(frozen=True)
class BackedUp:
    path: Path
    files: int
    bytes: int
    is_new: bool  # or it was there


def directory_of(memory: Memory, source: Path) -> Path:
    """Where the backup of a path is, or would be."""
    name = "".join(character if is_file_id(character) else "-" for character in source.name)[:_STEM_CHARACTERS].strip("-") or "root"
    return memory.root.parent / BACKUP / f"{name}-{hashlib.sha256(str(source).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def back_up(memory: Memory, found: Iterable[Found], advance: Callable[[], None] = _NOTHING) -> BackedUp:
    """Copies every file that these were found in. Raises OSError or SMPError where a copy cannot be made, or is not the same."""
    found = list(found)
    place = directory_of(memory, found[0].path)
    memory.root.parent.mkdir(parents=True, exist_ok=True)
    tree, name = Tree(memory.root.parent), f"{BACKUP}/{place.name}"
    if tree.exists(name):
        listed = _listed(tree, name)
        return BackedUp(place, len(listed), sum(size for size, _ in listed.values()), is_new=False)
    part = f"{BACKUP}/.{place.name}.part"
    listed = {}
    for file in dict.fromkeys(file for one in found for file in one.files()):
        listed[file] = _copy(found[0].source.tree, tree, file, f"{part}/{_FILES}/{file}")
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
    return BackedUp(place, len(listed), sum(size for size, _ in listed.values()), is_new=True)


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
