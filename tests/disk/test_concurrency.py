"""Many writers at once: every record is there exactly once, and no number is left out or given
twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from smp_client import Memory, Session

KINDS = ("finding", "decision", "preference", "conversation_turn")

# Run by real processes; the arguments are the root, the name of the writer, how many records it adds.
WRITER = """
import sys
sys.path.insert(0, sys.argv[4])
from smp_client import Memory
from test_concurrency import add_mixed
add_mixed(Memory(sys.argv[1]).session("s1"), sys.argv[2], int(sys.argv[3]))
"""
HERE = str(Path(__file__).parent)


def run_together(memory: Memory, *programs: tuple[str, ...]) -> None:
    commands = [[sys.executable, "-c", text, str(memory.root), *more] for text, *more in programs]
    processes = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in commands]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def add_mixed(session: Session, name: str, count: int) -> None:
    ways: list[Callable[[str], object]] = [
        lambda text: session.record_finding(text, discovered_by=name),
        lambda text: session.record_decision(text, made_by=name),
        session.record_preference,
        lambda text: session.add_turn(name, text),
    ]
    for number in range(count):
        ways[number % 4](f"{name} {number}")


def assert_complete(session: Session, names: list[str], count: int) -> None:
    """Every text once; in each kind the numbers 1, 2, 3… in the order of the file."""
    assert session.problems() == []
    found = {kind: session.records(kind) for kind in KINDS}
    texts = sorted(record.text for records in found.values() for record in records)
    assert texts == sorted(f"{name} {number}" for name in names for number in range(count))
    for records in found.values():
        numbers = [int(record.id.rpartition("-")[2]) for record in records]
        assert numbers == list(range(1, len(records) + 1))


@pytest.mark.parametrize("each", [125, pytest.param(500, marks=pytest.mark.slow)])
def test_sixteen_processes_lose_and_double_nothing(
    session: Session, memory: Memory, each: int
) -> None:
    """All records are there, with gapless numbers."""
    names = [f"writer-{number}" for number in range(16)]
    run_together(memory, *((WRITER, name, str(each), HERE) for name in names))
    assert_complete(session, names, each)


def test_threads_that_share_a_session_lose_nothing(session: Session) -> None:
    """8 threads that write through one Session object exclude each other like processes do."""
    names = [f"thread-{number}" for number in range(8)]
    threads = [threading.Thread(target=add_mixed, args=(session, name, 40)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_complete(session, names, 40)


def test_a_child_forked_during_a_write_does_not_keep_the_lock(
    session: Session, memory: Memory
) -> None:
    """A lock ends when its holder releases it, although the child still has its file open."""
    program = """
import os, sys
from smp_client import Memory
from smp_client.disk.locks import NO_PATIENCE, lock
memory = Memory(sys.argv[1])
read, write = os.pipe()
with lock(memory.tree, "s1", "findings.yaml", NO_PATIENCE, "holding"):
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
with lock(memory.tree, "s1", "findings.yaml", NO_PATIENCE, "writing"):
    pass
os.close(write)
os.waitpid(child, 0)
"""
    run_together(memory, (program,))


def test_transactions_and_single_writes_share_the_numbers(session: Session, memory: Memory) -> None:
    """Processes that commit transactions and processes that add records one by one never give a
    number twice."""
    program = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
for number in range(15):
    with session.transaction() as tx:
        tx.record_finding(f"{sys.argv[2]} a{number}", discovered_by="a")
        tx.record_decision(f"{sys.argv[2]} b{number}", made_by="a")
        tx.record_finding(f"{sys.argv[2]} c{number}", discovered_by="a")
"""
    singles = ((WRITER, name, "60", HERE) for name in ("three", "four"))
    run_together(memory, (program, "one"), (program, "two"), *singles)
    for kind, count in (("finding", 2 * 30 + 2 * 15), ("decision", 2 * 15 + 2 * 15)):
        ids = [record.id for record in session.records(kind)]
        assert len(ids) == len(set(ids)) == count
