"""The YAML indexes: the shapes of the documents, for people to read, and nothing but a view of the index."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import Memory, Session, SessionNotFound
from smp_client.index.database import Index
from smp_client.index.rows import Entry
from smp_client.index.take_in import rebuild
from smp_client.index.yaml_indexes import AGENTS, TIMELINE, TOPICS, render, write
from smp_client.text.values import load

TOP = Path(__file__).parent


@pytest.fixture
def index() -> Iterator[Index]:
    found = Index.in_memory()
    yield found
    found.close()


def rendered(memory: Memory, index: Index, session: str = "s1") -> dict[str, Any]:
    """What a reader of another make finds in the three files."""
    rebuild(memory, index)
    found = {name: yaml.safe_load(content) for name, content in render(index, session).items()}
    return {**found[TOPICS], **found[TIMELINE], **found[AGENTS]}


@pytest.fixture
def documented(memory: Memory) -> Session:
    """The session that the documents tell of: two decisions, two findings, two preferences, four turns."""
    day = "2026-01-11T"
    session = memory.create_session(id="s1", user="user-123", topic="authentication", tags=["oauth", "security", "requirements"])
    session.update_metadata(created_at=f"{day}14:30:00Z")
    session.add_turn("user", "Let's review the authentication requirements for the platform.", timestamp=f"{day}14:30:00Z")
    session.add_turn("bmad-master", "I'll coordinate a comprehensive review with our specialists.", memory_refs=["DEC-001"],
                     timestamp=f"{day}14:30:05Z")  # fmt: skip
    session.add_turn("veritas", "**CRITICAL:** No MFA requirement specified [FIND-001]", memory_refs=["FIND-001", "FIND-002"],
                     timestamp=f"{day}14:30:30Z")  # fmt: skip
    session.add_turn("user", "Good catches. MFA should be required for all admin users.", memory_refs=["PREF-001"],
                     timestamp=f"{day}14:35:00Z")  # fmt: skip
    session.record_decision("Use multi-agent review", made_by="bmad-master", tags=["process", "collaboration"],
                            timestamp=f"{day}14:30:05Z")  # fmt: skip
    session.record_decision("Use OAuth 2.0 with JWT", made_by="architect", tags=["architecture", "security", "authentication"],
                            timestamp=f"{day}14:40:00Z")  # fmt: skip
    session.record_finding("No MFA requirement specified", discovered_by="veritas", severity="critical",
                           tags=["security", "authentication", "mfa"], timestamp=f"{day}14:30:30Z")  # fmt: skip
    session.record_finding("Session timeout not defined", discovered_by="veritas", severity="important",
                           tags=["security", "authentication", "session"], timestamp=f"{day}14:30:30Z")  # fmt: skip
    session.record_preference("MFA required for admin users", topic="mfa_requirements", confidence="explicit",
                              applies_to={"domains": ["authentication", "security"]}, timestamp=f"{day}14:35:00Z")  # fmt: skip
    session.record_preference("Prefer comprehensive verification", topic="verification_depth",
                              applies_to={"domains": ["security", "authentication", "authorization"]},
                              timestamp=f"{day}15:00:00Z")  # fmt: skip
    return session


@pytest.mark.parametrize("name", [TOPICS, TIMELINE, AGENTS])
def test_the_session_of_the_documents(memory: Memory, documented: Session, index: Index, name: str) -> None:
    """The three files of the documents' own session, byte for byte, as they were looked at and found good."""
    rebuild(memory, index)
    golden = TOP / "golden/indexes" / name
    assert render(index, "s1")[name].decode() == golden.read_text()


def test_topics_have_the_documented_shape(memory: Memory, documented: Session, index: Index) -> None:
    """Version, time, and for each topic its weight, mentions, times, memories by kind and subtopics, in this order."""
    topics = rendered(memory, index)["topic_index"]
    assert list(topics) == ["version", "last_updated", "topics"]
    assert topics["version"] == 1
    assert topics["last_updated"] == "2026-01-11T15:00:00Z"
    assert list(topics["topics"])[:2] == ["authentication", "security"]
    found = topics["topics"]["authentication"]
    assert list(found) == ["weight", "mentions", "first_mentioned", "last_mentioned", "related_memories", "subtopics"]
    assert found["related_memories"] == {
        "decisions": ["DEC-002"], "findings": ["FIND-001", "FIND-002"], "preferences": ["PREF-001", "PREF-002"], "turns": [1, 3, 4],
    }  # fmt: skip
    assert found["first_mentioned"] == "2026-01-11T14:30:00Z"
    assert found["mentions"] == 1 + 1 + 2 + 2 + 3  # the session itself, then the memories
    assert found["weight"] == round(9 / 11, 2)
    assert topics["topics"]["mfa"]["related_memories"]["turns"] == [3, 4]


