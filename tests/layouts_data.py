"""Data of the other layouts: examples of the documents, and strategies that make any. For the readers' tests and the writers'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

Entry = dict[str, Any]


# Parts.

_CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(_CHARACTERS, max_size=40)
WORDS = st.text(_CHARACTERS, min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_-0123456789", min_size=1, max_size=12)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
SHARES = st.floats(0, 1) | st.sampled_from([0, 1, 0.5, 1.0])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=6
)  # fmt: skip
TAGS = st.lists(st.sampled_from(["security", "auth", "security.oauth", "database", "größe"]) | WORDS, max_size=3)
STAMPS = (
    st.datetimes().map(lambda time: time.isoformat(timespec="seconds") + "Z")
    | st.datetimes().map(lambda time: time.isoformat(timespec="milliseconds") + "Z")
    | st.sampled_from(["2026-01-11T14:30:00Z", "2026-01-11T14:30:00.000Z", "2026-01-11T15:30:00+01:00", "2026-01-11"])
)
VERSIONS = st.sampled_from(["1.0", "1.2", "draft"])  # a later one is told
ROLES = st.sampled_from(["user", "assistant", "system", "architect"]) | WORDS
# Names that mean something in a file of ours, among others.
FIELD_NAMES = NAMES | st.sampled_from(
    ["id", "turn", "type", "timestamp", "decay", "tags", "references", "memory_refs", "turn_ref", "imported", "imported_id",
     "content", "speaker", "made_by", "by", "finding", "decision", "pinned", "confidence", "severity", "status", "resolution",
     "text", "role", "message", "deleted", "topic", "version", "session", "access_count", "last_accessed", "fields"]
)  # fmt: skip
FURTHER = st.dictionaries(FIELD_NAMES, ANYTHING, max_size=3)
NOT_DELETED = FURTHER.filter(lambda further: not further.get("deleted"))  # what is deleted is written as a mark, or not at all


def some(*required: tuple[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Entry]:
    return st.fixed_dictionaries(dict(required), optional=optional)


# 003: one file per session.

SINGLE_EXAMPLE: list[Entry] = [
    {"id": "m001", "type": "conversation", "ts": "2026-01-11T14:30:00Z", "data": {"role": "user", "content": "Hello"},
     "priority": 1.0, "access": 0},
    {"id": "m002", "type": "decision", "ts": "2026-01-11T14:31:00Z", "data": {"decision": "Use OAuth", "by": "architect"},
     "priority": 0.95, "access": 3},
    {"id": "m003", "type": "finding", "ts": "2026-01-11T14:32:00Z", "data": {"issue": "Missing MFA", "severity": "critical"},
     "priority": 0.9, "access": 1},
    {"id": "m004", "type": "preference", "ts": "2026-01-11T14:33:00Z", "data": {"key": "verification_depth", "value": "thorough"},
     "priority": 0.85, "access": 5},
]  # fmt: skip


def single_data(kind: str) -> st.SearchStrategy[Any]:
    fields = {
        **dict.fromkeys(["conversation", "Message"], some(("role", ROLES), ("content", TEXTS))),
        "decision": some(("decision", WORDS), by=WORDS, rationale=TEXTS),
        "finding": some(("issue", WORDS), severity=st.sampled_from(["critical", "high", "Major", "odd"]),
                        status=st.sampled_from(["open", "resolved", "wontfix"])),
        "preference": some(("key", WORDS), ("value", ANYTHING)),
    }.get(kind, FURTHER)  # fmt: skip
    return st.builds(lambda known, further: {**further, **known}, fields, FURTHER) | st.one_of(fields, TEXTS, ANYTHING)


@st.composite
def single_line(draw: st.DrawFn, ids: st.SearchStrategy[Any]) -> Entry:
    kind = draw(st.sampled_from(["conversation", "Message", "decision", "finding", "preference", "note"]))
    line: Entry = {"id": draw(ids), "type": kind, "ts": draw(STAMPS), "data": draw(single_data(kind)),
                   "priority": draw(SHARES | NUMBERS), "access": draw(st.integers(0, 1000))}  # fmt: skip
    for name in draw(st.sets(st.sampled_from(["ts", "priority", "access", "data"]), max_size=1)):
        del line[name]
    further = draw(FURTHER)
    return {**line, **{name: value for name, value in further.items() if name not in line and name != "deleted"}}


@st.composite
def single_session(draw: st.DrawFn) -> list[Entry]:
    """Lines of one session, some of which mark others as deleted."""
    ids = st.integers(1, 30).map(lambda number: f"m{number:03d}") | NAMES
    lines = draw(st.lists(single_line(ids), max_size=8))
    gone = draw(st.lists(st.sampled_from([line["id"] for line in lines]) | NAMES, max_size=2)) if lines else []
    return lines + [{"id": one, "deleted": True, "ts": "2026-01-12T00:00:00Z"} for one in gone]


def write_lines(path: Path, lines: list[Entry]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


# 001: a file per kind.

MANIFEST_EXAMPLE: Entry = {
    "session_id": "sess-2026-01-11-abc123", "created_at": "2026-01-11T10:00:00Z", "updated_at": "2026-01-11T14:30:00Z",
    "user_id": "user-789", "agent_ids": ["bmad-master", "architect", "analyst"],
    "metadata": {"project_name": "payment-system", "session_type": "architecture_review",
                 "tags": ["architecture", "payments", "scalability"]},
    "statistics": {"total_messages": 127, "total_decisions": 8, "total_findings": 15, "size_bytes": 245678,
                   "last_accessed": "2026-01-11T14:30:00Z"},
    "version": "1.0",
}  # fmt: skip
PER_KIND_EXAMPLE: dict[str, list[Entry]] = {
    "conversation.jsonl": [
        {"id": "msg-000", "timestamp": "2026-01-11T10:05:00Z", "agent_id": "user-789", "role": "user", "content": "Which database?",
         "context": {"conversation_id": "conv-xyz"}, "metadata": {}, "decay_factor": 1.0},
        {"id": "msg-001", "timestamp": "2026-01-11T10:05:23Z", "agent_id": "architect", "role": "assistant",
         "content": "PostgreSQL, for ACID compliance.",
         "context": {"conversation_id": "conv-xyz", "parent_message_id": "msg-000", "topic": "database_selection"},
         "metadata": {"tokens": 15, "processing_time_ms": 230, "references": ["dec-001", "finding-003"]}, "decay_factor": 1.0},
    ],
    "decisions.jsonl": [
        {"id": "dec-001", "timestamp": "2026-01-11T10:10:00Z", "made_by": "architect", "approved_by": ["user-789"],
         "decision": "Use PostgreSQL as the primary database", "rationale": "ACID for financial transactions",
         "alternatives_considered": [{"option": "MongoDB", "rejected_reason": "Eventual consistency"},
                                     {"option": "MySQL", "rejected_reason": "Licensing"}],
         "impact": "high", "tags": ["database", "architecture", "critical"],
         "references": {"conversations": ["msg-001", "msg-002"], "findings": ["finding-003"]}, "decay_factor": 1.0},
    ],
    "findings.jsonl": [
        {"id": "finding-003", "timestamp": "2026-01-11T10:08:15Z", "discovered_by": "analyst", "category": "scalability",
         "severity": "high", "description": "Connection pooling is not configured", "evidence": "Nothing in application.yml",
         "recommendation": "HikariCP with at most 50 connections", "status": "open", "tags": ["performance", "database"],
         "decay_factor": 1.0},
    ],
    "preferences.jsonl": [
        {"id": "pref-001", "timestamp": "2026-01-11T10:00:00Z", "category": "communication", "key": "response_style",
         "value": "concise_with_examples", "context": "Brief explanations, then code", "confidence": 0.9,
         "learned_from": ["sess-2026-01-10-xyz", "sess-2026-01-11-abc"], "decay_factor": 1.0},
    ],
}  # fmt: skip
PREFERENCES_EXAMPLE: Entry = {"version": "1.0", "preferences": [PER_KIND_EXAMPLE["preferences.jsonl"][0]], "language": "en"}
KNOWLEDGE_EXAMPLE: Entry = {"architect": ["Prefers boring technology"], "analyst": [{"id": "k-1", "learning": "Ask for numbers"}]}
CONFIG_EXAMPLE: Entry = {"memory_config": {"version": "1.0", "storage": {"format": "jsonl", "max_session_size_mb": 10}}}


def _per_kind_entry(file: str, ids: st.SearchStrategy[Any]) -> st.SearchStrategy[Entry]:
    common = (("id", ids), ("timestamp", STAMPS), ("decay_factor", SHARES))
    own: dict[str, tuple[tuple[str, st.SearchStrategy[Any]], ...]] = {
        "conversation.jsonl": (("agent_id", WORDS), ("role", ROLES), ("content", TEXTS),
                               ("context", some(conversation_id=WORDS, parent_message_id=ids, topic=NAMES)),
                               ("metadata", some(tokens=st.integers(0, 999), references=st.lists(ids, max_size=2)))),
        "decisions.jsonl": (("made_by", WORDS), ("decision", WORDS), ("rationale", TEXTS), ("impact", TEXTS), ("tags", TAGS),
                            ("approved_by", st.lists(WORDS, max_size=2)),
                            ("alternatives_considered",
                             st.lists(some(("option", WORDS), rejected_reason=TEXTS) | ANYTHING, max_size=2)),
                            ("references", st.dictionaries(st.sampled_from(["conversations", "findings", "decisions"]),
                                                           st.lists(ids, max_size=2), max_size=2))),
        "findings.jsonl": (("discovered_by", WORDS), ("category", WORDS), ("severity", st.sampled_from(["high", "low", "odd"])),
                           ("description", WORDS), ("status", st.sampled_from(["open", "resolved", "accepted"])), ("tags", TAGS)),
        "preferences.jsonl": (("category", WORDS), ("key", WORDS), ("value", ANYTHING), ("context", TEXTS), ("confidence", SHARES),
                              ("learned_from", st.lists(WORDS, max_size=2))),
    }  # fmt: skip
    optional = {"access_count": st.integers(0, 99), "last_accessed": STAMPS, "last_decay_update": st.integers(10**12, 2 * 10**12)}
    known = some(*common, *own[file], **optional)
    return st.builds(lambda further, entry: {**further, **entry}, NOT_DELETED, known) | known


@st.composite
def per_kind_session(draw: st.DrawFn) -> tuple[Entry, dict[str, list[Entry]]]:
    """A manifest, and the entries of each file."""
    numbers = st.integers(1, 9)
    ids = {"conversation.jsonl": "msg", "decisions.jsonl": "dec", "findings.jsonl": "finding", "preferences.jsonl": "pref"}
    every = st.builds(lambda prefix, number: f"{prefix}-{number:03d}", st.sampled_from(list(ids.values())), numbers)
    files = {file: draw(st.lists(_per_kind_entry(file, every | NAMES), max_size=3)) for file in ids}
    manifest = {**draw(FURTHER), **draw(some(
        ("session_id", st.just("s1")), ("created_at", STAMPS), ("updated_at", STAMPS), ("user_id", WORDS), ("version", VERSIONS),
        ("agent_ids", st.lists(WORDS, max_size=3)), ("metadata", some(project_name=WORDS, tags=TAGS)),
        ("statistics", st.dictionaries(NAMES, NUMBERS, max_size=3)),
    ))}  # fmt: skip
    return manifest, files


def write_per_kind(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, list[Entry]]) -> Path:
    """A session's folder."""
    for name, lines in files.items():
        write_lines(folder / name, lines)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


