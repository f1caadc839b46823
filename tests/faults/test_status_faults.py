"""`smp status` and `smp check` when it is hard: a full or read-only disk, a daemon that stands still, work that was cut off."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

from daemons import running, smp, status, wait_until
from harness import filled, mounted, needs_mounts

from smp_client import Memory
from smp_client.index.status import SILENT_AFTER_S, read_status
from smp_client.index.sync import ask_for_scrub
from smp_client.model.times import parse_time


def with_memories(root: Path) -> Memory:
    memory = Memory(root)
    session = memory.create_session(id="s1")
    session.record_decision("Use OAuth", made_by="a")
    session.record_decision("Use Postgres", made_by="a")
    assert smp("sync", "--root", root).returncode == 0
    return memory


@needs_mounts
def test_a_read_only_disk_can_be_asked(tmp_path: Path) -> None:
    """Status and search answer; status says that the disk is read-only. Seen to fail with locks that are opened to be written."""
    with mounted("tmpfs", tmp_path / "disk", "tmpfs", "size=64m") as disk:
        with_memories(disk / "sessions").close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        found = status(disk / "sessions")
        assert found["health"] == "down"
        assert "The disk is read-only" in found["problems"][1]
        assert "Use OAuth" in smp("search", "oauth", "--root", disk / "sessions").stdout


@needs_mounts
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """The daemon, whose heartbeat cannot be written, is not to blame: nobody is told to start it again."""
    with mounted("tmpfs", tmp_path / "disk", "tmpfs", "size=64m") as disk:
        root = disk / "sessions"
        with_memories(root).close()
        with running(root, log=tmp_path / "log"):
            wait_until(lambda: status(root)["health"] == "ok", "a daemon that is well")
            with filled(disk):
                found = wait_until(lambda: (now := status(root))["health"] == "degraded" and now, "a word about it")
                assert "The disk is full" in found["problems"][0]
                assert not [problem for problem in found["problems"] if "start it again" in problem]
            wait_until(lambda: status(root)["health"] == "ok", "a daemon that is well again")


def test_a_daemon_that_stands_still_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    memory = with_memories(root)
    with running(root, log=tmp_path / "log") as daemon:
        wait_until(lambda: status(root)["health"] == "ok", "a daemon that is well")
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            beat = parse_time(str(read_status(memory).said["heartbeat_at"]))
            found = read_status(memory, at=beat + timedelta(seconds=SILENT_AFTER_S + 0.1))
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        assert SILENT_AFTER_S <= 5
        assert found.health == "degraded"
        assert "has given no sign for 5 s" in found.problems[0]
        wait_until(lambda: status(root)["health"] == "ok", "a daemon that goes on")


def test_words_of_what_was_purged_are_not_denied(tmp_path: Path) -> None:
    """As long as somebody still has to take them out of the index, status says so."""
    root = tmp_path / "sessions"
    memory = with_memories(root)
    ask_for_scrub(memory, "s1")
    assert [problem for problem in status(root)["problems"] if "Words of purged memories" in problem]
    with running(root, log=tmp_path / "log"):
        wait_until(lambda: status(root)["health"] == "ok", "a clean index")
