"""How alike two short texts are. In doubt they are not: one entry must not hide another matter."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .text import words

_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
_PUNCTUATION = ".,;:!?…\"'`´‘’“”„«»()[]{}–—-"
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|without|missing|lacks?|lacking|absent|undefined|unspecified|cannot)\b"
    r"|n['’]t\b"
)


class Said(NamedTuple):
    """The features of a text that are compared."""

    plain: str  # in lower case, with single blanks and no punctuation around its words
    exact: frozenset[str]  # words with a digit, which name one thing and no other
    denies: bool
    stems: frozenset[str]


@lru_cache(1024)  # each text of a page is compared with each
def said(text: str) -> Said:
    bare = (word.strip(_PUNCTUATION) for word in text.lower().split())
    found = words(text)
    exact = {word for word in found if any(character.isdigit() for character in word)}
    stems = {(_ENDING.sub("", word) if len(word) > 4 else word)[:_STEM] for word in found}
    denies = bool(_NEGATION.search(text.lower()))
    return Said(" ".join(filter(None, bare)), frozenset(exact), denies, frozenset(stems))


def likeness(one: Said, other: Said) -> float:
    """Return the share of content words, without their endings, that two texts have in common.

    Texts that differ in a number, or in whether they deny something, have nothing in common.
    """
    if one.plain == other.plain:
        return 1.0
    stems = len(one.stems & other.stems)
    if not stems or one.exact != other.exact or one.denies != other.denies:
        return 0.0
    return 2 * stems / (len(one.stems) + len(other.stems))
