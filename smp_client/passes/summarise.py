"""Summaries of old turns: sentences chosen by the words in them.

Nothing is made up: every line is a sentence of a turn, with the id of the turn.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..model.record import TURN

if TYPE_CHECKING:
    from .compaction import Item

SHARE = 0.15  # of the bytes of its turns: the size of a summary
_LINES_CAP, _SPEAKERS_CAP = 40, 12
_LINE_CHARACTERS, _TURN_CHARACTERS = 240, 2_000
_MINUTE = "%Y-%m-%d %H:%M"
_ID = re.compile(r"\b(?:DEC|FIND|PREF|LEARN|REL|GPREF|PAT)-\d+\b")
_NO_WORD = str.maketrans(dict.fromkeys("\t\r\n.,;:!?()[]{}<>\"'`*_/|=+#", " "))
_DECIDING = """
    decide decides decided decision decisions agree agreed chose chosen choose approved rejected
    must shall settled conclude concluded conclusion
"""
_REPORTING = """
    found finding findings discovered bug bugs issue issues problem problems risk risks missing
    vulnerability vulnerable failed fails failure error cause caused broken resolved fixed breaks
    cannot prefer prefers preferred preference always never want wants require requires required
    requirement rather likes deadline deadlines until
"""
_WEIGHTS = {**dict.fromkeys(_REPORTING.split(), 2), **dict.fromkeys(_DECIDING.split(), 3)}
_ID_WEIGHT = 4


def summary(turns: Sequence[Item], size_bytes: int) -> str:
    """Return the summary of turns, whose size is `size_bytes`.

    Sentences that decide or report something come before the first sentences of other turns. Where
    not all fit, the summary spreads them evenly over the turns.
    """
    times = [turn.at for turn in turns if turn.at is not None]
    when = f", {min(times):{_MINUTE}} to {max(times):{_MINUTE}} UTC" if times else ""
    speakers = Counter(_actor(turn) for turn in turns).most_common(_SPEAKERS_CAP)
    named = ", ".join(f"{name} ({count})" for name, count in speakers)
    heading = f"Summary of {turns[0].id} to {turns[-1].id}{when}. Said by {named}."
    room = int(SHARE * size_bytes) - len(heading.encode())
    by_score: dict[int, dict[str, tuple[int, str]]] = {}
    for place, turn in enumerate(turns):
        text = str(json.loads(turn.data).get(TURN.text, ""))
        score, sentence = _best(text[:_TURN_CHARACTERS])
        if sentence:
            line = f"- {turn.id} ({_actor(turn)}): {sentence}"
            by_score.setdefault(score, {}).setdefault(sentence.casefold(), (place, line))
    chosen: list[tuple[int, str]] = []
    for _, lines in sorted(by_score.items(), reverse=True):
        fitting = _evenly([*lines.values()], _LINES_CAP - len(chosen), room)
        chosen += fitting
        room -= _size(fitting)
        if len(fitting) < len(lines):
            break
    return "\n".join([heading, *([""] if chosen else []), *(line for _, line in sorted(chosen))])


def _evenly(lines: Sequence[tuple[int, str]], most: int, room_bytes: int) -> list[tuple[int, str]]:
    """Return as many of the lines as fit, picked evenly."""
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


def _actor(turn: Item) -> str:
    return " ".join(turn.actor.split()) or "somebody"


def _best(text: str) -> tuple[int, str]:
    """Return the highest score of a sentence, and the sentence; the first where none scores."""
    # One pattern for all three ends would take ten times as long.
    for end in (". ", "! ", "? "):
        text = text.replace(end, f"{end[0]}\n")
    sentences = [sentence for sentence in text.split("\n") if sentence.strip()]
    scored = [(_score(sentence), sentence) for sentence in sentences] if _score(text) else []
    score, best = max(scored, key=lambda pair: pair[0], default=(0, (sentences or [""])[0]))
    best = " ".join(best.split())
    is_long = len(best) > _LINE_CHARACTERS
    return score, best[: _LINE_CHARACTERS - 1].rstrip() + "…" if is_long else best


def _score(text: str) -> int:
    words = _WEIGHTS.keys() & text.lower().translate(_NO_WORD).split()
    weight = max((_WEIGHTS[word] for word in words), default=0)
    return weight + (_ID_WEIGHT if "-" in text and _ID.search(text) else 0)
