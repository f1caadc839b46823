"""What a reader of a layout is: it finds its files in a folder, and yields their entries.

`recognition.READERS` is the table of all readers. A reader gets one folder after the other. For
each session that it finds there it yields a `Part`: the files, and a function that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..entry import Read
from .source import Source, inside

Turns = dict[int, tuple[str, str]]  # speaker and text by number


@dataclass
class Destination:
    """The memory that an import writes to, as far as a reader must know it."""

    known_turns: Callable[[str], Turns | None]  # of a session; None if there is no such session
    clean: Callable[[str], str]  # a text without its secrets
    extract: bool = True  # whether memories that a conversation states become memories
    notes: list[str] = field(default_factory=list)
    claimed: dict[str, Turns] = field(default_factory=dict)  # the turns of logs read before


@dataclass(frozen=True)
class Part:
    """A session, or another piece of a source, that one reader has found."""

    files: tuple[str, ...]
    read: Callable[[Destination], Iterator[Read]]
    directories: tuple[str, ...] = ()  # of the folder, into which no other reader looks


@dataclass(frozen=True)
class Folder:
    """A folder of a source, with the names in it."""

    source: Source
    path: str  # below the top; empty for the top itself
    files: tuple[str, ...]
    directories: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2] or self.source.top.name

    def place(self, name: str) -> str:
        """Return the path of a name in this folder."""
        return inside(self.path, name)

    def places(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the paths of those of these files that are in this folder."""
        return tuple(self.place(name) for name in names if name in self.files)


@dataclass(frozen=True)
class Reader:
    """One way to find a layout in a folder. Several readers may share the name of a layout."""

    layout: str
    find: Callable[[Folder], Iterator[Part]]
    files: tuple[str, ...] = ()  # the names of the files, if a folder is one session

    @property
    def is_whole(self) -> bool:
        """Return whether a folder is one session, so that no other reader looks into it."""
        return bool(self.files)
