"""The YAML indexes: the shapes of the documents, for people to read, and nothing but a view of the
index."""

from __future__ import annotations

import os
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
from smp_client.index.take_in import rebuild
from smp_client.index.yaml_indexes import AGENTS, TIMELINE, TOPICS, render, write
from smp_client.text.values import load

TOP = Path(__file__).parent.parent


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
    """Two decisions, two findings, two preferences and four turns, as the documents have them."""

    def at(time: str) -> dict[str, Any]:
        return {"timestamp": f"2026-01-11T{time}Z"}

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
                              confidence="explicit", applies_to=applies, **at("14:35:00"))  # fmt: skip
    applies = {"domains": ["security", "authentication", "authorization"]}
    session.record_preference("Prefer comprehensive verification", topic="verification_depth",
                              applies_to=applies, **at("15:00:00"))  # fmt: skip
    return session


@pytest.mark.parametrize("name", [TOPICS, TIMELINE, AGENTS])
def test_the_session_of_the_documents(
    memory: Memory, documented: Session, index: Index, name: str
) -> None:
    """The three files of the documents' own session, byte for byte, as they were looked at and
    found good."""
    rebuild(memory, index)
    golden = TOP / "golden/indexes" / name
    assert render(index, "s1")[name].decode() == golden.read_text()


def test_a_topic_with_dots_is_below_another(memory: Memory, session: Session, index: Index) -> None:
    """`security.authentication.mfa` is about all three, each the subtopic of the one before, be
    that a tag itself or not."""
    session.record_decision("D", made_by="a", tags=["security.authentication.mfa"])
    session.record_decision("E", made_by="a", tags=["security"])
    topics = rendered(memory, index)["topic_index"]["topics"]
    assert topics["security"]["related_memories"]["decisions"] == ["DEC-001", "DEC-002"]
    assert topics["security"]["subtopics"] == ["security.authentication"]
    assert topics["security.authentication"]["subtopics"] == ["security.authentication.mfa"]
    assert topics["security.authentication.mfa"]["subtopics"] == []


def test_a_topic_is_below_the_nearest_that_it_mostly_occurs_with(
    memory: Memory, session: Session, index: Index
) -> None:
    """mfa is mostly about authentication, which is mostly about security: a chain, and nothing is
    listed twice."""
    for number in range(8):
        further = (
            ["auth", "mfa"]
            if number < 2
            else ["auth"]
            if number < 5
            else ["alone"]
            if number == 7
            else []
        )
        session.record_decision("D", made_by="a", tags=["security", *further])
    for _ in range(2):
        session.record_decision("D", made_by="a", tags=["alone"])
    topics = rendered(memory, index)["topic_index"]["topics"]
    assert {name: topics[name]["subtopics"] for name in ("security", "auth", "mfa", "alone")} == {
        "security": ["auth"],
        "auth": ["mfa"],
        "mfa": [],
        "alone": [],
    }


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
    assert rendered(memory, index)["topic_index"]["topics"][topic]["related_memories"]["turns"] == (
        [1] if said else []
    )


# Pure.


def test_nothing_is_written_when_nothing_changed(
    memory: Memory, session: Session, index: Index
) -> None:
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


def test_a_missing_directory_is_made_and_a_deleted_session_is_not(
    memory: Memory, session: Session, index: Index
) -> None:
    """`indexes/` may be removed at any time; a session that was removed does not come back by its
    indexes."""
    rebuild(memory, index)
    shutil.rmtree(memory.root / "active/s1/indexes")
    assert write(memory, index, "s1") == [TOPICS, TIMELINE, AGENTS]
    shutil.rmtree(memory.root / "active/s1")
    with pytest.raises(SessionNotFound):
        write(memory, index, "s1")
    assert not (memory.root / "active/s1").exists()


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(
    memory: Memory, session: Session, index: Index
) -> None:
    outside = memory.root.parent / "outside"
    outside.write_text("precious")
    os.symlink(outside, memory.root / "active/s1/indexes/topics.yaml")
    rebuild(memory, index)
    write(memory, index, "s1")
    assert outside.read_text() == "precious"
    assert yaml.safe_load((memory.root / "active/s1/indexes/topics.yaml").read_text())[
        "topic_index"
    ]


# Whatever there is.

ODD_NAMES = ["security", "security.mfa", "mfa", "a..b", ".x", "no", "1", "null", "2026-01-11"]
NAMES = st.one_of(st.sampled_from(ODD_NAMES), st.text(max_size=140))
TIMES = st.one_of(
    st.none(),
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.sampled_from(["2026-01-11T14:30:00Z", "soon"]),
)
MEMORIES = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(
                [
                    "decision",
                    "finding",
                    "preference",
                    "learning",
                    "relationship",
                    "turn",
                    "artifact",
                ]
            ),
            "id": st.one_of(st.integers(1, 5), st.text(max_size=8)),
            "time": TIMES,
            "actor": NAMES,
            "text": st.text(max_size=60),
            "tags": st.lists(NAMES, max_size=4),
            "refs": st.lists(st.sampled_from(["decision-1", "turn-2", "missing"]), max_size=2),
        }
    ),
    max_size=25,
)
TYPES = {
    "turn": ("conversation_turn", "conversation.md"),
    "artifact": ("artifact", "artifacts/x.md"),
}


