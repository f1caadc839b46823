"""Deleting and restoring memories, through the library."""

from __future__ import annotations

from typing import Any

import pytest

from smp_client import (
    Conflict,
    CorruptionDetected,
    Invalid,
    Memory,
    MemoryNotFound,
    Session,
    SessionNotFound,
)
from smp_client.disk import bundle
from smp_client.text.mapping import load_mapping


@pytest.fixture
def filled(session: Session) -> Session:
    for number in range(1, 5):
        tag = "odd" if number % 2 else "even"
        session.record_decision(f"Decision {number}", made_by="ada", tags=[tag])
        session.add_turn("user", f"Turn {number}")
    session.record_finding(
        "The login has no limit", discovered_by="bert", severity="high", tags=["security"]
    )
    session.save_artifact("plan", "The plan of the login")
    session.save_agent_state("ada", {"next": "one"})
    session.save_agent_state("ada", {"next": "two"})
    return session


def ids(session: Session) -> list[str]:
    return [
        record.id for kind in ("decision", "turn", "finding") for record in session.records(kind)
    ]


def files(memory: Memory) -> dict[str, bytes]:
    root = memory.root
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and not str(path.relative_to(root)).startswith((".smp", "audit.log"))}  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "gone"),
    [
        ({"id": ["DEC-002", "turn-3"]}, ["DEC-002", "turn-3"]),
        ({"topic": "odd"}, ["DEC-001", "DEC-003"]),
        ({"agent": "bert"}, ["FIND-001"]),
        ({"types": ["finding"]}, ["FIND-001"]),
        ({"tags": ["even"], "types": ["decision"]}, ["DEC-002", "DEC-004"]),
        ({"text": "TURN 2"}, ["turn-2"]),
        ({"text": "the login"}, ["FIND-001", "plan"]),
        ({"until": "2000-01-01"}, []),
    ],
)
def test_memories_are_deleted_by_id_or_condition_and_come_back(
    memory: Memory, filled: Session, conditions: dict[str, Any], gone: list[str]
) -> None:
    before = ids(filled)
    planned = filled.delete(reason="a test", dry_run=True, **conditions)
    assert ids(filled) == before
    outcome = filled.delete(reason="a test", **conditions)
    assert sorted(outcome.ids) == sorted(planned.ids) == sorted(gone)
    assert ids(filled) == [one for one in before if one not in gone]
    assert sorted(one.id for one in filled.deleted()) == sorted(gone)
    assert not gone or not {record.id for record in memory.search("", limit=100)} & set(gone)
    if gone:
        filled.restore_batch(outcome.batch)
    assert ids(filled) == before
    assert filled.deleted() == []
    assert not (memory.root / "deleted" / "s1").exists()


def test_a_restored_file_differs_only_in_its_highest_number(
    memory: Memory, filled: Session
) -> None:
    before = files(memory)
    outcome = filled.delete(["DEC-002", "DEC-003", "turn-2", "plan", "ada"], reason="a test")
    filled.restore_batch(outcome.batch)
    after = files(memory)
    for name, content in after.items():
        lines = [
            line
            for line in content.splitlines()
            if not line.startswith((b"last_id:", b"**Last-Turn:**"))
        ]
        assert lines == before[name].splitlines(), name
    assert after.keys() == before.keys()


def test_a_memory_comes_back_behind_its_predecessor_else_last(filled: Session) -> None:
    first = filled.delete("DEC-002", reason="a test").batch
    second = filled.delete("DEC-001", reason="a test").batch
    filled.restore_batch(first)
    assert [record.id for record in filled.records("decision")] == ["DEC-003", "DEC-004", "DEC-002"]
    filled.restore_batch(second)
    assert filled.records("decision")[0].id == "DEC-001"


def test_a_number_is_never_given_again(filled: Session) -> None:
    filled.delete(["DEC-004", "turn-4"], reason="a test")
    assert filled.record_decision("The next", made_by="ada").id == "DEC-005"
    assert filled.add_turn("user", "The next").id == "turn-5"


def test_the_record_for_people_has_the_shape_of_the_specification(
    memory: Memory, filled: Session
) -> None:
    outcome = filled.delete(["DEC-002"], reason="private", deleted_by="user-123")
    said = load_mapping(
        (memory.root / "deleted/s1/deletion-record.yaml").read_bytes(), "deletion", "record"
    )
    assert said["session_id"] == "s1"
    assert (said["deleted_by"], said["reason"]) == ("user-123", "private")
    (item,) = said["deleted_items"]  # type: ignore[misc]
    assert isinstance(item, dict)
    assert (item["type"], item["id"], item["reason_specific"]) == ("decision", "DEC-002", "private")
    location = str(said["backup_location"])
    assert location == f"deleted/s1/{outcome.batch}.tar.gz"
    assert bundle.read(memory.tree, location).manifest.kind == "deleted"


def test_the_earlier_states_of_an_agent_go_and_come_with_its_state(filled: Session) -> None:
    assert len(filled.agent_state_history("ada")) == 1
    filled.delete("ada", reason="a test")
    assert filled.agent_states() == []
    filled.restore("ada")
    assert filled.agent_state("ada")["next"] == "two"
    assert len(filled.agent_state_history("ada")) == 1


