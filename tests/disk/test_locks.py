"""Locks: who waits, for how long, what it is told, and in which order several are taken."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from daemons import elsewhere

from smp_client import LockTimeout, Memory, Session
from smp_client.disk import locks
from smp_client.disk.locks import NO_PATIENCE, lock
from smp_client.model.layout import lock_rank
from smp_client.model.record import SESSION_KINDS

# Holds the named locks until its input ends, or dies by a line of it.
HOLDER = """
import os, signal, sys
from smp_client import Memory
from smp_client.disk.locks import lock_all
memory = Memory(sys.argv[1])
with lock_all(memory.tree, "s1", sys.argv[2:], 0.0, "holding for a test"):
    print("held", flush=True)
    for _ in sys.stdin:
        os.kill(os.getpid(), signal.SIGKILL)
"""
FILES = ["metadata.yaml", *(kind.file for kind in SESSION_KINDS), "agent-states/veritas.yaml",
         "artifacts/report-1.md"]  # fmt: skip


def impatient(memory: Memory) -> Session:
    return Memory(memory.root, lock_timeout_s=NO_PATIENCE).session("s1")


def test_a_timeout_says_which_file_is_locked_until_its_holder_is_killed(
    session: Session, memory: Memory
) -> None:
    """LockTimeout is MEM_E002, and nothing was written; SIGKILL frees the lock at once."""
    with elsewhere(HOLDER, memory.root, "findings.yaml") as die:
        with pytest.raises(LockTimeout) as caught:
            impatient(memory).record_finding("x", discovered_by="a")
        assert (caught.value.code, caught.value.session_id) == ("MEM_E002", "s1")
        assert caught.value.recoverable
        said = str(caught.value)
        assert re.search(r"s1/findings.yaml is locked by pid \d+ \(\S*python\S* -c .*\), since", said)
        assert session.records("finding") == []
        assert die("now") == ""
        assert impatient(memory).record_finding("x", discovered_by="a").id == "FIND-001"


def test_a_timeout_says_who_is_at_work_on_the_whole_session(
    session: Session, memory: Memory
) -> None:
    """It names the pid, the time and the work of a holder that may take long."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    with (
        lock(memory.tree, "s1", "upkeep", NO_PATIENCE, "holding for a test"),
        pytest.raises(LockTimeout) as caught,
    ):
        impatient(memory).delete("DEC-001", reason="test")
    said = re.search(r"by pid (\d+) .*, holding for a test since (\S+?); ", str(caught.value))
    assert said is not None
    assert int(said[1]) == os.getpid()
    assert before < datetime.fromisoformat(said[2]) <= datetime.now(UTC)


