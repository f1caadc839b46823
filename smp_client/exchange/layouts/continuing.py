"""Which session a log belongs to, and which of its turns are there already: told by what the turns say, since a log has no ids.

A log goes on with a session where its turns, laid on those of the session, say the same: from the first one on, where the log has
only grown, or from a later one on, where it was cut off at its top. Some may differ, because somebody has changed them here. The
last one may have grown. Where nothing fits, the log is a session of its own; where its name is taken, with a number behind it.

What fits is given out as the turn that is known, with its number and its time, so that whoever merges finds it there.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import SMPError
from ...formats import format_of
from ...layout import ACTIVE, ARCHIVED
from ...privacy.placeholders import stands_for
from ...records import DECISION, FINDING, LEARNING, PREFERENCE, TURN, Kind, is_deleted
from .shaping import ADDED, IMPORTED, Values

if TYPE_CHECKING:
    from ...memory import Memory
    from ..entries import Entry

LAYOUT = "markdown-log"
_KINDS = (TURN, DECISION, FINDING, PREFERENCE, LEARNING)
_COMPARED = ("id", "turn", "timestamp", "speaker", "content", "updated_at", IMPORTED)
_ENOUGH, _LONG_CHARACTERS = 2, 80  # turns by which a log is known that begins later than its session, or one so long
_LITERAL = 8  # characters of a text beside placeholders, so that it is known by them
_EARLY = 8  # turns of a log by which its place is looked for
_ALIKE, _FEW_WORDS, _WORDS = 0.8, 6, 300  # the share of words that two texts have in common, where there are enough to tell
_NAME_CHARACTERS = 58  # so that a number fits behind it


@dataclass(frozen=True)
class Incoming:
    """A turn of a log."""

    speaker: str
    text: str
    time: str | None = None  # which it says itself, in full
    clock: str | None = None  # only the time of day, as it stands there
    stamp: str | None = None  # which it would have as a new one


@dataclass
class Known:
    """A turn of a session, in every version that is kept of it: as it stands, and as it was before it was deleted or anonymised."""

    number: int
    versions: list[Values] = field(default_factory=list)
    stamp: str | None = None
    is_given: bool = False  # in this same import: it cannot be changed any more
    purged_at: str | None = None

    @property
    def is_gap(self) -> bool:
        """Only its number is left, or not even that."""
        return not self.versions


class Pair(NamedTuple):
    """A turn of a log, and the one that stands in its place. Of one that was changed here, only number and time are meant."""

    known: Known
    value: Values | None
    has_grown: bool = False
    is_alike: bool = False  # somebody seems to have changed a few words of it

    @property
    def counts(self) -> bool:
        return self.value is not None or self.is_alike

    @property
    def is_same(self) -> bool:
        return self.value is not None and not self.has_grown


@dataclass
class Overlap:
    pairs: list[Pair] = field(default_factory=list)

    @property
    def rank(self) -> tuple[int, int, int]:
        """The more turns fit, and the more of them as they are, the better."""
        return (sum(pair.value is not None for pair in self.pairs), sum(pair.is_same for pair in self.pairs),
                sum(pair.counts for pair in self.pairs))  # fmt: skip


@dataclass
class _Session:
    """What is known of a session: of the tree, and of what was read in this same import."""

    turns: dict[int, Known] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    purged: frozenset[str] = frozenset()
    extracted: dict[tuple[str, int, str], str] = field(default_factory=dict)  # by kind, turn and text
    given: set[str] = field(default_factory=set)  # ids that were given out in this import
    is_given: bool = False  # a log that was read before has told what the session is

    def overlap(self, turns: Sequence[Incoming]) -> Overlap | None:
        """With the turns that came from logs: what was said here in between is no part of them. Or with all, where others have told
        the same conversation before."""
        all_ = {number for number, one in self.turns.items() if not one.is_gap}
        of_logs = {number for number in all_ if any(map(is_of_log, self.turns[number].versions))}
        wanted = [of_logs, all_] if of_logs and of_logs != all_ else [all_]
        found = [overlap for one in wanted if (overlap := overlap_of(self._sequence(one), turns))]
        return max(found, key=lambda one: one.rank, default=None)

    def _sequence(self, wanted: set[int]) -> list[Known]:
        """In order, with gaps for those that are gone."""
        last = max(wanted, default=0)
        gaps = {number for number in range(1, last) if number not in self.turns} if len(wanted) * 2 > last else set()
        gaps |= {number for number, one in self.turns.items() if one.is_gap}
        return [self.turns.get(number) or Known(number) for number in sorted(wanted | gaps)]


class Placed:
    """Where a log goes. `pairs` are as many as overlap; what is behind them has numbers that go on."""

    def __init__(self, name: str, session: _Session, overlap: Overlap, redact: Redact) -> None:
        self.name, self._session, self._redact = name, session, redact
        self.pairs = overlap.pairs
        self.is_first = not session.is_given
        self._last = max(session.turns, default=0)
        self._is_new = not session.turns
        self._grown = {pair.known.number for pair in self.pairs if pair.has_grown}
        session.is_given = True

    def pair(self, place: int) -> Pair | None:
        return self.pairs[place] if place < len(self.pairs) else None

    def number(self, wanted: int) -> int:
        """For a turn that is not there; the one that it would like to have, unless that is behind others."""
        self._last = wanted if self._is_new or wanted > self._last else self._last + 1
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
        text = self._redact(text)
        if found := self._session.extracted.get((kind.prefix, turn, text)):
            return found
        of_turn = self._session.extracted.items() if turn in self._grown else ()
        return next((memory_id for (prefix, at, said), memory_id in of_turn
                     if (prefix, at) == (kind.prefix, turn) and text.startswith(said)), None)  # fmt: skip

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
        found = [(overlap, name) for name in self._like(wanted) if (overlap := self._session(name).overlap(clean))]
        best = max(found, key=lambda one: one[0].rank, default=None)
        overlap, name = best or (Overlap(), self._free(wanted))
        if name != wanted:
            self.notes.append(f"{where} → {name}: {wanted} is another conversation.")
        return Placed(name, self._session(name), overlap, self._redact)

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
    from ...maintain.purged import memories
    from ...privacy.standing import Contents, evicted
    from ...privacy.store import Store

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


def _kind(file: str) -> Kind | None:
    return next((kind for kind in _KINDS if kind.file == file), None)


def _learn(session: _Session, kind: Kind, value: Values) -> None:
    session.ids.add(str(value.get("id")))
    if kind is not TURN:
        if _notes(value).get("extracted") and isinstance(turn := value.get("turn_ref"), int):
            session.extracted.setdefault((kind.prefix, turn, str(value.get(kind.text))), str(value["id"]))
        return
    if not isinstance(number := value.get("turn"), int):
        return  # what stands above the turns can be among the deleted ones
    one = session.turns.setdefault(number, Known(number))
    stamp = value.get("timestamp")
    one.stamp = one.stamp or (stamp if isinstance(stamp, str) else None)
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


def _notes(value: Mapping[str, Any]) -> Mapping[str, Any]:
    notes = value.get(IMPORTED)
    return notes if isinstance(notes, dict) else {}


def is_of_log(value: Mapping[str, Any]) -> bool:
    return _notes(value).get("layout") == LAYOUT


# Laying one on the other.


def overlap_of(known: Sequence[Known], turns: Sequence[Incoming]) -> Overlap | None:
    """The best one; None where they are two conversations."""
    laid = [(one, start > 0) for start in _starts(known, turns) if (one := _laid(known, turns, start))]
    found = [one for one, is_cut in laid if _is_one(one, turns, is_cut=is_cut)]
    return max(found, key=lambda one: one.rank, default=None)


def _starts(known: Sequence[Known], turns: Sequence[Incoming]) -> list[int]:
    """Where the first turn of the log could stand: as the first one, or as far before one as another is that says the same."""
    places: dict[str, list[int]] = {}
    for place, one in enumerate(known):
        for text in {str(value.get("content")) for value in one.versions}:
            places.setdefault(text, []).append(place)
    later = {place - early for early, turn in enumerate(turns[:_EARLY]) for place in places.get(turn.text, ()) if place > early}
    return [0, *sorted(later)]


def _is_one(laid: Overlap, turns: Sequence[Incoming], *, is_cut: bool) -> bool:
    """Most of it fits; what differs was changed here: it says so, or the conversation goes on behind it. Where the log begins later
    than what it is laid on, so much must fit that it is not by chance."""
    said = [pair for pair in laid.pairs if not pair.known.is_gap]
    fits = [place for place, pair in enumerate(laid.pairs) if pair.counts]
    if not said:  # whoever purges all turns of a log does not want them back
        return bool(laid.pairs) and all(_is_of_gap(pair.known, turn) or _is_before_purge(pair.known, turn)
                                        for pair, turn in zip(laid.pairs, turns, strict=False))  # fmt: skip
    if len(fits) * 2 <= len(said) or sum(pair.is_alike for pair in laid.pairs) * 2 > len(fits):
        return False
    for place, pair in enumerate(laid.pairs):
        if not pair.counts and not pair.known.is_gap and not _is_changed(pair.known, turns[place], goes_on=place < fits[-1]):
            return False
    return not is_cut or len(fits) >= _ENOUGH or any(len(turns[place].text) >= _LONG_CHARACTERS for place in fits)


def _is_changed(known: Known, turn: Incoming, *, goes_on: bool) -> bool:
    """Whether it is the same turn, though it does not say the same."""
    for value in known.versions:
        is_in_place = goes_on or (turn.time is not None and turn.time == _own_time(value))
        if "updated_at" in value or (is_in_place and value.get("speaker") == turn.speaker):
            return True
    return False


def _laid(known: Sequence[Known], turns: Sequence[Incoming], start: int) -> Overlap | None:
    """Turn by turn; None as soon as too little fits. What is gone here stands for a turn of the log, unless that is the next."""
    laid, rest, before, spare = Overlap(), iter(range(start, len(known))), None, _EARLY
    last = max((place for place, one in enumerate(known) if not one.is_gap), default=-1)
    for turn in turns:
        for place in rest:
            one = known[place]
            if one.is_gap and _stands_for_none(one, known[place + 1 :], turn, before, is_behind=place > last >= 0):
                continue
            pair = _pair(one, turn, is_last=place == last)
            laid.pairs.append(pair)
            spare += 1 if pair.counts else 0 if one.is_gap else -1
            before = one.stamp or before
            break
        else:
            break
        if spare < 0:
            return None
    return laid


def _pair(one: Known, turn: Incoming, *, is_last: bool) -> Pair:
    value = next((value for value in one.versions if _fits(value, turn)), None)
    if value is None and is_last and not one.is_given and one.versions and _fits(one.versions[0], turn, grown=True):
        return Pair(one, one.versions[0], has_grown=True)
    return Pair(one, value, is_alike=value is None and any(_is_alike(version, turn) for version in one.versions))


def _is_alike(value: Mapping[str, Any], turn: Incoming) -> bool:
    """Whether one is the other with a few words changed."""
    words = turn.text.split()[:_WORDS]
    if value.get("speaker") != turn.speaker or not _is_of_time(value, turn) or len(words) < _FEW_WORDS:
        return False
    both = difflib.SequenceMatcher(None, str(value.get("content")).split()[:_WORDS], words, autojunk=False)
    return both.real_quick_ratio() >= _ALIKE and both.quick_ratio() >= _ALIKE and both.ratio() >= _ALIKE


def _stands_for_none(gap: Known, behind: Sequence[Known], turn: Incoming, before: str | None, *, is_behind: bool) -> bool:
    if is_behind:  # it may as well be one that was said here: only the time can tell
        return not _is_of_gap(gap, turn, before)
    following = next((one for one in behind if not one.is_gap), None)
    return following is not None and any(_fits(value, turn) for value in following.versions)


def _is_of_gap(gap: Known, turn: Incoming, before: str | None = None) -> bool:
    if gap.stamp is None or turn.time:
        return gap.stamp is not None and gap.stamp == turn.time
    # A time that a file was written at has no fraction; what is said here has.
    return gap.stamp in (turn.stamp, before) or "." not in gap.stamp


def _is_before_purge(gap: Known, turn: Incoming) -> bool:
    at = turn.time or turn.stamp
    return gap.purged_at is not None and at is not None and at <= gap.purged_at


def _fits(value: Mapping[str, Any], turn: Incoming, *, grown: bool = False) -> bool:
    """Says the same, or said so before it was anonymised."""
    text, speaker = str(value.get("content")), str(value.get("speaker"))
    says = (turn.text.startswith(text) and len(turn.text) > len(text) > 0) if grown else turn.text == text
    says = says or (not grown and stands_for(text, turn.text, literal_characters=_LITERAL))
    return says and _is_of_time(value, turn) and (speaker == turn.speaker or stands_for(speaker, turn.speaker))


def _is_of_time(value: Mapping[str, Any], turn: Incoming) -> bool:
    own, clock = _own_time(value), _notes(value).get("time")
    if turn.time and own:
        return turn.time == own
    return not (turn.clock and clock) or turn.clock == clock


def _own_time(value: Mapping[str, Any]) -> str | None:
    stamp = value.get("timestamp")
    return stamp if isinstance(stamp, str) and has_own_time(value) else None


def has_own_time(value: Mapping[str, Any]) -> bool:
    """Whether a turn said itself when it was."""
    return "timestamp" not in _notes(value).get(ADDED, ())
