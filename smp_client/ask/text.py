"""What a person or an agent typed, as a question to the full-text table `words(text, more, actor, tags, around)`.

    plain words     any of them, the rare ones counting most; stop words only where there is nothing else;
                    written together, apart or with a hyphen: frontend, front end, front-end
    "a phrase"      required, and so is +word; -word and NOT word exclude: all three look only at the record's own columns,
                    because `around` repeats what its neighbours said
    auth*  *auth*   the beginning, or any part, of a word
    AND OR NOT ( )  in upper case, with the usual precedence; words side by side bind closest: `a b AND c` is (a or b) and c

Every text is a question. What does not add up (a parenthesis too many, an operator without operand) is read as plain words, and
only quoted strings reach FTS5, so that nothing typed is ever its syntax.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest

TEXT_CAP = 65_536  # characters: what is longer was pasted, and its beginning says what it is about
WORD_CAP = 64  # different plain words of one question: of a longer text the longest, which say most
TERM_CAP = 64  # indexed terms that one pattern may stand for
MARK_CAP = 64  # a text with more quotes, marks and operators was pasted, not asked
DEPTH_CAP = 5  # parentheses in each other; the parser of FTS5 has a stack of 100
_SPLIT_LEAST, _SPLIT_CAP = 5, 30  # letters of a compound of two words, such as email
PHRASE_CAP = 64  # words of a phrase: who has said the first 64 in this order has said the rest
_PATTERN_CAP = 64  # characters, and
_STAR_CAP = 3  # stars, of a pattern: matching one takes the length of a term to the power of its stars

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

_OWN = "{text more actor tags} : "
_TOKEN = re.compile(r"[^\W_](?:[^\W_]|[\u0300-\u0331])*")  # as unicode61 sees it, which reads through these accents
_CONTRACTION = re.compile(r"(.*)['’](?:s|re|ve|ll|d|m)", re.IGNORECASE | re.DOTALL)
_NEGATION = re.compile(r"[a-z]+n['’]t", re.IGNORECASE)
_PAIR = re.compile(rf"\W*({_TOKEN.pattern}) ({_TOKEN.pattern})\W*")
_HYPHENATED = re.compile(rf"({_TOKEN.pattern})[-\u2010\u2011]({_TOKEN.pattern})")
_IDENTIFIER = re.compile(r"[^\W\d_]+-\d+")  # DEC-001, whose halves mean nothing
_PIECE = re.compile(
    r"""
    \(\s*\)
    | (?P<mark> (?<![^\s(]) [+-] (?=["(*\w]) )?
      (?: "(?P<phrase>[^"]*)" | (?P<open>\() | (?P<word>[^\s"()]+) )
    | (?P<close>\))
    """,
    re.VERBOSE,
)
_QUOTES = str.maketrans(dict.fromkeys("“”„‟", '"'))
_UNSAYABLE = re.compile('["\x00\ud800-\udfff]')  # ends a string of FTS5, ends the expression, or is no character
_ACCENTS = re.compile("[\u0300-\u036f]")
_PATTERN_PART = re.compile(rf"(?:\*|{_TOKEN.pattern})+")
# What the stemmer takes off. A prefix that ends amid one of these is no prefix of the stem: `authenticati`, stem `authent`.
_ENDINGS = """
    s es ies e y ed ing ingly edly ly al ally ial ic ical ically icate ication ion ation ations ational ative ate ization izer ize
    iser ise ment ments ness ful fully fulness able ably ible ibly ibility ability ance ence ancy ency ant ent ive ively iveness ity
    ities ous ously ousness ism ist er or
    """.split()  # noqa: SIM905
_DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")
# A stem with one of these ends would be stemmed once more as a question; with an e at its end it comes out as it is.
_UNSETTLED = re.compile(r"(?:s|al|er|ic|ion|ent|ant|ment|abl|ibl|e|iv|ou|at|iz|ed|ing|li|ci|ti|ful|y)$")
# Here the stemmer puts in letters of its own: `key*` asks for kei, which no keyboard begins with.
_REWRITTEN = re.compile(r"(?:y|ing|ed)s?$")


@dataclass(frozen=True)
class Concept:
    """A word or phrase that is looked for, and how FTS5 finds it alone."""

    word: str
    match: str
    weaker: str | None = None  # finds a part of it
    is_word: bool = False  # one plain word, which may be written otherwise
    is_extra: bool = False  # has no weight where no memory holds it


@dataclass(frozen=True)
class Asked:
    """A question as FTS5 takes it. At most one of the first two is set: what else is excluded stands in `match` itself."""

    match: str | None = None  # None: nothing to look for, so all there is,
    exclude: str | None = None  # but for what matches this
    concepts: tuple[Concept, ...] = ()
    is_plain: bool = False  # nothing but words, none of which must be there


def _no_terms(_pattern: str) -> Sequence[str]:
    return ()


def _knows_none(_word: str) -> bool:
    return False


def match_expression(
    text: str, expand: Callable[[str], Sequence[str]] = _no_terms,
    is_known: Callable[[str], bool] = _knows_none,
) -> Asked:  # fmt: skip
    """The question that a text asks. `expand` gives the indexed terms that a GLOB pattern such as
    `*auth*` matches, and `is_known` says whether a word is indexed.

    It may be called some times for one pattern, with and without endings: terms are stems, so `*bases` is looked for as `*bas` too.
    A prefix is left to FTS5, which stems it like any word: `databases*` finds databases, and `general*` also generic.
    """
    text = text[:TEXT_CAP]
    pieces = list(_pieces(text))
    if sum(piece.is_mark for piece in pieces) > MARK_CAP:
        pieces = [_Piece(word) for word in re.split(r'[\s"()*]+', text)]
    kept = _longest(piece.text for piece in pieces if not piece.is_mark)
    if sum(not piece.is_mark for piece in pieces) <= WORD_CAP:
        pieces = _with_pairs(pieces, is_known)
    parser = _Parser(pieces, kept, expand)
    try:
        found = parser.parse()
    except _Malformed:
        kinds = ("word", "pair", "phrase")
        parser = _Parser([piece for piece in pieces if piece.kind in kinds], kept, expand)
        found = parser.parse()
    if found is None:
        return Asked()
    if found.is_rest:
        return Asked(exclude=found.match)
    concepts = parser.concepts or parser.stop_words
    is_plain = not any(piece.is_mark for piece in pieces)
    return Asked(found.match, None, tuple(concepts.values()), is_plain)


def words(text: str) -> list[str]:
    """The content words of a text in lower case, each once, in their order."""
    cores = (core for core in map(_core, dict.fromkeys(text.split())) if not _NEGATION.fullmatch(core))
    found = (token.lower() for core in cores for token in _TOKEN.findall(core))
    return list(dict.fromkeys(token for token in found if token not in STOP_WORDS))


class _Malformed(Exception):
    """Operators and parentheses that make no expression."""


@dataclass(frozen=True)
class _Piece:
    text: str
    kind: str = "word"  # or pair, phrase, open, close, operator
    mark: str = ""  # + or -

    @property
    def is_mark(self) -> bool:
        return self.kind not in ("word", "pair") or bool(self.mark) or "*" in self.text


def _pieces(text: str) -> Iterator[_Piece]:
    for found in _PIECE.finditer(text.translate(_QUOTES)):
        kind = found.lastgroup
        if kind is None:  # "()" holds nothing
            continue
        piece = _Piece(found[kind], kind, found["mark"] or "")
        yield replace(piece, kind="operator") if piece.text in ("AND", "OR", "NOT") and kind == "word" and not piece.mark else piece


def _with_pairs(pieces: Sequence[_Piece], is_known: Callable[[str], bool]) -> list[_Piece]:
    """Make one piece of two words, side by side or around a hyphen, that the index also has as one
    word: `back up`, `e-mail`."""
    found: list[_Piece] = []
    for piece in pieces:
        if not piece.is_mark and found and not found[-1].is_mark and found[-1].kind == "word":
            both = _PAIR.fullmatch(f"{found[-1].text} {piece.text}")
            if both and _is_pair(both[1], both[2], is_known):
                found[-1] = replace(piece, text=both[0], kind="pair")
                continue
        core = "" if piece.is_mark else _core(piece.text)
        both = None if _IDENTIFIER.fullmatch(core) else _HYPHENATED.fullmatch(core)
        is_pair = both is not None and _is_pair(both[1], both[2], is_known)
        found.append(replace(piece, kind="pair") if is_pair else piece)
    return found


def _is_pair(first: str, second: str, is_known: Callable[[str], bool]) -> bool:
    # "a part" is not apart; and two words that say nothing, such as "in to", say nothing as one.
    says_little = _is_stop(first) and (len(first) == 1 or _is_stop(second))
    return not says_little and is_known(first + second)


def _core(chunk: str) -> str:
    """What stands between two spaces from its first word to its last, without the 's of its end."""
    found = list(_TOKEN.finditer(chunk))
    core = chunk[found[0].start() : found[-1].end()] if found else ""
    contraction = _CONTRACTION.fullmatch(core)
    return contraction[1] if contraction else core