def test_the_timeline_has_the_documented_shape(memory: Memory, documented: Session, index: Index) -> None:
    """Events in order with who and what, and the hours they fall into."""
    timeline = rendered(memory, index)["timeline_index"]
    assert list(timeline) == ["version", "last_updated", "events", "buckets"]
    assert [event["ref"] for event in timeline["events"]] == [
        "turn-1", "turn-2", "DEC-001", "turn-3", "FIND-001", "FIND-002", "turn-4", "PREF-001", "DEC-002", "PREF-002",
    ]  # fmt: skip
    assert timeline["events"][0] == {
        "timestamp": "2026-01-11T14:30:00Z", "type": "conversation_turn", "ref": "turn-1", "participants": ["user"],
        "topics": ["authentication", "requirements"],
    }  # fmt: skip
    assert timeline["events"][2] == {
        "timestamp": "2026-01-11T14:30:05Z", "type": "decision", "ref": "DEC-001", "made_by": "bmad-master",
        "topics": ["process", "collaboration"],
    }  # fmt: skip
    assert timeline["events"][4] == {
        "timestamp": "2026-01-11T14:30:30Z", "type": "finding", "ref": "FIND-001", "discovered_by": "veritas",
        "severity": "critical", "topics": ["security", "authentication", "mfa"],
    }  # fmt: skip
    assert list(timeline["buckets"]) == ["2026-01-11T14:00", "2026-01-11T15:00"]
    assert timeline["buckets"]["2026-01-11T15:00"] == {"event_count": 1, "event_refs": ["PREF-002"]}


def test_agents_have_the_same_spirit(memory: Memory, documented: Session, index: Index) -> None:
    """What each of them said and made, from when to when, and about what."""
    documented.save_agent_state("veritas", {"focus": "mfa"})
    agents = rendered(memory, index)["agent_index"]["agents"]
    assert set(agents) == {"user", "bmad-master", "veritas", "architect"}
    assert agents["bmad-master"] == {
        "message_count": 1, "first_active": "2026-01-11T14:30:05Z", "last_active": "2026-01-11T14:30:05Z",
        "memories": {"decisions": ["DEC-001"]}, "topics": ["collaboration", "process"],
    }  # fmt: skip
    assert agents["veritas"]["memories"] == {"findings": ["FIND-001", "FIND-002"], "agent_states": ["veritas"]}
    assert agents["user"]["message_count"] == 2
    assert agents["user"]["memories"] == {}


def test_a_topic_with_dots_is_below_another(memory: Memory, session: Session, index: Index) -> None:
    """`security.authentication.mfa` is about all three, each the subtopic of the one before, be that a tag itself or not."""
    session.record_decision("D", made_by="a", tags=["security.authentication.mfa"])
    session.record_decision("E", made_by="a", tags=["security"])
    topics = rendered(memory, index)["topic_index"]["topics"]
    assert topics["security"]["related_memories"]["decisions"] == ["DEC-001", "DEC-002"]
    assert topics["security"]["subtopics"] == ["security.authentication"]
    assert topics["security.authentication"]["subtopics"] == ["security.authentication.mfa"]
    assert topics["security.authentication.mfa"]["subtopics"] == []


