"""`memory.exchange`: exports, imports, and comparing a source with the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..model.outcome import Outcome
from .entry import Entry, Transform, Wanted
from .export import Selection, entries, export
from .intake import Request
from .transfer import Given, export_layout, import_, verify

if TYPE_CHECKING:
    from ..memory import Memory


def _nothing() -> None:
    """The progress of an export or import that nobody watches."""


class Exchange:
    """Everything that goes out of a memory and comes into it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def export(
        self,
        target: str | Path | IO[bytes],
        sessions: Sequence[str] | None = None,
        *,
        format: str | None = None,
        exact: bool = False,
        deleted: bool = False,
        wanted: Wanted | None = None,
        transform: Transform | None = None,
        overwrite: bool = False,
        by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Outcome:
        """Write sessions, or everything, to a file or a stream. A file appears when it is whole.

        Its name says the format. An `exact` export is a bundle of the files themselves. With
        `deleted`, tombstones name the deleted memories.
        """
        return export(
            self.memory,
            target,
            Selection(sessions, deleted, wanted, transform),
            format=format,
            exact=exact,
            overwrite=overwrite,
            by=by,
            advance=advance or _nothing,
        )

    def entries(
        self,
        sessions: Sequence[str] | None = None,
        *,
        deleted: bool = False,
        wanted: Wanted | None = None,
        transform: Transform | None = None,
    ) -> Iterator[Entry]:
        """Yield an export entry by entry, for a program that makes something else of it."""
        return entries(self.memory, Selection(sessions, deleted, wanted, transform), [])

    def export_layout(
        self,
        target: str | Path,
        sessions: Sequence[str] | None = None,
        *,
        layout: str,
        wanted: Wanted | None = None,
        transform: Transform | None = None,
        overwrite: bool = False,
        by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Outcome:
        """Write sessions, or everything, as a folder in the layout of another program."""
        return export_layout(
            self.memory,
            target,
            Selection(sessions, wanted=wanted, transform=transform),
            layout=layout,
            overwrite=overwrite,
            by=by,
            advance=advance or _nothing,
        )

    def import_(
        self,
        source: Given,
        *,
        layout: str | None = None,
        extract: bool = True,
        replace: bool = False,
        purged: bool = False,
        dry_run: bool = False,
        transform: Transform | None = None,
        by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Outcome:
        """Import an export, or everything that other programs keep at a path.

        A memory that is in the tree stays as it is, so an import may be repeated. `replace` takes
        the other content of one id. A purged memory stays away unless `purged` is set.
        """
        request = Request(replace, purged, dry_run, transform, by, advance or _nothing)
        return import_(self.memory, source, request, layout=layout, extract=extract)

    def verify(
        self,
        source: Given,
        *,
        layout: str | None = None,
        extract: bool = True,
        advance: Callable[[], None] | None = None,
    ) -> Outcome:
        """Compare a source with the tree; `success` says that nothing is missing or differs."""
        advance = advance or _nothing
        return verify(self.memory, source, layout=layout, extract=extract, advance=advance)
