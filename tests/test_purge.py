"""Purging: what is over is destroyed without a trace, and nothing else is, whatever happens."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from daemons import running

from smp_client import Memory, MemoryNotFound, Session, SMPError, rewrite
from smp_client.fingerprint import hash_of
from smp_client.index import Index
from smp_client.locks import Patience, lock
from smp_client.maintain import erasure, evictions, leaving, traces
from smp_client.maintain.compaction import Item
from smp_client.maintain.deadlines import Seen, Watch, observe
from smp_client.maintain.doomed import Doomed, Gone, Snapshot, look
from smp_client.maintain.purge import plan, purge, purge_memory
from smp_client.maintain.purged import FILE as PURGED
from smp_client.privacy.deleting.store import BACKUP, RECORD
from smp_client.quarantine import set_aside
from smp_client.sync import bring_up_to_date

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECRET = "xylophone-Quetzalcoatl-9731 opens the vault"
WORDS = (SECRET.encode(), b"xylophone", b"quetzalcoatl", b"Quetzalcoatl")


class Clock:
    """A clock that tests set, beside one of the machine that goes with it."""

    def __init__(self) -> None:
        self.now = NOW
        self.running_s = 1000.0

    def __call__(self) -> datetime:
        return self.now

    def skip(self, days: float) -> None:
        """With nobody who looks."""
        self.now += timedelta(days=days)

    def live(self, memory: Memory, days: float) -> None:
        """With a daemon that looks every hour."""
        for _ in range(int(days * 24)):
            self.now += timedelta(hours=1)
            self.running_s += 3600
            observe(memory, self.now, self.running_s)


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions need not be kept for a writer who is about to open them: here there is none."""
    monkeypatch.setattr(rewrite, "GRACE_S", -1.0)
    monkeypatch.setattr(leaving, "GRACE_S", -1.0)
    monkeypatch.setattr(erasure, "ABANDONED_S", -1.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(tmp_path: Path, clock: Clock) -> Iterator[Memory]:
    made = Memory(tmp_path / "sessions", clock=clock, patience=Patience(timeout_s=0.2, attempts=1))
    yield made
    made.close()


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-1")
    session.add_turn("user", "what is the word?")
    session.record_decision("stays where it is", made_by="vera", tags=["kept"])
    session.record_finding(SECRET, discovered_by="vera", impact=f"{SECRET}, in the second field", tags=["vault"])
    return session


def everywhere(memory: Memory, words: tuple[bytes, ...] = WORDS) -> list[str]:
    return traces.places_with(memory, words)


def purged(memory: Memory) -> list[dict[str, Any]]:
    path = memory.root / PURGED
    return list(yaml.safe_load(path.read_text())["purged"]) if path.exists() else []


def snapshot_of(memory: Memory) -> dict[str, bytes]:
    return {str(path.relative_to(memory.root)): path.read_bytes() for path in sorted(memory.root.rglob("*")) if path.is_file()}


# What is decided.


def doomed(name: str, days_ago: float, *ids: str, **further: Any) -> Doomed:
    """Deleted so many days ago, and kept for 30."""
    at = NOW - timedelta(days=days_ago)
    memories = tuple(Gone(one, "decision", "decisions.yaml", one, "") for one in ids)
    return Doomed(name, at.isoformat(), at + timedelta(days=30), memories, **further)


def watched(*every: Doomed) -> Seen:
    """As after a life in which a daemon ran from the deletion on."""
    watches = {}
    for one in every:
        began = one.deadline - timedelta(days=30)
        watches[one.key] = Watch(began, 30 * 86_400.0, (NOW - began).total_seconds())
    return Seen(NOW, 0.0, watches)


def decided(snapshot: Snapshot, seen: Seen, *, force: bool = False) -> list[tuple[str, bool, str]]:
    found = plan(snapshot, NOW, seen, force=force)
    return [(decision.doomed.session, decision.purge, decision.reason) for decision in found.decisions]


def test_what_is_over_goes_and_what_is_not_stays() -> None:
    old, young = doomed("old", 31), doomed("young", 29)
    assert decided(Snapshot((old, young)), watched(old, young)) == [
        ("old", True, "it could be restored until 2026-05-31T12:00:00Z, and that was waited for"),
        ("young", False, "it can be restored until 2026-06-02T12:00:00Z"),
    ]


def test_memories_have_deadlines_of_their_own_and_go_with_their_session() -> None:
    everything = (doomed("a", 31), doomed("a", 40, "DEC-001"), doomed("b", 31, "DEC-001", "DEC-002"), doomed("b", 3, "DEC-003"))
    assert decided(Snapshot(everything), watched(*everything)) == [
        ("a", True, "it could be restored until 2026-05-31T12:00:00Z, and that was waited for"),
        ("b", True, "it could be restored until 2026-05-31T12:00:00Z, and that was waited for"),
        ("b", False, "it can be restored until 2026-06-28T12:00:00Z"),
    ]
    assert plan(Snapshot(everything), NOW, watched(*everything)).going[1].as_action().about == ("DEC-001", "DEC-002")


def test_what_nobody_has_waited_for_needs_force_and_force_needs_the_deadline() -> None:
    old, young = doomed("old", 31), doomed("young", 29)
    unseen = "its deadline was 2026-05-31T12:00:00Z, but no daemon has watched it come"
    assert decided(Snapshot((old, young)), Seen())[0] == ("old", False, unseen)
    assert decided(Snapshot((old, young)), Seen(), force=True) == [
        ("old", True, f"{unseen}; confirmed with --force"),
        ("young", False, "it can be restored until 2026-06-02T12:00:00Z"),
    ]


def test_a_session_that_is_there_is_not_purged() -> None:
    """Also with force: it is just being deleted, or brought back."""
    one = doomed("a", 31, in_use=True)
    assert decided(Snapshot((one,)), watched(one), force=True) == [("a", False, "it is just being deleted or brought back")]


@pytest.mark.parametrize(
    ("going", "staying", "bytes_each", "believed"),
    [(5, 4, 10, False), (5, 5, 10, True), (4, 0, 10, True), (5, 50, 1000, False), (6, 50, 1, True)],
)
def test_most_of_the_tree_is_not_believed(going: int, staying: int, bytes_each: int, believed: bool) -> None:
    """Five sessions and more than half of all, or more than half of all bytes: nothing goes, not even a memory, and it is said."""
    sessions = [doomed(f"s{number}", 31) for number in range(going)]
    memories = doomed("t0", 31, "DEC-001")
    sizes = {one.session: bytes_each for one in sessions} | {f"t{number}": 10 for number in range(staying)}
    found = plan(Snapshot((*sessions, memories), sizes), NOW, watched(*sessions, memories))
    assert len(found.going) == (going + 1 if believed else 0)
    assert any("smp purge --force" in problem for problem in found.problems) != believed
    assert len(plan(Snapshot((*sessions, memories), sizes), NOW, Seen(), force=True).going) == going + 1


def test_without_its_marker_the_root_is_not_believed(session: Session, memory: Memory, clock: Clock) -> None:
    session.delete("FIND-001", reason="r")
    clock.skip(31)
    (memory.root / ".smp/root.json").unlink()
    before = snapshot_of(memory)
    outcome = purge(memory, force=True)
    assert (outcome.actions, outcome.success) == ([], False)
    assert snapshot_of(memory) == before


@pytest.mark.parametrize("leap_days", [400, -2])
def test_a_clock_that_jumps(session: Session, memory: Memory, clock: Clock, leap_days: int) -> None:
    """Nothing is purged early, nothing hangs, and after the time that was promised it is purged all the same."""
    observe(memory, clock.now, clock.running_s)
    session.delete("FIND-001", reason="r")
    clock.live(memory, 10)
    clock.now += timedelta(days=leap_days)
    assert purge(memory).actions == []
    clock.live(memory, 19.9)
    assert purge(memory).actions == []
    assert session.deleted()
    clock.live(memory, 2.2)
    assert [action.about for action in purge(memory).actions] == [("FIND-001",)]


def test_many_memories_at_once_are_known_by_every_line_that_they_said(session: Session, memory: Memory, clock: Clock) -> None:
    """In what was set aside a single line of one of a thousand is enough. (Seen to fail when only some lines were looked for.)"""
    for number in range(300):
        session.record_finding(f"something was found, number {number}", discovered_by="vera")
    set_aside(memory.tree, "s1", "findings.yaml", 0, b"    finding: something was found, number 151\n", "torn", clock.now)
    set_aside(memory.tree, "s1", "findings.yaml", 0, b"something was found, number 152 and more\n", "an edit", clock.now)
    session.delete([f"FIND-{number:03d}" for number in range(1, 302)], reason="r")
    clock.skip(31)
    outcome = purge(memory, force=True)
    assert (len(outcome.actions), outcome.problems) == (1, [])
    assert everywhere(memory, (b"number 151",)) == []


# What is done.


def test_a_life(session: Session, memory: Memory, clock: Clock) -> None:
    """Deleted, kept for 30 days, purged by the first run after them; the others are as they were."""
    observe(memory, clock.now, clock.running_s)
    session.delete("FIND-001", reason="privacy", deleted_by="user-1")
    clock.live(memory, 29.9)
    assert purge(memory).actions == []
    assert session.deleted()
    clock.live(memory, 0.2)
    assert [action.about for action in purge(memory, dry_run=True).actions] == [("FIND-001",)]
    assert session.deleted()
    outcome = purge(memory)
    assert outcome.problems == []
    assert [(action.type, action.about) for action in outcome.actions] == [("purge_memories", ("FIND-001",))]
    assert session.deleted() == []
    assert not (memory.root / "deleted/s1").exists()
    assert everywhere(memory) == []
    assert [record.id for record in session.records("decision")] == ["DEC-001"]
    with pytest.raises(MemoryNotFound):
        session.restore("FIND-001")


def test_what_was_purged_is_noted_once_and_without_a_word(session: Session, memory: Memory, clock: Clock) -> None:
    session.delete(["FIND-001", "turn-1"], reason="a private matter")
    clock.skip(31)
    purge(memory, force=True)
    purge(memory, force=True)
    (entry,) = purged(memory)
    assert entry.pop("key")
    assert entry == {
        "session": "s1", "what": "memories", "ids": ["FIND-001", "turn-1"], "files": ["conversation.md", "findings.yaml"],
        "timestamps": ["2026-06-01T12:00:00Z", "2026-06-01T12:00:00Z"], "types": {"finding": 1, "conversation_turn": 1},
        "deleted_at": "2026-06-01T12:00:00Z", "recovery_deadline": "2026-07-01T12:00:00Z", "purged_at": "2026-07-02T12:00:00Z",
        "forced": True,
    }  # fmt: skip
    assert everywhere(memory, (b"private matter",)) == []


def test_only_what_is_over_goes_out_of_a_backup(session: Session, memory: Memory, clock: Clock) -> None:
    """Those that were deleted later can still be restored, and what a person wrote into the record stays."""
    session.delete("FIND-001", reason="r")
    clock.skip(10)
    session.delete("DEC-001", reason="later")
    record = memory.root / "deleted/s1" / RECORD
    record.write_text(record.read_text().replace("deleted_items:\n", "deleted_items:\n    - {note: mine}\n") + "# by hand\n")
    clock.skip(25)
    outcome = purge(memory, force=True)
    assert [action.about for action in outcome.actions] == [("FIND-001",)]
    assert [problem for problem in outcome.problems if "1 items cannot be understood and are kept" in problem] == outcome.problems
    assert everywhere(memory) == []
    said = yaml.safe_load(record.read_text())["deletion"]
    assert said["deleted_items"][0] == {"note": "mine"}
    assert (said["reason"], said["deleted_at"]) == ("later", "2026-06-11T12:00:00Z")
    assert session.restore("DEC-001").text == "stays where it is"


def test_a_record_that_cannot_be_read_is_left_with_all_that_belongs_to_it(session: Session, memory: Memory, clock: Clock) -> None:
    session.delete("FIND-001", reason="r")
    (memory.root / "deleted/s1" / RECORD).write_text("deletion: [\n")
    (memory.root / "deleted/stray").mkdir()
    (memory.root / "deleted/stray" / BACKUP).write_bytes(b"of nobody")
    (memory.root / "deleted/a file").write_text("of somebody")
    clock.skip(40)
    before = snapshot_of(memory)
    outcome = purge(memory, force=True)
    assert outcome.actions == []
    assert len(outcome.problems) == 2
    assert snapshot_of(memory) == before


def test_what_a_crash_has_left_in_its_file_was_never_deleted(session: Session, memory: Memory, clock: Clock) -> None:
    """Only its copy goes; what stands, and what was set aside of it, stays."""
    before = (memory.root / "active/s1/findings.yaml").read_bytes()
    set_aside(memory.tree, "s1", "findings.yaml", 0, SECRET.encode(), "torn", clock.now)
    session.delete("FIND-001", reason="r")
    (memory.root / "active/s1/findings.yaml").write_bytes(before)
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert session.get("FIND-001").text == SECRET
    assert not (memory.root / "deleted/s1").exists()
    assert any("quarantine" in place for place in everywhere(memory))


def test_no_byte_is_left_of_a_memory(session: Session, memory: Memory, clock: Clock) -> None:
    """Not in the backup, in what compaction took out, in quarantine, in what a crash left aside, in indexes, nor in old versions.
    (Seen to fail with each of these left out of erasure.py.)"""
    session.search("vault")
    copy = (memory.root / "active/s1/findings.yaml").read_bytes()
    start = copy.index(b"  - id: FIND-001")
    records = (("FIND-001", copy[start:]), ("FIND-002", b"  - id: FIND-002\n    finding: not of this\n"))
    digest = hash_of(session.records("finding")[0].data)
    items = [(Item(one, "finding", "findings.yaml", 0, 0, digest, 0.1, None, None), raw, "archive_findings", "old")
             for one, raw in records]  # fmt: skip
    kept = evictions.write(session, items, "full")
    gone = evictions.write(session, items[:1], "full")
    torn = copy.index(b"9731")
    set_aside(memory.tree, "s1", "findings.yaml", 0, copy[start:torn], "torn", clock.now)
    set_aside(memory.tree, "s1", "findings.yaml", 0, copy, "an edit that a replacement crossed", clock.now)
    set_aside(memory.tree, "s1", "decisions.yaml", 0, b"of something else entirely", "torn", clock.now)
    memory.tree.create_temporary(b"aside " + SECRET.encode())
    (memory.root / "active/s1/indexes/timeline.yaml").write_text("ref: FIND-001\ntopics: [xylophone-Quetzalcoatl-9731]\n")
    session.delete("FIND-001", reason="r")
    assert {place.split("/")[0] for place in everywhere(memory)} == {"deleted", "quarantine"}
    clock.skip(31)
    outcome = purge(memory, force=True)
    assert outcome.problems == []
    assert everywhere(memory) == []
    assert [item["id"] for item in evictions.load(memory.tree, kept).items] == ["FIND-002"]
    assert not memory.tree.exists(gone)
    assert everywhere(memory, (b"not of this",)) == [kept]
    assert len(everywhere(memory, (b"of something else entirely",))) == 1
    assert sorted(path.suffix for path in (memory.root / "quarantine/s1").iterdir()) == [".bytes", ".yaml"]


WHEN = "2026-01-11T14:30:00.405Z"


@pytest.mark.parametrize("was_archived", [False, True])
def test_no_byte_is_left_of_a_session(session: Session, memory: Memory, clock: Clock, was_archived: bool) -> None:
    """Nor a directory, a lock or a line in the index; others are as they were."""
    other = memory.create_session(id="s2")
    other.record_decision("somebody else's", made_by="vera")
    set_aside(memory.tree, "s1", "findings.yaml", 0, SECRET.encode(), "torn", clock.now)
    memory.search("vault")
    session.delete("FIND-001", reason="r")
    session.record_finding(f"{SECRET} again", discovered_by="vera", seen_at=WHEN)
    if was_archived:
        memory.archive_session("s1")
    memory.search("vault")
    memory.delete_session("s1", reason="over")
    bring_up_to_date(memory)
    for place in ("retired", "journal", "leaving"):
        (memory.root / ".smp" / place / "s1+left").write_bytes(SECRET.encode())
    memory.tree.create_temporary(b"aside " + SECRET.encode())
    clock.live(memory, 31)
    (memory.root / "quarantine/s1").mkdir(exist_ok=True)
    # Something else that happened in the very millisecond of something in the session says nothing of it.
    (memory.root / ".smp/jobs.json").write_text(json.dumps({"scan": WHEN}))
    outcome = purge(memory)
    assert outcome.problems == []
    assert [(action.type, action.about) for action in outcome.actions] == [("purge_session", ("s1",))]
    assert everywhere(memory) == []
    assert [place for place in memory.root.rglob("*") if "s1" in place.name] == []
    assert everywhere(memory, (b"s1",)) == [".smp/deadlines.json", "audit.log", PURGED]
    assert [record.text for record in memory.search("else")] == ["somebody else's"]
    assert memory.create_session(id="s1").records("finding") == []
    (entry,) = purged(memory)
    assert (entry["what"], entry["session"], entry["forced"]) == ("session", "s1", False)


def test_a_reader_of_the_index_holds_the_cleaning_up_but_not_for_ever(session: Session, memory: Memory, clock: Clock) -> None:
    """As long as a program reads an old state of the index, its words cannot go: that is said, and done the next time."""
    session.search("vault")
    reader = Index.open_to_ask(memory.root / ".smp/index.db")
    reader.connection.execute("BEGIN")
    assert reader.connection.execute("SELECT COUNT(*) FROM memories").fetchone()[0]
    session.delete("FIND-001", reason="r")
    session.search("vault")
    clock.live(memory, 31)
    outcome = purge(memory, force=True)
    assert [problem for problem in outcome.problems if "it is tried again" in problem] == outcome.problems
    assert outcome.actions
    assert {place.partition("-")[0] for place in everywhere(memory)} == {".smp/index.db"}
    reader.connection.execute("ROLLBACK")
    assert purge(memory).problems == []
    assert everywhere(memory) == []
    reader.close()


def test_the_index_keeps_words_that_nobody_would_find(session: Session, memory: Memory, clock: Clock) -> None:
    """An index that was built long before, with many segments, free pages and a WAL that somebody keeps open. (Seen to fail without
    the merging, without the vacuum, and where the WAL is not cut off.)"""
    keeper = Index.open_to_ask(memory.root / ".smp/index.db") if (memory.root / ".smp/index.db").exists() else None
    for number in range(30):
        session.record_finding(f"number {number} and {SECRET if number == 7 else 'nothing'}", discovered_by="vera")
        session.search("number")
    keeper = keeper or Index.open_to_ask(memory.root / ".smp/index.db")
    careless = sqlite3.connect(memory.root / ".smp/index.db", isolation_level=None)
    careless.execute("PRAGMA secure_delete = OFF")
    careless.execute("INSERT INTO meta VALUES ('x', ?)", (1000 * SECRET,))
    careless.execute("DELETE FROM meta WHERE name = 'x'")
    careless.close()
    session.delete(["FIND-001", "FIND-009"], reason="r")
    assert session.search("vault") == []
    assert [place for place in everywhere(memory) if not place.startswith("deleted/")] == []
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert everywhere(memory) == []
    assert keeper.connection.execute("SELECT COUNT(*) FROM memories").fetchone()[0] >= 29
    assert len(session.search("number", limit=50)) == 29
    keeper.close()


def test_the_index_of_whoever_leads_is_cleaned_in_its_place(session: Session, memory: Memory, clock: Clock) -> None:
    """A daemon gives its own; nobody else is asked."""
    session.search("vault")
    session.delete("FIND-001", reason="r")
    clock.skip(31)
    with lock(memory.tree, "+daemon", "lead", memory.options.patience, "leading"):
        index, _ = Index.open_or_replace(memory.root / ".smp/index.db")
        assert purge(memory, force=True, index=index).problems == []
        assert everywhere(memory) == []
        index.close()


def test_a_daemon_that_leads_is_asked_to_clean_its_index(session: Session, memory: Memory, tmp_path: Path) -> None:
    """And its own files, the log among them, hold no word of it either."""
    with running(memory.root, log=tmp_path / "log") as daemon:
        bring_up_to_date(memory)
        session.delete("FIND-001", reason="r")
        bring_up_to_date(memory)
        assert purge_memory(memory, "s1", ["FIND-001"]).problems == []
        assert everywhere(memory) == []
        assert not any(word in daemon.log.read_bytes() for word in WORDS)


def test_erasing_at_once_is_the_same_and_says_where_the_words_still_are(session: Session, memory: Memory) -> None:
    """Without any deadline, for one of several that were deleted together; the others can still be restored."""
    session.add_turn("user", f"Remember: {SECRET}")
    session.delete(["FIND-001", "DEC-001"], reason="r")
    with pytest.raises(MemoryNotFound):
        purge_memory(memory, "s1", ["FIND-001", "FIND-009"])
    outcome = purge_memory(memory, "s1", ["FIND-001"])
    assert (outcome.problems, outcome.notes) == ([], ["s1: the same words still stand in active/s1/conversation.md."])
    assert everywhere(memory, (f"{SECRET}, in the second".encode(),)) == []
    assert session.restore("DEC-001")
    session.delete("turn-2", reason="r")
    assert purge_memory(memory, "s1", ["turn-2"]).problems == []
    assert everywhere(memory) == []


def test_what_was_restored_meanwhile_is_not_purged(
    session: Session, memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the decision and the locks."""
    session.delete("FIND-001", reason="r")
    clock.skip(31)
    original = memory._scope

    def late(name: str) -> Any:
        monkeypatch.undo()
        session.restore("FIND-001")
        return original(name)

    monkeypatch.setattr(memory, "_scope", late)
    outcome = purge(memory, force=True)
    assert (outcome.actions, len(outcome.problems)) == ([], 1)
    assert session.get("FIND-001").text == SECRET
    assert purged(memory) == []


def test_an_old_version_that_a_program_writes_to_is_waited_for(session: Session, memory: Memory, clock: Clock) -> None:
    """Its bytes may be the only ones of what that program adds: the purge waits, and the program's record is taken in."""
    with (memory.root / "active/s1/findings.yaml").open("ab", buffering=0) as writer:
        session.delete("FIND-001", reason="r")
        clock.skip(31)
        outcome = purge(memory, force=True)
        assert (outcome.actions, len(outcome.problems)) == ([], 1)
        assert session.deleted()
        writer.write(b"  - id: FIND-late\n    finding: written late\n")
    assert purge(memory, force=True).problems == []
    assert session.get("FIND-late").text == "written late"
    assert everywhere(memory) == []


def test_a_session_that_fails_does_not_keep_the_others(session: Session, memory: Memory, clock: Clock) -> None:
    other = memory.create_session(id="s2")
    other.record_decision("also over", made_by="vera")
    session.delete("FIND-001", reason="r")
    other.delete("DEC-001", reason="r")
    clock.skip(31)
    with lock(memory.tree, "s1", "upkeep", memory.options.patience, "archiving"):
        outcome = purge(memory, force=True)
    assert [action.session for action in outcome.actions] == ["s2"]
    assert [problem.startswith("s1: not purged") for problem in outcome.problems] == [True]
    assert [action.session for action in purge(memory, force=True).actions] == ["s1"]


def test_locks_that_somebody_holds_are_not_removed(session: Session, memory: Memory, clock: Clock) -> None:
    """They go with the next purge."""
    memory.delete_session("s1", reason="over")
    clock.live(memory, 31)
    with lock(memory.tree, "s1", "decisions.yaml", memory.options.patience, "waiting for it"):
        assert purge(memory, force=True).problems == []
        assert os.listdir(memory.root / ".smp/locks/s1") == ["decisions.yaml.lock"]
        purge(memory)
        assert os.listdir(memory.root / ".smp/locks/s1") == ["decisions.yaml.lock"]
    purge(memory)
    assert not (memory.root / ".smp/locks/s1").exists()


def test_a_purge_and_a_session_of_the_same_name(session: Session, memory: Memory, clock: Clock) -> None:
    """The name is free again only when nothing of the old one is left."""
    memory.delete_session("s1", reason="over")
    with pytest.raises(SMPError):
        memory.create_session(id="s1")
    clock.live(memory, 31)
    purge(memory)
    made: list[Session] = []
    threads = [threading.Thread(target=lambda: made.append(Memory(memory.root).create_session(id="s1")))]
    for thread in threads:
        thread.start()
        thread.join()
    assert made[0].record_decision("new", made_by="vera").id == "DEC-001"
    assert purge(memory, force=True).actions == []
    assert look(memory).doomed == ()


def test_a_damaged_backup_is_left_unless_the_whole_session_goes(session: Session, memory: Memory, clock: Clock) -> None:
    session.delete("FIND-001", reason="r")
    backup = memory.root / "deleted/s1" / BACKUP
    whole = backup.read_bytes()
    backup.write_bytes(whole[:50])
    clock.skip(31)
    outcome = purge(memory, force=True)
    assert (outcome.actions, len(outcome.problems)) == ([], 1)
    assert session.deleted()
    backup.write_bytes(whole)
    memory.delete_session("s1", reason="over")
    backup.write_bytes(whole[:50])
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert not (memory.root / "deleted/s1").exists()


def test_the_search_finds_what_is_packed_in_what_is_packed(memory: Memory, session: Session) -> None:
    """Otherwise a purge that left something there would pass. In a .gz, in an archive in an archive, across two pieces."""
    from smp_client.packing import write_archive

    memory.tree.make_directory("archived/x")
    write_archive(memory.tree, "archived/x/inner.tar.gz", [("a", b"hidden-needle")])
    inner = (memory.root / "archived/x/inner.tar.gz").read_bytes()
    (memory.root / "archived/x/inner.tar.gz").unlink()
    write_archive(memory.tree, "archived/x/outer.tar.gz", [("first", b"1"), ("inner.tar.gz", inner)])
    (memory.root / "large").write_bytes(b"." * (8 * 1024 * 1024 - 6) + b"hidden-needle")
    assert traces.places_with(memory, [b"hidden-needle"]) == ["archived/x/outer.tar.gz", "large"]


def test_a_changed_deadline_must_be_waited_for_anew() -> None:
    one = doomed("a", 31)
    earlier = replace(one, deadline=one.deadline - timedelta(days=20))
    assert decided(Snapshot((earlier,)), watched(one))[0][1] is False


def test_what_compaction_holds_of_a_memory_goes_with_it(session: Session, memory: Memory, clock: Clock) -> None:
    """Ids are never given twice: an older state of it under the same id is the same memory, deleted and purged with it."""
    raw = b"  - id: FIND-001\n    finding: said by somebody else long ago\n    discovered_by: a\n    severity: low\n"
    item = Item("FIND-001", "finding", "findings.yaml", 0, 0, "another", 0.1, None, None)
    evictions.write(session, [(item, raw, "archive_findings", "old")], "full")
    session.delete("FIND-001", reason="r")
    assert everywhere(memory, (b"somebody else long ago",)) == ["deleted/s1/backup.tar.gz"]
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert everywhere(memory, (b"somebody else long ago",)) == []


def test_a_session_that_was_put_back_into_the_archive_is_not_purged(session: Session, memory: Memory, clock: Clock) -> None:
    """By hand, from a backup of one's own: it is there, whatever stands in `deleted/`."""
    memory.archive_session("s1")
    copies = {path.name: path.read_bytes() for path in (memory.root / "archived/s1").iterdir()}
    memory.delete_session("s1", reason="over")
    (memory.root / "archived/s1").mkdir()
    for name, content in copies.items():
        (memory.root / "archived/s1" / name).write_bytes(content + b"# by hand\n" if name == "summary.yaml" else content)
    clock.skip(31)
    assert purge(memory, force=True).actions == []
    assert [one.session for one in memory.archived_sessions()] == ["s1"]


def test_what_somebody_is_making_just_now_is_left_alone(
    session: Session, memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary that says the same may be another session that is being brought back. (It lost an artifact.)"""
    monkeypatch.setattr(erasure, "ABANDONED_S", 600.0)
    session.delete("FIND-001", reason="r")
    at_work = memory.tree.create_temporary(SECRET.encode())
    clock.skip(31)
    assert [action.type for action in purge(memory, force=True).actions] == ["purge_memories"]
    assert memory.tree.exists(at_work)


def test_a_short_secret_is_not_left_in_quarantine(session: Session, memory: Memory, clock: Clock) -> None:
    finding = session.record_finding("hunter2!x", discovered_by="vera")
    set_aside(memory.tree, "s1", "findings.yaml", 0, b"finding: hunter2!x", "torn", clock.now)
    session.delete(finding.id, reason="r")
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert everywhere(memory, (b"hunter2!x",)) == []


@pytest.mark.parametrize(("said", "kept"), [
    ("decision", b"    decision: UNRELATED work of somebody else that a crash cut"),
    ("decision", b"  - id: DEC-099\n    made_by: b\n    decision: decision"),
    ("approved", b"    decision: it was approved by somebody else"),
    ("of all", b"    decision: the best of all the words"),
    ("say yes", b'{"insert": [{"decision": "to say yes to it"}]}'),
], ids=["a key", "one word under another id", "a word in a text", "words in a text", "in a journal"])  # fmt: skip
def test_what_somebody_else_wrote_and_was_set_aside_is_kept(
    session: Session, memory: Memory, clock: Clock, said: str, kept: bytes
) -> None:
    """One common word, or the name of a field, does not say whose it is: the only copy of a record is not destroyed for it."""
    one = session.record_decision(said, made_by="quality-agent", tags=["architecture-review"])
    set_aside(memory.tree, "s1", "decisions.yaml", 0, kept, "torn", clock.now)
    set_aside(memory.tree, "s1", "decisions.yaml", 0, b"    made_by: quality-agent\n    decision: another", "torn", clock.now)
    memory.purge_now("s1", [one.id])
    assert {path.read_bytes() for path in (memory.root / "quarantine/s1").glob("*.bytes")} >= {kept}
    assert len(list((memory.root / "quarantine/s1").glob("*.bytes"))) == 2


@pytest.mark.parametrize("torn", [
    b"  - id: DEC-002 # smp\n    made_by: a\n    decision: approved", b'{"id": "DEC-002", "decision": "approved"}',
], ids=["a record", "in a journal"])  # fmt: skip
def test_one_word_goes_where_it_is_sure_to_be_theirs(session: Session, memory: Memory, clock: Clock, torn: bytes) -> None:
    """Under the same id, as the whole of a value."""
    one = session.record_decision("approved", made_by="a")
    assert one.id == "DEC-002"
    set_aside(memory.tree, "s1", "decisions.yaml", 0, torn, "torn", clock.now)
    assert memory.purge_now("s1", [one.id]).notes == []
    assert not (memory.root / "quarantine/s1").exists()


def test_what_may_be_theirs_is_kept_and_told(session: Session, memory: Memory, clock: Clock) -> None:
    one = session.record_finding("hunter2!x", discovered_by="vera")
    set_aside(memory.tree, "s1", "findings.yaml", 0, b"finding: they say that hunter2!x is the word", "torn", clock.now)
    (note,) = memory.purge_now("s1", [one.id]).notes
    assert "quarantine/s1/" in note
    assert "it is kept" in note
    assert len(list((memory.root / "quarantine/s1").glob("*.bytes"))) == 1


def test_what_an_archived_session_left_in_the_index_goes_too(session: Session, memory: Memory, clock: Clock) -> None:
    """With no daemon the rows of a session stay when it is archived, also those of a memory that was deleted just before. (A
    simulated year found it.)"""
    memory.search("vault")
    session.delete("FIND-001", reason="r")
    memory.archive_session("s1")
    clock.skip(31)
    assert purge(memory, force=True).problems == []
    assert everywhere(memory) == []
