"""Placeholders for texts that identify somebody: one for each text in a whole run, irreversible.

Placeholders are numbered in the order in which their texts first occur. A placeholder of an earlier
run stays in its text, and is given to no other text.
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
_HIDDEN = "secrets"  # the kind whose originals are never shown
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_FORM = re.compile(
    r"(?:User|Email|Phone|IP|IBAN|Card|Secret)-[1-9]\d{0,8}(?!\d)|Project-[A-Z]{1,4}(?![A-Za-z0-9])"
    r"|/path/[1-9]\d{0,8}(?![\w/])"
)
# Spaces and dashes make no other number.
_SPACED, _LOOSE = ("phone", "iban", "card"), re.compile(r"[\s().\-]")
_REDACTED = re.compile(r"\[redacted: [a-z0-9_ ]{1,40}\]|\[?removed\]?")
# By kind: the field of Anonymization, and how its placeholders begin.
_CLASSES = {
    USER: ("user_names", "User-"), PROJECT: ("project_names", "Project-"),
    "path": ("file_paths", "/path/"), "email": ("contacts", "Email-"),
    "phone": ("contacts", "Phone-"), "ip_address": ("addresses", "IP-"),
    "iban": ("accounts", "IBAN-"), "card": ("accounts", "Card-"), _HIDDEN: ("secrets", "Secret-"),
}  # fmt: skip


@dataclass(frozen=True)
class Anonymization:
    """The kinds of text that are replaced."""

    user_names: bool = True
    project_names: bool = True
    file_paths: bool = True
    contacts: bool = True  # e-mail addresses and phone numbers
    addresses: bool = True  # of machines
    accounts: bool = True  # IBANs and card numbers
    secrets: bool = True
    replace_with_placeholders: bool = True  # False replaces every text with `[removed]`


@dataclass(frozen=True)
class Replacement:
    """A placeholder and its count. Only a dry run has the original text, as `what`.

    For a secret, `what` is its kind.
    """

    kind: str
    placeholder: str
    count: int
    what: str | None = None


class Placeholders:
    """The placeholders of one run. Those in `taken` are not given again."""

    def __init__(
        self, names: Names, config: Anonymization | None = None, taken: Iterable[str] = ()
    ) -> None:
        self._names, self._config = names, config or Anonymization()
        self._given: dict[tuple[str, str], str] = {}
        self._shown: dict[str, tuple[str, str]] = {}  # kind and original, by placeholder
        self._counts: Counter[str] = Counter()
        self._taken = set(taken)
        self._next = {kind: _series(kind) for kind in _CLASSES}

    def text(self, text: str, key: str = "") -> str:
        """Return a text with placeholders. A key such as `password` makes the text a secret.

        The text beside a new placeholder can become a find, so this repeats until none is left.
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
        """Return a tag with placeholders. The result is a valid tag."""
        new = self.text(tag).replace(REMOVED, _TAG_REMOVED)
        if new != tag and len(new) > _TAG_CHARACTERS:
            return next((match[0] for match in _FORM.finditer(new)), _TAG_REMOVED)
        return new

    def finds(self, text: str) -> bool:
        """Return whether a known name or an e-mail address stands in a text."""
        return any(spot.kind in (USER, PROJECT, "email") for spot in self._spots(text, ""))

    def replacements(self, *, with_originals: bool) -> list[Replacement]:
        """Return the placeholders in the order in which they were given."""
        return [Replacement(kind, new, self._counts[new], shown if with_originals else None)
                for new, (kind, shown) in self._shown.items()]  # fmt: skip

    def counts(self) -> Counter[str]:
        """Return how many places were replaced, by the fields of Anonymization."""
        counts: Counter[str] = Counter()
        for new, (kind, _) in self._shown.items():
            counts[_CLASSES[kind][0]] += self._counts[new]
        return counts

    def _placeholder(self, spot: Spot) -> str:
        given = self._given.get((spot.kind, spot.key))
        if given is None:
            given = next(new for new in self._next[spot.kind] if new not in self._taken)
            self._given[spot.kind, spot.key] = given
            self._shown[given] = (spot.kind, spot.shown)
        self._counts[given] += 1
        return given if self._config.replace_with_placeholders else REMOVED

    def _spots(self, text: str, key: str) -> list[Spot]:
        """Return the places to replace, in order. A name inside another find is no place."""
        if _TIME.fullmatch(text):
            return []
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
    key = _LOOSE.sub("", key) if found.kind in _SPACED else key
    return Spot(found.start, found.end, found.kind, key, original)


def _series(kind: str) -> Iterator[str]:
    """Return the placeholders of a kind: `User-1`, `User-2`, … or `Project-A`, `Project-B`, …"""
    prefix = _CLASSES[kind][1]
    if kind != PROJECT:
        return (f"{prefix}{number}" for number in itertools.count(1))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    words = (itertools.product(letters, repeat=length) for length in itertools.count(1))
    return (prefix + "".join(word) for word in itertools.chain.from_iterable(words))
