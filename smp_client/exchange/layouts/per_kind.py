"""A folder per session with `manifest.json` and a file per kind: `conversation.jsonl`, `decisions.jsonl`, `findings.jsonl`,
`preferences.jsonl`; beside them `shared/` and `config.json`, and in `archive/` sessions that were packed. An entry that says of
itself that it is `deleted` comes as deleted, and can be restored.

A record keeps under `imported`, beside what shaping.py notes: `timestamp` in a form that is not ours, among `kept` the
`references` of a decision, which are sorted by kind there, `in_metadata` where those of a message stand among its metadata,
`deleted`. Under `imported` of its `decay`: `decay_factor`, `last_decay_update`, when and how often it was read. The manifest's own
fields are the session's, and what we have no place for is under `imported` of its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import SMPError
from ...records import DECISION, FINDING, PREFERENCE, TURN, Kind
from ..entries import ACTIVE, ARCHIVED, made
from ..formats import Read
from . import own, shaping
from .collecting import MARK, Mark, Taken, collect, note_of
from .sessions import Collected, entries_of
from .shaping import IMPORTED, ORIGINAL, WITHOUT, Ids, Names, Values
from .sources import Aside, Folder, Source, beside, configuration, packed, unpacked

LAYOUT = "jsonl-per-kind"
MANIFEST = "manifest.json"
KINDS: dict[str, Kind] = {"conversation.jsonl": TURN, "decisions.jsonl": DECISION, "findings.jsonl": FINDING,
                          "preferences.jsonl": PREFERENCE}  # fmt: skip
FILES = frozenset((MANIFEST, "index.json", *KINDS))
FIELDS = ("id", "timestamp", "decay_factor")
USUAL: dict[str, Names] = {
    "conversation_turn": {"speaker": "speaker"},
    "decision": {"agreed_by": "approved_by", "implementation_impact": "impact",
                 "alternatives_considered": "alternatives_considered"},
    "finding": {"finding": "description", "resolution": "status"},
    "preference": {},
}  # fmt: skip
_OF_DECAY = ("access_count", "last_accessed", "last_decay_update")
_MANIFEST = ("session_id", "created_at", "updated_at", "user_id", "agent_ids", "metadata", "statistics")


def read(folder: Folder, name: str, place: str = ACTIVE, manifest: Values | None = None) -> Iterator[Read]:
    """One session, from its folder, or from what an archive holds of it."""
    said = folder.mapping(MANIFEST) or manifest or {}
    session = shaping.session_id(name)
    aside = Aside(session, folder)
    found = _collect(aside)
    metadata = _metadata(session, name, said, found, manifest or {})
    yield from entries_of(session, place, metadata, found)
    if place == ARCHIVED:
        yield Read(0, made("archive", session=session, summary=_summary(session, metadata, manifest or {})))
    yield from beside(folder, session, place, FILES)
    yield from aside.told()


def read_archived(source: Source, directory: str, name: str) -> Iterator[Read]:
    """`{name}.tar.gz`, and the manifest that was written beside it."""
    folder = source.folder(directory)
    manifest = folder.mapping(f"{name}.manifest.json")
    label = folder.where(f"{name}.tar.gz")
    try:
        members = _of_the_session(unpacked(source.tree, label))
        yield from read(packed(label, members, folder.written_at), name, ARCHIVED, manifest)
    except (SMPError, OSError) as error:
        yield Read(0, None, f"{label}: {error}")
    for problem in folder.problems:
        yield Read(0, None, problem)


def _of_the_session(members: Mapping[str, bytes]) -> dict[str, bytes]:
    """By their names in the session's folder, wherever in the archive that is; what else is in it keeps its path."""
    folders = [path.rpartition("/")[0] for path in members if path.rpartition("/")[2] in FILES]
    shortest = min(folders, key=lambda path: len(path), default="")
    top = f"{shortest}/" if shortest else ""
    return {path.removeprefix(top): content for path, content in members.items()}


def read_config(folder: Folder) -> Iterator[Read]:
    yield from configuration(folder, LAYOUT)


