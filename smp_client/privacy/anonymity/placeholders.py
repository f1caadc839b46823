"""Placeholders for what says who somebody is: the same for the same, all through one run, and no way back from them.

They are given in the order in which things first occur, so the same memory gives the same result each time. One that stands in a
text already, from an earlier run, stays what it is and is not given to anybody else.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

from ...errors import Invalid
from ..personal import personal
from ..redact import secrets_under
from ..secrets import Found, joined
from .names import PROJECT, USER, Names

REMOVED = "[removed]"
_TAG_REMOVED, _TAG_CHARACTERS = "removed", 32
_PLACEHOLDERS = 16  # in a text that is compared with what it may have been
_ROUNDS = 64  # far more than any text needs
_KEYED_CHARACTERS = 512  # a longer text is none that its key explains
_HIDDEN = "secrets"
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_FORM = re.compile(
    r"(?:User|Email|Phone|IP|IBAN|Card|Secret)-[1-9]\d{0,8}(?!\d)|Project-[A-Z]{1,4}(?![A-Za-z0-9])|/path/[1-9]\d{0,8}(?![\w/])"
)
_SPACED, _LOOSE = ("phone", "iban", "card"), re.compile(r"[\s().\-]")  # the same number, however it is set
_TAKEN_OUT = re.compile(r"\[redacted: [a-z0-9_ ]{1,40}\]|\[?removed\]?")


class _Class(NamedTuple):
    part: str  # of the configuration
    before: str  # how its placeholders begin


# By what was found: the kinds of names.py, personal.py and secrets.py.
_CLASSES = {
    USER: _Class("user_names", "User-"), PROJECT: _Class("project_names", "Project-"), "path": _Class("file_paths", "/path/"),
    "email": _Class("contacts", "Email-"), "phone": _Class("contacts", "Phone-"), "ip_address": _Class("addresses", "IP-"),
    "iban": _Class("accounts", "IBAN-"), "card": _Class("accounts", "Card-"), _HIDDEN: _Class("secrets", "Secret-"),
}  # fmt: skip


@dataclass(frozen=True)
class Anonymization:
    """What is replaced: everything, unless told otherwise. Without placeholders nothing tells one from another any more."""

    user_names: bool = True
    project_names: bool = True
    file_paths: bool = True
    contacts: bool = True  # e-mail addresses and phone numbers
    addresses: bool = True  # of machines
    accounts: bool = True  # IBANs and card numbers
    secrets: bool = True
    replace_with_placeholders: bool = True

    @classmethod
    def keeping(cls, kept: Iterable[str]) -> Anonymization:
        """All but these; raises Invalid where there is no such thing."""
        names = list(kept)
        if wrong := [name for name in names if name not in KINDS]:
            raise Invalid([f"there is no {name!r} to keep: it must be one of {', '.join(KINDS)}" for name in wrong])
        return cls(**dict.fromkeys(names, False))


def stands_for(text: str, original: str, *, literal_characters: int = 0) -> bool:
    """Whether a text is another one with placeholders in it, and as much as this beside them."""
    parts = re.split(f"{_FORM.pattern}|{_TAKEN_OUT.pattern}", text)
    if len(parts) == 1 or len(parts) > _PLACEHOLDERS or sum(map(len, parts)) < literal_characters:
        return False
    return re.fullmatch(".{1,120}?".join(map(re.escape, parts)), original) is not None


KINDS = tuple(field.name for field in fields(Anonymization) if field.name != "replace_with_placeholders")


@dataclass(frozen=True)
class Replacement:
    """What became of something; `what` is said only where nothing was changed yet, and of a secret only its kind."""

    kind: str
    placeholder: str
    count: int
    what: str | None = None


class _Spot(NamedTuple):
    start: int
    end: int
    kind: str
    key: str  # equal for what is the same
    shown: str


class Placeholders:
    """Of one run over a memory, or over an export."""

    def __init__(self, names: Names, config: Anonymization | None = None) -> None:
        self._names = names
        self._config = config or Anonymization()
        self._given: dict[tuple[str, str], str] = {}
        self._shown: dict[str, tuple[str, str]] = {}
        self._counts: Counter[str] = Counter()
        self._taken: set[str] = set()
        self._next = {kind: _numbers(kind) for kind in _CLASSES}

    def avoid(self, text: str) -> None:
        """Gives nobody a placeholder that stands in this text; one that is the very name of somebody is no placeholder."""
        self._taken.update(match[0] for match in _FORM.finditer(text) if not self._names.find(match[0]))

    def text(self, text: str, key: str = "") -> str:
        """The text with placeholders; `key` is the one that it stands under, which may say that it is a secret."""
        return self._replaced(text, key)

    def tag(self, tag: str) -> str:
        """The same for what must stay a tag."""
        new = self._replaced(tag, "").replace(REMOVED, _TAG_REMOVED)
        if new != tag and len(new) > _TAG_CHARACTERS:
            return next((match[0] for match in _FORM.finditer(new)), _TAG_REMOVED)
        return new

    def finds(self, text: str) -> bool:
        """Whether a known name or an e-mail address stands in it; other shapes mean nothing in what is no text of a memory."""
        if self._config.contacts and any(one.kind == "email" and _spot(text, one) for one in personal(text)):
            return True
        return any(self._is_wanted(hit.name.of) for hit in self._names.find(text))

    def names_left(self, text: str) -> Iterator[str]:
        """Known names that stand in it as they are and were left, since there they may mean something else."""
        said = _FORM.sub("", text)
        found = {hit.name for hit in self._names.find(said)}
        for name in self._names.literally_in(said):
            if self._is_wanted(name.of) and name not in found:
                yield name.text

    def replacements(self, *, telling: bool) -> list[Replacement]:
        """In the order in which they were first met; what stood there only where that may be told."""
        return [Replacement(kind, new, self._counts[new], shown if telling else None) for new, (kind, shown) in self._shown.items()]

    def counts(self) -> dict[str, int]:
        """How many places were replaced of each part of the configuration."""
        found: Counter[str] = Counter()
        for new, (kind, _) in self._shown.items():
            found[_CLASSES[kind].part] += self._counts[new]
        return {part: found[part] for part in KINDS if found[part]}

    def _replaced(self, text: str, key: str) -> str:
        """Until nothing is found any more: what stands beside a placeholder can have another shape than it had before."""
        for _ in range(_ROUNDS):
            pieces: list[str] = []
            position = 0
            for spot in self._spots(text, key):
                pieces += [text[position : spot.start], self._placeholder(spot)]
                position = spot.end
            if not pieces:
                return text
            text = "".join([*pieces, text[position:]])
        return text

    def _placeholder(self, spot: _Spot) -> str:
        given = self._given.get((spot.kind, spot.key))
        if given is None:
            numbers = self._next[spot.kind]
            given = next(new for new in numbers if new not in self._taken)
            self._given[spot.kind, spot.key] = given
            self._shown[given] = (spot.kind, spot.shown)
        self._counts[given] += 1
        return given if self._config.replace_with_placeholders else REMOVED

    def _spots(self, text: str, key: str) -> list[_Spot]:
        """What is to be replaced, in order and never overlapping: names only where nothing else covers them."""
        if _TIME.fullmatch(text):
            return []
        shapes = [spot for found in self._shapes(text, key) if (spot := _spot(text, found))]
        names = [_Spot(hit.start, hit.end, hit.name.of, hit.name.text.casefold(), hit.name.text) for hit in self._names.find(text)
                 if self._is_wanted(hit.name.of)]  # fmt: skip
        if shapes and names:
            names = [name for name in names if not any(name.start < shape.end and shape.start < name.end for shape in shapes)]
        return sorted([*shapes, *names])

    def _is_wanted(self, kind: str) -> bool:
        return bool(getattr(self._config, _CLASSES[kind].part))

    def _shapes(self, text: str, key: str) -> list[Found]:
        under = key if len(text) <= _KEYED_CHARACTERS else ""
        found = secrets_under(under, text) if self._config.secrets else []
        return joined([*found, *(one for one in personal(text) if self._is_wanted(one.kind))])


def is_placeholder(text: str) -> bool:
    return _FORM.fullmatch(text) is not None or text in (REMOVED, _TAG_REMOVED)


def _spot(text: str, found: Found) -> _Spot | None:
    """None where it is only what an earlier run, or a redaction, has put there."""
    said = text[found.start : found.end]
    if not _TAKEN_OUT.sub("", _FORM.sub("", said)).strip(" \t\"'<>[](){};,.:=/\\-"):
        return None
    if found.kind not in _CLASSES:
        return _Spot(found.start, found.end, _HIDDEN, said, f"({found.kind.replace('_', ' ')})")
    same = said.casefold() if found.kind == "email" else _LOOSE.sub("", said) if found.kind in _SPACED else said
    return _Spot(found.start, found.end, found.kind, same, said)


def _numbers(kind: str) -> Iterator[str]:
    before = _CLASSES[kind].before
    if kind != PROJECT:
        return (f"{before}{number}" for number in itertools.count(1))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return (before + "".join(chosen) for length in itertools.count(1) for chosen in itertools.product(letters, repeat=length))
