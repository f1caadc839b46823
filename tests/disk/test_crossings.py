"""What happens when two things cross: a drop and its successor, a failing write and a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Session, StorageFailed
from smp_client.disk import append
from smp_client.model.record import DECISION


def path_of(session: Session, file: str) -> Path:
    return Path(session.memory.root, session.scope.directory, file)


def test_a_drop_that_came_under_the_same_name_is_another_drop(session: Session) -> None:
    """The one that was read goes with the transaction, the new one stays."""
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


def test_taking_back_a_failed_write_leaves_what_somebody_else_wrote(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell appends just before our write fails: its record stays."""
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