# One session.


def _collect(aside: Aside) -> Collected:
    found = Collected(aside.folder.advance)
    lines = [(name, kind, line) for name, kind in KINDS.items() for line in aside.lines(name)]
    taken = [Taken(name, line, kind, line.value) for name, kind, line in lines if line.value is not None]
    collect(aside, found, taken, lambda one, memory_id, ids: ours(one.kind, memory_id, one.value, ids, one.mark))
    return found


def _metadata(session: str, name: str, said: Values, found: Collected, archived: Values) -> Values:
    if known := own.metadata_of(said, session):
        return known
    created, updated = (shaping.time_of(said.get(part)) for part in ("created_at", "updated_at"))
    about = said["metadata"] if isinstance(said.get("metadata"), dict) else {}
    agents = said["agent_ids"] if shaping.is_list_of_texts(said.get("agent_ids")) else None
    tags = shaping.good_tags(about.get("tags"))
    context = {part: value for part, value in about.items() if part != "tags"}
    if "tags" in about:
        context["tags"] = tags
    taken = {
        "session_id": said.get("session_id") == name, "created_at": created == said.get("created_at"),
        "updated_at": updated == said.get("updated_at"), "user_id": isinstance(said.get("user_id"), str),
        "agent_ids": agents is not None and len(set(agents)) == len(agents),
        "metadata": isinstance(said.get("metadata"), dict) and tags == about.get("tags", []),
        "statistics": "statistics" in said,
    }  # fmt: skip
    notes: Values = {"layout": LAYOUT}
    if name != session:
        notes["session_id"] = name
    if rest := {part: value for part, value in said.items() if not taken.get(part)}:
        notes["manifest"] = rest
    if further := {part: value for part, value in archived.items() if part not in said or said[part] != value}:
        notes["archive"] = further
    further = {"statistics": said["statistics"]} if "statistics" in said else {}
    user = said["user_id"] if taken["user_id"] else None
    made = found.metadata(session, notes, created=created, accessed=updated, user=user, agents=agents, context=context, **further)
    shaping.without(said, _MANIFEST, made["session"][IMPORTED])
    shaping.settled(made["session"], said, manifest_of(made["session"]))
    return made


def manifest_of(session: Mapping[str, Any]) -> Values:
    """A manifest from what stands below `session` in the metadata."""
    notes = session.get(IMPORTED) if isinstance(session.get(IMPORTED), dict) else {}
    assert isinstance(notes, dict)
    if ORIGINAL in notes:
        return dict(notes[ORIGINAL])
    people, about = session.get("participants") or {}, dict(session.get("context") or {})
    manifest: Values = {
        "session_id": notes.get("session_id", session.get("id")), "created_at": session.get("created_at"),
        "updated_at": session.get("last_accessed"), "user_id": people.get("user_id"),
        "agent_ids": [agent.get("agent_id") for agent in people.get("agents") or []], "metadata": about,
        "statistics": session.get("statistics", {}),
    }  # fmt: skip
    return {**{name: value for name, value in manifest.items() if name not in notes.get(WITHOUT, ())}, **notes.get("manifest", {})}


def _summary(session: str, metadata: Values, manifest: Values) -> Values:
    """What stays in sight of it in the archive."""
    about, told = metadata["session"]["context"], metadata["session"]
    summary: Values = {"session_id": session, "reason": "imported", "project": about.get("project_name"),
                       "tags": about.get("tags", []), "user": told["participants"].get("user_id"),
                       "created_at": told.get("created_at")}  # fmt: skip
    if (at := shaping.time_of(manifest.get("archived_at"))) is not None:
        summary["archived_at"] = at
    return summary


# One entry.


