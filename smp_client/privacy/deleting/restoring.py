"""Bringing back what was deleted or anonymised: into its old place, with its old id, byte for byte where the file allows it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import audit
from ...append import settle as settle_tail
from ...errors import Conflict, CorruptionDetected, Invalid, MemoryNotFound, SMPError
from ...fingerprint import hash_of
from ...layout import DELETED, GLOBAL, check_session_id
from ...locks import brief_lock
from ...records import STATE_HISTORY, TURN, Record, as_record, kind_of_file
from ...rewrite import rewrite
from ...text.format import HEAD
from ...text.values import canonical
from . import reworking
from .back_into_lists import Copied, into_list
from .retelling import deleted_turns, retold
from .standing import EVICTED, Contents, Standing, in_file, is_record_file, taken_out_of, type_of_file, value_of_file
from .store import Deleted, Store, as_deleted, fingerprint, member_of

if TYPE_CHECKING:
    from ...memory import Memory
    from ...scope import Scope
    from ...session import RecordFiles

_MAY_BE_BACK = "smp restore --list shows what can be restored; what is not there may be back already."


def deleted(memory: Memory, name: str) -> list[Deleted]:
    """What can be restored."""
    with memory._scope(name).answering("listing what was deleted"):
        return [as_deleted(name, item) for item in Store(memory, name).items()]


def of_batch(memory: Memory, batch: str) -> list[str]:
    """The sessions, and `global`, of which something was deleted under this batch."""
    found = [name for name in memory.tree.list(DELETED) if _has_batch(memory, name, batch)]
    if not found:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.",
                             advice=_MAY_BE_BACK)  # fmt: skip
    return found


def _has_batch(memory: Memory, name: str, batch: str) -> bool:
    with suppress(SMPError, OSError):  # what cannot be read, or is none of ours, is told by whoever lists it
        listed = Store(memory, name if name == GLOBAL else check_session_id(name)).listed()
        return any(isinstance(item, dict) and item.get("batch") == batch for item in listed)
    return False


def restore(
    memory: Memory, name: str, ids: str | Collection[str] | None = None, *, batch: str | None = None, by: str = "user"
) -> list[Record]:
    """Puts memories back, or all of a batch; of several that had one id the one that was deleted last.

    Where another one has the id by now it raises Conflict, and nothing is changed; copies are kept until all reads back the same.
    """
    ids = _meant(ids, batch)
    with reworking.locked(memory, name, "restoring"):
        back = reworking.settle(memory, name)
        contents = reworking.require(memory, name)
        store = Store(memory, name)
        items = store.items(contents)
        if just_back := _just_back(back, items, ids, batch):
            return just_back
        wanted = _wanted(name, items, ids, batch)
        copies = _copies(memory, store, items, wanted)
        reworking.require_left(memory, contents)
        facts = {"session": name, "count": len(copies), "ids": [copy.id for copy in copies], "batch": batch}
        with audit.noted(memory.tree, "restore", clock=memory.options.clock, by=by, **facts):
            store.begin_restoring(wanted)
            try:
                found = _put_back(memory, contents, copies, items)
            except BaseException:
                with suppress(SMPError, OSError):
                    # What came back all the same, because only the last of it failed, is not deleted any more.
                    store.save(store.items(Contents(memory, name)), {})
                    store.end_restoring()
                raise
            store.save([item for item in items if item not in wanted], {})
        return found


def _meant(ids: object, batch: object) -> list[str] | None:
    """Raises Invalid where it is not said what is meant: one id is not the list of its letters, and no batch is not every one."""
    several = [ids] if isinstance(ids, str) else ids
    if several is not None and not (isinstance(several, Collection) and all(isinstance(one, str) for one in several)):
        raise Invalid(["ids of memories are texts"])
    if batch is not None and not (isinstance(batch, str) and batch.strip()):
        raise Invalid(["a batch has a name; smp restore --list shows it"])
    if (several is None) is (batch is None):
        raise Invalid(["it must be said what is restored: memories, or a batch"])
    return None if several is None else [str(one) for one in several]


def restore_everywhere(memory: Memory, batch: str, *, by: str) -> Restored:
    """The batch in whatever sessions that was. What cannot be done in one of them stops no other, and is told."""
    _meant(None, batch)
    done = Restored()
    names = of_batch(memory, batch)
    for name in names:
        try:
            done += restore(memory, name, batch=batch, by=by)
        except (SMPError, OSError) as error:
            done.problems.append(f"{name}: {error}")
            if len(names) == 1:
                raise
    return done


class Restored(list[Record]):
    """What is back; `problems` says of which sessions something could not be restored, in sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []


