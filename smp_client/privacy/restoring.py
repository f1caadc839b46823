"""Bringing back what was deleted or anonymised: into its old place, with its old id, byte for byte where the file allows it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import audit
from ..append import settle as settle_tail
from ..document import Located, RecordList
from ..errors import Conflict, CorruptionDetected, MemoryNotFound, SMPError
from ..formats import HEAD, Format, format_of, with_head
from ..indexing import hash_of
from ..layout import DELETED, GLOBAL, check_session_id
from ..locks import brief_lock
from ..records import STATE_HISTORY, Kind, Record, as_record, is_deleted, kind_of_file
from ..rewrite import rewrite
from ..values import Value, canonical
from . import reworking
from .standing import EVICTED, Contents, Standing, in_file, is_record_file, type_of_file, value_of_file
from .store import Deleted, Store, as_deleted, fingerprint, member_of

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import RecordFiles

_FEW = 4  # of one file, for which the place of each is looked for with care


@dataclass(frozen=True)
class _Copy:
    """What is to be put back."""

    item: Mapping[str, Any]
    raw: bytes
    value: dict[str, Value]

    @property
    def id(self) -> str:
        return str(self.item["id"])


def deleted(memory: Memory, name: str) -> list[Deleted]:
    """What can be restored."""
    with memory._scope(name).answering("listing what was deleted"):
        return [as_deleted(name, item) for item in Store(memory, name).items()]


def of_batch(memory: Memory, batch: str) -> list[str]:
    """The sessions, and `global`, of which something was deleted under this batch."""
    found = [name for name in memory.tree.list(DELETED) if _has_batch(memory, name, batch)]
    if not found:
        raise MemoryNotFound(f"Nothing was deleted under the batch {batch!r}.",
                             advice="smp restore --list shows what can be restored.")  # fmt: skip
    return found


def _has_batch(memory: Memory, name: str, batch: str) -> bool:
    with suppress(SMPError, OSError):  # what cannot be read, or is none of ours, is told by whoever lists it
        listed = Store(memory, name if name == GLOBAL else check_session_id(name)).listed()
        return any(isinstance(item, dict) and item.get("batch") == batch for item in listed)
    return False


def restore(
    memory: Memory, name: str, ids: Collection[str] | None = None, *, batch: str | None = None, by: str = "user"
) -> list[Record]:
    """Puts memories back, or all of a batch; of several that had one id the one that was deleted last.

    Where another one has the id by now it raises Conflict; the copy is kept until the memory reads back the same.
    """
    with reworking.locked(memory, name, "restoring"):
        reworking.settle(memory, name)
        contents = reworking.require(memory, name)
        store = Store(memory, name)
        items = store.items(contents)
        wanted = _wanted(name, items, ids, batch)
        members = store.members()
        copies = [_Copy(item, *store.copy(item, members)) for item in wanted]
        reworking.require_left(memory, contents)
        facts = {"session": name, "count": len(copies), "ids": [copy.id for copy in copies], "batch": batch}
        with audit.noted(memory.tree, "restore", clock=memory.options.clock, by=by, **facts):
            if len(wanted) > 1:
                store.begin_restoring(wanted)
            found = _put_back(memory, contents, copies)
            store.save([item for item in items if item not in wanted], {})
        return found


def finish(memory: Memory, contents: Contents, store: Store) -> None:
    """Puts back the rest of what somebody was putting back who died, under both locks. What cannot be put back stays deleted."""
    if not (names := store.restoring()):
        return
    items, members = store.items(contents), store.members()
    left = [item for item in items if member_of(item) in names]
    try:
        _put_back(memory, contents, [_Copy(item, *store.copy(item, members)) for item in left])
    except SMPError:
        left = []
    store.save([item for item in items if item not in left], {})


def _wanted(name: str, items: Sequence[dict[str, Any]], ids: Collection[str] | None, batch: str | None) -> list[dict[str, Any]]:
    if batch is not None:
        wanted = [item for item in items if item.get("batch") == batch]
        if not wanted:
            raise MemoryNotFound(f"Nothing of {name} was deleted under the batch {batch!r}.", session_id=name,
                                 advice="smp restore --list shows what can be restored.")  # fmt: skip
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


def _put_back(memory: Memory, contents: Contents, copies: Sequence[_Copy]) -> list[Record]:
    own = [copy for copy in copies if copy.item.get("place") != EVICTED]
    taken_out = [copy for copy in copies if copy.item.get("place") == EVICTED]
    if own and contents.is_archived:
        with reworking.unpacked(memory, contents.name) as aside:
            _into(aside.files, own)
            aside.pack()
    elif own:
        _into(reworking.files_of(memory, contents.name), own)
    if taken_out:
        _into_evictions(memory, taken_out)
    now = Contents(memory, contents.name)
    standing = {(one.file, one.id): one for file in {str(copy.item["file"]) for copy in own} for one in in_file(now, file)}
    return [_record(now.name, copy, standing) for copy in copies]


def _record(name: str, copy: _Copy, standing: Mapping[tuple[str, str], Standing]) -> Record:
    file = str(copy.item["file"])
    if copy.id == HEAD:
        return Record(HEAD, "head", name, copy.value, "")
    if copy.item.get("place") != EVICTED:
        found = standing.get((file, copy.id))
        if found is None or (found.raw != copy.raw if found.is_file else canonical(found.value) != canonical(copy.value)):
            raise CorruptionDetected(f"{copy.id} does not read back from {file}: its copy stays.", session_id=name)
    if is_record_file(file):
        return as_record(kind_of_file(file), name, copy.value)
    value = value_of_file(file, copy.raw)
    return Record(copy.id, type_of_file(file), name, value, str(value.get("content", "")))


def _into(files: RecordFiles, copies: Sequence[_Copy]) -> None:
    by_file: dict[str, list[_Copy]] = {}
    for copy in copies:
        by_file.setdefault(str(copy.item["file"]), []).append(copy)
    for file, group in by_file.items():
        if is_record_file(file):
            _into_list(files, kind_of_file(file), group)
        else:
            _into_file(files, file, group[-1])


def _into_file(files: RecordFiles, file: str, copy: _Copy) -> None:
    scope = files.scope

    def restored(content: bytes) -> bytes:
        expected = copy.item.get("replaced_by")
        if content and content != copy.raw and fingerprint(content) != expected:
            raise Conflict(f"{file} is another by now; what was deleted was left where it is.", session_id=scope.name,
                           advice="Move or rename the other one, then restore again.")  # fmt: skip
        return copy.raw

    with scope.locked([file], f"restoring {copy.id}"), brief_lock(scope.tree, scope.name, "usage", scope.options.patience):
        if (quota := files.quota_bytes()) is not None:
            scope.usage.require(scope.name, len(copy.raw), quota)
        if "/" in file:
            scope.tree.make_directory(scope.path(file).rpartition("/")[0])
        rewrite(scope, file, restored)


def _into_list(files: RecordFiles, kind: Kind, copies: Sequence[_Copy]) -> None:
    scope = files.scope
    form = format_of(kind)

    def restored(content: bytes) -> bytes:
        content = content or form.empty(scope.name, scope.options.clock(), [])
        content = _with_old_head(kind, content, [copy for copy in copies if copy.id == HEAD])
        content = _replaced(kind, content, [copy for copy in copies if "replaced_by" in copy.item and copy.id != HEAD])
        missing = [copy for copy in copies if "replaced_by" not in copy.item]
        if len(missing) > _FEW:
            return _with_many(kind, content, missing)
        for copy in missing:
            content = _with_one(kind, content, copy)
        return content

    with scope.locked([kind.file], f"restoring {len(copies)} memories") as held:
        tail = settle_tail(scope, kind, held[kind.file])
        with brief_lock(scope.tree, scope.name, "usage", scope.options.patience):
            if (quota := files.quota_bytes()) is not None:
                scope.usage.require(scope.name, sum(len(copy.raw) for copy in copies), quota)
            if "/" in kind.file:
                scope.tree.make_directory(scope.path(kind.file).rpartition("/")[0])
            rewrite(scope, kind.file, restored)
        # The bytes may have brought a style of their own into an empty list: let the next writer look.
        held[kind.file].note = {"last": tail.last}


def _with_old_head(kind: Kind, content: bytes, copies: Sequence[_Copy]) -> bytes:
    """What stands before the first record; only anonymising ever changes that."""
    form = format_of(kind)
    for copy in copies:
        found = form.find(content, HEAD)
        if found is None or fingerprint(found.value) not in (copy.item.get("replaced_by"), copy.item.get("sha256")):
            raise _conflict(kind, "beginning")
        content = with_head(form, content, found, copy.raw)
    return content


def _replaced(kind: Kind, content: bytes, copies: Sequence[_Copy]) -> bytes:
    """What was anonymised, as it was before; each stands where its place is."""
    if not copies:
        return content
    standing = {str(record.value["id"]): record for record in format_of(kind).parse(content).records if record.has_id}
    changes: list[tuple[Located, _Copy]] = []
    for copy in copies:
        found = standing.get(copy.id)
        if found is not None and canonical(found.value) == canonical(copy.value):
            continue
        if found is None or fingerprint(found.value) != copy.item["replaced_by"]:
            raise _conflict(kind, copy.id)
        changes.append((found, copy))
    pieces: list[bytes] = []
    position = 0
    for found, copy in sorted(changes, key=lambda change: change[0].start):
        pieces += [content[position : found.start], copy.raw]
        position = found.end
    spliced = b"".join([*pieces, content[position:]])
    wanted = {**{memory_id: record.value for memory_id, record in standing.items()}, **{copy.id: copy.value for copy in copies}}
    now = format_of(kind).parse(spliced)
    if {str(record.value["id"]): canonical(record.value) for record in now.records if record.has_id} == {
        memory_id: canonical(value) for memory_id, value in wanted.items()}:  # fmt: skip
        return spliced
    return format_of(kind).rewrite(content, {copy.id: copy.value for _, copy in changes}, 0)


def _with_many(kind: Kind, content: bytes, copies: Sequence[_Copy]) -> bytes:
    """With one reading before and one after; each goes where its number says."""
    from ..maintain.putting_back import Copy, put_back

    done = put_back(kind, content, [Copy(copy.id, hash_of(copy.value), copy.raw) for copy in copies])
    for memory_id in done.conflicts:
        raise _conflict(kind, memory_id)
    return done.content


def _conflict(kind: Kind, memory_id: str) -> Conflict:
    return Conflict(f"Another {memory_id} stands in {kind.file} by now; the deleted one was left where it is.",
                    advice="Give the other one another id, then restore again.")  # fmt: skip


def _with_one(kind: Kind, content: bytes, copy: _Copy) -> bytes:
    form = format_of(kind)
    found = form.parse(content)
    same = [record for record in found.records if record.value.get("id") == copy.id]
    standing = [record for record in same if not is_deleted(kind, record.value)]
    if [canonical(record.value) for record in standing] == [canonical(copy.value)]:
        # A crash kept the record from being cleared.
        return content
    if standing:
        raise _conflict(kind, copy.id)
    place = same[-1] if same else None
    wanted = Counter([canonical(copy.value), *(canonical(record.value) for record in found.records if record is not place)])
    for after in _attempts(form, copy, content, found, place):
        now = form.parse(after)
        read = form.find(after, copy.id)
        is_whole = Counter(canonical(record.value) for record in now.records) == wanted and len(now.bad) <= len(found.bad)
        keeps_head = canonical({**now.head, **found.head}) == canonical(now.head)
        if is_whole and keeps_head and read and canonical(read.value) == canonical(copy.value):
            return after
    raise CorruptionDetected(f"{copy.id} cannot be put back into {kind.file} as it is now; nothing was changed.")


def _attempts(form: Format, copy: _Copy, content: bytes, found: RecordList, place: Located | None) -> Iterator[bytes]:
    """The file with the memory in it, the best way first; its style may have changed since, so none is sure to be right."""
    raw = copy.raw
    if place is not None:
        # What stands in the place of a turn.
        yield content[: place.start] + raw + content[place.end :]
        yield form.rewrite(content, {copy.id: copy.value}, 0)
        return
    at = _place(copy.item, found) if found.records else len(content)
    before, behind = content[:at], content[at:]
    opening = b"" if not before or before.endswith(b"\n") else b"\n"
    if not behind:
        opening = form.opening(found, content) or opening
    yield before + opening + raw + (b"\n" if behind and not raw.endswith(b"\n") else b"") + behind
    yield form.insert(content, copy.value)


def _place(item: Mapping[str, Any], found: RecordList) -> int:
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


def _into_evictions(memory: Memory, copies: Iterable[_Copy]) -> None:
    from ..maintain import evictions

    for copy in copies:
        item = copy.item
        said = item.get("evicted")
        facts = said if isinstance(said, dict) else {}
        _, session_id, _ = str(item["eviction"]).split("/")
        head = {"session": session_id, "evicted_at": facts.get("evicted_at"), "reason": facts.get("reason")}
        entry = {
            "id": copy.id, "type": type_of_file(str(item["file"])), "file": item["file"], "timestamp": item.get("timestamp"),
            "sha256": hashlib.sha256(copy.raw).hexdigest(), "hash": hash_of(copy.value), "operation": facts.get("operation"),
            "reason": facts.get("reason"),
        }  # fmt: skip
        evictions.put_copy_back(memory.tree, str(item["eviction"]), head, entry, copy.raw)
