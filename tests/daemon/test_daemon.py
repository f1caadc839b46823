"""The daemon from outside: what is on the disk is in the index, and it can show that."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from daemons import (
    PATIENCE_S,
    Daemon,
    elsewhere,
    index_contents,
    no_hang,
    running,
    smp,
    status,
    wait_until,
    wait_until_true,
)

from smp_client import Memory
from smp_client.index.database import Index
from smp_client.model.layout import INDEX_FILE
from smp_client.model.times import now, render_time


@pytest.fixture
def daemon(memory: Memory, tmp_path: Path) -> Iterator[Daemon]:
    memory.create()
    with running(memory.root, log=tmp_path / "log") as started:
        yield started


def wait_for_health(memory: Memory, health: str) -> list[str]:
    wait_until(lambda: status(memory.root)["health"] == health, f"it is {health}")
    problems: list[str] = status(memory.root)["problems"]
    return problems


def indexed_sessions(memory: Memory) -> set[str]:
    return {row[0] for row in index_contents(memory.root)["memories"]}


# The index.


def test_what_is_written_is_indexed_and_equals_a_rebuild(memory: Memory, tmp_path: Path) -> None:
    """By the library, by hand, before and after the start."""
    before = memory.create_session(id="before", user="u")
    before.record_decision("Earlier", made_by="a", tags=["x"])
    with running(memory.root, log=tmp_path / "log"):
        after = memory.create_session(id="after")
        for number in range(50):
            after.record_finding(f"Finding {number}", discovered_by="v", tags=["security.auth"])
            after.add_turn("user", f"Turn {number}")
        before.update("DEC-001", confidence="high")
        with (memory.root / "active/before/findings.yaml").open("a") as by_hand:
            by_hand.write("  - {id: FIND-900, finding: By hand}\n")
        shutil.copytree(memory.root / "active/after", memory.root / "active/restored")
        assert smp("sync", "--root", memory.root).stdout == "sync done, by the daemon\n"
        found = [row[0] for row in index_contents(memory.root)["memories"]]
        assert [found.count(name) for name in ("before", "after", "restored")] == [2, 100, 100]
        wait_until_true(memory.root)


def test_most_sessions_vanishing_at_once_is_not_believed(
    memory: Memory, tmp_path: Path, daemon: Daemon
) -> None:
    """The index keeps them and status says so; bringing them back, or `smp reindex`, settles it."""
    active, aside = memory.root / "active", tmp_path / "aside"
    aside.mkdir()
    for name in "abcd":
        memory.create_session(id=name).record_decision(name, made_by="x")
    smp("sync", "--root", memory.root)
    for name in "abc":
        (active / name).rename(aside / name)
    smp("sync", "--root", memory.root)
    assert "disappeared at once" in wait_for_health(memory, "degraded")[0]
    assert indexed_sessions(memory) == {"a", "b", "c", "d"}
    for name in "ab":
        (aside / name).rename(active / name)
    smp("sync", "--root", memory.root)
    wait_for_health(memory, "ok")  # one that is gone may be gone
    for name in "ab":
        (active / name).rename(aside / name)
    smp("reindex", "--root", memory.root)
    assert indexed_sessions(memory) == {"d"}


def test_the_yaml_indexes_and_the_metadata_follow(memory: Memory, daemon: Daemon) -> None:
    session = memory.create_session(id="s", user="u", agents=["veritas"])
    session.add_turn("veritas", "I found something.", memory_refs=["FIND-001"])
    session.record_finding("No MFA", discovered_by="veritas", tags=["mfa"])
    topics = memory.root / "active/s/indexes/topics.yaml"
    wait_until(lambda: topics.exists() and "FIND-001" in topics.read_text(), "the topics are there")
    topic = yaml.safe_load(topics.read_text())["topic_index"]["topics"]["mfa"]
    assert topic["related_memories"]["findings"] == ["FIND-001"]

    def is_true() -> bool:
        metadata = json.loads(json.dumps(session.metadata()))
        total = metadata["storage"]["total_bytes"]
        counted = metadata["participants"]["agents"][0]["message_count"]
        return bool(counted == 1 and abs(total - session.size().total_bytes) < 100)

    wait_until(is_true, "the metadata are true")
    smp("sync", "--root", memory.root)
    wait_until_true(memory.root)


def test_a_session_dropped_whole_gets_what_it_lacks(
    memory: Memory, tmp_path: Path, daemon: Daemon
) -> None:
    aside, before = tmp_path / "dropped", render_time(now())
    aside.mkdir()
    (aside / "decisions.yaml").write_text(
        "decisions:\n- {id: DEC-001, timestamp: 2026-01-11T14:40:00Z, made_by: architect,"
        " decision: Use OAuth, tags: [auth]}\n"
    )
    aside.rename(memory.root / "active/dropped")
    metadata = memory.root / "active/dropped/metadata.yaml"
    wait_until(lambda: metadata.exists() and "architect" in metadata.read_text(), "it has metadata")
    found = memory.session("dropped").metadata()
    assert found["created_at"] == "2026-01-11T14:40:00Z"
    assert str(found["last_accessed"]) >= before, "it would be archived on its arrival"
    wait_until((memory.root / "active/dropped/indexes/topics.yaml").exists, "it has indexes")
    wait_until_true(memory.root)


def test_drops_are_taken_in_once_also_across_a_kill(memory: Memory, tmp_path: Path) -> None:
    """100 drops, the daemon killed again and again."""
    session = memory.create_session(id="s")
    inbox = memory.root / "active/s/inbox"
    for number in range(0, 100, 2):
        text = f"type: finding\nfinding: drop {number}\ndiscovered_by: somebody\nseverity: low\n"
        (inbox / f"{number}.yaml").write_text(text)
        head = f"---\ntype: turn\nspeaker: user\n---\n\ndrop {number + 1}\n"
        (inbox / f"{number + 1}.md").write_text(head)
    for _ in range(5):
        daemon = Daemon([memory.root], tmp_path / "log")
        seen = len(list(inbox.iterdir()))
        wait_until(lambda seen=seen: not seen or len(list(inbox.iterdir())) < seen, "some are taken")
        daemon.kill()
    with running(memory.root, log=tmp_path / "log"):
        wait_until(lambda: not list(inbox.iterdir()), "all drops are taken")
    texts = [record.text for kind in ("finding", "turn") for record in session.records(kind)]
    assert sorted(texts) == sorted(f"drop {number}" for number in range(100))


# Status and requests.


def test_status_tells_up_down_and_killed(memory: Memory, tmp_path: Path) -> None:
    """And its exit code."""
    memory.create_session(id="s").record_decision("D", made_by="a")
    assert smp("status", "--root", tmp_path / "nowhere").returncode == 3
    assert smp("status", "--root", memory.root).returncode == 2
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_until(lambda: status(memory.root)["roots"][0]["lag_ms"], "a canary came through")
        found = status(memory.root)
        assert (found["health"], found["pid"]) == ("ok", daemon.process.pid)
        assert found["roots"][0]["memories"] == 1
        assert found["roots"][0]["sessions"] == {"active": 1}
        assert {"scan", "rebuild", "tidy"} <= found["jobs"].keys()
        assert found["jobs"]["scan"]["last_success"]
        assert smp("status", "--root", memory.root, "--deep").returncode == 0
        daemon.kill()
        assert smp("status", "--root", memory.root).returncode == 2


def test_status_is_not_ok_before_the_first_scan(memory: Memory, tmp_path: Path) -> None:
    """The scan waits for somebody who writes the index; until then nobody knows the new file."""
    memory.create_session(id="old")
    assert smp("sync", "--root", memory.root).returncode == 0
    memory.create_session(id="new").record_decision("After", made_by="a")
    with closing(Index.open_to_read(memory.root / INDEX_FILE)) as index:
        index.begin()
        daemon = Daemon([memory.root], tmp_path / "log")
        try:
            own = daemon.process.pid
            found = wait_until(
                lambda: (found := status(memory.root))["pid"] == own and found, "its heart beats"
            )
            assert found["health"] == "degraded"
            # On a slow machine the scan has given up by now, and is tried again.
            assert found["problems"][0].startswith(("The daemon is starting", "Indexing failed"))
            index.execute("ROLLBACK")
            wait_for_health(memory, "ok")
            assert status(memory.root)["watching"] != "stopped"
        finally:
            daemon.kill()


BLIND = """
import sys
from smp_daemon.ingest.watcher import Watcher
Watcher.start = lambda self: None
Watcher.check = lambda self: ""
from smp_daemon.cli import main
main()
"""


def test_status_is_not_ok_while_the_watcher_does_not_run(memory: Memory, tmp_path: Path) -> None:
    memory.create()
    blind = [sys.executable, "-c", BLIND]
    daemon = Daemon([memory.root], tmp_path / "log", program=blind)
    try:
        daemon.wait_ready()
        found = status(memory.root)
        assert (found["watching"], found["health"]) == ("stopped", "degraded")
        assert "does not watch the files" in found["problems"][0]
    finally:
        daemon.kill()


LEADS = """
import sys
from smp_client import Memory
from smp_client.disk.locks import lock
from smp_client.model.layout import LEAD, LEAD_SCOPE
with lock(Memory(sys.argv[1]).tree, LEAD_SCOPE, LEAD, 60, "leading"):
    print("it leads", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_daemon_said_does_not_count_for_the_next(
    memory: Memory, tmp_path: Path
) -> None:
    """The heartbeat of the killed one is fresh, and the next one does not watch yet."""
    memory.create()
    daemon = Daemon([memory.root], tmp_path / "log")
    daemon.wait_ready()
    wait_for_health(memory, "ok")
    daemon.kill()
    with elsewhere(LEADS, memory.root):
        found = status(memory.root)
        assert found["health"] == "degraded"
        assert found["pid"] is None
        assert found["problems"] == ["The daemon is starting. Ask again in a few seconds."]


def test_sync_and_reindex_work_without_a_daemon(memory: Memory) -> None:
    memory.create_session(id="s").record_decision("D", made_by="a")
    assert smp("sync", "--root", memory.root).stdout == "sync done, here: no daemon is running\n"
    wait_until_true(memory.root)
    done = json.loads(smp("reindex", "--root", memory.root, "--json").stdout)
    assert done == {"request": "reindex", "done_by": "here"}
    wait_until_true(memory.root)


# The lead.


@pytest.mark.parametrize("count", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_of_many_daemons_exactly_one_leads(memory: Memory, tmp_path: Path, count: int) -> None:
    """So many started at once; the others say who leads, and the next can after a kill."""
    daemons = [Daemon([memory.root], tmp_path / f"log{number}") for number in range(count)]

    def alive() -> list[Daemon]:
        return [daemon for daemon in daemons if daemon.process.poll() is None]

    try:
        wait_until(lambda: len(alive()) == 1, "all but one have given up")
        (leader,) = alive()
        leader.wait_ready()
        others = [daemon for daemon in daemons if daemon is not leader]
        assert {daemon.process.returncode for daemon in others} == {4}
        assert all(f"pid {leader.process.pid}" in daemon.log.read_text() for daemon in others)
        leader.kill()
        with running(memory.root, log=tmp_path / "next"):
            assert smp("status", "--root", memory.root).returncode in (0, 1)
    finally:
        for daemon in daemons:
            daemon.kill()


# Starts, stops and signals.


WRITER = """
import sys; from smp_client import Memory; s = Memory(sys.argv[1]).session('s')
with open(sys.argv[2], 'a') as said:
    while True: print(s.record_finding('F', discovered_by='w').id, file=said, flush=True)
"""


@pytest.mark.parametrize("times", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_restarts_under_load_miss_nothing(memory: Memory, tmp_path: Path, times: int) -> None:
    """So often killed while two writers write: READY comes after all that was acknowledged."""
    session = memory.create_session(id="s")
    logs = [tmp_path / "w0", tmp_path / "w1"]
    command = [sys.executable, "-c", WRITER, str(memory.root)]
    writers = [subprocess.Popen([*command, str(log)]) for log in logs]
    try:
        wait_until(lambda: all(log.exists() for log in logs), "both write")
        for _ in range(times):
            written = {line for log in logs for line in log.read_text().splitlines()}
            with (
                running(memory.root, log=tmp_path / "log"),
                closing(Index.open_to_read(memory.root / INDEX_FILE)) as index,
            ):
                rows = index.execute("SELECT id FROM memories")
                assert written <= {row[0] for row in rows}
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    with running(memory.root, log=tmp_path / "log"):
        smp("sync", "--root", memory.root)
        wait_until_true(memory.root)
    assert len(session.records("finding")) > 0


@pytest.mark.parametrize("how", ["removed", "moved away"])
def test_a_tree_that_is_made_anew_is_looked_after(memory: Memory, daemon: Daemon, how: str) -> None:
    def is_removed() -> bool:
        shutil.rmtree(memory.root, ignore_errors=True)  # the daemon may be writing there
        return not memory.root.exists()

    memory.create_session(id="old").record_decision("Before", made_by="a")
    wait_until(lambda: indexed_sessions(memory) == {"old"}, "it is indexed")
    if how == "removed":
        wait_until(is_removed, "nothing is left")
    else:
        memory.root.rename(memory.root.with_name("elsewhere"))
    again = Memory(memory.root)
    again.create_session(id="new").record_decision("After", made_by="a")
    wait_until(lambda: indexed_sessions(again) == {"new"}, "the new one is indexed")
    wait_for_health(again, "ok")


def test_sigterm_stops_cleanly_at_any_time(memory: Memory, tmp_path: Path) -> None:
    """While it starts, scans or indexes."""
    for number in range(30):
        memory.create_session(id=f"s{number}").record_decision("D", made_by="a")
    for pause_ms in (0, 50, 100, 150, 200, 300, 400, 600):
        daemon = Daemon([memory.root], tmp_path / "log")
        deadline = time.monotonic() + pause_ms / 1000
        wait_until(lambda until=deadline: time.monotonic() >= until, "the moment has come")
        daemon.process.send_signal(signal.SIGTERM if pause_ms % 100 else signal.SIGINT)
        # Before Python has installed the handler, a signal ends the process as it ends any.
        assert daemon.process.wait(PATIENCE_S) in (0, 1, -signal.SIGTERM, -signal.SIGINT)
    with running(memory.root, log=tmp_path / "log") as daemon:
        wait_until_true(memory.root)
        assert daemon.stop() == 0
        assert daemon.lines()[-1]["event"] == "stopped"


# Sends the daemon a signal from inside every step of its main thread through a lock of Python's
# own, that is while it holds it.
SIGNALLED_INSIDE_LOCKS = """
import os, signal, sys, threading

def trace(frame, event, argument):
    if frame.f_code.co_filename != threading.__file__:
        return trace if event == "call" else None
    if event == "line" and callable(signal.getsignal(signal.SIGTERM)):
        os.kill(os.getpid(), signal.SIGTERM)
    return trace

from smp_daemon.cli import main
sys.settrace(trace)
main()
"""


def test_a_signal_that_comes_while_a_lock_is_held_stops_and_does_not_hang_it(
    memory: Memory, tmp_path: Path
) -> None:
    """Lock by lock: a handler that waits for one that the main thread holds would wait for ever."""
    traced = [sys.executable, "-c", SIGNALLED_INSIDE_LOCKS]
    daemon = Daemon([memory.root], tmp_path / "log", program=traced)
    try:
        with no_hang():
            assert daemon.process.wait(PATIENCE_S) == 0
    finally:
        daemon.kill()
