"""How alike two short texts are.

It is judged with care: two entries for one matter do less harm than one entry that hides another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from .text import words

T = TypeVar("T")
_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
_COMPARED = 1024  # texts that are at hand: each of a page is compared with each
_PUNCTUATION = ".,;:!?…\"'`´‘’“”„«»()[]{}–—"
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|without|missing|lacks?|lacking|absent|undefined|unspecified|cannot)\b"
    r"|n['’]t\b"
)


@lru_cache(_COMPARED)
def normalised(text: str) -> str:
    """Return the text in lower case, with single blanks and no punctuation around its words."""
    return " ".join(
        bare for word in text.lower().split() if (bare := word.strip(_PUNCTUATION)) and bare != "-"
    )


def likeness(one: str, other: str) -> float:
    """Return the share of content words, without their endings, that two texts have in common.

    Texts that differ in a number, or in whether they deny something, have nothing in common.
    """
    mine, theirs = _said(one), _said(other)
    if mine.normalised == theirs.normalised:
        return 1.0
    return _share(mine, theirs, len(mine.stems & theirs.stems))


class Matters(Generic[T]):
    """Things with texts. The first one like another text is found without a look at all."""

    def __init__(self, least: float) -> None:
        self._least = least  # the likeness from which on two texts are about one matter
        self._all: list[tuple[_Said, T]] = []
        self._same: dict[str, int] = {}  # the first of each text
        self._with_stem: dict[str, list[int]] = {}

    def add(self, text: str, what: T) -> None:
        said, place = _said(text), len(self._all)
        self._all.append((said, what))
        self._same.setdefault(said.normalised, place)
        for stem in said.stems:
            self._with_stem.setdefault(stem, []).append(place)

    def first_like(self, text: str) -> T | None:
        """Return the first of those whose likeness with a text is enough."""
        said = _said(text)
        shared = Counter(place for stem in said.stems for place in self._with_stem.get(stem, ()))
        found = [
            place
            for place, stems in shared.items()
            if _share(said, self._all[place][0], stems) >= self._least
        ]
        first = min([*found, self._same.get(said.normalised, len(self._all))])
        return self._all[first][1] if first < len(self._all) else None


class _Said(NamedTuple):
    """What is compared of a text."""

    normalised: str
    exact: frozenset[str]
    denies: bool
    stems: frozenset[str]


def _share(one: _Said, other: _Said, stems: int) -> float:
    """Return the share of stems that two texts have in common, of which there are so many."""
    if not stems or one.exact != other.exact or one.denies != other.denies:
        return 0.0
    return 2 * stems / (len(one.stems) + len(other.stems))


@lru_cache(_COMPARED)
def _said(text: str) -> _Said:
    found = words(text)
    return _Said(
        normalised(text), frozenset(_exact(found)), _denies(text), frozenset(map(_stem, found))
    )


def _exact(found: Sequence[str]) -> set[str]:
    """Return the words with a digit, which name one thing and no other."""
    return {word for word in found if any(character.isdigit() for character in word)}


def _denies(text: str) -> bool:
    return bool(_NEGATION.search(text.lower()))


def _stem(word: str) -> str:
    return (_ENDING.sub("", word) if len(word) > 4 else word)[:_STEM]
