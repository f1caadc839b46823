"""Directories inside directories, far deeper than anybody goes: they cost nobody but themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemons import Daemon, smp, status, wait_until

from smp_client import Memory, Session
from smp_client.disk.tree import Tree

DEEP, DEEPEST = 1200, 32
pytestmark = pytest.mark.usefixtures("short_grace")


def nest(directory: Path, name: str = "d") -> None:
    """One inside the other, with a file in the last."""
    path = os.fspath(directory)
    for _ in range(DEEP):
        path += f"/{name}"
        os.mkdir(path)
    with open(f"{path}/deep.md", "w") as file:
        file.write("far down")


def make(directory: Path) -> None:
    """Also where its name is longer than the kernel takes at once."""
    descriptor = os.open("/", os.O_RDONLY)
    for part in directory.parts[1:]:
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=descriptor)
        below = os.open(part, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


@pytest.fixture
def deep(memory: Memory) -> Iterator[Session]:
    """A session with such directories, beside what every session has."""
    session = memory.create_session(id="deep")
    session.record_finding("kept", discovered_by="a")
    other = memory.create_session(id="other")
    other.record_finding("the words of the other one", discovered_by="a")
    nest(memory.root / "active/deep")
    (memory.root / "active/deep/d/d/near.txt").write_text("near")
    yield session
    Tree(memory.root).remove_directory("active")
    Tree(memory.root).remove_directory("quarantine")


def depth_of(directory: Path) -> int:
    found, descriptor = 0, os.open(directory, os.O_RDONLY)
    while inner := [entry.name for entry in os.scandir(descriptor) if entry.is_dir()]:
        below = os.open(inner[0], os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        found, descriptor = found + 1, below
    os.close(descriptor)
    return found


def test_it_is_archived_and_comes_back(memory: Memory, deep: Session) -> None:
    outcome = memory.archive_session("deep")
    assert outcome.success
    (note,) = outcome.notes
    assert f"deeper than {DEEPEST} directories" in note
    assert not (memory.root / "active/deep").exists()
    memory.restore_session("deep")
    assert [one.text for one in memory.session("deep").records("finding")] == ["kept"]
    assert (memory.root / "active/deep/d/d/near.txt").read_text() == "near"
    (aside,) = (memory.root / "quarantine/deep").glob("*.directory")
    assert depth_of(aside) == DEEP - DEEPEST - 1


def test_it_is_deleted_and_purged(memory: Memory, deep: Session) -> None:
    assert memory.delete_session("deep", reason="done").success
    memory.undelete_session("deep")
    assert [one.text for one in memory.session("deep").records("finding")] == ["kept"]
    outcome = memory.privacy.purge_now("deep")
    assert outcome.success
    left = [path for path in memory.root.rglob("*deep*") if path.is_file()]
    assert [
        path.name
        for path in left
        if b"kept" in path.read_bytes() or b"far down" in path.read_bytes()
    ] == []
    assert not (memory.root / "quarantine/deep").exists()


def test_a_daemon_goes_on(memory: Memory, deep: Session, tmp_path: Path) -> None:
    daemon = Daemon([memory.root], tmp_path / "log")
    try:
        daemon.wait_ready()
        nest(memory.root / "active/other", "e")
        make(memory.root.joinpath("active/other/long", *["x" * 200] * 25))
        (memory.root / "active/other/decisions.yaml").write_text(
            "decisions:\n  - id: DEC-x\n    decision: seen all the same\n"
        )
        wait_until(
            lambda: "seen all the same" in smp("search", "seen", "--root", memory.root).stdout,
            "it is seen",
        )
        assert status(memory.root)["health"] == "ok"
    finally:
        daemon.stop()
