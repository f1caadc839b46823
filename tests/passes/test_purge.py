"""Purging: what is overdue is destroyed without a trace, and nothing else is, whatever happens."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundles import evict, move
from bytes_left import files_with
from daemons import running, wait_until

from smp_client import Memory, MemoryNotFound, Session, SMPError
from smp_client.disk.bundle import Manifest, item_of
from smp_client.disk.locks import lock
from smp_client.disk.quarantine import set_aside
from smp_client.disk.tombstones import FILE as PURGED
from smp_client.index.sync import bring_up_to_date
from smp_client.passes import overdue
from smp_client.passes.overdue import Ledger
from smp_client.passes.purge import Doomed, doomed_of, plan, purge

pytestmark = pytest.mark.usefixtures("short_grace")
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY_S = 86_400.0
SECRET = "xylophone-Quetzalcoatl-9731 opens the vault"
WORDS = (SECRET.encode(), b"xylophone", b"quetzalcoatl", b"Quetzalcoatl")


class Clock:
    """The clock on the wall, which tests set, and the one of the machine, which nobody can set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.running_s = NOW, 1000.0
        monkeypatch.setattr(overdue, "running_s", lambda: self.running_s)

    def __call__(self) -> datetime:
        return self.now

    def leap(self, days: float) -> None:
        self.now += timedelta(days=days)

    def live(self, days: float) -> None:
        self.leap(days)
        self.running_s += days * DAY_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def memory(tmp_path: Path, clock: Clock) -> Iterator[Memory]:
    made = Memory(tmp_path / "sessions", clock=clock, lock_timeout_s=0.2)
    yield made
    made.close()


@pytest.fixture
def session(memory: Memory) -> Session:
    session = memory.create_session(id="s1", user="user-1")
    session.add_turn("user", "what is the word?")
    session.record_decision("stays where it is", made_by="vera", tags=["kept"])
    session.record_finding(SECRET, discovered_by="vera", impact=f"{SECRET}, too", tags=["vault"])
    return session


def left(memory: Memory, *words: bytes) -> list[str]:
    return files_with(memory.root, *(words or WORDS))


def purged(memory: Memory) -> list[dict[str, Any]]:
    path = memory.root / PURGED
    return list(yaml.safe_load(path.read_text())["purged"]) if path.exists() else []


def snapshot_of(memory: Memory) -> dict[str, bytes]:
    files = (path for path in sorted(memory.root.rglob("*")) if path.is_file())
    return {str(path.relative_to(memory.root)): path.read_bytes() for path in files}


# Deciding.


def doomed(name: str, days_ago: float, *ids: str, **further: Any) -> Doomed:
    """Deleted so many days ago, and kept for 30."""
    at = NOW - timedelta(days=days_ago)
    path = f"deleted/{name}/{'-'.join(ids) or 'backup'}.tar.gz"
    items = tuple(item_of("decisions.yaml", one, "decision", b"")[0] for one in ids)
    return Doomed(name, path, at.isoformat(), at + timedelta(days=30), items, **further)


def waited(days: float, *every: Doomed) -> Ledger:
    first = {one.key: 0.0 for one in every}
    return Ledger(days * DAY_S, 0.0, {overdue.DELETED: first})


def decided(
    every: tuple[Doomed, ...], ledger: Ledger, *, force: bool = False
) -> list[tuple[str, bool, str]]:
    found = plan(every, {}, ledger, NOW, force=force)
    return [
        (decision.doomed.session, decision.purge, decision.reason) for decision in found.decisions
    ]


def test_what_was_seen_overdue_for_long_enough_goes_and_the_rest_stays() -> None:
    old, new, young = doomed("old", 38), doomed("new", 31), doomed("young", 29)
    every = (old, new, young)
    assert decided(every, waited(6.5, old)) == [
        (
            "old",
            True,
            "it could be restored until 2026-05-24T12:00:00Z, and was seen overdue for 6.5 days",
        ),
        (
            "new",
            False,
            "it is overdue since 2026-05-31T12:00:00Z; it is kept for 6.0 days of running time more",
        ),
        ("young", False, "it can be restored until 2026-06-02T12:00:00Z"),
    ]
    assert [one[1] for one in decided(every, waited(5.9, old, young))] == [False, False, False]


def test_force_is_a_persons_word_for_the_clock_and_the_deadline_holds_all_the_same() -> None:
    old, young = doomed("old", 31), doomed("young", 29)
    assert decided((old, young), Ledger(), force=True) == [
        ("old", True, "it is overdue since 2026-05-31T12:00:00Z; it is kept for 6.0 days of running time more;"
                      " confirmed with --force"),
        ("young", False, "it can be restored until 2026-06-02T12:00:00Z"),
    ]  # fmt: skip


