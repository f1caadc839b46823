"""How well memories match the words of a question: BM25 over their fields, by FTS5 itself.

A turn also profits from the turns beside it: they say what it is about. Turns beside each other are
one place of a conversation, so of two the better one leads and the other counts less.

A match is a share of a whole: 1 for a memory of usual length that has every word once. A word that
no memory has weighs as much as the rarest one that some memory has.
"""

from __future__ import annotations

import itertools
import json
import math
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..index.database import owner_word
from ..index.sql import Sql
from .text import STOP_WORDS, WORD_CAP, Term, quoted, tokens
from .thesaurus import synonyms

if TYPE_CHECKING:
    from sqlite3 import Connection

    from .priorities import View

# How much a word counts in text, more, actor, tags and owner. The main field says what a memory is
# about; a speaker's name is also what others call them; the owner only narrows a question down.
_FIELDS = "1.5, 1.0, 1.0, 1.0, 0.0"
# Chosen on the tuning part of benchmarks.recall, see docs/benchmarks.md.
_BESIDE = 0.3  # of a turn's match goes to each turn beside it
_SAME_PLACE = 0.9  # counts a turn beside a better one; less hides answers behind their questions
_OTHERS = 0.6  # counts a word that means about the same, of a word of the question
_COVERED = 0.7  # of a question by the best match: other words would only take time
_RANKED = 300  # memories that the neighbours of turns can still bring forward
_ENOUGH = 2000  # memories with the rarer words: those with none of them need not be ranked
_TRIES = 4  # words of one question that are looked for otherwise: each costs a look at all words
_APART = 1 << 33  # further than any two turns of one conversation
_LEAST = 1e-6  # the weight that FTS5 gives to a word of more than half of all memories
_BEGINNING = 4  # letters: too many words begin with fewer
_CLOSE_FROM = 5  # letters: one slip in fewer makes too many other words
_CLOSE = 0.8  # of 1: how much of its letters a word shares with one that it may be meant for
_CLOSE_CAP = 5  # stems that one word may be meant for
_AS_USUAL = 0.25  # of the memories with one spelling of a compound, so many must have the other
_NAMED_CAP = 5  # words in one note
_SPLIT_CAP = 30  # letters of two words written as one


_Row = tuple[int, float, int | None]  # the key of a memory, its rank, and the place of a turn


class Words(NamedTuple):
    """The terms of a question as the index knows them."""

    match: str  # for FTS5; empty where no memory has any of them
    whole: float  # the strength of a memory of usual length that has every word once
    note: str | None = None  # a sentence on the words that were looked for otherwise
    asked: Sequence[str] = ()  # all words of the question, for which others may stand
    meant: str = ""  # a text whose meaning is looked for too


def known(view: View, terms: Sequence[Term], text: str = "") -> Words:
    """Look the terms up. With a text, words without a hit are looked for in other spellings.

    Without a text, a note names the words that no memory has.
    """
    connection = view.index.connection
    part, everything = view.counts
    found: list[tuple[int, Term]] = []
    others: list[str] = []
    absent: list[str] = []
    terms = [*terms, *(_compounds(connection, terms, text) if text else ())]
    counts = hits(connection, [term.match for term in terms])
    for count, term in zip(counts, terms, strict=True):
        if not count and text and term.is_word and len(others) < _TRIES:
            begun = f"{quoted(term.word)} *" if len(term.word) >= _BEGINNING else ""
            for match in (begun, _close(connection, term.word)):
                if match and not count and hits(connection, [owned(view, match)])[0]:
                    (count,) = hits(connection, [match])
                    term = term._replace(match=match)
                    others.append(term.word)
        if count:
            found.append((count, term))
        elif not term.is_extra:
            absent.append(term.word)
    note = None
    if others:
        note = f"No memory has {_listed(others)}; looked for words that are close."
    elif absent and not text:
        note = f"No memory has {_listed(absent)}."
    asked = tokens(text)[:WORD_CAP]
    if not found:
        whole = len(absent) * max(math.log(everything + 1), 1.0)
        return Words("", whole or 1.0, note, asked=asked)
    weights = {  # as FTS5 weighs a word that so many memories have
        term: max(math.log((everything - count + 0.5) / (count + 0.5)), _LEAST) * term.times
        for count, term in found
    }
    rarest = max(weights.values())
    whole = sum(weight for term, weight in weights.items() if not term.is_extra)
    match, is_doubled = _expression(found, part / (everything or 1))
    missing = len(absent) if text else 0
    whole = (whole + missing * rarest or rarest) * (2 if is_doubled else 1)
    if all(term.word in STOP_WORDS for _, term in found):
        whole *= 2  # nobody means these words alone, so that no memory answers by them
    return Words(match, whole, note, asked=asked)


