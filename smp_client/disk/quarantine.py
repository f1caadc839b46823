"""Unreadable bytes are quarantined, never thrown away, with a note of where, when and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime

from ..model.layout import QUARANTINE
from ..model.times import render_time
from ..text.values import Value, render_entries
from .scopes import Place
from .tree import Tree

_DIRECTORY = ".directory"
_NAME_CHARACTERS = 60


def quarantined(memory: Place) -> Iterator[str]:
    """Yield the name of each quarantined piece, below the root."""
    for scope in memory.tree.directories(QUARANTINE):
        for name in memory.tree.list(f"{QUARANTINE}/{scope}"):
            if name.endswith((".bytes", _DIRECTORY)):
                yield f"{QUARANTINE}/{scope}/{name}"


def quarantine_bytes(
    tree: Tree, scope: str, file: str, offset: int, content: bytes, why: str, at: datetime
) -> str:
    """Write bytes durably into quarantine, so that the caller may cut them from their file.
    Return the name of the piece."""
    name = _new_name(tree, scope, file, at)
    tree.create(f"{name}.bytes", content)
    _note(tree, name, {"file": file, "offset": offset, "bytes": len(content)}, why, at)
    return name


def _new_name(tree: Tree, scope: str, file: str, at: datetime) -> str:
    directory = f"{QUARANTINE}/{scope}"
    tree.make_directory(directory)
    shown = "".join(sign if sign.isprintable() else "_" for sign in file.replace("/", "+"))
    return f"{directory}/{at:%Y%m%dT%H%M%S}-{shown[:_NAME_CHARACTERS]}-{os.urandom(4).hex()}"


def _note(tree: Tree, name: str, about: dict[str, Value], why: str, at: datetime) -> None:
    note = {"version": 1, **about, "set_aside_at": render_time(at), "why": why}
    lines = "".join(f"{line}\n" for line in render_entries(note, 0))
    tree.create(f"{name}.note.yaml", lines.encode())
