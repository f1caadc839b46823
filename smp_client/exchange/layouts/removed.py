"""Memories that come as deleted: into `deleted/{session}/`, where `smp restore` finds them.

They are no part of an export, which has the files of `deleted/` instead, so the streams of other layouts have them as entries of
their own: `deleted`, with `session`, `file`, `type`, `record` and `deletion` (`deleted_at`, `deleted_by`, `reason`). `take_out`
leaves them out of what the importer is given and holds them; `put` stores them when their session is there. The time to restore
them begins with the import: here they were never deleted before.

One that stands here, because it came before it was deleted there, is deleted here too, unless somebody has restored it: whatever
came as deleted has a note of that under `imported`, also in its copy, and so has what was restored from there. Others give an id
again when what had it is deleted: `beside` are those of the same id that stand there, which are not meant. Of what is no longer
there only a mark may be left (`gone`): it means what came from elsewhere under that id before the mark was made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ...append import reserve, with_id
from ...errors import CorruptionDetected, SMPError
from ...layout import ACTIVE
from ...maintain.purged import Purged, load
from ...maintain.putting_back import stands_in, value_of
from ...records import Kind
from ...text.values import Value
from ...timestamps import parse_time
from ..entries import Entry, kind_of, storable_problem
from ..formats import Read
from ..identity import has_no_id_there, is_from_log, said, with_digest
from ..pieces import render
from ..purged import purged_note
from .collecting import MARK
from .sessions import DELETED, GONE, SOFT
from .shaping import IMPORTED, IMPORTED_ID, OLD_ID

if TYPE_CHECKING:
    from ...memory import Memory
    from ...privacy.deleting.standing import Standing
    from ...privacy.deleting.store import Store

_BY = "import"
_BESIDE = "beside"
_MARKS = (MARK, "tombstone")
_NAMED = 5
Values = Mapping[str, Value]
Item = dict[str, Any]
_Deleted = dict[tuple[str, str], list[tuple[Item, Values]]]  # by file and origin
_Known = TypeVar("_Known")


@dataclass
class Put:
    """What became of them."""

    count: int = 0  # that are deleted here now, and were not before; of a dry run, that would be
    sessions: list[str] = field(default_factory=list)  # out of which something goes
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass
class Removed:
    """What was taken out of a stream, by session."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    marks: dict[str, dict[str, Entry]] = field(default_factory=dict)  # of what is not there any more, by its id

    def take_out(self, given: Iterable[Read]) -> Iterator[Read]:
        live: list[Entry] = []  # of one session; those that are deleted there come behind them
        by_origin: dict[tuple[str, str], list[Values]] = {}
        for read in given:
            entry = read.entry
            if entry is not None and entry.get("entry") in (DELETED, GONE):
                for one in live:
                    by_origin.setdefault((one["file"], _origin(one["record"])), []).append(one["record"])
                live.clear()
            if entry is not None and entry.get("entry") == GONE:
                key = str(entry["mark"].get("id"))
                if not any(origin == key for _, origin in by_origin):
                    self.marks.setdefault(entry["session"], {})[key] = entry
                continue
            if entry is not None and entry.get("entry") == DELETED:
                beside = by_origin.get((entry["file"], _origin(entry["record"])), [])
                self.entries.setdefault(entry["session"], []).append({**entry, _BESIDE: beside})
                continue
            if entry is not None and entry.get("entry") == "session":
                live, by_origin = [], {}
            elif entry is not None and read.is_sound:
                live.append(entry)
            yield read

    def put(self, memory: Memory, *, dry_run: bool = False, purged: bool = False, without: Collection[str] = ()) -> Put:
        """Stores all of them, but for those of the sessions `without`; with `purged` also what was purged here."""
        done = Put()
        known = {} if purged else load(memory.tree)
        for session in dict.fromkeys([*self.entries, *self.marks]):
            if session in without:
                continue
            entries, marks = self.entries.get(session, []), self.marks.get(session, {})
            try:
                putting = _Putting(memory, session, entries, marks, known.get(session, Purged()), done)
                putting.look() if dry_run else putting.put()
            except (SMPError, OSError) as error:
                done.problems.append(f"{session}: {len(entries):,} deleted memories were not taken in: {error}")
        return done


