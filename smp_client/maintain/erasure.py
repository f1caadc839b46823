"""Removing what was deleted for good. It decides nothing: what is given is erased, with every copy that SMP may have of it.

First it is noted what is going, then the content goes, and last the record that names it. So whoever comes after a crash finds the
record, and erases the rest. Everything is done under the locks of the session's passes and of its record, after looking again
whether it still is what was decided about: somebody may have restored it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .. import audit, journal, rewrite
from ..errors import Conflict, CorruptionDetected, LockTimeout, SMPError, TransactionPending
from ..files import Tree
from ..fingerprint import hash_of
from ..text.format import HEAD
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, JOURNAL, LEAVING, LOCKS, QUARANTINE, RETIRED, TEMPORARY
from ..locks import NO_PATIENCE, lock, lock_all
from ..text.mapping import load_mapping, replace_parts
from ..packing import read_members, write_archive
from ..privacy.deleting import retelling, reworking
from ..privacy.deleting.standing import Contents, head_of_file, is_record_file, standing, value_of_file
from ..privacy.deleting.store import RECORD, Store, member_of
from ..scope import UPKEEP
from ..temporaries import maker_is_gone
from . import evictions, participants, purged, quarantined, removal, traces
from .doomed import ITEMS, TOP, WHOLE, Doomed, Gone, as_gone, backup_of, directories, doomed_of, items_of, record_of
from .quarantined import Words
from .traces import Telling

if TYPE_CHECKING:
    from ..memory import Memory
    from ..scope import Scope

_VALUES = "values/"  # before the name of a copy, see deletion.py
_SAYS_NOTHING = ("decay:", "timestamp:", "**", "- id:", "last_", "#", "---", "version", "<!-- smp", "access_count:", "session_id:")
_PAUSE_S = 0.1
_WORDS_CAP_BYTES = 1024 * 1024
ABANDONED_S = 600.0  # no write takes this long


@dataclass
class Erased:
    """What came of it; `lines` are some of those that it said, and `short` what it said in few letters, to look for afterwards,
    `notes` what a person should look at, `problems` what of it is still there."""

    bytes_freed: int = 0
    lines: list[str] = field(default_factory=list)
    short: Words = field(default_factory=Words)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def erase(memory: Memory, one: Doomed, now: datetime, *, forced: bool, by: str = "user") -> Erased:
    with _as_decided(memory, one) as scope:
        ids = [gone.id for gone in one.memories]
        facts = {"whole_session": one.is_session or None, "deleted_at": one.deleted_at, "at_once": now < one.deadline or None}
        audit.note(memory.tree, "purge", at=now, by=by, session=one.session, count=len(ids) or 1, ids=ids, **facts)
        if one.is_session:
            return _erase_session(memory, one, now, forced=forced)
        return _erase_memories(scope, memory, one, now, forced=forced)


@contextmanager
def _as_decided(memory: Memory, one: Doomed) -> Iterator[Scope]:
    scope = memory._scope(one.session)
    with scope.undisturbed("purging"), lock(memory.tree, one.session, RECORD, memory.options.patience, "purging"):
        removal.settle(memory, one.session)
        reworking.settle(memory, one.session)
        standing = {other.key: other for other in doomed_of(memory, one.session, [])}.get(one.key)
        if standing is None or standing.in_use or not set(one.memories) <= set(standing.memories):
            raise Conflict(f"{one.session}: what was to be purged has changed meanwhile, and was left.", session_id=one.session)
        yield scope


# A session.


def _erase_session(memory: Memory, one: Doomed, now: datetime, *, forced: bool) -> Erased:
    tree = memory.tree
    backup, record = backup_of(one.session), record_of(one.session)
    erased = Erased(lines=_lines_of_files(tree, backup))
    traces.ask_for_scrub(memory, one.session)
    purged.note(memory, one, now, forced=forced)
    for name in _leftovers(tree, one.session, Telling(erased.lines)):
        erased.bytes_freed += remove(tree, name)
    for name in tree.list(f"{DELETED}/{one.session}"):
        if name != RECORD:
            erased.bytes_freed += remove(tree, f"{DELETED}/{one.session}/{name}")
    # The content is gone for good before the record says so.
    tree.sync_parent(record)
    erased.bytes_freed += remove(tree, record)
    tree.remove_empty(f"{DELETED}/{one.session}")
    tree.sync_parent(f"{DELETED}/{one.session}")
    remove_locks(memory, one.session, held=(UPKEEP, RECORD))
    return erased


def _leftovers(tree: Tree, session_id: str, telling: Telling) -> Iterator[str]:
    """What SMP has of a session beside its files."""
    yield from (f"{place}/{session_id}" for place in (ARCHIVED, QUARANTINE))
    for place in (RETIRED, JOURNAL, LEAVING):
        yield from (f"{place}/{name}" for name in tree.list(place) if name.startswith(f"{session_id}+"))
    yield from temporaries(tree, telling)


def temporaries(tree: Tree, telling: Telling, older_than_s: float | None = None) -> Iterator[str]:
    """What a crash has left in `.smp/tmp/`: all that nobody makes any more, whosever words it holds. Where that cannot be known it
    goes by its words, and what is new is somebody's work."""
    for name in tree.list(TEMPORARY):
        path = f"{TEMPORARY}/{name}"
        if maker_is_gone(name):
            yield path
            continue
        with suppress(FileNotFoundError):
            age_s = time.time() - tree.stat(path).st_mtime
            if age_s >= (ABANDONED_S if older_than_s is None else older_than_s) and _holds(tree, path, telling):
                yield path


