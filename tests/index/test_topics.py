"""What sessions are about, as data: of one session, of several as one, and of a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from smp_client import Memory, Session
from smp_client.index.database import Index
from smp_client.index.take_in import rebuild
from smp_client.index.topics import timeline_of, topics_of

DAY = "2026-01-11T"


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index.in_memory()
    yield found
    found.close()


def new_session(memory: Memory, name: str, topic: str, hour: int) -> Session:
    session = memory.create_session(id=name, user="user-123", topic=topic)
    session.update_metadata(created_at=f"{DAY}{hour:02d}:00:00Z")
    return session


@pytest.fixture
def first(memory: Memory) -> Session:
    """About security: a decision, a critical finding, and a turn that refers to it and says another
    topic."""
    session = new_session(memory, "first", "security", 10)
    session.record_decision(
        "Use OAuth",
        made_by="architect",
        tags=["security", "oauth.tokens"],
        timestamp=f"{DAY}10:10:00Z",
    )
    session.record_finding(
        "No MFA",
        discovered_by="veritas",
        severity="critical",
        tags=["security", "mfa"],
        timestamp=f"{DAY}10:20:00Z",
    )
    session.add_turn(
        "veritas",
        "The OAuth tokens, too, live too long.",
        memory_refs=["FIND-001"],
        timestamp=f"{DAY}10:30:00Z",
    )
    return session


@pytest.fixture
def second(memory: Memory) -> Session:
    """About billing, with ids that the first session has too, and with a word that is a topic only
    there."""
    session = new_session(memory, "second", "billing", 9)
    session.record_decision(
        "Round up", made_by="architect", tags=["billing", "security"], timestamp=f"{DAY}10:10:00Z"
    )
    session.add_turn("user", "Is MFA asked for in billing?", timestamp=f"{DAY}11:00:00Z")
    return session


def microseconds(time: str) -> int:
    return int(datetime.fromisoformat(f"{DAY}{time}+00:00").timestamp()) * 1_000_000


def test_a_topic_says_how_much_there_is_about_it_and_what(
    memory: Memory, first: Session, index: Index
) -> None:
    """The most mentioned first, each with its share, its times, its memories by kind (turns by id)
    and its subtopics."""
    rebuild(memory, index)
    topics = {topic.name: topic for topic in topics_of(index, "first")}
    assert list(topics) == ["security", "mfa", "oauth", "oauth.tokens"]
    security = topics["security"]
    assert (security.mentions, security.weight) == (
        4,
        1.0,
    )  # the session itself, then all of its memories
    assert (security.first_mentioned, security.last_mentioned) == (
        f"{DAY}10:00:00Z",
        f"{DAY}10:30:00Z",
    )
    assert security.related == {
        "decisions": ["DEC-001"],
        "findings": ["FIND-001"],
        "preferences": [],
        "turns": ["turn-1"],
    }
    assert (security.subtopics, topics["oauth"].subtopics) == (("mfa", "oauth"), ("oauth.tokens",))
    assert topics["oauth.tokens"].related["turns"] == ["turn-1"], "it is said there"


def test_a_timeline_is_in_order_and_says_who_and_what(
    memory: Memory, first: Session, index: Index
) -> None:
    rebuild(memory, index)
    events = timeline_of(index, "first")
    assert [event.ref for event in events] == ["DEC-001", "FIND-001", "turn-1"]
    finding = events[1]
    assert (finding.timestamp, finding.at) == (f"{DAY}10:20:00Z", microseconds("10:20:00"))
    assert (finding.type, finding.session, finding.actor, finding.text) == (
        "finding",
        "first",
        "veritas",
        "No MFA",
    )
    assert (finding.topics, finding.further) == (("mfa", "security"), {"severity": "critical"})


@pytest.mark.parametrize(
    ("since", "until", "refs"),
    [
        ("10:20:00", None, ["FIND-001", "turn-1"]),
        (None, "10:20:00", ["DEC-001", "FIND-001"]),
        ("10:20:00", "10:20:00", ["FIND-001"]),
        ("10:20:01", "10:29:59", []),
    ],
)
def test_a_timeline_can_be_of_a_time(
    memory: Memory,
    first: Session,
    index: Index,
    since: str | None,
    until: str | None,
    refs: list[str],
) -> None:
    """Both ends belong to it; what an event is about does not depend on the time that is asked
    for."""
    rebuild(memory, index)
    asked = timeline_of(
        index, "first", *(None if time is None else microseconds(time) for time in (since, until))
    )
    assert [event.ref for event in asked] == refs
    assert all(event in timeline_of(index, "first") for event in asked)


def test_the_topics_of_several_sessions_are_merged(
    memory: Memory, first: Session, second: Session, index: Index
) -> None:
    """Mentions are the sum of those in each session, the weight is their share of all, and an id
    names its session."""
    rebuild(memory, index)
    merged = {topic.name: topic for topic in topics_of(index, ["first", "second"])}
    each = [
        {topic.name: topic.mentions for topic in topics_of(index, name)}
        for name in ("first", "second")
    ]
    assert {name: topic.mentions for name, topic in merged.items()} == {
        name: sum(mentions.get(name, 0) for mentions in each) for name in each[0] | each[1]
    }
    security = merged["security"]
    assert (security.mentions, security.weight) == (5, round(5 / 7, 2))
    assert security.related["decisions"] == ["first/DEC-001", "second/DEC-001"]
    assert merged["billing"].first_mentioned == f"{DAY}09:00:00Z"
    assert merged["mfa"].related["turns"] == ["first/turn-1"], (
        "in the second session, it is only a word"
    )
    assert list(merged)[:2] == ["security", "billing"]


def test_what_is_kept_for_all_sessions_has_topics_too(
    memory: Memory, first: Session, index: Index
) -> None:
    """`global` is a scope like the sessions, with patterns in it."""
    path = memory.root / "global/learned-patterns.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "version: 1\npatterns:\n  - id: PAT-001\n    pattern: Asks first\n    tags: [security]\n"
    )
    rebuild(memory, index)
    (security,) = topics_of(index, "global")
    assert security.related["patterns"] == ["PAT-001"]
    assert topics_of(index, ["global", "first"])[0].mentions == 5
