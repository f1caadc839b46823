"""Several writes, all or nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

from . import journal
from .append import Tail, note_rewritten, note_tail, reserve, settle, with_id
from .errors import Conflict, StorageFailed, TransactionEnded, TransactionPending
from .files import is_left_alone
from .locks import Lock, brief_lock
from .records import DELETED_TURN, TURN, Kind, Record, as_record, changed_fields, kind_of_file, new_fields, split_name
from .session_files import artifact_file, render_artifact, state_after, state_file, state_history_entry
from .text.format import finder, format_of, mentioned
from .text.values import Value, canonical
from .writing import Time, Writing


@dataclass(frozen=True)
class Modification:
    """One thing that a transaction will do."""

    action: str  # add, change, save, remove
    file: str
    id: str


@dataclass
class _Pending:
    """What is to happen to one file."""

    added: dict[str, dict[str, Value]] = field(default_factory=dict)  # by id, the highest number last
    changed: dict[str, dict[str, Value] | None] = field(default_factory=dict)
    expected: dict[str, bytes] = field(default_factory=dict)  # the records as they were when they were changed
    content: bytes | None = None  # of a file that is replaced whole
    before: bytes = b""  # and what it was
    goes: bool = False  # whether it is taken out whole


class Transaction(Writing):
    """Collects writes; `commit` makes them happen, all of them also after a crash, or none.

    Ids are given at once, so that the records can refer to each other. Leaving the `with` block commits, an exception in it
    rolls back.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._scope = session.scope
        self._files: dict[str, _Pending] = {}
        self._modifications: list[Modification] = []
        self._drops: list[dict[str, Any]] = []
        self._unnumbered: list[tuple[Kind, dict[str, Value]]] = []
        self.given: list[str] = []  # the ids of those that were added without a number, once it has committed
        self._ended = False

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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

    def add_unnumbered(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> None:
        """Add a memory whose number is given when the transaction commits.

        A number that is given at once takes the lock of the file, for which each of many would wait anew.
        """
        self._pending("add", kind.file, "")
        stamp = timestamp if timestamp is not None else self._now()
        self._unnumbered.append((kind, new_fields(kind, fields, stamp, self._scope.redaction)))

    def remove_drop(self, file: str, read: os.stat_result) -> None:
        """The file in the inbox that this transaction takes in goes with it, if it is still the one that was read."""
        self._require_active()
        self._drops.append({"file": file, "remove": [read.st_ino, read.st_size, read.st_mtime_ns]})
        self._modifications.append(Modification("remove", file, ""))

    def remove(self, kind: Kind, value: Mapping[str, Value]) -> None:
        """Takes a memory out if it still is this one; of a turn its number and its time stay. Whoever calls this has made a copy of
        it: see deletion.py."""
        memory_id = str(value["id"])
        pending = self._pending("remove", kind.file, memory_id)
        pending.expected[memory_id] = canonical(dict(value))
        place = {"id": memory_id, "turn": value.get("turn"), "timestamp": value.get("timestamp")}
        pending.changed[memory_id] = {**place, "type": DELETED_TURN, "content": ""} if kind is TURN else None

    def replace(self, kind: Kind, old: Mapping[str, Value], new: Mapping[str, Value]) -> None:
        """Puts another record in the place of this one, if it still is this one; a copy was made as for `remove`."""
        memory_id = str(old["id"])
        pending = self._pending("replace", kind.file, memory_id)
        pending.expected[memory_id] = canonical(dict(old))
        pending.changed[memory_id] = dict(new)

    def replace_file(self, file: str, before: bytes, content: bytes | None) -> None:
        """The same for a file that is no list of records; with no content it is taken out."""
        pending = self._pending("remove" if content is None else "replace", file, "")
        pending.before, pending.content, pending.goes = before, content or b"", content is None

    def rollback(self) -> None:
        """Drops everything; nothing has been written yet."""
        self._files.clear()
        self._modifications.clear()
        self._ended = True

    def commit(self) -> None:
        """Raises Conflict, QuotaExceeded or Invalid with nothing written; TransactionPending where it is safe but not yet done."""
        self._require_active()
        self._ended = True
        if not self._files:
            return
        with self._scope.locked(self._files, "committing a transaction") as held, ExitStack() as stack:
            tails = {file: settle(self._scope, kind_of_file(file), held[file])
                     for file, pending in self._files.items() if pending.content is None}  # fmt: skip
            self._give_numbers(tails)
            for file, pending in self._files.items():
                self._check_conflicts(file, pending)
            steps = [self._step(file, pending, tails.get(file)) for file, pending in self._files.items()]
            quota = self._session.quota_bytes()
            if quota is not None:
                stack.enter_context(brief_lock(self._scope.tree, self._scope.name, "usage", self._scope.options.patience))
                self._scope.usage.require(self._scope.name, sum(self._growth(step) for step in steps), quota)
            self._carry_out([*steps, *self._drops], held, tails)
        self._session._written()

    def _give_numbers(self, tails: Mapping[str, Tail]) -> None:
        for kind, fields in self._unnumbered:
            pending = self._files[kind.file]
            value = with_id(kind, max(tails[kind.file].last, _last_number(pending)) + 1, fields)
            self.given.append(str(value["id"]))
            pending.added[self.given[-1]] = value

    def _carry_out(self, steps: list[dict[str, Any]], held: dict[str, Lock], tails: dict[str, Tail]) -> None:
        try:
            name = journal.record(self._scope, steps)
        except OSError as error:
            raise StorageFailed(f"Could not record the transaction: {error}.", session_id=self._scope.name) from error
        try:
            for step in steps:
                journal.carry_out(self._scope, step)
                if step["file"] in held:
                    self._note(step, held[step["file"]], tails.get(step["file"]))
            journal.forget(self._scope, name)
        except OSError as error:
            raise TransactionPending(f"The transaction is recorded, but: {error}.", session_id=self._scope.name) from error

    def _note(self, step: dict[str, Any], held: Lock, tail: Tail | None) -> None:
        if tail is None:
            return
        path = self._scope.path(step["file"])
        if "append" in step:
            note_tail(held, tail, step["append"].encode(), self._scope.tree.stat(path))
        else:
            note_rewritten(held, tail, self._scope.tree.read(path))

    def _step(self, file: str, pending: _Pending, tail: Tail | None) -> dict[str, Any]:
        if pending.goes:
            return {"file": file, "remove": self._version(file)}
        if pending.content is not None or tail is None:
            return {"file": file, "content": (pending.content or b"").decode()}
        form = format_of(kind_of_file(file))
        tail.last = max(tail.last, _last_number(pending))
        if pending.changed:
            return {"file": file, "insert": list(pending.added.values()), "change": pending.changed, "last": tail.last}
        content = tail.opening + b"".join(form.render(value, tail.indent) for value in pending.added.values())
        return {"file": file, "append": content.decode(), "at": tail.size}

    def _growth(self, step: dict[str, Any]) -> int:
        """By how many bytes the session grows."""
        file = step["file"]
        if "append" in step:
            return len(step["append"].encode())
        if "content" in step or "remove" in step:
            return len(step.get("content", "").encode()) - len(self._files[file].before)
        form = format_of(kind_of_file(file))
        content = self._scope.tree.read(self._scope.path(file))
        old = map(finder(form, content, len(step["change"])), step["change"])
        new = sum(len(form.render(value, 2)) for value in (*step["change"].values(), *step["insert"]) if value)
        return new - sum(located.end - located.start for located in old if located)

    def _check_conflicts(self, file: str, pending: _Pending) -> None:
        if pending.content is not None:
            if self._read(file) != pending.before:
                raise Conflict(f"{file} was changed by somebody else since this transaction read it; nothing was written.")
            return
        form = format_of(kind_of_file(file))
        content = self._read(file) if pending.expected or pending.added else b""
        given = mentioned(kind_of_file(file), content) if pending.added else set()
        find = finder(form, content, len(pending.expected) + len(pending.added.keys() & given))
        for memory_id in pending.added.keys() & given:
            if find(memory_id):
                raise Conflict(f"{memory_id} was given to somebody else, because .smp/ was lost or full; nothing was written.")
        for memory_id, expected in pending.expected.items():
            located = find(memory_id)
            if located is None or canonical(located.value) != expected:
                raise Conflict(f"{memory_id} was changed by somebody else since this transaction read it; nothing was written.")

    def _version(self, file: str) -> list[int]:
        """Of a file that is to go: whoever has it open for writing would write into nothing."""
        with self._scope.tree.opened(self._scope.path(file)) as descriptor:
            if not is_left_alone(descriptor):
                raise Conflict(f"Somebody is writing {file} just now; nothing was changed.", advice="Try it again.")
            status = os.fstat(descriptor)
        return [status.st_ino, status.st_size, status.st_mtime_ns]

    def _read(self, file: str) -> bytes:
        try:
            return bytes(self._scope.tree.read(self._scope.path(file)))
        except FileNotFoundError:
            return b""

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
        body = new_fields(kind, fields, timestamp if timestamp is not None else self._now(), self._scope.redaction)
        value = with_id(kind, self._reserve(kind), body)
        self._pending("add", kind.file, str(value["id"])).added[str(value["id"])] = value
        return self._session._looking(as_record(kind, self._scope.name, value))  # type: ignore[no-any-return]

    def _reserve(self, kind: Kind) -> int:
        # The note of what was reserved before can be lost, as on a full disk; see _check_conflicts.
        return max(reserve(self._scope, kind), _last_number(self._files.get(kind.file, _Pending())) + 1)

    def _find(self, memory_id: str) -> Record:
        return self._pending_record(memory_id) or self._session._find(memory_id)

    def _pending_record(self, memory_id: str) -> Record | None:
        for pending in self._files.values():
            if value := pending.added.get(memory_id) or pending.changed.get(memory_id):
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
            pending.expected.setdefault(memory_id, canonical(old.data))
            pending.changed[memory_id] = new
        return as_record(kind, self._scope.name, new)

    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None:
        file = state_file(agent)
        known = self._files.get(file)
        before = self._scope.read(file) if known is None else known.before
        current = before if known is None or known.content is None else known.content
        redaction = self._scope.redaction
        content = state_after(current, self._scope.name, agent, state, self._now(), redaction)
        pending = self._pending("save", file, agent)
        pending.before, pending.content = before, content
        if entry := state_history_entry(current, agent, self._now(), redaction):
            kind, fields = entry
            value = with_id(kind, self._reserve(kind), fields)
            self._files.setdefault(kind.file, _Pending()).added[str(value["id"])] = value

    def _save_artifact(self, artifact_id: str, content: str, fields: Mapping[str, Any]) -> None:
        file = artifact_file(artifact_id)
        known = self._files.get(file)
        before = self._scope.read(file) if known is None else known.before
        rendered = render_artifact(artifact_id, content, fields, self._now(), self._scope.redaction)
        pending = self._pending("save", file, artifact_id)
        pending.before, pending.content = before, rendered


def _last_number(pending: _Pending) -> int:
    return int(next(reversed(pending.added), "0").rpartition("-")[2])
