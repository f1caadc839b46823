"""Exposures: memories and metadata in which a daemon has found secrets, see privacy/leaks.py."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ..disk.session_files import METADATA
from ..redaction.redact import harmless, listed_kinds

if TYPE_CHECKING:
    from .database import Index

ADVICE = (
    "Remove it from the file, or the memory with smp delete."
    " The daemon redacts secrets by their shape alone, if redaction.unlocked_edits says so"
)
_CAP = 10_000  # nobody would look at more
_FOUND = f"""
SELECT scope, file, id, secrets FROM memories WHERE secrets > ''
UNION ALL SELECT scope, '{METADATA}', '', secrets FROM sessions WHERE secrets > ''
ORDER BY 1, 2, 3 LIMIT {_CAP}
"""


class Spotted(NamedTuple):
    """A memory, or the metadata of a session, that holds secrets of these kinds."""

    scope: str
    file: str
    id: str  # empty for metadata
    kinds: tuple[tuple[str, int], ...]

    @property
    def is_by_shape(self) -> bool:
        """Return whether a secret has a known shape, and is not only a configured pattern."""
        from ..redaction.secrets import SECRET_KINDS  # late: its expressions take time to compile

        return any(kind in SECRET_KINDS for kind, _ in self.kinds)


def found(index: Index) -> list[Spotted]:
    """Return the leaks that the index knows."""
    rows = index.connection.execute(_FOUND)
    return [Spotted._make((*row, tuple(json.loads(kinds).items()))) for *row, kinds in rows]


def sentence(leaks: list[Spotted]) -> str:
    """Return a sentence with the number of leaks, their kinds, the first places and the advice."""
    kinds = sum((Counter(dict(leak.kinds)) for leak in leaks), Counter[str]())
    places = ", ".join(harmless(f"{leak.id or leak.file} in {leak.scope}") for leak in leaks[:3])
    more = ", …" if len(leaks) > 3 else ""
    return (
        f"Memories with secrets that were not redacted: {len(leaks):,}"
        f" ({listed_kinds(kinds)}): {places}{more}. {ADVICE}."
    )
