"""Exposures: memories and metadata in which a daemon has found secrets, see privacy/leaks.py."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..disk.session_files import METADATA
from ..redaction.redact import harmless, told
from ..redaction.secrets import SECRET_KINDS

if TYPE_CHECKING:
    from .database import Index

_CAP = 10_000  # nobody would look at more
_IN_MEMORIES = (
    "SELECT scope, file, id, start, hash, secrets FROM memories WHERE secrets > ''"
    " ORDER BY scope, file, start LIMIT ?"
)
_IN_METADATA = "SELECT scope, secrets FROM sessions WHERE secrets > '' ORDER BY scope"
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
        return any(kind in SECRET_KINDS for kind, _ in self.kinds)


def found(index: Index) -> list[Spotted]:
    """Return the leaks that are still there."""
    rows = index.connection.execute(_IN_MEMORIES, (_CAP,)).fetchall()
    metadata = index.connection.execute(_IN_METADATA)
    rows += [(scope, METADATA, "", 0, "", kinds) for scope, kinds in metadata]
    return [
        Spotted(scope, file, memory_id, start, digest, tuple(json.loads(kinds).items()))
        for scope, file, memory_id, start, digest, kinds in rows
    ]


def count(index: Index) -> int:
    return int(index.connection.execute(_COUNT).fetchone()[0])


def advice(is_by_shape: bool, *, redacts: bool) -> str:
    """Return the way out; `redacts` where the daemon takes secrets out by itself."""
    if redacts:
        configured = "own patterns and personal data in edited files are only reported"
        return "that is tried again" if is_by_shape else configured
    setting = "redaction.unlocked_edits: redact takes secrets out by itself"
    return setting if is_by_shape else "the daemon only reports it"


def sentence(leaks: list[Spotted], *, redacts: bool = False) -> str:
    """Return how many leaks there are, of which kinds, where, and the way out."""
    kinds = sum((Counter(dict(one.kinds)) for one in leaks), Counter[str]())
    number = len(leaks)
    places = ", ".join(harmless(f"{one.id or one.file} in {one.scope}") for one in leaks[:3])
    more = f" and {number - 3:,} more" if number > 3 else ""
    further = advice(any(one.is_by_shape for one in leaks), redacts=redacts)
    return (
        f"{number:,} place{' holds' if number == 1 else 's hold'} what should have been redacted"
        f" ({told(kinds)}): {places}{more}. Take it out of the file, or the memory with smp delete;"
        f" {further}."
    )