def test_memories_have_deadlines_of_their_own_and_go_with_their_session() -> None:
    every = (
        doomed("a", 38),
        doomed("a", 3, "DEC-001"),
        doomed("b", 38, "DEC-001", "DEC-002"),
        doomed("b", 3, "DEC-003"),
    )
    found = plan(every, {}, waited(7, *every), NOW)
    about = {one.as_action().about: one.purge for one in found.decisions}
    assert about == {("a",): True, ("DEC-001", "DEC-002"): True, ("DEC-003",): False}


def test_a_session_whose_name_is_in_use_is_not_purged() -> None:
    one = doomed("a", 38, in_use=True)
    ((_, goes, why),) = decided((one,), waited(7, one), force=True)
    assert (goes, why) == (
        False,
        "a session of this name is in use; move deleted/a/backup.tar.gz away",
    )


@pytest.mark.parametrize(
    ("going", "staying", "bytes_each", "believed"),
    [(5, 4, 10, False), (5, 5, 10, True), (4, 0, 10, True), (5, 50, 1000, False), (6, 50, 1, True)],
)
def test_most_of_the_tree_is_not_believed(
    going: int, staying: int, bytes_each: int, believed: bool
) -> None:
    """Five sessions and more than half of all, or more than half of all bytes: nothing goes."""
    sessions = [doomed(f"s{number}", 38) for number in range(going)]
    memories = doomed("t0", 38, "DEC-001")
    sizes = {one.session: bytes_each for one in sessions} | {
        f"t{number}": 10 for number in range(staying)
    }
    every = (*sessions, memories)
    found = plan(every, sizes, waited(7, *every), NOW)
    assert len(found.going) == (going + 1 if believed else 0)
    assert any("smp purge --force" in problem for problem in found.problems) != believed
    assert len(plan(every, sizes, Ledger(), NOW, force=True).going) == going + 1


def test_without_its_marker_the_root_is_not_believed(
    session: Session, memory: Memory, clock: Clock
) -> None:
    session.delete("FIND-001", reason="r")
    clock.leap(31)
    (memory.root / ".smp/root.json").unlink()
    before = snapshot_of(memory)
    for outcome in (purge(memory, force=True), memory.privacy.purge_now("s1", ["FIND-001"])):
        assert (outcome.actions, outcome.success) == ([], False)
    assert snapshot_of(memory) == before


# Waiting.


def test_a_life(session: Session, memory: Memory, clock: Clock) -> None:
    """Kept for 30 days, seen overdue by one run, purged by another six days later; all else is as
    it was.
    """
    session.delete("FIND-001", reason="privacy", deleted_by="user-1")
    for days in (29.9, 0.2, 5.9):
        clock.live(days)
        assert purge(memory).actions == []
    assert session.deleted()
    clock.live(0.2)
    assert [action.about for action in purge(memory, dry_run=True).actions] == [("FIND-001",)]
    assert session.deleted()
    outcome = purge(memory)
    assert (outcome.problems, outcome.notes) == ([], [])
    assert [(action.type, action.about) for action in outcome.actions] == [
        ("purge_memories", ("FIND-001",))
    ]
    assert not (memory.root / "deleted/s1").exists()
    assert left(memory) == []
    assert [record.id for record in session.records("decision")] == ["DEC-001"]
    with pytest.raises(MemoryNotFound):
        session.restore("FIND-001")


@pytest.mark.parametrize("leap_days", [31, 400, 40_000])
def test_a_leap_forward_destroys_nothing_before_somebody_could_see_it(
    session: Session, memory: Memory, clock: Clock, leap_days: int
) -> None:
    """Seen to fail where the deadline alone was compared with the clock."""
    session.delete("FIND-001", reason="r")
    clock.leap(leap_days)
    for _ in range(5):
        assert purge(memory).actions == []
        clock.live(1)
    clock.leap(-leap_days)
    assert purge(memory).actions == []  # and all that was noted of it is forgotten
    clock.leap(leap_days)
    for _ in range(6):
        assert purge(memory).actions == []
        clock.live(1)
    assert session.restore("FIND-001").text == SECRET


# Destroying memories.


def test_what_was_purged_is_noted_once_and_without_a_word(
    session: Session, memory: Memory, clock: Clock
) -> None:
    session.delete(["FIND-001", "turn-1"], reason="a private matter")
    clock.leap(31)
    purge(memory, force=True)
    purge(memory, force=True)
    (entry,) = purged(memory)
    assert entry.pop("key")
    assert entry == {
        "session": "s1", "what": "memories", "ids": ["FIND-001", "turn-1"], "files": ["conversation.md", "findings.yaml"],
        "timestamps": ["2026-06-01T12:00:00Z", "2026-06-01T12:00:00Z"], "types": {"finding": 1, "conversation_turn": 1},
        "deleted_at": "2026-06-01T12:00:00Z", "recovery_deadline": "2026-07-01T12:00:00Z",
        "purged_at": "2026-07-02T12:00:00Z", "forced": True,
    }  # fmt: skip
    assert left(memory, b"private matter") == []


