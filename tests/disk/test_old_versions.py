"""Old versions of files, in `.smp/retired/`: they stay for a while, and no longer than needed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import running, status, wait_until

from smp_client import Memory, Session
from smp_client.disk.rewrite import GRACE_S

DELETED = "a matter that is deleted"


def old_versions(memory: Memory) -> list[Path]:
    return [*(memory.root / ".smp/retired").iterdir()]


def stays_no_longer(path: Path) -> bool:
    """Return whether an old version is past its while, also by a clock with coarse ticks."""
    return time.time() - path.stat().st_ctime > GRACE_S + 0.1


def deleted(session: Session) -> Path:
    """Delete a memory, and return the old version of its file, past its while."""
    session.record_finding(DELETED, discovered_by="a")
    session.record_decision("this stays", made_by="a")
    session.delete("FIND-001", reason="r")
    (old,) = (path for path in old_versions(session.memory) if DELETED in path.read_text())
    wait_until(lambda: stays_no_longer(old), "its while is over")
    return old


ACCESS: dict[str, Callable[[Session], object]] = {
    "a question to the memory": lambda session: session.memory.search("stays"),
    "a question to the session": lambda session: session.search("stays"),
    "reading another file": lambda session: session.records("decision"),
    "writing another file": lambda session: session.record_decision("more", made_by="a"),
    "writing the metadata": lambda session: session.update_metadata(status="idle"),
}


@pytest.mark.parametrize("access", ACCESS)
def test_the_next_access_of_its_session_removes_it(
    session: Session, memory: Memory, access: str
) -> None:
    old = deleted(session)
    ACCESS[access](session)
    assert not old.exists()


def test_it_stays_while_somebody_has_it_open_and_late_bytes_come_in(
    session: Session, memory: Memory
) -> None:
    session.record_finding("one", discovered_by="a")
    with (memory.root / "active/s1/findings.yaml").open("ab") as file:
        inode = os.fstat(file.fileno()).st_ino
        session.update("FIND-001", severity="low")
        (old,) = (path for path in old_versions(memory) if path.stat().st_ino == inode)
        wait_until(lambda: stays_no_longer(old), "its while is over")
        session.records("finding")
        assert old.exists()
        file.write(b"  - id: FIND-late\n    finding: written late\n")
    session.records("decision")
    assert [record.id for record in session.records("finding")] == ["FIND-001", "FIND-late"]


def test_a_daemon_removes_it_soon_and_not_only_when_it_tidies(
    session: Session, memory: Memory, tmp_path: Path
) -> None:
    def tidied_at() -> str:
        return str(status(memory.root)["jobs"]["tidy"]["last_success"])

    with running(memory.root, log=tmp_path / "log"):
        first = tidied_at()
        wait_until(lambda: tidied_at() != first, "it has just tidied")
        before = tidied_at()
        session.record_finding(DELETED, discovered_by="a")
        session.delete("FIND-001", reason="r")
        (old,) = (path for path in old_versions(memory) if DELETED in path.read_text())
        wait_until(lambda: not old.exists(), "the old version is gone")
        beat = status(memory.root)["heartbeat_at"]
        wait_until(lambda: status(memory.root)["heartbeat_at"] != beat, "it says what it did")
        assert tidied_at() == before
