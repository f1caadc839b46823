"""Deadlines that were really waited for: whatever a clock says, nothing is purged early."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smp_client import Memory
from smp_client.maintain.deadlines import FILE, SLACK_S, Seen, load, observe, observed, verdict
from smp_client.maintain.doomed import Doomed
from smp_client.timestamps import render_time

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY_S, HOUR_S = 86_400.0, 3_600.0
KEPT_S = 30 * DAY_S


@dataclass
class Machine:
    """A machine with two clocks, and a daemon on it that observes what is deleted."""

    now: datetime = START
    running_s: float = 100.0
    real_s: float = 0.0
    seen: Seen = field(default_factory=Seen)
    doomed: list[Doomed] = field(default_factory=list)

    def delete(self) -> Doomed:
        one = Doomed(f"s{len(self.doomed)}", render_time(self.now), self.now + timedelta(seconds=KEPT_S))
        self.doomed.append(one)
        return one

    def leap(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def run(self, seconds: float) -> None:
        self.leap(seconds)
        self.real_s += seconds
        self.running_s += seconds

    def restart(self, off_s: float) -> None:
        self.leap(off_s)
        self.real_s += off_s
        self.running_s = 20.0

    def observe(self) -> None:
        self.seen = observed(self.seen, self.doomed, self.now, self.running_s)

    def live(self, seconds: float, step_s: float = HOUR_S) -> None:
        while seconds > 0:
            self.run(min(step_s, seconds))
            self.observe()
            seconds -= step_s

    def is_over(self, one: Doomed) -> bool:
        return verdict(self.seen, one, self.now)[0]


def test_after_a_normal_life_the_first_purge_behind_the_deadline_takes_it() -> None:
    """Also when it comes just before the next observation, and not a moment earlier."""
    machine = Machine()
    machine.observe()
    machine.run(1800)
    one = machine.delete()
    machine.live(KEPT_S - HOUR_S)
    machine.run(HOUR_S - 1)
    assert not machine.is_over(one)
    machine.run(1)
    until = render_time(one.deadline)
    assert verdict(machine.seen, one, machine.now) == (True, f"it could be restored until {until}, and that was waited for")


@pytest.mark.parametrize("leap_days", [1, 31, 400])
@pytest.mark.parametrize("at_day", [0, 5, 29])
def test_a_clock_that_jumps_forward_makes_nothing_early(leap_days: int, at_day: int) -> None:
    """+400 days at any time, and the item is kept for the 30 days that were promised, and no hour longer."""
    machine = Machine()
    one = machine.delete()
    machine.observe()
    machine.live(at_day * DAY_S)
    machine.leap(leap_days * DAY_S)
    machine.live((30 - at_day) * DAY_S - 2 * HOUR_S)
    over, why = verdict(machine.seen, one, machine.now)
    assert not over
    assert "jumped" in why
    machine.live(2 * HOUR_S)
    assert machine.is_over(one)


def test_a_jump_right_after_the_deletion_is_known_for_one() -> None:
    """Between two observations: what was deleted since the last one cannot be older than that."""
    machine = Machine()
    machine.observe()
    machine.run(600)
    one = machine.delete()
    machine.run(600)
    machine.leap(400 * DAY_S)
    machine.observe()
    machine.live(29.9 * DAY_S)
    assert not machine.is_over(one)
    machine.live(0.2 * DAY_S)
    assert machine.is_over(one)


def test_a_clock_that_goes_back_makes_it_wait() -> None:
    """−2 days: nothing is purged before the clock is there again, and then it is."""
    machine = Machine()
    one = machine.delete()
    machine.observe()
    machine.live(29 * DAY_S)
    machine.leap(-2 * DAY_S)
    machine.live(2.9 * DAY_S)
    assert not machine.is_over(one)
    machine.live(0.2 * DAY_S)
    assert machine.is_over(one)


def test_what_was_overdue_when_it_was_first_seen_waits_a_week() -> None:
    """Of running time, a little each day: the time when the machine is off does not count."""
    machine = Machine()
    one = machine.delete()
    machine.run(40 * DAY_S)
    machine.observe()
    for _ in range(27):
        machine.live(6 * HOUR_S)
        machine.restart(18 * HOUR_S)
        machine.observe()
        over, why = verdict(machine.seen, one, machine.now)
        assert not over
        assert "overdue" in why
        assert "of running time more" in why
    machine.live(7 * HOUR_S)
    assert machine.is_over(one)


def test_what_was_first_seen_by_a_clock_that_was_ahead_is_seen_anew() -> None:
    """An observation from later than now is none."""
    machine = Machine()
    one = machine.delete()
    machine.leap(400 * DAY_S)
    machine.observe()
    machine.live(6.9 * DAY_S)
    machine.leap(-400 * DAY_S)
    machine.live(3 * DAY_S)
    assert not machine.is_over(one)
    machine.leap(400 * DAY_S)
    machine.live(DAY_S)
    assert not machine.is_over(one)


def test_a_machine_that_is_off_at_night_and_over_a_weekend_is_not_waited_for() -> None:
    machine = Machine()
    one = machine.delete()
    machine.observe()
    for day in range(30):
        machine.live(8 * HOUR_S)
        machine.restart(16 * HOUR_S + (2 * DAY_S if day == 14 else 0))
        machine.observe()
    assert machine.is_over(one)


def test_a_machine_that_was_off_for_long_or_began_with_a_wrong_clock_waits_a_week() -> None:
    """Nobody can tell which it was: it begins anew."""
    machine = Machine()
    one = machine.delete()
    machine.observe()
    machine.live(25 * DAY_S)
    machine.restart(10 * DAY_S)
    machine.observe()
    machine.live(6.9 * DAY_S)
    assert not machine.is_over(one)
    machine.live(0.2 * DAY_S)
    assert machine.is_over(one)


def test_what_nobody_has_watched_is_not_over() -> None:
    machine = Machine()
    one = machine.delete()
    machine.run(300 * DAY_S)
    assert verdict(machine.seen, one, machine.now)[1].endswith("but no daemon has watched it come")


def test_a_clock_that_leaps_and_is_set_back_a_little_forgets_nothing() -> None:
    """Seen to fail where all that was known of it was forgotten: then it was over after a week."""
    machine = Machine()
    machine.observe()
    one = machine.delete()
    machine.leap(23 * DAY_S)
    machine.observe()
    machine.leap(-3.0)
    machine.observe()
    machine.live(29 * DAY_S)
    assert not machine.is_over(one)
    machine.live(1.1 * DAY_S)
    assert machine.is_over(one)


Step = tuple[float, float, bool]  # seconds that pass, by how much the clock then leaps, whether the leap comes before the look


@given(
    steps=st.lists(
        st.tuples(st.floats(1, 3 * DAY_S), st.one_of(st.just(0.0), st.floats(-500 * DAY_S, 500 * DAY_S)), st.booleans()),
        min_size=1, max_size=60,
    ),
    deleted_at=st.integers(0, 5),
)  # fmt: skip
def test_no_sequence_of_leaps_makes_anything_early(steps: list[Step], deleted_at: int) -> None:
    """As long as the machine runs and a daemon looks, nothing is over before the time that was promised has really passed, but for
    the hour between two looks. (Seen to fail where a leap counted as time that has passed.)"""
    machine = Machine()
    machine.observe()
    one: Doomed | None = None
    deleted_s = 0.0
    for number, (passes_s, leaps_s, before) in enumerate(steps):
        machine.run(passes_s)
        if number == deleted_at:
            one, deleted_s = machine.delete(), machine.real_s
        if before:
            machine.leap(leaps_s)
        machine.observe()
        if one is not None and machine.is_over(one):
            assert machine.real_s - deleted_s >= KEPT_S - SLACK_S
        if not before:
            machine.leap(leaps_s)
        if one is not None and machine.is_over(one):
            assert machine.real_s - deleted_s >= KEPT_S - SLACK_S


def test_observations_are_kept_and_losing_them_only_delays(tmp_path: Path) -> None:
    """Read back as they were written; a file that makes no sense is none."""
    now = START
    memory = Memory(tmp_path / "sessions", clock=lambda: now)
    session = memory.create_session(id="s1")
    session.record_decision("decided", made_by="vera")
    observe(memory, now, 5.0)
    session.delete("DEC-001", reason="r")
    now += timedelta(hours=1)
    observe(memory, now, 5.0 + HOUR_S)
    seen = load(memory)
    (watch,) = seen.watches.values()
    assert (seen.at, seen.running_s, watch.left_s, watch.passed_s) == (now, 5.0 + HOUR_S, KEPT_S, HOUR_S)
    for nonsense in (b"", b"[]", b'{"version": 1}', b'{"version": 1, "at": 5, "running_s": 1, "watches": {}}', b"\xff"):
        (memory.root / FILE).write_bytes(nonsense)
        assert load(memory) == Seen()
