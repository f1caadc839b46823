"""`deleted/purged.yaml`: what was purged, when and why it could be, without a word of what it said.

An entry is durable before anything of it is removed, and has a key that is the same for whoever finishes what a crash has cut off:
so each purge stands there once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from ..document import parse
from ..layout import DELETED
from ..locks import lock
from ..timestamps import render_time
from ..values import Value, render_entries
from ..versions import require_known, version_in

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import Memory
    from .doomed import Doomed

FILE = f"{DELETED}/purged.yaml"
_SCOPE, _LOCK = "+purge", "purged.yaml"  # no session can have this name
_LIST = "purged"


def note(memory: Memory, one: Doomed, now: datetime, *, forced: bool) -> None:
    key = _key(one)
    with lock(memory.tree, _SCOPE, _LOCK, memory.options.patience, "noting what is purged"):
        content = _read(memory)
        require_known(version_in(FILE, content), FILE)
        # Not parsed: what somebody may have done to the file must not make it say anything twice.
        if f"key: {key}".encode() not in content:
            opening = b"" if not content or content.endswith(b"\n") else b"\n"
            head = content or f"version: 1\n{_LIST}:\n".encode()
            memory.tree.make_directory(DELETED)
            memory.tree.replace(FILE, head + opening + _rendered(key, one, now, forced=forced))


def sessions(memory: Memory) -> set[str]:
    """The sessions that were purged whole."""
    found = parse(_read(memory), _LIST).records
    return {str(record.value.get("session")) for record in found if record.value.get("what") == "session"}


def memories(tree: Tree, session_id: str) -> dict[str, str]:
    """The memories of a session that were purged one by one, each with when."""
    content = tree.read(FILE) if tree.exists(FILE) else b""
    entries = [record.value for record in parse(content, _LIST).records if record.value.get("session") == session_id]
    lists = [(entry.get("ids"), str(entry.get("purged_at"))) for entry in entries]
    return {str(memory_id): at for ids, at in lists for memory_id in (ids if isinstance(ids, list) else ())}


def _read(memory: Memory) -> bytes:
    try:
        return memory.tree.read(FILE)
    except FileNotFoundError:
        return b""


def _key(one: Doomed) -> str:
    said = "\n".join([one.key, *sorted(gone.id for gone in one.memories)])
    # Begins with a letter, so that no reader takes it for a number.
    return "k" + hashlib.sha256(said.encode()).hexdigest()[:20]


def _rendered(key: str, one: Doomed, now: datetime, *, forced: bool) -> bytes:
    entry: dict[str, Value] = {"key": key, "session": one.session, "what": "session" if one.is_session else "memories"}
    if one.is_session:
        entry["bytes"] = one.size_bytes
    else:
        entry["ids"] = [gone.id for gone in one.memories]
        entry["types"] = dict(Counter(gone.type for gone in one.memories))
    entry |= {"deleted_at": one.deleted_at, "recovery_deadline": render_time(one.deadline)}
    entry |= {"purged_at": render_time(now), "forced": forced}
    lines = render_entries(entry, 4)
    return "".join(f"{line}\n" for line in [f"  - {lines[0].lstrip()}", *lines[1:]]).encode()
