"""Document 001, JSON lines by kind: its own data and calls."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from daemons import running, settings_file, wait_until

from smp_client import Invalid, Memory
from smp_client.disk.session_files import agents_of
from smp_client.model.times import parse_time
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


def test_3_4_the_status_of_a_finding(memory: Memory) -> None:
    session = memory.create_session(user_id="user-789")
    found = session.record_finding(
        "No pool of connections",
        discovered_by="analyst",
        category="scalability",
        severity="high",
        evidence="application.yml",
        recommendation="HikariCP with 50",
        status="resolved",
    )
    assert found.data["resolution"] == {"status": "resolved"}
    assert not session.get(found.id).holds


def test_7_2_2_a_deletion_is_audited_with_its_criteria(memory: Memory) -> None:
    session = memory.create_session(user_id="user-789")
    for tag in ("sensitive", "database"):
        session.add_turn("architect", "Something", tags=[tag], timestamp="2026-01-10T12:00:00Z")
    session.delete(
        types=["conversation"],
        since="2026-01-10T00:00:00Z",
        until="2026-01-10T23:59:59Z",
        tags=["sensitive"],
        reason="private",
    )
    assert [one.id for one in session.turns()] == ["turn-2"]
    line = json.loads((memory.root / "audit.log").read_text().splitlines()[-1])
    assert (line["action"], line["count"], line["reason"]) == ("delete", 1, "private")
    assert line["criteria"]["tags"] == ["sensitive"]
    assert line["criteria"]["since"] == "2026-01-10T00:00:00Z"
    assert line["at"]


# The patterns of the document: an address, a key of 32 or more, and a password.
PATTERNS = [
    {"type": "email", "regex": r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b"},
    {"type": "api_key", "regex": r"\b[A-Za-z0-9]{32,}\b"},
    {"type": "password", "regex": r"password[\s:=]+[^\s]+"},
]


def test_7_3_4_passwords_are_redacted(memory: Memory) -> None:
    session = memory.create_session(user_id="user-789")
    for text in ("password: geheim", "password hunter2", "password=geheim"):
        turn = session.add_turn("user", f"The {text} is for the test.")
        assert "geheim" not in turn.text
        assert "hunter2" not in turn.text


def test_7_3_5_own_patterns_are_regular_expressions(tmp_path: Path) -> None:
    """Also 001 7.3.6."""
    file = tmp_path / "smp.yaml"
    redaction = {"patterns": PATTERNS, "replacement": "[REDACTED]"}
    file.write_text(json.dumps({"redaction": redaction}))
    memory = Memory(tmp_path / "sessions", **load(file).options)
    session = memory.create_session(user_id="user-789")
    turn = session.add_turn("user", f"Ask anna@example.org for {'k3y' * 11}, password geheim.")
    assert turn.text == "Ask [REDACTED] for [REDACTED], [REDACTED]"


def test_9_1_9_settings_hold_for_every_client(tmp_path: Path) -> None:
    config = settings_file(tmp_path, quota_bytes=20_000_000, retention={"deleted_days": 7})
    root = tmp_path / "sessions"
    Memory(root).create()
    with running(root, log=tmp_path / "log", config=config):
        session = Memory(root).create_session(user_id="user-789")
        assert session.quota_bytes() == 20_000_000
        session.record_decision("PostgreSQL", made_by="architect")
        session.delete("DEC-001", reason="private")
        (gone,) = session.deleted()
        days = parse_time(gone.facts["until"]) - parse_time(gone.facts["at"])
        assert days == timedelta(days=7)


def test_16_4_what_says_the_same_is_noted(memory: Memory) -> None:
    """Merging is left to the agents of a party; everybody else is told."""
    session = memory.create_session(user_id="user-789")
    session.record_decision("Use PostgreSQL for the primary database", made_by="architect")
    again = session.record_decision("Use PostgreSQL for the primary database", made_by="analyst")
    assert [one.id for one in memory.alike(again).same] == ["DEC-001"]
    party = session.party()
    first = party.agent("veritas").record_finding("The pool is not configured at all")
    second = party.agent("analyst").record_finding("The pool is not configured at all")
    assert first.id == second.id


def test_4_3_2_a_compaction_is_logged_with_its_sizes(tmp_path: Path) -> None:
    session = Memory(tmp_path / "sessions").create_session("user-789", quota_bytes=100_000)
    while session.size().total_bytes < 85_000:
        session.add_turn("user", "It was said long ago. " * 50, timestamp="2025-06-01T10:00:00Z")
    with running(session.memory.root, log=tmp_path / "log") as daemon:
        (line,) = wait_until(lambda: daemon.said("compacted"), "it is compacted")
    assert line["before_size"] > line["after_size"] > 0
    assert line["removed_count"] > 0
