"""Writers that know nothing of locks: a shell that appends, a program that keeps a file open, an
editor that saves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crossing import at_the_exchange
from daemons import elsewhere, wait_until

from smp_client import Memory, MemoryNotFound, Session, StorageFailed
from smp_client.disk import append
from smp_client.disk import rewrite as rewrite_module
from smp_client.model.record import DECISION
from smp_client.passes.tidy import tidy

# Appends with `>>` and no lock until the file `stop` is there, and prints how many records.
SHELL = r"""
i=0
while [ ! -e "$2" ]; do
    i=$((i+1))
    printf "$3" $i $i >> "$1"
    sleep 0.005
done
echo $i
"""
SHELL_FINDING = (
    r'  - id: SH-%s\n    timestamp: "2026-01-01T00:00:00Z"\n    discovered_by: shell\n'
    r"    finding: shell %s\n"
)
SHELL_TURN = r"## Turn 1%06d - 2026-01-01 00:00:00\n**Speaker:** shell\n\nshell %s\n\n---\n\n"
LOCKED = """
import sys
from smp_client import Memory
session = Memory(sys.argv[1]).session("s1")
for number in range(int(sys.argv[2])):
    session.record_finding(f"locked {number}", discovered_by="a")
    session.add_turn("a", f"locked {number}")
"""
# Has a file open for appending, and writes one record for each number that it is told.
KEPT_OPEN = r"""
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
print("open", flush=True)
for line in sys.stdin:
    number = int(line)
    os.write(descriptor, b"  - id: OPEN-%d\n    finding: written late %d\n" % (number, number))
    print("written", flush=True)
"""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="needs /proc to open what was found before"
)
Save = Callable[[Path, bytes], object]
RECORD = b"  - id: OPEN-%d\n    finding: written late %d\n"


def findings_file(memory: Memory) -> Path:
    return memory.root / "active/s1/findings.yaml"


def texts(session: Session, kind: str = "finding") -> list[str]:
    return [record.text for record in session.records(kind)]


def quarantined(memory: Memory) -> bytes:
    return b"".join(path.read_bytes() for path in (memory.root / "quarantine").rglob("*.bytes"))


def retired(memory: Memory) -> list[Path]:
    return sorted((memory.root / ".smp/retired").iterdir())


def none_is_left(memory: Memory) -> bool:
    """Whether tidying up removes every old version, once the while is over that each has to
    stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite_module, "GRACE_S", -1.0)
        tidy(memory)
    return retired(memory) == []


@pytest.mark.parametrize("each", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_shell_loops_lose_nothing_to_rewrites(
    session: Session, memory: Memory, tmp_path: Path, each: int
) -> None:
    """Shell loops append to two files while the library rewrites both, and another process adds
    records under the lock: every record of each is there exactly once."""
    session.record_finding("pinned", discovered_by="a")
    session.add_turn("user", "pinned")
    stop, folder = tmp_path / "stop", memory.root / "active/s1"
    shells = [
        subprocess.Popen(
            ["/bin/sh", "-c", SHELL, "sh", str(folder / file), str(stop), record],
            stdout=subprocess.PIPE, text=True,
        )
        for record, file in ((SHELL_FINDING, "findings.yaml"), (SHELL_TURN, "conversation.md"))
    ]  # fmt: skip
    other = subprocess.Popen([sys.executable, "-c", LOCKED, str(memory.root), str(each)])
    for number in range(each):
        session.update("FIND-001", step=number)
        (session.unpin if number % 2 else session.pin)("turn-1")
    assert other.wait(timeout=60) == 0
    stop.touch()
    counts = [int(shell.communicate(timeout=60)[0]) for shell in shells]
    wait_until(lambda: none_is_left(memory), "all is brought over")
    for kind, memory_id, count in (("finding", "FIND-001", counts[0]), ("turn", "turn-1", counts[1])):
        assert session.pin(memory_id).pinned
        ours = [f"locked {number}" for number in range(each)]
        theirs = [f"shell {number + 1}" for number in range(count)]
        assert Counter(texts(session, kind)) == Counter(["pinned", *ours, *theirs])
        assert count > 20, "the shell was too slow to be in anybody's way"
    assert session.problems() == []
    assert quarantined(memory) == b""


def append_late(memory: Memory, number: int) -> None:
    with findings_file(memory).open("ab") as file:
        file.write(RECORD % (number, number))


def without_first(session: Session, memory: Memory) -> bytes:
    """Record two findings, and return their file without the first."""
    session.record_finding("pinned", discovered_by="a")
    session.record_finding("other", discovered_by="a")
    content = findings_file(memory).read_bytes()
    first, second = (content.index(f"  - id: FIND-00{number}".encode()) for number in (1, 2))
    return content[:first] + content[second:]


def held_up_while_opening(path: Path) -> Callable[..., None]:
    """A writer that has found the file by its name, but not opened it yet; call it to make it go
    on: open, write, close."""
    found = os.open(path, os.O_PATH)

    def go_on(content: bytes, how: int = os.O_APPEND) -> None:
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_WRONLY | how)
        os.write(descriptor, content)
        os.close(descriptor)
        os.close(found)

    return go_on


