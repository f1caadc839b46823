"""Memories that others keep in other layouts, as the entries of an export; the importer does the rest.

    jsonl            one file per session, `{session}.jsonl`                              single.py
    jsonl-per-kind   `sessions/{session}/` with a file per kind, `shared/`, `archive/`     per_kind.py, shared.py
    jsonl-checked    `sessions/{session}/memory.jsonl` with checksums and tombstones       checked.py
    markdown-log     conversations in Markdown or text, memlogs                            logs/
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
from ...layout import MARKER
from ..formats import Read
from .recognising import BELOW, LOG_DEPTH, SMP, Found, Recognising

LAYOUTS = ("smp", "jsonl", "jsonl-per-kind", "jsonl-checked", "markdown-log")
_LOOKED_FOR = {
    "smp": "a file that begins like an export of SMP, packed with gzip or not",
    "jsonl": "*.jsonl with 'type', 'ts' and 'data' in its lines",
    "jsonl-per-kind": "a folder with manifest.json, conversation.jsonl, decisions.jsonl, findings.jsonl or preferences.jsonl",
    "jsonl-checked": "a folder with memory.jsonl",
    "markdown-log": "a text, such as .md or .txt, with lines that say who speaks, or .memlog.md",
}


def recognise(path: str | Path, layout: str | None = None, *, extract: bool = True) -> list[Found]:
    """Every layout that is found at a path, or only this one, each with why; none where nothing is. Raises Invalid where there is
    no such path or layout. Without `extract`, what logs mark as decisions, findings and so on stays in their text alone."""
    if layout is not None and layout not in LAYOUTS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(LAYOUTS)}"])
    place = Path(path).expanduser()
    if not place.exists():
        raise Invalid([f"there is nothing at {place}"])
    return Recognising(place, layout, extract=extract).found()


def nothing_at(path: str | Path, layout: str | None) -> Invalid:
    """What to say where nothing was recognised: what was looked for, and where."""
    place = Path(path).expanduser()
    if place.is_dir() and (place / MARKER).exists():
        return Invalid([f"{path} is a tree of SMP itself"],
                       advice=f"smp export --all --root {path} | smp import - takes in all of it.")  # fmt: skip
    if place.is_dir() and layout == SMP:
        return Invalid([f"{path} is a folder, and no export of SMP, which is one file"], advice="Name that file.")
    wanted = [name for name in _LOOKED_FOR if layout in (None, name) and not (name == SMP and place.is_dir())]
    said = f"nothing in the layout {layout} is at {path}"
    if layout is None:
        said = f"{path} is no export of SMP, and nothing in any layout that SMP knows is there"
    said += f"; looked for {'; '.join(f'{name}: {_LOOKED_FOR[name]}' for name in wanted)}"
    if place.is_dir():
        below = ", ".join(name for name in BELOW if name)
        logs = f"; for logs in every folder, {LOG_DEPTH} deep" if "markdown-log" in wanted else ""
        said += f". Looked in the folder itself, in {below} below it, and in sessions of each{logs}"
    insist = f", or insist with --as on one of {', '.join(LAYOUTS)}" if layout is None else ""
    return Invalid([said], advice=f"Name the file, or the folder that holds the sessions{insist}.")


def read(found: Found) -> Iterator[Read]:
    """The entries of all that was found, session by session, and what is wrong with it. Not for `smp`, which formats.py reads."""
    for part in found.parts:
        yield from part()


__all__ = ["LAYOUTS", "Found", "nothing_at", "read", "recognise"]
