"""Which session a log belongs to: one that says the same (see overlapping.py), be it of its name, or of any other where nearly all
of the log is in it. Where nothing fits, the log is a session of its own; where its name is taken, with a number behind it.

What fits is given out as the turn that is known, with its number and its time, so that whoever merges finds it there.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ....errors import SMPError
from ....layout import ACTIVE, ARCHIVED
from ....records import DECISION, FINDING, LEARNING, PREFERENCE, TURN, Kind, is_deleted
from ....session_files import METADATA
from ....text.format import format_of
from ...identity import LOG, is_from_log, notes_of
from ..shaping import IMPORTED, Values
from .overlapping import Incoming, Known, Overlap, joined, overlap_of

if TYPE_CHECKING:
    from ....memory import Memory
    from ...entries import Entry

LAYOUT = LOG
_KINDS = (TURN, DECISION, FINDING, PREFERENCE, LEARNING)
_COMPARED = ("id", "turn", "timestamp", "speaker", "content", "updated_at", IMPORTED)
_NAME_CHARACTERS = 58  # so that a number fits behind it
# By so much that is the same, a log is known under another name; and in so many sessions at most one text is looked for.
_RENAMED_LEAST, _RENAMED_TURNS, _RENAMED_CHARACTERS, _SESSIONS_OF_TEXT = 2, 4, 200, 8
Texts = dict[int, list[str]]  # by the hash of what a turn says: the sessions that have it


@dataclass
class _Session:
    """What is known of a session: of the tree, and of what was read in this same import."""

    turns: dict[int, Known] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    purged: frozenset[str] = frozenset()
    extracted: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)  # by kind and turn: text, id
    given: set[str] = field(default_factory=set)  # ids that were given out in this import
    is_given: bool = False  # a log that was read before has told what the session is

    def overlap(self, turns: Sequence[Incoming], redact: Redact) -> Overlap | None:
        """With the turns that came from logs: what was said here in between is no part of them. Or with all, where others have told
        the same conversation before."""
        all_ = {number for number, one in self.turns.items() if not one.is_gap}
        of_logs = {number for number in all_ if any(map(is_from_log, self.turns[number].versions))}
        sequences = [self._sequence(one) for one in ([of_logs, all_] if of_logs and of_logs != all_ else [all_])]
        gone = [one for _, one in sorted(self.turns.items()) if one.is_gap and one.stamp and "." not in one.stamp] if all_ else []
        if gone and (not of_logs or _were_purged(turns, gone)):  # all that is in the log: its turns had times without a fraction
            sequences.append(gone)
        given = joined([self.turns[number] for number in sorted(of_logs or all_)], turns, redact)
        found = [overlap for one in sequences if (overlap := overlap_of(one, given))]
        best = max(found, key=lambda one: one.rank, default=None)
        places = [0, *itertools.accumulate(turn.span for turn in given)]
        return best and Overlap({places[place]: pair for place, pair in best.pairs.items()})

    def _sequence(self, wanted: set[int]) -> list[Known]:
        """In order, with gaps for those that are gone."""
        last = max(wanted, default=0)
        gaps = {number for number in range(1, last) if number not in self.turns} if len(wanted) * 2 > last else set()
        gaps |= {number for number, one in self.turns.items() if one.is_gap}
        return [self.turns.get(number) or Known(number) for number in sorted(wanted | gaps)]


def _were_purged(turns: Sequence[Incoming], gone: Sequence[Known]) -> bool:
    at = min(one.purged_at or "" for one in gone)
    return len(turns) <= len(gone) and all((turn.time or turn.stamp or at) <= at for turn in turns)


class Placed:
    """Where a log goes. `pairs` are those turns that are there; all others get numbers that go on."""

    def __init__(self, name: str, session: _Session, overlap: Overlap, redact: Redact) -> None:
        self.name, self._session, self._redact = name, session, redact
        self.pairs = overlap.pairs
        self.is_first = not session.is_given
        self._last = max(session.turns, default=0)
        self._is_new = not session.turns
        self._grown = {pair.known.number for pair in self.pairs.values() if pair.has_grown}
        session.is_given = True

    def number(self, own: int | None) -> int:
        """For a turn that is not there: the one that it has there, if it has one that is behind the others."""
        self._last = own if own is not None and (self._is_new or own > self._last) else self._last + 1
        return self._last

    def give(self, kind: Kind, record: Values) -> bool:
        """Whether it is to be given out: once in an import."""
        memory_id = str(record["id"])
        if memory_id in self._session.given:
            return False
        self._session.given.add(memory_id)
        _give(self._session, kind, record)
        return True

    # The ids of what is taken out of the turns: see extracting.Names.

    def known(self, kind: Kind, turn: int, text: str) -> str | None:
        text, of_turn = self._redact(text), self._session.extracted.get((kind.prefix, turn), {})
        if text in of_turn or turn not in self._grown:
            return of_turn.get(text)
        return next((memory_id for said, memory_id in of_turn.items() if text.startswith(said)), None)

    def is_taken(self, memory_id: str, *, by_purged: bool) -> bool:
        return memory_id in self._session.ids or (by_purged and memory_id in self._session.purged)


class Redact:
    """A text as a write would leave it: what is in the tree has no secrets any more."""

    def __init__(self, memory: Memory | None) -> None:
        self._memory = memory

    def __call__(self, text: str) -> str:
        return self._memory.everywhere.scope.redaction.redacted_text(text)[0] if self._memory else text


class Continuing:
    """What one import knows; without a memory only what it has read itself."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory
        self._redact = Redact(memory)
        self._sessions: dict[str, _Session] = {}
        self._names: set[str] = set()
        self._texts: Texts | None = None  # of the tree; only where it is needed
        self._given: Texts = {}  # of this import
        self.notes: list[str] = []
        if memory is not None and memory.root.is_dir():
            self._names = {name for place in (ACTIVE, ARCHIVED) for name in memory.tree.list(place)}

    def note(self, entry: Entry) -> None:
        """What another layout holds, and stands in no file yet."""
        session = self._session(entry["session"]) if entry["entry"] in ("memory", "session") else None
        if session and entry["entry"] == "session":
            session.is_given = True
        elif session and entry["file"] == TURN.file:
            session.given.add(str(entry["record"]["id"]))
            _give(session, TURN, entry["record"])

    def placed(self, wanted: str, turns: Sequence[Incoming], where: str) -> Placed:
        """Where a log of these turns goes that would like to have this name."""
        clean = [replace(one, speaker=self._redact(one.speaker), text=self._redact(one.text)) for one in turns]
        found = self._overlaps(self._like(wanted), clean)
        is_named_so = bool(found)
        if not found:
            others = self._overlaps(self._saying(clean), clean)
            found = [one for one in others if one[0].is_most_of(clean, _RENAMED_TURNS, _RENAMED_CHARACTERS)]
        overlap, name = max(found or [(Overlap(), self._free(wanted))], key=lambda one: one[0].rank)
        if name != wanted:
            why = f"{wanted} is another conversation" if is_named_so or not found else "that is where this conversation stands"
            self.notes.append(f"{where} → {name}: {why}.")
        if overlap.inserted:
            turn = "1 turn stands" if overlap.inserted == 1 else f"{overlap.inserted:,} turns stand"
            self.notes.append(f"{where}: {turn} between others there, and came behind all of them in {name}.")
        if held := len(overlap.pairs) - len({pair.known.number for pair in overlap.pairs.values()}):
            self.notes.append(f"{where}: {held + 1:,} turns stand where fewer were purged here; which is new cannot be told, and"
                              " none is taken in.")  # fmt: skip
        for one in clean:
            _note_text(self._given, one.text, name)
        return Placed(name, self._session(name), overlap, self._redact)

    def _overlaps(self, names: Iterable[str], turns: Sequence[Incoming]) -> list[tuple[Overlap, str]]:
        return [(overlap, name) for name in names if (overlap := self._session(name).overlap(turns, self._redact))]

    def speakers(self, wanted: str) -> frozenset[str]:
        """Who spoke in the logs that had this name before: it may be told no more when a log has grown."""
        turns = (one for name in self._like(wanted) for one in self._session(name).turns.values())
        return frozenset(str(value.get("speaker")).lower() for one in turns for value in one.versions if is_from_log(value))

    def _saying(self, turns: Sequence[Incoming]) -> list[str]:
        """The sessions from logs in which the most of these turns stand, of whatever name."""
        if self._texts is None:
            self._texts = {}
            if self._memory is not None:
                for name in self._names:
                    _index(self._memory, name, self._texts)
        counts = Counter(name for turn in turns for texts in (self._texts, self._given) for name in texts.get(hash(turn.text), ()))
        return [name for name, count in counts.most_common(_SESSIONS_OF_TEXT) if count >= _RENAMED_LEAST]

    def _like(self, wanted: str) -> list[str]:
        """The sessions that have this name, or have it with a number."""
        form = re.compile(rf"{re.escape(wanted)}|{re.escape(wanted[:_NAME_CHARACTERS])}-([2-9]|[1-9]\d+)")
        found = {name for name in (*self._names, *self._sessions) if form.fullmatch(name)}
        return sorted(found, key=lambda name: (name != wanted, len(name), name))

    def _free(self, wanted: str) -> str:
        """The first that no conversation has. That of one that was deleted or purged whole is free: it is refused when it comes."""
        names = itertools.chain([wanted], (f"{wanted[:_NAME_CHARACTERS]}-{number}" for number in itertools.count(2)))
        return next(name for name in names if not self._is_taken(name))

    def _is_taken(self, name: str) -> bool:
        return (name in self._names or name in self._sessions) and bool(self._session(name).turns)

    def _session(self, name: str) -> _Session:
        if name not in self._sessions:
            self._sessions[name] = _Session()
            if self._memory is not None and name in self._names:
                _load(self._memory, name, self._sessions[name])
        return self._sessions[name]


