"""The files that the index could not take in as a whole: an answer may lack memories of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from ..disk.place import is_archived
from ..model.record import Kind

if TYPE_CHECKING:
    from .database import Index

LOOK = "smp check says why, and smp doctor --fix mends it."
_NAMED = 3
# With these words SQLite uses the partial index of the schema.
UNREADABLE = "bad > 0 OR problem IS NOT NULL"
_ASKED = f"SELECT scope, file, bad, problem, checksum, mtime_ns FROM files WHERE {UNREADABLE}"


class Unreadable(NamedTuple):
    """A file that cannot be read, or that has records that cannot be read."""

    scope: str
    file: str
    bad: int  # records; those without an id count as well
    problem: str | None  # of the file as a whole
    checksum: int
    mtime_ns: int

    @property
    def sentence(self) -> str:
        if self.problem:
            return f"{self.scope}/{self.file} cannot be read"
        records = "1 record" if self.bad == 1 else f"{self.bad:,} records"
        return f"{records} of {self.scope}/{self.file} cannot be read"

    def may_hold(self, kind: Kind) -> bool:
        """Return whether a memory of this kind can be in the file."""
        return self.file == kind.file or is_archived(self.scope)


def unreadable(index: Index, scopes: Collection[str] | None = None) -> list[Unreadable]:
    """Return the unreadable files of these scopes, or of all."""
    found = map(Unreadable._make, index.execute(f"{_ASKED} ORDER BY scope, file"))
    return [one for one in found if scopes is None or one.scope in scopes]


def left_out(files: Collection[Unreadable]) -> str | None:
    """Return the sentence that an answer leaves records of these files out; None for no file."""
    if not files:
        return None
    said = ", ".join(one.sentence for one in [*files][:_NAMED])
    more = f", and {len(files) - _NAMED:,} more files" if len(files) > _NAMED else ""
    return f"Some memories may be missing: {said}{more}. {LOOK}"
