"""`kill -9` of a writer at any system call: acknowledged means written, anything else is the old state or the new."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import CHANGING, Aftermath, Programs, injection, needs_strace
from programs import OPERATIONS, SESSION, open_memory

# They change nothing that outlives the process; the last ones are the child that waits to be let go.
_OWN_BUSINESS = (
    "brk", "mmap", "munmap", "mprotect", "madvise", "mremap", "futex", "getrandom", "getpid", "rt_sigaction",
    "select", "pselect6", "restart_syscall",
)  # fmt: skip


def kill_everywhere(
    runner: Programs, operation: str, directory: Path, variant: str = "sound", *, every_call: bool = False, each: int = 1
) -> Iterator[str]:
    """Kills a run before each of its system calls in turn, and gives all that whoever comes next finds wrong."""
    aftermath = Aftermath(operation, directory)
    calls = runner.calls(operation, aftermath.fresh(), directory / "calls", variant, vain=every_call)
    wanted = [call for call in calls if (call[0] not in _OWN_BUSINESS if every_call else call[0] in CHANGING)]
    missed: list[tuple[str, int]] = []
    for number, call in enumerate(wanted[random.randrange(each) :: each], random.randrange(2)):
        root = aftermath.fresh()
        outcome = runner.run(operation, root, variant=variant, strace=injection(call, "signal=KILL"))
        if every_call and not outcome.killed and outcome.status == 0:
            # How often a lease or a lock is asked for depends on the machine's load: this run needed fewer calls.
            missed.append(call)
            continue
        assert outcome.killed, f"the run made no {call}"
        for problem in aftermath.problems(root, outcome, write_first=bool(number % 2)):
            yield f"killed before {call}: {problem}"
    assert len(missed) <= len(wanted) // 20, missed


@needs_strace
# Deleting takes many more calls than the others; what two more do is much like what the rest does.
@pytest.mark.parametrize(
    "operation",
    [pytest.param(name, marks=pytest.mark.slow) if name in ("delete", "save", "create_session") else name for name in OPERATIONS],
)
def test_a_kill_leaves_the_old_state_or_the_new(runner: Programs, operation: str, tmp_path: Path) -> None:
    """Killed before any call that changes the disk, a write is there or not, never in part; what was acknowledged is there; the
    next write works, gives new ids, and tidies up. By turns for a reader that comes next and for a writer that does."""
    each = 3 if operation == "transaction" else 1  # it makes many; the slow test below tries others
    assert list(kill_everywhere(runner, operation, tmp_path, each=each)) == []


@needs_strace
@pytest.mark.slow
# Deleting only looks much more often than the others, at what they look at too.
@pytest.mark.parametrize("operation", [operation for operation in OPERATIONS if operation != "delete"])
def test_a_kill_at_any_system_call_at_all(runner: Programs, operation: str, tmp_path: Path) -> None:
    """The same for the system calls that only look as well: for one in three of all, each time for others."""
    assert list(kill_everywhere(runner, operation, tmp_path, every_call=True, each=3)) == []


@needs_strace
@pytest.mark.parametrize(("variant", "operation"), [("early acknowledgement", "append"), ("without journal", "transaction")])
def test_the_harness_notices_a_broken_variant(runner: Programs, variant: str, operation: str, tmp_path: Path) -> None:
    """The same kills find a client that acknowledges before it writes, and one that commits without an intent."""
    found = kill_everywhere(runner, operation, tmp_path, variant)
    assert any("neither the old state nor the new" in problem for problem in found)


def cut_everywhere(runner: Programs, operation: str, directory: Path) -> Iterator[str]:
    """Has the kernel kill a run in the middle of a write, behind each byte of what findings.yaml grows by."""
    aftermath = Aftermath(operation, directory)
    whole = aftermath.fresh()
    findings = whole / "active" / SESSION / "findings.yaml"
    size = findings.stat().st_size
    assert runner.run(operation, whole).status == 0
    added = findings.stat().st_size - size
    # Every byte of the first lines and of the last, and some of those between.
    for cut in sorted({*range(min(8, added)), *range(8, added, 23), *range(max(added - 8, 0), added)}):
        root = aftermath.fresh()
        outcome = runner.run(operation, root, file_limit_bytes=size + cut, limit_kills=True)
        assert outcome.killed
        for problem in aftermath.problems(root, outcome, write_first=bool(cut % 2)):
            yield f"cut after {cut} bytes: {problem}"


@pytest.mark.parametrize("operation", ["append", "update", pytest.param("transaction", marks=pytest.mark.slow)])
def test_a_write_that_is_cut_off_is_not_there(runner: Programs, operation: str, tmp_path: Path) -> None:
    """Killed between any two bytes of a write, what is left of it is nobody's record: it is set aside, or completed where it
    belongs to a transaction that had been recorded."""
    assert list(cut_everywhere(runner, operation, tmp_path)) == []


def test_a_file_that_is_removed_before_the_transaction_is_finished(runner: Programs, tmp_path: Path) -> None:
    """Where a person removes a file of a transaction that was cut off, the transaction is finished all the same, in a new file.
    (At first this made every later write look for its end without end.)"""
    aftermath = Aftermath("transaction", tmp_path)
    root = aftermath.fresh()
    findings = root / "active" / SESSION / "findings.yaml"
    assert runner.run("transaction", root, file_limit_bytes=findings.stat().st_size + 10, limit_kills=True).killed
    assert len(list((root / ".smp/journal").iterdir())) == 1
    findings.unlink()
    session = open_memory(root).session(SESSION)
    session.record_finding("afterwards", discovered_by="veritas")
    assert [record.text for record in session.records("finding")] == ["found in a transaction", "found as well", "afterwards"]
    assert session.get("DEC-002").data["confidence"] == "low"
    assert session.problems() == []
    assert not list((root / ".smp/journal").iterdir())