def put(index: Index, number: int, made: dict[str, Any]) -> None:
    """Into the index, in the form that indexing gives it."""
    from smp_client.index.take_in import _entry, _refs
    from smp_client.model.record import DECISION
    from smp_client.text.fingerprint import stored

    kind, file = TYPES.get(made["kind"], (made["kind"], f"{made['kind']}s.yaml"))
    memory_id = f"turn-{number % 7}" if made["kind"] == "turn" else f"{made['kind']}-{made['id']}"
    fields = {
        "id": memory_id,
        "tags": made["tags"],
        "memory_refs": made["refs"],
        "topic": made["actor"],
        "severity": made["text"],
    }
    value, data, digest = stored({**fields, "source": made["text"], "target": "x"})
    entry = _entry(memory_id, kind, value, data, digest, made["time"])._replace(
        start=number,
        end=number + 1,
        actor=made["actor"],
        text=made["text"],
        refs=tuple(_refs(DECISION, value)),
    )
    index.add("s", file, [entry])


def test_the_files_are_bounded() -> None:
    """The 1,000 topics and agents of which there is most, and the newest 10,000 events with 16
    topics each."""
    index = Index.in_memory()
    for number in range(10_010):
        time = f"2026-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z"
        tags = [
            f"t{number % 2000}",
            *(f"own{number}.{tag}" for tag in range(20 * (number > 10_000))),
        ]
        put(
            index,
            number,
            {
                "kind": "finding",
                "id": number,
                "time": time,
                "actor": f"a{number % 1500}",
                "text": "x",
                "tags": tags,
                "refs": [],
            },
        )
    written: dict[str, Any] = {
        name: load(content.decode()) for name, content in render(index, "s").items()
    }
    index.close()
    topics = written["topics.yaml"]["topic_index"]["topics"]
    assert len(topics) == 1000
    assert list(topics)[:11] == ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10"]
    assert len(written["agents.yaml"]["agent_index"]["agents"]) == 1000
    events = written["timeline.yaml"]["timeline_index"]["events"]
    assert [event["ref"] for event in (events[0], events[-1])] == ["finding-10", "finding-10009"]
    assert (len(events), len(events[-1]["topics"])) == (10_000, 16)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    made=MEMORIES,
    context=st.fixed_dictionaries({"primary_topic": NAMES, "tags": st.lists(NAMES, max_size=3)}),
)
def test_any_memories_give_files_that_hold_together(
    made: list[dict[str, Any]], context: dict[str, Any]
) -> None:
    """YAML that another reader reads; every reference leads to a memory; every memory with a time
    is one event, in its hour."""
    index = Index.in_memory()
    try:
        index.note_session(
            "s", "active", {"context": context, "created_at": "2026-01-01T00:00:00Z"}
        )
        for number, one in enumerate(made):
            put(index, number, one)
        found = {
            key: value
            for content in render(index, "s").values()
            for key, value in yaml.safe_load(content).items()
        }
        rows = index.connection.execute(
            "SELECT type, id, timestamp FROM memories ORDER BY file, start"
        ).fetchall()
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
    assert all(
        bucket["event_count"] == len(bucket["event_refs"])
        for bucket in timeline["buckets"].values()
    )


def check_topics(topics: dict[str, Any], ids: set[str], everything: int) -> None:
    for name, topic in topics.items():
        refs = [
            *(
                ref
                for kind, refs in topic["related_memories"].items()
                if kind != "turns"
                for ref in refs
            ),
            *(f"turn-{number}" for number in topic["related_memories"]["turns"]),
        ]
        assert set(refs) <= ids
        assert 0 <= topic["mentions"] - len(refs) <= 1, (
            "only the session itself is a mention without a memory"
        )
        assert topic["weight"] == round(topic["mentions"] / everything, 2) <= 1
        assert all(subtopic in topics and subtopic != name for subtopic in topic["subtopics"])
    listed = [subtopic for topic in topics.values() for subtopic in topic["subtopics"]]
    assert len(listed) == len(set(listed)), "a topic is below one other at most"


def test_the_cost_is_in_proportion() -> None:
    """Four times the memories take about four times the work, not sixteen."""

    def calls(count: int) -> int:
        """How many functions were called, Python's and its own, and how often a thousand steps were
        made in SQLite."""
        index = Index.in_memory()
        for number in range(count):
            put(
                index,
                number,
                {
                    "kind": "finding",
                    "id": number,
                    "time": f"2026-01-{1 + number % 28:02d}T14:30:00Z",
                    "actor": "a",
                    "text": "x",
                    "tags": [f"t{number % 50}", f"u{number % 7}"],
                    "refs": [],
                },
            )
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
