"""Directories inside directories, far deeper than anybody goes: they cost nobody but themselves."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from daemons import running, smp, status, wait_until

from smp_client import Memory, Session, UnsafePath
from smp_client.disk.tree import Tree

DEEP = 100
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


def test_its_session_stays_until_somebody_moves_it(memory: Memory, deep: Session) -> None:
    for leave in (memory.archive_session, partial(memory.delete_session, reason="done")):
        with pytest.raises(UnsafePath, match="No bundle can hold"):
            leave("deep")
    assert [one.text for one in deep.records("finding")] == ["kept"]
    Tree(memory.root).remove_directory("active/deep/d")
    assert memory.archive_session("deep").success


def test_a_daemon_goes_on(memory: Memory, deep: Session, tmp_path: Path) -> None:
    with running(memory.root, log=tmp_path / "log"):
        other = memory.create_session(id="other")
        nest(memory.root / "active/other", "e")
        other.record_decision("seen all the same", made_by="a")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert "seen all the same" in smp("search", "seen", "--root", memory.root).stdout
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
