"""The life of sessions: when each state is due and why, and which uses bring a session back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from clocks import NOON, Clock

from smp_client import Memory, Session, SessionPutAway
from smp_client.disk.locks import lock
from smp_client.model.policies import Thresholds
from smp_client.model.times import render_time
from smp_client.passes.lifecycle import Standing, apply, last_activity, lifecycle, plan

HOUR, DAY, TICK = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(tmp_path: Path, clock: Clock) -> Memory:
    return Memory(tmp_path / "sessions", clock=clock)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-123")
    session.record_decision("Use OAuth", made_by="architect")
    return session


def rest(session: Session, clock: Clock, **time: float) -> None:
    clock.forward(**time)
    assert lifecycle(Memory(session.memory.root, clock=clock)).success


def types(outcome: Any) -> list[str]:
    return [action.type for action in outcome.actions]


@pytest.mark.parametrize(("status", "last", "since", "expected"), [
    ("active", NOON - 24 * HOUR + TICK, None, None),
    ("active", NOON - 24 * HOUR, None, "become_idle"),
    ("idle", NOON - 7 * DAY + TICK, NOON - 6 * DAY, None),
    ("idle", NOON - 7 * DAY, NOON - 6 * DAY, "become_decaying"),
    ("decaying", NOON - 30 * DAY + TICK, NOON - 24 * DAY, None),
    ("decaying", NOON - 30 * DAY, NOON - 24 * DAY, "archive"),
    ("created", NOON, None, "become_active"),
    ("active", NOON - 30 * DAY, None, "archive"),  # nobody looked for a month
    ("decaying", NOON - HOUR, NOON - 9 * DAY, "become_active"),
    ("decaying", NOON - 2 * DAY, NOON - 9 * DAY, "become_idle"),
    # By hand: it holds until the session is used, or is older than that.
    ("idle", NOON - 2 * HOUR, NOON - HOUR, None),
    ("idle", NOON - HOUR, NOON - 2 * HOUR, "become_active"),
    ("idle", NOON - HOUR, NOON + 400 * DAY, "become_active"),
    # A word of somebody's own counts as active.
    ("on holiday", NOON - HOUR, None, None),
    ("on holiday", NOON - 25 * HOUR, None, "become_idle"),
    ("active", None, None, None),
    ("active", NOON + HOUR, None, None),
])  # fmt: skip
def test_which_transition_is_due(
    status: str, last: datetime | None, since: datetime | None, expected: str | None
) -> None:
    found = plan(Standing("s", status, last, since), Thresholds(), NOON)
    assert (found and found.type) == expected


USES: dict[str, Callable[[Session], Any]] = {
    "adding": lambda s: s.add_turn("user", "hello"),
    "changing": lambda s: s.pin("DEC-001"),
    "an artifact": lambda s: s.save_artifact("notes", "text"),
    "reading one": lambda s: s.get("DEC-001"),
    "a context": lambda s: s.memory.context(),
}


@pytest.mark.parametrize("use", USES)
def test_writing_and_reading_bring_a_session_back_at_once(
    memory: Memory, session: Session, clock: Clock, use: str
) -> None:
    """In its metadata and in every list; the next pass has nothing to do."""
    other = memory.create_session(id="other")
    rest(session, clock, days=8)
    assert (session.state, last_activity(session)) == ("decaying", NOON)
    clock.forward(hours=5)
    USES[use](session)
    assert (session.state, last_activity(session)) == ("active", clock.now)
    found = session.metadata()
    assert found["status_since"] == render_time(clock.now)
    assert found["status_reason"] == f"used at {render_time(clock.now)}"
    assert [one.id for one in memory.sessions(state="active")] == [session.id]
    assert lifecycle(memory).actions == []
    assert (session.state, other.state) == ("active", "decaying")


def test_what_counts_no_reading_leaves_a_session_at_rest(session: Session, clock: Clock) -> None:
    """A list, a reading that is not counted, and decay itself are no use."""
    rest(session, clock, days=8)
    clock.forward(hours=5)
    session.search("token")
    session.get("DEC-001", count_access=False)
    session.memory.with_options(count_access=False).context()
    session.decay()
    assert session.state == "decaying"
    assert not (session.memory.root / "active/s1/access.log").exists()


@pytest.mark.parametrize("write", [
    lambda s: s.add_turn("user", "from the future", timestamp="2099-01-01T00:00:00Z"),
    lambda s: s.update_metadata(last_accessed="2099-01-01T00:00:00Z"),
    lambda s: (s.memory.root / "active/s1/access.log").write_text(
        "2099-01-01T00:00:00Z DEC-001\n"),
    lambda s: [path.touch() for path in s.memory.root.glob("active/s1/*")],
])  # fmt: skip
def test_a_time_in_the_future_keeps_nothing_alive(
    session: Session, clock: Clock, write: Callable[[Session], Any]
) -> None:
    """Nor do the times of files, which decay rewrites long after anybody used them."""
    clock.forward(hours=1)
    session.record_decision("The last that was done here", made_by="architect")
    write(session)
    clock.forward(days=8)
    assert last_activity(session) == NOON + HOUR


def test_a_session_grows_old_step_by_step(memory: Memory, session: Session, clock: Clock) -> None:
    """Each step with reason and time in the metadata."""
    for time, status in (({"hours": 25}, "idle"), ({"days": 7}, "decaying")):
        clock.forward(**time)
        shown = lifecycle(memory, dry_run=True)
        assert session.state != status
        done = lifecycle(memory)
        assert (done.actions, types(done)) == (shown.actions, [f"become_{status}"])
        found = session.metadata()
        assert (found["status"], found["status_since"]) == (status, render_time(clock.now))
        assert found["status_reason"] == done.actions[0].reason
        assert lifecycle(memory).actions == []


def test_after_a_month_it_is_archived(memory: Memory, session: Session, clock: Clock) -> None:
    """Not where archiving is not wanted. Back from the archive, it is active and stays so."""
    clock.forward(days=31)
    assert types(lifecycle(memory, archive=False)) == ["become_decaying"]
    assert types(lifecycle(memory)) == ["archive"]
    why = "not used since 2026-03-01T12:00:00Z, archived after 30 days"
    assert memory.archived_sessions()[0].why == why
    with pytest.raises(SessionPutAway, match=r"is archived\. smp unarchive s1"):
        memory.session("s1")
    assert memory.restore_session("s1").state == "active"
    assert lifecycle(memory).actions == []


def test_a_session_that_is_used_between_plan_and_archive_stays(
    memory: Memory, session: Session, clock: Clock
) -> None:
    clock.forward(days=31)
    (action,) = lifecycle(memory, dry_run=True).actions
    session.add_turn("user", "here I am again")
    assert apply(memory, Standing("s1", "active", NOON), action).actions == []
    assert memory.session("s1").state == "active"


def test_a_session_that_fails_stops_no_other(memory: Memory, clock: Clock) -> None:
    for name in ("bad", "fine", "held", "later", "none", "well"):
        memory.create_session(id=name)
    (memory.root / "active/bad/metadata.yaml").write_text("session: [")
    (memory.root / "active/later/metadata.yaml").write_text("version: 99\nsession: {}\n")
    (memory.root / "active/none/metadata.yaml").unlink()
    clock.forward(hours=25)
    hurried = Memory(memory.root, clock=clock, lock_timeout_s=0.0)
    with lock(memory.tree, "held", "metadata.yaml", 15.0, "testing"):
        outcome = lifecycle(hurried)
    assert [action.session for action in outcome.actions] == ["fine", "well"]
    failed = [problem.partition(":")[0] for problem in outcome.problems]
    assert failed == ["bad", "later", "none"]
    assert [note.partition(":")[0] for note in outcome.notes] == ["held"]


def test_a_state_by_hand_holds_until_the_session_is_used(
    memory: Memory, session: Session, clock: Clock
) -> None:
    clock.forward(minutes=1)
    session.deactivate("the project rests")
    assert (session.state, session.metadata()["status_reason"]) == ("idle", "the project rests")
    assert lifecycle(memory).actions == []
    clock.forward(minutes=1)
    path, stamp = memory.root / "active/s1/decisions.yaml", render_time(clock.now)
    by_hand = f"  - {{id: DEC-002, timestamp: {stamp}, made_by: a, decision: By hand}}\n"
    path.write_text(path.read_text() + by_hand)
    assert types(lifecycle(memory)) == ["become_active"]
    session.deactivate("once more")
    session.activate("needed again")
    assert (session.state, last_activity(session)) == ("active", clock.now)
    assert lifecycle(memory).actions == []
