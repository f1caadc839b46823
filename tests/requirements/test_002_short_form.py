"""Document 002, the short form: its own data and calls."""

from __future__ import annotations

from datetime import timedelta

from examples import NOW

from smp_client import Session

WORKFLOW = {
    "workflow": {
        "memory_requirements": {
            "read_access": ["conversation", "decisions", "findings"],
            "write_access": ["findings", "agent_states"],
        }
    }
}


def test_8_2_the_access_of_a_workflow(example: Session) -> None:
    agent = example.agent("veritas").with_requirements(WORKFLOW)
    agent.save_state({"current_context": {"current_phase": "PHASE_7"}})
    agent.record_finding("No limit of attempts", severity="important")
    assert agent.may_read("conversation")
    assert not agent.may_write("decisions")
    assert not agent.may_read("preferences")


def test_4_2_4_the_least_priority_of_preferences(example: Session) -> None:
    for confidence in ("inferred", "uncertain"):
        example.record_preference("Short answers", confidence=confidence, timestamp=NOW)
    after = example.with_options(clock=lambda: NOW + timedelta(days=2000))
    least = {"PREF-001": 0.6, "PREF-002": 0.3, "PREF-003": 0.3}
    found = {name: after.get(name, count_access=False).priority for name in least}
    assert found == least
