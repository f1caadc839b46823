"""A program that has a file of a session open while that is put away, brought back, and put away again: nothing is lost, doubled,
overwritten or brought back by what it still writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import pytest

from smp_client import Memory, Session
from smp_client.maintain import leaving
from smp_client.tidy import tidy

LATE = b"  - id: late-one\n    decision: written late\n    made_by: somebody\n"
Step = Callable[[Memory], Any]
AWAY: dict[str, Step] = {
    "archive": lambda memory: memory.archive_session("s1"), "delete": lambda memory: memory.delete_session("s1", reason="r"),
}  # fmt: skip
BACK: dict[str, Step] = {
    "archive": lambda memory: memory.restore_session("s1"), "delete": lambda memory: memory.undelete_session("s1"),
}


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "GRACE_S", -1.0)
    monkeypatch.setattr("smp_client.rewrite.GRACE_S", -1.0)


@pytest.fixture
def opened(session: Session, memory: Memory) -> IO[bytes]:
    """Of the decisions, by a program that has not written yet."""
    session.record_decision("the first", made_by="architect")
    return (memory.root / "active/s1/decisions.yaml").open("ab", buffering=0)


def everything(memory: Memory) -> str:
    """What the session says, and what was set aside."""
    tidy(memory)
    said = [record.text for record in memory.session("s1").records("decision")]
    return " | ".join([*said, *(path.read_text() for path in sorted((memory.root / "quarantine").rglob("*.bytes")))])


@pytest.mark.parametrize("second", AWAY)
@pytest.mark.parametrize("first", AWAY)
def test_what_is_written_between_is_kept_with_what_came_late(memory: Memory, opened: IO[bytes], first: str, second: str) -> None:
    """Put away, brought back, written to, and put away again. (The late line took the newer copy's place, and what was acknowledged
    between was gone; or nothing could be done with the session any more.)"""
    AWAY[first](memory)
    BACK[first](memory)
    memory.session("s1").record_decision("acknowledged", made_by="architect")
    AWAY[second](memory)
    opened.write(LATE)
    opened.close()
    BACK[second](memory)
    said = everything(memory)
    assert [said.count(text) for text in ("the first", "acknowledged", "written late")] == [1, 1, 1]


@pytest.mark.parametrize("away", AWAY)
def test_what_was_purged_between_does_not_come_back(memory: Memory, opened: IO[bytes], away: str) -> None:
    memory.session("s1").record_decision("to be purged", made_by="architect")
    AWAY[away](memory)
    BACK[away](memory)
    memory.purge_now("s1", ["DEC-002"])
    AWAY[away](memory)
    opened.write(LATE)
    opened.close()
    BACK[away](memory)
    said = everything(memory)
    assert [said.count(text) for text in ("the first", "to be purged", "written late")] == [1, 0, 1]


def test_a_line_that_is_only_half_written_is_not_taken_in_two_parts(memory: Memory, opened: IO[bytes]) -> None:
    """Somebody else may write in between, and neither part would be a record."""
    memory.archive_session("s1")
    opened.write(LATE[:20])
    memory.restore_session("s1")
    opened.write(LATE[20:])
    opened.close()
    memory.session("s1").record_decision("another", made_by="architect")
    said = everything(memory)
    assert [said.count(text) for text in ("the first", "another", "written late")] == [1, 1, 1]
    assert memory.session("s1").problems() == []


def test_a_file_that_somebody_has_locked_does_not_keep_a_session_from_coming_back(memory: Memory, opened: IO[bytes]) -> None:
    """What came late is brought in when the lock is free."""
    memory.archive_session("s1")
    opened.write(LATE)
    opened.close()
    (memory.root / "archived/s1/marker").touch()
    session = memory.restore_session("s1")
    late = (memory.root / "active/s1/decisions.yaml").open("ab", buffering=0)
    memory.archive_session("s1")
    memory.restore_session("s1")
    late.write(LATE.replace(b"late-one", b"late-two"))
    late.close()
    with session.scope.locked(["decisions.yaml"], "writing"):
        tidy(memory)
    assert everything(memory).count("written late") == 2
