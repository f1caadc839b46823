"""What a workflow asks for: its items, what they name, and that nothing else is read or written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from once import copied

from smp_client import (
    AccessDenied,
    AgentMemory,
    InvalidQuery,
    Memory,
    Record,
    Session,
    WorkflowMemory,
    require,
)

ID = re.compile(r"^- \[([A-Za-z0-9-]+),", re.MULTILINE)


def ids(records: list[Record]) -> list[str]:
    return [record.id for record in records]


def shown(text: str) -> list[str]:
    return ID.findall(text)


def stock(root: Path) -> None:
    memory = Memory(root)
    session = memory.create_session(id="s1", user="user-123", project="E-Commerce", topic="authentication", tags=["oauth"])
    agent = session.agent("veritas")
    for number in range(30):
        agent.add_turn(f"Turn {number + 1}")
    agent.record_decision("Verify deeply", tags=["verification"])
    agent.record_decision("Use OAuth", tags=["security"])
    agent.record_finding("No MFA", severity="critical", tags=["security"])
    agent.record_finding("Mended", severity="critical", resolution={"status": "resolved"})
    agent.record_finding("Vague", severity="minor")
    agent.record_preference("Deep", topic="workflow_depth", confidence="explicit")
    agent.record_preference("Brief answers")
    memory.everywhere.record_preference("Deep everywhere", topic="workflow_depth")
    agent.record_learning("Look twice", tags=["verification"])
    agent.save_artifact("report", "# Report")
    agent.save_artifact("notes", "# Notes")
    agent.save_state({"task": "verify"})
    session.agent("architect").save_state({"task": "design"})
    memory.close()


@pytest.fixture
def stocked(tmp_path: Path) -> AgentMemory:
    return Memory(copied(stock, tmp_path / "sessions")).session("s1").agent("veritas")


READS = {
    "conversation": [f"turn-{number}" for number in range(1, 31)],
    "conversation.last_20_turns": [f"turn-{number}" for number in range(11, 31)],
    "conversation.last_1_turn": ["turn-30"],
    "decisions": ["DEC-001", "DEC-002"],
    "decisions.by_topic:verification": ["DEC-001"],
    "findings": ["FIND-001", "FIND-002", "FIND-003"],
    "findings.by_severity:critical": ["FIND-001", "FIND-002"],
    "findings.unresolved": ["FIND-001", "FIND-003"],
    "findings.by_topic:security": ["FIND-001"],
    "preferences": ["GPREF-001", "PREF-001", "PREF-002"],
    "preferences.workflow_depth": ["GPREF-001", "PREF-001"],
    "preferences.by_topic:workflow_depth": ["GPREF-001", "PREF-001"],
    "learnings": ["LEARN-001"],
    "learnings.by_topic:verification": ["LEARN-001"],
    "agent_states.veritas": ["veritas"],
    "agent_states.{self}": ["veritas"],
    "agent_states.architect": ["architect"],
    "agent_states.nobody": [],
    "artifacts": ["notes", "report"],
    "artifacts.notes": ["notes"],
}


@pytest.mark.parametrize("item", READS)
def test_an_item_names_its_memories(stocked: AgentMemory, item: str) -> None:
    """`load` gives them, and nothing else can be found by this agent."""
    workflow = stocked.with_requirements({"read_access": [item]})
    loaded = workflow.load()
    assert list(loaded) == [item]
    found = ids(loaded[item])
    assert (found if item.startswith("conversation") else sorted(found)) == READS[item]
    assert {record.id for record in workflow.query(limit=None)} <= set(READS[item])
    if item.startswith("conversation"):
        assert ids(workflow.conversation(25)) == READS[item][-25:]


CALLS: dict[str, Callable[[WorkflowMemory], object]] = {
    "conversation": lambda agent: agent.conversation(),
    "decisions": lambda agent: agent.relevant_decisions(),
    "findings": lambda agent: agent.relevant_findings(),
    "preferences": lambda agent: agent.preferences(),
    "learnings": lambda agent: agent.learnings(),
    "agent_states.veritas": lambda agent: agent.state(),
    "agent_states.architect": lambda agent: agent.state_of("architect"),
    "artifacts": lambda agent: agent.artifact("report"),
}
WRITES: dict[str, Callable[[WorkflowMemory], object]] = {
    "conversation": lambda agent: agent.add_turn("Said"),
    "decisions": lambda agent: agent.record_decision("Decided"),
    "findings": lambda agent: agent.record_finding("Found"),
    "preferences": lambda agent: agent.record_preference("Preferred"),
    "learnings": lambda agent: agent.record_learning("Learned"),
    "agent_states.veritas": lambda agent: agent.save_state({"task": "other"}),
    "artifacts": lambda agent: agent.save_artifact("another", "# Text"),
}


@pytest.mark.parametrize("granted", CALLS)
def test_reading_a_kind_needs_its_grant(stocked: AgentMemory, granted: str) -> None:
    """The one that is granted answers, every other says what is granted."""
    workflow = stocked.with_requirements({"read_access": [granted]})
    assert CALLS[granted](workflow)
    for kind, call in CALLS.items():
        if kind != granted:
            with pytest.raises(AccessDenied, match=rf"veritas may not read .*grants {granted}\.") as caught:
                call(workflow)
            assert (caught.value.code, caught.value.recoverable, caught.value.session_id) == ("MEM_E019", False, "s1")


@pytest.mark.parametrize("granted", WRITES)
def test_writing_a_kind_needs_its_grant(stocked: AgentMemory, granted: str) -> None:
    """And what was refused was not written."""
    workflow = stocked.with_requirements({"write_access": [granted]})
    WRITES[granted](workflow)
    size = stocked.session.size().total_bytes
    for kind, call in WRITES.items():
        if kind != granted:
            with pytest.raises(AccessDenied, match=rf"veritas may not write {re.escape(kind)}: write_access grants {granted}\."):
                call(workflow)
    if granted != "findings":
        with pytest.raises(AccessDenied):
            workflow.resolve_finding("FIND-001", "Mended")
    assert stocked.session.size().total_bytes == size


def test_of_a_kind_that_is_granted_in_part_only_that_part_is_seen(stocked: AgentMemory) -> None:
    """By every way of reading."""
    workflow = stocked.with_requirements({
        "read_access": ["conversation.last_2_turns", "decisions.by_topic:verification", "findings.by_severity:critical"],
    })  # fmt: skip
    assert ids(workflow.relevant_decisions()) == ["DEC-001"]
    assert workflow.relevant_decisions("security") == []
    assert ids(workflow.relevant_findings()) == ["FIND-001"]
    assert ids(workflow.conversation()) == ["turn-29", "turn-30"]
    assert {record.id for record in workflow.query("verify oauth mfa turn", limit=None)} <= {
        "turn-29", "turn-30", "DEC-001", "FIND-001", "FIND-002",
    }  # fmt: skip
    assert "DEC-002" not in ids(workflow.similar("Use OAuth"))
    assert set(shown(workflow.context())) == {"turn-29", "turn-30", "DEC-001", "FIND-001"}
    with pytest.raises(AccessDenied, match="may not read preferences"):
        workflow.query("depth", types=["preference"])
    with pytest.raises(InvalidQuery, match="nonsense"):
        workflow.query("depth", types=["nonsense"])


def test_hints_stand_in_the_context(stocked: AgentMemory) -> None:
    """Also in a small one, and of an agent that may read nothing."""
    workflow = stocked.with_requirements({"memory_hints": ["Compare with past findings", "Check the depth"]})
    assert workflow.hints == ("Compare with past findings", "Check the depth")
    assert "## Hints of the workflow\n- Compare with past findings\n- Check the depth\n" in workflow.context(max_tokens=100)
    assert shown(workflow.context()) == []
    assert workflow.load() == {}
    assert workflow.query("mfa") == []


def test_everything_wrong_is_said_at_once(session: Session) -> None:
    """With what would be right."""
    with pytest.raises(InvalidQuery) as caught:
        require(session, "veritas", {
            "read_access": ["decision", "findings.by_severity:grave", "conversation.last_0_turns", "learnings.by_topic:",
                            "findings"],
            "write_access": ["findings.unresolved", "agent_states"], "memory_hints": "one", "reads": [],
        })  # fmt: skip
    said = str(caught.value)
    for wrong in ("decision", "findings.by_severity:grave", "conversation.last_0_turns", "learnings.by_topic:",
                  "findings.unresolved", "agent_states", "reads", "one"):  # fmt: skip
        assert repr(wrong) in said
    for right in ("decisions.by_topic:X", "agent_states.NAME", "memory_hints must be a list", "critical, high"):
        assert right in said
    assert "'findings'" not in said


@pytest.mark.parametrize(
    "item", ["artifacts.../x", "agent_states.a b", "agent_states.", "preferences.", "preferences.by:x", "conversation.all", "", "."]
)
def test_an_unknown_item_is_refused(session: Session, item: str) -> None:
    with pytest.raises(InvalidQuery, match="read_access"):
        require(session, "veritas", {"read_access": [item]})


def test_requirements_are_a_mapping(session: Session) -> None:
    with pytest.raises(InvalidQuery, match="must be a mapping"):
        require(session, "veritas", ["findings"])  # type: ignore[arg-type]


def test_a_workflow_cannot_grant_itself_more(stocked: AgentMemory) -> None:
    with pytest.raises(AccessDenied):
        stocked.with_requirements({"read_access": ["findings"]}).with_requirements({"read_access": ["decisions"]})
