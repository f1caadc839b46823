"""A session as an agent sees it: what bears on its work, what it records, and what it may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from once import copied

from smp_client import (
    AccessDenied,
    AgentMemory,
    Invalid,
    InvalidQuery,
    Memory,
    MemoryNotFound,
    Record,
    Session,
)


@pytest.fixture
def agent(session: Session) -> AgentMemory:
    return session.agent("veritas")


def ids(records: list[Record]) -> list[str]:
    return [record.id for record in records]


def test_what_an_agent_records_is_by_the_agent(agent: AgentMemory, session: Session) -> None:
    """Each kind has the agent in the field that says who; somebody else may be named."""
    agent.add_turn("I see.", tags=["mfa"])
    agent.record_decision("Use OAuth", rationale="usual")
    agent.record_finding("No MFA", severity="critical")
    agent.record_preference("MFA for admins", topic="mfa", confidence="explicit")
    agent.record_learning("Look for MFA")
    agent.save_artifact("report", "# Report")
    assert agent.record_decision("Use JWT", made_by="user").data["made_by"] == "user"
    assert len({record.type for record in session.by_agent("veritas")}) == 6
    assert agent.resolve_finding("FIND-001", "Added").data["resolution"]["resolved_by"] == "veritas"
    assert agent.artifact("report").text == "# Report"
    assert [turn.text for turn in agent.conversation()] == ["I see."]
    assert agent.state() == {}
    agent.save_state({"working_memory": {"concerns": ["MFA"]}})
    assert agent.state()["working_memory"] == {"concerns": ["MFA"]}
    assert session.agent("architect").state_of("veritas") == agent.state()


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65])
def test_the_name_of_an_agent_is_checked(session: Session, name: str) -> None:
    with pytest.raises(Invalid):
        session.agent(name)


def test_relevant_memories_are_those_about_the_topic(agent: AgentMemory, memory: Memory) -> None:
    """Those tagged with it or with one below it, and those that mention it."""
    agent.record_decision("The security review comes last")
    agent.record_decision("Use OAuth", tags=["security.authentication"])
    agent.record_decision("Postgres", tags=["storage"])
    assert set(ids(agent.relevant_decisions("security"))) == {"DEC-001", "DEC-002"}
    assert agent.relevant_decisions("?!") == []
    agent.record_learning("Look for MFA", tags=["mfa"])
    memory.everywhere.record_pattern("MFA is often forgotten", tags=["mfa"])
    assert set(ids(agent.learnings("mfa"))) == {"LEARN-001", "PAT-001"}
    agent.record_preference("Ask first", topic="security")
    assert agent.preferences("security.mfa"), "a wider one bears on it"


def test_relevant_findings_are_open_and_the_worst_first(agent: AgentMemory) -> None:
    for severity in ("minor", "critical", "high", "critical"):
        agent.record_finding(f"A {severity} thing", severity=severity, tags=["mfa"])
    agent.resolve_finding("FIND-004", "Mended")
    assert ids(agent.relevant_findings("mfa")) == ["FIND-002", "FIND-003", "FIND-001"]
    assert len(agent.relevant_findings("mfa", unresolved_only=False)) == 4


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({}, True), ({"topic": "user_authentication"}, True), ({"tags": ["authentication"]}, True),
        ({"topic": "storage", "context": "Said when authentication was discussed"}, True),
        ({"topic": "storage"}, False), ({"applies_to": {"domains": ["authentication"]}}, True),
        ({"applies_to": {"domains": ["storage"]}}, False), ({"applies_to": {"domains": ["*"]}}, True),
        ({"applies_to": {"projects": []}}, True), ({"applies_to": {"projects": "*"}}, True),
        ({"applies_to": {"projects": ["other", "E COMMERCE"]}}, True),
        ({"applies_to": {"projects": ["commerce"]}}, False),
    ],
)  # fmt: skip
def test_a_preference_applies_to_its_projects_and_domains(
    session: Session, memory: Memory, fields: dict[str, Any], applies: bool
) -> None:
    """By domains, topic, tags or words. Project names are compared without case, blanks, dashes."""
    session.record_preference("Prefer depth", **fields)
    memory.everywhere.record_preference("Prefer depth everywhere", **fields)
    found = ids(session.agent("a").preferences("authentication"))
    assert found == (["PREF-001", "GPREF-001"] if applies else [])


def test_preferences_have_an_order(session: Session, memory: Memory) -> None:
    """Explicit before inferred before uncertain; of each the session's before global ones."""
    memory.everywhere.record_preference("1", confidence="inferred")
    memory.everywhere.record_preference("2", confidence="explicit")
    for confidence in ("uncertain", "inferred", "explicit"):
        session.record_preference(confidence, confidence=confidence)
    order = ["PREF-003", "GPREF-002", "PREF-002", "GPREF-001", "PREF-001"]
    assert ids(session.agent("a").preferences()) == order


def test_a_slip_in_the_metadata_hides_no_memory(agent: AgentMemory, session: Session) -> None:
    """A preference for certain projects does not apply where the project is not known."""
    agent.record_preference("Be brief")
    agent.record_preference("Be loud", applies_to={"projects": ["shop"]})
    (session.memory.root / session.scope.path("metadata.yaml")).write_text("session: {")
    assert ids(agent.preferences()) == ["PREF-001"]
    assert "Be brief" in agent.context()


# Workflows.