def _listed(words: Sequence[str]) -> str:
    named = [f'"{word}"' for word in words[:_NAMED_CAP]]
    return " and ".join(named) + (" and others" if len(words) > _NAMED_CAP else "")


def owned(view: View, match: str) -> str:
    """Return a match for one session only, by a word of its own, so that others cost nothing."""
    if len(view.scopes) != 1 or view.has_all:
        return match
    return f"owner : {owner_word(view.scopes[0])} AND ({match})"


def strengths(
    view: View, words: Words, tables: str, test: Sql, count: int | None, *, around: bool
) -> dict[int, float]:
    """Return the keys of the memories that match and pass the test, best first, with their share.

    `tables` is the source of the test, the memories `m` first. At least `count` are returned, if
    there are as many; all without a count.
    """
    source = f"words CROSS JOIN {tables}" if tables else "words"
    condition = f" AND m.key = words.rowid AND {test.text}" if tables else ""
    ranked = (
        f"SELECT words.rowid AS key, bm25(words, {_FIELDS}) AS rank FROM {source}"
        f" WHERE words MATCH ?{condition} ORDER BY rank LIMIT ?"
    )
    limit = -1 if count is None else max(count, _RANKED if around else 0)
    placed = (
        f"SELECT p.memory, -r.rank, p.scope * {_APART} + p.place FROM ({ranked}) r"
        " CROSS JOIN places p ON p.memory = r.key ORDER BY r.rank"
    )
    sql = placed if around else f"SELECT key, -rank, NULL FROM ({ranked})"

    def matching(match: str) -> list[_Row]:
        given = [owned(view, match), *test.parameters, limit]
        return view.index.execute(sql, given).fetchall() if match else []

    rows = matching(words.match)
    if words.asked and (not rows or rows[0][1] < _COVERED * words.whole):
        like = " OR ".join(map(quoted, synonyms(words.asked, view.weights.synonyms)))
        rows = _with_others(rows, matching(like))
    if not around:
        return {key: rank / words.whole for key, rank, _ in rows}
    # Only the best have neighbours, whichever page is asked for; the rest follows as it is.
    best, rest = rows[:_RANKED], rows[_RANKED:]
    found = {key: rank for key, rank, at in best if at is None}
    turns = {at: (key, rank) for key, rank, at in best if at is not None}
    worth = {at: rank for at, (_, rank) in turns.items()}
    for at, (_, rank) in turns.items():
        for beside in (at - 1, at + 1):
            worth[beside] = worth.get(beside, 0.0) + _BESIDE * rank
    keys = {at: key for at, (key, _) in turns.items()}
    # A turn that has none of the words and is worth less cannot come before those that are wanted.
    least = _SAME_PLACE * best[count - 1][1] if count and count <= len(best) else 0.0
    others = [at for at, rank in worth.items() if rank >= least and at not in keys]
    keys |= _turns_at(view, others, tables, test)
    for at, key in keys.items():
        better = max(worth.get(at - 1, 0.0), worth.get(at + 1, 0.0))
        found[key] = worth[at] * _SAME_PLACE if better > worth[at] else worth[at]
    ordered = dict(sorted(found.items(), key=lambda item: -item[1]))
    ordered |= {key: rank for key, rank, _ in rest if key not in ordered}
    return {key: strength / words.whole for key, strength in ordered.items()}


def matching_count(view: View, words: Words, tables: str, test: Sql) -> int:
    """Return how many memories match and pass the test, as `strengths` takes it."""
    asked = "SELECT COUNT(*) FROM words WHERE words MATCH ?"
    if tables:
        asked = f"SELECT COUNT(*) FROM words CROSS JOIN {tables} WHERE words MATCH ?"
        asked += f" AND m.key = words.rowid AND {test.text}"
    given = (owned(view, words.match), *test.parameters)
    return int(view.index.execute(asked, given).fetchone()[0]) if words.match else 0


def _with_others(rows: Sequence[_Row], others: Sequence[_Row]) -> list[_Row]:
    """Add matches of words that mean about the same, which count less."""
    found = {key: (rank, at) for key, rank, at in rows}
    for key, rank, at in others:
        own = found.get(key, (0.0, at))[0]
        found[key] = own + _OTHERS * rank, at
    merged = [(key, rank, at) for key, (rank, at) in found.items()]
    return sorted(merged, key=lambda row: -row[1])


