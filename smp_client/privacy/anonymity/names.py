"""Names of people and projects in texts: where a known one stands, in whatever way it is written.

A text is read word by word, so a name is never found inside another word: not `Ann` in `Annotation`. `_`, `-`, `.`, blanks and
apostrophes end a word, so it is found in `anna_berg`, `anna-berg`, `Anna's` and `anna.berg@example.org`. Names in scripts that
set no blanks between words are found anywhere. Other signs belong to a name: `Foo & Co` is found as `Foo&Co` and `foo-co`, not as
`Foo Co`, and `C++` is not found in `C`.

Of a person's full name each part alone means the same person. A name of one word that is shorter than three letters, or also an
ordinary English word (`Will`, `Rose`, a project `Search`), is found only where it begins with a capital, or where it is all that a
text says.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

USER, PROJECT = "user_names", "project_names"
_SHORT = 3
_JOINED_LETTERS = 5  # of several words written as one; fewer may be a word of their own
_GAP = re.compile(r"[\s._\-,'’]{1,3}")
_SPLIT = re.compile(r"[\s._\-,]+")
_LOOSE = re.compile(r"[\s._\-,'’]+")  # what may stand between two words of a name or not
_SLUG = re.compile(r"[_-]{1,2}")  # what a name of a file has in the place of signs
_SIGNED_CAP = 8  # characters between two words with a sign between them
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+"
)  # fmt: skip

_ORDINARY_WORDS = """
    angel april art august autumn baker bell best bill black blue bond brook brown buck bud bush butler carpenter
    case chance chase chip church clay cliff cook crystal cross dale dawn day dean drew earl eve faith fields
    fisher flowers ford fox frank french gates gene ginger glen gold good grace grant gray green grey guy hall harmony hazel heath
    hill holly hope house hunt hunter iris ivy jade jay jewel joy june kay king knight lamb lance land lane laurel
    law lee lily little long lord love mark marsh mason max may melody mercy miles mills moon moss norm north
    olive page park parks pat patience peace pearl penny pierce pool pope potter power powers price ray read reed rice rich river
    rivers robin rock rod rose ruby rush rusty sage salt sandy sharp shepherd singer skip sky small snow spring stone
    storm street strong sue summer sunny swan temple tuck turner van victor violet wade walker wall walls ward
    waters weaver wells west white will wise wolf wood woods woody wright young
    account api app assistant backend blog bot calendar chat client cloud console core dashboard data database demo desktop editor
    engine example frontend game gateway home inbox lab library mail memory mobile monitor network notes office online payment
    payments platform portal product project prototype report sandbox search server service shop site software store studio suite
    system template test tool tools tracker training update upload version web website wiki work
"""
# What somebody is called who is not named.
_PARTS_TO_PLAY = """
    admin administrator agent ai anonymous assistant bot customer daemon default everybody everyone global guest human me model
    nobody none null owner root self smp somebody system team test tool unknown user you
    analyst architect auditor coder designer developer dev engineer expert facilitator lead manager moderator operator orchestrator
    planner pm po programmer qa researcher reviewer scribe sm strategist supervisor tester ux writer
