"""A session that was built aside, into the tree: moved to its place, put into the archive, or merged into the one that is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import journal
from ..append import Tail, note_rewritten, note_tail
from ..append import settle as settle_file
from ..errors import Conflict, CorruptionDetected, SMPError
from ..fingerprint import hash_of
from ..formats import format_of
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, QUARANTINE
from ..locks import Lock
from ..maintain import evictions, summary_file
from ..maintain.archive import ARCHIVE, SUMMARY, files_in, listed, load_summary
from ..maintain.putting_back import value_of
from ..mapping import load_mapping
from ..packing import make_archive, member_of, read_members, write_archive
from ..quota import Usage
from ..records import Kind
from ..rewrite import rewrite
from ..session_files import METADATA
from ..timestamps import render_time
from ..values import Value
from .building import SESSION, Building
from .entries import BESIDE, kind_of
from .entries import DELETED as DELETED_PLACE
from .entries import QUARANTINE as QUARANTINE_PLACE
from .identity import known_as
from .merge import Merge, Standing
from .merging import plan, wanted_files

if TYPE_CHECKING:
    from ..files import Tree
    from ..memory import GlobalMemory, Memory
    from ..scope import Scope
    from ..session import Session

Items = list[tuple[dict[str, Any], bytes]]
_ITEM_KEYS = ("id", "type", "file", "timestamp", "sha256", "hash", "operation", "reason")  # in the order of a manifest


def place(memory: Memory, building: Building) -> None:
    """A session that is nowhere. Raises FileExistsError where somebody else was first."""
    tree, session = memory.tree, building.session
    if building.has_session and building.place == "archived":
        _archive(memory, building)
        return
    _place_evictions(tree, building, [(name, head, items) for name, (head, items) in building.evictions.items()])
    if building.has_session:
        memory._set_aside_leftovers(session)
        tree.make_directory(ACTIVE)
        tree.rename_new(building.path(), f"{ACTIVE}/{session}")
        tree.sync_parent(f"{ACTIVE}/{session}")


# Into the archive.


def _archive(memory: Memory, building: Building) -> None:
    """The directory of the archive is whole before it gets its name."""
    tree, aside = memory.tree, building.path("archived")
    tree.make_directory(aside)
    temporary, members = make_archive(tree, files_in(tree, building.path()))
    tree.rename(temporary, f"{aside}/{ARCHIVE}")
    packed = member_of(ARCHIVE, tree.read(f"{aside}/{ARCHIVE}"))
    said = building.summary or {}
    if "memories" not in said:  # one from elsewhere, where there is hardly a summary
        said = {**_made_summary(memory, building), **{name: value for name, value in said.items() if value not in (None, [])}}
    content = summary_file.render(
        said, state="archived", reason=str(said.get("reason") or "imported"),
        archived_at=str(said.get("archived_at") or render_time(memory.options.clock())), members=listed(members),
        archive={"file": ARCHIVE, "bytes": packed.size_bytes, "sha256": packed.sha256},
    )  # fmt: skip
    tree.write_new(f"{aside}/{SUMMARY}", content)
    for name, (head, items) in building.evictions.items():
        _write_eviction(tree, f"{aside}/{name}", building, head, items)
    tree.sync_parent(f"{aside}/{SUMMARY}")
    target = f"{ARCHIVED}/{building.session}"
    tree.make_directory(ARCHIVED)
    if not tree.exists(target):
        tree.rename_new(aside, target)
    else:
        # What compaction took out of one that is gone is there. The summary comes last: without it there is no session.
        for name in sorted(tree.list(aside), key=lambda name: name == SUMMARY):
            if not evictions.is_eviction(name) or not tree.exists(f"{target}/{name}"):
                tree.rename(f"{aside}/{name}", f"{target}/{name}")
        tree.sync_parent(f"{target}/{SUMMARY}")
    tree.sync_parent(target)


def _made_summary(memory: Memory, building: Building) -> dict[str, Any]:
    """Like that of any other that is archived: for a moment the session stands in a tree of its own, where it was built."""
    from ..memory import Memory as AnyMemory

    tree, place = memory.tree, f"{building.directory}/{ACTIVE}/{building.session}"
    tree.make_directory(f"{building.directory}/{ACTIVE}")
    tree.rename(building.path(), place)
    try:
        aside = AnyMemory(memory.root / building.directory)
        aside.options = memory.options
        with closing(aside):
            return {**summary_file.content(aside._session(building.session))}
    except (SMPError, OSError):
        return {"session_id": building.session}
    finally:
        tree.rename(place, building.path())


# What compaction has taken out.


def _place_evictions(tree: Tree, building: Building, wanted: Iterable[tuple[str, Any, Any]]) -> None:
    directory = f"{ARCHIVED}/{building.session}"
    for name, head, items in wanted:
        if items and not tree.exists(f"{directory}/{name}"):
            tree.make_directory(directory)
            _write_eviction(tree, f"{directory}/{name}", building, head, items)


def _write_eviction(tree: Tree, path: str, building: Building, head: dict[str, Any], items: Items) -> None:
    pieces: dict[str, list[bytes]] = {}
    ends: dict[str, int] = {}
    told: list[dict[str, Any]] = []
    for item, raw in items:
        file = item["file"]
        kind = kind_of(building.session, file)
        said = {"timestamp": None, **item, "sha256": hashlib.sha256(raw).hexdigest(), "hash": hash_of(_value(kind, raw))}
        ordered = {name: said[name] for name in _ITEM_KEYS if name in said} | {k: v for k, v in said.items() if k not in _ITEM_KEYS}
        told.append({**ordered, "offset": ends.get(file, 0), "length": len(raw)})
        pieces.setdefault(file, []).append(raw)
        ends[file] = ends.get(file, 0) + len(raw)
    manifest = json.dumps({**head, "version": evictions.VERSION, "items": told}).encode()
    write_archive(tree, path, [(evictions.MANIFEST, manifest), *((file, b"".join(parts)) for file, parts in pieces.items())])


def _value(kind: Kind | None, raw: bytes) -> dict[str, Value]:
    return (value_of(kind, raw) if kind else None) or {}


# Into one that is there.


def merge(memory: Memory, building: Building) -> Merge:
    """All that is text in one transaction; any other file then, one by one."""
    files = _files(memory, building.session)
    scope = files.scope
    with scope.locked(wanted_files(building), "importing") as held:
        tails: dict[str, Tail] = {}
        for file in wanted_files(building):
            if (kind := kind_of(building.session, file)) and scope.tree.exists(scope.path(file)):
                tails[file] = settle_file(scope, kind, held[file])
        planned = plan(building, _standing(memory, files, tails), memory.options.clock())
        planned.notes += _quota_note(files, planned)
        _carry_out(files, planned, held, tails)
    for file, content in planned.copies.items():
        with suppress(FileExistsError):
            scope.tree.make_directory(scope.path(file).rpartition("/")[0])
            scope.tree.create(scope.path(file), content)
    _merge_evictions(memory, building, planned, dry_run=False)
    return planned


@dataclass
class Foreseen:
    """What a dry run would have done: a session that comes again is compared with that as well."""

    built: dict[str, Building] = field(default_factory=dict)  # sessions that would be new
    _merged: dict[str, list[Merge]] = field(default_factory=dict)

    def merge(self, memory: Memory, building: Building) -> Merge:
        before = self.built.get(building.session)
        files = _files(memory, building.session) if before is None else None
        standing = _standing_in(before) if before else _standing(memory, _files(memory, building.session), {})
        for earlier in self._merged.get(building.session, ()):
            _add_planned(standing, earlier)
        planned = plan(building, standing, memory.options.clock())
        if files:
            planned.notes += _quota_note(files, planned)
            _merge_evictions(memory, building, planned, dry_run=True)
        self._merged.setdefault(building.session, []).append(planned)
        return planned


def _files(memory: Memory, session: str) -> Session | GlobalMemory:
    return memory.everywhere if session == GLOBAL else memory._session(session)


def _standing_in(built: Building) -> Standing:
    there = set(built.files())
    return Standing(lambda file: built.read(file) if file in there else None, _highest)


def _highest(kind: Kind, content: bytes) -> int:
    form = format_of(kind)
    return form.highest(form.parse(content), content)


def _add_planned(standing: Standing, planned: Merge) -> None:
    """What would be added stands beside the files, like what was put away."""
    read, highest = standing.read, standing.highest
    standing.read = lambda file: planned.whole.get(file) or planned.copies.get(file) or read(file)
    standing.highest = lambda kind, content: max(
        highest(kind, content), format_of(kind).highest(_as_found(planned.added.get(kind.file, [])), b"")
    )
    for file, values in planned.added.items():
        for value in values:
            standing.evicted.setdefault((file, str(value["id"])), []).append(value)


def _standing(memory: Memory, files: Session | GlobalMemory, tails: dict[str, Tail]) -> Standing:
    scope = files.scope

    def read(file: str) -> bytes | None:
        content = scope.read(file) if memory.root.is_dir() and memory.tree.exists(scope.directory) else b""
        return content if content or memory.tree.exists(scope.path(file)) else None

    def highest(kind: Kind, content: bytes) -> int:
        return tails[kind.file].last if kind.file in tails else _highest(kind, content)

    standing = Standing(read, highest)
    if scope.name != GLOBAL:
        _add_put_away(memory, scope.name, standing)
    if memory.root.is_dir():
        for item in memory.deleted(scope.name):
            standing.deleted.setdefault((item.file, item.id), set()).add(item.timestamp)
        _add_deleted(memory, scope.name, standing)
    return standing


def _add_deleted(memory: Memory, session: str, standing: Standing) -> None:
    """What the deleted ones were known as where they were imported from."""
    if not standing.deleted:
        return
    from ..privacy.deleting.store import Store

    store = Store(memory, session)
    with suppress(SMPError, OSError):
        members = store.members()
        for item in store.items():
            with suppress(SMPError, OSError):
                value = store.copy(item, members)[1]
                kind, stamp = kind_of(session, item["file"]), value.get("timestamp")
                for old in known_as(kind, value) if kind else ():
                    times = standing.deleted_before.setdefault((item["file"], old), set())
                    times.add(stamp if isinstance(stamp, str) else None)
                    standing.deleted_named.add((item["file"], item["id"]))


def _add_put_away(memory: Memory, session: str, standing: Standing) -> None:
    for name in evictions.names(memory.tree, session):
        with suppress(CorruptionDetected, FileNotFoundError):
            eviction = evictions.load(memory.tree, name)
            for item in eviction.items:
                value = _value(kind_of(session, item["file"]), eviction.held(item))
                if value:
                    standing.evicted.setdefault((item["file"], item["id"]), []).append(value)


def standing_in_archive(memory: Memory, session: str) -> Standing:
    members = dict(read_members(memory.tree, f"{ARCHIVED}/{session}/{ARCHIVE}"))
    standing = Standing(members.get, _highest)
    load_summary(memory.tree, session)  # raises where there is none
    _add_put_away(memory, session, standing)
    return standing


def _carry_out(files: Session | GlobalMemory, planned: Merge, held: dict[str, Lock], tails: dict[str, Tail]) -> None:
    scope = files.scope
    for file in planned.added:
        if file not in tails and (kind := kind_of(scope.name, file)):
            tails[file] = settle_file(scope, kind, held[file])
    steps = [_step(scope, file, values, tails[file]) for file, values in planned.added.items()]
    # Behind what is appended: that has its place by the size of the file.
    steps += [{"file": file, "insert": [], "change": values, "last": tails[file].last} for file, values in planned.changed.items()]
    steps += [{"file": file, "content": content.decode()} for file, content in planned.whole.items()]
    if steps:
        name = journal.record(scope, steps)
        for step in steps:
            journal.carry_out(scope, step)
            _note(scope, step, held, tails)
        journal.forget(scope, name)
    for file, last in planned.last.items():
        kind = kind_of(scope.name, file)
        if kind and file in tails and last > tails[file].last:
            form = format_of(kind)
            after = rewrite(scope, file, lambda content, form=form, last=last: form.with_last(content, last))  # type: ignore[misc]
            tails[file].last = last
            note_rewritten(held[file], tails[file], after)


def _step(scope: Scope, file: str, values: list[dict[str, Value]], tail: Tail) -> dict[str, Any]:
    kind = kind_of(scope.name, file)
    assert kind
    form = format_of(kind)
    content = scope.tree.read(scope.path(file))
    tail.last = max(tail.last, form.highest(_as_found(values), b""))
    if len(content) != tail.size:
        raise Conflict(f"Somebody is writing into {file} at this moment; nothing was written.", session_id=scope.name)
    rendered = tail.opening + b"".join(form.render(value, tail.indent) for value in values)
    return {"file": file, "append": rendered.decode(), "at": tail.size}


def _as_found(values: list[dict[str, Value]]) -> Any:
    from ..document import Located, RecordList

    return RecordList(records=[Located(0, 0, value) for value in values])


def _longer(files: Session | GlobalMemory, planned: Merge) -> int:
    """How many bytes what is changed needs further."""
    further = 0
    for file, values in planned.changed.items():
        if kind := kind_of(files.scope.name, file):
            form, content = format_of(kind), files.scope.read(file)
            further += len(form.rewrite(content, values, 0)) - len(content)
    return further


def _quota_note(files: Session | GlobalMemory, planned: Merge) -> list[str]:
    """What comes is taken in, however large it is: it must not be lost."""
    if (quota := files.quota_bytes()) is None or planned.is_empty:
        return []
    needed = sum(map(len, planned.whole.values())) + _longer(files, planned)
    for file, values in planned.added.items():
        if kind := kind_of(files.scope.name, file):
            needed += sum(len(format_of(kind).render(value, 2)) for value in values)
    return _over_quota(files.scope.usage.total() + needed, quota) if needed > 0 else []


def quota_note(memory: Memory, building: Building) -> list[str]:
    """The same of a session that is not there."""
    if building.place == "archived" or not building.has_session:
        return []
    storage: Value = None
    with suppress(SMPError, OSError):
        storage = load_mapping(building.read(METADATA), "session", METADATA).get("storage")
    quota = storage.get("quota_bytes") if isinstance(storage, dict) else None
    allowed = quota if isinstance(quota, int) and quota > 0 else memory.options.quota_bytes
    return [f"{building.session}: {note}" for note in _over_quota(Usage(building.tree, building.path()).total(), allowed)]


def _over_quota(total: int, quota: int) -> list[str]:
    if total <= quota:
        return []
    return [f"with this it is larger than its quota: {total:,} of {quota:,} bytes. All of it is taken in; nothing more can be added"
            " until it is compacted or archived, or storage.quota_bytes in its metadata.yaml is raised."]  # fmt: skip


def _note(scope: Scope, step: dict[str, Any], held: dict[str, Lock], tails: dict[str, Tail]) -> None:
    """Leaves for the next writer what is known of the file, as a transaction does."""
    file = step["file"]
    if file in tails and file in held:
        if "append" in step:
            note_tail(held[file], tails[file], step["append"].encode(), scope.tree.stat(scope.path(file)))
        else:
            note_rewritten(held[file], tails[file], scope.tree.read(scope.path(file)))


def _merge_evictions(memory: Memory, building: Building, planned: Merge, *, dry_run: bool) -> None:
    """Only what is neither in its file, nor put away, nor deleted here."""
    if not building.evictions:
        return
    files = memory._session(building.session)
    standing = _standing(memory, files, {})
    there = {(kind.file, str(record.value.get("id"))) for kind in files.kinds
             for record in format_of(kind).parse(standing.read(kind.file) or b"").records}  # fmt: skip
    known = there | standing.evicted.keys() | standing.deleted.keys()
    for name, (head, items) in building.evictions.items():
        gone = [item for item, _ in items if building.purged and building.purged.when(item["file"], item["id"])
                and (item["file"], item["id"]) not in known]  # fmt: skip
        building.left_out += [str(item["id"]) for item in gone]
        wanted = [(item, raw) for item, raw in items if (item["file"], item["id"]) not in known and item not in gone]
        planned.skipped += len(items) - len(wanted) - len(gone)
        planned.count += len(wanted)
        if not dry_run:
            _place_evictions(memory.tree, building, [(name, head, wanted)])


# What is neither in a session nor a memory that was taken out.


def place_elsewhere(memory: Memory, building: Building, *, dry_run: bool, without: Collection[str] = ()) -> list[str]:
    """Deleted memories, quarantine, and whatever else stood beside an archive; gives back what could not be put there."""
    problems: list[str] = []
    tree = memory.tree
    for place_, top in ((BESIDE, ARCHIVED), (DELETED_PLACE, DELETED), (QUARANTINE_PLACE, QUARANTINE)):
        if place_ in without:
            continue
        directory = f"{top}/{building.session}"
        known = _pieces(tree, directory) if top == QUARANTINE and memory.root.is_dir() else frozenset()
        for file in building.files(place_) if building.tree.exists(building.path(place_)) else ():
            if _piece(file) in known and not tree.exists(f"{directory}/{file}"):
                continue  # the same bytes from the same place; only the file that they come from was touched since
            content = building.read(file, place_)
            if memory.root.is_dir() and tree.exists(f"{directory}/{file}"):
                if tree.read(f"{directory}/{file}") != content:
                    problems.append(f"{directory}/{file} is there already and says something else; it was left as it is.")
            elif not dry_run:
                tree.make_directory(f"{directory}/{file}".rpartition("/")[0])
                tree.create(f"{directory}/{file}", content)
    return problems


def pieces_in(tree: Tree, directory: str, names: Iterable[str]) -> bool:
    """Whether each of these pieces is in a quarantine, whenever it came there."""
    return _pieces(tree, directory).issuperset(map(_piece, names))


def _pieces(tree: Tree, directory: str) -> frozenset[str]:
    try:
        return frozenset(map(_piece, tree.list(directory)))
    except FileNotFoundError:
        return frozenset()


def _piece(name: str) -> str:
    """What a piece in the quarantine is called without the time at its beginning: its file, and a digest of place and bytes."""
    return name.partition("-")[2] or name


__all__ = ["SESSION", "Foreseen", "merge", "pieces_in", "place", "place_elsewhere", "quota_note", "standing_in_archive"]
