"""A folder per session with `metadata.json`, `memory.jsonl` whose entries carry checksums, `tombstones.jsonl` and `index.json`.

A checksum is `sha256:` and the digest of the entry without it. The layout asks for sorted keys and no blanks; programs have taken
that in more than one way, so an entry is sound where one of `FORMS` gives its checksum:

    canonical   keys sorted at every level, no blanks, characters as they are; what we write
    ascii       the same with every character beyond ASCII escaped
    listed      only keys that the entry itself has, sorted, also inside of what it holds: what JavaScript makes of a list of keys
    plain       keys in the order of the line, no blanks
    spaced      the same with a blank behind each comma and colon

One that fits none goes to the quarantine. What a tombstone, or the index, says is deleted is still in the log until it is
compacted, and so is an entry that says of itself that it is `deleted`: it comes as deleted and can be restored. A tombstone of
something that is gone is kept in the session's metadata.

A record keeps under `imported`, beside what shaping.py notes: a `type` that is called otherwise here, `timestamp` in a form that is
not ours, `outside` and `outer` as in single.py, `inside` for tags and references among its `content`, `bare` where that is a text,
`checksum`: the form that fitted, where it is not the canonical one, `tombstone` (`true` where the entry says it itself); under
`imported` of its `decay` the `decay_factor`, an `importance` that is a whole number, and when and how often it was read. What
belongs to the session (`total_entries`, `preferences`, …) stands in its metadata under its own name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...records import Kind
from ..entries import ACTIVE
from ..formats import Read
from . import own, shaping
from .collecting import Mark, Taken, collect, key_of, note_of
from .kinds import kind_of_type, type_of_kind
from .lines import says_yes
from .sessions import Collected, entries_of
from .shaping import IMPORTED, ORIGINAL, WITHOUT, Ids, Names, Values
from .sources import Aside, Folder, beside, configuration

LAYOUT = "jsonl-checked"
METADATA, MEMORY, TOMBSTONES, INDEX = "metadata.json", "memory.jsonl", "tombstones.jsonl", "index.json"
FILES = frozenset((METADATA, MEMORY, TOMBSTONES, INDEX))
FIELDS = ("id", "session_id", "timestamp", "type", "content", "importance", "decay_factor", "tags", "references")
_OF_DECAY = ("access_count", "last_accessed", "last_decay_update")
USUAL: dict[str, Names] = {
    "conversation_turn": {"speaker": "role", "content": "message"},
    "decision": {"made_by": "by", "alternatives_considered": "alternatives"},
    "finding": {"resolution": "status"},
    "preference": {},
    "learning": {},
}
_OF_SESSION = ("decay_config", "compaction_config", "preferences", "statistics")


def read(folder: Folder, name: str) -> Iterator[Read]:
    """One session, from its folder."""
    said = folder.mapping(METADATA)
    session = shaping.session_id(name)
    aside = Aside(session, folder)
    found = _collect(aside, name)
    yield from entries_of(session, ACTIVE, _metadata(session, name, said, found), found)
    yield from beside(folder, session, ACTIVE, FILES)
    yield from aside.told()


def read_config(folder: Folder) -> Iterator[Read]:
    yield from configuration(folder, LAYOUT)


# Checksums.


def _listed(entry: Mapping[str, Any]) -> str:
    keys = sorted(entry)

    def chosen(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: chosen(value[key]) for key in keys if key in value}
        return [chosen(item) for item in value] if isinstance(value, list) else value

    return _dense(chosen(entry))


def _dense(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


FORMS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "canonical": json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode,
    "ascii": lambda entry: json.dumps(entry, sort_keys=True, separators=(",", ":")),
    "listed": _listed,
    "plain": _dense,
    "spaced": lambda entry: json.dumps(entry, ensure_ascii=False),
}


def checksum(entry: Mapping[str, Any], form: str = "canonical", algorithm: str = "sha256") -> str:
    """Of an entry, which may have one already: that does not count."""
    text = FORMS[form]({name: value for name, value in entry.items() if name != "checksum"})
    return f"{algorithm}:{hashlib.new(algorithm, text.encode()).hexdigest()}"


def fitting_form(entry: Mapping[str, Any]) -> str | None:
    """The form whose checksum the entry has; None where there is none that fits."""
    given = entry.get("checksum")
    if not isinstance(given, str):
        return None
    algorithm, _, digest = given.partition(":")
    if algorithm not in ("sha256", "sha512", "sha1", "md5"):
        return None
    return next((form for form in FORMS if checksum(entry, form, algorithm) == f"{algorithm}:{digest.lower()}"), None)


# One session.


def _collect(aside: Aside, name: str) -> Collected:
    found = Collected(aside.folder.advance)
    taken: list[Taken] = []
    for line in aside.lines(MEMORY):
        value = line.value
        assert value is not None
        if not value.keys() & {"type", "content"}:
            aside.refuse(MEMORY, line, "it has neither a type nor content")
        elif "checksum" in value and (form := fitting_form(value)) is None:
            aside.refuse(MEMORY, line, "its checksum does not fit what it says")
        else:
            if "checksum" in value and form == "canonical":
                del value["checksum"]  # the usual one, of which nothing is kept: it need not be made a second time
            taken.append(Taken(MEMORY, line, kind_of_type(value.get("type"), value.get("content")), value))
    marks = _marks(aside, found)
    seen = {key_of(one.value) for one in taken}
    taken = [one._replace(mark=marks.get(key_of(one.value) or "")) for one in taken]
    collect(aside, found, taken, lambda one, memory_id, ids: ours(one.kind, memory_id, one.value, ids, name, one.mark))
    found.tombstones += [mark for key, mark in marks.items() if key not in seen]
    return found


def _marks(aside: Aside, found: Collected) -> dict[str, Values]:
    """What is deleted, by id: tombstones, and what only the index knows of."""
    marks: dict[str, Values] = {}
    for line in aside.lines(TOMBSTONES):
        assert line.value is not None
        key = key_of(line.value)
        if key is not None:
            marks[key] = line.value
        else:
            aside.refuse(TOMBSTONES, line, "it has no id")
    try:
        listed = json.loads(aside.folder.read(INDEX) or b"{}").get("entries", {})
        gone = {key: one for key, one in listed.items() if isinstance(one, dict) and says_yes(one.get("deleted"))}
    except (ValueError, AttributeError, RecursionError):
        found.problems.append(f"{aside.folder.where(INDEX)}: it cannot be read; an index is made anew anyway")
        gone = {}
    for key, one in gone.items():
        said = {part: one[part] for part in ("deleted_at", "reason") if isinstance(one.get(part), str)}
        marks.setdefault(key, {"id": key, **said})
    return marks


def _metadata(session: str, name: str, said: Values, found: Collected) -> Values:
    """The times, the user and the session's own settings are ours too; the rest stays under `imported`, to be written again."""
    if known := own.metadata_of(said, session):
        return known
    created, accessed = (shaping.time_of(said.get(part)) for part in ("created_at", "last_accessed"))
    notes: Values = {"layout": LAYOUT}
    if name != session:
        notes["session_id"] = name
    taken = {"user_id": isinstance(said.get("user_id"), str), "created_at": created == said.get("created_at"),
             "last_accessed": accessed == said.get("last_accessed"), "session_id": said.get("session_id") == name}  # fmt: skip
    further = {part: said[part] for part in _OF_SESSION if part in said}
    rest = {part: value for part, value in said.items() if not taken.get(part) and part not in further}
    if rest:
        notes["metadata"] = rest
    user = said["user_id"] if taken["user_id"] else None
    made = found.metadata(session, notes, created=created, accessed=accessed, user=user, **further)
    shaping.without(said, ("session_id", "user_id", "created_at", "last_accessed"), made["session"][IMPORTED])
    shaping.settled(made["session"], said, metadata_of(made["session"]))
    return made


