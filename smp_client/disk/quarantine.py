"""Bytes that cannot be read are set aside, never thrown away: a file of the bytes and a note of where, when and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime

from ..model.layout import QUARANTINE
from ..model.times import render_time
from ..text.values import Value, render_entries
from .place import Place
from .tree import Tree

_DIRECTORY = ".directory"
_NAME_CHARACTERS = 60


def quarantined(memory: Place) -> Iterator[str]:
    """The names of all that was set aside, below the root."""
    for scope in memory.tree.list(QUARANTINE):
        if stat.S_ISDIR(memory.tree.stat(f"{QUARANTINE}/{scope}").st_mode):
            for name in memory.tree.list(f"{QUARANTINE}/{scope}"):
                if name.endswith((".bytes", _DIRECTORY)):
                    yield f"{QUARANTINE}/{scope}/{name}"


def set_aside(tree: Tree, scope: str, file: str, offset: int, content: bytes, why: str, at: datetime) -> str:
    """Durable before it returns, so that the caller may then take the bytes out of the file. Gives back the name."""
    name = _new_name(tree, scope, file, at)
    tree.create(f"{name}.bytes", content)
    _note(tree, name, {"file": file, "offset": offset, "bytes": len(content)}, why, at)
    return name


def move_aside(tree: Tree, scope: str, path: str, why: str, at: datetime) -> str:
    """Move a file, or a directory with all that is in it, to where bytes are set aside. Return its name there."""
    name = _new_name(tree, scope, path.rpartition("/")[2], at)
    target = f"{name}{_DIRECTORY if tree.is_directory(path) else '.bytes'}"
    tree.rename_new(path, target)
    tree.sync_parent(target)
    tree.sync_parent(path)
    _note(tree, name, {"file": path.encode("utf-8", "backslashreplace").decode()}, why, at)
    return target


def _new_name(tree: Tree, scope: str, file: str, at: datetime) -> str:
    directory = f"{QUARANTINE}/{scope}"
    tree.make_directory(directory)
    shown = "".join(sign if sign.isprintable() else "_" for sign in file.replace("/", "+"))
    return f"{directory}/{at:%Y%m%dT%H%M%S}-{shown[:_NAME_CHARACTERS]}-{os.urandom(4).hex()}"


def _note(tree: Tree, name: str, what: dict[str, Value], why: str, at: datetime) -> None:
    said = {"version": 1, **what, "set_aside_at": render_time(at), "why": why}
    tree.create(f"{name}.note.yaml", "".join(line + "\n" for line in render_entries(said, 0)).encode())