def _holds(tree: Tree, path: str, telling: Telling) -> bool:
    files = list(tree.files_below(path)) if tree.is_directory(path) else [path]
    return any(telling.stand_in(tree, file) for file in files)


def remove(tree: Tree, name: str) -> int:
    """A file, or a directory with all that is in it. Gives back how much that was."""
    if not tree.exists(name):
        return 0
    if not tree.is_directory(name):
        size = tree.stat(name).st_size
        tree.unlink(name)
        return size
    freed = sum(tree.stat(file).st_size for file in tree.files_below(name))
    if error := tree.remove_directory(name):
        raise error
    tree.sync_parent(name)
    return freed


def remove_locks(memory: Memory, session_id: str, held: Iterable[str] = ()) -> None:
    """The lock files of a session that is nowhere any more. One is removed by whoever holds it: a waiter then sees that it has
    lost its name. One that somebody else holds stays."""
    tree = memory.tree
    for name in tree.list(f"{LOCKS}/{session_id}"):
        file = name.removesuffix(".lock")
        if file in held:
            continue
        try:
            with lock(tree, session_id, file, NO_PATIENCE, "purging"):
                tree.unlink(f"{LOCKS}/{session_id}/{name}")
        except LockTimeout:
            continue
    for file in held:
        tree.unlink(f"{LOCKS}/{session_id}/{file}.lock")
    tree.remove_empty(f"{LOCKS}/{session_id}")


def sweep(memory: Memory) -> None:
    """What a crash has left between the last file and the end: directories with nothing in them, and locks of what is gone."""
    tree = memory.tree
    for session_id in directories(tree, DELETED):
        if not tree.list(f"{DELETED}/{session_id}"):
            # Whoever deletes something there makes it under one of these.
            with suppress(LockTimeout), lock_all(tree, session_id, (UPKEEP, RECORD), NO_PATIENCE, "purging"):
                tree.remove_empty(f"{DELETED}/{session_id}")
    for session_id in purged.sessions(memory) & set(tree.list(LOCKS)):
        if not any(tree.exists(f"{place}/{session_id}") for place in (ACTIVE, ARCHIVED, DELETED)):
            remove_locks(memory, session_id)


def _lines_of_files(tree: Tree, backup: str) -> list[str]:
    """Telling lines out of a whole backup; one that cannot be read has none."""
    found: dict[str, None] = {}
    try:
        for _, content in read_members(tree, backup):
            # A few of each file are enough to find the file again.
            for part in traces.unpacked(content, 0) if content.startswith(traces.PACKED) else [content]:
                found.update(dict.fromkeys(_sampled(traces.lines_of(part.decode("utf-8", "replace")))))
    except (FileNotFoundError, CorruptionDetected):
        pass
    return list(found)


