"""The memories that a new one repeats, and the preferences that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..index.sql import Sql
from ..index.validity import holds
from ..model.record import Record
from .engine import find, similar
from .options import Wanted, one_of
from .priorities import View
from .text import likeness, said

_ALIKE = 0.85  # of 1: from here on two memories of one kind say the same
_COMPARED = 10  # memories with the most words in common
_REPLACED = "m.key IN (SELECT memory FROM past WHERE latest = ?)"


class Alike(NamedTuple):
    """What the tree says about the same thing as one memory."""

    same: Sequence[Record]  # memories of its kind that hold and say the same, or nearly so
    replaced: Sequence[Record]  # preferences that no longer hold because of it

    def sentences(self) -> list[str]:
        """Return a sentence for each fact that whoever wrote the memory may not expect."""
        same = [f"{_name(one)} says the same: {one.text}" for one in self.same]
        return same + [
            f"It replaces {_name(one)}, which no longer holds: {one.text}" for one in self.replaced
        ]


def alike(view: View, record: Record) -> Alike:
    """Return the memories that this one repeats or replaces."""
    own = said(record.text)
    want = Wanted()._replace(limit=_COMPARED)
    of_kind = want.also(one_of("m.type", [record.type]), holds())
    # Whoever writes need not wait for a model: memories that say the same share words.
    near = similar(view, of_kind, record.text, record, by_meaning=False)
    same = [one for one in near if likeness(own, said(one.text)) >= _ALIKE]
    name = f"{record.session}/{record.id}"
    replaced = find(view, want.also(Sql(_REPLACED, (name,))))
    return Alike(same, replaced)


def _name(record: Record) -> str:
    return f"{record.session}/{record.id}"
