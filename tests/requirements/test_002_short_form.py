"""Document 002, the short form: its own data and calls."""

from __future__ import annotations

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
