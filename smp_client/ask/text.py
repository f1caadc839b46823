"""A text that a person or an agent typed, as a question to the full-text table `words`.

    plain words      any of them, the rare ones counting most; stop words only if there is no other
    "a phrase"       required, as is +word; -word and NOT word exclude
    auth*            words that begin so
    AND OR NOT ( )   in upper case; words side by side bind closest: `a b AND c` is (a or b) and c

Every text is a question. A text that does not add up (a parenthesis too many, an operator without
operand) is read as plain words. Only quoted strings reach FTS5: no text is its syntax.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from typing import NamedTuple

from ..index.sql import Sql

TEXT_CAP = 65_536  # characters: a longer text was pasted, and its beginning says what it is about
WORD_CAP = 64  # different plain words of one question: of a longer text the longest, which say most
MARK_CAP = 64  # a text with more quotes, signs and operators was pasted, not asked
DEPTH_CAP = 20  # parentheses in each other; SQLite takes no expression deeper than 1,000
PHRASE_CAP = 64  # words of a phrase: FTS5 has a limit, and nobody says as many by chance

STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any anybody anyone anything are as at
    be because been before being below between both but by can cannot could d did do does doing
    done down during each either else ever every everyone everything few for from further get
    gets got had has have having he her here hers herself him himself his how however i if in
    into is it its itself just let ll m many may me might mine more most much must my myself
    neither new no nor not now of off on once only onto or other our ours ourselves out over own
    please re s same shall she should so some somebody someone something still such t tell than
    that the their theirs them themselves then there these they thing this those through to too
    under until up upon us use used uses using ve very was we were what whatever when where
    whether which while who whoever whom whose why will with within without would yes yet you
    your yours yourself yourselves
    """.split()  # noqa: SIM905 - a text is easier to look through than 190 strings
)

# A word as unicode61 sees it, which reads through these accents.
TOKEN = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u0331])*")
IDENTIFIER = re.compile(r"[^\W\d_]+-\d+")  # DEC-001, whose halves mean nothing
_CONTRACTION = re.compile(r"(.*)['’](?:s|re|ve|ll|d|m)", re.IGNORECASE | re.DOTALL)
_NEGATION = re.compile(r"[a-z]+n['’]t", re.IGNORECASE)
_PIECE = re.compile(
    r"""
    \(\s*\)
    | (?P<sign> (?<![^\s(]) [+-] (?=["(\w]) )?
      (?: "(?P<phrase>[^"]*)" | (?P<open>\() | (?P<word>[^\s"()]+) )
    | (?P<close>\))
    """,
    re.VERBOSE,
)
_QUOTES = str.maketrans(dict.fromkeys("“”„‟", '"'))
# Each ends a string of FTS5, ends its expression, or is no character.
_UNSAYABLE = re.compile('["\x00\ud800-\udfff]')


class Term(NamedTuple):
    """A word or phrase that is looked for, and how FTS5 finds it."""

    word: str  # in lower case
    match: str
    is_word: bool = False  # one plain word, which may be written otherwise
    is_extra: bool = False  # makes a match better, and no match worse


class Test(NamedTuple):
    """A condition on a memory `m`. An open one also holds for memories without any of the terms."""

    sql: Sql
    is_open: bool = False


class Asked(NamedTuple):
    """A question. Without a test, a memory needs any of the terms."""

    terms: tuple[Term, ...] = ()
    test: Test | None = None


def question_of(text: str) -> Asked:
    """Return the question that a text asks; one without terms and test where it has no words."""
    text = text[:TEXT_CAP].translate(_QUOTES)
    pieces = list(_pieces(text))
    marks = sum(piece.kind != "word" for piece in pieces)
    if 0 < marks <= MARK_CAP:
        parser = _Parser(pieces)
        try:
            test = parser.parse()
            return Asked(_first(parser.terms or parser.stop_words), test)
        except _Malformed:
            text = " ".join(piece.text for piece in pieces if piece.kind in ("word", "phrase"))
    terms, stop_words = _terms(re.split(r'[\s"()*]+', text))
    return Asked(_first(terms or stop_words))


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
    return f'"{_UNSAYABLE.sub(" ", text)}"'


def is_stop(word: str) -> bool:
    return word in STOP_WORDS


class _Malformed(Exception):
    """Operators and parentheses that make no expression."""


class _Piece(NamedTuple):
    text: str
    kind: str  # word, star, phrase, open, close, operator
    sign: str = ""  # + or -


def _pieces(text: str) -> Iterator[_Piece]:
    for found in _PIECE.finditer(text):
        kind, sign = found.lastgroup, found["sign"] or ""
        if kind is None:  # "()" holds nothing
            continue
        said = found[kind]
        if kind == "word" and said in ("AND", "OR", "NOT") and not sign:
            kind = "operator"
        elif kind == "word" and (sign or said.endswith("*")):
            kind = "star" if said.endswith("*") else "phrase"
        yield _Piece(said, kind, sign)


