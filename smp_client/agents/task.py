"""The memories that bear on a task: those that match its words, and those beside them.

A memory beside a match often says what the task needs in other words. So the best matches lend a
part of their score to memories that were written just before and after them, that share a rare tag
with them, or that somebody related to them. A finding that was resolved tells how it was solved, so
it counts too; a decision that was superseded does not.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..ask.engine import likenesses, of_keys, records, scope_of
from ..ask.options import Wanted
from ..ask.priorities import View
from ..ask.related import related_to_all
from ..index.mentions import TAG
from ..index.validity import RESOLVED
from ..model.record import TURN, Record

_MATCHES = 80  # memories that have a word of the task
_LENDING = 12  # the best of them, which lend to those beside them
_BESIDE = 3  # memories before and after one, in time
# What a memory gets of the score of a match that it stands beside, is tagged like, or is tied to.
_BY_TIME = 0.2
_BY_TAG = 0.3
_BY_RELATION = 0.5
_BY_SESSION = 0.1
_TURN = 0.8  # of a match: a turn says less than the memory that came of it
_COMMON = 0.15  # of all memories: a tag that more of them have says nothing
_SESSIONS_CAP = 500  # more sessions than these are not looked through for a tag


class Bearing(NamedTuple):
    """A memory with the reason why it bears on a task."""

    record: Record
    score: float
    reason: str


class Loan(NamedTuple):
    """A part of a match's score that a memory beside it gets."""

    key: int
    score: float
    reason: str


def bearing_on(view: View, want: Wanted, task: str) -> list[Bearing]:
    """Return the memories that bear on a task, those that bear most on it first.

    `want` says which memories count at all.
    """
    matches = likenesses(view, want._replace(limit=_MATCHES), task)
    if not matches:
        return []
    best = max(matches.values()) or 1.0  # a word that every memory has scores nothing
    scores: defaultdict[int, float] = defaultdict(float)
    reasons: dict[int, Loan] = {}
    found = records(view, of_keys([*matches]))
    for key, record in found.items():
        scores[key] = matches[key] / best * (_TURN if record.type == TURN.type else 1.0)
    lending = [
        key for key in sorted(matches, key=matches.__getitem__, reverse=True) if key in found
    ]
    lenders = {key: found[key] for key in lending[:_LENDING]}
    for loan in _loans(view, lenders, {key: scores[key] for key in lenders}):
        scores[loan.key] += loan.score
        known = reasons.get(loan.key)
        if known is None or known.score < loan.score:
            reasons[loan.key] = loan
    beside = records(view, _only(want, [key for key in scores if key not in found]))
    found |= beside
    _favour_sessions(found, lenders, scores)
    bearings = [
        Bearing(record, scores[key], "match" if key in matches else reasons[key].reason)
        for key, record in found.items()
        if _is_told(record)
    ]
    return sorted(bearings, key=lambda one: one.score, reverse=True)


def _only(want: Wanted, keys: Sequence[int]) -> Wanted:
    these = of_keys(keys)
    return these.also(*want.conditions)


def _is_told(record: Record) -> bool:
    """Return whether a memory holds, or is a finding that was resolved."""
    if record.holds:
        return True
    ended = [mark for mark in record.marks if not mark.startswith(RESOLVED)]
    return record.type == "finding" and not ended


# Loans.


def _loans(view: View, lenders: dict[int, Record], scores: dict[int, float]) -> Iterable[Loan]:
    yield from _by_time(view, lenders, scores)
    yield from _by_tag(view, lenders, scores)
    yield from _by_relation(view, lenders, scores)


def _by_time(view: View, lenders: dict[int, Record], scores: dict[int, float]) -> Iterable[Loan]:
    """Yield loans to memories that were written just before and after a match."""
    asked = (
        "SELECT key FROM memories WHERE scope = ? AND type <> 'relationship'"
        " AND at {} ? AND key <> ? ORDER BY at {} LIMIT ?"
    )
    for key, record in lenders.items():
        (at,) = view.index.execute("SELECT at FROM memories WHERE key = ?", (key,)).fetchone()
        for sign, order in (("<=", "DESC"), (">", "")):
            given = (scope_of(record), at, key, _BESIDE)
            rows = view.index.execute(asked.format(sign, order), given).fetchall()
            for distance, (other,) in enumerate(rows, 1):
                score = _BY_TIME * scores[key] / distance
                yield Loan(other, score, f"beside {record.id}")


def _by_tag(view: View, lenders: dict[int, Record], scores: dict[int, float]) -> Iterable[Loan]:
    """Yield loans to memories that share a rare tag with a match."""
    whole = max(view.counts[0], 2)
    holders: dict[str, list[int]] = {}
    for key, record in lenders.items():
        for tag in record.tags:
            if tag not in holders:
                holders[tag] = _tagged(view, tag, lenders.values(), int(_COMMON * whole))
            rarity = math.log(whole / max(len(holders[tag]), 1)) / math.log(whole)
            for other in holders[tag]:
                if other != key:
                    score = _BY_TAG * scores[key] * rarity
                    yield Loan(other, score, f"tagged {tag} like {record.id}")


def _tagged(view: View, tag: str, lenders: Iterable[Record], most: int) -> list[int]:
    """Return the memories with a tag; none if too many have it for it to say anything."""
    scopes = view.scopes
    if len(scopes) > _SESSIONS_CAP:
        scopes = tuple({scope_of(record) for record in lenders})
    asked = (
        "SELECT memory FROM topics WHERE scope IN (SELECT value FROM json_each(?))"
        f" AND topic = ? AND how = {TAG} LIMIT ?"
    )
    rows = view.index.execute(asked, (json.dumps(scopes), tag.lower(), most + 1)).fetchall()
    return [] if len(rows) > most else [key for (key,) in rows]


def _by_relation(
    view: View, lenders: dict[int, Record], scores: dict[int, float]
) -> Iterable[Loan]:
    """Yield loans to memories that somebody related to a match, or that refer to it."""
    asked = "SELECT key FROM memories WHERE scope = ? AND id = ? LIMIT 1"
    for key, record in lenders.items():
        for other in related_to_all(view, [record]):
            for (found,) in view.index.execute(asked, (scope_of(other), other.id)):
                yield Loan(found, _BY_RELATION * scores[key], other.path[0])


def _favour_sessions(
    found: dict[int, Record], lenders: dict[int, Record], scores: dict[int, float]
) -> None:
    """Add a little to memories of the sessions that the best matches are from."""
    of_session: defaultdict[str, float] = defaultdict(float)
    for key, record in lenders.items():
        of_session[record.session] += scores[key]
    most = max(of_session.values()) or 1.0
    for key, record in found.items():
        scores[key] += _BY_SESSION * of_session[record.session] / most
