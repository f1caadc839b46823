"""Old turns in few words: sentences chosen by the words in them, or the text of a command.

Nothing is made up here: every line is a sentence that somebody said, with the turn that it is in.
Turns that decide nothing have a sentence each where there is room, so that questions find them.
A command gets time, room and one try; where it fails our own summary is used, and a note says why.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .compaction import Item

LINES_CAP = 40
_MINUTE = "%Y-%m-%d %H:%M"
SHARE = 0.15  # of the bytes that it stands for
_SPEAKERS_CAP = 12
_LINE_CHARACTERS = 240
_TURN_CHARACTERS = 2_000  # of a turn that is looked at
_ID = re.compile(r"\b(?:DEC|FIND|PREF|LEARN|REL|GPREF|PAT)-\d+\b")
_NO_WORD = str.maketrans(dict.fromkeys("\t\r\n.,;:!?()[]{}<>\"'`*_/|=+#", " "))
_DECIDING = """
    decide decides decided decision decisions agree agreed chose chosen choose approved
    rejected must shall settled conclude concluded conclusion
"""
_FINDING = """
    found finding findings discovered bug bugs issue issues problem problems risk risks missing
    vulnerability vulnerable failed fails failure error cause caused broken resolved fixed breaks
    cannot
"""
_PREFERRING = """
    prefer prefers preferred preference always never want wants require requires required
    requirement rather likes deadline deadlines until
"""
_WEIGHTS = {**dict.fromkeys((_PREFERRING + _FINDING).split(), 2),
            **dict.fromkeys(_DECIDING.split(), 3)}
# The words of a sentence have one blank between them, and an apostrophe is one too.
_PHRASES = {
    " go with ": 3, " going with ": 3, " went with ": 3, " we ll use ": 3, " we ll take ": 3,
    " we will use ": 3, " we will take ": 3, " let s use ": 3, " let s take ": 3,
    " not handled ": 2, " not handle ": 2, " not work ": 2, " can t ": 2,
}  # fmt: skip
_BEFORE_A_DAY = re.compile(
    " (?:by|before|till) (?:the |next |end of |this )*(?:[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?)?"
    "(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|tomorrow|tonight|january|february|march|april"
    "|may [0-9]{1,2}|[0-9]{1,2} may|june|july|august|september|october|november|december"
    "|[0-9]{4}-[0-9-]+) "
)
_BEFORE = {"by", "before", "till"}
# A sentence with none of these words needs no further look.
_HINTS = (_WEIGHTS.keys() | _BEFORE
          | {"go", "going", "went", "ll", "will", "let", "handled", "handle", "work", "can"})
_DECIDES, _BY_DAY, _BY_ID, _BY_REFERENCE = 3, 2, 4, 1
# Sentences that decide nothing come behind all others; their rare words count up to this.
_RARE_CAP, _LONG_WORD = 3, 8
_LEADING = 3  # sentences of a turn, of which the one with the most rare words stands for it
_NOTHING_RARE = -_RARE_CAP - 1
_MORE_BYTES = 32  # for the line that says how many turns are not named
_LEAST_BYTES = 48  # that are worth a line which is cut short


class _Line(NamedTuple):
    score: int
    text: str
    sentence: str  # without its turn, in small letters


class Extractive:
    """Summaries without a model. The sentences of each turn are scored once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Line, ...]] = {}

    def summary(self, turns: Sequence[Item], size_bytes: int) -> str:
        """Return the summary of turns that take up so many bytes; equal turns give equal texts."""
        heading = _heading(turns)
        by_score: dict[int, list[tuple[int, _Line]]] = {}
        for place, turn in enumerate(turns):
            for line in self._lines(turn):
                by_score.setdefault(line.score, []).append((place, line))
        chosen = _chosen(by_score, int(SHARE * size_bytes) - len(heading.encode()) - _MORE_BYTES)
        if not chosen:
            return heading
        count = len(turns) - len({place for place, _ in chosen})
        more = [f"… and {count:,} more turn{'' if count == 1 else 's'}"] if count else []
        lines = [text for _, text in sorted(chosen, key=lambda one: one[0])]
        return "\n".join([heading, "", *lines, *more])

    def _lines(self, turn: Item) -> tuple[_Line, ...]:
        """Return the best two sentences of a turn; one of its first where none has a score."""
        known = self._known.get(turn.id)
        if known is None:
            text = turn.text[:_TURN_CHARACTERS]
            sentences = dict.fromkeys(_sentences(text)) if _score(text) else ()
            scored = [(score, sentence) for sentence in sentences if (score := _score(sentence))]
            best = sorted(scored, key=lambda one: -one[0])[:2]
            more = _BY_REFERENCE if turn.refs else 0
            found = [(score + more, sentence) for score, sentence in best] or _leading(text)
            known = self._known[turn.id] = tuple(_line(turn, *one) for one in found)
        return known


def references(turns: Sequence[Item], most: int = 20) -> list[str]:
    """Return the memories that the turns refer to, those named most often first."""
    counted = Counter(name for turn in turns for name in turn.refs)
    return sorted(counted, key=lambda name: (-counted[name], name))[:most]


