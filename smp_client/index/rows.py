"""What the index keeps of a memory, and of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class FileState:
    """What the index has taken in of one file."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    checksum: int
    indent: int
    bad: int = 0  # records in it that could not be read
    problem: str | None = None  # why the file itself could not be read; what was known of it then stays


class Weight(NamedTuple):
    """What the priority and the rank of a memory depend on, see decay.py and ranking.py."""

    standing: str
    base: float | None  # where its priority begins; None for what its standing says
    accessed: int | None  # in microseconds, as `at`
    accesses: int
    importance: float
    place: int | None  # of a turn in its conversation


class Validity(NamedTuple):
    """What says whether memories still hold, see questions/validity.py."""

    ended: str = ""  # why the memory does not, by its own fields
    subject: str | None = None  # of an explicit preference, which a later one about the same replaces
    endings: tuple[tuple[str, str, str], ...] = ()  # (target, relation, source) of a relationship that ends its target


_HOLDS = Validity()


@dataclass(frozen=True)
class Entry:
    """A memory as the index keeps it."""

    id: str
    type: str
    start: int
    end: int
    hash: str
    timestamp: str | None  # in UTC, as it is shown; None where there is none that can be read
    at: int | None  # the same in microseconds since 1970: what sorts and compares, which the text does not within a second
    actor: str
    text: str
    more: str  # its other texts
    tags: tuple[str, ...]
    topics: tuple[str, ...]  # that it has beside its tags
    refs: tuple[tuple[str, str], ...]  # (target, relation)
    data: str
    weight: Weight
    validity: Validity = _HOLDS
