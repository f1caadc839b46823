"""BMAD's memlogs: `.memlog.md` is front matter and a flat list with one entry a line, no times.

    - (kind by who) text      - (kind) text      - (by who) text      - text

An entry becomes a turn of its kind. Most kinds make another memory beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ...model.record import DECISION, FINDING, LEARNING, PREFERENCE, Kind
from . import speech
from .reader import Folder, Part, Reader
from .shape import UNKNOWN
from .speech import Log, Said

ENDING = ".memlog.md"
_ENTRY = re.compile(
    r"- (?:\((?P<type>(?!by )[^()\n]{1,80}?)?(?:(?: |(?<=\())by (?P<by>[^()\n]{1,80}))?\) )?"
    r"(?P<text>\S.*)"
)
# The tags that make a memory of an entry, beside its turn. Any other tag is the type of the turn.
TAGS: dict[str, Kind] = {
    "decision": DECISION,
    "direction": DECISION,
    "constraint": DECISION,
    "override": DECISION,
    "question": FINDING,
    "assumption": FINDING,
    "gap": FINDING,
    "risk": FINDING,
    "issue": FINDING,
    "finding": FINDING,
    "insight": LEARNING,
    "learning": LEARNING,
    "lesson": LEARNING,
    "preference": PREFERENCE,
}


def find(folder: Folder) -> Iterator[Part]:
    """Yield each memlog."""
    for file in folder.files:
        if file.endswith(ENDING):
            place = folder.place(file)
            name = speech.name_of(folder.source, place, ENDING)
            yield Part((place,), partial(speech.read, folder.source, place, name, parse))


def parse(lines: list[str]) -> Log:
    """Return the entries of a memlog as turns. Any other line goes on with the entry before."""
    head, rest = speech.front_matter(lines)
    log = Log(head)
    for line in rest:
        if found := _ENTRY.fullmatch(line.rstrip()):
            tag = (found["type"] or "").strip().lower()
            who = (found["by"] or "").strip()
            said = Said(who or UNKNOWN, [found["text"]], type=tag or "note", kind=TAGS.get(tag))
            log.turns.append(said)
        elif log.turns and line.strip():
            log.turns[-1].lines.append(line.rstrip())
    return log


READER = Reader(speech.LAYOUT, find)
