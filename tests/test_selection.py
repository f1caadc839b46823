"""Which memories a deletion means: conditions that all hold, wherever a memory is kept, the same as the library's own questions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smp_client import Invalid, InvalidQuery, Memory, MemoryNotFound, Session, SessionNotFound
from smp_client.maintain.compacting import compact
from smp_client.maintain.compaction import SUMMARIZES

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 6, 1, tzinfo=UTC)
ANNA = "Anna Müller"


def fill(session: Session) -> None:
    """Every kind of memory, and in each something to find."""
    session.add_turn("user", "We speak of nothing", timestamp=START)
    session.add_turn("vera", "Security first, says ANNA MÜLLER", timestamp=START + timedelta(days=1))
    session.add_turn("user", "As said", timestamp=START + timedelta(days=2), memory_refs=["DEC-001"])
    session.record_decision("Use OAuth", made_by="vera", tags=["Security.login"], timestamp=START + timedelta(days=3))
    session.record_decision("Use tabs", made_by="bert", rationale=f"{ANNA} wants it", timestamp=START + timedelta(days=4))
    session.record_finding("No lock", discovered_by="vera", severity="high", tags=["doors"], timestamp=START + timedelta(days=5))
    session.record_preference("Short", topic="security", confidence="explicit", timestamp=START + timedelta(days=6))
    session.record_learning("Ask", learned_by="bert", further={"deep": [{"Carla": ANNA}]}, timestamp=START + timedelta(days=7))
    session.relate("DEC-001", "FIND-001", "resolves")
    session.save_artifact("report", f"About {ANNA}", created_by="vera", tags=["security"])
    session.save_agent_state("vera", {"focus": ANNA})
    session.save_agent_state("vera", {"focus": "doors"})
    session.save_agent_state("bert", {"focus": "tabs"})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    made = Memory(tmp_path / "sessions", clock=lambda: NOW)
    yield made
    made.close()


@pytest.fixture
def session(memory: Memory) -> Session:
    made = memory.create_session(id="s1", user="anna", topic="security")
    fill(made)
    return made


def selected(memory: Memory, name: str = "s1", **conditions: Any) -> set[str]:
    found = memory.delete(name, reason="r", dry_run=True, **conditions)
    return {f"{one.file}/{one.id}" if one.id.startswith("STATE") else one.id for one in found}


HISTORY = "agent-states/history/vera.yaml/STATE-001"
CASES: list[tuple[dict[str, Any], set[str]]] = [
    ({"topic": "security"}, {"turn-2", "turn-3", "DEC-001", "PREF-001", "report"}),
    ({"topic": "SECURITY.login"}, {"DEC-001", "turn-3"}),
    ({"topic": "weather"}, set()),
    ({"agent": "vera"}, {"turn-2", "DEC-001", "FIND-001", "report", "vera", HISTORY}),
    ({"agent": "Vera"}, set()),
    ({"since": "2026-01-04", "until": "2026-01-05"}, {"DEC-001", "DEC-002"}),
    ({"until": START}, {"turn-1"}),
    ({"since": START + timedelta(days=3), "until": "2026-01-08T00:00:00Z", "types": ["finding", "learnings"]},
     {"FIND-001", "LEARN-001"}),
    ({"types": ["turn"]}, {"turn-1", "turn-2", "turn-3"}),
    ({"types": "agent_state"}, {"vera", "bert", HISTORY}),
    ({"types": ["artifact", "relationship"]}, {"report", "REL-001"}),
    ({"tags": ["security"]}, {"DEC-001", "report"}),
    ({"tags": "doors"}, {"FIND-001"}),
    ({"tags": ["doors", "security.login"]}, {"FIND-001", "DEC-001"}),
    ({"text": "anna müller"}, {"turn-2", "DEC-002", "LEARN-001", "report", HISTORY}),
    ({"text": "OAUTH"}, {"DEC-001"}),
    ({"text": "made_by"}, set()),
    ({"text": "carla"}, {"LEARN-001"}),
    ({"text": "anna", "agent": "vera"}, {"turn-2", "report", HISTORY}),
    ({"text": "anna", "agent": "vera", "types": ["turn"], "since": "2026-01-02", "topic": "security"}, {"turn-2"}),
    ({"id": "vera"}, {"vera", HISTORY}),
    ({"id": ["DEC-002", "turn-1"]}, {"DEC-002", "turn-1"}),
]  # fmt: skip


@pytest.mark.parametrize(("conditions", "expected"), CASES, ids=map(str, range(len(CASES))))
def test_all_conditions_hold_for_what_is_selected(
    session: Session, memory: Memory, conditions: dict[str, Any], expected: set[str]
) -> None:
    """And the same of a session that is packed away: nothing is found there that is not found before, and nothing is missed."""
    assert selected(memory, **conditions) == expected
    memory.archive_session("s1")
    assert selected(memory, **conditions) == expected


def test_what_compaction_took_out_is_selected_like_what_it_left(session: Session, memory: Memory) -> None:
    """By what the copy says: also by a topic that it is about through what it refers to."""
    compact(session, reduction_pct=90)
    out = {one.id for one in session.evicted()}
    assert {"turn-1", "turn-2", "turn-3", "LEARN-001"} <= out
    about = memory.delete("s1", reason="r", dry_run=True, topic="security")
    assert {"turn-2", "turn-3"} <= {one.id for one in about if one.place == "evicted"}
    assert {"turn-2", "LEARN-001"} <= selected(memory, text="anna müller")
    assert "turn-2" in selected(memory, agent="vera")
    assert "turn-2" in selected(memory, since="2026-01-02", until="2026-01-02")


def test_every_copy_of_a_memory_goes_where_one_of_them_fits(session: Session, memory: Memory) -> None:
    """An older state that compaction holds goes with the one that stands, whichever of the two says it."""
    compact(session, reduction_pct=90)
    session.bring_back(["LEARN-001"])
    compact(session, reduction_pct=90)
    assert "LEARN-001" in {one.id for one in session.evicted()}
    again = Memory(memory.root, clock=lambda: NOW).session("s1")
    path = memory.root / "active/s1/learnings.yaml"
    head = path.read_text()
    path.write_text(head + "  - id: LEARN-001\n    learning: Quite another text\n    learned_by: bert\n")
    assert again.get("LEARN-001").text == "Quite another text"
    for text in ("quite another", "anna müller"):
        found = [one for one in memory.delete("s1", reason="r", dry_run=True, text=text) if one.id == "LEARN-001"]
        assert sorted(one.place for one in found) == ["", "evicted"]


def test_what_an_older_state_was_about_says_nothing_of_who_refers_to_it_now(session: Session, memory: Memory) -> None:
    """A turn that refers to a memory is about what that is about, as by_topic tells it; not about what compaction holds of it."""
    session.record_learning("Long ago", learned_by="bert", tags=["ancient"], timestamp=START)
    compact(session, reduction_pct=90)
    assert "LEARN-002" in {one.id for one in session.evicted()}
    path = memory.root / "active/s1/learnings.yaml"
    path.write_text(path.read_text() + "  - id: LEARN-002\n    learning: Of today\n    learned_by: bert\n")
    session.add_turn("user", "As we learned", memory_refs=["LEARN-002"])
    assert session.by_topic("ancient") == []
    found = [(one.id, one.place) for one in memory.delete("s1", reason="r", dry_run=True, topic="ancient")]
    assert sorted(found) == [("LEARN-002", ""), ("LEARN-002", "evicted")]


def test_a_summary_is_not_the_turn_whose_id_it_has(session: Session, memory: Memory) -> None:
    """What it says of a turn that goes is taken out of it; it stays, for the turns that stay."""
    for number in range(10):
        session.add_turn("user", f"Sentence {number} about the weather in Oslo", timestamp=START + timedelta(days=10 + number))
    compact(session, reduction_pct=90)
    summary = next(turn for turn in session.turns() if SUMMARIZES in turn.data)
    first = summary.data[SUMMARIZES]["first"]
    assert first == summary.id
    evicted = next(one for one in session.evicted(texts=True) if one.id == first)
    found = [one for one in memory.delete("s1", reason="r", dry_run=True, since=evicted.timestamp, until=evicted.timestamp,
                                          text=evicted.text[:30]) if one.id == first and one.place != "evicted"]  # fmt: skip
    says_it = evicted.text[:30].lower() in summary.text.lower()
    assert bool(found) == says_it
    both = [one.place for one in memory.delete("s1", first, reason="r", dry_run=True)]
    assert sorted(both) == ["", "evicted"]


def test_what_holds_everywhere_is_selected_too(memory: Memory) -> None:
    memory.create()
    memory.everywhere.record_preference("Tabs", topic="style", confidence="explicit", tags=["code"])
    memory.everywhere.record_pattern(f"Ask {ANNA}", learned_by="vera")
    memory.everywhere.save_profile(name=ANNA)
    assert selected(memory, "global", topic="style") == {"GPREF-001"}
    assert selected(memory, "global", agent="vera") == {"PAT-001"}
    assert selected(memory, "global", types=["preference", "pattern"]) == {"GPREF-001", "PAT-001"}
    assert selected(memory, "global", text=ANNA) == {"PAT-001", "user-profile"}
    assert selected(memory, "global", id="user-profile") == {"user-profile"}
    assert selected(memory, "global", since="2020-01-01") == {"GPREF-001", "PAT-001"}
    done = memory.delete("global", "user-profile", reason="r")
    assert memory.everywhere.profile() == {}
    memory.restore("global", batch=done.batch)
    assert memory.everywhere.profile()["name"] == ANNA


@pytest.mark.parametrize("wrong", [
    {}, {"id": "DEC-001", "topic": "x"}, {"id": [], "text": "x"}, {"text": ""}, {"text": "  "}, {"topic": ""}, {"agent": " "},
    {"tags": [""]}, {"tags": ["x", " "]}, {"types": ["no-such"]}, {"since": "whenever"}, {"id": "metadata"}, {"id": "../x"},
    {"text": 5}, {"topic": ["a"]}, {"text": "a"},
])  # fmt: skip
def test_what_could_mean_too_much_is_refused(session: Session, memory: Memory, wrong: dict[str, Any]) -> None:
    """An empty condition would hold of everything; nothing is deleted."""
    with pytest.raises((Invalid, InvalidQuery)):
        memory.delete("s1", reason="r", **wrong)
    if "id" not in wrong:
        with pytest.raises((Invalid, InvalidQuery)):
            memory.delete_everywhere(reason="r", **wrong)
    assert memory.deleted("s1") == []


def test_nothing_that_fits_is_no_error_but_an_unknown_id_is(session: Session, memory: Memory) -> None:
    done = session.delete(topic="weather", reason="r")
    assert (list(done), done.problems) == ([], [])
    assert not (memory.root / "deleted/s1").exists()
    with pytest.raises(MemoryNotFound):
        session.delete("DEC-009", reason="r")
    with pytest.raises(SessionNotFound):
        memory.delete("s2", text="anna", reason="r")


def test_a_record_without_an_id_is_told_and_keeps_no_other(session: Session, memory: Memory) -> None:
    path = memory.root / "active/s1/decisions.yaml"
    lines = path.read_text().count("\n")
    path.write_text(path.read_text() + f"  - decision: {ANNA} decides\n    made_by: bert\n")
    done = session.delete(text=ANNA, reason="r")
    assert {"DEC-002", "turn-2"} <= {one.id for one in done}
    (problem,) = done.problems
    assert problem.startswith(f"active/s1/decisions.yaml, line {lines + 1}: a record without an id fits too")


def test_the_metadata_of_a_session_are_no_memory(session: Session, memory: Memory) -> None:
    """Whatever fits them, they stay; an artifact of that name is one like any other."""
    before = (memory.root / "active/s1/metadata.yaml").read_bytes()
    session.save_artifact("metadata", "text")
    assert selected(memory, id="metadata") == {"metadata"}
    session.delete(since="2000-01-01", reason="r")
    assert (memory.root / "active/s1/metadata.yaml").read_bytes() == before


def test_relationships_to_what_is_deleted_stay(session: Session) -> None:
    session.delete("DEC-001", reason="r")
    assert session.get("REL-001").data["source"] == "DEC-001"
    assert session.get("turn-3").data["memory_refs"] == ["DEC-001"]
    assert session.validate() == []


def test_everywhere_means_every_session_wherever_it_is(session: Session, memory: Memory) -> None:
    """Under one batch, with which all comes back."""
    other = memory.create_session(id="s2")
    fill(other)
    memory.archive_session("s2")
    memory.everywhere.record_pattern(f"Ask {ANNA}", learned_by="vera")
    memory.create_session(id="s3").add_turn("user", "Nothing")
    done = memory.delete_everywhere(text=ANNA, reason="r")
    assert list(done) == ["global", "s1", "s2"]
    assert len({one.batch for one in done.values()}) == 1
    assert memory.delete_everywhere(text=ANNA, reason="r", dry_run=True) == {}
    assert memory.search(f'"{ANNA}"') == []
    memory.restore_batch(done["s1"].batch)
    assert list(memory.delete_everywhere(text=ANNA, reason="r", dry_run=True)) == ["global", "s1", "s2"]
    with pytest.raises(MemoryNotFound):
        memory.restore_batch(done["s1"].batch)


# The same as the library's own questions.

WORDS = ("alpha", "beta", "gamma.delta", "gamma", "Alpha")
WHO = ("vera", "bert")
DAYS = st.integers(0, 5)
ONE = st.tuples(
    st.sampled_from(("turn", "decision", "finding", "preference", "learning", "artifact", "state")), st.sampled_from(WHO), DAYS,
    st.lists(st.sampled_from(WORDS), max_size=2), st.sampled_from(("alpha is here", "nothing", "gamma delta", "the betas")),
)  # fmt: skip


def write(session: Session, number: int, what: str, who: str, day: int, tags: list[str], text: str) -> None:
    at = START + timedelta(days=day)
    if what == "turn":
        refs = [f"DEC-{number % 3 + 1:03d}"] if tags else []
        session.add_turn(who, text, timestamp=at, memory_refs=refs)
    elif what == "decision":
        session.record_decision(text, made_by=who, tags=tags, timestamp=at)
    elif what == "finding":
        session.record_finding(text, discovered_by=who, severity="low", tags=tags, timestamp=at)
    elif what == "preference":
        session.record_preference(text, topic=tags[0] if tags else None, confidence="inferred", created_by=who, timestamp=at)
    elif what == "learning":
        session.record_learning(text, learned_by=who, tags=tags, timestamp=at)
    elif what == "artifact":
        session.save_artifact(f"a{number}", text, created_by=who, tags=tags, timestamp=at)
    else:
        session.save_agent_state(who, {"said": text, "tags": tags})


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ONE, min_size=1, max_size=12), st.sampled_from(WORDS), st.sampled_from(WHO), DAYS, DAYS)
def test_conditions_mean_what_they_mean_in_a_question(
    memories: list[tuple[str, str, int, list[str], str]], word: str, who: str, first: int, last: int
) -> None:
    """Whatever there is: by_topic, by_agent, by_time, by_type and search with tags find what the same condition selects."""
    with tempfile.TemporaryDirectory() as directory:
        memory = Memory(Path(directory) / "sessions", clock=lambda: NOW)
        session = memory.create_session(id="s1")
        for number, one in enumerate(memories):
            write(session, number, *one)
        times = {"since": START + timedelta(days=first), "until": START + timedelta(days=last)}
        asked: list[tuple[list[Any], dict[str, Any]]] = [
            (session.by_topic(word), {"topic": word}),
            (session.by_agent(who), {"agent": who}),
            (session.by_time(times["since"], times["until"]), times),
            (session.by_type("turn"), {"types": "turn"}),
            (session.search(tags=[word], limit=None), {"tags": [word]}),
            (session.by_topic(word, agents=[who], types=["turn", "decision"], since=times["since"]),
             {"topic": word, "agent": who, "types": ["turn", "decision"], "since": times["since"]}),
        ]  # fmt: skip
        for found, conditions in asked:
            # Earlier states are found by no question.
            going = [one for one in session.delete(reason="r", dry_run=True, **conditions) if "/history/" not in one.file]
            assert sorted((one.type, one.id) for one in going) == sorted((one.type, one.id) for one in found), conditions
        memory.close()
