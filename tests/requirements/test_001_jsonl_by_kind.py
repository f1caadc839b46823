"""Document 001, JSON lines by kind: its own data and calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from smp_client import Invalid, Memory
from smp_client.disk.session_files import agents_of


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
