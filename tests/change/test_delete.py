"""Deleting and restoring memories, through the library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from earlier import earlier_states

from smp_client import (
    Conflict,
    CorruptionDetected,
    Invalid,
    Memory,
    MemoryNotFound,
    Session,
    SessionNotFound,
)
from smp_client.disk import bundle, journal
from smp_client.text.mapping import load_mapping

DOUBLE = b"  - id: DEC-002\n    decision: Somebody else's\n    made_by: hand\n"


@pytest.fixture
def filled(session: Session) -> Session:
    for number in range(1, 5):
        tag = "odd" if number % 2 else "even"
        session.record_decision(f"Decision {number}", made_by="ada", tags=[tag])
        session.add_turn("user", f"Turn {number}")
    said = {"discovered_by": "bert", "severity": "high", "tags": ["security"]}
    session.record_finding("The login has no limit", **said)
    session.save_artifact("plan", "The plan of the login")
    session.save_agent_state("ada", {"next": "one"})
    session.save_agent_state("ada", {"next": "two"})
    return session


def ids(session: Session, *kinds: str) -> list[str]:
    kinds = kinds or ("decision", "turn", "finding")
    return [record.id for kind in kinds for record in session.records(kind)]


def files(memory: Memory) -> dict[str, bytes]:
    """Return all files but SMP's own, without the lines that note the highest numbers."""
    found: dict[str, bytes] = {}
    for path in memory.root.rglob("*"):
        name = str(path.relative_to(memory.root))
        if path.is_file() and not name.startswith((".smp", "audit.log")):
            lines = path.read_bytes().splitlines(keepends=True)
            heads = (b"last_id:", b"**Last-Turn:**")
            found[name] = b"".join(line for line in lines if not line.startswith(heads))
    return found


@pytest.mark.parametrize(("conditions", "gone"), [
    ({"id": ["DEC-002", "turn-3"]}, ["DEC-002", "turn-3"]),
    ({"topic": "odd"}, ["DEC-001", "DEC-003"]),
    ({"agent": "bert"}, ["FIND-001"]),
    ({"types": ["finding"]}, ["FIND-001"]),
    ({"tags": ["even"], "types": ["decision"]}, ["DEC-002", "DEC-004"]),
    ({"text": "TURN 2"}, ["turn-2"]),
    ({"text": "the login"}, ["FIND-001", "plan"]),
    ({"id": ["plan", "ada"]}, ["STATE-001", "ada", "plan"]),
    ({"until": "2000-01-01"}, []),
])  # fmt: skip
def test_memories_are_deleted_by_id_or_condition_and_come_back(
    memory: Memory, filled: Session, conditions: dict[str, Any], gone: list[str]
) -> None:
    """Every file has its old bytes then, but for its highest number."""
    before, everybody = files(memory), ids(filled)
    planned = filled.delete(reason="a test", dry_run=True, **conditions)
    assert files(memory) == before
    outcome = filled.delete(reason="a test", **conditions)
    assert sorted(outcome.ids) == sorted(planned.ids) == sorted(gone)
    assert ids(filled) == [one for one in everybody if one not in gone]
    assert sorted(one.id for one in filled.deleted()) == sorted(gone)
    assert not {record.id for record in memory.search("", limit=100)} & set(gone)
    if gone:
        tried = memory.privacy.restore("s1", batch=outcome.batch, dry_run=True)
        assert sorted(tried.ids) == sorted(filled.restore_batch(outcome.batch).ids) == sorted(gone)
    assert files(memory) == before
    assert filled.deleted() == []


def test_a_memory_comes_back_behind_its_predecessor_else_last(filled: Session) -> None:
    first = filled.delete("DEC-002", reason="a test").batch
    second = filled.delete("DEC-001", reason="a test").batch
    filled.restore_batch(first)
    assert ids(filled, "decision") == ["DEC-003", "DEC-004", "DEC-002"]
    filled.restore_batch(second)
    assert ids(filled, "decision")[0] == "DEC-001"


def test_the_state_of_an_agent_comes_back_with_its_history(filled: Session) -> None:
    filled.delete("ada", reason="a test")
    filled.restore("ada")
    assert filled.agent_state("ada")["next"] == "two"
    assert [state["next"] for state in earlier_states(filled, "ada")] == ["one"]


