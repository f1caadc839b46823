"""Memories that others keep in other layouts, as the entries of an export; the importer does the rest.

    jsonl            one file per session, `{session}.jsonl`                              single.py
    jsonl-per-kind   `sessions/{session}/` with a file per kind, `shared/`, `archive/`     per_kind.py, shared.py
    jsonl-checked    `sessions/{session}/memory.jsonl` with checksums and tombstones       checked.py
    markdown-log     conversations in Markdown or text, memlogs                            logs.py, memlog.py, extracting.py
    smp              an export of ours                                                     ../formats.py

Everything that a layout holds arrives. Ids, times, tags and fields are what they were; what we call otherwise gets our name; an id
that cannot be one of ours, or that two entries have, is mapped, and stands as `imported_id` beside the new one. Messages become
turns with numbers in their order, and references to them are mapped. Priorities and accesses are the record's `decay`. What is
needed to write the same layout again is in the record, and in the session's metadata, under `imported`: each layout's module has
`theirs`, which goes the way back from a record, and says in its docstring what it keeps. Where the way back would not give exactly
what was read, the whole entry is kept as `imported.original`; so nothing can be lost, also of what no document foresaw.

What is malformed is told with file, line and reason, and set aside in the session's quarantine; the rest goes on. Two kinds of
things are no entries of an export: memories that come as deleted (see removed.py), and problems, which are reads without an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import Invalid
from ..formats import Read
from .recognising import Found, Recognising

LAYOUTS = ("smp", "jsonl", "jsonl-per-kind", "jsonl-checked", "markdown-log")


def recognise(path: str | Path, layout: str | None = None, *, extract: bool = True) -> list[Found]:
    """Every layout that is found at a path, or only this one, each with why; none where nothing is. Raises Invalid where there is
    no such path or layout. Without `extract`, what logs mark as decisions, findings and so on stays in their text alone."""
    if layout is not None and layout not in LAYOUTS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(LAYOUTS)}"])
    place = Path(path).expanduser()
    if not place.exists():
        raise Invalid([f"there is nothing at {place}"])
    return Recognising(place, layout, extract=extract).found()


def read(found: Found) -> Iterator[Read]:
    """The entries of all that was found, session by session, and what is wrong with it. Not for `smp`, which formats.py reads."""
    for part in found.parts:
        yield from part()


__all__ = ["LAYOUTS", "Found", "read", "recognise"]
