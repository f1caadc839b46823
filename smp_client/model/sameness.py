"""Whether two preferences of one topic are about the same thing, so that the later one replaces
the earlier: `British English` replaces `German`, and `Use tabs` stands beside both.

They are if their words are much alike, if both are bare values of the topic, or if both name a
value of one sort: a language for a language, tabs for blanks.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")
_LEAST_STEM = 3
_ALIKE = 0.5  # of 1: the share of words that two texts have in common
_BARE = 2  # words: a text of so few is the value of its topic
_FILLER_WORDS = (
    "a all also always an and any are as at be by do ever for from i in is it keep me must my"
    " never no not of on only or our please prefer should that the then this to us use using want"
    " we when with write you your"
)
_FILLER = frozenset(_FILLER_WORDS.split(" "))
_SORTS = (
    "arabic british american chinese czech danish dutch english finnish french german greek hebrew"
    " hindi hungarian italian japanese korean norwegian polish portuguese romanian russian spanish"
    " swedish turkish ukrainian",
    "blank space tab",
    "dark light",
    "brief concise detailed long short terse verbose",
    "casual formal informal",
    "imperial metric",
    "celsius fahrenheit",
    "camelcase snakecase kebabcase camel snake kebab",
    "merge rebase squash",
    "double single",
)


def is_same_thing(one: str, other: str) -> bool:
    """Return whether two preferences of one topic and one person are about the same thing."""
    words = _words(one)
    others = _words(other)
    if len(words) <= _BARE and len(others) <= _BARE:
        return True
    if _sorts(words) & _sorts(others):
        return True
    shared = 2 * len(words & others) / ((len(words) + len(others)) or 1)
    return shared >= _ALIKE


def _words(text: str) -> frozenset[str]:
    found = (word for word in _WORD.findall(text.casefold()) if word not in _FILLER)
    return frozenset(map(_stem, found))


def _stem(word: str) -> str:
    shorter = _ENDING.sub("", word)
    return shorter if len(shorter) >= _LEAST_STEM else word


def _sorts(words: frozenset[str]) -> set[int]:
    return {number for number, sort in enumerate(_STEMS) if words & sort}


_STEMS = tuple(frozenset(map(_stem, sort.split())) for sort in _SORTS)
