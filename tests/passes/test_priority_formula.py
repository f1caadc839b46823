"""How much a memory still matters: the formula, its rules, answers, and reading."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import Memory, Session
from smp_client.disk import access
from smp_client.model.priority import Policy, standing

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
DAY = 86_400.0


def priority(rule: str, age: float, idle: float, accesses: int = 0) -> float:
    return Policy().priority(rule, base=None, age_days=age, idle_days=idle, accesses=accesses)


@pytest.mark.parametrize(("rule", "age", "idle", "accesses", "expected"), [
    # base · e^(-rate·idle - 0.01·age) + min(0.2, accesses·boost), with the figures of 000 §7.2.
    ("conversation_turn", 10, 10, 0, 0.5488116361),  # e^-0.6
    ("conversation_turn", 20, 5, 3, 0.6676281516),  # e^-0.45 + 0.03
    ("decision", 15, 5, 4, 0.7837773097),  # 0.95·e^-0.3 + 0.08
    ("finding", 10, 0, 2, 0.8443536762),  # 0.9·e^-0.1 + 0.03
    ("preference", 20, 20, 3, 0.5564898907),  # 0.85·e^-0.6 + 0.09
    ("agent_state", 10, 10, 0, 0.3972682430),  # 0.8·e^-0.7
    ("learning", 10, 10, 0, 0.5926545765),  # 0.8·e^-0.3: learnings persist longer
    ("artifact", 10, 10, 0, 0.5362560368),  # 0.8·e^-0.4
    ("finding.resolved", 10, 10, 0, 0.4469267734),  # 0.9·e^-0.7: half as fast again
    # Readings add 0.2 at most, and the whole is never above 1.
    ("conversation_turn", 1000, 1000, 10**9, 0.2), ("agent_state", 1000, 1000, 10**9, 0.2),
    ("decision", 0, 0, 2, 0.99), ("decision", 0, 0, 3, 1.0), ("decision", 0, 0, 1000, 1.0),
    # A clock that went back makes nothing younger than new.
    ("decision", -100, -3, 0, 0.95), ("conversation_turn", 10, -5, 0, 0.9048374180),  # e^-0.1
])  # fmt: skip
def test_the_formula(rule: str, age: float, idle: float, accesses: int, expected: float) -> None:
    assert priority(rule, age, idle, accesses) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("rule", "least"), [
    ("conversation_turn", 0.1), ("decision", 0.4), ("finding", 0.6),  # 002 §4.2; open
    ("finding.resolved", 0.3),
    ("decision.high_impact", 0.9), ("decision.unresolved", 0.7), ("finding.critical", 0.8),
    ("preference.explicit", 0.6), ("preference.inferred", 0.3), ("preference", 0.3),
    ("agent_state", 0.1), ("pattern", 0.3), ("pinned", 1.0), ("relationship", 1.0),
])  # fmt: skip
def test_nothing_matters_less_than_its_least(rule: str, least: float) -> None:
    assert priority(rule, 1_000_000, 1_000_000) == least
    assert priority(rule, 0, 0) >= least


@pytest.mark.parametrize(("kind", "data", "expected"), [
    ("decision", {}, "decision"),
    ("decision", {"status": "Pending"}, "decision.unresolved"),
    ("decision", {"status": "open", "implementation_impact": "high"}, "decision.high_impact"),
    ("decision", {"status": "open", "pinned": True}, "pinned"),
    ("finding", {"severity": "Critical"}, "finding.critical"),
    ("finding", {"severity": "critical", "resolution": {"status": "fixed"}}, "finding.resolved"),
    ("finding", {"status": "closed"}, "finding.resolved"),
    ("preference", {"confidence": "Explicit"}, "preference.explicit"),
    ("preference", {"confidence": "inferred"}, "preference.inferred"),
    ("conversation_turn", {"confidence": "explicit"}, "conversation_turn"),
])  # fmt: skip
def test_which_rule_holds(kind: str, data: dict[str, Any], expected: str) -> None:
    assert standing(kind, data) == expected


@pytest.mark.parametrize("config", [
    [], {"half_life_hours": 0}, {"half_life_hours": "soon", "min_decay_factor": 7},
    {"half_life_hours": math.nan, "min_decay_factor": math.inf}, {"enabled": "no"},
])  # fmt: skip
def test_nonsense_of_a_session_is_left_out(config: Any) -> None:
    policy = Policy().for_session({"decay_config": config})
    assert (policy.rules, policy.enabled) == (Policy().rules, True)


TIMES = st.one_of(st.none(), st.floats(-400, 20))  # days from now
RECORDS = st.lists(
    st.fixed_dictionaries({
        "type": st.sampled_from(["decision", "finding", "preference", "learning"]),
        "made": TIMES, "read": TIMES, "times": st.integers(0, 40), "base": st.one_of(st.none(), st.floats(0, 1)),
        "more": st.sampled_from([{}, {"impact": "high"}, {"status": "open"}, {"severity": "critical"}, {"status": "resolved"},
                                 {"confidence": "explicit"}, {"confidence": "inferred"}, {"pinned": True}]),
    }), min_size=1, max_size=8,
)  # fmt: skip
CONFIGS = st.sampled_from(
    [None, {"half_life_hours": 30}, {"min_decay_factor": 0.45}, {"enabled": False}]
)


def moment(days: float | None) -> datetime | None:
    return None if days is None else (NOW + timedelta(days=days)).replace(microsecond=0)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(RECORDS, CONFIGS)
def test_an_answer_has_the_priority_of_the_formula(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]],
    config: dict[str, Any] | None,
) -> None:  # fmt: skip
    """Whatever a record says of when it was made and read, and how often."""
    root = tmp_path_factory.mktemp("random") / "sessions"
    memory = Memory(root, clock=lambda: NOW, count_access=False)
    session, policy = memory.create_session(id="s"), Policy()
    if config:
        session.update_metadata(decay_config=config)
        policy = policy.for_session({"decay_config": config})
    expected: dict[str, float] = {}
    for number, record in enumerate(records):
        made, read = moment(record["made"]), moment(record["read"])
        decay = {"access_count": record["times"], "base_priority": record["base"],
                 "last_accessed": read and read.isoformat()}  # fmt: skip
        fields = {"timestamp": made and made.isoformat(), **record["more"], "decay": decay}
        with (memory.root / f"active/s/{record['type']}s.yaml").open("a") as output:
            output.write(f"  - {json.dumps({'id': f'ID-{number}', **fields})}\n")
        age = (NOW - made).total_seconds() / DAY if made else 0.0
        idle = (NOW - (read or made or NOW)).total_seconds() / DAY
        how = {"base": record["base"], "age_days": age, "idle_days": idle}
        rule = standing(record["type"], record["more"])
        expected[f"ID-{number}"] = policy.priority(rule, **how, accesses=record["times"])
    answered = {record.id: record.priority for record in session.search(limit=None)}
    assert answered == pytest.approx(expected, abs=0.5001e-4)


def lines(session: Session) -> list[list[str]]:
    """What each reading noted, without its time."""
    log = log_of(session)
    return [line.split(" ")[1:] for line in log.read_text().splitlines()] if log.exists() else []


def log_of(session: Session) -> Path:
    return Path(session.memory.root, session.scope.path("access.log"))


@pytest.fixture
def counted(tmp_path: Path) -> Session:
    session = Memory(tmp_path / "sessions", clock=lambda: NOW).create_session(id="s1")
    at = NOW - timedelta(days=20)
    for number in range(3):
        session.record_decision(f"number {number}", made_by="a", tags=["x"], timestamp=at)
    session.add_turn("user", "hello", timestamp=at)
    return session


def test_a_memory_is_read_by_getting_it_or_in_a_context_not_in_a_list(counted: Session) -> None:
    """Unless the caller, or the client as a whole, does not count."""
    quiet = Memory(counted.memory.root, count_access=False).session("s1")
    quiet.get("DEC-001"), quiet.context()
    counted.get("DEC-001", count_access=False)
    counted.get("DEC-002")
    everywhere = Memory(counted.memory.root, clock=lambda: NOW)
    for asked in (counted, everywhere):
        assert asked.search("number")
        assert asked.by_topic("x")
        assert asked.by_time()
        assert asked.query({"filters": []})
        asked.summary(), asked.topics(), asked.timeline()
    assert counted.related("DEC-001")
    assert counted.agent("a").relevant_decisions()
    assert lines(counted) == [["DEC-002"]]
    everywhere.context()
    assert [sorted(line) for line in lines(counted)[1:]] == [
        ["DEC-001", "DEC-002", "DEC-003", "turn-1"]
    ]


def test_what_cannot_be_noted_was_read_all_the_same(
    counted: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(access, "write_all", full)
    assert counted.get("DEC-001").text == "number 0"


@pytest.mark.parametrize("rubbish", [
    b"\xff\xfe\0\0", b"yesterday DEC-001\n",
    b"2026-01-31T12:00:00Z DEC-001*x ../x 'x'\n",
])  # fmt: skip
def test_rubbish_in_the_log_is_left_out(counted: Session, rubbish: bytes) -> None:
    """Lines before and behind it count, but for half a line at the end of the log."""
    good = b"2026-01-31T12:00:00Z DEC-001 DEC-001\n"
    log_of(counted).write_bytes(good + rubbish + b"\n" + good + good[:-1])
    assert access.parse(access.load(counted.scope)) == {"DEC-001": (4, NOW)}


def test_a_large_log_grows_no_further(counted: Session) -> None:
    log = log_of(counted)
    log.write_text("2026-01-30T12:00:00Z DEC-001 DEC-002\n" * 8_000)
    before = log.stat().st_size
    counted.get("DEC-003")
    assert log.stat().st_size == before
    counted.decay()
    counted.get("DEC-003")
    assert access.parse(log.read_bytes()) == {"DEC-003": (1, NOW)}
