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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..index.database import owner_word
from ..index.sql import Sql
from .text import TOKEN, WORD_CAP, Term, is_stop, quoted, tokens
from .vocabulary import begun, close, split

if TYPE_CHECKING:
    from sqlite3 import Connection

    from .priorities import View

# How much a word counts in text, more, actor, tags and owner. The main field says what a memory is
# about; a speaker's name is also what others call them; the owner only narrows a question down.
_FIELDS = "1.5, 1.0, 1.0, 1.0, 0.0"
# Chosen on the tuning part of benchmarks.recall, see docs/benchmarks.md.
_BESIDE = 0.3  # of a turn's match goes to each turn beside it
_SAME_PLACE = 0.9  # counts a turn beside a better one; less hides answers behind their questions
_RANKED = 300  # memories that the neighbours of turns can still bring forward
_ENOUGH = 2000  # memories with the rarer words: those with none of them need not be ranked
_TRIES = 4  # words of one question that are looked for otherwise: each costs a look at all words
_APART = 1 << 33  # further than any two turns of one conversation
_LEAST = 1e-6  # the weight that FTS5 gives to a word of more than half of all memories


@dataclass(frozen=True)
class Words:
    """The terms of a question as the index knows them."""

    match: str  # for FTS5; empty where no memory has any of them
    whole: float  # the strength of a memory of usual length that has every word once
    is_all: bool = True  # the question is asked of all memories that the index has
    note: str | None = None  # a sentence on the words that were looked for otherwise


def known(view: View, terms: Sequence[Term], text: str = "") -> Words:
    """Look the terms up. With a text, words without a hit are looked for in other spellings."""
    connection = view.index.connection
    rows = connection.execute("SELECT scope, memories FROM scopes").fetchall()
    everything = sum(count for _, count in rows)
    asked = set(view.scopes)
    part = sum(count for scope, count in rows if scope in asked)
    found: list[tuple[int, Term]] = []
    notes: list[str] = []
    missing = 0
    for term in [*terms, *(_compounds(connection, terms, text) if text else ())]:
        count = _count(connection, term.match)
        if not count and text and term.is_word and len(notes) < _TRIES:
            match = _otherwise(view, term.word)
            count = _count(connection, match) if match else 0
            term = replace(term, match=match)
            if count:
                instead = _as_written(view, match)
                notes.append(f'No memory has "{term.word}"; looked for {instead} instead.')
        if count:
            found.append((count, term))
        elif text and not term.is_extra:
            missing += 1
    if not found:
        return Words("", 1.0)
    weights = [_weight(everything, count) for count, term in found if not term.is_extra]
    rarest = max((_weight(everything, count) for count, _ in found), default=_LEAST)
    match, doubled = _expression(found, part / (everything or 1))
    whole = sum(weights) + missing * rarest or rarest
    whole *= 2 if doubled else 1
    return Words(match, whole, part == everything, " ".join(notes) or None)


def owned(scopes: Sequence[str], match: str) -> str:
    """Return a match for one session only, by a word of its own, so that others cost nothing."""
    return f"owner : {owner_word(scopes[0])} AND ({match})" if len(scopes) == 1 else match


def strengths(
    view: View, words: Words, tables: str, test: Sql, count: int | None, *, around: bool
) -> dict[int, float]:
    """Return the keys of the memories that match and pass the test, best first, with their share.

    `tables` is the source of the test, the memories `m` first. At least `count` are returned, if
    there are as many; all without a count.
    """
    match = words.match if words.is_all else owned(view.scopes, words.match)
    source = f"words CROSS JOIN {tables}" if tables else "words"
    condition = f" AND m.key = words.rowid AND {test.text}" if tables else ""
    ranked = (
        f"SELECT words.rowid AS key, bm25(words, {_FIELDS}) AS rank FROM {source}"
        f" WHERE words MATCH ?{condition} ORDER BY rank LIMIT ?"
    )
    limit = -1 if count is None else max(count, _RANKED if around else 0)
    given = [match, *test.parameters, limit]
    ask = view.index.connection.execute
    if not around:
        return {key: -rank / words.whole for key, rank in ask(ranked, given)}
    placed = (
        f"SELECT p.memory, -r.rank, p.scope * {_APART} + p.place FROM ({ranked}) r"
        " CROSS JOIN places p ON p.memory = r.key ORDER BY r.rank"
    )
    rows = ask(placed, given).fetchall()
    # Only the best have neighbours, whichever page is asked for; the rest follows as it is.
    best, rest = rows[:_RANKED], rows[_RANKED:]
    keys = {at: key for key, _, at in best if at is not None}
    worth = _with_neighbours({at: rank for _, rank, at in best if at is not None})
    keys |= _turns_at(view, [at for at in worth if at not in keys], tables, test)
    found = {key: rank for key, rank, at in best if at is None}
    found |= {keys[at]: strength for at, strength in worth.items() if at in keys}
    ordered = dict(sorted(found.items(), key=lambda item: -item[1]))
    ordered |= {key: rank for key, rank, _ in rest if key not in ordered}
    return {key: strength / words.whole for key, strength in ordered.items()}


