"""Links below `.smp/`, as a cloned repository can bring them: replaced, never followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from daemons import running, smp, status, wait_until, wait_until_true

from smp_client import Memory, Session


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory that holds a file, and nobody may touch either."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    yield directory
    assert [path.name for path in directory.iterdir()] == ["file"]
    assert (directory / "file").read_bytes() == b"precious"


def put_link(root: Path, name: str, outside: Path) -> None:
    target = root / ".smp" / name
    if target.is_dir() and not target.is_symlink():
        target.rename(Path(mkdtemp(dir=outside.parent)) / name)
    target.unlink(missing_ok=True)
    target.symlink_to(outside if name == "cookies" else outside / "file")


@pytest.mark.parametrize("name", ["cookies", "index.db", "index.db-wal"])
def test_a_link_is_replaced_at_the_start_and_while_a_daemon_runs(
    memory: Memory, session: Session, tmp_path: Path, outside: Path, name: str
) -> None:
    session.record_decision("One", made_by="a")
    assert smp("sync", "--root", memory.root).returncode == 0
    for command in (["search", "One"], ["status"], ["sync"], ["reindex"]):
        put_link(memory.root, name, outside)
        done = smp(*command, "--root", memory.root)
        assert "Traceback" not in done.stderr
        assert done.returncode == (2 if command == ["status"] else 0), (command, done)
    put_link(memory.root, name, outside)
    with running(memory.root, log=tmp_path / "log") as daemon:
        for text in ("Two", "Three"):
            wait_until(lambda: not (memory.root / ".smp" / name).is_symlink(), "the link is gone")
            session.record_decision(text, made_by="a")
            assert smp("sync", "--root", memory.root).stdout == "sync done, by the daemon\n"
            wait_until(lambda: status(memory.root)["health"] == "ok", "all is well")
            wait_until_true(memory.root)
            assert [record.text for record in session.search(text)] == [text]
            if text == "Two":
                put_link(memory.root, name, outside)
        assert not any("exception" in line for line in daemon.lines())
        assert "Traceback" not in daemon.log.read_text()