def test_a_topic_is_below_the_nearest_that_it_mostly_occurs_with(memory: Memory, session: Session, index: Index) -> None:
    """mfa is mostly about authentication, which is mostly about security: a chain, and nothing is listed twice."""
    for number in range(8):
        further = ["auth", "mfa"] if number < 2 else ["auth"] if number < 5 else ["alone"] if number == 7 else []
        session.record_decision("D", made_by="a", tags=["security", *further])
    for _ in range(2):
        session.record_decision("D", made_by="a", tags=["alone"])
    topics = rendered(memory, index)["topic_index"]["topics"]
    assert {name: topics[name]["subtopics"] for name in ("security", "auth", "mfa", "alone")} == {
        "security": ["auth"], "auth": ["mfa"], "mfa": [], "alone": [],
    }  # fmt: skip


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
    memory: Memory, session: Session, index: Index, topic: str, text: str, said: bool
) -> None:
    """All words of its name, one behind the other, in any case and with anything between them."""
    session.record_preference("P", topic=topic)
    session.add_turn("user", text)
    assert rendered(memory, index)["topic_index"]["topics"][topic]["related_memories"]["turns"] == ([1] if said else [])


def test_an_empty_session_has_its_own_topics(memory: Memory, session: Session, index: Index) -> None:
    """A new session is about its primary topic and its tags, and everything else is there and empty."""
    found = rendered(memory, index)
    assert list(found["topic_index"]["topics"]) == ["authentication", "oauth"]
    assert found["topic_index"]["topics"]["oauth"]["weight"] == 1.0
    assert found["timeline_index"]["events"] == []
    assert found["timeline_index"]["buckets"] == {}
    assert found["agent_index"]["agents"] == {}
    assert found["agent_index"]["last_updated"] == session.metadata()["created_at"]


def test_of_a_hand_made_double_all_are_listed(memory: Memory, session: Session, index: Index) -> None:
    """Records of one id are as many memories."""
    path = memory.root / "active/s1/decisions.yaml"
    path.write_text("version: 1\ndecisions:\n" + "".join(
        f'  - id: A\n    timestamp: "2026-01-11T14:0{n}:00Z"\n    tags: [t{n}]\n' for n in range(3)))  # fmt: skip
    found = rendered(memory, index)
    assert [event["topics"] for event in found["timeline_index"]["events"]] == [["t0"], ["t1"], ["t2"]]
    assert [found["topic_index"]["topics"][f"t{n}"]["related_memories"]["decisions"] for n in range(3)] == [["A"]] * 3


def test_a_directory_without_metadata_has_indexes_too(memory: Memory, index: Index) -> None:
    """A session that was dropped in whole needs no more than its records; without any time, none is given."""
    (memory.root / "active/dropped").mkdir(parents=True)
    (memory.root / "active/dropped/findings.yaml").write_text("- id: A\n  finding: x\n  tags: [t]\n")
    found = rendered(memory, index, "dropped")
    assert found["topic_index"]["last_updated"] is None
    assert found["topic_index"]["topics"]["t"]["first_mentioned"] is None
    assert found["timeline_index"]["events"] == []


# Pure.


def test_the_order_of_writing_does_not_matter(memory: Memory, documented: Session, index: Index) -> None:
    """The same memories, taken in in any order and by any history of the index, give the same bytes."""
    rebuild(memory, index)
    expected = render(index, "s1")
    assert render(index, "s1") == expected
    columns = "key, file, id, type, start, end, hash, timestamp, at, actor, text, data"
    rows = index.connection.execute(f"SELECT {columns} FROM memories").fetchall()
    refs = index.connection.execute("SELECT memory, target, relation FROM refs").fetchall()
    (metadata,) = index.connection.execute("SELECT metadata FROM sessions").fetchone()
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        other = Index.in_memory()
        other.note_session("s1", "active", json.loads(metadata))
        for key, file, *fields, data in rows:
            tags = tuple(json.loads(data).get("tags", ()))
            own = tuple((target, relation) for memory_key, target, relation in refs if memory_key == key)
            other.add("s1", file, [Entry(*fields, "", data, "decision", None, None, 0, 1.0, tags=tags, refs=own)])
        assert render(other, "s1") == expected
        other.close()


def test_nothing_is_written_when_nothing_changed(memory: Memory, session: Session, index: Index) -> None:
    """The first write makes all three files, the second none; a new memory makes those it is in."""
    session.record_decision("D", made_by="a", tags=["t"])
    rebuild(memory, index)
    directory = memory.root / "active/s1/indexes"
    assert write(memory, index, "s1") == [TOPICS, TIMELINE, AGENTS]

    def changes() -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in [directory, *directory.iterdir()]}
        return {path: (status.st_ino, status.st_ctime_ns) for path, status in found.items()}

    before = changes()
    assert write(memory, index, "s1") == []
    assert changes() == before
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    session.update_metadata(context={"tags": ["more"]})
    rebuild(memory, index)
    assert write(memory, index, "s1") == [TOPICS]
    (directory / AGENTS).unlink()
    (directory / TIMELINE).write_text("mine")
    assert write(memory, index, "s1") == [TIMELINE, AGENTS]
    assert list((memory.root / ".smp/tmp").iterdir()) == []


