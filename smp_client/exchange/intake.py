"""Imports: entries come in one way, and each is known by its source id.

A memory that is not in the tree is added. Same id and other content: ours stays and the id is
listed as a conflict, unless `replace` takes theirs. A tombstone deletes once. A memory that was
deleted or purged here stays away. Secrets are redacted before anything is written. Every batch is
durable when it is written, so an import that was cut off is repeated.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..disk import tombstones
from ..disk.append import append_many
from ..disk.session_files import METADATA, STATE_BASE_PRIORITY, new_metadata
from ..model.errors import Conflict, Invalid, SMPError, StorageFailed
from ..model.layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LATEST, lock_rank
from ..model.outcome import Action, Outcome
from ..model.record import CONTENT_CAP_BYTES, SESSION_KINDS, TURN, Kind, is_memory_id
from ..model.times import parse_time, render_time, same_time
from ..text.contents import plain_fields
from ..text.format import format_of
from ..text.mapping import load_mapping, render_mapping
from ..text.values import Value
from .entry import (
    HEADER,
    IMPORTED,
    IMPORTED_ID,
    Entry,
    Read,
    Transform,
    file_content,
    kind_for,
    problem_of,
    type_for,
)  # fmt: skip
from .export import deleted_entries, session_entries

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import RecordFiles

TOMBSTONES = "tombstones"  # below `imported` in the metadata: those that have deleted something
_BATCH = 4_000  # records that are written at once
_TRIES = 5
_TURN_ID = re.compile(r"turn-([1-9][0-9]{0,11})")
# Fields that say how a memory is used, and not what it says.
_USE = frozenset(("id", "turn", "decay", "pinned", "updated_at", "redacted", IMPORTED_ID))
_REFERENCES = ("memory_refs", "references")
_WORDS = {"added": "added", "known": "in the tree already", "conflicts": "in conflict",
          "replaced": "replaced", "deleted": "deleted", "left_deleted": "left deleted",
          "purged": "purged here and left out", "left_out": "left out"}  # fmt: skip
_LISTED = {
    "conflicts": ("conflict", "another content under this id; ours stays, --replace takes theirs"),
    "purged": ("left_out", "purged here, and not taken in; --purged takes it in"),
}


@dataclass(frozen=True)
class Request:
    """How an import behaves."""

    replace: bool = False
    purged: bool = False  # whether memories that were purged here come back
    dry_run: bool = False
    transform: Transform | None = None
    by: str = "user"
    advance: Callable[[], None] = lambda: None


@dataclass
class _Session:
    """A session while its entries come in."""

    name: str
    known: dict[tuple[str, str], Entry] = field(default_factory=dict)  # by file and source id
    ids: dict[str, str] = field(default_factory=dict)  # our id by source id, where they differ
    taken: set[str] = field(default_factory=set)  # every id of the session
    sizes: dict[str, int] = field(default_factory=dict)  # of the files as they were read
    pending: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    waiting: int = 0  # records that are pending
    unnumbered: set[str] = field(default_factory=set)  # source ids of pending records without an id
    replaced: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    tombstones: dict[str, Entry] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)  # tombstones of earlier imports
    metadata: dict[str, Any] = field(default_factory=dict)
    is_there: bool = False
    is_archived: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    listed: dict[str, list[str]] = field(default_factory=dict)  # ids by the word of their count

    def count(self, word: str, memory_id: str) -> None:
        """Count a memory, and list its id."""
        self.counts[word] += 1
        self.listed.setdefault(word, []).append(memory_id)


class Intake:
    """One import into a memory. `sessions` counts the entries of each session by their fate."""

    def __init__(self, memory: Memory, request: Request) -> None:
        self._memory, self._request = memory, request
        self.outcome = Outcome(dry_run=request.dry_run)
        self.sessions: dict[str, Counter[str]] = {}
        self.listed: dict[str, dict[str, list[str]]] = {}
        is_there = memory.root.is_dir()
        self._purged = tombstones.load(memory.tree) if is_there and not request.purged else {}
        self._gone = {one.session for one in memory.deleted_sessions()} if is_there else set()
        self._session: _Session | None = None
        self._refused: set[str] = set()  # sessions that cannot be written, each reported once

    def take(self, given: Iterable[Read]) -> Outcome:
        """Take in entries, session by session. A bad entry is reported, and the rest goes on."""
        for where, entry, problem in given:
            if entry is not None:
                self._request.advance()
                problem = problem_of(entry)
                if not problem and self._request.transform and HEADER not in entry:
                    entry = self._request.transform(entry)
                    problem = problem_of(entry) if entry is not None else ""
            if problem:
                self.outcome.problems.append(f"{where}: {problem}")
                if entry is not None and HEADER in entry:
                    break
            elif entry is not None and HEADER not in entry and entry["entry"] != "end":
                try:
                    self._take(entry)
                except StorageFailed:
                    raise
                except SMPError as error:
                    self.outcome.problems.append(f"{where}: {error}")
        self._close()
        return self.outcome

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
        elif name in self._gone:
            session.counts["left_deleted"] += 1
        else:
            self._take_memory(session, entry)

    # The memories that the tree holds already.

    def _opened(self, name: str) -> _Session:
        memory, session = self._memory, _Session(name)
        try:
            memory._scope(name).redaction.require_clean_name("a session", name)
            if not memory.root.is_dir():
                return session
            exists = memory.tree.exists
            session.is_there = name == GLOBAL or exists(f"{ACTIVE}/{name}")
            is_packed = exists(f"{ARCHIVED}/{name}/archive.tar.gz")
            session.is_archived = not session.is_there and is_packed
            if not session.is_there and not session.is_archived and name == LATEST:
                raise Invalid([f"no session can be called {LATEST!r}"])
            self._know(session)
        except SMPError:
            self._refused.add(name)
            raise
        return session

    def _know(self, session: _Session) -> None:
        """Look at every memory of the session, wherever it is kept."""
        memory, problems = self._memory, list[str]()
        scope = memory._scope(session.name)
        if session.is_there and memory.tree.exists(scope.directory):
            for folder in ("", "agent-states/history/"):
                found = memory.tree.sizes(scope.path(folder).rstrip("/"))
                session.sizes |= {f"{folder}{file}": size for file, size in found.items()}
        for entry in deleted_entries(memory, session.name, problems):
            _remember(session, entry)
        for entry in session_entries(memory, session.name, problems):
            if entry["entry"] == "session":
                notes = entry["metadata"].get(IMPORTED)
                applied = notes.get(TOMBSTONES) if isinstance(notes, dict) else None
                session.applied = applied if isinstance(applied, dict) else {}
            else:
                _remember(session, entry)
        self.outcome.notes += problems

    # One entry.

    def _take_memory(self, session: _Session, entry: Entry) -> None:
        record, file = entry["record"], entry["file"]
        kind = kind_for(session.name, file)
        source_id = record["id"]
        held = session.known.get((file, source_id))
        known = self._purged.get(session.name)
        if held is not None and held["place"] == DELETED:
            session.count("left_deleted", source_id)
        elif held is not None:
            self._compare(session, kind, held, entry)
        elif known is not None and _is_purged(known, file, record):
            session.count("purged", source_id)
        else:
            new = self._completed(session, kind, entry)
            self._translate(session, new)
            number = _TURN_ID.fullmatch(source_id)
            if kind is TURN and number:
                new = {"id": source_id, "turn": int(number[1]), **new}
            elif kind is not None and (
                kind is TURN or number or not is_memory_id(source_id) or source_id in session.taken
            ):
                new[IMPORTED_ID] = source_id
                session.unnumbered.add(source_id)
            else:
                new = {"id": source_id, **new}
            session.taken.add(new.get("id", ""))
            record = {**new, "id": source_id}
            session.known[file, source_id] = {**entry, "place": ACTIVE, "record": record}
            session.listed.setdefault("added", []).append(source_id)
            session.pending.setdefault(file, []).append(new)
            session.waiting += 1
            if session.waiting >= _BATCH:
                self._flush(session)

    def _compare(self, session: _Session, kind: Kind | None, held: Entry, entry: Entry) -> None:
        """Compare a memory with ours of its id; a secret in theirs is redacted in ours."""
        ours, record = held["record"], entry["record"]
        said = _said(session, ours, record)
        if said == _said(session, record, record):
            session.counts["known"] += 1
            return
        for new in self._clean(session, [self._completed(session, kind, entry)]):
            if said == _said(session, new, record):
                session.counts["known"] += 1
            elif not self._request.replace or held["place"] != ACTIVE:
                session.count("conflicts", str(ours["id"]))
            else:
                session.counts["replaced"] += 1
                own = {name: ours[name] for name in ("id", "turn", IMPORTED_ID) if name in ours}
                new = {**new, **own, "decay": ours.get("decay", new.get("decay"))}
                if kind is not None:
                    session.replaced.append((kind, ours, new))
                else:
                    session.pending[entry["file"]] = [new]

    def _completed(self, session: _Session, kind: Kind | None, entry: Entry) -> dict[str, Any]:
        """Return the fields of a memory as they can be stored."""
        problems: list[str] = []
        fields = plain_fields(entry["record"], problems)
        for name in ("id", "turn"):
            fields.pop(name, None)
        at, type = entry.get("written_at"), None if kind else type_for(session.name, entry["file"])
        if kind is TURN:
            speaker = fields.setdefault("speaker", "unknown")
            said = fields.setdefault("content", "")
            if not isinstance(speaker, str) or not speaker.isprintable() or len(speaker) > 128:
                problems.append("'speaker' must be one printable line of at most 128 characters")
            if not isinstance(said, str):
                problems.append("the text of a turn must be a text")
            fields.setdefault("type", "message")
            at = at or render_time(self._memory.options.clock())
        elif type == "agent_state":
            fields |= {"agent_id": entry["record"]["id"], "session_id": session.name}
        elif type == "artifact" and not isinstance(fields.setdefault("content", ""), str):
            problems.append("the text of an artifact must be a text")
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

    def _translate(self, session: _Session, record: dict[str, Any]) -> None:
        """Let a record refer to our ids. Records that wait for their numbers are written first."""
        for name in _REFERENCES:
            listed = record.get(name)
            if isinstance(listed, list) and listed:
                texts = [one for one in listed if isinstance(one, str)]
                if not session.unnumbered.isdisjoint(texts):
                    self._flush(session)
                record[name] = _ours(session, listed)

    # Writing.

    def _flush(self, session: _Session) -> None:
        """Write the pending memories of the session, the records of a file in one durable write."""
        pending, session.pending, session.waiting = session.pending, {}, 0
        session.unnumbered.clear()
        total = sum(map(len, pending.values()))
        if self._request.dry_run:
            session.counts["added"] += total
        elif total and not self._is_writable(session):
            session.counts["left_out"] += total
        elif total:
            for file in sorted(pending, key=lock_rank):
                values = self._clean(session, pending[file])
                if kind := kind_for(session.name, file):
                    self._append(session, kind, values)
                for value in values if kind is None else ():
                    self._write_file(session, file, value)

    def _append(self, session: _Session, kind: Kind, values: list[dict[str, Any]]) -> None:
        """Append records; where somebody has written to the file since it was read, look again."""
        scope = self._files(session).scope
        for _ in range(_TRIES):
            written = append_many(scope, kind, values, session.sizes.get(kind.file, 0))
            if written is not None:
                added, session.sizes[kind.file] = written
                session.counts["added"] += len(added)
                told = ((one.get(IMPORTED_ID), str(one["id"])) for one in added)
                session.ids.update({old: new for old, new in told if isinstance(old, str)})
                return
            content = scope.read(kind.file)
            session.sizes[kind.file] = len(content)
            found = [record.value for record in format_of(kind).parse(content).records]
            there = {value.get(name) for value in found for name in ("id", IMPORTED_ID)}
            values = [one for one in values if one.get("id", one.get(IMPORTED_ID)) not in there]
        said = f"{session.name}/{kind.file} is written all the time."
        raise Conflict(said, advice="Import it again.")

    def _write_file(self, session: _Session, file: str, value: dict[str, Any]) -> None:
        """Write a file that is one memory: the state of an agent, an artifact, the profile."""
        type = type_for(session.name, file) or ""
        self._memory._scope(session.name).redaction.require_clean_name(f"an {type}", value["id"])
        content = file_content(file, value)
        self._files(session)._replace(file, lambda _: content, f"importing {value['id']}")
        session.counts["added"] += value["id"] in session.listed.get("added", ())

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
        if session.is_archived:
            if session.name not in self._refused:
                self._refused.add(session.name)
                self.outcome.problems.append(
                    f"{session.name} is archived, and its new memories were left out:"
                    f" smp restore {session.name} brings it back, then import it again."
                )
            return False
        if not session.is_there:
            self._create(session)
            session.is_there = True
        return True

    def _create(self, session: _Session) -> None:
        memory, name, problems = self._memory, session.name, list[str]()
        memory.create()
        now = memory.options.clock()
        parts = plain_fields(session.metadata, problems)
        if problems:
            raise Invalid(problems)
        parts, kinds = memory._scope(name).redaction.redacted_fields(parts)
        self.outcome.counts["redacted"] += sum(kinds.values())
        quota = memory.options.quota_bytes
        usual = new_metadata(name, now, user=None, agents=[], quota_bytes=quota, context={})
        below = load_mapping(usual, "session", METADATA)
        metadata = render_mapping("session", {**below, **parts, "id": name, "status": "active"})
        begun = _time(parts.get("created_at")) or now
        files = {kind.file: format_of(kind).empty(name, begun, []) for kind in SESSION_KINDS}
        memory._lay_out(name, {**files, METADATA: metadata})
        session.sizes = {file: len(content) for file, content in files.items()}

    def _files(self, session: _Session) -> RecordFiles:
        if session.name == GLOBAL:
            self._memory.create()
            return self._memory.everywhere
        return self._memory._session(session.name)

    def _close(self) -> None:
        """Finish a session: write the rest, replace, delete by tombstones, and report."""
        session, self._session = self._session, None
        if session is None:
            return
        name, outcome = session.name, self.outcome
        try:
            self._flush(session)
            if session.replaced and not self._request.dry_run:
                with self._files(session).transaction() as transaction:
                    for kind, old, new in session.replaced:
                        transaction.replace(kind, old, new)
            self._apply_tombstones(session)
            if name != GLOBAL and not self._request.dry_run and session.counts["added"]:
                self._report_size(session)
        except StorageFailed:
            raise
        except SMPError as error:
            outcome.problems.append(f"{name}: {error}")
        every = self.sessions.setdefault(name, Counter())
        every += session.counts
        outcome.counts += session.counts
        for word, ids in session.listed.items():
            self.listed.setdefault(name, {}).setdefault(word, []).extend(ids)
        counts = {said: session.counts[word] for word, said in _WORDS.items()}
        if told := ", ".join(f"{count:,} {said}" for said, count in counts.items() if count):
            outcome.actions.append(Action(name, "import", (name,), told))
        for word, (type, reason) in _LISTED.items():
            if named := session.listed.get(word):
                outcome.actions.append(Action(name, type, tuple(named), reason))

    def _apply_tombstones(self, session: _Session) -> None:
        """Delete the memories that the source deleted, once: a used tombstone is noted."""
        meant = session.tombstones.keys() - session.applied.keys()
        ours = {source_id: session.ids.get(source_id, str(entry["record"]["id"]))
                for (_, source_id), entry in session.known.items()
                if source_id in meant and entry["place"] != DELETED}  # fmt: skip
        session.counts["deleted"] += len(ours)
        if not ours or self._request.dry_run:
            return
        reasons: dict[str, list[str]] = {}
        for source_id, memory_id in ours.items():
            why = session.tombstones[source_id].get("reason")
            reason = why if isinstance(why, str) and why.strip() else "deleted at the source"
            reasons.setdefault(reason, []).append(memory_id)
        for reason, ids in reasons.items():
            self._memory.privacy.delete(
                session.name, ids, reason=reason, deleted_by=self._request.by
            )
        if session.name != GLOBAL and session.is_there:
            at = render_time(self._memory.options.clock())
            noted = {**session.applied, **dict.fromkeys(ours, at)}
            files = self._memory._session(session.name)
            files.change_metadata(functools.partial(_with_tombstones, noted))

    def _report_size(self, session: _Session) -> None:
        files = self._memory._session(session.name)
        files.quota_bytes()  # looks at the metadata
        files._written()
        size = files.size()
        if size.total_bytes > size.quota_bytes:
            self.outcome.notes.append(
                f"{session.name} holds {size.total_bytes:,} bytes by now, more than its"
                f" {size.quota_bytes:,}: smp compact {session.name} makes it smaller."
            )


def _remember(session: _Session, entry: Entry) -> None:
    file, record = entry["file"], entry["record"]
    session.known[file, record["id"]] = entry
    session.taken.add(record["id"])
    if isinstance(old := record.get(IMPORTED_ID), str):
        session.known[file, old] = entry
        session.ids[old] = record["id"]


def _with_tombstones(noted: dict[str, Any], old: dict[str, Value]) -> dict[str, Any]:
    notes = old.get(IMPORTED)
    return {IMPORTED: {**(notes if isinstance(notes, dict) else {}), TOMBSTONES: noted}}


def _ours(session: _Session, listed: list[Any]) -> list[Any]:
    return [session.ids.get(one, one) if isinstance(one, str) else one for one in listed]


def _said(session: _Session, record: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """Return the content of a record as it is compared, with references by our ids.

    The time is not compared where the source gives none.
    """
    kept = {name: value for name, value in record.items() if name not in _USE}
    if "timestamp" not in source:
        kept.pop("timestamp", None)
    for name in _REFERENCES:
        if isinstance(listed := kept.get(name), list):
            kept[name] = _ours(session, listed)
    return json.dumps(kept, sort_keys=True)


def _is_purged(known: tombstones.Purged, file: str, record: Mapping[str, Any]) -> bool:
    """Return whether a memory was purged here, by its id or with its whole session."""
    if known.holds(file, {**record, IMPORTED_ID: record["id"]}):
        return True
    at, stamp = _time(known.whole), _time(record.get("timestamp", record.get("last_updated")))
    return at is not None and (stamp is None or stamp <= at)


def _time(stamp: object) -> datetime | None:
    try:
        return parse_time(str(stamp)) if stamp else None
    except (ValueError, OverflowError):
        return None