@dataclass
class _Plan:
    """What is to be done; all else is as it should be."""

    going: list[Standing] = field(default_factory=list)  # that stand here
    coming: list[tuple[Entry, Kind]] = field(default_factory=list)
    noted: list[tuple[Item, Values, Entry]] = field(default_factory=list)  # deleted here, and not known to be deleted there
    purged: list[str] = field(default_factory=list)
    ids: set[tuple[str, str]] = field(default_factory=set)  # of all that stand or are deleted, by file


class _Putting:
    """Those of one session. Doing it again adds nothing, also where it was cut off."""

    def __init__(
        self, memory: Memory, session: str, entries: Sequence[Entry], marks: Mapping[str, Entry], purged: Purged, done: Put
    ) -> None:
        self._memory, self._session, self._marks, self._purged, self._done = memory, session, marks, purged, done
        self._entries = [(entry, kind) for entry in entries if (kind := self._kind_of(entry))]

    def look(self) -> None:
        """What `put` would come to."""
        if not self._memory.root.is_dir():
            self._done.count += len(self._entries)
            return
        plan = self._planned(self._store())
        self._done.count += len(plan.coming) + len({one.id for one in plan.going})
        self._tell(plan)

    def put(self) -> None:
        from ...privacy.deleting.reworking import Change, locked, rework, settle

        with locked(self._memory, self._session, "importing"):
            settle(self._memory, self._session)
            store = self._store()
            plan = self._planned(store)
            self._save(store, plan)
        if plan.going:
            out = self._deleted(store)
            gone = rework(self._memory, self._session, lambda found: map(Change, self._going(found, out)), reason=SOFT, by=_BY)
            self._done.problems += gone.problems
            self._done.count += len({one.id for one in gone})
            with locked(self._memory, self._session, "importing"):
                store = self._store()
                self._save(store, _Plan(noted=self._planned(store).noted))  # when and why it was deleted there
        self._tell(plan)

    def _tell(self, plan: _Plan) -> None:
        if plan.going:
            ids = list(dict.fromkeys(one.id for one in plan.going))
            named = ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else "")
            self._done.sessions.append(self._session)
            self._done.notes.append(f"{self._session}: {named}: deleted where it comes from, and therefore here; smp restore"
                                    " brings it back.")  # fmt: skip
        if plan.purged:
            self._done.notes.append(f"{self._session}: {purged_note(plan.purged)}")

    def _store(self) -> Store:
        from ...privacy.deleting.store import Store

        store = Store(self._memory, self._session)
        store.require_no_session()
        return store

    def _kind_of(self, entry: Entry) -> Kind | None:
        kind, value = kind_of(self._session, entry["file"]), entry["record"]
        problem = storable_problem(value, 2) if kind else f"no memories are kept in a file {entry['file']!r}"
        if problem:
            self._done.problems.append(f"{self._session}: deleted {value.get('id')}: {problem}")
        return None if problem else kind

    # The plan.

    def _planned(self, store: Store) -> _Plan:
        from ...privacy.deleting.standing import standing

        found, out = [*standing(self._memory, self._session, [])], self._deleted(store)
        plan = _Plan(self._going(found, out), ids={(one.file, one.id) for one in found})
        plan.ids |= {(item["file"], item["id"]) for item in store.known()}
        there = _by_origin(found)
        for entry, kind in self._entries:
            value = entry["record"]
            like, known = _found(entry, kind, there, out)
            if like:
                continue
            plan.noted += [(item, its, entry) for item, its in known if not is_marked(its)]
            if not known and self._purged.holds(kind.file, value):
                plan.purged.append(str(value["id"]))
            elif not known:
                plan.coming.append((entry, kind))
        plan.noted += [(item, its, {"record": {}, **mark}) for (_, key), known in out.items() if (mark := self._marks.get(key))
                       for item, its in known if not is_marked(its) and _is_meant(mark, its)]  # fmt: skip
        return plan

    def _going(self, found: Sequence[Standing], out: _Deleted) -> list[Standing]:
        """Those that stand here. One that has the note has come as deleted before, and somebody has restored it."""
        there = _by_origin(found)
        going: dict[tuple[str, str, str], Standing] = {}
        for entry, kind in self._entries:
            like, _ = _found(entry, kind, there, out)
            if not any(is_marked(value) for _, value in like):
                going |= {one.key: one for one, _ in like}
        for (_, key), known in there.items():
            if (mark := self._marks.get(key)) and not any(is_marked(value) for _, value in known):
                going |= {one.key: one for one, value in known if _is_meant(mark, value)}
        return [*going.values()]

    def _deleted(self, store: Store) -> _Deleted:
        members = store.members()
        out: _Deleted = {}
        for item in store.items():
            if kind_of(self._session, item["file"]) is None or "replaced_by" in item:
                continue
            with suppress(CorruptionDetected):  # which smp check tells
                value = store.copy(item, members)[1]
                out.setdefault((item["file"], _origin(value)), []).append((item, value))
        return out

    # Doing it.

    def _save(self, store: Store, plan: _Plan) -> None:
        from ...privacy.deleting.reworking import new_batch
        from ...privacy.deleting.store import copies_of, new_item

        items, taken, batch = store.items(), store.taken(), new_batch(self._memory)
        copies = self._note(items, plan)
        added: list[Item] = []
        for entry, kind in plan.coming:
            if (one := self._standing(entry, kind, plan.ids)) is None:
                continue
            days, said_of_it = self._memory.options.retention.deleted_days, _said_of_it(entry)
            item = new_item(one, taken, said_of_it, now=self._memory.options.clock(), days=days, batch=batch)
            item["deleted_at"] = _earlier(said_of_it["deleted_at"], item["deleted_at"])
            added.append(item)
            taken.add(item["copy"])
            plan.ids.add((one.file, one.id))
            copies |= copies_of(item, one)
        if copies:
            store.save([*items, *added], copies)
        self._done.count += len(added)

    def _note(self, items: Sequence[Item], plan: _Plan) -> dict[str, bytes]:
        """The note into the copies of what was deleted here; why and when, if it was deleted because it was there."""
        from ...privacy.deleting.store import VALUES, fingerprint, member_of

        copies: dict[str, bytes] = {}
        by_copy = {member_of(item): item for item in items}
        for known, its, entry in plan.noted:
            item = by_copy[member_of(known)]
            kind, value, said_of_it = kind_of(self._session, item["file"]), _marked(its, entry["record"]), _said_of_it(entry)
            assert kind
            copies |= {member_of(item): render(kind, value), f"{VALUES}{member_of(item)}": json.dumps(value).encode()}
            item["sha256"] = fingerprint(value)
            if item.get("deleted_by") == _BY:
                item |= {"deleted_by": said_of_it["deleted_by"], "reason_specific": said_of_it["reason"],
                         "deleted_at": _earlier(said_of_it["deleted_at"], item["deleted_at"])}  # fmt: skip
        return copies

    def _standing(self, entry: Entry, kind: Kind, ids: Collection[tuple[str, str]]) -> Standing | None:
        """As it would stand in its file; with another id where its own is another memory's, or was."""
        from ...privacy.deleting.standing import Standing

        value = with_digest(_marked(entry["record"], entry["record"]))
        try:
            old = str(value["id"])
            if (kind.file, old) in ids or self._purged.when(kind.file, old):
                fields = {name: part for name, part in value.items() if name not in ("id", "turn")}
                number = reserve(self._memory._session(self._session).scope, kind)
                value = {**with_id(kind, number, fields), IMPORTED_ID: old}
            raw = render(kind, value)
            found = value_of(kind, raw)
            if found is None or found.get("id") != value["id"]:
                raise ValueError("it cannot be written")
        except (SMPError, ValueError, KeyError, TypeError) as error:
            self._done.problems.append(f"{self._session}: deleted {value.get('id')}: {error}")
            return None
        where = f"{ACTIVE}/{self._session}/{kind.file}"
        return Standing(self._session, "active", where, kind.file, kind.name, str(found["id"]), found, raw)