def test_a_missing_directory_is_made_and_a_deleted_session_is_not(memory: Memory, session: Session, index: Index) -> None:
    """`indexes/` may be removed at any time; a session that was removed does not come back by its indexes."""
    rebuild(memory, index)
    shutil.rmtree(memory.root / "active/s1/indexes")
    assert write(memory, index, "s1") == [TOPICS, TIMELINE, AGENTS]
    shutil.rmtree(memory.root / "active/s1")
    with pytest.raises(SessionNotFound):
        write(memory, index, "s1")
    assert not (memory.root / "active/s1").exists()


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(memory: Memory, session: Session, index: Index) -> None:
    outside = memory.root.parent / "outside"
    outside.write_text("precious")
    os.symlink(outside, memory.root / "active/s1/indexes/topics.yaml")
    rebuild(memory, index)
    write(memory, index, "s1")
    assert outside.read_text() == "precious"
    assert yaml.safe_load((memory.root / "active/s1/indexes/topics.yaml").read_text())["topic_index"]


# Whatever there is.

ODD_NAMES = ["security", "security.mfa", "mfa", "a..b", ".x", "no", "1", "null", "2026-01-11"]
NAMES = st.one_of(st.sampled_from(ODD_NAMES), st.text(max_size=140))
TIMES = st.one_of(st.none(), st.datetimes().map(lambda at: at.isoformat() + "Z"), st.sampled_from(["2026-01-11T14:30:00Z", "soon"]))
MEMORIES = st.lists(
    st.fixed_dictionaries({
        "kind": st.sampled_from(["decision", "finding", "preference", "learning", "relationship", "turn", "artifact"]),
        "id": st.one_of(st.integers(1, 5), st.text(max_size=8)), "time": TIMES, "actor": NAMES, "text": st.text(max_size=60),
        "tags": st.lists(NAMES, max_size=4), "refs": st.lists(st.sampled_from(["decision-1", "turn-2", "missing"]), max_size=2),
    }),
    max_size=25,
)  # fmt: skip
TYPES = {"turn": ("conversation_turn", "conversation.md"), "artifact": ("artifact", "artifacts/x.md")}


def put(index: Index, number: int, made: dict[str, Any]) -> None:
    """Into the index, in the form that indexing gives it."""
    from smp_client.index.take_in import _entry, _refs
    from smp_client.model.record import DECISION
    from smp_client.text.fingerprint import stored

    kind, file = TYPES.get(made["kind"], (made["kind"], f"{made['kind']}s.yaml"))
    memory_id = f"turn-{number % 7}" if made["kind"] == "turn" else f"{made['kind']}-{made['id']}"
    fields = {"id": memory_id, "tags": made["tags"], "memory_refs": made["refs"], "topic": made["actor"], "severity": made["text"]}
    value, data, digest = stored({**fields, "source": made["text"], "target": "x"})
    entry = _entry(memory_id, kind, value, data, digest, made["time"])._replace(
        start=number, end=number + 1, actor=made["actor"], text=made["text"], refs=tuple(_refs(DECISION, value))
    )
    index.add("s", file, [entry])


def test_the_files_are_bounded() -> None:
    """The 1,000 topics and agents of which there is most, and the newest 10,000 events with 16 topics each."""
    index = Index.in_memory()
    for number in range(10_010):
        time = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
        tags = [f"t{number % 2000}", *(f"own{number}.{tag}" for tag in range(20 * (number > 10_000)))]
        put(index, number, {"kind": "finding", "id": number, "time": time, "actor": f"a{number % 1500}", "text": "x",
                            "tags": tags, "refs": []})  # fmt: skip
    written: dict[str, Any] = {name: load(content.decode()) for name, content in render(index, "s").items()}
    index.close()
    topics = written["topics.yaml"]["topic_index"]["topics"]
    assert len(topics) == 1000
    assert list(topics)[:11] == ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10"]
    assert len(written["agents.yaml"]["agent_index"]["agents"]) == 1000
    events = written["timeline.yaml"]["timeline_index"]["events"]
    assert [event["ref"] for event in (events[0], events[-1])] == ["finding-10", "finding-10009"]
    assert (len(events), len(events[-1]["topics"])) == (10_000, 16)


