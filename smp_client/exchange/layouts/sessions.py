"""What was found of one session, and the entries that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...layout import FORMAT_VERSION
from ...records import DELETED_TURN, SESSION_KINDS, TURN, Kind
from ..entries import Entry, made
from ..formats import Read
from . import own
from .shaping import ADDED, IMPORTED, UNKNOWN, Ids, Values, time_of

# Kinds of entries that are no part of an export, see removed.py: a memory that is deleted, and one of which only that is left.
DELETED, GONE = "deleted", "gone"
BORROWED = "borrowed"  # below `imported` of the metadata: which times are those of others
SOFT = "Deleted where it was imported from."


@dataclass
class Collected:
    """Records by kind, those that are deleted apart, and what is known of the session beside its manifest."""

    advance: Callable[[], None] = lambda: None  # called for each that is added
    records: list[tuple[Kind, Values]] = field(default_factory=list)
    deleted: list[tuple[Kind, Values, Values]] = field(default_factory=list)  # with when and why
    tombstones: list[Values] = field(default_factory=list)  # of what is not there any more
    problems: list[str] = field(default_factory=list)
    others: list[Entry] = field(default_factory=list)  # of ours that are no memories of any kind of theirs
    ids: Ids | None = None
    speakers: dict[str, int] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)  # when each spoke last

    def add(self, kind: Kind, record: Values, mark: Mapping[str, Any] | None = None, time: str = "timestamp") -> None:
        if own.FIELD in record:
            if mark is None and (entry := own.entry_of(record)):
                self.others.append(entry)
                return
            kind, record = own.regained(kind, record, self.ids)
        self.advance()
        if mark is None:
            self.records.append((kind, record))
            if kind is TURN:
                name = str(record.get("speaker"))
                self.speakers[name] = self.speakers.get(name, 0) + 1
                self._last[name] = max(str(record.get("timestamp", "")), self._last.get(name, ""))
        else:
            self.deleted.append((kind, record, _deletion(mark, mark.get(time))))

    def times(self) -> list[str]:
        every = [record for _, record in self.records] + [record for _, record, _ in self.deleted]
        return sorted(str(record["timestamp"]) for record in every if "timestamp" in record)

    def metadata(
        self, session: str, notes: Values, *, created: str | None = None, accessed: str | None = None, user: object = None,
        agents: list[str] | None = None, context: Values | None = None, **further: Any,
    ) -> Values:  # fmt: skip
        """Of `metadata.yaml`, as far as it can be told; `notes` stay for whoever writes the layout again."""
        times = self.times()
        if created is None and self._is_of_no_time():
            notes = {**notes, BORROWED: ["created_at"]}
        created = created or (times[0] if times else None)
        accessed = accessed or (times[-1] if times else created)
        speakers = [name for name in self.speakers if name not in ("user", "human", "system", UNKNOWN)]
        listed = [self._agent(name) for name in dict.fromkeys(speakers if agents is None else agents)]
        if self.tombstones:
            notes = {**notes, "tombstones": self.tombstones}
        told: Values = {"id": session, "created_at": created, "last_accessed": accessed, "status": "active",
                        "participants": {"user_id": user, "agents": listed}, "context": context or {}}  # fmt: skip
        told = {name: value for name, value in told.items() if value is not None}
        return {"version": 1, "session": {**told, **further, IMPORTED: notes}}

    def _is_of_no_time(self) -> bool:
        """Whether some of it does not say itself when it was: then nobody knows when the session began."""
        every = [record for _, record in self.records] + [record for _, record, _ in self.deleted]
        return any("timestamp" not in record or "timestamp" in record.get(IMPORTED, {}).get(ADDED, ()) for record in every)

    def _agent(self, name: str) -> Values:
        at = self._last.get(name)
        return {"agent_id": name, "message_count": self.speakers.get(name, 0), **({"last_active": at} if at else {})}


def entries_of(session: str, place: str, metadata: Values | None, found: Collected) -> Iterator[Read]:
    """The session; of a deleted turn its number stays. What is deleted comes last, when the session is there."""
    if metadata is not None:
        yield Read(0, made("session", session=session, place=place, metadata=metadata))
        if any(kind is TURN for kind, *_ in [*found.records, *found.deleted]):
            yield Read(0, made("file", session=session, place=place, file=TURN.file, head=_title(session, metadata["session"])))
    yield from _heads(session, place, found)
    places = [(TURN, _place_of(record)) for kind, record, _ in found.deleted if kind is TURN]
    turns = sorted([one for one in found.records if one[0] is TURN] + places, key=lambda one: int(one[1]["turn"]))
    for kind, record in [*turns, *(one for one in found.records if one[0] is not TURN)]:
        # As `made` gives it, of which there are many. What stands in it was looked at in lines.py, or is the text of a log.
        entry = {"entry": "memory", "session": session, "place": place, "file": kind.file, "type": kind.name, "record": record}
        yield Read(0, entry, is_sound=True)
    for entry in found.others:
        yield Read(0, {**entry, "session": session, "place": place})
    for kind, record, said in found.deleted:
        yield Read(0, deleted(session, kind, record, said))
    for mark in found.tombstones:
        at = next((mark[name] for name in ("deleted_at", "timestamp", "ts") if mark.get(name) is not None), None)
        yield Read(0, {"entry": GONE, "session": session, "mark": mark, "deletion": _deletion(mark, at)})
    for problem in found.problems:
        yield Read(0, None, problem)


def _deletion(mark: Mapping[str, Any], at: object) -> Values:
    return {"deleted_at": time_of(at), "reason": str(mark.get("reason") or SOFT),
            "deleted_by": str(mark.get("deleted_by") or "import")}  # fmt: skip


def deleted(session: str, kind: Kind, record: Values, said: Values) -> Entry:
    """A memory that comes as deleted. Not one of the kinds of entries.py: `removed.take_out` takes these out of a stream."""
    return {"entry": DELETED, "session": session, "file": kind.file, "type": kind.name, "record": record, "deletion": said}


def _place_of(record: Values) -> Values:
    stamp = {"timestamp": record["timestamp"]} if "timestamp" in record else {}
    return {"id": record["id"], "turn": record["turn"], **stamp, "type": DELETED_TURN, "content": ""}


def _title(session: str, said: Mapping[str, Any]) -> Values:
    """What stands above the turns: of when the conversation is, and not of when it was imported."""
    people = said["participants"]
    named = [people.get("user_id"), *(agent["agent_id"] for agent in people.get("agents", ()))]
    names = [name for name in named if isinstance(name, str) and name.isprintable()]
    started = str(said["created_at"]).partition(".")[0].removesuffix("Z").replace("T", " ") + " UTC" if "created_at" in said else ""
    return {"Session": session, "Started": started, "Participants": ", ".join(names), "Format-Version": str(FORMAT_VERSION)}


def _heads(session: str, place: str, found: Collected) -> Iterator[Read]:
    """The highest number that a deleted memory had, so that it is not given to another."""
    highest: dict[Kind, int] = {}
    gone = [(kind, record["id"]) for kind, record, _ in found.deleted]
    gone += [(kind, mark.get("id")) for mark in found.tombstones for kind in SESSION_KINDS]
    for kind, memory_id in gone:
        prefix, _, number = str(memory_id).rpartition("-")
        if kind is not TURN and prefix == kind.prefix and number.isascii() and number.isdigit() and len(number) < 16:
            highest[kind] = max(int(number), highest.get(kind, 0))
    for kind, last in highest.items():
        yield Read(0, made("file", session=session, place=place, file=kind.file, head={"version": 1, "last_id": last}))
