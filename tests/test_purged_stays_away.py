"""What was purged does not come back by an older export; and erasing one thing does not erase another of the same id."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from smp_client.maintain.compacting import compact

from smp_client import Memory, MemoryNotFound, Session
from smp_client.audit import read as read_audit
from smp_client.exchange.importing import Imported

SECRET = "Quetzalcoatl opens the xylophone vault"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "sessions", clock=Clock(), count_access=False)


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="session-2026-03-01-abc123")
    session.add_turn("user", SECRET)
    session.record_decision(SECRET, made_by="vera")
    session.record_decision("Keep the doors shut", made_by="vera")
    session.save_artifact("report", SECRET)
    for name in ("vera", "bert"):
        session.save_agent_state(name, {"focus": SECRET})
        session.save_agent_state(name, {"focus": SECRET + " twice"})
    memory.everywhere.record_pattern(SECRET, learned_by="vera")
    return session


def exported(memory: Memory, *, deleted: bool = False) -> bytes:
    out = io.BytesIO()
    memory.export(out, format="jsonl", deleted=deleted)
    return out.getvalue()


def taken_in(memory: Memory, export: bytes, *, purged: bool = False, dry_run: bool = False) -> Imported:
    return memory.import_(io.BytesIO(export), purged=purged, dry_run=dry_run)


def holding(memory: Memory) -> list[str]:
    return [one.where for one in memory.all_about("Quetzalcoatl")]


# Erasing.


def test_erasing_the_original_leaves_what_stands_in_its_place(memory: Memory) -> None:
    """Of an anonymised memory only what was there goes, and it is said that the other stands; a second time that goes too."""
    session = memory.create_session(id="s1")
    session.record_learning("Jane Doe lives in Berlin", learned_by="vera")
    session.anonymize(names=["Jane Doe"])
    plan = memory.purge_now("s1", ["LEARN-001"], dry_run=True)
    outcome = memory.purge_now("s1", ["LEARN-001"])
    assert [action.about for action in outcome.actions] == [("LEARN-001",)] == [action.about for action in plan.actions]
    assert (outcome.problems, len(outcome.notes)) == ([], 1)
    assert "still stands" in outcome.notes[0]
    assert plan.notes == outcome.notes
    assert "User-1" in session.get("LEARN-001").text
    assert session.deleted() == []
    assert memory.purge_now("s1", ["LEARN-001"]).notes == []
    with pytest.raises(MemoryNotFound):
        session.get("LEARN-001")


def test_the_words_of_smp_itself_are_no_words_of_anybody(session: Session, memory: Memory) -> None:
    """A session that is erased is named in the list of what was purged; nothing is left of it all the same."""
    memory.everywhere.delete("PAT-001", reason="r")
    memory.purge_now("global", ["PAT-001"])
    outcome = memory.purge_now(session.id)
    assert (outcome.problems, outcome.notes) == ([], [])
    assert session.id in (memory.root / "deleted/purged.yaml").read_text()


def test_the_reason_of_another_deletion_is_somebodys_words(session: Session, memory: Memory) -> None:
    """Of the record of a deletion its ids and times say nothing, but its reason may repeat what is erased."""
    other = memory.create_session(id="other")
    other.add_turn("user", "Nothing")
    other.delete("turn-1", reason=SECRET)
    (note,) = memory.purge_now(session.id, ["report"]).notes
    assert "deleted/other/deletion-record.yaml" in note
    assert "deleted/purged.yaml" not in note


def test_the_audit_log_names_whoever_erased_or_restored(session: Session, memory: Memory) -> None:
    session.delete(["DEC-001", "DEC-002"], reason="r")
    memory.restore(session.id, ["DEC-002"], by="rita")
    memory.purge_now(session.id, ["DEC-001"], by="paul")
    memory.delete_session(session.id, reason="r")
    memory.undelete_session(session.id, by="ruth")
    found = [(line["action"], line["by"]) for line in read_audit(memory.tree) if line["action"] != "delete"]
    assert found == [("restore", "rita"), ("purge", "paul"), ("restore", "ruth")]


# Importing.


def test_what_was_purged_stays_away(session: Session, memory: Memory) -> None:
    """Records, an artifact, an agent's state with its earlier ones, and what holds everywhere: told as a note, and nothing else."""
    export = exported(memory)
    memory.purge_now(session.id, ["turn-1", "DEC-001", "report", "vera"])
    memory.purge_now("global", ["PAT-001"])
    left = holding(memory)
    plan = taken_in(memory, export, dry_run=True)
    done = taken_in(memory, export)
    assert (done.added, done.problems, done.renamed) == (0, [], {})
    assert holding(memory) == left
    assert left
    assert all("bert" in where for where in left)
    assert plan.notes == done.notes
    assert all("--purged" in note for note in done.notes)
    assert {one for note in done.notes for one in ("turn-1", "DEC-001", "report", "vera", "PAT-001") if one in note} == {
        "turn-1", "DEC-001", "report", "vera", "PAT-001"}  # fmt: skip


def test_what_was_purged_comes_back_where_that_is_asked_for(session: Session, memory: Memory) -> None:
    """With its id; a turn, whose number stands, with a new one. A second import finds all of it there."""
    export = exported(memory)
    memory.purge_now(session.id, ["turn-1", "DEC-001", "report", "vera"])
    memory.purge_now("global", ["PAT-001"])
    done = taken_in(memory, export, purged=True)
    assert (done.added, done.problems, done.notes, done.renamed) == (5, [], [], {session.id: {"turn-1": "turn-2"}})
    assert session.get("DEC-001").text == SECRET
    assert memory.everywhere.get("PAT-001").text == SECRET
    again = taken_in(memory, export)
    assert (again.added, again.problems, again.notes) == (0, [], [])


