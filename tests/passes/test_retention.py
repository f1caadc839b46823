"""Retention by type: what is older than its type may become is deleted, and can be restored; off
unless configured.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from smp_client import Memory
from smp_client.disk.locks import lock
from smp_client.model.outcome import Action, Outcome
from smp_client.model.policies import RetentionPolicy
from smp_client.passes.retention import Standing, plan, retain

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
POLICY = RetentionPolicy(by_type_days={"conversation_turn": 90, "finding": 365.5})


def retention(memory: Memory, *, dry_run: bool = False) -> Outcome:
    whole = Outcome(dry_run=dry_run)
    for session in memory.sessions():
        whole.add(retain(session, dry_run=dry_run))
    return whole


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def test_each_type_has_days_of_its_own_and_what_is_pinned_stays() -> None:
    standings = [
        Standing("a", "turn-1", "conversation_turn", days_ago(91)),
        Standing("a", "turn-2", "conversation_turn", days_ago(90)),
        Standing("a", "turn-3", "conversation_turn", days_ago(500)),
        Standing("a", "FIND-001", "finding", days_ago(364)),
        Standing("a", "FIND-002", "finding", days_ago(366)),
        Standing("a", "FIND-003", "finding", days_ago(366), is_pinned=True),
        Standing("a", "DEC-001", "decision", days_ago(10_000)),
        Standing("b", "turn-1", "conversation_turn", days_ago(91)),
        Standing("b", "turn-2", "conversation_turn", days_ago(-400)),
    ]
    turns, findings = (
        "older than 90 days, the retention of turn",
        "older than 365.5 days, the retention of finding",
    )
    assert plan(standings, POLICY, NOW) == [
        Action("a", "delete_old", ("turn-1", "turn-3"), turns),
        Action("a", "delete_old", ("FIND-002",), findings),
        Action("b", "delete_old", ("turn-1",), turns),
    ]
    assert plan(standings, RetentionPolicy(), NOW) == []


def test_what_no_file_of_records_holds_is_not_deleted() -> None:
    """Artifacts and agents' states are not deleted one by one."""
    old = [
        Standing("a", "report", "artifact", days_ago(900)),
        Standing("a", "vera", "agent_state", days_ago(900)),
    ]
    assert plan(old, RetentionPolicy(by_type_days={"artifact": 1, "agent_state": 1}), NOW) == []


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    memory = Memory(
        tmp_path / "sessions",
        clock=lambda: NOW,
        retention=POLICY,
        lock_timeout_s=0.1,
    )
    for name in ("a", "b"):
        session = memory.create_session(id=name)
        for days in (200, 100, 10):
            session.add_turn("user", f"said {days} days ago", timestamp=days_ago(days))
        for days in (500, 400, 1):
            session.record_finding(
                f"found {days} days ago", discovered_by="vera", timestamp=days_ago(days)
            )
        session.pin("FIND-002")
    return memory


def test_what_is_too_old_is_deleted_in_one_go_and_can_be_restored(memory: Memory) -> None:
    tried = retention(memory, dry_run=True)
    assert memory.session("a").deleted() == []
    outcome = retention(memory)
    assert (outcome.actions, outcome.problems) == (tried.actions, [])
    for session in memory.sessions():
        assert {record.id for record in session.records("turn")} == {"turn-3"}
        assert {record.id for record in session.records("finding")} == {"FIND-002", "FIND-003"}
        deleted = session.deleted()
        assert {item.id for item in deleted} == {"turn-1", "turn-2", "FIND-001"}
        assert {item.deleted_by for item in deleted} == {"smp"}
        assert all("older than 90 days, the retention of turn" in item.reason for item in deleted)
        assert session.restore("turn-1").text == "said 200 days ago"
    assert [action.about for action in retention(memory).actions] == [("turn-1",), ("turn-1",)]


def test_nothing_happens_unless_it_is_configured(memory: Memory) -> None:
    assert retention(Memory(memory.root, clock=lambda: NOW)).actions == []
    assert retain(memory.session("a").with_options(retention=RetentionPolicy())).actions == []
    assert len(memory.session("a").records("turn")) == 3


def test_what_is_archived_is_not_touched(memory: Memory) -> None:
    memory.archive_session("a")
    assert {action.session for action in retention(memory).actions} == {"b"}


def test_a_session_that_fails_does_not_keep_the_others(memory: Memory) -> None:
    with lock(memory.tree, "a", "upkeep", memory.options.lock_timeout_s, "archiving"):
        outcome = retention(memory)
    assert {action.session for action in outcome.actions} == {"b"}
    assert [
        problem.startswith("a: nothing was deleted for its age") for problem in outcome.problems
    ] == [True]


def test_how_long_deleted_memories_are_kept_is_configured(memory: Memory) -> None:
    """Thirty days where nothing is said."""
    session = memory.session("a")
    session.delete("turn-3", reason="r")
    session.with_options(retention=RetentionPolicy(deleted_days=2.5)).delete("FIND-003", reason="r")
    deadlines = {item.id: item.recovery_deadline for item in session.deleted()}
    assert deadlines == {"turn-3": "2026-07-01T12:00:00Z", "FIND-003": "2026-06-04T00:00:00Z"}