def test_a_number_is_never_given_again(filled: Session) -> None:
    filled.delete(["DEC-004", "turn-4"], reason="a test")
    assert filled.record_decision("The next", made_by="ada").id == "DEC-005"
    assert filled.add_turn("user", "The next").id == "turn-5"


def test_the_record_for_people_has_the_shape_of_the_specification(
    memory: Memory, filled: Session
) -> None:
    outcome = filled.delete(["DEC-002"], reason="private", deleted_by="user-123")
    content = (memory.root / "deleted/s1/deletion-record.yaml").read_bytes()
    said: dict[str, Any] = load_mapping(content, "deletion", "record")
    known = [said[name] for name in ("session_id", "deleted_by", "reason")]
    assert known == ["s1", "user-123", "private"]
    (item,) = said["deleted_items"]
    assert (item["type"], item["id"], item["reason_specific"]) == ("decision", "DEC-002", "private")
    assert said["backup_location"] == f"deleted/s1/{outcome.batch}.tar.gz"
    assert bundle.read(memory.tree, said["backup_location"]).manifest.kind == "deleted"


def test_a_memory_can_be_deleted_for_a_reason_of_its_own(memory: Memory, filled: Session) -> None:
    """As `reason_specific` of 000 §8.3. Restored and deleted again, it has the new reason."""
    why = "Contained personal information"
    filled.delete(["turn-2", "DEC-002"], reason="private", reasons={"turn-2": why})
    record = memory.root / "deleted/s1/deletion-record.yaml"
    said: dict[str, Any] = load_mapping(record.read_bytes(), "deletion", "record")
    assert said["reason"] == "private"
    known = {item["id"]: item["reason_specific"] for item in said["deleted_items"]}
    assert known == {"turn-2": why, "DEC-002": "private"}
    assert {one.id: one.facts["why"] for one in filled.deleted()} == known
    filled.restore("turn-2", "It was harmless")
    filled.delete("turn-2", reason="after all")
    assert {one.id: one.facts["why"] for one in filled.deleted()}["turn-2"] == "after all"
    for reasons in ({"turn-1": why}, {"DEC-001": " "}):
        with pytest.raises(Invalid):
            filled.delete(["DEC-001"], reason="r", reasons=reasons)
    assert filled.get("DEC-001")


def test_restoring_keeps_its_reason(memory: Memory, filled: Session) -> None:
    """As `restoreMemory(id, reason)` of 000 §8.2 and `undeleteSession` of §5.2."""
    batch = filled.delete(["DEC-001", "DEC-002"], reason="r").batch
    filled.restore("DEC-001", "needed after all")
    filled.restore_batch(batch, "the others, too")
    memory.delete_session("s1", reason="over")
    memory.undelete_session("s1", "not over")
    lines = (memory.root / "audit.log").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [(one["action"], one["reason"]) for one in noted] == [
        ("delete", "r"), ("restore", "needed after all"), ("restore", "the others, too"),
        ("delete", "over"), ("restore", "not over")]  # fmt: skip
    for reason in ("", " ", None):
        with pytest.raises(Invalid, match="say why"):
            filled.restore("DEC-001", reason)  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="say why"):
            memory.undelete_session("s1", reason)  # type: ignore[arg-type]


def test_an_archived_memory_is_deleted_and_restored_where_it_is(
    memory: Memory, filled: Session
) -> None:
    memory.archive_session("s1")
    outcome = memory.privacy.delete("s1", ["DEC-002", "plan"], reason="a test")
    assert outcome.actions[0].place == "archived"
    with pytest.raises(MemoryNotFound):
        memory.get("s1/DEC-002")
    assert b"Decision 2" not in (memory.root / "archived/s1/summary.yaml").read_bytes()
    memory.privacy.restore("s1", "DEC-002")
    assert memory.get("s1/DEC-002").text == "Decision 2"
    session = memory.restore_session("s1")
    session.restore("plan")  # deleted in the archive, and restored after it
    assert session.artifact("plan").text == "The plan of the login"
    assert ids(session, "decision") == ["DEC-001", "DEC-002", "DEC-003", "DEC-004"]


