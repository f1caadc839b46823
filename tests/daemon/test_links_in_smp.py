"""Links below `.smp/`, as a cloned repository can bring them: replaced, never followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemons import Daemon, running, smp, status, wait_until, wait_until_true

from smp_client import Memory, Session

NAMES = ["cookies", "index.db", "index.db-wal"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that holds a file which nobody may touch."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    return directory


def put_link(root: Path, name: str, outside: Path) -> None:
    target = root / ".smp" / name
    if target.is_dir():
        target.rename(outside.parent / f"aside-{name}")
    target.unlink(missing_ok=True)
    target.symlink_to(outside if name == "cookies" else outside / "file")


def is_untouched(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["file"] and (
        outside / "file"
    ).read_bytes() == b"precious"


def has_no_traceback(daemon: Daemon) -> bool:
    return (
        not any("exception" in line for line in daemon.lines())
        and "Traceback" not in daemon.log.read_text()
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_link_that_is_there_at_the_start(
    memory: Memory, session: Session, tmp_path: Path, outside: Path, name: str
) -> None:
    session.record_decision("One", made_by="a")
    assert smp("sync", "--root", memory.root).returncode == 0
    put_link(memory.root, name, outside)
    for command in (["search", "One"], ["status"], ["sync"], ["reindex"]):
        put_link(memory.root, name, outside)
        done = smp(*command, "--root", memory.root)
        assert "Traceback" not in done.stderr
        assert done.returncode in ((2,) if command == ["status"] else (0,)), (command, done)
    put_link(memory.root, name, outside)
    with running(memory.root, log=tmp_path / "log") as daemon:
        assert smp("sync", "--root", memory.root).stdout == "sync done, by the daemon\n"
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
        wait_until_true(memory.root)
        assert has_no_traceback(daemon)
    assert is_untouched(outside)


@pytest.mark.parametrize("name", NAMES)
def test_a_link_that_comes_while_it_runs(
    memory: Memory, session: Session, tmp_path: Path, outside: Path, name: str
) -> None:
    with running(memory.root, log=tmp_path / "log") as daemon:
        put_link(memory.root, name, outside)
        wait_until(lambda: not (memory.root / ".smp" / name).is_symlink(), "the link is gone")
        session.record_decision("Two", made_by="a")
        assert smp("sync", "--root", memory.root).returncode == 0
        wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
        wait_until_true(memory.root)
        assert [record.text for record in session.search("Two")] == ["Two"]
        assert has_no_traceback(daemon)
    assert is_untouched(outside)
