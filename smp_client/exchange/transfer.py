"""Imports from a path or a stream, their verification, and exports in the layouts of others."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .. import audit
from ..errors import Invalid
from ..layout import GLOBAL, is_session_id
from ..model.outcome import Action, Outcome
from ..records import TURN
from .entry import Read
from .export import Selection, entries, session_entries
from .intake import Intake, Request
from .layouts import jsonl, jsonl_checked, jsonl_per_kind
from .layouts.chat import Placer, Turns
from .layouts.recognition import SMP, Found, Search, read_export
from .layouts.target import Dump, write_folder

if TYPE_CHECKING:
    from ..memory import Memory

WRITERS: dict[str, Callable[[Dump], dict[str, bytes]]] = {
    jsonl.LAYOUT: jsonl.files, jsonl_per_kind.LAYOUT: jsonl_per_kind.files, jsonl_checked.LAYOUT: jsonl_checked.files,
}  # fmt: skip
Given = str | Path | IO[bytes] | list[Found]


def import_(memory: Memory, source: Given, request: Request, *, layout: str | None, extract: bool) -> Outcome:
    """Take in an export, or everything that other programs keep at a path."""
    notes: list[str] = []
    name, given = _reads(memory, source, layout, notes, extract=extract)
    intake = Intake(memory, request)
    if request.dry_run:
        outcome = intake.take(given)
    else:
        memory.create()
        clock = memory.options.clock
        with audit.noted(memory.tree, "import", clock=clock, by=request.by, count=None, format=name) as tell:
            outcome = intake.take(given)
            tell(outcome.counts["added"])
    outcome.notes += notes
    return outcome


def verify(
    memory: Memory, source: Given, *, layout: str | None = None, extract: bool = True, advance: Callable[[], None] | None = None
) -> Outcome:  # fmt: skip
    """Compare a source with the tree: counts a session, and the ids that are missing or differ."""
    notes: list[str] = []
    _, given = _reads(memory, source, layout, notes, extract=extract)
    request = Request(dry_run=True, advance=advance) if advance else Request(dry_run=True)
    intake = Intake(memory, request)
    outcome = intake.take(given)
    outcome.notes += notes
    outcome.actions = []
    for name, counts in intake.sessions.items():
        here = counts["known"] + counts["conflicts"]
        said = f"{sum(counts.values()) - counts['deleted']:,} in the source, {here:,} in the tree"
        gone = counts["left_deleted"] + counts["purged"]
        outcome.actions.append(Action(name, "compare", (name,), said + (f", {gone:,} deleted or purged here" if gone else "")))
        for word, ids in (("missing", intake.missing[name]), ("differ", intake.differ[name])):
            if ids:
                reason = "not in the tree" if word == "missing" else "another content in the tree"
                outcome.actions.append(Action(name, word, tuple(ids), reason))
                outcome.problems.append(f"{name}: {len(ids):,} {'are missing' if word == 'missing' else 'differ'}")
    outcome.counts = Counter({"source": sum(sum(counts.values()) for counts in intake.sessions.values()),
                              "missing": sum(map(len, intake.missing.values())),
                              "differ": sum(map(len, intake.differ.values()))})  # fmt: skip
    return outcome


def _reads(
    memory: Memory, source: Given, layout: str | None, notes: list[str], *, extract: bool
) -> tuple[str, Iterator[Read]]:  # fmt: skip
    """Return the name of the layout for the audit log, and everything that the source says."""
    if not isinstance(source, (str, Path, list)) and layout in (None, SMP):
        return SMP, read_export(io.BytesIO(source.read()), str(getattr(source, "name", "the export")))
    if isinstance(source, (str, Path)):
        search = Search(source, layout, extract=extract)
        notes += search.notes
        source = search.found
    if not isinstance(source, list):
        raise Invalid(["a stream can only be an export of SMP; give a file or a folder"])
    found = source
    redaction = memory._scope(GLOBAL).redaction if memory.root.is_dir() else None
    placer = Placer(
        lambda name: known_turns(memory, name), lambda text: redaction.redacted_text(text)[0] if redaction else text, notes
    )
    return ", ".join(one.layout for one in found), (read for one in found for read in one.entries(placer))


def known_turns(memory: Memory, name: str) -> Turns | None:
    """Return the turns of a session by number; None where there is no such session."""
    if not is_session_id(name) or not any(memory.tree.exists(f"{place}/{name}") for place in ("active", "archived", "deleted")):
        return None
    turns = (entry["record"] for entry in session_entries(memory, name, []) if entry.get("file") == TURN.file)
    return {int(turn["turn"]): (str(turn.get("speaker")), str(turn.get("content")).strip("\n"))
            for turn in turns if "summarizes" not in turn}  # fmt: skip


def export_layout(
    memory: Memory, target: str | Path, selection: Selection, *, layout: str, overwrite: bool = False, by: str = "user",
    advance: Callable[[], None] | None = None,
) -> Outcome:  # fmt: skip
    """Write sessions, or everything, as a folder in the layout of another program."""
    if layout not in WRITERS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(WRITERS)}"])
    memory.require()
    outcome, left_out = Outcome(), Counter[str]()
    dumps: dict[str, Dump] = {}
    chosen = Selection(selection.sessions, deleted=True, wanted=selection.wanted, transform=selection.transform)
    for name in selection.sessions or ():
        if name != GLOBAL and not memory.tree.exists(f"archived/{name}"):
            memory._session(name)
    for entry in entries(memory, chosen, outcome.problems, advance or (lambda: None)):
        if entry.get("entry") in (None, "end"):
            continue
        dump = dumps.setdefault(entry.get("session", GLOBAL), Dump(entry.get("session", GLOBAL)))
        dump.take(entry, left_out)
        outcome.counts["entries"] += 1
    shared = dumps.pop(GLOBAL, None)
    if shared and layout != jsonl_per_kind.LAYOUT:
        left_out["global memory"] += len(shared.records)
    found: dict[str, bytes] = {}
    for dump in [*dumps.values(), *([shared] if shared and layout == jsonl_per_kind.LAYOUT else [])]:
        found |= WRITERS[layout](dump)
    if layout == jsonl_checked.LAYOUT:
        found |= jsonl_checked.indices(list(dumps.values()))
    place = Path(target).expanduser().absolute()
    with audit.noted(memory.tree, "export", clock=memory.options.clock, by=by, count=len(dumps), format=layout,
                     changed=selection.transform is not None or None):  # fmt: skip
        write_folder(place, found, overwrite=overwrite)
    outcome.counts["sessions"], outcome.counts["bytes"] = len(dumps), sum(map(len, found.values()))
    outcome.actions = [Action(name, "export", (name,), f"written as {layout}") for name in dumps]
    outcome.notes += [f"{layout} has no place for {count:,} × {what}" for what, count in sorted(left_out.items()) if count]
    return outcome