def test_up_to_so_many_topics_all_stand_there() -> None:
    index = Index.in_memory()
    for number in range(900):
        put(index, number, {"kind": "finding", "id": number, "time": "2026-01-01T14:30:00Z", "actor": "", "text": "x",
                            "tags": [f"t{number}"], "refs": []})  # fmt: skip
    assert len(yaml.safe_load(render(index, "s")["topics.yaml"])["topic_index"]["topics"]) == 900
    index.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=MEMORIES, context=st.fixed_dictionaries({"primary_topic": NAMES, "tags": st.lists(NAMES, max_size=3)}))
def test_any_memories_give_files_that_hold_together(made: list[dict[str, Any]], context: dict[str, Any]) -> None:
    """YAML that another reader reads; every reference leads to a memory; every memory with a time is one event, in its hour."""
    index = Index.in_memory()
    try:
        index.note_session("s", "active", {"context": context, "created_at": "2026-01-01T00:00:00Z"})
        for number, one in enumerate(made):
            put(index, number, one)
        found = {key: value for content in render(index, "s").values() for key, value in yaml.safe_load(content).items()}
        rows = index.connection.execute("SELECT type, id, timestamp FROM memories ORDER BY file, start").fetchall()
    finally:
        index.close()
    ids = {memory_id for _, memory_id, _ in rows}
    check_timeline(found["timeline_index"], rows)
    check_topics(found["topic_index"]["topics"], ids, len(rows) + 1)
    for agent in found["agent_index"]["agents"].values():
        assert {ref for refs in agent["memories"].values() for ref in refs} <= ids


def check_timeline(timeline: dict[str, Any], rows: list[tuple[str, str, str | None]]) -> None:
    events = timeline["events"]
    told = sorted((event["type"], event["ref"], event["timestamp"]) for event in events)
    assert told == sorted(row for row in rows if row[2] is not None)
    hours: dict[str, list[str]] = {}
    for event in events:
        hours.setdefault(event["timestamp"][:13] + ":00", []).append(event["ref"])
    assert {hour: bucket["event_refs"] for hour, bucket in timeline["buckets"].items()} == hours
    assert all(bucket["event_count"] == len(bucket["event_refs"]) for bucket in timeline["buckets"].values())


def check_topics(topics: dict[str, Any], ids: set[str], everything: int) -> None:
    for name, topic in topics.items():
        refs = [*(ref for kind, refs in topic["related_memories"].items() if kind != "turns" for ref in refs),
                *(f"turn-{number}" for number in topic["related_memories"]["turns"])]  # fmt: skip
        assert set(refs) <= ids
        assert 0 <= topic["mentions"] - len(refs) <= 1, "only the session itself is a mention without a memory"
        assert topic["weight"] == round(topic["mentions"] / everything, 2) <= 1
        assert all(subtopic in topics and subtopic != name for subtopic in topic["subtopics"])
    listed = [subtopic for topic in topics.values() for subtopic in topic["subtopics"]]
    assert len(listed) == len(set(listed)), "a topic is below one other at most"


def test_the_cost_is_in_proportion() -> None:
    """Four times the memories take about four times the work, not sixteen."""

    def calls(count: int) -> int:
        """How many functions were called, Python's and its own, and how often a thousand steps were made in SQLite."""
        index = Index.in_memory()
        for number in range(count):
            put(index, number, {"kind": "finding", "id": number, "time": f"2026-01-{1 + number % 28:02d}T14:30:00Z", "actor": "a",
                                "text": "x", "tags": [f"t{number % 50}", f"u{number % 7}"], "refs": []})  # fmt: skip
        made = Counter[str]()
        index.connection.set_progress_handler(lambda: made.update(["sqlite"]), 1000)
        sys.setprofile(lambda _frame, event, _argument: made.update([event]))
        try:
            render(index, "s")
        finally:
            sys.setprofile(None)
        index.close()
        return made.total()

    assert calls(2000) < 6 * calls(500)
