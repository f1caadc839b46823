"""How well a memory matches a text, beyond holding its words.

A word counts in full where a memory holds it, and in part where a turn near by does: what was said around a turn says what the turn
is about. Rare words count more, by how many of the asked sessions' memories hold them, so that an answer does not depend on other
sessions. A text that begins like a question gets further hints from `question.py`.

A word that few memories hold is also looked for as the beginning of others, and one that none
holds in close spellings. Such a match counts half. How well a memory fits is the share of the
weight of all asked words that it has; a word that nothing holds has its weight, too.

First every memory that holds a word, and every turn within two of one, is weighed roughly; then the best of them with care. With
words alone all of this may be found; a text with operators, quotes or stars says exactly what may.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..index.database import owner_word
from .options import sayable
from .question import FORMS, Question
from .text import Concept, words_of_stems
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .priorities import View

_FAR = 9
# What a word is worth that is so many turns before, or behind: what was just said counts most.
_BEFORE = (0.0, 0.6, *(0.4 * 0.8**distance for distance in range(_FAR - 2)))
_BEHIND = (0.0, 0.5, *(0.4 * 0.8**distance for distance in range(_FAR - 2)))
_ROUGHLY = ((-2, 0.4), (-1, 0.5), (1, 0.6), (2, 0.4))
_BOTH_SIDES = 0.2  # of all that is near, beside the nearest
_NEAR_CAP = 0.95  # the most that what is near can be worth
_ANSWERS = 1.4  # the turn after a question, for the words of the question
_OTHER_FORM = 0.95  # a word in another form
_WEAKER = 0.5  # another word with its beginning, a close spelling, half of a compound: may be meant
_FEW = 10  # memories: a word that fewer hold may be known by another form
_TRIES = 4  # words of one question that are looked for otherwise: each costs a look at the vocabulary
_FURTHER_TEXTS = 0.6  # a word that is not in the memory's text, but in another field
_FREE_CHARACTERS, _LENGTH = 400, 0.25  # a longer text has any word more easily
_CONCEPTS = 24
_NAME = 0.25  # of a word: the name of somebody who is asked about, which everybody else says too
_EVERYWHERE = 1500
# Scripts without blanks between words, of which the index has whole sentences as one.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_WORD = re.compile(r"[^\W_]+")
_STEM = 4  # so many letters of a word are in every form of it
_APART = 1 << 33  # further than any two turns of one conversation


Row = tuple[Any, ...]  # of a memory, its key first
Place = tuple[int, int, int | None]  # of a memory: its key, the number of its scope, and of a turn its place in the conversation


@dataclass
class _Concept:
    word: str
    rarity: float
    positions: list[int]  # in order
    weaker: frozenset[int] = frozenset()
    held: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.held = frozenset(self.positions)
        self.weaker -= self.held
        self._beginning = re.compile(r"[\W_]?".join(map(re.escape, self.word[:_STEM])))

    def seen(self, text: str) -> float:
        """Return the worth of the word in a text: less in another form, or written apart; else 0."""
        return 1.0 if self.word in text else _OTHER_FORM if self._beginning.search(text) else 0.0


def owned(scopes: Sequence[str], match: str) -> str:
    """The same of one session only, told by a word of its own, so that other sessions cost nothing."""
    return f"owner : {owner_word(scopes[0])} AND ({match})" if len(scopes) == 1 else match


def _best_first(worth: Mapping[int, float]) -> Iterator[int]:
    """Yield the positions by their worth. Of equal ones those that are no turns come first, which
    are fewer and weigh more, then the later: that is the same for every page of an answer."""
    by_worth: dict[float, list[int]] = {}
    for position, share in worth.items():
        by_worth.setdefault(share, []).append(position)
    for share in sorted(by_worth, reverse=True):
        equal = sorted(by_worth[share])
        turns = bisect_left(equal, 0)
        yield from equal[:turns]
        yield from reversed(equal[turns:])


class Matching:
    """A text asked of some sessions."""

    def __init__(
        self, view: View, concepts: Sequence[Concept], text: str = "",
        without: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Take the words to look for, and the text that asks for them, if one does; without one memory,
        by its session and id."""
        self._view = view
        asked = "SELECT key FROM memories WHERE scope = ? AND id = ?"
        row = view.index.connection.execute(asked, without).fetchone() if without else None
        self._without_key = row and row[0]
        known = {scope: row for scope, *row in view.index.connection.execute("SELECT scope, number, memories FROM scopes")}
        self._numbers = [known.get(scope, (0, 0))[0] for scope in view.scopes]  # by which the index knows them
        self._offset = {number: place * _APART for place, number in enumerate(self._numbers)}
        self._whole = sum(known[scope][1] for scope in view.scopes if scope in known)
        self._is_part = not known.keys() <= set(view.scopes)
        self._states = view.states()
        self._keys: dict[int, int] = {}  # of the memories that hold a word, by position
        self._position_of: dict[int, int] = {}  # of those that were found best, by key
        self._less: dict[int, float] = {}  # how much those of these count that are no turns and do not count in full
        self._question = Question(text, self._is_actor)
        self._vocabulary = Vocabulary(view.index.connection)
        self.tried: dict[str, tuple[str, ...]] = {}  # by a word that nothing holds, those instead of it
        self.perfect = 0.0  # the strength of a memory that holds every word
        self._concepts = self._find_concepts(concepts)
        # Who looks for a word or two wants to see them.
        self._looks_around = self._question.asks or (len(self._concepts) > 2 and bool(text))

    def best(self, count: int | None, read: Callable[[Sequence[int]], Sequence[Row]]) -> tuple[list[int], list[Row]]:
        """Return the keys of so many that match best at a rough estimate, the best first, or of all; and their rows, as `read`
        gives them in its order. It leaves out those that may not be in the answer."""
        rough = self._estimate() if self._looks_around else self._held()
        if self._states:
            rough = {position: worth * self._state(position) for position, worth in rough.items()}
        keys = dict(self._keys)
        wanted = len(rough) if count is None else count + 1
        ordered, order = _best_first(rough), list[int]()
        while True:
            order += islice(ordered, wanted - len(order))
            keys |= self._turns_at([position for position in order if position not in keys])
            self._position_of = {key: position for position in order if (key := keys.get(position))}
            likely = [key for key in self._position_of if key != self._without_key]
            rows = {row[0]: row for row in read(likely)}
            found = [key for key in likely if key in rows]
            if count is None or len(found) >= count or len(order) == len(rough):
                chosen = set(found[:count])
                return found[:count], [row for key, row in rows.items() if key in chosen]
            # Near the ends of a conversation there are positions without a turn; and of few that may be there, many are none.
            wanted *= 4

    def _state(self, position: int) -> float:
        """Return how much a memory counts by the state of its session."""
        return self._states.get(self._view.scopes[position // _APART], 1.0) if position >= 0 else self._less.get(position, 1.0)

    def _held(self) -> dict[int, float]:
        rough: dict[int, float] = {}
        for concept in self._concepts:
            for position in concept.positions:
                rough[position] = rough.get(position, 0.0) + concept.rarity
            for position in concept.weaker:
                rough[position] = rough.get(position, 0.0) + _WEAKER * concept.rarity
        return rough

    def _estimate(self) -> dict[int, float]:
        """With the turns around those that hold a word."""
        rough: dict[int, float] = {}
        # What a word that is everywhere is near to is everything.
        fewest = min((len(concept.positions) for concept in self._concepts), default=0)
        for concept in self._concepts:
            worth = dict.fromkeys(concept.weaker, _WEAKER) | dict.fromkeys(concept.positions, 1.0)
            for position in concept.positions if len(concept.positions) <= max(_EVERYWHERE, fewest) else ():
                if position >= 0:
                    for distance, share in _ROUGHLY:
                        if worth.get(position + distance, 0.0) < share:
                            worth[position + distance] = share
            for position, share in worth.items():
                rough[position] = rough.get(position, 0.0) + share * concept.rarity
        return rough

    def strengths(self, candidates: Sequence[tuple[Any, ...]]) -> dict[int, float]:
        """Return how well each matches, by its key, as a part of `perfect`; hints can make it more."""
        asking = self._asking([self._position_of[row[0]] for row in candidates]) if self._looks_around else frozenset()
        found: dict[int, float] = {}
        for key, actor, text, tags, stamp in candidates:
            position = self._position_of[key]
            strength = self._weigh(position, text, f"{tags} {actor}", answers=position - 1 in asking)
            found[key] = strength * self._question.suits(actor, text, (stamp or "")[:10])
        return found

    def _weigh(self, position: int, text: str, labels: str, *, answers: bool) -> float:
        said = f"{text} {labels}".lower()
        whole = 1 / (1 + _LENGTH * max(0.0, len(text) / _FREE_CHARACTERS - 1))
        strength = 0.0
        for concept in self._concepts:
            near = self._near(concept, position, answers=answers) if self._looks_around else 0.0
            if position in concept.held:
                share = whole * (concept.seen(said) or _FURTHER_TEXTS)
                strength += concept.rarity * (share + _BOTH_SIDES * near)
            else:
                weaker = whole * _WEAKER if position in concept.weaker else 0.0
                strength += concept.rarity * max(weaker, min(near, _NEAR_CAP))
        return strength

    def _near(self, concept: _Concept, position: int, *, answers: bool) -> float:
        if position < 0:
            return 0.0
        positions = concept.positions
        at = bisect_left(positions, position)
        distance = position - positions[at - 1] if at else _FAR
        before = 0.0 if distance >= _FAR else _BEFORE[distance] * (_ANSWERS if answers and distance == 1 else 1.0)
        at += position in concept.held
        distance = positions[at] - position if at < len(positions) else _FAR
        behind = 0.0 if distance >= _FAR else _BEHIND[distance]
        return max(before, behind) + _BOTH_SIDES * (before + behind)

    def _find_concepts(self, concepts: Sequence[Concept]) -> list[_Concept]:
        found: dict[tuple[int, ...], _Concept] = {}
        for concept in concepts[:_CONCEPTS]:
            word = concept.word
            match = " OR ".join([concept.match, *(f'"{form}"' for form in FORMS.get(word, ()))])
            # Who says it is told otherwise.
            is_name = self._question.names(word)
            columns = "{text more tags}" if is_name else "{text more actor tags}"
            unspaced = word if _UNSPACED.search(word) else None
            positions = self._positions(f"{columns} : ({match})", unspaced)
            weaker = self._positions(f"{columns} : ({concept.weaker})") if concept.weaker else []
            if concept.is_word and len(positions) < _FEW:
                weaker += self._otherwise(word, columns, is_held=bool(positions))
            held = positions or weaker
            rarity = math.log(1 + (self._whole - len(held) + 0.5) / (len(held) + 0.5))
            rarity *= _NAME if is_name else 1.0
            # Two words of one stem are one.
            known = (len(held), *held[:8])
            if held and known not in found:
                found[known] = _Concept(word, rarity, positions, frozenset(weaker))
                self.perfect += rarity
            elif not held and not concept.is_extra:
                self.perfect += rarity
        self.perfect = self.perfect or 1.0
        return list(found.values())

    def _positions(self, match: str, unspaced: str | None = None) -> list[int]:
        """Return where the memories are that match, or hold a word of a script without blanks."""
        held = self._holding(match)
        if unspaced:
            asked = "SELECT p.memory, p.scope, p.place FROM memories m JOIN places p ON p.memory = m.key"
            held += self._ask(f"{asked} WHERE INSTR(m.text, ?) AND {{scopes}}", unspaced)
        offset = self._offset
        # Of what is no turn, further below 0 than anything that is near a turn.
        positions = {-key - _FAR if place is None else offset[scope] + place: key for key, scope, place in held}
        if self._states:
            counts = {number: self._states.get(scope) for number, scope in zip(self._numbers, self._view.scopes, strict=True)}
            self._less |= {-key - _FAR: less for key, scope, place in held if place is None and (less := counts[scope]) is not None}
        self._keys |= positions
        return sorted(positions)

    def _otherwise(self, word: str, columns: str, *, is_held: bool) -> list[int]:
        """Return where words are that begin with this one; where it is nowhere, else close spellings."""
        looks = (self._vocabulary.beginning_with, self._vocabulary.close_to)
        for look in looks[:1] if is_held else looks:
            stems = look(word) if len(self.tried) < _TRIES else ()
            match = " OR ".join(f'"{form}"' for form in words_of_stems(stems))
            if match and (positions := self._positions(f"{columns} : ({match})")):
                if not is_held:
                    self.tried[word] = self._words_like(stems, positions[0])
                return positions
        return []

    def _words_like(self, stems: Sequence[str], position: int) -> tuple[str, ...]:
        """The words of these stems as a memory has them."""
        said = "text || ' ' || more || ' ' || tags || ' ' || actor"
        asked = f"SELECT {said} FROM memories WHERE key = ?"
        ((text,),) = self._view.index.connection.execute(asked, (self._keys[position],))
        words = dict.fromkeys(_WORD.findall(text.lower()))
        like = [word for word in words if any(word.startswith(stem[:-1]) for stem in stems)]
        return tuple(like or stems)

    def _holding(self, match: str) -> list[Place]:
        match = sayable(owned(self._view.scopes, match))
        asked = "SELECT p.memory, p.scope, p.place FROM words CROSS JOIN places p ON p.memory = words.rowid WHERE words MATCH ?"
        found = self._view.index.connection.execute(asked, (match,)).fetchall()
        return [place for place in found if place[1] in self._offset] if self._is_part else found

    def _turns_at(self, positions: Sequence[int]) -> dict[int, int]:
        """The keys of the turns at these positions; there may be none at some."""
        wanted = [[position, self._numbers[position // _APART], position % _APART] for position in positions if position >= 0]
        return dict(self._view.index.connection.execute(
            "SELECT json_extract(w.value, '$[0]'), p.memory FROM json_each(?) w CROSS JOIN places p"
            " ON p.scope = json_extract(w.value, '$[1]') AND p.place = json_extract(w.value, '$[2]')", (json.dumps(wanted),)
        ))  # fmt: skip

    def _asking(self, positions: Sequence[int]) -> frozenset[int]:
        """The positions before these at which something is asked."""
        before = {key: position for position, key in self._turns_at([position - 1 for position in positions]).items()}
        asked = "SELECT key FROM memories WHERE key IN (SELECT value FROM json_each(?)) AND INSTR(text, '?')"
        return frozenset(before[key] for (key,) in self._view.index.connection.execute(asked, (json.dumps(list(before)),)))

    def _is_actor(self, word: str) -> bool:
        """Whether it is somebody's name."""
        names = json.dumps([word, word.capitalize(), word.upper()])
        asked = "SELECT 1 FROM memories m WHERE m.actor IN (SELECT value FROM json_each(?)) AND {scopes} LIMIT 1"
        return bool(self._ask(asked, names))

    def _ask(self, asked: str, *given: Any) -> list[Any]:
        within = self._view.within("m.scope")
        given = tuple(sayable(value) if isinstance(value, str) else value for value in given)
        return self._view.index.connection.execute(asked.replace("{scopes}", within.text), (*given, *within.parameters)).fetchall()
