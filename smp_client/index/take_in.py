"""Files into the index. Only changed files are parsed; the index equals one made from nothing."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..disk import place
from ..disk.place import Place
from ..disk.session_files import METADATA, parse_artifact
from ..disk.tree import identity, read_from
from ..disk.usage import require_readable
from ..model.deadline import LIMIT_S, deadline
from ..model.errors import CorruptionDetected, NewerFormat, TookTooLong, UnsafePath
from ..model.priority import standing
from ..model.progress import tracked
from ..model.ranking import importance
from ..model.record import PREFERENCE, RELATIONSHIP, TURN, Kind, is_deleted
from ..model.times import microseconds, render_time, time_of
from ..redaction.redact import harmless
from ..text.document import Located, RecordList
from ..text.format import format_of
from ..text.mapping import load_mapping
from ..text.values import Value, hash_of_bytes, stored
from .database import Entry, FileState, Index, outdated
from .validity import STATE, SUMMARY, endings, own_mark, project_of, subject

# Nobody looks for the values of these fields.
_NO_WORDS = frozenset(
    ("id", "timestamp", "updated_at", "turn", "type", "decay", "tags", "pinned", "speaker",
     "memory_refs", "references", "agent_id", "session_id", "last_updated")
)  # fmt: skip
# The context of an archived session, by the names of the facts of its bundle.
_CONTEXT = {
    "project_name": "project", "project_phase": "phase", "primary_topic": "topic", "tags": "tags",
}  # fmt: skip
# The clock that stamps files ticks only so often: two changes within a tick have one time.
_COARSE = 5  # CLOCK_REALTIME_COARSE of Linux, which Python has no name for
_TICK_NS = int(1e9 * time.clock_getres(_COARSE)) if sys.platform == "linux" else 10_000_000
_TICKS_WAITED = 5
_BYTES_PER_S = 100_000  # far slower than reading really is, also of packed files
_PROBLEM_CAP = 500
_NOWHERE = (0, -1, 0, 0)  # the identity after an I/O error: no file has it, and it is tried again
_NEIGHBOURLY = 1000  # characters of a turn that needs those beside it to say what it is about
_UNREADABLE = (NewerFormat, CorruptionDetected, TookTooLong)


def cover(index: Index, scope: str, file: str, content: bytes) -> None:
    """Make an index that only this process sees true for a file that will have this content."""
    if place.is_of(scope, file):
        _attempt(index, scope, file, content, None) if content else _forget(index, scope, file)


def refresh(memory: Place, index: Index, scope: str, file: str, *, settle: bool = True) -> int:
    """Make the index true for one file as it is now, and return how many bytes were parsed.

    An unreadable file keeps its memories. Without settling, an index could miss the next change.
    """
    if not place.is_of(scope, file):
        return 0
    try:
        if place.is_archived(scope) and not place.counts(memory, scope, file):
            raise FileNotFoundError
        with memory.tree.opened(f"{place.directory_of(scope)}/{file}") as descriptor:
            known, status = index.file_state(scope, file), os.fstat(descriptor)
            if known is not None and [*known[:4]] == identity(status):
                return 0
            require_readable(memory.tree, place.directory_of(scope), file, status.st_size)
            status = _settled(descriptor) if settle else status
            content = read_from(descriptor, 0)
    except FileNotFoundError:
        is_gone = not place.is_there(memory, scope)
        _forget(index, scope, file, has_moved=is_gone and place.has_moved(memory, scope))
        return 0
    except (OSError, UnsafePath) as error:
        _note_problem(index, scope, file, None, str(error))
        return 0
    return _attempt(index, scope, file, content, status)


def _attempt(
    index: Index, scope: str, file: str, content: bytes, status: os.stat_result | None
) -> int:
    """Take in a file, or note why it cannot be read. Return how many bytes were parsed."""
    try:
        with index.one_file(), deadline(LIMIT_S + len(content) / _BYTES_PER_S):
            return _take_in(index, scope, file, content, identity(status) if status else _NOWHERE)
    except sqlite3.Error:
        raise
    except _UNREADABLE as error:
        _note_problem(index, scope, file, status, str(error))
    except Exception as error:
        # Nobody thought of this, and it must not cost the other files.
        problem = f"It cannot be taken in: {harmless(repr(error))}"[:_PROBLEM_CAP]
        _note_problem(index, scope, file, status, problem)
    return len(content)


def ids_in(scope: str, file: str, content: bytes) -> list[str]:
    """Return the id of each memory in a file. Raise where the file cannot be taken in."""
    if file == METADATA:
        load_mapping(content, "session", METADATA)
        return []
    if kind := place.kinds_of(scope).get(file):
        return [one.id for one in _entries(kind, format_of(kind).parse(content))]
    return [_entry_of_file(file, content).id]


def rebuild(memory: Place, index: Index) -> None:
    """Make the index from nothing. When that is interrupted, the index is as it was."""
    with index.batch():
        # What the old index alone knows of is kept, see gone.py.
        for scope, file in outdated(memory, index) if index.identities() else ():
            refresh(memory, index, scope, file)
        index.clear()
        for scope, file in tracked(outdated(memory, index)):
            refresh(memory, index, scope, file)
        index.note_folders(memory.tree)
        # In one piece each word of a question is looked up once.
        index.execute("INSERT INTO words (words) VALUES ('optimize')")


def _take_in(index: Index, scope: str, file: str, content: bytes, seen: Sequence[int]) -> int:
    known = index.file_state(scope, file)
    # Content that has grown since it was measured does not fit, and is looked at again.
    state = FileState._make([*seen, zlib.crc32(content), 0, 0, None])._replace(size=len(content))
    is_same = known and (known.size, known.checksum) == (state.size, state.checksum)
    if known and is_same and not known.problem:
        index.note_file(scope, file, state._replace(indent=known.indent, bad=known.bad))
        return 0
    entries: Iterable[Entry] = ()
    if kind := place.kinds_of(scope).get(file):
        form, tail = format_of(kind), _parse_grown(kind, content, known)
        if known and tail is not None:
            index.add(scope, file, _entries(kind, tail))
            index.note_file(scope, file, state._replace(indent=known.indent))
            return len(content) - known.size
        found = form.parse(content)
        # A list that is not at the end of its file, or has a bad record, is parsed whole each time.
        bad = len(found.bad) + sum(not record.has_id for record in found.records)
        is_plain = form.opening(found, content) == b"" and not bad
        state = state._replace(indent=found.indent if is_plain else -1, bad=bad)
        entries = _entries(kind, found)
    elif file == METADATA:
        metadata = load_mapping(content, "session", METADATA)
        context = metadata.get("context")
        project = project_of(context.get("project_name") if isinstance(context, dict) else None)
        index.note_session(scope, str(metadata.get("status", "active")), metadata, project)
    elif place.is_archived(scope):
        entries = _packed(index, scope, file, content)
    else:
        entries = [_entry_of_file(file, content)]
    index.replace(scope, file, entries)
    index.note_file(scope, file, state)
    return len(content)


def _parse_grown(kind: Kind, content: bytes, known: FileState | None) -> RecordList | None:
    """Return the records behind the known ones; None where the file grew by anything else."""
    if known is None or known.problem or known.indent < 0 or not 0 < known.size < len(content):
        return None
    if zlib.crc32(memoryview(content)[: known.size]) != known.checksum:
        return None
    form = format_of(kind)
    found = form.parse_tail(content, known.size, known.indent)
    # Anything but a record behind the last one, be it a blank line, may belong to the last one.
    follows = bool(found.records) and found.records[0].start == known.size
    readable = not found.bad and all(record.has_id for record in found.records)
    return found if follows and readable and form.opening(found, content) == b"" else None


# Memories as the index keeps them.


def _entries(kind: Kind, found: RecordList) -> list[Entry]:
    """Return the memories of a file in order; of an id that stands there twice, both."""
    kept = [one for one in found.records if one.has_id and not is_deleted(kind, one.value)]
    return [_entry_of(kind, record) for record in sorted(kept, key=lambda record: record.start)]


def _entry_of(kind: Kind, record: Located) -> Entry:
    value, data, digest = stored(record.value)
    topics: tuple[str, ...] = ()
    if kind.name == PREFERENCE.name:
        applies = value.get("applies_to")
        domains = applies.get("domains") if isinstance(applies, dict) else None
        said = [value.get("topic"), *(domains if isinstance(domains, list) else ())]
        topics = tuple(str(item) for item in said if item)
    return _entry(
        str(value["id"]), kind.name, value, data, digest,
        start=record.start, end=record.end,
        actor=str(value.get(kind.actor) or value.get("created_by") or ""),
        text=str(value.get(kind.text, "")), more=_words(value, kind.text),
        ended=own_mark(kind.name, value), subject=subject(kind.name, value),
        topics=topics, refs=tuple(_refs(kind, value)),
        endings=tuple(endings(value)) if kind is RELATIONSHIP else (),
    )  # fmt: skip


def _entry_of_file(file: str, content: bytes) -> Entry:
    """Return an agent's state or an artifact: one memory that is the whole file."""
    folder, _, name = file.rpartition("/")
    memory_id = os.path.splitext(name)[0]
    if folder == place.STATES:
        fields: Mapping[str, Value] = load_mapping(content, "agent_state", file)
        kind, text, actor = "agent_state", _words(fields), memory_id
    else:
        fields, text = parse_artifact(content)
        kind, actor = "artifact", str(fields.get("created_by") or "")
    value, data, _ = stored({**fields, "id": memory_id})
    whole = {"end": len(content), "actor": actor, "text": text}
    return _entry(memory_id, kind, value, data, hash_of_bytes(content), **whole)


