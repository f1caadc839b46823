"""Bytes and drops that cannot be read are never thrown away: a note beside each says why.

Bytes of a session's files go to `quarantine/{session}`, a rejected drop to `inbox/rejected/`. A
piece of `.smp/` that is not SMP's own moves into quarantine as it is, also a link or a directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ..model.errors import SMPError
from ..model.layout import QUARANTINE
from ..model.times import render_time, time_of
from ..text.values import BadYaml, Value, decode, load, render_lines

if TYPE_CHECKING:
    from .scope import Scope
    from .tree import Tree

_NAME_CHARACTERS = 120  # no name of a file that holds a memory is longer
INBOX, REJECTED = "inbox", "inbox/rejected"
A_COPY = "the file as it was before SMP wrote it in its own style"  # nothing of it is missing
NOTE = ".why.md"  # behind the name of a rejected drop
_NOTED = ".note.yaml"  # behind the name of a piece, instead of the following
BYTES = ".bytes"  # behind the name of a quarantined piece
ODD = ".odd"  # behind the name of a piece that is not a plain file, which nobody reads


def quarantined(tree: Tree, only: str | None = None) -> Iterator[str]:
    """Yield the name of each quarantined piece, or of those of one scope, below the root."""
    for scope in tree.directories(QUARANTINE) if only is None else [only]:
        for name in tree.list(f"{QUARANTINE}/{scope}"):
            if name.endswith((BYTES, ODD)):
                yield f"{QUARANTINE}/{scope}/{name}"


class Piece(NamedTuple):
    """A quarantined piece, as the note beside it describes it."""

    name: str
    scope: str
    why: str
    at: datetime


def described(tree: Tree) -> Iterator[Piece]:
    """Yield each quarantined piece with its note, which anybody may have written, or removed."""
    for name in quarantined(tree):
        note: Value = None
        with suppress(OSError, SMPError, BadYaml):
            stem = name.removesuffix(BYTES).removesuffix(ODD)
            note = load(decode(tree.read(f"{stem}{_NOTED}")))
        said = note if isinstance(note, dict) else {}
        why = str(said.get("why") or "without a note that can be read")
        at = time_of(said.get("set_aside_at"))
        with suppress(OSError, SMPError):  # a piece that is gone by now is left out
            at = at or datetime.fromtimestamp(tree.stat(name).st_mtime, UTC)
            yield Piece(name, name.split("/")[1], why, at)


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
    name = _new_name(scope, file)
    # The note comes first: whoever is killed in between leaves no bytes without their reason.
    _write_note(scope, name, {"file": file, "offset": offset, "bytes": len(content)}, why)
    scope.tree.create(f"{name}{BYTES}", content)
    return name


def quarantine_entry(scope: Scope, path: str, why: str) -> str:
    """Move a piece of `.smp/` into quarantine as it is, and return its name there.

    The caller knows that no other process puts a sound piece in its place meanwhile. Raise
    FileNotFoundError where another process was first.
    """
    tree = scope.tree
    status = tree.stat(path)
    is_plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    name = _new_name(scope, path.removeprefix(".smp/"))
    _write_note(scope, name, {"file": path, "offset": 0, "bytes": status.st_size}, why)
    try:
        tree.rename_new(path, f"{name}{BYTES if is_plain else ODD}")
    except OSError:
        tree.unlink(f"{name}{_NOTED}")
        raise
    tree.sync_parent(name)
    tree.sync_parent(path)
    return name


def _new_name(scope: Scope, file: str) -> str:
    directory = f"{QUARANTINE}/{scope.name}"
    scope.tree.make_directory(directory)
    at = scope.options.clock()
    return f"{directory}/{at:%Y%m%dT%H%M%S}{_shown(file)}{os.urandom(4).hex()}"


def _write_note(scope: Scope, name: str, about: dict[str, Value], why: str) -> None:
    at = render_time(scope.options.clock())
    note: dict[str, Value] = {"version": 1, **about, "set_aside_at": at, "why": why}
    scope.tree.create(f"{name}{_NOTED}", render_lines(note).encode())


# Drops.


def waiting(tree: Tree, directory: str) -> list[str]:
    """Return the names of the drops in the inbox of a session, whose directory this is."""
    names = [name for name in _names(tree, f"{directory}/{INBOX}") if name != "rejected"]
    return [name for name in names if name[0] != "." and not name.endswith((".tmp", ".part", "~"))]


def rejected(tree: Tree, directory: str) -> list[str]:
    """Return the names of the rejected drops of a session."""
    return [name for name in _names(tree, f"{directory}/{REJECTED}") if not name.endswith(NOTE)]


def _names(tree: Tree, path: str) -> list[str]:
    try:
        return tree.list(path)
    except (OSError, SMPError):
        return []  # something else stands in the place of the directory
