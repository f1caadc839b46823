"""Retention by type: memories older than their type may become are deleted, and can be restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory
from smp_client.model.outcome import Action
from smp_client.model.policies import RetentionPolicy
from smp_client.passes.retention import Candidate, plan, retain

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAYS = {"conversation_turn": 90, "finding": 365.5, "artifact": 1, "agent_state": 1}
POLICY = RetentionPolicy(by_type_days=DAYS)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def test_each_type_has_days_of_its_own_and_pinned_memories_stay() -> None:
    """Artifacts and states of agents are not deleted one by one."""
    known = [
        ("turn-1", "conversation_turn", 91), ("turn-2", "conversation_turn", 90),
        ("turn-3", "conversation_turn", 500), ("turn-4", "conversation_turn", -400),
        ("FIND-001", "finding", 364), ("FIND-002", "finding", 366), ("DEC-001", "decision", 10_000),
        ("report", "artifact", 900), ("vera", "agent_state", 900),
    ]  # fmt: skip
    candidates = [Candidate(*about, days_ago(days)) for *about, days in known]
    candidates.append(Candidate("FIND-003", "finding", days_ago(366), "pinned"))
    turns, findings = "older than 90 days, the retention of turn", "older than 365.5 days"
    assert plan("a", candidates, POLICY, NOW) == [
        Action("a", "delete_old", ("turn-1", "turn-3"), turns),
        Action("a", "delete_old", ("FIND-002",), f"{findings}, the retention of finding"),
    ]
    assert plan("a", candidates, RetentionPolicy(), NOW) == []


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW, retention=POLICY)
    session = memory.create_session(id="a")
    for days in (200, 100, 10):
        session.add_turn("user", f"said {days} days ago", timestamp=days_ago(days))
    for days in (500, 400, 1):
        session.record_finding(f"found {days}", discovered_by="vera", timestamp=days_ago(days))
    session.pin("FIND-002")
    return memory


def test_old_memories_are_deleted_in_one_go_and_can_be_restored(memory: Memory) -> None:
    session = memory.session("a")
    tried = retain(session, dry_run=True)
    assert session.deleted() == []
    outcome = retain(session)
    assert (outcome.actions, outcome.problems) == (tried.actions, [])
    assert {record.id for record in session.records("turn")} == {"turn-3"}
    assert {record.id for record in session.records("finding")} == {"FIND-002", "FIND-003"}
    deleted = session.deleted()
    assert {item.id for item in deleted} == {"turn-1", "turn-2", "FIND-001"}
    assert {item.facts["by"] for item in deleted} == {"smp"}
    assert all("older than 90 days, the retention of turn" in item.facts["why"] for item in deleted)
    assert session.restore("turn-1").text == "said 200 days ago"
    assert [action.about for action in retain(session).actions] == [("turn-1",)]


def test_how_long_deleted_memories_are_kept_is_configured(memory: Memory) -> None:
    """Thirty days where nothing is said."""
    memory.session("a").delete("turn-3", reason="r")
    briefly = memory.with_options(retention=RetentionPolicy(deleted_days=2.5))
    assert retain(briefly.session("a")).actions == []
    briefly.session("a").delete("FIND-003", reason="r")
    deadlines = {item.id: item.facts["until"] for item in memory.session("a").deleted()}
    assert deadlines == {"turn-3": "2026-07-01T12:00:00Z", "FIND-003": "2026-06-04T00:00:00Z"}
