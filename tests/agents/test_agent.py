"""A session as an agent sees it: what bears on its work, and what it records."""

from __future__ import annotations

import pytest

from smp_client import AgentMemory, Invalid, Memory, Record, Session


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
    assert {record.type for record in session.by_agent("veritas")} == {
        "turn", "decision", "finding", "preference", "learning", "artifact",
    }  # fmt: skip
    assert agent.resolve_finding("FIND-001", "Added").data["resolution"]["resolved_by"] == "veritas"
    assert agent.artifact("report").text == "# Report"
    assert [turn.text for turn in agent.conversation()] == ["I see."]


def test_an_agent_has_a_state_of_its_own(agent: AgentMemory, session: Session) -> None:
    """Outside party mode others may read it."""
    assert agent.state() == {}
    agent.save_state({"working_memory": {"concerns": ["MFA"]}})
    assert agent.state()["working_memory"] == {"concerns": ["MFA"]}
    assert session.agent("architect").state_of("veritas") == agent.state()


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65])
def test_the_name_of_an_agent_is_checked(session: Session, name: str) -> None:
    with pytest.raises(Invalid):
        session.agent(name)


def test_relevant_decisions_are_those_about_the_topic(agent: AgentMemory) -> None:
    """Tagged with it or with one below it first, then those that only say it; without a topic all of them."""
    agent.record_decision("The security review comes last")
    agent.record_decision("Use OAuth", tags=["security.authentication"])
    agent.record_decision("Postgres", tags=["storage"])
    assert ids(agent.relevant_decisions("security")) == ["DEC-002", "DEC-001"]
    assert ids(agent.relevant_decisions("security", limit=1)) == ["DEC-002"]
    assert ids(agent.relevant_decisions("security", limit=1, offset=1)) == ["DEC-001"]
    assert set(ids(agent.relevant_decisions())) == {"DEC-001", "DEC-002", "DEC-003"}
    assert agent.relevant_decisions("?!") == []


def test_relevant_findings_are_open_and_the_worst_first(agent: AgentMemory) -> None:
    for severity in ("minor", "critical", "high", "critical"):
        agent.record_finding(f"A {severity} thing", severity=severity, tags=["mfa"])
    agent.record_finding("Elsewhere", tags=["storage"])
    agent.resolve_finding("FIND-004", "Mended")
    assert ids(agent.relevant_findings("mfa")) == ["FIND-002", "FIND-003", "FIND-001"]
    assert set(ids(agent.relevant_findings("mfa", unresolved_only=False))) == {"FIND-001", "FIND-002", "FIND-003", "FIND-004"}
    assert len(agent.relevant_findings()) == 4


@pytest.mark.parametrize(
    ("applies_to", "applies"),
    [
        (None, True), ({}, True), ({"projects": []}, True), ({"projects": ["*"]}, True), ({"projects": "*"}, True),
        ({"projects": ["e-commerce-platform"]}, True), ({"projects": ["other", "E-COMMERCE platform"]}, True),
        ({"projects": ["e-commerce"]}, False), ({"projects": ["other"]}, False),
    ],
)  # fmt: skip
def test_a_preference_applies_to_its_projects(memory: Memory, applies_to: dict[str, object] | None, applies: bool) -> None:
    """Names of projects are compared without regard to case, blanks and dashes; none, or a star, means every project."""
    session = memory.create_session(id="s2", project="E-Commerce Platform")
    session.record_preference("Be thorough", applies_to=applies_to)
    memory.everywhere.record_preference("Be thorough everywhere", applies_to=applies_to)
    assert ids(session.agent("veritas").preferences()) == (["PREF-001", "GPREF-001"] if applies else [])


def test_without_a_project_only_what_names_none_applies(memory: Memory) -> None:
    session = memory.create_session(id="s2")
    session.record_preference("One", applies_to={"projects": ["shop"]})
    session.record_preference("Two", applies_to={"projects": ["*"]})
    assert ids(session.agent("a").preferences()) == ["PREF-002"]


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({"applies_to": {"domains": ["authentication"]}}, True),
        ({"applies_to": {"domains": ["Authentication.MFA"]}}, True),
        ({"applies_to": {"domains": ["storage"]}}, False),
        ({"applies_to": {"domains": ["*"]}}, True),
        ({"topic": "authentication"}, True),
        ({"topic": "user_authentication"}, True),
        ({"topic": "storage"}, False),
        ({"topic": "storage", "context": "Said when authentication was discussed"}, True),
        ({"tags": ["authentication"]}, True),
        ({"tags": ["storage"]}, False),
        ({}, True),
    ],
)
def test_a_preference_applies_to_its_domains(session: Session, fields: dict[str, object], applies: bool) -> None:
    """By domains, topic, tags or words; one that says nothing of what it is about is general."""
    session.record_preference("Prefer depth", **fields)  # type: ignore[arg-type]
    assert bool(session.agent("a").preferences("authentication")) == applies
    assert session.agent("a").preferences()


def test_the_wider_domain_bears_on_the_narrower_topic(session: Session) -> None:
    session.record_preference("Prefer depth", applies_to={"domains": ["security"]})
    assert session.agent("a").preferences("security.authentication")
    assert not session.agent("a").preferences("securities")


def test_preferences_have_an_order(session: Session, memory: Memory) -> None:
    """Explicit before inferred before uncertain; of each the session's before those of every session."""
    memory.everywhere.record_preference("1", confidence="inferred")
    memory.everywhere.record_preference("2", confidence="explicit")
    for confidence in ("uncertain", "inferred", "explicit"):
        session.record_preference(confidence, confidence=confidence)
    assert ids(session.agent("a").preferences()) == ["PREF-003", "GPREF-002", "PREF-002", "GPREF-001", "PREF-001"]


def test_learnings_come_with_the_patterns_of_all_sessions(agent: AgentMemory, memory: Memory) -> None:
    agent.record_learning("Look for MFA", tags=["mfa"])
    memory.everywhere.record_pattern("MFA is often forgotten", tags=["mfa"])
    memory.everywhere.record_pattern("Timeouts too")
    assert set(ids(agent.learnings("mfa"))) == {"LEARN-001", "PAT-001"}
    assert len(agent.learnings()) == 3


def test_an_agent_can_search(agent: AgentMemory) -> None:
    agent.record_decision("Use OAuth tokens")
    agent.record_finding("OAuth tokens never expire")
    assert set(ids(agent.query("oauth"))) == {"DEC-001", "FIND-001"}
    assert ids(agent.query("oauth", types=["finding"])) == ["FIND-001"]
    assert ids(agent.similar("DEC-001")) == ["FIND-001"]
    assert set(ids(agent.similar("tokens of OAuth"))) == {"DEC-001", "FIND-001"}


def test_a_slip_in_the_metadata_hides_no_memory(agent: AgentMemory, session: Session) -> None:
    agent.record_preference("Be brief")
    (session.scope.tree.root / session.scope.path("metadata.yaml")).write_text("session: {")
    assert ids(agent.preferences()) == ["PREF-001"]
    assert "Be brief" in agent.context()