def test_locks_are_taken_in_one_order(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction's commit takes the locks of its files in ascending order."""
    taken: list[str] = []
    acquire = locks._acquire

    def noted(tree: Any, scope: str, file: str, *rest: Any) -> int:
        taken.append(file)
        return acquire(tree, scope, file, *rest)

    monkeypatch.setattr(locks, "_acquire", noted)
    with session.transaction() as tx:
        tx.save_artifact("report-1", "text")
        tx.save_agent_state("veritas", {"a": 1})
        tx.record_preference("p")
        tx.record_finding("f", discovered_by="a")
        tx.record_decision("d", made_by="a")
        tx.add_turn("user", "t")
        taken.clear()
    assert len(taken) == 7, "six files, and the metadata, because some are in folders"
    assert taken == sorted(taken, key=lock_rank)


def test_reading_takes_no_lock(session: Session, memory: Memory) -> None:
    """Everything can be read while another process holds every lock of the session."""
    decision = session.record_decision("d", made_by="a")
    session.add_turn("user", "hello")
    session.save_agent_state("veritas", {"a": 1})
    session.save_artifact("report-1", "text")
    with elsewhere(HOLDER, memory.root, *FILES, "agent-states/history/veritas.yaml"):
        reader = impatient(memory)
        with pytest.raises(LockTimeout):
            reader.record_decision("d", made_by="a")
        assert reader.get(decision.id).text == "d"
        assert [turn.text for turn in reader.turns()] == ["hello"]
        assert reader.agent_state("veritas")["a"] == 1
        assert reader.artifact("report-1").text == "text"
        assert reader.size().total_bytes > 0
        assert reader.problems() == []


def test_removing_everything_of_our_own_loses_nothing(session: Session, memory: Memory) -> None:
    """Without `.smp/` every record is there, and the next one gets the next number."""
    session.record_finding("one", discovered_by="a")
    session.update("FIND-001", severity="low")
    with session.transaction() as tx:
        tx.record_finding("two", discovered_by="a")
        tx.add_turn("user", "hello")
    before = [session.records(kind) for kind in ("finding", "turn")]
    shutil.rmtree(memory.root / ".smp")
    assert [session.records(kind) for kind in ("finding", "turn")] == before
    assert session.record_finding("three", discovered_by="a").id == "FIND-003"
    assert session.add_turn("user", "again").id == "turn-2"
    assert Memory(memory.root).session("s1").get("FIND-002").text == "two"


def test_a_lock_file_that_lost_its_name_is_not_trusted(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever locks a file that was removed in the same moment locks the new one instead."""
    path = memory.root / ".smp/locks/s1/findings.yaml.lock"
    session.record_finding("x", discovered_by="a")
    import filelock

    honest = filelock.lock_descriptor
    tries: list[int] = []

    def removed_before_it_is_locked(descriptor: int, **how: Any) -> bool:
        if not tries:
            path.unlink()
        tries.append(descriptor)
        return honest(descriptor, **how)

    monkeypatch.setattr(filelock, "lock_descriptor", removed_before_it_is_locked)
    with lock(memory.tree, "s1", "findings.yaml", 1.0, "testing") as held:
        assert len(tries) == 2
        assert os.fstat(held.descriptor).st_ino == path.stat().st_ino


INTERRUPTED = """
import fcntl, os, sys
from smp_client.disk import tree
honest = fcntl.fcntl
def opened_meanwhile(descriptor, command, *rest):
    result = honest(descriptor, command, *rest)
    if command == fcntl.F_SETLEASE and rest == (fcntl.F_RDLCK,):
        try:
            os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
        except BlockingIOError:
            print("in the way")
    return result
fcntl.fcntl = opened_meanwhile
print(tree.nobody_writes(os.open(sys.argv[1], os.O_RDONLY)))
"""


def test_asking_who_has_a_file_open_survives_being_interrupted(tmp_path: Path) -> None:
    """Somebody who opens the file meanwhile must not end the process that asks, as SIGIO does."""
    (tmp_path / "file").touch()
    program = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "file")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "in the way\nTrue\n"), done.stderr


def test_the_holder_of_a_lock_is_known_by_its_process(session: Session, memory: Memory) -> None:
    """The kernel says it, so that a writer need not write it down."""
    with elsewhere(HOLDER, memory.root, "findings.yaml"):
        pid = locks.holder_pid(memory.tree, "s1", "findings.yaml")
        assert pid is not None
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(sys.executable.encode())
    assert locks.holder_pid(memory.tree, "s1", "findings.yaml") is None
    assert locks.holder_pid(memory.tree, "s1", "never.yaml") is None


def test_where_the_kernel_says_nothing_a_note_names_only_a_process_of_this_machine(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_KERNEL_LOCKS", "/proc/nothing-of-the-kind")
    with lock(memory.tree, "s1", "upkeep", NO_PATIENCE, "trying") as held:
        assert locks.holder_pid(memory.tree, "s1", "upkeep") == os.getpid()
        held.note["host"] = "another.example"
        held.save()
        assert locks.holder_pid(memory.tree, "s1", "upkeep") is None
    with elsewhere(HOLDER, memory.root, "findings.yaml"):
        assert locks.holder(memory.tree, "s1", "findings.yaml") == "another process"


def test_waiting_for_a_lock_lasts_five_seconds_by_default() -> None:
    assert Memory("nowhere").options.lock_timeout_s == 5.0
