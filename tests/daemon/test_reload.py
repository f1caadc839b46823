"""Settings that change while a daemon runs, and that hold for every client."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, Daemon, no_hang, running, settings_file, smp, status, wait_until

from smp_client import Memory, Options
from smp_client.disk.policy import POLICY_FILE, publish, published


def reload(daemon: Daemon, root: Path) -> dict[str, Any]:
    """Send SIGHUP and return what the status then says of the settings."""
    before = settings_of(root)
    os.kill(daemon.process.pid, signal.SIGHUP)

    def news() -> dict[str, Any]:
        now = settings_of(root)
        return now if now.get("loaded_at") != before.get("loaded_at") else {}

    found: dict[str, Any] = wait_until(news, "the daemon has reloaded")
    return found


def settings_of(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / ".smp/status.json").read_text())["settings"]
    return found


def test_sighup_reloads_the_settings_and_the_daemon_goes_on(memory: Memory, tmp_path: Path) -> None:
    config = settings_file(tmp_path, log={"level": "info"}, quota_bytes=1_000_000)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        settings_file(tmp_path, log={"level": "debug"}, quota_bytes=2_000_000)
        said = reload(daemon, memory.root)
        assert sorted(said["changed"]) == ["log.level", "quota_bytes"]
        assert said["needs_restart"] == []
        wait_until(lambda: memory.options.quota_bytes == 2_000_000, "clients are told")
        memory.create_session(id="s1").record_decision("D", made_by="a")
        wait_until(lambda: daemon.said("indexed"), "lines at debug are logged")
        (line,) = daemon.said("configuration reloaded")
        assert sorted(line["changed"]) == ["log.level", "quota_bytes"]
        assert status(memory.root)["health"] == "ok"
        assert daemon.stop() == 0


def test_settings_that_need_a_restart_are_named(memory: Memory, tmp_path: Path) -> None:
    config = settings_file(tmp_path, watch={"polling_s": 2.0})
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        settings_file(tmp_path, watch={"polling_s": 3.0}, roots=[str(tmp_path / "other")])
        assert sorted(reload(daemon, memory.root)["needs_restart"]) == ["roots", "watch.polling_s"]
        said = "these settings take effect when the daemon is started again"
        assert sorted(daemon.said(said)[0]["settings"]) == ["roots", "watch.polling_s"]


def test_a_bad_file_leaves_the_old_settings_and_is_named(memory: Memory, tmp_path: Path) -> None:
    config = settings_file(tmp_path, quota_bytes=1_000_000)
    with running(memory.root, log=tmp_path / "log", config=config) as daemon:
        settings_file(tmp_path, quota_bytes="much")
        assert "quota_bytes" in reload(daemon, memory.root)["problem"]
        (line,) = daemon.said("configuration not reloaded")
        assert line["level"] == "error"
        assert "quota_bytes" in line["reason"]
        found = status(memory.root)
        assert found["health"] == "degraded"
        assert any("quota_bytes" in problem for problem in found["problems"])
        assert Memory(memory.root).options.quota_bytes == 1_000_000
        settings_file(tmp_path, quota_bytes=3_000_000)
        assert "problem" not in reload(daemon, memory.root)
        wait_until(lambda: status(memory.root)["health"] == "ok", "the problem is gone")


def test_smp_config_reload_says_what_became_of_it(memory: Memory, tmp_path: Path) -> None:
    config = settings_file(tmp_path, quota_bytes=1_000_000)
    root = ("--root", memory.root)
    memory.create()
    nobody = smp("config", "reload", *root)
    assert nobody.returncode == 1
    assert "No daemon is running" in nobody.stderr
    with running(memory.root, log=tmp_path / "log", config=config):
        settings_file(tmp_path, quota_bytes=2_000_000, watch={"polling_s": 3.0})
        done = smp("config", "reload", *root)
        assert done.returncode == 0, done.stderr
        assert "Reloaded: quota_bytes." in done.stdout
        assert "watch.polling_s" in done.stdout
        settings_file(tmp_path, quota_bytes="much")
        bad = smp("config", "reload", *root)
        assert bad.returncode == 5
        assert "the old ones hold" in bad.stdout


RELOADING_INSIDE_LOCKS = """
import os, signal, sys, threading
left = 300

