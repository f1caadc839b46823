"""A document: a file of memories as a head and records, each record with the bytes it stands in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AnyStr, Generic, Literal

from ..deadline import step
from .values import Value

INDENT = 2
CUT_OFF = "the record was cut off while it was written"


@dataclass(frozen=True, slots=True)
class Located:
    """A record and the bytes from its dash to the end of its last line (in a flow list: from `{` to `}`)."""

    start: int
    end: int
    value: dict[str, Value]

    @property
    def has_id(self) -> bool:
        return bool(self.value.get("id")) and isinstance(self.value["id"], str)


@dataclass(frozen=True, slots=True)
class Bad:
    """Bytes in the list that are no record, and why; `line` counts from 1."""

    start: int
    end: int
    line: int
    problem: str


@dataclass(slots=True)
class RecordList:
    records: list[Located] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    head: dict[str, Value] = field(default_factory=dict)  # the keys beside the list
    indent: int = INDENT  # of the dashes
    insert_at: int = 0  # where the next record goes
    flow: bool = False
    listed: bool = False  # whether the list's key is there at all
    root: Literal["block", "flow", "bare"] = "block"  # how the mapping around the list is written; bare where there is none
    head_at: int = 0  # where a further key of that mapping may go
    head_column: int = 0
    null: tuple[int, int] | None = None  # the bytes of a `null` in the place of the list

    def take(self, item: Located | Bad) -> None:
        step()
        if isinstance(item, Located):
            self.records.append(item)
        else:
            self.bad.append(item)

    def items(self) -> list[Located | Bad]:
        return [*self.records, *self.bad]

    def find(self, memory_id: str) -> Located | None:
        """The last record of that id: a hand-made double is appended behind the original."""
        return next((record for record in reversed(self.records) if record.value.get("id") == memory_id), None)


class Lines(Generic[AnyStr]):
    """Tells on which line a place in a text is, from 1. The work is that of one look where the places come in order."""

    def __init__(self, text: AnyStr, line_end: AnyStr) -> None:
        self._text: AnyStr = text
        self._line_end: AnyStr = line_end
        self._known = (0, 1)

    def at(self, place: int) -> int:
        start, line = self._known if self._known[0] <= place else (0, 1)
        self._known = (place, line + self._text.count(self._line_end, start, place))
        return self._known[1]
