"""All or nothing over several files: what a transaction will do is made durable first, then done.

Once an intent is in `.smp/journal/` the transaction happens: its writer carries it out while it holds the files' locks, and if
it dies, whoever comes next does. Every step can be carried out again without harm.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import CorruptionDetected, LockTimeout
from .files import read_from, sync, write_all
from .formats import format_of, insert_missing
from .layout import JOURNAL
from .locks import NO_PATIENCE, lock_all
from .records import kind_of_file
from .rewrite import rewrite

if TYPE_CHECKING:
    from .scope import Scope


def record(scope: Scope, steps: list[dict[str, Any]]) -> str:
    """Makes the intent durable: from here on the transaction happens. Gives back its name."""
    content = json.dumps({"version": 1, "scope": scope.name, "steps": steps}).encode()
    scope.tree.make_directory(JOURNAL)
    name = f"{JOURNAL}/{scope.name}+{uuid.uuid4().hex}.json"
    scope.tree.create(name, content + b"\n" + str(zlib.crc32(content)).encode())
    return name


def forget(scope: Scope, name: str) -> None:
    scope.tree.unlink(name)


def left_behind(scope: Scope, files: Iterable[str]) -> bool:
    """Whether a transaction over one of these files, whose locks the caller holds, was cut off."""
    wanted = set(files)
    return any(wanted & _files(load(scope, name)) for name in pending(scope))


def recover(scope: Scope, *, wait: bool) -> None:
    """Finishes the transactions that were cut off. One whose writer is still at work is waited for, or left to it."""
    for name in pending(scope):
        try:
            steps = load(scope, name)
            patience = scope.options.patience if wait else NO_PATIENCE
            with lock_all(scope.tree, scope.name, _files(steps), patience, "finishing a transaction"):
                if scope.tree.exists(name):
                    for step in steps:
                        carry_out(scope, step)
                    forget(scope, name)
        except FileNotFoundError:
            continue
        except LockTimeout:
            if wait:
                raise


def load(scope: Scope, name: str) -> list[dict[str, Any]]:
    try:
        content, _, checksum = scope.tree.read(name).rpartition(b"\n")
    except FileNotFoundError:
        return []
    if str(zlib.crc32(content)).encode() != checksum:
        raise CorruptionDetected(f"The journal entry {name} is damaged.", session_id=scope.name)
    steps: list[dict[str, Any]] = json.loads(content)["steps"]
    return steps


def carry_out(scope: Scope, step: Mapping[str, Any]) -> None:
    """One step of an intent; does nothing where it has been done before."""
    file = step["file"]
    if "append" in step:
        _append_once(scope, scope.path(file), step["append"].encode(), step["at"])
    elif "content" in step:
        if "/" in file:
            scope.tree.make_directory(scope.path(file).rpartition("/")[0])
        rewrite(scope, file, lambda _: step["content"].encode())
    else:
        form = format_of(kind_of_file(file))

        def done(content: bytes) -> bytes:
            return form.rewrite(insert_missing(form, content, step["insert"]), step["change"], step["last"])

        rewrite(scope, file, done)


def _append_once(scope: Scope, path: str, content: bytes, at: int) -> None:
    with scope.tree.opened(path, os.O_RDWR | os.O_APPEND) as descriptor:
        behind = read_from(descriptor, at)
        # Ids are never given twice, so the same bytes can only be this step's own, even where an edit has moved them.
        done = os.fstat(descriptor).st_size != at and content in read_from(descriptor, 0)
        if not done:
            if behind and content.startswith(behind):
                os.ftruncate(descriptor, at)
            elif behind and not behind.endswith(b"\n"):
                write_all(descriptor, b"\n")
            write_all(descriptor, content)
        sync(descriptor)


def pending(scope: Scope) -> list[str]:
    """The transactions that are recorded and not yet done."""
    return [f"{JOURNAL}/{name}" for name in scope.tree.list(JOURNAL) if name.startswith(f"{scope.name}+")]


def _files(steps: list[dict[str, Any]]) -> set[str]:
    return {step["file"] for step in steps}
