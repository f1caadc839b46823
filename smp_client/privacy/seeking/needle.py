"""A text that is looked for in others, whatever the case of its letters, and where it stands in them.

Letters are compared as Unicode folds them, so that `STRASSE` finds `straße`, and taken apart, so that an accent that is a
character of its own makes no difference; any white space is as good as any other, since a name may stand at the end of one line
and the beginning of the next.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from ...errors import InvalidQuery

LEAST_CHARACTERS = 2
_STEP_CHARACTERS = 1 << 16  # of a text, which are folded together
_BEFORE_CHARACTERS, _EXCERPT_CHARACTERS = 40, 100
_BLANKS = re.compile(r"\s")


class Span(NamedTuple):
    start: int
    end: int


class Excerpt(NamedTuple):
    """What stands around a hit, on one line, and where in it the hit is."""

    text: str
    start: int
    end: int


class Needle:
    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or len(text.strip()) < LEAST_CHARACTERS:
            problem = f"What to look for must be a text of at least {LEAST_CHARACTERS} characters: less stands everywhere."
            raise InvalidQuery(problem, advice="Give more of it.")
        self.text = text.strip()
        self._words = _folded(text).split()
        self._pattern = re.compile(r"\s+".join(map(re.escape, self._words)))
        # What YAML doubles or escapes can stand in a value and not in its bytes.
        self.is_quoted = any(not character.isprintable() or character in "'\"\\" for character in self.text)
        # Longer than any hit that is not torn apart by a whole page of blanks.
        self.reach_characters = 2 * len(text) + 1024

    def find(self, text: str) -> Iterator[Span]:
        """Every place where it stands in the text, none overlapping."""
        behind = 0
        for base in range(0, len(text), _STEP_CHARACTERS):
            piece = text[base : base + _STEP_CHARACTERS + self.reach_characters]
            for span in self._in_piece(piece):
                if span.start >= _STEP_CHARACTERS:
                    break
                if base + span.start >= behind:
                    behind = base + span.end
                    yield Span(base + span.start, behind)

    def _in_piece(self, piece: str) -> Iterator[Span]:
        folded = _folded(piece)
        if not all(word in folded for word in self._words):
            return
        if piece.isascii():
            yield from (Span(*found.span()) for found in self._pattern.finditer(folded))
            return
        # One character may become several, so it has to be told which of these was which.
        parts = [_folded_character(character) for character in piece]
        ends = list(accumulate(map(len, parts)))
        for found in self._pattern.finditer("".join(parts)):
            yield Span(bisect_right(ends, found.start()), bisect_left(ends, found.end()) + 1)


def excerpt(text: str, span: Span) -> Excerpt:
    first = max(span.start - _BEFORE_CHARACTERS, 0)
    last = min(max(first + _EXCERPT_CHARACTERS, span.end), span.start + 2 * _EXCERPT_CHARACTERS, len(text))
    before, behind = "…" if first else "", "…" if last < len(text) else ""
    shift = len(before) - first
    return Excerpt(before + _BLANKS.sub(" ", text[first:last]) + behind, span.start + shift, min(span.end, last) + shift)


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


_folded_character = functools.lru_cache(maxsize=4096)(_folded)
