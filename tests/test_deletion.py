"""Deleting and restoring: gone from every answer at once, and back in its old place byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from smp_client import Conflict, CorruptionDetected, Invalid, Memory, MemoryNotFound, Session
from smp_client.transaction import Transaction


@pytest.fixture
def filled(session: Session) -> Session:
    for number in range(4):
        session.add_turn("vera", f"said {number}")
    for number in range(3):
        session.record_decision(f"decided {number}", made_by="vera", tags=["security"])
    session.record_finding("found", discovered_by="vera", severity="critical")
    session.relate("DEC-002", "FIND-001", "resolves")
    return session


def content(session: Session, file: str) -> bytes:
    return (session.scope.tree.root / "active" / session.id / file).read_bytes()


@pytest.mark.parametrize("memory_id", ["DEC-001", "DEC-002", "DEC-003", "FIND-001", "turn-1", "turn-3", "turn-4"])
def test_what_is_deleted_is_gone_from_every_answer(filled: Session, memory: Memory, memory_id: str) -> None:
    """In this process and for another that comes new."""
    assert filled.search("decided said found", limit=50)
    filled.delete(memory_id, reason="privacy", deleted_by="user-123")
    for session in (filled, Memory(memory.root).session(filled.id)):
        every = [*session.search("decided said found", limit=50), *session.by_time("2000-01-01"), *session.by_agent("vera")]
        every += [*session.turns(), *session.turns(last=10), *session.records("decision"), *session.by_topic("security")]
        assert memory_id not in {record.id for record in every}
        assert memory_id not in {event.ref for event in session.timeline()}
        with pytest.raises(MemoryNotFound):
            session.get(memory_id)


@pytest.mark.parametrize(
    "order", [("DEC-001", "DEC-002", "DEC-003"), ("DEC-003", "DEC-001", "DEC-002"), ("turn-2", "turn-1", "turn-4")]
)
def test_restoring_gives_the_same_bytes(filled: Session, order: tuple[str, ...]) -> None:
    """Whatever the order; only the highest number ever given is noted in the head of a list."""
    file = "conversation.md" if order[0].startswith("turn") else "decisions.yaml"
    before = content(filled, file)
    for memory_id in order:
        filled.delete(memory_id, reason="r")
    assert before != content(filled, file)
    for memory_id in order:
        filled.restore(memory_id)
    assert content(filled, file).replace(b"last_id: 3\n", b"") == before
    assert filled.deleted() == []


def test_a_list_that_became_empty_gets_its_memory_back(filled: Session) -> None:
    filled.delete("FIND-001", reason="r")
    assert filled.restore("FIND-001").text == "found"
    assert [record.id for record in filled.records("finding")] == ["FIND-001"]


def test_the_record_says_what_when_why_and_until_when(filled: Session, memory: Memory) -> None:
    filled.delete(["turn-2", "DEC-001"], reason="personal", deleted_by="user-123")
    said = yaml.safe_load((memory.root / "deleted/s1/deletion-record.yaml").read_text())["deletion"]
    assert (said["session_id"], said["deleted_by"], said["reason"]) == ("s1", "user-123", "personal")
    items = [(item["type"], item["id"]) for item in said["deleted_items"]]
    assert items == [("conversation_turn", "turn-2"), ("decision", "DEC-001")]
    assert said["recovery_deadline"] > said["deleted_at"]
    assert (memory.root / said["backup_location"]).is_file()
    assert [item.id for item in filled.deleted()] == ["turn-2", "DEC-001"]


def test_a_deleted_turn_keeps_its_number_and_nothing_else(filled: Session) -> None:
    filled.delete("turn-4", reason="r")
    assert b"said 3" not in content(filled, "conversation.md")
    assert b"## Turn 4 - " in content(filled, "conversation.md")
    assert filled.add_turn("vera", "next").id == "turn-5"


def test_ids_of_deleted_memories_are_not_given_again(filled: Session) -> None:
    filled.delete("DEC-003", reason="r")
    assert filled.record_decision("next", made_by="vera").id == "DEC-004"
    filled.restore("DEC-003")
    assert [record.id for record in filled.records("decision")] == ["DEC-001", "DEC-002", "DEC-003", "DEC-004"]


def test_all_or_none(filled: Session) -> None:
    """One id that there is not, and nothing is deleted."""
    with pytest.raises(MemoryNotFound):
        filled.delete(["DEC-001", "DEC-009"], reason="r")
    with pytest.raises(Invalid):
        filled.delete("DEC-001", reason=" ")
    assert filled.get("DEC-001").text == "decided 0"
    assert filled.deleted() == []


def test_a_change_in_between_is_not_deleted_unseen(filled: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy would be of an older one: nothing is deleted, and the record does not say so either."""
    commit = Transaction.commit

    def late(transaction: Transaction) -> None:
        if any(item.action == "remove" for item in transaction.modifications):
            filled.update("DEC-001", confidence="low")
        commit(transaction)

    monkeypatch.setattr(Transaction, "commit", late)
    with pytest.raises(Conflict):
        filled.delete("DEC-001", reason="r")
    assert filled.get("DEC-001").data["confidence"] == "low"
    assert filled.deleted() == []


def test_a_damaged_backup_is_said_and_left_alone(filled: Session, memory: Memory) -> None:
    filled.delete("DEC-001", reason="r")
    backup = Path(memory.root / "deleted/s1/backup.tar.gz")
    backup.write_bytes(backup.read_bytes()[:40])
    with pytest.raises(CorruptionDetected):
        filled.restore("DEC-001")
    assert [item.id for item in filled.deleted()] == ["DEC-001"]


def test_restoring_what_is_not_deleted_says_so(filled: Session) -> None:
    with pytest.raises(MemoryNotFound, match="no deleted memory 'DEC-001'"):
        filled.restore("DEC-001")
