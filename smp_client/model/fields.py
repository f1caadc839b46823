"""The fields that SMP knows of each kind of memory, and the misspellings of their names.

A memory may have any further field. A name that is a letter or two away from a known one is not a
field of its own: somebody mistyped it, and SMP would ignore the value. The JSON Schemas for other
programs are made of these tables, see model/schemas.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .nearest import misspelt
from .priority import STATUSES
from .quotation import shown
from .record import Kind

TEXT = "text"
TEXTS = "texts"
ANY = "any"
NUMBER = "number"
WHOLE = "whole number"
FLAG = "flag"
MAPPING = "mapping"
MAPPINGS = "mappings"
TIME = "time"

# Fields of every kind.
COMMON: Mapping[str, str] = {
    "id": TEXT,
    "timestamp": TIME,
    "tags": TEXTS,
    "decay": MAPPING,
    "pinned": ANY,
    "importance": NUMBER,
    "created_by": TEXT,
    "rationale": TEXT,
    "turn_ref": ANY,
    "references": TEXTS,
    "updated_at": TIME,
    "redacted": MAPPING,
    "imported": MAPPING,
    "imported_id": TEXT,
    "dropped_id": ANY,
}
# By the name of the kind: its own fields.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "conversation_turn": {
        "turn": WHOLE,
        "speaker": TEXT,
        "type": TEXT,
        "content": TEXT,
        "memory_refs": TEXTS,
        "role": TEXT,
        "topic": TEXT,
        "context": ANY,
        "metadata": MAPPING,
        "summarizes": MAPPING,
    },
    "decision": {
        "decision": TEXT,
        "made_by": TEXT,
        "agreed_by": TEXTS,
        "approved_by": TEXTS,
        "agents_involved": TEXTS,
        "agent_inputs": MAPPING,
        "alternatives": ANY,
        "alternatives_considered": ANY,
        "confidence": TEXT,
        "reversible": ANY,
        "impact": TEXT,
        "implementation_impact": TEXT,
        "status": TEXT,
        "superseded_by": TEXT,
        "resolution": MAPPING,
        "topic": TEXT,
        "context": ANY,
    },
    "finding": {
        "finding": TEXT,
        "discovered_by": TEXT,
        "severity": TEXT,
        "category": TEXT,
        "location": ANY,
        "impact": TEXT,
        "root_cause": TEXT,
        "evidence": ANY,
        "recommendation": ANY,
        "description": TEXT,
        "resolution": MAPPING,
        "status": TEXT,
        "superseded_by": TEXT,
        "also_found_by": TEXTS,
        "observations": MAPPINGS,
        "confidence": TEXT,
        "topic": TEXT,
    },
    "preference": {
        "preference": TEXT,
        "category": TEXT,
        "topic": TEXT,
        "context": ANY,
        "confidence": TEXT,
        "source": TEXT,
        "applies_to": MAPPING,
        "learned_from": TEXTS,
        "key": TEXT,
        "value": ANY,
        "status": TEXT,
        "superseded_by": TEXT,
    },
    "learning": {
        "learning": TEXT,
        "learned_by": TEXT,
        "topic": TEXT,
        "category": TEXT,
        "confidence": TEXT,
        "original_type": TEXT,
        "status": TEXT,
        "superseded_by": TEXT,
    },
    "relationship": {
        "source": TEXT,
        "target": TEXT,
        "relationship": TEXT,
    },
    "pattern": {
        "pattern": TEXT,
        "learned_by": TEXT,
        "topic": TEXT,
        "category": TEXT,
        "confidence": TEXT,
        "status": TEXT,
        "superseded_by": TEXT,
    },
}
# Of the others, another word is one letter away: none of done, mixed of fixed.
_LONG_STATUSES = sorted(STATUSES - {"done", "fixed"})
# The fields of `context` in the metadata of a session, and the arguments that set them.
CONTEXT = (
    "project", "project_name", "phase", "project_phase", "topic", "primary_topic", "tags",
    "session_type", "user", "user_id", "agents", "agent_ids", "session_id", "quota_bytes",
    "metadata", "context",
)  # fmt: skip


def fields_of(kind: Kind) -> dict[str, str]:
    """Return the known fields of a kind, each with its form."""
    return {**COMMON, **FIELDS.get(kind.name, {})}


def misspellings(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return a sentence for each name that is a misspelling of a known one."""
    known = [*known]
    problems: list[str] = []
    for name in names:
        if name in known or not isinstance(name, str):
            continue
        if meant := misspelt(name, known):
            problems.append(f"there is no field {shown(name)} (did you mean {meant!r}?)")
    return problems


def misspelt_status(given: Mapping[str, object]) -> list[str]:
    """Return a sentence for a status that is a misspelling of one that has an effect."""
    resolution = given.get("resolution")
    problems: list[str] = []
    for fields in (given, resolution if isinstance(resolution, dict) else {}):
        status = fields.get("status")
        if not isinstance(status, str) or status.strip().lower() in STATUSES:
            continue
        if meant := misspelt(status, _LONG_STATUSES):
            problems.append(f"there is no status {shown(status)} (did you mean {meant!r}?)")
    return problems
