"""Exports and imports as methods of the memory. See `exchange/`, which is imported late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from .exchange.entry import Entry, Transform, Wanted
    from .exchange.transfer import Given
    from .memory import Memory
    from .model.outcome import Outcome

_NOTHING: Callable[[], None] = lambda: None  # noqa: E731


class MemoryMoving:
    """Export and import."""

    def export(
        self, target: str | Path | IO[bytes], sessions: Sequence[str] | None = None, *, format: str | None = None,
        exact: bool = False, deleted: bool = False, wanted: Wanted | None = None, transform: Transform | None = None,
        overwrite: bool = False, by: str = "user", advance: Callable[[], None] | None = None,
    ) -> Outcome:  # fmt: skip
        """Write sessions, or everything, to a file or a stream. A file appears when it is whole.

        Its name says the format. An `exact` export is a bundle of the files themselves. With
        `deleted`, tombstones name the deleted memories.
        """
        from .exchange.export import Selection, export

        selection = Selection(sessions, deleted, wanted, transform)
        return export(cast("Memory", self), target, selection, format=format, exact=exact, overwrite=overwrite, by=by,
                      advance=advance or _NOTHING)  # fmt: skip

    def export_entries(
        self, sessions: Sequence[str] | None = None, *, deleted: bool = False, wanted: Wanted | None = None,
        transform: Transform | None = None,
    ) -> Iterator[Entry]:  # fmt: skip
        """Yield an export entry by entry, for a program that makes something else of it."""
        from .exchange.export import Selection, entries

        return entries(cast("Memory", self), Selection(sessions, deleted, wanted, transform), [])

    def export_layout(
        self, target: str | Path, sessions: Sequence[str] | None = None, *, layout: str, wanted: Wanted | None = None,
        transform: Transform | None = None, overwrite: bool = False, by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Outcome:  # fmt: skip
        """Write sessions, or everything, as a folder in the layout of another program."""
        from .exchange.export import Selection
        from .exchange.transfer import export_layout

        selection = Selection(sessions, wanted=wanted, transform=transform)
        return export_layout(cast("Memory", self), target, selection, layout=layout, overwrite=overwrite, by=by,
                             advance=advance or _NOTHING)  # fmt: skip

    def import_(
        self, source: Given, *, layout: str | None = None, extract: bool = True, replace: bool = False,
        purged: bool = False, dry_run: bool = False, transform: Transform | None = None, by: str = "user",
        advance: Callable[[], None] | None = None,
    ) -> Outcome:  # fmt: skip
        """Take in an export, or everything that other programs keep at a path.

        A memory that is in the tree stays as it is, so an import may be repeated. `replace` takes the
        other content of the same id. A memory that was purged stays away unless `purged` is set.
        """
        from .exchange.intake import Request
        from .exchange.transfer import import_

        request = Request(replace, purged, dry_run, transform, by, advance or _NOTHING)
        return import_(cast("Memory", self), source, request, layout=layout, extract=extract)

    def verify_import(
        self, source: Given, *, layout: str | None = None, extract: bool = True,
        advance: Callable[[], None] | None = None,
    ) -> Outcome:  # fmt: skip
        """Compare a source with the tree; `success` says that nothing is missing and nothing differs."""
        from .exchange.transfer import verify

        advance = advance or _NOTHING
        return verify(cast("Memory", self), source, layout=layout, extract=extract, advance=advance)
