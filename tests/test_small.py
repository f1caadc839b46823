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
    return SessionMemory("s1", tmp_path / "sessions", clock=lambda: NOW)


def test_many_may_make_the_session_at_once(tmp_path: Path) -> None:
    """All of them have the same one, in a tree that was made for it."""

    def add(number: int) -> str:
        small = SessionMemory("s1", tmp_path / "sessions")
        return small.add("decision", {"decision": f"Decision {number}"})

    with ThreadPoolExecutor(8) as threads:
        ids = threads.map(add, range(8))
    assert sorted(ids) == [f"DEC-{number:03d}" for number in range(1, 9)]


CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("conversation", {"role": "user", "content": "Hello"}, "turn-1", {"speaker": "user", "content": "Hello"}),
    ("decision", {"decision": "Use OAuth", "by": "architect", "rationale": "Usual"}, "DEC-001",
     {"decision": "Use OAuth", "made_by": "architect", "rationale": "Usual"}),
    ("finding", {"issue": "Missing MFA", "status": "resolved", "by": "veritas"}, "FIND-001",
     {"finding": "Missing MFA", "resolution": {"status": "resolved"}, "discovered_by": "veritas"}),
    ("finding", {"issue": "Missing MFA"}, "FIND-001", {"severity": "medium", "resolution": {"status": "open"}}),
    ("preference", {"key": "deep", "value": False, "mood": "calm"}, "PREF-001",
     {"topic": "deep", "preference": "false", "value": False, "confidence": "explicit"}),
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


def test_a_query_filters_and_sorts_by_priority(small: SessionMemory) -> None:
    """By type, by a topic anywhere in the data, and by priority. The context is the oldest first."""

    def found(**asked: Any) -> list[str]:
        return [memory["id"] for memory in small.query(**asked)]

    old = NOW - timedelta(days=60)
    small.add("conversation", {"role": "user", "content": "About OAuth", "timestamp": old})
    small.add("decision", {"decision": "Use OAuth2"})
    small.add("finding", {"issue": "Missing MFA", "severity": "critical", "tags": ["oauth"]})
    small.add("preference", {"key": "depth", "value": "thorough", "ts": NOW - timedelta(hours=1)})
    assert found() == ["DEC-001", "FIND-001", "PREF-001", "turn-1"]
    assert found(topic="oauth") == ["DEC-001", "FIND-001", "turn-1"]
    assert found(type="finding") == ["FIND-001"]
    assert found(min_priority=0.9) == ["DEC-001", "FIND-001"]
    assert [memory["id"] for memory in small.get_context(3)] == ["PREF-001", "DEC-001", "FIND-001"]
    assert small.get_context(limit=0) == []
    small.delete("DEC-001")
    assert found() == ["FIND-001", "PREF-001", "turn-1"]
    with pytest.raises(MemoryNotFound):
        small.delete("DEC-999")


def test_a_wrong_memory_or_query_is_refused(small: SessionMemory) -> None:
    for type, data in (("turns", {}), ("conversation", {"content": "Hello"}), ("preference", {"key": "x"}),
                       ("decision", "Use OAuth"), ("finding", {"issue": "x", "severity": "grave"})):  # fmt: skip
        with pytest.raises(Invalid):
            small.add(type, data)
    with pytest.raises(Invalid):
        small.query(type="nonsense")
    with pytest.raises(InvalidQuery):
        small.query(min_priority=2)
