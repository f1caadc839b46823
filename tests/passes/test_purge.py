"""Purging: overdue memories are destroyed without a trace, and nothing else is."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundles import evict
from bytes_left import files_with
from clocks import Wall
from daemons import running, wait_until

from smp_client import Invalid, Memory, MemoryNotFound, Session, SessionNotFound, SMPError
from smp_client.disk.bundle import item_of
from smp_client.disk.locks import lock
from smp_client.disk.quarantine import quarantine_bytes
from smp_client.disk.tombstones import FILE as PURGED
from smp_client.index.sync import bring_up_to_date
from smp_client.model.policies import RetentionPolicy
from smp_client.model.times import render_time
from smp_client.passes import purge as pass_
from smp_client.passes.purge import LEDGER, Doomed, Ledger, load_ledger, plan

pytestmark = pytest.mark.usefixtures("short_grace")
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY_S = 86_400.0
SECRET = "xylophone-Quetzalcoatl-9731 opens the vault"
WORDS = (SECRET.encode(), b"xylophone", b"quetzalcoatl", b"Quetzalcoatl")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch, NOW)


@pytest.fixture
def memory(tmp_path: Path, clock: Wall) -> Iterator[Memory]:
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


def bundled(memory: Memory) -> list[str]:
    """Return the files that still hold it, without the old versions that go by themselves."""
    return [path for path in left(memory) if not path.startswith(".smp/retired/")]


def purged(memory: Memory) -> list[dict[str, Any]]:
    path = memory.root / PURGED
    return list(yaml.safe_load(path.read_text())["purged"]) if path.exists() else []


def about(outcome: Any) -> list[tuple[str, ...]]:
    return [action.about for action in outcome.actions]


def doomed(name: str, days_ago: float, *ids: str) -> Doomed:
    """Deleted so many days ago, and kept for 30."""
    at = NOW - timedelta(days=days_ago)
    path = f"deleted/{name}/{'-'.join(ids) or 'backup'}.tar.gz"
    items = tuple(item_of("decisions.yaml", one, "decision", b"")[0] for one in ids)
    return Doomed(name, path, at.isoformat(), at + timedelta(days=30), items)


def waited(days: float, *every: Doomed) -> Ledger:
    return Ledger(0.0, {one.key: days * DAY_S for one in every})


def test_a_bundle_goes_that_was_seen_overdue_for_long_enough() -> None:
    """With force, a person confirms the clock; the deadline holds all the same."""
    old, _, young = every = doomed("old", 38), doomed("new", 31), doomed("young", 29)
    found = plan(every, waited(6.5, old), NOW)
    assert [(one.goes, one.reason) for one in found] == [
        (True, "it could be restored until 2026-05-24T12:00:00Z"),
        (False, "it is overdue since 2026-05-31T12:00:00Z;"
                " it is kept for 6.0 days of uptime more"),
        (False, "it can be restored until 2026-06-02T12:00:00Z"),
    ]  # fmt: skip
    assert not any(one.goes for one in plan(every, waited(5.9, old, young), NOW))
    forced = plan(every, Ledger(), NOW, force=True)
    assert [one.goes for one in forced] == [True, True, False]


def test_memories_have_deadlines_of_their_own_and_go_with_their_session() -> None:
    every = (doomed("a", 38), doomed("a", 3, "DEC-001"), doomed("b", 38, "DEC-001", "DEC-002"),
             doomed("b", 3, "DEC-003"))  # fmt: skip
    found = {one.action.about: one.goes for one in plan(every, waited(7, *every), NOW)}
    assert found == {("a",): True, ("DEC-001", "DEC-002"): True, ("DEC-003",): False}


def test_uptime_adds_up_over_restarts_and_only_while_the_machine_runs() -> None:
    """A machine that was started anew has run at least since then; more nobody knows."""
    ledger, days = Ledger(), []
    for running_s in (1000.0, 1000.0 + DAY_S, 50.0, 50.0 + 2 * DAY_S):
        ledger = ledger.seen(running_s, ["a"])
        days.append(ledger.waited_s["a"])
    assert days == [0, DAY_S, DAY_S + 50, 3 * DAY_S + 50]
    # One that is not overdue any more, as when the clock was set right again, begins anew.
    assert ledger.seen(9e6, []).seen(9e6, ["a"]).waited_s == {"a": 0}


@pytest.mark.parametrize("content", [
    b"", b"[]", b"\xff", b'{"running_s": -9e9, "waited_s": {}}',
    b'{"running_s": 1, "waited_s": {"a": 1e999}}', b'{"running_s": 1, "waited_s": {"a": NaN}}',
])  # fmt: skip
def test_a_ledger_that_is_lost_or_makes_no_sense_only_delays(
    memory: Memory, content: bytes
) -> None:
    memory.create()
    (memory.root / LEDGER).write_bytes(content)
    assert load_ledger(memory) == Ledger()


def test_without_its_marker_the_root_is_not_believed(
    session: Session, memory: Memory, clock: Wall
) -> None:
    session.delete("FIND-001", reason="r")
    clock.leap(31)
    (memory.root / ".smp/root.json").unlink()
    for outcome in (memory.privacy.purge(force=True), memory.privacy.purge_now("s1", "FIND-001")):
        assert (outcome.actions, outcome.success) == ([], False)
    assert session.deleted()


def test_a_deleted_memory_goes_when_two_runs_have_seen_it_overdue(
    session: Session, memory: Memory, clock: Wall
) -> None:
    """The purge is noted once, without a word of the memory. The audit log keeps the reason."""
    session.delete(["FIND-001", "turn-1"], reason="a private matter", deleted_by="user-1")
    for days in (29.9, 0.2, 5.9):
        clock.live(days)
        assert about(memory.privacy.purge()) == []
    clock.live(0.2)
    assert about(memory.privacy.purge(dry_run=True)) == [("FIND-001", "turn-1")]
    assert session.deleted()
    outcome = memory.privacy.purge()
    assert (about(outcome), outcome.problems) == ([("FIND-001", "turn-1")], [])
    assert memory.privacy.purge().actions == []
    assert not (memory.root / "deleted/s1").exists()
    assert left(memory) == []
    assert left(memory, b"private matter") == ["audit.log"]
    assert [record.id for record in session.records("decision")] == ["DEC-001"]
    with pytest.raises(MemoryNotFound):
        session.restore("FIND-001")
    at = "2026-06-01T12:00:00Z"
    noted = {"session": "s1", "timestamp": at, "deleted_at": at, "purged_at": render_time(clock.now)}
    finding = {"id": "FIND-001", "type": "finding", "file": "findings.yaml"}
    turn = {"id": "turn-1", "type": "conversation_turn", "file": "conversation.md"}
    assert purged(memory) == [{**noted, **finding}, {**noted, **turn}]


def test_what_was_deleted_before_a_time_is_purged_on_request(
    session: Session, memory: Memory, clock: Wall
) -> None:
    """As `purgeDeleted(olderThan)` of 000 §8.2: whatever the deadline, and nothing else goes."""
    session.delete("FIND-001", reason="early")
    clock.live(3)
    session.delete("turn-1", reason="late")
    memory.delete_session(memory.create_session(id="s2").id, reason="late")
    limit = clock.now - timedelta(days=1)
    assert about(memory.privacy.purge(older_than=limit, dry_run=True)) == [("FIND-001",)]
    assert about(memory.privacy.purge(older_than="2 days ago")) == [("FIND-001",)]
    assert [one.id for one in session.deleted()] == ["turn-1"]
    assert [one.session for one in memory.deleted_sessions()] == ["s2"]
    noted = json.loads((memory.root / "audit.log").read_text().splitlines()[-1])
    assert noted["reason"].endswith(": deleted before 2026-06-02T12:00:00Z")
    for wrong in ({"older_than": clock.now + timedelta(days=1)}, {"older_than": limit, "force": True}):
        with pytest.raises(Invalid, match="a time in the past"):
            memory.privacy.purge(**wrong)  # type: ignore[arg-type]


def test_no_byte_is_left_in_anything_that_smp_made(
    session: Session, memory: Memory, clock: Wall
) -> None:
    """Bundles, quarantine, old versions, old temporaries, YAML indexes, the index."""
    memory.search("vault")
    place = memory.root / "active/s1"
    whole = (place / "findings.yaml").read_bytes()
    quarantine_bytes(memory._scope("s1"), "findings.yaml", whole, "crossed")
    quarantine_bytes(memory._scope("s1"), "decisions.yaml", b"something else", "torn")
    evict(memory, "s1", "FIND-001")
    (place / "findings.yaml").write_bytes(whole)  # a person puts a copy back
    (place / "indexes/timeline.yaml").write_text(f"ref: FIND-001\ntopics: [{SECRET}]\n")
    os.utime(memory.root / memory.tree.create_temporary(SECRET.encode()), (0, 0))
    session.delete("FIND-001", reason="r")
    outcome = memory.privacy.purge_now("s1", "FIND-001")
    assert (outcome.problems, outcome.notes, left(memory)) == ([], [], [])
    (kept,) = (memory.root / "quarantine/s1").glob("*decisions*.bytes")
    assert kept.read_bytes() == b"something else"
    with closing(sqlite3.connect(memory.root / ".smp/index.db")) as index:
        assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)



def test_a_purged_memory_does_not_stay_in_the_undo_of_an_anonymisation(
    session: Session, memory: Memory, clock: Wall
) -> None:
    """The undo is due later than the memory. The rest of the anonymisation can be undone still."""
    session.record_learning("vera likes tea", learned_by="vera")
    anonymised = memory.privacy.anonymize("s1", names=["vera"]).batch
    short = memory.with_options(retention=RetentionPolicy(deleted_days=1.0))
    short.privacy.delete("s1", "FIND-001", reason="privacy")
    clock.live(2)
    assert left(memory)
    memory.privacy.purge(force=True)
    assert left(memory) == []
    memory.privacy.restore("s1", batch=anonymised)
    assert session.get("LEARN-001").data["learned_by"] == "vera"


def test_purging_an_anonymised_memory_at_once_destroys_the_memory_itself(
    session: Session, memory: Memory
) -> None:
    """Its words of before go with it; the rest of the anonymisation can be undone still."""
    session.record_learning("vera likes tea", learned_by="vera")
    anonymised = memory.privacy.anonymize("s1", names=["vera"]).batch
    outcome = memory.privacy.purge_now("s1", ["FIND-001"])
    assert (outcome.problems, left(memory)) == ([], [])
    with pytest.raises(MemoryNotFound):
        session.get("FIND-001")
    memory.privacy.restore("s1", batch=anonymised)
    assert session.get("LEARN-001").data["learned_by"] == "vera"


def test_an_anonymised_memory_of_a_session_that_is_away_is_not_purged_by_halves(
    session: Session, memory: Memory
) -> None:
    """Nothing goes, and the caller is told."""
    memory.privacy.anonymize("s1", names=["vera"])
    memory.delete_session("s1", reason="r")
    with pytest.raises(SMPError):
        memory.privacy.purge_now("s1", ["FIND-001"])
    memory.undelete_session("s1")
    assert memory.privacy.purge_now("s1", ["FIND-001"]).problems == []
    assert left(memory) == []


def test_where_others_say_the_same_it_is_noted_and_kept(session: Session, memory: Memory) -> None:
    session.add_turn("user", f"They say that {SECRET}.")
    session.record_decision(f"Because {SECRET}", made_by="vera")
    session.delete("DEC-002", reason="r")
    (memory.root / "active/s1/.findings.yaml.swp").write_text(SECRET)
    outcome = memory.privacy.purge_now("s1", ["FIND-001"])
    (note,) = outcome.notes
    assert note.startswith("The same words still stand in ")
    for place in ("active/s1/.findings.yaml.swp", "active/s1/conversation.md", "deleted/s1/"):
        assert place in note
    assert (outcome.problems, left(memory, f"{SECRET}, too".encode())) == ([], [])
    assert session.restore("DEC-002")


def test_a_memory_that_was_restored_meanwhile_is_not_purged(
    session: Session, memory: Memory, clock: Wall, monkeypatch: pytest.MonkeyPatch
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
    outcome = memory.privacy.purge(force=True)
    assert (outcome.actions, len(outcome.problems), purged(memory)) == ([], 1, [])
    assert session.get("FIND-001").text == SECRET


def test_an_old_version_that_a_program_writes_to_is_reported(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes may be the only ones of a record of that program, so it stays until it is closed."""
    monkeypatch.setattr(pass_, "_CLOSING_S", 0.5)
    with (memory.root / "active/s1/findings.yaml").open("ab", buffering=0) as writer:
        (problem,) = memory.privacy.purge_now("s1", ["FIND-001"]).problems
        assert "until the program that has it open closes it" in problem
        assert all(name.startswith(".smp/retired/") for name in left(memory))
        writer.write(b"  - id: FIND-late\n    finding: written late\n")
    wait_until(lambda: session.record_finding("next", discovered_by="a") and not left(memory),
               "the next writer folds it in")  # fmt: skip
    assert session.get("FIND-late").text == "written late"


