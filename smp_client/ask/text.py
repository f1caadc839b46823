"""A text that a person or an agent typed, as a question to the full-text table `words`; and how
alike two short texts are.

    plain words      any of them, the rare ones counting most; stop words only if there is no other
    "a phrase"       required, as is +word; -word and -"a phrase" exclude
    auth*            words that begin so; `*ization` and `depr?cated` stand for words too
    AND, OR, NOT, () see operators.py

Every text is a question. Only quoted strings reach FTS5: no text is its syntax.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from heapq import nlargest
from typing import NamedTuple

from ..index.sql import Sql
from .argument import sayable
from .operators import Every, Group, Node, Without, tree_of

TEXT_CAP = 65_536  # characters: a longer text was pasted, and its beginning says what it is about
WORD_CAP = 64  # different plain words of one question: of a longer text the longest, which say most
MARK_CAP = 64  # a text with more quotes and signs was pasted, not asked
PATTERN_CAP = 8  # words with stars in one question: each may cost a look at all texts
PATTERN_LETTERS_CAP = 256  # of one pattern: a longer one was pasted
_TIMES_CAP = 3  # a word that is said more often does not count more
PHRASE_CAP = 64  # words of a phrase: FTS5 has a limit, and nobody says as many by chance

STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any anybody anyone anything are as at be
    because been before being below between both but by can cannot could d did do does doing done
    down during each either else ever every everyone everything few for from further get gets go
    goes going gone got had has have having he her here hers herself him himself his how however i
    if in into is it its itself just let ll m made make makes making many may me might mine more
    most much must my myself need needed needs neither new no nor not now of off on once only onto
    or other our ours ourselves out over own please re s same shall she should so some somebody
    someone something still such t tell than that the their theirs them themselves then there these
    they thing this those through to too under until up upon us use used uses using ve very want
    wanted wants was we went were what whatever when where whether which while who whoever whom
    whose why will with within without would yes yet you your yours yourself yourselves
    """.split()  # noqa: SIM905 - a text is easier to look through than 200 strings
)

# A word as unicode61 sees it, which reads through these accents.
TOKEN = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u0331])*")
IDENTIFIER = re.compile(r"(?<![^\W\d_])[^\W\d_]+-\d+")  # DEC-001, whose halves mean nothing
_CONTRACTED = ("s", "re", "ve", "ll", "d", "m")  # behind an apostrophe
_PIECE = re.compile(
    r"""(?P<sign>(?<![^\s(])[+-](?=["\w*]))?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"()]+))"""
)
_PATTERN = re.compile(r"[^\W_]*(?:[*?][^\W_]*)+")
_PATTERN_LETTERS = 2  # at least: fewer stand for too many words
_QUOTES = str.maketrans(dict.fromkeys("“”„‟", '"'))


class Term(NamedTuple):
    """A word or phrase that is looked for, and how FTS5 finds it."""

    word: str  # in lower case
    match: str
    is_word: bool = False  # one plain word, which may be written otherwise
    is_extra: bool = False  # makes a match better, and no match worse
    times: int = 1  # that the question says it, to three

    @property
    def said(self) -> str:
        """Return the match as often as the question says the word, since each time counts."""
        return " OR ".join([self.match] * self.times)


class Asked(NamedTuple):
    """A question. A memory needs any of the terms, and must pass the test."""

    terms: tuple[Term, ...] = ()
    test: Sql | None = None
    notes: tuple[str, ...] = ()
    # A memory without any of the words may answer it too, as in `oauth OR NOT login`.
    is_open: bool = False


class Expansion(NamedTuple):
    """The words that a pattern stands for."""

    match: str  # how FTS5 finds them, in all their forms
    exact: Sql | None = None  # the memories that have them in just this form


Expand = Callable[[str], Expansion]


def begun(pattern: str) -> Expansion:
    """Return how FTS5 finds words that begin so: the pattern `auth*` without a look at words."""
    return Expansion(f"{_row(pattern)} *")


class _Patterns:
    """The patterns of one question. Each is expanded once; behind too many, they are words."""

    def __init__(self, expand: Expand) -> None:
        self._expand = expand
        self._known: dict[str, Expansion] = {}
        self.notes: list[str] = []

    def expansion(self, said: str) -> Expansion | None:
        """Return the words that a pattern stands for; None if it is a plain word."""
        pattern = _pattern(said)
        if not pattern:
            return None
        if pattern not in self._known and len(self._known) < PATTERN_CAP:
            self._known[pattern] = self._expand(pattern)
        if pattern not in self._known:
            self.notes = [f"Of the patterns only the first {PATTERN_CAP} stood for other words."]
        return self._known.get(pattern)


