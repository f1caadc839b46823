"""The known name that a mistyped one was meant for: `secuirty` is nearest to `security`.

Upper case, signs between words and zeros before a number do not count: `dec-1` is `DEC-001`.
Another number is another name: `DEC-002` is not near to `DEC-001`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LENGTH_CAP = 64  # characters: nobody mistypes a longer name, somebody pasted a text
_KNOWN_CAP = 5000  # names that are compared letter by letter
_LEAST_SHARE = 0.7  # of 1: the letters that two names have in common
_LEAST_KNOWN = 4  # letters: of shorter names, another word is one letter away
_LONG = 8  # letters: from here on two of them may be wrong
_LEAST_BEGINNING = 3  # letters: too many names begin with fewer
_SIGNS = re.compile(r"[\W_]+")
_NUMBERS = re.compile(r"\d+")
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a mistyped one; None if none is near."""
    if len(name) > _LENGTH_CAP:
        return None
    names: dict[str, str] = {}
    for one in known:
        names.setdefault(_plain(one), one)
    meant = _plain(name)
    if not meant:
        return None
    if meant in names:
        return names[meant]
    from difflib import get_close_matches  # late: hardly any name is mistyped

    numbers = _NUMBERS.findall(meant)
    candidates = [one for one in names if _NUMBERS.findall(one) == numbers][:_KNOWN_CAP]
    for close in get_close_matches(meant, candidates, 1, _LEAST_SHARE):
        return names[close]
    begun = [one for one in candidates if one.startswith(meant)]
    if len(meant) >= _LEAST_BEGINNING and begun:
        return names[min(begun, key=len)]
    return None


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which this is a misspelling; None for a name of its own.

    One letter too many, too few, wrong or swapped is a misspelling. In a name of eight letters or
    more two are, if the first is right. So `sevrity` is one, and `location_hint` is not.
    """
    meant = _plain(name)
    if len(meant) > _LENGTH_CAP:
        return None
    for one in known:
        plain = _plain(one)
        allowed = 2 if len(plain) >= _LONG and meant[:1] == plain[:1] else 1
        if len(plain) >= _LEAST_KNOWN and _edits(meant, plain, allowed) <= allowed:
            return one
    return None


def _edits(one: str, other: str, most: int) -> int:
    """Return by how many letters two names differ; more than `most` where that is sure."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        new = [at]
        for place, wanted in enumerate(other, 1):
            cost = row[place - 1] + (letter != wanted)
            cost = min(cost, row[place] + 1, new[place - 1] + 1)
            is_swapped = at > 1 and place > 1 and letter == other[place - 2]
            if is_swapped and one[at - 2] == wanted:
                cost = min(cost, before[place - 2] + 1)
            new.append(cost)
        before = row
        row = new
    return row[-1]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'security'?)` for a message; an empty text if no name is near."""
    meant = nearest(name, known)
    return "" if meant is None else f" (did you mean {meant!r}?)"


def _plain(name: str) -> str:
    return _SIGNS.sub("", _ZEROS.sub("", name.casefold()))
