"""Words of the index that a word may be meant for, when no memory has the word itself.

The index has stems (`authent` of authentication), so the word is compared with stems.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata

from .text import is_stop, quoted

_BEGINNING = 4  # letters: too many words begin with fewer
_PER_SLIP = 5  # letters: one slip in fewer makes too many other words
_CLOSE_CAP = 5  # stems that one word may be meant for
_SPLIT_CAP = 30  # letters of two words written as one
_FAR = 1000
_ENDING = re.compile(r"(?:ing|ed|es|s)$")


def begun(word: str) -> str:
    """Return a match for longer words that begin with the word; empty for a short one."""
    return f"{quoted(word)} *" if len(word) >= _BEGINNING else ""


def split(word: str) -> str:
    """Return a match for the word written as two: `backup` as `back up`."""
    if not _PER_SLIP <= len(word) <= _SPLIT_CAP or not word.isalpha():
        return ""
    # The first says something: `often` is not "of ten".
    cuts = [cut for cut in range(1, len(word) - 1) if not is_stop(word[:cut])]
    return " OR ".join(quoted(f"{word[:cut]} {word[cut:]}") for cut in cuts)


def close(connection: sqlite3.Connection, word: str) -> str:
    """Return a match for the stems nearest to the word; empty where none is near.

    Near is the longest stem that begins the word and is more than half of it, else the stems
    with the fewest slips. In a script without blanks between words it is any that holds the word.
    """
    word = _folded(word)
    if not word.isascii() and not _has_cases(word):
        asked = "SELECT term FROM terms WHERE INSTR(term, ?) LIMIT ?"
        rows = connection.execute(asked, (word, 10 * _CLOSE_CAP))
        return " OR ".join(quoted(stem) for (stem,) in rows)
    if len(word) < _PER_SLIP or not word.isalpha():
        return ""
    # The first two letters are seldom those that are mistyped.
    asked = "SELECT term FROM terms WHERE term >= ? AND term < ?"
    rows = connection.execute(asked, (word[:2], word[:2] + chr(0x10FFFF)))
    stems = [stem for (stem,) in rows]
    least = max(len(word) // 2, _BEGINNING)
    beginning = [stem for stem in stems if word.startswith(stem) and len(stem) > least]
    if beginning:
        return _of_stem(max(beginning, key=len))
    stems = [stem for stem in stems if len(stem) >= _PER_SLIP]
    # A stem may have lost an ending that the word has.
    bare = _ENDING.sub("", word)
    slips = {
        stem: min(_slips(form, stem) for form in {word, bare, word[: len(stem)]}) for stem in stems
    }
    fewest = min(slips.values(), default=_FAR)
    near = [stem for stem in stems if slips[stem] == fewest < _FAR]
    return " OR ".join(map(_of_stem, near[:_CLOSE_CAP]))


def _of_stem(stem: str) -> str:
    # FTS5 stems a stem once more, which can only make it shorter.
    return f"{quoted(stem)} *"


def _folded(word: str) -> str:
    """Return the word without its accents, as unicode61 writes terms."""
    plain = unicodedata.normalize("NFD", word.lower())
    kept = "".join(letter for letter in plain if not "\u0300" <= letter <= "\u036f")
    return unicodedata.normalize("NFC", kept)


def _has_cases(word: str) -> bool:
    return word.upper() != word.lower()


def _slips(one: str, other: str) -> int:
    """Return how many letters are missing, wrong, too many or swapped; _FAR for too many."""
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
    return row[-1] if row[-1] <= allowed else _FAR
