"""What stands in `deleted/` and until when it can be restored: read as it is, and nothing decided."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import Invalid, SMPError
from ..files import Tree
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, MARKER, check_session_id
from ..place import Place
from ..privacy.deleting.standing import type_of_file
from ..privacy.deleting.store import BACKUP, RECORD, is_known_file, member_of
from ..records import check_memory_id
from ..text.mapping import load_mapping
from ..text.values import Value
from ..timestamps import parse_time, render_time

TOP, ITEMS, WHOLE = "deletion", "deleted_items", "deleted_session"


class Gone(NamedTuple):
    """A memory that was deleted, as the record of its session names it."""

    id: str
    type: str
    file: str
    copy: str  # its name in the backup
    sha256: str
    batch: str = ""
    is_replaced: bool = False  # it was anonymised: another one stands in its place
    timestamp: str | None = None


@dataclass(frozen=True)
class Doomed:
    """What was deleted in one go: a session with all that it has, or some memories of one."""

    session: str
    deleted_at: str
    deadline: datetime
    memories: tuple[Gone, ...] = ()  # none where it is the whole session
    size_bytes: int = 0  # of the whole session
    in_use: bool = False  # the session is in `active/` all the same: it is just being deleted, or brought back

    @property
    def is_session(self) -> bool:
        return not self.memories

    @property
    def key(self) -> str:
        """The same for as long as it is deleted. Without a word of what it says."""
        what = "session" if self.is_session else "memories"
        return f"{self.session} {what} {self.deleted_at} {render_time(self.deadline)}"


@dataclass(frozen=True)
class Snapshot:
    """What a purge decides about, as it was when somebody looked."""

    doomed: tuple[Doomed, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes of every session, in `active/`, `archived/` and `deleted/`
    problems: tuple[str, ...] = ()
    has_marker: bool = True


def look(memory: Place) -> Snapshot:
    if not memory.tree.exists(MARKER):
        return Snapshot(has_marker=False)
    doomed, problems = all_doomed(memory)
    sizes: dict[str, int] = {}
    for place in (ACTIVE, ARCHIVED, DELETED):
        for name in directories(memory.tree, place):
            sizes[name] = sizes.get(name, 0) + sum(_size(memory.tree, file) for file in memory.tree.files_below(f"{place}/{name}"))
    return Snapshot(tuple(doomed), sizes, tuple(problems))


def _size(tree: Tree, file: str) -> int:
    try:
        return tree.stat(file).st_size
    except FileNotFoundError:
        return 0


def all_doomed(memory: Place) -> tuple[list[Doomed], list[str]]:
    """All that was deleted, and what of it cannot be understood."""
    found: list[Doomed] = []
    problems: list[str] = []
    for name in directories(memory.tree, DELETED):
        try:
            found += doomed_of(memory, name if name == GLOBAL else check_session_id(name), problems)
        except (SMPError, OSError) as error:
            problems.append(f"{DELETED}/{name} is left as it is: {error}")
    return found, problems


def doomed_of(memory: Place, session_id: str, problems: list[str]) -> list[Doomed]:
    path = f"{DELETED}/{session_id}/{RECORD}"
    # In the archive, too: somebody may have put it back there by hand.
    is_active = any(memory.tree.exists(name) for name in (f"{ACTIVE}/{session_id}", f"{ARCHIVED}/{session_id}/summary.yaml"))
    try:
        record = load_mapping(memory.tree.read(path), TOP, path)
    except FileNotFoundError:
        is_empty = not memory.tree.list(f"{DELETED}/{session_id}")
        if not is_empty and not is_active and not memory.tree.exists(f"{ARCHIVED}/{session_id}"):
            problems.append(f"{DELETED}/{session_id} has no {RECORD} and is left as it is.")
        return []
    found: list[Doomed] = []
    whole = record.get(WHOLE)
    if whole is not None:
        try:
            size = sum(memory.tree.sizes(f"{DELETED}/{session_id}").values())
            # A crash, or somebody who is at it just now, can have left it half way; see removal.py.
            is_whole = isinstance(whole, dict) and whole.get("state", "deleted") == "deleted"
            found.append(Doomed(session_id, *_times(whole), size_bytes=size, in_use=is_active or not is_whole))
        except ValueError as error:
            problems.append(f"{path}: what it says of the session cannot be understood ({error}); it is left as it is.")
    return found + _grouped(session_id, record, path, problems)


def _grouped(session_id: str, record: Mapping[str, Value], path: str, problems: list[str]) -> list[Doomed]:
    """Memories by when they were deleted and how long they are kept, which is the same for all that were deleted in one go."""
    groups: dict[tuple[str, datetime], list[Gone]] = {}
    foreign = 0
    for item in items_of(record):
        try:
            groups.setdefault(_times(item), []).append(as_gone(session_id, item))
        except (ValueError, Invalid):
            foreign += 1
    if foreign:
        problems.append(f"{path}: {foreign} items cannot be understood and are kept.")
    return [Doomed(session_id, *when, memories=tuple(memories)) for when, memories in groups.items()]


def items_of(record: Mapping[str, Value]) -> list[Any]:
    listed = record.get(ITEMS)
    return listed if isinstance(listed, list) else []


def as_gone(session_id: str, item: Any) -> Gone:
    """Raises ValueError or Invalid where it is none that we wrote."""
    if not isinstance(item, dict) or not is_known_file(session_id, item.get("file")):
        raise ValueError("no memory of a session")
    memory_id, file = check_memory_id(item.get("id", "")), str(item["file"])
    return Gone(memory_id, type_of_file(file), file, member_of(item), str(item.get("sha256")), str(item.get("batch") or ""),
                "replaced_by" in item, stamp if isinstance(stamp := item.get("timestamp"), str) else None)  # fmt: skip


def _times(said: Any) -> tuple[str, datetime]:
    if not isinstance(said, dict):
        raise ValueError("not a mapping")
    try:
        return str(said.get("deleted_at")), parse_time(str(said.get("recovery_deadline")))
    except OverflowError as error:
        raise ValueError("no time") from error


def directories(tree: Tree, place: str) -> list[str]:
    """The directories in one of the places of the tree; other files stand there too."""
    found: list[str] = []
    for name in tree.list(place):
        with suppress(FileNotFoundError):
            found += [name] if tree.is_directory(f"{place}/{name}") else []
    return found


def backup_of(session_id: str) -> str:
    return f"{DELETED}/{session_id}/{BACKUP}"


def record_of(session_id: str) -> str:
    return f"{DELETED}/{session_id}/{RECORD}"