"""
_ORDINARY, _NOBODY = frozenset(_ORDINARY_WORDS.split()), frozenset(_PARTS_TO_PLAY.split())


class Name(NamedTuple):
    """Somebody, or a project, by the name that they are known under."""

    of: str
    text: str


class Hit(NamedTuple):
    start: int
    end: int
    name: Name


class _Form(NamedTuple):
    """A way in which a name is written: its words in small letters, and the signs that stand between them and around them."""

    words: tuple[str, ...]
    signs: tuple[str, ...]  # between one word and the next; nothing where only blanks and the like are
    before: str
    after: str


class Names:
    """All that are known. Of two that share a part, that part means the one who was given first."""

    def __init__(self, people: Iterable[str] = (), projects: Iterable[str] = ()) -> None:
        self._by_first: dict[str, dict[_Form, Name]] = {}
        self._anywhere: dict[str, Name] = {}
        # Who is called by one word is taken for the one who has it as a part of the whole name.
        self.known = [Name(USER, text) for text in sorted(dict.fromkeys(people), key=lambda text: len(_pieces(text)) == 1)]
        for name in self.known:
            self._add_person(name, _pieces(name.text))
        for text in dict.fromkeys(projects):
            self.known.append(name := Name(PROJECT, text))
            self._add(_form(text), name)
        longest_first = sorted(self._anywhere, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __bool__(self) -> bool:
        return bool(self._by_first or self._anywhere)

    def find(self, text: str) -> list[Hit]:
        """Every place where one stands, in order and never overlapping; the longest that fits."""
        found = [*self._in_words(text), *self._in_letters(text)]
        found.sort(key=lambda hit: (hit.start, -hit.end))
        kept: list[Hit] = []
        for hit in found:
            if not kept or hit.start >= kept[-1].end:
                kept.append(hit)
        return kept

    def literally_in(self, text: str) -> list[Name]:
        """Those that stand in a text as they are, in whatever case and not in the middle of a word; also where one means nobody."""
        folded = _folded(text)
        return [name for name in self.known if _is_in(_folded(name.text), folded)]

    def _add_person(self, name: Name, pieces: list[str]) -> None:
        self._add(_form(name.text), name)
        if len(pieces) > 1:
            self._add(_form(" ".join(reversed(pieces))), name)
            for piece in pieces:
                self._add(_form(piece) if len(piece) > 1 else None, name)

    def _add(self, form: _Form | None, name: Name) -> None:
        if not form:
            return
        if all(_NO_BLANKS.fullmatch(word) for word in form.words):
            self._anywhere.setdefault("".join(form.words), name)
        self._by_first.setdefault(form.words[0], {}).setdefault(form, name)
        joined = "".join(form.words)
        if len(form.words) > 1 and len(joined) >= _JOINED_LETTERS:
            self._by_first.setdefault(joined, {}).setdefault(_Form((joined,), (), "", ""), name)

    def _in_letters(self, text: str) -> Iterator[Hit]:
        for match in self._pattern.finditer(text) if self._pattern else ():
            yield Hit(*match.span(), self._anywhere[match[0]])

    def _in_words(self, text: str) -> Iterator[Hit]:
        folded = _folded(text)
        if not any(first in folded for first in self._by_first):
            return
        places = list(_word().finditer(text))
        words = [_folded(place[0]) for place in places]
        number = 0
        while number < len(places):
            form, hit = self._at(text, places, words, number)
            if hit:
                yield hit
            number += len(form.words) if form else 1

    def _at(
        self, text: str, places: list[re.Match[str]], words: list[str], number: int
    ) -> tuple[_Form, Hit] | tuple[None, None]:  # fmt: skip
        known = self._by_first.get(words[number], {})
        for form in sorted(known, key=_size, reverse=True) if known else ():
            length = len(form.words)
            if tuple(words[number : number + length]) != form.words:
                continue
            gaps = (text[places[at].end() : places[at + 1].start()] for at in range(number, number + length - 1))
            if not all(map(_is_gap, gaps, form.signs)):
                continue
            start, end = places[number].start(), places[number + length - 1].end()
            has_signs = text.endswith(form.before, 0, start) and text.startswith(form.after, end)
            is_signed = has_signs and bool(form.before or form.after)
            if is_signed or length > 1 or (_is_meant(text, places[number], words[number]) and not _needs_its_signs(form)):
                start, end = (start - len(form.before), end + len(form.after)) if is_signed else (start, end)
                return form, Hit(start, end, known[form])
        return None, None


def is_somebody(name: object) -> bool:
    """Whether a participant has a name of its own, and not only a part to play."""
    word = name.strip().casefold() if isinstance(name, str) else ""
    return len(word) > 1 and word not in _NOBODY and any(map(str.isalpha, word))


def _pieces(text: str) -> list[str]:
    """The parts of a full name, of an e-mail address those before the `@`; of an id with a number in it, such as `user-123`, none
    means anybody."""
    pieces = [piece for piece in _SPLIT.split(text.partition("@")[0]) if any(map(str.isalnum, piece))]
    return [text] if any(piece.isdecimal() for piece in pieces) else pieces


def _is_meant(text: str, place: re.Match[str], word: str) -> bool:
    if _is_telling(word):
        return True
    return place[0][0].isupper() or not place[0][0].isalpha() or not (text[: place.start()] + text[place.end() :]).strip()


def _is_in(sought: str, folded: str) -> bool:
    at = -1
    while (at := folded.find(sought, at + 1)) >= 0:
        around = (folded[at - 1 : at] + sought[0], sought[-1] + folded[at + len(sought) :][:1])
        if not any(len(pair) == 2 and pair.isalnum() for pair in around):
            return True
    return False


def _is_telling(word: str) -> bool:
    return len(word) >= _SHORT and word not in _ORDINARY


def _needs_its_signs(form: _Form) -> bool:
    """Of `C++` nothing is left without them that names it; `Yahoo` is `Yahoo!`."""
    return bool(form.before or form.after) and not _is_telling(form.words[0])


def _size(form: _Form) -> tuple[int, int]:
    """Longer ones are tried first."""
    return len(form.words), len("".join((form.before, *form.signs, form.after)))


def _form(text: str) -> _Form | None:
    places = list(_word().finditer(text))
    if not places:
        return None
    between = (text[one.end() : other.start()] for one, other in itertools.pairwise(places))
    before, after = text[: places[0].start()], text[places[-1].end() :]
    return _Form(tuple(_folded(place[0]) for place in places), tuple(map(_signs, between)), _signs(before), _signs(after))


def _signs(gap: str) -> str:
    return _LOOSE.sub("", gap)


def _is_gap(gap: str, signs: str) -> bool:
    if not signs:
        return _GAP.fullmatch(gap) is not None
    return (len(gap) <= len(signs) + _SIGNED_CAP and _signs(gap) == signs) or _SLUG.fullmatch(gap) is not None


def _folded(word: str) -> str:
    return word.lower() if word.isascii() else unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())


@functools.cache
def _word() -> re.Pattern[str]:
    """A run of letters and digits, with the marks that belong to them: an accent may be a character of its own."""
    marks: list[tuple[int, int]] = []
    for code in range(0x300, min(0x10000, sys.maxunicode)):
        if unicodedata.category(chr(code))[0] == "M":
            if marks and marks[-1][1] == code - 1:
                marks[-1] = (marks[-1][0], code)
            else:
                marks.append((code, code))
    ranges = "".join(f"{chr(first)}-{chr(last)}" for first, last in marks)
    return re.compile(f"(?:[^\\W_]|[{ranges}])+")
