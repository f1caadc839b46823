"""Deleting memories so that they can be brought back: into `deleted/{session}/`, until their deadline.

`deletion-record.yaml` says what was deleted, when, by whom, why, and until when it can be restored; `backup.tar.gz` holds the bytes
of each record. A copy is durable there before anything is taken out, and what is taken out goes in one transaction. So a crash
leaves a memory where it was, or deleted; one that is still where it was does not count as deleted, whatever the record says.

A deleted turn leaves its number and its time in the conversation, and nothing else.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .append import note_rewritten, settle
from .document import Located
from .errors import CorruptionDetected, Invalid, MemoryNotFound
from .files import Tree
from .formats import format_of
from .layout import DELETED
from .locks import brief_lock, lock
from .mapping import load_mapping, render_mapping
from .records import Record, check_memory_id, is_deleted, kind_of_file
from .rewrite import rewrite
from .timestamps import render_time

if TYPE_CHECKING:
    from .session import Session

RECORD, BACKUP = "deletion-record.yaml", "backup.tar.gz"
RETENTION_DAYS = 30
_TOP = "deletion"
_CAP_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Deleted:
    """A memory that can be restored."""

    id: str
    type: str
    session: str
    timestamp: str | None
    deleted_at: str
    deleted_by: str
    reason: str
    recovery_deadline: str


def delete(session: Session, ids: Sequence[str], reason: str, deleted_by: str) -> list[Deleted]:
    """Takes these memories out, all or none."""
    if not reason.strip():
        raise Invalid(["a deletion needs a reason"])
    with lock(session.scope.tree, session.id, RECORD, session.scope.options.patience, "deleting"):
        store = _Store(session)
        items = [_item(session, memory_id, reason, deleted_by) for memory_id in dict.fromkeys(map(check_memory_id, ids))]
        store.save([*store.items(), *(item for item, _ in items)], {_member(item): raw for item, raw in items})
        with session.transaction() as transaction:
            for item, _ in items:
                transaction.remove(str(item["id"]))
    return [_deleted(session.id, item) for item, _ in items]


def deleted(session: Session) -> list[Deleted]:
    """What can be restored."""
    return [_deleted(session.id, item) for item in _Store(session).items()]


def restore(session: Session, memory_id: str) -> Record:
    """Puts a memory back where it was, byte for byte."""
    with lock(session.scope.tree, session.id, RECORD, session.scope.options.patience, "restoring"):
        store = _Store(session)
        items = store.items()
        item = next((item for item in items if item["id"] == memory_id), None)
        if item is None:
            raise MemoryNotFound(f"There is no deleted memory {memory_id!r} of {session.id}.", session_id=session.id,
                                 advice="session.deleted() lists those that can be restored.")  # fmt: skip
        raw = store.members().get(_member(item))
        if raw is None:
            raise CorruptionDetected(f"{store.path(BACKUP)} does not hold {memory_id} any more.", session_id=session.id)
        _put_back(session, item, raw)
        store.save([other for other in items if other is not item], {})
    return session.get(memory_id, count_access=False)


def _item(session: Session, memory_id: str, reason: str, deleted_by: str) -> tuple[dict[str, Any], bytes]:
    """What the record says of a memory, and its bytes."""
    kind = session.kind_of_record(memory_id)
    content = session.scope.read(kind.file)
    records = format_of(kind).parse(content).records
    place = max((place for place, record in enumerate(records) if record.value.get("id") == memory_id), default=None)
    if place is None or is_deleted(kind, records[place].value):
        raise MemoryNotFound(f"There is no memory {memory_id!r} in {session.id}.", session_id=session.id)
    now = session.scope.options.clock()
    found = records[place]
    return {
        "type": kind.name, "id": memory_id, "timestamp": found.value.get("timestamp"), "reason_specific": reason,
        "deleted_at": render_time(now), "deleted_by": deleted_by,
        "recovery_deadline": render_time(now + timedelta(days=RETENTION_DAYS)),
        "file": kind.file, "behind": records[place - 1].value.get("id") if place else None,
    }, content[found.start : found.end]  # fmt: skip


def _put_back(session: Session, item: dict[str, Any], raw: bytes) -> None:
    kind = kind_of_file(str(item["file"]))
    form = format_of(kind)

    def restored(content: bytes) -> bytes:
        known = {str(record.value.get("id")): record for record in form.parse(content).records}
        same = known.get(str(item["id"]))
        if same is not None:
            # What stands in the place of a turn, or the memory itself, where a crash kept the record from being cleared.
            return content[: same.start] + raw + content[same.end :] if is_deleted(kind, same.value) else content
        if not known:
            start = form.empty(session.id, session.scope.options.clock(), [])
            return form.insert(content or start, form.parse(start + raw).records[0].value)
        at = _place(item, known)
        return content[:at] + raw + content[at:]

    with session.scope.locked([kind.file], f"restoring {item['id']}") as held:
        tail = settle(session.scope, kind, held[kind.file])
        with brief_lock(session.scope.tree, session.id, "usage", session.scope.options.patience):
            session.scope.usage.require(session.id, len(raw), session.quota_bytes())
            note_rewritten(held[kind.file], tail, rewrite(session.scope, kind.file, restored))


def _place(item: dict[str, Any], known: dict[str, Located]) -> int:
    """Where it belongs: behind the one that it was behind; where that is gone too, before the first of a higher number."""
    if before := known.get(str(item["behind"])):
        following = [record.start for record in known.values() if record.start >= before.end]
        return min(following, default=before.end)
    own = _number(str(item["id"]))
    later = [record.start for memory_id, record in known.items() if _number(memory_id) > own]
    return min(later, default=max(record.end for record in known.values()))


def _number(memory_id: str) -> int:
    last = memory_id.rpartition("-")[2]
    return int(last) if last.isdecimal() else 0


class _Store:
    """`deleted/{session}/`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tree: Tree = session.scope.tree

    def path(self, name: str) -> str:
        return f"{DELETED}/{self._session.id}/{name}"

    def items(self) -> list[dict[str, Any]]:
        """What is deleted; what a crash has left where it was is not."""
        listed = load_mapping(self._read(RECORD), _TOP, RECORD).get("deleted_items")
        items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
        return [item for item in items if not self._is_there(item)]

    def members(self) -> dict[str, bytes]:
        content = self._read(BACKUP)
        if not content:
            return {}
        found: dict[str, bytes] = {}
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
                for member in archive:
                    if member.isfile() and member.size <= _CAP_BYTES and (opened := archive.extractfile(member)):
                        found[member.name] = opened.read(_CAP_BYTES)
        except (tarfile.TarError, OSError, EOFError) as error:
            raise CorruptionDetected(f"{self.path(BACKUP)} cannot be read: {error}.", session_id=self._session.id) from error
        return found

    def save(self, items: list[dict[str, Any]], added: dict[str, bytes]) -> None:
        """The bytes first: a record that names what is nowhere would be worse than a copy that nothing names."""
        wanted = {_member(item) for item in items}
        members = {name: raw for name, raw in {**self.members(), **added}.items() if name in wanted}
        self._tree.make_directory(f"{DELETED}/{self._session.id}")
        self._replace(BACKUP, _packed(members))
        last: dict[str, Any] = items[-1] if items else {}
        self._replace(RECORD, render_mapping(_TOP, {
            "session_id": self._session.id, "deleted_at": last.get("deleted_at"), "deleted_by": last.get("deleted_by"),
            "reason": last.get("reason_specific"), "deleted_items": list(items),
            "recovery_deadline": last.get("recovery_deadline"), "backup_location": self.path(BACKUP),
        }))  # fmt: skip

    def _is_there(self, item: dict[str, Any]) -> bool:
        kind = kind_of_file(str(item["file"]))
        found = format_of(kind).find(self._session.scope.read(kind.file), str(item["id"]))
        return found is not None and not is_deleted(kind, found.value)

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self._tree.create_temporary(content)
        self._tree.rename(temporary, self.path(name))
        self._tree.sync_parent(self.path(name))

    def _read(self, name: str) -> bytes:
        try:
            return self._tree.read(self.path(name))
        except FileNotFoundError:
            return b""


def _packed(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, raw in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(raw), 0o600
            archive.addfile(member, io.BytesIO(raw))
    return target.getvalue()


def _member(item: dict[str, Any]) -> str:
    return f"{item['file']}/{item['id']}"


def _deleted(session_id: str, item: dict[str, Any]) -> Deleted:
    return Deleted(str(item["id"]), str(item["type"]), session_id, item.get("timestamp"), str(item.get("deleted_at")),
                   str(item.get("deleted_by")), str(item.get("reason_specific")), str(item.get("recovery_deadline")))  # fmt: skip