def _chosen(
    by_score: Mapping[int, Sequence[tuple[int, _Line]]], room_bytes: int
) -> list[tuple[int, str]]:
    """Return the lines that fit, the best first; where not all of a score fit, spread evenly."""
    chosen: list[tuple[int, str]] = []
    known: set[str] = set()
    for score in sorted(by_score, reverse=True):
        lines: list[tuple[int, str]] = []
        for place, line in by_score[score]:
            if line.sentence not in known:
                known.add(line.sentence)
                lines.append((place, line.text))
        if score == _NOTHING_RARE and chosen:
            break
        fitting = _evenly(lines, LINES_CAP - len(chosen), room_bytes)
        if not fitting and not chosen and room_bytes >= _LEAST_BYTES:
            place, text = lines[len(lines) // 2]
            return [(place, text.encode()[: room_bytes - 4].decode(errors="ignore").rstrip() + "…")]
        chosen += fitting
        room_bytes -= _size(fitting)
        if len(fitting) < len(lines):
            break
    return chosen


def _evenly(lines: Sequence[tuple[int, str]], most: int, room_bytes: int) -> list[tuple[int, str]]:
    count = min(len(lines), most)
    while count > 0:
        picked = [lines[(2 * number + 1) * len(lines) // (2 * count)] for number in range(count)]
        size = _size(picked)
        if size <= room_bytes:
            return picked
        count = min(count - 1, count * room_bytes // size)
    return []


def _size(lines: Sequence[tuple[int, str]]) -> int:
    return sum(len(text.encode()) + 1 for _, text in lines)


def _heading(turns: Sequence[Item]) -> str:
    times = [turn.at for turn in turns if turn.at is not None]
    when = f", {min(times):{_MINUTE}} to {max(times):{_MINUTE}} UTC" if times else ""
    speakers = Counter(_actor(turn) for turn in turns)
    ranked = sorted(speakers, key=lambda name: (-speakers[name], name))
    named = ", ".join(f"{name} ({speakers[name]})" for name in ranked[:_SPEAKERS_CAP])
    more = f" and {len(ranked) - _SPEAKERS_CAP} more" if len(ranked) > _SPEAKERS_CAP else ""
    several = f"{len(turns)} turns, {turns[0].id} to {turns[-1].id}"
    which = turns[0].id if len(turns) == 1 else several
    return f"Summary of {which}{when}. Said by {named}{more}."


def _actor(turn: Item) -> str:
    return " ".join(turn.actor.split()) or "somebody"


def _sentences(text: str) -> list[str]:
    # One pattern for all three ends would take ten times as long.
    for end in (". ", "! ", "? "):
        text = text.replace(end, f"{end[0]}\n")
    return [sentence for sentence in text.split("\n") if sentence]


def _score(text: str) -> int:
    words = text.lower().translate(_NO_WORD).split()
    weight = 0
    if not _HINTS.isdisjoint(words):
        weight = max(map(_WEIGHTS.get, words, repeat(0)))
        if weight < _DECIDES:
            spaced = f" {' '.join(words)} "
            phrases = (score for phrase, score in _PHRASES.items() if phrase in spaced)
            weight = max(weight, *phrases, 0)
            if not weight and not _BEFORE.isdisjoint(words) and _BEFORE_A_DAY.search(spaced):
                weight = _BY_DAY
    return weight + (_BY_ID if "-" in text and _ID.search(text) else 0)


def _leading(text: str) -> list[tuple[int, str]]:
    """Return the first sentence, or one close behind it with more names, numbers and long words."""
    sentences = _sentences(text[: 2 * _LINE_CHARACTERS])[:_LEADING]
    found = max(((_rare(one), one) for one in sentences), key=lambda one: one[0], default=None)
    return [(found[0] + _NOTHING_RARE, found[1])] if found and found[1].strip() else []


def _rare(sentence: str) -> int:
    first, *words = sentence.translate(_NO_WORD).split() or [""]
    names = {word for word in words if len(word) > 1 and not word.islower()}
    found = names | {word for word in words if len(word) >= _LONG_WORD}
    return min(len(found) + (len(first) >= _LONG_WORD), _RARE_CAP)


def _line(turn: Item, score: int, sentence: str) -> _Line:
    text = " ".join(sentence.split())
    if len(text) > _LINE_CHARACTERS:
        text = text[: _LINE_CHARACTERS - 1].rstrip() + "…"
    return _Line(score, f"- {turn.id} ({_actor(turn)}): {text}", text.casefold())


class CommandFailed(Exception):
    """Why the summary of a command cannot be used."""


def by_command(command: Sequence[str], turns: Sequence[Item], timeout_s: float) -> str:
    """Return the command's summary of the turns, which it gets as plain text, under no lock.

    Raises CommandFailed.
    """
    times = (f"{turn.at:{_MINUTE}}" if turn.at else "at an unknown time" for turn in turns)
    said = (f"{turn.id}, {when}, {turn.actor}:\n{turn.text}\n"
            for turn, when in zip(turns, times, strict=True))  # fmt: skip
    content = "\n".join(said).encode("utf-8", "replace")
    try:
        process = subprocess.Popen(  # noqa: S603  # as a person configured it; no shell reads it
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise CommandFailed(f"it could not be started ({error})") from error
    with process:
        try:
            printed = _exchanged(process, content, len(content) // 2, time.monotonic() + timeout_s)
        finally:
            # Its children would keep our pipe open. Until it is waited for, its number is its own.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    try:
        text = printed.decode().strip()
    except UnicodeDecodeError as error:
        raise CommandFailed("what it printed is not UTF-8") from error
    if not text:
        raise CommandFailed("it printed nothing")
    return text


def _exchanged(
    process: subprocess.Popen[bytes], content: bytes, most_bytes: int, deadline: float
) -> bytes:
    """Feed the process, and return what it prints, within these bytes and this time."""
    assert process.stdin
    assert process.stdout
    threading.Thread(target=_feed, args=(process.stdin, content), daemon=True).start()
    ready = select.poll()  # select cannot wait for a descriptor above 1023
    ready.register(process.stdout, select.POLLIN)
    pieces: list[bytes] = []
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not ready.poll(1000 * left_s):
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


def _feed(pipe: IO[bytes], content: bytes) -> None:
    # A command that closes its input early may still print a summary.
    with suppress(OSError, ValueError), pipe:
        pipe.write(content)
