"""Old turns in few words: what was decided, found and referred to, taken out of what was said; or what a command makes of it.

Nothing is made up here: every line is a sentence that somebody said, with the turn that it stands in. A command, which may be
anything, is given time, room and one try; where it fails our own summary stands in, and the reason is told.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import repeat
from typing import NamedTuple, Protocol

LINES_CAP = 40
SHARE = 0.15  # of the bytes that it stands for
_SPEAKERS_CAP = 12
_LINE_CHARACTERS = 240
_TURN_CHARACTERS = 2_000  # of a turn that is looked at
_ID = re.compile(r"\b(?:DEC|FIND|PREF|LEARN|REL|GPREF|PAT)-\d+\b")
_NO_WORD = str.maketrans(dict.fromkeys("\t\r\n.,;:!?()[]{}<>\"'`*_/|=+#", " "))
_DECIDING = (
    "decide", "decides", "decided", "decision", "decisions", "agree", "agreed", "chose", "chosen", "choose", "approved", "rejected",
    "must", "shall", "settled", "conclude", "concluded", "conclusion",
)  # fmt: skip
_FINDING = (
    "found", "finding", "findings", "discovered", "bug", "bugs", "issue", "issues", "problem", "problems", "risk", "risks",
    "missing", "vulnerability", "vulnerable", "failed", "fails", "failure", "error", "cause", "caused", "broken", "resolved",
    "fixed",
)  # fmt: skip
_PREFERRING = (
    "prefer", "prefers", "preferred", "preference", "always", "never", "want", "wants", "require", "requires", "required",
    "requirement",
)  # fmt: skip
_TELLING = {**dict.fromkeys(_PREFERRING, 2), **dict.fromkeys(_FINDING, 2), **dict.fromkeys(_DECIDING, 3)}
_BY_ID, _BY_REFERENCE = 4, 1


class Said(Protocol):
    """A turn, as far as a summary needs it."""

    @property
    def id(self) -> str: ...
    @property
    def at(self) -> datetime | None: ...
    @property
    def actor(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def refs(self) -> tuple[str, ...]: ...


class _Line(NamedTuple):
    score: int
    text: str


class Extractive:
    """Summaries without a model. What each turn has to say is looked for once, however often it is asked."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Line, ...]] = {}

    def summary(self, turns: Sequence[Said], size_bytes: int) -> str:
        """The same turns always give the same text; `size_bytes` is what they take up now."""
        heading = _heading(turns)
        left_bytes = int(SHARE * size_bytes) - len(heading.encode())
        lines = [(line.score, place, line.text) for place, turn in enumerate(turns) for line in self._lines(turn)]
        chosen: list[tuple[int, str]] = []
        for _, place, text in sorted(lines, key=lambda line: (-line[0], line[1])):
            left_bytes -= len(text.encode()) + 1
            if left_bytes < 0 or len(chosen) == LINES_CAP:
                break
            chosen.append((place, text))
        return "\n".join([heading, *([""] if chosen else []), *(text for _, text in sorted(chosen, key=lambda one: one[0]))])

    def _lines(self, turn: Said) -> tuple[_Line, ...]:
        """The sentence of a turn that tells most, and the next best."""
        known = self._known.get(turn.id)
        if known is None:
            text = turn.text[:_TURN_CHARACTERS]
            scored = [(_score(sentence), sentence) for sentence in _sentences(text)] if _score(text) else []
            best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:2]
            more = _BY_REFERENCE if turn.refs else 0
            known = self._known[turn.id] = tuple([_Line(score + more, _line(turn, sentence)) for score, sentence in best])
        return known


def references(turns: Sequence[Said], most: int = 20) -> list[str]:
    """What the turns refer to, those that are named most often first."""
    counted = Counter(name for turn in turns for name in turn.refs)
    return sorted(counted, key=lambda name: (-counted[name], name))[:most]


def _heading(turns: Sequence[Said]) -> str:
    first, last = turns[0], turns[-1]
    which = first.id if len(turns) == 1 else f"{len(turns)} turns, {first.id} to {last.id}"
    times = [turn.at for turn in turns if turn.at is not None]
    when = f", {_shown(min(times))} to {_shown(max(times))} UTC" if times else ""
    speakers = Counter(turn.actor or "somebody" for turn in turns)
    ranked = sorted(speakers, key=lambda name: (-speakers[name], name))
    named = ", ".join(f"{name} ({speakers[name]})" for name in ranked[:_SPEAKERS_CAP])
    more = f" and {len(ranked) - _SPEAKERS_CAP} more" if len(ranked) > _SPEAKERS_CAP else ""
    return f"Summary of {which}{when}. Said by {named}{more}."


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _sentences(text: str) -> list[str]:
    # Not one pattern for all, which takes ten times as long.
    for end in (". ", "! ", "? "):
        text = text.replace(end, f"{end[0]}\n")
    return [sentence for sentence in text.split("\n") if sentence]


def _score(text: str) -> int:
    words = text.lower().translate(_NO_WORD).split()
    telling = 0 if _TELLING.keys().isdisjoint(words) else max(map(_TELLING.get, words, repeat(0)))
    return telling + (_BY_ID if "-" in text and _ID.search(text) else 0)


def _line(turn: Said, sentence: str) -> str:
    said = " ".join(sentence.split())
    if len(said) > _LINE_CHARACTERS:
        said = said[: _LINE_CHARACTERS - 1].rstrip() + "…"
    return f"- {turn.id} ({turn.actor or 'somebody'}): {said}"


class CommandFailed(Exception):
    """Why the command's summary cannot be used."""


def by_command(command: Sequence[str], turns: Sequence[Said], timeout_s: float) -> str:
    """What the command makes of the turns, which it gets as plain text; raises CommandFailed. No lock may be held meanwhile."""
    content = "\n".join(map(_plainly, turns)).encode("utf-8", "replace")
    try:
        process = subprocess.Popen(  # noqa: S603  # a person has put the command into the configuration; no shell reads it
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"it could not be started ({error})") from error
    with process:
        try:
            said = _exchanged(process, content, len(content) // 2, time.monotonic() + timeout_s)
        finally:
            # Whatever it has started itself would keep our pipe open. Until it is waited for, nobody else can have its number.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    try:
        text = said.decode().strip()
    except UnicodeDecodeError as error:
        raise CommandFailed("what it printed is not UTF-8") from error
    if not text:
        raise CommandFailed("it printed nothing")
    return text


def _plainly(turn: Said) -> str:
    return f"{turn.id}, {_shown(turn.at) if turn.at else 'at an unknown time'}, {turn.actor}:\n{turn.text}\n"


def _exchanged(process: subprocess.Popen[bytes], content: bytes, most_bytes: int, deadline: float) -> bytes:
    """What the process prints, up to its end and no more than so many bytes."""
    assert process.stdin
    assert process.stdout
    threading.Thread(target=_feed, args=(process.stdin, content), daemon=True).start()
    pieces: list[bytes] = []
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
            raise CommandFailed("it took too long")
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            break
        pieces.append(piece)
        if sum(map(len, pieces)) > most_bytes:
            raise CommandFailed("what it printed is longer than half of what was said")
    try:
        status = process.wait(max(deadline - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired as error:
        raise CommandFailed("it took too long") from error
    if status:
        raise CommandFailed(f"it ended with status {status}")
    return b"".join(pieces)


def _feed(pipe: object, content: bytes) -> None:
    # One that does not want to hear all of it may still have something to say.
    with suppress(OSError, ValueError):
        pipe.write(content)  # type: ignore[attr-defined]
    with suppress(OSError, ValueError):
        pipe.close()  # type: ignore[attr-defined]
