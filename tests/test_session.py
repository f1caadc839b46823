"""A session's tree, every kind of memory, and reading it back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from earlier import earlier_states

from smp_client import Conflict, Memory, MemoryNotFound, Session, SessionNotFound

AT = datetime(2026, 1, 11, 14, 30, 5, tzinfo=UTC)


def folder(session: Session) -> Path:
    return session.memory.root / session.scope.directory


def on_disk(session: Session, file: str) -> object:
    return yaml.safe_load((folder(session) / file).read_text())


def test_a_new_session_has_the_whole_tree_and_all_its_metadata(memory: Memory) -> None:
    session = memory.create_session(
        id="s", user="user-123", project="Shop", phase="requirements", topic="auth", tags=["oauth"],
        agents=["veritas"], client="acme",
    )  # fmt: skip
    assert {str(path.relative_to(folder(session))) for path in folder(session).rglob("*")} == {
        "metadata.yaml", "conversation.md", "decisions.yaml", "findings.yaml", "preferences.yaml",
        "learnings.yaml", "relationships.yaml", "agent-states", "artifacts", "inbox", "indexes",
    }  # fmt: skip
    metadata = session.metadata()
    agent = {"agent_id": "veritas", "message_count": 0, "last_active": metadata["created_at"]}
    expected = {
        "id": "s", "status": session.state,
        "storage": {"total_bytes": 0, "quota_bytes": 10485760, "utilization_pct": 0.0, "last_compaction": None},
        "participants": {"user_id": "user-123", "agents": [agent]},
        "context": {"project_name": "Shop", "project_phase": "requirements", "primary_topic": "auth",
                    "tags": ["oauth"], "client": "acme"},
    }  # fmt: skip
    assert metadata | expected == metadata
    assert {*metadata["decay"]} == {"base_priority", "current_priority", "decay_rate", "last_decay_update"}  # type: ignore[misc]


def test_sessions_are_listed_and_found_again(memory: Memory, session: Session) -> None:
    memory.create_session(id="second").update_metadata(status="idle")
    assert {one.id for one in Memory(memory.root).sessions()} == {"s1", "second"}
    assert [one.id for one in memory.sessions(state="idle")] == ["second"]
    assert memory.session("second").state == "idle"
    with pytest.raises(Conflict):
        memory.create_session(id="s1")
    with pytest.raises(SessionNotFound, match="nobody"):
        memory.session("nobody")


def test_a_dropped_directory_without_metadata_is_a_session(memory: Memory, session: Session) -> None:
    """Its record files are read, and files it lacks are made when something is recorded."""
    dropped = memory.root / "active/dropped"
    dropped.mkdir()
    (dropped / "decisions.yaml").write_text("decisions:\n- {id: DEC-007, decision: By hand}\n")
    other = memory.session("dropped")
    assert other.get("DEC-007").text == "By hand"
    assert other.record_decision("Another", made_by="me").id == "DEC-008"
    assert other.record_finding("First", discovered_by="me").id == "FIND-001"
    assert [record.id for record in other.records("decision")] == ["DEC-007", "DEC-008"]


def test_a_turn_is_markdown_that_a_person_can_read(session: Session) -> None:
    session.add_turn("user", "Let's review.", timestamp=AT)
    refs = ["FIND-001", "FIND-002"]
    turn = session.add_turn("veritas", "I see two concerns.", memory_refs=refs, tags=["mfa"], timestamp=AT, mood="calm")
    assert turn.id == "turn-2"
    text = (folder(session) / "conversation.md").read_text()
    assert "## Turn 1 - 2026-01-11 14:30:05\n**Speaker:** user\n**Type:** message\n\nLet's review.\n\n---\n" in text
    assert "**Memory-Refs:** [FIND-001, FIND-002]\n" in text
    read = session.get("turn-2")
    assert (read.type, read.text, read.tags, read.timestamp) == ("turn", "I see two concerns.", ["mfa"], AT)
    assert read.data["memory_refs"] == ["FIND-001", "FIND-002"]
    assert read.data["mood"] == "calm"
    assert read.data["decay"]["access_count"] == 0
    assert [turn.id for turn in session.turns(last=1)] == ["turn-2"]
    assert session.turns(last=0) == []


def test_a_decision_keeps_all_its_fields(session: Session) -> None:
    fields = {
        "rationale": "Industry standard", "agreed_by": ["bmad-master"], "agents_involved": ["veritas"], "turn_ref": 8,
        "reversible": False,
        "alternatives_considered": [{"option": "Cookies", "rejected_because": "Not for an API"}], "confidence": "high",
        "implementation_impact": "high", "further": {"deep": [1, 2.5, None, True]},
    }  # fmt: skip
    record = session.record_decision("Use OAuth", made_by="architect", tags=["security"], timestamp=AT, **fields)  # type: ignore[arg-type]
    assert record == session.get("DEC-001")
    assert record.data | fields == record.data
    assert record.priority == 0.95
    assert on_disk(session, "decisions.yaml") == {"version": 1, "decisions": [record.data]}
    assert record.data["decay"] == {
        "priority": 0.95, "last_accessed": "2026-01-11T14:30:05Z", "access_count": 0, "base_priority": 0.95,
    }  # fmt: skip


def test_a_finding_is_open_until_it_is_resolved(session: Session) -> None:
    location = {"artifact": "/docs/requirements.md", "section": "3.2", "line_numbers": [45, 60]}
    found = session.record_finding("No MFA", discovered_by="veritas", severity="critical", location=location)
    assert found.data["resolution"] == {"status": "open"}
    session.resolve_finding(found.id, resolved_by="user", action_taken="Added", verification="abc123")
    read = session.get(found.id).data
    resolution = {"status": "resolved", "action_taken": "Added", "verification": "abc123"}
    assert read["resolution"] | resolution == read["resolution"]
    assert read["location"] == location


def test_preferences_learnings_and_relationships(session: Session) -> None:
    pref = session.record_preference("MFA for admins", confidence="explicit", applies_to={"projects": ["*"]})
    learn = session.record_learning("Check MFA in all auth sections", learned_by="veritas")
    relation = session.relate(pref.id, learn.id, "led_to")
    assert session.get("PREF-001").data["applies_to"] == {"projects": ["*"]}
    assert session.get("LEARN-001").text == "Check MFA in all auth sections"
    assert on_disk(session, "relationships.yaml")["memory_relationships"] == [relation.data]  # type: ignore[index]
    assert (relation.data["source"], relation.data["target"]) == ("PREF-001", "LEARN-001")


def test_an_update_replaces_fields_and_None_takes_one_out(session: Session) -> None:
    session.record_decision("A", made_by="x", rationale="because", draft=True)
    session.update("DEC-001", confidence="medium", rationale=None, extra=[1])
    assert session.pin("DEC-001").pinned
    assert not session.unpin("DEC-001").pinned
    changed = session.get("DEC-001").data
    assert (changed["confidence"], changed["extra"], changed["draft"]) == ("medium", [1], True)
    assert "rationale" not in changed
    assert "updated_at" in changed


def test_agent_state_is_merged_and_its_history_kept(session: Session) -> None:
    session.save_agent_state("veritas", {"current_context": {"task": 1}, "session_learnings": ["a"]})
    session.save_agent_state("veritas", {"current_context": {"task": 2}})
    state = session.agent_state("veritas")
    merged = {"agent_id": "veritas", "session_id": "s1", "current_context": {"task": 2}, "session_learnings": ["a"]}
    assert state | merged == state
    assert [old["current_context"] for old in earlier_states(session, "veritas")] == [{"task": 1}]
    assert session.agent_states() == ["veritas"]
    assert session.agent_state("nobody") == {}


def test_an_artifact_comes_back_byte_for_byte(session: Session) -> None:
    text = "---\ntitle: mine\n---\n\r\n# Report \n\n---\n"
    session.save_artifact("report-1", text, created_by="veritas", tags=["x"])
    assert session.artifact("report-1").text == text
    assert session.artifact("report-1").data["created_by"] == "veritas"
    session.save_artifact("report-1", "second")
    assert session.artifact("report-1").text == "second"
    assert session.artifacts() == ["report-1"]
    with pytest.raises(MemoryNotFound):
        session.artifact("other")


def test_global_memory_is_written_and_read_the_same_way(memory: Memory) -> None:
    everywhere = memory.everywhere
    pref = everywhere.record_preference("Short answers", confidence="explicit", tags=["style"])
    pattern = everywhere.record_pattern("Reviews forget timeouts", learned_by="veritas")
    everywhere.save_profile(name="Kim", languages=["en"])
    everywhere.save_profile(languages=["en", "de"])
    again = Memory(memory.root).everywhere
    assert again.get(pref.id).text == "Short answers"
    assert again.get(pattern.id).type == "pattern"
    assert again.profile() == {"name": "Kim", "languages": ["en", "de"]}
    everywhere.update(pref.id, confidence="inferred")
    assert [record.data["confidence"] for record in again.records("preference")] == ["inferred"]