def test_the_same_number_of_another_agents_state_is_no_purged_one(session: Session, memory: Memory) -> None:
    """Each agent counts its earlier states by itself."""
    export = exported(memory)
    memory.purge_now(session.id, ["vera"])
    history = memory.root / "active" / session.id / "agent-states/history/bert.yaml"
    history.unlink()
    taken_in(memory, export)
    assert "STATE-001" in history.read_text()
    assert not (history.parent / "vera.yaml").exists() or SECRET not in (history.parent / "vera.yaml").read_text()


def test_what_had_got_another_id_here_stays_away_under_its_old_one(memory: Memory, tmp_path: Path) -> None:
    other = Memory(tmp_path / "other").create_session(id="s1")
    other.record_decision(SECRET, made_by="vera")
    memory.create_session(id="s1").record_decision("Keep the doors shut", made_by="vera")
    export = exported(Memory(tmp_path / "other"))
    assert taken_in(memory, export).renamed == {"s1": {"DEC-001": "DEC-002"}}
    memory.purge_now("s1", ["DEC-002"])
    done = taken_in(memory, export)
    assert (done.added, done.problems, done.renamed) == (0, [], {})
    assert holding(memory) == []
    assert taken_in(memory, export, purged=True).added == 1


def test_an_original_that_was_erased_comes_not_back_under_a_new_id(memory: Memory) -> None:
    """Where the anonymised one has its id, the original would be another memory of the same id."""
    session = memory.create_session(id="s1")
    session.record_learning("Jane Doe lives in Berlin", learned_by="vera")
    export = exported(memory)
    session.anonymize(names=["Jane Doe"], now=True)
    done = taken_in(memory, export)
    assert (done.added, done.renamed) == (0, {})
    assert list(memory.all_about("Jane Doe")) == []
    anonymous = exported(memory)
    assert taken_in(memory, anonymous).notes == []


def test_a_purged_session_stays_away_and_a_new_one_of_its_id_does_not(session: Session, memory: Memory) -> None:
    export = exported(memory)
    memory.everywhere.delete("PAT-001", reason="r")
    memory.purge_now("global", ["PAT-001"])
    memory.purge_now(session.id)
    done = taken_in(memory, export)
    assert (done.added, done.problems, done.sessions[session.id]) == (0, [], "left out")
    assert [note for note in done.notes if session.id in note and "--purged" in note]
    again = memory.create_session(id=session.id)
    again.record_decision("Of another life", made_by="vera")
    assert taken_in(memory, export).sessions[session.id] == "left out"
    newer = exported(memory)
    memory.delete_session(session.id, reason="r")
    memory.undelete_session(session.id)
    again.delete("DEC-001", reason="r")
    assert taken_in(memory, newer).sessions[session.id] == "unchanged"
    assert holding(memory) == []


def test_a_purged_session_comes_back_where_that_is_asked_for(session: Session, memory: Memory) -> None:
    export = exported(memory)
    memory.purge_now(session.id)
    assert taken_in(memory, export, purged=True).sessions[session.id] == "new"
    assert session.get("DEC-001").text == SECRET
    assert taken_in(memory, export).sessions[session.id] == "unchanged"


def test_memories_of_a_session_that_is_elsewhere_by_now_stay_away_too(session: Session, memory: Memory) -> None:
    """One that somebody has moved away by hand, and one that is archived."""
    export = exported(memory)
    memory.purge_now(session.id, ["DEC-001"])
    memory.archive_session(session.id)
    done = taken_in(memory, export)
    assert (done.added, done.problems, done.sessions[session.id]) == (0, [], "unchanged")
    assert [note for note in done.notes if "DEC-001" in note]
    memory.restore_session(session.id)
    (memory.root / "active" / session.id).rename(memory.root.parent / "away")
    done = taken_in(memory, export)
    assert done.sessions[session.id] == "new"
    assert [record.id for record in session.records("decision")] == ["DEC-002"]
    assert [note for note in done.notes if "DEC-001" in note]


def test_what_compaction_held_and_what_was_deleted_stay_away_too(memory: Memory) -> None:
    """An export has also what compaction took out, and can have what was deleted: neither brings a purged one back."""
    session = memory.create_session(id="s1")
    old = NOW - timedelta(days=90)
    for _ in range(4):
        session.record_finding(SECRET + " and more" * 40, discovered_by="a", severity="low", resolution={"status": "resolved"},
                               timestamp=old)  # fmt: skip
    session.record_decision(SECRET, made_by="a")
    compact(session, reduction_pct=100)
    evicted = [path.name for path in (memory.root / "archived/s1").glob("evicted-*")]
    assert evicted
    session.delete("DEC-001", reason="r")
    export = exported(memory, deleted=True)
    assert b"FIND-001" in export
    memory.purge_now("s1", ["FIND-001", "FIND-002", "FIND-003", "FIND-004", "DEC-001"])
    assert holding(memory) == []
    done = taken_in(memory, export)
    assert (done.added, done.problems) == (0, [])
    assert holding(memory) == []
    assert [note for note in done.notes if "FIND-001" in note]
    assert [note for note in done.notes if "what was deleted of it" in note]
