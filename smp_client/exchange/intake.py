"""Imports: entries come in one way, and each is known by its source id.

A memory that is not in the tree is added. Same id and other content: ours stays and the id is listed
as a conflict, unless `replace` takes theirs. A tombstone deletes once. A memory that was deleted or
purged here stays away. Secrets are redacted before anything is written. Every batch is durable when
it is written, so an import that was cut off is repeated.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..append import append_many
from ..errors import Conflict, Invalid, SMPError, StorageFailed
from ..layout import ACTIVE, ARCHIVED, DELETED, GLOBAL, LATEST, lock_rank
from ..model.outcome import Action, Outcome
from ..passes import purged
from ..records import (
    CONTENT_CAP_BYTES,
    SESSION_KINDS,
    TURN,
    Kind,
    is_memory_id,
    kind_of_file,
    plain_fields,
)  # fmt: skip
from ..session_files import METADATA, STATE_BASE_PRIORITY, artifact_file, new_metadata, state_file
from ..text.format import format_of
from ..text.mapping import load_mapping, render_mapping
from ..text.values import Value, canonical, render_entries
from ..timestamps import parse_time, render_time, same_time
from .entry import HEADER, IMPORTED, IMPORTED_ID, PROFILE, Entry, Read, Transform, kind_for, problem_of
from .export import deleted_entries, session_entries

if TYPE_CHECKING:
    from ..memory import Memory
    from ..session import RecordFiles

TOMBSTONES = "tombstones"  # below `imported` in the metadata: tombstones that have deleted something
_BATCH = 4_000  # records that are written at once
_TRIES = 5
_TURN_ID = re.compile(r"turn-([1-9][0-9]{0,11})")
# Fields that say how a memory is used, and not what it says.
_USE = frozenset(("id", "turn", "decay", "pinned", "updated_at", "redacted", IMPORTED_ID))
_REFERENCES = ("memory_refs", "references")
_TEXT = "text of the artifact"  # a key under which it is looked through for secrets with its fields
_ENDS = {"added": "added", "known": "in the tree already", "conflicts": "in conflict", "replaced": "replaced",
         "deleted": "deleted", "left_deleted": "left deleted", "purged": "purged here and left out"}  # fmt: skip


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
    sizes: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unnumbered: set[str] = field(default_factory=set)  # source ids of pending records without an id
    replaced: list[tuple[Kind, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    tombstones: dict[str, Entry] = field(default_factory=dict)
    applied: dict[str, Any] = field(default_factory=dict)  # tombstones of earlier imports
    metadata: dict[str, Any] = field(default_factory=dict)
    is_there: bool = False
    is_archived: bool = False
    is_deleted: bool = False
    purged: purged.Purged | None = None
    counts: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)  # ids of memories that were purged here


class Intake:
    """One import into a memory."""

    def __init__(self, memory: Memory, request: Request) -> None:
        self._memory, self._request = memory, request
        self.outcome = Outcome(dry_run=request.dry_run)
        self.missing: dict[str, list[str]] = {}
        self.differ: dict[str, list[str]] = {}
        self.sessions: dict[str, Counter[str]] = {}
        self._purged = {} if request.purged else purged.load(memory.tree) if memory.root.is_dir() else {}
        self._gone = {one.session for one in memory.deleted_sessions()} if memory.root.is_dir() else set()
        self._session: _Session | None = None
        self._refused: set[str] = set()  # sessions that cannot be written, each reported once

    def take(self, given: Iterable[Read]) -> Outcome:
        """Take in entries, session by session. A bad entry is reported, and the rest goes on."""
        for one in given:
            if one.entry is None:
                self.outcome.problems.append(f"{one.where}: {one.problem}")
                continue
            self._request.advance()
            entry = one.entry
            if not (problem := problem_of(entry)) and self._request.transform and HEADER not in entry:
                changed = self._request.transform(entry)
                if changed is None:
                    continue
                entry, problem = changed, problem_of(changed)
            if problem:
                self.outcome.problems.append(f"{one.where}: {problem}")
                if HEADER in entry:
                    break
            elif HEADER not in entry and entry["entry"] != "end":
                self._take(one.where, entry)
        self._close()
        return self.outcome

    def _take(self, where: str, entry: Entry) -> None:
        name = GLOBAL if entry["entry"] == "profile" else entry["session"]
        if name in self._refused:
            return
        try:
            if self._session is None or self._session.name != name:
                self._close()
                self._session = self._opened(name)
            session = self._session
            if entry["entry"] == "session":
                session.metadata = session.metadata or entry.get("metadata") or {}
            elif entry["entry"] == "tombstone":
                session.tombstones[entry["id"]] = entry
            elif session.is_deleted:
                session.counts["left_deleted"] += 1
            elif entry["entry"] == "memory":
                self._take_memory(session, entry)
            else:
                self._take_file(session, entry)
        except StorageFailed:
            raise
        except SMPError as error:
            self.outcome.problems.append(f"{where}: {error}")

    # What the tree holds already.

    def _opened(self, name: str) -> _Session:
        memory, tree = self._memory, self._memory.tree
        session = _Session(name, is_deleted=name in self._gone, purged=self._purged.get(name))
        try:
            if name != GLOBAL:
                memory._scope(name).redaction.require_clean_name("a session", name)
            if not memory.root.is_dir():
                return session
            session.is_there = name == GLOBAL or tree.exists(f"{ACTIVE}/{name}")
            session.is_archived = not session.is_there and tree.exists(f"{ARCHIVED}/{name}/archive.tar.gz")
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
            session.sizes = dict(memory.tree.sizes(scope.directory))
            histories = memory.tree.sizes(scope.path("agent-states/history"))
            session.sizes |= {f"agent-states/history/{file}": size for file, size in histories.items()}
        for entry in deleted_entries(memory, session.name, problems):
            self._remember(session, entry)
        for entry in session_entries(memory, session.name, problems):
            if entry["entry"] == "session":
                notes = entry["metadata"].get(IMPORTED)
                applied = notes.get(TOMBSTONES) if isinstance(notes, dict) else None
                session.applied = applied if isinstance(applied, dict) else {}
            else:
                self._remember(session, entry)
        self.outcome.notes += problems

    def _remember(self, session: _Session, entry: Entry) -> None:
        file, memory_id = _place(entry)
        session.known[file, memory_id] = entry
        session.taken.add(memory_id)
        old = entry["record"].get(IMPORTED_ID) if entry["entry"] == "memory" else None
        if isinstance(old, str):
            session.known[file, old] = entry
            session.ids[old] = memory_id

    # One entry.

    def _take_memory(self, session: _Session, entry: Entry) -> None:
        kind = kind_for(session.name, entry["file"])
        assert kind is not None
        record = entry["record"]
        source_id = record["id"]
        held = session.known.get((kind.file, source_id))
        if held is not None:
            self._compare(session, kind, held, record)
        elif session.purged is not None and _is_purged(session.purged, kind.file, record):
            session.counts["purged"] += 1
            session.away.append(source_id)
        else:
            new = self._completed(kind, record, entry.get("written_at"))
            self._translate(session, new)
            number = _TURN_ID.fullmatch(source_id)
            if kind is TURN and number:
                new = {"id": source_id, "turn": int(number[1]), **new}
            elif kind is TURN or number or not is_memory_id(source_id) or source_id in session.taken:
                new[IMPORTED_ID] = source_id
                session.unnumbered.add(source_id)
            else:
                new = {"id": source_id, **new}
            session.taken.add(str(new.get("id", "")))
            session.known[kind.file, source_id] = {**entry, "record": {**new, "id": source_id}}
            session.missing.append(source_id)
            session.counts["added"] += 1
            session.pending.setdefault(kind.file, []).append(new)
            if session.counts["added"] % _BATCH == 0:
                self._flush(session)

    def _compare(self, session: _Session, kind: Kind, held: Entry, record: dict[str, Any]) -> None:
        if held["place"] == DELETED:
            session.counts["left_deleted"] += 1
            return
        ours = held["record"]
        told = _said(session, ours, record)
        if told == _said(session, record, record):
            session.counts["known"] += 1
            return
        new = self._clean(session, [self._completed(kind, record)])[0]
        if told == _said(session, new, record):
            session.counts["known"] += 1
        elif self._request.replace and held["place"] == ACTIVE:
            own = {name: ours[name] for name in ("id", "turn", IMPORTED_ID) if name in ours}
            session.replaced.append((kind, ours, {**own, **new, "decay": ours.get("decay", new["decay"])}))
            session.counts["replaced"] += 1
        else:
            session.conflicts.append(str(ours["id"]))
            session.counts["conflicts"] += 1

    def _completed(self, kind: Kind, record: Mapping[str, Any], at: str | None = None) -> dict[str, Any]:
        """Return the fields of a record as they can be stored. `at` stands for a time of its own."""
        problems: list[str] = []
        fields = plain_fields({name: value for name, value in record.items() if name not in ("id", "turn")}, problems)
        if kind is TURN:
            speaker = fields.setdefault("speaker", "unknown")
            if not isinstance(speaker, str) or not speaker.isprintable() or len(speaker) > 128:
                problems.append("'speaker' must be one printable line of at most 128 characters")
            fields.setdefault("type", "message")
            if not isinstance(fields.setdefault("content", ""), str):
                problems.append("the text of a turn must be a text")
            at = at or render_time(self._memory.options.clock())
        if at:
            fields.setdefault("timestamp", at)
        try:
            if isinstance(stamp := fields.get("timestamp"), str):
                fields["timestamp"] = same_time(stamp)
        except ValueError:
            problems.append(f"'timestamp' is no ISO 8601 time: {str(stamp)[:40]!r}")
        size = sum(len(value) for value in fields.values() if isinstance(value, str))
        if size > CONTENT_CAP_BYTES:
            problems.append(f"a {kind.type} may hold {CONTENT_CAP_BYTES:,} bytes of text, not {size:,}")
        if problems:
            raise Invalid(problems)
        worn = fields.pop("decay", None)
        usual = {"priority": kind.base_priority, "last_accessed": fields.get("timestamp"), "access_count": 0,
                 "base_priority": kind.base_priority}  # fmt: skip
        return {**fields, "decay": {**usual, **worn} if isinstance(worn, dict) else usual}

    def _translate(self, session: _Session, record: dict[str, Any]) -> None:
        """Let a record refer to our ids. Records that still wait for their numbers are written first."""
        for name in _REFERENCES:
            listed = record.get(name)
            if isinstance(listed, list) and listed:
                if not session.unnumbered.isdisjoint(one for one in listed if isinstance(one, str)):
                    self._flush(session)
                record[name] = [session.ids.get(one, one) if isinstance(one, str) else one for one in listed]

    def _take_file(self, session: _Session, entry: Entry) -> None:
        """Take in an agent's state, an artifact or the user's profile: a file that is one memory."""
        file, name = _place(entry)
        new = self._clean_file(session, entry)
        held = session.known.get((file, name))
        if held is not None and held.get("place") == DELETED:
            session.counts["left_deleted"] += 1
        elif held is not None and _says_same(held, new):
            session.counts["known"] += 1
        elif held is not None and not self._request.replace:
            session.conflicts.append(name)
            session.counts["conflicts"] += 1
        elif held is None and session.purged is not None and _is_purged(session.purged, file, {"id": name, **_fields(entry)}):
            session.counts["purged"] += 1
            session.away.append(name)
        else:
            session.counts["added" if held is None else "replaced"] += 1
            session.missing += [name] if held is None else []
            session.known[file, name] = new
            if not self._request.dry_run and self._is_writable(session):
                content = _rendered(new)
                self._files(session)._replace(file, lambda _: content, f"importing {name}")

    def _clean_file(self, session: _Session, entry: Entry) -> Entry:
        """Return the entry of a whole file as it can be stored, without secrets."""
        redaction = self._memory._scope(session.name).redaction
        redaction.require_clean_name("an agent", entry.get("agent"))
        redaction.require_clean_name("an artifact", entry.get("artifact"))
        problems: list[str] = []
        fields = plain_fields(_fields(entry), problems)
        text = plain_fields({"text": entry.get("text", "")}, problems)
        if problems:
            raise Invalid(problems)
        if entry["entry"] == "state":
            fields |= {"agent_id": entry["agent"], "session_id": session.name}
            fields.setdefault("decay", {"priority": STATE_BASE_PRIORITY, "base_priority": STATE_BASE_PRIORITY})
        cleaned, kinds = redaction.redacted_fields({**fields, _TEXT: text["text"]})
        self.outcome.counts["redacted"] += sum(kinds.values())
        said = cleaned.pop(_TEXT)
        key = {"state": "state", "artifact": "head"}.get(entry["entry"], "profile")
        return {**entry, key: cleaned, **({"text": said} if key == "head" else {})}

    # Writing.

    def _flush(self, session: _Session) -> None:
        """Write the pending records of the session, file by file, each file in one durable write."""
        pending, session.pending = session.pending, {}
        session.unnumbered.clear()
        if self._request.dry_run or not pending or not self._is_writable(session):
            return
        scope = self._files(session).scope
        for file in sorted(pending, key=lock_rank):
            kind = kind_of_file(file)
            if "/" in file:
                self._memory.tree.make_directory(scope.path(file).rpartition("/")[0])
            values = self._clean(session, pending[file])
            for _ in range(_TRIES):
                written = append_many(scope, kind, values, session.sizes.get(file, 0))
                if written is not None:
                    break
                values = self._still_missing(session, kind, values)
            else:
                raise Conflict(f"{session.name}/{file} is written all the time.", advice="Import it again.")
            added, session.sizes[file] = written
            session.ids.update((str(one[IMPORTED_ID]), str(one["id"])) for one in added if IMPORTED_ID in one)

    def _still_missing(self, session: _Session, kind: Kind, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Read a file anew that somebody has written to meanwhile, and drop what it holds by now."""
        content = self._files(session).scope.read(kind.file)
        session.sizes[kind.file] = len(content)
        there = {record.value.get(name) for record in format_of(kind).parse(content).records for name in ("id", IMPORTED_ID)}
        return [value for value in values if value.get("id", value.get(IMPORTED_ID)) not in there]

    def _clean(self, session: _Session, values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the records without secrets. Most have none, so all are looked at together first."""
        redaction = self._memory._scope(session.name).redaction
        if redaction.is_clean(values):
            return values
        cleaned: list[dict[str, Any]] = []
        for value in values:
            try:
                new, kinds = redaction.redacted_fields(value)
            except Invalid as error:
                self.outcome.problems.append(f"{session.name}/{value.get('id', value.get(IMPORTED_ID))}: {error}")
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
                    f" smp restore --session {session.name} brings it back, then import it again."
                )
            return False
        if not session.is_there:
            self._create(session)
            session.is_there = True
        return True

    def _create(self, session: _Session) -> None:
        memory, name = self._memory, session.name
        memory.create()
        given, problems = session.metadata, list[str]()
        now = memory.options.clock()
        empty = format_of(TURN).empty(name, _time(given.get("created_at")) or now, [])
        usual = new_metadata(name, now, user=None, agents=[], quota_bytes=memory.options.quota_bytes, context={})
        parts, kinds = memory._scope(name).redaction.redacted_fields(plain_fields(given, problems))
        if problems:
            raise Invalid(problems)
        self.outcome.counts["redacted"] += sum(kinds.values())
        times = [str(one["timestamp"]) for listed in session.pending.values() for one in listed if "timestamp" in one]
        parts = {"created_at": min(times), "last_accessed": max(times), **parts} if times else parts
        own = {"id": name, "status": "active"}
        below = load_mapping(usual, "session", METADATA)
        metadata = render_mapping("session", {**below, **parts, **own}) if parts else usual
        files = {kind.file: format_of(kind).empty(name, now, []) for kind in SESSION_KINDS}
        memory._lay_out(name, {**files, TURN.file: empty, METADATA: metadata})
        session.sizes = {file: len(content) for file, content in {**files, TURN.file: empty}.items()}

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
                        transaction.replace(kind, old, self._clean(session, [new])[0])
            self._apply_tombstones(session)
            if session.is_there and name != GLOBAL and not self._request.dry_run and session.counts["added"]:
                self._report_size(session)
        except StorageFailed:
            raise
        except SMPError as error:
            outcome.problems.append(f"{name}: {error}")
        if name in self._refused and session.is_archived:
            session.counts["left_out"] = session.counts.pop("added", 0)
        told = self.sessions.setdefault(name, Counter())
        told += session.counts
        outcome.counts += session.counts
        self.missing.setdefault(name, []).extend(session.missing)
        self.differ.setdefault(name, []).extend(session.conflicts)
        said = ", ".join(f"{count:,} {_ENDS[key]}" for key, count in session.counts.items() if key in _ENDS and count)
        if said:
            outcome.actions.append(Action(name, "import", (name,), said))
        if session.conflicts:
            reason = "another content under this id; ours stays, --replace takes theirs"
            outcome.actions.append(Action(name, "conflict", tuple(session.conflicts), reason))
        if session.away:
            reason = "purged here, and not taken in; --purged takes it in"
            outcome.actions.append(Action(name, "left_out", tuple(session.away), reason))

    def _apply_tombstones(self, session: _Session) -> None:
        """Delete what the source has deleted, once: a tombstone that has done so is noted."""
        by_id: dict[str, str] = {}
        for (_, source_id), entry in session.known.items():
            if source_id in session.tombstones and source_id not in session.applied and entry.get("place") != DELETED:
                by_id[source_id] = session.ids.get(source_id, _place(entry)[1])
        if not by_id:
            return
        session.counts["deleted"] += len(by_id)
        if self._request.dry_run:
            return
        reasons: dict[str, list[str]] = {}
        for source_id, memory_id in by_id.items():
            why = session.tombstones[source_id].get("reason")
            reason = why if isinstance(why, str) and why.strip() else "deleted at the source"
            reasons.setdefault(reason, []).append(memory_id)
        for reason, listed in reasons.items():
            self._memory.delete(session.name, listed, reason=reason, deleted_by=self._request.by)
        if session.name != GLOBAL and session.is_there:
            at = render_time(self._memory.options.clock())
            noted = {**session.applied, **dict.fromkeys(by_id, at)}
            self._memory._session(session.name).change_metadata(functools.partial(_with_tombstones, noted))

    def _report_size(self, session: _Session) -> None:
        files = self._memory._session(session.name)
        files.quota_bytes()  # looks at the metadata
        files._written()
        size = files.size()
        if size.total_bytes > size.quota_bytes:
            self.outcome.notes.append(
                f"{session.name} holds {size.total_bytes:,} bytes by now, more than its {size.quota_bytes:,}:"
                f" smp compact {session.name} makes it smaller."
            )


def _with_tombstones(noted: dict[str, Any], old: dict[str, Value]) -> dict[str, Any]:
    notes = old.get(IMPORTED)
    return {IMPORTED: {**(notes if isinstance(notes, dict) else {}), TOMBSTONES: noted}}


def _place(entry: Entry) -> tuple[str, str]:
    """Return the file and the id of the memory that an entry is."""
    if entry["entry"] == "memory":
        return entry["file"], str(entry["record"]["id"])
    if entry["entry"] == "state":
        return state_file(entry["agent"]), entry["agent"]
    if entry["entry"] == "artifact":
        return artifact_file(entry["artifact"]), entry["artifact"]
    return PROFILE, "user-profile"


def _fields(entry: Entry) -> dict[str, Any]:
    """Return the fields of a file that is one memory."""
    fields: dict[str, Any] = entry[{"state": "state", "artifact": "head"}.get(entry["entry"], "profile")]
    return fields


def _says_same(one: Entry, other: Entry) -> bool:
    said = [{name: value for name, value in _fields(entry).items() if name not in _USE} for entry in (one, other)]
    return canonical(said[0]) == canonical(said[1]) and one.get("text") == other.get("text")


def _rendered(entry: Entry) -> bytes:
    """Return the bytes of a file that is one memory."""
    if entry["entry"] != "artifact":
        return render_mapping("agent_state" if entry["entry"] == "state" else "user_profile", _fields(entry))
    front = "".join(line + "\n" for line in render_entries(_fields(entry), 0))
    return ((f"---\n{front}---\n" if front else "") + str(entry["text"])).encode()


def _said(session: _Session, record: Mapping[str, Any], source: Mapping[str, Any]) -> bytes:
    """Return the content of a record as it is compared, with references by our ids.

    The time is not compared where the source gives none.
    """
    kept = {name: value for name, value in record.items() if name not in _USE}
    if "timestamp" not in source:
        kept.pop("timestamp", None)
    for name in _REFERENCES:
        if isinstance(listed := kept.get(name), list):
            kept[name] = [session.ids.get(one, one) if isinstance(one, str) else one for one in listed]
    return canonical(kept)


def _is_purged(known: purged.Purged, file: str, record: Mapping[str, Any]) -> bool:
    probe = {**record, IMPORTED_ID: record["id"]}
    if known.holds(file, probe):
        return True
    at, stamp = _time(known.whole), _time(record.get("timestamp", record.get("last_updated")))
    return at is not None and (stamp is None or stamp <= at)


def _time(stamp: object) -> Any:
    try:
        return parse_time(str(stamp)) if stamp else None
    except (ValueError, OverflowError):
        return None
