"""The sessions of a tree in a row: right without a daemon and after edits by hand, and cheap."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from smp_client import Memory
from smp_client.ask.overview import in_use

NOW = datetime(2026, 1, 11, 12, 0, tzinfo=UTC)
OPENED: list[str] = []
COUNTING = [False]


def _count(event: str, arguments: tuple[object, ...]) -> None:
    if COUNTING[0] and event == "open":
        OPENED.append(str(arguments[0]))


@pytest.fixture(scope="module", autouse=True)
def _counted() -> None:
    sys.addaudithook(_count)  # which cannot be removed again, so it is switched off


def opened_by(work: Callable[[], object]) -> int:
    """Return how many files and directories a piece of work opens."""
    OPENED.clear()
    COUNTING[0] = True
    try:
        work()
    finally:
        COUNTING[0] = False
    return len(OPENED)


def with_sessions(root: Path, count: int) -> None:
    memory = Memory(root)
    for number in range(count):
        session = memory.create_session(id=f"s{number}", project="Shop")
        session.record_decision("Limit the tries", made_by="architect")
    for path in (root / "active").rglob("*"):
        os.utime(path, (0, 0))


@contextmanager
def clock_after_grace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders that were made just now count as settled."""
    with monkeypatch.context() as patched:
        patched.setattr("smp_client.disk.tree.GRACE_S", -1.0)
        yield


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(lambda memory: memory.sessions(), id="sessions"),
        pytest.param(lambda memory: memory.sessions("active"), id="by state"),
        pytest.param(in_use, id="overview"),
        pytest.param(lambda memory: memory.search("tries"), id="search"),
    ],
)
def test_with_a_fresh_index_the_files_opened_do_not_grow_with_the_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Callable[[Memory], list[object]]
) -> None:
    opened: list[int] = []
    for count in (3, 30):
        root = tmp_path / str(count)
        with_sessions(root, count)
        with clock_after_grace(monkeypatch):
            Memory(root).search("tries")  # by which the index knows everything
            assert len(asked(Memory(root))) >= 3
            opened.append(opened_by(partial(asked, Memory(root))))
    assert opened[0] == opened[1]


def test_more_sessions_than_descriptors_are_found_all(tmp_path: Path) -> None:
    """A new artifact in each folder: none may be left out because too many files are open."""
    root = tmp_path / "r"
    Memory(root).create_session(id="s0")
    for number in range(1, 120):
        shutil.copytree(root / "active/s0", root / f"active/s{number}")
    for number in range(120):
        (root / f"active/s{number}/artifacts/note.md").write_text(f"zebra {number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 60, hard))
    try:
        found = Memory(root).search("zebra", limit=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(found) == 120


def test_a_file_in_a_folder_that_the_index_knew_is_found_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "r"
    with_sessions(root, 2)
    note = root / "active/s1/artifacts/note.md"
    with clock_after_grace(monkeypatch):
        Memory(root).search("zebra")
        note.write_text("A zebra")
        assert len(Memory(root).search("zebra")) == 1
        note.write_text("A lion")
        assert not Memory(root).search("zebra")
        assert len(Memory(root).search("lion")) == 1
        note.unlink()
        assert not Memory(root).search("lion")


def test_each_row_says_what_the_session_itself_says(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "r", clock=lambda: NOW)
    for number in range(4):
        session = memory.create_session(id=f"s{number}", project="Shop", topic="login")
        session.record_decision("Limit the tries", made_by="architect")
    session = memory.session("s1")
    session.update("DEC-001", by="jane", rationale="Bots")  # has a history from now on
    session.save_agent_state("architect", {"current_task": "one"})
    session.save_agent_state("architect", {"current_task": "two"})
    memory.session("s2").update_metadata(status="idle")
    (tmp_path / "r/active/s3/metadata.yaml").write_text("session: [no, mapping")
    rows = {row.id: row for row in in_use(Memory(memory.root, clock=lambda: NOW))}
    assert sorted(rows) == ["s0", "s1", "s2", "s3"]
    for session in memory.sessions():
        row = rows[session.id]
        assert row.state == session.state
        assert row.total_bytes == session.size().total_bytes
        assert row.project == (None if session.id == "s3" else "Shop")
        assert row.last_use == NOW
    assert [row.memories for _, row in sorted(rows.items())] == [1, 2, 1, 1]
    assert [session.id for session in memory.sessions("idle")] == ["s2"]
    assert [session.id for session in memory.sessions("unreadable")] == ["s3"]
