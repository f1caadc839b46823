"""`deleted/{session}/`: what was taken out or replaced, until its deadline.

`deletion-record.yaml` says what, when, by whom, why, and until when it can be restored; `backup.tar.gz` holds the bytes of each
memory and, under `values/`, what they say. What is still where it was does not count as deleted, whatever the record says: a crash
may have come before it was taken out. Until a batch is, `unfinished` names it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import and_
from typing import TYPE_CHECKING, Any

from ...errors import Conflict, CorruptionDetected, Invalid
from ...layout import ARCHIVED, DELETED, GLOBAL
from ...packing import read_members, write_archive
from ...records import check_memory_id, is_deleted, kind_of_file, plain_fields, type_of
from ...text.document import Located
from ...text.format import HEAD, format_of
from ...text.mapping import load_mapping, render_mapping, replace_parts
from ...text.values import Value, canonical
from ...timestamps import render_time
from ..redact import harmless
from .standing import EVICTED, PROFILE, Contents, Standing, evicted, holds_memories, is_record_file, type_of_file

if TYPE_CHECKING:
    from ...memory import Memory

_FEW = 16  # memories of one file, which are found without reading the others
RECORD, BACKUP = "deletion-record.yaml", "backup.tar.gz"
TOP, UNFINISHED, RESTORING, WHOLE = "deletion", "unfinished", "restoring", "deleted_session"
VALUES = "values/"  # before the name of a copy: its value as JSON, for a file whose style has changed since
NEW = "new/"  # and what is to stand in its place, while that is on its way
DELETION, ANONYMIZATION = "delete", "anonymize"


@dataclass(frozen=True)
class Deleted:
    """A memory that can be restored, or what it was before it was anonymised."""

    id: str
    type: str
    session: str
    timestamp: str | None
    deleted_at: str
    deleted_by: str
    reason: str
    recovery_deadline: str
    batch: str = ""  # all that was taken out in one go has the same
    file: str = ""
    place: str = ""  # where it was: `evicted` for what compaction had taken out
    action: str = DELETION


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
    return {name: harmless(str(value)) for name, value in said.items()}


def deadline(now: datetime, days: float) -> datetime:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def fingerprint(value: Mapping[str, Value] | bytes) -> str:
    """By which a record, or a file, is known to be the one that was copied."""
    return hashlib.sha256(value if isinstance(value, bytes) else canonical(dict(value))).hexdigest()


def fingerprint_of(one: Standing) -> str:
    return fingerprint(one.raw if one.is_file else one.value)


def as_deleted(name: str, item: Mapping[str, Any]) -> Deleted:
    timestamp = item.get("timestamp")
    kind = "head" if item["id"] == HEAD else type_of(type_of_file(str(item["file"])))
    return Deleted(str(item["id"]), kind, name, None if timestamp is None else str(timestamp),
                   str(item.get("deleted_at")), str(item.get("deleted_by")), str(item.get("reason_specific")),
                   str(item.get("recovery_deadline")), str(item.get("batch") or ""), str(item["file"]),
                   str(item.get("place") or ""), str(item.get("action") or DELETION))  # fmt: skip


def new_item(
    one: Standing, taken: Collection[str], said: Mapping[str, Value], *, now: datetime, days: float, batch: str,
    action: str = DELETION, new: Mapping[str, Value] | bytes | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What the record says of a memory."""
    stamp = one.value.get("timestamp")
    item: dict[str, Any] = {
        "type": one.type, "id": one.id, "timestamp": stamp if isinstance(stamp, str) else None,
        "reason_specific": said["reason"], "deleted_at": render_time(now), "deleted_by": said["deleted_by"],
        "recovery_deadline": render_time(deadline(now, days)), "file": one.file, "behind": one.behind,
        "copy": _free_name(one, taken), "sha256": fingerprint_of(one), "batch": batch,
    }  # fmt: skip
    if one.place == EVICTED:
        item |= {"place": EVICTED, "eviction": one.container, "evicted": dict(one.facts)}
    if action != DELETION:
        item["action"] = action
    if new is not None:
        item["replaced_by"] = fingerprint(new)
    return item


