"""The life of sessions: when each state is due and why, what counts as use, and how use brings a
session back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import Memory, Session, SessionPutAway
from smp_client.disk.locks import lock
from smp_client.model.policies import Thresholds
from smp_client.model.times import render_time
from smp_client.passes import lifecycle
from smp_client.passes.lifecycle import Standing, activities, apply, last_activity, plan, state_for

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **time: float) -> None:
        self.now += timedelta(**time)


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
    """Lets it lie, until the pass has said so."""
    clock.forward(**time)
    assert lifecycle.lifecycle(Memory(session.scope.tree.root, clock=clock)).success


# Deciding.


@pytest.mark.parametrize(
    ("idle_for", "state"),
    [
        (timedelta(0), "active"), (24 * HOUR - timedelta(microseconds=1), "active"), (24 * HOUR, "idle"),
        (7 * DAY - timedelta(microseconds=1), "idle"), (7 * DAY, "decaying"),
        (30 * DAY - timedelta(microseconds=1), "decaying"), (30 * DAY, "archived"), (4000 * DAY, "archived"),
    ],
)  # fmt: skip
def test_each_state_begins_where_it_is_said_to(idle_for: timedelta, state: str) -> None:
    assert state_for(idle_for, Thresholds()) == state


GOLDEN: dict[str, tuple[Standing, tuple[str, str] | None]] = {
    "used an hour ago": (Standing("s", "active", NOON - HOUR), None),
    "a new one": (Standing("s", "created", NOON), ("become_active", "a new session is active at once")),
    "not used for a day": (
        Standing("s", "active", NOON - 25 * HOUR),
        ("become_idle", "not used for 25 hours (since 2026-02-28T11:00:00Z), idle after 24 hours"),
    ),
    "still idle": (Standing("s", "idle", NOON - 6 * DAY, NOON - 5 * DAY), None),
    "idle for a week": (
        Standing("s", "idle", NOON - 8 * DAY, NOON - 7 * DAY),
        ("become_decaying", "not used for 8 days (since 2026-02-21T12:00:00Z), decaying after 7 days"),
    ),
    "still decaying": (Standing("s", "decaying", NOON - 29 * DAY, NOON - 22 * DAY), None),
    "decaying for a month": (
        Standing("s", "decaying", NOON - 31 * DAY, NOON - 24 * DAY),
        ("archive", "not used for 31 days (since 2026-01-29T12:00:00Z), archived after 30 days"),
    ),
    "nobody looked for a month": (
        Standing("s", "active", NOON - 30 * DAY),
        ("archive", "not used for 30 days (since 2026-01-30T12:00:00Z), archived after 30 days"),
    ),
    "idle and used again": (
        Standing("s", "idle", NOON - HOUR, NOON - 2 * DAY), ("become_active", "used again at 2026-03-01T11:00:00Z"),
    ),
    "decaying and used again": (
        Standing("s", "decaying", NOON - HOUR, NOON - 9 * DAY), ("become_active", "used again at 2026-03-01T11:00:00Z"),
    ),
    "decaying, used again, and left alone again": (
        Standing("s", "decaying", NOON - 2 * DAY, NOON - 9 * DAY),
        ("become_idle", "not used for 2 days (since 2026-02-27T12:00:00Z), idle after 24 hours"),
    ),
    "deactivated by hand": (Standing("s", "idle", NOON - 2 * HOUR, NOON - HOUR), None),
    "deactivated by hand and used since": (
        Standing("s", "idle", NOON - HOUR, NOON - 2 * HOUR), ("become_active", "used again at 2026-03-01T11:00:00Z"),
    ),
    "deactivated by hand long ago": (
        Standing("s", "idle", NOON - 8 * DAY, NOON - 8 * DAY + HOUR),
        ("become_decaying", "not used for 8 days (since 2026-02-21T12:00:00Z), decaying after 7 days"),
    ),
    "called decaying by hand": (Standing("s", "decaying", NOON - 2 * DAY, NOON - HOUR), None),
    "idle since a day that is still to come": (
        Standing("s", "idle", NOON - HOUR, NOON + 400 * DAY), ("become_active", "used again at 2026-03-01T11:00:00Z"),
    ),
    "idle, and nobody wrote down since when": (
        Standing("s", "idle", NOON - HOUR), ("become_active", "used again at 2026-03-01T11:00:00Z"),
    ),
    "a word of somebody's own": (Standing("s", "on holiday", NOON - HOUR), None),
    "a word of somebody's own, not used": (
        Standing("s", "on holiday", NOON - 25 * HOUR),
        ("become_idle", "not used for 25 hours (since 2026-02-28T11:00:00Z), idle after 24 hours"),
    ),
    "nothing tells when it was used": (Standing("s", "active", None), None),
    "used in a moment that is still to come": (Standing("s", "active", NOON + HOUR), None),
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
def test_what_is_due_and_why(case: str) -> None:
    standing, expected = GOLDEN[case]
    found = plan([standing], Thresholds(), NOON)
    assert [(action.type, action.reason) for action in found] == ([expected] if expected else [])
    assert all(action.session == "s" and action.about == ("s",) for action in found)


# What counts as use.


USES: dict[str, Callable[[Session], Any]] = {
    "adding": lambda s: s.add_turn("user", "hello"),
    "changing": lambda s: s.pin("DEC-001"),
    "a state": lambda s: s.save_agent_state("veritas", {"task": "review"}),
    "an artifact": lambda s: s.save_artifact("notes", "text"),
    "reading": lambda s: s.search("OAuth", count_access=True),
    "reading one": lambda s: s.get("DEC-001"),
}


@pytest.mark.parametrize("use", USES)
def test_writing_and_reading_are_use(session: Session, clock: Clock, use: str) -> None:
    clock.forward(hours=5, milliseconds=7)
    assert last_activity(session) == NOON
    USES[use](session)
    assert last_activity(session) == clock.now


def test_the_times_of_files_say_nothing(session: Session, clock: Clock) -> None:
    """Decay rewrites files long after anybody used them."""
    clock.forward(days=3)
    for path in session.scope.tree.root.glob("active/s1/*"):
        path.touch()
    session.update_metadata(storage={"total_bytes": 7})
    assert last_activity(session) == NOON


@pytest.mark.parametrize(
    "write",
    [
        lambda s: s.add_turn("user", "from the future", timestamp="2099-01-01T00:00:00Z"),
        lambda s: s.update_metadata(last_accessed="2099-01-01T00:00:00Z"),
        lambda s: (s.scope.tree.root / "active/s1/access.log").write_text("2099-01-01T00:00:00Z DEC-001\n"),
        lambda s: edit(s, "decisions.yaml", "decay:", "updated_at: 2099-01-01T00:00:00Z\n    decay:"),
        lambda s: edit(s, "decisions.yaml", 'last_accessed: "2026-03-01T13', 'last_accessed: "2099-03-01T13'),
    ],
)  # fmt: skip
def test_a_time_in_the_future_keeps_nothing_alive(
    session: Session, clock: Clock, write: Callable[[Session], Any]
) -> None:
    """It is left out, wherever it stands, and what else is known counts."""
    clock.forward(hours=1)
    session.record_decision("The last that was done here", made_by="architect")
    write(session)
    assert last_activity(session) == NOON + HOUR
    clock.forward(days=8)
    assert last_activity(session) == NOON + HOUR


def test_many_sessions_are_asked_at_once(memory: Memory, clock: Clock) -> None:
    """Also one that nothing is known of, which is left out; and where reading does not count, only
    what was written.
    """
    for number in range(3):
        memory.create_session(id=f"s{number}").record_finding("Slow", discovered_by="veritas")
        clock.forward(hours=1)
    (memory.root / "active/bare").mkdir()
    memory.session("s0").get("FIND-001")
    ids = ["s0", "s1", "s2", "bare"]
    assert activities(memory, ids) == {"s0": clock.now, "s1": NOON + HOUR, "s2": NOON + 2 * HOUR}
    assert activities(memory, ids, readings=False) == {
        "s0": NOON,
        "s1": NOON + HOUR,
        "s2": NOON + 2 * HOUR,
    }
    assert last_activity(memory.session("bare")) == clock.now


def edit(session: Session, file: str, old: str, new: str) -> None:
    path = session.scope.tree.root / "active/s1" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# The pass.


def test_a_session_grows_old_step_by_step(memory: Memory, session: Session, clock: Clock) -> None:
    """Each step with its reason and its time in the metadata, everything else in them untouched;
    for show, nothing is done.
    """
    before = session.metadata()
    for time, type, status in [
        ({"hours": 25}, "become_idle", "idle"),
        ({"days": 7}, "become_decaying", "decaying"),
    ]:
        clock.forward(**time)
        shown = lifecycle.lifecycle(memory, dry_run=True)
        assert shown.dry_run
        assert session.metadata().get("status") != status
        done = lifecycle.lifecycle(memory)
        assert done.actions == shown.actions
        assert [action.type for action in done.actions] == [type]
        found = session.metadata()
        assert (found["status"], found["status_since"]) == (status, render_time(clock.now))
        assert found["status_reason"] == done.actions[0].reason
        assert lifecycle.lifecycle(memory).actions == []
    kept = {
        name: value for name, value in session.metadata().items() if not name.startswith("status")
    }
    assert kept == {name: value for name, value in before.items() if name != "status"}


def test_after_a_month_it_is_archived(memory: Memory, session: Session, clock: Clock) -> None:
    """Its summary says why; a question to it says how to bring it back; and back it is active, and
    stays so. Not where archiving is not wanted.
    """
    clock.forward(days=31)
    assert [action.type for action in lifecycle.lifecycle(memory, archive=False).actions] == [
        "become_decaying"
    ]
    outcome = lifecycle.lifecycle(memory)
    assert [(action.type, action.session) for action in outcome.actions] == [("archive", "s1")]
    assert outcome.success
    assert (
        memory.archived_sessions()[0].reason
        == "not used for 31 days (since 2026-03-01T12:00:00Z), archived after 30 days"
    )
    with pytest.raises(
        SessionPutAway,
        match=r"is archived since 2026-04-01T12:00:00Z\. smp unarchive s1, or memory\.restore",
    ):
        memory.session("s1")
    back = memory.restore_session("s1")
    assert back.state == "active"
    assert lifecycle.lifecycle(memory).actions == []
    assert back.get("DEC-001").data["decision"] == "Use OAuth"


def test_used_between_plan_and_archive_it_stays(
    memory: Memory, session: Session, clock: Clock
) -> None:
    """Seen to fail without the second look at the last activity in `_archive`."""
    clock.forward(days=31)
    (action,) = lifecycle.lifecycle(memory, dry_run=True).actions
    session.add_turn("user", "here I am again")
    assert apply(memory, action).actions == []
    assert memory.session("s1").state == "active"


def test_a_session_that_fails_stops_no_other(memory: Memory, clock: Clock) -> None:
    """Unreadable metadata, of a later version, missing, or locked: each is a problem with its name,
    and the others age.
    """
    for name in ("bad", "fine", "held", "later", "none", "well"):
        memory.create_session(id=name)
    (memory.root / "active/bad/metadata.yaml").write_text("session: [")
    (memory.root / "active/later/metadata.yaml").write_text("version: 99\nsession: {}\n")
    (memory.root / "active/none/metadata.yaml").unlink()
    clock.forward(hours=25)
    hurried = Memory(memory.root, clock=clock, lock_timeout_s=0.0)
    with lock(memory.tree, "held", "metadata.yaml", 15.0, "testing"):
        outcome = lifecycle.lifecycle(hurried)
    assert [action.session for action in outcome.actions] == ["fine", "well"]
    assert sorted(problem.partition(":")[0] for problem in outcome.problems) == [
        "bad",
        "held",
        "later",
        "none",
    ]
    assert (memory.root / "active/bad/metadata.yaml").read_text() == "session: ["
    assert [action.session for action in lifecycle.lifecycle(memory).actions] == ["held"]


# Back to active.


WRITES: dict[str, Callable[[Session], Any]] = {
    **{name: use for name, use in USES.items() if not name.startswith("reading")},
    "a transaction": lambda s: in_transaction(s),
    "an agent": lambda s: s.agent("veritas").record_finding("Slow"),
}


def in_transaction(session: Session) -> None:
    with session.transaction() as transaction:
        transaction.add_turn("user", "hello")
        transaction.record_decision("Two", made_by="architect")


@pytest.mark.parametrize("status", ["idle", "decaying"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_brings_it_back_at_once(
    session: Session, clock: Clock, write: str, status: str
) -> None:
    rest(session, clock, days=2 if status == "idle" else 10)
    assert session.state == status
    clock.forward(hours=1)
    WRITES[write](session)
    found = session.metadata()
    now = render_time(clock.now)
    assert (found["status"], found["status_since"], found["status_reason"]) == (
        "active",
        now,
        "written to",
    )
    assert found["last_accessed"] == now


READS: dict[str, Callable[[Memory, Session], Any]] = {
    "a search that counts": lambda m, s: s.search("OAuth", count_access=True),
    "one memory": lambda m, s: s.get("DEC-001"),
    "a search everywhere that counts": lambda m, s: m.search("OAuth", count_access=True),
    "a context": lambda m, s: s.context(),
}


@pytest.mark.parametrize("read", READS)
def test_a_reading_brings_it_back_at_once(
    memory: Memory, session: Session, clock: Clock, read: str
) -> None:
    other = memory.create_session(id="other")
    rest(session, clock, days=8)
    clock.forward(hours=1)
    assert READS[read](memory, session)
    found = session.metadata()
    assert (found["status"], found["status_reason"], found["last_accessed"]) == (
        "active",
        "read",
        render_time(clock.now),
    )
    assert other.state == "decaying", "nothing of it was read"


def test_what_a_pass_writes_wakes_nobody(session: Session, clock: Clock) -> None:
    """Seen to fail without `in_upkeep` of the scope."""
    rest(session, clock, days=8)
    with session.scope.undisturbed("a pass"):
        in_transaction(session)
        session.pin("DEC-001")
    session.update_metadata(storage={"total_bytes": 7})
    assert session.state == "decaying"
    session.unpin("DEC-001")
    assert session.state == "active"


def test_a_write_does_not_wait_for_the_waking(
    memory: Memory, session: Session, clock: Clock
) -> None:
    """Somebody who holds the metadata keeps no write waiting or from being done; the next one that
    can wakes it. Seen to fail where waking raised what it met.
    """
    rest(session, clock, days=8)
    with lock(memory.tree, "s1", "metadata.yaml", 15.0, "testing"):
        session.add_turn("user", "one")
    assert session.state == "decaying"
    session.add_turn("user", "two")
    assert session.state == "active"
    assert len(session.turns()) == 2


# By hand.


def test_activate_and_deactivate(memory: Memory, session: Session, clock: Clock) -> None:
    """Deactivated, it is idle although it was used just now, until it is used again; activated, it
    is as if it had been used.
    """
    clock.forward(minutes=1)
    lifecycle.deactivate(session, "the project rests")
    assert (session.state, session.metadata()["status_reason"]) == ("idle", "the project rests")
    assert lifecycle.lifecycle(memory).actions == []
    clock.forward(minutes=1)
    path = memory.root / "active/s1/decisions.yaml"
    path.write_text(
        path.read_text()
        + f"  - {{id: DEC-002, timestamp: {render_time(clock.now)}, made_by: a, decision: By hand}}\n"
    )
    assert [action.type for action in lifecycle.lifecycle(memory).actions] == ["become_active"]
    rest(session, clock, days=20)
    assert session.state == "decaying"
    lifecycle.activate(session, "needed again")
    assert session.state == "active"
    assert last_activity(session) == clock.now
    assert lifecycle.lifecycle(memory).actions == []


def test_a_status_that_somebody_sets_stands_until_the_session_is_used(
    memory: Memory, session: Session, clock: Clock
) -> None:
    rest(session, clock, hours=25)
    session.add_turn("user", "used again")
    clock.forward(minutes=1)
    session.update_metadata(status="decaying")
    assert session.metadata()["status_since"] == render_time(clock.now)
    assert "status_reason" not in session.metadata()
    assert lifecycle.lifecycle(memory).actions == []
    session.add_turn("user", "used again")
    assert session.state == "active"


# Where a session is that is not in its place.
