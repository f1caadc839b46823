"""References to what is gone: kept, and told as references to something that was deleted, purged or taken out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, Session
from smp_client.passes.check import check

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)


@pytest.fixture
def session(memory: Memory) -> Session:
    """A turn that refers to what is there, what will go and what never was; a relationship between two of them."""
    session = memory.create_session(id="s1")
    session.record_decision("first", made_by="a")
    session.record_decision("second", made_by="a", turn_ref=1)
    for number in range(4):
        session.record_finding(f"found {number} " + "and more " * 40, discovered_by="a", severity="low",
                               resolution={"status": "resolved"}, timestamp=NOW - timedelta(days=60))  # fmt: skip
    memory.everywhere.record_preference("dark")
    session.add_turn("user", "hello", memory_refs=["DEC-001", "DEC-002", "FIND-001", "GPREF-001", "NOT-001"])
    session.relate("DEC-002", "DEC-001", "replaces")
    return session


def states(session: Session, memory_id: str) -> dict[str, str]:
    return {reference.id: reference.state for reference in session.references(memory_id)}


def test_what_is_there_is_here_and_what_never_was_is_not_known(session: Session) -> None:
    assert states(session, "turn-1") == {
        "DEC-001": "here", "DEC-002": "here", "FIND-001": "here", "GPREF-001": "here", "NOT-001": "unknown"
    }  # fmt: skip


def test_a_deleted_one_is_told_as_deleted_and_by_whom_it_is_referred_to_stays(session: Session, memory: Memory) -> None:
    session.delete("DEC-001", reason="privacy")
    assert states(session, "turn-1") | states(session, "REL-001") == {
        "DEC-001": "deleted", "DEC-002": "here", "FIND-001": "here", "GPREF-001": "here", "NOT-001": "unknown"
    }  # fmt: skip
    told = [(one.id, one.relation, one.is_inward) for one in session.references("DEC-002")]
    assert told == [("turn-1", "comes from", False), ("DEC-001", "replaces", False)]
    assert session.get("turn-1").data["memory_refs"][0] == "DEC-001"
    assert "DEC-001" not in {record.id for record in session.related("turn-1", depth=3)}
    assert check(memory) == []
    session.restore("DEC-001")
    assert states(session, "DEC-002") == {"turn-1": "here", "DEC-001": "here"}
    assert [(one.id, one.is_inward) for one in session.references("DEC-001")] == [("DEC-002", True)]


def test_one_that_compaction_took_out_is_told_as_that(session: Session, memory: Memory) -> None:
    session.compact(reduction_pct=100)
    assert states(session, "turn-1")["FIND-001"] == "evicted"
    assert check(memory) == []


def test_a_purged_one_is_told_as_purged(session: Session, memory: Memory) -> None:
    session.delete("DEC-001", reason="privacy")
    later = Memory(memory.root, clock=lambda: NOW + timedelta(days=90), count_access=False)
    later.privacy.purge(force=True)
    assert states(later.session("s1"), "turn-1")["DEC-001"] == "purged"
    assert check(later) == []


def test_a_memory_of_another_session_is_told_as_it_is_there(session: Session, memory: Memory) -> None:
    other = memory.create_session(id="other")
    other.record_decision("third", made_by="a")
    for target in ("s1/DEC-001", "s1/DEC-002", "global/GPREF-001"):
        other.relate("DEC-001", target, "supersedes")
    session.delete("DEC-002", reason="privacy")
    told = {"s1/DEC-001": "here", "s1/DEC-002": "deleted", "global/GPREF-001": "here"}
    assert states(other, "DEC-001") == told
    memory.archive_session("s1", "done")
    assert states(other, "DEC-001") == told
    memory.delete_session("s1", reason="privacy")
    assert states(other, "DEC-001")["s1/DEC-001"] == "unknown"
