"""`memory.exchange`: exports, imports, migrations, and comparing a source with the tree.

A migration is a backup of the source, an import, priorities and a comparison. The backup is a
bundle of every file that was read, `backup-pre-smp/{name}-{time}.tar.gz` beside the root. Only the
user removes it.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

from ..disk import audit
from ..model.door import front_door
from ..model.errors import Invalid, SMPError
from ..model.layout import ACTIVE, ARCHIVED, BACKUP, DELETED, GLOBAL, is_session_id
from ..model.outcome import Action, Outcome
from ..model.progress import tracked
from ..model.quotation import shown
from ..model.record import TURN
from ..redaction.redact import OFF
from . import forms
from .entry import Entry, Read
from .export import Choice, Selection, copy_bundle, entries, files_of, session_entries, write_file
from .intake import Intake, Request
from .layouts import own_export
from .layouts.reader import Destination, Turns
from .layouts.recognition import Recognition, recognise, recognise_source
from .layouts.source import is_packed, packed_source
from .layouts.target import WRITERS, dumps_of, write_folder

if TYPE_CHECKING:
    from ..memory import Memory

Given = str | Path | IO[bytes] | Recognition


@front_door
class Exchange:
    """Everything that goes out of a memory and comes into it."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def export(
        self, target: str | Path | IO[bytes], sessions: Sequence[str] | None = None, *,
        format: str | None = None, exact: bool = False, overwrite: bool = False,
        **choice: Unpack[Choice],
    ) -> Outcome:  # fmt: skip
        """Write sessions, or everything, to a file or a stream. A file appears when it is whole.

        Its name says the format. An `exact` export is a bundle of the files themselves. `types`,
        `tags`, `agent`, `topic`, `text`, `since` and `until` choose memories as in a question;
        `wanted` is asked for each entry. With `deleted`, tombstones name the deleted memories.
        """
        memory = self.memory
        selection = Selection.of(sessions, choice)
        outcome = Outcome()
        chosen = selection.names(memory)
        if exact and (selection.is_partial or selection.transform or format):
            raise Invalid(["an exact export goes with no condition, format or change"])
        name = str(target) if isinstance(target, (str, Path)) else ""
        if exact:
            forms.require_bundle_name(name)
            form = "bundle"
        else:
            form = forms.format_named(format) if format else forms.format_of_file(name)

        def write(out: IO[bytes]) -> None:
            def put(piece: bytes) -> None:
                out.write(piece)
                outcome.counts["bytes"] += len(piece)

            if exact:
                paths = files_of(memory.tree, chosen, deleted=selection.deleted)
                outcome.counts["files"] = len(paths)
                copy_bundle(memory, memory.tree, paths, (selection.by, "an exact export"), put)
            else:
                forms.write(entries(memory, selection, outcome.problems, outcome.counts), form, put)
                _note_nothing(outcome, selection)

        with self._noted(selection, chosen, form):
            if isinstance(target, (str, Path)):
                write_file(Path(target).expanduser().absolute(), write, overwrite=overwrite)
            else:
                write(target)
        return _finished(outcome, chosen, form)

    def entries(
        self, sessions: Sequence[str] | None = None, **choice: Unpack[Choice]
    ) -> Iterator[Entry]:
        """Yield an export entry by entry, for a program that makes something else of it."""
        return entries(self.memory, Selection.of(sessions, choice), [], Counter())

    def export_layout(
        self, target: str | Path, sessions: Sequence[str] | None = None, *, layout: str,
        **choice: Unpack[Choice],
    ) -> Outcome:  # fmt: skip
        """Write sessions, or everything, as a new folder in the layout of another program."""
        if layout not in WRITERS:
            raise Invalid([f"layout {shown(layout)} must be one of {', '.join(WRITERS)}"])
        memory = self.memory
        selection = replace(Selection.of(sessions, choice), deleted=True)
        selection.names(memory)
        outcome = Outcome()
        found: dict[str, bytes] = {}
        given = entries(memory, selection, outcome.problems, outcome.counts)
        dumps, left_out = dumps_of(given, layout)
        for dump in dumps:
            found |= WRITERS[layout](dump)
        _note_nothing(outcome, selection)
        chosen = [dump.session for dump in dumps]
        with self._noted(selection, chosen, layout):
            write_folder(Path(target).expanduser().absolute(), found)
        outcome.counts["bytes"] = sum(map(len, found.values()))
        outcome.notes += [f"{layout} has no place for {count:,} × {word}"
                          for word, count in sorted(left_out.items())]  # fmt: skip
        return _finished(outcome, chosen, layout)

    def import_(self, source: Given, **requested: Any) -> Outcome:
        """Import an export, or everything that other programs keep at a path.

        A memory that is in the tree stays as it is, so an import may be repeated. A purged memory
        stays away. `requested` is a Request: `replace` takes the other content of one id, and
        `extract=False` leaves memories that a conversation states in its turns.
        """
        memory, request, notes = self.memory, Request(**requested), list[str]()
        name, given = self._reads(source, notes, extract=request.extract)
        intake = Intake(memory, request)
        if request.dry_run:
            outcome = intake.take(given)
        else:
            memory.create()
            facts: dict[str, Any] = {"by": request.by, "count": None, "format": name}
            clock = memory.options.clock
            with audit.noted(memory.tree, "import", clock=clock, **facts):
                outcome = intake.take(given)
            facts |= {"count": outcome.counts["added"], "done": True}
            try:
                audit.note(memory.tree, "import", at=clock(), **facts)
            except (OSError, SMPError) as error:
                # The import is done, so this is not a failure of the import.
                said = f"The import is done, but {audit.FILE} lacks its last line: {error}"
                outcome.problems.append(said)
        outcome.notes += notes
        return outcome

    def verify(self, source: Given, *, extract: bool = True) -> Outcome:
        """Compare a source with the tree; `success` says that nothing is missing or differs.

        `extract` is that of the import: whether memories that a conversation states count.
        """
        notes: list[str] = []
        intake = Intake(self.memory, Request(dry_run=True))
        outcome = intake.take(self._reads(source, notes, extract=extract)[1])
        outcome.notes += notes
        outcome.actions, outcome.counts = [], Counter(source=0, missing=0, differ=0)
        for name, fates in intake.fates.items():
            here = len(fates["known"]) + len(fates["conflicts"])
            gone = len(fates["left_deleted"]) + len(fates["purged"])
            total = here + gone + len(fates["added"])
            said = f"{total:,} in the source, {here:,} in the tree"
            said += f", {gone:,} deleted or purged here" if gone else ""
            outcome.actions.append(Action(name, "compare", (name,), said))
            outcome.counts["source"] += total
            for word, ids, reason in (("missing", fates["added"], "not in the tree"),
                                      ("differ", fates["conflicts"], "other content")):  # fmt: skip
                if ids:
                    outcome.counts[word] += len(ids)
                    outcome.actions.append(Action(name, word, tuple(ids), reason))
                    outcome.problems.append(f"{name}: {len(ids):,} {word}: {reason}")
        return outcome

    def migrate(self, found: Recognition, **requested: Any) -> Outcome:
        """Back up, import, set the priorities of the imported sessions, and compare both sides."""
        memory = self.memory
        memory.create()
        source = found.source
        at = memory.options.clock()
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", source.path.name)[:40].strip("-") or "root"
        place = memory.root.parent / BACKUP / f"{stem}-{at:%Y%m%dT%H%M%S}.tar.gz"
        place.parent.mkdir(mode=0o700, exist_ok=True)
        said = (requested.get("by", "user"), f"before the import of {source.path}")

        def write(out: IO[bytes]) -> None:
            copy_bundle(memory, source.tree, found.files, said, out.write)

        write_file(place, write, overwrite=True)
        outcome = self.import_(found, **requested)
        for name in dict.fromkeys(action.session for action in outcome.actions):
            if memory.tree.exists(f"{ACTIVE}/{name}"):
                decayed = memory._session(name).decay()
                outcome.actions += decayed.actions
                outcome.problems += decayed.problems
        compared = self.verify(found, extract=requested.get("extract", True))
        outcome.actions += compared.actions
        outcome.problems += [one for one in compared.problems if one not in outcome.problems]
        outcome.counts.update({word: compared.counts[word] for word in ("missing", "differ")})
        warning = "It holds the files that were read, secrets included."
        outcome.notes.append(f"The backup is {place}. {warning}")
        return outcome

    def _noted(
        self, selection: Selection, chosen: Sequence[str], form: str
    ) -> AbstractContextManager[object]:
        memory = self.memory
        return audit.noted(
            memory.tree, "export", clock=memory.options.clock, by=selection.by, count=len(chosen),
            format=form, session=chosen[0] if len(chosen) == 1 else None,
            anonymized=getattr(selection.transform, "anonymizes", None),
        )  # fmt: skip

    def _reads(
        self, source: Given, notes: list[str], *, extract: bool
    ) -> tuple[str, Iterator[Read]]:
        """Return the name of the layout for the audit log, and everything that the source says."""
        if isinstance(source, (str, Path)):
            source = recognise(source, self.memory.root)
        elif not isinstance(source, Recognition):
            name = str(getattr(source, "name", "the export"))
            content = source.read()
            if not is_packed(content):
                return own_export.LAYOUT, own_export.read(io.BytesIO(content), name)
            source = recognise_source(packed_source(name, content))
        memory = self.memory
        redaction = memory._scope(GLOBAL).redaction if memory.root.is_dir() else OFF
        notes += source.notes

        def clean(text: str) -> str:
            return redaction.redacted_value(text)[0]

        destination = Destination(self._known_turns, clean, extract, notes)
        parts = [part for one in source.found.values() for part in one.parts]
        reads = (read for part in tracked(parts) for read in part.read(destination))
        return ", ".join(source.found), reads

    def _known_turns(self, name: str) -> Turns | None:
        """Return the turns of a session by number; None where there is no such session."""
        places = (f"{place}/{name}" for place in (ACTIVE, ARCHIVED, DELETED))
        if not is_session_id(name) or not any(map(self.memory.tree.exists, places)):
            return None
        found = session_entries(self.memory, name, [])
        turns = [entry["record"] for entry in found if entry.get("file") == TURN.file]
        return {int(turn["turn"]): (str(turn.get("speaker")), str(turn.get("content")).strip("\n"))
                for turn in turns if "summarizes" not in turn}  # fmt: skip


def _note_nothing(outcome: Outcome, selection: Selection) -> None:
    if selection.is_partial and not outcome.counts["memories"]:
        said = "No memory fits the conditions: the export holds no memory."
        outcome.notes.append(said)


def _finished(outcome: Outcome, chosen: Sequence[str], form: str) -> Outcome:
    outcome.counts["sessions"] = sum(name != GLOBAL for name in chosen)
    outcome.actions = [Action(name, "export", (name,), f"written as {form}") for name in chosen]
    return outcome
