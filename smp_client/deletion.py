"""Deleting memories so that they can be brought back: into `deleted/{session}/`, until their deadline.

`deletion-record.yaml` says what was deleted, when, by whom, why, and until when it can be restored; `backup.tar.gz` holds the bytes
of each record and, under `values/`, what they say. A copy is durable there before anything is taken out, and what is taken out goes
in one transaction, if it still is what was copied. So a crash leaves a memory where it was, or deleted; one that is still where it
was does not count as deleted, whatever the record says.

A deleted turn leaves its number and its time in the conversation, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .append import settle
from .document import Located, RecordList
from .errors import Conflict, CorruptionDetected, Invalid, MemoryNotFound, SMPError, TransactionPending
from .files import Tree
from .formats import Format, format_of
from .layout import DELETED
from .locks import brief_lock, lock
from .mapping import load_mapping, render_mapping
from .packing import read_members, write_archive
from .records import TURN, Kind, Record, as_record, check_memory_id, is_deleted, plain_fields
from .rewrite import rewrite
from .timestamps import render_time
from .values import Value, canonical
from .whereabouts import missing

if TYPE_CHECKING:
    from .session import Session

RECORD, BACKUP = "deletion-record.yaml", "backup.tar.gz"
_TOP = "deletion"
_VALUES = "values/"  # before the name of a copy: its value as JSON, for a file whose style has changed since


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


@dataclass(frozen=True)
class _Found:
    """A record where it stands, and its bytes."""

    kind: Kind
    value: dict[str, Value]
    raw: bytes
    behind: str | None  # the id of the record before it
    line: int


def delete(session: Session, ids: str | Iterable[str], reason: str, deleted_by: str, *, dry_run: bool = False) -> list[Deleted]:
    """Takes these memories out, all or none. One that changes between its copy and its removal stays, and raises Conflict."""
    wanted = _wanted(ids)
    said = check_said(reason, deleted_by)
    with _locked(session, "deleting"):
        store = _Store(session)
        items = store.items()
        taken = store.members().keys()
        new = {_free_name(found, taken): found for found in _find(session, wanted)}
        now = session.scope.options.clock()
        added = [_item(session, found, name, said, now) for name, found in new.items()]
        if dry_run:
            return [_deleted(session, item) for item in added]
        store.save([*items, *added], {name: raw for copy, found in new.items() for name, raw in _copies(copy, found).items()})
        try:
            with session.transaction() as transaction:
                for found in new.values():
                    transaction.remove(found.kind, found.value)
        except TransactionPending:
            # It will happen, and then the copies are all that there is.
            raise
        except BaseException:
            # What is still there was not deleted, changed or not. Reading sees a recorded transaction as done, so this is safe.
            with suppress(OSError, SMPError):
                store.save([*items, *(item for item in added if store.standing(item) is None)], {})
            raise
    return [_deleted(session, item) for item in added]


def deleted(session: Session) -> list[Deleted]:
    """What can be restored."""
    with session.scope.answering("listing what was deleted"):
        return [_deleted(session, item) for item in _Store(session).items()]


def restore(session: Session, memory_id: str) -> Record:
    """Puts a memory back where it was, byte for byte where the style of the file still allows it.

    Where another one has its id by now it raises Conflict; the copy is kept until the memory reads back the same.
    """
    with _locked(session, "restoring"):
        store = _Store(session)
        items = store.items()
        item = next((item for item in reversed(items) if item["id"] == memory_id), None)
        if item is None:
            raise MemoryNotFound(f"There is no deleted memory {memory_id!r} of {session.id}.", session_id=session.id,
                                 advice="session.deleted() lists those that can be restored.")  # fmt: skip
        raw, value = store.copy(item)
        kind = _kind_of(session, item)
        _put_back(session, kind, item, raw, value)
        found = store.standing(item)
        if found is None or canonical(found) != canonical(value):
            raise CorruptionDetected(f"{memory_id} does not read back from {item['file']}: its copy stays.", session_id=session.id)
        store.save([other for other in items if other is not item], {})
        return as_record(kind, session.id, found)


@contextmanager
def _locked(session: Session, doing: str) -> Iterator[None]:
    scope = session.scope
    with scope.answering(doing):
        scope.require()
        with lock(scope.tree, session.id, RECORD, scope.options.patience, doing):
            yield


def _wanted(ids: str | Iterable[str]) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        return [check_memory_id(ids)]
    return list(dict.fromkeys([check_memory_id(memory_id) for memory_id in ids]))


def check_said(reason: str, deleted_by: str) -> dict[str, Value]:
    """What a person said of the deletion, as the record can hold it."""
    problems: list[str] = []
    said = plain_fields({"reason": reason, "deleted_by": deleted_by}, problems)
    if not isinstance(reason, str) or not reason.strip():
        problems.append("a deletion needs a reason")
    if not isinstance(deleted_by, str) or not deleted_by.strip():
        problems.append("a deletion needs somebody who deletes")
    if problems:
        raise Invalid(problems)
    return said


def _find(session: Session, wanted: list[str]) -> list[_Found]:
    """The records of these ids, in whatever file they stand. Of two with one id neither is taken: the other would answer again."""
    standing: dict[str, list[_Found]] = {memory_id: [] for memory_id in wanted}
    for kind in session.kinds:
        content = session.scope.read(kind.file)
        if not any(memory_id.startswith("turn-") if kind is TURN else memory_id.encode() in content for memory_id in wanted):
            continue
        behind: str | None = None
        for record in format_of(kind).parse(content).records:
            memory_id = str(record.value.get("id", ""))
            if record.has_id and memory_id in standing:
                line = content.count(b"\n", 0, record.start) + 1
                standing[memory_id].append(_Found(kind, record.value, content[record.start : record.end], behind, line))
            behind = memory_id
    for memory_id, every in standing.items():
        if all(is_deleted(found.kind, found.value) for found in every):
            raise missing(session.scope, memory_id)
        if len(every) > 1:
            places = ", ".join(f"{found.kind.file} line {found.line}" for found in every)
            raise CorruptionDetected(f"{memory_id} stands more than once: {places}; nothing was deleted.", session_id=session.id)
    return [every[0] for every in standing.values()]


def _item(session: Session, found: _Found, name: str, said: dict[str, Value], now: datetime) -> dict[str, Any]:
    """What the record says of a memory."""
    return {
        "type": found.kind.name, "id": found.value["id"], "timestamp": found.value.get("timestamp"),
        "reason_specific": said["reason"], "deleted_at": render_time(now), "deleted_by": said["deleted_by"],
        "recovery_deadline": render_time(deadline(now, session.scope.options.retention.deleted_days)),
        "file": found.kind.file, "behind": found.behind, "copy": name, "sha256": fingerprint(found.value),
    }  # fmt: skip


def deadline(now: datetime, days: float) -> datetime:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def fingerprint(value: dict[str, Value]) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def _free_name(found: _Found, taken: Collection[str]) -> str:
    """A name for the copy; one of the same id may have been deleted before, and is kept beside it."""
    first = name = f"{found.kind.file}/{found.value['id']}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}+{number}"
    return name


def _copies(name: str, found: _Found) -> dict[str, bytes]:
    return {name: found.raw, f"{_VALUES}{name}": json.dumps(found.value).encode()}


def _put_back(session: Session, kind: Kind, item: dict[str, Any], raw: bytes, value: dict[str, Value]) -> None:
    scope = session.scope
    form = format_of(kind)

    def restored(content: bytes) -> bytes:
        content = content or form.empty(session.id, scope.options.clock(), [])
        found = form.parse(content)
        same = [record for record in found.records if record.value.get("id") == item["id"]]
        standing = [record for record in same if not is_deleted(kind, record.value)]
        if [canonical(record.value) for record in standing] == [canonical(value)]:
            # A crash kept the record from being cleared.
            return content
        if standing:
            raise Conflict(f"Another {item['id']} stands in {kind.file} by now; the deleted one was left where it is.",
                           session_id=session.id, advice="Give the other one another id, then restore again.")  # fmt: skip
        place = same[-1] if same else None
        wanted = Counter([canonical(value), *(canonical(record.value) for record in found.records if record is not place)])
        for after in _attempts(form, item, raw, value, content, found, place):
            now = form.parse(after)
            read = form.find(after, str(item["id"]))
            is_whole = Counter(canonical(record.value) for record in now.records) == wanted and len(now.bad) <= len(found.bad)
            keeps_head = canonical({**now.head, **found.head}) == canonical(now.head)
            if is_whole and keeps_head and read and canonical(read.value) == canonical(value):
                return after
        raise CorruptionDetected(f"{item['id']} cannot be put back into {kind.file} as it is now; nothing was changed.",
                                 session_id=session.id)  # fmt: skip

    with scope.locked([kind.file], f"restoring {item['id']}") as held:
        tail = settle(scope, kind, held[kind.file])
        with brief_lock(scope.tree, session.id, "usage", scope.options.patience):
            scope.usage.require(session.id, len(raw), session.quota_bytes())
            rewrite(scope, kind.file, restored)
        # The bytes may have brought a style of their own into an empty list: let the next writer look.
        held[kind.file].note = {"last": tail.last}


def _attempts(
    form: Format, item: dict[str, Any], raw: bytes, value: dict[str, Value], content: bytes, found: RecordList,
    place: Located | None,
) -> Iterator[bytes]:  # fmt: skip
    """The file with the memory in it, the best way first; its style may have changed since, so none is sure to be right."""
    if place is not None:
        # What stands in the place of a turn.
        yield content[: place.start] + raw + content[place.end :]
        yield form.rewrite(content, {str(item["id"]): value}, 0)
        return
    at = _place(item, found) if found.records else len(content)
    before, behind = content[:at], content[at:]
    opening = b"" if not before or before.endswith(b"\n") else b"\n"
    if not behind:
        opening = form.opening(found, content) or opening
    yield before + opening + raw + (b"\n" if behind and not raw.endswith(b"\n") else b"") + behind
    yield form.insert(content, value)


def _place(item: dict[str, Any], found: RecordList) -> int:
    """Where it belongs: behind the one that it was behind; where that is gone too, before the first of a higher number."""
    known = {str(record.value.get("id", "")): record for record in found.records}
    if before := known.get(str(item.get("behind"))):
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
        items = [item for item in self._listed() if self._is_known(item)]
        # Each file is read once, however many were deleted from it.
        contents = {file: self._session.scope.read(file) for file in {item["file"] for item in items}}
        return [item for item in items if not self._is_there(item, contents[item["file"]])]

    def copy(self, item: dict[str, Any]) -> tuple[bytes, dict[str, Value]]:
        """The bytes of a memory, and what they say."""
        members = self.members()
        raw = members.get(_member(item))
        if raw is not None and (value := self._value(item, raw, members.get(f"{_VALUES}{_member(item)}"))):
            return raw, value
        raise CorruptionDetected(f"{self.path(BACKUP)} does not hold {item['id']} any more.", session_id=self._session.id)

    def members(self) -> dict[str, bytes]:
        return dict(read_members(self._tree, self.path(BACKUP))) if self._tree.exists(self.path(BACKUP)) else {}

    def save(self, items: list[dict[str, Any]], added: dict[str, bytes]) -> None:
        """New bytes first, old ones last: a record that names what is nowhere would be worse than a copy that nothing names."""
        # What a person wrote into the record, and we do not understand, stays; and so does any copy that it may mean.
        foreign = [item for item in self._listed() if not self._is_known(item)]
        self._require_no_session()
        members = {**self.members(), **added}
        if not items and not foreign and not added:
            self._forget()
            return
        self._tree.make_directory(f"{DELETED}/{self._session.id}")
        if added:
            write_archive(self._tree, self.path(BACKUP), members.items())
        last: dict[str, Any] = items[-1] if items else {}
        self._tree.replace(self.path(RECORD), render_mapping(_TOP, {
            "session_id": self._session.id, "deleted_at": last.get("deleted_at"), "deleted_by": last.get("deleted_by"),
            "reason": last.get("reason_specific"), "deleted_items": [*foreign, *items],
            "recovery_deadline": last.get("recovery_deadline"), "backup_location": self.path(BACKUP),
        }))  # fmt: skip
        wanted = {_member(item) for item in items}
        kept = {name: raw for name, raw in members.items() if foreign or name.removeprefix(_VALUES) in wanted}
        if kept.keys() != members.keys():
            write_archive(self._tree, self.path(BACKUP), kept.items())

    def _require_no_session(self) -> None:
        """A whole session of the same id can have been deleted before this one was made: its copy is not ours to change."""
        if "deleted_session" in load_mapping(self._read(RECORD), _TOP, self.path(RECORD)):
            name = self._session.id
            raise Conflict(f"A whole session {name!r} was deleted and can still be restored; nothing was changed.", session_id=name,
                           advice=f"Move {DELETED}/{name} away; after a crash, smp check --repair puts it right.")  # fmt: skip

    def _forget(self) -> None:
        """Nothing is deleted any more: the record goes last, as long as it is there the copies may be asked for."""
        for name in (BACKUP, RECORD):
            self._tree.unlink(self.path(name))
        self._tree.remove_empty(f"{DELETED}/{self._session.id}")

    def standing(self, item: dict[str, Any], content: bytes | None = None) -> dict[str, Value] | None:
        """The record that the file holds under this id now."""
        kind = _kind_of(self._session, item)
        found = format_of(kind).find(self._session.scope.read(kind.file) if content is None else content, str(item["id"]))
        return found.value if found and not is_deleted(kind, found.value) else None

    def _is_there(self, item: dict[str, Any], content: bytes) -> bool:
        """Whether it is the one that was copied: another one of the same id does not bring it back."""
        value = self.standing(item, content)
        return value is not None and fingerprint(value) == item.get("sha256")

    def _is_known(self, item: Any) -> bool:
        try:
            return isinstance(item, dict) and bool(check_memory_id(item.get("id", "")) and _kind_of(self._session, item))
        except Invalid:
            return False

    def _listed(self) -> list[Any]:
        listed = load_mapping(self._read(RECORD), _TOP, self.path(RECORD)).get("deleted_items")
        if listed is not None and not isinstance(listed, list):
            raise CorruptionDetected(f"'deleted_items' in {self.path(RECORD)} is not a list.", session_id=self._session.id)
        return listed or []

    def _value(self, item: dict[str, Any], raw: bytes, stored: bytes | None) -> dict[str, Value] | None:
        try:
            value = json.loads(stored) if stored is not None else self._parsed(item, raw)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) and value.get("id") == item["id"] else None

    def _parsed(self, item: dict[str, Any], raw: bytes) -> dict[str, Value] | None:
        form = format_of(_kind_of(self._session, item))
        records = form.parse(form.empty(self._session.id, self._session.scope.options.clock(), []) + raw).records
        return records[0].value if len(records) == 1 else None

    def _read(self, name: str) -> bytes:
        try:
            return self._tree.read(self.path(name))
        except FileNotFoundError:
            return b""


def _kind_of(session: Session, item: dict[str, Any]) -> Kind:
    for kind in session.kinds:
        if kind.file == item.get("file"):
            return kind
    raise Invalid([f"no memories of a session are kept in {item.get('file')!r}"])


def _member(item: dict[str, Any]) -> str:
    return str(item.get("copy") or f"{item['file']}/{item['id']}")


def _deleted(session: Session, item: dict[str, Any]) -> Deleted:
    timestamp = item.get("timestamp")
    return Deleted(str(item["id"]), _kind_of(session, item).name, session.id, None if timestamp is None else str(timestamp),
                   str(item.get("deleted_at")), str(item.get("deleted_by")), str(item.get("reason_specific")),
                   str(item.get("recovery_deadline")))  # fmt: skip