# Which is which.


def _is_memory(one: Standing) -> bool:
    kind = kind_of(one.session, one.file)
    return bool(one.id) and kind is not None and not stands_in(kind, one.value)


def _by_origin(known: Iterable[Standing]) -> dict[tuple[str, str], list[tuple[Standing, Values]]]:
    found: dict[tuple[str, str], list[tuple[Standing, Values]]] = {}
    for one in known:
        if _is_memory(one):
            found.setdefault((one.file, _origin(one.value)), []).append((one, one.value))
    return found


def _origin(value: Values) -> str:
    """The id that it had in the first place; the one that it has got on its way here may be another the next time."""
    notes = value.get(IMPORTED)
    first = notes.get(OLD_ID) if isinstance(notes, dict) else None
    return str(next(one for one in (first, value.get(IMPORTED_ID), value.get("id")) if one is not None))


def _found(
    entry: Entry, kind: Kind, there: Mapping[tuple[str, str], Sequence[tuple[Standing, Values]]], out: _Deleted
) -> tuple[list[tuple[Standing, Values]], list[tuple[Item, Values]]]:  # fmt: skip
    """The memory where it stands here, and among the deleted ones: it says the same; or, where none does, it is of the same time,
    and was changed here since."""
    value, key = entry["record"], (kind.file, _origin(entry["record"]))
    beside = {said(one) for one in entry.get(_BESIDE, ())}
    like = [one for one in there.get(key, ()) if not beside or said(one[1]) not in beside]
    gone = out.get(key, [])
    found = _saying_the_same(value, like), _saying_the_same(value, gone)
    return found if any(found) else (_of_its_time(value, like), _of_its_time(value, gone))


