"""The small interface: four methods, with the field names of the JSONL layout."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import Invalid, InvalidQuery, MemoryNotFound, SessionMemory

NOW = datetime(2026, 1, 11, 14, 30, tzinfo=UTC)


@pytest.fixture
def small(tmp_path: Path) -> SessionMemory:
    return SessionMemory("s1", tmp_path / "sessions")


def test_many_may_make_the_session_at_once(tmp_path: Path) -> None:
    """All of them have the same one, in a tree that was made for it."""

    def add(number: int) -> str:
        small = SessionMemory("s1", tmp_path / "sessions")
        return small.add("decision", {"decision": f"Decision {number}"})

    with ThreadPoolExecutor(8) as threads:
        ids = threads.map(add, range(8))
    assert sorted(ids) == [f"DEC-{number:03d}" for number in range(1, 9)]


CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("conversation", {"role": "user", "content": "Hello"}, "turn-1", {"speaker": "user", "content": "Hello", "type": "message"}),
    ("decision", {"decision": "Use OAuth", "by": "architect", "rationale": "Usual"}, "DEC-001",
     {"decision": "Use OAuth", "made_by": "architect", "rationale": "Usual"}),
    ("finding", {"issue": "Missing MFA", "severity": "critical"}, "FIND-001",
     {"finding": "Missing MFA", "severity": "critical", "resolution": {"status": "open"}, "discovered_by": "unknown"}),
    ("finding", {"issue": "Missing MFA", "status": "resolved", "by": "veritas"}, "FIND-001",
     {"severity": "medium", "resolution": {"status": "resolved"}, "discovered_by": "veritas"}),
    ("preference", {"key": "verification_depth", "value": "thorough"}, "PREF-001",
     {"topic": "verification_depth", "preference": "thorough", "confidence": "explicit"}),
    ("preference", {"key": "deep", "value": False, "mood": "calm"}, "PREF-001", {"preference": "false", "value": False}),
]  # fmt: skip


@pytest.mark.parametrize(("type", "data", "memory_id", "stored"), CASES)
def test_the_small_names_are_understood(
    small: SessionMemory, type: str, data: dict[str, Any], memory_id: str, stored: dict[str, Any]
) -> None:
    """The memory stands in the files under our names, and comes back under both."""
    assert small.add(type, data) == memory_id
    record = small.session.get(memory_id)
    assert record.data | stored == record.data
    (given,) = small.query(type)
    assert set(given) == {"id", "type", "ts", "data", "priority", "access"}
    assert (given["id"], given["type"], given["ts"]) == (memory_id, type, record.data["timestamp"])
    assert given["data"] | data == given["data"]


@pytest.mark.parametrize(
    ("type", "data"),
    [("turns", {}), ("conversation", {"content": "Hello"}), ("decision", {}), ("preference", {"key": "x"}),
     ("decision", "Use OAuth"), ("finding", {"issue": "x", "severity": "grave"})],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused(small: SessionMemory, type: str, data: Any) -> None:
    with pytest.raises(Invalid):
        small.add(type, data)
    assert small.query() == []


def test_a_query_filters_and_sorts_by_priority(tmp_path: Path) -> None:
    """By type, by a topic that stands anywhere in the data, in any case, and by what still matters."""
    small = SessionMemory("s1", tmp_path / "sessions", clock=lambda: NOW)
    old = NOW - timedelta(days=60)
    small.add("conversation", {"role": "user", "content": "About OAuth", "timestamp": old})
    small.add("decision", {"decision": "Use OAuth2"})
    small.add("finding", {"issue": "Missing MFA", "severity": "critical", "tags": ["oauth"]})
    small.add("preference", {"key": "depth", "value": "thorough"})
    assert [memory["id"] for memory in small.query()] == ["DEC-001", "FIND-001", "PREF-001", "turn-1"]
    assert [memory["id"] for memory in small.query(topic="oauth")] == ["DEC-001", "FIND-001", "turn-1"]
    assert [memory["id"] for memory in small.query(type="finding")] == ["FIND-001"]
    assert [memory["id"] for memory in small.query(min_priority=0.9)] == ["DEC-001", "FIND-001"]
    priorities = [memory["priority"] for memory in small.query()]
    assert priorities == sorted(priorities, reverse=True)
    with pytest.raises(Invalid):
        small.query(type="nonsense")
    with pytest.raises(InvalidQuery):
        small.query(min_priority=2)


def test_the_context_is_what_matters_most_in_order(tmp_path: Path) -> None:
    """At most `limit`, chosen by priority and told from the oldest."""
    small = SessionMemory("s1", tmp_path / "sessions", clock=lambda: NOW)
    small.add("conversation", {"role": "user", "content": "Long ago", "timestamp": NOW - timedelta(days=90)})
    for number in range(25):
        small.add("conversation", {"role": "user", "content": f"Turn {number}", "timestamp": NOW - timedelta(minutes=30 - number)})
    context = small.get_context()
    assert [memory["data"]["content"] for memory in context] == [f"Turn {number}" for number in range(5, 25)]
    assert len(small.get_context(limit=3)) == 3
    assert small.get_context(limit=0) == []


def test_a_memory_can_be_deleted(small: SessionMemory) -> None:
    """It is not found any more, and the others are; what is not there cannot be deleted."""
    for text in ("One", "Two"):
        small.add("decision", {"decision": text})
    small.delete("DEC-001")
    assert [memory["id"] for memory in small.query()] == ["DEC-002"]
    with pytest.raises(MemoryNotFound):
        small.delete("DEC-999")
