"""Placeholders for texts that identify somebody: one for each text in a whole run, irreversible.

A placeholder of an earlier run stays, and is given to no other text.

A name is found in any case, as whole words, not `Ann` in `Annotation`; a full name in either order.
In a sentence, a name that is an ordinary word is found as it was given, with a capital, or in
capitals: `will` is a word, `Will` may be somebody. So is the one word of a project. In scripts that
set no blanks, a name is found anywhere.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..redaction.common import COMMON
from ..redaction.found import Found, joined
from ..redaction.personal import personal
from ..redaction.redact import replaced, secrets_under

USER, PROJECT = "user_names", "project_names"
REMOVED = "[removed]"
_TAG_REMOVED, _TAG_CHARACTERS = "removed", 32
_HIDDEN = "secrets"  # the kind whose originals are never shown
_FORM = re.compile(
    r"(?:User|Email|Phone|IP|Secret)-[1-9]\d{0,8}(?!\d)|Project-[A-Z]{1,4}(?![A-Za-z0-9])"
    r"|/path/[1-9]\d{0,8}(?![\w/])"
)
_LOOSE = re.compile(r"[\s().\-]")  # signs that make no other phone number
_REDACTED = re.compile(r"\[redacted: [a-z0-9_ ]{1,40}\]|\[?removed\]?")
# By kind: the field of Anonymization, and how its placeholders begin.
_CLASSES = {
    USER: ("user_names", "User-"), PROJECT: ("project_names", "Project-"),
    "path": ("file_paths", "/path/"), "email": ("contacts", "Email-"),
    "phone": ("contacts", "Phone-"), "ip_address": ("addresses", "IP-"),
    _HIDDEN: ("secrets", "Secret-"),
}  # fmt: skip
# Words of sentences that are names, too, beside those of `redaction.common`.
_NAMES_TOO = """
alt april art august bill black blue brown chase chip crystal dawn day drew faith forest frank
gene gold grace grant gray green gross guy hand hill hope hunt iris jack jade joy june justice
king klein kurz lane lang major mark max may miles mill page pat pearl penny price ray red rich
rob robin rock rose ruby sage sandy sky skip star sue summer van violet von ward west white will
winter wood young
"""
_ORDINARY = COMMON.union(_NAMES_TOO.split())
_SHORT = 3  # letters; a shorter word of a full name means nobody on its own
_SPLIT = re.compile(r"[\s._\-,]+")
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


@dataclass(frozen=True)
class Anonymization:
    """The kinds of text that are replaced."""

    user_names: bool = True
    project_names: bool = True
    file_paths: bool = True
    contacts: bool = True  # e-mail addresses and phone numbers
    addresses: bool = True  # of machines
    secrets: bool = True
    replace_with_placeholders: bool = True  # False replaces every text with `[removed]`


@dataclass
class Replacement:
    """A placeholder and its count. Only a dry run has the original text, as `what`.

    For a secret, `what` is its kind.
    """

    kind: str
    placeholder: str
    count: int
    what: str | None = None


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
        self._any_case: dict[str, tuple[str, str]] = {}  # by the one word of a person, small
        # Who is called by one word is taken for the one who has it as a part of a full name.
        for text in sorted(dict.fromkeys(people), key=lambda text: len(_words(text)) == 1):
            self._add_person(text)
        for text in dict.fromkeys(projects):
            self._add(text, (PROJECT, text))
        forms = sorted({*self._loose, *self._strict}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern, forms)) or r"(?!)", re.IGNORECASE)

    def find(self, text: str) -> list[Spot]:
        """Return every place where a name stands, in order."""
        found: list[Spot] = []
        for match in self._pattern.finditer(text):
            word = _plain(match[0])
            small = word.lower()
            meaning = self._strict.get(word) or self._loose.get(" ".join(_words(small)))
            # Whoever is called by an ordinary word is meant if the text is nothing else.
            if meaning is None and (small not in _ORDINARY or text.strip() == match[0]):
                meaning = self._any_case.get(small)
            if meaning:
                found.append(Spot(*match.span(), meaning[0], meaning[1].casefold(), meaning[1]))
        return found

    def _add_person(self, text: str) -> None:
        words = _words(_plain(text.partition("@")[0]))
        # `anna` is the Anna Berg who is known already.
        known = self._any_case.get(words[0].lower()) if len(words) == 1 else None
        meaning = known or (USER, text)
        self._add_in_any_case(text, meaning)
        if len(words) > 1 and not any(word.isdecimal() for word in words):
            self._add(" ".join(reversed(words)), meaning)
            self._loose.setdefault("".join(words).lower(), meaning)
            for word in words:
                if len(word) >= _SHORT:
                    self._add_in_any_case(word, meaning)

    def _add_in_any_case(self, text: str, meaning: tuple[str, str]) -> None:
        self._add(text, meaning)
        word = _plain(text.strip())
        if len(_words(word)) == 1:
            self._any_case.setdefault(word.lower(), meaning)

    def _add(self, text: str, meaning: tuple[str, str]) -> None:
        words = _words(_plain(text))
        if len(words) > 1:
            self._loose.setdefault(" ".join(words).lower(), meaning)
        elif words:
            word = _plain(text.strip())
            for form in (word, word[:1].upper() + word[1:], word.upper()):
                self._strict.setdefault(form, meaning)


def _words(text: str) -> list[str]:
    return [word for word in _SPLIT.split(text) if word]


def _plain(text: str) -> str:
    """Return a name in the one form in which it is compared."""
    return unicodedata.normalize("NFC", text).replace("’", "'")


def _pattern(words: str) -> str:
    """Return a pattern for a name, its accents composed or not."""
    forms = dict.fromkeys((words, unicodedata.normalize("NFD", words)))
    escaped = (re.escape(form).replace("'", "['’]") for form in forms)
    inner = "|".join(form.replace(r"\ ", r"[\s._\-,]{1,3}") for form in escaped)
    before = r"(?<![^\W_])" if words[0].isalnum() and not _NO_BLANKS.match(words[0]) else ""
    after = r"(?![^\W_])" if words[-1].isalnum() and not _NO_BLANKS.match(words[-1]) else ""
    return f"{before}(?:{inner}){after}"


class Placeholders:
    """The placeholders of one run. Those in `taken` are not given again."""

    def __init__(
        self, names: Names, config: Anonymization | None = None, taken: Iterable[str] = ()
    ) -> None:
        self._names, self._config = names, config or Anonymization()
        self._given: dict[tuple[str, str], Replacement] = {}  # by kind and key
        self._taken = set(taken)
        self._next = {kind: _series(kind) for kind in _CLASSES}

    def text(self, text: str, key: str = "") -> str:
        """Return a text with placeholders. A key such as `password` makes the text a secret."""
        return replaced(text, lambda text: [(spot.start, spot.end, self._placeholder(spot))
                                            for spot in self._spots(text, key)])  # fmt: skip

    def tag(self, tag: str) -> str:
        """Return a tag with placeholders. The result is a valid tag."""
        new = self.text(tag).replace(REMOVED, _TAG_REMOVED)
        if new != tag and len(new) > _TAG_CHARACTERS:
            return next((match[0] for match in _FORM.finditer(new)), _TAG_REMOVED)
        return new

    def replacements(self, *, with_originals: bool) -> list[Replacement]:
        """Return the placeholders in the order in which they were given."""
        return [replace(one, what=one.what if with_originals else None)
                for one in self._given.values()]  # fmt: skip

    def counts(self) -> Counter[str]:
        """Return how many places were replaced, by the fields of Anonymization."""
        counts: Counter[str] = Counter()
        for one in self._given.values():
            counts[_CLASSES[one.kind][0]] += one.count
        return counts

    def _placeholder(self, spot: Spot) -> str:
        given = self._given.get((spot.kind, spot.key))
        if given is None:
            new = next(new for new in self._next[spot.kind] if new not in self._taken)
            given = self._given[spot.kind, spot.key] = Replacement(spot.kind, new, 0, spot.shown)
        given.count += 1
        return given.placeholder if self._config.replace_with_placeholders else REMOVED

    def _spots(self, text: str, key: str) -> list[Spot]:
        """Return the places to replace, in order. A name inside another find is no place."""
        finds = secrets_under(key, text) if self._config.secrets else []
        finds += [find for find in personal(text) if self._is_wanted(find.kind)]
        shapes = [spot for find in joined(finds) if (spot := _spot(text, find))]
        names = [name for name in self._names.find(text) if self._is_wanted(name.kind)
                 and not any(name.start < shape.end and shape.start < name.end
                             for shape in shapes)]  # fmt: skip
        return sorted([*shapes, *names])

    def _is_wanted(self, kind: str) -> bool:
        return bool(getattr(self._config, _CLASSES[kind][0]))


def placeholders_in(text: str) -> set[str]:
    """Return the placeholders that a text contains."""
    return set(_FORM.findall(text))


def is_placeholder(text: str) -> bool:
    return _FORM.fullmatch(text) is not None or text in (REMOVED, _TAG_REMOVED)


def _spot(text: str, found: Found) -> Spot | None:
    """Return the place of a find; None where the text is a placeholder or was redacted."""
    original = text[found.start : found.end]
    if not _REDACTED.sub("", _FORM.sub("", original)).strip(" \t\"'<>[](){};,.:=/\\-"):
        return None
    if found.kind not in _CLASSES:
        shown = f"({found.kind.replace('_', ' ')})"
        return Spot(found.start, found.end, _HIDDEN, original, shown)
    key = original.casefold() if found.kind == "email" else original
    key = _LOOSE.sub("", key) if found.kind == "phone" else key
    return Spot(found.start, found.end, found.kind, key, original)


def _series(kind: str) -> Iterator[str]:
    """Return the placeholders of a kind: `User-1`, `User-2`, … or `Project-A`, `Project-B`, …"""
    prefix = _CLASSES[kind][1]
    if kind != PROJECT:
        return (f"{prefix}{number}" for number in itertools.count(1))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    words = (itertools.product(letters, repeat=length) for length in itertools.count(1))
    return (prefix + "".join(word) for word in itertools.chain.from_iterable(words))
