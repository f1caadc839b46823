"""Bytes that cannot be read are set aside, never thrown away: a file of the bytes and a note of where, when and why."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Iterator
from datetime import datetime

from .files import Tree
from .layout import QUARANTINE
from .place import Place
from .timestamps import render_time
from .values import Value, render_entries


def quarantined(memory: Place) -> Iterator[str]:
    """The names of all that was set aside, below the root."""
    for scope in memory.tree.list(QUARANTINE):
        if stat.S_ISDIR(memory.tree.stat(f"{QUARANTINE}/{scope}").st_mode):
            for name in memory.tree.list(f"{QUARANTINE}/{scope}"):
                if name.endswith(".bytes"):
                    yield f"{QUARANTINE}/{scope}/{name}"


def set_aside(tree: Tree, scope: str, file: str, offset: int, content: bytes, why: str, at: datetime) -> str:
    """Durable before it returns, so that the caller may then take the bytes out of the file. Gives back the name."""
    directory = f"{QUARANTINE}/{scope}"
    tree.make_directory(directory)
    name = f"{directory}/{at:%Y%m%dT%H%M%S}-{file.replace('/', '+')}-{uuid.uuid4().hex[:8]}"
    note: dict[str, Value] = {
        "version": 1, "file": file, "offset": offset, "bytes": len(content), "set_aside_at": render_time(at), "why": why,
    }  # fmt: skip
    tree.create(f"{name}.bytes", content)
    tree.create(f"{name}.note.yaml", "".join(line + "\n" for line in render_entries(note, 0)).encode())
    return name