def _is_stop(form: str) -> bool:
    return form.lower() in STOP_WORDS or bool(_NEGATION.fullmatch(form))


def _forms(chunk: str) -> list[str]:
    """The ways to look for a chunk: its word, or its words in a row and each of them."""
    core = _core(chunk)
    tokens = _TOKEN.findall(core)
    if len(tokens) < 2 or _NEGATION.fullmatch(core):
        return [core] if core else []
    if all(map(_is_stop, tokens)):
        return tokens
    # A number alone, such as the month of a date, is in too many records.
    alone = [token for token in tokens if len(token) > 1 and not token.isdigit() and not _is_stop(token)]
    return [_row(core), *([] if _IDENTIFIER.fullmatch(core) else alone)]


def _row(text: str) -> str:
    """From its first word to its last as it stands: newer symbols, which we take for none, are words to FTS5."""
    found = [(match.start(), match.end()) for match, _ in zip(_TOKEN.finditer(text), range(PHRASE_CAP), strict=False)]
    return text[found[0][0] : found[-1][1]] if found else ""


def _longest(chunks: Iterable[str]) -> frozenset[str]:
    """The forms that a text may use, in lower case."""
    forms = dict.fromkeys(form.lower() for chunk in dict.fromkeys(chunks) for form in _forms(chunk))
    return frozenset(nlargest(WORD_CAP, (form for form in forms if not _is_stop(form)), key=len))


