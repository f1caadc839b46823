"""Which turns of a log are which of a session: told by what they say, since a log has no ids.

Turns that say the same are the same, in their order. What stands in one place of both, between turns that are the same, is one turn
that was changed or purged here; and the last one here may have grown. Everything else in the log is new. They are one conversation
where more than half of what they share fits, and unless both go on behind it, each in its own way.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from ....privacy.anonymity.placeholders import stands_for
from ...identity import notes_of
from ..shaping import ADDED, Values

_ENOUGH, _LONG_CHARACTERS = 2, 12  # turns by which a log is known that begins later than its session, or one so long
_LITERAL = 8  # characters of a text beside placeholders, so that it is known by them
_BETWEEN = ("", "---", "***", "___")
_STRANGE = 8  # turns that may differ, one behind the other, until it is another conversation
_ALIKE, _FEW_WORDS, _WORDS = 0.8, 6, 300  # the share of words that two texts have in common, where there are enough to tell


@dataclass(frozen=True)
class Incoming:
    """A turn of a log."""

    speaker: str
    text: str
    time: str | None = None  # which it says itself, in full
    clock: str | None = None  # only the time of day, as it stands there
    stamp: str | None = None  # which it would have as a new one
    lines: Sequence[str] = ()  # of its text, and, with who speaks, as they stand there
    raw: Sequence[str] = ()
    span: int = 1  # how many turns of the log it is: see joined


@dataclass
class Known:
    """A turn of a session, in every version that is kept of it: as it stands, and as it was before it was deleted or anonymised."""

    number: int
    versions: list[Values] = field(default_factory=list)
    stamp: str | None = None
    is_given: bool = False  # in this same import: it cannot be changed any more
    purged_at: str | None = None
    is_deleted: bool = False  # it can be restored, and nobody has changed it

    @property
    def is_gap(self) -> bool:
        """Only its number is left, or not even that."""
        return not self.versions

    @property
    def is_updated(self) -> bool:
        return any("updated_at" in value for value in self.versions)


class Pair(NamedTuple):
    """A turn of a log, and the one that stands in its place. Of one that was changed here, only number and time are meant."""

    known: Known
    value: Values | None
    has_grown: bool = False
    is_alike: bool = False  # somebody seems to have changed a few words of it
    span: int = 1

    @property
    def counts(self) -> bool:
        return self.value is not None or self.is_alike

    @property
    def is_same(self) -> bool:
        return self.value is not None and not self.has_grown


@dataclass
class Overlap:
    pairs: dict[int, Pair] = field(default_factory=dict)  # by the place in the log

    @property
    def rank(self) -> tuple[int, int, int]:
        """The more turns fit, and the more of them as they are, the better."""
        pairs = self.pairs.values()
        fits = sum(pair.value is not None for pair in pairs)
        return fits, sum(pair.is_same for pair in pairs), sum(pair.counts for pair in pairs)

    @property
    def inserted(self) -> int:
        """How many turns of the log stand before one that is known, and are not."""
        return max(self.pairs, default=-1) + 1 - len(self.pairs)

    def is_most_of(self, turns: Sequence[Incoming], least: int, characters: int) -> bool:
        """Whether it is the same log under another name: nearly all that it says is there, and that is enough to tell."""
        fits = [turns[place] for place, pair in self.pairs.items() if pair.counts]
        said = sum(len(turn.text) for turn in fits)
        return len(fits) * 5 >= (max(self.pairs) + 1) * 4 and len(fits) >= _ENOUGH and (len(fits) >= least or said >= characters)


def overlap_of(known: Sequence[Known], turns: Sequence[Incoming]) -> Overlap | None:
    """The best one; None where they are two conversations."""
    laying = _Laying(known, turns)
    ways = [laying.in_order()]
    ways += [at_end] if (at_end := laying.at_the_end()) not in ({}, ways[0]) else []
    found = [one for matched in ways if (one := laying.laid(matched)) is not None]
    return max(found, key=lambda one: one.rank, default=None)


def joined(known: Sequence[Known], turns: Sequence[Incoming], redact: Callable[[str], str]) -> list[Incoming]:
    """The turns of a log as they were when it was read before: a name that had spoken only once may not have been known as that of
    a speaker then, and what it said was part of the turn before it."""
    texts, begins = {turn.text for turn in turns}, dict[tuple[str, str], list[int]]()
    for place, turn in enumerate(turns):
        if turn.raw:
            begins.setdefault((turn.speaker, turn.text.partition("\n")[0]), []).append(place)
    whole: dict[int, Incoming] = {}
    for number, one in enumerate(known, 1):
        for value in one.versions:
            text = str(value.get("content"))
            is_one = text in texts or "\n" not in text
            places = [] if is_one else begins.get((str(value.get("speaker")), text.partition("\n")[0]), [])
            for place in places[:_STRANGE]:
                if place not in whole and (found := _joined_as(text, turns, place, redact, is_last=number == len(known))):
                    whole[place] = found
                    break
    result, place = list[Incoming](), 0
    while place < len(turns):
        result.append(whole.get(place, turns[place]))
        place += result[-1].span
    return result


def _joined_as(text: str, turns: Sequence[Incoming], first: int, redact: Callable[[str], str], *, is_last: bool) -> Incoming | None:
    if turns[first].text.startswith(text):  # it has only grown
        return None
    lines = list(turns[first].lines)
    for place in range(first + 1, len(turns)):
        lines += turns[place].raw
        said = redact(trimmed("\n".join(lines)))
        if said == text or (is_last and said.startswith(text)):
            return replace(turns[first], text=said, span=place - first + 1)
        if not turns[place].raw or not text.startswith(said):
            return None
    return None


def trimmed(text: str) -> str:
    """Without the blank lines and rules that separate turns."""
    lines = text.split("\n")
    end = next((number for number in range(len(lines), 0, -1) if lines[number - 1].strip() not in _BETWEEN), 0)
    start = next((number for number, line in enumerate(lines[:end]) if line.strip()), end)
    return "\n".join(lines[start:end])


class _Laying:
    """One laid on the other. A turn is known by its place, there and here."""

    def __init__(self, known: Sequence[Known], turns: Sequence[Incoming]) -> None:
        self._known, self._turns = known, turns
        self._there = [(turn.speaker, turn.text) for turn in turns]
        wanted = frozenset(self._there)
        self._here = [_key(one, wanted) for one in known]
        self._last = max((place for place, one in enumerate(known) if not one.is_gap), default=-1)

    def _says_same(self, here: int, there: int) -> bool:
        return self._here[here] == self._there[there] and any(_is_of_time(value, self._turns[there])
                                                             for value in self._known[here].versions)  # fmt: skip

    # Which say the same.

    def in_order(self) -> dict[int, int]:
        """By the place there, the place here: as long as they go together; then those whose words stand there only once, and
        between them again; and what is left, one behind the other. No slower than sorting them."""
        found: dict[int, int] = {}
        todo = [(0, len(self._here), 0, len(self._there))]
        while todo:
            here, here_end, there, there_end = todo.pop()
            while here < here_end and there < there_end and self._says_same(here, there):
                found[there] = here
                here, there = here + 1, there + 1
            anchors = self._anchors(range(here, here_end), range(there, there_end))
            if not anchors:
                found |= self._next_ones(range(here, here_end), range(there, there_end))
                continue
            found |= {there: here for here, there in anchors}
            ends = [*anchors, (here_end, there_end)]
            todo.append((here, ends[0][0], there, ends[0][1]))
            todo += [(one[0] + 1, other[0], one[1] + 1, other[1]) for one, other in pairwise(ends)]
        return found

    def _anchors(self, here: range, there: range) -> list[tuple[int, int]]:
        """The longest row of turns that stand there once and here once."""
        counts, others = Counter(self._here[place] for place in here), Counter(self._there[place] for place in there)
        places = {self._there[place]: place for place in there if others[self._there[place]] == 1}
        once = ((place, places.get(key)) for place in here if (key := self._here[place]) is not None and counts[key] == 1)
        pairs = [(one, other) for one, other in once if other is not None and self._says_same(one, other)]
        ends: list[int] = []  # of rows by their length: the earliest place there that one ends with
        before: list[int] = []
        last: list[int] = []
        for number, (_, place) in enumerate(pairs):
            length = bisect_left(ends, place)
            before.append(last[length - 1] if length else -1)
            ends[length : length + 1], last[length : length + 1] = [place], [number]
        row: list[tuple[int, int]] = []
        number = last[-1] if last else -1
        while number >= 0:
            row.append(pairs[number])
            number = before[number]
        return row[::-1]

    def _next_ones(self, here: range, there: range) -> dict[int, int]:
        places: dict[Any, list[int]] = {}
        for place in here:
            places.setdefault(self._here[place], []).append(place)
        found: dict[int, int] = {}
        following = here.start
        for place in there:
            listed = places.get(self._there[place], [])
            at = bisect_left(listed, following)
            if at < len(listed) and self._says_same(listed[at], place):
                found[place] = listed[at]
                following = listed[at] + 1
        return found

    def at_the_end(self) -> dict[int, int]:
        """The longest end here that the log begins with: one that was cut off, and says the same again and again."""
        there, shorter, length = self._there, [0] * len(self._there), 0
        for place in range(1, len(there)):
            while length and there[place] != there[length]:
                length = shorter[length - 1]
            length += there[place] == there[length]
            shorter[place] = length
        length = 0
        for key in self._here:
            while length and (length == len(there) or key != there[length]):
                length = shorter[length - 1]
            length += key == there[length]
        first = len(self._here) - length
        return {place: first + place for place in range(length) if self._says_same(first + place, place)}

    # What is between them.

    def laid(self, matched: dict[int, int]) -> Overlap | None:
        pairs = {there: self._pair(here, there) for there, here in matched.items()}
        moved = self._moved(matched)
        pairs |= {there: self._pair(here, there) for there, here in moved.items()}
        taken = {*matched.values(), *moved.values()}
        here = there = 0
        for place in sorted(matched):
            rest = [one for one in range(here, matched[place]) if one not in taken]
            new = [one for one in range(there, place) if one not in pairs]
            pairs |= self._between(rest, new, is_first=there == 0)
            here, there = matched[place] + 1, place + 1
        behind = self._behind([one for one in range(here, len(self._known)) if one not in taken],
                              [one for one in range(there, len(self._turns)) if one not in pairs])  # fmt: skip
        if behind is None:
            return None
        laid = Overlap(dict(sorted((pairs | behind).items())))
        return laid if self._is_one(laid) else None

    def _moved(self, matched: Mapping[int, int]) -> dict[int, int]:
        """What says the same in another place: put in between there, it came behind the others here. And what was purged, by its
        own time."""
        taken, first = set(matched.values()), min(matched.values(), default=len(self._here))
        rest: dict[Any, list[int]] = {}
        for place in range(len(self._here) - 1, first, -1):
            if place not in taken:
                rest.setdefault(self._here[place], []).append(place)
        gaps = {one.stamp: place for place, one in enumerate(self._known) if one.is_gap and one.stamp}
        moved: dict[int, int] = {}
        for place, turn in enumerate(self._turns):
            listed = rest.get(self._there[place])
            if place in matched:
                continue
            if listed and self._says_same(listed[-1], place):
                moved[place] = listed.pop()
            elif turn.time in gaps:
                moved[place] = gaps.pop(turn.time)
        return moved

    def _between(self, rest: list[int], new: list[int], *, is_first: bool) -> dict[int, Pair]:
        """What stands in one place. Where there are not as many here as there, only what surely is one turn; and all that may be
        one that was purged is held back. Before the first that fits, the log may have lost something: from there backwards."""
        is_even = len(rest) == len(new)
        if len(rest) > len(new):
            sure = [one for one in rest if self._known[one].is_gap or self._known[one].is_updated]
            rest = rest if is_first and len(sure) < len(new) else sure
        if new and rest and len(new) > len(rest) and all(self._known[one].is_gap for one in rest):
            rest = [*rest, *[rest[-1]] * (len(new) - len(rest))]
        pairs = {}
        for here, there in zip(reversed(rest), reversed(new), strict=False) if is_first else zip(rest, new, strict=False):
            pair, one = self._pair(here, there), self._known[here]
            is_same = one.is_gap and self._turns[there].time in (None, one.stamp)
            if is_same or pair.counts or _is_changed(one, self._turns[there], goes_on=is_even or is_first):
                pairs[there] = pair
        return pairs

    def _behind(self, rest: list[int], new: list[int]) -> dict[int, Pair] | None:
        """Behind the last one that says the same. None where both go on, and not in the same way."""
        pairs: dict[int, Pair] = {}
        following, strange = (here for here in rest), _STRANGE
        last = max((here for here in rest if not self._known[here].is_gap), default=-1)
        for there in new:
            if last >= 0 and self._pair(last, there, is_last=True).has_grown:  # whatever went away before it there
                following = (here for here in rest if here >= last)
            for here in following:
                one = self._known[here]
                if one.is_gap and self._stands_for_none(here, there, is_last=here > self._last >= 0):
                    continue
                pairs[there] = self._pair(here, there, is_last=here == last)
                strange -= not one.is_gap and not pairs[there].counts
                break
            else:
                break
            if strange < 0:
                return None
        fits = max((there for there, pair in pairs.items() if pair.counts), default=-1)
        is_one_way = all(pair.known.is_gap or pair.counts or _is_changed(pair.known, self._turns[there], goes_on=there < fits)
                         for there, pair in pairs.items())  # fmt: skip
        return pairs if is_one_way else None

    def _stands_for_none(self, here: int, there: int, *, is_last: bool) -> bool:
        if is_last:  # it may as well be one that was said here: only the time can tell
            before = next((one.stamp for one in reversed(self._known[max(0, here - _STRANGE) : here]) if one.stamp), None)
            return not _is_of_gap(self._known[here], self._turns[there], before)
        following = next((place for place in range(here + 1, self._last + 1) if not self._known[place].is_gap), None)
        return following is not None and self._pair(following, there).value is not None

    def _pair(self, here: int, there: int, *, is_last: bool = False) -> Pair:
        one, turn = self._known[here], self._turns[there]
        value = next((value for value in one.versions if _fits(value, turn)), None)
        if value is None and is_last and not one.is_given and _fits(one.versions[0], turn, grown=True):
            return Pair(one, one.versions[0], has_grown=True, span=turn.span)
        is_alike = value is None and any(_is_alike(version, turn) for version in one.versions)
        return Pair(one, value, is_alike=is_alike, span=turn.span)

    def _is_one(self, laid: Overlap) -> bool:
        turns, fits = self._turns, [place for place, pair in laid.pairs.items() if pair.counts]
        if laid.pairs and all(pair.known.is_gap for pair in laid.pairs.values()):  # all of a log was purged: nobody wants it back
            return self._last < 0 and all(_is_of_gap(pair.known, turns[place]) or _is_before_purge(pair.known, turns[place])
                                          for place, pair in laid.pairs.items())  # fmt: skip
        shared = laid.inserted + sum(not pair.known.is_gap for pair in laid.pairs.values())
        if len(fits) * 2 <= shared or sum(pair.is_alike for pair in laid.pairs.values()) * 2 > len(fits):
            return False
        is_from_first = 0 in laid.pairs and laid.pairs[0].known is self._known[0]
        return (is_from_first or len(laid.pairs) == len(turns) or len(fits) >= _ENOUGH
                or any(len(turns[place].text) >= _LONG_CHARACTERS for place in fits))  # fmt: skip


def _key(one: Known, wanted: frozenset[tuple[str, str]]) -> tuple[str, str] | None:
    keys = [(str(value.get("speaker")), str(value.get("content"))) for value in one.versions]
    return next((key for key in keys if key in wanted), None)


def _is_changed(known: Known, turn: Incoming, *, goes_on: bool) -> bool:
    """Whether it is the same turn, though it does not say the same: it says so itself, or the conversation goes on behind it."""
    if known.is_updated:
        return True
    same = [value for value in known.versions if value.get("speaker") == turn.speaker and not known.is_deleted]
    return any(goes_on or (turn.time is not None and turn.time == _own_time(value)) for value in same)


def _is_alike(value: Mapping[str, Any], turn: Incoming) -> bool:
    """Whether one is the other with a few words changed."""
    words = turn.text.split()[:_WORDS]
    if value.get("speaker") != turn.speaker or not _is_of_time(value, turn) or len(words) < _FEW_WORDS:
        return False
    both = difflib.SequenceMatcher(None, str(value.get("content")).split()[:_WORDS], words, autojunk=False)
    return both.real_quick_ratio() >= _ALIKE and both.quick_ratio() >= _ALIKE and both.ratio() >= _ALIKE


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
    own, clock = _own_time(value), notes_of(value).get("time")
    if turn.time and own:
        return turn.time == own
    return not (turn.clock and clock) or turn.clock == clock


def _own_time(value: Mapping[str, Any]) -> str | None:
    stamp = value.get("timestamp")
    return stamp if isinstance(stamp, str) and has_own_time(value) else None


def has_own_time(value: Mapping[str, Any]) -> bool:
    """Whether a turn said itself when it was."""
    return "timestamp" not in notes_of(value).get(ADDED, ())