def test_an_archived_memory_is_deleted_and_restored_where_it_is(
    memory: Memory, filled: Session
) -> None:
    memory.archive_session("s1")
    outcome = memory.privacy.delete("s1", ["DEC-002", "plan"], reason="a test")
    assert outcome.actions[0].place == "archived"
    with pytest.raises(MemoryNotFound):
        memory.get("s1/DEC-002")
    assert b"Decision 2" not in (memory.root / "archived/s1/summary.yaml").read_bytes()
    memory.privacy.restore("s1", batch=outcome.batch)
    assert memory.get("s1/DEC-002").text == "Decision 2"
    assert memory.restore_session("s1").artifact("plan").text == "The plan of the login"


def test_what_was_deleted_in_the_archive_comes_back_after_it(
    memory: Memory, filled: Session
) -> None:
    memory.archive_session("s1")
    memory.privacy.delete("s1", ["DEC-002"], reason="a test")
    session = memory.restore_session("s1")
    session.restore("DEC-002")
    assert [record.id for record in session.records("decision")] == [
        "DEC-001",
        "DEC-002",
        "DEC-003",
        "DEC-004",
    ]


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


def test_another_memory_of_the_same_id_is_not_overwritten(memory: Memory, filled: Session) -> None:
    outcome = filled.delete("DEC-002", reason="a test")
    file = memory.root / "active/s1/decisions.yaml"
    file.write_bytes(
        file.read_bytes() + b"  - id: DEC-002\n    decision: Somebody else's\n    made_by: hand\n"
    )
    before = files(memory)
    with pytest.raises(Conflict):
        filled.restore_batch(outcome.batch)
    assert files(memory) == before


def test_an_id_that_stands_twice_is_not_deleted(memory: Memory, filled: Session) -> None:
    file = memory.root / "active/s1/decisions.yaml"
    file.write_bytes(
        file.read_bytes() + b"  - id: DEC-002\n    decision: A double\n    made_by: hand\n"
    )
    before = files(memory)
    with pytest.raises(CorruptionDetected, match="more than once"):
        filled.delete("DEC-002", reason="a test")
    assert files(memory) == before


def test_an_unlocked_edit_while_deleting_is_kept_and_reported(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smp_client.disk import journal

    record = journal.record

    def edited(scope: Any, steps: Any) -> str:
        file = memory.root / "active/s1/decisions.yaml"
        file.write_bytes(file.read_bytes().replace(b"Decision 2", b"Decision 2, changed by hand"))
        return record(scope, steps)

    monkeypatch.setattr(journal, "record", edited)
    outcome = filled.delete(["DEC-002", "DEC-003"], reason="a test")
    assert any("DEC-002 was changed" in problem for problem in outcome.problems)
    assert [record.text for record in filled.records("decision")] == [
        "Decision 1", "Decision 2, changed by hand", "Decision 4",
    ]  # fmt: skip


def test_comments_below_a_record_go_and_come_with_it(memory: Memory, filled: Session) -> None:
    file = memory.root / "active/s1/decisions.yaml"
    at = file.read_bytes().index(b"  - id: DEC-003")
    file.write_bytes(
        file.read_bytes()[:at] + b"    # about the second\n\n" + file.read_bytes()[at:]
    )
    filled.delete("DEC-002", reason="a test")
    assert b"about the second" not in file.read_bytes()
    filled.restore("DEC-002")
    assert b"    # about the second\n\n  - id: DEC-003" in file.read_bytes()


def test_a_file_in_another_style_is_rendered_plain_and_kept_in_quarantine(
    memory: Memory, filled: Session
) -> None:
    file = memory.root / "active/s1/learnings.yaml"
    odd = b'{"version": 1, "learnings": [{"id": "LEARN-001", "learning": "One", "learned_by": "a"},' \
          b' {"id": "LEARN-002", "learning": "Two", "learned_by": "a"}]}\n'  # fmt: skip
    file.write_bytes(odd)
    filled.delete("LEARN-001", reason="a test")
    assert [record.id for record in filled.records("learning")] == ["LEARN-002"]
    assert file.read_bytes().startswith(b"version: 1\n")
    assert odd in [path.read_bytes() for path in (memory.root / "quarantine/s1").glob("*.bytes")]
    filled.restore("LEARN-001")
    assert [record.id for record in filled.records("learning")] == ["LEARN-001", "LEARN-002"]


def test_wrong_calls_say_what_is_wrong_and_change_nothing(memory: Memory, filled: Session) -> None:
    before = files(memory)
    with pytest.raises(MemoryNotFound):
        filled.delete("DEC-099", reason="a test")
    with pytest.raises(Invalid):
        filled.delete("metadata", reason="a test")
    with pytest.raises(Invalid):
        filled.delete(reason="a test")
    with pytest.raises(Invalid):
        filled.delete("DEC-001", topic="odd", reason="a test")
    with pytest.raises(Invalid):
        filled.delete("DEC-001", reason="  ")
    with pytest.raises(SessionNotFound):
        memory.privacy.delete("nowhere", ["DEC-001"], reason="a test")
    with pytest.raises(MemoryNotFound):
        filled.restore("DEC-001")
    with pytest.raises(MemoryNotFound):
        memory.privacy.restore_batch("20260101T000000-abcdef")
    with pytest.raises(Invalid):
        memory.privacy.restore("s1")
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
    filled.restore_batch(outcome.batch)
    log = (memory.root / "audit.log").read_text()
    assert log.count('"by": "vera"') == 1
    assert '"action": "restore"' in log
    assert "Decision 2" not in log


def test_a_deleted_memory_says_how_it_comes_back(filled: Session) -> None:
    filled.delete("DEC-002", reason="a test")
    with pytest.raises(MemoryNotFound, match="smp restore s1 DEC-002"):
        filled.get("DEC-002")
