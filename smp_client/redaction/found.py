"""A find: where a secret or something personal stands in a text, and of which kind it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Found(NamedTuple):
    """A span of a text, and the kind of secret or personal data that stands there."""

    start: int
    end: int
    kind: str


def joined(found: Iterable[Found]) -> list[Found]:
    """Return the finds in order. Those that overlap are one, of the kind that was given first."""
    kept: list[tuple[int, Found]] = []
    for rank, one in sorted(enumerate(found), key=lambda pair: pair[1].start):
        if kept and one.start < kept[-1][1].end:
            first = min(kept[-1], (rank, one))
            last = kept.pop()[1]
            rank = first[0]
            one = Found(last.start, max(last.end, one.end), first[1].kind)
        kept.append((rank, one))
    return [one for _, one in kept]