def _core(chunk: str) -> str:
    """Return the part of a chunk from its first word to its last, without an 's at its end."""
    found = list(TOKEN.finditer(chunk))
    core = chunk[found[0].start() : found[-1].end()] if found else ""
    contraction = _CONTRACTION.fullmatch(core)
    return contraction[1] if contraction else core


def _is_stop(form: str) -> bool:
    return form.lower() in STOP_WORDS or bool(_NEGATION.fullmatch(form))


def _terms(chunks: Iterable[str]) -> tuple[list[Term], list[Term]]:
    """Return the terms of plain words, and those that are stop words.

    A chunk of several words, such as `foo_bar`, is looked for as a whole and by each of them.
    """
    terms: list[Term] = []
    stop_words: list[Term] = []
    for core in filter(None, map(_core, dict.fromkeys(chunks))):
        parts = TOKEN.findall(core)
        if _is_stop(core) or all(map(_is_stop, parts)):
            stop_words += [Term(part.lower(), quoted(part)) for part in parts]
        elif len(parts) == 1:
            terms.append(Term(core.lower(), quoted(core), is_word=True))
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


def _matches(match: str) -> Test:
    return Test(Sql("m.key IN (SELECT rowid FROM words WHERE words MATCH ?)", (match,)))


def _joined(operator: str, tests: Iterable[Test | None]) -> Test | None:
    """Return that all tests hold, or one of them. A part without a word (None) asks nothing."""
    parts = [test for test in tests if test]
    if len(parts) < 2:
        return parts[0] if parts else None
    is_open = (all if operator == "AND" else any)(part.is_open for part in parts)
    whole = Sql.joined(f" {operator} ", [part.sql for part in parts])
    return Test(Sql(f"({whole.text})", whole.parameters), is_open)


class _Parser:
    """Reads pieces as an expression. Collects the terms that are looked for, and not excluded."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self._pieces = list(pieces)
        self._depth = 0
        self.terms: list[Term] = []
        self.stop_words: list[Term] = []

    def parse(self) -> Test | None:
        test = self._several("OR")
        if self._pieces:
            raise _Malformed
        return test

    def _next_is(self, *texts: str) -> bool:
        piece = self._pieces[0] if self._pieces else None
        return piece is not None and piece.kind in ("operator", "close") and piece.text in texts

    def _take(self) -> _Piece:
        if not self._pieces:
            raise _Malformed
        return self._pieces.pop(0)

    def _several(self, operator: str) -> Test | None:
        """Read operands of OR, each of which has operands of AND."""
        tests: list[Test | None] = []
        while not tests or self._next_is(operator):
            if tests:
                self._take()
            tests.append(self._several("AND") if operator == "OR" else self._run())
        return _joined(operator, tests)

    def _run(self) -> Test | None:
        """Read what stands side by side: required, excluded and optional operands."""
        needed: list[Test | None] = []
        optional: list[Test | None] = []
        stop_words: list[Test | None] = []
        while not self._next_is("AND", "OR", ")") or not (needed or optional or stop_words):
            is_excluded = False
            while self._next_is("NOT"):
                self._take()
                is_excluded = not is_excluded
            piece, known = self._take(), len(self.terms)
            if piece.kind in ("operator", "close"):
                raise _Malformed
            test, is_stop_word = self._operand(piece)
            if is_excluded or piece.sign == "-":
                del self.terms[known:]
                inverse = Sql(f"NOT {test.sql.text}", test.sql.parameters) if test else None
                needed.append(Test(inverse, not test.is_open) if test and inverse else None)
            elif piece.sign == "+" or piece.kind == "phrase":
                needed.append(test)
            else:
                (stop_words if is_stop_word else optional).append(test)
            if not self._pieces:
                break
        if any(test and not test.is_open for test in needed):
            return _joined("AND", needed)
        return _joined("AND", [_joined("OR", optional) or _joined("OR", stop_words), *needed])

    def _operand(self, piece: _Piece) -> tuple[Test | None, bool]:
        """Return the test of one operand, and whether it is a stop word."""
        if piece.kind == "open":
            self._depth += 1
            test = self._several("OR")
            if self._take().kind != "close" or self._depth > DEPTH_CAP:
                raise _Malformed
            self._depth -= 1
            return test, False
        if piece.kind == "word":
            terms, stop_words = _terms([piece.text])
            self.terms += terms
            self.stop_words += stop_words
            match = " OR ".join(term.match for term in terms or stop_words)
            return _matches(match) if match else None, not terms
        row = _row(_core(piece.text) if piece.kind == "phrase" and piece.sign else piece.text)
        if not row:
            return None, False
        match = f"{row} *" if piece.kind == "star" else row
        self.terms.append(Term(piece.text.lower(), match))
        return _matches(match), False
