"""References to what is gone: kept, and told as references to something that was deleted, purged or taken out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory, Session
from smp_client.change.references import taken_by_hand
from smp_client.index.database import Index
from smp_client.index.take_in import outdated, refresh
from smp_client.passes.check import check
from smp_client.privacy.leaks import redact
from smp_client.redaction.redact import OFF

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
    told = [(one.id, one.relation, one.at, one.is_inward) for one in session.references("DEC-002")]
    assert told == [("turn-1", "comes from", None, False), ("DEC-001", "replaces", "2026-03-01T12:00:00Z", False)]
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


def taken_away(memory: Memory, index: Index) -> list[str]:
    """What an indexer tells of as gone, and not by SMP, since it was last asked."""
    with index.batch():
        gone = [(scope, refresh(memory, index, scope, file).gone) for scope, file in list(outdated(memory, index))]
    return [memory_id for scope, ids in gone for memory_id in taken_by_hand(memory, scope, ids)]


@pytest.fixture
def index(memory: Memory, session: Session) -> Iterator[Index]:
    index = Index.in_memory()
    assert taken_away(memory, index) == []
    yield index
    index.close()


def test_what_an_editor_takes_away_is_told_and_what_it_changes_or_breaks_is_not(
    memory: Memory, session: Session, index: Index
) -> None:
    """One that saves an older copy of a file takes away what came since."""
    file, conversation = (memory.root / "active/s1" / name for name in ("decisions.yaml", "conversation.md"))
    older = file.read_bytes(), conversation.read_bytes()
    session.record_decision("third", made_by="a")
    session.add_turn("user", "more")
    assert taken_away(memory, index) == []
    file.write_bytes(older[0].replace(b"first", b"FIRST"))
    conversation.write_bytes(older[1])
    assert sorted(taken_away(memory, index)) == ["DEC-003", "turn-2"]
    file.write_bytes(older[0].replace(b"decision: first", b'decision: "first'))
    conversation.write_bytes(older[1].replace(b"**Speaker:** user", b"**Speaker:** \xff"))
    assert taken_away(memory, index) == []
    assert len(session.problems()) == 2
    file.write_bytes(b"")
    assert taken_away(memory, index) == ["DEC-002"]  # the first was in no index any more


def test_what_smp_takes_out_itself_is_not_told_as_taken_away(memory: Memory, session: Session, index: Index) -> None:
    session.delete(id=["DEC-001", "turn-1", "REL-001"], reason="test")
    assert taken_away(memory, index) == []
    memory.privacy.purge_now("s1", ["DEC-001", "turn-1", "DEC-002"])
    assert taken_away(memory, index) == []
    session.compact(reduction_pct=100)
    assert "FIND-001" not in [record.id for record in session.records("finding")]
    assert taken_away(memory, index) == []
    session.bring_back()
    assert taken_away(memory, index) == []
    session.with_options(redaction=OFF).record_finding("mail jane@example.com, password: hunter2trustno1", discovered_by="jane",
                                                       severity="low")  # fmt: skip
    assert taken_away(memory, index) == []
    redact(memory, "s1", "findings.yaml", ["FIND-005"], "test")
    session.anonymize(names=["jane"])
    assert taken_away(memory, index) == []
    memory.delete_session("s1", reason="test")
    assert taken_away(memory, index) == []


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