def _with_neighbours(own: dict[int, float]) -> dict[int, float]:
    """Return the strength of each turn, and of those beside them, by position."""
    worth = dict(own)
    for position, strength in own.items():
        for beside in (position - 1, position + 1):
            worth[beside] = worth.get(beside, 0.0) + _BESIDE * strength
    found: dict[int, float] = {}
    for position, strength in worth.items():
        better = max(worth.get(position - 1, 0.0), worth.get(position + 1, 0.0))
        found[position] = strength * _SAME_PLACE if better > strength else strength
    return found


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
    return dict(view.index.connection.execute(asked, given).fetchall())


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
        rare.append(term.match)
        total += count * part
    needed = " OR ".join(rare)
    if len(rare) == len(by_count):
        return needed, False
    return f"({needed}) AND ({' OR '.join(term.match for _, term in by_count)})", True


def _count(connection: Connection, match: str) -> int:
    asked = "SELECT COUNT(*) FROM words WHERE words MATCH ?"
    return int(connection.execute(asked, (match,)).fetchone()[0])


def _weight(everything: int, count: int) -> float:
    """Return the weight that FTS5 gives to a word that so many memories have."""
    return max(math.log((everything - count + 0.5) / (count + 0.5)), _LEAST)


def _compounds(connection: Connection, terms: Sequence[Term], text: str) -> list[Term]:
    """Return two words of the text as one, and one as two, where a memory has that: `back up`."""
    matches = {match: match for term in terms if term.is_word and (match := split(term.word))}
    for first, second in itertools.pairwise(tokens(text)[:WORD_CAP]):
        # "a part" is not apart; and two words that say nothing, such as "in to", are none as one.
        if not is_stop(first) or (len(first) > 1 and not is_stop(second)):
            one = quoted(first + second)
            matches[one] = f"{one} OR {quoted(f'{first} {second}')}"
    asked = "SELECT 1 FROM words WHERE words MATCH ? LIMIT 1"

    def has(match: str) -> bool:
        return connection.execute(asked, (match,)).fetchone() is not None

    # Hardly ever is there any: one look at all of them.
    if not matches or not has(" OR ".join(matches)):
        return []
    return [Term(one, match, is_extra=True) for one, match in matches.items() if has(one)]


def _otherwise(view: View, word: str) -> str:
    """Return a match for words that the word may be meant for: longer ones, or close spellings.

    Only memories that are asked about count.
    """
    for match in (begun(word), close(view.index.connection, word)):
        if match and _first_text(view, match) is not None:
            return match
    return ""


def _first_text(view: View, match: str) -> str | None:
    within = view.within("m.scope")
    asked = (
        "SELECT m.text || ' ' || m.more || ' ' || m.tags || ' ' || m.actor FROM words"
        " CROSS JOIN memories m ON m.key = words.rowid"
        f" WHERE words MATCH ? AND {within.text} LIMIT 1"
    )
    row = view.index.connection.execute(asked, (match, *within.parameters)).fetchone()
    return row and str(row[0])


def _as_written(view: View, match: str) -> str:
    """Return the words that a match stands for, as a memory has them."""
    said = dict.fromkeys(TOKEN.findall((_first_text(view, match) or "").lower()))
    begins = [word[:-1] or word for word in TOKEN.findall(match) if word != "OR"]
    like = [word for word in said if any(word.startswith(begin) for begin in begins)]
    return " and ".join(f'"{word}"' for word in like)