def _free_name(one: Standing, taken: Collection[str]) -> str:
    """A name for the copy; one of the same id may have been deleted before, and is kept beside it."""
    first = name = f"{one.file}/{one.id}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}+{number}"
    return name


def copies_of(item: Mapping[str, Any], one: Standing) -> dict[str, bytes]:
    name = str(item["copy"])
    if one.is_file:
        return {name: one.raw}
    return {name: one.raw, f"{VALUES}{name}": json.dumps(one.value).encode()}


def new_of(item: Mapping[str, Any], new: Mapping[str, Value]) -> dict[str, bytes]:
    return {f"{NEW}{item['copy']}": json.dumps(new).encode()}


def member_of(item: Mapping[str, Any]) -> str:
    return str(item.get("copy") or f"{item['file']}/{item['id']}")


class Store:
    """The record and the copies of one session, or of `global`."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._memory = memory
        self._tree = memory.tree
        self.name = name

    def path(self, name: str) -> str:
        return f"{DELETED}/{self.name}/{name}"

    def items(self, contents: Contents | None = None) -> list[dict[str, Any]]:
        """What is deleted; what a crash has left where it was is not."""
        items = self.known()
        if not items:
            return []
        unfinished = self.unfinished()
        doubtful = {member_of(item) for item in items if unfinished and item.get("batch") == unfinished} | self.restoring()
        there = _Present(self._memory, contents or Contents(self._memory, self.name), items, doubtful)
        held = [there.holds(item) for item in items]
        own = [item.get("batch") == unfinished and item.get("place") != EVICTED for item in items]
        # What stands in the files of the session goes at once, or not at all.
        is_undone = unfinished is not None and any(map(and_, held, own))
        return [item for item, is_held in zip(items, held, strict=True)
                if not is_held and not (is_undone and item.get("batch") == unfinished)]  # fmt: skip

    def known(self) -> list[dict[str, Any]]:
        """What the record names, but for what a person wrote there and we do not understand."""
        return [item for item in self.listed() if self._is_known(item)]

    def copy(self, item: Mapping[str, Any], members: Mapping[str, bytes] | None = None) -> tuple[bytes, dict[str, Value]]:
        """The bytes of a memory, and what they say; a whole file says nothing further."""
        members = self.members() if members is None else members
        raw = members.get(member_of(item))
        if raw is not None and not is_record_file(str(item["file"])):
            return raw, {}
        if raw is not None and (value := self._value(item, raw, members.get(f"{VALUES}{member_of(item)}"))):
            return raw, value
        raise CorruptionDetected(f"{self.path(BACKUP)} does not hold {item['id']} any more.", session_id=self.name)

    def taken(self) -> set[str]:
        """The names that copies have. One that no item names is left by a crash, and makes room; a person's items may mean any."""
        listed = self.listed()
        return {member_of(item) for item in listed} if all(map(self._is_known, listed)) else set(self.members())

    def members(self) -> dict[str, bytes]:
        return dict(read_members(self._tree, self.path(BACKUP))) if self._tree.exists(self.path(BACKUP)) else {}

    def save(self, items: list[dict[str, Any]], added: Mapping[str, bytes], unfinished: str | None = None) -> None:
        """New bytes first, old ones last: a record that names what is nowhere would be worse than a copy that nothing names."""
        # What a person wrote into the record, and we do not understand, stays; and so does any copy that it may mean.
        foreign = [item for item in self.listed() if not self._is_known(item)]
        self.require_no_session()
        members = {**self.members(), **added}
        if not items and not foreign and not added:
            self._forget()
            return
        self._tree.make_directory(f"{DELETED}/{self.name}")
        if added:
            write_archive(self._tree, self.path(BACKUP), members.items())
        self._write_record([*foreign, *items], items[-1] if items else {}, unfinished)
        wanted = {member_of(item) for item in items}
        wanted |= {f"{NEW}{name}" for name in wanted} if unfinished else set()
        kept = {name: raw for name, raw in members.items() if foreign or name.removeprefix(VALUES) in wanted}
        if kept.keys() != members.keys():
            write_archive(self._tree, self.path(BACKUP), kept.items())

    def replace_members(self, members: Mapping[str, bytes]) -> None:
        write_archive(self._tree, self.path(BACKUP), members.items())

    def finished(self) -> None:
        """Everything that the record names is taken out, everywhere."""
        if self.unfinished():
            self._mark({UNFINISHED: None})
            members = self.members()
            if any(name.startswith(NEW) for name in members):
                kept = {name: raw for name, raw in members.items() if not name.startswith(NEW)}
                write_archive(self._tree, self.path(BACKUP), kept.items())

    def unfinished(self) -> str | None:
        """The batch that was on its way out of more than one place when somebody died."""
        said = self._said().get(UNFINISHED)
        return None if said is None else str(said)

    def begin_restoring(self, items: Iterable[Mapping[str, Any]]) -> None:
        """From here on it is known what is on its way back, should somebody die before all of it is."""
        self._mark({RESTORING: [member_of(item) for item in items]})

    def end_restoring(self) -> None:
        """What is not back now does not come back by itself."""
        if self.restoring():
            self._mark({RESTORING: None})

    def restoring(self) -> set[str]:
        """The names of the copies that were on their way back."""
        said = self._said().get(RESTORING)
        return {str(name) for name in said} if isinstance(said, list) else set()

    def listed(self) -> list[Any]:
        listed = self._said().get("deleted_items")
        if listed is not None and not isinstance(listed, list):
            raise CorruptionDetected(f"'deleted_items' in {self.path(RECORD)} is not a list.", session_id=self.name)
        return listed or []

    def _write_record(self, items: Iterable[Any], last: Mapping[str, Any], unfinished: str | None) -> None:
        parts: dict[str, Any] = {
            "session_id": self.name, "deleted_at": last.get("deleted_at"), "deleted_by": last.get("deleted_by"),
            "reason": last.get("reason_specific"), "deleted_items": [*items],
            "recovery_deadline": last.get("recovery_deadline"), "backup_location": self.path(BACKUP),
        }  # fmt: skip
        if self._tree.exists(self.path(RECORD)):
            self._mark({**parts, UNFINISHED: unfinished, RESTORING: None})
            return
        said = {name: value for name, value in {**parts, UNFINISHED: unfinished}.items() if value is not None}
        self._tree.replace(self.path(RECORD), render_mapping(TOP, said))

    def _mark(self, parts: Mapping[str, Any]) -> None:
        """Whatever else the record says stays."""
        path = self.path(RECORD)
        self._tree.replace(path, replace_parts(self._tree.read(path), TOP, parts, path))

    def holds_session(self) -> bool:
        """Whether the whole session is there: then all that can be said of its memories waits until it is back."""
        return WHOLE in self._said()

    def require_no_session(self) -> None:
        """A whole session of the same id can have been deleted before this one was made: its copy is not ours to change."""
        if self.holds_session():
            name = self.name
            raise Conflict(f"A whole session {name!r} was deleted and can still be restored; nothing was changed.", session_id=name,
                           advice=f"Move {DELETED}/{name} away; after a crash, smp check --repair puts it right.")  # fmt: skip

    def _forget(self) -> None:
        """Nothing is deleted any more: the record goes last, as long as it is there the copies may be asked for."""
        for name in (BACKUP, RECORD):
            self._tree.unlink(self.path(name))
        self._tree.remove_empty(f"{DELETED}/{self.name}")

    def _is_known(self, item: Any) -> bool:
        try:
            if not isinstance(item, dict) or not is_known_file(self.name, item.get("file")):
                return False
            return bool(check_memory_id(item.get("id", ""))) and (item.get("place") != EVICTED or self._is_eviction(item))
        except Invalid:
            return False

    def _is_eviction(self, item: Mapping[str, Any]) -> bool:
        from ...maintain.evictions import is_eviction

        directory, _, file = str(item.get("eviction")).rpartition("/")
        return directory == f"{ARCHIVED}/{self.name}" and is_eviction(file) and is_record_file(str(item["file"]))

    def _said(self) -> dict[str, Value]:
        try:
            content = self._tree.read(self.path(RECORD))
        except FileNotFoundError:
            return {}
        return load_mapping(content, TOP, self.path(RECORD))

    def _value(self, item: Mapping[str, Any], raw: bytes, stored: bytes | None) -> dict[str, Value] | None:
        try:
            value = json.loads(stored) if stored is not None else self._parsed(item, raw)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) and value.get("id") == item["id"] else None

    def _parsed(self, item: Mapping[str, Any], raw: bytes) -> dict[str, Value] | None:
        form = format_of(kind_of_file(str(item["file"])))
        records = form.parse(form.empty(self.name, self._memory.options.clock(), []) + raw).records
        return records[0].value if len(records) == 1 else None