def _saying_the_same(value: Values, known: Sequence[tuple[_Known, Values]]) -> list[tuple[_Known, Values]]:
    own = said(value) if known else b""
    return _meant(value, [one for one in known if said(one[1]) == own])


def _of_its_time(value: Values, known: Sequence[tuple[_Known, Values]]) -> list[tuple[_Known, Values]]:
    stamp = value.get("timestamp")
    return _meant(value, [one for one in known if stamp is not None and one[1].get("timestamp") == stamp])


def _is_meant(mark: Entry, value: Values) -> bool:
    """Whether a mark alone can be of it: it comes from elsewhere, by an id that it had there, and was there before the mark."""
    at, stamp = mark["deletion"]["deleted_at"], value.get("timestamp")
    is_before = not isinstance(at, str) or (isinstance(stamp, str) and parse_time(stamp) <= parse_time(at))
    return IMPORTED in value and not is_from_log(value) and not has_no_id_there(value) and is_before


def _meant(value: Values, found: list[tuple[_Known, Values]]) -> list[tuple[_Known, Values]]:
    """Two entries of one id are two memories."""
    ids = [its.get("id") for _, its in found]
    meant = value.get("id") if value.get("id") in ids else next(iter(ids), None)
    return [one for one in found if one[1].get("id") == meant]


# The note.


def is_marked(value: Values) -> bool:
    """Whether it is known here that it was deleted where it comes from."""
    notes = value.get(IMPORTED)
    return isinstance(notes, dict) and any(name in notes for name in _MARKS)


def _marked(value: Values, coming: Values) -> dict[str, Value]:
    """With the note that the one that comes has; one of our own has lost it on its way through another layout."""
    notes, theirs = (one if isinstance(one := given.get(IMPORTED), dict) else {} for given in (value, coming))
    mark = {name: theirs[name] for name in _MARKS if name in theirs} or {MARK: True}
    return {**value, IMPORTED: {**notes, **mark}}


def _said_of_it(entry: Entry) -> dict[str, Any]:
    """Why it was deleted is kept as well, and may quote what it was deleted for."""
    from ...privacy.redact import harmless

    return {name: harmless(text) if isinstance(text, str) else text for name, text in entry["deletion"].items()}


def _earlier(said: object, now: str) -> str:
    """When it was deleted there; not behind this moment, whatever a clock said."""
    return said if isinstance(said, str) and parse_time(said) <= parse_time(now) else now
