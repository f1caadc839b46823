"""Several writes, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .disk import journal, tally
from .disk.append import Reserved, reserve, with_id
from .disk.session_files import (
    artifact_file,
    artifact_value,
    render_artifact,
    state_after,
    state_file,
    state_history_entry,
)
from .disk.wakeup import wake
from .model.door import front_door
from .model.errors import Conflict, TransactionEnded
from .model.record import (
    FOLDERS,
    REVISION,
    STATE_HISTORY,
    Kind,
    Record,
    as_record,
    kind_of_file,
    split_name,
)
from .text.contents import changed_fields, new_fields
from .text.revision import Editor, revision_fields
from .text.values import Value, hash_of, hash_of_bytes
from .writer import T, Time, Writer

if TYPE_CHECKING:
    import os

    from .session import RecordFiles

_MOST_RESERVED = 1024


class Modification(NamedTuple):
    """A change that a transaction will make."""

    action: str  # add, update, or save for a state or an artifact
    type: str
    id: str
    fields: Mapping[str, Value]  # as they will be; none for a state or an artifact


@front_door
class Transaction(Writer):
    """Collect writes; `commit` makes all of them happen, also after a crash, or none.

    Ids are given at once, so that the records can refer to each other. Leaving the `with` block
    commits, an exception in it rolls back.
    """

    def __init__(self, session: RecordFiles, numbers: int = 1) -> None:
        """Begin with `numbers` as the expected number of new records: reserving takes a lock."""
        self._count = numbers
        self._session = session
        self.scope = session.scope
        # By file and id: the hash before, None for a new record, and the fields after.
        self._changed: dict[tuple[str, str], tuple[str | None, dict[str, Value]]] = {}
        self._whole: dict[str, tuple[bytes, bytes]] = {}  # by file: its content before and after
        self._reserved: dict[str, Reserved] = {}
        self._next: dict[str, int] = {}  # by file: the next number that is reserved and not given
        self._drops: list[dict[str, Any]] = []
        self.is_active = True
        self.notes: tuple[str, ...] = ()  # after the commit: sentences for whoever wrote

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()
        elif self.is_active:
            self.commit()

    def remove_drop(self, file: str, read: os.stat_result) -> None:
        """Remove a drop with this transaction, if it is still the file that was read."""
        self._drops.append({"file": file, "remove": journal.version_of(read)})

    def replace(
        self, kind: Kind, old: Mapping[str, Value], new: Mapping[str, Value], editor: Editor
    ) -> None:
        """Replace the fields of a record, if it still is this one."""
        self._changed[kind.file, str(old["id"])] = (hash_of(old), dict(new))
        self._revise(str(old["id"]), old, new, editor)

    def _revise(
        self, memory_id: str, old: Mapping[str, Value], new: Mapping[str, Value], editor: Editor
    ) -> None:
        """Keep the earlier fields of a memory that this transaction changes."""
        if fields := revision_fields(memory_id, old, new, editor):
            self._new(REVISION, new_fields(REVISION, fields, self._now(), self.scope.redaction))

    def rollback(self) -> None:
        """Drop everything; nothing has been written yet."""
        self.is_active = False

    def modifications(self) -> list[Modification]:
        """Return the changes that `commit` makes, in the order in which they came."""
        found: list[Modification] = []
        for (file, memory_id), (before, fields) in self._changed.items():
            kind = kind_of_file(file)
            if kind is not REVISION and not file.startswith(STATE_HISTORY):
                action = "add" if before is None else "update"
                found.append(Modification(action, kind.type, memory_id, fields))
        for file in self._whole:
            folder, _, name = file.partition("/")
            found.append(Modification("save", FOLDERS[folder], name.rpartition(".")[0], {}))
        return found

    get_modifications = modifications

    def commit(self) -> None:
        """Write everything.

        Raises Conflict, QuotaExceeded or Invalid with nothing written, and TransactionPending where
        the transaction is safe but not yet done.
        """
        from .change.change import Change, Request, apply

        self._require_active()
        self.is_active = False
        if not self._changed and not self._whole:
            return
        changes = [Change(*key, *change) for key, change in self._changed.items()]
        for file, (before, after) in self._whole.items():
            changes.append(Change(file, "", hash_of_bytes(before) if before else None, after))
        request = Request(
            changes,
            reserved=self._reserved,
            steps=self._drops,
            quota_bytes=self._session.quota_bytes(),
            doing="committing a transaction",
        )
        with tally.timed(self.scope.tree.path, tally.WRITE):
            kept = self._session._fitted(lambda: apply(self.scope, request))
        self.notes = self._session._size_notes()
        wake(self.scope)
        if kept:
            said = "was changed by hand just now, and stays; all else is written."
            raise Conflict(f"{', '.join(kept)} {said}")

    def _require_active(self) -> None:
        if not self.is_active:
            raise TransactionEnded("This transaction has ended.")

    def _add(self, kind: Kind, fields: Mapping[str, Any], timestamp: Time | None) -> Record:
        self._require_active()
        kind = self._session._kind_named(kind.name)
        at = timestamp if timestamp is not None else self._now()
        value = self._new(kind, new_fields(kind, fields, at, self.scope.redaction))
        return as_record(kind, self.scope.name, value)

    def _new(self, kind: Kind, fields: Mapping[str, Value]) -> dict[str, Value]:
        value = with_id(kind, self._number(kind), fields)
        self._changed[kind.file, str(value["id"])] = (None, value)
        return value

    def _number(self, kind: Kind) -> int:
        """Return a number that nobody else is given. Each reservation is larger than the last."""
        known = self._reserved.get(kind.file)
        while known is None or self._next[kind.file] > known.last:
            more = self._count if known is None else 2 * (known.last - known.first + 1)
            reserved = reserve(self.scope, kind, min(more, _MOST_RESERVED))
            # Where a note was lost since the first, only the file tells whether a number is free.
            known = reserved if known is None else reserved._replace(series=known.series)
            self._reserved[kind.file] = known
            self._next[kind.file] = max(known.first, self._next.get(kind.file, 0))
        self._next[kind.file] += 1
        return self._next[kind.file] - 1

    def _write(self, write: Callable[[Transaction], T]) -> T:
        self._require_active()
        return write(self)

    def _change(self, memory_id: str, changes: Mapping[str, Any], editor: Editor) -> Record:
        found = self._pending(memory_id) or self._session._find(memory_id)
        kind = next(kind for kind in self._session.kinds if kind.type == found.type)
        old = found.data
        new = changed_fields(kind, old, changes, self._now(), self.scope.redaction)
        key = (kind.file, memory_id)
        before = self._changed[key][0] if key in self._changed else hash_of(old)
        self._changed[key] = (before, new)
        if before is not None:
            self._revise(memory_id, old, new, editor)
        return as_record(kind, self.scope.name, new)

    def _memory_named(self, name: str) -> Record:
        session, memory_id = split_name(name, self.scope.name)
        pending = self._pending(memory_id) if session == self.scope.name else None
        return pending or self._session._memory_named(name)

    def _pending(self, memory_id: str) -> Record | None:
        """Return a memory as this transaction leaves it; None where it does not touch it."""
        for kind in self._session.kinds:
            if change := self._changed.get((kind.file, memory_id)):
                return as_record(kind, self.scope.name, change[1])
        is_artifact = artifact_file(memory_id) in self._whole
        return Record(memory_id, "artifact", self.scope.name, {}, "") if is_artifact else None

    def _save_state(self, agent: str, state: Mapping[str, Any]) -> None:
        file, now, redaction = state_file(agent), self._now(), self.scope.redaction
        before, current = self._contents(file)
        after = state_after(current, self.scope.name, agent, state, now, redaction)
        self._whole[file] = (before, after)
        if entry := state_history_entry(current, agent, now, redaction):
            self._new(*entry)

    def _save_artifact(
        self, artifact_id: str, content: str, fields: Mapping[str, Any], editor: Editor
    ) -> None:
        file = artifact_file(artifact_id)
        rendered = render_artifact(artifact_id, content, fields, self._now(), self.scope.redaction)
        on_disk, current = self._contents(file)
        self._whole[file] = (on_disk, rendered)
        if current:
            self._revise(artifact_id, artifact_value(current), artifact_value(rendered), editor)

    def _contents(self, file: str) -> tuple[bytes, bytes]:
        """Return a file that is one memory as it is on disk, and as this transaction leaves it."""
        return self._whole.get(file) or (self.scope.read(file),) * 2