def is_known_file(name: str, file: object) -> bool:
    """Whether memories of this session, or of `global`, can stand in a file of this name."""
    if not isinstance(file, str):
        return False
    return (file == PROFILE or holds_memories(file, GLOBAL)) if name == GLOBAL else holds_memories(file, "")


class _Present:
    """Whether what was copied still stands where it was; each file is read once."""

    def __init__(
        self, memory: Memory, contents: Contents, items: Collection[Mapping[str, Any]], doubtful: Collection[str]
    ) -> None:
        self._contents = contents
        self._doubtful = doubtful  # copies of what was on its way when somebody died
        self._files: dict[str, bytes] = {}
        self._many = {file for file, count in Counter(str(item["file"]) for item in items).items() if count > _FEW}
        self._parsed: dict[str, dict[str, Located]] = {}
        is_any_evicted = any(item.get("place") == EVICTED for item in items)
        self._evicted = {(one.container, one.file, one.id, fingerprint(one.value))
                         for one in evicted(memory, contents.name, problems=[])} if is_any_evicted else set()  # fmt: skip

    def holds(self, item: Mapping[str, Any]) -> bool:
        file, memory_id = str(item["file"]), str(item["id"])
        if item.get("place") == EVICTED:
            return (str(item.get("eviction")), file, memory_id, str(item.get("sha256"))) in self._evicted
        if file not in self._files:
            self._files[file] = self._contents.read(file) if self._contents.is_there else b""
        content = self._files[file]
        if not is_record_file(file):
            return bool(content) and fingerprint(content) == item.get("sha256")
        found = self._find(file, memory_id, content) if content else None
        if found is None or is_deleted(kind_of_file(file), found.value):
            return False
        if fingerprint(found.value) == item.get("sha256"):
            return True
        # Another one of the same id does not bring it back. But it may never have been taken out, or be back, and changed since:
        # then it still has the time that it was made at.
        is_doubtful = member_of(item) in self._doubtful and "replaced_by" not in item
        return is_doubtful and item.get("timestamp") is not None and found.value.get("timestamp") == item.get("timestamp")

    def _find(self, file: str, memory_id: str, content: bytes) -> Located | None:
        form = format_of(kind_of_file(file))
        if file not in self._many or memory_id == HEAD:
            return form.find(content, memory_id)
        if file not in self._parsed:
            self._parsed[file] = {str(record.value["id"]): record for record in form.parse(content).records if record.has_id}
        return self._parsed[file].get(memory_id)