def test_a_session_that_fails_does_not_keep_the_others(
    session: Session, memory: Memory, clock: Wall
) -> None:
    other = memory.create_session(id="s2")
    other.record_decision("also over", made_by="vera")
    session.delete("FIND-001", reason="r")
    other.delete("DEC-001", reason="r")
    clock.leap(31)
    with lock(memory.tree, "s1", "upkeep", memory.options.lock_timeout_s, "archiving"):
        outcome = memory.privacy.purge(force=True)
    assert [action.session for action in outcome.actions] == ["s2"]
    assert [problem.startswith("s1: not purged") for problem in outcome.problems] == [True]


def test_a_bundle_that_cannot_be_read_is_left_unless_the_whole_session_goes(
    session: Session, memory: Memory, clock: Wall
) -> None:
    batch = session.delete("FIND-001", reason="r").batch
    bundle = memory.root / f"deleted/s1/{batch}.tar.gz"
    bundle.write_bytes(bundle.read_bytes()[:50])
    clock.leap(31)
    outcome = memory.privacy.purge(force=True)
    assert (outcome.actions, len(outcome.problems), bundle.exists()) == ([], 1, True)
    memory.delete_session("s1", reason="over")
    (memory.root / "deleted/s1/backup.tar.gz").write_bytes(b"torn")
    assert memory.privacy.purge_now("s1").problems == []
    assert not (memory.root / "deleted/s1").exists()