def _load(memory: Memory, name: str, session: _Session) -> None:
    """All that a tree keeps of a session."""
    from ....maintain.purged import memories
    from ....privacy.deleting.standing import Contents, evicted
    from ....privacy.deleting.store import Store

    contents, store = Contents(memory, name), Store(memory, name)
    for one in evicted(memory, name, []):
        if kind := _kind(one.file):
            _learn(session, kind, one.value)
    for kind in _KINDS if contents.is_there else ():
        with suppress(SMPError, OSError):
            for record in format_of(kind).parse(contents.read(kind.file)).records:
                if record.has_id:
                    _learn(session, kind, record.value)
    with suppress(SMPError, OSError):
        members = store.members()
        for item in store.items():
            with suppress(SMPError, OSError):
                if kind := _kind(item["file"]):
                    _learn(session, kind, store.copy(item, members)[1])
    purged = memories(memory.tree, name)
    session.purged = frozenset(purged)
    for number, known in session.turns.items():
        known.purged_at = purged.get(TURN.memory_id(number))


def _index(memory: Memory, name: str, texts: Texts) -> None:
    """What the turns of a session say, where it came from a log."""
    from ....privacy.deleting.standing import Contents

    with suppress(SMPError, OSError):
        contents = Contents(memory, name)
        if contents.is_there and LAYOUT.encode() in contents.read(METADATA):
            for record in format_of(TURN).parse(contents.read(TURN.file)).records:
                if is_from_log(record.value):
                    _note_text(texts, str(record.value.get("content")), name)


