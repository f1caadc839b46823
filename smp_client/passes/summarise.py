"""Old turns in few words: sentences chosen by the words in them, or the text of a command.

Nothing is made up here: every line is a sentence that somebody said, with the turn that it is in.
Turns that decide nothing have a sentence each where there is room, so that questions find them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .compaction import Item

SHARE = 0.15  # of the bytes that it stands for
_LINES_CAP, _SPEAKERS_CAP = 40, 12
_LINE_CHARACTERS, _TURN_CHARACTERS = 240, 2_000
_MORE_BYTES = 32  # for the line that says how many turns are not named
_MINUTE = "%Y-%m-%d %H:%M"
_ID = re.compile(r"\b(?:DEC|FIND|PREF|LEARN|REL|GPREF|PAT)-\d+\b")
_NO_WORD = str.maketrans(dict.fromkeys("\t\r\n.,;:!?()[]{}<>\"'`*_/|=+#", " "))
_DECIDING = """
    decide decides decided decision decisions agree agreed chose chosen choose approved rejected
    must shall settled conclude concluded conclusion
"""
_TELLING = """
    found finding findings discovered bug bugs issue issues problem problems risk risks missing
    vulnerability vulnerable failed fails failure error cause caused broken resolved fixed breaks
    cannot prefer prefers preferred preference always never want wants require requires required
    requirement rather likes deadline deadlines until
"""
_WEIGHTS = {**dict.fromkeys(_TELLING.split(), 2), **dict.fromkeys(_DECIDING.split(), 3)}
_BY_ID, _BY_REFERENCE = 4, 1
# Sentences that decide nothing come behind all others; their rare words count up to a cap.
_RARE_CAP, _LONG_WORD, _LEADING = 3, 8, 3
_NOTHING_RARE = -_RARE_CAP - 1


class Line(NamedTuple):
    """A sentence of a turn, as a line of a summary."""

    score: int
    text: str
    sentence: str  # without its turn, in small letters


def summary(turns: Sequence[Item], size_bytes: int, known: dict[str, list[Line]]) -> str:
    """Return the summary of turns that take up so many bytes.

    `known` keeps the lines of each turn, because plans summarise a turn many times.
    """
    heading = _heading(turns)
    room = int(SHARE * size_bytes) - len(heading.encode()) - _MORE_BYTES
    by_score: dict[int, list[tuple[int, str]]] = {}
    sentences: set[str] = set()
    for place, turn in enumerate(turns):
        if turn.id not in known:
            known[turn.id] = _lines(turn)
        for line in known[turn.id]:
            if line.sentence not in sentences:
                sentences.add(line.sentence)
                by_score.setdefault(line.score, []).append((place, line.text))
    chosen: list[tuple[int, str]] = []
    for score in sorted(by_score, reverse=True):
        if score == _NOTHING_RARE and chosen:
            break  # small talk, only where there is nothing else
        fitting = _evenly(by_score[score], _LINES_CAP - len(chosen), room)
        chosen += fitting
        room -= _size(fitting)
        if len(fitting) < len(by_score[score]):
            break
    if not chosen:
        return heading
    count = len(turns) - len({place for place, _ in chosen})
    more = [f"… and {count:,} more turn{'' if count == 1 else 's'}"] if count else []
    lines = [text for _, text in sorted(chosen, key=lambda one: one[0])]
    return "\n".join([heading, "", *lines, *more])


def references(turns: Sequence[Item], most: int = 20) -> list[str]:
    """Return the memories that the turns refer to, those named most often first."""
    counted = Counter(name for turn in turns for name in turn.refs)
    return sorted(counted, key=lambda name: (-counted[name], name))[:most]


def _evenly(lines: Sequence[tuple[int, str]], most: int, room_bytes: int) -> list[tuple[int, str]]:
    """Return as many lines as fit, spread evenly over all of them."""
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


def _lines(turn: Item) -> list[Line]:
    """Return the best two sentences of a turn; one of its first where none has a score."""
    text = turn.text[:_TURN_CHARACTERS]
    sentences = dict.fromkeys(_sentences(text)) if _score(text) else ()
    scored = [(score, sentence) for sentence in sentences if (score := _score(sentence))]
    found = sorted(scored, key=lambda one: -one[0])[:2]
    if found:
        more = _BY_REFERENCE if turn.refs else 0
        return [_line(turn, score + more, sentence) for score, sentence in found]
    leading = _sentences(text[: 2 * _LINE_CHARACTERS])[:_LEADING]
    ranked = [(_rare(one) + _NOTHING_RARE, one) for one in leading if one.strip()]
    return [_line(turn, *max(ranked, key=lambda one: one[0]))] if ranked else []


def _line(turn: Item, score: int, sentence: str) -> Line:
    text = " ".join(sentence.split())
    if len(text) > _LINE_CHARACTERS:
        text = text[: _LINE_CHARACTERS - 1].rstrip() + "…"
    return Line(score, f"- {turn.id} ({_actor(turn)}): {text}", text.casefold())


def _sentences(text: str) -> list[str]:
    # One pattern for all three ends would take ten times as long.
    for end in (". ", "! ", "? "):
        text = text.replace(end, f"{end[0]}\n")
    return [sentence for sentence in text.split("\n") if sentence]


def _score(text: str) -> int:
    words = _WEIGHTS.keys() & text.lower().translate(_NO_WORD).split()
    weight = max((_WEIGHTS[word] for word in words), default=0)
    return weight + (_BY_ID if "-" in text and _ID.search(text) else 0)


def _rare(sentence: str) -> int:
    """Return how many names, numbers and long words there are; the first word is no name."""
    first, *words = sentence.translate(_NO_WORD).split() or [""]
    names = {word for word in words if len(word) > 1 and not word.islower()}
    found = names | {word for word in words if len(word) >= _LONG_WORD}
    return min(len(found) + (len(first) >= _LONG_WORD), _RARE_CAP)


class CommandFailed(Exception):
    """Why the summary of a command cannot be used."""


def by_command(command: Sequence[str], turns: Sequence[Item], timeout_s: float) -> str:
    """Return a command's summary of the turns, which it gets as text. Raises CommandFailed."""
    times = (f"{turn.at:{_MINUTE}}" if turn.at else "at an unknown time" for turn in turns)
    said = (f"{turn.id}, {when}, {turn.actor}:\n{turn.text}\n"
            for turn, when in zip(turns, times, strict=True))  # fmt: skip
    content = "\n".join(said).encode("utf-8", "replace")
    try:
        process = subprocess.Popen(  # noqa: S603  # as a person configured it; no shell reads it
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        text = process.communicate(content, timeout_s)[0].decode().strip()
    except subprocess.TimeoutExpired as error:
        # Its children would keep our pipe open, so all of them are ended.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise CommandFailed("it took too long") from error
    except UnicodeDecodeError as error:
        raise CommandFailed("what it printed is not UTF-8") from error
    except (OSError, ValueError) as error:
        raise CommandFailed(f"it could not be started ({error})") from error
    if process.returncode or not text:
        how = (
            f"it ended with status {process.returncode}"
            if process.returncode
            else "it printed nothing"
        )
        raise CommandFailed(how)
    return text
