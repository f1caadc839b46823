"""BMAD's memlog, `.memlog.md`: front matter of plain fields, and a flat list with one entry a line.

    - (kind by who) text      - (kind) text      - (by who) text      - text

It is only appended to, and says when that was last (`updated`), but not when each entry was made.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...model.record import DECISION, FINDING, LEARNING, PREFERENCE, Kind

NAME = ".memlog.md"
# The tags that make a memory of an entry, beside its turn. Any other tag is the type of the turn.
TAGS: dict[str, Kind] = {
    **dict.fromkeys(("decision", "direction", "constraint", "override"), DECISION),
    **dict.fromkeys(("question", "assumption", "gap", "risk", "issue", "finding"), FINDING),
    **dict.fromkeys(("insight", "learning", "lesson"), LEARNING),
    "preference": PREFERENCE,
}
_ENTRY = re.compile(r"- (?:\((?P<tag>[^()\n]{1,80})\) )?(?P<text>\S.*)")
_TAG = re.compile(r"(?:by (?P<only>.+))|(?P<type>.+?)(?: by (?P<by>.+))?")


class Noted(NamedTuple):
    """One entry: its tag, who made it, and its text."""

    tag: str
    by: str
    text: str


def read_memlog(text: str) -> tuple[dict[str, str], list[Noted]]:
    """Return the fields and the entries. A line that is no entry goes on with the one before it."""
    lines = text.split("\n")
    head, start = front_matter(lines)
    noted: list[Noted] = []
    for line in lines[start:]:
        if found := _ENTRY.fullmatch(line.rstrip()):
            parts = _TAG.fullmatch((found["tag"] or "").strip())
            tag = (parts["type"] or "").strip().lower() if parts else ""
            by = (parts["only"] or parts["by"] or "").strip() if parts else ""
            noted.append(Noted(tag, by, found["text"]))
        elif noted and line.strip():
            noted[-1] = noted[-1]._replace(text=f"{noted[-1].text}\n{line.rstrip()}")
    return head, noted


def front_matter(lines: list[str]) -> tuple[dict[str, str], int]:
    """Return the plain fields that a file begins with, and how many lines they take."""
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    end = next((number for number, line in enumerate(lines[1:200], 1) if line.rstrip() == "---"), 0)
    fields = [line.partition(":") for line in lines[1:end] if ":" in line]
    head = {name.strip().lower(): value.strip().strip("\"'") for name, _, value in fields}
    return head, end + 1 if end else 0