def question_of(text: str, expand: Expand = begun) -> Asked:
    """Return the question that a text asks; one without terms and test where it has no words."""
    text = text[:TEXT_CAP].translate(_QUOTES)
    patterns = _Patterns(expand)
    tree = tree_of(text, MARK_CAP)
    if tree is None:
        group = _group(text, patterns)
        tests = [*group.required, *group.excluded]
        test = Sql.joined(" AND ", tests) if tests else None
        return Asked(_first(group.terms), test, tuple(patterns.notes))
    part = _part(tree.root, patterns)
    notes = (*tree.notes, *patterns.notes)
    if part is None:
        return Asked(notes=notes)
    return Asked(_first(part.terms), part.condition, notes, part.is_open)


class _Part(NamedTuple):
    """A part of a question with operators."""

    terms: Sequence[Term]  # that a memory may have
    condition: Sql
    is_open: bool = False  # a memory without any of the terms may fit too


def _part(node: Node, patterns: _Patterns) -> _Part | None:
    """Return the terms and the condition of a node; None if it has no words."""
    if isinstance(node, Group):
        return _group_part(_group(node.text, patterns))
    if isinstance(node, Without):
        part = _part(node.part, patterns)
        return part and _Part((), part.condition.wrapped("NOT ({})"), not part.is_open)
    parts = [part for one in node.parts if (part := _part(one, patterns)) is not None]
    if not parts:
        return None
    terms = [term for part in parts for term in part.terms]
    conditions = [part.condition.wrapped("({})") for part in parts]
    if isinstance(node, Every):
        is_open = all(part.is_open for part in parts)
        return _Part(terms, Sql.joined(" AND ", conditions), is_open)
    return _Part(terms, Sql.joined(" OR ", conditions), any(part.is_open for part in parts))


def _group_part(group: _Words) -> _Part | None:
    tests = [*group.required, *group.excluded]
    if group.terms and not group.required:
        tests.append(_any_of(group.terms))
    if not tests:
        return None
    return _Part(group.terms, Sql.joined(" AND ", tests), is_open=not group.terms)


class _Words(NamedTuple):
    """A group of words without operators: any term may match, and all tests must."""

    terms: list[Term]
    required: list[Sql]
    excluded: list[Sql]


def _group(text: str, patterns: _Patterns) -> _Words:
    pieces = list(_PIECE.finditer(text))
    marks = sum(piece["word"] is None or bool(piece["sign"]) for piece in pieces)
    group = _Words([], [], [])
    chunks: list[str] = []  # plain words
    alike: list[Sql] = []  # of patterns without a sign
    for piece in pieces:
        sign = piece["sign"]
        said = piece["phrase"] or piece["word"] or ""
        is_pasted = marks > MARK_CAP
        expansion = None if is_pasted else patterns.expansion(piece["word"] or "")
        is_plain = not sign and not expansion and piece["word"] is not None
        if is_pasted or is_plain:
            chunks += said.split()
            continue
        found = expansion or Expansion(_row(_core(said) if sign else said))
        test = found.exact or _having(found.match)
        if found.match and sign == "-":
            group.excluded.append(test.wrapped("NOT {}"))
        elif found.match:
            group.terms.append(Term(said.lower(), found.match))
            tests = alike if expansion and not sign else group.required
            tests.append(test)
    terms, stop_words = _terms(chunks)
    group.terms.extend(terms)
    if alike and not group.required:
        others = [_any_of(terms)] if terms else []
        group.required.append(Sql.joined(" OR ", [*alike, *others]).wrapped("({})"))
    if not group.terms:
        group.terms.extend(stop_words)
    return group


def _pattern(said: str) -> str:
    """Return the pattern for words that a person typed; empty if it is a plain word."""
    if "*" not in said and "?" not in said:
        return ""
    said = said.rstrip(".,;:!?")  # a question mark behind a word ends a question
    letters = sum(map(len, TOKEN.findall(said)))
    if letters < _PATTERN_LETTERS or len(said) > PATTERN_LETTERS_CAP or "**" in said:
        return ""
    is_pattern = _PATTERN.fullmatch(said) or said.endswith("*")
    return said.lower() if is_pattern else ""


