"""The tree that the daemon leads, as the parts of this package use it."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Protocol

from smp_client import Memory
from smp_client.index.database import Index


class LedTree(Protocol):
    memory: Memory
    index: Index
    problems: dict[str, str]  # by subject; the status shows them

    @property
    def path(self) -> Path: ...

    def note(self, item: Hashable) -> bool:
        """Note a changed path. Return whether it is the first one of a batch."""
        ...

    def is_there(self) -> bool: ...
