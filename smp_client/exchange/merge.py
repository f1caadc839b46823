"""What a session that is there already gets of an import, as data: what is there, and what is to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..records import Kind
from ..text.values import Value

Values = dict[str, Value]
Read = Callable[[str], bytes | None]  # the content of a file that is there


@dataclass
class Standing:
    """What is there."""

    read: Read
    highest: Callable[[Kind, bytes], int]
    deleted: dict[tuple[str, str], set[str | None]] = field(default_factory=dict)  # by file and id: of which time
    deleted_before: dict[tuple[str, str], set[str | None]] = field(default_factory=dict)  # by what each was known as before
    deleted_named: set[tuple[str, str]] = field(default_factory=set)  # by file and id: those that had a name before
    evicted: dict[tuple[str, str], list[Values]] = field(default_factory=dict)


@dataclass
class Merge:
    """What is to be done, and why something is not."""

    added: dict[str, list[Values]] = field(default_factory=dict)  # records, by the file that is there
    whole: dict[str, bytes] = field(default_factory=dict)  # files that are not there, or are replaced: all of them text
    copies: dict[str, bytes] = field(default_factory=dict)  # any other file
    changed: dict[str, dict[str, Values]] = field(default_factory=dict)  # by file and id: what stands there, as it is to be
    differing: int = 0  # that stay as they are here, though they were changed there too
    last: dict[str, int] = field(default_factory=dict)  # the highest number that was given where it comes from
    renamed: dict[str, str] = field(default_factory=dict)
    skipped: int = 0
    count: int = 0  # memories that are added
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.whole or self.copies)

    @property
    def is_about_memories(self) -> bool:
        return bool(self.added or self.changed or self.whole or self.skipped)

    @property
    def lacking(self) -> int:
        """How many memories are not there, or not as they are to be."""
        return self.count + sum(map(len, self.changed.values()))
