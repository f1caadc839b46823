"""Names of people and projects in texts: where a known one stands.

A name is found as whole words: not `Ann` in `Annotation`, but in `anna_berg`, `Anna's` and
`anna.berg@example.org`. A full name is found in any case of its letters and in either order. One
word of it alone, or a name of one word, is found as it was given, with a capital, or in capitals:
`will` is a word, `Will` may be somebody. In scripts that set no blanks, a name is found anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

USER, PROJECT = "user_names", "project_names"
_SHORT = 3  # letters; a shorter word of a full name means nobody on its own
_BETWEEN = r"[\s._\-,'’]{1,3}"
_SPLIT = re.compile(r"[\s._\-,]+")
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
# Whoever is called so has no name of their own.
_PARTS_TO_PLAY = """
    admin administrator agent ai analyst anonymous architect assistant auditor bot coder customer
    daemon default designer dev developer engineer everybody everyone expert facilitator global
    guest human lead manager me model moderator nobody none null operator orchestrator owner planner
    pm po programmer qa researcher reviewer root scribe self sm smp somebody strategist supervisor
    system team test tester tool unknown user ux writer you
"""
_NOBODY = frozenset(_PARTS_TO_PLAY.split())


class Spot(NamedTuple):
    """A place in a text that says who somebody is."""

    start: int
    end: int
    kind: str  # USER, PROJECT, or a kind of personal data
    key: str  # equal for one person or thing
    shown: str  # as it is known


class Names:
    """All names that are known. A word that two people share means the one who was given first."""

    def __init__(self, people: Iterable[str] = (), projects: Iterable[str] = ()) -> None:
        self._loose: dict[str, tuple[str, str]] = {}  # by its words in small letters
        self._strict: dict[str, tuple[str, str]] = {}  # by how one word is written
        # Who is called by one word is taken for the one who has it as a part of a full name.
        for text in sorted(dict.fromkeys(people), key=lambda text: len(_words(text)) == 1):
            self._add_person(text)
        for text in dict.fromkeys(projects):
            self._add(text, (PROJECT, text))
        self._finders: list[tuple[re.Pattern[str], dict[str, tuple[str, str]]]] = []
        for known, flags in ((self._loose, re.IGNORECASE), (self._strict, re.NOFLAG)):
            patterns = [_pattern(one) for one in sorted(known, key=len, reverse=True)]
            if patterns:
                self._finders.append((re.compile("|".join(patterns), flags), known))

    def find(self, text: str) -> list[Spot]:
        """Return every place where a name stands, in order; the longest of those that overlap."""
        hits: list[Spot] = []
        for pattern, known in self._finders:
            for match in pattern.finditer(text):
                word = _plain(match[0])
                meaning = known.get(word) or known.get(" ".join(_words(word.lower())))
                if meaning is not None:
                    kind, name = meaning
                    hits.append(Spot(*match.span(), kind, name.casefold(), name))
        kept: list[Spot] = []
        for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
            if not kept or hit.start >= kept[-1].end:
                kept.append(hit)
        return kept

    def _add_person(self, text: str) -> None:
        words = _words(_plain(text.partition("@")[0]))
        # `anna` is the Anna Berg who is known already.
        known = self._strict.get(words[0][:1].upper() + words[0][1:]) if len(words) == 1 else None
        meaning = known or (USER, text)
        self._add(text, meaning)
        if len(words) > 1 and not any(word.isdecimal() for word in words):
            self._add(" ".join(reversed(words)), meaning)
            self._loose.setdefault("".join(words).lower(), meaning)
            for word in words:
                if len(word) >= _SHORT:
                    self._add(word, meaning)

    def _add(self, text: str, meaning: tuple[str, str]) -> None:
        words = _words(_plain(text))
        if len(words) > 1:
            self._loose.setdefault(" ".join(words).lower(), meaning)
        elif words:
            word = _plain(text.strip())
            for form in (word, word[:1].upper() + word[1:], word.upper()):
                self._strict.setdefault(form, meaning)


def is_somebody(name: object) -> bool:
    """Return whether a participant has a name of its own, and not only a part to play."""
    word = name.strip().casefold() if isinstance(name, str) else ""
    return len(word) > 1 and word not in _NOBODY and any(map(str.isalpha, word))


def _words(text: str) -> list[str]:
    return [word for word in _SPLIT.split(text) if word]


def _plain(text: str) -> str:
    """Return a name in the one form in which it is compared."""
    return unicodedata.normalize("NFC", text).replace("’", "'")


def _pattern(words: str) -> str:
    """Return a pattern for a name, its accents composed or not."""
    forms = dict.fromkeys((words, unicodedata.normalize("NFD", words)))
    escaped = (re.escape(form).replace("'", "['’]") for form in forms)
    inner = "|".join(form.replace(r"\ ", _BETWEEN) for form in escaped)
    before = r"(?<![^\W_])" if words[0].isalnum() and not _NO_BLANKS.match(words[0]) else ""
    after = r"(?![^\W_])" if words[-1].isalnum() and not _NO_BLANKS.match(words[-1]) else ""
    return f"{before}(?:{inner}){after}"