def trace(frame, event, argument):
    global left
    if frame.f_code.co_filename != threading.__file__:
        return trace if event == "call" else None
    if left and event == "line" and callable(signal.getsignal(signal.SIGHUP)):
        left -= 1
        os.kill(os.getpid(), signal.SIGHUP)
    return trace

from smp_daemon.cli import main
sys.settrace(trace)
main()
"""


def test_reloads_that_come_while_a_lock_is_held_do_not_hang_it(
    memory: Memory, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", RELOADING_INSIDE_LOCKS]
    daemon = Daemon([memory.root], tmp_path / "log", program=program)
    try:
        with no_hang():
            daemon.wait_ready()
            wait_until(lambda: daemon.said("configuration reloaded"), "it has reloaded")
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(PATIENCE_S) == 0
    finally:
        daemon.kill()


# Settings hold for every client.

GIVEN = {
    "quota_bytes": 20 * 1024 * 1024,
    "lock": {"timeout_s": 2.5},
    "retention": {"deleted_days": 7},
    "redaction": {"personal": ["email"]},
    "compaction": {"gentle_at_pct": 60},
}


def has_all(memory: Memory) -> bool:
    options = memory.options
    return (
        options.quota_bytes == GIVEN["quota_bytes"]
        and options.lock_timeout_s == 2.5
        and options.retention.deleted_days == 7
        and options.compaction.gentle_at_pct == 60
        and published(memory.tree).redaction.personal == ("email",)
    )


def test_the_settings_of_a_daemon_hold_for_the_library(memory: Memory, tmp_path: Path) -> None:
    with running(memory.root, log=tmp_path / "log", config=settings_file(tmp_path, **GIVEN)):
        assert has_all(memory)
        session = memory.create_session(id="s1")
        assert session.size().quota_bytes == GIVEN["quota_bytes"]
        made = session.record_decision("Ask jane@example.org", made_by="a")
        assert "jane@example.org" not in made.text
        session.delete(made.id, reason="try")
        (deleted,) = session.deleted()
        at, until = str(deleted.facts["at"]), str(deleted.facts["until"])
        assert (int(until[8:10]) - int(at[8:10])) % 31 in (6, 7, 8) or until[:7] != at[:7]
    assert has_all(Memory(memory.root))  # also without the daemon
    assert Memory(memory.root, quota_bytes=70_000).options.quota_bytes == 70_000


def test_smp_publishes_the_settings_of_its_file_without_a_daemon(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.create_session(id="s1")
    monkeypatch.setenv("SMP_CONFIG", str(settings_file(tmp_path, **GIVEN)))
    assert smp("sessions", "--root", memory.root).returncode == 0
    monkeypatch.delenv("SMP_CONFIG")
    assert has_all(Memory(memory.root))


def test_smp_leaves_the_settings_that_a_daemon_has_published(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings_file(tmp_path, quota_bytes=1_000_000)
    with running(memory.root, log=tmp_path / "log", config=own):
        (tmp_path / "other").mkdir()
        other = settings_file(tmp_path / "other", quota_bytes=2_000_000)
        monkeypatch.setenv("SMP_CONFIG", str(other))
        smp("sessions", "--root", memory.root)
        assert Memory(memory.root).options.quota_bytes == 1_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("quota_bytes", 0), ("quota_bytes", "x"), ("lock_timeout_s", 1e9), ("deleted_days", -1)],
)
def test_published_settings_that_make_no_sense_are_not_used(
    memory: Memory, name: str, value: object
) -> None:
    memory.create()
    publish(memory.tree, Options())
    file = memory.root / POLICY_FILE
    said = json.loads(file.read_text())
    said["client"][name] = value
    file.write_text(json.dumps(said))
    assert memory.options.quota_bytes == Options().quota_bytes
    assert not published(memory.tree).is_sound