def ours(kind: Kind, memory_id: str, entry: Mapping[str, Any], ids: Ids, mark: Mark | None = None) -> Values:
    """A line as a record of ours."""
    given = {name: value for name, value in entry.items() if name not in FIELDS and name not in _OF_DECAY}
    notes: Values = {}
    if kind is TURN:
        _take_message(given, notes, ids)
    elif isinstance(references := given.get("references"), dict):
        _take_sorted_references(given, notes, references)
    at, accessed = (shaping.time_of(entry.get(name)) for name in ("timestamp", "last_accessed"))
    made = shaping.shaped(kind, given, USUAL[kind.name], ids)
    for name, value in made.notes().items():
        notes[name] = {**notes.get(name, {}), **value} if isinstance(value, dict) else [*notes.get(name, []), *value]
    if at != entry.get("timestamp"):
        notes["timestamp"] = entry.get("timestamp")
    if mark is not None:
        notes[MARK] = note_of(entry, mark)
    shaping.without(entry, FIELDS, notes)
    priority = kind.base_priority * shaping.share(entry.get("decay_factor"), 1.0)
    was = shaping.changing(entry, "access_count", factor="decay_factor", usually=1.0)
    worn = shaping.decay(kind, at, priority=priority, accesses=entry.get("access_count"), accessed=accessed, was=was)
    record = shaping.record(memory_id, kind, at, made.fields, notes, entry.get("id"), worn)
    return shaping.settled(record, entry, theirs(kind, record, ids))


def _take_message(given: Values, notes: Values, ids: Ids) -> None:
    """Who spoke is the agent where it is named; what a message refers to stands among its metadata, its topic in its context."""
    role, agent = given.get("role"), given.get("agent_id")
    speaker = agent if isinstance(agent, str) and agent and role != "user" else role
    if "speaker" not in given and isinstance(speaker, str) and speaker:
        given["speaker"] = speaker
        notes[shaping.ADDED] = ["speaker"]
    about, around = given.get("metadata"), given.get("context")
    if isinstance(about, dict) and shaping.is_list_of_texts(about.get("references")) and "references" not in given:
        given["references"] = about["references"]
        given["metadata"] = {name: value for name, value in about.items() if name != "references"}
        notes["in_metadata"] = True
    if isinstance(around, dict):
        if isinstance(parent := around.get("parent_message_id"), str) and ids.ours(parent) != parent:
            given["context"] = {**around, "parent_message_id": ids.ours(parent)}
        topic = around.get("topic")
        if isinstance(topic, str) and "tags" not in given and shaping.good_tags([topic]):
            given["tags"] = [topic]
            notes[shaping.ADDED] = [*notes.get(shaping.ADDED, []), "tags"]


def _take_sorted_references(given: Values, notes: Values, references: Values) -> None:
    """By kind there, in one list here; the lists themselves are kept, for no list says of which kind its ids are."""
    lists = [listed for listed in references.values() if isinstance(listed, list)]
    given["references"] = [one for listed in lists for one in listed if isinstance(one, str)]
    notes[shaping.ADDED] = ["references"]
    notes[shaping.KEPT] = {"references": references}


def theirs(kind: Kind, record: Mapping[str, Any], ids: Ids) -> Values:
    """A record as the line that it was, or would be."""
    notes = record.get(IMPORTED) if isinstance(record.get(IMPORTED), dict) else {}
    assert isinstance(notes, dict)
    if ORIGINAL in notes:
        return dict(notes[ORIGINAL])
    given = shaping.unshaped(kind, record, USUAL[kind.name], ids)
    if notes.get("in_metadata"):
        given["metadata"] = {**given.get("metadata", {}), "references": given.pop("references", [])}
    around = given.get("context")
    if kind is TURN and isinstance(around, dict) and isinstance(parent := around.get("parent_message_id"), str):
        given["context"] = {**around, "parent_message_id": ids.theirs(parent)}
    worn, was = shaping.changed(record)
    factor = shaping.share(worn.get("priority"), 1.0) / kind.base_priority
    entry: Values = {
        "id": shaping.old_id(record),
        "timestamp": notes.get("timestamp", record.get("timestamp")),
        "decay_factor": was.get("decay_factor", min(1.0, round(factor, 4))),
    }
    entry = {name: value for name, value in entry.items() if name not in notes.get(WITHOUT, ())}
    return {**entry, **shaping.counted(worn, was), **given}
