"""Which memory stands first in an answer: text, priority, importance and recent use, weighted.

Where a text was asked for, the text leads: the other three only decide between memories that match
about equally well.

    score = match · (1 - influence + influence · rest) · state · holds
    rest = w.text + w.time · priority + w.importance · importance + w.access · use

`match` is BM25 as a share: 1 for a memory of usual length with every word of the question once (see
ask/bm25.py); a score above 1 is shown as 1. `use` is how lately the memory was read. Everything
counts less of a session that is on its way out (`state`), and the summary of an archived one less
than its memories. A memory that no longer holds has `ended` times its score (`holds`). Without a
text the score is the weighted mean of priority, importance and use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .priority import is_resolved
from .record import severity_rank

_IMPORTANCE = {
    "decision": 0.9, "finding": 0.8, "preference": 0.7, "learning": 0.7, "pattern": 0.7,
    "summary": 0.7, "artifact": 0.6, "conversation_turn": 0.5, "agent_state": 0.4,
    "relationship": 0.3,
}  # fmt: skip
_SEVERITY = (1.3, 1.15, 1.0, 0.85, 0.7, 1.0)  # by rank; the last for a word that is no severity
_HIGH_IMPACT, _APPROVED, _CLOSED = 1.3, 1.2, 0.6
SUMMARY = 0.25  # of a memory of the session that it sums up
ACCESS_RATE = 0.05  # per hour: how fast having been read is forgotten
_STATES = {"idle": 0.95, "decaying": 0.6, "archived": 0.4}


class Weights(NamedTuple):
    """How much each part counts: numbers from 0 on."""

    text: float = 0.4
    time: float = 0.3
    importance: float = 0.2
    access: float = 0.1
    # Of all but the text, where a text is asked for. With 0.5, the age of long documents, which all
    # match about equally well, hid the right ones (docs/benchmarks.md).
    influence: float = 0.1
    states: Mapping[str, float] = _STATES
    # Of the score of a memory that no longer holds. With 0.4, resolved findings stood behind
    # memories that only share a word with the question (benchmarks.questions).
    ended: float = 0.7
    synonyms: tuple[tuple[str, ...], ...] = ()  # groups of words beside those of ask/thesaurus.py


def importance(type: str, data: Mapping[str, Any]) -> float:
    """Return the importance of a record: its own, else by kind, severity, impact and approval."""
    own = data.get("importance")
    if isinstance(own, (int, float)) and not isinstance(own, bool) and 0 <= own <= 1:
        return float(own)
    score = _IMPORTANCE.get(type, 0.5)
    if type == "finding":
        score *= _SEVERITY[severity_rank(data.get("severity"))]
        score *= _CLOSED if is_resolved(data) else 1.0
    if "high" in (data.get("implementation_impact"), data.get("impact")):
        score *= _HIGH_IMPACT
    if data.get("approved_by") or data.get("agreed_by"):
        score *= _APPROVED
    return min(score, 1.0)
