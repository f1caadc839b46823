"""Whether a memory still holds."""

from __future__ import annotations

from .sql import Sql


def holds() -> Sql:
    """Return the condition that a memory `m` still holds."""
    return Sql("m.standing <> 'finding.resolved'")