def test_everywhere_is_one_batch(memory: Memory, filled: Session) -> None:
    other = memory.create_session(id="s2")
    other.record_decision("Decision of another", made_by="ada", tags=["odd"])
    memory.everywhere.record_preference("Odd things", topic="odd")
    memory.archive_session("s2")
    outcome = memory.privacy.delete_everywhere(topic="odd", reason="a test")
    assert {action.session for action in outcome.actions} == {"global", "s1", "s2"}
    back = memory.privacy.restore_batch(outcome.batch)
    assert sorted(back.ids) == sorted(outcome.ids)
    assert memory.get("s2/DEC-001").text == "Decision of another"


def test_another_memory_of_the_same_id_is_left_alone(memory: Memory, filled: Session) -> None:
    """It is neither overwritten by a restore, nor is one of two deleted."""
    outcome = filled.delete("DEC-002", reason="a test")
    file = memory.root / "active/s1/decisions.yaml"
    file.write_bytes(file.read_bytes() + DOUBLE)
    before = files(memory)
    with pytest.raises(Conflict):
        filled.restore_batch(outcome.batch)
    file.write_bytes(file.read_bytes() + DOUBLE)
    with pytest.raises(CorruptionDetected, match="more than once"):
        filled.delete("DEC-002", reason="a test")
    before["active/s1/decisions.yaml"] += DOUBLE
    assert files(memory) == before


def test_an_unlocked_edit_while_deleting_is_kept_and_reported(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = journal.record

    def edited(scope: Any, steps: Any) -> str:
        file = memory.root / "active/s1/decisions.yaml"
        file.write_bytes(file.read_bytes().replace(b"Decision 2", b"Decision 2, changed by hand"))
        return record(scope, steps)

    monkeypatch.setattr(journal, "record", edited)
    outcome = filled.delete(["DEC-002", "DEC-003"], reason="a test")
    assert any("DEC-002 was changed" in problem for problem in outcome.problems)
    texts = [record.text for record in filled.records("decision")]
    assert texts == ["Decision 1", "Decision 2, changed by hand", "Decision 4"]


def test_a_memory_comes_back_from_an_archive_in_another_style(
    memory: Memory, filled: Session
) -> None:
    odd = "learnings: [{id: LEARN-001, learning: One, learned_by: a}, {id: LEARN-002}] # mine\n"
    (memory.root / "active/s1/learnings.yaml").write_text(odd)
    memory.archive_session("s1")
    memory.privacy.delete("s1", ["LEARN-001"], reason="a test")
    memory.restore_session("s1")
    assert memory.session("s1").restore("LEARN-001").text == "One"


def test_wrong_calls_say_what_is_wrong_and_change_nothing(memory: Memory, filled: Session) -> None:
    before, privacy = files(memory), memory.privacy
    for error, call in (
        (MemoryNotFound, lambda: filled.delete("DEC-099", reason="a test")),
        (MemoryNotFound, lambda: filled.delete("metadata", reason="a test")),
        (Invalid, lambda: filled.delete(reason="a test")),
        (Invalid, lambda: filled.delete("DEC-001", topic="odd", reason="a test")),
        (Invalid, lambda: filled.delete("DEC-001", reason="  ")),
        (SessionNotFound, lambda: privacy.delete("nowhere", ["DEC-001"], reason="a test")),
        (MemoryNotFound, lambda: filled.restore("DEC-001")),
        (MemoryNotFound, lambda: privacy.restore_batch("20260101T000000-abcdef")),
        (Invalid, lambda: privacy.restore("s1")),
    ):
        with pytest.raises(error):
            call()
    assert files(memory) == before


def test_a_damaged_bundle_is_reported_and_left(memory: Memory, filled: Session) -> None:
    outcome = filled.delete("DEC-002", reason="a test")
    path = memory.root / f"deleted/s1/{outcome.batch}.tar.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptionDetected):
        filled.restore_batch(outcome.batch)
    assert path.exists()


def test_the_audit_log_says_who_and_how_many_but_not_what(memory: Memory, filled: Session) -> None:
    outcome = filled.delete("DEC-002", reason="a test", deleted_by="vera")
    with pytest.raises(MemoryNotFound, match="smp restore s1 DEC-002"):
        filled.get("DEC-002")
    filled.restore_batch(outcome.batch)
    log = (memory.root / "audit.log").read_text()
    assert log.count('"by": "vera"') == 1
    assert '"action": "restore"' in log
    assert "Decision 2" not in log
