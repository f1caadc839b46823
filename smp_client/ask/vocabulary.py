"""The words that the index has, for a question whose own words are written otherwise.

The index has stems (`authent` of authentication), so a word is compared with the stems it may have.
"""

from __future__ import annotations

import sqlite3

from .text import TERM_CAP, as_stemmed, folded

_BEGINNING = 4  # letters: too many words begin with fewer
_PER_SLIP = 5  # letters: one slip in fewer makes too many other words
_FAR = 1000
_CLOSE_CAP = 5  # words that one may be meant for


class Vocabulary:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._ask = connection.execute
        self._by_letter: dict[str, list[str]] = {}

    def matching(self, pattern: str) -> list[str]:
        """Return the stems that a pattern with stars matches, the most frequent first."""
        asked = "SELECT term FROM terms WHERE term GLOB ? ORDER BY cnt DESC LIMIT ?"
        return [stem for (stem,) in self._ask(asked, (pattern, TERM_CAP))]

    def has(self, word: str) -> bool:
        """Return whether any memory has the word, in any form of it."""
        asked = "SELECT 1 FROM words WHERE words MATCH ? LIMIT 1"
        return self._ask(asked, (f'"{word}"',)).fetchone() is not None

    def beginning_with(self, word: str) -> list[str]:
        """Return the stems that begin with the word, the most frequent first."""
        begins = folded(word)
        if len(begins) < _BEGINNING:
            return []
        asked = "SELECT term FROM terms WHERE term >= ? AND term < ? ORDER BY cnt DESC LIMIT ?"
        return [stem for (stem,) in self._ask(asked, (begins, _behind(begins), TERM_CAP))]

    def close_to(self, word: str) -> list[str]:
        """Return the stems that the word may be meant for: the longest that begins it, if that is
        more than half of it; else those with the fewest slips."""
        word = folded(word)
        if len(word) < _PER_SLIP or not word.isalpha():
            return []
        stems = self._with_letter(word[0])
        least = max(len(word) // 2, _BEGINNING)
        if begun := [stem for stem in stems if word.startswith(stem) and len(stem) > least]:
            return [max(begun, key=len)]
        forms = [form for form in as_stemmed(word) if len(form) >= _PER_SLIP]
        slips = {stem: min((_slips(form, stem) for form in forms), default=_FAR) for stem in stems}
        fewest = min(slips.values(), default=_FAR)
        close = [stem for stem in stems if slips[stem] == fewest]
        return [] if fewest == _FAR else close[:_CLOSE_CAP]

    def _with_letter(self, letter: str) -> list[str]:
        """Return all stems with this first letter: it is seldom the one that is mistyped."""
        if letter not in self._by_letter:
            asked = "SELECT term FROM terms WHERE term >= ? AND term < ? ORDER BY cnt DESC"
            rows = self._ask(asked, (letter, _behind(letter)))
            self._by_letter[letter] = [stem for (stem,) in rows]
        return self._by_letter[letter]


def _behind(beginning: str) -> str:
    """Return a text that stands right behind all that begin so."""
    return beginning + chr(0x10FFFF)


def _slips(one: str, other: str) -> int:
    """Return how many letters are missing, wrong, too many or swapped; _FAR for more than one word
    may have of them."""
    allowed = len(one) // _PER_SLIP
    # A slip changes the length by one at most, and the letters by two: that settles most words.
    if abs(len(one) - len(other)) > allowed or len(set(one) ^ set(other)) > 2 * allowed:
        return _FAR
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > allowed:
            return _FAR
    return row[-1] if row[-1] <= allowed else _FAR
