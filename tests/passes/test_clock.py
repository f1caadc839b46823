"""A clock that jumps under all that time does to sessions: nothing is destroyed, nobody is stuck,
no pass goes on and on.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import Memory
from smp_client.disk.tombstones import FILE as PURGED
from smp_client.passes import overdue
from smp_client.passes.lifecycle import lifecycle, observe

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR_S = 3600.0


class Machine:
    """A memory, and all that a daemon does for it by the clock, which can be set."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        self.running_s = 1000.0
        monkeypatch.setattr(overdue, "running_s", lambda: self.running_s)
        self.memory = Memory(root, clock=lambda: self.now, fsync="batch")

    def upkeep(self) -> list[str]:
        """One run of each job; gives back what was done. Whatever it did, the next run at the same
        time finds nothing to do.
        """
        done = [action.type for action in self._once()]
        assert [action.type for action in self._once()] == []
        return done

    def _once(self) -> list[Any]:
        memory = self.memory
        outcomes = [lifecycle(memory, ledger=observe(memory))]
        outcomes += [memory.session(session.id).decay() for session in memory.sessions()]
        outcomes.append(memory.privacy.purge())
        assert [problem for outcome in outcomes for problem in outcome.problems] == []
        return [action for outcome in outcomes for action in outcome.actions]

    def live(self, days: float, step_hours: float = 6.0) -> list[str]:
        done: list[str] = []
        for _ in range(round(days * 24 / step_hours)):
            self.now += timedelta(hours=step_hours)
            self.running_s += step_hours * HOUR_S
            done += self.upkeep()
        return done

    def leap(self, days: float) -> None:
        self.now += timedelta(days=days)

    def fill(self) -> None:
        """Sessions in use, one in the archive, one that is deleted, and one of which memories are."""
        for name in ("used", "archived", "deleted", "partly"):
            session = self.memory.create_session(id=name, user="u")
            session.record_decision(f"decided in {name}", made_by="a", implementation_impact="high")
            session.record_finding(f"found in {name}", discovered_by="a", severity="critical")
            session.record_preference(f"preferred in {name}", confidence="explicit")
            session.add_turn("user", f"said in {name}")
        self.memory.archive_session("archived")
        self.memory.delete_session("deleted", reason="asked for")
        self.memory.session("partly").delete(["DEC-001", "turn-1"], reason="asked for")

    def texts(self) -> list[str]:
        """All that was ever said, with everything brought back that is away."""
        memory = self.memory
        for away in memory.archived_sessions():
            memory.restore_session(away.session)
        for gone in memory.deleted_sessions():
            memory.undelete_session(gone.session)
        for session in memory.sessions():
            for deleted in session.deleted():
                session.restore(deleted.id)
        found = [
            session.records(kind.name) for session in memory.sessions() for kind in session.kinds
        ]
        return sorted(record.text for records in found for record in records)

    def priorities(self) -> list[float]:
        """As every answer and every file says."""
        shown: list[float] = []
        for session in Memory(
            self.memory.root, clock=lambda: self.now, count_access=False
        ).sessions():
            shown += [record.priority for record in session.search()]
            for file in (self.memory.root / "active" / session.id).glob("*.yaml"):
                shown += [
                    float(found) for found in re.findall(r"priority: ([-.\d]+)", file.read_text())
                ]
        return shown


WORDS = ("decided", "found", "preferred", "said")
SAID = sorted(
    f"{word} in {name}" for word in WORDS for name in ("used", "archived", "deleted", "partly")
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "sessions", monkeypatch)
    made.fill()
    made.live(2)
    return made


@pytest.mark.parametrize("days", [400, 40_000])
def test_a_leap_forward_archives_and_destroys_nothing(machine: Machine, days: int) -> None:
    """By 400 days, or a century: no session is archived, and nothing purged, before six days were
    really lived through; when the clock is set right again, every word can be brought back.
    """
    machine.leap(days)
    done = machine.live(3)
    assert "archive" not in done
    assert not [action for action in done if action.startswith("purge")]
    assert not (machine.memory.root / PURGED).exists()
    machine.leap(-days)
    assert not [action for action in machine.live(3) if action.startswith("purge")]
    machine.leap(days)
    assert machine.texts() == SAID


def test_after_a_leap_a_session_is_archived_when_it_was_seen_unused_for_days(
    machine: Machine,
) -> None:
    """A clock that stays ahead is believed after six days of uptime; a person may say at once that
    it is right.
    """
    machine.leap(400)
    machine.memory.session("used").record_decision("after the leap", made_by="a")
    machine.live(3.5)
    assert machine.memory.session("partly").state == "decaying"
    assert machine.memory.session("used").state == "idle"
    assert [one.session for one in machine.memory.archived_sessions()] == ["archived"]
    machine.live(1)
    assert "partly" in [one.session for one in machine.memory.archived_sessions()]
    machine.leap(400)
    assert "archive" not in machine.live(0.25)
    assert [action.type for action in machine.memory.age_sessions().actions] == ["archive"]


def test_a_session_that_ages_under_a_daemon_is_archived_on_the_day(machine: Machine) -> None:
    """Its idle time was lived through, so it waits for nothing more; whatever the clock did before."""
    machine.live(27.5)
    assert machine.memory.session("used").state == "decaying"
    assert "archive" in machine.live(0.5)
    assert machine.memory.sessions() == []


def test_two_days_back_make_nothing_younger_than_new_and_nobody_stuck(machine: Machine) -> None:
    """What was read and done in what is now the future: no priority is above 1, nothing is purged,
    one run of the jobs leaves nothing to do for the next, and the sessions grow old again as if
    they had been used now.
    """
    memory = machine.memory
    memory.session("used").get("DEC-001")
    memory.session("partly").deactivate("for now")
    machine.leap(-2)
    assert not [action for action in machine.upkeep() if action.startswith(("purge", "archive"))]
    assert 0 < max(machine.priorities()) <= 1
    states: list[str] = []
    for _ in range(70):
        states += [
            memory.session(name).state
            for name in ("used", "partly")
            if (memory.root / "active" / name).exists()
        ]
        purged = [action for action in machine.live(0.5, 12) if action.startswith("purge")]
        assert not purged or machine.running_s > 30 * 24 * HOUR_S
        assert max(machine.priorities(), default=0) <= 1
    assert {"active", "idle", "decaying"} <= set(states)
    assert memory.sessions() == []


def test_a_session_made_while_the_clock_was_ahead_grows_old_too(machine: Machine) -> None:
    """All that it says of itself is from two days ahead: it is idle, decaying and archived at most
    two days late.
    """
    machine.leap(2)
    machine.memory.create_session(id="ahead").record_decision("from the future", made_by="a")
    machine.leap(-2)
    machine.upkeep()
    assert machine.memory.session("ahead").state == "active"
    machine.live(1 + 2, 12)
    assert machine.memory.session("ahead").state == "idle"
    machine.live(6, 12)
    assert machine.memory.session("ahead").state == "decaying"
    machine.live(23, 12)
    assert "ahead" in [one.session for one in machine.memory.archived_sessions()]