@dataclass(frozen=True)
class _Found:
    """A set of records: those that match, or all the rest. FTS5 knows no complement, so it is kept out of the expression."""

    match: str  # one string, or in parentheses
    is_rest: bool = False
    is_own: bool = False  # looks at the record's own columns only

    def inverted(self) -> _Found:
        return replace(self, is_rest=not self.is_rest)

    def own(self) -> _Found:
        return self if self.is_own else replace(self, match=_OWN + self.match, is_own=True)


def _joined(operator: str, found: Iterable[_Found]) -> str:
    parts = list(dict.fromkeys(each.match for each in found))
    return parts[0] if len(parts) == 1 else f"({f' {operator} '.join(parts)})"


def _all(found: Iterable[_Found | None]) -> _Found | None:
    """What is in each of them; a part that says nothing (None) asks nothing."""
    sets = [each for each in found if each]
    if len(sets) < 2:
        return sets[0] if sets else None
    sets = [each.own() for each in sets]
    inside = [each for each in sets if not each.is_rest]
    outside = [each for each in sets if each.is_rest]
    if not inside:
        return _Found(_joined("OR", outside), is_rest=True, is_own=True)
    match = _joined("AND", inside)
    return _Found(f"({match} NOT {_joined('OR', outside)})" if outside else match, is_own=True)


def _any(found: Iterable[_Found | None]) -> _Found | None:
    """What is in one of them at least."""
    sets = [each for each in found if each]
    if any(each.is_rest for each in sets):
        neither = _all(each.inverted() for each in sets)
        return neither and neither.inverted()
    return _Found(_joined("OR", sets), is_own=all(each.is_own for each in sets)) if sets else None


@dataclass
class _Run:
    """What stands side by side."""

    required: list[_Found] = field(default_factory=list)
    excluded: list[_Found] = field(default_factory=list)
    optional: list[_Found] = field(default_factory=list)
    stop: list[_Found] = field(default_factory=list)

    def add(self, found: _Found | None, mark: str) -> None:
        if found is None:
            return
        if mark == "-":
            found = found.inverted()
        if found.is_rest:
            self.excluded.append(found.own())
        elif mark:
            self.required.append(found.own())
        else:
            self.optional.append(found)

    def merge(self, other: _Run) -> None:
        self.required += other.required
        self.excluded += other.excluded
        self.optional += other.optional
        self.stop += other.stop

    def found(self) -> _Found | None:
        if not self.required:
            # Beside an exclusion, too, a plain word may stand in `around`.
            return _without(_any(self.optional or self.stop), self.excluded)
        wanted = _all([*self.required])
        if wanted and self.optional:
            # The second half is true wherever the first is; it is there for the rank.
            wanted = _Found(f"({wanted.match} AND {_joined('OR', [*self.required, *self.optional])})", is_own=True)
        return _without(wanted, self.excluded)


