"""A Markdown page of memories for a prompt, never longer than its budget.

Each memory is one item: a label with its id, its day and who said it, then its text. A memory can
say anything, so its text is fenced in: further lines are quotations, and nothing in it can begin a
heading, a list item, a code block or a tag. An item takes at most a fifth of the budget; a longer
one is cut and ends with "…". Its id stays, by which the whole memory can be read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..model.record import Record

CHARACTERS_PER_TOKEN = 4  # about right for English; code and Chinese take more tokens
_SHARE = 5  # an item takes at most this part of the budget
_HEAD_SHARE = 3  # and the head at most this part
_LEAST_SAID = 12  # characters of a text: less would only be its label
_NAME_CHARACTERS = 64
# At the beginning of a line these begin a heading, a list, a quotation, a fence, a table or a rule.
_LEADING = re.compile(r"^(?=[#>\-+*=~|`_])|^(\d+)(?=[.)])")
_FENCE = re.compile(r"`{3,}|~{3,}")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_UNSEEN = {"Cc": " ", "Zl": " ", "Zp": " ", "Cf": "", "Cs": "", "Co": "", "Cn": ""}


@dataclass(frozen=True)
class Item:
    """One memory on the page."""

    names: Sequence[object]  # its id, its day and who said it, as the label shows them
    text: str
    record: Record | None = None
    times: int = 1  # how many memories say the same

    def render(self, limit: int) -> str | None:
        """Return the item in at most `limit` characters; None where that would say nothing."""
        names = list(filter(None, map(plain_name, self.names)))
        names += [f"×{self.times}"] if self.times > 1 else []
        start = f"- [{', '.join(names)}] " if names else "- "
        first, *further = fenced_lines(self.text) or [""]
        whole = "\n  > ".join([start + first, *further]).rstrip()
        if len(whole) <= limit:
            return whole
        if limit < len(start) + _LEAST_SAID:
            return None
        return whole[: limit - 1].rstrip(" \n>\\") + "…"


@dataclass(frozen=True)
class Section:
    """Items under one heading, the most valuable first."""

    title: str
    items: Sequence[Item]
    in_time: bool = False  # items go from the newest, and are shown oldest first


@dataclass
class Page:
    """The text, the items on it, and those that found no room."""

    text: str
    shown: list[Item] = field(default_factory=list)
    left_out: list[Item] = field(default_factory=list)  # for want of room


def pack(head: Sequence[str], sections: Sequence[Section], budget: int) -> Page:
    """Fill a page of at most `budget` characters.

    First each section gets an equal share, so that none crowds out those behind it; then the room
    that is left goes to the sections in their order.
    """
    filled = [section for section in sections if section.items]
    title = "\n".join(head)[: budget // _HEAD_SHARE].rstrip() + "\n"
    taken: list[list[str]] = [[] for _ in filled]
    used = len(title)
    share = (budget - used) // max(len(filled), 1)
    for allowed in (share, budget):
        for section, chosen in zip(filled, taken, strict=True):
            spent = 0
            for item in section.items[len(chosen) :]:
                text = item.render(budget // _SHARE)
                heading = 0 if chosen else len(_heading(section, -len(section.items))) + 2
                cost = len(text or "") + 1 + heading
                is_enough = spent > 0 and spent + cost > allowed
                if text is None or is_enough or used + cost > budget:
                    break  # no turn without those after it; and earlier items are worth more
                chosen.append(text)
                spent += cost
                used += cost
    page = Page(title)
    for section, chosen in zip(filled, taken, strict=True):
        page.shown += section.items[: len(chosen)]
        page.left_out += section.items[len(chosen) :]
        if chosen:
            lines = chosen[::-1] if section.in_time else chosen
            page.text += "\n".join(["", _heading(section, len(chosen)), *lines, ""])
    return page


def _heading(section: Section, shown: int) -> str:
    total = len(section.items)
    return f"## {section.title}" if shown == total else f"## {section.title} ({shown} of {total})"


def fenced_lines(text: str) -> list[str]:
    """Return the lines of a text, each without anything that Markdown or a prompt could act on."""
    return [fenced(line) for line in text.strip().splitlines() if line.strip()]


def fenced(line: str) -> str:
    """Return one line that begins no heading, list, quotation, code block or tag."""
    line = " ".join(visible(line).split())
    line = _FENCE.sub(lambda found: "".join(f"\\{mark}" for mark in found[0]), line)
    return _LEADING.sub(lambda found: f"{found[1] or ''}\\", _TAG.sub("&lt;", line))


def plain_name(value: object) -> str:
    """Return a name for a label: short, on one line, without brackets."""
    name = " ".join(visible(str(value)).split()) if value is not None else ""
    name = name.replace("[", "(").replace("]", ")").replace("<", "(").replace("`", "'")
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 1]}…"


def visible(text: str) -> str:
    """Return the text without unseen characters, such as those that turn its direction."""
    if text.isprintable():
        return text
    return "".join(_UNSEEN.get(unicodedata.category(mark), mark) for mark in text)


def listed(values: Iterable[object]) -> str:
    return ", ".join(fenced(str(value)) for value in values if value)
