"""Document 001, JSON lines by kind: its own data and calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from smp_client import Invalid, Memory
from smp_client.disk.session_files import agents_of
from smp_daemon.config.file import load


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


def test_10_2_create_session_by_the_names_of_the_document(memory: Memory) -> None:
    session = memory.create_session(
        user_id="user-789",
        agent_ids=["bmad-master", "architect"],
        metadata={"project_name": "payment-system", "session_type": "architecture_review"},
        session_id="sess-2026-01-11-abc123",
    )
    assert session.id == "sess-2026-01-11-abc123"
    metadata = session.metadata()
    participants = metadata["participants"]
    assert isinstance(participants, dict)
    assert participants["user_id"] == "user-789"
    assert [one["agent_id"] for one in agents_of(metadata)] == ["bmad-master", "architect"]
    assert metadata["context"] == {
        "project_name": "payment-system",
        "session_type": "architecture_review",
        "tags": [],
    }
    message = {"agent_id": "architect", "role": "assistant", "content": "PostgreSQL, for ACID."}
    about = {"conversation_id": "conv-xyz", "topic": "database_selection"}
    turn = memory.add_memory(session.id, {"type": "conversation", **message, "context": about})
    assert session.get(turn).data["speaker"] == "architect"
    assert session.get(turn).data["role"] == "assistant"


def test_10_2_a_misspelt_argument_is_refused(memory: Memory) -> None:
    with pytest.raises(Invalid, match=r"no field 'projet' .did you mean 'project'"):
        memory.create_session(projet="payment-system")
    with pytest.raises(Invalid, match="'user' and 'user_id' are one argument"):
        memory.create_session("user-1", user_id="user-2")
    session = memory.create_session(customer="Contoso")
    assert session.metadata()["context"] == {"customer": "Contoso", "tags": []}


def test_3_1b_statistics_of_a_session(memory: Memory) -> None:
    session = memory.create_session(user_id="user-789")
    for number in range(3):
        session.add_turn("architect", f"Message {number}")
    session.record_decision("PostgreSQL", made_by="architect")
    session.record_finding("No pool", discovered_by="analyst", severity="high")
    found = memory.statistics(session.id)
    assert (found.total_messages, found.total_decisions, found.total_findings) == (3, 1, 1)
    assert found.size_bytes == session.size().total_bytes
    other = memory.create_session(user_id="user-790")
    other.add_turn("analyst", "Another one")
    every = memory.statistics()
    assert (every.sessions, every.total_messages, every.total_decisions) == (2, 4, 1)
    assert every.size_bytes == found.size_bytes + other.size().total_bytes


def test_8_3_3_the_sizes_of_an_archive(memory: Memory) -> None:
    session = memory.create_session("user-789")
    session.add_turn("architect", "PostgreSQL, for ACID. " * 500)
    size = sum(one.stat().st_size for one in (memory.root / "active" / session.id).glob("*.*"))
    memory.archive_session(session.id)
    home = memory.root / "archived" / session.id
    summary = yaml.safe_load((home / "summary.yaml").read_text())["archive"]
    assert summary["original_size_bytes"] == size
    packed = (home / "archive.tar.gz").stat().st_size
    assert summary["compressed_size_bytes"] == packed < size


def test_9_1_5_decay_can_be_turned_off(tmp_path: Path) -> None:
    """Also 004 7.1.3."""
    file = tmp_path / "smp.yaml"
    file.write_text("decay:\n  enabled: false\n")
    options = load(file).options
    later = datetime.now(UTC) + timedelta(days=300)
    memory = Memory(tmp_path / "sessions", **options)
    session = memory.create_session("user-789")
    session.record_decision("PostgreSQL", made_by="architect")
    aged = session.with_options(clock=lambda: later)
    assert aged.get("DEC-001", count_access=False).priority == 0.95
