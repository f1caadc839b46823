"""`deleted/purged.yaml`: which memories were purged, when and why, without their content.

An entry is durable before anything of it is removed. Its key is the same for whoever finishes a
purge that a crash has cut off, so each purge stands there once. The time of each memory is kept
with its id: other programs give an id more than once, and the time tells which was purged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from ..model.layout import DELETED
from ..model.record import STATE_HISTORY, Kind, name_of
from ..model.times import render_time
from ..text.values import Value, render_entries
from ..text.version import require_known, version_in
from ..text.yaml_list import parse
from .locks import lock

if TYPE_CHECKING:
    from ..change.holdings import Holding
    from ..memory import Memory
    from .tree import Tree

FILE = f"{DELETED}/purged.yaml"
_SCOPE, _LOCK = "+purge", "purged.yaml"  # no session can have this name
_LIST = "purged"
_IMPORTED, _IMPORTED_ID = "imported", "imported_id"


@dataclass(frozen=True)
class Entry:
    """One purge: memories of a session, or with none of them the session whole."""

    session: str
    memories: Sequence[Holding]
    deleted_at: str
    deadline: str
    size_bytes: int
    forced: bool

    @property
    def key(self) -> str:
        sort = "memories" if self.memories else "session"
        said = [self.session, sort, self.deleted_at, self.deadline]
        said += sorted(one.id for one in self.memories)
        # Begins with a letter, so that no reader takes it for a number.
        return "k" + hashlib.sha256("\n".join(said).encode()).hexdigest()[:20]


@dataclass
class Purged:
    """The purged memories of one session, or of `global`."""

    whole: str = ""  # when the session itself was purged, if it was
    # Each with when it was purged; of a session that was made anew since, only since then.
    memories: dict[str, str] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)  # by the id that it was imported with
    _files: dict[str, set[str]] = field(default_factory=dict)
    _times: dict[str, set[str | None]] = field(default_factory=dict)  # by id; None: nobody knows

    def when(self, file: str, memory_id: str) -> str | None:
        """Return when the memory of this id was purged.

        Ids are never given twice, but each agent counts its earlier states by itself.
        """
        files = self._files.get(memory_id, set())
        is_it = file in files if files else not file.startswith(f"{STATE_HISTORY}/")
        return (self.memories.get(memory_id) or self.imported.get(memory_id)) if is_it else None

    def holds(self, file: str, value: Mapping[str, Value]) -> bool:
        """Return whether this very memory was purged.

        A memory from another layout may have an id that was another's here; its time tells.
        """
        memory_id, old = str(value.get("id")), value.get(_IMPORTED_ID)
        if not isinstance(value.get(_IMPORTED), dict):
            return self.when(file, memory_id) is not None
        stamp = _text(value.get("timestamp"))
        for one in (memory_id, *([old] if isinstance(old, str) else [])):
            times = self._times.get(one, {None})
            if self.when(file, one) is not None and (stamp is None or {None, stamp} & times):
                return True
        return False

    def highest(self, kind: Kind) -> int:
        """Return the highest number that a purged memory of this kind had."""
        ids = (one.rpartition("-") for one in self.memories)
        numbers = (number for prefix, _, number in ids if prefix == kind.prefix)
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def take(self, entry: Mapping[str, Value]) -> None:
        at = str(entry.get("purged_at"))
        if entry.get("what") == "session":
            self.whole, self.memories, self.imported, self._files, self._times = at, {}, {}, {}, {}
            return
        files = {str(file) for file in _list(entry, "files")}
        for known, prefix in ((self.memories, ""), (self.imported, "imported_")):
            ids, stamps = _list(entry, f"{prefix}ids"), _list(entry, f"{prefix}timestamps")
            for memory_id, stamp in zip_longest(map(str, ids), stamps[: len(ids)]):
                known[memory_id] = at
                self._files.setdefault(memory_id, set()).update(files)
                self._times.setdefault(memory_id, set()).add(_text(stamp))


def note(memory: Memory, entry: Entry, now: datetime) -> None:
    """Add an entry, durably, unless it is there."""
    with lock(memory.tree, _SCOPE, _LOCK, memory.options.lock_timeout_s, "noting what is purged"):
        content = _read(memory.tree)
        require_known(version_in(FILE, content), FILE)
        # Not parsed: an edit of the file must not make it say anything twice.
        if f"key: {entry.key}".encode() not in content:
            opening = b"" if not content or content.endswith(b"\n") else b"\n"
            head = content or f"version: 1\n{_LIST}:\n".encode()
            memory.tree.make_directory(DELETED)
            memory.tree.replace(FILE, head + opening + _rendered(entry, now))


def load(tree: Tree) -> dict[str, Purged]:
    """Return all that was purged, by session."""
    found: dict[str, Purged] = {}
    for record in parse(_read(tree), _LIST).records:
        found.setdefault(str(record.value.get("session")), Purged()).take(record.value)
    return found


def sessions(memory: Memory) -> set[str]:
    """Return the sessions that were purged whole."""
    return {name for name, purged in load(memory.tree).items() if purged.whole}


def memories(tree: Tree, session_id: str) -> dict[str, str]:
    """Return the memories of a session that were purged one by one, each with when."""
    return load(tree).get(session_id, Purged()).memories


def _read(tree: Tree) -> bytes:
    try:
        return tree.read(FILE)
    except FileNotFoundError:
        return b""


def _rendered(one: Entry, now: datetime) -> bytes:
    entry: dict[str, Value] = {"key": one.key, "session": one.session}
    entry["what"] = "memories" if one.memories else "session"
    if not one.memories:
        entry["bytes"] = one.size_bytes
    else:
        entry["ids"] = [gone.id for gone in one.memories]
        entry["timestamps"] = [_text(gone.value.get("timestamp")) for gone in one.memories]
        entry["files"] = [*sorted({gone.file for gone in one.memories})]
        old_ids, old_times = list[Value](), list[Value]()
        for gone in one.memories:
            # Others may bring a memory again under the ids that it was imported with.
            notes = gone.value.get(_IMPORTED)
            ids = (
                gone.value.get(_IMPORTED_ID),
                notes.get("id") if isinstance(notes, dict) else None,
            )
            for old in dict.fromkeys(one for one in ids if isinstance(one, str)):
                old_ids.append(old)
                old_times.append(_text(gone.value.get("timestamp")))
        if old_ids:
            entry |= {"imported_ids": old_ids, "imported_timestamps": old_times}
        entry["types"] = dict(Counter(name_of(gone.type) for gone in one.memories))
    entry |= {"deleted_at": one.deleted_at, "recovery_deadline": one.deadline}
    entry |= {"purged_at": render_time(now), "forced": one.forced}
    lines = render_entries(entry, 4)
    return "".join(f"{line}\n" for line in [f"  - {lines[0].lstrip()}", *lines[1:]]).encode()


def _list(entry: Mapping[str, Value], name: str) -> list[Value]:
    listed = entry.get(name)
    return listed if isinstance(listed, list) else []


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
