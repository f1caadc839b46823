"""What is archived is still found, memory by memory, while its session is nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import index_contents, rebuilt_contents, running, status, wait_until, wait_until_true

from smp_client import (
    CorruptionDetected,
    InvalidQuery,
    Memory,
    MemoryNotFound,
    Session,
    SessionPutAway,
)
from smp_client.index.sync import bring_up_to_date
from smp_client.model.layout import INDEX_FILE
from smp_client.passes.check import check

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def opened(root: Path) -> Memory:
    return Memory(root, clock=lambda: NOW)


def fill(session: Session) -> None:
    said = "The one in Zürich, " + "and nowhere else, " * 40
    session.add_turn("user", "Which ledger do the invoices go to?", timestamp=ago(60))
    session.add_turn("architect", said, timestamp=ago(59))
    kept = {"tags": ["billing.retention"], "implementation_impact": "high", "timestamp": ago(58)}
    session.record_decision("Keep invoices for ten years", made_by="architect", **kept)
    ended = {"status": "superseded", "timestamp": ago(57)}
    session.record_decision("Number them by month", made_by="clerk", **ended)
    for text, severity, day in (("The ledger rounds twice", "critical", 56), ("Typo", "info", 55)):
        found = {"severity": severity, "timestamp": ago(day)}
        session.record_finding(text, discovered_by="profiler", **found)  # type: ignore[arg-type]
    session.resolve_finding("FIND-002", resolved_by="clerk", action_taken="Mended.")
    session.record_learning("Round once, at the end", learned_by="clerk", timestamp=ago(54))
    stated = {"topic": "currency", "confidence": "explicit", "timestamp": ago(54)}
    session.record_preference("Amounts in francs", **stated)


IDS = {"LEARN-001", "turn-1", "turn-2", "DEC-001", "DEC-002", "FIND-001", "FIND-002", "PREF-001"}
WHOLE = {*IDS, "summary"}


def found_in(memory: Memory, session_id: str = "old") -> set[str]:
    """Return the ids of all memories of a session that a question to everything finds."""
    found = [record.id for record in memory.search(limit=None) if record.session == session_id]
    assert len(found) == len(set(found))
    return set(found)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    """With one session that is in use, and one that is archived."""
    memory = opened(tmp_path / "sessions")
    facts = {"user": "user-1", "project": "Shop", "topic": "billing", "tags": ["money"]}
    fill(memory.create_session(id="old", **facts))  # type: ignore[arg-type]
    new = memory.create_session(id="new", topic="shipping")
    new.record_decision("Ship invoices with the parcel", made_by="clerk", timestamp=ago(1))
    memory.archive_session("old", "not used for 30 days")
    return memory


def test_a_summary_says_what_a_person_would_ask(memory: Memory) -> None:
    """Who, what, when and how much; decisions, open findings and preferences."""
    (found,) = memory.by_type("summary")
    said: dict[str, Any] = {**found.data}
    assert (said["session_id"], said["project"], said["topic"]) == ("old", "Shop", "billing")
    assert said["memories"]["decision"] == 2
    for part, ids in (("decisions", ["DEC-002", "DEC-001"]), ("open_findings", ["FIND-001"])):
        assert [one["id"] for one in said[part]] == ids
    assert (found.timestamp, found.tags) == (ago(54), ["money"])


def with_nothing(memory: Memory) -> None:
    for name in (memory.root / INDEX_FILE).parent.glob("index.db*"):
        name.unlink()


def behind(memory: Memory) -> None:
    """An index that was made when the session was still active."""
    memory.restore_session("old")
    bring_up_to_date(memory)
    memory.archive_session("old", "again")


def in_memory(memory: Memory) -> None:
    """No index can be made: a directory stands in its place."""
    with_nothing(memory)
    (memory.root / INDEX_FILE).mkdir()


@pytest.mark.parametrize("way", [with_nothing, behind, bring_up_to_date, in_memory])
def test_every_memory_of_an_archived_session_is_found(
    memory: Memory, way: Callable[[Memory], object]
) -> None:
    """Each once, marked, and before the summary; by text, agent, topic, type and time."""
    way(memory)
    asked = opened(memory.root)
    assert found_in(asked) == WHOLE
    for words, memory_id in (("francs", "PREF-001"), ("Zürich", "turn-2"), ("ten years", "DEC-001")):
        found = next(record for record in asked.search(words) if record.session == "old")
        assert (found.id, found.marks[0]) == (memory_id, "archived"), words
    first = asked.search("invoices")[0]
    assert (first.session, first.marks) == ("new", ())
    assert {record.id for record in asked.by_agent("profiler")} == {"FIND-001", "FIND-002"}
    assert "DEC-001" in {record.id for record in asked.by_topic("billing.retention")}
    assert {record.id for record in asked.by_time(ago(60), ago(59))} == {"turn-1", "turn-2"}
    events = {event.ref: event.marks for event in asked.timeline() if event.session == "old"}
    assert events["DEC-002"] == ("archived", "superseded")


def test_what_it_was_about_does_not_change_with_archiving(memory: Memory) -> None:
    """Topics, events, relations and likeness are those of the session while it was active."""
    memory.restore_session("old")
    session = memory.session("old")
    tags = {"tags": ["billing.retention"], "timestamp": ago(53)}
    session.record_finding("They are kept for nine", discovered_by="a", severity="high", **tags)  # type: ignore[arg-type]
    session.relate("FIND-003", "PREF-001", "has nothing to do with")

    def about() -> list[object]:
        events = [(event.session, event.ref, event.topics) for event in memory.timeline()]
        ties = {record.id for record in memory.related("FIND-003")}
        like = [record.id for record in memory.similar("FIND-001", types=["finding"])]
        return [memory.topics(), events, ties, like]

    before = about()
    memory.archive_session("old", "again")
    assert about() == before


def test_what_is_archived_counts_less(tmp_path: Path, memory: Memory) -> None:
    """However many say the same in the archive, they crowd out none that is in use."""
    states = {
        (one.session, one.type == "summary"): (one.explanation or {})["state"]
        for one in memory.search("invoices", explain=True)
    }
    assert states == {("new", False): 1.0, ("old", False): 0.4, ("old", True): 0.1}
    other = opened(tmp_path / "other")
    now = other.create_session(id="now")
    now.record_learning("Rotate the gaskets", learned_by="clerk", timestamp=ago(40))
    with other.create_session(id="old").transaction() as tx:
        for number in range(400):
            tx.add_turn("clerk", f"Rotate the gaskets, {number}", timestamp=ago(39))
    other.archive_session("old")
    sessions = [record.session for record in other.search("rotate gaskets", limit=3)]
    assert sessions == ["now", "old", "old"]


def test_reading_what_is_archived_writes_nothing(memory: Memory) -> None:
    """No access log, no lock and no state of a session that is not there."""
    before = sorted(memory.root.glob("archived/**/*"))
    assert "turn-1" in {record.id for record in memory.search("invoices")}
    for name in ("old/DEC-001", "FIND-001", "old/turn-2", "old/summary"):
        found = memory.get(name)
        assert (found.id, found.session) == (name.rpartition("/")[2], "old")
        assert found.marks == ("archived",)
    assert sorted(memory.root.glob("archived/**/*")) == before
    assert not (memory.root / "active/old").exists()


def test_a_daemon_follows_a_session_into_the_archive_and_back(tmp_path: Path) -> None:
    """By its notices alone. That sessions are archived is no reason to doubt the tree."""
    memory = opened(tmp_path / "sessions")
    names = ("one", "two", "three")
    for name in names:
        fill(memory.create_session(id=name, topic="billing"))

    def sessions() -> Any:
        return status(memory.root)["roots"][0]["sessions"]

    def is_known() -> bool:
        return index_contents(memory.root) == rebuilt_contents(memory.root)

    with running(memory.root, log=tmp_path / "log"):
        wait_until_true(memory.root)
        for name in names:
            memory.archive_session(name)
        wait_until_true(memory.root)
        assert sessions() == {"archived": 3}
        wait_until(is_known, "all of them are known")
        assert [found_in(memory, name) for name in names] == [WHOLE] * 3
        memory.restore_session("two")
        assert found_in(memory, "two") == IDS
        memory.delete_session("three", reason="done with")
        assert found_in(memory, "three") == set()
        wait_until(lambda: sessions() == {"archived": 1, "active": 1, "deleted": 1}, "all moved")
        wait_until(is_known, "the changes are known")


@pytest.mark.parametrize("damage", ["cut off", "a link out", "gone"])
def test_an_archive_that_cannot_be_read_costs_only_itself(
    memory: Memory, damage: str, tmp_path: Path
) -> None:
    """What was known of it stays known, as of any file. One that is gone is gone."""
    bring_up_to_date(memory)
    archive = memory.root / "archived/old/archive.tar.gz"
    content = archive.read_bytes()
    if damage == "cut off":
        archive.write_bytes(content[:100])
        with pytest.raises(CorruptionDetected, match=r"archived/old/archive\.tar\.gz"):
            Memory(memory.root.rename(tmp_path / "moved")).get("old/DEC-009")
        (tmp_path / "moved").rename(memory.root)
    else:
        archive.unlink()
        if damage == "a link out":
            (tmp_path / "elsewhere").write_bytes(content)
            archive.symlink_to(tmp_path / "elsewhere")
    assert found_in(memory) == (set() if damage == "gone" else WHOLE)
    assert found_in(memory, "new") == {"DEC-001"}
    with_nothing(memory)
    assert found_in(opened(memory.root)) == set()
    named = {complaint.scope for complaint in check(memory)}
    assert named == (set() if damage == "gone" else {"archived/old"})


def test_a_name_that_is_none_says_what_to_do(memory: Memory) -> None:
    with pytest.raises(InvalidQuery, match="Name it new/DEC-001"):
        memory.get("DEC-001")
    for name in ("old/DEC-009", "DEC-009"):
        with pytest.raises(MemoryNotFound):
            memory.get(name)
    memory.delete_session("old", reason="done with")
    with pytest.raises(SessionPutAway, match="is deleted"):
        memory.get("old/DEC-001")