def _note_text(texts: Texts, text: str, name: str) -> None:
    names = texts.setdefault(hash(text), [])
    if len(names) < _SESSIONS_OF_TEXT and name not in names:
        names.append(name)


def _kind(file: str) -> Kind | None:
    return next((kind for kind in _KINDS if kind.file == file), None)


def _learn(session: _Session, kind: Kind, value: Values) -> None:
    session.ids.add(str(value.get("id")))
    if kind is not TURN:
        if notes_of(value).get("extracted") and isinstance(turn := value.get("turn_ref"), int):
            session.extracted.setdefault((kind.prefix, turn), {}).setdefault(str(value.get(kind.text)), str(value["id"]))
        return
    if not isinstance(number := value.get("turn"), int):
        return  # what stands above the turns can be among the deleted ones
    one = session.turns.setdefault(number, Known(number))
    stamp = value.get("timestamp")
    one.stamp = one.stamp or (stamp if isinstance(stamp, str) else None)
    one.is_deleted = one.is_deleted or is_deleted(TURN, value)
    if not is_deleted(TURN, value):
        one.versions.append(value)


def _give(session: _Session, kind: Kind, record: Values) -> None:
    """Learns what is given out; of a turn no more than is compared, since all of an import are held."""
    if kind is not TURN:
        _learn(session, kind, record)
        return
    known = session.turns.setdefault(record["turn"], Known(record["turn"]))
    known.is_given, known.stamp = True, known.stamp or record.get("timestamp")
    if not is_deleted(TURN, record) and all(value.get("content") != record["content"] for value in known.versions):
        known.versions.insert(0, {name: record[name] for name in _COMPARED if name in record})
