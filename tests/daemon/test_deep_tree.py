"""Directories inside directories, far deeper than anybody goes: they cost nobody but themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from daemons import running, smp, status, wait_until

from smp_client import Memory, Session

DEEP, DEEPEST = 100, 32
pytestmark = pytest.mark.usefixtures("short_grace")


def nest(directory: Path, name: str = "d") -> None:
    """One inside the other, with a file in the last."""
    path = os.fspath(directory)
    for _ in range(DEEP):
        path += f"/{name}"
        os.mkdir(path)
    with open(f"{path}/deep.md", "w") as file:
        file.write("far down")


@pytest.fixture
def deep(memory: Memory) -> Session:
    """A session with such directories, beside what every session has."""
    session = memory.create_session(id="deep")
    session.record_finding("kept", discovered_by="a")
    nest(memory.root / "active/deep")
    (memory.root / "active/deep/d/d/near.txt").write_text("near")
    return session


def test_it_is_archived_and_comes_back(memory: Memory, deep: Session) -> None:
    outcome = memory.archive_session("deep")
    assert outcome.success
    assert f"deeper than {DEEPEST} directories" in outcome.notes[0]
    assert not (memory.root / "active/deep").exists()
    memory.restore_session("deep")
    assert [one.text for one in memory.session("deep").records("finding")] == ["kept"]
    assert (memory.root / "active/deep/d/d/near.txt").read_text() == "near"
    assert [*(memory.root / "quarantine/deep").glob("*.directory")]


def test_it_is_deleted_and_purged(memory: Memory, deep: Session) -> None:
    assert memory.delete_session("deep", reason="done").success
    memory.undelete_session("deep")
    assert [one.text for one in memory.session("deep").records("finding")] == ["kept"]
    assert memory.privacy.purge_now("deep").success
    left = [path.read_bytes() for path in memory.root.rglob("*deep*") if path.is_file()]
    assert not [content for content in left if b"kept" in content or b"far down" in content]
    assert not (memory.root / "quarantine/deep").exists()


def test_a_daemon_goes_on(memory: Memory, deep: Session, tmp_path: Path) -> None:
    with running(memory.root, log=tmp_path / "log"):
        other = memory.create_session(id="other")
        nest(memory.root / "active/other", "e")
        other.record_decision("seen all the same", made_by="a")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert "seen all the same" in smp("search", "seen", "--root", memory.root).stdout
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