def _without(found: _Found | None, excluded: list[_Found]) -> _Found | None:
    if found is None or found.is_rest or not excluded:
        return _all([found, *excluded])
    return replace(found, match=f"({found.match} NOT {_joined('OR', excluded)})")


class _Parser:
    def __init__(self, pieces: list[_Piece], kept: frozenset[str], expand: Callable[[str], Sequence[str]]) -> None:
        self._pieces = pieces
        self._kept = kept
        self._expand = expand
        self._position = 0
        self._depth = 0
        self.concepts: dict[str, Concept] = {}  # what may be found, by its word
        self.stop_words: dict[str, Concept] = {}

    def parse(self) -> _Found | None:
        if not self._pieces:
            return None
        found = _found(self._either())
        if self._position < len(self._pieces):
            raise _Malformed
        return found

    def _next_is(self, *texts: str) -> bool:
        piece = self._pieces[self._position] if self._position < len(self._pieces) else None
        return piece is not None and piece.kind in ("operator", "close") and piece.text in texts

    def _take(self) -> _Piece:
        if self._position == len(self._pieces):
            raise _Malformed
        self._position += 1
        return self._pieces[self._position - 1]

    def _either(self) -> list[list[_Run]]:
        """The alternatives, each a list of what must all hold."""
        either = [self._both()]
        while self._next_is("OR"):
            self._take()
            either.append(self._both())
        return either

    def _both(self) -> list[_Run]:
        both = [self._run()]
        while self._next_is("AND"):
            self._take()
            both.append(self._run())
        return both

    def _run(self) -> _Run:
        run = _Run()
        self._item(run)
        while self._position < len(self._pieces) and not self._next_is("AND", "OR", ")"):
            self._item(run)
        return run

    def _item(self, run: _Run) -> None:
        is_inverted = False
        piece = self._take()
        while piece.kind == "operator" and piece.text == "NOT":
            is_inverted = not is_inverted
            piece = self._take()
        if piece.kind in ("operator", "close"):
            raise _Malformed
        known = dict(self.concepts)
        item = self._group(piece) if piece.kind == "open" else self._operand(piece)
        if is_inverted or piece.mark == "-":
            self.concepts = known
        if is_inverted:
            run.add(item.found(), "-")
        else:
            run.merge(item)

    def _group(self, piece: _Piece) -> _Run:
        """Parentheses around nothing but words side by side are a way to write, and change nothing."""
        self._depth += 1
        if self._depth > DEPTH_CAP:
            raise _Malformed
        either = self._either()
        if self._take().kind != "close":
            raise _Malformed
        self._depth -= 1
        if not piece.mark and len(either) == len(either[0]) == 1:
            return either[0][0]
        run = _Run()
        run.add(_found(either), piece.mark)
        return run

    def _operand(self, piece: _Piece) -> _Run:
        run = _Run()
        if piece.kind == "phrase":
            self._add(run, _row(piece.text), _strings([_row(piece.text)]), piece.mark or "+")
        elif "*" in piece.text:
            parts = _all_parts(_pattern(part, self._expand) for part in _PATTERN_PART.findall(piece.text))
            self._add(run, piece.text, parts, piece.mark)
        elif piece.mark:
            self._add(run, _row(_core(piece.text)), _strings([_row(_core(piece.text))]), piece.mark)
        elif piece.kind == "pair":
            self._add_pair(run, piece.text)
        else:
            forms = _forms(piece.text)
            for form in forms:
                if _is_stop(form):
                    run.stop.append(_Found(_quoted(form)))
                    self.stop_words[form.lower()] = Concept(form.lower(), _quoted(form))
                elif form.lower() in self._kept:
                    is_word = _TOKEN.fullmatch(form) is not None
                    found = _strings([form, *(_split(form) if is_word else ())])
                    is_extra = not is_word and len(forms) > 1
                    self._add(run, form, found, is_word=is_word, is_extra=is_extra)
        return run

    def _add(
        self, run: _Run, word: str, found: _Found | None, mark: str = "", *,
        is_word: bool = False, is_extra: bool = False,
    ) -> None:  # fmt: skip
        run.add(found, mark)
        if found is not None:
            name = word.lower()
            self.concepts[name] = Concept(name, found.match, is_word=is_word, is_extra=is_extra)

    def _add_pair(self, run: _Run, text: str) -> None:
        tokens = _TOKEN.findall(text)
        whole = _strings([_row(text), "".join(tokens)])
        parts = _strings(token for token in tokens if not _is_stop(token) and len(token) > 1)
        run.add(_any([whole, parts]), "")
        if whole is not None:
            word = "".join(tokens).lower()
            self.concepts[word] = Concept(word, whole.match, parts.match if parts else None)


