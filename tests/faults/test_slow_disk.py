"""A disk that is slow, and one that becomes read-only while somebody writes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from daemons import wait_until
from harness import PROGRAMS, Aftermath, Outcome, Programs, mounted, needs_mounts, needs_strace
from programs import OPERATIONS, SESSION, build, open_memory

from smp_client import StorageFailed

_SLOW_MS = 30


@needs_strace
@pytest.mark.parametrize("operation", [
    pytest.param(name, marks=[] if name == "transaction" else pytest.mark.slow)
    for name in OPERATIONS
])  # fmt: skip
def test_writers_wait_for_a_slow_disk_and_for_each_other(
    runner: Programs, operation: str, tmp_path: Path
) -> None:
    """Every write and fsync of one writer takes its time; another one writes beside it."""
    aftermath = Aftermath(operation, tmp_path)
    root = aftermath.fresh()
    delay = f"inject=write,fsync,fdatasync,rename,renameat2:delay_enter={_SLOW_MS}ms"
    outcomes: list[Outcome] = []

    def write_slowly() -> None:
        outcomes.append(runner.run(operation, root, strace=("-e", delay)))

    slow = threading.Thread(target=write_slowly)
    slow.start()
    session = open_memory(root).session(SESSION)
    beside = [session.record_finding("beside it", discovered_by="ada").id for _ in range(10)]
    slow.join()
    (outcome,) = outcomes
    assert (outcome.status, outcome.acknowledged) == (0, len(OPERATIONS[operation]))
    ids = [record.id for record in session.records("finding")]
    assert len(ids) == len(set(ids))
    assert set(beside) <= set(ids)
    assert session.problems() == []
    assert not os.listdir(root / ".smp/journal")


def _remount(disk: Path, mode: str) -> bool:
    done = subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], capture_output=True)
    return done.returncode == 0


@needs_mounts
@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 2, 3))])
def test_a_disk_that_becomes_read_only_in_the_middle(seed: int, tmp_path: Path) -> None:
    """The writer raises StorageFailed, questions are answered, and nothing acknowledged is lost.

    When the disk can be written again, the next write works.
    """
    moment = random.Random(seed)
    with mounted("none", tmp_path / "disk", "tmpfs", "size=64m") as disk:
        root = disk / "root"
        build(root)
        command = [sys.executable, str(PROGRAMS), str(root), "sound"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout
            assert writer.stderr
            said = [writer.stdout.readline() for _ in range(moment.randrange(1, 30))]

            def is_read_only() -> bool:
                """Stop it somewhere; with a file open for writing the disk stays as it is."""
                writer.send_signal(signal.SIGSTOP)
                done = _remount(disk, "ro")
                writer.send_signal(signal.SIGCONT)
                return done

            wait_until(is_read_only, "the disk is read-only")
            rest, failed = writer.communicate()
        assert "StorageFailed" in failed, failed
        assert writer.returncode == 1
        acknowledged = [json.loads(line) for line in [*said, *rest.splitlines()]]
        ids = {one for line in acknowledged for one in line.get("records", [])}
        memory = open_memory(root)
        session = memory.session(SESSION)
        with pytest.raises(StorageFailed):
            session.record_finding("not now", discovered_by="veritas")
        kinds = ("finding", "decision")
        assert ids <= {record.id for kind in kinds for record in session.records(kind)}
        assert memory.search("number")
        assert _remount(disk, "rw")
        new = session.record_finding("it can be written again", discovered_by="veritas").id
        found = [record.id for kind in kinds for record in session.records(kind)]
        assert {*ids, new} <= set(found)
        assert len(found) == len(set(found))
        assert session.problems() == []
        assert not os.listdir(root / ".smp/journal")
        memory.close()
