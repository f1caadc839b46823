"""A reading counts at once: for the priority, the count and the age of its session."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from commands import run
from daemons import Daemon

from smp_client import Memory, Record, Session

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture
def session(tmp_path: Path, clock: Clock) -> Session:
    made = Memory(tmp_path / "sessions", clock=clock).create_session(id="s1", project="Shop")
    made.record_decision("Use OAuth", made_by="ann")
    made.record_decision("Use YAML", made_by="ann")
    clock.forward(days=10)
    return made


def now(session: Session, memory_id: str = "DEC-001") -> Record:
    return session.get(memory_id, count_access=False)


USES: dict[str, Callable[[Session], Any]] = {
    "get": lambda s: s.get("DEC-001"),
    "get of the memory": lambda s: s.memory.get("s1/DEC-001"),
    "show": lambda s: run(s.memory.root, "show s1 DEC-001"),
    "context": lambda s: s.memory.context(project="Shop"),
    "context of a session": lambda s: s.context(),
    "another process": lambda s: (s.memory.root / "active/s1/access.log").write_text(
        "2026-01-11T12:00:00Z DEC-001\n"
    ),
}


@pytest.mark.parametrize("use", USES)
def test_a_reading_raises_the_priority_at_once(session: Session, use: str) -> None:
    before = now(session)
    USES[use](session)
    after = now(session)
    assert after.priority > before.priority
    assert (before.access_count, after.access_count) == (0, 1)
    assert after.last_accessed is not None
    assert after.last_accessed > START
    other = Memory(session.memory.root, clock=session.memory.options.clock)
    assert other.session("s1").search("OAuth")[0].priority == after.priority


def test_every_reading_adds_and_decay_keeps_the_sum(session: Session, clock: Clock) -> None:
    seen = [now(session).priority]
    for _ in range(5):
        session.get("DEC-001")
        seen.append(now(session).priority)
    assert seen == sorted(set(seen))
    assert now(session).access_count == 5
    assert now(session, "DEC-002").access_count == 0
    session.decay()
    assert (session.memory.root / "active/s1/access.log").read_bytes() == b""
    assert (now(session).access_count, now(session).priority) == (5, seen[-1])
    assert session.metadata()["last_accessed"] == "2026-01-11T12:00:00Z"
    session.get("DEC-001")
    assert now(session).access_count == 6


def test_the_one_that_was_read_leads_a_list_by_priority(session: Session) -> None:
    assert [one.id for one in session.search(sort="priority")] == ["DEC-002", "DEC-001"]
    session.get("DEC-001")
    assert [one.id for one in session.search(sort="priority")] == ["DEC-001", "DEC-002"]
    found = session.query({"sort": [{"field": "priority", "direction": "desc"}]})
    assert [one.id for one in found] == ["DEC-001", "DEC-002"]
    least = now(session).priority - 0.001
    found = session.search("oauth yaml", min_priority=least)
    assert [one.id for one in found] == ["DEC-001"]


def test_a_context_is_one_line_of_the_log(session: Session) -> None:
    page = session.memory.context(project="Shop")
    assert {*page.included} >= {"s1/DEC-001"}
    (line,) = (session.memory.root / "active/s1/access.log").read_text().splitlines()
    assert {*line.split()} == {"2026-01-11T12:00:00Z", "DEC-001", "DEC-002"}


def test_a_reading_counts_at_once_beside_a_daemon(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="ann", timestamp=datetime.now(UTC) - timedelta(days=9))
    daemon = Daemon([tmp_path / "sessions"], tmp_path / "log")
    try:
        daemon.wait_ready()
        before = now(session).priority
        session.get("DEC-001")
        assert now(session).priority > before
        assert now(session).access_count == 1
    finally:
        daemon.stop()
