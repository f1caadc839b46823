"""Whole sessions that are archived, deleted and brought back, through the library."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundles import evict

from smp_client import (
    Conflict,
    CorruptionDetected,
    Invalid,
    Memory,
    Session,
    SessionNotFound,
    SessionPutAway,
    SMPError,
)
from smp_client.disk import journal, scope
from smp_client.disk.locks import lock
from smp_client.disk.session_files import METADATA
from smp_client.passes.tidy import tidy

pytestmark = pytest.mark.usefixtures("short_grace")


@pytest.fixture
def filled(session: Session) -> Session:
    session.record_decision("Use OAuth", made_by="ada", tags=["security"])
    session.record_finding("No limit on logins", discovered_by="bert", severity="high")
    session.add_turn("user", "Hello")
    session.save_agent_state("ada", {"next": "one"})
    session.save_artifact("plan", "The plan")
    return session


def files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, but for the metadata, which say when the session was used."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*")
            if path.is_file() and path.name != METADATA}  # fmt: skip


def test_archived_and_back_a_session_is_what_it_was(memory: Memory, filled: Session) -> None:
    before = files(memory.root / "active/s1")
    assert memory.archive_session("s1", "nobody needs it").success
    assert not (memory.root / "active/s1").exists()
    (away,) = memory.archived_sessions()
    assert (away.session, away.why) == ("s1", "nobody needs it")
    assert memory.get("s1/DEC-001").text == "Use OAuth"
    with pytest.raises(SessionPutAway, match="smp unarchive s1"):
        memory.session("s1")
    session = memory.restore_session("s1")
    assert files(memory.root / "active/s1") == before
    assert (session.state, memory.archived_sessions()) == ("active", [])
    assert not (memory.root / "archived/s1").exists()


def test_indexes_are_in_no_bundle(memory: Memory, filled: Session) -> None:
    """They name topics of memories, and nobody takes a purged memory out of them there."""
    place = memory.root / "active/s1/indexes"
    (place / "topics.yaml").write_text("topic_index: {}")
    (place / "mine.txt").write_text("a file of my own")
    memory.archive_session("s1")
    memory.restore_session("s1")
    assert [path.name for path in place.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("is_archived", [False, True])
def test_deleted_and_back_a_session_is_what_it_was(
    memory: Memory, filled: Session, is_archived: bool
) -> None:
    """In use, or in the archive; restored, it is in use."""
    before = files(memory.root / "active/s1")
    if is_archived:
        memory.archive_session("s1")
    memory.delete_session("s1", reason="privacy", deleted_by="vera")
    (away,) = memory.deleted_sessions()
    assert (away.session, away.by, away.why) == ("s1", "vera", "privacy")
    assert (memory.search("OAuth"), memory.archived_sessions()) == ([], [])
    with pytest.raises(SessionPutAway, match="smp restore s1"):
        filled.record_decision("Too late", made_by="ada")
    memory.undelete_session("s1")
    assert memory.deleted_sessions() == []
    assert memory.session("s1").get("DEC-001", count_access=False).text == "Use OAuth"
    assert files(memory.root / "active/s1") == before


def test_evicted_memories_go_and_come_with_their_session(memory: Memory, filled: Session) -> None:
    evict(memory, "s1", "FIND-001", "turn-1")
    evicted = sorted(one.id for one in filled.evicted())
    assert evicted == ["FIND-001", "turn-1"]
    memory.delete_session("s1", reason="privacy")
    assert (memory.search("logins"), filled.evicted()) == ([], [])
    assert [*memory.exchange.entries(["s1"], deleted=True)][1:-1] == []
    memory.undelete_session("s1")
    assert memory.search("logins")[0].id == "FIND-001"
    assert sorted(one.id for one in memory.session("s1").evicted()) == evicted
    memory.delete_session("s1", reason="privacy")
    memory.privacy.purge_now("s1")
    assert not (memory.root / "archived/s1").exists()


def test_dry_runs_and_wrong_calls_change_nothing(memory: Memory, filled: Session) -> None:
    before = files(memory.root / "active")
    assert memory.archive_session("s1", dry_run=True).dry_run
    planned = memory.delete_session("s1", reason="a test", dry_run=True)
    assert planned.actions[0].type == "delete_session"
    for error, call in (
        (Invalid, lambda: memory.delete_session("s1", reason=" ")),
        (SessionNotFound, lambda: memory.archive_session("nowhere")),
        (SessionNotFound, lambda: memory.restore_session("s1")),
        (SessionNotFound, lambda: memory.undelete_session("s1")),
    ):
        with pytest.raises(error):
            call()
    assert files(memory.root / "active") == before


@pytest.mark.parametrize("place", ["archived", "deleted"])
def test_a_session_of_the_same_id_is_never_replaced(
    memory: Memory, filled: Session, place: str
) -> None:
    def leave() -> object:
        if place == "archived":
            return memory.archive_session("s1")
        return memory.delete_session("s1", reason="a test")

    leave()
    (memory.root / "active/s1").mkdir()
    (memory.root / "active/s1/decisions.yaml").write_text("version: 1\ndecisions:\n")
    with pytest.raises(Conflict):
        memory.restore_session("s1") if place == "archived" else memory.undelete_session("s1")
    with pytest.raises(Conflict):
        leave()


def repacked(path: Path, change: dict[str, bytes | None]) -> None:
    """Write a bundle anew with some members changed, removed or added."""
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(path.read_bytes()))) as old:
        members = {one.name: opened.read() for one in old if (opened := old.extractfile(one))}
    for name, content in change.items():
        members.pop(name, None)
        if content is not None:
            members[name] = content
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as new:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    path.write_bytes(raw.getvalue())


@pytest.mark.parametrize("change", [
    {"files/decisions.yaml": b"version: 1\ndecisions:\n"}, {"files/decisions.yaml": None},
    {"manifest.json": b"[]"}, {"manifest.json": b"[" * 60_000}, {"manifest.json": None},
    {"../outside": b"x"}, {"/etc/outside": b"x"}, {"files/zeros.yaml": bytes(2 << 20)}, b"cut",
    b"junk",
], ids=["changed", "missing", "no manifest", "deep", "without", "upward", "absolute", "bomb", "cut",
        "junk"])  # fmt: skip
def test_a_bundle_that_was_tampered_with_brings_nothing_back(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch,
    change: dict[str, bytes | None] | bytes,
) -> None:  # fmt: skip
    monkeypatch.setattr("smp_client.disk.bundle.TOTAL_CAP_BYTES", 1 << 20)
    memory.create_session(id="s2").record_decision("Another", made_by="a")
    memory.archive_session("s1")
    memory.archive_session("s2")
    path = memory.root / "archived/s1/archive.tar.gz"
    if isinstance(change, dict):
        repacked(path, change)
    else:
        path.write_bytes(path.read_bytes()[:-30] if change == b"cut" else change)
    before = path.read_bytes()
    with pytest.raises(CorruptionDetected):
        memory.restore_session("s1")
    assert path.read_bytes() == before
    assert not (memory.root / "active/s1").exists()
    assert not (memory.root.parent / "outside").exists()
    assert [one.session for one in memory.archived_sessions()] == ["s1", "s2"], "it is named, too"
    assert memory.get("s2/DEC-001").text == "Another"


def test_what_an_open_file_still_gets_comes_back(memory: Memory, filled: Session) -> None:
    with (memory.root / "active/s1/decisions.yaml").open("a") as late:
        memory.archive_session("s1")
        late.write("  - id: late\n    decision: Written late\n    made_by: hand\n")
        late.flush()
        tidy(memory)
        assert list((memory.root / ".smp/leaving").iterdir()), "somebody has a file of it open"
    wait_until_swept(memory)
    assert not (memory.root / "quarantine").exists() or not memory.tree.list("quarantine")
    assert memory.get("s1/late").text == "Written late", "it is in the archive"
    memory.restore_session("s1")
    standing = (memory.root / "active/s1/decisions.yaml").read_text()
    assert (standing.count("Written late"), standing.count("Use OAuth")) == (1, 1)


def wait_until_swept(memory: Memory) -> None:
    for _ in range(200):
        tidy(memory)
        if not list((memory.root / ".smp/leaving").iterdir()):
            return
        threading.Event().wait(0.05)
    raise AssertionError("it is never removed")


def test_a_link_in_a_session_is_neither_followed_nor_lost(
    memory: Memory, filled: Session, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    (memory.root / "active/s1/link.yaml").symlink_to(outside)
    with pytest.raises(SMPError):
        memory.archive_session("s1")
    assert (memory.root / "active/s1/link.yaml").is_symlink()
    assert filled.get("DEC-001").text == "Use OAuth"


def test_a_shell_writes_on_while_a_session_goes_and_comes(memory: Memory, filled: Session) -> None:
    written: list[str] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.002):
            number += 1
            record = f"  - id: typed-{number}\n    decision: token-{number}-end\n"
            file = memory.root / "active/s1/decisions.yaml"
            try:
                descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
            except OSError:
                continue
            try:
                os.write(descriptor, record.encode())
                written.append(f"token-{number}-end")
            finally:
                os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(6):
            memory.archive_session("s1")
            memory.restore_session("s1")
            memory.delete_session("s1", reason="a test")
            memory.undelete_session("s1")
    finally:
        stop.set()
        thread.join()
    wait_until_swept(memory)
    standing = (memory.root / "active/s1/decisions.yaml").read_text()
    assert written
    assert [token for token in written if standing.count(token) != 1] == []


@pytest.mark.parametrize("use", [
    lambda session: session.record_decision("Second", made_by="a"),
    lambda session: session.records("decision"),
    lambda session: session.update("DEC-001", confidence="high"),
], ids=["write", "read", "transaction"])  # fmt: skip
def test_a_session_that_comes_back_between_two_looks_is_never_nowhere(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch, use: Callable[[Session], Any]
) -> None:
    """Just after its directory was missed, and before anybody looked where it was put."""
    memory.archive_session("s1")
    missing, looked = scope.missing, list[SessionNotFound]()

    def late(*arguments: Any) -> SessionNotFound:
        if not looked:
            memory.restore_session("s1")
        looked.append(missing(*arguments))
        return looked[-1]

    monkeypatch.setattr(scope, "missing", late)
    use(filled)
    assert looked, "the test did not get between the two looks"


def test_a_writer_that_saw_a_move_does_not_wait_for_the_pass_after_it(
    memory: Memory, filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move is finished just after the writer has read of it, and another pass has begun."""
    inode = (memory.root / "active/s1").stat().st_ino
    entering = {"directory": ".smp/tmp/gone", "to": "active/s1", "inode": inode}
    intent, load, looks = journal.record(filled.scope, [entering]), journal.load, list[str]()

    def late(*arguments: Any) -> Any:
        steps = load(*arguments)
        looks.append(intent)
        if len(looks) == 4:  # readers and the writer that holds its file look, then who waits
            memory.tree.unlink(intent)
        return steps

    monkeypatch.setattr(journal, "load", late)
    with lock(memory.tree, "s1", journal.UPKEEP, 0.0, "the next pass"):
        Memory(memory.root, lock_timeout_s=0.5).session("s1").record_decision("Two", made_by="a")
    assert len(looks) >= 4


def test_a_session_that_is_nowhere_is_not_said_to_be_away(memory: Memory, filled: Session) -> None:
    (memory.root / "active/s1").rename(memory.root / "moved-away")
    with pytest.raises(SessionNotFound) as raised:
        filled.record_decision("Second", made_by="a")
    assert not isinstance(raised.value, SessionPutAway)
