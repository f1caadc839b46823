"""A running daemon makes deleted memories of those that vanish from their files, and says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, running, smp, status, wait_until

from smp_client import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    memory = Memory(tmp_path / "sessions")
    session = memory.create_session(id="s1")
    for number in range(1, 4):
        session.record_decision(f"Decision {number}", made_by="architect")
    return memory


def removals(daemon: Daemon) -> list[dict[str, Any]]:
    return daemon.said("removed outside of SMP")


def test_log_and_status_name_a_memory_that_an_old_copy_removed_and_restore_brings_it_back(
    memory: Memory, tmp_path: Path
) -> None:
    file = memory.root / "active/s1/decisions.yaml"
    old = file.read_bytes()
    memory.session("s1").record_decision("Decision 4", made_by="architect")
    with running(memory.root, log=tmp_path / "log") as daemon:
        file.write_bytes(old)
        (line,) = wait_until(lambda: removals(daemon), "the log names it")
        assert (line["level"], line["session_id"], line["file"], line["memories"]) == (
            "warning",
            "s1",
            "decisions.yaml",
            ["DEC-004"],
        )
        said = status(memory.root)
        assert said["health"] == "ok"
        assert "DEC-004 of s1/decisions.yaml" in said["notes"][0]
        assert "DEC-004" in smp("status", "--root", memory.root).stdout
        assert smp("restore", "--root", memory.root, "s1", "DEC-004").returncode == 0
        assert b"DEC-004" in file.read_bytes()
        assert smp("sync", "--root", memory.root).returncode == 0
        assert status(memory.root)["notes"] == []
        assert len(removals(daemon)) == 1


def test_a_session_removed_by_hand_is_restored_whole(memory: Memory, tmp_path: Path) -> None:
    with running(memory.root, log=tmp_path / "log") as daemon:
        shutil.rmtree(memory.root / "active/s1")
        (line,) = wait_until(lambda: removals(daemon), "the log names it")
        assert (line["file"], line["count"]) == ("the whole session", 3)
        assert smp("restore", "--root", memory.root, "s1").returncode == 0
        assert memory.session("s1").get("DEC-002").text == "Decision 2"


def test_memories_that_a_client_missed_first_are_deleted_when_a_daemon_starts(
    memory: Memory, tmp_path: Path
) -> None:
    memory.search("Decision")
    file = memory.root / "active/s1/decisions.yaml"
    file.write_bytes(file.read_bytes().split(b"  - id: DEC-002")[0])
    assert [one.id for one in memory.search("Decision")] == ["DEC-001"]
    with running(memory.root, log=tmp_path / "log") as daemon:
        (line,) = wait_until(lambda: removals(daemon), "the log names them")
        assert line["memories"] == ["DEC-002", "DEC-003"]


def test_a_daemon_deletes_nothing_of_sessions_that_vanish_all_at_once(
    memory: Memory, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        memory.create_session(id=name).record_decision("Decision", made_by="ada")
    with running(memory.root, log=tmp_path / "log") as daemon:
        shutil.move(memory.root / "active", tmp_path / "unmounted")
        (memory.root / "active").mkdir()
        wait_until(
            lambda: any("disappeared at once" in one for one in status(memory.root)["problems"]),
            "the status says that most sessions are gone",
        )
        (memory.root / "active").rmdir()
        shutil.move(tmp_path / "unmounted", memory.root / "active")
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
        assert not removals(daemon)
        assert memory.deleted_sessions() == []
