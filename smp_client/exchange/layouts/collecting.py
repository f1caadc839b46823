"""The lines of one session, all of them read, as its memories: which id each gets, and which come as deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...records import Kind
from . import shaping
from .lines import Line, says_yes
from .sessions import Collected
from .shaping import Ids, Values
from .sources import Aside

MARK = "deleted"
Mark = Mapping[str, Any]


class Taken(NamedTuple):
    """A line that is a memory; what says that it was deleted, where something beside it does."""

    file: str
    line: Line
    kind: Kind
    value: Values
    mark: Mark | None = None


Ours = Callable[[Taken, str, Ids], Values]


def collect(aside: Aside, found: Collected, taken: Sequence[Taken], ours: Ours, time: str = "timestamp") -> None:
    """Every id is given first: a line may refer to one behind it."""
    ids = found.ids = Ids()
    given = [ids.give(one.kind, one.value.get("id")) for one in taken]
    for one, memory_id in zip(taken, given, strict=True):
        at = one.value.get(time)
        if at is not None and shaping.time_of(at) is None:
            where = f"{aside.folder.where(one.file)}, line {one.line.number}"
            found.problems.append(f"{where}: {time!r} is no time, and was kept as it is")
        if one.mark is None and says_yes(one.value.get(MARK)):
            one = one._replace(mark={"id": one.value.get("id"), MARK: True, time: one.value.get("deleted_at")})
        found.add(one.kind, ours(one, memory_id, ids), one.mark, time)


def key_of(value: Mapping[str, Any]) -> str | None:
    """By which a mark finds an entry; some write a number where others write a text."""
    return str(value["id"]) if isinstance(value.get("id"), (str, int)) else None


def note_of(entry: Mapping[str, Any], mark: Mark) -> Any:
    """What a record keeps of the mark: where it stands in the entry itself, only that there is one."""
    return True if says_yes(entry.get(MARK)) else dict(mark)