def metadata_of(session: Mapping[str, Any]) -> Values:
    """`metadata.json` from what stands below `session` in ours; counts and sizes are as they were."""
    notes = session.get(IMPORTED) if isinstance(session.get(IMPORTED), dict) else {}
    assert isinstance(notes, dict)
    if ORIGINAL in notes:
        return dict(notes[ORIGINAL])
    known: Values = {
        "session_id": notes.get("session_id", session.get("id")), "created_at": session.get("created_at"),
        "last_accessed": session.get("last_accessed"), "user_id": (session.get("participants") or {}).get("user_id"),
    }  # fmt: skip
    told = {name: value for name, value in known.items() if name not in notes.get(WITHOUT, ())}
    return {**told, **{name: session[name] for name in _OF_SESSION if name in session}, **notes.get("metadata", {})}


def ours(kind: Kind, memory_id: str, entry: Mapping[str, Any], ids: Ids, session: str, mark: Mark | None = None) -> Values:
    """An entry of the log as a record of ours."""
    content, notes = entry.get("content"), Values({})
    said = content if isinstance(content, dict) else {kind.text: content} if isinstance(content, str) and content.strip() else {}
    given = dict(said)
    for name in ("tags", "references"):
        # Inside of what it holds they would be taken for those of the entry.
        if name in given:
            notes.setdefault("inside", {})[name] = given.pop(name)
        if entry.get(name):
            given[name] = entry[name]
    made = shaping.shaped(kind, given, USUAL[kind.name], ids)
    at, accessed = (shaping.time_of(entry.get(name)) for name in ("timestamp", "last_accessed"))
    notes.update(made.notes())
    fields = made.fields
    if isinstance(content, str):
        notes["bare"] = True
    if type_of_kind(kind) != entry.get("type"):
        notes["type"] = entry.get("type")
    if at != entry.get("timestamp"):
        notes["timestamp"] = entry.get("timestamp")
    if entry.get("session_id") != session:
        notes["session_id"] = entry.get("session_id")
    for name, value in entry.items():
        if name in FIELDS or name == "checksum" or name in _OF_DECAY:
            continue
        if name in fields or name in shaping.RESERVED or name in USUAL[kind.name] or name in given:
            notes.setdefault("outside", {})[name] = value
        else:
            fields[name] = value
            notes.setdefault("outer", []).append(name)
    if "checksum" in entry and (form := fitting_form(entry)) != "canonical":
        notes["checksum"] = form
    if mark is not None:
        notes["tombstone"] = note_of(entry, mark)
    shaping.without(entry, FIELDS, notes)
    worn = _decay(kind, entry, at, accessed)
    record = shaping.record(memory_id, kind, at, fields, notes, entry.get("id"), worn)
    told = {name: value for name, value in entry.items() if name != "checksum"}
    return shaping.settled(record, told, theirs(kind, record, ids, session))