def _just_back(
    back: reworking.Back, items: Sequence[Mapping[str, Any]], ids: Collection[str] | None, batch: str | None
) -> list[Record]:
    """What was asked for, where somebody who died had all but put it back and it is back since a moment ago."""
    if batch is not None:
        is_left = any(item.get("batch") == batch for item in items)
        return [] if is_left else [record for item, record in back if item.get("batch") == batch]
    found = {record.id: record for _, record in back}
    is_left = any(item["id"] in (ids or ()) for item in items)
    return [] if is_left or not set(ids or ()) <= found.keys() else [found[memory_id] for memory_id in ids or ()]


def _copies(memory: Memory, store: Store, items: Sequence[dict[str, Any]], wanted: Sequence[dict[str, Any]]) -> list[Copied]:
    """A summary comes back without what it tells of turns that stay deleted."""
    members = store.members()
    out = deleted_turns(store, [item for item in items if item not in wanted], members) if _has_turns(wanted) else set()
    changed = retold(memory, store, wanted, out, members)
    copies: list[Copied] = []
    for item in wanted:
        new = changed.get(member_of(item), store.copy(item, members))
        if new is None:
            raise Conflict(f"{item['id']} tells of nothing but turns that are deleted.", session_id=store.name,
                           advice="Restore those, or the whole batch.")  # fmt: skip
        copies.append(Copied(item, *new))
    return copies


def _has_turns(items: Iterable[Mapping[str, Any]]) -> bool:
    return any(item["file"] == TURN.file for item in items)


def finish(memory: Memory, contents: Contents, store: Store) -> reworking.Back:
    """Puts back the rest of what somebody was putting back who died, under both locks. What cannot be put back stays deleted."""
    names, items = store.restoring(), store.items(contents)
    marked = [item for item in store.known() if member_of(item) in names]
    left = [item for item in marked if item in items]
    back: reworking.Back
    try:
        _put_back(memory, contents, _copies(memory, store, items, left), items)
        members = store.members()
        back = [(item, _record(store.name, Copied(item, *store.copy(item, members)))) for item in marked]
    except SMPError:
        left, back = [], []
    store.save([item for item in items if item not in left], {}, unfinished=store.unfinished())
    return back


def _wanted(name: str, items: Sequence[dict[str, Any]], ids: Sequence[str] | None, batch: str | None) -> list[dict[str, Any]]:
    if batch is not None:
        wanted = [item for item in items if item.get("batch") == batch]
        if not wanted:
            raise MemoryNotFound(f"Nothing of {name} was deleted under the batch {batch!r}.", session_id=name,
                                 advice=_MAY_BE_BACK)
        return wanted
    chosen: dict[str, list[dict[str, Any]]] = {memory_id: [] for memory_id in dict.fromkeys(ids or ())}
    for item in items:
        if item["id"] in chosen:
            chosen[str(item["id"])].append(item)
    for memory_id, several in chosen.items():
        if not several:
            raise MemoryNotFound(f"There is no deleted memory {memory_id!r} of {name}.", session_id=name,
                                 advice="session.deleted() lists those that can be restored.")  # fmt: skip
    return [item for item in items if any(_is_with(item, several[-1]) for several in chosen.values())]


