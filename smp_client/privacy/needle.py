"""Texts that are sought in others, whatever the case of their letters, and where they stand.

Letters are compared as Unicode folds them and taken apart, so that `STRASSE` finds `straße` and an accent
may be a character of its own. Any white space is as good as any other: a name may end on the next line.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

_STEP_CHARACTERS = 1 << 16  # of a text, which are folded together


class Needles:
    """Some texts, each found wherever it stands."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words = [_folded(text).split() for text in texts]
        self._patterns = [re.compile(r"\s+".join(map(re.escape, words))) for words in self._words]
        # Longer than any hit that is not torn apart by a whole page of blanks.
        self.reach_characters = 2 * max(map(len, texts), default=0) + 1024

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where one of the texts begins and ends, none overlapping."""
        behind = 0
        for base in range(0, len(text), _STEP_CHARACTERS):
            piece = text[base : base + _STEP_CHARACTERS + self.reach_characters]
            for start, end in self._in_piece(piece):
                if start < _STEP_CHARACTERS and base + start >= behind:
                    behind = base + end
                    yield base + start, behind

    def _in_piece(self, piece: str) -> list[tuple[int, int]]:
        folded = _folded(piece)
        wanted = [pattern for words, pattern in zip(self._words, self._patterns, strict=True)
                  if all(word in folded for word in words)]  # fmt: skip
        if not wanted or piece.isascii():
            return sorted(match.span() for pattern in wanted for match in pattern.finditer(folded))
        # One character may become several when it is folded.
        parts = [_folded_character(character) for character in piece]
        ends, joined = list(accumulate(map(len, parts))), "".join(parts)
        return sorted((bisect_right(ends, match.start()), bisect_left(ends, match.end()) + 1)
                      for pattern in wanted for match in pattern.finditer(joined))  # fmt: skip


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())


_folded_character = functools.lru_cache(maxsize=4096)(_folded)
