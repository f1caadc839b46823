"""A Markdown page of memories for a prompt, never longer than its budget.

Each memory is one item: a label with its id, its day and who said it, then its text. A memory can
say anything, so its text is fenced in: further lines are quotations, and nothing in it can begin a
heading, a list item, a code block or a tag. An item takes at most a fifth of the budget; a longer
one is cut and ends with "…". Its id stays, by which the whole memory can be read.

Items of a dense section stand on one line: they are short, and on every page.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..model.record import Record

CHARACTERS_PER_TOKEN = 4  # about right for English; code and Chinese take more tokens
_SHARE = 5  # an item takes at most this part of the budget
_HEAD_SHARE = 2  # and the head at most this part
_LEAST_SAID = 12  # characters of a text: less would only be its label
_NAME_CHARACTERS = 64
_DENSE = " · "  # between two items on one line
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
    most: int | None = None  # characters, if it gets fewer than others

    def render(self, limit: int) -> str | None:
        """Return the item in at most `limit` characters; None where that would say nothing."""
        limit = min(limit, self.most or limit)
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
    share: float | None = None  # of the page, before others get what is left; None for an equal one
    is_first: bool = False  # its share is filled before those of other sections
    is_dense: bool = False  # all items on one line
    takes_rest: bool = True  # it gets more than its share if there is room

    def render(self, item: Item, limit: int) -> str | None:
        """Return an item as it stands in this section."""
        text = item.render(limit)
        if text is None or not self.is_dense:
            return text
        return " ".join(text.removeprefix("- ").split("\n  > "))

    def block(self, chosen: Sequence[str]) -> str:
        """Return the section with these items."""
        lines = chosen[::-1] if self.in_time else chosen
        if self.is_dense:
            lines = ["- " + _DENSE.join(chosen)]
        return "\n".join(["", f"## {self.title}", *lines, ""])


@dataclass
class Page:
    """The text, the items on it, and those that found no room."""

    text: str
    shown: list[Item] = field(default_factory=list)
    left_out: list[Item] = field(default_factory=list)  # for want of room


@dataclass
class _Filling:
    """A section while it is filled: the items that it shows, and the room they take."""

    section: Section
    allowed: int
    chosen: list[str] = field(default_factory=list)
    used: int = 0

    def fill(self, budget: int, room: int, allowed: int) -> None:
        """Take items while they fit into the room that is left and into what is allowed."""
        for item in self.section.items[len(self.chosen) :]:
            text = self.section.render(item, budget // _SHARE)
            cost = len(text or "") + (len(_DENSE) if self.section.is_dense else 1)
            if not self.chosen:
                cost += len(self.section.block([""]))
            is_enough = self.used > 0 and self.used + cost > allowed
            if text is None or is_enough or self.used + cost > room:
                return  # no turn without those after it; and earlier items are worth more
            self.chosen.append(text)
            self.used += cost


def pack(head: Sequence[str], sections: Sequence[Section], budget: int) -> Page:
    """Fill a page of at most `budget` characters.

    Sections that come first are filled up to their shares, then the others up to theirs, so that
    none crowds out those behind it. The room that is left goes to the sections in their order.
    """
    title = "\n".join(head)[: budget // _HEAD_SHARE].rstrip() + "\n"
    room = budget - len(title)
    filled = [_Filling(section, 0) for section in sections if section.items]
    unsaid = [one for one in filled if one.section.share is None]
    rest = 1.0 - sum(one.section.share or 0.0 for one in filled)
    for one in filled:
        share = one.section.share
        equal = max(rest, 0.0) / max(len(unsaid), 1)
        one.allowed = int(room * (equal if share is None else share))
    for one in sorted(filled, key=lambda one: not one.section.is_first):
        one.fill(budget, room - _used(filled) + one.used, one.allowed)
    for one in filled:
        if one.section.takes_rest:
            one.fill(budget, room - _used(filled) + one.used, room)
    page = Page(title)
    for one in filled:
        page.shown += one.section.items[: len(one.chosen)]
        page.left_out += one.section.items[len(one.chosen) :]
        if one.chosen:
            page.text += one.section.block(one.chosen)
    return page


def _used(filled: Sequence[_Filling]) -> int:
    return sum(one.used for one in filled)


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