def _sampled(lines: list[str]) -> list[str]:
    """Lines that only say when, or how SMP writes its files, stand in every file."""
    said = (traces.without_field(line) for line in lines if not line.startswith(_SAYS_NOTHING))
    telling = [line for line in said if quarantined.is_telling(line)]
    return telling[:: max(1, len(telling) // 20)]


# Memories.


def _erase_memories(scope: Scope, memory: Memory, one: Doomed, now: datetime, *, forced: bool) -> Erased:
    tree = memory.tree
    is_active = tree.exists(scope.directory)
    if is_active:
        journal.recover(scope, wait=True)
        if journal.pending(scope):
            raise TransactionPending(f"{one.session}: a transaction is not finished; nothing was purged.", session_id=one.session)
    # What a crash has left where it was has never been deleted, and only its copy goes.
    absent = {(str(item["id"]), member_of(item)) for item in Store(memory, one.session).items()}
    taken_out = [gone for gone in one.memories if (gone.id, gone.copy) in absent]
    values = _values(tree, one, taken_out)
    lines = lines_of_memories(memory, one.session, taken_out, values)
    telling = Telling(lines)
    traces.ask_for_scrub(memory, one.session)
    purged.note(memory, one, now, forced=forced, imported=[known for value in values for known in _known_before(value)])
    erased = Erased(lines=lines if sum(map(len, lines)) <= _WORDS_CAP_BYTES else lines[:: len(lines) // 100 + 1])
    if is_active:
        _wipe_old_versions(scope, {gone.file for gone in taken_out}, telling)
        erased.bytes_freed += _remove_derived(scope, taken_out, telling)
    erased.bytes_freed += _take_out_of_evictions(tree, one.session, taken_out, values)
    ids = {gone.id for gone in taken_out}
    _remove_set_aside(tree, one.session, telling, quarantined.own_words(taken_out, values), ids, erased)
    erased.short = quarantined.own_words(taken_out, values, quarantined.SHORTEST_CHARACTERS)
    erased.bytes_freed += sum(remove(tree, name) for name in list(temporaries(tree, telling)))
    retelling.forget_told(memory, one.session, {gone.copy for gone in one.memories})
    if one.session != GLOBAL:
        erased.problems += participants.forget(memory, one.session, values, {gone.copy for gone in one.memories})
    erased.bytes_freed += _take_out(tree, one)
    return erased


def lines_of_memories(memory: Memory, session_id: str, taken_out: Iterable[Gone], values: Iterable[dict[str, Any]]) -> list[str]:
    """Lines by which they would be known again; not those that what stands in the place of an anonymised one says as well."""
    lines = traces.telling_lines(values)
    replaced = {(gone.file, gone.id) for gone in taken_out if gone.is_replaced}
    if not replaced:
        return lines
    now = [one for one in standing(memory, session_id, []) if (one.file, one.id) in replaced]
    still = {*traces.telling_lines(one.value for one in now), *(line for one in now for line in _lines_of_bytes(one.raw))}
    contents = Contents(memory, session_id)
    heads = [head_of_file(contents, file) for file, memory_id in replaced if memory_id == HEAD]
    still.update(line for head in heads if head for line in _lines_of_bytes(head.raw))
    return [line for line in lines if line not in still]


def _lines_of_bytes(content: bytes) -> list[str]:
    return traces.lines_of(content.decode("utf-8", "replace"))


def _values(tree: Tree, one: Doomed, taken_out: Iterable[Gone]) -> list[dict[str, Any]]:
    """What they said, from their copies; those that cannot be read any more say nothing."""
    names = {f"{_VALUES}{gone.copy}" if is_record_file(gone.file) else gone.copy: gone.file for gone in taken_out}
    found: list[dict[str, Any]] = []
    if tree.exists(backup_of(one.session)):
        for path, content in read_members(tree, backup_of(one.session)):
            if path in names:
                # How SMP writes a file is no word of it: other files would be taken for what was purged.
                value = _loaded(content) if is_record_file(names[path]) else value_of_file(names[path], content)
                found += [value] if value else [{"text": content.decode("utf-8", "replace")}]
    return found


def _known_before(value: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Under which ids others may bring it again: the one that it was imported with, and the one that it had before that."""
    notes, stamp = value.get("imported"), value.get("timestamp")
    for old in dict.fromkeys((value.get("imported_id"), notes.get("id") if isinstance(notes, dict) else None)):
        if isinstance(old, str):
            yield old, stamp if isinstance(stamp, str) else None


def _loaded(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _wipe_old_versions(scope: Scope, files: set[str], telling: Telling) -> None:
    """Old versions of the files that they stood in. One that a program still has open can get further bytes: it is waited for."""
    until = time.monotonic() + scope.options.patience.timeout_s
    while True:
        with scope.locked(files, "purging", any_version=True):
            for file in files:
                rewrite.wipe_retired(scope, file)
        old = [name for name in scope.tree.list(RETIRED) if name.startswith(f"{scope.name}+")]
        holding = [name for name in old if telling.stand_in(scope.tree, f"{RETIRED}/{name}")]
        if not holding:
            return
        if time.monotonic() > until:
            raise Conflict(f"{scope.name}: an old version of a file is still open in some program; nothing was purged.",
                           session_id=scope.name, advice="It is tried again next time.")  # fmt: skip
        files = files | {rewrite.file_of_slot(name) for name in holding}  # another file may have said the same
        time.sleep(_PAUSE_S)


def _remove_derived(scope: Scope, memories: Iterable[Gone], telling: Telling) -> int:
    """YAML indexes that are older than the deletion. They are made anew with the next change of the session."""
    ids = [gone.id.encode() for gone in memories]
    directory = scope.path("indexes")
    files = [f"{directory}/{name}" for name in scope.tree.sizes(directory)]
    stale = [file for file in files if traces.found_in(scope.tree, file, ids) or telling.stand_in(scope.tree, file)]
    return sum(remove(scope.tree, file) for file in stale)


def _take_out_of_evictions(tree: Tree, session_id: str, memories: Iterable[Gone], values: Iterable[dict[str, Any]]) -> int:
    """Compaction may have taken them out once as well; one of the same id that says something else is another memory. A file of
    it that cannot be read may hold them: that is an error."""
    hashes = {str(value.get("id")): hash_of(value) for value in values}
    going = {(gone.file, gone.id, hashes.get(gone.id)) for gone in memories}
    freed = 0
    for name in evictions.names(tree, session_id):
        one = evictions.load(tree, name, whole=False)
        if any((item["file"], item["id"], item["hash"]) in going for item in one.items):
            before = tree.stat(name).st_size
            evictions.keep_only(tree, one, lambda item: (item["file"], item["id"], item["hash"]) not in going)
            freed += before - (tree.stat(name).st_size if tree.exists(name) else 0)
    return freed


def _remove_set_aside(
    tree: Tree, session_id: str, telling: Telling, words: Words, ids: Collection[str], erased: Erased
) -> None:  # fmt: skip
    """What was set aside of this session and holds their words, each with its note; what only may do so is told."""
    directory = f"{QUARANTINE}/{session_id}"
    theirs, perhaps = quarantined.holding(tree, session_id, telling, words, ids)
    for path, rest in theirs.items():
        if rest.strip():
            erased.bytes_freed += tree.stat(path).st_size - len(rest)
            tree.replace(path, rest)
            continue
        # The note first: without it the bytes are found again.
        erased.bytes_freed += remove(tree, f"{path.removesuffix('.bytes')}.note.yaml") + remove(tree, path)
    if theirs:
        tree.sync_parent(f"{directory}/any")
        tree.remove_empty(directory)
    erased.notes += [f"{session_id}: {path}, which was set aside, has a word of what was purged, and may be somebody else's: it is"
                     " kept." for path in perhaps]  # fmt: skip


def _take_out(tree: Tree, one: Doomed) -> int:
    """Out of the backup, and then out of the record."""
    backup, record = backup_of(one.session), record_of(one.session)
    content = tree.read(record)
    said = load_mapping(content, TOP, record)
    going = {(gone.id, gone.copy) for gone in one.memories}
    kept = [item for item in items_of(said) if _name(one.session, item) not in going]
    meant = {copy for item in kept if (copy := _name(one.session, item)[1])}
    unwanted = {name for gone in one.memories if gone.copy not in meant for name in (gone.copy, f"{_VALUES}{gone.copy}")}
    before = tree.stat(backup).st_size if tree.exists(backup) else 0
    after = _without(tree, backup, unwanted) if before else 0
    if kept or said.get(WHOLE):
        last: dict[str, Any] = next((item for item in reversed(kept) if isinstance(item, dict)), {})
        changes = {name: last.get(name) for name in ("deleted_at", "deleted_by", "recovery_deadline")}
        changes |= {"reason": last.get("reason_specific"), ITEMS: kept}
        tree.replace(record, replace_parts(content, TOP, changes, record))
    else:
        tree.unlink(record)
        tree.remove_empty(f"{DELETED}/{one.session}")
        tree.sync_parent(f"{DELETED}/{one.session}")
    return before - after


def _name(session_id: str, item: Any) -> tuple[str, str]:
    try:
        gone = as_gone(session_id, item)
    except (ValueError, SMPError):
        return "", str(item.get("copy", "")) if isinstance(item, dict) else ""
    return gone.id, gone.copy


def _without(tree: Tree, backup: str, unwanted: set[str]) -> int:
    """Makes the backup anew without these; none is left where nothing is. Gives back its size."""
    names = [path for path, _ in read_members(tree, backup)]
    if not set(names) & unwanted:
        return tree.stat(backup).st_size
    if set(names) <= unwanted:
        tree.unlink(backup)
        tree.sync_parent(backup)
        return 0
    write_archive(tree, backup, ((path, content) for path, content in read_members(tree, backup) if path not in unwanted))
    return tree.stat(backup).st_size
