"""Memories that a conversation states as such. Nothing is guessed.

A line that begins with the kind and a colon states one, unless it stands in a block of code:

    Decision: Use OAuth            - Finding (critical): No MFA
    **Preference:** Short answers  Learning: Retries help

A word in brackets must say how severe a finding is, or how sure any other is. An item below
`**Memory Stored:**` states a memory, too, if it begins like that or ends with an id:

    **Memory Stored:**
    - Finding: Missing MFA requirement [FIND-001]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...model.record import (
    CHOICES,
    DECISION,
    FINDING,
    LEARNING,
    PREFERENCE,
    SESSION_KINDS,
    Kind,
    kind_of,
)
from .shape import severity_of

_KINDS = {kind.name: kind for kind in (DECISION, FINDING, PREFERENCE, LEARNING)}
_WORDS = "|".join([*map(str.capitalize, _KINDS), *map(str.upper, _KINDS)])
_STATEMENT = re.compile(
    rf"(?:[-*][ \t]+)?(?P<bold>\*\*)?(?P<word>{_WORDS})(?: \((?P<degree>[\w' -]{{1,32}})\))?"
    r"(?(bold)(?::\*\*|\*\*:)|:)[ \t]+(?P<text>\S.*)"
)
_STORED = "**Memory Stored:**"
_ITEM = re.compile(r"[-*][ \t]+(?P<text>\S.*)")
_IDS = re.compile(r"[ \t]*\[(?P<ids>[A-Za-z0-9_.-]+(?:,[ \t]*[A-Za-z0-9_.-]+)*)\]$")
_SEVERE = re.compile(r"\*\*(?P<severity>\w+):\*\*")
_FENCES = ("```", "~~~")


@dataclass(frozen=True)
class Statement:
    """A memory that a turn states."""

    kind: Kind
    text: str
    line: int  # of the turn's text, from 1
    degree: str = ""  # the severity of a finding, the confidence of others
    id: str = ""  # that the conversation gives it


def statements(text: str) -> Iterator[Statement]:
    """Yield the memories that the text of a turn states."""
    lines = _outside_of_code(text)
    stored = dict(_stored(lines))
    for number, line in enumerate(lines, 1):
        if number in stored:
            item = _in_list(stored[number], number)
            if item is not None:
                yield _with_severity(item, lines)
        elif statement := _statement(line, number):
            yield statement


def _outside_of_code(text: str) -> list[str]:
    """Return the lines of a text, with empty ones for those in a block of code."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        opening = line.lstrip()[:3]
        if fence:
            fence = "" if opening == fence else fence
            lines.append("")
        elif opening in _FENCES:
            fence = opening
            lines.append("")
        else:
            lines.append(line.rstrip())
    return lines


def _stored(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the items of each list below `**Memory Stored:**`, with their line."""
    is_list = False
    for number, line in enumerate(lines, 1):
        item = _ITEM.fullmatch(line)
        if line == _STORED:
            is_list = True
        elif is_list and item:
            yield number, item["text"]
        elif line:
            is_list = False


def _statement(line: str, number: int) -> Statement | None:
    found = _STATEMENT.fullmatch(line)
    if found is None:
        return None
    kind = _KINDS[found["word"].lower()]
    said = found["degree"]
    degree = _degree(kind, said) if said else ""
    return None if degree is None else Statement(kind, found["text"], number, degree)


def _degree(kind: Kind, word: str) -> str | None:
    """Return the word in brackets if it says how severe or how sure it is; else None."""
    if kind is FINDING:
        return severity_of(word)
    said = word.strip().lower()
    return said if said in CHOICES.get((kind.name, "confidence"), ()) else None


def _in_list(item: str, number: int) -> Statement | None:
    """Return the memory that an item below `**Memory Stored:**` states."""
    text, ids = _split_ids(item)
    statement = _statement(text, number)
    if len(ids) != 1:
        return statement if not ids else None
    kind = kind_of(ids[0], SESSION_KINDS)
    if kind is None or kind.name not in _KINDS or not text:
        return None
    if statement is None or statement.kind is not kind:
        statement = Statement(kind, text, number)
    return replace(statement, id=ids[0])


def _split_ids(item: str) -> tuple[str, list[str]]:
    """Return an item without the ids in brackets at its end, and these."""
    found = _IDS.search(item)
    if found is None:
        return item, []
    ids = [one.strip() for one in found["ids"].split(",")]
    if any(kind_of(one, SESSION_KINDS) is None for one in ids):
        return item, []
    return item[: found.start()], ids


def _with_severity(statement: Statement, lines: list[str]) -> Statement:
    """Return a finding with the severity that a line of the turn says of its id."""
    if statement.kind is not FINDING or not statement.id or statement.degree:
        return statement
    for line in lines:
        found = _SEVERE.search(line)
        if found and line.endswith(f"[{statement.id}]"):
            return replace(statement, degree=severity_of(found["severity"]) or "")
    return statement