def _packed(index: Index, scope: str, file: str, content: bytes) -> Iterator[Entry]:
    """Yield the memories in a bundle, and note the state and the project of an archived session.

    A packed file that cannot be read costs only its own memories.
    """
    from ..disk.bundle import unpacked  # late: most questions unpack nothing

    packed = unpacked(f"{place.directory_of(scope)}/{file}", content)
    if file == place.ARCHIVE:
        facts = {"archived_at": packed.manifest.at, **packed.manifest.facts}
        stamp = facts.get("last_activity") or facts["archived_at"]
        value, data, digest = stored({**facts, "id": SUMMARY, "timestamp": stamp})
        yield _entry(SUMMARY, SUMMARY, value, data, digest, text=_words(facts))
        about = {name: facts.get(said) for name, said in _CONTEXT.items()}
        metadata = {"created_at": facts.get("created_at"), "context": about}
        index.note_session(scope, STATE, metadata, project_of(facts.get("project")))
    at = 0
    for name, member in packed.members.items():
        path = name.partition("/")[2]
        if place.is_of("", path) and path != METADATA:
            with suppress(NewerFormat, CorruptionDetected):
                if kind := place.kinds_of("").get(path):
                    # Evicted memories are spans of records, without the head of their file.
                    spans, form = member.lstrip(b" "), format_of(kind)
                    is_tail = kind is not TURN and spans.startswith(b"- ")
                    indent = len(member) - len(spans)
                    parsed = form.parse_tail(member, 0, indent) if is_tail else form.parse(member)
                    found = _entries(kind, parsed)
                else:
                    found = [_entry_of_file(path, member)]
                yield from (one._replace(start=at + one.start, end=at + one.end) for one in found)
        at += len(member)


