"""Placeholders for texts that say who somebody is: one for each, all through one run, no way back.

They are given in the order in which things first occur. One that stands in a text already, from an
earlier run, stays and is given to nobody else.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..redaction.personal import personal
from ..redaction.redact import secrets_under
from ..redaction.secrets import Found, joined
from .names import PROJECT, USER, Names, Spot

REMOVED = "[removed]"
_TAG_REMOVED, _TAG_CHARACTERS = "removed", 32
_ROUNDS = 64  # far more than any text needs
_HIDDEN = "secrets"
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_FORM = re.compile(
    r"(?:User|Email|Phone|IP|IBAN|Card|Secret)-[1-9]\d{0,8}(?!\d)|Project-[A-Z]{1,4}(?![A-Za-z0-9])"
    r"|/path/[1-9]\d{0,8}(?![\w/])"
)
# One number, however it is set.
_SPACED, _LOOSE = ("phone", "iban", "card"), re.compile(r"[\s().\-]")
_REDACTED = re.compile(r"\[redacted: [a-z0-9_ ]{1,40}\]|\[?removed\]?")
# By kind: the part of the configuration, and how its placeholders begin.
_CLASSES = {
    USER: ("user_names", "User-"), PROJECT: ("project_names", "Project-"),
    "path": ("file_paths", "/path/"), "email": ("contacts", "Email-"),
    "phone": ("contacts", "Phone-"), "ip_address": ("addresses", "IP-"),
    "iban": ("accounts", "IBAN-"), "card": ("accounts", "Card-"), _HIDDEN: ("secrets", "Secret-"),
}  # fmt: skip


@dataclass(frozen=True)
class Anonymization:
    """The kinds of text that are replaced: every one that is not set to False."""

    user_names: bool = True
    project_names: bool = True
    file_paths: bool = True
    contacts: bool = True  # e-mail addresses and phone numbers
    addresses: bool = True  # of machines
    accounts: bool = True  # IBANs and card numbers
    secrets: bool = True
    replace_with_placeholders: bool = True  # else by `[removed]`, which is one for all


@dataclass(frozen=True)
class Replacement:
    """A placeholder and its count. `what` is given only by a dry run, and for no secret."""

    kind: str
    placeholder: str
    count: int
    what: str | None = None


class Placeholders:
    """The placeholders of one run. Nobody gets one that is `taken`."""

    def __init__(
        self, names: Names, config: Anonymization | None = None, taken: Iterable[str] = ()
    ) -> None:
        self._names, self._config = names, config or Anonymization()
        self._given: dict[tuple[str, str], str] = {}
        self._shown: dict[str, tuple[str, str]] = {}  # kind and original, by placeholder
        self._counts: Counter[str] = Counter()
        self._taken = set(taken)
        self._next = {kind: _numbers(kind) for kind in _CLASSES}

    def text(self, text: str, key: str = "") -> str:
        """Return a text with placeholders. Its key may say that it is a secret.

        Beside a placeholder a text can have another shape, so this repeats until nothing is found.
        """
        for _ in range(_ROUNDS):
            pieces: list[str] = []
            at = 0
            for spot in self._spots(text, key):
                pieces += [text[at : spot.start], self._placeholder(spot)]
                at = spot.end
            if not pieces:
                return text
            text = "".join([*pieces, text[at:]])
        return text

    def tag(self, tag: str) -> str:
        """Return a tag with placeholders, which is still a tag."""
        new = self.text(tag).replace(REMOVED, _TAG_REMOVED)
        if new != tag and len(new) > _TAG_CHARACTERS:
            return next((match[0] for match in _FORM.finditer(new)), _TAG_REMOVED)
        return new

    def finds(self, text: str) -> bool:
        """Return whether a known name or an e-mail address stands in a text."""
        return any(spot.kind in (USER, PROJECT, "email") for spot in self._spots(text, ""))

    def replacements(self, *, telling: bool) -> list[Replacement]:
        """Return the placeholders in the order in which they were given."""
        return [Replacement(kind, new, self._counts[new], shown if telling else None)
                for new, (kind, shown) in self._shown.items()]  # fmt: skip

    def counts(self) -> Counter[str]:
        """Return how many places were replaced of each part of the configuration."""
        found: Counter[str] = Counter()
        for new, (kind, _) in self._shown.items():
            found[_CLASSES[kind][0]] += self._counts[new]
        return found

    def _placeholder(self, spot: Spot) -> str:
        given = self._given.get((spot.kind, spot.key))
        if given is None:
            given = next(new for new in self._next[spot.kind] if new not in self._taken)
            self._given[spot.kind, spot.key] = given
            self._shown[given] = (spot.kind, spot.shown)
        self._counts[given] += 1
        return given if self._config.replace_with_placeholders else REMOVED

    def _spots(self, text: str, key: str) -> list[Spot]:
        """Return the places to replace, in order; a name only where nothing else covers it."""
        if _TIME.fullmatch(text):
            return []
        found = secrets_under(key, text) if self._config.secrets else []
        found += [one for one in personal(text) if self._is_wanted(one.kind)]
        shapes = [spot for one in joined(found) if (spot := _spot(text, one))]
        names = [hit for hit in self._names.find(text) if self._is_wanted(hit.kind)
                 and not any(hit.start < one.end and one.start < hit.end
                             for one in shapes)]  # fmt: skip
        return sorted([*shapes, *names])

    def _is_wanted(self, kind: str) -> bool:
        return bool(getattr(self._config, _CLASSES[kind][0]))


def standing_in(text: str) -> set[str]:
    """Return the placeholders that stand in a text."""
    return set(_FORM.findall(text))


def is_placeholder(text: str) -> bool:
    return _FORM.fullmatch(text) is not None or text in (REMOVED, _TAG_REMOVED)


def _spot(text: str, found: Found) -> Spot | None:
    """Return the place, and None where an earlier run, or a redaction, has put it there."""
    original = text[found.start : found.end]
    if not _REDACTED.sub("", _FORM.sub("", original)).strip(" \t\"'<>[](){};,.:=/\\-"):
        return None
    if found.kind not in _CLASSES:
        shown = f"({found.kind.replace('_', ' ')})"
        return Spot(found.start, found.end, _HIDDEN, original, shown)
    key = original.casefold() if found.kind == "email" else original
    key = _LOOSE.sub("", key) if found.kind in _SPACED else key
    return Spot(found.start, found.end, found.kind, key, original)


def _numbers(kind: str) -> Iterator[str]:
    before = _CLASSES[kind][1]
    if kind != PROJECT:
        return (f"{before}{number}" for number in itertools.count(1))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    several = (itertools.product(letters, repeat=length) for length in itertools.count(1))
    return (before + "".join(some) for some in itertools.chain.from_iterable(several))
