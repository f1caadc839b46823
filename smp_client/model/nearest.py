"""The known name that a mistyped one was meant for: `secuirty` is nearest to `security`.

Upper case, signs between words and zeros before a number do not count: `dec-1` is `DEC-001`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LENGTH_CAP = 64  # characters: nobody mistypes a longer name, somebody pasted a text
_KNOWN_CAP = 5000  # names that are compared letter by letter
_LEAST_SHARE = 0.7  # of 1: the letters that two names have in common
_LEAST_BEGINNING = 3  # letters: too many names begin with fewer
_SIGNS = re.compile(r"[\W_]+")
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

    candidates = list(names)[:_KNOWN_CAP]
    for close in get_close_matches(meant, candidates, 1, _LEAST_SHARE):
        return names[close]
    begun = [one for one in candidates if one.startswith(meant)]
    if len(meant) >= _LEAST_BEGINNING and begun:
        return names[min(begun, key=len)]
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'security'?)` for a message; an empty text if no name is near."""
    meant = nearest(name, known)
    return "" if meant is None else f" (did you mean {meant!r}?)"


def _plain(name: str) -> str:
    return _SIGNS.sub("", _ZEROS.sub("", name.casefold()))
