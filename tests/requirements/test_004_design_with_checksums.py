"""Document 004, the design with checksums: its own data and calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from daemons import running, smp, wait_until

from smp_client import Memory, Record, Session


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


def test_3_1_2_importance_counts(memory: Memory) -> None:
    session = memory.create_session("user123")
    low = session.record_decision("A detail", made_by="a", importance=0.05)
    high = session.record_decision("The base", made_by="a", importance=0.85)
    assert low.data["decay"]["base_priority"] == 0.05
    found = session.search(types=["decision"], sort="importance")
    assert [one.id for one in found] == [high.id, low.id]


def test_3_2_2_preferences_of_a_session_are_used(tmp_path: Path) -> None:
    home = tmp_path / "memory" / "sessions" / "sess_20260110_user123"
    home.mkdir(parents=True)
    preferences = {"language": "en", "verbosity": "medium", "custom": {}}
    about: dict[str, object] = {
        "session_id": home.name,
        "user_id": "user123",
        "preferences": preferences,
    }
    (home / "metadata.json").write_text(json.dumps(about))
    entry: dict[str, object] = {
        "id": "mem_001",
        "session_id": home.name,
        "timestamp": "2026-01-10T10:00:00Z",
    }
    entry |= {"type": "conversation", "content": {"role": "user", "message": "Hello"}}
    (home / "memory.jsonl").write_text(f"{json.dumps(entry)}\n")
    memory = Memory(tmp_path / "sessions")
    memory.exchange.import_(tmp_path / "memory")
    found = {one.data["topic"] for one in memory.by_type("preference")}
    assert {"language", "verbosity"} <= found


@pytest.fixture
def tagged(memory: Memory) -> Session:
    session = memory.create_session("user123")
    for text, tags in (
        ("Authorization by roles", ["security", "oauth2"]),
        ("The deprecated grant", ["security", "deprecated"]),
        ("Log in twice", ["security.authentication"]),
    ):
        session.record_decision(text, made_by="architect", tags=tags, importance=0.8)
    session.record_finding("A typo", discovered_by="a", severity="info", tags=["security"])
    return session


def texts(found: Sequence[Record]) -> set[str]:
    return {one.text for one in found}


def test_4_3_2_wildcards(tagged: Session) -> None:
    for pattern in ("auth*", "*ization", "author*tion"):
        assert "Authorization by roles" in texts(tagged.search(pattern)), pattern
    assert texts(tagged.search("depr?cated")) == {"The deprecated grant"}


def test_4_3_3_an_exact_tag(tagged: Session) -> None:
    decisions = tagged.search(tags=["security"], types=["decision"])
    assert len(decisions) == 3
    exact = tagged.search(tags=["security"], types=["decision"], exact_tags=True)
    assert texts(exact) == {"Authorization by roles", "The deprecated grant"}


def test_4_3_4_tags_with_and_and_or(tagged: Session) -> None:
    both = tagged.search(all_tags=["security", "oauth2"])
    assert texts(both) == {"Authorization by roles"}
    either = tagged.search(tags=["oauth2", "deprecated"])
    assert texts(either) == {"Authorization by roles", "The deprecated grant"}


def test_6_2_2_tags_to_include_and_to_exclude(tagged: Session) -> None:
    """Also 004 6.2.3."""
    found = tagged.search(
        types=["decision", "finding"],
        tags=["security"],
        without_tags=["deprecated"],
        min_importance=0.7,
        sort="relevance",
        limit=10,
    )
    assert texts(found) == {"Authorization by roles", "Log in twice"}


def test_5_3_4_an_answer_warns_of_records_it_left_out(tagged: Session) -> None:
    file = tagged.memory.root / "active" / tagged.id / "decisions.yaml"
    file.write_text(file.read_text().replace("decision: The deprecated", "decision: [The", 1))
    found = tagged.search("authorization")
    assert texts(found) == {"Authorization by roles"}
    assert found.note
    assert "decisions.yaml" in found.note


# Metrics and the log. The names of the document are those of another system.
METRICS = {
    "15.1.1 memory.sessions.active": "smp_tree_sessions",
    "15.1.1 memory.entries.total": "smp_memories",
    "15.1.2 memory.size.bytes": "smp_bytes",
    "15.1.3 memory.operations.write.duration_ms": "smp_write_seconds",
    "15.1.3 memory.operations.query.duration_ms": "smp_query_seconds",
    "15.1.4 memory.locks.contention.count": "smp_lock_timeouts_total",
    "15.1.5 memory.compaction.count": "smp_compactions_total",
    "15.1.6 memory.errors.corruption.count": "smp_corruption_errors_total",
}


def test_15_1_1_every_metric_of_the_document(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also 004 15.1.2, 004 15.1.3, 004 15.1.5, 004 15.1.6."""
    monkeypatch.setattr("smp_daemon.gauges.EVERY_S", 0.1)
    session = memory.create_session("user123")
    with running(memory.root, log=tmp_path / "log"):
        session.record_decision("PKCE", made_by="architect")

        def counted() -> str:
            said = smp("status", "--root", memory.root, "--prometheus").stdout
            return said if re.search(r'smp_memories\{\w+="decision"\} 1', said) else ""

        page = wait_until(counted, "the metrics count the decision")
    missing = {name for name, ours in METRICS.items() if f"# TYPE {ours} " not in page}
    assert missing == set()


def test_15_2_1_lines_of_the_log_are_json(memory: Memory, tmp_path: Path) -> None:
    """Also 004 15.2.5."""
    session = memory.create_session("user123")
    session.record_decision("PKCE", made_by="architect")
    file = memory.root / "active" / session.id / "decisions.yaml"
    with running(memory.root, log=tmp_path / "log") as daemon:
        file.write_text(file.read_text().replace("decision: PKCE", "decision: [PKCE", 1))

        def errors() -> list[dict[str, object]]:
            lines = [line for line in daemon.lines() if line["level"] == "error"]
            return [line for line in lines if line.get("session_id") == session.id]

        line = wait_until(errors, "the broken file is an error in the log")[0]
        assert {"timestamp", "level", "component", "session_id", "message"} <= line.keys()
