"""BMAD's memlog, `.memlog.md`: front matter of plain `key: value` lines, and a flat list, one entry a line:

    - (kind by who) text      - (kind) text      - (by who) text      - text

It is only ever appended to, and says of itself when that was last (`updated`), but not when each entry was made.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = ".memlog.md"
_ENTRY = re.compile(r"- (?:\((?P<tag>[^()\n]{1,80})\) )?(?P<text>\S.*)")
_TAG = re.compile(r"(?:by (?P<only>.+))|(?P<type>.+?)(?: by (?P<by>.+))?")


class Noted(NamedTuple):
    line: int
    type: str
    by: str
    text: str


def is_memlog(text: str) -> bool:
    """By its form, where its name does not tell: every line of its body is an entry, and most say of which kind."""
    if not text.startswith("---\n"):
        return False
    head, entries, preamble = read_memlog(text)
    return "updated" in head and not preamble.strip() and sum(bool(entry.type or entry.by) for entry in entries) * 2 > len(entries)


def read_memlog(text: str) -> tuple[dict[str, str], list[Noted], str]:
    """Its fields, its entries, and what stands before the first of them. A line that is no entry goes on with the one before it."""
    lines = text.split("\n")
    head: dict[str, str] = {}
    start = 0
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
    if lines[0].rstrip() == "---" and end:
        for line in lines[1:end]:
            name, colon, value = line.partition(":")
            if colon and name.strip():
                head[name.strip().lower()] = value.strip()
        start = end + 1
    entries: list[Noted] = []
    texts: list[list[str]] = []
    before: list[str] = []
    for number, line in enumerate(lines[start:], start + 1):
        if found := _ENTRY.fullmatch(line.rstrip()):
            entries.append(_noted(number, found))
            texts.append([found["text"]])
        elif entries:
            texts[-1].append(line)
        else:
            before.append(line)
    whole = ("\n".join(lines).rstrip() for lines in texts)
    return head, [entry._replace(text=text) for entry, text in zip(entries, whole, strict=True)], "\n".join(before)


def _noted(number: int, found: re.Match[str]) -> Noted:
    tag = (found["tag"] or "").strip()
    parts = _TAG.fullmatch(tag)
    kind, by = (parts["type"] or "", parts["only"] or parts["by"] or "") if parts else ("", "")
    return Noted(number, kind.strip(), by.strip(), found["text"])
