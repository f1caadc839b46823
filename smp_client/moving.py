"""Taking memories out of a tree, and bringing them into one, as methods of the memory. See `exchange/`, which is imported late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .exchange.entries import Entry
    from .exchange.importing import Imported
    from .exchange.layouts import Found
    from .exchange.layouts.writing.exporting import LayoutExported
    from .exchange.reading import Transform, Wanted
    from .exchange.transfer import Exported
    from .exchange.verifying import Verified
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

    def export_layout(
        self, target: str | Path, sessions: Sequence[str] | None = None, *, layout: str, wanted: Wanted | None = None,
        transform: Transform | None = None, overwrite: bool = False, by: str = "user", advance: Callable[[], None] | None = None,
    ) -> LayoutExported:  # fmt: skip
        """Writes sessions, or everything, as another layout into a folder; one session of `jsonl` also into a file of that name."""
        from .exchange.layouts.writing.exporting import export_layout

        return export_layout(cast("Memory", self), target, sessions, layout=layout, wanted=wanted, transform=transform,
                             overwrite=overwrite, by=by, advance=advance)  # fmt: skip

    def import_(
        self, source: str | Path | IO[bytes] | Sequence[Found], *, layout: str | None = None, extract: bool = True,
        dry_run: bool = False, transform: Transform | None = None, by: str = "user", advance: Callable[[], None] | None = None,
        purged: bool = False,
    ) -> Imported:  # fmt: skip
        """Takes in an export, or whatever of other layouts is at a path or was found there (see `exchange.layouts.recognise`), or
        only this layout of it. What is there already is left as it is, so it may be repeated; what was purged here stays away,
        unless `purged` says otherwise."""
        from .exchange.transfer import import_

        return import_(cast("Memory", self), source, layout=layout, extract=extract, dry_run=dry_run, transform=transform, by=by,
                       advance=advance, purged=purged)  # fmt: skip

    def verify_import(
        self, source: str | Path | Sequence[Found], *, layout: str | None = None, extract: bool = True,
        advance: Callable[[], None] | None = None,
    ) -> Verified:
        """Whether all that an import of this would take in is here, and says the same; changes nothing."""
        from .exchange.verifying import verify

        return verify(cast("Memory", self), source, layout=layout, extract=extract, advance=advance)
