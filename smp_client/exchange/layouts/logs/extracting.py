"""Decisions, findings, preferences and learnings that a conversation marks as such; nothing is ever guessed.

What counts as a mark, at the beginning of a line that is not in a block of code (behind a dash, a number or a quote sign):

    Decision: …      **Finding:** …      Preference (architect): …      Learning: …      Decision DEC-004: …
    DEC-004: …       [DEC-004] …         **FIND-002** …
    … . DEC-005: …   Decision: … . Finding: …   in a line that begins with a mark: behind the end of a sentence, with its colon
    … [FIND-001]     at the end of a line that begins with one of the words above, or with a severity such as **CRITICAL:**
    **Memory Stored:** and what stands behind it, or in the list below it, each item with a word or an id

Each refers to the turn that it stands in. A line `Rationale: …` behind a decision belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ....records import DECISION, FINDING, LEARNING, PREFERENCE, Kind
from ....severity import WORDS
from .. import shaping
from ..shaping import IMPORTED, Values

_KINDS = {"decision": DECISION, "finding": FINDING, "preference": PREFERENCE, "learning": LEARNING, "lesson": LEARNING}
_PREFIXES = {kind.prefix: kind for kind in (DECISION, FINDING, PREFERENCE, LEARNING)}
_BULLET = r"[ \t>]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?(?:\[[ xX]\][ \t]+)?"
_ID = r"(?P<id>(?:DEC|FIND|PREF|LEARN)-[A-Za-z0-9][A-Za-z0-9_.-]{0,40})"
_WORD = re.compile(
    rf"{_BULLET}(?:\*\*|__)?(?P<word>decision|finding|preference|learning|lesson)(?P<made> made| recorded| learned)?"
    rf"(?:[ \t]+[\[(]?{_ID}[\])]?)?"
    r"(?:[ \t]*\((?P<by>[^()\n]{1,64})\))?(?:(?:\*\*|__)?[ \t]*:|:(?:\*\*|__))(?:\*\*|__)?[ \t]*(?P<text>.*)", re.IGNORECASE
)  # fmt: skip
_NUMBERED = re.compile(rf"{_BULLET}(?:\*\*|__|\[)*{_ID}(?:\*\*|__|\])*[ \t]*(?::|-|–|—)?(?:\*\*|__)?[ \t]*(?P<text>\S.*)")
_SEVERE = re.compile(
    rf"{_BULLET}(?:\*\*|__)?(?P<word>{'|'.join(WORDS)})(?:\*\*|__)?:(?:\*\*|__)?[ \t]*(?P<text>.*)", re.IGNORECASE
)  # fmt: skip
_TRAILING = re.compile(rf"(?<![ \t])[ \t]*[\[(]{_ID}[\])][ \t.]*$")
_BARE_ID = _ID.replace("?P<id>", "?:")
_FURTHER = re.compile(  # where another mark begins in the same line; a mere mention is neither bold nor behind a sentence
    r"(?:(?<=[.,;!?])[ \t]+|(?<=[\w.)\]])[ \t]+(?=\*\*))"
    rf"(?=(?:\*\*|\[)?(?:{_BARE_ID}|Decision|Finding|Preference|Learning|Lesson)(?:\*\*|\])?:)"
)
_STORED = re.compile(r"[ \t>]*(?:\*\*|__)?Memory Stored(?:\*\*|__)?:(?:\*\*|__)?[ \t]*(?P<text>.*)$", re.IGNORECASE)
_ITEM = re.compile(r"[ \t>]*(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<text>\S.*)")
_RATIONALE = re.compile(rf"{_BULLET}(?:\*\*|__)?rationale(?:\*\*|__)?[ \t]*:(?:\*\*|__)?[ \t]*(?P<text>\S.*)", re.IGNORECASE)
# At the beginning of a line, or, behind who speaks or any other text, at its end.
_FENCE = re.compile(r"[ \t]{0,3}(?P<first>`{3,}(?=[^`]*$)|~{3,})|[^`]*[^`\s~](?P<behind>[ \t]{0,9}`{3,})[\w+-]{0,20}$")


@dataclass
class Mark:
    """One memory that a turn names."""

    kind: Kind
    text: str
    id: str | None = None
    by: str | None = None
    severity: str | None = None
    rationale: str | None = None
    is_stored: bool = False  # under "Memory Stored": says it best

    def join(self, other: Mark) -> None:
        """Two lines about one id."""
        if other.is_stored and not self.is_stored:
            self.text, self.is_stored = other.text, True
        self.severity = self.severity or other.severity
        self.rationale = self.rationale or other.rationale
        self.by = self.by or other.by


def unfenced(text: str) -> list[str]:
    """The lines that are not in a block of code, and an empty one for each that is. What nobody closes until another begins is
    none."""
    lines = text.split("\n")
    fences = [(number, opens, _closes(line)) for number, line in enumerate(lines) if (opens := _opens(line))]
    place = 0
    while place < len(fences):
        first, opens, _ = fences[place]
        place += 1
        end = next((at for at in range(place, len(fences)) if fences[at][1].startswith(opens)), None)
        if end is not None and fences[end][2]:
            first += not lines[first].lstrip().startswith(opens)
            lines[first : fences[end][0] + 1] = [""] * (fences[end][0] + 1 - first)
            place = end + 1
    return lines


def _closes(line: str) -> str:
    bare = line.strip()
    return bare if len(bare) >= 3 and bare[0] in "`~" and not bare.strip(bare[0]) else ""


def _opens(line: str) -> str:
    found = _FENCE.match(line) if "```" in line or "~~~" in line else None
    return (found["first"] or found["behind"].strip()) if found else ""


def marks(text: str) -> list[Mark]:
    """What a turn says that it holds, each id once."""
    found: list[Mark] = []
    by_id: dict[str, Mark] = {}
    in_list = False
    for line in unfenced(text):
        if stored := _STORED.match(line):
            in_list, line = True, stored["text"]
        else:
            in_list = in_list and (bool(_ITEM.match(line)) or not line.strip())
        listed = _marks_in(line, is_stored=in_list)
        if not listed and found and found[-1].kind is DECISION and (reason := _RATIONALE.match(line)):
            found[-1].rationale = found[-1].rationale or reason["text"].strip()
        for mark in listed:
            if mark.id is not None and mark.id in by_id:
                by_id[mark.id].join(mark)
                continue
            found.append(mark)
            if mark.id is not None:
                by_id[mark.id] = mark
    return found


def _marks_in(line: str, *, is_stored: bool) -> list[Mark]:
    """None, one, or several behind each other."""
    first = _mark(line, is_stored=is_stored)
    parts = _FURTHER.split(line) if first else []
    each = [_mark(part.rstrip(" \t,;"), is_stored=is_stored) for part in parts]
    return [mark for mark in each if mark] if len(each) > 1 and all(each) else [first] if first else []


def _mark(line: str, *, is_stored: bool) -> Mark | None:
    trailing = _TRAILING.search(line)
    head = line[: trailing.start()] if trailing else line
    memory_id = trailing["id"] if trailing else None
    of_id = _PREFIXES[memory_id.partition("-")[0]] if memory_id else None
    if word := _WORD.match(head):
        memory_id = memory_id or word["id"]
        kind = _PREFIXES[memory_id.partition("-")[0]] if memory_id else _KINDS[word["word"].lower()]
        text = _plain(word["text"])
        return Mark(kind, text, memory_id, word["by"], is_stored=is_stored) if text else None
    if numbered := _NUMBERED.match(head):
        return Mark(_PREFIXES[numbered["id"].partition("-")[0]], _plain(numbered["text"]), numbered["id"], is_stored=is_stored)
    if of_id is FINDING and (severe := _SEVERE.match(head)) and severe["text"].strip():
        return Mark(FINDING, _plain(severe["text"]), memory_id, severity=severe["word"].lower(), is_stored=is_stored)
    item = _ITEM.match(head) if is_stored else None
    return Mark(of_id, _plain(item["text"]), memory_id, is_stored=True) if item and of_id else None


def _plain(text: str) -> str:
    """Without the stars of a bold text that began before it."""
    text = text.strip()
    return text.removesuffix("**").strip() if text.count("**") == 1 and text.endswith("**") else text


class Names(Protocol):
    """The ids of what was taken out of the same conversation before."""

    def known(self, kind: Kind, turn: int, text: str) -> str | None: ...
    def is_taken(self, memory_id: str, *, by_purged: bool) -> bool: ...


class Extraction:
    """The marks of a conversation, turn by turn, as records. What is known keeps its id; other ids that nobody gave follow on those
    that somebody did."""

    def __init__(self, given: set[str], layout: str, names: Names) -> None:
        self._layout, self._names = layout, names
        self._numbers: dict[str, int] = {}
        for memory_id in given:
            self._count(memory_id)
        self._records: dict[str, tuple[Kind, Values]] = {}

    def _count(self, memory_id: str) -> None:
        prefix, _, number = memory_id.rpartition("-")
        if number.isascii() and number.isdigit() and len(number) < 16:
            self._numbers[prefix] = max(int(number), self._numbers.get(prefix, 0))

    def take(self, turn: Values, found: list[Mark], *, is_known: bool = False) -> list[str]:
        """Gives back the ids of what the turn is about."""
        refs: list[str] = []
        for mark in found:
            memory_id = mark.id or self._names.known(mark.kind, turn["turn"], mark.text) or self._next(mark.kind, is_known=is_known)
            if memory_id not in self._records:
                self._records[memory_id] = (mark.kind, self._record(memory_id, mark, turn))
            refs.append(memory_id)
        return refs

    def _next(self, kind: Kind, *, is_known: bool) -> str:
        """In a turn that was here before, the number of one that was purged is its own: it stays away."""
        while True:
            self._numbers[kind.prefix] = self._numbers.get(kind.prefix, 0) + 1
            memory_id = kind.memory_id(self._numbers[kind.prefix])
            if memory_id not in self._records and not self._names.is_taken(memory_id, by_purged=not is_known):
                return memory_id

    def _record(self, memory_id: str, mark: Mark, turn: Values) -> Values:
        kind, at, speaker = mark.kind, turn.get("timestamp"), str(turn.get("speaker") or shaping.UNKNOWN)
        record: Values = {"id": memory_id, **({"timestamp": at} if at else {}), "turn_ref": turn["turn"],
                          kind.actor: mark.by or speaker, kind.text: mark.text}  # fmt: skip
        added: list[str] = []
        if mark.rationale:
            record["rationale"] = mark.rationale
        if kind is FINDING:
            record["severity"] = mark.severity or "medium"
            added += [] if mark.severity else ["severity"]
        if kind is PREFERENCE:
            record["confidence"] = "explicit" if speaker.lower() in ("user", "human", "you") else "inferred"
            added.append("confidence")
        notes: Values = {"layout": self._layout, "extracted": True, **({shaping.ADDED: added} if added else {})}
        return {**record, IMPORTED: notes, "decay": shaping.decay(kind, at)}

    def records(self) -> list[tuple[Kind, Values]]:
        return list(self._records.values())


def given_ids(texts: Iterator[str]) -> set[str]:
    """Every id that is named anywhere: none of them may be given to something else."""
    return {found["id"] for text in texts for found in re.finditer(rf"\b{_ID}", text)}
