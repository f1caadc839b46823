"""What was found in a text and where, and how finds that overlap become one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Found(NamedTuple):
    """A span of a text and what it is."""

    start: int
    end: int
    kind: str


def joined(found: Iterable[Found]) -> list[Found]:
    """The finds in order, those that overlap as one: it covers them all, and is of the kind of the one that was given first."""
    kept: list[Found] = []
    rank: list[int] = []
    for number, one in sorted(enumerate(found), key=lambda pair: pair[1].start):
        if kept and one.start < kept[-1].end:
            last = kept[-1]
            kind = one.kind if number < rank[-1] else last.kind
            kept[-1] = Found(last.start, max(last.end, one.end), kind)
            rank[-1] = min(number, rank[-1])
        else:
            kept.append(one)
            rank.append(number)
    return kept
