"""What sessions are about: as data, of one session and of several, and as the YAML indexes."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import Memory, Session, SessionNotFound
from smp_client.index.database import Entry, Index
from smp_client.index.take_in import rebuild
from smp_client.index.topics import Topic, timeline_of, topics_of
from smp_client.index.yaml_indexes import AGENTS, TIMELINE, TOPICS, render, write
from smp_client.model.times import microseconds, render_time, time_of

GOLDEN = Path(__file__).parent.parent / "golden/indexes"
DAY = "2026-01-11T"


def at(time: str) -> dict[str, Any]:
    return {"timestamp": f"{DAY}{time}Z"}


def moment(time: str | None) -> int | None:
    return microseconds(datetime.fromisoformat(f"{DAY}{time}+00:00")) if time else None


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index.in_memory()
    yield found
    found.close()


def about(memory: Memory, index: Index, scopes: str | list[str] = "s1") -> dict[str, Topic]:
    rebuild(memory, index)
    return {topic.name: topic for topic in topics_of(index, scopes)}


@pytest.fixture
def first(memory: Memory) -> Session:
    """A decision, a finding, and a turn that refers to the finding and says another topic."""
    session = memory.create_session(id="first", user="user-123", topic="security")
    session.update_metadata(created_at=f"{DAY}10:00:00Z")
    session.record_decision("Use OAuth", made_by="architect", tags=["Security", "oauth.tokens"],
                            **at("10:10:00"))  # fmt: skip
    session.record_finding("No MFA", discovered_by="veritas", severity="critical",
                           tags=["security", "mfa"], **at("10:20:00"))  # fmt: skip
    session.add_turn("veritas", "The OAuth tokens, too, live too long.",
                     memory_refs=["FIND-001"], **at("10:30:00"))  # fmt: skip
    return session


@pytest.fixture
def second(memory: Memory) -> Session:
    """With ids of the first session, and with a word that is a topic only there."""
    session = memory.create_session(id="second", user="user-123", topic="billing")
    session.update_metadata(created_at=f"{DAY}09:00:00Z")
    tags = ["billing", "security"]
    session.record_decision("Round up", made_by="architect", tags=tags, **at("10:10:00"))
    session.add_turn("user", "Is MFA asked for in billing?", **at("11:00:00"))
    return session


def test_a_topic_says_how_much_there_is_about_it_and_what(
    memory: Memory, first: Session, index: Index
) -> None:
    """The most mentioned first, however it is written, with its memories and its subtopics."""
    topics = about(memory, index, "first")
    assert list(topics) == ["security", "mfa", "oauth", "oauth.tokens"]
    related = {"decisions": ["DEC-001"], "findings": ["FIND-001"], "preferences": [],
               "turns": ["turn-1"]}  # fmt: skip
    times = (f"{DAY}10:00:00Z", f"{DAY}10:30:00Z")
    # The session itself, and then all of its memories.
    assert topics["security"] == Topic("security", 1.0, 4, *times, related, ("mfa", "oauth"))
    assert topics["oauth"].subtopics == ("oauth.tokens",)
    assert topics["oauth.tokens"].related["turns"] == ["turn-1"], "it is said there"


@pytest.mark.parametrize(
    ("since", "until", "refs"),
    [
        (None, None, ["DEC-001", "FIND-001", "turn-1"]),
        ("10:20:00", None, ["FIND-001", "turn-1"]),
        (None, "10:20:00", ["DEC-001", "FIND-001"]),
        ("10:20:00", "10:20:00", ["FIND-001"]),
        ("10:20:01", "10:29:59", []),
    ],
)
def test_a_timeline_is_in_order_and_can_be_of_a_time(
    memory: Memory, first: Session, index: Index, since: Any, until: Any, refs: list[str]
) -> None:
    """Both ends belong to it."""
    rebuild(memory, index)
    events = timeline_of(index, "first", moment(since), moment(until))
    assert [event.ref for event in events] == refs
    for event in events:
        if event.ref == "FIND-001":
            assert (event.timestamp, event.at) == (f"{DAY}10:20:00Z", moment("10:20:00"))
            assert (event.type, event.session, event.actor, event.text) == (
                "finding", "first", "veritas", "No MFA")  # fmt: skip
            assert (event.topics, event.further) == (("mfa", "security"), {"severity": "critical"})


def test_the_topics_of_several_sessions_are_merged(
    memory: Memory, first: Session, second: Session, index: Index
) -> None:
    """Mentions are added up, the weight is their share of all, and an id names its session."""
    merged = about(memory, index, ["first", "second"])
    each = Counter[str]()
    for name in ("first", "second"):
        each.update({topic.name: topic.mentions for topic in topics_of(index, name)})
    assert {name: topic.mentions for name, topic in merged.items()} == each
    security = merged["security"]
    assert (security.mentions, security.weight) == (5, round(5 / 7, 2))
    assert security.related["decisions"] == ["first/DEC-001", "second/DEC-001"]
    assert merged["billing"].first_mentioned == f"{DAY}09:00:00Z"
    assert merged["mfa"].related["turns"] == ["first/turn-1"], "in the second it is only a word"
    assert list(merged)[:2] == ["security", "billing"]


def test_memories_for_all_sessions_have_topics_too(
    memory: Memory, first: Session, index: Index
) -> None:
    memory.everywhere.record_pattern("Asks first", tags=["security"])
    assert about(memory, index, "global")["security"].related["patterns"] == ["PAT-001"]
    assert topics_of(index, ["global", "first"])[0].mentions == 5


def test_a_topic_with_dots_is_below_another(memory: Memory, session: Session, index: Index) -> None:
    session.record_decision("D", made_by="a", tags=["security.authentication.mfa"])
    session.record_decision("E", made_by="a", tags=["security"])
    topics = about(memory, index)
    assert topics["security"].related["decisions"] == ["DEC-001", "DEC-002"]
    below = {name: topic.subtopics for name, topic in topics.items() if name.startswith("sec")}
    assert below == {
        "security": ("security.authentication",),
        "security.authentication": ("security.authentication.mfa",),
        "security.authentication.mfa": (),
    }


def test_a_topic_is_below_the_nearest_that_it_mostly_occurs_with(
    memory: Memory, session: Session, index: Index
) -> None:
    """mfa is mostly about auth, which is mostly about security: nothing is listed twice."""
    further = [["auth", "mfa"]] * 2 + [["auth"]] * 3 + [[]] * 2 + [["alone"]]
    for tags in [*(["security", *more] for more in further), ["alone"], ["alone"]]:
        session.record_decision("D", made_by="a", tags=tags)
    topics = about(memory, index)
    assert {name: topics[name].subtopics for name in ("security", "auth", "mfa", "alone")} == {
        "security": ("auth",), "auth": ("mfa",), "mfa": (), "alone": ()}  # fmt: skip


@pytest.mark.parametrize(
    ("topic", "text", "said"),
    [
        ("mfa", "Is MFA needed?", True),
        ("mfa", "mfas and emfatic", False),
        ("mfa_requirements", "the MFA requirements", True),
        ("mfa_requirements", "mfa-requirements.", True),
        ("mfa_requirements", "requirements of MFA", False),
        ("a.b-c", "so A b\nC", True),
        ("über", "ÜBER alles", True),
        ("mfa", "", False),
    ],
)
def test_a_topic_that_is_said_is_mentioned(
    memory: Memory, session: Session, index: Index, topic: str, text: str, *, said: bool
) -> None:
    """All words of its name, one behind the other, in any case and with anything between them."""
    session.record_preference("P", topic=topic)
    session.add_turn("user", text)
    assert about(memory, index)[topic].related["turns"] == ["turn-1"][:said]


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
    session.update_metadata(context={"tags": ["more"]})
    rebuild(memory, index)
    assert write(memory, index, "s1") == [TOPICS]
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


# Any memories.

NAMES = st.one_of(
    st.sampled_from(["security", "security.mfa", "mfa", "a..b", ".x", "no", "1", "2026-01-11"]),
    st.text(max_size=140),
)
TIMES = st.one_of(st.none(), st.datetimes().map(lambda at: f"{at.isoformat()}Z"), st.just("soon"))
KINDS = ["decision", "finding", "learning", "relationship", "conversation_turn", "artifact"]
MADE = st.fixed_dictionaries({
    "type": st.sampled_from(KINDS), "id": st.sampled_from(["turn-1", "turn-2", "D-1", "D-2", "§"]),
    "time": TIMES, "actor": NAMES, "text": st.text(max_size=60),
    "tags": st.lists(NAMES, max_size=4), "refs": st.lists(st.sampled_from(["D-1", "turn-2", "?"])),
})  # fmt: skip


def entry(number: int, made: dict[str, Any]) -> Entry:
    time = time_of(made["time"])
    return Entry(
        made["id"], made["type"], f"{number}", "{}", number, number + 1,
        render_time(time) if time else None, microseconds(time) if time else None,
        made["actor"].replace("\0", ""), made["text"], tags=tuple(dict.fromkeys(made["tags"])),
        refs=tuple((target, "memory_refs") for target in sorted(set(made["refs"]))),
    )  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    made=st.lists(MADE, max_size=25),
    context=st.fixed_dictionaries({"primary_topic": NAMES, "tags": st.lists(NAMES, max_size=3)}),
)
def test_any_memories_give_files_that_hold_together(
    made: list[dict[str, Any]], context: dict[str, Any]
) -> None:
    """Every reference leads to a memory; every memory with a time is one event, in its hour."""
    index = Index.in_memory()
    about = {"context": context, "created_at": "2026-01-01T00:00:00Z"}
    index.note_session("s", "active", about)
    entries = [entry(number, one) for number, one in enumerate(made)]
    index.add("s", "any", entries)
    files = [yaml.safe_load(content) for content in render(index, "s").values()]
    index.close()
    topics, timeline, agents = (next(iter(file.values())) for file in files)
    ids = {one.id for one in entries}
    events = [(event["type"], event["ref"], event["timestamp"]) for event in timeline["events"]]
    expected = [(one.type, one.id, one.timestamp) for one in entries if one.timestamp]
    assert sorted(events) == sorted(expected)
    hours: dict[str, list[str]] = {}
    for _, ref, time in events:
        hours.setdefault(f"{time[:13]}:00", []).append(ref)
    assert {hour: one["event_refs"] for hour, one in timeline["buckets"].items()} == hours
    below = [name for topic in topics["topics"].values() for name in topic["subtopics"]]
    assert len(below) == len(set(below)), "a topic is below one other at most"
    assert set(below) <= topics["topics"].keys()
    for topic in topics["topics"].values():
        related = topic["related_memories"]
        refs = [ref for kind, refs in related.items() for ref in refs if kind != "turns"]
        assert set(refs) <= ids
        # Only the session itself is a mention without a memory.
        assert 0 <= topic["mentions"] - len(refs) - len(related["turns"]) <= 1
        assert topic["weight"] == round(topic["mentions"] / (len(made) + 1), 2) <= 1
    for agent in agents["agents"].values():
        assert {ref for refs in agent["memories"].values() for ref in refs} <= ids


def numbered(number: int, tags: list[str], actor: str = "a") -> Entry:
    time = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
    made = {"type": "finding", "id": f"finding-{number}", "time": time, "actor": actor}
    return entry(number, {**made, "text": "x", "tags": tags, "refs": []})


def test_the_files_are_bounded(index: Index) -> None:
    """1,000 topics and agents, and the newest 10,000 events, with 16 topics each."""
    entries = [numbered(number, [f"t{number % 2000}", *(f"own{number}.{tag}" for tag in range(20))]
                        if number > 10_000 else [f"t{number % 2000}"], f"a{number % 1500}")
               for number in range(10_010)]  # fmt: skip
    index.add("s", "any", entries)
    files = [yaml.load(text, yaml.CSafeLoader) for text in render(index, "s").values()]
    topics, timeline, agents = (next(iter(file.values())) for file in files)
    assert (len(topics["topics"]), len(agents["agents"])) == (1000, 1000)
    assert list(topics["topics"])[:3] == ["t0", "t1", "t2"]
    events = timeline["events"]
    assert [event["ref"] for event in (events[0], events[-1])] == ["finding-10", "finding-10009"]
    assert (len(events), len(events[-1]["topics"])) == (10_000, 16)
