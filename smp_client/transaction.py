"""Several writes, all or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

from .disk import journal
from .disk.append import Reserved, reserve, with_id
from .disk.session_files import (
    artifact_file,
    render_artifact,
    state_after,
    state_file,
    state_history_entry,
)
from .model.errors import Conflict, TransactionEnded
from .model.record import Kind, Record, as_record, split_name
from .text.contents import changed_fields, new_fields
from .text.fingerprint import hash_of, hash_of_bytes
from .text.values import Value
from .writer import Time, Writer

_MOST_RESERVED = 1024


@dataclass(frozen=True)
class Modification:
    """One thing that a transaction will do."""

    action: str  # add, change, save, remove, replace
    file: str
    id: str


@dataclass
class _Pending:
    """The pending changes of one file."""

    added: dict[str, dict[str, Value]] = field(default_factory=dict)  # by id, in their order
    changed: dict[str, tuple[str, dict[str, Value]]] = field(
        default_factory=dict
    )  # by id: old hash, new fields
    before: bytes = b""  # of a file that is replaced whole
    content: bytes | None = None
    is_whole: bool = False


class Transaction(Writer):
    """Collect writes; `commit` makes all of them happen, also after a crash, or none.

    Ids are given at once, so that the records can refer to each other. Leaving the `with` block
    commits, an exception in it rolls back.
    """

    def __init__(self, session: Any, numbers: int = 1) -> None:
        """Begin with `numbers` as the expected number of new records: reserving takes a lock."""
        self._count = numbers
        self._session = session
        self._scope = session.scope
        self._files: dict[str, _Pending] = {}
        self._reserved: dict[str, Reserved] = {}
        self._next: dict[
            str, int
        ] = {}  # the next number of each file that is reserved and not given
        self._modifications: list[Modification] = []
        self._drops: list[dict[str, Any]] = []
        self._ended = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.rollback()
        elif not self._ended:
            self.commit()

    @property
    def is_active(self) -> bool:
        return not self._ended

    @property
    def modifications(self) -> list[Modification]:
        return list(self._modifications)

    def remove_drop(self, file: str, read: os.stat_result) -> None:
        """Remove a drop with this transaction, if it is still the file that was read."""
        self._require_active()
        self._drops.append({"file": file, "remove": journal.version_of(read)})
        self._modifications.append(Modification("remove", file, ""))

    def replace(self, kind: Kind, old: Mapping[str, Value], new: Mapping[str, Value]) -> None:
        """Replace the fields of a record, if it still is this one."""
        memory_id = str(old["id"])
        pending = self._pending("replace", kind.file, memory_id)
        pending.changed[memory_id] = (hash_of(old), dict(new))

    def replace_file(self, file: str, before: bytes, content: bytes) -> None:
        """Replace the content of a file that is no list of records, if it still is this."""
        pending = self._pending("replace", file, "")
        pending.before, pending.content, pending.is_whole = before, content, True

    def rollback(self) -> None:
        """Drop everything; nothing has been written yet."""
        self._files.clear()
        self._modifications.clear()
        self._ended = True

    def commit(self) -> None:
        """Write everything.

        Raises Conflict, QuotaExceeded or Invalid with nothing written, and TransactionPending where
        the transaction is safe but not yet done.
        """
        from .change.change import Change, Request, apply

        self._require_active()
        self._ended = True
        if not self._files:
            return
        changes: list[Change] = []
        for file, pending in self._files.items():
            changes += [
                Change(file, memory_id, old, new)
                for memory_id, (old, new) in pending.changed.items()
            ]
            if pending.is_whole:
                old = hash_of_bytes(pending.before) if pending.before else None
                changes.append(Change(file, "", old, pending.content))
        added = {
            file: [*pending.added.values()]
            for file, pending in self._files.items()
            if pending.added
        }
        request = Request(
            changes, added=added, reserved=self._reserved, steps=self._drops,
            quota_bytes=self._session.quota_bytes(), doing="committing a transaction",
        )  # fmt: skip
        applied = apply(self._scope, request)
        self._session._written()
        if applied.kept:
            changed = ", ".join(applied.kept)
            raise Conflict(
                f"{changed} was changed by hand just now, and stays; all else is written."
            )

    def _require_active(self) -> None:
        if self._ended:
            raise TransactionEnded("This transaction has ended.")

    def _pending(self, action: str, file: str, memory_id: str) -> _Pending:
        self._require_active()
        self._modifications.append(Modification(action, file, memory_id))
        return self._files.setdefault(file, _Pending())

    def _now(self) -> datetime:
        return self._session._now()  # type: ignore[no-any-return]

    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record:
        self._require_active()
        body = new_fields(
            kind, fields, timestamp if timestamp is not None else self._now(), self._scope.redaction
        )
        value = with_id(kind, self._number(kind), body)
        self._pending("add", kind.file, str(value["id"])).added[str(value["id"])] = value
        record: Record = self._session._looking(as_record(kind, self._scope.name, value))
        return record

    def _number(self, kind: Kind) -> int:
        """Return a number that nobody else is given. Each reservation is larger than the last."""
        known = self._reserved.get(kind.file)
        while known is None or self._next[kind.file] > known.last:
            more = self._count if known is None else 2 * (known.last - known.first + 1)
            reserved = reserve(self._scope, kind, min(more, _MOST_RESERVED))
            # Where the first note was lost, only the file tells whether a number is free.
            known = reserved if known is None else reserved._replace(inode=known.inode)
            self._reserved[kind.file] = known
            self._next[kind.file] = max(known.first, self._next.get(kind.file, 0))
        self._next[kind.file] += 1
        return self._next[kind.file] - 1

    def _find(self, memory_id: str) -> Record:
        return self._pending_record(memory_id) or self._session._find(memory_id)

    def _pending_record(self, memory_id: str) -> Record | None:
        for pending in self._files.values():
            value = pending.added.get(memory_id)
            if value is None and memory_id in pending.changed:
                value = pending.changed[memory_id][1]
            if value is not None:
                return as_record(self._session.kind_of_record(memory_id), self._scope.name, value)
        if artifact_file(memory_id) in self._files:
            return Record(memory_id, "artifact", self._scope.name, {}, "")
        return None

    def _memory_named(self, name: str) -> Record:
        session, memory_id = split_name(name, self._session_id())
        pending = self._pending_record(memory_id) if session == self._session_id() else None
        return pending or self._session._memory_named(name)

    def _session_id(self) -> str:
        return str(self._scope.name)

    def _change(self, memory_id: str, changes: Mapping[str, Any]) -> Record:
        self._require_active()
        old = self._find(memory_id)
        kind = self._session.kind_of_record(memory_id)
        new = changed_fields(kind, old.data, changes, self._now(), self._scope.redaction)
        pending = self._pending("change", kind.file, memory_id)
        if memory_id in pending.added:
            pending.added[memory_id] = new
        else:
            first = pending.changed.get(memory_id)
            pending.changed[memory_id] = (first[0] if first else hash_of(old.data), new)
        return as_record(kind, self._scope.name, new)

    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None:
        file = state_file(agent)
        before, current = self._whole(file)
        redaction = self._scope.redaction
        pending = self._pending("save", file, agent)
        pending.before, pending.is_whole = before, True
        pending.content = state_after(
            current, self._scope.name, agent, state, self._now(), redaction
        )
        if entry := state_history_entry(current, agent, self._now(), redaction):
            kind, fields = entry
            value = with_id(kind, self._number(kind), fields)
            self._files.setdefault(kind.file, _Pending()).added[str(value["id"])] = value

    def _save_artifact(self, artifact_id: str, content: str, fields: Mapping[str, Any]) -> None:
        file = artifact_file(artifact_id)
        before, _ = self._whole(file)
        rendered = render_artifact(artifact_id, content, fields, self._now(), self._scope.redaction)
        pending = self._pending("save", file, artifact_id)
        pending.before, pending.content, pending.is_whole = before, rendered, True

    def _whole(self, file: str) -> tuple[bytes, bytes]:
        """Return a file that is one memory as it is on disk, and as this transaction leaves it."""
        known = self._files.get(file)
        if known is None:
            before = self._scope.read(file)
            return before, before
        return known.before, known.before if known.content is None else known.content
