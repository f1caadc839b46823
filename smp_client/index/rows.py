"""Rows of the index: the state of a file, and a memory."""

from __future__ import annotations

from typing import NamedTuple


class FileState(NamedTuple):
    """A file as the index has taken it in."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    checksum: int
    indent: int  # of its records; -1 for a file that cannot be read from its end
    bad: int = 0  # records in it that could not be read
    problem: str | None = None  # why the file could not be read; its memories then stay known

    @property
    def identity(self) -> tuple[int, ...]:
        return self[:4]


class Entry(NamedTuple):
    """A memory as the index keeps it. The first fields are columns of the table `memories`."""

    id: str
    type: str
    start: int
    end: int
    hash: str
    timestamp: str | None  # in UTC, as it is shown; None where none can be read
    at: int | None  # in microseconds since 1970, which sort as texts of unlike precision do not
    actor: str
    text: str
    more: str  # its other texts
    data: str
    standing: str  # names the rule by which it decays, see priority.py
    base: float | None  # where its priority begins; None for the rule's
    accessed: int | None  # in microseconds
    accesses: int
    importance: float
    ended: str = ""  # why it no longer holds, by its own fields, see validity.py
    subject: str | None = None  # of an explicit preference: a later one of the subject replaces it
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()  # beside its tags
    refs: tuple[tuple[str, str], ...] = ()  # (target, relation)
    endings: tuple[tuple[str, str, str], ...] = ()  # (target, relation, source) that it ends
    place: int | None = None  # of a turn in its conversation


COLUMNS = Entry._fields[: Entry._fields.index("tags")]
