"""Conversations as plain text or Markdown, one file a session.

A turn begins with a line that says who speaks:

    User: …     **Architect:** …     [2026-01-11 14:30] user: …     ### Assistant

A word before a colon is a speaker only if it is known as one: a usual role, or somebody named
under `Participants`. Nothing in a block of code is, also in one that is never closed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from . import speech
from .memlog import TAGS
from .reader import Folder, Part, Reader
from .speech import USERS, Log, Said

ENDINGS = (".md", ".markdown", ".txt", ".log")
_FENCE = "```"
_NAME_WORDS = 3  # of somebody whom only a time before the name tells to be a speaker
_SPEAKERS = frozenset(
    (
        *USERS,
        *("assistant", "ai", "bot", "agent", "system", "tool", "developer"),
        *("chatgpt", "gpt", "claude", "gemini", "copilot"),
        *("bmad-master", "architect", "analyst", "pm", "po", "sm", "dev", "qa", "ux-expert"),
        "veritas",
    )
)
_LABELS = frozenset(
    (
        *TAGS,
        *("rationale", "note", "notes", "todo", "example", "warning", "important", "critical"),
        *("date", "session", "started", "participants", "topic", "title", "status", "summary"),
        *("result", "error", "info", "debug", "project", "updated", "answer", "speaker"),
    )
)
_NAME = r"(?P<name>[^\s*:\[\]()#`<>|{}\"][^*:\[\]()#`<>|{}\"\n]{0,63}?)"
_LINE = re.compile(
    r"(?:\[(?P<time>\d[\dTZ:.+ -]{3,31})\][ \t]*)?(?:\*\*)?"
    rf"{_NAME}(?:\*\*)?[ \t]*:(?:\*\*)?(?:[ \t]+(?P<text>.*)|[ \t]*)"
)
_HEADING = re.compile(rf"#{{1,6}}[ \t]+{_NAME}[ \t]*:?(?P<text>)(?P<time>)")
_PARTICIPANTS = re.compile(r"(?:\*\*)?Participants:(?:\*\*)?(.*)")
_FIELD = re.compile(r"(?:\*\*([^*:\n]{1,64}):\*\*|([A-Z][A-Za-z -]{1,31}):)[ \t]*(.*)")


def find(folder: Folder) -> Iterator[Part]:
    """Yield each file in which somebody speaks."""
    for file in folder.files:
        place = folder.place(file)
        if file.endswith(ENDINGS) and _is_log(folder.source.beginning(place)):
            _, dot, ending = file.rpartition(".")
            name = speech.name_of(folder.source, place, dot + ending)
            yield Part((place,), partial(speech.read, folder.source, place, name, parse))


def _is_log(beginning: bytes) -> bool:
    """Return whether at least two turns begin here, or one by somebody with a usual role."""
    turns = parse(speech.lines_of(beginning)).turns
    return len(turns) > 1 or (len(turns) == 1 and turns[0].speaker.lower() in _SPEAKERS)


def parse(lines: list[str]) -> Log:
    """Return the turns of a log in any of its forms."""
    head, rest = speech.front_matter(lines)
    log = Log(head)
    known = (_SPEAKERS | _participants(head, lines)) - _LABELS
    is_code = False
    for line in rest:
        is_code ^= line.lstrip().startswith(_FENCE)
        said = None if is_code else _turn(line.strip(), known)
        if said is not None:
            log.turns.append(said)
        elif log.turns:
            log.turns[-1].lines.append(line)
        else:
            take_head(log, line)
    return log


def _participants(head: dict[str, str], lines: list[str]) -> set[str]:
    """Return the people whom a log names, in small letters."""
    listed = [head.get("participants", "")]
    for line in lines:
        if found := _PARTICIPANTS.fullmatch(line):
            listed.append(found[1])
            break
    names = {name.strip().lower() for name in ",".join(listed).split(",")}
    return names - {""}


def _turn(line: str, known: frozenset[str]) -> Said | None:
    """Return the turn that begins with this line; None if nobody begins to speak."""
    found = _HEADING.fullmatch(line) or _LINE.fullmatch(line)
    if found is None:
        return None
    name = found["name"].strip()
    time = found["time"] or ""
    is_short = len(name.split()) <= _NAME_WORDS and name.lower() not in _LABELS
    if name.lower() not in known and not (time and is_short):
        return None
    return Said(name, [found["text"]] if found["text"] else [], time)


def take_head(log: Log, line: str) -> None:
    """Take a line before the first turn: a field, the title, or text."""
    if found := _FIELD.fullmatch(line):
        log.head.setdefault((found[1] or found[2]).strip().lower(), found[3].strip())
    elif line.startswith("# ") and "title" not in log.head:
        log.head["title"] = line[2:].strip()
    elif line.strip(" -*_"):
        log.preamble.append(line)


READER = Reader(speech.LAYOUT, find)