@needs_proc
def test_a_writer_that_is_held_up_while_it_opens_the_file_loses_nothing(
    session: Session, memory: Memory
) -> None:
    """It found the file before we replaced it and opens it afterwards. The kernel does not count it
    before, so the old version has to stay for a while."""
    session.record_finding("pinned", discovered_by="a")
    go_on = held_up_while_opening(findings_file(memory))
    session.pin("FIND-001")
    session.record_finding("in between", discovered_by="a")
    tidy(memory)
    go_on(RECORD % (1, 1))
    assert none_is_left(memory)
    assert texts(session) == ["pinned", "in between", "written late 1"]


@needs_proc
def test_a_writer_of_what_we_take_back_loses_nothing(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody opens the file that we have just put in the place of an edit, and we put the edit
    back, because it has removed the record: bytes written then arrive."""
    path, edited = findings_file(memory), without_first(session, memory)
    late: list[Callable[..., None]] = []
    with (
        at_the_exchange(
            monkeypatch,
            before=lambda: save_by_rename(path, edited),
            after=lambda: late.append(held_up_while_opening(path)),
        ),
        pytest.raises(MemoryNotFound),
    ):
        session.pin("FIND-001")
    late[0](RECORD % (1, 1))
    assert none_is_left(memory)
    assert texts(session) == ["other", "written late 1"]


def test_an_append_that_is_half_written_when_we_replace_the_file_stays_in_one_piece(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are half written at the exchange are taken in when they are whole, behind the
    bytes that came into the new file meanwhile."""
    session.record_finding("pinned", discovered_by="a")
    record = RECORD % (1, 1)
    writers: list[int] = []

    def begin() -> None:
        writers.append(os.open(findings_file(memory), os.O_WRONLY | os.O_APPEND))
        os.write(writers[0], record[:25])

    with at_the_exchange(monkeypatch, before=begin):
        session.pin("FIND-001")
    append_late(memory, 2)
    os.write(writers[0], record[25:])
    os.close(writers[0])
    assert none_is_left(memory)
    assert texts(session) == ["pinned", "written late 2", "written late 1"]
    assert record in findings_file(memory).read_bytes()


@pytest.mark.parametrize("begins", ["before we look", "while we write"])
def test_a_shell_that_writes_line_by_line_is_not_crossed(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    """A shell's printf of several lines is as many writes: our turn comes behind the last."""
    session.add_turn("a", "first")
    path = memory.root / "active/s1/conversation.md"
    shell = path.open("ab", buffering=0)

    def begin(*_: Any) -> None:
        shell.write(b"## Turn 90 - 2026-01-01 00:00:00\n")

    def go_on(_: float) -> None:
        shell.write(b"**Speaker:** shell\n\nby the shell\n\n---\n\n")
        shell.close()

    monkeypatch.setattr(rewrite_module.time, "sleep", go_on)
    if begins == "before we look":
        begin()
    else:
        monkeypatch.setattr(session, "quota_bytes", begin)  # asked right before the file is opened
    session.add_turn("a", "last")
    assert shell.closed
    assert texts(session, "turn") == ["first", "by the shell", "last"]


def test_a_file_kept_open_across_a_rewrite_loses_nothing(session: Session, memory: Memory) -> None:
    """A program that opened the file before a rewrite and writes after it: its record arrives with
    the next write of ours."""
    session.record_finding("pinned", discovered_by="a")
    with elsewhere(KEPT_OPEN, findings_file(memory)) as write:
        write("1")
        session.pin("FIND-001")
        write("2")
        assert len(retired(memory)) == 1
        session.pin("FIND-001")
        session.record_finding("in between", discovered_by="a")
        write("3")
    session.record_finding("last", discovered_by="a")
    late = [f"written late {number}" for number in (1, 2, 3)]
    assert sorted(texts(session)) == ["in between", "last", "pinned", *late]
    assert none_is_left(memory)


def save_by_rename(path: Path, content: bytes) -> None:
    aside = path.with_name("editor.tmp")
    aside.write_bytes(content)
    os.replace(aside, path)


@pytest.mark.parametrize("save", [save_by_rename, Path.write_bytes], ids=["by rename", "in place"])
def test_an_edit_that_crosses_a_rewrite_survives(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch, save: Save
) -> None:
    """An editor that saves between our reading and our replacing keeps its edit, under ours."""
    session.record_finding("pinned", discovered_by="a")
    session.record_finding("to be edited", discovered_by="a")
    path = findings_file(memory)
    edited = path.read_bytes().replace(b"to be edited", b"edited by hand")
    with at_the_exchange(monkeypatch, before=lambda: save(path, edited) and None):
        session.pin("FIND-001")
    assert texts(session) == ["pinned", "edited by hand"]
    assert session.get("FIND-001").pinned
    assert session.record_finding("last", discovered_by="a").id == "FIND-003"
    assert none_is_left(memory)


def test_an_edit_written_into_the_old_file_is_kept_aside(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor writes the file anew that it had opened before our exchange."""
    session.record_finding("pinned", discovered_by="a")
    edited = findings_file(memory).read_bytes().replace(b"pinned", b"edited by hand")
    descriptor = os.open(findings_file(memory), os.O_WRONLY)
    session.pin("FIND-001")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, edited)
    os.close(descriptor)
    session.record_finding("last", discovered_by="a")
    assert texts(session) == ["pinned", "last"]
    assert quarantined(memory) == edited
    assert none_is_left(memory)


def test_a_drop_that_came_under_the_same_name_is_another_drop(
    session: Session, memory: Memory
) -> None:
    """The one that was read goes with the transaction, the new one stays."""
    drop = memory.root / "active/s1/inbox/a.yaml"
    drop.write_text("first")
    read = drop.stat()
    with session.transaction() as tx:
        tx.record(DECISION, {"decision": "first", "made_by": "a"})
        tx.remove_drop("inbox/a.yaml", read)
        (drop.parent / ".new").write_text("second")
        (drop.parent / ".new").rename(drop)
    assert drop.read_text() == "second"
    assert [record.text for record in session.records("decision")] == ["first"]


def test_taking_back_a_failed_write_leaves_what_somebody_else_wrote(
    session: Session, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell appends just before our write fails: its record stays."""
    session.record_decision("before", made_by="a")
    decisions = memory.root / "active/s1/decisions.yaml"

    def fail(descriptor: int, content: bytes) -> None:
        with decisions.open("a") as shell:
            shell.write("  - {id: DEC-050, decision: theirs}\n")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(append, "write_all", fail)
        with pytest.raises(StorageFailed):
            session.record_decision("ours", made_by="a")
    assert [record.text for record in session.records("decision")] == ["before", "theirs"]