def _is_with(item: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Whether it is this one, or was deleted with it as a part of it: what compaction held of it, the history of an agent."""
    if item is last:
        return True
    is_part = item["id"] == last["id"] or item["file"] == f"{STATE_HISTORY}/{last['id']}.yaml"
    return is_part and bool(item.get("batch")) and item.get("batch") == last.get("batch")


def _put_back(memory: Memory, contents: Contents, copies: Sequence[Copied], items: Sequence[Mapping[str, Any]]) -> list[Record]:
    """All of them, or none where that cannot be: it is looked at first. `items` is all that is deleted."""
    own = [copy for copy in copies if copy.item.get("place") != EVICTED]
    write_evictions = _into_evictions(memory, [copy for copy in copies if copy.item.get("place") == EVICTED])
    if own and contents.is_archived:
        with reworking.unpacked(memory, contents.name) as aside:
            _into(aside.files, own, items)
            aside.pack()
    elif own:
        _into(reworking.files_of(memory, contents.name), own, items)
    write_evictions()
    now = Contents(memory, contents.name)
    standing = {(one.file, one.id): one for file in {str(copy.item["file"]) for copy in own} for one in in_file(now, file)}
    for copy in own:
        _require_back(now.name, copy, standing)
    return [_record(now.name, copy) for copy in copies]


def _require_back(name: str, copy: Copied, standing: Mapping[tuple[str, str], Standing]) -> None:
    file = str(copy.item["file"])
    found = standing.get((file, copy.id))
    if copy.id == HEAD:
        return
    if found is None or (found.raw != copy.raw if found.is_file else canonical(found.value) != canonical(copy.value)):
        raise CorruptionDetected(f"{copy.id} does not read back from {file}: its copy stays.", session_id=name)


def _record(name: str, copy: Copied) -> Record:
    file = str(copy.item["file"])
    if copy.id == HEAD:
        return Record(HEAD, "head", name, copy.value, "")
    if is_record_file(file):
        return as_record(kind_of_file(file), name, copy.value)
    value = value_of_file(file, copy.raw)
    return Record(copy.id, type_of_file(file), name, value, str(value.get("content", "")))


def _into(files: RecordFiles, copies: Sequence[Copied], items: Sequence[Mapping[str, Any]]) -> None:
    scope = files.scope
    by_file: dict[str, list[Copied]] = {}
    for copy in copies:
        by_file.setdefault(str(copy.item["file"]), []).append(copy)
    with scope.locked([*by_file], f"restoring {len(copies)} memories") as held:
        tails = {file: settle_tail(scope, kind_of_file(file), held[file]) for file in by_file if is_record_file(file)}
        with brief_lock(scope.tree, scope.name, "usage", scope.options.patience):
            changes = [_Change(files, file, group, items) for file, group in by_file.items()]
            if (quota := files.quota_bytes()) is not None:
                scope.usage.require(scope.name, sum(change.growth for change in changes), quota)
            _make(scope, changes)
        for file, tail in tails.items():
            # The bytes may have brought a style of their own into an empty list: let the next writer look.
            held[file].note = {"last": tail.last}


def _make(scope: Scope, changes: Sequence[_Change]) -> None:
    """Each in its turn; where one fails, the others go back."""
    done: list[_Change] = []
    try:
        for change in changes:
            if "/" in change.file:
                scope.tree.make_directory(scope.path(change.file).rpartition("/")[0])
            rewrite(scope, change.file, change)
            done.append(change)
    except BaseException:
        for change in done:
            with suppress(SMPError, OSError):
                change.undo()
        raise


class _Change:
    """What is put back into one file, worked out before any is changed; again only where somebody edits the file meanwhile."""

    def __init__(self, files: RecordFiles, file: str, copies: Sequence[Copied], items: Sequence[Mapping[str, Any]]) -> None:
        self._scope = files.scope
        self.file = file
        self._copies = copies
        self._items = taken_out_of(file, items)
        self._is_new = not files.scope.tree.exists(files.scope.path(file))
        self._before = files.scope.read(file)
        self._after = self._restored(self._before)

    @property
    def growth(self) -> int:
        return len(self._after) - len(self._before)

    def __call__(self, content: bytes) -> bytes:
        return self._after if content == self._before else self._restored(content)

    def undo(self) -> None:
        if self._is_new and self._scope.read(self.file) == self._after:
            self._scope.tree.unlink(self._scope.path(self.file))
        elif not self._is_new:
            rewrite(self._scope, self.file, lambda content: self._before if content == self._after else content)

    def _restored(self, content: bytes) -> bytes:
        if is_record_file(self.file):
            return into_list(self._scope, kind_of_file(self.file), content, self._copies, self._items)
        copy = self._copies[-1]
        if content and content != copy.raw and fingerprint(content) != copy.item.get("replaced_by"):
            raise Conflict(f"{self.file} is another by now; what was deleted was left where it is.", session_id=self._scope.name,
                           advice="Move or rename the other one, then restore again.")  # fmt: skip
        return copy.raw


def _into_evictions(memory: Memory, copies: Iterable[Copied]) -> Callable[[], None]:
    """What puts them there; that it can be done is seen here."""
    from ...maintain import evictions

    heads: dict[str, dict[str, Any]] = {}
    entries: dict[str, list[tuple[dict[str, Any], bytes]]] = {}
    for copy in copies:
        item = copy.item
        path = str(item["eviction"])
        said = item.get("evicted")
        facts = said if isinstance(said, dict) else {}
        _, session_id, _ = path.split("/")
        heads[path] = {"session": session_id, "evicted_at": facts.get("evicted_at"), "reason": facts.get("reason")}
        entry = {
            "id": copy.id, "type": type_of_file(str(item["file"])), "file": item["file"], "timestamp": item.get("timestamp"),
            "sha256": hashlib.sha256(copy.raw).hexdigest(), "hash": hash_of(copy.value), "operation": facts.get("operation"),
            "reason": facts.get("reason"),
        }  # fmt: skip
        entries.setdefault(path, []).append((entry, copy.raw))
    steps = [evictions.with_copies(memory.tree, path, heads[path], added) for path, added in entries.items()]

    def write() -> None:
        for step in steps:
            step()

    return write
