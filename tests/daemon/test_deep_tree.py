"""Directories inside directories, far deeper than anybody goes: they cost nobody but themselves."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from daemons import running, smp, status, wait_until

from smp_client import Memory, UnsafePath
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


def test_a_daemon_goes_on_and_the_session_stays_until_somebody_moves_it(
    memory: Memory, tmp_path: Path
) -> None:
    """No bundle can hold such directories."""
    session = memory.create_session(id="deep")
    nest(memory.root / "active/deep")
    with running(memory.root, log=tmp_path / "log"):
        session.record_decision("seen all the same", made_by="a")
        nest(memory.root / "active/deep", "e")
        assert smp("sync", "--root", memory.root).returncode == 0
        assert "seen all the same" in smp("search", "seen", "--root", memory.root).stdout
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
        for leave in (memory.archive_session, partial(memory.delete_session, reason="done")):
            with pytest.raises(UnsafePath, match="No bundle can hold"):
                leave("deep")
    assert len(session.records("decision")) == 1
    for name in "de":
        Tree(memory.root).remove_directory(f"active/deep/{name}")
    assert memory.archive_session("deep").success
