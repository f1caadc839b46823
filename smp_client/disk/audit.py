"""`audit.log`: who deleted, restored, purged, exported, imported or anonymised, when and how much.

It never quotes a memory. A line is durable before the action. A second line says that the action
failed, or that it is recorded in the journal and not finished yet. The file only grows: SMP never
rewrites it, and no purge touches it.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from ..model.errors import SMPError, TransactionPending
from ..model.times import render_time
from ..redaction.redact import Redaction
from .tree import Tree

FILE = "audit.log"
_IDS_CAP = 200  # a line must stay short enough to be written at once


def account() -> str:
    """Return the name of the account that this process runs under."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # as in a container that knows only the number
        return f"uid {os.geteuid()}"


def note(
    tree: Tree, action: str, *, at: datetime, by: str, session: str | None = None,
    count: int | None = 0, **facts: Any,
) -> None:  # fmt: skip
    """Append a line, durably. `facts` are names, ids, counts and times, and never content.

    A secret in a name or an id stays out of a file that is never rewritten.
    """
    line: dict[str, Any] = {"at": render_time(at), "action": action, "by": by}
    line |= {"session": session, "count": count}
    for name, value in facts.items():
        if isinstance(value, (list, tuple)):
            more = [f"and {len(value) - _IDS_CAP} more"] if len(value) > _IDS_CAP else []
            value = [*value[:_IDS_CAP], *more]
        if value not in (None, [], {}):
            line[name] = value
    clean, _ = Redaction().redacted_value(line)
    text = json.dumps(clean, ensure_ascii=False).encode("utf-8", "replace")
    tree.append_line(FILE, text + b"\n", head=b"")


@contextmanager
def noted(
    tree: Tree, action: str, *, clock: Callable[[], datetime], by: str, **facts: Any
) -> Iterator[None]:
    """Append a line before the action in the block, and another if it fails or stays pending.

    The caller always gets the error of the action, also if the second line cannot be written.
    """
    note(tree, action, at=clock(), by=by, **facts)
    try:
        yield
    except TransactionPending:
        with suppress(OSError, SMPError):
            note(tree, action, at=clock(), by=by, **facts, pending=True)
        raise
    except BaseException as error:
        with suppress(OSError, SMPError):
            note(tree, action, at=clock(), by=by, **facts, failed=type(error).__name__)
        raise
