"""Files into the index: only what changed is parsed, and the result is what a rebuild from nothing would give."""

from __future__ import annotations

import os
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from ..disk.place import Place
from ..disk.scopes import ARCHIVE, STATES, counts, directory_of, files_of, is_archived, is_of, kinds_of, scopes
from ..disk.session_files import METADATA, parse_artifact
from ..disk.tree import read_from
from ..model.deadline import LIMIT_S, deadline
from ..model.errors import CorruptionDetected, NewerFormat, TookTooLong, UnsafePath
from ..model.layout import GLOBAL
from ..model.priority import standing
from ..model.ranking import importance
from ..model.record import PREFERENCE, RELATIONSHIP, TURN, Kind, is_deleted
from ..model.times import parse_time, render_time
from ..redaction.redact import harmless
from ..text.document import Located, RecordList
from ..text.fingerprint import hash_of_bytes, stored
from ..text.format import format_of, mentioned
from ..text.mapping import load_mapping
from ..text.values import Value
from . import archived
from .database import Index
from .rows import Entry, FileState, Validity, Weight
from .validity import endings, own_mark, project_of, subject

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Their values are no words that anybody would look for.
_NO_WORDS = frozenset(
    ("id", "timestamp", "updated_at", "turn", "type", "decay", "tags", "pinned", "speaker", "memory_refs", "references",
     "agent_id", "session_id", "last_updated")
)  # fmt: skip
# What says whether memories of other sessions still hold, see questions/validity.py.
BEARING = (RELATIONSHIP.file, PREFERENCE.file, METADATA)
# The clock that stamps files ticks only so often: two changes within a tick have the same time.
_TICK_NS = int(1e9 * time.clock_getres(time.CLOCK_REALTIME_COARSE)) if hasattr(time, "CLOCK_REALTIME_COARSE") else 10_000_000
_TICKS_WAITED = 5
_BYTES_PER_S = 100_000  # far slower than reading really is, also of what is packed
_PROBLEM_CAP = 500


@dataclass(frozen=True)
class Refreshed:
    """What taking in one file came to."""

    added: int = 0
    removed: int = 0
    parsed_bytes: int = 0
    gone: tuple[str, ...] = ()  # the ids of those that were removed, and do not stand in the file in any form


def outdated(memory: Place, index: Index) -> Iterator[tuple[str, str]]:
    """The files whose disk and index differ, those that are gone included. Reads no file."""
    known = index.files()
    for scope in scopes(memory):
        for file in files_of(memory, scope):
            state = known.pop((scope, file), None)
            if state is None or not _stands(memory, f"{directory_of(scope)}/{file}", state):
                yield scope, file
    yield from known


