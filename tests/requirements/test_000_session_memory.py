"""Document 000, the main one: its own data and calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples import NOW

from smp_client import Invalid, InvalidQuery, Memory, MemoryNotFound, Session


def ids(found: list[object]) -> list[str]:
    return [str(getattr(one, "id", one)) for one in found]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("decay.priority", "priority"),
        ("relevance_desc", "relevance"),
        ("time_desc", "newest"),
        ("time_asc", "oldest"),
    ],
)
def test_4_1_12_sort_names(example: Session, theirs: str, ours: str) -> None:
    """Also 001 5.1.8."""
    found = example.by_topic("authentication", sort=theirs)
    assert ids([*found]) == ids([*example.by_topic("authentication", sort=ours)])
    assert len(found) > 3


def test_7_3_1_least_priority_and_sort_by_priority(example: Session) -> None:
    found = example.by_topic("authentication", min_priority=0.7, sort="decay.priority")
    priorities = [one.priority for one in found]
    assert priorities == sorted(priorities, reverse=True)
    assert min(priorities) >= 0.7


def test_6_4_4_the_modifications_of_a_transaction(example: Session) -> None:
    with example.transaction() as transaction:
        decision = transaction.record_decision("Tokens live ten minutes", made_by="architect")
        transaction.update("FIND-002", category="ambiguous_requirement")
        transaction.save_agent_state("veritas", {"current_context": {"current_phase": "PHASE_7"}})
        found = [(one.action, one.type, one.id) for one in transaction.get_modifications()]
        assert found == [
            ("add", "decision", decision.id),
            ("update", "finding", "FIND-002"),
            ("save", "agent_state", "veritas"),
        ]
        assert transaction.modifications()[0].fields["made_by"] == "architect"


def test_9_2_6_what_a_compaction_would_gain(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW)
    session = memory.create_session("user-123")
    for _ in range(20):
        session.add_turn("user", "What was said long ago. " * 20, timestamp="2025-11-01T10:00:00Z")
    gain = session.estimate_compaction()
    assert gain > 5000
    assert gain == session.compact(reduction_pct=100, dry_run=True).counts["bytes_freed"]
    assert len(session.turns()) == 20


def test_9_4_2_the_breakdown_by_component(example: Session) -> None:
    """The indexes stand beside the others, and do not count."""
    size = example.size()
    names = "conversation decisions findings preferences agent_states indexes artifacts"
    assert {*names.split()} <= size.components.keys()
    counted = sum(bytes for name, bytes in size.components.items() if name != "indexes")
    assert counted == size.total_bytes
    assert {"path", "size_bytes", "percentage"} == size.largest_files[0].keys()


def test_10_2_2_write_memory_by_its_type(example: Session) -> None:
    """Also 000 AppB.2b."""
    record = example.record("decision", {"decision": "Keep the logs", "made_by": "architect"})
    assert (record.id, record.type) == ("DEC-003", "decision")
    found = {"type": "finding", "finding": "No limit of attempts", "discovered_by": "veritas"}
    assert example.write_memory({**found, "severity": "critical"}) == "FIND-003"
    assert example.get("FIND-003").data["resolution"] == {"status": "open"}
    with example.transaction() as transaction:
        for text in ("No captcha", "No lock"):
            decay = {"priority": 1.0, "access_count": 0}
            transaction.write_memory({**found, "finding": text, "decay": decay})
        done = {"type": "decision", "decision": "Verified: 2 findings", "made_by": "veritas"}
        transaction.write_memory({**done, "decay": {"priority": 0.95, "access_count": 0}})
        transaction.save_agent_state("veritas", {"last_verification": NOW})
    assert example.get("DEC-004").data["decay"]["priority"] == 0.95
    assert len(example.records("finding")) == 5
    state = {"type": "agent_state", "agent_id": "architect", "working_memory": {"draft": 1}}
    assert example.write_memory(state) == "architect"
    with pytest.raises(Invalid, match="did you mean 'decision'"):
        example.write_memory({"type": "decison", "decision": "x"})


def test_appb_1b_read_the_state_of_an_agent_by_its_path(example: Session) -> None:
    record = example.get("agent-states/veritas")
    assert (record.type, record.id) == ("agent_state", "veritas")
    named = example.memory.get(f"{example.id}/agent-states/veritas")
    assert named.data["working_memory"] == record.data["working_memory"]


def test_appb_1b_a_state_and_an_artifact_of_one_name_are_two_memories(example: Session) -> None:
    example.save_artifact("veritas", "# What veritas found", created_by="veritas")
    with pytest.raises(InvalidQuery, match="agent-states/veritas or artifacts/veritas"):
        example.get("veritas")
    assert example.get("artifacts/veritas").type == "artifact"
    with pytest.raises(InvalidQuery, match="agent-states/veritas or artifacts/veritas"):
        example.delete("veritas", reason="it is not needed")
    example.save_agent_state("veritas", {"working_memory": {"concerns_identified": []}})
    example.delete("artifacts/veritas", reason="it is not needed")
    assert example.get("veritas").type == "agent_state"
    assert len(example.history("agent-states/veritas")) == 1
    example.restore("artifacts/veritas")
    example.delete("agent-states/veritas", reason="it is not needed")
    assert example.get("veritas").type == "artifact"
    with pytest.raises(MemoryNotFound, match="was deleted"):
        example.get("agent-states/veritas")
    assert example.restore("agent-states/veritas").type == "agent_state"


# Misspelt names, and texts that cannot be kept.


def test_2_2_3_a_misspelt_field_is_refused_with_the_nearest(example: Session) -> None:
    wrong = {"rational": "rationale", "tag": "tags", "confidance": "confidence"}
    for name, meant in wrong.items():
        with pytest.raises(Invalid, match=f"no field '{name}' .did you mean '{meant}'"):
            example.record("decision", {"decision": "x", "made_by": "a", name: "y"})
    with pytest.raises(Invalid, match="did you mean 'severity'"):
        example.record_finding("x", discovered_by="a", sevrity="high")
    with pytest.raises(Invalid, match="did you mean 'rationale'"):
        example.update("DEC-001", rationle="y")
    own = example.record_finding("x", discovered_by="a", location_hint="line 4", ticket="T-1")
    assert own.data["location_hint"] == "line 4"
    assert example.update(own.id, ticket="T-2").data["ticket"] == "T-2"


def test_3_3_a_misspelt_relation_is_refused(example: Session) -> None:
    for word in ("supersede", "superseeds", "Resolved"):
        with pytest.raises(Invalid, match="did you mean"):
            example.relate("DEC-002", "DEC-001", word)
    with pytest.raises(Invalid, match="from the other memory"):
        example.relate("DEC-001", "DEC-002", "superseded_by")
    assert example.get("DEC-001").holds
    example.relate("FIND-002", "DEC-002", "led_to")


def test_3_2_a_nul_is_refused(example: Session) -> None:
    with pytest.raises(Invalid, match="'content' holds a NUL"):
        example.add_turn("user", "a\0b")
    with pytest.raises(Invalid, match="NUL"):
        example.save_agent_state("veritas", {"working_memory": ["a\0b"]})
    with pytest.raises(Invalid, match="NUL"):
        example.save_artifact("report", "a\0b")


# Workflows.

WORKFLOW = {
    "workflow": {
        "metadata": {"id": "deep-verify-v6", "name": "Deep Verify V6"},
        "memory_requirements": {
            "read_access": [
                "conversation.last_20_turns",
                "decisions.by_topic:verification",
                "findings.by_severity:critical",
                "preferences.workflow_depth",
            ],
            "write_access": ["findings", "agent_states.veritas"],
            "memory_hints": ["Compare with earlier findings"],
        },
        "phases": [
            {
                "name": "Phase 0: Self-Check",
                "memory_usage": [
                    {
                        "type": "read",
                        "query": "the second factor in earlier reviews",
                        "purpose": "To be as strict as before",
                    }
                ],
            }
        ],
    }
}


def test_11_2_5_a_whole_workflow_is_read_as_it_is(example: Session) -> None:
    agent = example.agent("veritas").with_requirements(WORKFLOW)
    assert [one.id for one in agent.relevant_findings(unresolved_only=False)] == ["FIND-001"]
    assert agent.may_write("agent_states.veritas")
    assert not agent.may_write("agent_states.architect")
    assert not agent.may_write("decisions")
    assert "Compare with earlier findings" in agent.context()


def test_11_2_4_the_memory_usage_of_a_phase(example: Session) -> None:
    agent = example.agent("veritas").with_requirements(WORKFLOW)
    ((use, found),) = agent.memory_usage("Phase 0: Self-Check")
    assert use.purpose == "To be as strict as before"
    assert [one.id for one in found] == ["FIND-001"]
    with pytest.raises(InvalidQuery, match="did you mean 'Phase 0: Self-Check'"):
        agent.memory_usage("phase 0 selfcheck")