def test_no_byte_is_left_in_anything_that_smp_made(
    session: Session, memory: Memory, clock: Clock
) -> None:
    """Bundles, quarantine, old versions, temporaries of a dead process, YAML indexes, the index and
    its WAL.
    """
    memory.search("vault")
    whole = (memory.root / "active/s1/findings.yaml").read_bytes()
    set_aside(
        memory.tree,
        "s1",
        "findings.yaml",
        0,
        whole,
        "an edit that a replacement crossed",
        clock.now,
    )
    set_aside(
        memory.tree, "s1", "decisions.yaml", 0, b"of something else entirely", "torn", clock.now
    )
    evict(memory, "s1", "FIND-001")
    (memory.root / "active/s1/findings.yaml").write_bytes(whole)  # a person puts a copy back
    (memory.root / "active/s1/indexes/timeline.yaml").write_text(
        f"ref: FIND-001\ntopics: [{SECRET}]\n"
    )
    if (child := os.fork()) == 0:
        memory.tree.create_temporary(SECRET.encode())
        os._exit(0)
    os.waitpid(child, 0)
    session.delete("FIND-001", reason="r")
    clock.leap(31)
    outcome = purge(memory, force=True)
    assert (outcome.problems, outcome.notes) == ([], [])
    assert left(memory) == []
    (kept,) = (memory.root / "quarantine/s1").glob("*decisions*.bytes")
    assert kept.read_bytes() == b"of something else entirely"
    index = sqlite3.connect(memory.root / ".smp/index.db")
    assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    index.close()


def test_a_copy_is_the_same_memory_and_another_state_of_the_id_is_not(
    session: Session, memory: Memory, clock: Clock
) -> None:
    """Under one id compaction evicted one state, and another was written since: each has its own
    deadline.
    """
    path = evict(memory, "s1", "FIND-001")
    raw = b"  - id: FIND-001\n    finding: said anew by somebody else\n    discovered_by: a\n    severity: low\n"
    file = memory.root / "active/s1/findings.yaml"
    file.write_bytes(b"version: 1\nfindings:\n" + raw)
    head = Manifest("deleted", "s1", "2026-06-01T12:00:00Z", "me", "r", "2026-06-20T12:00:00Z", "b")
    move(memory, "deleted/s1/b.tar.gz", head, "FIND-001")
    clock.leap(31)
    assert [action.about for action in purge(memory, force=True).actions] == [("FIND-001",)]
    assert left(memory, b"said anew") == []
    assert path in left(memory)


def test_where_others_say_the_same_it_is_noted_and_kept(session: Session, memory: Memory) -> None:
    """In memories, drops, bundles and quarantine; a short line may stand anywhere, and is not
    looked for.
    """
    session.add_turn("user", f"They say that {SECRET}.")
    session.record_decision(f"Because {SECRET}", made_by="vera")
    memory.archive_session(memory.create_session(id="s2").id)
    session.delete("DEC-002", reason="r")
    (memory.root / "active/s1/.findings.yaml.swp").write_text(SECRET)
    outcome = memory.privacy.purge_now("s1", ["FIND-001"])
    (note,) = outcome.notes
    assert note.startswith("The same words still stand in ")
    for place in ("active/s1/.findings.yaml.swp", "active/s1/conversation.md", "deleted/s1/"):
        assert place in note
    assert outcome.problems == []
    assert left(memory, f"{SECRET}, too".encode()) == []
    assert session.restore("DEC-002")
    short = session.record_finding("yes", discovered_by="a")
    assert memory.privacy.purge_now("s1", [short.id]).notes == []


