"""Unreadable bytes are quarantined, never thrown away, with a note of where, when and why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..model.layout import QUARANTINE
from ..model.times import render_time
from ..text.values import Value, render_lines

if TYPE_CHECKING:
    from .scope import Scope
    from .tree import Tree

_NAME_CHARACTERS = 60


def quarantined(tree: Tree) -> Iterator[str]:
    """Yield the name of each quarantined piece, below the root."""
    for scope in tree.directories(QUARANTINE):
        for name in tree.list(f"{QUARANTINE}/{scope}"):
            if name.endswith(".bytes"):
                yield f"{QUARANTINE}/{scope}/{name}"


def is_of_file(piece: str, file: str) -> bool:
    """Return whether a quarantined piece, by its name, was a part of this file."""
    return _shown(file) in piece


def _shown(file: str) -> str:
    text = "".join(sign if sign.isprintable() else "_" for sign in file.replace("/", "+"))
    return f"-{text[:_NAME_CHARACTERS]}-"


def quarantine_bytes(scope: Scope, file: str, content: bytes, why: str, offset: int = 0) -> str:
    """Write bytes durably into quarantine, so that the caller may cut them from their file.

    Return the name of the piece.
    """
    tree, at, directory = scope.tree, scope.options.clock(), f"{QUARANTINE}/{scope.name}"
    tree.make_directory(directory)
    name = f"{directory}/{at:%Y%m%dT%H%M%S}{_shown(file)}{os.urandom(4).hex()}"
    tree.create(f"{name}.bytes", content)
    note: dict[str, Value] = {"version": 1, "file": file, "offset": offset, "bytes": len(content)}
    note |= {"set_aside_at": render_time(at), "why": why}
    tree.create(f"{name}.note.yaml", render_lines(note).encode())
    return name