# 004: one log with checksums.

METADATA_EXAMPLE: Entry = {
    "session_id": "sess_001", "user_id": "user123", "created_at": "2026-01-10T14:00:00.000Z",
    "last_accessed": "2026-01-10T14:30:00.000Z", "total_entries": 42, "total_size_bytes": 1048576,
    "decay_config": {"enabled": True, "half_life_hours": 168, "min_decay_factor": 0.1},
    "preferences": {"language": "en", "verbosity": "medium", "custom": {}},
    "statistics": {"conversations": 15, "decisions": 8, "findings": 12, "preferences": 7},
}  # fmt: skip
CHECKED_EXAMPLE: list[Entry] = [
    {"id": "mem_001", "session_id": "sess_001", "timestamp": "2026-01-10T10:00:00Z", "type": "conversation",
     "content": {"role": "user", "message": "Hello"}, "importance": 0.5, "decay_factor": 1.0, "tags": [], "references": []},
    {"id": "mem_002", "session_id": "sess_001", "timestamp": "2026-01-10T10:01:00Z", "type": "conversation",
     "content": {"role": "assistant", "message": "Hi!"}, "importance": 0.5, "decay_factor": 1.0, "tags": [],
     "references": ["mem_001"]},
    {"id": "mem_abc123xyz", "session_id": "sess_001", "timestamp": "2026-01-10T14:23:45.678Z", "type": "decision",
     "content": {"decision": "Authorization Code flow for web apps", "rationale": "Most secure there",
                 "alternatives": ["Implicit flow", "PKCE"]},
     "importance": 0.85, "decay_factor": 0.92, "tags": ["authentication", "security"], "references": ["mem_002"]},
]  # fmt: skip