def test_what_was_restored_meanwhile_is_not_purged(
    session: Session, memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the decision and the lock."""
    session.delete("FIND-001", reason="r")
    clock.leap(31)
    original = memory._scope

    def late(name: str) -> Any:
        monkeypatch.setattr(memory, "_scope", original)
        session.restore("FIND-001")
        return original(name)

    monkeypatch.setattr(memory, "_scope", late)
    outcome = purge(memory, force=True)
    assert (outcome.actions, len(outcome.problems)) == ([], 1)
    assert session.get("FIND-001").text == SECRET
    assert purged(memory) == []


def test_an_old_version_that_a_program_writes_to_is_reported(
    session: Session, memory: Memory
) -> None:
    """Its bytes may be the only ones of a record of that program, so it stays until it is closed."""
    with (memory.root / "active/s1/findings.yaml").open("ab", buffering=0) as writer:
        (problem,) = memory.privacy.purge_now("s1", ["FIND-001"]).problems
        assert "until the program that has it open closes it" in problem
        assert all(name.startswith(".smp/retired/") for name in left(memory))
        writer.write(b"  - id: FIND-late\n    finding: written late\n")
    wait_until(
        lambda: (
            session.record_finding("the next writer folds it in", discovered_by="a")
            and not left(memory)
        ),
        "folded in",
    )
    assert session.get("FIND-late").text == "written late"


def test_a_session_that_fails_does_not_keep_the_others(
    session: Session, memory: Memory, clock: Clock
) -> None:
    other = memory.create_session(id="s2")
    other.record_decision("also over", made_by="vera")
    session.delete("FIND-001", reason="r")
    other.delete("DEC-001", reason="r")
    clock.leap(31)
    with lock(memory.tree, "s1", "upkeep", memory.options.lock_timeout_s, "archiving"):
        outcome = purge(memory, force=True)
    assert [action.session for action in outcome.actions] == ["s2"]
    assert [problem.startswith("s1: not purged") for problem in outcome.problems] == [True]
    assert [action.session for action in purge(memory, force=True).actions] == ["s1"]


def test_a_bundle_that_cannot_be_read_is_left_unless_the_whole_session_goes(
    session: Session, memory: Memory, clock: Clock
) -> None:
    batch = session.delete("FIND-001", reason="r").batch
    bundle = memory.root / f"deleted/s1/{batch}.tar.gz"
    whole = bundle.read_bytes()
    (memory.root / "deleted/stray").mkdir()
    (memory.root / "deleted/stray/mine.txt").write_text("of somebody")
    for damaged in (whole[:50], whole[:-30]):
        bundle.write_bytes(damaged)
        clock.leap(31)
        outcome = purge(memory, force=True)
        assert (outcome.actions, len(outcome.problems)) == ([], 1)
        assert bundle.read_bytes() == damaged
    memory.delete_session("s1", reason="over")
    (memory.root / "deleted/s1/backup.tar.gz").write_bytes(b"torn")
    assert memory.privacy.purge_now("s1").problems == []
    assert not (memory.root / "deleted/s1").exists()
    assert (memory.root / "deleted/stray/mine.txt").exists()


# Destroying sessions.


@pytest.mark.parametrize("was_archived", [False, True])
@pytest.mark.parametrize("is_led", [False, True])
def test_no_byte_is_left_of_a_session(tmp_path: Path, was_archived: bool, is_led: bool) -> None:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s1", user="u")
    for number in range(3):
        session.record_finding(f"{SECRET} {number}", discovered_by="vera")
    memory.create_session(id="s2").record_decision("of another", made_by="a")
    set_aside(memory.tree, "s1", "findings.yaml", 0, SECRET.encode(), "torn", NOW)
    with (
        running(memory.root, log=tmp_path / "log") if is_led else Memory(memory.root).tree.holding()
    ):
        bring_up_to_date(memory)
        evict(memory, "s1", "FIND-002")
        session.delete("FIND-003", reason="r")
        if was_archived:
            memory.archive_session("s1")
        outcome = memory.privacy.purge_now("s1")
        assert (outcome.problems, outcome.notes) == ([], [])
        assert [action.type for action in outcome.actions] == ["purge_session"]
        assert left(memory) == []
        names = [str(path) for path in memory.root.rglob("s1*") if "locks" not in path.parts]
        assert names == []
        assert [record.text for record in memory.search("another")] == ["of another"]
    (entry,) = purged(memory)
    assert (entry["session"], entry["what"]) == ("s1", "session")
    memory.close()


def test_the_name_is_free_again_when_nothing_of_the_old_session_is_left(
    session: Session, memory: Memory, clock: Clock
) -> None:
    memory.delete_session("s1", reason="over")
    with pytest.raises(SMPError):
        memory.create_session(id="s1")
    memory.privacy.purge_now("s1")
    memory.create_session(id="s1").record_decision("new", made_by="vera")
    clock.live(40)
    assert purge(memory, force=True).actions == []
    assert doomed_of(memory, "s1", []) == []


def test_a_session_that_was_put_back_by_hand_is_not_purged(
    session: Session, memory: Memory, clock: Clock
) -> None:
    """From a backup of one's own: it is there, whatever stands in `deleted/`."""
    memory.archive_session("s1")
    copy = (memory.root / "archived/s1/archive.tar.gz").read_bytes()
    memory.delete_session("s1", reason="over")
    (memory.root / "archived/s1").mkdir()
    (memory.root / "archived/s1/archive.tar.gz").write_bytes(copy)
    clock.leap(31)
    assert purge(memory, force=True).actions == []
    with pytest.raises(SMPError):
        memory.privacy.purge_now("s1")
    assert [one.session for one in memory.archived_sessions()] == ["s1"]