def _any_of(terms: Sequence[Term]) -> Sql:
    return _having(" OR ".join(term.match for term in _first(terms)))


def _having(match: str) -> Sql:
    return Sql("m.key IN (SELECT rowid FROM words WHERE words MATCH ?)", (match,))


def words(text: str) -> list[str]:
    """Return the content words of a text in lower case, each once, in their order."""
    cores = (core for core in map(_core, dict.fromkeys(text.split())) if not _is_stop(core))
    found = (token.lower() for core in cores for token in TOKEN.findall(core))
    return list(dict.fromkeys(token for token in found if token not in STOP_WORDS))


def tokens(text: str) -> list[str]:
    """Return all words of a text in lower case, with stop words."""
    return TOKEN.findall(text[:TEXT_CAP].lower())


def quoted(text: str) -> str:
    """Return a text as FTS5 takes it: these words in this order."""
    # Each ends a string of FTS5, or its expression.
    text = sayable(text).replace('"', " ").replace("\0", " ")
    return f'"{text}"'


def _core(chunk: str) -> str:
    """Return the part of a chunk from its first word to its last, without an 's at its end."""
    found = list(TOKEN.finditer(chunk))
    core = chunk[found[0].start() : found[-1].end()] if found else ""
    short, apostrophe, ending = core.replace("’", "'").rpartition("'")
    return core[: len(short)] if apostrophe and ending.lower() in _CONTRACTED else core


def _is_stop(form: str) -> bool:
    form = form.lower().replace("’", "'")
    return form in STOP_WORDS or (form.endswith("n't") and form[:-3].isalpha())


def _terms(chunks: Iterable[str]) -> tuple[list[Term], list[Term]]:
    """Return the terms of plain words, and those that are stop words.

    A chunk of several words, such as `foo_bar`, is looked for as a whole and by each of them.
    """
    terms: list[Term] = []
    stop_words: list[Term] = []
    counts = Counter(core.lower() for core in map(_core, chunks) if core)
    for core, count in counts.items():
        parts = TOKEN.findall(core)
        if _is_stop(core) or all(map(_is_stop, parts)):
            stop_words += [Term(part.lower(), quoted(part)) for part in parts]
        elif len(parts) == 1:
            times = min(count, _TIMES_CAP)
            terms.append(Term(core, quoted(core), is_word=True, times=times))
        else:
            # A number alone, such as the month of a date, is in too many memories.
            alone = [part for part in parts if len(part) > 1 and not part.isdigit()]
            alone = [part for part in alone if not _is_stop(part)]
            alone = [] if IDENTIFIER.fullmatch(core) else alone
            terms.append(Term(core.lower(), _row(core), is_extra=bool(alone)))
            terms += [Term(part.lower(), quoted(part), is_word=True) for part in alone]
    return terms, stop_words


def _first(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Return each term once; of too many the longest."""
    different = {term.word: term for term in terms}
    kept = set(nlargest(WORD_CAP, different, key=len))
    return tuple(term for word, term in different.items() if word in kept)


def _row(text: str) -> str:
    """Return a phrase, from its first word to its last as it stands."""
    spans = [match.span() for match in itertools.islice(TOKEN.finditer(text), PHRASE_CAP)]
    return quoted(text[spans[0][0] : spans[-1][1]]) if spans else ""


# Likeness. In doubt two texts are not alike: one entry must not hide another matter.

_ENDING = re.compile(r"(?:ies|ing|ed|es|s|e)$")
_STEM = 6
_PUNCTUATION = ".,;:!?…\"'`´‘’“”„«»()[]{}–—-"
_DENIAL = re.compile(
    r"\b(?:no|not|never|none|without|missing|lacks?|lacking|absent|undefined|unspecified|cannot)\b"
    r"|n['’]t\b"
)


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
    denies = bool(_DENIAL.search(text.lower()))
    return Said(" ".join(filter(None, bare)), frozenset(exact), denies, frozenset(stems))


def likeness(one: Said, other: Said) -> float:
    """Return the share of content words, without their endings, that two texts have in common.

    Texts that differ in a number, or in whether they deny something, have nothing in common.
    """
    if one.plain == other.plain:
        return 1.0
    if one.denies != other.denies or one.exact != other.exact or not one.stems:
        return 0.0
    return 2 * len(one.stems & other.stems) / (len(one.stems) + len(other.stems))
