"""A migration for good: a backup of the source, an import, priorities, and a comparison.

The backup is a bundle of every file that was read, `backup-pre-smp/{name}-{time}.tar.gz` beside the
root. Nobody but the user removes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..model.errors import SMPError
from ..model.layout import ACTIVE, BACKUP
from ..model.outcome import Action, Outcome
from .export import copy_bundle, write_file
from .intake import Request
from .layouts.recognition import Found
from .transfer import import_, verify

if TYPE_CHECKING:
    from ..memory import Memory


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
