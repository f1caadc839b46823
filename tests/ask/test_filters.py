"""The options that narrow a question down, its pages, its times, and names that nothing has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smp_client import InvalidQuery, Memory, MemoryNotFound, Session

NOW = datetime(2026, 1, 22, 12, tzinfo=UTC)  # a Thursday


@pytest.fixture
def session(tmp_path: Path) -> Session:
    memory = Memory(tmp_path / "sessions", clock=lambda: NOW, count_access=False)
    made = memory.create_session(id="s1", project="Shop")

    def decide(text: str, *tags: str, days: float = 0.0, **further: Any) -> None:
        at = NOW - timedelta(days=days)
        made.record_decision(text, made_by="veritas", tags=tags, timestamp=at, **further)

    decide("login by token", "security.login", "api", confidence="high")
    decide("login by card", "security.login", days=0.05, confidence="low")
    decide("no login", "security", days=2.5, importance=0.2)
    decide("colours", "design", days=8)
    return made


def ids(session: Session, text: str = "", **options: Any) -> list[str]:
    return sorted(record.id for record in session.search(text, **options))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"all_tags": ["security", "api"]}, ["DEC-001"]),
        ({"tags": "security", "without_tags": "api"}, ["DEC-002", "DEC-003"]),
        ({"without_tags": ["security"]}, ["DEC-004"]),
        ({"tags": "security", "exact_tags": True}, ["DEC-003"]),
        ({"without_tags": "security", "exact_tags": True}, ["DEC-001", "DEC-002", "DEC-004"]),
        ({"min_importance": 0.5}, ["DEC-001", "DEC-002", "DEC-004"]),
        ({"confidence": ["high", "low"]}, ["DEC-001", "DEC-002"]),
        ({"types": "Decisions", "since": "2h"}, ["DEC-001", "DEC-002"]),
        ({"since": "7d"}, ["DEC-001", "DEC-002", "DEC-003"]),
        ({"since": "this week"}, ["DEC-001", "DEC-002", "DEC-003"]),
        ({"until": "1w"}, ["DEC-004"]),
        ({"since": "this month", "until": "this month"}, [f"DEC-00{one}" for one in range(1, 5)]),
    ],
)
def test_each_option(session: Session, options: Any, found: list[str]) -> None:
    assert ids(session, **options) == found
    with_text = [one for one in found if one != "DEC-004"]
    assert ids(session, "login", **options) == with_text
    query: Any = {"filters": []}
    assert sorted(one.id for one in session.query(query, **options)) == found


@pytest.mark.parametrize("text", ["", "login", "login OR colours", "-colours"])
@pytest.mark.parametrize("further", [{}, {"min_priority": 0.1}, {"min_relevance": 0.01}])
def test_the_total_is_that_of_all_pages(session: Session, text: str, further: Any) -> None:
    everything = session.search(text, limit=None, **further)
    assert everything.total == len(everything)
    first = session.search(text, limit=1, with_total=True, **further)
    assert (len(first), first.total) == (1, len(everything))
    behind = session.search(text, limit=1, offset=50, with_total=True, **further)
    assert (len(behind), behind.total) == (0, len(everything))
    assert session.search(text, limit=1, **further).total is None  # counting takes time


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"agents": "Veritas"}, "No memory is from 'Veritas' (did you mean 'veritas'?)."),
        ({"tags": ["design", "secuirty"]}, "has the tag 'secuirty' (did you mean 'security'?)."),
        ({"all_tags": "dseign"}, "No memory has the tag 'dseign' (did you mean 'design'?)."),
        ({"without_tags": "zzz"}, "No memory has the tag 'zzz'."),
        ({"confidence": "explict"}, "the confidence 'explict' (did you mean 'explicit'?)."),
        ({"project": "Shpo"}, "No session is of the project 'Shpo' (did you mean 'Shop'?)."),
        ({"agents": "veritas", "tags": "design", "project": "shop"}, None),
    ],
)
def test_a_name_that_nothing_has_is_noted(session: Session, options: Any, note: str | None) -> None:
    for asked in (session, session.memory):
        said = asked.search(**options).note
        assert said is None if note is None else note in str(said)


def test_questions_by_a_name_that_nothing_has(session: Session) -> None:
    assert "did you mean 'veritas'?" in str(session.by_agent("Veritas").note)
    assert session.by_agent("veritas").note is None
    assert "'secuirty' (did you mean 'security'?)" in str(session.by_topic("secuirty").note)
    assert session.by_topic("security", since="2h", types="turn").note is None
    assert "did you mean 'Shop'?" in str(session.memory.context(project="Shpo").note)
    assert session.memory.context(project="Shop").note is None
    with pytest.raises(MemoryNotFound, match=r"no memory 'DEC-2' .*Did you mean DEC-002"):
        session.similar("DEC-2")
    assert session.similar("UTF-8") == []  # a text


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda one: one.by_time("2026-01-22", "2026-01-11"), "exchange the two"),
        (lambda one: one.search(since="2h", until="7d"), "exchange the two"),
        (lambda one: one.timeline("2026-01-22", "2026-01-11"), "exchange the two"),
        (lambda one: one.search(sort="newst"), "did you mean 'newest'?"),
        (lambda one: one.search(types="decison"), "did you mean 'decision'?"),
        (lambda one: one.search(min_imporance=1), "did you mean 'min_importance'?"),
        (lambda one: one.memory.sessions(state="actve"), "did you mean 'active'?"),
        (lambda one: one.search(since="thiss week"), "this week"),
        (lambda one: one.search(min_importance=2), "min_importance must be a number"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_nearest(session: Session, ask: Any, says: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        ask(session)
    assert says in str(refused.value)
    assert session.memory.sessions(state="idle") == []