def _turns_at(view: View, positions: Sequence[int], tables: str, test: Sql) -> dict[int, int]:
    """Return the keys of the turns at these positions that pass the test."""
    asked = (
        f"SELECT w.value, p.memory FROM json_each(?) w CROSS JOIN places p"
        f" ON p.scope = w.value / {_APART} AND p.place = w.value % {_APART}"
    )
    given = [json.dumps(positions)]
    if tables:
        asked += f" CROSS JOIN {tables} WHERE m.key = p.memory AND {test.text}"
        given += test.parameters
    return dict(view.index.execute(asked, given).fetchall())


def _expression(found: Sequence[tuple[int, Term]], part: float) -> tuple[str, bool]:
    """Return the match of the terms, and whether words count twice in it.

    Where the rarer words have hits enough, a memory needs one of them. The others then only add to
    its rank, and count half of the rarer ones: those stand in the expression twice.
    """
    rare: list[str] = []
    total = 0.0
    by_count = sorted(found, key=lambda item: item[0])
    for count, term in by_count:
        if rare and total + count * part > _ENOUGH:
            break
        rare.append(term.said)
        total += count * part
    needed = " OR ".join(rare)
    if len(rare) == len(by_count):
        return needed, False
    return f"({needed}) AND ({' OR '.join(term.said for _, term in by_count)})", True


def hits(connection: Connection, matches: Sequence[str]) -> list[int]:
    """Return how many memories each of these finds."""
    count = "SELECT COUNT(*) FROM words WHERE words MATCH one.value"
    rows = connection.execute(f"SELECT ({count}) FROM json_each(?) one", (json.dumps(matches),))
    return [count for (count,) in rows]


# Words written otherwise. The index has stems (`authent` of authentication).


def _compounds(connection: Connection, terms: Sequence[Term], text: str) -> list[Term]:
    """Return two words of the text as one, and one as two, where memories have that: `back up`.

    A spelling much rarer than that of the text means something else, and would weigh too much.
    """
    others: dict[str, tuple[str, Term]] = {}  # by the other spelling: that of the text, and a term
    for word in (term.word for term in terms if term.is_word):
        if _CLOSE_FROM <= len(word) <= _SPLIT_CAP and word.isalpha():
            # The first says something: `often` is not "of ten".
            cuts = [cut for cut in range(1, len(word) - 1) if word[:cut] not in STOP_WORDS]
            if match := " OR ".join(f'"{word[:cut]} {word[cut:]}"' for cut in cuts):
                others[match] = quoted(word), Term(word, match, is_extra=True)
    for first, second in itertools.pairwise(tokens(text)[:WORD_CAP]):
        # "a part" is not apart; and two words that say nothing, such as "in to", are none as one.
        if first not in STOP_WORDS or (len(first) > 1 and second not in STOP_WORDS):
            one, two = quoted(first + second), quoted(f"{first} {second}")
            others[one] = two, Term(first + second, f"{one} OR {two}", is_extra=True)
    # Hardly ever is there any: one look at all of them.
    if not others or hits(connection, [" OR ".join(others)]) == [0]:
        return []
    counts = hits(connection, list(others))
    usual = hits(connection, [spelling for spelling, _ in others.values()])
    counted = zip(counts, usual, others.values(), strict=True)
    return [term for count, often, (_, term) in counted if count and count >= _AS_USUAL * often]


def _close(connection: Connection, word: str) -> str:
    """Return a match for the stems nearest to the word; empty where none is near.

    Near is the longest stem that begins the word and is more than half of it, else those that share
    most letters. In a script without blanks between words it is any that holds the word.
    """
    from difflib import get_close_matches  # late: hardly any word is mistyped

    parts = unicodedata.normalize("NFD", word.lower())
    word = unicodedata.normalize(
        "NFC", "".join(one for one in parts if not "\u0300" <= one <= "\u036f")
    )
    if not word.isascii() and word.upper() == word.lower():
        asked = "SELECT term FROM terms WHERE INSTR(term, ?) LIMIT ?"
        rows = connection.execute(asked, (word, 10 * _CLOSE_CAP))
        return " OR ".join(quoted(stem) for (stem,) in rows)
    if len(word) < _CLOSE_FROM or not word.isalpha():
        return ""
    # The first two letters are seldom those that are mistyped.
    asked = "SELECT term FROM terms WHERE term >= ? AND term < ?"
    rows = connection.execute(asked, (word[:2], word[:2] + chr(0x10FFFF)))
    stems = [stem for (stem,) in rows if len(stem) >= _BEGINNING]
    begins = [stem for stem in stems if word.startswith(stem) and 2 * len(stem) > len(word)]
    near = [max(begins, key=len)] if begins else get_close_matches(word, stems, _CLOSE_CAP, _CLOSE)
    # FTS5 stems a stem once more, which can only make it shorter.
    return " OR ".join(f"{quoted(stem)} *" for stem in near)
