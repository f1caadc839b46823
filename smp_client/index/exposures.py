"""Exposures: memories and metadata in which a daemon has found secrets, see privacy/leaks.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..disk.session_files import METADATA
from ..redaction.redact import harmless, told

if TYPE_CHECKING:
    from .database import Index

ADVICE = (
    "Take it out of the file, or the memory with smp delete."
    " With redaction.unlocked_edits: redact the daemon takes secrets by their shape out itself"
)
_CAP = 10_000  # nobody would look at more
_FOUND = f"""
SELECT scope, file, id, start, hash, secrets FROM memories WHERE secrets > ''
UNION ALL SELECT scope, '{METADATA}', '', 0, '', secrets FROM sessions WHERE secrets > ''
ORDER BY 1, 2, 4 LIMIT {_CAP}
"""
_COUNT = (
    "SELECT (SELECT COUNT(*) FROM memories WHERE secrets > '')"
    " + (SELECT COUNT(*) FROM sessions WHERE secrets > '')"
)


@dataclass(frozen=True)
class Spotted:
    """A memory, or the metadata of a session, that holds secrets of these kinds."""

    scope: str
    file: str
    id: str  # empty for metadata
    start: int
    hash: str
    kinds: tuple[tuple[str, int], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for one secret in one memory, wherever in its file that stands."""
        return self.scope, self.file, self.id, self.kinds

    @property
    def is_by_shape(self) -> bool:
        """Return whether any of it is a secret, and not only configured."""
        from ..redaction.secrets import SECRET_KINDS  # late: its expressions take time to compile

        return any(kind in SECRET_KINDS for kind, _ in self.kinds)


def found(index: Index) -> list[Spotted]:
    """Return the leaks that are still there."""
    rows = index.connection.execute(_FOUND)
    return [
        Spotted(scope, file, name, start, digest, tuple(json.loads(kinds).items()))
        for scope, file, name, start, digest, kinds in rows
    ]


def count(index: Index) -> int:
    return int(index.connection.execute(_COUNT).fetchone()[0])


def sentence(leaks: list[Spotted]) -> str:
    """Return how many leaks there are, of which kinds, where, and the way out."""
    kinds: dict[str, int] = {}
    for kind, times in (item for leak in leaks for item in leak.kinds):
        kinds[kind] = kinds.get(kind, 0) + times
    places = [harmless(f"{one.id or one.file} in {one.scope}") for one in leaks[:3]]
    more = f" and {len(leaks) - 3:,} more" if len(leaks) > 3 else ""
    return (
        f"Memories with what should have been redacted: {len(leaks):,}"
        f" ({told(kinds)}): {', '.join(places)}{more}. {ADVICE}."
    )
