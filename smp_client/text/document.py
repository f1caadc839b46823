"""A document: a file of memories as a head and records, each record with the bytes it stands in.

Every byte of a plain document belongs to the head or to exactly one record: the lines of a record
reach from its dash, or its heading, to the next record, those of the last to the end of the file.
So comments and blank lines below a record belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model.deadline import step
from .values import Value

INDENT = 2
CUT_OFF = "the record was cut off while it was written"


class Located(NamedTuple):
    """A record and its span."""

    start: int
    end: int
    value: dict[str, Value]

    @property
    def has_id(self) -> bool:
        return bool(self.value.get("id")) and isinstance(self.value["id"], str)


class Bad(NamedTuple):
    """Bytes that are no record, and why; `line` is that of the fault, from 1 where they begin."""

    start: int
    end: int
    line: int
    problem: str


class RecordList:
    """The records of a file. It is plain where records can be appended and spans be replaced."""

    def __init__(
        self, records: Sequence[Located] = (), *, indent: int = INDENT, listed: bool = False
    ) -> None:
        self.records = list(records)
        self.bad: list[Bad] = []
        self.head: dict[str, Value] = {}  # the keys beside the list
        self.indent = indent  # of the dashes
        self.listed = listed  # whether the list's key is there at all
        self.plain = True

    def take(self, item: Located | Bad) -> None:
        step()
        if isinstance(item, Located):
            self.records.append(item)
        else:
            self.bad.append(item)

    def items(self) -> list[Located | Bad]:
        """Return records and bad bytes in the order of the file."""
        return sorted([*self.records, *self.bad], key=lambda item: item.start)

    def find(self, memory_id: str) -> Located | None:
        """Return the last record of that id: a hand-made double is appended behind the original."""
        named = (one for one in reversed(self.records) if one.value.get("id") == memory_id)
        return next(named, None)
