"""Taking memories out of a tree, and bringing them into one, as methods of the memory. See `exchange/`, which is imported late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .exchange.entries import Entry
    from .exchange.importing import Imported
    from .exchange.reading import Transform, Wanted
    from .exchange.transfer import Exported
    from .memory import Memory


class MemoryMoving:
    """Export and import."""

    def export(
        self, target: str | Path | IO[bytes], sessions: Sequence[str] | None = None, *, format: str | None = None,
        deleted: bool = False, wanted: Wanted | None = None, transform: Transform | None = None, overwrite: bool = False,
        by: str = "user", advance: Callable[[], None] | None = None,
    ) -> Exported:  # fmt: skip
        """Writes sessions, or everything, to a file or a stream. A file appears when it is whole; its name says the format."""
        from .exchange.transfer import export

        return export(cast("Memory", self), target, sessions, format=format, deleted=deleted, wanted=wanted, transform=transform,
                      overwrite=overwrite, by=by, advance=advance)  # fmt: skip

    def export_entries(
        self, sessions: Sequence[str] | None = None, *, deleted: bool = False, wanted: Wanted | None = None,
        transform: Transform | None = None,
    ) -> Iterator[Entry]:  # fmt: skip
        """The same, entry by entry, for a program that makes something else of them."""
        from .exchange.reading import Reading

        return Reading(cast("Memory", self), sessions, deleted=deleted, wanted=wanted, transform=transform).entries()

    def import_(
        self, source: str | Path | IO[bytes], *, dry_run: bool = False, transform: Transform | None = None, by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Imported:  # fmt: skip
        """Takes an export in. What is there already is left as it is, so it may be repeated."""
        from .exchange.transfer import import_

        return import_(cast("Memory", self), source, dry_run=dry_run, transform=transform, by=by, advance=advance)
