"""A record that cannot be read is never "no memory", and an answer without it says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemons import running, smp, wait_until

from smp_client import CorruptionDetected, Memory, MemoryNotFound, Session


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", project="atlas")
    for number in range(1, 4):
        session.record_decision(f"Decision {number}", made_by="architect")
    session.add_turn("ada", "A turn")
    return session


def file(session: Session) -> Path:
    return session.memory.root / "active" / session.id / "decisions.yaml"


def spoil(session: Session, text: str = "Decision 2") -> None:
    path = file(session)
    path.write_text(path.read_text().replace(text, f'"{text}'))


def test_get_of_a_broken_record_raises_corruption(memory: Memory, session: Session) -> None:
    spoil(session)
    for get in (session.get, memory.get, lambda name: memory.get(f"s1/{name}")):
        with pytest.raises(CorruptionDetected, match=r"decisions\.yaml") as raised:
            get("DEC-002")
        assert raised.value.code == "MEM_E003"
    with pytest.raises(CorruptionDetected, match=r"decisions\.yaml, line "):
        session.update("DEC-002", decision="Another")
    said = smp("show", "--root", memory.root, "s1", "DEC-002")
    assert said.returncode != 0
    assert "cannot be read" in said.stderr


def test_an_id_of_another_kind_or_a_deleted_memory_is_not_corrupt(
    memory: Memory, session: Session
) -> None:
    session.delete("DEC-001", reason="not needed")
    spoil(session)
    with pytest.raises(MemoryNotFound, match="no memory"):
        session.get("FIND-001")
    with pytest.raises(MemoryNotFound, match="was deleted"):
        session.get("DEC-001")


def test_an_answer_without_records_that_cannot_be_read_says_so(
    memory: Memory, session: Session
) -> None:
    assert memory.search("Decision").note is None
    spoil(session)
    said = "1 record of s1/decisions.yaml cannot be read"
    for answer in (
        memory.search("Decision"),
        session.search("Decision"),
        session.by_type("decision"),
        memory.query({"limit": 5}),
        memory.context(project="atlas"),
    ):
        assert said in str(answer.note), answer
    assert memory.by_type("turn").note is None
    assert said in smp("search", "--root", memory.root, "Decision").stderr
    assert said in smp("context", "--root", memory.root, "--all").stderr


def test_the_daemon_logs_an_unreadable_file_once_for_each_change(
    memory: Memory, session: Session, tmp_path: Path
) -> None:
    with running(memory.root, log=tmp_path / "log") as daemon:
        spoil(session)
        (line,) = wait_until(lambda: daemon.said("unreadable"), "the log names the file")
        assert (line["level"], line["session_id"], line["file"]) == (
            "error",
            "s1",
            "decisions.yaml",
        )
        session.add_turn("ada", "Another file changes")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert len(daemon.said("unreadable")) == 1
        spoil(session, "Decision 3")
        wait_until(lambda: len(daemon.said("unreadable")) == 2, "the log names it again")