def files_that_differ(memory: Place, index: Index, wanted: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Like `outdated`, for these scopes only."""
    if not wanted:
        return
    known = index.identities(scope=wanted[0] if len(wanted) == 1 else None)
    root = os.fspath(memory.root)
    for scope in wanted:
        directory = directory_of(scope)
        for file in files_of(memory, scope):
            seen = known.pop((scope, file), None)
            try:
                # A link on the way is no danger here: what it leads to has another inode, and is then opened with care.
                if seen is None or seen != _identity(os.lstat(f"{root}/{directory}/{file}")):
                    yield scope, file
            except OSError:
                yield scope, file
    yield from (item for item in known if item[0] in wanted)


def bearing_files_that_differ(
    memory: Place, index: Index, without: Collection[str], names: Sequence[str] = BEARING
) -> Iterator[tuple[str, str]]:
    """Yield the files of all other scopes that say whether a memory of these scopes still holds, where disk and index differ."""
    without = set(without)
    known = {item: seen for item, seen in index.identities(names).items() if item[0] not in without}
    root = os.fspath(memory.root)
    for scope in scopes(memory):
        if scope in without or scope == GLOBAL:
            continue
        directory = directory_of(scope)
        for file in files_of(memory, scope) if is_archived(scope) else names:
            seen = known.pop((scope, file), None)
            try:
                is_new = seen != _identity(os.lstat(f"{root}/{directory}/{file}"))
            except OSError:
                is_new = seen is not None
            if is_new:
                yield scope, file
    yield from known


def cover(index: Index, scope: str, file: str, content: bytes) -> None:
    """Makes an index that only this process sees true for a file that is about to have this content."""
    if not is_of(scope, file):
        return
    if not content:
        _forget(index, scope, file)
        return
    nowhere = os.stat_result([0] * 10)
    known = index.file_state(scope, file)
    try:
        _take_in(index, scope, file, content, known, nowhere)
    except (NewerFormat, CorruptionDetected, TookTooLong) as error:
        _note_problem(index, scope, file, known, None, str(error))


def refresh(memory: Place, index: Index, scope: str, file: str, *, settle: bool = True) -> Refreshed:
    """Makes the index true for one file, as it is now. A file that cannot be read keeps what is known of it. Without settling, an
    index that is kept could miss the next change: only for one that is not."""
    if not is_of(scope, file):
        return Refreshed()
    path = f"{directory_of(scope)}/{file}"
    known = index.file_state(scope, file)
    if is_archived(scope) and not counts(memory, scope, file):
        return _forget(index, scope, file)
    try:
        with memory.tree.opened(path) as descriptor:
            if known is not None and is_unchanged(known, os.fstat(descriptor)):
                return Refreshed()
            status = _settled(descriptor) if settle else os.fstat(descriptor)
            content = read_from(descriptor, 0)
    except FileNotFoundError:
        return _forget(index, scope, file)
    except (OSError, UnsafePath) as error:
        _note_problem(index, scope, file, known, _status_of_unsafe(memory, path, error), str(error))
        return Refreshed()
    try:
        with index.one_file(), deadline(LIMIT_S + len(content) / _BYTES_PER_S):
            return _take_in(index, scope, file, content, known, status)
    except sqlite3.Error:
        raise
    except (NewerFormat, CorruptionDetected, TookTooLong) as error:
        _note_problem(index, scope, file, known, status, str(error))
    except Exception as error:
        # Nobody thought of this, and it must not cost the other files.
        _note_problem(index, scope, file, known, status, f"It cannot be taken in: {harmless(repr(error))}"[:_PROBLEM_CAP])
    return Refreshed(parsed_bytes=len(content))


def describe(scope: str, file: str, content: bytes) -> list[tuple[str, str]]:
    """Id and hash of each memory in the content of a file, as the index would have them; ids that stand twice twice."""
    if file == METADATA:
        load_mapping(content, "session", METADATA)
        return []
    if is_archived(scope):
        return [(entry.id, entry.hash) for entry in _packed(scope, file, content)]
    kind = kinds_of(scope).get(file)
    found = format_of(kind).parse(content).records if kind else []
    entries = [entry_of(kind, record) for record in found if record.has_id] if kind else [entry_of_file(file, content)]
    return [(entry.id, entry.hash) for entry in entries]


def rebuild(memory: Place, index: Index) -> None:
    """From nothing: what cannot be read now is not in it. Where it is interrupted, all is as it was."""
    with index.batch():
        index.clear()
        for scope, file in list(outdated(memory, index)):
            refresh(memory, index, scope, file)


def _take_in(index: Index, scope: str, file: str, content: bytes, known: FileState | None, status: os.stat_result) -> Refreshed:
    if known is not None and not known.problem and (known.size, known.checksum) == (len(content), zlib.crc32(content)):
        index.note_file(scope, file, _state(status, content, known.indent, known.bad))
        return Refreshed()
    if kind := kinds_of(scope).get(file):
        return _take_in_records(index, scope, kind, content, known, status)
    added, went = 0, list[str]()
    if file == METADATA:
        metadata = load_mapping(content, "session", METADATA)
        context = metadata.get("context")
        project = project_of(context.get("project_name") if isinstance(context, dict) else None)
        index.note_session(scope, str(metadata.get("status", "active")), metadata, project)
    elif is_archived(scope):
        added, went = index.replace(scope, file, _packed(scope, file, content))
        if file == ARCHIVE:
            _note_archived(index, scope, file, content)
    else:
        added, went = index.replace(scope, file, [entry_of_file(file, content)])
    index.note_file(scope, file, _state(status, content, 0, 0))
    return Refreshed(added, len(went), len(content))


def _take_in_records(
    index: Index, scope: str, kind: Kind, content: bytes, known: FileState | None, status: os.stat_result
) -> Refreshed:
    tail = _parse_grown(kind, content, known)
    if tail is not None and known is not None and not index.has_any(scope, kind.file, _ids(tail)):
        entries = _entries(kind, tail)
        index.add(scope, kind.file, entries)
        index.note_file(scope, kind.file, _state(status, content, known.indent, 0))
        return Refreshed(len(entries), 0, len(content) - known.size)
    form = format_of(kind)
    found = form.parse(content)
    added, went = index.replace(scope, kind.file, _entries(kind, found))
    # A list that is not at the end of its file, or holds what cannot be read, is parsed whole the next time as well.
    bad = len(found.bad) + sum(not record.has_id for record in found.records)
    plain = form.opening(found, content) == b"" and not bad
    index.note_file(scope, kind.file, _state(status, content, found.indent if plain else -1, bad))
    return Refreshed(added, len(went), len(content), _gone(kind, found, content, went))


def _gone(kind: Kind, found: RecordList, content: bytes, went: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that stand nowhere in the file, also not in a part that cannot be read.

    An id that SMP did not give counts as standing in such a part.
    """
    missing = dict.fromkeys(went).keys() - _ids(found) if went else ()
    unread = b"\n".join(content[bad.start : bad.end] for bad in found.bad) if missing else b""
    there = mentioned(kind, unread)
    gone = [one for one in dict.fromkeys(went) if one in missing and one not in there]
    return tuple(one for one in gone if not unread or _is_given(kind, one))


def _is_given(kind: Kind, memory_id: str) -> bool:
    number = memory_id.rpartition("-")[2]
    return number.isdecimal() and len(number) < 16 and memory_id == kind.memory_id(int(number))


def _parse_grown(kind: Kind, content: bytes, known: FileState | None) -> RecordList | None:
    """The records behind what is known; None where the file did not just grow by whole records."""
    if known is None or known.problem or known.indent < 0 or not 0 < known.size < len(content):
        return None
    if zlib.crc32(memoryview(content)[: known.size]) != known.checksum:
        return None
    form = format_of(kind)
    found = form.parse_tail(content, known.size, known.indent)
    # Anything but a record right behind the last one, be it a blank line, may belong to the last one.
    follows = bool(found.records) and found.records[0].start == known.size
    whole = not found.bad and all(record.has_id for record in found.records) and form.opening(found, content) == b""
    return found if follows and whole else None


def _ids(found: RecordList) -> list[str]:
    return [str(record.value["id"]) for record in found.records if record.has_id]


def _entries(kind: Kind, found: RecordList) -> list[Entry]:
    """Of an id that stands there twice, both: see questions/doubles.py."""
    kept = [record for record in found.records if record.has_id and not is_deleted(kind, record.value)]
    return [entry_of(kind, record) for record in sorted(kept, key=lambda record: record.start)]


def entry_of(kind: Kind, record: Located) -> Entry:
    value, data, digest = stored(record.value)
    actor = str(value.get(kind.actor) or value.get("created_by") or "")
    more = " ".join(text for name, item in value.items() if name not in _NO_WORDS and name != kind.text for text in _texts(item))
    return Entry(
        str(value["id"]), kind.name, record.start, record.end, digest, *_time(value.get("timestamp")),
        actor, str(value.get(kind.text, "")), more, _tags(value), _topics(kind, value),
        tuple(_refs(kind, value)), data, _weight(kind.name, value), _validity(kind, value),
    )  # fmt: skip


def entry_of_file(file: str, content: bytes) -> Entry:
    """An agent's state or an artifact: one memory that is the whole file."""
    folder, _, name = file.rpartition("/")
    memory_id = os.path.splitext(name)[0]
    value: Mapping[str, Value]
    if folder == STATES:
        value = load_mapping(content, "agent_state", file)
        said = (text for name, item in value.items() if name not in _NO_WORDS for text in _texts(item))
        text, kind, stamp, actor = " ".join(said), "agent_state", value.get("last_updated"), memory_id
    else:
        value, text = parse_artifact(content)
        kind, stamp, actor = "artifact", value.get("timestamp"), str(value.get("created_by") or "")
    value, data, _ = stored({**value, "id": memory_id})
    digest = hash_of_bytes(content)
    return Entry(memory_id, kind, 0, len(content), digest, *_time(stamp), actor, text, "", _tags(value), (), (), data,
                 _weight(kind, value))  # fmt: skip


def _packed(scope: str, file: str, content: bytes) -> Iterator[Entry]:
    """Yield the memories in a bundle, each with its place among all bytes that are packed.

    A packed file that cannot be read costs only its own memories, as it did in the session.
    """
    from ..disk.bundle import unpacked  # late: most questions unpack nothing

    packed = unpacked(f"{directory_of(scope)}/{file}", content)
    if file == ARCHIVE:
        yield _summary(packed.manifest.at, packed.manifest.facts)
    at = 0
    for name, member in packed.members.items():
        path = name.partition("/")[2]
        if is_of("", path) and path != METADATA:
            with suppress(NewerFormat, CorruptionDetected):
                kind = kinds_of("").get(path)
                found = _entries(kind, _parsed(kind, member)) if kind else [entry_of_file(path, member)]
                yield from (replace(entry, start=at + entry.start, end=at + entry.end) for entry in found)
        at += len(member)


def _parsed(kind: Kind, member: bytes) -> RecordList:
    """Return the records of a packed file, or of spans of records without its head."""
    form = format_of(kind)
    is_spans = kind is not TURN and member.lstrip(b" ").startswith(b"- ")
    return form.parse_tail(member, 0, len(member) - len(member.lstrip(b" "))) if is_spans else form.parse(member)


def _summary(archived_at: str, facts: Mapping[str, Value]) -> Entry:
    """Return an archived session itself, as one memory."""
    value, data, digest = stored(archived.as_memory({"archived_at": archived_at, **facts}))
    return Entry(archived.ID, archived.TYPE, 0, 0, digest, *_time(value["timestamp"]), "", archived.told(value), "",
                 _tags(value), tuple(archived.topics_of(value)), (), data, _weight(archived.TYPE, value))  # fmt: skip


def _note_archived(index: Index, scope: str, file: str, content: bytes) -> None:
    """Note the project and the state of an archived session."""
    from ..disk.bundle import unpacked

    said = unpacked(f"{directory_of(scope)}/{file}", content).manifest.facts
    index.note_session(scope, archived.STATE, archived.metadata_of(said), project_of(said.get("project")))


def _weight(kind: str, value: Mapping[str, Value]) -> Weight:
    decay = value.get("decay")
    known = decay if isinstance(decay, dict) else {}
    base, accesses = known.get("base_priority"), known.get("access_count")
    return Weight(
        standing(kind, value),
        float(base) if isinstance(base, (int, float)) and 0 <= base <= 1 else None,
        _time(known.get("last_accessed"))[1],
        accesses if isinstance(accesses, int) and 0 <= accesses < 1 << 31 else 0,
        importance(kind, value),
        turn if kind == TURN.name and isinstance(turn := value.get("turn"), int) and abs(turn) < 1 << 31 else None,
    )


def _validity(kind: Kind, value: Mapping[str, Value]) -> Validity:
    ended = tuple(endings(value)) if kind is RELATIONSHIP else ()
    return Validity(own_mark(kind.name, value), subject(kind.name, value), ended)


def _time(stamp: Value) -> tuple[str | None, int | None]:
    try:
        time = parse_time(stamp) if isinstance(stamp, str) else None
    except (ValueError, OverflowError):
        time = None
    return (None, None) if time is None else (render_time(time), (time - _EPOCH) // _MICROSECOND)


def _tags(value: Mapping[str, Value]) -> tuple[str, ...]:
    tags = value.get("tags")
    return tuple(dict.fromkeys(str(tag) for tag in tags)) if isinstance(tags, list) else ()


def _topics(kind: Kind, value: Mapping[str, Value]) -> tuple[str, ...]:
    """What a preference is about, which it says in fields of its own."""
    if kind.name != PREFERENCE.name:
        return ()
    applies_to = value.get("applies_to")
    domains = applies_to.get("domains") if isinstance(applies_to, dict) else None
    return tuple(str(item) for item in [value.get("topic"), *(domains if isinstance(domains, list) else ())] if item)


def _refs(kind: Kind, value: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    if "source" in value and "target" in value:
        yield str(value["source"]), "source"
        yield str(value["target"]), "target"
    for field in ("memory_refs", "references"):
        listed = value.get(field)
        for target in listed if isinstance(listed, list) else ():
            yield str(target), field
    if kind is not TURN and type(turn := value.get("turn_ref")) is int:
        yield f"turn-{turn}", "turn_ref"


def _texts(value: Value) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def _forget(index: Index, scope: str, file: str) -> Refreshed:
    _, went = index.replace(scope, file, [])
    index.forget_file(scope, file)
    if file in (METADATA, ARCHIVE):
        index.forget_metadata(scope)
    return Refreshed(removed=len(went))


def _note_problem(
    index: Index, scope: str, file: str, known: FileState | None, status: os.stat_result | None, problem: str
) -> None:
    checksum, bad = (known.checksum, known.bad) if known else (0, 0)
    # Without a status, as after an I/O error, it differs from whatever is there, and every scan tries again.
    inode, size, mtime_ns, ctime_ns = _identity(status) if status else (0, -1, 0, 0)
    state = FileState(inode, size, mtime_ns, ctime_ns, checksum, -1, bad, problem)
    if state != known:
        index.note_file(scope, file, state)


def _status_of_unsafe(memory: Place, path: str, error: Exception) -> os.stat_result | None:
    """Of a link or a directory in the place of the file: it is looked at again when it changes."""
    with suppress(OSError, UnsafePath):
        return memory.tree.stat(path) if isinstance(error, UnsafePath) else None
    return None


def _settled(descriptor: int) -> os.stat_result:
    """The state of the file, when a further change would give it another time; one that is always changing is seen again anyway."""
    status = os.fstat(descriptor)
    for _ in range(_TICKS_WAITED):
        age_ns = time.time_ns() - status.st_ctime_ns
        if not 0 <= age_ns <= _TICK_NS:
            break
        time.sleep((_TICK_NS - age_ns + 100_000) / 1e9)
        status = os.fstat(descriptor)
    return status


def _state(status: os.stat_result, content: bytes, indent: int, bad: int) -> FileState:
    # The content may have grown since it was measured: then it does not fit its size, and is looked at again.
    inode, _, mtime_ns, ctime_ns = _identity(status)
    return FileState(inode, len(content), mtime_ns, ctime_ns, zlib.crc32(content), indent, bad)


def is_unchanged(state: FileState, status: os.stat_result) -> bool:
    return (state.inode, state.size, state.mtime_ns, state.ctime_ns) == _identity(status)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    # Some filesystems have inodes of 64 bits, and SQLite's numbers have a sign.
    return status.st_ino & (1 << 63) - 1, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _stands(memory: Place, path: str, state: FileState) -> bool:
    try:
        return is_unchanged(state, memory.tree.stat(path))
    except (OSError, UnsafePath):
        return False
