"""A clock that jumps: nothing is destroyed, no session is stuck, no pass goes on and on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clocks import Wall

from smp_client import Memory
from smp_client.passes.lifecycle import lifecycle

NAMES = ("used", "archived", "deleted", "partly")
SAID = sorted(f"{word} in {name}" for word in ("decided", "said") for name in NAMES)


class Machine:
    """A memory, and all that a daemon does for it by the clock, which can be set."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Wall(monkeypatch)
        self.leap = self.clock.leap
        self.memory = Memory(root, clock=self.clock)

    def upkeep(self) -> list[str]:
        """Run each job and return what was done. The next run at this time finds nothing to do."""
        done = [action.type for action in self._once()]
        assert [action.type for action in self._once()] == []
        return done

    def _once(self) -> list[Any]:
        memory = self.memory
        outcomes = [lifecycle(memory)]
        outcomes += [memory.session(session.id).decay() for session in memory.sessions()]
        outcomes.append(memory.privacy.purge())
        assert [problem for outcome in outcomes for problem in outcome.problems] == []
        return [action for outcome in outcomes for action in outcome.actions]

    def live(self, days: int) -> list[str]:
        done: list[str] = []
        for _ in range(2 * days):
            self.clock.live(0.5)
            done += self.upkeep()
        return done

    def archived(self) -> list[str]:
        return [one.session for one in self.memory.archived_sessions()]

    def texts(self) -> list[str]:
        """Restore everything, and return all that was ever said."""
        memory = self.memory
        for name in self.archived():
            memory.restore_session(name)
        for gone in memory.deleted_sessions():
            memory.undelete_session(gone.session)
        for session in memory.sessions():
            for deleted in session.deleted():
                session.restore(deleted.id)
        return sorted(record.text for session in memory.sessions()
                      for kind in session.kinds for record in session.records(kind.name))  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Sessions in use, one in the archive, one that is deleted, and one of which memories are."""
    made = Machine(tmp_path / "sessions", monkeypatch)
    for name in NAMES:
        session = made.memory.create_session(id=name, user="u")
        session.record_decision(f"decided in {name}", made_by="a", implementation_impact="high")
        session.add_turn("user", f"said in {name}")
    made.memory.archive_session("archived")
    made.memory.delete_session("deleted", reason="asked for")
    made.memory.session("partly").delete(["DEC-001", "turn-1"], reason="asked for")
    made.live(2)
    return made


@pytest.mark.parametrize("days", [400, 40_000])
def test_a_leap_forward_destroys_nothing(machine: Machine, days: int) -> None:
    """Before six days were really lived through. Then the clock is set right again, and back."""
    for leap in (days, -days, days):
        machine.leap(leap)
        assert not [action for action in machine.live(3) if action.startswith("purge")]
    assert machine.texts() == SAID


def test_two_days_back_leave_no_session_stuck(machine: Machine) -> None:
    """Readings and memories of the future make nothing younger than new."""
    memory = machine.memory
    memory.session("used").get("DEC-001")
    machine.leap(2)
    memory.create_session(id="ahead").record_decision("from the future", made_by="a")
    machine.leap(-4)
    assert not [action for action in machine.upkeep() if action.startswith(("purge", "archive"))]
    assert all(0 < record.priority <= 1 for record in memory.search("decided"))
    machine.live(5)
    assert memory.session("ahead").state == "idle"
    machine.live(8)
    assert memory.session("ahead").state == "decaying"
    machine.live(24)
    assert {"ahead", "used"} <= {*machine.archived()}