@pytest.mark.parametrize("was", ["active", "archived", "deleted"])
def test_no_byte_is_left_of_a_session(tmp_path: Path, was: str) -> None:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s1", user="u")
    for number in range(3):
        session.record_finding(f"{SECRET} {number}", discovered_by="vera")
    memory.create_session(id="s2").record_decision("of another", made_by="a")
    quarantine_bytes(session.scope, "findings.yaml", SECRET.encode(), "torn")
    with running(memory.root, log=tmp_path / "log") if was == "active" else nullcontext():
        bring_up_to_date(memory)
        evict(memory, "s1", "FIND-002")
        session.delete("FIND-003", reason="r")
        if was == "archived":
            memory.archive_session("s1")
        elif was == "deleted":
            memory.delete_session("s1", reason="r")
        assert about(memory.privacy.purge_now("s1", dry_run=True)) == [("s1",)]
        outcome = memory.privacy.purge_now("s1")
        assert (outcome.problems, outcome.notes, left(memory)) == ([], [], [])
        assert [path for path in memory.root.rglob("s1*") if "locks" not in path.parts] == []
        assert [record.text for record in memory.search("another")] == ["of another"]
    (entry,) = purged(memory)
    assert (entry["session"], "id" in entry) == ("s1", False)
    memory.create_session(id="s1")  # the name is free again
    memory.close()


