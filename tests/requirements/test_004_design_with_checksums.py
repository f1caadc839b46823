"""Document 004, the design with checksums: its own data and calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemons import running, wait_until

from smp_client import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions")


def test_4_1_3_add_memory_gives_the_id(memory: Memory) -> None:
    session = memory.create_session("user123")
    asked = memory.add_memory(
        session.id,
        {
            "type": "conversation",
            "content": {"role": "user", "message": "How does one do OAuth2?"},
            "importance": 0.8,
            "tags": ["oauth2", "authentication"],
        },
    )
    decided = memory.add_memory(
        session.id,
        {
            "type": "decision",
            "content": {
                "decision": "Authorization Code for the web",
                "rationale": "The server keeps the secret",
                "alternatives": ["Implicit flow", "PKCE"],
            },
            "importance": 0.9,
            "tags": ["oauth2", "security", "architecture"],
            "references": [asked],
        },
    )
    assert (asked, decided) == ("turn-1", "DEC-001")
    assert {one.id for one in session.by_topic("oauth2")} == {asked, decided}
    decision = session.get(decided).data
    assert decision["alternatives"] == ["Implicit flow", "PKCE"]
    assert decision["decay"]["base_priority"] == 0.9
    assert decision["made_by"] == "unknown"
    assert session.turns()[0].data["speaker"] == "user"


def test_4_1_2_close_session(memory: Memory) -> None:
    session = memory.create_session("user123")
    memory.close_session(session.id)
    assert session.state == "idle"
    assert memory.search("anything") == []


def test_3_2_3_statistics_by_type_stand_in_the_metadata(memory: Memory, tmp_path: Path) -> None:
    session = memory.create_session("user123")
    with running(memory.root, log=tmp_path / "log"):
        session.add_turn("user", "How does one do OAuth2?")
        session.record_decision("PKCE", made_by="architect")
        wanted = {"conversations": 1, "decisions": 1, "findings": 0, "preferences": 0}
        wait_until(
            lambda: session.metadata().get("statistics") == wanted, "the metadata count by type"
        )
