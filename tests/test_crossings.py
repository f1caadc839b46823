"""What happens when two things cross: a drop and its successor, a failing write and a shell, an intent and another session."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from smp_client import Memory, Session, StorageFailed, TransactionPending
from smp_client.disk import append, journal
from smp_client.model.record import DECISION
from smp_client.passes import check
from smp_daemon.ingest import inbox


def path_of(session: Session, file: str) -> Path:
    return Path(session.scope.tree.root, session.scope.directory, file)


def take_all(session: Session) -> list[str]:
    return [drop.outcome for drop in inbox.take_in(session, inbox.waiting(session))]


def test_a_drop_that_came_under_the_same_name_is_another_drop(session: Session) -> None:
    """The one that was read goes with the transaction, the new one stays. With the inode alone, looked up by name after
    reading, the new one was removed unread."""
    drop = path_of(session, "inbox/a.yaml")
    drop.write_text("first")
    read = drop.stat()
    with session.transaction() as tx:
        tx.record(DECISION, {"decision": "first", "made_by": "a"})
        tx.remove_drop("inbox/a.yaml", read)
        (drop.parent / ".new").write_text("second")
        (drop.parent / ".new").rename(drop)
    assert drop.read_text() == "second"
    assert [record.text for record in session.records("decision")] == ["first"]


def test_two_bad_drops_of_one_name_are_both_kept(session: Session) -> None:
    for text in ("first", "second"):
        path_of(session, "inbox/a.yaml").write_text(text)
        assert take_all(session) == ["rejected"]
    rejected = path_of(session, "inbox/rejected")
    assert {file.read_text() for file in rejected.glob("*.yaml")} == {"first", "second"}


def test_a_drop_that_does_not_fit_waits_and_uses_up_no_number(session: Session) -> None:
    session.update_metadata(storage={"quota_bytes": session.size().total_bytes + 200})
    path_of(session, "inbox/a.yaml").write_text(f"type: finding\nfinding: {'x' * 500}\ndiscovered_by: a\nseverity: low\n")
    for _ in range(3):
        assert take_all(session) == ["waiting"]
    session.update_metadata(storage={"quota_bytes": 10_000_000})
    assert take_all(session) == ["taken"]
    assert [record.id for record in session.records("finding")] == ["FIND-001"]


def test_taking_back_a_failed_write_leaves_what_somebody_else_wrote(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell appends just before our write fails: its record stays. Taking back by length alone cut it off."""
    session.record_decision("before", made_by="a")

    def fail(descriptor: int, content: bytes) -> None:
        with path_of(session, "decisions.yaml").open("a") as shell:
            shell.write("  - {id: DEC-050, decision: theirs}\n")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(append, "write_all", fail)
        with pytest.raises(StorageFailed):
            session.record_decision("ours", made_by="a")
    assert [record.text for record in session.records("decision")] == ["before", "theirs"]


def test_an_intent_of_a_removed_session_is_not_for_its_namesake(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(journal, "carry_out", _fail)
        with pytest.raises(TransactionPending), session.transaction() as tx:
            tx.record_decision("of the removed one", made_by="a")
    path_of(session, "").rename(memory.root / "moved-away")
    again = memory.create_session(id="s1")
    assert again.records("decision") == []
    assert any("of the removed one" in file.read_text() for file in (memory.root / "quarantine/s1").iterdir())


def test_a_damaged_intent_is_set_aside_and_the_session_goes_on(memory: Memory, session: Session) -> None:
    (memory.root / ".smp/journal" / "s1+x.json").write_bytes(b'{"steps": []}\n12345')
    session.record_decision("goes on", made_by="a")
    assert session.get("DEC-001").text == "goes on"
    assert list((memory.root / ".smp/journal").iterdir()) == []
    assert any(file.read_bytes().endswith(b"12345") for file in (memory.root / "quarantine/s1").glob("*.bytes"))


def test_a_half_record_stays_hidden_when_somebody_appends_behind_it(session: Session) -> None:
    with path_of(session, "decisions.yaml").open("a") as file:
        file.write("  - id: DEC-001 # smp\n    decision: half\n")
        file.write("  - {id: DEC-002, decision: theirs}\n")
    assert [record.text for record in session.records("decision")] == ["theirs"]
    assert [problem.problem for problem in session.problems()] == ["the record was cut off while it was written"]
    assert session.record_decision("next", made_by="a").id == "DEC-003"


@pytest.mark.parametrize("note", [{"size": 10}, {"last": "x"}, {"last": None, "size": 1, "checksum": 2, "indent": 3}, {"file": 5}])
def test_a_note_in_a_lock_file_may_be_anything(memory: Memory, session: Session, note: object) -> None:
    session.record_decision("A", made_by="a")
    (memory.root / ".smp/locks/s1/decisions.yaml.lock").write_text(json.dumps({"note": note}))
    assert session.record_decision("B", made_by="a").id == "DEC-002"


def test_a_name_that_is_not_utf8_is_named_by_check_and_left_out(memory: Memory, session: Session) -> None:
    from daemons import index_contents, smp

    directory = os.fsencode(path_of(session, "artifacts"))
    with open(os.path.join(directory, b"\xff.md"), "w") as file:
        file.write("text")
    assert smp("sync", "--root", memory.root).returncode == 0
    assert index_contents(memory.root)["memories"] == []
    assert [complaint.problem for complaint in check.check(memory)] == ["no memory can have this name"]


def test_check_names_doubles_and_a_silent_change(memory: Memory, session: Session) -> None:
    """Two records of one id are called that; a byte that changed while the file's times did not is called a failing disk."""
    from daemons import smp

    session.record_decision("A", made_by="a")
    session.record_finding("F", discovered_by="a")
    with path_of(session, "decisions.yaml").open("a") as file:
        file.write("  - {id: DEC-001, decision: again}\n")
    smp("sync", "--root", memory.root)
    assert [complaint.problem for complaint in check.check(memory)] == ["2 records have the id DEC-001, on the lines 3 and 9"]
    index = memory.root / ".smp/index.db"
    import sqlite3

    with sqlite3.connect(index) as connection:
        connection.execute("UPDATE memories SET hash = 'other' WHERE id = 'FIND-001'")
    connection.close()
    assert "FIND-001 has changed although the file was not written" in [complaint.problem for complaint in check.check(memory)]


def _fail(*_: object) -> None:
    raise OSError(28, "No space left on device")
