"""`audit.log`: who deleted, restored, purged, exported, imported or anonymised something, when and how much; never what it said.

A line is durable before the thing happens, so nothing happens without one; where it then fails, a second line says so. The file
only grows: SMP never rewrites it, and no purge touches it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from ..model.times import render_time
from .tree import Tree, sync, write_all

FILE = "audit.log"
_IDS_CAP = 200  # a line must stay short enough to be written at once


def account() -> str:
    """Return the name of the account that this process runs under, as the system has it."""
    import pwd  # which a process that only reads does without

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in a container that knows only the number
        return f"uid {os.geteuid()}"


def note(
    tree: Tree, action: str, *, at: datetime, by: str, session: str | None = None, count: int | None = 0, **facts: Any
) -> None:
    """One line. `facts` are names, ids, counts and times; whoever calls this sees to it that none of them is content. A secret that
    somebody gave as a name, or has as an id, does not get into a file that is never rewritten."""
    line = {"at": render_time(at), "action": action, "by": by, "session": session, "count": count}
    told = {name: _short(value) for name, value in facts.items() if value not in (None, (), [], {})}
    _append(tree, _without_secrets({**line, **told}))


@contextmanager
def noted(tree: Tree, action: str, *, clock: Callable[[], datetime], by: str, **facts: Any) -> Iterator[Callable[[int], None]]:
    """The line before what is done in the block, and one that says so where it fails. What it gives tells in a line of its own how
    much it came to, where nobody could know that before."""
    note(tree, action, at=clock(), by=by, **facts)
    try:
        yield lambda count: note(tree, action, at=clock(), by=by, **{**facts, "count": count, "done": True})
    except BaseException as error:
        note(tree, action, at=clock(), by=by, **facts, failed=type(error).__name__)
        raise


def read(tree: Tree) -> list[dict[str, Any]]:
    """Every line that can be read, the oldest first."""
    try:
        lines = tree.read(FILE).splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a crash: what it was about never happened
        found += [entry] if isinstance(entry, dict) else []
    return found


def _short(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and len(value) > _IDS_CAP:
        return [*value[:_IDS_CAP], f"and {len(value) - _IDS_CAP} more"]
    return list(value) if isinstance(value, tuple) else value


def _without_secrets(value: Any) -> Any:
    from ..redaction.redact import harmless

    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {_without_secrets(key): _without_secrets(item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, (list, tuple)) else value


def _append(tree: Tree, line: dict[str, Any]) -> None:
    if not tree.exists(FILE):
        with suppress(FileExistsError):  # somebody else was first
            tree.create(FILE, b"")
    with tree.opened(FILE, os.O_RDWR | os.O_APPEND) as descriptor:
        size = os.fstat(descriptor).st_size
        # A line that a crash has cut off must not swallow this one.
        opening = b"" if not size or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
        write_all(descriptor, opening + json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        sync(descriptor)
