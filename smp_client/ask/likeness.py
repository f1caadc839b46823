"""How alike two short texts are, and the memories that a new one repeats or is near to.

It is judged with care: two entries for one matter do less harm than one entry that hides another.
Nothing is merged. A writer asks by `Record.same_as` or `Record.similar`: a write needs no index.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..index.validity import holds, project_scopes, short_name
from ..model.layout import GLOBAL
from ..model.record import Neighbours, Record
from .engine import similar
from .options import Wanted, one_of
from .text import words

if TYPE_CHECKING:
    from .priorities import View

_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
_PUNCTUATION = ".,;:!?…\"'`´‘’“”„«»()[]{}–—-"
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|without|missing|lacks?|lacking|absent|undefined|unspecified|cannot)\b"
    r"|n['’]t\b"
)
_ALIKE = 0.6  # of 1: from here on a memory is near
_CANDIDATES = 40  # a memory that says the same has every word, and is among the first
_SIMILAR = 3


class Said(NamedTuple):
    """The features of a text that are compared."""

    plain: str  # in lower case, with single blanks and no punctuation around its words
    exact: frozenset[str]  # words with a digit, which name one thing and no other
    denies: bool
    stems: frozenset[str]


@lru_cache(1024)  # each text of a page is compared with each
def said(text: str) -> Said:
    bare = (word.strip(_PUNCTUATION) for word in text.lower().split())
    found = words(text)
    exact = {word for word in found if any(character.isdigit() for character in word)}
    stems = {(_ENDING.sub("", word) if len(word) > 4 else word)[:_STEM] for word in found}
    denies = bool(_NEGATION.search(text.lower()))
    return Said(" ".join(filter(None, bare)), frozenset(exact), denies, frozenset(stems))


def likeness(one: Said, other: Said) -> float:
    """Return the share of content words, without their endings, that two texts have in common.

    Texts that differ in a number, or in whether they deny something, have nothing in common.
    """
    if one.plain == other.plain:
        return 1.0
    stems = len(one.stems & other.stems)
    if not stems or one.exact != other.exact or one.denies != other.denies:
        return 0.0
    return 2 * stems / (len(one.stems) + len(other.stems))


def neighbours(view: View, record: Record) -> Neighbours:
    """Return the memories of the project that say the same as a new one, or are near to it.

    Only memories of its kind that still hold count, in the sessions of the project and `global/`.
    """
    scopes = {GLOBAL}
    if record.session != GLOBAL:
        scopes |= set(project_scopes(view.index, record.session))
    of_project = view.of(scope for scope in view.scopes if scope in scopes)
    want = Wanted((one_of("m.type", [record.type]), holds()), limit=_CANDIDATES)
    own = said(record.text)
    found = [
        (likeness(said(one.text), own), one)
        for one in similar(of_project, want, record.text)
        if (one.session, one.id) != (record.session, record.id)
    ]

    def name(one: Record) -> str:
        return short_name(f"{one.session}/{one.id}", record.session)

    same = [one for _, one in found if said(one.text).plain == own.plain]
    newest = max(same, key=lambda one: str(one.data.get("timestamp")), default=None)
    near = [(share, one) for share, one in found if share >= _ALIKE and one not in same]
    near.sort(key=lambda pair: -pair[0])
    return Neighbours(
        name(newest) if newest else None, tuple(name(one) for _, one in near[:_SIMILAR])
    )