def _entry(
    memory_id: str, kind: str, value: Mapping[str, Value], data: str, digest: str, **parts: Any
) -> Entry:
    """Return a memory with these parts, and with those that all kinds have in the same fields."""
    decay, tags, turn = value.get("decay"), value.get("tags"), value.get("turn")
    known: Mapping[str, Any] = decay if isinstance(decay, dict) else {}
    base, accesses = known.get("base_priority"), known.get("access_count")
    stamp = value.get("last_updated" if kind == "agent_state" else "timestamp")
    time, read = time_of(stamp), time_of(known.get("last_accessed"))
    has_place = kind == TURN.name and isinstance(turn, int) and abs(turn) < 1 << 31
    has_place = has_place and len(data) <= _NEIGHBOURLY
    return Entry(
        memory_id,
        kind,
        digest,
        data,
        timestamp=render_time(time) if time else None,
        at=microseconds(time) if time else None,
        standing=standing(kind, value),
        base=float(base) if isinstance(base, (int, float)) and 0 <= base <= 1 else None,
        accessed=microseconds(read) if read else None,
        accesses=accesses if isinstance(accesses, int) and 0 <= accesses < 1 << 31 else 0,
        importance=importance(kind, value),
        tags=tuple(dict.fromkeys(map(str, tags))) if isinstance(tags, list) else (),
        place=turn if has_place and isinstance(turn, int) else None,
        **parts,
    )


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


def _words(value: Mapping[str, Value], but: str = "") -> str:
    """Return the texts of a record's fields that somebody may look for."""
    items = [item for name, item in value.items() if name not in _NO_WORDS and name != but]
    found: list[str] = []
    waiting = items[::-1]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, (dict, list)):
            waiting += reversed(list(item.values()) if isinstance(item, dict) else item)
    return " ".join(found)


# The state of files.


def _forget(index: Index, scope: str, file: str, *, has_moved: bool = False) -> None:
    index.forget_file(scope, file, has_moved=has_moved)
    if file in (METADATA, place.ARCHIVE):
        index.forget_metadata(scope, has_moved=has_moved)


def _note_problem(
    index: Index, scope: str, file: str, status: os.stat_result | None, problem: str
) -> None:
    known = index.file_state(scope, file)
    checksum, bad = (known.checksum, known.bad) if known else (0, 0)
    seen = identity(status) if status else _NOWHERE
    state = FileState._make([*seen, checksum, -1, bad, problem])
    if state != known:
        index.note_file(scope, file, state)


def _settled(descriptor: int) -> os.stat_result:
    """Return the state of a file once a further change would give it another time."""
    status = os.fstat(descriptor)
    for _ in range(_TICKS_WAITED):  # a file that is always changing is seen again anyway
        age_ns = time.time_ns() - status.st_ctime_ns
        if not 0 <= age_ns <= _TICK_NS:
            break
        time.sleep((_TICK_NS - age_ns + 100_000) / 1e9)
        status = os.fstat(descriptor)
    return status