def _found(either: list[list[_Run]]) -> _Found | None:
    return _any(_all(run.found() for run in both) for both in either)


def _quoted(text: str) -> str:
    return f'"{_UNSAYABLE.sub(" ", text)}"'


def _strings(texts: Iterable[str]) -> _Found | None:
    return _any(_Found(_quoted(text)) for text in texts if text)


def _split(word: str) -> list[str]:
    """Return a word as two: `backup` as `back up`. The first says something: `often` is not "of ten"."""
    if not _SPLIT_LEAST <= len(word) <= _SPLIT_CAP or not word.isalpha():
        return []
    cuts = [cut for cut in range(1, len(word) - 1) if not _is_stop(word[:cut])]
    return [f"{word[:cut]} {word[cut:]}" for cut in cuts]


def _all_parts(parts: Iterable[_Found | None]) -> _Found | None:
    """`foo*.py`: each part somewhere in the record; in which columns is for the whole to say, so the parts do not."""
    sets = [part for part in parts if part]
    return _Found(_joined("AND", sets)) if sets else None


def _pattern(part: str, expand: Callable[[str], Sequence[str]]) -> _Found | None:
    """One word with stars in it, which stand for anything or nothing."""
    part = re.sub(r"\*+", "*", part)
    literal = part.replace("*", "")
    if not literal or "*" not in part or len(part) > _PATTERN_CAP or part.count("*") > _STAR_CAP:
        return _strings([literal])
    if part.index("*") < len(part) - 1:
        return _strings([literal, *_terms(as_stemmed(folded(part)), expand)])
    terms = _terms([folded(part)], expand) if _REWRITTEN.search(literal.lower()) else []
    return _any([_Found(_quoted(literal) + "*"), *(_strings([word]) for word in [*_completions(literal.lower()), *terms])])


def folded(part: str) -> str:
    """As unicode61 writes terms."""
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", part.lower())))


def _terms(patterns: Iterable[str], expand: Callable[[str], Sequence[str]]) -> list[str]:
    """Words that FTS5 stems to the terms of the patterns."""
    terms: dict[str, None] = {}
    for pattern in patterns:
        terms |= dict.fromkeys(expand(pattern))
        if len(terms) >= TERM_CAP:
            break
    return words_of_stems(list(terms)[:TERM_CAP])


def words_of_stems(stems: Iterable[str]) -> list[str]:
    """Words that FTS5 stems to these."""
    return [
        form for stem in stems
        for form in ((stem, stem + "e") if _UNSETTLED.search(stem) else (stem,))
    ]  # fmt: skip


def _completions(prefix: str) -> list[str]:
    """Words with this beginning, one for each ending that it may be amid: FTS5 stems them as it stemmed the records."""
    cuts = ((ending, cut) for ending in _ENDINGS for cut in range(1, len(ending)))
    found = [prefix + ending[cut:] for ending, cut in cuts if prefix.endswith(ending[:cut]) and len(prefix) - cut > 1]
    if _DOUBLED.search(prefix):  # runn*, of which the stem is run
        found.append(prefix + "ing")
    return list(dict.fromkeys(found))


def as_stemmed(pattern: str) -> list[str]:
    """The pattern, and again without the endings that the stems of its words may have lost."""
    tails = [pattern.removesuffix("*")]
    for tail in tails:  # which grows: authentication, authentic, authent
        literal = len(tail) - tail.rfind("*") - 1
        for ending in _ENDINGS:
            # Where a star follows, the pattern may end amid an ending.
            for cut in range(1 if tail + "*" == pattern else len(ending), len(ending) + 1):
                if tail.endswith(ending[:cut]) and literal - cut > 2 and tail[:-cut] not in tails:
                    tails.append(tail[:-cut])
    return [pattern, *tails[1:]]
