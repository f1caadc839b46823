"""How alike two short texts are.

It is judged with care: two entries for one matter do less harm than one entry that hides another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .questions.text import words

_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
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
    if normalised(one) == normalised(other):
        return 1.0
    mine, theirs = words(one), words(other)
    if _exact(mine) != _exact(theirs) or _denies(one) != _denies(other):
        return 0.0
    stems, others = set(map(_stem, mine)), set(map(_stem, theirs))
    return 2 * len(stems & others) / (len(stems) + len(others)) if stems and others else 0.0


def _exact(found: Sequence[str]) -> set[str]:
    """Return the words with a digit, which name one thing and no other."""
    return {word for word in found if any(character.isdigit() for character in word)}


def _denies(text: str) -> bool:
    return bool(_NEGATION.search(text.lower()))


def _stem(word: str) -> str:
    return (_ENDING.sub("", word) if len(word) > 4 else word)[:_STEM]
