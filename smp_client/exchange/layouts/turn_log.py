"""Conversations in the form of SMP's own `conversation.md`, wherever they stand.

    ## Turn 1 - 2026-01-11 14:30:00
    **Speaker:** user
    **Type:** message

    Which database do we use?

    ---

The numbers of the headings stay, unless they do not ascend: then the turns are numbered again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from ...model.errors import SMPError
from ...model.record import TURN, is_deleted
from ...text.markdown import Conversation
from ...text.values import Value
from . import markdown_log, speech
from .reader import Folder, Part, Reader
from .shape import UNKNOWN
from .speech import Log, Said

_BEGINNING = re.compile(rb"^## Turn [0-9]{1,15}\b[^\n]*\n\*\*[^*\n]+:\*\*", re.MULTILINE)
_FIRST = re.compile(r"## Turn [0-9]|<!-- smp -->")
_REMARK_AT_END = re.compile(r"<!--(?:(?!-->)[\s\S])*-->\s*\Z")
_SAID = ("id", "turn", "timestamp", "speaker", "type", "content")


def find(folder: Folder) -> Iterator[Part]:
    """Yield each file with headings of turns."""
    for file in folder.files:
        place = folder.place(file)
        is_text = file.endswith(markdown_log.ENDINGS)
        if is_text and _BEGINNING.search(folder.source.beginning(place)):
            _, dot, ending = file.rpartition(".")
            name = speech.name_of(folder.source, place, dot + ending)
            yield Part((place,), partial(speech.read, folder.source, place, name, parse))


def parse(lines: list[str]) -> Log:
    """Return the turns of a log, and the fields before the first."""
    log = Log()
    for line in lines:
        if _FIRST.match(line):
            break
        markdown_log.take_head(log, line)
    if "started" in log.head:
        log.head["started"] = log.head["started"].removesuffix(" UTC")
    text = _REMARK_AT_END.sub("", "\n".join(lines))
    try:
        found = Conversation().parse(text.encode("utf-8", "replace"))
    except SMPError as error:  # such as a later version of the format
        log.problems.append(str(error))
        return log
    log.problems += [one.problem for one in found.bad]
    log.turns += [_said(one.value) for one in found.records if not is_deleted(TURN, one.value)]
    numbers = [said.number or 0 for said in log.turns]
    if not all(before < after for before, after in pairwise(numbers)):
        for number, said in enumerate(log.turns, 1):
            said.number = number
    return log


def _said(turn: dict[str, Value]) -> Said:
    number = turn["turn"]
    return Said(
        str(turn.get("speaker") or UNKNOWN),
        str(turn["content"]).split("\n"),
        str(turn.get("timestamp") or ""),
        str(turn.get("type") or "message"),
        number=number if isinstance(number, int) else None,
        fields={name: value for name, value in turn.items() if name not in _SAID},
    )


READER = Reader(speech.LAYOUT, find)
