"""How severe a finding is: five words in one order, and synonyms for two of them.

    critical > high = important > medium > low = minor > info

A finding is stored with the word that was given. Synonyms are equal wherever findings are compared,
filtered, ranked or sorted.
"""

from __future__ import annotations

SEVERITIES = ("critical", "high", "medium", "low", "info")  # the worst first
_SYNONYMS = {"important": "high", "minor": "low"}
WORDS = (*SEVERITIES, *_SYNONYMS)  # that a finding may have


def rank(severity: object) -> int:
    """Return the place of a severity, 0 for the worst; any other word is behind the last."""
    word = severity.lower() if isinstance(severity, str) else ""
    word = _SYNONYMS.get(word, word)
    return SEVERITIES.index(word) if word in SEVERITIES else len(SEVERITIES)


def same(severity: str) -> list[str]:
    """Return all words for a severity."""
    return [word for word in WORDS if rank(word) == rank(severity)] or [severity]


_RANKS = " ".join(f"WHEN '{word}' THEN {rank(word)}" for word in WORDS)
# `rank` of a memory `m`, in SQL.
RANK = f"CASE LOWER(json_extract(m.data, '$.severity')) {_RANKS} ELSE {len(SEVERITIES)} END"
