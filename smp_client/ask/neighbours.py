"""The memories that a new one repeats, or is near to. Nothing is merged.

Only memories of its kind that still hold count, in the sessions of the project and in `global/`. A
writer asks for it by `Record.same_as` or `Record.similar`: a write itself needs no index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..index.validity import holds, project_scopes, short_name
from ..model.layout import GLOBAL
from ..model.record import Neighbours, Record
from .engine import similar
from .likeness import likeness, normalised
from .options import Wanted, one_of

if TYPE_CHECKING:
    from .priorities import View

_ALIKE = 0.6  # of 1: from here on a memory is near
_CANDIDATES = 40  # a memory that says the same has every word, and is among the first
_SIMILAR = 3


def neighbours(view: View, record: Record) -> Neighbours:
    """Return the memories of the project that say the same as a new one, or are near to it."""
    scopes = {GLOBAL}
    if record.session != GLOBAL:
        scopes |= set(project_scopes(view.index, record.session))
    of_project = replace(view, scopes=tuple(scope for scope in view.scopes if scope in scopes))
    want = Wanted((one_of("m.type", [record.type]), holds()), limit=_CANDIDATES)
    said = normalised(record.text)
    same: list[Record] = []
    near: list[tuple[float, Record]] = []
    for one in similar(of_project, want, record.text):
        if (one.session, one.id) == (record.session, record.id):
            continue
        if normalised(one.text) == said:
            same.append(one)
        elif (share := likeness(one.text, record.text)) >= _ALIKE:
            near.append((share, one))

    def name(one: Record) -> str:
        return short_name(f"{one.session}/{one.id}", record.session)

    newest = max(same, key=lambda one: str(one.data.get("timestamp")), default=None)
    near.sort(key=lambda pair: -pair[0])
    nearest = tuple(name(one) for _, one in near[:_SIMILAR])
    return Neighbours(name(newest) if newest else None, nearest)
