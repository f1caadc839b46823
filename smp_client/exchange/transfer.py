"""Imports from a path or a stream, migrations, and exports in the layouts of others.

A migration is a backup of the source, an import, priorities, and a comparison. The backup is a
bundle of every file that was read, `backup-pre-smp/{name}-{time}.tar.gz` beside the root. Only the
user removes it.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..disk import audit
from ..model.errors import Invalid, SMPError
from ..model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, GLOBAL, is_session_id
from ..model.outcome import Action, Outcome
from ..model.record import TURN
from ..redaction.redact import OFF
from .entry import Read
from .export import Selection, copy_bundle, entries, require_sessions, session_entries, write_file
from .intake import Intake, Request
from .layouts import jsonl, jsonl_checked, jsonl_per_kind
from .layouts.chat import Placer, Turns
from .layouts.recognition import SMP, Found, Search, read_export
from .layouts.target import Dump, write_folder

if TYPE_CHECKING:
    from ..memory import Memory

WRITERS: dict[str, Callable[[Dump], dict[str, bytes]]] = {
    jsonl.LAYOUT: jsonl.files,
    jsonl_per_kind.LAYOUT: jsonl_per_kind.files,
    jsonl_checked.LAYOUT: jsonl_checked.files,
}
Given = str | Path | IO[bytes] | list[Found]


def import_(
    memory: Memory, source: Given, request: Request, *, layout: str | None, extract: bool
) -> Outcome:
    """Take in an export, or everything that other programs keep at a path."""
    notes: list[str] = []
    name, given = _reads(memory, source, layout, notes, extract=extract)
    intake = Intake(memory, request)
    if request.dry_run:
        outcome = intake.take(given)
    else:
        memory.create()
        clock, by = memory.options.clock, request.by
        noted = audit.noted(memory.tree, "import", clock=clock, by=by, count=None, format=name)
        with noted as tell:
            outcome = intake.take(given)
            tell(outcome.counts["added"])
    outcome.notes += notes
    return outcome


def verify(
    memory: Memory, source: Given, *, layout: str | None = None, extract: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> Outcome:  # fmt: skip
    """Compare a source with the tree: counts a session, and the ids that are missing or differ."""
    notes: list[str] = []
    _, given = _reads(memory, source, layout, notes, extract=extract)
    request = Request(dry_run=True, advance=advance)
    intake = Intake(memory, request)
    outcome = intake.take(given)
    outcome.notes += notes
    outcome.actions = []
    totals = Counter[str]()
    for name, counts in intake.sessions.items():
        here = counts["known"] + counts["conflicts"]
        gone = counts["left_deleted"] + counts["purged"]
        total = here + gone + counts["added"] + counts["left_out"]
        said = f"{total:,} in the source, {here:,} in the tree"
        said += f", {gone:,} deleted or purged here" if gone else ""
        outcome.actions.append(Action(name, "compare", (name,), said))
        totals["source"] += total
        words = {"missing": ("added", "not in the tree"), "differ": ("conflicts", "other content")}
        for word, (key, reason) in words.items():
            if ids := intake.listed.get(name, {}).get(key):
                totals[word] += len(ids)
                outcome.actions.append(Action(name, word, tuple(ids), reason))
                outcome.problems.append(f"{name}: {len(ids):,} {word}: {reason}")
    outcome.counts = Counter({word: totals[word] for word in ("source", "missing", "differ")})
    return outcome


def _reads(
    memory: Memory, source: Given, layout: str | None, notes: list[str], *, extract: bool
) -> tuple[str, Iterator[Read]]:
    """Return the name of the layout for the audit log, and everything that the source says."""
    if isinstance(source, (str, Path)):
        search = Search(source, layout, extract=extract)
        notes += search.notes
        source = search.found
    elif not isinstance(source, list):
        if layout not in (None, SMP):
            raise Invalid(["a stream can only be an export of SMP; give a file or a folder"])
        name = str(getattr(source, "name", "the export"))
        return SMP, read_export(io.BytesIO(source.read()), name)
    redaction = memory._scope(GLOBAL).redaction if memory.root.is_dir() else OFF
    clean = redaction.redacted_text
    placer = Placer(partial(known_turns, memory), lambda text: clean(text)[0], notes)
    found = source
    names = ", ".join(one.layout for one in found)
    return names, (read for one in found for read in one.entries(placer))


def known_turns(memory: Memory, name: str) -> Turns | None:
    """Return the turns of a session by number; None where there is no such session."""
    places = (f"{place}/{name}" for place in (ACTIVE, ARCHIVED, DELETED))
    if not is_session_id(name) or not any(map(memory.tree.exists, places)):
        return None
    found = session_entries(memory, name, [])
    turns = [entry["record"] for entry in found if entry.get("file") == TURN.file]
    return {int(turn["turn"]): (str(turn.get("speaker")), str(turn.get("content")).strip("\n"))
            for turn in turns if "summarizes" not in turn}  # fmt: skip


def back_up(memory: Memory, found: list[Found], by: str = "user") -> Path:
    """Copy every file that was found into a bundle beside the root. Return its path."""
    memory.create()
    source = found[0].source
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", source.path.name)[:40].strip("-") or "root"
    at = memory.options.clock()
    place = memory.root.parent / BACKUP / f"{stem}-{at:%Y%m%dT%H%M%S}.tar.gz"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    files = list(dict.fromkeys(file for one in found for file in one.files))
    said = (by, f"before the import of {source.path}")

    def write(out: IO[bytes]) -> None:
        copy_bundle(memory, source.tree, files, said, out.write)

    write_file(place, write, overwrite=True)
    return place


def migrate(memory: Memory, found: list[Found], request: Request) -> Outcome:
    """Back up, import, set the priorities of the imported sessions, and compare both sides."""
    place = back_up(memory, found, request.by)
    outcome = import_(memory, found, request, layout=None, extract=True)
    for name in dict.fromkeys(action.session for action in outcome.actions):
        if memory.tree.exists(f"{ACTIVE}/{name}"):
            try:
                memory._session(name).decay()
                outcome.actions.append(Action(name, "refresh_priorities", (name,), "imported"))
            except SMPError as error:
                outcome.problems.append(f"{name}: its priorities could not be set: {error}")
    compared = verify(memory, found)
    outcome.actions += compared.actions
    outcome.problems += [one for one in compared.problems if one not in outcome.problems]
    outcome.counts.update({word: compared.counts[word] for word in ("missing", "differ")})
    said = "It holds everything that was in the source, secrets included."
    outcome.notes.append(f"The backup is {place}. {said}")
    return outcome


def export_layout(
    memory: Memory, target: str | Path, selection: Selection, *, layout: str,
    overwrite: bool = False, by: str = "user", advance: Callable[[], None] = lambda: None,
) -> Outcome:  # fmt: skip
    """Write sessions, or everything, as a folder in the layout of another program."""
    if layout not in WRITERS:
        raise Invalid([f"layout {layout!r} must be one of {', '.join(WRITERS)}"])
    require_sessions(memory, selection)
    outcome, left_out, dumps = Outcome(), Counter[str](), dict[str, Dump]()
    for entry in entries(memory, replace(selection, deleted=True), outcome.problems, advance):
        if entry.get("entry") not in (None, "end"):
            dumps.setdefault(entry["session"], Dump(entry["session"])).take(entry, left_out)
            outcome.counts["entries"] += 1
    if GLOBAL in dumps and layout != jsonl_per_kind.LAYOUT:
        left_out["global memory"] += len(dumps.pop(GLOBAL).records)
    found: dict[str, bytes] = {}
    for dump in dumps.values():
        found |= WRITERS[layout](dump)
    names = [name for name in dumps if name != GLOBAL]
    with audit.noted(memory.tree, "export", clock=memory.options.clock, by=by, count=len(names),
                     format=layout, changed=selection.transform is not None or None):  # fmt: skip
        write_folder(Path(target).expanduser().absolute(), found, overwrite=overwrite)
    outcome.counts.update({"sessions": len(names), "bytes": sum(map(len, found.values()))})
    outcome.actions = [Action(name, "export", (name,), f"written as {layout}") for name in names]
    lost = sorted((what, count) for what, count in left_out.items() if count)
    outcome.notes += [f"{layout} has no place for {count:,} × {what}" for what, count in lost]
    return outcome
