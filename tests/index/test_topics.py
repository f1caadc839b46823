"""What sessions are about: as data, of one session and of several, and as the YAML indexes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from smp_client import Memory, Session, SessionNotFound
from smp_client.index.database import Entry, Index
from smp_client.index.take_in import rebuild
from smp_client.index.topics import AGENTS, TIMELINE, TOPICS, Topic, render, write

GOLDEN = Path(__file__).parent.parent / "golden/indexes"
DAY = "2026-01-11T"


def at(time: str) -> dict[str, Any]:
    return {"timestamp": f"{DAY}{time}Z"}


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index.in_memory()
    yield found
    found.close()


def about(asked: Memory | Session) -> dict[str, Topic]:
    return {topic.name: topic for topic in asked.topics()}


@pytest.fixture
def first(memory: Memory) -> Session:
    """A decision, a finding, and a turn that refers to the finding."""
    session = memory.create_session(id="first", user="user-123", topic="security")
    session.update_metadata(created_at=f"{DAY}10:00:00Z")
    session.record_decision("Use OAuth", made_by="architect", tags=["Security", "oauth.tokens"],
                            **at("10:10:00"))  # fmt: skip
    session.record_finding("No MFA", discovered_by="veritas", severity="critical",
                           tags=["security", "mfa"], **at("10:20:00"))  # fmt: skip
    session.add_turn("veritas", "The OAuth tokens, too, live too long.",
                     memory_refs=["FIND-001"], **at("10:30:00"))  # fmt: skip
    return session


def test_a_topic_says_how_much_there_is_about_it_and_what(first: Session) -> None:
    """The most mentioned first, however it is written, with its memories and its subtopics."""
    topics = about(first)
    assert list(topics) == ["security", "mfa", "oauth", "oauth.tokens"]
    related = {"decisions": ["DEC-001"], "findings": ["FIND-001"], "preferences": [],
               "turns": ["turn-1"]}  # fmt: skip
    times = (f"{DAY}10:00:00Z", f"{DAY}10:30:00Z")
    # The session itself, and then all of its memories.
    # These tags stand only beside it.
    below = ("mfa", "oauth.tokens")
    assert topics["security"] == Topic("security", 1.0, 4, *times, related, below)
    assert topics["oauth"].subtopics == ("oauth.tokens",)
    assert topics["oauth"].related["decisions"] == ["DEC-001"]


def test_a_turn_counts_for_the_topics_that_it_says_as_in_by_topic(memory: Memory) -> None:
    """With the tags of the documents: authentication has the subtopics mfa and oauth."""
    session = memory.create_session(id="said")
    for tags in (["authentication", "mfa"], ["authentication", "oauth"]):
        session.record_decision("Decided", made_by="architect", tags=tags)
    session.add_turn("user", "How does authentication work?")
    session.add_turn("veritas", "With tokens")
    session.add_turn("user", "And authentication on phones, with MFA?")
    topics = about(session)
    topic = topics["authentication"]
    assert topic.related["turns"] == ["turn-1", "turn-3"]
    assert (topic.mentions, topic.weight) == (4, round(4 / 6, 2))
    assert topic.subtopics == ("mfa", "oauth")
    assert topics["mfa"].related["turns"] == ["turn-3"]
    found = [one.id for one in session.by_topic("authentication", types="turn", sort="oldest")]
    assert found == topic.related["turns"]


def test_a_timeline_is_in_order_and_can_be_of_a_time(first: Session) -> None:
    """Both ends belong to it."""
    assert [event.ref for event in first.timeline()] == ["DEC-001", "FIND-001", "turn-1"]
    (event,) = first.timeline(f"{DAY}10:20:00Z", f"{DAY}10:29:59Z")
    assert (event.ref, event.timestamp) == ("FIND-001", f"{DAY}10:20:00Z")
    assert (event.type, event.session, event.actor) == ("finding", "first", "veritas")
    assert (event.topics, event.further) == (("mfa", "security"), {"severity": "critical"})


@pytest.mark.usefixtures("first")
def test_the_topics_of_several_sessions_are_merged(memory: Memory) -> None:
    """Mentions are added up, the weight is their share of all, and an id names its session."""
    second, tags = memory.create_session(id="second", topic="billing"), ["billing", "security"]
    second.record_decision("Round up", made_by="architect", tags=tags, **at("10:10:00"))
    second.add_turn("user", "Is MFA asked for in billing?", **at("11:00:00"))
    memory.everywhere.record_pattern("Asks first", tags=["security"])
    merged = about(memory)
    security = merged["security"]
    assert (security.mentions, security.weight) == (6, round(6 / 8, 2))
    assert security.related["decisions"] == ["first/DEC-001", "second/DEC-001"]
    assert security.related["patterns"] == ["global/PAT-001"]
    assert list(merged)[:2] == ["security", "billing"]


# The files.


@pytest.fixture
def documented(memory: Memory) -> Session:
    """Two decisions, two findings, two preferences and four turns, as the documents have them."""
    tags = ["oauth", "security", "requirements"]
    session = memory.create_session(id="s1", user="user-123", topic="authentication", tags=tags)
    session.update_metadata(created_at=at("14:30:00")["timestamp"])
    for speaker, said, refs, time in (
        ("user", "Let's review the authentication requirements for the platform.", [], "14:30:00"),
        ("bmad-master", "I'll coordinate a comprehensive review with our specialists.",
         ["DEC-001"], "14:30:05"),
        ("veritas", "**CRITICAL:** No MFA requirement specified [FIND-001]",
         ["FIND-001", "FIND-002"], "14:30:30"),
        ("user", "Good catches. MFA should be required for all admin users.",
         ["PREF-001"], "14:35:00"),
    ):  # fmt: skip
        session.add_turn(speaker, said, **({"memory_refs": refs} if refs else {}), **at(time))
    for text, by, tags, time in (
        ("Use multi-agent review", "bmad-master", ["process", "collaboration"], "14:30:05"),
        ("Use OAuth 2.0 with JWT", "architect", ["architecture", "security", "authentication"],
         "14:40:00"),
    ):  # fmt: skip
        session.record_decision(text, made_by=by, tags=tags, **at(time))
    for text, severity, topic in (
        ("No MFA requirement specified", "critical", "mfa"),
        ("Session timeout not defined", "important", "session"),
    ):
        tags = ["security", "authentication", topic]
        found = {"discovered_by": "veritas", "severity": severity, "tags": tags}
        session.record_finding(text, **found, **at("14:30:30"))
    applies: dict[str, Any] = {"domains": ["authentication", "security"]}
    session.record_preference("MFA required for admin users", topic="mfa_requirements",
                              confidence="explicit", applies_to=applies,
                              **at("14:35:00"))  # fmt: skip
    applies = {"domains": ["security", "authentication", "authorization"]}
    session.record_preference("Prefer comprehensive verification", topic="verification_depth",
                              applies_to=applies, **at("15:00:00"))  # fmt: skip
    return session


@pytest.mark.parametrize("name", [TOPICS, TIMELINE, AGENTS])
def test_the_session_of_the_documents(
    memory: Memory, documented: Session, index: Index, name: str
) -> None:
    """The three files, byte for byte, as they were looked at and found good."""
    rebuild(memory, index)
    assert render(index, "s1")[name].decode() == (GOLDEN / name).read_text()


def test_only_files_that_differ_are_written(memory: Memory, session: Session, index: Index) -> None:
    session.record_decision("D", made_by="a", tags=["t"])
    rebuild(memory, index)
    folder = memory.root / "active/s1/indexes"
    shutil.rmtree(folder)
    assert write(memory, index, "s1") == [TOPICS, TIMELINE, AGENTS]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    before = {path: path.stat().st_ctime_ns for path in [folder, *folder.iterdir()]}
    assert write(memory, index, "s1") == []
    assert {path: path.stat().st_ctime_ns for path in before} == before
    (folder / AGENTS).unlink()
    (folder / TIMELINE).write_text("mine")
    assert write(memory, index, "s1") == [TIMELINE, AGENTS]
    outside = memory.root.parent / "outside"
    outside.write_text("precious")
    (folder / TOPICS).unlink()
    os.symlink(outside, folder / TOPICS)
    assert write(memory, index, "s1") == [TOPICS]
    assert (outside.read_text(), (folder / TOPICS).is_symlink()) == ("precious", False)
    assert list((memory.root / ".smp/tmp").iterdir()) == []
    shutil.rmtree(memory.root / "active/s1")
    with pytest.raises(SessionNotFound):
        write(memory, index, "s1")
    assert not (memory.root / "active/s1").exists(), "its indexes do not bring a session back"


def test_odd_names_and_times_give_files_that_can_be_read(
    memory: Memory, session: Session, index: Index
) -> None:
    """Names that only a person can have written are topics as they stand."""
    names = ["a..b", "no", "1", "2026-01-11", "x" * 200, "ü: [", "*"]
    tags = ", ".join(f"'{name}'" for name in names)
    records = f"  - {{id: A, tags: [{tags}], timestamp: soon}}\n  - {{id: '§', tags: 5}}\n"
    (memory.root / "active/s1/findings.yaml").write_text(f"version: 1\nfindings:\n{records}")
    rebuild(memory, index)
    files = {name: yaml.safe_load(text) for name, text in render(index, "s1").items()}
    topics = files[TOPICS]["topic_index"]["topics"]
    assert set(names) - {"*"} <= topics.keys()
    assert topics["1"]["related_memories"]["findings"] == ["A"]
    assert topics["1"]["first_mentioned"] is None
    assert files[TIMELINE]["timeline_index"]["events"] == []


def test_the_files_are_bounded(index: Index) -> None:
    """1,000 topics and agents, and the newest 10,000 events."""
    entries = [
        Entry(f"finding-{number}", "finding", f"{number}", "{}", timestamp=f"{DAY}00:00:00Z",
              at=number, actor=f"a{number % 1500}", tags=(f"t{number % 2000}",))
        for number in range(10_010)
    ]  # fmt: skip
    index.add("s", "any", entries)
    files = [yaml.load(text, yaml.CSafeLoader) for text in render(index, "s").values()]
    topics, timeline, agents = (next(iter(file.values())) for file in files)
    assert (len(topics["topics"]), len(agents["agents"])) == (1000, 1000)
    assert list(topics["topics"])[:3] == ["t0", "t1", "t2"]
    events = [event["ref"] for event in timeline["events"]]
    assert (len(events), events[0], events[-1]) == (10_000, "finding-10", "finding-10009")