def sorted_checksum(entry: Mapping[str, Any]) -> str:
    """Of an entry as the document asks for it: sorted keys, no blanks, without the checksum itself."""
    bare = {name: value for name, value in entry.items() if name != "checksum"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def with_checksum(entry: Entry) -> Entry:
    return {**entry, "checksum": sorted_checksum(entry)}


def checked_content(kind: str) -> st.SearchStrategy[Any]:
    fields = {
        "conversation": some(("role", ROLES), ("message", TEXTS), metadata=FURTHER),
        "decision": some(("decision", WORDS), rationale=TEXTS, alternatives=st.lists(WORDS | ANYTHING, max_size=2), by=WORDS),
        "finding": some(("description", WORDS), severity=st.sampled_from(["critical", "warning"]), status=st.just("open")),
        "preference": some(("preference", WORDS), confidence=st.sampled_from(["explicit", "sure"])),
    }.get(kind, FURTHER)  # fmt: skip
    return st.builds(lambda further, known: {**further, **known}, FURTHER, fields) | st.one_of(fields, TEXTS, ANYTHING)


@st.composite
def checked_entry(draw: st.DrawFn, ids: st.SearchStrategy[Any]) -> Entry:
    kind = draw(st.sampled_from(["conversation", "decision", "finding", "preference", "event"]))
    entry = draw(some(
        ("id", ids), ("session_id", st.just("s1")), ("timestamp", STAMPS), ("type", st.just(kind)),
        ("content", checked_content(kind)), ("importance", SHARES), ("decay_factor", SHARES), ("tags", TAGS),
        ("references", st.lists(ids, max_size=2)),
        schema_version=st.integers(1, 3), access_count=st.integers(0, 99), last_accessed=STAMPS,
    ))  # fmt: skip
    entry = {**draw(NOT_DELETED), **entry}
    entry.pop("checksum", None)
    return with_checksum(entry) if draw(st.booleans()) else entry


@st.composite
def checked_session(draw: st.DrawFn) -> tuple[Entry, list[Entry], list[Entry]]:
    """Metadata, the log, and tombstones."""
    ids = st.integers(1, 20).map(lambda number: f"mem_{number:03d}") | NAMES
    log = draw(st.lists(checked_entry(ids), max_size=8))
    gone = draw(st.lists(st.sampled_from([entry["id"] for entry in log]) | NAMES, max_size=2, unique=True)) if log else []
    tombstones = [{"id": one, "timestamp": "2026-01-12T00:00:00Z", "reason": "asked to"} for one in gone]
    metadata = {**draw(FURTHER.filter(lambda further: "version" not in further)), **draw(some(
        ("session_id", st.just("s1")), ("user_id", WORDS), ("created_at", STAMPS), ("last_accessed", STAMPS),
        ("total_entries", st.integers(0, 99)), decay_config=st.just(METADATA_EXAMPLE["decay_config"]), preferences=FURTHER,
    ))}  # fmt: skip
    return metadata, log, tombstones


def write_checked(folder: Path, metadata: Mapping[str, Any], log: list[Entry], tombstones: list[Entry]) -> Path:
    """A session's folder."""
    write_lines(folder / "memory.jsonl", log)
    write_lines(folder / "tombstones.jsonl", tombstones)
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return folder


# Logs.

CONVERSATION_EXAMPLE = """\
# Conversation History
**Session:** session-2026-01-11-abc123
**Started:** 2026-01-11 14:30:00 UTC
**Participants:** user-123, bmad-master, veritas

---

## Turn 1 - 2026-01-11 14:30:00
**Speaker:** user
**Type:** message

Let us look at the authentication requirements.

---

## Turn 2 - 2026-01-11 14:30:05
**Speaker:** bmad-master
**Type:** message
**Memory-Refs:** [DEC-001]

I will have several agents look at them.

**Memory Stored:**
- Decision to use multi-agent review [DEC-001]

---

## Turn 3 - 2026-01-11 14:30:30
**Speaker:** veritas
**Type:** message
**Memory-Refs:** [FIND-001, FIND-002]

Three concerns in section 3.2:

1. **CRITICAL:** No MFA requirement specified [FIND-001]
2. **IMPORTANT:** Session timeout not defined [FIND-002]
3. **MINOR:** Password complexity is vague

**Memory Stored:**
- Finding: Missing MFA requirement [FIND-001]
- Finding: Missing session timeout [FIND-002]

---

## Turn 4 - 2026-01-11 14:35:00
**Speaker:** user
**Type:** message

MFA for admins.

**Memory Stored:**
- Preference: MFA policy clarification [PREF-001]

---
"""
MEMLOG_EXAMPLE = """\
---
topic: Onboarding of a budgeting app
goal: keep people for a week
updated: 2026-06-07T14:22
---

- (note) the user picked two techniques
- (idea by user) let people try it with sample data
- (insight) real numbers frighten, and show value
- (decision by user) lead with one account; defer the others
- (by coach) keep to the first screen
- a plain note
- (event) session complete
"""
