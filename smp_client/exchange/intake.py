"""Imports: entries come in one way, and each is known by its source id.

A memory that is not in the tree is added. Same id and other content: ours stays and the id is
listed as a conflict, unless `replace` takes theirs. A tombstone deletes once. A memory that was
deleted or purged here stays away. Secrets are redacted before anything is written. Every batch is
durable when it is written, so an import that was cut off can be repeated.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..disk import tombstones
from ..disk.append import append_many
from ..disk.place import ARCHIVE, BACKUP
from ..disk.rewrite import rewrite
from ..disk.session_files import METADATA, STATE_BASE_PRIORITY, new_metadata
from ..model.errors import Conflict, Invalid, SMPError, StorageFailed
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, check_new_session_id, lock_rank
from ..model.outcome import Action, Outcome
from ..model.record import CONTENT_CAP_BYTES, SESSION_KINDS, STATE_HISTORY, TURN, Kind, is_memory_id
from ..model.times import render_time, same_time, time_of
from ..text.contents import plain_fields
from ..text.format import format_of
from ..text.mapping import load_mapping, render_mapping
from ..text.revision import Editor
from ..text.values import Value
from .entry import (
    HEADER,
    IMPORTED,
    IMPORTED_ID,
    Entry,
    Read,
    file_content,
    kind_for,
    problem_of,
    type_for,
)
from .export import deleted_entries, session_entries

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import RecordFiles

_IMPORTER = Editor(by="smp import", change="replaced")
_TOMBSTONES = "tombstones"  # below `imported` in the metadata: those that have deleted something
_BATCH = 4_000  # records that are written at once
_SPEAKER_CHARACTERS = 128
_TURN_ID = re.compile(r"turn-([1-9][0-9]{0,11})")
# Fields that say how a memory is used, and not what it says.
_USE = frozenset(("id", "turn", "decay", "pinned", "updated_at", "redacted", IMPORTED_ID))
_REFERENCES = ("memory_refs", "references")
# The fates of an entry, as they are counted and reported.
_FATES = {"added": "added", "known": "in the tree already", "conflicts": "in conflict",
          "replaced": "replaced", "deleted": "deleted", "left_deleted": "left deleted",
          "purged": "purged here and left out", "left_out": "left out"}  # fmt: skip
_LISTED = {
    "conflicts": ("conflict", "another content under this id; ours stays, --replace takes theirs"),
    "purged": ("left_out", "purged here, and not taken in"),
}


@dataclass(frozen=True)
class Request:
    """How an import behaves."""

    replace: bool = False
    extract: bool = True  # also the memories that a conversation states
    dry_run: bool = False
    by: str = "user"
    advance: Callable[[], object] = int  # called for each entry


@dataclass
class _Session:
    """A session while its entries come in."""

    name: str
    fates: dict[str, list[str]]  # ids by fate
    is_there: bool = False
    is_archived: bool = False
    is_deleted: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    known: dict[tuple[str, str], Entry] = field(default_factory=dict)  # by file and source id
    ids: dict[str, str] = field(default_factory=dict)  # our id by source id, where they differ
    taken: set[str] = field(default_factory=set)  # every id of the session
    sizes: dict[str, int] = field(default_factory=dict)  # of the files as they were read
    pending: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unnumbered: set[str] = field(default_factory=set)  # source ids of pending records without an id
    replaced: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    tombstones: dict[str, Entry] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)  # tombstones of earlier imports

    def remember(self, entry: Entry) -> None:
        """Note a memory that the tree holds."""
        file, record = entry["file"], entry["record"]
        self.known[file, record["id"]] = entry
        self.taken.add(record["id"])
        if isinstance(old := record.get(IMPORTED_ID), str):
            self.known[file, old] = entry
            self.ids[old] = record["id"]

    def ours(self, listed: list[Any]) -> list[Any]:
        """Return references by our ids."""
        return [self.ids.get(one, one) if isinstance(one, str) else one for one in listed]

    def said(self, record: Mapping[str, Any], source: Mapping[str, Any]) -> str:
        """Return the content of a record as it is compared; the time only where a source has it."""
        kept = {name: value for name, value in record.items() if name not in _USE}
        if "timestamp" not in source:
            kept.pop("timestamp", None)
        for name in _REFERENCES:
            if isinstance(listed := kept.get(name), list):
                kept[name] = self.ours(listed)
        return json.dumps(kept, sort_keys=True)


class Intake:
    """One import into a memory. `fates` has the ids of each session by their fate."""

    def __init__(self, memory: Memory, request: Request) -> None:
        self._memory, self._request = memory, request
        self.outcome = Outcome(dry_run=request.dry_run)
        self.fates: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._purged: dict[str, tombstones.Purged] = {}
        self._purged_bytes = 0  # of the list, which only grows, as it was read
        self._session: _Session | None = None
        self._refused: set[str] = set()  # sessions that cannot be written, each reported once

    def take(self, given: Iterable[Read]) -> Outcome:
        """Take in entries. A bad entry is reported; only a header of another version ends it."""
        outcome = self.outcome
        for where, entry, problem in given:
            if entry is not None:
                self._request.advance()
                problem = problem_of(entry)
            try:
                if problem:
                    outcome.problems.append(f"{where}: {problem}")
                    if entry is not None and HEADER in entry:
                        break
                elif entry is not None and HEADER not in entry:
                    self._take(entry)
            except StorageFailed:
                raise
            except SMPError as error:
                outcome.problems.append(f"{where}: {error}")
        self._close()
        for name, fates in self.fates.items():
            outcome.counts.update({fate: len(ids) for fate, ids in fates.items()})
            parts = [f"{len(fates[fate]):,} {word}" for fate, word in _FATES.items() if fates[fate]]
            if parts:
                outcome.actions.append(Action(name, "import", (name,), ", ".join(parts)))
            for fate, (type, reason) in _LISTED.items():
                if fates[fate]:
                    outcome.actions.append(Action(name, type, tuple(fates[fate]), reason))
        outcome.counts = +outcome.counts
        return outcome

    def _take(self, entry: Entry) -> None:
        name = entry["session"]
        if name in self._refused:
            return
        if self._session is None or self._session.name != name:
            self._close()
            self._session = self._opened(name)
        session = self._session
        if entry["entry"] == "session":
            session.metadata = session.metadata or entry.get("metadata") or {}
        elif entry["entry"] == "tombstone":
            session.tombstones[entry["id"]] = entry
        elif session.is_deleted:
            session.fates["left_deleted"].append(entry["record"]["id"])
        else:
            self._take_memory(session, entry)

    def _opened(self, name: str) -> _Session:
        """Begin a session: look at every memory that it has, wherever it is kept."""
        memory, session = self._memory, _Session(name, self.fates[name])
        scope = memory._scope(name)
        try:
            scope.redaction.require_clean_name("a session", name)
            if name != GLOBAL:
                check_new_session_id(name)
        except SMPError:
            self._refused.add(name)
            raise
        if not memory.root.is_dir():
            return session
        session.is_there = name == GLOBAL or memory.tree.exists(f"{ACTIVE}/{name}")
        is_packed = memory.tree.exists(f"{ARCHIVED}/{name}/{ARCHIVE}")
        session.is_archived = is_packed and not session.is_there
        for folder in ("", f"{STATE_HISTORY}/") if session.is_there else ():
            found = memory.tree.sizes(scope.path(folder).rstrip("/"))
            session.sizes |= {f"{folder}{file}": size for file, size in found.items()}
        for entry in deleted_entries(memory, name, self.outcome.notes):
            session.remember(entry)
        for entry in session_entries(memory, name, self.outcome.notes):
            if entry["entry"] == "memory":
                session.remember(entry)
            elif isinstance(notes := entry["metadata"].get(IMPORTED), dict):
                applied = notes.get(_TOMBSTONES)
                session.applied = applied if isinstance(applied, dict) else {}
        # Last: a purge is on its list, and a deleted session in its place, before anything goes.
        session.is_deleted = memory.tree.exists(f"{DELETED}/{name}/{BACKUP}")
        self._read_purged()
        return session

    def _read_purged(self) -> None:
        """Read the list of what was purged, if it has grown since."""
        with suppress(FileNotFoundError):
            size = self._memory.tree.stat(tombstones.FILE).st_size
            if size != self._purged_bytes:
                self._purged = tombstones.load(self._memory.tree)
                self._purged_bytes = size

    # One memory.

    def _take_memory(self, session: _Session, entry: Entry) -> None:
        record, file = entry["record"], entry["file"]
        kind, source_id = kind_for(session.name, file), record["id"]
        held = session.known.get((file, source_id))
        if held is not None and held["place"] == DELETED:
            session.fates["left_deleted"].append(source_id)
            return
        if held is not None:
            self._compare(session, kind, held, entry)
            return
        if self._is_purged(session.name, file, record):
            session.fates["purged"].append(source_id)
            return
        new = self._stored(session, kind, entry)
        for name in _REFERENCES:
            if isinstance(listed := new.get(name), list):
                texts = [one for one in listed if isinstance(one, str)]
                if not session.unnumbered.isdisjoint(texts):
                    self._flush(session)  # which numbers the records that this one refers to
                new[name] = session.ours(listed)
        number = _TURN_ID.fullmatch(source_id)
        is_free = source_id not in session.taken
        is_fit = is_memory_id(source_id) and is_free and not number
        if kind is TURN and number and is_free:
            new = {"id": source_id, "turn": int(number[1]), **new}
        elif kind is None or (is_fit and kind is not TURN):
            new = {"id": source_id, **new}
        else:
            new[IMPORTED_ID] = source_id
            session.unnumbered.add(source_id)
        session.taken.add(new.get("id", ""))
        as_known = {**entry, "place": ACTIVE, "record": {**new, "id": source_id}}
        session.known[file, source_id] = as_known
        session.pending.setdefault(file, []).append(new)
        if sum(map(len, session.pending.values())) >= _BATCH:
            self._flush(session)

    def _compare(self, session: _Session, kind: Kind | None, held: Entry, entry: Entry) -> None:
        """Compare a memory with ours of its id: as it is, and then without secrets, as ours is."""
        ours, record, fates = held["record"], entry["record"], session.fates
        said = session.said(ours, record)
        if said == session.said(record, record):
            fates["known"].append(ours["id"])
            return
        for new in self._clean(session, [self._stored(session, kind, entry)]):
            if said == session.said(new, record):
                fates["known"].append(ours["id"])
            elif not self._request.replace or held["place"] != ACTIVE:
                fates["conflicts"].append(ours["id"])
            else:
                fates["replaced"].append(ours["id"])
                own = {name: ours[name] for name in ("id", "turn", IMPORTED_ID) if name in ours}
                new = {**new, **own, "decay": ours.get("decay", new.get("decay"))}
                if kind is not None:
                    session.replaced.append((kind, ours, new))
                elif not self._request.dry_run:
                    self._write_file(session, entry["file"], new)

    def _stored(self, session: _Session, kind: Kind | None, entry: Entry) -> dict[str, Any]:
        """Return the fields of a memory as they can be stored, without its id."""
        problems: list[str] = []
        fields = plain_fields(entry["record"], problems)
        for name in ("id", "turn"):
            fields.pop(name, None)
        type = kind.type if kind else type_for(session.name, entry["file"])
        at = entry.get("written_at")
        if kind is TURN:
            speaker = fields.setdefault("speaker", "unknown")
            is_line = isinstance(speaker, str) and speaker.isprintable()
            if not is_line or len(str(speaker)) > _SPEAKER_CHARACTERS:
                problems.append("'speaker' must be one printable line of at most 128 characters")
            fields.setdefault("type", "message")
            at = at or render_time(self._memory.options.clock())
        elif type == "agent_state" and kind is None:
            fields |= {"agent_id": entry["record"]["id"], "session_id": session.name}
        if type in ("turn", "artifact") and not isinstance(fields.setdefault("content", ""), str):
            problems.append("'content' must be a text")
        if isinstance(at, str):
            fields.setdefault("timestamp", at)
        try:
            if isinstance(stamp := fields.get("timestamp"), str):
                fields["timestamp"] = same_time(stamp)
        except ValueError:
            problems.append(f"'timestamp' is no ISO 8601 time: {str(stamp)[:40]!r}")
        size = sum(len(value) for value in fields.values() if isinstance(value, str))
        if size > CONTENT_CAP_BYTES:
            problems.append(f"a memory may hold {CONTENT_CAP_BYTES:,} bytes of text, not {size:,}")
        if problems:
            raise Invalid(problems)
        if kind is None and type != "agent_state":
            return dict(fields)
        base = kind.base_priority if kind else STATE_BASE_PRIORITY
        worn = fields.pop("decay", None)
        usual = {"priority": base, "last_accessed": fields.get("timestamp"), "access_count": 0,
                 "base_priority": base}  # fmt: skip
        return {**fields, "decay": {**usual, **worn} if isinstance(worn, dict) else usual}

    def _is_purged(self, session: str, file: str, record: Mapping[str, Any]) -> bool:
        """Return whether a memory was purged here, by its id or with its whole session."""
        known = self._purged.get(session)
        if known is None or known.holds(file, {**record, IMPORTED_ID: record["id"]}):
            return known is not None
        at, stamp = map(time_of, (known.whole, record.get("timestamp", record.get("last_updated"))))
        return at is not None and (stamp is None or stamp <= at)

    # Writing.

    def _flush(self, session: _Session) -> None:
        """Write the pending memories of the session, the records of a file in one durable write."""
        pending, session.pending = session.pending, {}
        session.unnumbered.clear()
        fates = session.fates
        is_written = bool(pending) and not self._request.dry_run and self._is_writable(session)
        for file in sorted(pending, key=lock_rank):
            if not is_written:
                fate = "added" if self._request.dry_run else "left_out"
                fates[fate] += [one.get(IMPORTED_ID) or one["id"] for one in pending[file]]
                continue
            values = self._clean(session, pending[file])
            if kind := kind_for(session.name, file):
                self._append(session, kind, values)
            else:
                for value in values:
                    self._write_file(session, file, value)
                    fates["added"].append(value["id"])

    def _append(self, session: _Session, kind: Kind, values: list[dict[str, Any]]) -> None:
        """Append records. Raise Conflict where somebody has written to the file since."""
        scope = self._files(session).scope
        written = append_many(scope, kind, values, session.sizes.get(kind.file, 0))
        if written is None:
            said = f"{kind.file} was written meanwhile, and its new memories were left out."
            raise Conflict(said, advice="Import it again.")
        added, session.sizes[kind.file] = written
        for one in added:
            session.taken.add(str(one["id"]))
            if isinstance(old := one.get(IMPORTED_ID), str):
                session.ids[old] = str(one["id"])
            session.fates["added"].append(str(old or one["id"]))

    def _write_file(self, session: _Session, file: str, value: dict[str, Any]) -> None:
        """Write a file that is one memory: the state of an agent, an artifact, the profile."""
        files = self._files(session)
        type = type_for(session.name, file) or ""
        files.scope.redaction.require_clean_name(f"an {type}", value["id"])
        content = file_content(file, value)
        with files.scope.locked([file], f"importing {value['id']}"):
            rewrite(files.scope, file, lambda _: content)

    def _clean(self, session: _Session, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the records without secrets. Most have none, so they are searched together."""
        redaction = self._memory._scope(session.name).redaction
        if redaction.is_clean(values):
            return values
        cleaned: list[dict[str, Any]] = []
        for value in values:
            try:
                new, kinds = redaction.redacted_fields(value)
            except Invalid as error:
                name = value.get("id", value.get(IMPORTED_ID))
                self.outcome.problems.append(f"{session.name}/{name}: {error}")
                continue
            self.outcome.counts["redacted"] += sum(kinds.values())
            cleaned.append(new)
        return cleaned

    def _is_writable(self, session: _Session) -> bool:
        """Return whether the session can be written; make one that is not there."""
        memory, name = self._memory, session.name
        if session.is_archived and name not in self._refused:
            self._refused.add(name)
            advice = f"smp unarchive {name} brings it back, then import it again"
            said = f"{name} is archived, and its new memories were left out: {advice}."
            self.outcome.problems.append(said)
        if session.is_archived or session.is_there:
            return session.is_there
        memory.create()
        problems: list[str] = []
        parts = plain_fields(session.metadata, problems)
        if problems:
            raise Invalid(problems)
        parts, kinds = memory._scope(name).redaction.redacted_fields(parts)
        self.outcome.counts["redacted"] += sum(kinds.values())
        now, quota = memory.options.clock(), memory.options.quota_bytes
        usual = new_metadata(name, now, user=None, agents=[], quota_bytes=quota, context={})
        below = load_mapping(usual, "session", METADATA)
        metadata = render_mapping("session", {**below, **parts, "id": name, "status": "active"})
        begun = time_of(parts.get("created_at")) or now
        files = {kind.file: format_of(kind).empty(name, begun, []) for kind in SESSION_KINDS}
        memory._lay_out(name, {**files, METADATA: metadata})
        session.sizes = {file: len(content) for file, content in files.items()}
        session.is_there = True
        return True

    def _files(self, session: _Session) -> RecordFiles:
        if session.name == GLOBAL:
            self._memory.create()
            return self._memory.everywhere
        return self._memory._session(session.name)

    def _close(self) -> None:
        """Finish a session: write the rest, replace, and delete by tombstones."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._flush(session)
            if session.replaced and not self._request.dry_run:
                with self._files(session).transaction() as transaction:
                    for kind, old, new in session.replaced:
                        transaction.replace(kind, old, new, _IMPORTER)
            self._apply_tombstones(session)
        except StorageFailed:
            raise
        except SMPError as error:
            self.outcome.problems.append(f"{session.name}: {error}")

    def _apply_tombstones(self, session: _Session) -> None:
        """Delete the memories that the source deleted; once, where a session in use can note it."""
        meant = session.tombstones.keys() - session.applied.keys()
        ours = {source_id: session.ids.get(source_id, str(entry["record"]["id"]))
                for (_, source_id), entry in session.known.items()
                if source_id in meant and entry["place"] != DELETED}  # fmt: skip
        session.fates["deleted"] += ours.values()
        if not ours or self._request.dry_run:
            return
        reasons: dict[str, list[str]] = defaultdict(list)
        for source_id, memory_id in ours.items():
            why = session.tombstones[source_id].get("reason")
            is_said = isinstance(why, str) and why.strip()
            reasons[str(why) if is_said else "deleted at the source"].append(memory_id)
        for reason, ids in reasons.items():
            self._memory.privacy.delete(
                session.name, ids, reason=reason, deleted_by=self._request.by
            )
        if session.name == GLOBAL or not session.is_there:
            return
        at = render_time(self._memory.options.clock())
        applied = {**session.applied, **dict.fromkeys(ours, at)}

        def noted(old: dict[str, Value]) -> dict[str, Any]:
            notes = old.get(IMPORTED)
            return {IMPORTED: {**(notes if isinstance(notes, dict) else {}), _TOMBSTONES: applied}}

        self._memory._session(session.name).change_metadata(noted)
