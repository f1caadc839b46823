"""How alike two short texts are.

It is judged with care: two entries for one matter do less harm than one entry that hides another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from .questions.text import words

_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
_COMPARED = 1024  # texts that are at hand: each of a page is compared with each
_PUNCTUATION = ".,;:!?…\"'`´‘’“”„«»()[]{}–—"
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|without|missing|lacks?|lacking|absent|undefined|unspecified|cannot)\b"
    r"|n['’]t\b"
)


def normalised(text: str) -> str:
    """Return the text in lower case, with single blanks and no punctuation around its words: texts equal so say the same."""
    return " ".join(bare for word in text.lower().split() if (bare := word.strip(_PUNCTUATION)) and bare != "-")


def likeness(one: str, other: str) -> float:
    """Return the share of content words, without their endings, that two texts have in common.

    Texts that differ in a number, or in whether they deny something, have nothing in common.
    """
    mine, theirs = _said(one), _said(other)
    if mine.normalised == theirs.normalised:
        return 1.0
    if mine.exact != theirs.exact or mine.denies != theirs.denies or not mine.stems or not theirs.stems:
        return 0.0
    return 2 * len(mine.stems & theirs.stems) / (len(mine.stems) + len(theirs.stems))


class _Said(NamedTuple):
    """What is compared of a text."""

    normalised: str
    exact: frozenset[str]
    denies: bool
    stems: frozenset[str]


@lru_cache(_COMPARED)
def _said(text: str) -> _Said:
    found = words(text)
    return _Said(normalised(text), frozenset(_exact(found)), _denies(text), frozenset(map(_stem, found)))


def _exact(found: Sequence[str]) -> set[str]:
    """Return the words with a digit, which name one thing and no other."""
    return {word for word in found if any(character.isdigit() for character in word)}


def _denies(text: str) -> bool:
    return bool(_NEGATION.search(text.lower()))


def _stem(word: str) -> str:
    return (_ENDING.sub("", word) if len(word) > 4 else word)[:_STEM]