def stock(root: Path) -> None:
    memory = Memory(root)
    session = memory.create_session(id="s1", project="E-Commerce", topic="authentication")
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
    memory.everywhere.record_preference("Tea", topic="drinks")
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
    "conversation": {f"turn-{number}" for number in range(1, 31)},
    "conversation.last_20_turns": {f"turn-{number}" for number in range(11, 31)},
    "decisions": {"DEC-001", "DEC-002"},
    "decisions.by_topic:verification": {"DEC-001"},
    "findings": {"FIND-001", "FIND-002", "FIND-003"},
    "findings.by_severity:critical": {"FIND-001", "FIND-002"},
    "findings.by_severity:low": {"FIND-003"},  # another word for minor
    "findings.unresolved": {"FIND-001", "FIND-003"},
    "preferences": {"PREF-001", "PREF-002"},
    "preferences.workflow_depth": {"PREF-001"},
    "learnings": {"LEARN-001"},
    "agent_states.{self}": {"veritas"},
    "agent_states.architect": {"architect"},
    "artifacts": {"notes", "report"},
    "artifacts.notes": {"notes"},
}


@pytest.mark.parametrize("item", READS)
def test_an_item_names_its_memories(stocked: AgentMemory, item: str) -> None:
    """Nothing else can be found by this agent."""
    workflow = stocked.with_requirements({"read_access": [item]})
    assert set(ids(workflow.query(limit=None))) == READS[item]
    if item.startswith("conversation"):
        assert set(ids(workflow.conversation(40))) == READS[item]
    if item.startswith("preferences."):
        assert set(ids(workflow.preferences())) == {"PREF-001", "GPREF-001"}


CALLS: dict[str, tuple[Any, ...]] = {
    "read conversation": ("conversation",), "write conversation": ("add_turn", "Said"),
    "read decisions": ("relevant_decisions",), "write decisions": ("record_decision", "Decided"),
    "read findings": ("relevant_findings",), "write findings": ("record_finding", "Found"),
    "read preferences": ("preferences",), "write preferences": ("record_preference", "Preferred"),
    "read learnings": ("learnings",), "write learnings": ("record_learning", "Learned"),
    "read agent_states.architect": ("state_of", "architect"),
    "write agent_states.veritas": ("save_state", {"task": "other"}),
    "read artifacts": ("artifact", "report"), "write artifacts": ("save_artifact", "other", "# Text"),
}  # fmt: skip


@pytest.mark.parametrize("granted", CALLS)
def test_a_kind_needs_its_grant(stocked: AgentMemory, granted: str) -> None:
    """The one that is granted answers, every other says what is granted."""
    doing, kind = granted.split(" ")
    workflow = stocked.with_requirements({f"{doing}_access": [kind]})
    method, *given = CALLS[granted]
    getattr(workflow, method)(*given)
    size = stocked.session.size().total_bytes
    for name, (method, *given) in CALLS.items():
        if name != granted:
            refusal = rf"veritas may not {name.split('.')[0]}"
            with pytest.raises(AccessDenied, match=refusal) as caught:
                getattr(workflow, method)(*given)
            grants = kind if name.startswith(doing) else "nothing"
            assert f"access grants {grants}." in str(caught.value)
    assert stocked.session.size().total_bytes == size


def test_of_a_kind_that_is_granted_in_part_only_that_part_is_seen(stocked: AgentMemory) -> None:
    """By every way of reading; a hidden memory is like one that is not there."""
    assert stocked.with_requirements({}).query("mfa") == []
    workflow = stocked.with_requirements({
        "read_access": ["conversation.last_2_turns", "decisions.by_topic:verification",
                        "findings.by_severity:critical"],
        "write_access": ["findings", "decisions"],
        "memory_hints": ["Compare with past findings", "Check the depth"],
    })  # fmt: skip
    assert ids(workflow.relevant_decisions()) == ["DEC-001"]
    assert ids(workflow.relevant_findings()) == ["FIND-001"]
    assert ids(workflow.conversation()) == ["turn-29", "turn-30"]
    seen = {"turn-29", "turn-30", "DEC-001", "FIND-001", "FIND-002"}
    assert set(ids(workflow.query("verify oauth mfa turn", limit=None))) <= seen
    for hidden in ("DEC-002", "DEC-099"):
        with pytest.raises(MemoryNotFound, match=f"There is no memory '{hidden}' that"):
            workflow.similar(hidden)
    context = workflow.context(max_tokens=300)
    assert "## Hints of the workflow\n- Compare with past findings\n- Check the depth\n" in context
    labels = re.findall(r"^- \[([A-Za-z0-9-]+),", context, re.MULTILINE)
    assert set(labels) == seen - {"FIND-002"}
    with pytest.raises(MemoryNotFound):
        workflow.resolve_finding("FIND-003", "Mended")
    assert workflow.resolve_finding("FIND-001", "Mended").text == "No MFA"
    with pytest.raises(AccessDenied):
        workflow.with_requirements({"read_access": ["decisions"]})


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        (["findings"], "must be a mapping"),
        ({"reads": []}, "must be a mapping with read_access"),
        ({"memory_hints": "one"}, "memory_hints must be a list of texts"),
        ({"write_access": ["findings.unresolved"]}, "write_access: 'findings.unresolved' grants"),
        ({"write_access": ["agent_states."]}, "write_access: 'agent_states.' grants"),
        ({"workflow": {"memory_requirements": ["findings"]}}, "must be a mapping with read_access"),
        ({"phases": [{"memory_usage": []}]}, "must be a mapping with a name"),
        ({"phases": [{"name": "a", "memory_usage": ["x"]}]}, "must be a mapping with type read"),
        *(
            ({"read_access": [item]}, f"read_access: {item!r} grants nothing")
            for item in ("decision", "findings.by_severity:grave", "conversation.last_0_turns",
                         "learnings.by_topic:", "artifacts.../x", "preferences.", "")
        ),
    ],
)  # fmt: skip
def test_wrong_requirements_are_refused(session: Session, requirements: Any, says: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        session.agent("veritas").with_requirements(requirements)
    assert says in str(caught.value)