def _decay(kind: Kind, entry: Mapping[str, Any], at: str | None, accessed: str | None) -> Values:
    importance, factor = entry.get("importance"), shaping.share(entry.get("decay_factor"), 1.0)
    priority = shaping.share(importance, kind.base_priority) * factor
    was = shaping.changing(entry, "access_count", factor="decay_factor", usually=1.0)
    if isinstance(importance, int):
        was["importance"] = importance  # 1 is 1.0 for us, but not for a checksum
    accesses = entry.get("access_count")
    return shaping.decay(kind, at, priority=priority, base=importance, accesses=accesses, accessed=accessed, was=was)


def theirs(kind: Kind, record: Mapping[str, Any], ids: Ids, session: str) -> Values:
    """A record as the entry that it was, or would be; without its checksum."""
    notes = record.get(IMPORTED) if isinstance(record.get(IMPORTED), dict) else {}
    assert isinstance(notes, dict)
    if ORIGINAL in notes:
        return dict(notes[ORIGINAL])
    outer = {name: record[name] for name in notes.get("outer", ()) if name in record}
    content = shaping.unshaped(kind, {name: value for name, value in record.items() if name not in outer}, USUAL[kind.name], ids)
    tags, references = content.pop("tags", []), content.pop("references", [])
    content.update(notes.get("inside", {}))
    worn, was = shaping.changed(record)
    base = worn.get("base_priority", kind.base_priority)
    now = worn.get("priority", base)
    entry: Values = {
        "id": shaping.old_id(record),
        "session_id": notes.get("session_id", session),
        "timestamp": notes.get("timestamp", record.get("timestamp")),
        "type": notes.get("type", type_of_kind(kind)),
        "content": record.get(kind.text) if notes.get("bare") else content,
        "importance": was.get("importance", base),
        "decay_factor": was.get("decay_factor", round(now / base, 4) if base else 1.0),
        "tags": tags,
        "references": references,
    }
    entry = {name: value for name, value in entry.items() if name not in notes.get(WITHOUT, ())}
    return {**entry, **shaping.counted(worn, was), **outer, **notes.get("outside", {})}