def test_a_session_that_was_put_back_by_hand_is_not_purged(
    session: Session, memory: Memory, clock: Wall
) -> None:
    """From a backup of one's own: it is there, whatever stands in `deleted/`."""
    memory.archive_session("s1")
    copy = (memory.root / "archived/s1/archive.tar.gz").read_bytes()
    memory.delete_session("s1", reason="over")
    (memory.root / "archived/s1").mkdir()
    (memory.root / "archived/s1/archive.tar.gz").write_bytes(copy)
    clock.leap(31)
    assert memory.privacy.purge(force=True).actions == []
    with pytest.raises(SMPError):
        memory.privacy.purge_now("s1")
    assert [one.session for one in memory.archived_sessions()] == ["s1"]


def test_a_wrong_name_purges_nothing(session: Session, memory: Memory) -> None:
    session.delete("FIND-001", reason="r")
    before = bundled(memory)
    for wrong in ({"name": "s1", "ids": ["FIND-001", "FIND-9"]}, {"name": "s9"},
                  {"name": "global"}, {"name": "s1", "batch": ""},
                  {"name": "s1", "ids": ["DEC-001"], "batch": "b"}):  # fmt: skip
        with pytest.raises((MemoryNotFound, SessionNotFound, Invalid)):
            memory.privacy.purge_now(**wrong)
    assert bundled(memory) == before
    assert [one.id for one in session.deleted()] == ["FIND-001"]
